"""Relaxed acceptance: keep a token that is among the target's likeliest and nearly as likely as the best. Lossy."""

from __future__ import annotations

import math

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.acceptance import (
    AcceptanceRule,
    Cursor,
    NotRecordedError,
    next_token_knob,
    origin_behind,
)
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft, Origin, Trial, Verdict, as_array
from decodescope.engine.trace.records.events import TOP
from decodescope.engine.trace.records.evidence import TARGET, Column, Quantity, Relation, Telling, make_line


@component
class Relaxed(AcceptanceRule):
    """Accept drafted token x if it is among the target's `top_k` likeliest tokens and p(x) >= max p - `delta`.

    The walk down the chain ends at the first token that fails. `next_token` chooses what follows: the likeliest token, as in
    the official code, or one drawn from p. Tokens as likely as the k-th are among the k; a token with p = 0 never stays.

    The rule changes the text, also under a greedy sampler. There p is the softmax of the target's logits, and top_k = 1 or
    delta = 0 is exact matching. Under a random sampler p is the distribution after the sampler. A kept token's probability is
    less than the best one's by at most delta, at each place; for a whole text there is no bound. With `likeliest` nothing is
    drawn, so a draft chosen without chance gives one text for every seed.

    The official code relaxes only between the marks of a model's thinking phase, where p is the plain softmax, and decodes
    greedily. It suggests top_k = 10 and delta = 0.6 for DeepSeek-R1. Here every place is relaxed. Chains only. In the trace, a
    trial's den is the bound; `rule` holds max p and the k-th largest p of each place with a guess.
    """

    title = "Relaxed acceptance (TensorRT-LLM)"
    source = (
        "NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels/speculativeDecoding/mtpKernels.cu, mtpRelaxedAcceptanceKernel, commit "
        "3585984b"
    )
    lossless = False
    keeps_law = False
    matches = False
    chain_only = True
    changes = "what is nearly as likely as the target's best token is kept"
    telling = Telling(
        den="b",
        likeliest={"next_token": "likeliest"},
        columns=[Column("best", "place"), Column("kth", "place")],
        relations=[Relation("den == max(best - delta, kth)", 1e-6)],
        counted=Column("relaxed trials", "trial"),
        numbers=[
            TARGET,
            Quantity("best", "max p", "best"),
            Quantity("last", "p of rank {top_k:g}", "kth"),
            Quantity("bound", "max(max p − {delta:g}, p of rank {top_k:g})", "den"),
        ],
        card=[
            "Kept is what is among the {top_k:g} likeliest and within {delta:g} of the best. This rule changes the text."
        ],
        lines=[
            make_line(
                "Relaxed acceptance keeps what is nearly as likely as the best token.",
                "b = max({best} − {delta:g}, {kth}) = {den}",
            )
        ],
        close="This rule changes the text: what passes is kept as if the target had chosen it.",
    )

    top_k: int = param(
        10, low=1, high=1000, unit="tokens", help="a token must be among this many likeliest of the target"
    )
    delta: float = param(
        0.6,
        low=0.0,
        high=1.0,
        step=0.05,
        help="a token may be less likely than the best one by at most this probability; 0: only the best",
    )
    next_token: str = next_token_knob()

    @property
    def draws_next_token(self) -> bool:
        return self.next_token == "drawn"

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        path: list[int] = []
        trials: list[Trial] = []
        best: list[float] = []
        kth: list[float] = []
        places: list[tuple[int, Tensor | None]] = []
        origin: Origin = origin_behind(draft)
        while True:
            places.append((at.node, None if at.greedy else at.probs))
            child = next(iter(draft.children(at.node)), None)
            if child is None:
                break
            top, last = self.leading_probabilities(at)
            best.append(top)
            kth.append(last)
            bound = max(top - self.delta, last)
            # the test is p > den, and the bound itself passes
            den = math.nextafter(bound, 0.0) if bound > 0 else bound
            p_x = float(as_array(at.model_probs)[draft.tokens[child]])
            trials.append(Trial(child, p_x, p_x, 1.0, None, den, p_x > den, den=den))
            if not trials[-1].ok:
                origin = "residual" if self.draws_next_token and not at.greedy else "correction"
                break
            path.append(child)
            at = at.descend(child)
        rule = {"best": best, "kth": kth} if trials else None
        if at.greedy or not self.draws_next_token:
            token = at.choice if at.greedy else at.top_token
            return Verdict(path, token, origin, trials, rule=rule, places=places)
        drawn = chance.draw(at.probs, at.position)
        return Verdict(path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, rule, places)

    def leading_probabilities(self, at: Cursor) -> tuple[float, float]:
        """The largest and the top_k-th largest probability at a place, 0 if there are fewer tokens.

        Raises NotRecordedError if a record shows fewer tokens than top_k.
        """
        if not at.whole and self.top_k > TOP:
            raise NotRecordedError(
                f"the record shows the {TOP} likeliest tokens of a place, not {self.top_k}"
            )
        p = at.model_probs if at.whole else at.model_probs[:-2]
        values = p.topk(min(self.top_k, len(p))).values
        return float(values[0]), float(values[-1]) if len(values) == self.top_k else 0.0
