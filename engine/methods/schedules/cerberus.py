"""Cerberus: in each step a trained gate decides whether heads draft or the target decodes plainly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.schedule import Schedule
from decodescope.engine.model.heads.drafting.cerberus import CerberusGate
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.layers.faults import require_finite

if TYPE_CHECKING:
    from torch import Tensor

    from decodescope.engine.core.method_view import MethodView
    from decodescope.engine.core.spec import ModelSpec
    from decodescope.engine.decoding.bases.context import Context, DraftOutcome


@component
class Cerberus(Schedule):
    """A gate chooses for each step between drafting and plain decoding.

    The paper has two parts. Its heads bring in sequential knowledge and still run in parallel; they are not here. Its gate
    is this schedule. A logistic regression estimates the probability that the first drafted token is accepted. Its inputs are
    the entropy H and the largest probability m of the distribution that the root was taken from. Below `min_probability`
    nothing is drafted. The gate reads logits [V] that verification has already computed.

    It works with every drafter, though its three numbers were fitted with Hydra's heads. Lossless: its inputs are older than
    the draft. With `min_probability` = 0 every step drafts; with 1 none does, which is plain decoding. That a gate chooses is
    in the paper's abstract; what it reads is recalled, and its formula is ours. A step without a draft cannot record a note, so
    `off` of the next draft counts them.
    """

    title = "Gate on entropy and confidence (Cerberus)"
    source = "Liu et al. 2024, arXiv:2410.13344, abstract; the gate's inputs recalled"
    adapts: ClassVar[bool] = False
    gates: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))
    tells: ClassVar[dict[str, Note]] = {
        "chance": Note(
            "series",
            "chance",
            what="that the first drafted token is accepted, by the gate",
            line="min_probability",
        ),
        "entropy": Note("series", "entropy", "nats", "of the law that the root was taken from"),
        "largest": Note("series", "max p", what="the largest probability of that law"),
        "off": Note("series", "off", "steps", "without a draft before this one"),
    }

    min_probability: float = param(
        0.4,
        low=0.0,
        high=1.0,
        step=0.05,
        help="minimum acceptance probability to draft in a step; 0: always draft, 1: never draft",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return missing_reason("cerberus", spec, "the schedule fixed")

    def begin(self, ctx: Context) -> None:
        self._off = 0
        self._gate = cast(CerberusGate, ctx.target.decoder.heads["cerberus"])
        probe = ctx.target.probe
        self._logits: Tensor | None = None  # [V], of the root's distribution; None: nothing came before it
        if probe is not None:
            logits = ctx.target.decoder.unembed(probe.hidden["final"][0, -1])
            self._logits = require_finite(
                logits, f"the prompt's end, read by {ctx.target.decoder.spec.name},"
            )

    def draft_room(self, ctx: Context) -> int:
        return ctx.room if self._should_draft() else 0

    def _should_draft(self) -> bool:
        if self._logits is None:
            self._said = dict[str, float]()
            return self.min_probability < 1
        chance = float(self._gate.chance(self._logits))
        entropy, largest = self._gate.distribution_features(self._logits).tolist()
        self._said = {"chance": round(chance, 4), "entropy": round(entropy, 4), "largest": round(largest, 4)}
        return chance >= self.min_probability and self.min_probability < 1

    def observe(self, outcome: DraftOutcome) -> None:
        self._off = 0 if outcome.draft.drafted_count else self._off + 1
        self._logits = outcome.logits[outcome.verdict.path[-1] + 1 if outcome.verdict.path else 0]

    def notes(self) -> dict[str, Any]:
        return {"schedule": {**self._said, "off": self._off}}
