"""Samples: several texts of one prompt, drawn independently, whose prompt is held and read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.chance import Chance
from decodescope.engine.decoding.moved import moved
from decodescope.engine.decoding.plain import drawn
from decodescope.engine.decoding.state import Move, State
from decodescope.engine.decoding.strategy import Strategy
from decodescope.engine.model.branches import branch
from decodescope.engine.model.feed import Feed
from decodescope.engine.model.shared import share
from decodescope.engine.model.tree import PLANS, TreePlan
from decodescope.engine.trace.events import Beams, EndReason


@dataclass
class _Sample:
    """A text behind the prompt: its tokens, the sampler's state, its coins, and the sum of its log-probabilities."""

    state: Any
    chance: Chance
    tokens: list[int] = field(default_factory=list)
    score: float = 0.0


@dataclass
class _Samples:
    """alive: those that go on, in the order of the batch;  first: the text of sample 0, and why it ended, once it has"""

    alive: list[_Sample]
    first: _Sample
    why: EndReason | None = None


@component
class Samples(Strategy):
    """Draw `samples` texts in one run. Sample i has the coins of a run with the seed s + i, so it is that run's text; sample 0,
    which the run emits at its end, is the text of plain decoding.

    Keys and values of the prompt are held once. In a pass the queries of all samples meet them in one product, those of each
    sample its own entries by themselves, and both are joined: the same attention as over everything, in float32 to 1e-5. So a
    pass reads the prompt once and not once a sample, and memory is the prompt and the sum of the samples' own entries. One that
    has ended leaves the batch, and its entries go.

    Beside the authors' code: the samples' own entries are allocated as they come; there is one level of sharing. `plan`:
    "prefix" is that; "dense", "node" and "flatten" read prompt and samples as a tree of texts (DeFT, arXiv:2404.00242): in one
    masked product, node by node, or in even blocks of all nodes.
    """

    title = "Independent samples"
    source = "Hydragen: Juravsky et al. 2024, arXiv:2402.05099; ScalingIntelligence/hydragen, hydragen/attention.py"
    uses = frozenset({"context", "sampler"})

    samples: int = param(4, low=1, high=64, unit="texts", help="n, texts that are drawn")
    plan: str = param("prefix", choices=("prefix", *PLANS), help="how a pass reads prompt and texts")
    block: int = param(128, low=16, high=4096, unit="entries", help="of a block, where the plan is flatten")

    def begin(self, s: State) -> None:
        s.target.ask(Needs())
        if self.plan == "prefix":
            share(s.target.cache, self.samples)
        else:
            branch(s.target.cache, cast(TreePlan, self.plan), self.block)
            s.target.cache.rows(torch.zeros(self.samples, dtype=torch.int64))
        every = [_Sample(s.sampler_state, s.chance if i == 0 else Chance(s.chance.seed + i)) for i in range(self.samples)]
        s.scratch = _Samples(every, every[0])

    def step(self, s: State) -> Move:
        every: _Samples = s.scratch
        clock, device = s.target.executor, s.target.decoder.device
        started = clock.mark()
        written = len(every.alive[0].tokens)
        position = len(s.tokens) + written
        roots = [sample.tokens[-1] if written else s.tokens[-1] for sample in every.alive]
        places = torch.full((len(roots), 1), position - 1, device=device)
        feed = Feed(torch.tensor(roots, device=device)[:, None], places, highest=position - 1)
        logits, before = s.target.forward(feed)[:, 0], every.first.state  # [B, V]
        verified = clock.mark()
        s.target.commit([0])
        sure = logits.double().log_softmax(-1)
        going: list[int] = []
        ended: list[_Sample] = []
        for i, (sample, best) in enumerate(zip(every.alive, logits.argmax(-1).tolist(), strict=True)):
            token = self._draw(s, sample, logits[i : i + 1], best, position)
            sample.score += float(sure[i, token])
            stops = s.stop.at(sample.tokens[:-1], [token]) is not None
            if stops and sample is every.first:
                every.why = "stop_token"
            (ended.append(sample) if stops else going.append(i))
        record = Beams(
            [every.alive[i].tokens[-1] for i in going],
            going,
            [every.alive[i].score for i in going],
            [{"tokens": sample.tokens, "score": sample.score} for sample in ended],
        )
        if ended and going:
            s.target.cache.rows(torch.tensor(going, device=device))
        every.alive = [every.alive[i] for i in going]
        end: EndReason | None = s.filled(written + 1)
        if end is not None or not going:
            end = every.why or end
        emitted = every.first.tokens if end is not None else []
        s.tokens += emitted
        return moved(s, emitted, end, started, verified, beams=record, sampler_state=before)

    def _draw(self, s: State, sample: _Sample, logits: torch.Tensor, best: int, position: int) -> int:
        """The next token of a sample, of logits [1, V], as plain decoding draws it."""
        token, sample.state = drawn(logits, best, s.sampler, sample.state, sample.chance, position)
        sample.tokens.append(token)
        return token
