"""Recipe: the present settings as text to take elsewhere: a command, Python, or a link, and back."""

from __future__ import annotations

import json
import re
import shlex
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from decodescope.app.basis.arguments import option
from decodescope.app.basis.refusal import RequestRefusal
from decodescope.engine.core import roles
from decodescope.engine.core.arguments import check_reference_kind
from decodescope.engine.core.component import KINDS, OF_MODEL, registry
from decodescope.engine.core.params import Param
from decodescope.engine.core.reference import with_weights, without_weights
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.roles import TARGET, WHOLE
from decodescope.engine.cost.passes import spec_of
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.model.checkpoint.prompt_source import parse_ids
from decodescope.engine.session.method import Method, default_part
from decodescope.engine.session.method import strategy_using as strategy_using
from decodescope.engine.session.own_parts import file_of
from decodescope.engine.session.placement import SHIPPED
from decodescope.engine.trace import open_trace
from decodescope.engine.trace.encoding.record_decoder import read_dataclass
from decodescope.engine.trace.records.events import PROMPT_KINDS, Header, PromptKind
from decodescope.engine.trace.values.limits import TraceError

from .catalogue.examples import shipped_examples
from .catalogue.presets import FIRST_OF_FETCHED, GREEDY, PRESETS, SMALLER, temperature_settings
from .preset_choice import apply_preset, find_matching_preset
from .preset_prompts import apply_preset_prompt
from .run_service import RunChoice

FURTHER = (
    "chat",
    "ignore_eos",
    "level",
    "reference",
    "prompt_kind",
)  # fields of a choice: with the same names in Python, written if they are not the default
PLACE = ("dtype", "device")  # the same of its models
WAYS = ("command", "python", "link")
END = "MESSAGES"  # the line behind messages in a command
QUESTION = "What is the capital of France?"  # to a model that was fetched
LONGEST_LINK = 8000  # characters; browsers accept more, other programs do not


def recipe(choice: RunChoice, names: Mapping[str, str], way: str) -> str:
    """The run that `choice` describes, as a command line, as Python, or as the query of a link.

    names: role -> model, if the choice names none. Raises RequestRefusal, ParamError or MethodError for settings that make no
    method.
    """
    names = choice.models or names
    if way == "link":
        text = "#set=" + urlsafe_b64encode(as_json(choice).encode("utf-8", "replace")).decode().rstrip("=")
        if len(text) > LONGEST_LINK:
            raise RequestRefusal(
                f"The prompt is too long for a link ({len(text)} characters of {LONGEST_LINK}): copy the command."
            )
        return text
    if not names.get(TARGET):
        raise RequestRefusal("These settings name models, and none for the target: choose one first.")
    method = Method.from_names(choice.names, choice.settings)
    parts, settings = _chosen_parts(choice), _changed_knobs(choice)
    lanes = {role: names[role] for role in method.lanes if role in names}
    if way == "python":
        return _python_code(choice, parts, settings, lanes | {TARGET: names[TARGET]}, _own_files(method))
    own = [word for path in _own_files(method) for word in ("--parts", path)]
    words = ["decodescope", *own, "run", "--model", names["target"]]
    for role, name in lanes.items():
        words += roles.role_option(role, name)
    words += [word for x in PLACE if (value := getattr(choice, x)) for word in (option(x), value)]
    for kind, name in parts.items():
        words += [option(kind), name if isinstance(name, str) else ",".join(name)]
    for part, knobs in settings.items():
        for knob, value in knobs:
            # on a command line @FILE would be a file's text
            at = "@" if knob.lines and value.startswith("@") else ""
            words += ["--set", f"{part}.{knob.name}={at}{knob.spell(value)}"]
    words += ["--max-new-tokens", str(choice.max_new), "--seed", str(choice.seed)]
    words += {"messages": ["--messages", "-"], "ids": [f"--ids={choice.prompt}"]}.get(
        choice.prompt_kind, [f"--prompt={choice.prompt}"]
    )
    words += ["--marks"] * (choice.prompt_kind == "marks")
    words += ["--chat"] * choice.chat + ["--ignore-eos"] * choice.ignore_eos
    words += ["--trace-level", choice.level] if choice.level != RunChoice.level else []
    words += ["--reference", *(["model"] * (choice.reference == "model"))] * bool(choice.reference)
    if choice.prompt_kind == "messages":  # in one line, so no line of it can end the text
        return f"{shlex.join(words)} <<'{END}'\n{choice.source.conversation.text}\n{END}"
    return shlex.join(words)


def fork_command(header: Header) -> str:
    """The command line that makes a fork again from the trace of the run that it left; "" for a run that is no fork, or whose
    record of the change this command cannot say."""
    fork = header.fork or {}
    change = fork.get("change")
    if not isinstance(change, dict) or "prompt" in change:
        return ""
    choice = choice_from_header(header)
    names, knobs = dict(change.get("names") or {}), _changed_values(change)
    if change.get("rule"):
        names["acceptance"] = change["rule"]
    if change.get("temperature") is not None:
        names["sampler"] = choice.names.get("sampler", [])
    words = ["decodescope", "trace", "fork", f"{fork['of']}.dstrace", "--step", str(fork["step"])]
    for kind, name in names.items():
        words += [option(kind), name if isinstance(name, str) else ",".join(name)]
    for part, knob, value in knobs:
        words += ["--set", f"{part}.{knob}={_spell_value(value)}"]
    for key, name in (("seed", "--seed"), ("new", "--max-new-tokens")):
        words += [name, str(change[key])] if change.get(key) is not None else []
    for role, name in (change.get("instead") or {}).items():
        words += ["--then-draft", name] if role == "draft" else ["--then-head", f"{role}={name}"]
    for node, accepted in fork.get("forced") or []:
        words += ["--force", f"{'accept' if accepted else 'reject'}:{node + 1}"]
    words += ["--name", fork["name"]] if fork.get("name") else []
    return shlex.join([*words, "--trace", f"{header.run}.dstrace"])


def _changed_values(change: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Part, knob and value of all settings of a change, those that it says for short too."""
    settings = {part: dict(knobs) for part, knobs in (change.get("settings") or {}).items()}
    for part, key in (("acceptance", "rule_settings"), ("drafter", "drafter")):
        settings[part] = settings.get(part, {}) | dict(change.get(key) or {})
    if change.get("temperature") is not None:
        settings |= temperature_settings(change["temperature"])
    return [(part, knob, value) for part, knobs in settings.items() for knob, value in knobs.items()]


def _spell_value(value: Any) -> str:
    """A value as the command line reads it."""
    if isinstance(value, list | tuple):
        return ",".join(map(_spell_value, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _python_code(
    choice: RunChoice,
    parts: Mapping[str, Any],
    settings: Mapping[str, Any],
    models: Mapping[str, str],
    own: Sequence[str],
) -> str:
    target, lanes = models[TARGET], {role: name for role, name in models.items() if role != TARGET}
    values = {part: {knob.name: value for knob, value in knobs} for part, knobs in settings.items()}
    arguments: list[Mapping[str, Any]] = [parts] if parts or values else []
    if values:
        arguments.append(values)
    said = [f"    {dict(x)!r},\n" for x in arguments]
    method = "Method.from_names(\n" + "".join(said) + ")" if said else "Method()"
    where = "".join(f", {x}={value!r}" for x in PLACE if (value := getattr(choice, x)))
    loads = ", ".join(f"{role!r}: load({name!r}{where})" for role, name in lanes.items())
    if [*lanes] == ["draft"]:
        more = f"    draft=load({lanes['draft']!r}{where}),\n"
    elif lanes:
        more = f"    models={{{loads}}},\n"
    else:
        more = ""
    further = {name: getattr(choice, name) for name in FURTHER if name != "prompt_kind"}
    prompt: Any = choice.prompt
    if choice.prompt_kind == "messages":
        prompt = choice.source.conversation.record()
    elif choice.prompt_kind == "ids":
        prompt = parse_ids(choice.prompt)
    more += "    marks=True,\n" * (choice.prompt_kind == "marks")
    said_too = "".join(
        f"    {x}={value!r},\n" for x, value in further.items() if value != getattr(RunChoice, x)
    )
    loaded = f"load_parts({', '.join(map(repr, own))})\n" if own else ""
    return (
        f"from decodescope.engine import Method, load, {'load_parts, ' if own else ''}run\n\n"
        f"{loaded}method = {method}\n"
        "made = run(\n"
        f"    load({target!r}{where}),\n    method,\n    {prompt!r},\n{more}"
        f"    max_new_tokens={choice.max_new},\n    seed={choice.seed},\n{said_too})\n"
        "print(made.text)\n"
    )


def _own_files(method: Method) -> list[str]:
    """The files of parts that are not in the package, each once, as their owner named them."""
    parts = [*method.parts().values(), *method.sampler.in_order]
    return list(dict.fromkeys(filter(None, (file_of(x.kind, x.name) for x in parts))))


def _chosen_parts(choice: RunChoice) -> dict[str, Any]:
    """The parts that are not the default ones, and those with changed knobs."""
    chosen: dict[str, Any] = {}
    for kind in KINDS:
        name = choice.names.get(kind)
        if name and name not in (default_part(kind).name, [default_part(kind).name]):
            chosen[kind] = name if isinstance(name, str) else list(name)
    return chosen


def _changed_knobs(choice: RunChoice) -> dict[str, list[tuple[Param, Any]]]:
    """The knobs that differ from their component's defaults, by part, with their values."""
    settings = {}
    for part, knobs in choice.settings.items():
        known = part_knobs(choice.names, part)
        values = [(known[name], known[name].read(value, part)) for name, value in knobs.items()]
        changed = [(knob, value) for knob, value in values if value != knob.default]
        if changed:
            settings[part] = changed
    return settings


def part_knobs(names: Mapping[str, Any], part: str) -> dict[str, Param]:
    """The knobs of a part by their names; part: a kind, or a chained sampler. Empty if there is no such part."""
    kind = part if part in KINDS else "sampler"
    name = names.get(kind, default_part(kind).name) if kind == part else part
    name = name if isinstance(name, str) or not name else name[0]  # a chain of one
    return {x.name: x for x in registry(kind)[name].params()} if name in registry(kind) else {}


def used_kinds(names: Mapping[str, Any]) -> set[str]:
    """The kinds that matter: those that the chosen strategy uses, a schedule only if the chosen drafter can have one."""
    shelf, drafters = registry("strategy"), registry("drafter")
    strategy, drafter = str(names["strategy"]), str(names["drafter"])
    uses = {"strategy", *(shelf[strategy].uses if strategy in shelf else ())}  # type: ignore[attr-defined] # a Strategy's
    chosen: Any = drafters[drafter]() if drafter in drafters else None
    gates = any(x.gates for x in registry("schedule").values())  # type: ignore[attr-defined] # a Schedule's
    asks = chosen is not None and (chosen.uses_schedule or (gates and chosen.drafts))
    return uses if asks else uses - {"schedule"}


def replace_part(choice: RunChoice, kind: str, name: str, why: Callable[[RunChoice], str]) -> RunChoice:
    """The same settings with this part, with default knobs, instead of the one of its kind.
    A sampler goes to the end of the chain, without greedy. kind "preset": that preset; "weights": the target made into another
    model first.

    why(choice): the reason against settings, or "". If there is one, the result is the first preset that has this part, or one
    of its kind, if that fits. So an acceptance rule comes with a drafter that it can judge. Raises RequestRefusal for a part
    that does not exist.
    """
    if kind == "preset" and name in PRESETS:
        return apply_preset_prompt(apply_preset(choice, name), name, initial_choice())
    if kind in OF_MODEL and name in registry(kind):
        base, _ = without_weights(choice.models.get(TARGET, ""))
        return replace(
            choice, models={**choice.models, TARGET: str(with_weights(base, name))} if base else choice.models
        )
    if kind not in KINDS or name not in registry(kind) or not registry(kind)[name].listed:
        raise RequestRefusal(f"There is no {kind[:40]} {name[:40]!r} here: choose one of the catalogue.")
    names: dict[str, Any] = {**{x: default_part(x).name for x in KINDS}, **choice.names}
    if kind == "sampler":
        before = [names[kind]] if isinstance(names[kind], str) else names[kind]
        names[kind] = [name] if name == GREEDY else [*(x for x in before if x not in (GREEDY, name)), name]
    else:
        names[kind] = name
    if kind not in used_kinds(names) and kind != "schedule":
        names["strategy"] = strategy_using(kind)
    names = {x: chosen for x, chosen in names.items() if x in used_kinds(names)}
    still = {*names, *names.get("sampler", ())} - {kind, name}
    other_choice = replace(
        choice, names=names, settings={x: knobs for x, knobs in choice.settings.items() if x in still}
    )
    if kind == "sampler" or (kind in names and not why(other_choice)):
        return other_choice
    if kind == "router":  # one decides per token, another per answer, and one only with greedy choices
        users = [x for x, cls in registry("strategy").items() if kind in cls.uses]  # type: ignore[attr-defined] # a Strategy's
        for strategy, sampler in product(users, (names["sampler"], [GREEDY])):
            knobs = {
                x: own
                for x, own in other_choice.settings.items()
                if x not in names["sampler"] or x in sampler
            }
            other = replace(
                other_choice, names={**names, "strategy": strategy, "sampler": sampler}, settings=knobs
            )
            if not why(other):
                return other
    for preset in sorted(
        (x for x in PRESETS.values() if kind in x.names), key=lambda x: x.names[kind] != name
    ):
        own = {x: knobs for x, knobs in preset.settings.items() if x != kind or preset.names[kind] == name}
        other = replace(choice, names={**preset.names, kind: name}, settings=own)
        if not why(other):
            return other
    return other_choice


def initial_choice() -> RunChoice:
    """The initial values of the controls: prompt and numbers of the example that the page opens on, so that Run repeats it.
    (The method of both is the page's first preset.)"""
    for example in shipped_examples():
        trace = open_trace(example.path)
        try:
            return choice_from_header(trace.header)
        finally:
            trace.close()
    return RunChoice("Once upon a time, there was a little", seed=7)


def choice_from_header(header: Header) -> RunChoice:
    """The settings of a recorded run."""
    method = Method.from_record(header.method)
    names: dict[str, Any] = {}
    settings: dict[str, dict[str, Any]] = {}
    uses = used_kinds({kind: part.name for kind, part in method.parts().items()})
    for kind, part in method.parts().items():
        if kind not in uses:
            continue
        if part is method.sampler:
            names[kind] = [x.name for x in method.sampler.in_order]
            settings |= {x.name: x.knobs() for x in method.sampler.in_order}
        else:
            names[kind], settings[kind] = part.name, part.knobs()
    if "policy" in settings:
        settings["policy"] = _requested_knobs(method.policy, header)
    models = {TARGET: header.model, **{role: x for role, x in header.lanes.items() if role != WHOLE}}
    called = {role: str(model["name"]) for role, model in models.items() if model.get("name")}
    ids = " ".join(map(str, header.prompt.tolist())) if header.prompt_kind == "ids" else ""
    return RunChoice(
        header.turn or ids or prompt_text(header),
        names,
        settings,
        header.seed,
        header.max_new_tokens,
        chat=bool(header.turn) and header.prompt_kind == "text",
        prompt_kind="text" if header.prompt_kind == "messages" and not header.turn else header.prompt_kind,
        models=called,
        level=header.levels[-1] if header.levels else RunChoice.level,
        ignore_eos=not header.stop_tokens,
        reference=header.reference_kind,
        dtype="" if header.dtype == _usual_dtype(header) else header.dtype,
        device="" if header.device in ("cpu", "cuda", "cuda:0") else header.device,
    )


def _usual_dtype(header: Header) -> str:
    """The type of a recorded run's target if nobody chose one, as far as the record tells; empty: unknown."""
    base = re.split(r"[+@]", str(header.model.get("name", "")))[0]
    if base and (SHIPPED / base).is_dir():
        return "float32"
    return "bfloat16" if header.model.get("stored_as") else ""


def prompt_text(header: Header) -> str:
    """The tokens of a prompt as text."""
    pieces = [header.pieces.get(str(token), "") for token in header.prompt.tolist()]
    text = b"".join(
        bytes.fromhex("".join(x)) if isinstance(x, list) else x.encode("utf-8", "replace") for x in pieces
    )
    return text.decode("utf-8", "replace")


def _requested_knobs(policy: CachePolicy, header: Header) -> dict[str, Any]:
    """The knobs of a policy as they were requested.
    A record holds a budget share of the prompt as the number of entries that it came to. If the default numbers come to the
    same with this share, they are what was requested, or equivalent."""
    knobs = policy.knobs()
    if not knobs.get("budget_share"):
        return knobs
    plain = type(policy)(**{"budget_share": knobs["budget_share"]})
    asked = plain.knobs()
    try:
        plain.begin(spec_of(header.model), len(header.prompt))
    except ValueError:  # a header from elsewhere, with no valid model or an impossible share
        return knobs
    return asked if plain == policy else knobs


def smaller_presets(header: Header) -> list[dict[str, str]]:
    """Suggestions for the same prompt after memory ran out: title and settings of presets that hold less.
    Empty for a record from elsewhere with a method that is unknown here."""
    try:
        choice = choice_from_header(header)
    except Refusal:
        return []
    own, offers = find_matching_preset(choice), []
    for name in (x for x in SMALLER if x != own):
        lesser = replace(choice, names=PRESETS[name].names, settings=PRESETS[name].settings)
        offers.append({"title": PRESETS[name].title, "settings": as_json(lesser)})
    return offers


def as_json(choice: RunChoice) -> str:
    """The settings as text that `from_json` reads."""
    names = {kind: name if isinstance(name, str) else list(name) for kind, name in choice.names.items()}
    said = {
        "prompt": choice.prompt,
        "names": names,
        "settings": choice.settings,
        "seed": choice.seed,
        "new": choice.max_new,
    }
    if choice.models:
        said["models"] = choice.models
    for name in (*FURTHER, *PLACE):
        if getattr(choice, name) != getattr(RunChoice, name):
            said[name] = getattr(choice, name)
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"), default=str)


def first_settings(name: str) -> str:
    """The settings with which the page begins on a model that was fetched, as text that `from_json` reads."""
    return as_json(RunChoice(QUESTION, FIRST_OF_FETCHED, models={TARGET: name}, chat=True))


@dataclass(frozen=True)
class _ChoiceRecord:
    """Parse the output of `as_json`."""

    prompt: str
    names: dict[str, Any]
    settings: dict[str, dict[str, Any]]
    seed: int
    new: int
    models: dict[str, str] = field(default_factory=dict)
    level: str = RunChoice.level
    chat: bool = False
    ignore_eos: bool = False
    reference: Any = False
    prompt_kind: PromptKind = "text"
    dtype: str = ""
    device: str = ""


def from_json(text: str) -> RunChoice:
    """The settings in the text of `as_json` or in a link; raises RequestRefusal for any other text. Knobs are not checked
    here."""
    try:
        if not text.startswith("{"):
            text = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8")
        said = read_dataclass(_ChoiceRecord, json.loads(text))
        named = [x for name in said.names.values() for x in (name if isinstance(name, list) else [name])]
        if not all(isinstance(x, str) for x in named):
            raise TraceError("a part has no name")
        if any(isinstance(name, list) and kind != "sampler" for kind, name in said.names.items()):
            raise TraceError("several parts of one kind")
        reference = check_reference_kind(said.reference)
        if said.prompt_kind not in PROMPT_KINDS:
            raise TraceError("there is no such kind of prompt")
    except (ValueError, RecursionError):
        raise RequestRefusal(
            "The settings of this link cannot be read: copy it again from the page that made it."
        ) from None
    return RunChoice(
        said.prompt,
        said.names,
        said.settings,
        said.seed,
        said.new,
        chat=said.chat,
        models=said.models,
        level=said.level,
        ignore_eos=said.ignore_eos,
        reference=reference,
        prompt_kind=said.prompt_kind,
        dtype=said.dtype,
        device=said.device,
    )
