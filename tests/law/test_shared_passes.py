"""Shared passes keep the target's distribution: three walks in lockstep, each with its own prompt, sampler and length."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import toys
from law.cases import PROPOSALS, SAMPLERS, layered, true_law
from sizes import by_turns, sizes
from torch import Tensor

from decodescope.engine.methods.drafters.own_layers.early_exit import EarlyExit
from decodescope.engine.methods.drafters.own_layers.propd import ProPD
from decodescope.engine.methods.drafters.own_layers.s2d import S2D
from decodescope.engine.model.forward import batched
from decodescope.engine.session.batch.shared_passes import SharedExecutor, SharedPassStats, decode_together
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method
from decodescope.testing.walk import Text, Walk, distribution_distance

VOCAB = 3
CLOSE = 1e-8
APART = (EarlyExit, S2D, ProPD)  # verification uses states of the draft, and is a separate pass
ROWS = (("T=0.7", (1, 2, 0)), ("top-k 2", (2, 0)), ("penalty, mirostat", (0, 1, 2, 1, 0, 1)))


class Rounded(SharedExecutor):
    """Logits in steps of 2^-30.

    A walk returns to a fork and must find the same numbers, whichever walks share the passes this time. A test that is certain
    up to rounding must not become a fork.
    """

    def run(self, *asked: Any) -> Tensor:
        return (super().run(*asked) * 2**30).round() / 2**30


class Walking:
    """A walk instead of a session: its single step walks every path, and requests each pass like any other."""

    def __init__(self, walk: Walk):
        self.walk, self.target = walk, walk.s.target
        self.end: str | None = None
        self.law: dict[Text, float] = {}

    def step(self) -> None:
        # not by rounds: a sampler's state may differ by rounding, since passes are shared
        self.law = self.walk.full_run_distribution()
        self.end = "walked"

    def finish(self, reason: str) -> None:
        self.end = reason


@cache
def draft(kind: str, seed: int) -> Model:
    """A transformer that is somewhat like the target."""
    return toys.model(toys.noisy_decoder(layered(VOCAB, kind)[0].decoder, 0.3, seed))


def walked(name: str, length: int) -> tuple[SharedPassStats, list[tuple[float, Walk]]]:
    """How three walks shared their passes, and the largest difference of each walk's distribution from the target's."""
    proposal = PROPOSALS[name]
    kind, lengths, made = (
        proposal.kinds[-1] if proposal.on == "layers" else "independent",
        (length, 1, 2),
        list[Walking](),
    )
    for (sampler, prompt), most in zip(ROWS, lengths, strict=True):
        drafter = proposal.make(2)
        method = Method(drafter=drafter, acceptance=proposal.rule(), sampler=SAMPLERS[sampler][0])
        models = {role: draft(kind, seed) for seed, role in enumerate(drafter.lanes, 1)}
        given = {"target": layered(VOCAB, kind)[0], **models}
        walk = Walk(method, given, most, (), list(prompt), proposal.chance, Rounded("cpu"))
        made.append(Walking(walk))
    errors: list[Exception] = []
    # walks instead of sessions
    figures = decode_together(made, over=lambda _, error: errors.extend([error] if error else []))  # type: ignore[arg-type]
    if errors:
        raise errors[0]
    laws = [
        true_law(VOCAB, sampler, n, (), prompt, kind)
        for (sampler, prompt), n in zip(ROWS, lengths, strict=True)
    ]
    return figures, [(distribution_distance(x.law, law), x.walk) for x, law in zip(made, laws, strict=True)]


@pytest.mark.parametrize("name", by_turns(2, PROPOSALS))
@sizes("length", usual=2, full=3)
def test_three_that_go_together_have_each_the_targets_law(name: str, length: int) -> None:
    figures, walks = walked(name, length)
    for (difference, _), (sampler, prompt) in zip(walks, ROWS, strict=True):
        assert difference <= CLOSE, f"{name} behind {prompt}, {sampler}: the law is off by {difference:.3g}"
    if not isinstance(PROPOSALS[name].make(1), APART):
        assert figures.pass_counts[3] > 1 and figures.pass_counts[2] > 0, (
            "passes are shared by all, and by those that are left"
        )


def test_rows_that_are_given_to_another_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two passes with equally many rows swap places."""
    honest = batched._split_by_pass

    def crossed(x: Tensor, asked: list[batched.PassRequest]) -> Iterator[Tensor]:
        parts = list(honest(x, asked))
        if len(parts) > 1 and parts[0].shape == parts[1].shape:
            parts[:2] = parts[1], parts[0]
        return iter(parts)

    assert max(difference for difference, _ in walked("chain", 2)[1]) <= CLOSE
    monkeypatch.setattr(batched, "_split_by_pass", crossed)
    assert max(difference for difference, _ in walked("chain", 2)[1]) > 0.01
