"""Lanes: the models of a run by role: whether each role has one, all but the target, and the session that reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.engine.core.reference import without_weights
from decodescope.engine.core.roles import DRAFTS, TARGET, WHOLE

from .composition import RunChoice
from .model_pool import role_title
from .placed_key import join_key, split_key

if TYPE_CHECKING:
    from decodescope.engine.model.forward.executor import Executor
    from decodescope.engine.session.load import Model
    from decodescope.engine.session.method import Method
    from decodescope.engine.session.session import Session


DRAFT = "draft"  # the role that another model can take from a step of a fork on
NEW_DRAFT = "new_draft"  # the role of that model, next to the one that it replaces


def final_models(names: Mapping[str, str]) -> dict[str, str]:
    """Role -> key of the models that a run ends with: a draft model that took another's place has its role."""
    last = {role: key for role, key in names.items() if role not in (WHOLE, NEW_DRAFT)}
    return last | ({DRAFT: names[NEW_DRAFT]} if NEW_DRAFT in names else {})


def without_target(models: Mapping[str, Model]) -> dict[str, Model]:
    """All but the target."""
    return {role: model for role, model in models.items() if role != TARGET}


def make_session(
    choice: RunChoice, method: Method, models: Mapping[str, Model], executor: Executor | None = None
) -> Session:
    """Create the session of a choice with this method on these models. Raises MethodError and ParamError.
    executor: a Seat, if the session runs together with others"""
    from decodescope.engine.session.run import encode_source
    from decodescope.engine.session.session import Session

    target, source = models[TARGET], choice.source
    return Session(
        target,
        method,
        encode_source(target, source),
        models=without_target(models),
        max_new_tokens=choice.max_new,
        seed=choice.seed,
        stop_tokens=[] if choice.ignore_eos else None,
        chat=source.is_templated,
        turn=source.turn,
        prompt_kind=source.kind,
        level=choice.record_level,
        reference=choice.reference,
        executor=executor,
    )


def check_roles(method: Method, names: Mapping[str, str]) -> None:
    """Raise RequestRefusal if a role that the method reads has no model, or there is none to decode with."""
    if TARGET not in names:
        raise RequestRefusal(f"A run needs a model to decode with: choose one under {role_title(TARGET)}.")
    lacking = [role for role in method.lanes if role not in names]
    if not lacking:
        return
    part = next(x for x in method.used_parts.values() if lacking[0] in x.lanes)
    needed, there = ([x for x in roles if x in DRAFTS] for roles in (part.lanes, names))
    if len(needed) > 1 and lacking[0] in DRAFTS:
        raise RequestRefusal(
            f"{part.title or part.name}, as set, needs {len(needed)} draft models and the page has {len(there)}: choose more "
            f"under {role_title(DRAFTS[0])}, or fewer in its settings."
        )
    word = role_title(lacking[0])
    article = "an" if word[0] in "AEIOU" else "a"
    raise RequestRefusal(
        f"{part.title or part.name} needs {article} {word.lower()}: choose one under {word}."
    )


def reference_model(choice: RunChoice, target: str, key: Callable[[str], str | None]) -> dict[str, str]:
    """Role -> key of the model that the target was made from, if it is the reference. key(name): key of an existing model"""
    if choice.reference != "model":
        return {}
    base, place = split_key(target)
    name = str(without_weights(base)[0])
    return {WHOLE: join_key(key(name) or name, place)}
