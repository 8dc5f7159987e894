"""Messages: a whole trace as messages for its views, with parts left out where a file or a notebook wants less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.trace import Prefill, Step, Trace
from decodescope.engine.trace.details.shapes import CanvasDetail

from .tally import max_tally_rows
from .wire import Wire, encode, end_message

PLENTY = 4 << 20  # bytes of steps with their trees; later ones come without, and are requested one by one


def build_wire(trace: Trace, text: bool = True, profile: HardwareProfile | None = None) -> Wire:
    """A wire that has learned all of `trace`; without `text` it knows token ids only. profile: of the run's machine"""
    wire = Wire(trace.header if text else replace(trace.header, pieces={}), profile)
    for record in ([trace.prefill] if trace.prefill is not None else []) + list(trace.steps):
        wire.learn(record if text else _drop_pieces(record))
    return wire


def messages(
    trace: Trace,
    *,
    first: int = 0,
    last: int | None = None,
    text: bool = True,
    plenty: int = PLENTY,
    profile: HardwareProfile | None = None,
) -> Iterator[dict[str, Any]]:
    """Head, steps up to `last`, and the end. Steps before `first`, and those beyond `plenty` bytes, come without trees."""
    wire, spent = build_wire(trace, text, profile), 0
    yield wire.head()
    stop = len(trace.steps) if last is None else min(last + 1, len(trace.steps))
    for step in trace.steps[:stop]:
        message = wire.step(step, whole=True) if step.step >= first and spent <= plenty else wire.brief(step)
        spent += len(encode(message))
        yield message
    if trace.end is not None and stop == len(trace.steps):
        yield end_message(trace.end)


def _drop_pieces(record: Prefill | Step) -> Prefill | Step:
    """The record without pieces of text."""
    return replace(record, pieces=None) if isinstance(record, Step) else record


def max_node_number(step: Step) -> int:
    """The highest number that a view gives to a node of a step.
    It covers the nodes of its draft and the target's own token after them, else the tokens of its block, its threads, the
    places of its canvas, or what it tried by itself. Nodes of trees are counted by `max_tree_node_number`."""
    drafted = 0 if step.draft is None else len(step.draft.tokens)
    threads = step.detail_of("threads") or []
    canvas: CanvasDetail | None = step.detail_of("canvas")
    places = 0 if canvas is None else canvas.length
    own = drafted + (step.extra is not None)
    return max(own, len(threads), places, len(step.emitted), max_tally_rows(step))
