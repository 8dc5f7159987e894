"""Prompt cut: the tokens that a prompt compression kept, for the view that cuts again, and the cost of its look at the
prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.trace.records.events import Header, Pass, Piece, Prefill
from decodescope.engine.trace.records.parts import part_description
from decodescope.engine.trace.records.prompt_cut import reasons

MOST = 4096  # maximum tokens of a prompt that is drawn; of a longer one nothing is drawn


def encode_prompt_cut(
    header: Header, prefill: Prefill | None, passes: PassPricer, text: Callable[[int], Piece]
) -> dict[str, Any] | None:
    """The tokens that a prompt compression left out; None: it left nothing out, or the prompt is too long to be drawn.

    The arrays are those of the record's cut, and `texts` are the tokens' texts. Without a recorded reason, tokens that were
    read count as read for their score.

    guess: whether the scores would change with another budget;  looked, read, whole: [rows, FLOP or None, seconds or None] of
    the scoring passes, of the target's passes over the remaining tokens, and of one over the whole prompt
    """
    cut, ids = None if prefill is None else prefill.cut, header.prompt.tolist()
    if prefill is None or cut is None or len(ids) > MOST:
        return None
    looked, read = ([x for x in prefill.passes if x.phase == phase] for phase in ("score", "prefill"))
    target = [x for x in read if x.lane == "target"]
    whole = Pass("target", "prefill", max(1, len(ids) - 1), 0, 1.0)
    return {
        "texts": [text(token) for token in ids],
        "reason": reasons(cut, len(ids)).tolist(),
        "unit": cut.unit,
        "budget": cut.budget if cut.reason is not None and cut.scores is not None else None,
        "scores": _round_float32(cut.scores),
        "worth": _round_float32(cut.worth),
        "units": None if cut.units is None else cut.units.tolist(),
        "parts": None if cut.parts is None else cut.parts.tolist(),
        "near": cut.near,
        "guess": cut.parts is not None,
        "by": part_description(header, "prompt_compression").get("title")
        or (header.method.get("prompt_compression") or {}).get("name", ""),
        "lane": looked[0].lane if looked else "",
        "looked": _pass_costs(looked, passes),
        "read": _pass_costs(target, passes),
        "whole": [*_pass_costs([whole], passes)[:2], None],
    }


def _round_float32(values: np.ndarray | None) -> list[float] | None:
    """All digits of a float32, and no more: equal values stay equal, and their order is that of the record."""
    return None if values is None else [float(f"{x:.9g}") for x in values]


def _pass_costs(passes: Iterable[Pass], by: PassPricer) -> list[Any]:
    rows = by.rows(passes := list(passes))
    flops = sum(x["flops"] for x in rows) if rows else None
    return [sum(x.tokens * x.batch for x in passes), flops, round(sum(x.wall_us for x in passes) / 1e6, 6)]
