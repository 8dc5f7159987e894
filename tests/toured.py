"""What tests of guided tours read: the runs of examples, and the texts of stops about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from decodescope.app.runs.catalogue.examples import examples
from decodescope.app.runs.catalogue.tours import TourStop, tours
from decodescope.engine.trace import Step, Trace, open_trace
from decodescope.lab.wire.messages import messages

TOURS = tours()
NEAR = 1e-3  # distance of two logits; on another machine either may be greater


@contextmanager
def opened(name: str) -> Iterator[Trace]:
    """The trace of an example."""
    trace = open_trace(next(x.path for x in examples() if x.name == name))
    try:
        yield trace
    finally:
        trace.close()


def told(name: str) -> list[dict[str, Any]]:
    """The steps of an example as the views get them."""
    with opened(name) as trace:
        return [x for x in messages(trace) if x["kind"] == "step"]


def steps_of(name: str) -> list[Step]:
    """The steps of an example as they are recorded."""
    with opened(name) as trace:
        return list(trace.steps)


def rows(step: dict[str, Any]) -> list[list[Any]]:
    """The nodes of a step.

    In a settling block they are its tokens; the final ones count as accepted. In a canvas they are its places, which count as
    accepted once they are settled. Each of several texts side by side has one node.
    """
    side = len(step.get("threads", {}).get("alive", ())) or len(
        step.get("branches", {}).get("open", {}).get("tokens", ())
    )
    if side:
        return [*step["nodes"], *([k, *[None] * 5, "target"] for k in range(side))]
    if "canvas" in step:
        fill = step["canvas"]
        waiting, (first, length) = {*fill["open"]} - {x[0] for x in fill["now"]}, fill["at"]
        places = range(first, first + length)
        return [
            *step["nodes"],
            *([x, *[None] * 5, "unreached" if x in waiting else "accept"] for x in places),
        ]
    if "tally" in step:
        tried = step["tally"]["rows"]
        return [
            step["nodes"][0],
            *([k, *[None] * 5, "accept" if x[3] else "reject"] for k, x in enumerate(tried)),
        ]
    if "chain" not in step:
        return list(step["nodes"])
    block = step["chain"]
    after = [[k, text, token, None, None, None, "accept"] for k, (token, text) in enumerate(block["after"])]
    return [step["nodes"][0], *(row if k < block["fixed"] else row[:4] for k, row in enumerate(after))]


def says(stop: TourStop, *numbers: float, digits: int = 4) -> None:
    """Assert that the text of the stop has these numbers, as they are recorded."""
    for number in numbers:
        assert f"{number:.{digits}f}" in stop.text, (stop.title, number)


def origins(step: dict[str, Any]) -> list[str]:
    """The origins of a step's tokens."""
    return [origin for *_, origin in step["made"]]


def notes(step: Step) -> dict[str, Any]:
    """The drafter's notes on its draft."""
    assert step.draft is not None and step.draft.notes is not None
    return step.draft.notes


def text_of(steps: list[dict[str, Any]]) -> str:
    """The written text."""
    return "".join(piece for step in steps for _, piece, _ in step["made"])


def cache_of(name: str) -> list[Any]:
    """The records of the target's cache in an example, step by step."""
    return [next(x for x in step.cache if x.lane == "target") for step in steps_of(name)]


def likely(step: Step) -> list[float]:
    """The probabilities of the likeliest tokens of a plain step, in doubles."""
    assert step.tops is not None
    return [float(x) for x in step.tops.p[0]]
