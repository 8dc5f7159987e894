"""Any two parts of two kinds together: the run that they make, or the sentence that refuses them."""

from __future__ import annotations

import re

import toys

from decodescope.engine import MethodError, Session


def whole(parts: dict) -> dict:
    """Add the part that a kind needs: a drafter for a schedule, a canvas for a selector, two models for a router."""
    beside = {"drafter": ("draft_model", {"max_draft_tokens": 4})} if "schedule" in parts else {}
    beside |= (
        {"strategy": ("masked", {"block": 8})} if "unmasking" in parts and "schedule" not in parts else {}
    )
    beside |= (
        {"strategy": toys.router_strategy(parts["router"][0])}
        if "router" in parts and "schedule" not in parts
        else {}
    )
    return {**beside, **parts}


def opened(parts: dict, count: int = 12, **more) -> Session | str:
    """Open the run of these parts before its first step, or return the sentence that refuses them before anything runs."""
    method = toys.method(**whole(parts))
    target, models = toys.method_models(method)
    try:
        return Session(target, method, toys.PROMPT, models=models, max_new_tokens=count, **more)
    except MethodError as refusal:
        said = str(refusal)
        assert said.endswith((".", ".)")) and "\n" not in said and len(said) < 300
        assert any(word in said for word in ("choose", "Choose", "leave", "use ")), f"no way out: {said}"
        assert sum(x[0] in said for x in parts.values()) >= 1, f"names no part: {said}"
        return said


def refusal(parts: dict) -> str:
    """The sentence of a refusal; empty if the parts fit."""
    return said if isinstance(said := opened(parts), str) else ""


def sort_of(said: str, parts: dict) -> str:
    """The first clause of a refusal with kinds instead of names; refusals are counted under it."""
    clause = re.split(r"[;.:] |, so ", said)[0]
    for kind, part in whole(parts).items():
        clause = re.sub(rf"\b{part[0]}\b", f"[{kind}]", clause)
    return clause
