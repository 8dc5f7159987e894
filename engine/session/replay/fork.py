"""Fork: a run that is repeated up to a step, checked against its record, and then continues with a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from decodescope.engine.core.exactness import Exactness, combine_exactness
from decodescope.engine.core.roles import TARGET, WHOLE
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.files import head_fingerprint
from decodescope.engine.trace.details.declarations import merge_forms
from decodescope.engine.trace.encoding.forks import ANEW, ForkLeg, fork_legs, fork_record, replace_models
from decodescope.engine.trace.query.causes import causes_of
from decodescope.engine.trace.records.events import Header, Level, Step
from decodescope.engine.trace.records.parts import part_description

from ..compatibility import check_calibration
from ..header import further_model_fields, head_fields, transform_reports
from ..method import Method, MethodError
from ..placement import type_name
from ..session import Session
from .forcing import ForcedAcceptance, forced_path

if TYPE_CHECKING:
    from ..load import Model


# of a draft model: what a trace's costs are counted from
SIZES = ("n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff", "vocab")


class Fork(Session):
    """A session that repeats the run of `header` up to `step`, then goes on with a change.

    The change is another method, seed or length, or forced verdicts in that step. With no change it goes on as that run did.

    steps:  of the recorded run, at least those before `step`
    forced: node -> whether it is accepted, for the step `step`;  story: the header's description of the change, `fork`
    instead: role -> the model that takes the place of the run's from `step` on: a draft model of the same sizes, or as the
    target the same one with other heads

    The trace is complete: its first steps are those of the run, and its header's `fork` says where it leaves the run. An
    unchanged part of the method keeps its state, with what it has learnt; a changed part begins there. If strategy, drafter,
    schedule, policy, KV compression or the models change, the models read the text again. A calibrated value keeps the name of
    its calibration while method and models are those of the calibration.

    Raises MethodError where the run cannot be repeated or the change does not fit. A step that differs from its record ends the
    fork with the reason "bad_input".
    """

    def __init__(  # noqa: PLR0913
        self,
        model: Model,
        header: Header,
        steps: Sequence[Step],
        step: int,
        *,
        models: Mapping[str, Model] | None = None,
        instead: Mapping[str, Model] | None = None,
        method: Method | None = None,
        seed: int | None = None,
        max_new_tokens: int | None = None,
        forced: Mapping[int, bool] | None = None,
        name: str = "",
        change: Mapping[str, Any] | None = None,
        level: Level | None = None,
    ):
        forced = dict(forced or {})
        if not 0 <= step < len(steps):
            raise MethodError(
                f"step = {step}: the run has {len(steps)} steps, counted from 0; choose one of them."
            )
        first, *later = (leg for leg in fork_legs(header) if leg.first < step or leg.first == 0)
        last = _last_leg(header, step, method, seed, max_new_tokens, forced)
        began = Method.from_record(first.method)
        run = replace_models(header, first.models)
        check_same_models(run, {"target": model, **(models or {})}, began.lanes)
        if any(leg.models != first.models for leg in later):
            raise MethodError(
                f"This run took another draft before step {step}, and a fork goes on with one change of models: fork the run "
                "that it left, or this one at an earlier step."
            )
        _check_replaced(run, model, Method.from_record(last.method), instead or {})
        _check_same_context(began, Method.from_record(last.method))
        _check_can_be_forced(Method.from_record(last.method), steps[step], forced)
        written = sum(len(x.emitted) for x in steps[:step])
        if last.max_new <= written:
            raise MethodError(
                f"max_new_tokens = {last.max_new}: {written} are written before step {step}; allow more."
            )
        self._given, self._instead = dict(models or {}), dict(instead or {})
        self._instead_from = step
        self._expected = [(x.emitted, x.path) for x in steps[:step]]
        heads = {"head_fingerprints": run.model.get("head_fingerprints", {})}
        before = {role: heads if role == TARGET else run.lanes.get(role, {}) for role in self._instead}
        self.story = fork_record(header, step, name, dict(change or {}), forced, before)
        super().__init__(
            model,
            began,
            header.prompt.tolist(),
            models=models,
            max_new_tokens=first.max_new or 1,
            seed=first.seed,
            stop_tokens=header.stop_tokens,
            stop_texts=header.stop_texts,
            chat=header.chat,
            turn=header.turn,
            prompt_kind=header.prompt_kind,
            reference=header.reference_kind,
            level=level or header.levels[-1],  # type: ignore[arg-type]  # the levels of a header that was read
        )
        self._drawn_from = first.seed
        self._plan([*later, last])
        self._calibrated = self._calibrations(header, method)

    def _plan(self, turns: Sequence[ForkLeg]) -> None:
        """Keep the legs after the first, and the header's description of all legs.

        Raises MethodError where the method of a leg does not fit, so that it is refused now and not in the middle of the run.
        """
        self._turns = {}
        methods = [self.method]
        self._lanes_read = further_model_fields(self._models, self._vocabularies)
        self._reports = transform_reports(self._models) or {}
        self._used_last: Mapping[str, Model] = self._models
        for leg in turns:
            fresh = self._fresh_session(leg, self.tokens)
            methods.append(fresh.method)
            self._lanes_read |= further_model_fields(fresh._models, fresh._vocabularies)
            self._reports |= transform_reports(fresh._models) or {}
            self._turns[leg.first] = replace(leg, method=fresh.method.record())
            self._used_last = fresh._models
        self._exactness: Exactness = combine_exactness(m.exactness for m in methods)
        self._tellings = {m.acceptance.name: m.acceptance.telling for m in methods}
        self._details = merge_forms(m.details for m in methods)

    def _calibrations(self, header: Header, method: Method | None) -> dict[str, dict[str, Any]]:
        """kind -> knob -> the calibration of the last leg's calibrated values.

        These are the run's, where its method and its models are the same, and those of `method`. Raises MethodError where one
        of these was found for others.
        """
        last, used = self._turns[max(self._turns)].method, self._used_last
        fingerprints = {TARGET: header.model, **header.lanes}
        same = all(fingerprints.get(role, {}).get("fingerprint") == x.fingerprint for role, x in used.items())
        runs = (
            {kind: part_description(header, kind).get("calibrated", {}) for kind in last}
            if same and last == header.method
            else {}
        )
        if method is None:
            return runs
        check_calibration(method, used)
        return {
            kind: {**runs.get(kind, {}), **part.get("calibrated", {})}
            for kind, part in method.describe_parts().items()
        }

    @property
    def header(self) -> Header:
        """The trace's first record: method, seed and length are those of the last leg, the models those of all."""
        if self._header is None:
            header, last = super().header, self._turns[max(self._turns)]
            header.method = last.method
            header.seed = last.seed
            header.max_new_tokens = last.max_new
            header.parts = self._describe_parts(Method.from_record(last.method))
            for kind, values in self._calibrated.items():
                header.parts[kind] |= {"calibrated": values} if values else {}
            for leg in self._turns.values():
                target = self._replaced(leg).get(TARGET, self._models[TARGET])
                marks = head_fields(Method.from_record(leg.method), target)
                for key, kinds in marks.items():
                    header.model[key] = {**header.model.get(key, {}), **kinds}
            header.fork, header.lanes = self.story, self._lanes_read
            header.tellings, header.reports = self._tellings, self._reports or None
            header.details = self._details
            header.forced = any(leg.forced for leg in self._turns.values())
            header.exactness = combine_exactness((self._exactness, causes_of(header).exactness))
        assert self._header is not None
        return self._header

    def step(self) -> Step:
        """One step, of the recorded run or after it."""
        if self.end is None:
            self.start()
        leg = self._turns.get(self.steps)
        if leg is None or self.end is not None:
            return super().step()
        try:
            self._switch_parts(leg)
        except (MethodError, EngineFault) as error:
            self.finish("bad_input", f"The change could not be made at step {self.steps}: {error}")
            raise EngineFault("bad_input", self.end.message if self.end else str(error)) from None
        if not leg.forced:
            return super().step()
        rule, self.acceptance = self.acceptance, ForcedAcceptance(self.acceptance, leg.forced)
        try:
            return super().step()
        finally:
            self.acceptance = rule

    def _write_record(self, record: Any) -> None:
        """Before a repeated step is kept, it must be the recorded one."""
        if isinstance(record, Step) and record.step < len(self._expected):
            emitted, path = self._expected[record.step]
            if record.emitted != emitted or (path is not None and record.path != path):
                raise EngineFault(
                    "bad_input",
                    f"Step {record.step} came out otherwise than it was recorded, so this would be no fork of that run: the "
                    "record comes from another version, processor or number of threads, or its drafts depend on times.",
                )
        super()._write_record(record)

    def _fresh_session(self, leg: ForkLeg, tokens: Sequence[int]) -> Session:
        """A session of its own with the method of a leg, after these tokens."""
        replaced = self._replaced(leg)
        return Session(
            replaced.pop(TARGET, self._models[TARGET]),
            Method.from_record(leg.method),
            tokens,
            models={
                **{role: x for role, x in self._models.items() if role == WHOLE},
                **self._given,
                **replaced,
            },
            max_new_tokens=leg.max_new,
            seed=leg.seed,
            stop_tokens=sorted(self.stop.tokens),
            stop_texts=self._stop_texts,
            chat=self._chat,
            turn=self._user_turn,
            prompt_kind=self._prompt_kind,
            level=self.recorder.level,
            asked=len(self._whole),
            reference=self.reference_kind,
        )

    def _replaced(self, leg: ForkLeg) -> dict[str, Model]:
        """The models that took the place of the run's in a leg."""
        return dict(self._instead) if leg.first >= self._instead_from else {}

    def _switch_parts(self, leg: ForkLeg) -> None:  # noqa: C901, PLR0915
        """Replace the parts that differ by those of a leg."""
        fresh, old = self._fresh_session(leg, self.tokens), self.method
        changed = {kind for kind, part in fresh.method.parts().items() if part != getattr(old, kind)}
        anew = bool(changed & ANEW) or fresh.method.lanes != old.lanes or bool(self._replaced(leg))
        anew |= "adaptive_depth" in changed and (fresh.adaptive_depth.reads or old.adaptive_depth.reads)
        if anew:
            self._reread(fresh)
            self.drafter, self.schedule = fresh.drafter, fresh.schedule
            changed |= ANEW | {"adaptive_depth", "acceptance", "guidance"}
        else:
            self.target.set_needs(fresh.target.needs)
        if "acceptance" in changed:
            self.acceptance = fresh.acceptance
        if "adaptive_depth" in changed:
            self.adaptive_depth = fresh.adaptive_depth
        if "unmasking" in changed:
            self.unmasking = fresh.unmasking
            self.unmasking.begin(self.target.decoder)
        if "router" in changed:
            self.router = fresh.router
        if "guidance" in changed:
            self.guidance = fresh.guidance
        if "sampler" in changed:
            self.sampler, self.sampler_state = fresh.sampler, fresh.sampler_state
        if leg.seed != self._drawn_from:
            self.chance, self._drawn_from = Chance(leg.seed), leg.seed
        parts = {
            kind: part if kind in changed else getattr(old, kind)
            for kind, part in fresh.method.parts().items()
        }
        self.method = Method(**parts)  # type: ignore[arg-type]  # parts by kind
        self.recorder.forms = self.method.details
        self.max_new, self.length = leg.max_new, fresh.length
        self.limit, self.limited_by = fresh.limit, fresh.limited_by
        if anew:
            self.scratch = None
            self.method.strategy.begin(self)
        else:
            if "adaptive_depth" in changed:
                self.adaptive_depth.attach_lane(self.target)
                self.adaptive_depth.begin(self.target.decoder.spec)
            if "acceptance" in changed:
                self.acceptance.begin(self.target.decoder)
            if "guidance" in changed:
                self.guidance.begin(self.context)
        self.target.policy_us = 0.0

    def _reread(self, fresh: Session) -> None:
        """Take over the lanes of `fresh`, which read the text so far.

        A policy or KV compression that changes the cache acts where the run committed. So it holds what it would hold had it
        acted from the first step.
        """
        fresh.target.follow(self.target)
        if fresh.method.policy.lossless and fresh.method.kv_compression.lossless and len(self.tokens) > 1:
            fresh.target.read(self.tokens[:-1])
        elif len(self.tokens) > 1:
            fresh.target.repeat(
                self.tokens[:-1], [len(emitted) for emitted, _ in self._expected[: self.steps] if emitted]
            )
        fresh.target.read_vectors(len(self.tokens) - 1)
        for role, lane in fresh.lanes.items():
            text = (
                fresh.guidance.text(role, self.tokens, self.prompt)
                if role in fresh.guidance.lanes
                else self.tokens
            )
            if text := lane.own_ids(text):
                lane.read(text[:-1] or text)
        if fresh.target.reference is not None:  # the record of the earlier steps has what it saw of the past
            fresh.target.reference.take_record()
            fresh.target.reference.us = 0.0
        self.target, self.lanes = fresh.target, fresh.lanes
        self._models = fresh._models
        self._vocabularies = fresh._vocabularies
        self.recorder.attach(self.target)
        self.recorder.reset_counts(self)


def check_same_models(header: Header, given: Mapping[str, Model], lanes: Sequence[str]) -> None:
    """Raise MethodError if a model of the run is missing or differs from the recorded one, or if the run has a past that its
    trace does not hold."""
    check_same_weights(header, given, lanes)
    if header.loaded is not None:
        raise MethodError(
            "This run went on from a loaded cache, which its trace does not hold: load the cache again."
        )
    if header.parent is not None:
        raise MethodError(
            "This run was branched off another one in Python, whose past it does not hold: fork that run."
        )


def check_same_weights(header: Header, given: Mapping[str, Model], lanes: Sequence[str]) -> None:
    """Raise MethodError if the target, or a model in one of these roles, is missing or differs from the recorded one."""
    wanted = {"target": header.model, **{role: header.lanes.get(role, {}) for role in lanes}}
    for role, recorded in wanted.items():
        name, model = str(recorded.get("name", "?"))[:80], given.get(role)
        if model is None:
            raise MethodError(f"The run's {role} model, {name}, is not loaded here: load it first.")
        if model.fingerprint != recorded.get("fingerprint"):
            raise MethodError(
                f"The run was made with {name} ({recorded.get('fingerprint')}) as its {role} model, and here is {model.name} "
                f"({model.fingerprint}), whose weights are others: load that model first."
            )
        if role == TARGET:
            _check_same_heads(header, model)
        dtype, due = type_name(model.decoder.dtype), header.dtype_of(role)
        if dtype != due:
            raise MethodError(
                f"The run was made in {due}, and {name} is loaded in {dtype}: load it in {due}."
            )


def _check_same_heads(header: Header, model: Model) -> None:
    """Raise MethodError if a draft head of the run is missing, or differs from the recorded one."""
    for kind, mark in header.model.get("head_fingerprints", {}).items():
        head = model.decoder.heads.get(kind)
        here = head_fingerprint(head) if isinstance(head, Head) else None
        if here is None:
            raise MethodError(
                f"The run drafted with the heads {kind} ({mark}), which are not loaded here: give them, --head {kind}=FOLDER."
            )
        if here and here != mark:  # empty: made in memory, or the files were changed since
            raise MethodError(
                f"The run drafted with the heads {kind} ({mark}), and here are others ({here}): give those of the run, "
                f"--head {kind}=FOLDER."
            )


def _check_replaced(run: Header, model: Model, method: Method, instead: Mapping[str, Model]) -> None:
    """Raise MethodError if a model cannot take the place of the run's."""
    for role, other in instead.items():
        if role == TARGET:
            if other.fingerprint != model.fingerprint or other.decoder.dtype != model.decoder.dtype:
                raise MethodError(
                    "Only the target's heads can be others from a step on: its text is that of the same weights."
                )
            continue
        if role not in method.lanes:
            raise MethodError(
                f"The method reads no {role} model, so {other.name} would do nothing: leave it out, or choose a drafter that "
                "reads one."
            )
        recorded, sizes = run.lanes.get(role, {}), other.spec.record()
        if wrong := differing_size(recorded, sizes) if recorded else "":
            raise MethodError(
                f"{other.name} has {wrong} = {sizes.get(wrong)}, the run's {role} model {recorded.get(wrong)}. "
                "A trace prices a role by one size: make a run of its own with this model."
            )
        dtype, due = type_name(other.decoder.dtype), run.dtype_of(role)
        if dtype != due:
            raise MethodError(
                f"The run was made in {due}, and {other.name} is loaded in {dtype}: load it in {due}."
            )


def differing_size(recorded: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first size in which two draft models differ, by their records; empty: one can take the place of the other."""
    return next((x for x in SIZES if recorded.get(x) != other.get(x)), "")


def _last_leg(
    header: Header,
    step: int,
    method: Method | None,
    seed: int | None,
    max_new: int | None,
    forced: dict[int, bool],
) -> ForkLeg:
    """The leg from `step` on; a None keeps the run's value: method and seed at that step, the length at its end."""
    past = fork_legs(header)
    there = next(leg for leg in reversed(past) if leg.first <= step)
    return ForkLeg(
        step,
        (Method.from_record(there.method) if method is None else method).record(),
        there.seed if seed is None else seed,
        (past[-1].max_new or 1) if max_new is None else max_new,
        forced,
    )


def _check_same_context(began: Method, last: Method) -> None:
    """Raise MethodError if the change would read the prompt differently from the run."""
    if began.prompt_compression != last.prompt_compression:
        raise MethodError(
            f"A fork goes on behind the prompt that its run read, "
            f"so its prompt compression stays {began.prompt_compression.name}, as it was set: "
            f"choose that one, or run the prompt again with {last.prompt_compression.name}."
        )


def _check_can_be_forced(method: Method, step: Step, forced: Mapping[int, bool]) -> None:
    """Raise MethodError if these verdicts cannot be forced in this step."""
    if not forced:
        return
    if not method.strategy.verdicts:
        raise MethodError(f"{method.strategy.name} has no verdicts that could be forced: use draft_verify.")
    if step.draft is None:
        raise MethodError(
            f"Step {step.step} drafted nothing that was recorded, so no verdict can be forced there."
        )
    if aside := sorted(set(step.draft.passengers or ()) & set(forced)):
        raise MethodError(
            f"Node {aside[0] + 1} rode along for later drafts and is never tried: choose a drafted node."
        )
    try:
        path = forced_path(step.draft.parents, forced)
    except ValueError as error:
        raise MethodError(str(error)) from None
    reached = {-1, *(step.path or [])}
    for node in (x for x, ok in forced.items() if not ok and not path):
        if step.draft.parents[node] not in reached:
            raise MethodError(
                f"Node {node + 1} was not reached in step {step.step}: force the node before it to be accepted."
            )
