"""Derive a pass over a block of guesses again: what is final after it, and that this is the likeliest at its places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..checks.verdicts import best_shown_probability, is_close, shown_probability
from ..details.shapes import CanvasDetail
from ..records.events import Step


def check_fixed_point(detail: Any, step: Step, knobs: Mapping[str, Any]) -> Iterator[str]:
    """Check what is final after a pass over a block: the confirmed guesses and one token more, each the best at its place."""
    if not isinstance(detail, CanvasDetail):
        return
    tokens, fixed = detail.candidate.tolist(), len(detail.places)
    if detail.start != step.n or detail.length != len(tokens):
        yield f"its block has {detail.length} places from {detail.start} on, behind a text of {step.n} tokens"
    guesses = detail.columns.get("guess")
    if guesses is not None:
        right = next(
            (k for k, (a, b) in enumerate(zip(guesses.tolist(), tokens, strict=True)) if a != b), len(tokens)
        )
        if fixed != min(right + 1, len(tokens)):
            yield f"{fixed} tokens of the block are called final, but {right} guesses were confirmed"
    if detail.places != detail.open.tolist()[:fixed] or detail.tokens != tokens[:fixed]:
        yield f"the final tokens of its block are {detail.tokens}, and {tokens[:fixed]} were read there"
    if step.emitted != tokens[: min(fixed, len(step.emitted))]:
        yield f"it emitted {step.emitted}, but the final tokens are {tokens[:fixed]}"
    tops = step.tops
    if tops is None:
        return
    chance = None if detail.confidence is None else detail.confidence.tolist()
    for k, token in enumerate(step.emitted[: len(tokens)]):
        own = shown_probability(tops, k - 1, token)
        if (
            own is None
            or (chance is not None and not is_close(own, chance[k]))
            or own < best_shown_probability(tops, k - 1) * (1 - 1e-6)
        ):
            yield f"token {k} of the block is not the likeliest that its place shows, with the probability that it is given"
