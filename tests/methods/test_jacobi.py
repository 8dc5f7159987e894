"""Jacobi: the greedy text for every first guess, in at most as many passes as tokens."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check


def test_text_is_greedy_for_every_first_guess() -> None:
    """All 5^3 guesses of a block on a vocabulary of five, and the blocks after it."""
    small = toys.model(toys.decoder(toys.toy_spec(vocab=5), 2, torch.float64))
    prompt = [1, 4, 2]
    due, passes = toys.greedy_text(small.decoder, prompt, 9), set()
    for guess in product(range(5), repeat=3):
        session = Session(small, toys.method(strategy=("jacobi", {"block": 3})), prompt, max_new_tokens=9)
        session.start()
        session.scratch = list(guess)
        steps = list(session.stream())
        assert session.end.tokens == due
        passes.add(len(steps))
    assert max(passes) <= 9 and len(passes) > 1, "good guesses save passes"


@pytest.mark.parametrize("b", [1, 2, 3, 4])
def test_every_start_is_solved_in_as_many_passes_as_tokens_at_most(b: int) -> None:
    """All 3^b first guesses on three ids.

    After pass k the first k tokens are final; b = 1 is plain decoding, and a block of all tokens is one system.
    """
    small = toys.model(toys.decoder(toys.toy_spec(vocab=3), 5, torch.float64))
    prompt, count = [1, 0, 2], 4
    due, passes = toys.greedy_text(small.decoder, prompt, count), []
    for guess in product(range(3), repeat=b):
        method = toys.method(strategy=("jacobi", {"block": 0 if b == count else b}))
        session = Session(small, method, prompt, max_new_tokens=count)
        session.start()
        session.scratch = list(guess)
        done = 0
        for k, step in enumerate(session.stream(), 1):
            done += len(step.emitted)
            assert done >= k and session.tokens[3:] == due[:done], "after pass k at least k tokens are final"
            if b == count:
                assert len(step.detail("fixed_point")) == count - (done - len(step.emitted)), (
                    "one block, what is left of it"
                )
        passes.append(k)
    assert max(passes) <= count and (b == 1) == (min(passes) == count)
    assert b < count or min(passes) == 1, "the right guess is confirmed in one pass"


def test_the_first_guesses_are_what_they_are_called() -> None:
    def first(guess: str, **more) -> list[int]:
        session = toys.decode(
            toys.method(strategy=("jacobi", {"block": 8, "initial_guess": guess})), count=8, **more
        )
        return session.sink.steps[0].detail("fixed_point").columns["guess"].tolist()

    assert (
        first("pad") == [toys.SPEC.pad_token] * 8
        and first("zero") == [0] * 8
        and first("last") == [toys.PROMPT[-1]] * 8
    )
    drawn = [first("prompt", seed=seed) for seed in range(20)]
    assert {x for guess in drawn for x in guess} == set(toys.PROMPT) and len({*map(tuple, drawn)}) > 15
    assert any(x not in toys.PROMPT for seed in range(20) for x in first("random", seed=seed))


def test_without_a_padding_token_there_is_no_start_of_them() -> None:
    bare = toys.model(toys.decoder(toys.toy_spec(pad_token=None)))
    with pytest.raises(
        MethodError, match=r"^toy names no padding token: let jacobi guess last, random, zero or prompt\.$"
    ):
        Session(bare, toys.method(strategy=("jacobi", {"initial_guess": "pad"})), toys.PROMPT)


@pytest.mark.parametrize("length", [1, 7, 10, 40, 99])
def test_behind_a_guessed_length_it_decodes_plainly(length: int) -> None:
    due = toys.greedy_text(toys.pair()[0].decoder, toys.PROMPT, 40)
    session = toys.decode(toys.method(strategy=("jacobi", {"block": 4, "guessed_length": length})))
    assert session.end.tokens == due
    for step in session.sink.steps:
        done = step.n - len(toys.PROMPT)
        assert (
            len(step.detail("fixed_point")) == 1
            if done >= length
            else done + len(step.detail("fixed_point")) <= length
        )


def test_the_text_ends_with_the_pass_in_which_its_end_is_final() -> None:
    due = toys.greedy_text(toys.pair()[0].decoder, toys.PROMPT, 40)
    stop = due[11]
    whole = due[: due.index(stop) + 1]
    for block in (1, 5, 0):
        session = toys.decode(toys.method(strategy=("jacobi", {"block": block})), stop_tokens=(stop,))
        assert (
            session.end.reason == "stop_token"
            and session.end.tokens == whole
            and len(session.sink.steps) <= len(whole)
        )


@torch.inference_mode()
def test_each_cell_has_the_probability_that_it_has_after_the_guesses_before_it() -> None:
    method = toys.method(strategy=("jacobi", {"block": 6, "initial_guess": "random"}))
    session, text = toys.decode(method, count=24), list(toys.PROMPT)
    for step in session.sink.steps:
        block = step.detail("fixed_point")
        guesses = block.columns["guess"].tolist()
        for k, (token, p) in enumerate(zip(block.candidate, block.confidence, strict=True)):
            feed = Feed.causal_chain([*text, *guesses[:k]], 0)
            law = session.target.decoder.forward(feed, None)[0, -1].softmax(-1)
            assert abs(float(law[token]) - p) < 1e-9 and token == int(law.argmax())
        assert step.tops.places.tolist() == list(range(-1, len(step.emitted) - 1))
        assert step.tops.ids[:, 0].tolist() == step.emitted, "greedy: the likeliest"
        text += step.emitted
    bare = toys.decode(method, count=24, level="summary")
    assert all(
        step.detail("fixed_point").confidence is None and step.tops is None for step in bare.sink.steps
    )
    assert bare.end.tokens == session.end.tokens


def test_a_close_call_is_told_without_a_draft() -> None:
    """Two ids with one embedding and one row of the unembedding are a tie whenever either is chosen."""
    made = toys.decoder(seed=toys.LIVELY, dtype=torch.float64)
    twin = toys.greedy_text(made, toys.PROMPT, 6)[3]
    made.head[(twin + 1) % 13] = made.head[twin]
    session = toys.decode(
        toys.method(strategy=("jacobi", {"block": 4})), count=12, pair=(toys.model(made), toys.pair()[1])
    )
    ties = [step for step in session.sink.steps if step.tie]
    assert ties and all(gap < 1e-9 for step in ties for _, gap in step.tie)


def test_a_block_that_was_told_wrong_contradicts_itself() -> None:
    trace = toys.decode(toys.method(strategy=("jacobi", {"block": 6, "initial_guess": "random"}))).sink
    blocks = [x.detail("fixed_point") for x in trace.steps]
    at = next(i for i, x in enumerate(blocks) if 1 < len(x.places) < len(x))
    step, block = trace.steps[at], blocks[at]
    fewer = dict(places=block.places[:-1], tokens=block.tokens[:-1], rules=block.rules[:-1])
    for wrong, words in (
        (replace(block, **fewer), "guesses were confirmed"),
        (replace(block, confidence=block.confidence / 2), "not the likeliest that its place shows"),
        (replace(block, tokens=[(block.tokens[0] + 1) % 13, *block.tokens[1:]]), "were read there"),
        (replace(block, places=[*block.places[:-1], block.places[-1] + 1]), "were read there"),
        (replace(block, start=block.start - 1, length=block.length + 1), "behind a text of"),
        (replace(block, rules=["sure"] * len(block.rules)), "its declaration lacks"),
        (replace(block, columns={"guess": block.columns["guess"][:-1]}), "entries, where"),
        (replace(block, columns={"guess": block.columns["guess"] + 1000}), "outside the vocabulary"),
        (replace(block, columns={"guess": block.columns["guess"] / 2}), "entries of the type token"),
        (replace(block, columns={"other": block.columns["guess"]}), "which its declaration lacks"),
        (replace(block, confidence=block.confidence + np.nan), "leaves the interval"),
        (replace(block, open=block.open[::-1].copy()), "does not rise within the block"),
        (replace(block, block=[block.start]), "which is no part of"),
    ):
        trace.steps[at] = replace(step, details=[wrong])
        assert any(words in x for x in check(trace).problems), (words, check(trace))


@pytest.mark.parametrize("guess", ["last", "random", "zero", "prompt", "pad"])
@pytest.mark.parametrize("block", [0, 1, 2, 5, 16, 64])
def test_each_pass_fixes_the_next_token_at_least(block: int, guess: str) -> None:
    due = toys.greedy_text(toys.pair()[0].decoder, toys.PROMPT, 40)
    session = toys.decode(toys.method(strategy=("jacobi", {"block": block, "initial_guess": guess})))
    assert session.end.tokens == due and check(session.sink).ok and toys.matches_fresh_reading(session.target)
    done = 0
    for step in session.sink.steps:
        record = step.detail("fixed_point")
        fixed = len(record.places)
        assert record.tokens == due[done : done + fixed] == step.emitted and fixed >= 1
        assert record.start == len(toys.PROMPT) + done and record.length == len(record) <= (block or 40)
        assert record.places == record.open[:fixed].tolist() and record.open[0] == record.start
        done += fixed
    assert len(session.sink.steps) <= 40
    if block == 1:
        assert len(session.sink.steps) == 40, "blocks of one are autoregressive decoding"


def test_a_model_that_repeats_itself_is_solved_in_few_passes() -> None:
    """Guessing the last token is right at once if the text is a loop of one token."""
    looping = toys.target(torch.float64, 4)
    session = toys.decode(
        toys.method(strategy=("jacobi", {"block": 8})), toys.prompts(1, 10)[0], 64, pair=(looping, looping)
    )
    assert len(set(session.end.tokens[-16:])) == 1 and len(session.sink.steps) < 40


def test_samplers_that_draw_or_remember_are_refused() -> None:
    for sampler in ("temperature", "repetition_penalty", "mirostat"):
        with pytest.raises(MethodError, match=r"jacobi solves for the greedy text.*\.$"):
            toys.decode(toys.method(strategy="jacobi", sampler=sampler))
    assert toys.decode(toys.method(strategy="jacobi", sampler=("temperature", {"temperature": 0.0}))).is_done
