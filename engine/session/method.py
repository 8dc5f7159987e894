"""Method: one part of each kind, and the check that they fit each other and the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.arguments import format_value
from decodescope.engine.core.component import KINDS, Component, build, component_from_record, registry
from decodescope.engine.core.component import roles as all_roles
from decodescope.engine.core.exactness import Exactness
from decodescope.engine.core.params import did_you_mean
from decodescope.engine.core.probe import Needs, union_of_needs
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.roles import BOTH, SMALL, role_option
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.acceptance import AcceptanceRule
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.bases.guidance import Guidance
from decodescope.engine.decoding.bases.kv_compression import KVCompression
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.decoding.bases.prompt_compression import PromptCompression
from decodescope.engine.decoding.bases.router import Router
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.bases.schedule import Schedule
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.bases.unmasking import Unmasking
from decodescope.engine.methods.acceptance.lossless import Lossless
from decodescope.engine.methods.adaptive_depth.all_layers import AllLayers
from decodescope.engine.methods.drafters.none import NoDraft
from decodescope.engine.methods.guidance.own import Own
from decodescope.engine.methods.kv_compression.unpacked import Unpacked
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.methods.prompt_compression.whole_prompt import WholePrompt
from decodescope.engine.methods.routers.entropy import Entropy
from decodescope.engine.methods.samplers.chain import chain_samplers
from decodescope.engine.methods.samplers.greedy import Greedy
from decodescope.engine.methods.schedules.fixed import Fixed
from decodescope.engine.methods.strategies.draft_verify import DraftVerify
from decodescope.engine.methods.unmasking.low_confidence import LowConfidence
from decodescope.engine.trace.details.declarations import Form, with_words
from decodescope.engine.trace.query.causes import causes_of_parts
from decodescope.engine.trace.records.parts import UNNAMED_REASON


class MethodError(Refusal):
    """The parts of a method do not fit together, or do not fit the model. One sentence: who, why, and the way out."""


class _AllHeads(tuple[str, ...]):
    """The heads of a model that has every kind; `kinds` are those that somebody asked for."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()

    def __contains__(self, kind: object) -> bool:
        self.kinds.add(str(kind))
        return True


@dataclass
class Method:
    """A composition: a strategy, and the parts that it consults."""

    strategy: Strategy = field(default_factory=DraftVerify)
    drafter: Drafter = field(default_factory=NoDraft)
    schedule: Schedule = field(default_factory=Fixed)
    acceptance: AcceptanceRule = field(default_factory=Lossless)
    prompt_compression: PromptCompression = field(default_factory=WholePrompt)
    policy: CachePolicy = field(default_factory=KeepAll)
    kv_compression: KVCompression = field(default_factory=Unpacked)
    adaptive_depth: AdaptiveDepth = field(default_factory=AllLayers)
    unmasking: Unmasking = field(default_factory=cast(Callable[[], Unmasking], LowConfidence))
    router: Router = field(default_factory=cast(Callable[[], Router], Entropy))
    guidance: Guidance = field(default_factory=Own)
    sampler: Sampler = field(default_factory=Greedy)

    def __post_init__(self) -> None:
        for kind, part in self.parts().items():
            if getattr(part, "kind", None) != kind:
                way = f"Method.of({part!r})" if isinstance(part, str) else "what the family's files define"
                raise MethodError(
                    f"{kind} = {format_value(part)}: must be a part of that kind; use {way}, or Method.from_names."
                )

    @classmethod
    def of(cls, given: Method | str | Mapping[str, Any] | None) -> Method:
        """Build a method from a method, a part's name, a mapping or None.

        A part's name, "prompt_lookup" or "h2o", gives that part with the usual other parts. A mapping goes from kinds to names,
        and from knobs to values, as {"drafter.max_draft_tokens": 6}. None gives plain greedy decoding. Raises MethodError or
        ParamError.
        """
        if isinstance(given, Method):
            return given
        if isinstance(given, Mapping):
            knobs = {name: value for name, value in given.items() if "." in str(name)}
            return cls.from_names({kind: name for kind, name in given.items() if kind not in knobs}, knobs)
        if given is None:
            return cls.from_names()
        if not isinstance(given, str):
            raise MethodError(
                f"method is {format_value(given)}: give a Method, or the name of one of its parts."
            )
        shelves = {kind: [name for name, part in registry(kind).items() if part.listed] for kind in KINDS}
        homes = [kind for kind, names in shelves.items() if given in names]
        if len(homes) == 1:
            return cls.from_names({homes[0]: given})
        if not homes:
            close = did_you_mean(given, [name for names in shelves.values() for name in names])
            raise MethodError(
                f"no part is called {format_value(given)}.{close} The command `decodescope methods` lists them."
            )
        kinds = " and ".join(f"a {kind}" for kind in homes)
        raise MethodError(f"{given} is the name of {kinds}: say which, such as {{{homes[0]!r}: {given!r}}}.")

    @classmethod
    def from_names(
        cls,
        names: Mapping[str, str | Iterable[str]] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Method:
        """Compose by name: names maps a kind to a component's name; for "sampler" a list of names makes a chain.

        settings maps a kind, or the name of a chained sampler, to knobs; values may be text as typed on a command line, and
        {"drafter.max_draft_tokens": 6} is {"drafter": {"max_draft_tokens": 6}}. Raises ParamError for names, knobs or
        values that do not exist, MethodError for settings of a part not chosen.
        """
        names, settings = dict(names or {}), _knobs(settings or {})
        parts: dict[str, Any] = {}
        for kind in KINDS:
            chosen = names.pop(kind, None)
            if kind == "sampler" and chosen is not None:
                stages = [chosen] if isinstance(chosen, str) else list(chosen)
                knobs = settings.pop("sampler", {}) if len(stages) == 1 else {}
                built = [build("sampler", stage, {**knobs, **settings.pop(stage, {})}) for stage in stages]
                parts[kind] = chain_samplers(cast(list[Sampler], built))
            elif chosen is not None or kind in settings:
                parts[kind] = build(kind, str(chosen or default_part(kind).name), settings.pop(kind, {}))
        if names:
            odd = next(iter(names))
            raise MethodError(
                f"there is no part {odd!r}.{did_you_mean(odd, KINDS)} Parts are: {', '.join(KINDS)}."
            )
        if settings:
            odd = next(iter(settings))
            raise MethodError(
                f"settings name {odd!r}, which is no part of this method. Use {', '.join(KINDS)}, or the name of a sampler "
                "that was chosen."
            )
        return cls(**parts)

    @classmethod
    def from_record(cls, record: Mapping[str, Mapping[str, Any]]) -> Method:
        """The method of a trace's header. Raises ParamError where that names none of ours."""
        parts: dict[str, Any] = {kind: component_from_record(kind, part) for kind, part in record.items()}
        return cls(**parts)

    def record(self) -> dict[str, dict[str, Any]]:
        """kind -> {"name": ..., knob: value, ...}; a chain of samplers has "stages"."""
        return {kind: part.record() for kind, part in self.parts().items()}

    def describe_parts(self) -> dict[str, dict[str, Any]]:
        """kind -> what the part says of itself in a trace's header, and whether it is the usual one."""
        changes = {
            "strategy": "" if self.strategy.lossless else self.strategy.changes or UNNAMED_REASON,
            "acceptance": "" if self._rule_is_exact else self.acceptance.changes or UNNAMED_REASON,
        }
        return {
            kind: {
                "usual": x.name == default_part(kind).name,
                **x.describe(),
                **({"changes": why} if (why := changes.get(kind)) else {}),
                **(
                    {"calibrated": {knob: one.header_record() for knob, one in x.calibrated.items()}}
                    if x.calibrated
                    else {}
                ),
            }
            for kind, x in self.parts().items()
        }

    def parts(self) -> dict[str, Component]:
        """kind -> part."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def details(self) -> dict[str, Form]:
        """name -> the meaning of the details of that name, for the strategy and its router, with the words of the selector."""
        forms = {**self.strategy.details, **(self.router.details if "router" in self.used_parts else {})}
        words = self.unmasking.words if "unmasking" in self.used_parts else {}
        return {name: with_words(form, words) for name, form in forms.items()}

    def mark_files(self) -> None:
        """Let every knob that names a file hold its name and hash, as a record does. Raises FileRefusal."""
        for part in self.parts().values():
            part.mark_files()

    def idle_reasons(self, did: Activity) -> list[str]:
        """For each part that is used and did nothing at all in a run, the reason, as a sentence."""
        did.length, did.samplers = self.drafter.knobs().get("max_draft_tokens"), len(self.sampler.in_order)
        parts = [x for kind, x in self.used_parts.items() if kind != "sampler"] + self.sampler.in_order * (
            "sampler" in self.used_parts
        )
        return [why for part in parts if (why := part.idle_reason(did))]

    @property
    def needs(self) -> Needs:
        """What the parts together ask of the target's passes."""
        return union_of_needs(part.needs for part in self.parts().values())

    @property
    def used_parts(self) -> dict[str, Component]:
        """kind -> part, for the strategy and the parts that it uses."""
        return {
            kind: part for kind, part in self.parts().items() if kind in ("strategy", *self.strategy.uses)
        }

    @property
    def lanes(self) -> tuple[str, ...]:
        """The further models that it reads, by role: those that the parts in use ask for; no role twice."""
        return tuple(dict.fromkeys(role for part in self.used_parts.values() for role in part.lanes))

    @property
    def decoding_lanes(self) -> tuple[str, ...]:
        """The roles of models that are read while decoding.

        Models for a prompt compression or a policy look only at the prompt.
        """
        looking = ("prompt_compression", "policy")
        asked = {role for kind, part in self.used_parts.items() if kind not in looking for role in part.lanes}
        return tuple(role for role in self.lanes if role in asked)

    @property
    def own_tokens(self) -> frozenset[str]:
        """The roles of models that may have another tokenizer than the target: every part that asks for one translates."""
        parts = self.used_parts.values()
        return frozenset(
            role for role in self.lanes if all(role in x.own_tokens for x in parts if role in x.lanes)
        )

    def lane_needs(self, role: str) -> Needs:
        """What the parts that ask for this model ask of its passes."""
        return union_of_needs(part.lane_needs for part in self.used_parts.values() if role in part.lanes)

    def target_heads(self, spec: ModelSpec) -> frozenset[str]:
        """The kinds of heads that it reads of a target of shape `spec`: without them a part in use would refuse it."""
        asked = _AllHeads()
        for part in self.used_parts.values():
            part.refuse(self, replace(spec, heads=asked))
        return frozenset(asked.kinds)

    @property
    def exactness(self) -> Exactness:
        """How the text relates to plain decoding of the model that the method runs on (`engine/core/exactness.py`). Changes of
        that model's weights are not known here; the header of a run counts them in."""
        return causes_of_parts(self.record(), self.describe_parts()).exactness

    @property
    def lossless(self) -> bool:
        """Whether the text is identical in distribution to plain decoding of the model under the same sampler."""
        return self.exactness == "lossless"

    @property
    def is_exact(self) -> bool:
        """Whether the text has the distribution that was asked for, with its guidance and constraints: no part changes it."""
        return self.exactness in ("lossless", "exact_for_settings")

    @property
    def _rule_is_exact(self) -> bool:
        """Whether the rule, with these drafts and this sampler, changes nothing."""
        exact = self.acceptance.lossless or (self.acceptance.matches and self.sampler.greedy)
        return exact or (not self.drafter.drafts and self.acceptance.draws_next_token)

    def check(self, spec: ModelSpec, roles: Iterable[str] = ()) -> None:
        """Raise MethodError if a part is not used, not fitting, or lacks a model; `roles` are the further models given."""
        self._check_reading(spec)
        self._check_cut(spec)
        for kind, part in self.parts().items():
            if kind not in self.used_parts and part != default_part(kind):
                uses = ", ".join(sorted(self.strategy.uses)) or "none"
                raise MethodError(
                    f"{self.strategy.name} uses no {kind}, so {part.name} would be ignored; leave the {kind} out"
                    f"{self._recommended_strategy(kind, spec)}. ({self.strategy.name} uses: {uses}.)"
                )
            for other in self.parts().values():
                why = part.conflicts.get(other.name)
                if why:
                    raise MethodError(f"{part.name} does not go with {other.name}: {why}")
            reason = part.file_problem() or part.refuse(self, spec)
            if reason:
                raise MethodError(reason)
        self._check_schedule()
        self._check_proposal()
        given = set(roles)
        for part in self.used_parts.values():
            for role in (x for x in part.lanes if x not in given):
                raise MethodError(
                    f"{part.name} needs a model in the role {role!r}: give {' '.join(role_option(role))} (Python: "
                    f"models={{{role!r}: model}}), e.g. the shipped {_example_model(role)}."
                )

    def _recommended_strategy(self, kind: str, spec: ModelSpec) -> str:
        """The strategy that is recommended for a part of `kind`: the first one that goes with all parts and the model.

        Else the first one where the model alone is in the way; empty: none does.
        """
        shelf = registry("strategy")
        named = {x for x, part in self.parts().items() if x != "strategy" and part != default_part(x)}
        for name in dict.fromkeys((strategy_using(kind), default_part("strategy").name, *shelf)):
            other = replace(self, strategy=cast(Strategy, shelf[name]()))
            if named - {*other.used_parts}:
                continue
            if other.strategy.sides != ("left" if spec.causal else "both"):
                return f", or choose the strategy {name} and a model {'without' if spec.causal else 'with'} a causal mask"
            try:
                other.check(spec, all_roles())
            except MethodError:
                continue
            return f", or choose the strategy {name}"
        return ""

    def _unused_kinds(self) -> list[str]:
        """The kinds of parts that were chosen and that the strategy does not use."""
        return [x for x, part in self.parts().items() if part != default_part(x) and x not in self.used_parts]

    def _model_for(self, causal: bool) -> str:
        """The model that the strategy needs, for a sentence, and the parts that it does not use."""
        unused = " and ".join(f"the {x}" for x in self._unused_kinds())
        leave = f" and leave {unused} out" if unused else ""
        return f"a model {'with' if causal else 'without'} a causal mask{leave}"

    def _strategy_for(self, spec: ModelSpec) -> str:
        """A strategy that writes as the model reads, for the end of a sentence: the first one that goes with all parts and the
        model, else the first one that goes with the model once parts are left out, which are named."""
        sides = "left" if spec.causal else "both"
        shelf = registry("strategy")
        names = [
            name
            for name in dict.fromkeys((default_part("strategy").name, *shelf))
            if shelf[name].sides == sides  # type: ignore[attr-defined] # a Strategy's
        ]
        others = [replace(self, strategy=cast(Strategy, build("strategy", name))) for name in names]
        for other in others:
            with suppress(MethodError):
                other.check(spec, all_roles())
                return other.strategy.name
        for other in others:
            unused = other._unused_kinds()
            with suppress(MethodError):
                parts: dict[str, Any] = {x: default_part(x) for x in unused}
                replace(other, **parts).check(spec, all_roles())
                return f"{other.strategy.name} without " + " and ".join(f"the {x}" for x in unused)
        return names[0]

    def _check_reading(self, spec: ModelSpec) -> None:
        """What the strategy writes must be what the model reads: from left to right, or places with text on both sides."""
        if spec.causal and self.strategy.sides == "both":
            raise MethodError(
                f"{self.strategy.name} fills places with text on both sides, and {spec.name} reads from left to right only: "
                f"choose {self._model_for(causal=False)}, or the strategy {self._strategy_for(spec)}."
            )
        if not spec.causal and self.strategy.sides == "left":
            raise MethodError(
                f"{self.strategy.name} writes from left to right, and {spec.name} reads its text in both directions: choose "
                f"{self._model_for(causal=True)}, or the strategy {self._strategy_for(spec)}."
            )
        self._check_blocks(spec)
        self._check_picture(spec)

    def _check_cut(self, spec: ModelSpec) -> None:
        """Check that parts that keep or pack entries by layer and KV head find equally many of them in each layer."""
        for part in (self.prompt_compression, self.policy, self.kv_compression) if spec.groups else ():
            if part != default_part(part.kind):
                raise MethodError(
                    f"{part.name} works by layer and KV head, and {spec.name} was cut: its layers no longer have as many of "
                    f"them. Choose the {part.kind} {default_part(part.kind).name}, or the whole model."
                )

    def _check_blocks(self, spec: ModelSpec) -> None:
        """Check that a token decoder that sees only its own block writes with a strategy that gives it the other blocks."""
        name, blocks = self.strategy.name, self.strategy.writes == "blocks"
        if spec.block_length and not blocks:
            raise MethodError(
                f"{name} reads all of the text, and {spec.name} sees blocks of {spec.block_length} tokens: choose the strategy "
                f"{_strategy_writing('blocks')}, or another model."
            )
        if blocks and not spec.block_length:
            raise MethodError(
                f"{name} writes with a Block Transformer, and {spec.name} is none: choose a model whose config.json gives "
                "block_length, such as lab-blocks, or the strategy draft_verify."
            )

    def _check_picture(self, spec: ModelSpec) -> None:
        """Check that rows and cells are written only for a picture, and a model that must be given the next cell gets it."""
        name, writes = self.strategy.name, self.strategy.writes
        if spec.picture is None and writes in ("rows", "cells"):
            raise MethodError(
                f"{name} writes pictures, and {spec.name} writes none: choose a model whose config.json has a picture, or the "
                "strategy draft_verify."
            )
        if spec.picture is None:
            return
        if spec.picture.cells and writes != "cells":
            raise MethodError(
                f"{name} writes one token behind another, and {spec.name} has to be given the next cell: choose the "
                f"strategy {_strategy_writing('cells')}, or a model that writes pictures in raster order."
            )
        if not spec.picture.cells and writes == "cells":
            raise MethodError(
                f"{name} gives a model the next cell, and {spec.name} writes all in raster order: choose a model whose "
                "config.json gives picture.cells, or the strategy draft_verify."
            )

    def check_models(self, specs: Mapping[str, ModelSpec]) -> None:
        """Raise MethodError if a further model, given by role, lacks what a part needs of it."""
        for role, spec in specs.items():
            if spec.causal == (role in BOTH):
                reads = "from left to right only" if spec.causal else "in both directions"
                raise MethodError(
                    f"{spec.name} reads its text {reads}, so it cannot be the {role} model: choose a model "
                    f"{'without' if spec.causal else 'with'} a causal mask."
                )
            if spec.block_length:
                why = f"{spec.name} sees blocks of {spec.block_length} tokens"
                raise MethodError(f"{why}, so it cannot be the {role} model: choose another.")
            for part in self.used_parts.values():
                if role in part.lanes and (reason := part.refuse_model(role, spec)):
                    raise MethodError(reason)

    def _check_schedule(self) -> None:
        """Check that only a drafter that asks the schedule has one: any other would draft as if it were not there.

        A schedule that only says when to draft goes with all that draft.
        """
        if self.schedule.gates and not self.drafter.drafts:
            raise MethodError(
                f"{self.drafter.name} drafts nothing, so the schedule {self.schedule.name} would be ignored; choose the "
                "schedule fixed, or a drafter such as prompt_lookup."
            )
        if not self.schedule.adapts or self.schedule.gates or self.drafter.uses_schedule:
            return
        why = "drafts a tree, as set" if self.drafter.branches else "does not ask how long to draft"
        raise MethodError(
            f"{self.drafter.name} {why}, so the schedule {self.schedule.name} would be ignored; choose the schedule fixed, or "
            "a drafter that writes a chain from a model, such as draft_model with width = 1."
        )

    def _check_proposal(self) -> None:
        """Check that the rule is exact for the kind of draft that comes, and able to read its shape."""
        if not self.drafter.drafts or "acceptance" not in self.strategy.uses:
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


def default_part(kind: str) -> Component:
    """The part of this kind that a method has where none is named."""
    factory = next(f.default_factory for f in fields(Method) if f.name == kind)
    return cast(Callable[[], Component], factory)()


def strategy_using(kind: str) -> str:
    """The name of a strategy that uses this kind of part or is of this kind: the default one if it does."""
    own = cast(Strategy, default_part("strategy"))
    if kind == own.kind or kind in own.uses:
        return own.name
    shelf = cast(dict[str, type[Strategy]], registry("strategy"))
    return next(name for name, cls in shelf.items() if kind in cls.uses)


def _example_model(role: str) -> str:
    """A model that may have this role."""
    if role in SMALL:
        return "lab-draft"
    if role in BOTH:
        return "lab-mdm"
    return "lab"


def _strategy_writing(what: str) -> str:
    """The name of a strategy that writes cells of a picture in any order, or a text by blocks."""
    return next(name for name, cls in registry("strategy").items() if cls.writes == what)  # type: ignore[attr-defined] # a Strategy's


def _knobs(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Part -> knob -> value, of settings by part or by part and knob."""
    knobs: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        part, dot, knob = str(key).partition(".")
        if not dot and not isinstance(value, Mapping):
            raise MethodError(
                f"settings of {part} are {format_value(value)}: give its knobs, such as {{'length': 6}}."
            )
        knobs.setdefault(part, {}).update({knob: value} if dot else value)
    return knobs
