"""Methods in which a part acts: alone, such a part would do nothing or be refused."""

from __future__ import annotations

from typing import Any

import toys

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.core.component import KINDS, build
from decodescope.engine.core.params import ParamError

WARM = ("temperature", {"temperature": 0.9})
DRAWS_NOTHING = (  # parts that refuse a sampler which draws at random
    *(
        "beam",
        "contrastive_search",
        "diverse_beam",
        "exact_extract",
        "fallback",
        "jacobi",
        "jump_coder",
        "planned",
    ),
    "superposed",
    "aligned",  # needs a grammar, which toys.method gives it
)
BESIDE: dict[str, dict[str, Any]] = {
    "schedule": {"drafter": ("draft_model", {"max_draft_tokens": 4})},
    "acceptance": {"drafter": ("draft_model", {"max_draft_tokens": 3, "width": 2})},
    "unmasking": {"strategy": ("masked", {"block": 8})},
}
Part = tuple[str, str, dict[str, Any]]  # kind, name and settings
PARTS: list[Part] = [(kind, *part) for kind in KINDS for part in toys.variants(kind)]
ONE_EACH: list[Part] = [(kind, *part) for kind in KINDS for part in toys.representatives(kind)]


def method_with(part: Part, warm: bool = True) -> Method:
    """Return a method in which this part acts; warm: at a temperature, if the part allows one."""
    kind, name, settings = part
    parts: dict[str, Any] = {**BESIDE.get(kind, {}), kind: (name, settings)}
    if kind == "router":
        parts["strategy"] = toys.router_strategy(name)
    if kind == "acceptance":
        rule: Any = build(kind, name, settings)
        if rule.chain_only:
            parts["drafter"] = ("draft_model", {"max_draft_tokens": 3})
        elif "without_replacement" not in rule.exact_for:
            parts["drafter"] = ("chains", {"max_draft_tokens": 3, "chains": 3})
    if warm and kind != "sampler" and name not in DRAWS_NOTHING:
        parts["sampler"] = WARM
    return toys.method(**parts)


def opened(
    made: Method, target: Any, models: dict[str, Any], prompt: list[int] = toys.PROMPT, **more: Any
) -> Session | None:
    """Open the run of a method before its first step; return None if one sentence refuses the method."""
    try:
        return Session(target, made, prompt, models=models, **more)
    except (MethodError, ParamError) as refusal:
        said = str(refusal)
        assert said.endswith((".", ".)")) and "\n" not in said and len(said) < 300, said
        return None
