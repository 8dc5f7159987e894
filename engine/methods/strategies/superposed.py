"""Superposed decoding: several drafts for the cost of one; each pass reads a mixture of their last tokens' embeddings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.methods.drafters.shared.datastore import LARGEST, load_datastore
from decodescope.engine.methods.drafters.shared.followers import interpolate_shares
from decodescope.engine.methods.drafters.shared.suffix_array import SuffixArray
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    Figure,
    NodeOutcome,
    Sentence,
    TreeForm,
)
from decodescope.engine.trace.details.shapes import TreeDetail
from decodescope.engine.trace.records.events import EndReason

from .shared.hypotheses import (
    COLUMNS,
    ENDED,
    EXACT,
    KEPT,
    LARGEST_STAY,
    SAYS,
    SO_FAR,
    TOGETHER,
    UNNAMED,
    WORTH,
    hypotheses_record,
)

DRAFTS = TreeForm(
    title="Beams kept",
    noun="hypothesis",
    nouns="hypotheses",
    says=SAYS,
    columns=[
        *COLUMNS,
        DetailColumn("p", "number"),
        DetailColumn("ngrams", "number"),
        DetailColumn("share", "number"),
    ],
    outcomes={
        "kept": KEPT,
        "ended": ENDED,
        "refused": NodeOutcome("left", [Sentence("left")], level="decisions", shown=False),
    },
    number="score",
    worth=WORTH,
    exact=EXACT,
    figures=[
        SO_FAR,
        Figure("this token", "p, the model", [Sentence("{p:p}")]),
        Figure("", "n-grams", [Sentence("unknown", given={"ngrams": 0}), Sentence("{ngrams:p}")]),
        Figure("", "mixed, nats", [Sentence("{score - before(score):3}")]),
        Figure("", "share of the next row", [Sentence("{share:p}")]),
        TOGETHER,
    ],
    card=[
        Sentence(
            "The model gives all drafts one distribution; n-grams tell them apart. The next pass reads one row: "
            "the mean of the last tokens' embeddings, by these shares."
        )
    ],
    lines=[Sentence(LARGEST_STAY)],
    rule="beam search",
    best_first="score",
    why=[UNNAMED],
    settles_at_end=True,
    check="text_mixture",
)


@dataclass
class _Drafts:
    """alive, finished: tokens behind the prompt and their score, the best first;  store: the text with the n-gram counts"""

    store: SuffixArray
    alive: list[tuple[list[int], float]] = field(default_factory=lambda: [([], 0.0)])
    finished: list[tuple[list[int], float]] = field(default_factory=list)

    def weights(self) -> np.ndarray:
        """float64 [k]: the softmax of the scores of those alive, best first."""
        odds = np.exp([score - self.alive[0][1] for _, score in self.alive])
        shares: np.ndarray = odds / odds.sum()
        return shares


@component
class Superposed(Strategy):
    """Write `drafts` texts at once with one cache and one row per pass.

    The fed row is the mean of the embeddings of their last tokens, weighted by the softmax of the drafts' scores. The resulting
    distribution is that of all of them; n-grams distinguish them. P is the distribution over the `candidates` likeliest tokens
    v of softmax(logits / temperature). Draft d scores them by

        f_d(v) = (1 - alpha) log P(v) + alpha log Q_d(v),    Q_d(v) = sum_i weights_i * P_i(v | the last i tokens of d),

    with P_i counted in a datastore. Missing contexts add nothing; if the datastore knows none of the tokens, f is (1 - alpha)
    log P - penalty. The best k of all (d, v) by score of d + f_d(v) go on. A draft that ends is set aside. The run ends when
    `drafts` have ended, or at the limit, and emits the text with the best score per token.

    There is one pass per token, for any k. The cache holds entries of mixtures, which the model has never seen in training, so
    texts lose coherence after about ten or fifteen tokens. With one draft and alpha = 0 this is greedy decoding.

    Differences from the authors' code: counts come from `datastore`, as for `rest`, not from tables of 200,000 documents. A
    draft counts as ended only if it is among the best k; otherwise one draft would not be greedy. The authors continue and
    return all drafts.
    """

    title = "Superposed decoding"
    source = (
        "Shen et al. 2024, arXiv:2405.18400, section 3; RAIVNLab/SuperposedDecoding, superposed/llama/superpose.py and "
        "params/p15_d3_mixed.json"
    )
    uses = frozenset({"prompt_compression", "policy", "kv_compression"})
    lossless = False
    changes = "drafts share a cache that holds the mixture of their tokens"
    details: ClassVar = {"superposed_drafts": DRAFTS}

    drafts: int = param(3, low=1, high=16, unit="texts", help="number of texts written at the same time (k)")
    alpha: float = param(
        0.54, low=0.0, high=1.0, step=0.01, help="weight of the n-gram scores; the model has weight 1 - alpha"
    )
    temperature: float = param(
        0.06,
        low=0.01,
        high=2.0,
        step=0.01,
        help="temperature of the model's distribution, before n-grams are mixed in",
    )
    candidates: int = param(
        9,
        low=1,
        high=64,
        unit="tokens",
        help="most likely tokens that drafts may choose from; at least two for each draft",
    )
    ngram_weights: tuple[float, ...] = param(
        (0.01, 0.04, 0.15, 0.18, 0.12),
        low=0.0,
        high=1.0,
        least=1,
        most=8,
        help="weights of the n-gram contexts of 1, 2, ... tokens",
    )
    unknown_penalty: float = param(
        200.0,
        low=0.0,
        high=1000.0,
        unit="nats",
        help="penalty for a draft when no n-gram knows any of the next tokens",
    )
    datastore: str = param(
        "",
        file=True,
        most=LARGEST,
        help="text file in which n-grams are counted, at most 16 MiB; empty: the shipped file",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if 2 * self.drafts > spec.vocab:
            room = spec.vocab // 2
            way = f"choose at most {room}" if room else "choose the strategy draft_verify"
            return f"superposed.drafts = {self.drafts}: a vocabulary of {spec.vocab} has room for {room} at most; {way}."
        return None

    def begin(self, s: State) -> None:
        s.scratch = _Drafts(load_datastore(self.datastore, s.encode, s.target.decoder.vocab))

    def step(self, s: State) -> Move:
        drafts: _Drafts = s.scratch
        clock = s.target.executor
        started = clock.mark()
        written = len(drafts.alive[0][0])
        logits = s.target.forward(self.mixture_feed(s, drafts, len(s.tokens) - 1 + written))[0, -1]  # [V]
        verified = clock.mark()
        s.target.commit([0])
        record = self.grow(s, drafts, logits)
        end: EndReason | None = (
            "stop_token" if len(drafts.finished) >= self.drafts or not drafts.alive else None
        )
        end = end or s.limit_reason(written + 1)
        emitted: list[int] = []
        if end is not None:
            emitted = max(drafts.finished + drafts.alive, key=lambda x: x[1] / len(x[0]))[0]
            end = "stop_token" if any(emitted is text for text, _ in drafts.finished) else end
            s.tokens += emitted
        return plain_move(s, emitted, end, started, verified, details=[record])

    def mixture_feed(self, s: State, drafts: _Drafts, position: int) -> Feed:
        """One row: the superposed last tokens of the drafts, with the best one's token as its id; a single token is fed
        unchanged.
        """
        lasts = [tokens[-1] if tokens else s.tokens[-1] for tokens, _ in drafts.alive]
        row = Feed.causal_chain(lasts[:1], position, s.target.decoder.device)
        if len(set(lasts)) > 1:
            # [1, k, d_model]
            every = s.target.decoder.embed_rows(Feed.causal_chain(lasts, position, row.tokens.device))
            share = every.new_tensor(drafts.weights())[:, None]
            row.embeds = (every * share).sum(1, keepdim=True)
            row.embed_rows = torch.ones_like(row.tokens[0], dtype=torch.bool)
        return row

    def grow(self, s: State, drafts: _Drafts, logits: Tensor) -> TreeDetail:
        """Continue the best extensions by logits [V]; return the record of the drafts."""
        kept = logits.topk(min(max(self.candidates, 2 * self.drafts), len(logits)))
        model = (kept.values.double() / self.temperature).log_softmax(0).cpu().numpy()  # [n]
        tokens = kept.indices.cpu().numpy()
        texts = ([*s.tokens, *text] for text, _ in drafts.alive)
        known = np.stack(
            [interpolate_shares(drafts.store, text, tokens, self.ngram_weights) for text in texts]
        )  # [k, n]
        scores = np.array([[score] for _, score in drafts.alive]) + self.mix_scores(model, known)
        alive: list[int] = []  # places in the scores, the best first
        ended: list[int] = []
        for flat in np.argsort(-scores, axis=None, kind="stable")[: 2 * self.drafts].tolist():
            parent, i = divmod(flat, len(tokens))
            if len(alive) == self.drafts or not np.isfinite(scores[parent, i]):
                break
            text = [*s.tokens[s.prompt :], *drafts.alive[parent][0]]
            (alive if s.stop.find_stop(text, [int(tokens[i])]) is None else ended).append(flat)
        every = np.flatnonzero(np.isfinite(scores))
        left = every[~np.isin(every, [*alive, *ended])].tolist()
        parents, ids = np.divmod(np.arange(scores.size), len(tokens))
        rows = [*zip(parents.tolist(), tokens[ids].tolist(), scores.ravel().tolist(), strict=True)]
        going, over = (
            [([*drafts.alive[rows[at][0]][0], rows[at][1]], rows[at][2]) for at in some]
            for some in (alive, ended)
        )
        drafts.alive = going
        drafts.finished = sorted(drafts.finished + over, key=lambda x: -x[1] / len(x[0]))[: self.drafts]
        order = [*alive, *ended, *left]
        shares = drafts.weights().tolist() if alive else []
        return hypotheses_record(
            "superposed_drafts",
            [rows[at] for at in alive],
            [rows[at] for at in ended],
            [rows[at] for at in left],
            last="refused",
            p=np.exp(model)[ids[order]].tolist(),
            ngrams=known.ravel()[order].tolist(),
            share=shares + [None] * (len(order) - len(shares)),
        )

    def mix_scores(self, model: np.ndarray, known: np.ndarray) -> np.ndarray:
        """float64 [k, n]: f, from log P [n] and Q [k, n]."""
        if self.alpha == 0:
            return np.broadcast_to(model, known.shape)
        with np.errstate(divide="ignore"):
            both = (1 - self.alpha) * model + self.alpha * np.log(known)
        unknown = ~np.isfinite(both).any(1, keepdims=True)
        return np.where(unknown, (1 - self.alpha) * model - self.unknown_penalty, both)
