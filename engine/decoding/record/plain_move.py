"""Moved: the end of a step whose tokens are all the target's own, for strategies that test no draft."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace.records.events import EndReason

from ..bases.state import Move, State


def plain_move(
    s: State,
    emitted: list[int],
    end: EndReason | None,
    started: Any,
    verified: Any,
    *,
    drafted: Any = None,
    **more: Any,
) -> Move:
    """What a step did that added `emitted` to the text, whose last act was to commit.

    started, drafted, verified: marks of the target's executor: before the step, behind its guesses (None: it made none), and
    behind its pass;  more: further fields of the `Move`
    """
    clock = s.target.executor
    begun = started if drafted is None else drafted
    return Move(
        emitted,
        ["target"] * len(emitted),
        end,
        draft_us=0.0 if drafted is None else clock.elapsed_us(started, drafted),
        verify_us=clock.elapsed_us(begun, verified),
        commit_us=clock.elapsed_us(verified, clock.mark()),
        **more,
    )
