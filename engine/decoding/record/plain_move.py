"""The move of a step with only the target's own tokens, for strategies that test no draft."""

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
    """The move of a step that added `emitted` to the text and ended with a commit.

    started, drafted, verified: marks of the target's executor: before the step, after its guesses (None: it made none), and
    after its pass;  more: further fields of the `Move`
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
