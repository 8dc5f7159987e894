"""Prompt: the end of a run's prompt for a view, and which of its tokens the target did not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decodescope.engine.trace.records.events import Header, Piece, Prefill

PROMPT = 512  # tokens of the prompt that a view gets, counted from its end


def encode_prompt_tail(
    header: Header, prefill: Prefill | None, text: Callable[[int], Piece]
) -> dict[str, Any]:
    """prompt: its last tokens, [id, text], or [id, text, 0] for one that the target did not read;  prompt_tokens: the total
    number;  prompt_read: how many of them were read, if not all."""
    ids, cut = header.prompt.tolist(), None if prefill is None else prefill.cut
    first = max(0, len(ids) - PROMPT)
    left = set() if cut is None else {*range(first, len(ids))} - {*cut.kept.tolist()}
    rows = [[token, text(token)] + [0] * (i in left) for i, token in enumerate(ids[first:], first)]
    return {
        "prompt": rows,
        "prompt_tokens": len(ids),
        **({} if cut is None else {"prompt_read": len(cut.kept)}),
    }
