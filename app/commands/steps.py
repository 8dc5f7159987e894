"""The commands `trace find` and `trace fork`: find a step by a condition, and continue from one with something changed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from decodescope.app.runs.threads import choose_threads
from decodescope.engine.core.calibration import MARK, CalibratedValue
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.roles import TARGET, role_option

from .shared.output import load_model, print_json, print_note
from .shared.run import further_models, head_folders, new_trace_path, parse_parts, run_session

if TYPE_CHECKING:
    from decodescope.app.runs.composition import RunChoice
    from decodescope.engine.session.load import Model
    from decodescope.engine.session.method import Method
    from decodescope.engine.trace import Header

LISTED = 1000  # steps that are printed


def find(args: argparse.Namespace) -> int:
    """Print the steps where the condition holds; exit code 1 if there are none."""
    from decodescope.engine.trace import open_trace
    from decodescope.engine.trace.query.conditions import Condition
    from decodescope.engine.trace.values.limits import TraceError

    condition = Condition(args.condition)
    rows: list[dict[str, Any]] = []
    count = searched = 0
    with closing(open_trace(args.file)) as trace:
        watch, pieces = condition.watch_run(trace.header), dict(trace.header.pieces)
        try:
            for step in trace.steps:
                pieces |= step.pieces or {}
                hit, searched = watch.see(step, pieces), searched + 1
                if hit.value is True:
                    count += 1
                    if len(rows) < LISTED:
                        node = None if hit.node is None else hit.node + 1
                        rows.append({"step": step.step, "node": node, "why": hit.why})
        except TraceError as error:
            raise Refusal(
                f"{args.file} is damaged behind step {searched}, so it cannot be searched: {error}"
            ) from None
    if args.json:
        print_json(
            {
                "condition": condition.text,
                "steps": rows,
                "count": count,
                "searched": searched,
                "trace": str(args.file),
            }
        )
    else:
        for row in rows:
            print(row["why"])
        more = f"; the first {LISTED} are shown" if count > LISTED else ""
        print(f"{condition.text}: {count} of {searched} steps{more}")
    return 0 if count else 1


def fork(args: argparse.Namespace) -> int:
    """Repeat the recorded run up to a step, and continue with the change; the exit code."""
    target = new_trace_path(args.trace)
    from decodescope.engine.session.replay.fork import Fork
    from decodescope.engine.trace import open_trace
    from decodescope.engine.trace.encoding.forks import header_before

    with closing(open_trace(args.file)) as recorded:
        header, steps = recorded.header, list(recorded.steps[: args.step + 1])
    change = _parse_change(args, header)
    method = _fork_method(header, args.step, change)
    model, drafts = _load_models(args, header_before(header, args.step), method)
    instead = _load_replacements(args, header, model)
    forced = {node - 1: ok for node, ok in args.force}
    if len(forced) < len(args.force):
        twice = next(node for i, (node, _) in enumerate(args.force) if node in [x for x, _ in args.force[:i]])
        raise Refusal(f"--force settles node {twice} twice: give it one verdict.")
    more: dict[str, Any] = {
        "method": method,
        "forced": forced,
        "name": args.name,
        "change": _change_record(change) | _name_replacements(args, instead),
        "instead": instead,
    }
    if args.threads is not None:
        choose_threads(args, model)
    session = Fork(
        model,
        header,
        steps,
        args.step,
        models=drafts,
        seed=args.seed,
        max_new_tokens=args.max_new_tokens,
        **more,
    )
    return run_session(session, model, target, args.json)


def _load_replacements(args: argparse.Namespace, header: Header, model: Model) -> dict[str, Model]:
    """The models that take the place of the run's from the step on, by role."""
    from decodescope.engine.session.load import exchange_heads

    instead: dict[str, Model] = {}
    if args.then_draft:
        instead["draft"] = load_model(args.then_draft, header.dtype_of("draft"), args.device)
    if heads := head_folders(args, "then_head"):
        instead[TARGET] = exchange_heads(model, heads, args.allow_pickle)
        for text in instead[TARGET].remarks:
            print_note(f"Note: {text}")
    return instead


def _name_replacements(args: argparse.Namespace, instead: Mapping[str, Model]) -> dict[str, Any]:
    """The same for the record of the change, by names: a trace is passed on, and holds no path of a machine."""
    names = {role: model.name for role, model in instead.items() if role != TARGET}
    names |= {kind: path.resolve().name for kind, path in head_folders(args, "then_head").items()}
    return {"instead": names} if names else {}


def _parse_change(args: argparse.Namespace, header: Header) -> dict[str, Any]:
    """The change as a page would send it."""
    names, settings = parse_parts(args, "acceptance.epsilon=0.2", _settings_at(header, args.step).names)
    numbers = {"seed": args.seed, "new": args.max_new_tokens}
    change = {"names": names, "settings": settings, **numbers}
    return {key: value for key, value in change.items() if value not in (None, {})}


def _change_record(change: dict[str, Any]) -> dict[str, Any]:
    """A change as a header records it: a calibration by its name."""
    settings = {
        part: {knob: f"{MARK}{x.name}" if isinstance(x, CalibratedValue) else x for knob, x in knobs.items()}
        for part, knobs in change.get("settings", {}).items()
    }
    return {**change, **({"settings": settings} if settings else {})}


def _settings_at(header: Header, step: int) -> RunChoice:
    """The settings of the run at that step."""
    from decodescope.app.runs.recipe import choice_from_header
    from decodescope.engine.trace.encoding.forks import method_at

    return choice_from_header(replace(header, method=method_at(header, step)))


def _fork_method(header: Header, step: int, change: dict[str, Any]) -> Method | None:
    """The method of the fork; None: that of the run."""
    from decodescope.app.runs.forks import merge_change
    from decodescope.engine.session.method import Method

    before = _settings_at(header, step)
    after = merge_change(before, change)
    return None if after == before else Method.from_names(after.names, after.settings)


def _load_models(
    args: argparse.Namespace, header: Header, method: Method | None
) -> tuple[Model, dict[str, Model]]:
    """The models of the run and those that the change needs: the given ones, else by fingerprint, else by name."""
    from decodescope.engine.session.remembered import remembered_model

    roles = {*header.lanes, *(method.lanes if method is not None else ())}
    names = {TARGET: args.model, **further_models(args)}
    lanes: dict[str, Model] = {}
    for role in [TARGET, *sorted(roles)]:
        recorded = header.model if role == TARGET else header.lanes.get(role, {})
        name = names.get(role) or remembered_model(recorded.get("fingerprint")) or recorded.get("name")
        if not name:
            raise Refusal(
                f"{role} names no model: the change needs one in this role, give {' '.join(role_option(role))}."
            )
        heads = (head_folders(args), args.allow_pickle) if role == TARGET else ()
        lanes[role] = load_model(str(name), header.dtype_of(role), args.device, *heads)
    model = lanes.pop(TARGET)
    if model.tokenizer is None:
        raise Refusal(
            f"{model.name} has no tokenizer.json, so its text cannot be printed: add the file to its folder."
        )
    return model, lanes
