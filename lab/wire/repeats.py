"""Repeats: the message fields on a step with tokens that repeat earlier text."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace.query.repeats import RepeatTracker, emitted_probabilities, loop_rounds
from decodescope.engine.trace.records.events import Header, Step

from .single_precision import single_precision


class RepeatEncoder:
    """Follows the text that a run writes. `learn` must see every step once, in order."""

    def __init__(self, header: Header):
        self._following: RepeatTracker | None = None if "picture" in header.model else RepeatTracker()
        self._laws: list[tuple[float, bool] | None] = []
        self._due = 0, 1  # where the last loop begins, and its next round

    def learn(self, step: Step) -> dict[str, Any]:
        """The fields on repetition; empty if nothing is repeated.

        again: [[where it begins in what was written, period, tokens so far], ...], stretches that this step began or
        continued. rounds: [[where the loop begins, which round, TP, IP, WR], ...], of a text in a loop the rounds that are
        complete now; of rounds without recorded distributions only the first, with null."""
        if self._following is None:
            return {}
        self._laws += emitted_probabilities(step)
        stretches: dict[int, list[int]] = {}
        gone: list[list[float | int | None]] = []
        for token in step.emitted:
            if (now := self._following.take(token)) is None:
                continue
            stretches[now.at] = [now.at, now.period, now.lasts]
            at, first = self._due
            for one in loop_rounds(now, self._laws, first if at == now.at else 1):
                if one.tp is not None or one.n == 1:
                    gone.append(
                        [
                            now.at,
                            one.n,
                            *(None if x is None else single_precision(x) for x in (one.tp, one.ip, one.wr)),
                        ]
                    )
                self._due = now.at, one.n + 1
        return ({"again": [*stretches.values()]} if stretches else {}) | ({"rounds": gone} if gone else {})
