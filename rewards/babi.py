"""bAbI's first five worlds: their sentences, and what a reader who knows the question has to remember of them.

Source: bAbI tasks (Weston et al. 2015, arXiv 1502.05698), tasks 1 to 5, which BABILong hides in books.

``Notes`` is a short memory that still answers. It changes only where a fact bears on the question::

    Where was the milk before the office?
    John went to the hallway.    Mary: -, John: hallway, Daniel: -, Sandra: -
    Mary went to the office.     Mary: office, John: hallway, Daniel: -, Sandra: -
    Mary took the milk.          milk, Mary: office; before the office: -
    John went to the garden.     (not about the milk)
    Mary went to the garden.     milk, Mary: garden; before the office: -
    Mary went to the office.     milk, Mary: office; before the office: garden
    Mary dropped the milk.       milk: office; before the office: garden

Until someone has taken the thing, anyone may, so everyone's place counts; from then on its own way is enough, since
whoever takes it again stands where it lies. Every person has a place in the line, known or not, so that writing it is
one decision a person and none is forgotten. Of a question about one person the memory is that person's place, and of
one about giving the last gift that fits. Of a question about a place the memory has every sentence that names it, from
both sides and in the question's form: writing needs no choice, and the answer stands behind the question's words::

    What is the garden west of?
    The bedroom is west of the garden.     the bedroom west of: garden, the garden east of: bedroom
    The garden is west of the bathroom.    ...; the garden west of: bathroom, the bathroom east of: garden
"""

from __future__ import annotations

import re
from typing import NamedTuple

PEOPLE = ("Mary", "John", "Daniel", "Sandra")
GIVERS = ("Fred", "Jeff", "Bill", "Mary")
"""The people of task 5."""
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
THINGS = ("apple", "football", "milk")
MOVED = ("moved to", "went to", "journeyed to", "travelled to", "went back to")
TOOK = ("took", "got", "picked up", "grabbed")
DROPPED = ("dropped", "left", "discarded", "put down")
GAVE = ("gave", "handed", "passed")
DIRECTIONS = ("north", "south", "east", "west")
OPPOSITE = dict(zip(DIRECTIONS, ("south", "north", "west", "east"), strict=True))
UNKNOWN = "-"
"""A place that no fact has told."""


class Fact(NamedTuple):
    """What a sentence says: who moved to, took, dropped or gave what; or which place lies in which direction."""

    kind: str
    """moved, took, dropped, gave or lies."""
    who: str
    what: str
    to: str = ""
    """Who was given the thing; of directions the other place."""


def _any(words: tuple[str, ...]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_PERSON = r"(?P<who>[A-Z]\w+)"
_SENTENCES = {
    "moved": re.compile(rf"{_PERSON} (?:{_any(MOVED)}) the (?P<what>{_any(PLACES)})"),
    "took": re.compile(rf"{_PERSON} (?:{_any(TOOK)}) the (?P<what>{_any(THINGS)})(?: there)?"),
    "dropped": re.compile(rf"{_PERSON} (?:{_any(DROPPED)}) the (?P<what>{_any(THINGS)})(?: there)?"),
    "gave": re.compile(rf"{_PERSON} (?:{_any(GAVE)}) the (?P<what>{_any(THINGS)}) to (?P<to>[A-Z]\w+)"),
    "lies": re.compile(rf"The (?P<who>{_any(PLACES)}) is (?P<what>{_any(DIRECTIONS)}) of the (?P<to>{_any(PLACES)})"),
}


def read_fact(sentence: str) -> Fact | None:
    """What a sentence of one of the worlds says; None for any other.

    >>> read_fact("Mary went back to the office.")
    Fact(kind='moved', who='Mary', what='office', to='')
    """
    for kind, form in _SENTENCES.items():
        if found := form.fullmatch(sentence.strip().rstrip(".").rstrip()):
            return Fact(kind, found["who"], found["what"], found.groupdict().get("to") or "")
    return None


_GIVER, _RECEIVER = r"(?P<giver>[A-Z]\w+)", r"(?P<receiver>[A-Z]\w+)"
_THING, _PLACE = rf"the (?P<thing>{_any(THINGS)})", rf"the (?P<place>{_any(PLACES)})"
_QUESTIONS = [(kind, re.compile(form)) for kind, form in (
    ("person", rf"Where is {_GIVER}"), ("thing", rf"Where is {_THING}"),
    ("way", rf"Where was {_THING} before {_PLACE}"),
    ("of place", rf"What is (?:{_any(DIRECTIONS)}) of {_PLACE}"),
    ("place of", rf"What is {_PLACE} (?:{_any(DIRECTIONS)}) of"),
    ("gift", rf"What did {_GIVER} give to {_RECEIVER}"), ("gift", rf"Who gave {_THING}(?: to {_RECEIVER})?"),
    ("gift", rf"Who did {_GIVER} give {_THING} to"), ("gift", rf"Who received {_THING}"),
)]


class Notes:
    """The memory for one question, fact by fact; ``text`` is empty as long as nothing counts.

    Raises:
        ValueError: the question is of none of the five tasks.
    """

    def __init__(self, question: str) -> None:
        text = question.strip().rstrip("?").rstrip()
        found = [(kind, match) for kind, form in _QUESTIONS if (match := form.fullmatch(text))]
        if not found:
            raise ValueError(f"{question!r} is no question of bAbI's tasks 1 to 5")
        (self.kind, match), *_ = found
        named = match.groupdict("")
        self._giver, self._thing, self._receiver, self._place = (
            named.get(name, "") for name in ("giver", "thing", "receiver", "place"))
        self._places: dict[str, str] = {}
        self._taken, self._holder, self._before = False, "", ""
        self._said = ""

    def add(self, fact: Fact) -> None:
        """The next fact of the story."""
        if self.kind == "gift":
            named = ((self._giver, fact.who), (self._thing, fact.what), (self._receiver, fact.to))
            if fact.kind == "gave" and all(name in ("", said) for name, said in named):  # "": anyone will do
                self._said = f"{fact.who} gave {fact.what} to {fact.to}"
        elif self.kind in ("of place", "place of"):
            if fact.kind == "lies" and self._place in (fact.who, fact.to):
                form = "{1} of the {2}: {0}" if self.kind == "of place" else "the {0} {1} of: {2}"
                sides = form.format(*fact[1:]), form.format(fact.to, OPPOSITE[fact.what], fact.who)
                self._said += ("; " if self._said else "") + ", ".join(sides)
        elif self.kind == "person":
            if fact.kind == "moved" and fact.who == self._giver:
                self._said = f"{fact.who}: {fact.what}"
        else:
            self._follow(fact)

    def _follow(self, fact: Fact) -> None:
        thing = self._thing
        if fact.kind == "moved" and not self._taken:
            self._places[fact.who] = fact.what
        elif fact.kind == "moved" and fact.who == self._holder:
            here = self._places[thing]
            if fact.what == self._place and here not in ("", self._place):
                self._before = here
            self._places[thing] = fact.what
        elif fact.kind in ("took", "gave") and fact.what == thing:
            if not self._taken:
                self._places = {thing: self._places.get(fact.who, "")}
            self._taken, self._holder = True, fact.to or fact.who
        elif fact.kind == "dropped" and fact.what == thing:
            if not self._taken:
                self._places, self._taken = {thing: self._places.get(fact.who, "")}, True
            self._holder = ""

    @property
    def text(self) -> str:
        """The memory as it is written."""
        if self.kind not in ("thing", "way"):
            return self._said
        if not self._taken:
            line = dict.fromkeys(PEOPLE, UNKNOWN) | self._places
            return ", ".join(f"{who}: {place}" for who, place in line.items()) if self._places else ""
        thing = self._thing
        holder = f", {self._holder}" if self._holder else ""
        before = f"; before the {self._place}: {self._before or UNKNOWN}" if self.kind == "way" else ""
        return f"{thing}{holder}: {self._places[thing] or UNKNOWN}{before}"
