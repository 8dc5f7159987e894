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
from decodescope.engine.model.feed import Feed
from decodescope.engine.model.tree import PLANS, TreePlan
from decodescope.engine.trace.events import Beams, EndReason


@dataclass
class _Beams:
    """Hypotheses: tokens after the prompt and the sum of their log-probabilities; and those that have ended."""

    alive: list[tuple[list[int], float]]
    finished: list[tuple[list[int], float]] = field(default_factory=list)


@component
class Beam(Strategy):
    """Extend each of `width` hypotheses by every token, keep the best `width` that go on, and set aside those that end.
    Of the best 2 * width extensions at most `width` can end, so enough go on. A finished hypothesis is ranked by
    score / length^alpha. The search ends when `width` have finished and none that goes on can still beat the worst of
    them, were the rest of it certain, or at the length limit.

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
        clock, device = s.target.executor, s.target.decoder.device
        started = clock.mark()
        written = len(beams.alive[0][0])
        roots = [tokens[-1] if tokens else s.tokens[-1] for tokens, _ in beams.alive]
        position = len(s.tokens) - 1 + written
        feed = Feed(
            torch.tensor(roots, device=device)[:, None],
            torch.full((len(roots), 1), position, device=device),
            highest=position,
        )
        logits = s.target.forward(feed)[:, 0]  # [B, V]
        verified = clock.mark()
        s.target.commit([0])
        before = logits.new_tensor([score for _, score in beams.alive], dtype=torch.float64)[:, None]
        scores = logits.double().log_softmax(-1) + before  # [B, V]
        count = min(2 * self.width, scores.numel())
        best = scores.flatten().topk(count)
        vocab = logits.shape[-1]
        alive: list[tuple[int, int, float]] = []  # parent, token, score
        ended: list[tuple[list[int], float]] = []
        for flat, score in zip(best.indices.tolist(), best.values.tolist(), strict=True):
            parent, token = divmod(flat, vocab)
            text = [*beams.alive[parent][0], token]
            if s.stop.at(text[:-1], [token]) is not None:
                if len(ended) < self.width and len(alive) < self.width:
                    ended.append((text, score))
            elif len(alive) < self.width:
                alive.append((parent, token, score))
        beams.finished = sorted(beams.finished + ended, key=self.rank)[: self.width]
        if alive:
            s.target.cache.rows(torch.tensor([parent for parent, _, _ in alive], device=device))
        beams.alive = [([*beams.alive[parent][0], token], score) for parent, token, score in alive]
        record = Beams(
            [token for _, token, _ in alive],
            [parent for parent, _, _ in alive],
            [score for _, _, score in alive],
            [{"tokens": text, "score": score} for text, score in ended],
        )
        end: EndReason | None = "stop_token" if self.settled(beams, s.left) else None
        end = end or s.filled(written + 1)
        emitted: list[int] = []
        if end is not None:
            emitted = min(beams.finished + beams.alive, key=self.rank)[0]
            if beams.finished and emitted == beams.finished[0][0]:
                end = "stop_token"
            s.tokens += emitted
        return moved(s, emitted, end, started, verified, beams=record)

    def rank(self, hypothesis: tuple[list[int], float]) -> float:
        """What is minimised: minus the score per length^alpha."""
        return -hypothesis[1] / len(hypothesis[0]) ** self.alpha

    def settled(self, beams: _Beams, longest: int) -> bool:
        """Whether no hypothesis that goes on can beat the worst finished one, were it to reach `longest` tokens at its
        present score."""
        if len(beams.finished) < self.width or not beams.alive:
            return not beams.alive
        best = max(score for _, score in beams.alive)
        return self.rank(beams.finished[-1]) <= -best / longest**self.alpha
