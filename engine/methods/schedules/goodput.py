"""Goodput: the length at which the batch gets the most tokens in a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.cost.hardware import DEVICES
from decodescope.engine.cost.speedup import expected_tokens
from decodescope.engine.decoding.bases.schedule import Schedule
from decodescope.engine.decoding.shared.pass_time import LinearPassTime

if TYPE_CHECKING:
    from decodescope.engine.decoding.bases.context import Context, DraftOutcome

PRIOR = 4.0  # judged tokens' worth of `alpha` that the average begins with


@component
class Goodput(Schedule):
    """SmartSpec: of the lengths k from 0 (no drafting) to `most`, the one with the most expected tokens per time,

        batch * (1 - alpha^(k + 1)) / (1 - alpha)  /  (t_target(batch * (k + 1)) + k * t_draft(batch)),

    where t(rows) = fixed + row * rows + entry * context is linear; of several, the shortest. alpha is a moving average: of
    the tokens that the target judged, the share accepted, both counts multiplied by `memory` after each step. Where k = 0
    nothing is judged, so after `probe` such steps one token is drafted.

    The batch is simulated: one text is decoded, and the times are those of a server that decodes `batch` such texts of its
    length at once. They come from the models' shapes and a machine's published peaks, or, `machine` here, from passes timed
    on this one, and then runs differ. A step with k = 0 drafts nothing and has no draft to note it in: `off` of the next
    draft counts those before it. The form of the paper's formula is recalled, not checked; the time model and the probe
    are ours. Lossless.
    """

    title = "Goodput (SmartSpec)"
    source = "Liu et al. 2024, arXiv:2406.14066, section 4 (recalled)"
    lanes = ("draft",)
    looks_at = "reckons with the time of"
    tells: ClassVar[dict[str, Note]] = {
        "alpha": Note("series", "alpha", what="moving average of the share accepted", line="alpha"),
        "k": Note("series", "k", "tokens", "the length chosen", line="max_draft_tokens"),
        "us": Note("grid", "step by k", "µs", "time of a step that drafts 0, 1, ... tokens"),
        "batch": Note("series", "batch", "texts", "that share every pass, simulated"),
        "off": Note("series", "off", "steps", "without a draft before this one", line="probe_interval"),
    }

    batch: int = param(
        1,
        low=1,
        high=4096,
        unit="texts",
        help="simulated batch size; all texts of the batch share every pass",
    )
    machine: str = param(
        "a100-80g",
        choices=("here", *DEVICES),
        help="hardware whose pass times are assumed; here: times measured on this machine",
    )
    max_draft_tokens: int = param(8, low=1, high=64, unit="tokens", help="maximum length of a draft (K)")
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

    def begin(self, ctx: Context) -> None:
        draft = ctx.lanes["draft"].decoder
        if self.machine == "here":
            self._target = LinearPassTime.measure(ctx.target.decoder)
            self._draft = LinearPassTime.measure(draft)
        else:
            device = DEVICES[self.machine]
            self._target = LinearPassTime.from_profile(ctx.target.decoder.spec, device)
            self._draft = LinearPassTime.from_profile(draft.spec, device)
        self._accepted, self._judged = PRIOR * self.alpha, PRIOR
        self._off = self._chosen = 0
        self._us: list[float] = []

    def draft_limit(self, ctx: Context, length: int) -> int:
        self._us = self.step_times(self._target, self._draft, len(ctx.tokens))
        best = self.best_length(self._us, self._alpha())
        self._chosen = 1 if best == 0 and 0 < self.probe_interval <= self._off else best
        return min(self._chosen, ctx.room)

    def _alpha(self) -> float:
        return self._accepted / self._judged

    def step_times(self, target: LinearPassTime, draft: LinearPassTime, context: int) -> list[float]:
        """Microseconds of a step with k = 0, 1, ..., `most` drafted tokens a text, each text `context` tokens long."""
        entries = self.batch * context
        return [
            target.us(self.batch * (k + 1), entries) + k * draft.us(self.batch, entries)
            for k in range(self.max_draft_tokens + 1)
        ]

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
