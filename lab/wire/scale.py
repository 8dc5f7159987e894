"""Scale: the message fields on rows drawn as bars on one axis, with the line of a bar through all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from decodescope.engine.trace.details.declarations import ScaleForm
from decodescope.engine.trace.details.tally import TallyReading
from decodescope.engine.trace.records.events import Header, Piece, Step
from decodescope.engine.trace.records.pieces import join
from decodescope.engine.trace.values.formula import sentence
from decodescope.lab.decision.details import tally_readings

ROOM = 1536  # bytes of the rows of a step that is not requested
LONGEST = 240  # characters of a text


def encode_scale(header: Header, step: Step, text: Callable[[int], Piece], whole: bool) -> dict[str, Any]:
    """The message fields on the rows of a step that are drawn on a scale, or nothing.

    scale: {"of": name in the head's `views`, "bar": number, "axis", "ruling", "lines": sentences, "figures": sentences, "part":
    a sentence on prices in parts, null where the share in percent is written, "rows": [[class, text, whether it can be pressed,
    number or null, the same as it is written, words], ...]}. A class is "kept" or "lost" where the bar decided, "other" where
    it did not, "voted" where rows have no bars. Unless `whole`, rows above ROOM are left out, and "few" says so.
    """

    def named(ids: Sequence[int]) -> str:
        return join(ids, {x: text(x) for x in ids})

    drawn = [
        (read, form) for read in tally_readings(header, step, named) if (form := read.form.scale) is not None
    ]
    if not drawn:
        return {}
    first, form = drawn[0]
    about = first.whole_scope
    message: dict[str, Any] = {
        "of": first.detail.name,
        "bar": about.value(form.bar) if form.bar else None,
        "axis": about.say_first(form.axis),
        "ruling": about.say_first(form.ruling),
        "lines": about.say_all(form.lines),
        "figures": about.say_all(form.figures),
    }
    if form.prices is not None:
        part = next((one.text for one in form.prices.part if about.applies(one)), "")
        message["part"] = [x if isinstance(x, str) else None for x in sentence(part)]
    rows = [
        row
        for read, own in drawn
        if read.form.title == first.form.title
        for row in _encode_scale_rows(read, own, named)
    ]
    if (
        not whole
        and len(json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")) > ROOM
    ):
        return {"scale": message, "few": True}
    return {"scale": message | {"rows": rows}}


def _encode_scale_rows(
    read: TallyReading, form: ScaleForm, text: Callable[[Sequence[int]], str]
) -> list[list[Any]]:
    """The rows of one tally."""
    rows: list[list[Any]] = []
    for index in read.listed_rows:
        scope, outcome = read.rows[index], read.outcomes[index]
        decided = "kept" if outcome.holds else "lost"
        if not outcome.bar:
            decided = "other"
        kind = decided if form.value else "voted"
        ids = scope.entry(form.tokens) if form.tokens else None
        name = scope.say_first(read.form.row) if ids is None else text(ids)[:LONGEST]
        number = scope.value(form.value) if form.value else None
        words = ", ".join(scope.say_all(form.words))
        rows.append([kind, name, int(ids is not None), number, scope.say_first(form.figure), words])
    return rows


def encode_scale_view(form: ScaleForm) -> dict[str, Any]:
    """The words of the view, which are sent in the head."""
    view: dict[str, Any] = {
        name: getattr(form, name) for name in ("title", "says", "caption", "row", "number", "absent")
    }
    if (prices := form.prices) is not None:
        lanes = [[lane, word] for lane, word in prices.lanes.items()]
        view["prices"] = {"title": prices.title, "lanes": lanes, "together": prices.together}
    return view
