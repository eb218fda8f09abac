"""What goes into the page where not all of it fits.

Groups are ranked: the first question of every place, the newest rollout ahead, then the second of every place, and so
on. In that order are kept, each while it fits: (1) groups, with their documents cut; (2) documents whole; (3) tokens.
So everything that is looked at first is there before anything is there that is looked at now and then. A document that
several groups have cut in several ways is there once when it is whole.

Worked example, room for 100; three groups of 30 with cut documents of 5, whole ones of 10, tokens of 4::

    (1) 35 + 35 = 70, the third would be 105: two groups, and the next steps are not asked
    of 20 instead of 30: (1) 75  (2) 80, 85, 90  (3) 94, 98: two groups with tokens
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .pack import PackedGroup
from .packed_documents import PackedDocument


@dataclass(frozen=True, slots=True)
class Choice:
    """Places of groups in the order they were given, and keys of documents."""

    groups: frozenset[int]
    whole: frozenset[str]
    tokens: frozenset[int]


def written(content: bytes | None) -> int:
    """Bytes of a part in the page: base64, and the element around it."""
    return 0 if content is None else 4 * -(-len(content) // 3) + 48


def choose(groups: Sequence[PackedGroup], documents: Mapping[str, PackedDocument], room: int) -> Choice:
    order = ranked(groups)
    kept: list[int] = []
    named: set[str] = set()
    for at in order:
        new = set(groups[at].documents) - named
        size = written(groups[at].texts) + sum(written(documents[key].cut) for key in new)
        if size > room:
            return Choice(frozenset(kept), _never_cut(named, documents), frozenset())
        room -= size
        kept.append(at)
        named |= new
    whole = {*_never_cut(named, documents)}
    there = {documents[key].content for key in whole}
    for key in dict.fromkeys(key for at in order for key in groups[at].documents if key not in whole):
        found = documents[key]
        more = (0 if found.content in there else written(found.whole)) - written(found.cut)
        if more > room:
            return Choice(frozenset(kept), frozenset(whole), frozenset())
        room -= more
        whole.add(key)
        there.add(found.content)
    tokens: set[int] = set()
    for at in order:
        size = written(groups[at].tokens)
        if size > room:
            break
        room -= size
        tokens.add(at)
    return Choice(frozenset(kept), frozenset(whole), frozenset(tokens))


def _never_cut(keys: Iterable[str], documents: Mapping[str, PackedDocument]) -> frozenset[str]:
    return frozenset(key for key in keys if key == documents[key].content)


def ranked(groups: Sequence[PackedGroup]) -> list[int]:
    """Positions in ``groups``, the one to keep first ahead."""
    counted: dict[object, int] = defaultdict(int)
    ranks = []
    for at, group in enumerate(groups):
        ranks.append((counted[group.place], -group.place.rollout, at))
        counted[group.place] += 1
    return [at for *_, at in sorted(ranks)]


def notes(groups: Sequence[PackedGroup], choice: Choice, most: int) -> list[str]:
    """What was left out, a sentence each; none where everything is there."""
    kept = [group for at, group in enumerate(groups) if at in choice.groups]
    left = sum(g.trajectories for g in groups) - sum(g.trajectories for g in kept)
    cut = {key for group in kept for key in group.documents} - choice.whole
    bare = sum(group.tokens is not None and at not in choice.tokens for at, group in enumerate(groups)
               if at in choice.groups)
    bound = f"to keep this page under {most / 1e6:g} MB"
    said = [
        f"{left:,} of {sum(g.trajectories for g in groups):,} trajectories are left out {bound}; mem-agent show "
        "reads all." * bool(left),
        f"Sections without an accepted answer are cut in {len(cut):,} documents {bound}.",
        f"Log-probabilities of tokens are left out for {bare:,} of {len(kept):,} questions {bound}.",
    ]
    return [line for line, count in zip(said, (left, len(cut), bare), strict=True) if count]
