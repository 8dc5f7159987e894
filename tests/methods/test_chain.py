"""A chain of samplers records what each stage cut, the mass that it kept, and the entropy after it."""

from __future__ import annotations

import math

import pytest
import torch
import toys

from decodescope.engine.methods.samplers.chain import Chain
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.methods.samplers.top_k import TopK
from decodescope.engine.methods.samplers.top_p import TopP
from decodescope.testing import reference

STAGES = [Temperature(temperature=1.4), TopK(k=7), TopP(p=0.8)]
BY_WORDS = [
    lambda z: reference.temperature(z, [], 1.4), lambda z: reference.top_k(z, [], 7), lambda z: reference.top_p(z, [], 0.8)
]  # fmt: skip


def test_stages_are_weighed_as_by_hand() -> None:
    chain, g = Chain(stages=STAGES), torch.Generator().manual_seed(3)
    for _ in range(10):
        z = torch.randn(13, generator=g, dtype=torch.float64) * 2
        weighed, before = chain.logits_summary(z, [None] * 3), z.tolist()
        for i, stage in enumerate(BY_WORDS):
            after = stage(before)
            was, law, left = (
                reference.softmax(before),
                reference.softmax(after),
                [x for x in after if x > -math.inf],
            )
            assert weighed["cut"][i] == sum(x > -math.inf for x in before) - len(left)
            assert weighed["mass"][i] == pytest.approx(
                sum(p for p, x in zip(was, after, strict=True) if x > -math.inf)
            )
            assert weighed["spread"][i] == pytest.approx(-sum(p * math.log(p) for p in law if p))
            before = after


@pytest.mark.parametrize("drafter", ["none", "prompt_lookup"])
def test_a_trace_holds_it_where_decisions_are_recorded_and_it_agrees_with_the_distribution_beside_it(
    drafter: str,
) -> None:
    names = {"sampler": ["temperature", "top_k", "top_p"], "drafter": drafter}
    method = toys.Method.from_names(
        names, {"temperature": {"temperature": 1.4}, "top_k": {"k": 7}, "top_p": {"p": 0.8}}
    )
    session = toys.decode(method, count=20)
    for step in session.sink.steps:
        assert step.sampler["cut"][:2] == [0, 6] and step.sampler["mass"][0] == pytest.approx(1)
        assert step.sampler["spread"][-1] == pytest.approx(float(step.tops.entropy[0]), abs=1e-5)
    quiet = toys.decode(method, count=20, level="summary")
    assert quiet.end.tokens == session.end.tokens and all(step.sampler is None for step in quiet.sink.steps)
