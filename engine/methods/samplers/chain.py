"""Chain: samplers applied one after the other, in the order given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from decodescope.engine.core.component import component, component_from_record
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.probe import Needs, union_of_needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.values.alphabet import Alphabet


@component
class Chain(Sampler):
    """Apply samplers in a visible order: top-p before temperature gives another distribution than top-p after it.

    State: one state per stage. A stage sees the logits that the stages before it return. If decisions are recorded, every stage
    runs once more per step. This run gives what it cut, the mass that it kept, and the entropy after it.
    """

    title = "Chain"
    source = "order matters: transformers, generation/logits_process.py"
    listed = False
    tells: ClassVar[dict[str, Note]] = {
        "cut": Note(
            "grid", "tokens cut", "tokens", "that each stage removed, for the first token of the step"
        ),
        "mass": Note(
            "grid", "mass kept", "", "what the stage before gave to the tokens that each stage left"
        ),
        "spread": Note("grid", "entropy", "nats", "of the distribution behind each stage"),
    }

    stages: list[Sampler] = field(default_factory=list)

    @property
    def in_order(self) -> list[Sampler]:
        return self.stages

    @property
    def stateful(self) -> bool:  # type: ignore[override] # a property where the others have a constant
        """Whether any stage has state."""
        return any(stage.stateful for stage in self.stages)

    @property
    def greedy(self) -> bool:
        """Whether any stage leaves one token."""
        return any(stage.greedy for stage in self.stages)

    @property
    def lanes(self) -> tuple[str, ...]:  # type: ignore[override] # of its stages
        """The roles of all stages, each once."""
        return tuple(dict.fromkeys(role for stage in self.stages for role in stage.lanes))

    @property
    def lane_needs(self) -> Needs:  # type: ignore[override] # of its stages
        """The combined needs of all stages."""
        return union_of_needs(stage.lane_needs for stage in self.stages)

    @property
    def constrains(self) -> bool:  # type: ignore[override] # of its stages
        """Whether any stage does."""
        return any(stage.constrains for stage in self.stages)

    @property
    def reads_text(self) -> bool:  # type: ignore[override] # of its stages
        """Whether any stage does."""
        return any(stage.reads_text for stage in self.stages)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        before: Sampler | None = None
        for stage in self.stages:
            if stage.constrains and before is not None:
                return (
                    f"{before.name} removes tokens before {stage.name} sees them, which may leave none: let {stage.name} come "
                    f"first, or leave {before.name} out."
                )
            before = stage if stage.cuts and before is None else before
        return next((why for stage in self.stages if (why := stage.refuse(method, spec))), None)

    def refuse_model(self, role: str, spec: ModelSpec) -> str | None:
        return next(
            (why for x in self.stages if role in x.lanes and (why := x.refuse_model(role, spec))), None
        )

    def record(self) -> dict[str, Any]:
        return {**super().record(), "stages": [stage.record() for stage in self.stages]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Chain:
        stages = record.get("stages")
        if not isinstance(stages, list):
            raise ParamError(
                "The record of a chain lacks its stages: record the run again with this version."
            )
        return cls(stages=[cast(Sampler, component_from_record(cls.kind, stage)) for stage in stages])

    def start(self, prompt: list[int], vocab: int, alphabet: Alphabet | None = None) -> list[Any]:
        return [stage.start(prompt, vocab, alphabet) for stage in self.stages]

    def find_violations(self, text: bytes) -> list[str]:
        return [one for stage in self.stages for one in stage.find_violations(text)]

    def warp(self, logits: Tensor, state: Any) -> Tensor:
        for stage, s in zip(self.stages, state, strict=True):
            logits = stage.warp(logits, s)
        return logits

    def update(self, state: Any, token: int, logits: Tensor) -> list[Any]:
        after = []
        for i, (stage, s) in enumerate(zip(self.stages, state, strict=True)):
            after.append(stage.update(s, token, logits))
            if any(later.reads_logits for later in self.stages[i + 1 :]):
                logits = stage.warp(logits, s)
        return after

    def logits_summary(self, logits: Tensor, state: Any) -> dict[str, Any] | None:
        laws, said = [logits], {}
        for stage, s in zip(self.stages, state, strict=True):
            said.update(stage.logits_summary(laws[-1], s) or {})
            laws.append(stage.warp(laws[-1], s))
        if self.greedy:  # greedy leaves one token in any case
            return said or None
        z = torch.stack(laws)  # [stages + 1, V]
        gone, total = torch.isinf(z), z.logsumexp(-1)
        p = (z - total[:, None]).exp_()
        spread = total - (p * z.masked_fill(gone, 0.0)).sum(-1)  # ln sum e^z - sum p z, as in `tops`
        return said | {
            "cut": gone.sum(-1).diff().tolist(),
            "mass": p[:-1].masked_fill_(gone[1:], 0.0).sum(-1).tolist(),
            "spread": spread[1:].clamp_min(0.0).tolist(),
        }

    def state_summary(self, state: Any) -> dict[str, Any] | None:
        shown = {}
        for stage, s in zip(self.stages, state, strict=True):
            shown.update(stage.state_summary(s) or {})
        return shown or None


def chain_samplers(stages: Sequence[Sampler]) -> Sampler:
    """Return a single sampler unchanged, and several as a chain."""
    return stages[0] if len(stages) == 1 else Chain(stages=list(stages))
