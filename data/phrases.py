"""Whether any of many phrases stands in a text, as whole words: one pass over the text, however many they are.

The machine of Aho and Corasick (1975) over words in place of letters: a node for each beginning of a phrase, and from
each the longest beginning that its own end is as well, where reading goes on after a word that leads no further.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Phrases:
    """Phrases and texts are words with one blank between each two. A phrase has one word at least."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._after: list[dict[str, int]] = [{}]
        self._is_end = [False]
        for phrase in phrases:
            self._add(phrase.split(" "))
        self._back = [0] * len(self._after)
        waiting = deque(self._after[0].values())
        while waiting:
            node = waiting.popleft()
            for word, following in self._after[node].items():
                self._back[following] = self._step(self._back[node], word)
                self._is_end[following] |= self._is_end[self._back[following]]
                waiting.append(following)

    def _add(self, words: list[str]) -> None:
        node = 0
        for word in words:
            following = self._after[node].setdefault(word, len(self._after))
            if following == len(self._after):
                self._after.append({})
                self._is_end.append(False)
            node = following
        self._is_end[node] = True

    def _step(self, node: int, word: str) -> int:
        while node and word not in self._after[node]:
            node = self._back[node]
        return self._after[node].get(word, 0)

    def any_in(self, text: str) -> bool:
        node = 0
        for word in text.split(" "):
            node = self._step(node, word)
            if self._is_end[node]:
                return True
        return False
