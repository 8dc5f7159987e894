"""Runs of strategies that fill places, to their end, with records that derive again."""

from __future__ import annotations

from typing import Any

import toys

from decodescope.engine import Session
from decodescope.engine.trace import check
from decodescope.engine.trace.details.shapes import CanvasDetail


def filled(session: Session) -> Session:
    """The session at its end; check has found nothing wrong, and nothing that it could not derive."""
    report = check(toys.finish_session(session).sink)
    assert report.ok and report.counts["fills"] == len(session.sink.steps) and not report.notes, str(report)
    return session


def fills(session: Session) -> list[CanvasDetail]:
    """What each step filled."""
    return [step.detail_of("canvas") for step in session.sink.steps]


def alter(fill: CanvasDetail, name: str, value: Any) -> None:
    """Give a field or a column another value, or what `value` makes of its own."""
    columns = name in fill.columns
    own = fill.columns[name] if columns else getattr(fill, name)
    changed = value(own) if callable(value) else value
    if columns:
        fill.columns[name] = changed
    else:
        setattr(fill, name, changed)
