"""Goodput: the draft length at which the batch gets the most tokens per second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.cost.speedup import expected_tokens
from decodescope.engine.decoding.shared.priced_schedule import COPYING, PricedSchedule

if TYPE_CHECKING:
    from decodescope.engine.core.method_view import MethodView
    from decodescope.engine.core.spec import ModelSpec
    from decodescope.engine.decoding.bases.context import Context, DraftOutcome

PRIOR = 4.0  # weight of `alpha` at the start of the average, in judged tokens


@component
class Goodput(PricedSchedule):
    """SmartSpec: of the lengths k from 0 (no drafting) to `max_draft_tokens`, take the one with the most expected tokens in a
    given time,

        batch * (1 - alpha^(k + 1)) / (1 - alpha)  /  (t_target(batch * (k + 1)) + k * t_draft(batch)),

    where t is the time of a pass; of several, the shortest. alpha is a moving average of the accepted share of judged tokens;
    both counts are multiplied by `decay` after each step. With k = 0 nothing is judged, so after `probe_interval` such steps
    one token is drafted.

    It goes with a chain that a draft model writes, and with a chain that is copied from text, whose t_draft is nothing.

    The batch is simulated, and the times are modelled or measured, as `PricedSchedule` says. A step with k = 0 has no draft to
    record a note, so `off` of the next draft counts the steps before it. Formula, moving average and the first alpha are those
    of the authors' code. That code counts no drafting as 1.1 times as good, tries longer drafts only while they do better, and
    chooses anew every 20 steps. The time model and the probe are ours. Lossless.
    """

    title = "Goodput (SmartSpec)"
    source = "Liu et al. 2024, arXiv:2406.14066; LiuXiaoxuanPKU/vllm, vllm/spec_decode/dsd.py"
    gates = True
    tells: ClassVar[dict[str, Note]] = {
        "alpha": Note("series", "alpha", what="moving average of the share accepted", line="alpha"),
        "k": Note("series", "k", "tokens", "the length chosen", line="max_draft_tokens"),
        "us": Note("grid", "step by k", "µs", "time of a step that drafts 0, 1, ... tokens"),
        "batch": Note("series", "batch", "texts", "that share every pass, simulated"),
        "off": Note("series", "off", "steps", "without a draft before this one", line="probe_interval"),
    }

    alpha: float = param(
        0.7, low=0.0, high=1.0, step=0.05, help="acceptance rate that is assumed at the start"
    )
    decay: float = param(
        0.9,
        low=0.0,
        high=0.999,
        step=0.01,
        help="factor applied to older acceptance counts at each step that drafts",
    )
    probe_interval: int = param(
        16,
        low=0,
        high=1024,
        unit="steps",
        help="draft one token after this many steps without a draft; 0: never",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        drafter = method.drafter
        if drafter.looks_up or not drafter.drafts or (drafter.uses_schedule and "draft" in drafter.lanes):
            return None
        return (
            f"{self.name} knows what a draft costs if a draft model writes a chain or if a chain is copied from text, and "
            f"{drafter.name} does neither as set; choose the drafter draft_model or prompt_lookup, or the schedule fixed."
        )

    def begin(self, ctx: Context) -> None:
        self._target = self.pass_time(ctx.target.decoder)
        self._draft = self.pass_time(ctx.lanes["draft"].decoder) if "draft" in ctx.lanes else COPYING
        self._accepted, self._judged = PRIOR * self.alpha, PRIOR
        self._off = self._chosen = 0
        self._us: list[float] = []

    def draft_room(self, ctx: Context) -> int:
        return self._choose_length(ctx)

    def draft_limit(self, ctx: Context, length: int) -> int:
        return self._choose_length(ctx)

    def _choose_length(self, ctx: Context) -> int:
        self._us = self.step_times(self._target, self._draft, len(ctx.tokens))
        best = self.best_length(self._us, self._alpha())
        self._chosen = 1 if best == 0 and 0 < self.probe_interval <= self._off else best
        return min(self._chosen, ctx.room)

    def _alpha(self) -> float:
        return self._accepted / self._judged

    def best_length(self, us: list[float], alpha: float) -> int:
        """The k with the largest goodput for steps of `us[k]` microseconds; of several, the smallest."""
        return max(range(len(us)), key=lambda k: expected_tokens(alpha, k) / us[k])

    def observe(self, outcome: DraftOutcome) -> None:
        drafted, accepted = outcome.draft.drafted_count, len(outcome.verdict.path)
        self._off = 0 if drafted else self._off + 1
        if drafted:
            self._accepted = self.decay * self._accepted + accepted
            self._judged = self.decay * self._judged + min(accepted + 1, drafted)

    def notes(self) -> dict[str, Any]:
        us = [round(x, 3) for x in self._us]
        alpha = round(self._alpha(), 4)
        return {
            "schedule": {"alpha": alpha, "k": self._chosen, "us": us, "batch": self.batch, "off": self._off}
        }
