"""Runs of strategies that fill places, to their end, with records that derive again."""

from __future__ import annotations

import toys

from decodescope.engine import Session
from decodescope.engine.trace import check
from decodescope.engine.trace.records.events import Fill


def filled(session: Session) -> Session:
    """The session at its end; check has found nothing wrong, and nothing that it could not derive."""
    report = check(toys.finished(session).sink)
    assert report.ok and report.counts["fills"] == len(session.sink.steps) and not report.notes, str(report)
    return session


def fills(session: Session) -> list[Fill]:
    """What each step filled."""
    return [step.fill for step in session.sink.steps]
