"""Tally: the message fields on what a step tried by itself, with the thresholds that decided."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from decodescope.engine.trace.records.events import Header, Piece, Step
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.decision.choice_tally import choice_tally
from decodescope.lab.decision.details import details_tally
from decodescope.lab.decision.tally import find_tally

ROOM = 1536  # bytes of the rows of a step that is not requested
LONGEST = 96  # characters of what was tried


def encode_tally(header: Header, step: Step, text: Callable[[int], Piece], whole: bool) -> dict[str, Any]:
    """tally: {"title", "says", "heads": what number and threshold are, "lines": sentences, "rows": [[text, number,
    threshold, whether it holds by the record, what became of it], ...], "at": the row where a reader looks first, from 1, if
    that is not the first}, or nothing. Unless `whole`, rows above ROOM are left out, and "few" says so. turn: the same for
    what is shown below the step's own decision, or for how guidance chose."""
    card = find_tally(header, step, named := lambda ids: join(ids, {x: text(x) for x in ids}))
    key = "turn" if card is None else "tally"
    card = card or details_tally(header, step, named, beside=True) or choice_tally(step, named)
    if card is None:
        return {}
    rows = [[x.text[:LONGEST], x.number, x.bar, int(x.holds), x.word] for x in card.rows]
    message: dict[str, Any] = {
        "title": card.title,
        "says": card.says,
        "heads": [card.number, card.bar],
        "lines": card.lines,
    }
    if card.at:
        message["at"] = card.at + 1
    if (
        not whole
        and len(json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")) > ROOM
    ):
        return {key: message, "few": True}
    return {key: message | {"rows": rows}}


def max_tally_rows(step: Step) -> int:
    """How many rows the tally of a step has at most."""
    own = sum(len(x) for x in step.details or () if x.shape == "tally")
    choices = sum(len(choice.candidates) for choice in step.choices or ())
    return max(own, choices)
