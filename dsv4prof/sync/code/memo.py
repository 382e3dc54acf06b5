"""Answers of questions that may lead to further questions without end: bounded by a level, equal in any order.

A question asked at level k may ask others at level k - 1; at level 0 only what stands in the source counts. So every
answer is a function of the question and the level alone, however the questions come, and no circle runs for ever. An
answer that never met level 0 on its way holds for every level from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

Answer = TypeVar("Answer")

# Deeper than any level.
CUT = 1_000


class Memo:
    """Remembers answers, and how many levels each needed."""

    def __init__(self) -> None:
        self._exact: dict[Hashable, tuple[int, object]] = {}
        self._at: dict[tuple[Hashable, int], object] = {}
        self.need = 0

    def ask(self, question: Hashable, level: int, answer: Callable[[int], Answer], otherwise: Answer) -> Answer:
        """`answer(level - 1)`, or what was answered before; `otherwise` at level 0."""
        known = self._exact.get(question)
        if known is not None and known[0] <= level:
            self.need = max(self.need, known[0])
            return known[1]  # type: ignore[return-value]
        if level <= 0:
            self.need = CUT
            return otherwise
        key = (question, level)
        if key in self._at:
            self.need = CUT
            return self._at[key]  # type: ignore[return-value]
        outer, self.need = self.need, 0
        found = answer(level - 1)
        mine = self.need + 1
        if mine < CUT:
            self._exact[question] = mine, found
        else:
            mine = CUT
            self._at[key] = found
        self.need = max(outer, mine)
        return found
