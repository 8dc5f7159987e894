"""Settings diff: the settings of the displayed run, and how the controls differ from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.engine.core.component import registry
from decodescope.engine.core.roles import TARGET
from decodescope.engine.session.method import Method
from decodescope.engine.trace.records.events import Header

from ..lanes import final_models
from ..model_pool import Offer, role_title
from ..placed_key import known_devices, split_key
from ..prompt_encoding import notes_on
from ..recipe import choice_from_header
from ..record_stream import RecordStream
from ..run_service import RunChoice, RunService

# kinds of prompts, as the page names them
KINDS = {
    "text": "text",
    "messages": "messages (JSON)",
    "marks": "text with special tokens",
    "ids": "token ids",
}

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model


def choice_of_run(play: RunService, channel: RecordStream) -> RunChoice:
    """The settings of a channel's run, with its models by their keys here. Raises RequestRefusal for a run that has not begun.
    Raises MethodError or ParamError for a record from elsewhere with a method that is unknown here."""
    if channel.wire is None:
        raise RequestRefusal("The run has not begun yet: copy it when its prompt has been read.")
    choice = choice_from_header(channel.wire.header)
    header = channel.wire.header
    models = {role: split_key(x)[0] for role, x in final_models(channel.models).items()}
    models = models or {role: play.models.key(name) or name for role, name in choice.models.items()}
    usual = play.models.placement(models.get(TARGET, ""))
    return replace(
        choice,
        models=models,
        ignore_eos=choice.ignore_eos and has_end_token(play, models),
        dtype="" if header.dtype == usual.dtype else header.dtype,
        device="" if header.device == usual.device or header.device not in known_devices() else header.device,
    )


def has_end_token(play: RunService, models: Mapping[str, str]) -> bool:
    """Whether the target of these models (role -> model) has an end token; True if nothing is known of it."""
    reader = target_reader(play, models)
    return reader is None or bool(reader.stop_tokens)


def has_chat_template(play: RunService, models: Mapping[str, str]) -> bool:
    """Whether the target has a chat template; True if nothing is known of it."""
    reader = target_reader(play, models)
    return reader is None or (reader.tokenizer is not None and reader.tokenizer.has_chat)


def notes(play: RunService, choice: RunChoice) -> list[str]:
    """Notes on the prompt of a choice; none if nothing is known of the target."""
    reader = target_reader(play, play.model_keys(choice))
    return [] if reader is None else notes_on(reader, choice)


def target_reader(play: RunService, models: Mapping[str, str]) -> Model | Offer | None:
    """The known information on the target; None also if its tokenizer cannot be read."""
    key = models.get(TARGET, "")
    return None if play.models.trouble_of(key) else play.models.reader(key)


def differences(play: RunService, header: Header, run: RunChoice, now: RunChoice) -> list[str]:
    """How the settings `now` differ from those of a run, each difference in words; empty: no relevant one."""
    words = _prompt_differences(run, now) if not _same_tokens(play, header, now) else []
    words += [f"{'going on after' if now.ignore_eos else 'ending at'} the end token"] * (
        now.ignore_eos != run.ignore_eos
    )
    words += [f"seed {now.seed}, not {run.seed}"] * (now.seed != run.seed)
    words += [f"{now.max_new} new tokens, not {run.max_new}"] * (now.max_new != run.max_new)
    words += [f"recorded: {now.level}, not {run.level}"] * (now.level != run.level)
    if now.reference != run.reference:
        reference = now.reference or run.reference
        what = "the original weights" if reference == "model" else "a full cache"
        words.append(f"{'with' if now.reference else 'without'} {what} as reference")
    method, other = (Method.from_names(x.names, x.settings) for x in (run, now))
    names = play.model_keys(now)
    for role in (TARGET, *other.lanes):
        model = None if role not in names else split_key(names[role])[0]
        if role in run.models and model != run.models[role]:
            words.append(
                f"{role_title(role).lower()} {_short_name(model)}, not {_short_name(run.models[role])}"
            )
    dtype, device = play.models.placement(names.get(TARGET, ""))
    words += [f"type {dtype}, not {header.dtype}"] * (dtype not in ("", header.dtype))
    words += [f"device {device}, not {header.device}"] * (device != header.device)
    return words + _part_differences(method, other)


def _prompt_differences(run: RunChoice, now: RunChoice) -> list[str]:
    """How the prompts differ, as they are written."""
    words = ["another prompt"] * (now.prompt != run.prompt)
    words += [f"the prompt is {KINDS[now.prompt_kind]}, not {KINDS[run.prompt_kind]}"] * (
        now.prompt_kind != run.prompt_kind
    )
    return words + [f"{'with' if now.chat else 'without'} the chat template"] * (now.chat != run.chat)


def _same_tokens(play: RunService, header: Header, now: RunChoice) -> bool:
    """Whether the prompt is read like the run's, in the tokens of the target."""
    read = play.encode_prompt(now)
    return read is not None and not read.why and [*read.ids] == header.prompt.tolist()


def _short_name(key: str | None) -> str:
    return "none" if key is None else key.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def _part_differences(method: Method, other: Method) -> list[str]:
    """Which parts of the other method, or their values, differ."""
    words = []
    for kind in other.used_parts | method.used_parts:
        ours, theirs = method.used_parts.get(kind), other.used_parts.get(kind)
        if ours == theirs:
            continue
        if kind == "sampler":
            words += _sampler_differences(method, other)
        elif ours is None or theirs is None or ours.name != theirs.name:
            words.append(f"{kind} {_part_title(kind, theirs)}, not {_part_title(kind, ours)}")
        else:
            words += _knob_differences(ours.knobs(), theirs.knobs())
    return words


def _sampler_differences(method: Method, other: Method) -> list[str]:
    """The same for the chains of samplers."""
    ours, theirs = ({x.name: x for x in one.sampler.in_order} for one in (method, other))
    if [*ours] != [*theirs]:
        return [f"sampler {', '.join(theirs)}, not {', '.join(ours)}"]
    return [word for name in ours for word in _knob_differences(ours[name].knobs(), theirs[name].knobs())]


def _knob_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {theirs[name]}, not {ours[name]}"
        for name in ours
        if ours[name] != theirs.get(name)
    ]


def _part_title(kind: str, part: Any) -> str:
    return "none" if part is None else registry(kind)[part.name].title or str(part.name)
