"""Catalogue: the route of the page's list of methods: what each part does, what it needs, and its gain."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.http.json_answer import JsonAnswer
from decodescope.app.runs.catalogue.commands import commands
from decodescope.app.runs.catalogue.parts import heads, method_results, parts, transforms
from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.catalogue.titles import TITLES
from decodescope.app.runs.model_pool import role_title
from decodescope.app.runs.preset_choice import apply_preset
from decodescope.app.runs.preset_prompts import apply_preset_prompt
from decodescope.app.runs.recipe import PLACE, initial_choice, recipe, replace_part
from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine.core.component import registry
from decodescope.engine.core.exactness import MEANINGS
from decodescope.engine.core.roles import DRAFTS, TARGET
from decodescope.engine.session.load import requested_changes
from decodescope.engine.session.method import default_part
from decodescope.engine.trace.query.causes import causes_of_parts


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the route to the application; refused(status, sentence) makes a refusal."""

    @api.get("/ds/catalogue")
    def catalogue(request: Request) -> Response:
        chosen = query_choice(request, RunChoice("x"))
        listed = [x for x in [*parts(), *transforms()] if registry(x["kind"])[x["name"]].listed]
        shown = {
            "parts": [part_row(x, play, chosen) for x in listed],
            "presets": preset_rows(play, chosen),
            "commands": commands(),
        }
        words = {"command": method_results()["measured"]["command"], "exactness": MEANINGS}
        return JsonAnswer({**shown, **words}, headers={"cache-control": "no-store"})


def query_models(request: Request) -> dict[str, str]:
    """Role -> model of the requesting page: ?target=lab&draft=lab-draft.
    Without a target it is empty, which means the models that a page begins with."""
    asked = {role: name for role, name in request.query_params.items() if name and role not in PLACE}
    return asked if TARGET in asked else {}


def query_choice(request: Request, choice: RunChoice) -> RunChoice:
    """The choice with the models of the requesting page, and their type and device: ?target=lab&dtype=float32&device=cpu."""
    place = {name: request.query_params.get(name, "") for name in PLACE}
    return replace(choice, models=query_models(request), **place)  # type: ignore[arg-type] # these two are texts


def part_row(part: dict[str, Any], play: RunService, chosen: RunChoice) -> dict[str, Any]:
    """A part as the list shows it, checked with its default knobs together with the models of the page's choice.
    why: the reason why it cannot run; empty: it can"""
    names = ("kind", "name", "title", "idea", "source", "exactness", "headline", "measured")
    kind, name = part["kind"], part["name"]
    fits = replace_part(chosen, kind, name, play.check)
    shown = {x: part[x] for x in names} | {"headline": part["headline"].replace("`", "")}
    return shown | {
        "family": TITLES.get(kind, kind.capitalize()),
        "needs": needs(part),
        "why": play.check(fits),
    }


def needs(part: dict[str, Any]) -> list[str]:
    """The requirements of a part, in words; empty: nothing but the model."""
    asked, words = part["needs"], role_titles(part["needs"]["models"])
    words += [
        f"trained heads ({name}{', not shipped' if name in asked['missing'] else ''})"
        for name in asked["heads"]
    ]
    words += ["model without a causal mask"] * (asked["sides"] == "both")
    words += ["model of pictures"] * (asked["writes"] in ("rows", "cells"))
    words += ["Block Transformer"] * (asked["writes"] == "blocks")
    words += ["attention"] * (asked["attention"] != "none")
    return words + ["hidden states"] * (bool(asked["hidden"]) and not asked["heads"])


def role_titles(roles: Iterable[str]) -> list[str]:
    """The models in these roles, in words; several draft models count as one."""
    return list(
        dict.fromkeys("draft model" if role in DRAFTS else role_title(role).lower() for role in roles)
    )


def preset_rows(play: RunService, beside: RunChoice) -> list[dict[str, Any]]:
    """The named presets, checked together with the models of the page's choice: their parts and the query of a link."""
    begin = initial_choice()
    nothing = default_part("drafter").name
    rows = []
    for name, x in PRESETS.items():
        choice = apply_preset_prompt(
            apply_preset(RunChoice(begin.prompt, seed=begin.seed, max_new=begin.max_new), name), name, begin
        )
        knobs = {
            part: ", ".join(f"{k} {v}" for k, v in values.items()) for part, values in x.settings.items()
        }
        said = []
        for kind, chosen in x.names.items():
            for one in [chosen] if isinstance(chosen, str) else chosen:
                more = knobs.get(one if kind == "sampler" else kind, "")
                word = registry(kind)[str(one)].title or str(one)
                said += [f"{word} ({more})" if more else word] * ((kind, one) != ("drafter", nothing))
        own = replace(choice, models=beside.models, **beside.place._asdict())
        composed = play.compose(apply_preset(own, name, play.models.names))
        method = composed.method
        assert method is not None, "a preset makes a method"
        target = requested_changes((composed.choice.models or play.models.names).get(TARGET, ""))
        trained = sorted({word for part in method.parts().values() for word in heads(part)})
        row: dict[str, Any] = {
            "kind": "preset",
            "family": "Preset",
            "name": name,
            "title": x.title,
            "idea": x.says,
            "made": " + ".join(said),
            "source": "",
            "exactness": causes_of_parts(method.record(), method.describe_parts(), target).exactness,
            "headline": "",
            "measured": None,
            "needs": role_titles(method.lanes) + [f"trained heads ({word})" for word in trained],
            "why": composed.why,
            "link": recipe(choice, play.models.names, "link"),
        }
        rows.append(row)
    return rows
