"""Machine load: the message field on other programs on the machine of a run."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace.records.environment import Environment


def encode_machine_load(one: Environment | None) -> dict[str, Any]:
    """The load detected after a step: threads before and after, and how many times as long as usual passes took."""
    if one is None:
        return {}
    return {"environment": {"before": one.before, "after": one.after, "slower": one.slower}}
