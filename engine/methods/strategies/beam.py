"""Beam search: keep the most likely hypotheses, extend all of them, keep the best again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.moved import moved
from decodescope.engine.decoding.state import Move, State
from decodescope.engine.decoding.strategy import Strategy
from decodescope.engine.model.branches import branch
from decodescope.engine.model.tree import PLANS, TreePlan
from decodescope.engine.trace.events import EndReason

from .shared.hypotheses import Hypothesis, chosen, read


@dataclass
class _Beams:
    """Hypotheses: tokens after the prompt and the sum of their log-probabilities; and those that have ended."""

    alive: list[Hypothesis]
    finished: list[Hypothesis] = field(default_factory=list)


@component
class Beam(Strategy):
    """Extend each of `width` hypotheses by every token, keep the best `width` that go on, and set aside those that end.
    With one stop id at most `width` of the best 2 * width extensions can end, so enough go on; with more ids more are
    looked at. A finished hypothesis is ranked by score / length^alpha. The search ends when `width` have finished and none
    that goes on can still beat the worst of them, were the rest of it certain, or at the length limit.

    An approximation of the most likely text, so not the target's distribution; the text is emitted by the last step.

    Hypotheses branch off one another, so their entries are a tree: each is held once, whoever reads it, and reordering the
    hypotheses moves none (`engine/model/tree.py`). A pass reads the tree by `plan`: "dense" lets every query meet every entry,
    under a mask, in one product; "node" loads each node once, for the queries of the hypotheses that read it (KV-guided
    grouping); "flatten" cuts the nodes, one behind the other, into blocks of `block` entries for that (flattened splitting).
    All three are the attention of a hypothesis over its own text. The authors' kernel reads a node's entries where they lie,
    all groups at once; here those that lie apart are copied for the pass, and groups follow each other. A policy that takes
    entries out or chooses what is read, or a codec that packs them, leaves each hypothesis with a cache of its own, copied.
    """

    title = "Beam search"
    source = (
        "Graves 2012, arXiv:1211.3711; length penalty: Wu et al. 2016, arXiv:1609.08144, section 7; the tree of entries: DeFT, "
        "Yao et al. 2024, arXiv:2404.00242"
    )
    uses = frozenset({"context", "policy", "codec"})
    lossless = False
    changes = "the continuation with the best sum is kept"

    width: int = param(4, low=1, high=32, unit="hypotheses", help="B")
    alpha: float = param(1.0, low=0.0, high=2.0, step=0.1, help="length penalty: score / length^alpha")
    plan: str = param("dense", choices=PLANS, help="how a pass reads entries that hypotheses have in common")
    block: int = param(128, low=16, high=4096, unit="entries", help="of a block, where the plan is flatten")

    def begin(self, s: State) -> None:
        s.scratch = _Beams([([], 0.0)])
        if not s.target.policy.does and not s.target.codec.does:
            branch(s.target.cache, cast(TreePlan, self.plan), self.block)

    def step(self, s: State) -> Move:
        beams: _Beams = s.scratch
        clock = s.target.executor
        started = clock.mark()
        texts = [text for text, _ in beams.alive]
        written = len(texts[0])
        logits = read(s, texts)  # [B, V]
        verified = clock.mark()
        s.target.commit([0])
        before = logits.new_tensor([score for _, score in beams.alive], dtype=torch.float64)[:, None]
        choice = chosen(s, texts, logits.double().log_softmax(-1) + before, self.width)
        beams.finished = sorted(beams.finished + choice.ended, key=self.rank)[: self.width]
        if choice.alive:
            s.target.cache.rows(torch.tensor([parent for parent, _, _ in choice.alive], device=logits.device))
        beams.alive = [([*texts[parent], token], score) for parent, token, score in choice.alive]
        end: EndReason | None = "stop_token" if self.settled(beams, s.left) else None
        end = end or s.filled(written + 1)
        emitted: list[int] = []
        if end is not None:
            emitted = min(beams.finished + beams.alive, key=self.rank)[0]
            if beams.finished and emitted == beams.finished[0][0]:
                end = "stop_token"
            s.tokens += emitted
        return moved(s, emitted, end, started, verified, beams=choice.record())

    def rank(self, hypothesis: Hypothesis) -> float:
        """What is minimised: minus the score per length^alpha."""
        return -hypothesis[1] / len(hypothesis[0]) ** self.alpha

    def settled(self, beams: _Beams, longest: int) -> bool:
        """Whether no hypothesis that goes on can beat the worst finished one, were it to reach `longest` tokens at its
        present score."""
        if len(beams.finished) < self.width or not beams.alive:
            return not beams.alive
        best = max(score for _, score in beams.alive)
        return self.rank(beams.finished[-1]) <= -best / longest**self.alpha
