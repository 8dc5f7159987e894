"""Fast-CoT: without a preview it is plain, with enough passes the preview is the greedy answer, and the answer reads it."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine.session.method import Method


def preview_of(run) -> list[int]:
    """The tokens whose embeddings were put into the prompt."""
    (vectors,) = run.target.vectors
    return [int((run.target.decoder.embed == row).all(1).nonzero()[0]) for row in vectors.rows]


def test_an_empty_preview_is_plain_decoding() -> None:
    off = toys.decode(toys.method(prompt_compression=("fast_cot", {"preview_tokens": 0})), count=12)
    assert off.tokens == toys.decode(Method(), count=12).tokens and not off.target.vectors


def test_the_passes_reach_the_greedy_answer_from_the_front() -> None:
    """After k passes the first k + 1 tokens are the greedy ones: a token is right once all before it are."""
    greedy = toys.decode(Method(), count=8)
    answer = greedy.tokens[greedy.prompt :]
    same = []
    for passes in (1, 3, 8):
        knobs = {"preview_tokens": 8, "iterations": passes}
        preview = preview_of(toys.decode(toys.method(prompt_compression=("fast_cot", knobs)), count=1))
        assert preview[: passes + 1] == answer[: passes + 1]
        same.append(preview == answer)
    assert same == [False, False, True], "the test needs passes that change something"


@pytest.mark.parametrize("tail", [1, 4])
@torch.inference_mode()
def test_the_answer_is_that_of_a_prompt_with_the_preview_in_it(tail: int) -> None:
    knobs = {"preview_tokens": 6, "iterations": 2, "tail_tokens": tail}
    run = toys.decode(toys.method(prompt_compression=("fast_cot", knobs)), count=12)
    prompt = toys.PROMPT[:-tail] + preview_of(run) + toys.PROMPT[-tail:]
    whole = toys.decode(Method(), prompt, count=12)
    assert run.tokens[run.prompt :] == whole.tokens[whole.prompt :]
    assert run.tokens != toys.decode(Method(), count=12).tokens, "the preview says something"
