"""DynaMo: several tokens are drawn together from one pass, as many as their joint probability allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.sampler import softmax
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.decoding.shared.token_draw import draw_token
from decodescope.engine.methods.drafters.shared.datastore import LARGEST, load_datastore
from decodescope.engine.methods.drafters.shared.followers import follower_lift, unigram_shares
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.drafting.medusa import MedusaHeads
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.trace.details.declarations import (
    Account,
    DetailColumn,
    Outcome,
    Passage,
    Relation,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import TallyDetail

TITLE = "Tokens taken together"
PROBABILITY = [Relation("joint >= 0"), Relation("joint <= 1", 1e-6)]
LENGTHS = TallyForm(
    title=TITLE,
    number="joint p",
    bar="threshold",
    value="joint",
    says=[
        Sentence("{written} token written at once", given={"written": 1}),
        Sentence("{written} tokens written at once"),
    ],
    row=[Sentence("best of {k}")],
    outcomes={
        "own": Outcome(True, "", [Sentence("the target's own")]),
        "longer": Outcome(True, "threshold", [Sentence("long enough")], [Relation("k <= written - 1")]),
        "written": Outcome(True, "threshold", [Sentence("written")], [Relation("k == written")]),
        "short": Outcome(False, "threshold", [Sentence("too unlikely")], [Relation("k == written + 1")]),
    },
    lines=[
        Sentence(
            "The longest text that reaches the threshold is written; counts of other texts correct the product."
        )
    ],
    columns=[DetailColumn("joint", "number"), DetailColumn("outcome", "text")],
    values=[DetailColumn("written", "number"), DetailColumn("texts", "number")],
    order=["own", "longer*", "written?", "short?"],
    relations=PROBABILITY,
    totals=[
        Relation("written >= 1"),
        Relation("rows >= written"),
        Relation("texts == 0", given={"written": 1}),
    ],
    check="joint_texts",
    counted="joint choices",
    account=Account(
        where=[
            Sentence("one token", given={"texts": 0}),
            Sentence("{written} tokens, one of {texts} texts"),
        ],
        rule="joint probability",
        passages=[
            Passage(
                Sentence(
                    "One pass says what each of the next tokens may be; what stands together in other texts corrects "
                    "their product."
                ),
                each=[
                    Sentence("1 token: the best text has {joint:3}", given={"k": 1}),
                    Sentence("{k} tokens: the best text has {joint:3}"),
                ],
            ),
            Passage(
                Sentence(
                    "No text of several tokens has {threshold:g}, so the target's next token stands alone.",
                    given={"texts": 0},
                )
            ),
        ],
    ),
)
DRAWN = Sentence("u in {before(sum) / total:3} to {sum / total:3}", where="u >= 0")
ENOUGH = "max(threshold, relative_threshold * best)"
TEXTS = TallyForm(
    title=TITLE,
    number="joint p",
    bar="threshold",
    value="joint",
    row=[Sentence("{text}")],
    outcomes={
        "best": Outcome(
            True,
            ENOUGH,
            [Sentence("written, apart {alone:3}")],
            [Relation("k == 1"), Relation("chosen == k")],
        ),
        "drawn": Outcome(
            True,
            ENOUGH,
            [Sentence("written, apart {alone:3}"), DRAWN],
            [Relation("before(sum) / total <= u"), Relation("u <= sum / total"), Relation("chosen == k")],
        ),
        "offered": Outcome(True, ENOUGH, [Sentence("offered, apart {alone:3}"), DRAWN]),
    },
    lines=[
        Sentence("The best was taken.", given={"u": None}),
        Sentence("u = {u:3} chose among them by their share."),
    ],
    columns=[
        DetailColumn("text", "tokens"),
        DetailColumn("alone", "number"),
        DetailColumn("joint", "number"),
        DetailColumn("sum", "number"),
        DetailColumn("outcome", "text"),
    ],
    values=[
        DetailColumn("best", "number"),
        DetailColumn("total", "number"),
        DetailColumn("chosen", "number"),
        DetailColumn("u", "number"),
    ],
    order=["offered*", "best|drawn", "offered*"],
    relations=[
        *PROBABILITY,
        Relation("alone >= 0"),
        Relation("alone <= 1", 1e-6),
        Relation("joint == best", given={"k": 1}),
        Relation("min(k - 1, joint - before(joint)) <= 0"),  # the best first
        Relation("sum == before(sum) + joint"),
        Relation("sum == total", given={"below": 0}),
    ],
    check="joint_texts",
    account=Account(
        passages=[
            Passage(
                Sentence("The longest that have {threshold:g} were offered:"),
                each=[Sentence("“{text}”: {joint:3}, apart {alone:3}")],
            ),
            Passage(
                Sentence("No token of it but the first was the target's own choice."),
                sums=[
                    Sentence("the best was taken", given={"u": None}),
                    Sentence("u = {u:3} fell on text {chosen}"),
                ],
            ),
        ]
    ),
)

Ratio = Callable[[Sequence[int]], np.ndarray | None]


@dataclass
class _Level:
    """Texts of n tokens that reach the threshold: tokens int64 [T, n], joint probability [T], and product of the single tokens'
    [T]
    """

    tokens: np.ndarray
    joint: np.ndarray
    alone: np.ndarray


def build_joint_levels(
    laws: np.ndarray, ratio: Ratio, weight: float, threshold: float
) -> tuple[list[_Level], list[float]]:
    """Find the texts of 1, 2, ... tokens with a joint probability of at least the threshold, for as many levels as have one.

    Also returns, for each level, the largest joint probability of the texts with a beginning that reaches the threshold.

    laws: float64 [L, V], the pass's distributions of the tokens 1 to L;  ratio: text -> float64 [V], how much more often each
    token follows it than elsewhere, or None if unknown. A text's joint probability is that of its beginning times laws[n] *
    ratio^weight, normalised. It never exceeds its beginning's, so no other text needs to be considered.
    """
    first = np.flatnonzero(laws[0] >= threshold)
    levels, best = [_Level(first[:, None], laws[0, first], laws[0, first])], [float(laws[0].max())]
    for law in laws[1:]:
        before = levels[-1]
        grown = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
        most = 0.0
        for text, joint, alone in zip(before.tokens, before.joint, before.alone, strict=True):
            factor = ratio(text.tolist()) if weight else None
            q = law if factor is None else law * factor**weight
            q = q / q.sum() if q.sum() > 0 else law
            most = max(most, float(joint * q.max()))
            fits = np.flatnonzero(joint * q >= threshold)
            grown.append(
                (np.column_stack([np.tile(text, (len(fits), 1)), fits]), joint * q[fits], alone * law[fits])
            )
        if not grown:
            break
        best.append(most)
        if most < threshold:
            break
        levels.append(_Level(*(np.concatenate(column) for column in zip(*grown, strict=True))))
    return levels, best


def writable_texts(joint: np.ndarray, threshold: float, share: float) -> np.ndarray:
    """int64: the texts that may be written, as indices, the best first, of equal ones the first. joint: float64 [T]"""
    order = np.argsort(-joint, kind="stable")
    return order[joint[order] >= max(threshold, share * float(joint.max()))]


@component
class JointTokens(Strategy):
    """Draw several tokens from one pass, by their joint probability.

    One pass gives the distribution of the next token, p1. The Medusa heads on the same state give those of the tokens behind
    it, p2 to pn. They are combined as J(a, b) = p1(a) p2(b) c(a, b), normalised over b. The co-occurrence c(a, b) = (P(b | a) /
    P(b))^weight is counted in a datastore. A missing context changes nothing; a missing pair is masked out. Take the greatest
    length at which a text has a joint probability of `threshold`. Texts of this length below the threshold, or below
    `relative_threshold` of the best one's, are dropped. One of the others is drawn (greedy: the best is taken), unverified. If
    no text of two tokens reaches the threshold, the next token is the target's own, as in plain decoding. So a threshold above
    1 is plain decoding. The next pass reads the written tokens together.

    The tokens are never verified, so the text changes. Greedy compares the model's distributions before the sampler; otherwise
    they are those after the sampler.

    Differences from the paper: the heads are Medusa's, trained on a frozen target (the authors' have a decoder layer each).
    Their formulas of the mask and of the adaptive threshold are in no public code. Normalised n-gram ratios and the threshold
    at a share of the best are our forms of them. The order of an n-gram is the whole drafted text: c(a, b, c) is P(c | a, b) /
    P(c).
    """

    title = "Joint tokens (DynaMo)"
    source = "Tuli et al. 2024, arXiv:2405.00888; the authors' page stuli.me/dynamo (loss, mask, threshold, back-off in words)"
    caution = "No token but the first of a pass is checked by the target."
    needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))
    uses = frozenset({"prompt_compression", "sampler"})
    lossless = False
    changes = "several tokens of a pass are taken from its heads, unverified"
    details: ClassVar = {"joint_lengths": LENGTHS, "joint_texts": TEXTS}

    max_tokens_per_pass: int = param(
        3,
        low=1,
        high=17,
        unit="tokens",
        help="maximum number of tokens written per pass; fewer if there are fewer Medusa heads",
    )
    threshold: float = param(
        0.5,
        low=0.01,
        high=1.01,
        step=0.01,
        help="minimum joint probability of a text of several tokens; above 1: plain decoding",
    )
    relative_threshold: float = param(
        0.3,
        low=0.0,
        high=1.0,
        step=0.05,
        help="minimum joint probability, as a share of the best candidate text's",
    )
    cooccurrence_exponent: float = param(
        1.0,
        low=0.0,
        high=2.0,
        step=0.1,
        help="exponent of the co-occurrence ratio; 0: tokens count as independent",
    )
    datastore: str = param(
        "",
        file=True,
        most=LARGEST,
        help="text file in which n-grams are counted, at most 16 MiB; empty: the shipped file",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if method.sampler.stateful:
            remembers = f"{method.sampler.name} remembers what was written before a token"
            return f"joint_tokens draws tokens together, and {remembers}: choose the sampler temperature."
        return missing_reason(MedusaHeads.kind, spec, "the strategy draft_verify")

    def begin(self, s: State) -> None:
        s.scratch = load_datastore(self.datastore, s.encode, s.target.decoder.vocab)

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        read = len(s.target.tokens)  # the last token, or all tokens that the previous pass wrote
        fresh, position = s.tokens[read:], len(s.tokens)
        # [1, V]
        logits = s.target.forward(Feed.causal_chain(fresh, read, s.target.decoder.device, logits="last"))[0]
        best = s.target.best[-1]
        guesses = self.guesses(s, logits)
        verified = clock.mark()
        s.target.commit(list(range(len(fresh))))
        emitted, details = self.choose(s, guesses, position)
        if not emitted:
            token, _ = draw_token(logits, best, s.sampler, s.sampler_state, s.chance, position)
            emitted = [token]
        count, end = s.cut(emitted)
        s.tokens += emitted[:count]
        s.chance.forget(len(s.tokens))
        return plain_move(s, emitted[:count], end, started, verified, logits=logits, details=details)

    def guesses(self, s: State, logits: torch.Tensor) -> np.ndarray:
        """float64 [L, V]: the distributions of the next L tokens, the first from `logits` [1, V], the others from the heads."""
        heads = cast(MedusaHeads, s.target.decoder.heads[MedusaHeads.kind])
        count = min(self.max_tokens_per_pass - 1, heads.shape["heads"], s.room)
        if count:
            assert s.target.probe is not None
            features = heads(s.target.probe.hidden["final"][0, -1])[:count]
            logits = torch.cat([logits, heads.logits(features, s.target.decoder)])
        laws = softmax((logits if s.sampler.greedy else s.sampler.warp(logits, s.sampler_state)).double())
        return laws.cpu().numpy()

    def choose(self, s: State, laws: np.ndarray, position: int) -> tuple[list[int], list[TallyDetail]]:
        """Choose the text of several tokens to write at `position` (empty: none); also return the records of the choice."""
        known = unigram_shares(s.scratch, laws.shape[1])
        levels, best = build_joint_levels(
            laws,
            lambda text: follower_lift(s.scratch, text, known),
            self.cooccurrence_exponent,
            self.threshold,
        )
        if len(levels) == 1:
            return [], [_length_tally(best, 1, 0)]
        last = levels[-1]
        order = writable_texts(last.joint, self.threshold, self.relative_threshold)
        texts, joint = last.tokens[order].tolist(), last.joint[order]
        chosen = 0
        u = None
        taken = "best"
        if not s.sampler.greedy:
            draw = s.chance.draw(torch.from_numpy(joint), position)
            chosen = draw.token
            u = draw.u
            taken = "drawn"
        sums = joint.cumsum().tolist()
        columns: dict[str, list[Any]] = {
            "text": texts,
            "alone": last.alone[order].tolist(),
            "joint": joint.tolist(),
            "sum": sums,
            "outcome": [taken if k == chosen else "offered" for k in range(len(texts))],
        }
        values = {"best": float(joint[0]), "total": sums[-1], "chosen": chosen + 1, "u": u}
        return texts[chosen], [
            _length_tally(best, len(levels), len(texts)),
            TallyDetail("joint_texts", columns, values),
        ]


def _length_tally(best: list[float], written: int, texts: int) -> TallyDetail:
    """The record of the best joint probability of each length; the length of `written` tokens had `texts` texts."""
    words = ["own", *["longer"] * (written - 2), *["written"] * (written > 1)]
    outcomes = [*words, *["short"] * (len(best) - len(words))]
    return TallyDetail(
        "joint_lengths", {"joint": best, "outcome": outcomes}, {"written": written, "texts": texts}
    )
