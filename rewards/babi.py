"""bAbI's first five worlds: their sentences, and what a reader who knows the question has to remember of them.

Source: bAbI tasks (Weston et al. 2015, arXiv 1502.05698), tasks 1 to 5, which BABILong hides in books.

``Notes`` is a short memory that still answers. It changes only where a fact bears on the question::

    Where was the milk before the office?
    John went to the hallway.    Mary: -, John: hallway, Daniel: -, Sandra: -
    Mary went to the office.     Mary: office, John: hallway, Daniel: -, Sandra: -
    Mary took the milk.          milk, Mary: office; before: -
    John went to the garden.     (not about the milk)
    Mary went to the garden.     milk, Mary: garden; before: -
    Mary went to the office.     milk, Mary: office; before: garden
    Mary dropped the milk.       milk: office; before: garden

Until someone has taken the thing, anyone may, so everyone's place counts; from then on its own way is enough, since
whoever takes it again stands where it lies. Every person has a place in the line, known or not, so that writing it is
one decision a person and none is forgotten. Of a question about one person the memory is that person's place, of one
about giving the last gift that fits, and of directions the sentences that name the place that is asked about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

PEOPLE = ("Mary", "John", "Daniel", "Sandra")
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
THINGS = ("apple", "football", "milk")
MOVED = ("moved to", "went to", "journeyed to", "travelled to", "went back to")
TOOK = ("took", "got", "picked up", "grabbed")
DROPPED = ("dropped", "left", "discarded", "put down")
GAVE = ("gave", "handed", "passed")
DIRECTIONS = ("north", "south", "east", "west")
UNKNOWN = "-"
"""A place that no fact has told."""


class Fact(NamedTuple):
    """What a sentence says; ``what`` is a place, a thing, or a direction (``where`` is "east of" what)."""

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


@dataclass
class Gift:
    """What a question about giving asks for; empty where anyone or anything will do."""

    giver: str = ""
    thing: str = ""
    receiver: str = ""

    def fits(self, fact: Fact) -> bool:
        asked = (self.giver, self.thing, self.receiver)
        return all(name in ("", said) for name, said in zip(asked, (fact.who, fact.what, fact.to), strict=True))


_THING, _PLACE = rf"(?P<thing>{_any(THINGS)})", rf"(?P<place>{_any(PLACES)})"
_QUESTIONS = {
    "person": re.compile(r"Where is (?P<giver>[A-Z]\w+)"),
    "thing": re.compile(rf"Where is the {_THING}"),
    "way": re.compile(rf"Where was the {_THING} before the {_PLACE}"),
    "direction": re.compile(rf"What is (?:\w+ of the {_PLACE}|the (?P<other>{_any(PLACES)}) \w+ of)"),
    "gift": re.compile(
        rf"What did (?P<giver>[A-Z]\w+) give to (?P<receiver>[A-Z]\w+)|Who gave the (?P<given>{_any(THINGS)})"
        rf"(?: to (?P<getter>[A-Z]\w+))?|Who did (?P<from>[A-Z]\w+) give the (?P<handed>{_any(THINGS)}) to|"
        rf"Who received the (?P<got>{_any(THINGS)})"),
}


class Notes:
    """The memory for one question, fact by fact; ``text`` is empty as long as nothing counts.

    Raises:
        ValueError: the question is of none of the five tasks.
    """

    def __init__(self, question: str) -> None:
        asked = question.strip().rstrip("?").rstrip()
        found = {kind: match for kind, form in _QUESTIONS.items() if (match := form.fullmatch(asked))}
        if not found:
            raise ValueError(f"{question!r} is no question of bAbI's tasks 1 to 5")
        self.kind, match = next(iter(found.items()))
        named = {name: value or "" for name, value in match.groupdict().items()}
        self.place = named.get("place") or named.get("other") or ""
        self.gift = Gift(
            named.get("giver") or named.get("from") or "",
            next((named[name] for name in ("thing", "given", "handed", "got") if named.get(name)), ""),
            named.get("receiver") or named.get("getter") or "")
        self._places: dict[str, str] = {}
        self._taken, self._holder, self._before = False, "", ""
        self._said: list[str] = []

    def add(self, fact: Fact) -> None:
        """The next fact of the story."""
        if self.kind == "gift":
            if fact.kind == "gave" and self.gift.fits(fact):
                self._said = [f"{fact.who} gave {fact.what} to {fact.to}"]
        elif self.kind == "direction":
            if fact.kind == "lies" and self.place in (fact.who, fact.to):
                self._said.append(f"The {fact.who} is {fact.what} of the {fact.to}.")
        elif self.kind == "person":
            if fact.kind == "moved" and fact.who == self.gift.giver:
                self._said = [f"{fact.who}: {fact.what}"]
        else:
            self._follow(fact)

    def _follow(self, fact: Fact) -> None:
        thing = self.gift.thing
        if fact.kind == "moved" and not self._taken:
            self._places[fact.who] = fact.what
        elif fact.kind == "moved" and fact.who == self._holder:
            here = self._places[thing]
            if fact.what == self.place and here not in ("", self.place):
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
        if self.kind in ("gift", "direction", "person"):
            return " ".join(self._said)
        if not self._taken:
            line = dict.fromkeys(PEOPLE, UNKNOWN) | self._places
            return ", ".join(f"{who}: {place}" for who, place in line.items()) if self._places else ""
        thing = self.gift.thing
        holder = f", {self._holder}" if self._holder else ""
        before = f"; before: {self._before or UNKNOWN}" if self.kind == "way" else ""
        return f"{thing}{holder}: {self._places[thing] or UNKNOWN}{before}"

    @property
    def answer(self) -> str:
        """What the memory says the answer is; empty where it says none."""
        if self.kind == "person":
            return self._said[0].rpartition(" ")[2] if self._said else ""
        if self.kind == "thing":
            return self._places.get(self.gift.thing, "")
        return self._before if self.kind == "way" else ""
