"""Jacobi: the greedy text for every first guess, in at most as many passes as tokens."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.trace import check


def test_text_is_greedy_for_every_first_guess() -> None:
    """All 5^3 guesses of a block on a vocabulary of five, and the blocks after it."""
    small = toys.model(toys.decoder(toys.shaped(vocab=5), 2, torch.float64))
    prompt = [1, 4, 2]
    due, passes = toys.greedy(small.decoder, prompt, 9), set()
    for guess in product(range(5), repeat=3):
        session = Session(small, toys.method(strategy=("jacobi", {"block": 3})), prompt, max_new_tokens=9)
        session.start()
        session.scratch = list(guess)
        steps = list(session.stream())
        assert session.end.tokens == due
        passes.add(len(steps))
    assert max(passes) <= 9 and len(passes) > 1, "good guesses save passes"


@pytest.mark.parametrize("guess", ["last", "random", "zero"])
@pytest.mark.parametrize("block", [1, 2, 5, 16, 64])
def test_each_pass_fixes_the_next_token_at_least(block: int, guess: str) -> None:
    due = toys.greedy(toys.pair()[0].decoder, toys.PROMPT, 40)
    session = toys.decode(toys.method(strategy=("jacobi", {"block": block, "guess": guess})))
    assert session.end.tokens == due and check(session.sink).ok and toys.same_as_fresh(session.target)
    done = 0
    for step in session.sink.steps:
        it = step.iteration
        assert it.tokens[: it.fixed] == due[done : done + it.fixed] == step.emitted and it.fixed >= 1
        assert it.start == len(toys.PROMPT) + done and len(it.before) == len(it.tokens) <= block
        done += it.fixed
    assert len(session.sink.steps) <= 40
    if block == 1:
        assert len(session.sink.steps) == 40, "blocks of one are autoregressive decoding"


def test_a_model_that_repeats_itself_is_solved_in_few_passes() -> None:
    """Guessing the last token is right at once where the text is a loop of one token."""
    looping = toys.target(torch.float64, 4)
    session = toys.decode(toys.method(strategy=("jacobi", {"block": 8})), toys.prompts(1, 10)[0], 64, pair=(looping, looping))
    assert len(set(session.end.tokens[-16:])) == 1 and len(session.sink.steps) < 40


def test_samplers_that_draw_or_remember_are_refused() -> None:
    for sampler in ("temperature", "repetition_penalty", "mirostat"):
        with pytest.raises(MethodError, match=r"jacobi solves for the greedy text.*\.$"):
            toys.decode(toys.method(strategy="jacobi", sampler=sampler))
    assert toys.decode(toys.method(strategy="jacobi", sampler=("temperature", {"temperature": 0.0}))).done
