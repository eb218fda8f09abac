"""Stories of bAbI's tasks 1 to 5: from its own files, or from a simulation of the five worlds.

A story is facts in their order and the questions that they answer. In bAbI's files a story begins at 1, and a
question names its answer and the facts that support it behind tabs::

    1 Mary moved to the bathroom.
    2 John went to the hallway.
    3 Where is Mary? <TAB> bathroom <TAB> 1

Each question with all facts before it is a story of its own, as in BABILong. The archive (10k variant) is not always
at hand; the simulation makes the same sentences: people walk between six places, take, drop and (task 5) give away
three things, and a question is one that the facts told so far answer. Numbers of facts are drawn around those of the
archive, within the ranges that BABILong's README gives::

    task   persons                        facts    asks
    qa1    Mary, John, Daniel, Sandra     2-10     where a person is
    qa2    the same                       2-68     where a thing is
    qa3    the same                       4-32     where a thing was before a place
    qa4    none                           2        what lies in a direction of a place
    qa5    Fred, Jeff, Bill, Mary         2-126    who gave what to whom
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from ..rewards.babi import DIRECTIONS, DROPPED, GAVE, GIVERS, MOVED, OPPOSITE, PEOPLE, PLACES, THINGS, TOOK
from .rows import DataError

FACTS = {"qa1": (2, 10), "qa2": (2, 68), "qa3": (4, 32), "qa4": (2, 2), "qa5": (2, 126)}
"""The fewest and most facts of a task."""
_USUAL = {"qa1": (2, 2), "qa2": (10, 4), "qa3": (14, 4), "qa4": (2, 0), "qa5": (6, 5)}
"""The facts before a story's first question, and between two, in the mean."""
_QUESTIONS = 5
"""A story of the archive asks so many, one after the other."""


class Story(NamedTuple):
    facts: tuple[str, ...]
    asked: tuple[tuple[str, str], ...]
    """Questions and their answers."""


def read_babi(path: Path) -> Iterator[Story]:
    """The questions of a file of bAbI, each with the facts before it. Raises DataError."""
    facts: list[str] = []
    line = ""
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            count, _, text = line.strip().partition(" ")
            if int(count) == 1:
                facts = []
            question, *answer = text.split("\t")
            if answer:
                yield Story(tuple(facts), ((question.strip(), answer[0].strip()),))
            else:
                facts.append(text.strip())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {line!r:.60}: expected lines such as `1 Mary moved to the bathroom.` "
                        f"({error})") from None


def find_babi(folder: Path, task: str, side: str) -> Path:
    """The file of ``task`` (qa1) and ``side`` (train, test) in bAbI's folder. Raises DataError."""
    found = sorted(folder.glob(f"**/{task}_*_{side}.txt"))
    if not found:
        raise DataError(f"{folder}: no {task}_*_{side}.txt; name bAbI's folder, such as tasks_1-20_v1-2/en-10k")
    return found[0]


def simulate(task: str, random: Random) -> Story:
    """A story that answers at least one question."""
    fewest, most = FACTS[task]
    first, gap = _USUAL[task]
    asked_before, facts = random.randrange(_QUESTIONS), 0
    while not fewest <= facts <= most:
        if task in ("qa1", "qa4"):  # always the same numbers
            facts = first + gap * asked_before
        else:
            facts = fewest + round(random.expovariate(1 / (first - fewest))) + sum(
                1 + round(random.expovariate(1 / (gap - 1))) for _ in range(asked_before))
    while not (story := _told(task, facts, random)).asked:
        pass  # the same number of facts: redrawing it would favour long stories, which more often answer something
    return story


def _told(task: str, facts: int, random: Random) -> Story:
    if task == "qa4":
        return _directions(random)
    world = _World(task, random)
    while len(world.facts) < facts:
        world.step()
    asked = {"qa1": world.persons, "qa2": world.things, "qa3": world.ways, "qa5": world.gifts}[task]
    return Story(tuple(world.facts), tuple(dict.fromkeys(asked())))


def _directions(random: Random) -> Story:
    """A place between two others on one axis, as in the examples of BABILong's prompts, and what can be asked about
    any of the two pairs."""
    middle, *others = random.sample(PLACES, 3)
    one_way = random.choice(DIRECTIONS)
    facts, asked = [], []
    for other, direction in zip(others, (one_way, OPPOSITE[one_way]), strict=True):
        back = OPPOSITE[direction]
        facts.append(random.choice((f"The {other} is {direction} of the {middle}.",
                                    f"The {middle} is {back} of the {other}.")))
        asked += [(f"What is {direction} of the {middle}?", other), (f"What is the {middle} {back} of?", other),
                  (f"What is {back} of the {other}?", middle), (f"What is the {other} {direction} of?", middle)]
    return Story(tuple(facts), tuple(asked))


@dataclass
class _World:
    """People and things at places. What was told is known: where someone went, and the way of a thing since someone
    first took it; None is a place that no fact told."""

    task: str
    random: Random
    facts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        people = GIVERS if self.task == "qa5" else PEOPLE
        self.at = {person: self.random.choice(PLACES) for person in people}
        self.lies = {thing: self.random.choice(PLACES) for thing in THINGS}
        self.holder: dict[str, str] = {}
        self.known: dict[str, str] = {}
        self.way: dict[str, list[str | None]] = {thing: [] for thing in THINGS}
        self.given: list[tuple[str, str, str]] = []

    def step(self) -> None:
        """Someone does something, and a sentence tells it."""
        random, person = self.random, self.random.choice(list(self.at))
        held = [thing for thing in THINGS if self.holder.get(thing) == person]
        near = [thing for thing in THINGS if thing not in self.holder and self.lies[thing] == self.at[person]]
        others = [other for other in self.at if other != person and self.at[other] == self.at[person]]
        if self.task == "qa5" and held and others and random.random() < 0.7:
            return self._gives(person, random.choice(held), random.choice(others))
        if self.task == "qa1" or random.random() < 0.5:
            return self._moves(person)
        if near and (not held or random.random() < 0.6):
            return self._takes(person, random.choice(near))
        if held and random.random() < 0.5:
            return self._drops(person, random.choice(held))
        return self._moves(person)

    def _moves(self, person: str) -> None:
        place = self.random.choice([place for place in PLACES if place != self.at[person]])
        self.at[person] = self.known[person] = place
        self.facts.append(f"{person} {self.random.choice(MOVED)} the {place}.")
        for thing, holder in self.holder.items():
            if holder == person:
                self.way[thing].append(place)

    def _takes(self, person: str, thing: str) -> None:
        self.holder[thing] = person
        if not self.way[thing]:
            self.way[thing].append(self.known.get(person))
        self._says(person, TOOK, thing)

    def _drops(self, person: str, thing: str) -> None:
        del self.holder[thing]
        self.lies[thing] = self.at[person]
        self._says(person, DROPPED, thing)

    def _says(self, person: str, verbs: tuple[str, ...], thing: str) -> None:
        there = self.random.choice((" there", "", ""))
        self.facts.append(f"{person} {self.random.choice(verbs)} the {thing}{there}.")

    def _gives(self, person: str, thing: str, other: str) -> None:
        self.holder[thing] = other
        self.given.append((person, thing, other))
        self.facts.append(f"{person} {self.random.choice(GAVE)} the {thing} to {other}.")

    # --- what can be asked ------------------------------------------------------------------------------------------

    def persons(self) -> Iterator[tuple[str, str]]:
        for person, place in self.known.items():
            yield f"Where is {person}?", place

    def things(self) -> Iterator[tuple[str, str]]:
        for thing, way in self.way.items():
            if way and way[-1]:
                yield f"Where is the {thing}?", way[-1]

    def ways(self) -> Iterator[tuple[str, str]]:
        """Of a place where the thing was several times, the last time counts."""
        for thing, way in self.way.items():
            before = {place: earlier for earlier, place in pairwise(way) if earlier}
            for place, earlier in before.items():
                yield f"Where was the {thing} before the {place}?", earlier

    def gifts(self) -> Iterator[tuple[str, str]]:
        """Of several that fit a question, the last one counts."""
        answers: dict[str, str] = {}
        for giver, thing, receiver in self.given:
            answers |= {
                f"What did {giver} give to {receiver}?": thing, f"Who gave the {thing}?": giver,
                f"Who gave the {thing} to {receiver}?": giver, f"Who did {giver} give the {thing} to?": receiver,
                f"Who received the {thing}?": receiver}
        yield from answers.items()
