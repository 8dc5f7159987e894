"""Composition: a choice with its method. It is built once per page change or run, and passed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from decodescope.app.basis.limits import SEEDS
from decodescope.app.basis.refusal import RequestRefusal
from decodescope.engine.core.arguments import Along
from decodescope.engine.core.arguments import check_choice as one_of
from decodescope.engine.core.conversation import parse_conversation
from decodescope.engine.model.checkpoint.prompt_source import PromptSource, parse_ids
from decodescope.engine.trace.query.titles import compose_title
from decodescope.engine.trace.records.events import LEVELS, Header, Level, PromptKind
from decodescope.engine.trace.records.parts import method_label

from .placed_key import Placement

if TYPE_CHECKING:
    from decodescope.engine.session.method import Method

MOST_NEW = 4096  # new tokens of one run on the page
PROMPT = 1 << 20  # characters of a prompt


@dataclass
class RunChoice:
    """The values of the controls.
    names: kind -> component ("sampler": a list, in order); settings: as Method.from_names takes;
    chat: whether the prompt is a user's turn, to be put into the target's chat template;
    prompt_kind: how the prompt is given: text, text with special tokens, messages in JSON, or token ids
    models: role -> model; those that a page begins with if none are named;
    level: what is recorded of the run, one of LEVELS;  ignore_eos: whether it continues after the target's end token
    reference: True: also run a full cache, which shows what the target's policy and KV compression cost; "model": also run
    the original model that the target was made from
    dtype, device: of its models; empty: each in its usual type, on the usual device"""

    prompt: str
    names: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seed: int = 0
    max_new: int = 64
    chat: bool = False
    models: Mapping[str, str] = field(default_factory=dict)
    level: str = "decisions"
    ignore_eos: bool = False
    reference: Along = False
    prompt_kind: PromptKind = "text"
    dtype: str = ""
    device: str = ""

    @property
    def source(self) -> PromptSource:
        """The prompt for a model."""
        return PromptSource(self.prompt, self.prompt_kind, self.chat)

    @property
    def place(self) -> Placement:
        """The type and device of its models; empty: the usual ones."""
        return Placement(self.dtype, self.device)

    @property
    def record_level(self) -> Level:
        """The level, if it is a valid name; raises ParamError."""
        return cast("Level", one_of(self.level, "level", LEVELS))


def method_or_none(choice: RunChoice) -> Method | None:
    """The method of a choice, whether or not there are models for it; None if the choice is invalid."""
    from decodescope.engine.session.method import Method

    try:
        return Method.from_names(choice.names, choice.settings)
    except ValueError:  # an error is reported where the method is composed
        return None


def admit_reference(choice: RunChoice, method: Method) -> None:
    """Raise RequestRefusal or MethodError if a reference is requested but nothing of it would be recorded."""
    from decodescope.engine.session.compatibility import check_reference

    check_reference(method, choice.reference)
    if choice.reference and choice.level == "summary":
        what = "the model that reads along" if choice.reference == "model" else "a full reference cache"
        raise RequestRefusal(
            f"The trace level summary records nothing of {what}: choose decisions or full, or leave it out."
        )


def admit_prompt(choice: RunChoice) -> None:
    """Raise RequestRefusal if the prompt of a choice is empty, too long, or not what its kind says."""
    if not choice.prompt.strip():
        raise RequestRefusal("Write a prompt first: the text that the model goes on with.")
    if len(choice.prompt) > PROMPT:
        raise RequestRefusal(
            f"The prompt has {len(choice.prompt)} characters and at most {PROMPT} are read: shorten it."
        )
    if choice.prompt_kind == "ids":
        parse_ids(choice.prompt)
    if choice.prompt_kind == "messages":
        parse_conversation(choice.prompt, "the prompt")


def admit_numbers(choice: RunChoice) -> None:
    """Raise RequestRefusal if the new tokens or the seed of a choice are out of range."""
    if not 1 <= choice.max_new <= MOST_NEW:
        given = "a box without a whole number" if choice.max_new == -1 else choice.max_new
        raise RequestRefusal(f"New tokens = {given}: must lie in [1, {MOST_NEW}].")
    if not 0 <= choice.seed <= SEEDS:
        given = "a box without a whole number" if choice.seed == -1 else choice.seed
        raise RequestRefusal(f"Seed = {given}: must lie in [0, {SEEDS}].")


def pending_title(method: Method, prompt: str) -> str:
    """The title of a run of this method before it has a header."""
    stub = Header(
        model={}, method=method.record(), prompt=np.zeros(0, np.int32), seed=0, parts=method.describe_parts()
    )
    return compose_title(method_label(stub), prompt)


@dataclass(frozen=True)
class Composition:
    """The method of a choice, and whether it can run.
    method: None if the choice makes none;  why: the reason against a run, as a sentence; empty if there is none
    offer: the name of a missing model that can be fetched, if that is the reason
    instead: a part that would do, "KIND NAME", if a part needs a model with the tokens of the target and has another one"""

    choice: RunChoice
    method: Method | None
    why: str
    offer: str = ""
    instead: str = ""

    @property
    def further_roles(self) -> tuple[str, ...]:
        """The roles of further models that the method needs; none if there is no method."""
        return () if self.method is None else self.method.lanes
