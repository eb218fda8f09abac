"""A trajectory as text, for a terminal or a pipe: without colours everything that a colour says is said by marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from ...traces.trace import TraceTurn
from ...traces.word_diff import Change, word_diff
from .facts import Fact, FactTurns, Span, Standing, facts_of, places, spans
from .groups import Group, Sibling, Tokens, before_of
from .pack import worth

_AROUND, _LONG = 160, 600
_WIDEST_ID = 40
_BESIDE = " " * 11
_GOLD, _LABEL = "bold black on yellow", "bold"
_CHANGES = {Change.SAME: ("", "", ""), Change.ADDED: ("green underline", "{+", "+}"),
            Change.REMOVED: ("red strike", "[-", "-]")}


def listed(groups: Sequence[Group]) -> Iterator[Text]:
    """A line for every question: its id, how its siblings stand, and what it asks."""
    yield Text(f"{groups[0].place.label}: {len(groups)} questions; --question ID prints one")
    wide = min(_WIDEST_ID, max(len(group.first.question_id or group.name) for group in groups))
    for group in groups:
        standing = " ".join(_standing(sibling) for sibling in group.siblings)
        yield Text(f"{group.first.question_id or group.name:>{wide}}  {standing}  {group.first.question}")


def printed(
    group: Group, sibling: Sibling, turn: int | None = None, *, whole: bool = False, coloured: bool = True
) -> Iterator[Text]:
    """The whole trajectory, or its turn of that number, which counts from 1."""
    trace, facts = sibling.trace, facts_of(group.first.golds)
    yield from _head(group, sibling)
    standing = Standing(facts)
    history = [_facts_of_turn(sibling, at, standing) for at in range(len(trace.turns))]
    for at in range(len(trace.turns)):
        if turn in (None, at + 1):
            yield Text()
            yield from _turn(sibling, at, facts, history[at], whole, coloured)
    yield Text()
    answers = {at: standing.of(t.reply) for at, t in enumerate(trace.turns, start=1) if t.kind == "final"}
    for fact, story in zip(facts, _stories(history, answers, len(facts)), strict=True):
        yield Text(f"{fact.text}: {story}")


def marked(text: str, gold: Sequence[Span], coloured: bool, style: str = "") -> Text:
    """The text with accepted answers marked."""
    made, at = Text(style=style), 0
    for start, end in gold:
        if start < at:
            continue
        made.append(text[at:start])
        answer = text[start:end]
        made.append(answer if coloured else f"<<{answer}>>", _GOLD)
        at = end
    return made.append(text[at:])


def _head(group: Group, sibling: Sibling) -> Iterator[Text]:
    trace = sibling.trace
    others = " ".join(f"{s.trace.sample}:{_standing(s)}" for s in group.siblings)
    earned = [*trace.reward_parts.items(), *trace.scores.items()]
    rewards = [_number(trace.reward)] if trace.reward is not None else []
    rewards += [f"{name} {_number(value)}" for name, value in earned]
    facts = [
        ("question", trace.question), ("accepted", " / ".join(trace.golds)), ("answer", trace.prediction or "(none)"),
        ("outcome", f"{trace.failure}: {trace.failure_message}" if trace.failure else trace.outcome),
        ("reward", ", ".join(rewards)),
        ("advantage", "" if trace.advantage is None else f"{trace.advantage:+.3g}"), ("siblings", others),
    ]
    yield Text(f"{group.place.label}, question {trace.question_id or group.name}, sample {trace.sample}", _LABEL)
    for name, value in facts:
        if value:
            yield Text.assemble((f"{name:10}", _LABEL), value)


def _turn(
    sibling: Sibling, at: int, facts: Sequence[Fact], found: FactTurns, whole: bool, coloured: bool
) -> Iterator[Text]:
    turn, before = sibling.trace.turns[at], before_of(sibling.trace.turns, at)
    yield Text(f"turn {at + 1} of {len(sibling.trace.turns)}: {_said(turn, sibling.tokens[at])}", _LABEL)
    for number in dict.fromkeys(turn.sections):
        text = _section(sibling, number)
        yield _labelled(f"section {number + 1}", _excerpt(text, _gold(text, facts), whole, coloured))
    if turn.recalled:
        yield _labelled("recalled", marked(turn.recalled, _gold(turn.recalled, facts), coloured))
    if turn.kind == "final":
        yield _labelled("answer", marked(turn.reply, _gold(turn.reply, facts), coloured))
    else:
        yield _labelled("memory", _changed(before, turn.memory, facts, coloured))
        if turn.reply.strip() != turn.memory.strip():
            yield _labelled("reply", marked(turn.reply, _gold(turn.reply, facts), coloured))
    if turn.prompt and whole:
        yield _labelled("prompt", marked(turn.prompt, _gold(turn.prompt, facts), coloured))
    if turn.kind != "final":
        for place in places(_told(found)):
            yield Text(f"{_BESIDE}{facts[place].text}: {_event(found, place)}")


def _said(turn: TraceTurn, tokens: Tokens | None) -> str:
    said = [turn.kind, *(f"earned {name} {_number(value)}" for name, value in turn.rewards.items())]
    if turn.advantage is not None:
        said.append(f"advantage {turn.advantage:+.3g}")
    if turn.stop != "stop":
        said.append(f"ended by {turn.stop}")
    said.append(f"prompt {turn.prompt_tokens} tokens")
    if tokens:
        said.append(f"reply {len(tokens.lengths)}, log-prob mean {tokens.mean:z.2f}, lowest {tokens.lowest:z.2f}")
    return ", ".join(said)


def _labelled(label: str, text: Text) -> Text:
    """Its lines stand below each other, beside the label."""
    text.rstrip()
    lines = Text("\n" + _BESIDE).join(text.split("\n")) if text.plain else Text("(empty)")
    return Text.assemble((f"{label:10} ", _LABEL), lines)


def _changed(before: str, after: str, facts: Sequence[Fact], coloured: bool) -> Text:
    """The memory with what it gained and lost; marks of answers only where a part holds one whole."""
    made = Text()
    for part in word_diff(before, after):
        style, opening, closing = _CHANGES[part.change]
        text = marked(part.text, _gold(part.text, facts), coloured, style)
        made.append_text(text if coloured else Text.assemble(opening, text, closing))
    return made


def _excerpt(text: str, gold: Sequence[Span], whole: bool, coloured: bool) -> Text:
    """The beginning, and what stands around each answer."""
    if whole or len(text) <= _LONG:
        return marked(text, gold, coloured)
    made, at = Text(), 0
    for start, end, inside in _stretches(gold):
        if start > at:
            made.append(f" ... {start - at:,} characters ... ")
        made.append_text(marked(text[start:end], [(a - start, b - start) for a, b in inside], coloured))
        at = end
    return made.append(f" ... {len(text) - at:,} characters ..." if at < len(text) else "")


def _stretches(gold: Sequence[Span]) -> list[tuple[int, int, list[Span]]]:
    """What is shown of a text with these answers, from left to right, none over another, each with its own answers."""
    found: list[tuple[int, int, list[Span]]] = [(0, 2 * _AROUND, [])]
    for a, b in gold:
        start, end, inside = found[-1]
        if a - _AROUND <= end:
            found[-1] = (start, max(end, b + _AROUND), inside)
        else:
            found.append((a - _AROUND, b + _AROUND, []))
        found[-1][2].append((a, b))
    return found


def _gold(text: str, facts: Sequence[Fact]) -> list[Span]:
    return sorted(span for fact in facts for span in spans(text, fact))


def _section(sibling: Sibling, number: int) -> str:
    sections = sibling.document.sections if sibling.document else ()
    return sections[number] if 0 <= number < len(sections) else "(its text was not kept)"


def _facts_of_turn(sibling: Sibling, at: int, standing: Standing) -> FactTurns:
    turn, before = sibling.trace.turns[at], before_of(sibling.trace.turns, at)
    seen = standing.of(turn.recalled) | (0 if turn.sections else standing.of(turn.prompt))
    for number in {*turn.sections}:
        seen |= standing.of(_section(sibling, number))
    return FactTurns(seen, standing.of(turn.memory), standing.of(before))


def _told(found: FactTurns) -> int:
    return found.entered | found.lost | found.passed


def _event(found: FactTurns, place: int) -> str:
    if found.entered >> place & 1:
        return "enters the memory"
    return "is lost from the memory" if found.lost >> place & 1 else "read, and not kept"


def _stories(history: Sequence[FactTurns], answers: Mapping[int, int], facts: int) -> Iterator[str]:
    """What became of each fact, in a line: ``turn 2 enters the memory, turn 5 is lost from the memory``."""
    told: list[list[str]] = [[] for _ in range(facts)]
    for number, found in enumerate(history, start=1):
        for place in places(_told(found) & ~answers.get(number, 0)):
            told[place].append(f"turn {number} {_event(found, place)}")
    for number, held in answers.items():
        for place in places(held):
            told[place].append(f"turn {number} is in the answer")
    for events in told:
        yield ", ".join(events) or "stands nowhere in what was read, remembered or answered"


def _number(value: float | None) -> str:
    """None stands for what is no number, which JSON cannot say."""
    return "nan" if value is None else f"{value:.3g}"


def _standing(sibling: Sibling) -> str:
    value = worth(sibling.trace)
    return sibling.trace.failure or ("?" if value is None else f"{value:.2f}")
