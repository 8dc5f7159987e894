"""Method: one part of each kind, and the check that they fit each other and the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .acceptance.base import AcceptanceRule
from .acceptance.lossless import Lossless
from .component import KINDS, Component, build
from .depth.all_layers import AllLayers
from .depth.base import Depth
from .drafters.base import Drafter
from .drafters.none import NoDraft
from .params import nearest
from .policies.base import CachePolicy
from .policies.keep_all import KeepAll
from .probe import Needs
from .samplers.base import Sampler
from .samplers.chain import Chain
from .samplers.greedy import Greedy
from .schedules.base import Schedule
from .schedules.fixed import Fixed
from .spec import ModelSpec
from .strategies.base import Strategy
from .strategies.draft_verify import DraftVerify


class MethodError(ValueError):
    """The parts of a method do not fit together, or do not fit the model. One sentence: who, why, and the way out."""


@dataclass
class Method:
    """A composition: a strategy, and the parts that it consults."""

    strategy: Strategy = field(default_factory=DraftVerify)
    drafter: Drafter = field(default_factory=NoDraft)
    schedule: Schedule = field(default_factory=Fixed)
    acceptance: AcceptanceRule = field(default_factory=Lossless)
    policy: CachePolicy = field(default_factory=KeepAll)
    depth: Depth = field(default_factory=AllLayers)
    sampler: Sampler = field(default_factory=Greedy)

    @classmethod
    def named(
        cls,
        names: Mapping[str, str | Iterable[str]] | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Method:
        """Compose by name: names maps a kind to a component's name; for "sampler" a list of names makes a chain.

        settings maps a kind, or the name of a chained sampler, to knobs; values may be text as typed on a command line.
        Raises ParamError for names, knobs or values that do not exist, MethodError for settings of a part not chosen.
        """
        names, settings = dict(names or {}), {key: dict(x) for key, x in (settings or {}).items()}
        parts: dict[str, Any] = {}
        for kind in KINDS:
            chosen = names.pop(kind, None)
            if kind == "sampler" and chosen is not None:
                stages = [chosen] if isinstance(chosen, str) else list(chosen)
                knobs = settings.pop("sampler", {}) if len(stages) == 1 else {}
                built = [build("sampler", stage, {**knobs, **settings.pop(stage, {})}) for stage in stages]
                parts[kind] = built[0] if len(built) == 1 else Chain(stages=built)  # type: ignore[arg-type] # samplers, by kind
            elif chosen is not None or kind in settings:
                default = getattr(cls(), kind).name
                parts[kind] = build(kind, str(chosen or default), settings.pop(kind, {}))
        if names:
            odd = next(iter(names))
            raise MethodError(f"there is no part {odd!r}.{nearest(odd, KINDS)} Parts are: {', '.join(KINDS)}.")
        if settings:
            odd = next(iter(settings))
            raise MethodError(
                f"settings name {odd!r}, which is no part of this method. Use {', '.join(KINDS)}, or the name of a sampler "
                "that was chosen."
            )
        return cls(**parts)

    @classmethod
    def from_record(cls, record: Mapping[str, Mapping[str, Any]]) -> Method:
        """The method of a trace's header."""
        parts: dict[str, Any] = {}
        for kind, part in record.items():
            knobs = {k: v for k, v in part.items() if k not in ("name", "stages")}
            if part["name"] == "chain":
                stages = [_from(stage) for stage in part["stages"]]
                parts[kind] = Chain(stages=stages)  # type: ignore[arg-type] # samplers, by kind
            else:
                parts[kind] = build(kind, part["name"], knobs)
        return cls(**parts)

    def record(self) -> dict[str, dict[str, Any]]:
        """kind -> {"name": ..., knob: value, ...}; a chain of samplers has "stages"."""
        made: dict[str, dict[str, Any]] = {}
        for kind, part in self.parts().items():
            made[kind] = {"name": part.name, **part.knobs()}
            if isinstance(part, Chain):
                made[kind]["stages"] = [{"name": stage.name, **stage.knobs()} for stage in part.stages]
        return made

    def parts(self) -> dict[str, Component]:
        """kind -> part."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def needs(self) -> Needs:
        """What the parts together ask of the target's passes."""
        union = Needs()
        for part in self.parts().values():
            union = union | part.needs
        return union

    @property
    def lossless(self) -> bool:
        """Whether the text has the target's own law under this sampler: nothing in the method changes it."""
        parts = self.strategy.lossless and self.policy.lossless and self.depth.exact
        exact = self.acceptance.lossless or (self.acceptance.matches and self.sampler.greedy)
        return parts and (exact or isinstance(self.drafter, NoDraft))

    def check(self, spec: ModelSpec, roles: Iterable[str] = ()) -> None:
        """Raise MethodError if a part is not used, not fitting, or lacks a model; `roles` are the further models given."""
        for kind, part in self.parts().items():
            if kind not in ("strategy", *self.strategy.uses) and not _is_default(kind, part):
                uses = ", ".join(sorted(self.strategy.uses)) or "none"
                raise MethodError(
                    f"{self.strategy.name} uses no {kind}, so {part.name} would be ignored; leave the {kind} out, or choose "
                    f"the strategy draft_verify. ({self.strategy.name} uses: {uses}.)"
                )
            for other in self.parts().values():
                why = part.conflicts.get(other.name)
                if why:
                    raise MethodError(f"{part.name} does not go with {other.name}: {why}")
            reason = part.refuse(self, spec)
            if reason:
                raise MethodError(reason)
        self._check_schedule()
        self._check_proposal()
        given = set(roles)
        for role in self.drafter.lanes:
            if role not in given:
                raise MethodError(
                    f"{self.drafter.name} needs a model in the role {role!r}: give --{role} NAME (Python: "
                    f"models={{{role!r}: model}}), e.g. the shipped lab-draft."
                )

    def check_drafts(self, drafts: Mapping[str, ModelSpec]) -> None:
        """Raise MethodError if a draft model, given by role, lacks what the drafter or the schedule needs of it."""
        for spec in drafts.values():
            reason = self.drafter.lacks(spec) or self.schedule.lacks(spec)
            if reason:
                raise MethodError(reason)

    def _check_schedule(self) -> None:
        """Only a drafter that asks it may be given a schedule: any other would draft as if it were not there."""
        if isinstance(self.schedule, Fixed) or self.drafter.scheduled:
            return
        why = "drafts a tree, as set" if self.drafter.branches else "does not ask how long to draft"
        raise MethodError(
            f"{self.drafter.name} {why}, so the schedule {self.schedule.name} would be ignored; choose the schedule fixed, or "
            "a drafter that writes a chain from a model, such as draft_model with width = 1."
        )

    def _check_proposal(self) -> None:
        """A rule must be exact for the kind of draft that comes, and able to read its shape."""
        if isinstance(self.drafter, NoDraft) or "acceptance" not in self.strategy.uses:
            return
        if self.acceptance.chain_only and self.drafter.branches:
            raise MethodError(
                f"{self.acceptance.name} reads chains only and {self.drafter.name}, as set, drafts a tree; choose the "
                "acceptance lossless, or settings without branches."
            )
        if self.sampler.greedy:
            return
        kind = self.drafter.proposes
        if kind not in self.acceptance.exact_for:
            exact = ", ".join(sorted(self.acceptance.exact_for))
            raise MethodError(
                f"{self.acceptance.name} is exact for drafts that are {exact}; those of {self.drafter.name} are {kind}. "
                "Choose the acceptance lossless."
            )


def _from(stage: Mapping[str, Any]) -> Component:
    return build("sampler", stage["name"], {k: v for k, v in stage.items() if k != "name"})


def _is_default(kind: str, part: Component) -> bool:
    return part == getattr(Method(), kind)
