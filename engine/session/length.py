"""Length: how many tokens of text the models of a run read, which model sets that, and what to do about a longer prompt."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from decodescope.engine.core.component import build
from decodescope.engine.core.roles import TARGET, role_option
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.decoding.shared.prefill_time import describe_prefill_time

from .method import Method, MethodError

if TYPE_CHECKING:
    from .load import Model

ENDLESS = 1 << 40  # tokens: nothing limits a text but the number that was asked for


@dataclass(frozen=True)
class LengthLimit:
    """A limit on tokens, and the sentence that explains it.

    tokens: of prompt and answer together;  limit: a sentence without its full stop, which names the model, the number and the
    key that sets it.
    """

    tokens: int
    limit: str = ""

    @property
    def full_message(self) -> str:
        """Why a text ended there."""
        limit = self.limit[:1].upper() + self.limit[1:]
        return f"{limit}, and so many are written: the text ends there."

    def cut_message(self, prompt: int, asked: int) -> str:
        """What happens to the `asked` new tokens behind a prompt of so many tokens; empty: all of them fit."""
        room = self.tokens - prompt
        return "" if asked <= room else f"{self.limit}, which leaves {room} behind this prompt of {prompt}"


def length_limit(method: Method, models: Mapping[str, Model], prompt: int) -> LengthLimit:
    """How many tokens all of the models of a run, by role, read. An endless policy removes the target's own limit.

    Raises MethodError where a prompt of `prompt` tokens leaves no room for an answer.
    """
    own = _target_limit(method, models[TARGET])
    others = [_role_limit(role, x) for role, x in models.items() if role != TARGET]
    endless = method.policy.can_exceed_context(models[TARGET].spec, prompt)
    limits: list[LengthLimit] = others if endless else [own, *others]
    tightest = min(limits, key=lambda x: x.tokens, default=LengthLimit(ENDLESS))
    if prompt < tightest.tokens:
        return tightest
    what, ways = f"the prompt has {prompt} tokens, and {tightest.limit}", "shorten the prompt"
    further = min(others, key=lambda x: x.tokens, default=LengthLimit(ENDLESS))
    if prompt < further.tokens:
        way = next(_policy_advice(method, models, prompt), "take a model that reads more")
    else:
        role = next(role for role, x in models.items() if role != TARGET and _role_limit(role, x) == further)
        way = f"name a model that reads more with {' '.join(role_option(role))}"
    raise MethodError(f"{what}: {ways}, or {way}.")


def _target_limit(method: Method, model: Model) -> LengthLimit:
    """The tokens of a text that the target reads, less the entries that a prompt compression adds."""
    aside = method.prompt_compression.extra_entries(model.decoder)
    less = f", {aside} of them taken by {method.prompt_compression.name}" if aside else ""
    return LengthLimit(model.spec.max_positions - aside, f"the model {model.spec.reading_limit}{less}")


def _role_limit(role: str, model: Model) -> LengthLimit:
    """The tokens that a further model reads."""
    return LengthLimit(model.spec.max_positions, f"the {role} model {model.spec.reading_limit}")


def _policy_advice(method: Method, models: Mapping[str, Model], prompt: int) -> Iterator[str]:
    """Policies under which the target can still read a prompt of `prompt` tokens; only those that go with the other parts."""
    target = models[TARGET]
    for policy, chosen in _smaller_policies(method.policy, target.spec.max_positions):
        if not policy.can_exceed_context(target.spec, prompt):
            continue
        try:
            replace(method, policy=policy).check(target.spec, models)
        except MethodError:
            continue
        kept = prompt if policy.budget is None else policy.budget
        entries = "all" if policy.budget is None else kept
        says = f"which keeps {entries} entries: {describe_prefill_time(target.decoder, prompt, kept)}"
        yield f"use the policy {policy.name}{chosen}, {says}"


def _smaller_policies(policy: CachePolicy, limit: int) -> Iterator[tuple[CachePolicy, str]]:
    """Policies that keep a cache small, with their settings where these are not the defaults: the method's own, then others."""
    for one in (policy, cast(CachePolicy, build("policy", "streaming_llm"))):
        if one is not policy:
            yield one, ""
        small, before = copy.copy(one), one.knobs()
        small.budget_share = 0.0
        small.set_budget(limit // 2)
        changed = {knob: x for knob, x in small.knobs().items() if x != before[knob]}
        if one.bounded and changed:
            yield small, " with " + " and ".join(f"{knob} = {x:g}" for knob, x in changed.items())
