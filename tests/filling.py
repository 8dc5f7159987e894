"""Runs of strategies that fill places, up to their end; their records can be derived again."""

from __future__ import annotations

from typing import Any

import toys

from decodescope.engine import Session
from decodescope.engine.trace import check
from decodescope.engine.trace.details.shapes import CanvasDetail


def filled(session: Session) -> Session:
    """Run the session to its end; check that its record has no problem and that nothing could not be derived."""
    report = check(toys.finish_session(session).sink)
    assert report.ok and report.counts["fills"] == len(session.sink.steps) and not report.notes, str(report)
    return session


def fills(session: Session) -> list[CanvasDetail]:
    """The canvas record of each step."""
    return [step.detail_of("canvas") for step in session.sink.steps]


def alter(fill: CanvasDetail, name: str, value: Any) -> None:
    """Give a field or a column another value, or the result of `value` on its own."""
    columns = name in fill.columns
    own = fill.columns[name] if columns else getattr(fill, name)
    changed = value(own) if callable(value) else value
    if columns:
        fill.columns[name] = changed
    else:
        setattr(fill, name, changed)
