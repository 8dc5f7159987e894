"""Settings of a run beside those of the controls: what a run that is shown was made with, and in what the others differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.refusal import Refused
from decodescope.engine.core.component import registry
from decodescope.engine.core.roles import TARGET, WHOLE
from decodescope.engine.session.method import Method
from decodescope.engine.trace.records.events import Header

from ..model_pool import Offer, title
from ..prompt_reading import notes_on
from ..recipe import recorded
from ..record_stream import Channel
from ..run_service import Choice, RunService

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model


def made_with(play: RunService, channel: Channel) -> Choice:
    """The settings that the run of a channel was made with, its models by the keys that they have here. Raises Refused for a
    run that has not begun, MethodError or ParamError for a record from elsewhere whose method is none of ours."""
    if channel.wire is None:
        raise Refused("The run has not begun yet: copy it when its prompt has been read.")
    choice = recorded(channel.wire.header)
    models = {role: x for role, x in channel.models.items() if role != WHOLE}
    models = models or {role: play.key(name) or name for role, name in choice.models.items()}
    return replace(choice, models=models, ignore_eos=choice.ignore_eos and has_end(play, models))


def has_end(play: RunService, models: Mapping[str, str]) -> bool:
    """Whether the target of these models (role -> model) has an end token; True where nothing is known of it."""
    reader = _target(play, models)
    return reader is None or bool(reader.stop_tokens)


def has_chat(play: RunService, models: Mapping[str, str]) -> bool:
    """The same of a chat template."""
    reader = _target(play, models)
    return reader is None or (reader.tokenizer is not None and reader.tokenizer.has_chat)


def notes(play: RunService, choice: Choice) -> list[str]:
    """Notes on the prompt of a choice; none where nothing is known of the target."""
    reader = _target(play, play.named(choice))
    return [] if reader is None else notes_on(reader, choice)


def _target(play: RunService, models: Mapping[str, str]) -> Model | Offer | None:
    """What is known of the target; None also where its tokenizer cannot be read."""
    key = models.get(TARGET, "")
    return None if play.trouble_of(key) else play.reader(key)


def differences(play: RunService, header: Header, run: Choice, now: Choice) -> list[str]:
    """In what the settings `now` differ from those of a run, each in words; empty: in nothing that counts."""
    words = _reading(run, now) if not _same_tokens(play, header, now) else []
    words += [f"{'going on after' if now.ignore_eos else 'ending at'} the end token"] * (
        now.ignore_eos != run.ignore_eos
    )
    words += [f"seed {now.seed}, not {run.seed}"] * (now.seed != run.seed)
    words += [f"{now.max_new} new tokens, not {run.max_new}"] * (now.max_new != run.max_new)
    words += [f"recorded: {now.level}, not {run.level}"] * (now.level != run.level)
    if now.shadow != run.shadow:
        beside = now.shadow or run.shadow
        what = "the model that it was made of" if beside == "model" else "a full cache"
        words.append(f"{'with' if now.shadow else 'without'} {what} beside")
    method, other = (Method.named(x.names, x.settings) for x in (run, now))
    names = play.named(now)
    for role in (TARGET, *other.lanes):
        if role in run.models and names.get(role) != run.models[role]:
            words.append(f"{title(role).lower()} {_called(names.get(role))}, not {_called(run.models[role])}")
    return words + _parts(method, other)


def _reading(run: Choice, now: Choice) -> list[str]:
    """In what the prompts differ, as they are written."""
    words = ["another prompt"] * (now.prompt != run.prompt)
    return words + [f"{'with' if now.chat else 'without'} the chat template"] * (now.chat != run.chat)


def _same_tokens(play: RunService, header: Header, now: Choice) -> bool:
    """Whether the prompt is read as the run's was, in the tokens of the target."""
    read = play.given(now)
    return read is not None and not read.why and [*read.ids] == header.prompt.tolist()


def _called(key: str | None) -> str:
    return "none" if key is None else key.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def _parts(method: Method, other: Method) -> list[str]:
    """In what the parts of the other method are others, or other values."""
    words = []
    for kind in other.used | method.used:
        ours, theirs = method.used.get(kind), other.used.get(kind)
        if ours == theirs:
            continue
        if kind == "sampler":
            words += _stages(method, other)
        elif ours is None or theirs is None or ours.name != theirs.name:
            words.append(f"{kind} {_titled(kind, theirs)}, not {_titled(kind, ours)}")
        else:
            words += _knobs(ours.knobs(), theirs.knobs())
    return words


def _stages(method: Method, other: Method) -> list[str]:
    """The same of the chains of samplers."""
    ours, theirs = ({x.name: x for x in one.sampler.in_order} for one in (method, other))
    if [*ours] != [*theirs]:
        return [f"sampler {', '.join(theirs)}, not {', '.join(ours)}"]
    return [word for name in ours for word in _knobs(ours[name].knobs(), theirs[name].knobs())]


def _knobs(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {theirs[name]}, not {ours[name]}"
        for name in ours
        if ours[name] != theirs.get(name)
    ]


def _titled(kind: str, part: Any) -> str:
    return "none" if part is None else registry(kind)[part.name].title or str(part.name)
