"""Lexical units: sure tokens after the first are taken unread, no placeholder's entry stays, and a bar above 1 is plain."""

from __future__ import annotations

import copy

import pytest
import torch
import toys

from decodescope.engine import MethodError
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check

SMALL = toys.model(toys.decoder(toys.toy_spec(vocab=16, pad_token=7), 5, torch.float64, sharp=2.5))
PROMPT = [1, 3, 2]
ROWS = 3


def units(count: int = 24, sampler="greedy", seed: int = 0, stop: list[int] | None = None, **knobs):
    method = toys.method(strategy=("lexical_units", {"placeholders": ROWS, **knobs}), sampler=sampler)
    return toys.decode(method, PROMPT, count, pair=(SMALL, SMALL), seed=seed, stop_tokens=stop or [])


@torch.inference_mode()
def by_hand(count: int, beta: float, repeats: bool, pad: int) -> list[list[int]]:
    """The units, each from one computation over the whole text and its placeholders, without a cache."""
    text, made = list(PROMPT), []
    while len(text) < len(PROMPT) + count:
        rows = min(ROWS, len(PROMPT) + count - len(text) - 1)
        law = SMALL.decoder.forward(Feed.causal_chain([*text, *[pad] * rows], 0), None)[
            0, len(text) - 1 :
        ].softmax(1)
        p, tokens = (x.tolist() for x in law.max(1))
        unit = [tokens[0]]
        for chance, token in zip(p[1:], tokens[1:], strict=True):
            if chance < beta or (token == unit[-1] and not repeats):
                break
            unit.append(token)
        text += unit
        made.append(unit)
    return made


@pytest.mark.parametrize(
    ("beta", "repeats", "pad"), [(0.3, False, 7), (0.4, True, 7), (0.4, True, 2), (0.0, True, 4)]
)
def test_units_are_those_of_readings_without_a_cache(beta: float, repeats: bool, pad: int) -> None:
    session = units(
        min_probability=beta, allow_repeats=repeats, placeholder_token="" if pad == 7 else str(pad)
    )
    made = [step.emitted for step in session.sink.steps]
    assert made == by_hand(24, beta, repeats, pad)
    assert 2 < max(map(len, made)) <= ROWS + 1, "the test needs units of several tokens"
    assert check(session.sink).ok and check(session.sink).counts["lexical units"] == len(made)


SAMPLERS = [
    "greedy",
    ("temperature", dict(temperature=1.0)),
    ("mirostat", dict(target_surprise=1.5, learning_rate=0.3)),
]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_bar_above_one_is_plain_decoding(sampler) -> None:
    for seed in range(4):
        plain = toys.decode(toys.method(sampler=sampler), PROMPT, 24, pair=(SMALL, SMALL), seed=seed)
        assert units(sampler=sampler, seed=seed, min_probability=1.01).end.tokens == plain.end.tokens
    assert units(min_probability=0.3).end.tokens != toys.greedy_text(SMALL.decoder, PROMPT, 24), (
        "a lower bar must do something here"
    )


def test_what_is_taken_reaches_the_bar_and_what_is_refused_is_named() -> None:
    cuts = set()
    for beta in (0.3, 0.5, 0.7):
        for step in units(min_probability=beta).sink.steps:
            unit = step.detail("lexical_unit")
            tokens, p, outcomes = (unit.columns[name] for name in ("token", "p", "outcome"))
            taken = unit.values["taken"]
            assert all(x >= beta for x in p[1:taken]) and step.emitted == tokens[:taken]
            assert outcomes[:taken] == ["first", *["taken"] * (taken - 1)]
            cut = outcomes[taken] if taken < len(tokens) else "all"
            if cut == "bar":
                assert p[taken] < beta
            if cut == "repeat":
                assert tokens[taken] == tokens[taken - 1] and p[taken] >= beta
            cuts.add(cut)
    assert {"bar", "repeat"} <= cuts, "the test needs both reasons"


def test_no_entry_of_a_placeholder_stays_and_what_was_taken_is_read_again() -> None:
    session = units(min_probability=0.3)
    assert toys.matches_fresh_reading(session.target), "entries are those of the text alone"
    due, taken_before = len(PROMPT) - 1, 1
    for step in session.sink.steps:
        (one,) = step.passes
        left = 24 - (step.n - len(PROMPT))
        assert one.held == due and one.tokens == taken_before + min(ROWS, left - 1)
        due, taken_before = due + taken_before, len(step.emitted)
        assert session.target.tokens[:due] == session.tokens[:due]


def test_a_stop_token_within_a_unit_ends_the_text() -> None:
    full = units(min_probability=0.3)
    inner = {x for step in full.sink.steps for x in step.emitted[1:-1]}
    assert inner, "the test needs units of three"
    for stop in inner:
        session = units(min_probability=0.3, stop=[stop])
        due = full.end.tokens[: full.end.tokens.index(stop) + 1]
        assert (session.end.tokens, session.end.reason) == (due, "stop_token") and check(session.sink).ok


def test_check_finds_a_unit_that_its_bar_does_not_give() -> None:
    session = units(min_probability=0.5)
    place = next(x.step for x in session.sink.steps if "bar" in x.detail("lexical_unit").columns["outcome"])
    unit = session.sink.steps[place].detail("lexical_unit")
    outcomes, taken = unit.columns["outcome"], unit.values["taken"]
    longer = [*outcomes[:taken], "taken", *outcomes[taken + 1 :]]
    changes = [
        dict(values={"taken": taken + 1}),
        dict(columns={**unit.columns, "outcome": longer}),
        dict(columns={**unit.columns, "outcome": longer}, values={"taken": taken + 1}),
        dict(columns={**unit.columns, "p": [1.0] * len(outcomes)}),
        dict(columns={**unit.columns, "outcome": [*outcomes[:taken], "repeat", *outcomes[taken + 1 :]]}),
        dict(columns={**unit.columns, "outcome": ["behind", *outcomes[1:]]}),
        dict(columns={**unit.columns, "p": []}),
        dict(columns={**unit.columns, "token": [-1, *unit.columns["token"][1:]]}),
        dict(columns={**unit.columns, "other": outcomes}),
    ]
    for change in changes:
        wrong = copy.deepcopy(session.sink)
        for name, value in change.items():
            setattr(wrong.steps[place].details[0], name, value)
        assert not check(wrong).ok, change


def test_check_finds_a_repeat_that_was_taken() -> None:
    session = units(min_probability=0.3, allow_repeats=True)
    detail = [x.detail("lexical_unit") for x in session.sink.steps]
    repeats = [
        a == b and word == "taken"
        for x in detail
        for a, b, word in zip(
            x.columns["token"], x.columns["token"][1:], x.columns["outcome"][1:], strict=False
        )
    ]
    assert any(repeats), "the test needs a repeat that is taken"
    assert check(session.sink).ok
    wrong = copy.deepcopy(session.sink)
    wrong.header.method["strategy"]["allow_repeats"] = False
    assert not check(wrong).ok


def test_a_model_without_a_padding_token_needs_a_placeholder() -> None:
    bare = toys.model(toys.decoder(toys.toy_spec(vocab=16, pad_token=None), 5, torch.float64))
    with pytest.raises(MethodError, match="names no padding token: name another token"):
        toys.decode(toys.method(strategy="lexical_units"), PROMPT, 4, pair=(bare, bare))
    assert len(
        toys.decode(
            toys.method(strategy=("lexical_units", dict(placeholder_token="5"))), PROMPT, 4, pair=(bare, bare)
        ).tokens
    )
