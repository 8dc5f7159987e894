"""Forks: runs that continue from a step of another run with something changed, and the list of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.limits import SEEDS
from decodescope.app.basis.refusal import RequestRefusal
from decodescope.engine.core.component import component_from_record as part_of
from decodescope.engine.core.roles import TARGET
from decodescope.engine.trace import TraceError, read_header
from decodescope.engine.trace.encoding.forks import fork_legs, header_before, method_at
from decodescope.engine.trace.encoding.forks import fork_record as story
from decodescope.engine.trace.records.events import Header, Step
from decodescope.lab.wire.wire import trace_node

from .catalogue.head_offers import HeadOffer, name_folders, offered_heads
from .catalogue.parts import knob_record
from .catalogue.presets import GREEDY, WARMED, temperature_settings
from .lanes import DRAFT, NEW_DRAFT
from .model_pool import Offer
from .placed_key import Placement
from .recipe import choice_from_header
from .record_stream import RecordStream
from .run_service import MOST_NEW, RunChoice, RunService, without_target

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model
    from decodescope.engine.session.method import Method

LONGEST = 80  # characters of a name
CHANGES = ("names", "settings", "seed", "new", "temperature", "rule", "rule_settings", "drafter", "instead")
SUFFIX = ".dstrace"


def fork(play: RunService, channel: RecordStream, body: Mapping[str, Any]) -> RecordStream:
    """Queue a fork of the run. body: step, and name, change, force as the page sends them. Raises RequestRefusal."""
    number = body.get("step")
    name = body.get("name", "")
    change = body.get("change") or {}
    if type(number) is not int or not 0 <= number < channel.count:
        raise RequestRefusal(
            f"step = {str(number)[:20]}: the run has {channel.count} steps, counted from 0; choose one of them."
        )
    if (
        not isinstance(name, str)
        or len(name := " ".join(name.split())) > LONGEST
        or not (name or "x").isprintable()
    ):
        raise RequestRefusal(f"The name of a fork has at most {LONGEST} characters that can be shown.")
    steps, wire = channel.steps(0, number + 1), channel.wire
    if wire is None or len(steps) != number + 1:
        raise RequestRefusal(
            "The steps before this one are not in the record any more: nothing can be forked off it."
        )
    header, forced = wire.header, forced_nodes(steps[number], body.get("force") or [])
    admit_files(play, header)
    asked = (
        {key: value for key, value in change.items() if key in CHANGES} if isinstance(change, dict) else {}
    )
    method, numbers = fork_method(play, header, number, change), _changed_numbers(change)
    roles = () if method is None else method.lanes
    names = play.find_recorded_models(header_before(header, number), roles)
    taken = find_replacements(play, header, change)
    if taken.record:
        asked["instead"] = taken.record
    from decodescope.engine.session.replay.fork import Fork

    def session(models: Mapping[str, Model]) -> Fork:
        own = {role: model for role, model in models.items() if role != NEW_DRAFT}
        more: dict[str, Any] = {"method": method, "forced": forced, "name": name, "change": asked, **numbers}
        instead = taken.load(models)
        return Fork(own[TARGET], header, steps, number, models=without_target(own), instead=instead, **more)

    channel_forked = play.launch(names | taken.models, session)
    channel_forked.fork = story(header, number, name, asked, forced)
    return channel_forked


@dataclass(frozen=True)
class ForkReplacements:
    """What takes the place of the run's draft in a fork. models: NEW_DRAFT -> key of a draft model, or empty;  heads: kind ->
    offered head;  record: the same by names for the record of the change, as `decodescope trace fork` writes it"""

    models: dict[str, str]
    heads: dict[str, HeadOffer]
    record: dict[str, str]

    def load(self, models: Mapping[str, Model]) -> dict[str, Model]:
        """Role -> the model that takes the place of the run's, of these loaded ones. Raises RequestRefusal for a head that
        cannot be read or was made for another model."""
        from decodescope.engine.model.checkpoint.folder import LoadError
        from decodescope.engine.session.load import exchange_heads

        instead = {DRAFT: models[NEW_DRAFT]} if self.models else {}
        if self.heads:
            try:
                instead[TARGET] = exchange_heads(
                    models[TARGET], {kind: x.folder for kind, x in self.heads.items()}
                )
            except LoadError as error:
                raise RequestRefusal(name_folders(str(error), self.heads.values())) from None
        return instead


def find_replacements(play: RunService, header: Header, change: Any) -> ForkReplacements:
    """What a change puts in the place of the run's draft: {"instead": {"draft": key, KIND: key}}, keys of the page's lists.
    Raises RequestRefusal for what is not offered here, or is of another kind than the run's."""
    asked = _mapping_field(change, "instead") if isinstance(change, dict) else {}
    models: dict[str, str] = {}
    heads: dict[str, HeadOffer] = {}
    record: dict[str, str] = {}
    known = {x.key: x for x in offered_heads(play.models)} if set(asked) - {DRAFT} else {}
    for kind, key in asked.items():
        if kind == DRAFT:
            offer = play.models.offer(key) if isinstance(key, str) else None
            if offer is None:
                raise RequestRefusal(
                    f"The model {str(key)[:80]!r} is not offered here: choose one of the list."
                )
            _check_takes_place(header, offer)
            place = Placement(header.dtype_of(DRAFT), header.device)
            models[NEW_DRAFT] = play.models.placed(offer.key, place)
            record[DRAFT] = offer.name
        elif (head := known.get(str(key))) is None or head.kind != kind:
            raise RequestRefusal(
                f"There are no heads {str(kind)[:40]} called {str(key)[:80]!r} here: choose some of the list."
            )
        elif kind not in (header.model.get("head_fingerprints") or {}):
            raise RequestRefusal(
                f"The run did not draft with heads {kind[:40]}, so others would do nothing: choose heads of its own kind."
            )
        else:
            heads[kind], record[kind] = head, head.folder.name
    return ForkReplacements(models, heads, record)


def _check_takes_place(header: Header, offer: Offer) -> None:
    """Raise RequestRefusal for a model that cannot take the place of the run's draft model, as far as its config tells."""
    from decodescope.engine.session.replay.fork import differing_size

    mine, sizes = header.lanes.get(DRAFT), offer.spec.record()
    if mine is None:
        raise RequestRefusal(
            f"The run drafted without a draft model, so {offer.name} would do nothing: change its drafter instead."
        )
    if wrong := differing_size(mine, sizes):
        raise RequestRefusal(
            f"{offer.name} has {wrong} = {sizes.get(wrong)} and the run's draft model {mine.get(wrong)}: choose one of the "
            "same sizes, or make a run of its own with this one."
        )


def list_replacements(play: RunService, channel: RecordStream) -> dict[str, Any]:
    """What can take the place of the run's draft in a fork: draft models of the same sizes and tokens, and heads of its kinds
    and of the target's width. Raises RequestRefusal."""
    if channel.wire is None:
        raise RequestRefusal(
            "The run has not begun, so nothing of it can be changed: wait for its first step."
        )
    header = channel.wire.header
    mine = header.lanes.get(DRAFT)
    kinds = header.model.get("head_fingerprints") or {}
    width = header.model.get("d_model")
    heads = [
        {"key": x.key, "name": x.key, "kind": x.kind}
        for x in (offered_heads(play.models) if kinds else [])
        if x.kind in kinds and x.width in (None, width)
    ]
    models = [] if mine is None else [x for x in play.models.offers() if _takes_place(play, header, mine, x)]
    return {"draft": [{"key": x.key, "name": x.label} for x in models], "heads": heads}


def _takes_place(play: RunService, header: Header, mine: Mapping[str, Any], offer: Offer) -> bool:
    """Whether an offered model can take the place of the run's draft model, whose record is `mine`."""
    from decodescope.engine.session.compatibility import check_same_tokens
    from decodescope.engine.session.method import MethodError
    from decodescope.engine.session.replay.fork import differing_size

    if offer.name == mine.get("name") or differing_size(mine, offer.spec.record()) or offer.trouble:
        return False
    target = play.models.key(str(header.model.get("name", "")))
    reader = None if target is None else play.models.reader(target)
    try:
        if reader is not None:
            check_same_tokens({TARGET: reader, DRAFT: offer})
    except MethodError:
        return False
    return True


def drafter_knobs(channel: RecordStream) -> dict[str, Any]:
    """The knobs of the run's drafter for the fork form: as parts.py describes them, each with its `value` in the run.
    Raises RequestRefusal, ParamError."""
    if channel.wire is None:
        raise RequestRefusal(
            "The run has not begun, so nothing of it can be changed: wait for its first step."
        )
    drafter = part_of("drafter", channel.wire.header.method.get("drafter", {}))
    held = drafter.knobs()
    return {
        "drafter": drafter.name,
        "knobs": [{**knob_record(x), "step": x.step, "value": held[x.name]} for x in drafter.params()],
    }


def forced_nodes(step: Step, asked: Any) -> dict[int, bool]:
    """Drafted node -> whether it is accepted, from [{"node", "verdict"}] with node numbers of the wire."""
    forced: dict[int, bool] = {}
    if not isinstance(asked, list) or len(asked) > 64:
        raise RequestRefusal('force is a list of at most 64 verdicts, {"node": 3, "verdict": "accept"}.')
    for one in asked:
        node, verdict = (one.get("node"), one.get("verdict")) if isinstance(one, dict) else (None, None)
        own = trace_node(step, node) if type(node) is int else None
        if own is None:
            raise RequestRefusal(
                f"Node {str(node)[:20]} of step {step.step} was not drafted, so no verdict can be forced on it."
            )
        if verdict not in ("accept", "reject"):
            raise RequestRefusal(f"A verdict is accept or reject, not {str(verdict)[:20]!r}.")
        if own in forced:
            raise RequestRefusal(f"Node {node} is given two verdicts: force one of them.")
        forced[own] = verdict == "accept"
    return forced


def admit_files(play: RunService, header: Header) -> None:
    """Raise RequestRefusal if the recorded method reads a file that was not uploaded here: a trace may come from anywhere."""
    from decodescope.engine.session.method import Method

    for leg in fork_legs(header):
        play.files.admit(Method.from_record(leg.method).parts().values())


def fork_method(play: RunService, header: Header, step: int, change: Any) -> Method | None:
    """The method of a fork; None: that of the run. Raises RequestRefusal, ParamError or MethodError."""
    if not isinstance(change, dict) or (
        odd := next((x for x in change if x not in (*CHANGES, "prompt")), None)
    ):
        known = ", ".join(CHANGES)
        raise RequestRefusal(
            "A fork breaks ties as every run does: leave them as recorded, or force a verdict."
            if isinstance(change, dict) and odd == "ties"
            else f"A fork can change {known}, and not {str(change if not isinstance(change, dict) else odd)[:40]!r}."
        )
    before = choice_from_header(replace(header, method=method_at(header, step)))
    after = merge_change(before, change)
    return (
        None
        if after == before
        else play.method(replace(after, models={**play.models.names, **before.models}))
    )


def merge_change(before: RunChoice, change: Mapping[str, Any]) -> RunChoice:
    """The settings of the run, updated with those of a change. Raises RequestRefusal for an invalid change."""
    names: dict[str, Any] = dict(before.names)
    settings = {part: dict(knobs) for part, knobs in before.settings.items()}
    for kind, name in _mapping_field(change, "names").items():
        if kind == "sampler":
            listed = [name] if isinstance(name, str) else name
            chosen = [str(x) for x in listed] if isinstance(listed, list) else []
            for stage in [x for x in names.get("sampler", []) if x not in chosen]:
                settings.pop(stage, None)
            names["sampler"] = chosen
        elif name != names.get(kind):
            names[kind] = str(name)
            settings.pop(kind, None)
    for part, knobs in _mapping_field(change, "settings").items():
        if not isinstance(knobs, dict):
            raise RequestRefusal(f"The settings of {part[:40]} are no knobs with values.")
        settings.setdefault(part, {}).update(knobs)
    if change.get("rule") is not None:
        names["acceptance"] = str(change["rule"])
        settings["acceptance"] = {}
    for part, key in (("acceptance", "rule_settings"), ("drafter", "drafter")):
        if change.get(key):
            settings.setdefault(part, {}).update(_mapping_field(change, key))
    if change.get("temperature") is not None:
        _set_temperature(names, settings, change["temperature"])
    return replace(before, names=names, settings=settings)


def _set_temperature(names: dict[str, Any], settings: dict[str, dict[str, Any]], temperature: Any) -> None:
    """Sample at this temperature: in its stage of the samplers, which is added if there is none."""
    stages = names.get("sampler", [GREEDY])
    stages = [stages] if isinstance(stages, str) else [*stages]
    if WARMED not in stages:
        stages = [*(x for x in stages if x != GREEDY), WARMED]
    names["sampler"] = stages
    settings.pop(GREEDY, None)
    settings |= temperature_settings(temperature)


def _mapping_field(change: Mapping[str, Any], key: str) -> dict[str, Any]:
    mapping = change.get(key) or {}
    if not isinstance(mapping, dict):
        raise RequestRefusal(f"{key} of a change must be an object.")
    return mapping


def _changed_numbers(change: Mapping[str, Any]) -> dict[str, int]:
    """Seed and length, if they are changed."""
    numbers = {}
    for key, name, low, high in (("seed", "seed", 0, SEEDS), ("new", "max_new_tokens", 1, MOST_NEW)):
        value = change.get(key)
        if value is None:
            continue
        if type(value) is not int or not low <= value <= high:
            raise RequestRefusal(f"{name} = {str(value)[:20]}: must be a whole number in [{low}, {high}].")
        numbers[name] = value
    return numbers


# ---- the list of forks


class ForkIndex:
    """The forks that are known here: runs in memory, and traces in the folder. Each trace header is read once."""

    def __init__(self, play: RunService):
        self.play = play
        self._read: dict[Path, tuple[float, dict[str, Any] | None]] = {}

    def relations(self, channel: RecordStream) -> dict[str, Any]:
        """The run that this one was forked from, if any, and the forks of it."""
        own = channel.fork or (channel.wire.header.fork if channel.wire is not None else None)
        branches = {
            run: (fork, status) for run, fork, status in self._all_forks() if fork.get("of") == channel.run
        }
        return {
            "of": None if own is None else _row(str(own.get("of")), own, None),
            "branches": [_row(run, fork, status) for run, (fork, status) in branches.items()],
        }

    def _all_forks(self) -> list[tuple[str, dict[str, Any], str]]:
        rows, seen = [], set()
        for run, one in self.play.channels().items():
            seen.add(run)
            fork = one.fork or (one.wire.header.fork if one.wire is not None else None)
            if fork is not None:
                rows.append((run, fork, one.status))
        others = (x for x in sorted(self.play.folder.glob("*" + SUFFIX)) if x.stem not in seen)
        return rows + [
            (path.stem, fork, "done") for path in others if (fork := self._read_fork(path)) is not None
        ]

    def _read_fork(self, path: Path) -> dict[str, Any] | None:
        try:
            at = path.stat().st_mtime
            if self._read.get(path, (None,))[0] != at:
                header = read_header(path)
                fork_legs(header)
                self._read[path] = (at, header.fork)
        except (OSError, TraceError):
            return None
        return self._read[path][1]


def _row(run: str, fork: Mapping[str, Any], status: str | None) -> dict[str, Any]:
    forced = [
        {"node": node + 1, "verdict": "accept" if ok else "reject"} for node, ok in fork.get("forced", [])
    ]
    row = {
        "run": run,
        "name": fork.get("name", ""),
        "step": fork.get("step"),
        "change": fork.get("change"),
        "forced": forced,
    }
    return row if status is None else {**row, "status": status}
