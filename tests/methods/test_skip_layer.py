"""SkipLayer: routers choose sub-layers for each token; with open routers it is the whole model, bit for bit."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine import MethodError
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.model.heads.skip_layer import SkipRouters
from decodescope.engine.trace import check
from decodescope.lab.decision.exits import explain_exit
from decodescope.lab.wire.depths import layer_letters

LAYERS = 5
DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=LAYERS), 3, torch.float64))
GAPS = ("propagate", "absent")


def decoded(count: int = 30, pair=(DEEP, DEEP), threshold: float = 0.4, gap: str = "propagate", **parts):
    return toys.decode(
        toys.method(adaptive_depth=("skip_layer", dict(threshold=threshold, skipped_kv=gap)), **parts),
        count=count,
        pair=pair,
    )


@pytest.mark.parametrize("gap", GAPS)
def test_rows_run_what_their_scores_say_and_the_check_finds_what_they_do_not(gap: str) -> None:
    session = decoded(gap=gap)
    trace = session.sink
    assert check(trace).ok and not session.header.lossless
    for step in trace.steps:
        (left,), one = step.exits, step.passes[-1]
        assert left.signs == (one.routed or ["r"] * LAYERS) and one.asks == "router" and len(left.scores) == 1
        none = "p" if gap == "propagate" else "-"
        assert layer_letters(one, LAYERS) == "".join(none if x == "-" else x for x in left.signs)
        assert sum(op.name == "exit_test" for op in ops_of(DEEP.spec, one)) == 2 * LAYERS
        assert explain_exit(trace, step).agrees
    seen = {x for step in trace.steps for x in "".join(step.exits[0].signs)}
    assert seen == {*"raf-"}, "the test needs every choice"
    trace.steps[4].exits[0].scores[0][3] *= -1
    trace.steps[4].exits[0].scores[0][3] += 0.8
    assert any("other sub-layers than their scores say" in x for x in check(trace).problems)


@pytest.mark.parametrize("gap", GAPS)
def test_open_routers_are_the_whole_model_bit_for_bit(gap: str) -> None:
    decoder = toys.decoder(toys.toy_spec(n_layers=LAYERS), 3, torch.float32)
    routers = SkipRouters(d=DEEP.spec.d_model, n_layers=LAYERS)
    routers.bias.data.fill_(torch.inf)
    decoder.heads = {**decoder.heads, "skip_layer": routers.requires_grad_(False)}
    opened = toys.model(decoder)
    session, plain = (toys.decode(toys.method(**x), count=30, pair=(opened, opened)) for x in (
        dict(adaptive_depth=("skip_layer", dict(skipped_kv=gap))), {}
    ))  # fmt: skip
    assert session.end.tokens == plain.end.tokens and check(session.sink).ok
    for one, other in zip(session.target.cache.layers, plain.target.cache.layers, strict=True):
        assert torch.equal(one.k, other.k) and torch.equal(one.v, other.v)
    assert all(step.passes[-1].routed is None for step in session.sink.steps)


@pytest.mark.parametrize("gap", GAPS)
def test_a_draft_changes_no_choice(gap: str) -> None:
    alone, drafted = decoded(gap=gap), decoded(gap=gap, drafter="token_recycling")
    assert alone.end.tokens == drafted.end.tokens != toys.greedy_text(DEEP.decoder, toys.PROMPT, 30)
    assert check(drafted.sink).ok and any(step.accepted for step in drafted.sink.steps)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_as_a_criterion_it_drafts_and_all_layers_check(gap: str, sampler: str) -> None:
    drafter = "early_exit", dict(criterion=f"skip_layer skipped_kv={gap} threshold=-0.5", max_draft_tokens=2)
    session = toys.decode(toys.method(drafter=drafter, sampler=sampler), count=30, pair=(DEEP, DEEP))
    assert session.header.lossless and check(session.sink).ok and toys.matches_fresh_reading(session.target)
    assert any(step.accepted for step in session.sink.steps)
    assert any(one.routed for step in session.sink.steps for one in step.passes if one.phase == "draft")
    if sampler == "greedy":
        assert session.end.tokens == toys.greedy_text(DEEP.decoder, toys.PROMPT, 30)


def test_what_cannot_work_is_refused() -> None:
    bare = toys.model(toys.decoder(toys.toy_spec(heads=())))
    with pytest.raises(
        MethodError,
        match=r"toy has no heads/skip_layer: train them with python -m decodescope\.training\.skip_layer",
    ):
        decoded(pair=(bare, bare))
    with pytest.raises(
        MethodError, match="and quest chooses what all of them read; choose the policy keep_all"
    ):
        decoded(policy="quest")
    with pytest.raises(MethodError, match="snapkv looks at the queries of the prompt in every layer"):
        decoded(policy=("snapkv", toys.SETTINGS["snapkv"][0]))
    with pytest.raises(
        MethodError, match="choose kv_compression unpacked, or skip_layer with skipped_kv = propagate"
    ):
        decoded(gap="absent", kv_compression="kivi")
