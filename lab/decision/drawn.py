"""Drawn: the texts that a step drew, and which of them becomes the run's, told."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from decodescope.engine.trace.events import Drawn

from .tallies import Row, Tally


def drawn(record: Drawn, text: Callable[[Sequence[int]], str]) -> Tally:
    """A card of the texts of a step."""
    stop = record.first + len(record.texts)
    says = f"text {stop} of {record.of} drawn, " + ("the run's text" if record.chosen is not None else "the last is the run's")
    card = Tally("A text drawn", says, "ln p, the model's", "")
    for k, one in enumerate(record.texts):
        fate = "the run's text" if k == record.chosen else "drawn"
        word = ", ".join([fate, f"{len(one.tokens)} tokens", *([] if one.ended else ["cut at the limit"])])
        card.rows.append(Row(text(one.tokens), one.logp, None, True, word))
    if record.bound is not None:
        mass = f"{math.exp(record.bound):.4g}" if record.bound > -300 else f"exp({record.bound:.1f})"
        card.lines.append(f"By all texts so far the grammar has at most {mass} of the model's mass.")
        card.lines.append("A token is weighed by what of its mass may still be allowed behind it, as far as that was read.")
    return card
