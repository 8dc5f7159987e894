"""The mask token of a target that was tuned to guess from it: the knob, the id, and refusals."""

from __future__ import annotations

from typing import Any

from decodescope.engine.core.component import param
from decodescope.engine.core.spec import ModelSpec

AS_CONFIG_SAYS = -1


def mask_knob() -> Any:
    """The knob `mask_token` of a drafter whose target guesses from masks."""
    return param(
        AS_CONFIG_SAYS,
        low=AS_CONFIG_SAYS,
        high=1 << 24,
        help="id of the token that the model was tuned to guess from; -1: the mask token of its config.json",
    )


def mask_id(knob: int, spec: ModelSpec) -> int | None:
    """The id that `mask_knob` means for a model; None: its config.json names none."""
    return spec.mask_token if knob == AS_CONFIG_SAYS else knob


def mask_refusal(drafter: str, knob: int, spec: ModelSpec) -> str | None:
    """Why `drafter` cannot use the mask that its knob means, and what to do; None if it can."""
    mask = mask_id(knob, spec)
    if mask is None:
        return (
            f"{drafter} guesses from a mask token, and the config.json of {spec.name} names none: set "
            "drafter.mask_token to the id that the model was tuned with, or choose the drafter prompt_lookup."
        )
    if mask >= spec.vocab:
        return f"{drafter}.mask_token is {mask}, and {spec.name} knows {spec.vocab} ids; set one below that."
    return None
