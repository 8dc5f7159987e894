"""Exactness: how the text of a run relates to plain decoding of the original model, as one of four values.

The values are spelled the same in the header of a trace, in JSON and in options; a label shows them with spaces.
`engine/trace/query/causes.py` computes the value of a method and of a run. No torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

Exactness = Literal["lossless", "exact_for_settings", "lossy", "unknown"]
VALUES: tuple[Exactness, ...] = get_args(Exactness)  # from the most to the least exact
MEANINGS: dict[Exactness, str] = {
    "lossless": "identical in distribution to plain decoding of the original model under the same sampler",
    "exact_for_settings": "exact for the settings that were asked for, but not the original model's text",
    "lossy": "the text may differ from exact decoding",
    "unknown": "the record does not say how the text was made",
}


def exactness_text(exactness: str) -> str:
    """The value as people read it: "exact for settings"."""
    return exactness.replace("_", " ")


def combine_exactness(values: Iterable[Exactness]) -> Exactness:
    """The value of a text that was decoded in parts: the least exact one of the parts'."""
    return VALUES[max(map(VALUES.index, values), default=VALUES.index("unknown"))]
