"""Hardware: the routes of the Hardware page: a run priced on its own machine, on another one, and with other models."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.basis.refusal import RequestRefusal, explain_error
from decodescope.app.http.json_answer import JsonAnswer
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import GONE, RunService
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.hardware import DEVICES, HardwareProfile
from decodescope.lab.cost.pricer import SHAPES, STEPS, PricedRun, Pricer, cost_deviation

OWN = "own"  # the device with figures given in the question
KEPT = 32  # answers in memory
FIGURES = {  # figures of the user's own device: name in the question -> what it is, unit, factor to SI, lowest, highest
    "bandwidth": ("Bandwidth", "GB/s", 1e9, 0.1, 1e6),
    "peak": ("Peak", "TFLOP/s", 1e12, 0.001, 1e6),
    "launch": ("Launch", "µs", 1.0, 0.0, 1e5),
}


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""
    prices = RunPrices(play)

    @api.get("/ds/hardware")
    def choices() -> Response:
        devices = [
            {
                "key": key,
                "name": x.name,
                "kind": x.kind,
                "source": x.source,
                "bandwidth": x.bandwidth,
                "peak": x.peak(),
            }
            for key, x in DEVICES.items()
        ]
        models = [{"key": key, "name": x.name, "params": x.params} for key, x in prices.shapes().items()]
        return json_response({"devices": devices, "models": models})

    async def of(run: str, work: Callable[[RecordStream], Any]) -> Response:
        def begun(channel: RecordStream) -> Any:
            if channel.wire is None:
                raise RequestRefusal("The run has not begun: there is nothing to price yet.", 409)
            return work(channel)

        return await answer_for_run(play, refused, run, begun, "This record cannot be priced")

    @api.get("/ds/run/{run}/hardware")
    async def hardware(run: str, request: Request) -> Response:
        asked = {
            name: request.query_params.get(name, "")[:80] for name in ("device", "target", "draft", *FIGURES)
        }
        threads = None if play.models.threads is None else play.models.threads.record()
        return await of(
            run, lambda x: {**prices.price(x, {k: v for k, v in asked.items() if v}), "threads": threads}
        )

    @api.get("/ds/run/{run}/operators")
    async def operators(run: str, request: Request) -> Response:
        number = request.query_params.get("step", "")

        def work(channel: RecordStream) -> dict[str, Any]:
            steps = (
                channel.steps(int(number), int(number) + 1) if number.isdigit() and len(number) < 10 else []
            )
            if not steps:
                raise RequestRefusal(f"The run has {channel.count} steps, and none with this number.")
            machine = _measured_machine(channel) or DEVICES["a100-80g"]  # only sizes are reported, no times
            return {"step": int(number), "rows": Pricer(_pricer_run(channel, 1), machine).operators(steps[0])}

        return await of(run, work)


class RunPrices:
    """The prices of runs, elsewhere and here; the latest KEPT answers are kept."""

    def __init__(self, play: RunService):
        self._play = play
        self._known: OrderedDict[tuple[Any, ...], dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def shapes(self) -> dict[str, ModelSpec]:
        """Name -> shape of the models that a run can be priced with."""
        return {**{x.name: x.spec for x in self._play.models.offers()}, **SHAPES}

    def price(self, channel: RecordStream, asked: Mapping[str, str]) -> dict[str, Any]:
        """The prices of a run for a question as plain data. Raises RequestRefusal, ParamError."""
        key = (channel.run, channel.count, channel.over, *sorted(asked.items()))
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        run, here = _pricer_run(channel), _measured_machine(channel)
        models, device = _model_shapes(asked, self.shapes), _find_device(asked)
        elsewhere = device or (here if models else None)
        if elsewhere is None and models:
            raise RequestRefusal(
                "Peak and bandwidth of the machine of this run are not recorded: choose a device first."
            )
        own = None if here is None else Pricer(run, here)
        priced = {
            "here": None if own is None else own.record(),
            "off": None if own is None or (far := cost_deviation(own.rows())) is None else str(far),
            "checks": [] if own is None else own.checks(),
            "worked": None if own is None else own.utilization(),
            "there": None if elsewhere is None else Pricer(run, elsewhere, models).record(),
            "steps": len(run.steps),
            "count": channel.count,
        }
        with self._lock:
            self._known[key] = priced
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return priced


async def answer_for_run(
    play: RunService,
    refused: Callable[[int, str], Response],
    run: str,
    work: Callable[[RecordStream], Any],
    senseless: str,
) -> Response:
    """The answer of `work` on the run of that id, made in a thread.
    It is a refusal if the run is gone, `work` refuses, or its record makes no sense; `senseless` begins that sentence. A
    record from elsewhere may be well-formed and still make no sense."""
    channel = await asyncio.to_thread(play.find, run)
    if channel is None:
        return refused(404, GONE)
    try:
        return json_response(await asyncio.to_thread(work, channel))
    except (ValueError, ArithmeticError, LookupError) as error:
        if isinstance(error, RequestRefusal):
            raise
        why = f"{senseless}: it holds what no run writes ({type(error).__name__})."
        return refused(422, explain_error(error) if isinstance(error, Refusal) else why)


def json_response(data: Any) -> Response:
    """Plain data that the browser does not cache."""
    return JsonAnswer(data, headers={"cache-control": "no-store"})


def _pricer_run(channel: RecordStream, most: int = STEPS) -> PricedRun:
    assert channel.wire is not None
    return PricedRun(channel.wire.header, channel.wire.prefill, channel.steps(0, most))


def _measured_machine(channel: RecordStream) -> HardwareProfile | None:
    """The machine of the run, if it was measured for the run's type."""
    profile = channel.wire.profile if channel.wire is not None else None
    try:
        if profile is not None:
            profile.peak(channel.wire.header.dtype)  # type: ignore[union-attr]  # it has a profile
    except ParamError:
        return None
    return profile


def _model_shapes(
    asked: Mapping[str, str], shapes: Callable[[], dict[str, ModelSpec]]
) -> dict[str, ModelSpec]:
    """The shapes that replace the run's own, by lane."""
    wanted = {lane: asked[lane] for lane in ("target", "draft") if lane in asked}
    offered = shapes() if wanted else {}
    for name in wanted.values():
        if name not in offered:
            raise RequestRefusal(f"No shape {name!r} is known here: choose a model of the list.")
    return {lane: offered[name] for lane, name in wanted.items()}


def _find_device(asked: Mapping[str, str]) -> HardwareProfile | None:
    """The other machine: one of the list, or the user's own figures."""
    name = asked.get("device")
    if name is None:
        return None
    if name != OWN:
        if name not in DEVICES:
            raise RequestRefusal(
                f"No device {name!r} is known here: choose one of the list, or give your own figures."
            )
        return DEVICES[name]
    device = {}
    for key, (what, unit, factor, low, high) in FIGURES.items():
        try:
            value = float(asked.get(key, "0" if key == "launch" else ""))
        except ValueError:
            raise RequestRefusal(f"{what} is missing or no number: give it in {unit}.") from None
        if not (math.isfinite(value) and low <= value <= high):
            raise RequestRefusal(f"{what} = {value:g} {unit}: must lie in [{low:g}, {high:g}].")
        device[key] = value * factor
    return HardwareProfile("your own figures", device["peak"], device["bandwidth"], device["launch"])
