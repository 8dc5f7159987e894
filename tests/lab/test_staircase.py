"""The passes of a block, place by place: what is final, since when it was right, what was fast-forwarded, and what stalled."""

from __future__ import annotations

import pytest
import toys

from decodescope.lab.decision.block_progress import block_progress


@pytest.mark.parametrize("guess", ["last", "random", "prompt"])
@pytest.mark.parametrize("block", [1, 5, 0])
def test_the_staircase_is_what_the_text_says_of_every_pass(block: int, guess: str) -> None:
    """The test asks for each place, from the last pass backwards, since when it was right without interruption."""
    trace = toys.decode(
        toys.method(strategy=("jacobi", {"block": block, "initial_guess": guess})), seed=2
    ).sink
    made, text = block_progress(trace), [*toys.PROMPT, *trace.end.tokens]
    passes = [(step.step, step.detail("fixed_point")) for step in trace.steps]
    for place in range(len(toys.PROMPT), len(text)):
        seen = [
            (i, it.candidate.tolist()[place - it.start])
            for i, it in passes
            if it.start <= place < it.start + len(it)
        ]
        held = len(seen)
        while held and seen[held - 1][1] == text[place]:
            held -= 1
        assert made.since[place] == seen[held][0] <= made.final[place] == seen[-1][0]
    assert sum(made.forwarded) == len(trace.end.tokens) - len(trace.steps)
    assert sum(made.stationary) >= sum(made.final[place] - first for place, first in made.since.items())
    if block == 1:
        assert made.since == made.final and not any(made.stationary)


def test_what_the_text_has_not_is_in_no_place() -> None:
    trace = toys.decode(toys.method(strategy=("jacobi", {"block": 8})), count=20, stop_tokens=(6,)).sink
    assert set(block_progress(trace).final) == set(
        range(len(toys.PROMPT), len(toys.PROMPT) + len(trace.end.tokens))
    )
    assert not block_progress(toys.decode(count=5).sink).final
