"""Adaptive verification: a drafted token is verified only if it is likely enough to survive for what its row costs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import largest_probability
from decodescope.engine.decoding.shared.priced_schedule import COPYING, PricedSchedule

if TYPE_CHECKING:
    from torch import Tensor

    from decodescope.engine.core.method_view import MethodView
    from decodescope.engine.core.spec import ModelSpec
    from decodescope.engine.decoding.bases.context import Context, DraftOutcome


@component
class AdaptiveVerification(PricedSchedule):
    """vLLM's adaptive verification: of all prefixes of a draft, verify the one with the most expected tokens in a given time,

        (1 + S_1 + ... + S_k)  /  u_k,    S_k = c_1 c_2 ... c_k,

    where S_k is the probability that drafted token k survives, c_k the confidence of the draft model in that token, and u_k the
    time of a step that verifies k tokens. c_k is the largest probability of the draft's distribution before the sampler.

    S_k falls with k, and the cost of a further row does not. So the rate rises up to the best prefix and falls behind it. The
    draft ends before the first token that would not raise it: S_k u_(k-1) <= (1 + S_1 + ... + S_(k-1)) (u_k - u_(k-1)). That
    token is not drawn. If a measured curve has a step after which rows are cheaper, its lower convex hull is taken.

    Lossless: c_k is known before token k is drawn. A rule that looked at c_(k+1) to decide about token k would bend the
    text's distribution, since c_(k+1) depends on that token. vLLM keeps the same order: it sizes the budget of a batch from
    confidences of earlier steps, and a slot never outranks the slots before it.

    u_k is t_target(batch * (k + 1)) + k * t_draft(batch), without the second term if not `price_drafts`. vLLM's drafter writes
    the whole draft in one pass and has a trained confidence head (DSpark). Here the draft model writes token by token: a token
    that is not verified is not drafted either, and the model's own probability takes the place of the head, as in vllm-ascend
    for DFlash. The batch is simulated, with all texts alike. vLLM moves rows from doubtful texts to confident ones, which one
    text cannot show. `goodput` chooses the length before the draft, from a moving average. In a step without a draft nothing is
    recorded; `off` counts those before.
    """

    title = "Adaptive verification"
    source = (
        "vLLM, docs/features/speculative_decoding/adaptive_verification.md and "
        "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py (commit 057929c3); DSpark, arXiv:2607.05147"
    )
    tells: ClassVar[dict[str, Note]] = {
        "survival": Note(
            "node", "survival", what="estimated probability that this token and all before it are accepted"
        ),
        "us": Note("grid", "step by k", "µs", "time of a step that verifies 0, 1, ... tokens"),
        "refused": Note(
            "series", "refused", what="survival of the token that was not worth its row; 0: none was refused"
        ),
        "batch": Note("series", "batch", "texts", "that share every pass, simulated"),
        "off": Note("series", "off", "steps", "without a draft before this one"),
    }

    price_drafts: bool = param(
        True, help="count the draft model's passes too; false: only the target's pass, as for free drafts"
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        drafter = method.drafter
        if not drafter.drafts or (drafter.uses_schedule and "draft" in drafter.lanes):
            return None
        return (
            f"{self.name} asks a draft model for its confidence while it writes a chain, and {drafter.name} drafts without "
            "one, as set; choose the drafter draft_model, or the schedule fixed."
        )

    def begin(self, ctx: Context) -> None:
        self._target = self.pass_time(ctx.target.decoder)
        self._draft = self.pass_time(ctx.lanes["draft"].decoder) if self.price_drafts else COPYING
        self._us: list[float] = []
        self._survival: list[float] = []
        self._refused = 0.0
        self._off = 0

    def draft_limit(self, ctx: Context, length: int) -> int:
        self._us = convex_hull(self.step_times(self._target, self._draft, len(ctx.tokens)))
        self._survival, self._refused = [], 0.0
        return min(self.max_draft_tokens, ctx.room)

    @property
    def refused_draft(self) -> bool:
        return self._refused > 0 and not self._survival

    def is_worth_verifying(self, logits: Tensor) -> bool:
        survival = (self._survival[-1] if self._survival else 1.0) * largest_probability(logits)
        if not is_worth_row(self._survival, survival, self._us):
            self._refused = survival
            return False
        self._survival.append(survival)
        return True

    def notes(self) -> dict[str, Any]:
        said = {
            "survival": [round(x, 4) for x in self._survival],
            "us": [round(x, 3) for x in self._us],
            "refused": round(self._refused, 4),
            "batch": self.batch,
            "off": self._off,
        }
        return {"schedule": said}

    def observe(self, outcome: DraftOutcome) -> None:
        self._off = 0 if outcome.draft.drafted_count else self._off + 1


def is_worth_row(kept: Sequence[float], survival: float, us: Sequence[float]) -> bool:
    """True if one more token, which survives with probability `survival`, raises the expected tokens per time.

    kept: the same of the tokens before it;  us: time of a step that verifies 0, 1, ... tokens
    """
    k = len(kept)
    return survival * us[k] > (1 + sum(kept)) * (us[k + 1] - us[k])


def convex_hull(us: Sequence[float]) -> list[float]:
    """The largest convex sequence that is nowhere above `us`."""
    corners: list[int] = []
    for k, time in enumerate(us):
        while len(corners) > 1 and _is_above(us, corners[-2], corners[-1], k, time):
            corners.pop()
        corners.append(k)
    hull = [us[0]]
    for a, b in pairwise(corners):
        hull += [us[a] + (us[b] - us[a]) * (k - a) / (b - a) for k in range(a + 1, b + 1)]
    return hull


def _is_above(us: Sequence[float], first: int, middle: int, last: int, time: float) -> bool:
    """True if us[middle] is on or above the line from us[first] to `time` at `last`."""
    return (us[middle] - us[first]) * (last - first) >= (time - us[first]) * (middle - first)
