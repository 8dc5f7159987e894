"""Sorted drafts: each token is the answer of the shallowest sure sub-model over the whole draft; no layer runs twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys

from decodescope.engine import MethodError
from decodescope.engine.methods.drafters.own_layers.s2d import S2D
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check

DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=6), 3, torch.float64))
EXITS, BARS = (1, 3, 5), (0.8, 0.7)


def drafting(count: int = 40, sampler="greedy", model=DEEP, prompt=toys.PROMPT, level="decisions", **knobs):
    knobs = {"exits": EXITS, "thresholds": BARS, "max_draft_tokens": 5, **knobs}
    return toys.decode(
        toys.method(drafter=("s2d", knobs), sampler=sampler), prompt, count, pair=(model, model), level=level
    )


@torch.inference_mode()
def law(text: list[int], layers: int) -> torch.Tensor:
    """float [V]: the distribution of the first layers with the last norm after a text, in one fresh pass."""
    whole = DEEP.decoder
    short = Decoder(
        replace(whole.spec, n_layers=layers), whole.embed, whole.layers[:layers], whole.norm, whole.head
    )
    return short.forward(Feed.causal_chain(text, 0), None)[0, -1].softmax(-1)


@pytest.mark.parametrize(
    "sampler", ["greedy", ("temperature", {"temperature": 1.0})], ids=["greedy", "drawn"]
)
def test_each_token_is_drafted_by_the_shallowest_sub_model_that_is_sure_over_all_that_was_drafted(
    sampler,
) -> None:
    """By brute force: a fresh pass of each sub-model over text and draft.

    Approximated entries above an exit would show here.
    """
    drafted, deeper, after, text = 0, 0, 0, list(toys.PROMPT)
    session = drafting(30, sampler)
    for step in session.sink.steps:
        if step.draft is None:
            continue
        for i, (token, layers, tried) in enumerate(
            zip(step.draft.tokens, step.draft.notes["exits"], step.draft.notes["tried"], strict=True)
        ):
            read = [*text, *step.draft.tokens[:i]]
            laws = {e: law(read, e) for e in EXITS}
            bars = dict(zip(EXITS, (*BARS, 0.0), strict=True))
            assert layers == next(e for e in EXITS if laws[e].max() >= bars[e])
            assert tried == [pytest.approx(float(laws[e].max()), abs=1e-4) for e in EXITS if e <= layers]
            if sampler == "greedy":
                assert token == int(laws[layers].argmax())
            else:
                assert step.draft.q[i] == pytest.approx(float(laws[layers][token]), abs=1e-9), (
                    "q is that of the exit used"
                )
            drafted, deeper = drafted + 1, deeper + (layers > EXITS[0])
            after += layers > min(step.draft.notes["exits"][:i], default=layers)
        text += step.emitted
    assert drafted > 50 and deeper > 20 and after > 10, (
        "the test needs tokens that go deeper than some before them"
    )
    if sampler == "greedy":
        assert session.end.tokens == toys.greedy_text(DEEP.decoder, toys.PROMPT, 30)


def test_no_layer_runs_twice_for_a_token_and_the_check_goes_on_where_each_stands() -> None:
    ragged = taken = 0
    for step in drafting(60).sink.steps[:-1]:
        notes, layers = step.draft.notes, DEEP.spec.n_layers
        kept, exits = notes["kept"], notes["exits"]
        assert kept == [max(exits[i:]) for i in range(len(exits))] == sorted(kept, reverse=True)
        ran = [0] * layers  # rows that each layer ran, in all passes
        for one in step.passes:
            which = (
                range(one.attn)
                if isinstance(one.attn, int)
                else range(layers)
                if one.attn is None
                else one.attn
            )
            for layer in which:
                ran[layer] += one.tokens if one.rows is None else one.rows[layer]
        assert ran == [step.drafted + 1] * layers, "the root and every drafted token, once"
        ragged, taken = ragged + (kept[0] > kept[-1]), taken + notes["deepened"]
    assert ragged > 5 and taken > 5, "the test needs tokens of several depths"


def test_at_the_ends_of_the_threshold_it_is_a_draft_of_the_first_or_of_the_last_sub_model() -> None:
    """P: threshold 0 always uses exit 1, a threshold above every probability the full draft."""
    for bar, layers in ((0.0, EXITS[0]), (1.01, EXITS[-1])):
        sorted_ = drafting(thresholds=[bar])
        fixed = toys.decode(
            toys.method(drafter=("early_exit", dict(layers=layers, max_draft_tokens=5))),
            count=40,
            pair=(DEEP, DEEP),
        )
        assert {x for step in sorted_.sink.steps if step.draft for x in step.draft.notes["exits"]} == {layers}
        assert [(s.emitted, s.accepted, s.draft and s.draft.tokens) for s in sorted_.sink.steps] == [
            (s.emitted, s.accepted, s.draft and s.draft.tokens) for s in fixed.sink.steps
        ]


def test_a_laxer_threshold_never_drafts_deeper_on_the_same_text() -> None:
    first = [
        [x for s in drafting(thresholds=[bar]).sink.steps[:1] for x in s.draft.notes["exits"]]
        for bar in (0.3, 0.6, 0.9)
    ]
    assert first[0][0] <= first[1][0] <= first[2][0] and first[0] != first[2], (
        "the test needs thresholds that matter"
    )


def test_exits_that_are_told_are_derived_again_by_the_check() -> None:
    trace = drafting(40).sink
    assert check(trace).ok and check(trace).counts["exits"] == sum(step.drafted for step in trace.steps)
    step = next(s for s in trace.steps if s.exits and len(s.exits[0].tests) == 2)
    step.exits[0].tests[0][1] = 0.99
    assert f"step {step.step}: exits says that 3 layers ran, but by its tests it is 1" in str(check(trace))


def test_a_part_that_looks_inside_passes_has_the_check_begin_at_the_first_layer() -> None:
    usual, fields = drafting(30), drafting(30, level="full")
    assert usual.end.tokens == fields.end.tokens
    assert [s.draft.tokens for s in usual.sink.steps[:-1]] == [s.draft.tokens for s in fields.sink.steps[:-1]]
    assert all(p.attn is None for s in fields.sink.steps for p in s.passes if p.phase == "verify")
    method = toys.method(drafter=("s2d", {"exits": EXITS}), policy=("h2o", {"heavy": 60, "recent": 60}))
    assert toys.decode(method, count=30, pair=(DEEP, DEEP)).end.tokens == toys.greedy_text(
        DEEP.decoder, toys.PROMPT, 30
    )


def test_the_shipped_model_has_four_parts_and_other_depths_have_theirs() -> None:
    assert [S2D().sub_model_depths(toys.toy_spec(n_layers=n)) for n in (8, 6, 3, 2)] == [
        (2, 4, 6),
        (1, 3, 4),
        (1, 2),
        (1,),
    ]


@pytest.mark.parametrize(
    ("knobs", "parts", "said"),
    [
        (
            {"exits": [2, 6]},
            {},
            r"s2d\.exits = 2, 6: they have to rise, and toy has 6 layers; choose 1 to 5\.",
        ),
        ({"exits": [3, 2]}, {}, r"s2d\.exits = 3, 2: they have to rise"),
        ({}, {"adaptive_depth": "confidence_exit"}, "choose adaptive_depth all_layers"),
        ({}, {"policy": "quest"}, "quest chooses what the rows of a pass read; choose the policy keep_all."),
    ],
)
def test_what_cannot_work_is_refused(knobs: dict, parts: dict, said: str) -> None:
    with pytest.raises(MethodError, match=said):
        toys.method(drafter=("s2d", knobs), **parts).check(toys.toy_spec(n_layers=6))
