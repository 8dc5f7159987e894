"""SWIFT: the target drafts for itself without some sub-layers, and searches which ones while it decodes."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Skip

from ..shared.layer_skipping import SKIPPED, inner_sub_layers, skip_of, skipping_draft, spaced_sub_layers
from ..shared.subsets import propose_subset


@component
class Swift(DrawnDrafter):
    """On-the-fly layer skipping.

    It drafts as layer_skip does. Before each draft it runs one round of search:

    1. Take a candidate set with as many inner sub-layers as the set in use. It is drawn at random or, every `bayes_interval`
       rounds, proposed by a Gaussian process over all scores so far. The process takes the highest upper confidence bound, mean
       + 2.5 deviations, of the unseen sets one exchange away from the set in use.
    2. Compute its score, the matchness. One pass reads the last full `window` of the generated text, over the exact keys and
       values of the earlier text. The score is the share of places where the best token is the written one.
    3. If its score is higher, it replaces the set in use.

    When the window has moved on, the round scores the set in use again instead, so that only scores of one window are compared.
    The search ends at a score of `target_matchness`, after `patience` rounds without gain, or after `max_rounds`. It pauses
    while a cache policy has evicted entries that the window would need. It uses the run's seed.

    A round costs one pass of `window` rows without the skipped sub-layers, recorded as phase "search". The entries that it
    overwrites are restored, so only the window's entries are copied (the released code copies the whole cache). Under a random
    sampler, the chain is drawn and siblings are left out. Lossless: the set depends on the past alone. Deviations: the released
    code scores the first window of the answer and lets its process propose points of the unit cube.
    """

    title = "SWIFT (searched layer skipping)"
    source = "Xia et al. 2025, arXiv:2410.06916, section 4; hemingkx/SWIFT, model/swift/utils.py"
    draw_kind = "iid"
    tells: ClassVar[dict[str, Note]] = {
        **SKIPPED,
        "match": Note("series", "matchness", what="score of the set in use", line="target_matchness"),
        "candidate": Note("set", "candidate", what="how the set that this round scored was found"),
        "score": Note("series", "its score", what="matchness of the candidate", line="match"),
        "rounds": Note("series", "rounds", what="of search so far", line="max_rounds"),
        "searching": Note("series", "searching", what="whether the search goes on"),
    }

    max_draft_tokens: int = param(25, low=1, high=25, unit="tokens", help="maximum length of a draft")
    skip_ratio: float = param(
        0.45,
        low=0.0,
        high=0.9,
        step=0.05,
        help="share of attention and feed-forward blocks to skip; first and last layer always run",
    )
    min_probability: float = param(
        0.8,
        low=0.0,
        high=1.0,
        step=0.05,
        help="the draft ends after a token with a probability below this; 0: no limit",
    )
    siblings: bool = param(True, help="also draft alternatives to each token; greedy sampling only")
    window: int = param(
        32, low=2, high=512, unit="tokens", help="length of the generated text on which skip sets are scored"
    )
    bayes_interval: int = param(
        25,
        low=0,
        high=1000,
        unit="rounds",
        help="interval between proposals of the Bayesian optimizer; 0: random search only",
    )
    target_matchness: float = param(
        0.95,
        low=0.0,
        high=1.0,
        step=0.01,
        help="stop the search when the skip set in use reaches this matchness",
    )
    patience: int = param(
        300,
        low=1,
        high=10_000,
        unit="rounds",
        help="stop the search after this many rounds without improvement",
    )
    max_rounds: int = param(
        1000, low=0, high=10_000, unit="rounds", help="maximum length of the search; 0: no search"
    )

    @property
    def branches(self) -> bool:
        return self.siblings

    def begin(self, ctx: Context) -> None:
        self._inner = inner_sub_layers(ctx.target.decoder.spec)
        used = spaced_sub_layers(self._inner, self.skip_ratio)
        self._set = torch.tensor([x in used for x in self._inner], dtype=torch.bool)
        self._start = self._at = -1  # where the scored window begins; length of the text at the last round
        self._sets: list[Tensor] = []
        self._scores: list[float] = []
        self._match = 0.0
        self._stale = 0
        self._searching = self.max_rounds > 0

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        ctx.target.rollback()
        notes = {**self._search_round(ctx), "rounds": len(self._scores), "searching": self._searching}
        return skipping_draft(
            ctx, self._as_skip(self._set), self.max_draft_tokens, self.min_probability, self.siblings, notes
        )

    def _as_skip(self, chosen: Tensor) -> Skip:
        """Convert a set, bool [n] over the inner sub-layers, to the sub-layers that a pass skips."""
        return skip_of([x for x, out in zip(self._inner, chosen.tolist(), strict=True) if out])

    def _search_round(self, ctx: Context) -> dict[str, object]:
        """Run one round of search; return for the trace the candidate's kind and score, and the score of the set in use."""
        full = (len(ctx.tokens) - ctx.prompt) // self.window
        whole = all(store.in_order and store.n == len(ctx.tokens) - 1 for store in ctx.target.cache.layers)
        if not self._searching or not full or not whole or self._at == len(ctx.tokens):
            return {"match": round(self._match, 4)} if self._scores else {}
        self._at = len(ctx.tokens)
        start = ctx.prompt - 1 + (full - 1) * self.window
        if start != self._start:
            self._start = start
            kind = "in use"
            candidate = self._set
        else:
            kind, candidate = self._candidate(ctx)
        score = self._score(ctx, candidate)
        self._sets.append(candidate)
        self._scores.append(score)
        better = kind == "in use" or score > self._match
        if better:
            self._set, self._match = candidate, score
        self._stale = 0 if better else self._stale + 1
        alone = int(self._set.sum()) in (0, len(self._set))
        over = self._stale >= self.patience or len(self._scores) >= self.max_rounds
        self._searching = not (alone or over or self._match >= self.target_matchness)
        return {"match": round(self._match, 4), "candidate": kind, "score": round(score, 4)}

    def _candidate(self, ctx: Context) -> tuple[str, Tensor]:
        """The candidate's kind (how it was chosen), and a set of the same size as the one in use."""
        if self.bayes_interval and (len(self._scores) + 1) % self.bayes_interval == 0:
            candidate = propose_subset(torch.stack(self._sets), self._scores, self._set, self.window)
            if candidate is not None:
                return "bayes", candidate
        drawn = ctx.chance.shuffle(len(self._set), ctx.position)[: int(self._set.sum())]
        return "random", torch.zeros_like(self._set).index_fill(0, torch.tensor(drawn), True)

    def _score(self, ctx: Context, chosen: Tensor) -> float:
        """The matchness of a set: the share of the window's places where its best token is the written one."""
        begin, end = self._start, self._start + self.window
        feed = Feed.causal_chain(ctx.tokens[begin:end], begin, ctx.target.decoder.device)
        with ctx.target.cache.rewind(begin, self.window):
            ctx.target.forward(feed, "search", skip=self._as_skip(chosen))
        return (
            sum(a == b for a, b in zip(ctx.target.best, ctx.tokens[begin + 1 : end + 1], strict=True))
            / self.window
        )
