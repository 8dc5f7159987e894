"""Joint texts: how many tokens a step wrote at once, and the texts of that length that it offered."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..details.shapes import TallyDetail
from ..records.events import Step

LENGTHS, TEXTS = "joint_lengths", "joint_texts"
ROUNDING = 1e-9  # of a sum of doubles


def joint_problems(detail: TallyDetail, step: Step, knobs: Mapping[str, Any]) -> Iterator[str]:
    """Contradictions between the two tallies of a step and what it emitted, a phrase each. Their forms cover the rest."""
    lengths, texts = step.detail(LENGTHS), step.detail(TEXTS)
    if detail.name == TEXTS:
        if lengths is None:
            yield "it offers texts, and says nothing of their length"
        return
    written, best = lengths.values.get("written"), lengths.columns.get("joint", [])
    if texts is None:
        if written != 1 or len(step.emitted) != 1:
            yield f"it emitted {len(step.emitted)} tokens, and no text of several was chosen"
        return
    rows, chosen = texts.columns.get("text", []), texts.values.get("chosen")
    if (
        lengths.values.get("texts") != len(texts)
        or not rows
        or any(x is None or len(x) != written for x in rows)
    ):
        yield f"its {len(texts)} texts are not {lengths.values.get('texts')} of {written} tokens"
    elif (
        type(written) is not int
        or not 1 < written <= len(best)
        or not _is_close(texts.values.get("best"), best[written - 1])
    ):
        yield f"its best text has {texts.values.get('best')}, which is not what is recorded of that length"
    elif type(chosen) is not int or not 1 <= chosen <= len(rows):
        yield f"it wrote text {chosen} of {len(rows)}"
    elif step.emitted != rows[chosen - 1][: len(step.emitted)] or not step.emitted:
        yield f"it emitted {step.emitted}, and the text that it chose is {rows[chosen - 1]}"


def _is_close(a: Any, b: Any) -> bool:
    """True if two numbers are equal up to rounding."""
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return numbers and math.isclose(a, b, rel_tol=ROUNDING)
