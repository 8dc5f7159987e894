"""NEST: with an empty store the target's own distribution, otherwise its mixture with the tokens after the nearest states."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import Trace, check

DRAFTER = ("draft_model", {"max_draft_tokens": 3, "width": 2})
KNOBS = dict(datastore=toys.DATASTORE, window=9, neighbours=100, temperature=0.2, alpha=0.85)
IDS = [int(x) for x in Path(toys.DATASTORE).read_text().split()]


def nest(drafter: str | tuple = "none", sampler: str = "greedy", count: int = 24, **knobs: object) -> Session:
    return toys.decode(
        toys.method(guidance=("nest", {**KNOBS, **knobs}), drafter=drafter, sampler=sampler), count=count
    )


@pytest.mark.parametrize("text", ["", "4", "99 4 99"])
def test_an_empty_store_is_the_targets_own_law_to_the_bit(text: str, tmp_path: Path) -> None:
    """Without a text, and with one in which no token follows another."""
    file = tmp_path / "text"
    file.write_text(text or " ".join(map(str, IDS)))
    knobs = dict(datastore=str(file), datastore_tokens=0 if not text else 100)
    for sampler in ("greedy", "temperature"):
        run = nest(DRAFTER, sampler, **knobs)
        assert (
            run.end.tokens == toys.decode(toys.method(drafter=DRAFTER, sampler=sampler), count=24).end.tokens
        )
        assert not any(x.choices or x.law for x in run.sink.steps)
    logits = torch.randn(3, 13, dtype=torch.float64)
    assert torch.equal(run.guidance.rows(logits, {}, Draft(), run.context), logits)


def test_where_retrieval_is_never_trusted_the_text_is_the_targets() -> None:
    run = nest(DRAFTER, alpha=0.0, tau=0.01)
    shares = [x for step in run.sink.steps for x in step.law["own"]]
    assert run.end.tokens == toys.decode(count=24).end.tokens != nest().end.tokens and min(shares) > 0.999


@torch.inference_mode()
@pytest.mark.parametrize("scale", ["rms", "raw"])
def test_each_law_is_the_mixture_by_brute_force_whatever_drafts(scale: str) -> None:
    """Distances one by one, in a store computed from scratch; p, c and the neighbours' shares in plain numbers."""
    decoder, k = toys.pair()[0].decoder, KNOBS["neighbours"]

    def states(tokens: list[int]) -> torch.Tensor:
        h = decoder.states_before(Feed.causal_chain(tokens, 0), None, 2)[0]
        return h / h.square().mean(-1, keepdim=True).sqrt() if scale == "rms" else h

    spans = [IDS[at : at + KNOBS["window"]] for at in range(0, len(IDS) - 1, KNOBS["window"])]
    keys = torch.cat([states(x) for x in spans])[: len(IDS) - 1]
    for drafter in ("none", DRAFTER):
        run, checked = nest(drafter, state_norm=scale), []
        assert check(run.sink).ok
        for step in run.sink.steps:
            text = run.tokens[: step.n]
            h = states(text)[-1]
            p = decoder.forward(Feed.causal_chain(text, 0, logits="last"), None)[0, 0].softmax(-1).tolist()
            near = sorted((float((h - key).square().sum()), at + 1) for at, key in enumerate(keys))
            if near[k][0] - near[k - 1][0] < 1e-9:
                continue  # of two windows that begin alike, either may be left out
            near = near[:k]
            weights = [math.exp((near[0][0] - d) / (KNOBS["temperature"] * math.sqrt(32))) for d, _ in near]
            c = 1 / (1 + math.exp((KNOBS["alpha"] - near[0][0] / near[-1][0]) / 0.1))
            mixed = [c * x for x in p]
            for weight, (_, place) in zip(weights, near, strict=True):
                mixed[IDS[place]] += (1 - c) * weight / sum(weights)
            choice = step.choices[0]
            assert sum(mixed) == pytest.approx(1, abs=1e-12), "the reference is a distribution"
            due = [mixed[x] for x in choice.candidates]
            assert choice.scores == pytest.approx(due, abs=1e-12)
            assert step.law["own"][0] == pytest.approx(c) and step.law["nearest"][0] == near[0][1]
            assert step.emitted[0] == mixed.index(max(mixed))
            checked.append(p.index(max(p)) != step.emitted[0])
        assert len(checked) > 5 and sum(checked) > 3, "the test needs other choices than the target's"


def test_rows_are_distributions() -> None:
    run = nest(count=4)
    logits = torch.randn(50, 13, dtype=torch.float64) * 20
    law = run.guidance.rows(logits, {2: torch.randn(1, 50, 32, dtype=torch.float64)}, Draft(), run.context)
    assert torch.allclose(law.logsumexp(-1), torch.zeros(50, dtype=torch.float64), atol=1e-12, rtol=0)


def test_in_a_text_of_the_store_it_goes_on_as_the_store_does_and_rest_drafts_that() -> None:
    """The store has the state of the same prefix, at distance 0. So the neighbours are certain, and only one counts."""
    knobs = dict(window=400, temperature=0.01, alpha=2.0, tau=0.01)
    rest = ("rest", dict(datastore=toys.DATASTORE, min_suffix=2))
    made = toys.method(guidance=("nest", {**KNOBS, **knobs}), drafter=rest)
    run = toys.decode(made, IDS[:30], 20)
    assert run.end.tokens == IDS[30:50] != toys.decode(toys.method(), IDS[:30], 20).end.tokens
    assert [x.law["nearest"][0] for x in run.sink.steps] == [x.n for x in run.sink.steps]
    assert sum(x.accepted for x in run.sink.steps) > 10


def test_a_depth_rule_that_may_leave_the_last_layer_out_is_refused() -> None:
    said = r"^nest compares states before the last layer, which confidence_exit may leave out: choose all_layers\.$"
    with pytest.raises(MethodError, match=said):
        toys.decode(toys.method(guidance="nest", adaptive_depth="confidence_exit"))


FORGED = {
    "a term": (
        lambda x: replace(x, terms={**x.terms, "p": [y * 0.9 for y in x.terms["p"]]}),
        "its terms add up to",
    ),
    "the shares": (lambda x: replace(x, weights={"p": 0.5, "p_kNN": 0.6}), "weights that are no shares"),
    "a probability": (
        lambda x: replace(x, terms={**x.terms, "p": [2.0 for _ in x.terms["p"]]}),
        "no probability",
    ),
    "the mixture": (
        lambda x: replace(x, weights={"p": 1.0, "p_kNN": 0.0}, scores=sorted(x.terms["p"], reverse=True)),
        "its terms add up to",
    ),
    "all of it": (
        lambda x: replace(
            x, terms={"p": x.terms["p_kNN"], "p_kNN": x.terms["p_kNN"]}, scores=x.terms["p_kNN"]
        ),
        "another than the mixture",
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_mixture_is_found_out(what: str) -> None:
    forge, why = FORGED[what]
    run = nest(alpha=0.7)
    step = next(i for i, x in enumerate(run.sink.steps) if 0.1 < x.choices[0].weights["p"] < 0.9)
    trace = Trace()
    for record in [run.sink.header, run.sink.prefill, *run.sink.steps]:
        forged = record is run.sink.steps[step]
        trace.write(replace(record, choices=[forge(record.choices[0])]) if forged else record)
    trace.seal(run.end)
    assert why in str(check(trace))
