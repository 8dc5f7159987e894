"""Lanes: the message fields on rows drawn in lanes over the steps, such as tokens by the model that wrote them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decodescope.engine.trace.details.declarations import LaneForm, TallyForm
from decodescope.engine.trace.details.tally import TallyReading
from decodescope.engine.trace.records.events import Header, Piece, Step
from decodescope.lab.decision.details import tally_readings

from .scale import encode_scale_view


def encode_lanes(header: Header, step: Step, text: Callable[[int], Piece]) -> dict[str, Any]:
    """lanes: {"of": name in the head's `views`, "bar": number, "caught": rows that were read first, "passes": of
    each lane, the uppermost first, "tried": [[sign of the lane, token, number, mean, whether it stays], ...]}, or nothing."""
    for read in tally_readings(header, step):
        if (form := read.form.lanes) is not None:
            return {"lanes": _encode_lane_rows(read, form, step, text)}
    return {}


def _encode_lane_rows(
    read: TallyReading, form: LaneForm, step: Step, text: Callable[[int], Piece]
) -> dict[str, Any]:
    tried = []
    for scope, outcome in zip(read.rows, read.outcomes, strict=True):
        if form.drawn and scope.holds(form.drawn) is False:
            continue
        token = scope.entry(form.token)
        mean = scope.value(form.mean) if form.mean else None
        sign = form.lanes[scope.entry(form.column)].sign
        number = scope.value(form.number)
        tried.append(
            [sign, "" if token is None else text(token), number, mean, int(outcome.holds or not form.back)]
        )
    caught = read.whole_scope.value(form.caught) if form.caught else None
    return {
        "of": read.detail.name,
        "bar": read.whole_scope.value(form.bar),
        "caught": 0 if caught is None else int(caught),
        "passes": [sum(one.lane == lane.role for one in step.passes) for lane in form.lanes.values()],
        "tried": tried,
    }


def encode_views(header: Header) -> dict[str, Any]:
    """views: name of a detail -> the words of the views that draw its rows, "lanes" and "scale"; or nothing."""
    words = {name: _encode_view(form) for name, form in header.details.items() if isinstance(form, TallyForm)}
    words = {name: view for name, view in words.items() if view}
    return {"views": words} if words else {}


def _encode_view(form: TallyForm) -> dict[str, Any]:
    view = {} if form.lanes is None else {"lanes": _encode_lane_view(form.lanes)}
    return (
        view
        if form.scale is None or not form.scale.title
        else view | {"scale": encode_scale_view(form.scale)}
    )


def _encode_lane_view(form: LaneForm) -> dict[str, Any]:
    return {
        "title": form.title,
        "says": form.says,
        "lanes": [[lane.sign, lane.name] for lane in form.lanes.values()],
        "what": form.what,
        "head": form.head,
        "most": form.most,
        "mean": bool(form.mean),
        "bar": form.bar_name,
        "caught": bool(form.caught),
        "back": form.back,
    }
