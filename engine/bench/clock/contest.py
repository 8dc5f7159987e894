"""Contest: decoders take turns on the same prompts, so that all of them meet whatever else the machine does."""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from decodescope.engine.core.progress import Progress
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method
from decodescope.engine.session.run import LazyWriter
from decodescope.engine.session.session import Session
from decodescope.engine.timing.energy import joules_between, read_joules
from decodescope.engine.trace.records.events import Header, Level, Prefill, Step
from decodescope.engine.trace.records.phases import is_deciding_pass

from ..questions.columns import AnswerCost, cost_from_records
from .head_clock import HeadClock


@dataclass(frozen=True)
class DecodeResult:
    """The text of one call.

    steps: of ours also, their records;  heads_us: of each step, the time of its draft heads; began: of ours also, the records
    before the steps
    """

    tokens: list[int]
    steps: tuple[Step, ...] = ()
    heads_us: tuple[float, ...] = ()
    began: tuple[Header, Prefill] | None = None

    @property
    def records(self) -> tuple[Header, Prefill, tuple[Step, ...]] | None:
        """All records; None where there are none."""
        return None if self.began is None else (*self.began, self.steps)

    @property
    def passes(self) -> int:
        """Passes of the target that decided on tokens; 0 where nobody counted."""
        return sum(is_deciding_pass(p) for s in self.steps for p in s.passes)

    @property
    def decode_s(self) -> float:
        """Seconds of the steps, without the prompt and the recording; 0 where nobody counted."""
        return sum(s.wall_us for s in self.steps) / 1e6


@dataclass
class Contestant:
    """One way to decode.

    seconds: prompt -> one wall time per repeat, of the whole call, prompt included;  calls: prompt -> the text of each call
    joules: prompt -> joules of each call, None where no counter can be read;  models: of ours, all that it reads
    """

    name: str
    side: str
    settings: dict[str, Any]
    write: Callable[[list[int]], DecodeResult]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    calls: dict[str, list[DecodeResult]] = field(default_factory=dict)
    joules: dict[str, list[float | None]] = field(default_factory=dict)
    models: tuple[Model, ...] = ()

    @property
    def answers(self) -> list[AnswerCost]:
        """The cost of each call."""
        rows = []
        for prompt, calls in self.calls.items():
            for call, seconds, energy in zip(calls, self.seconds[prompt], self.joules[prompt], strict=True):
                rows.append(
                    AnswerCost(self.name, cost_from_records(call.records, len(call.tokens), seconds, energy))
                )
        return rows

    def median_seconds(self, prompt: str) -> float:
        """Median seconds of a call on `prompt`."""
        return statistics.median(self.seconds[prompt])

    @property
    def last_results(self) -> dict[str, DecodeResult]:
        """prompt -> the result of the last call."""
        return {prompt: calls[-1] for prompt, calls in self.calls.items()}

    def record(self, reference: Contestant) -> dict[str, Any]:
        """As plain data; `reference` wrote the text that this one's is compared with."""
        rates = [len(self.last_results[p].tokens) / self.median_seconds(p) for p in self.seconds]
        steps = [w for w in self.last_results.values() if w.passes]
        decode = [len(w.tokens) / w.decode_s for w in steps if w.decode_s]
        return {
            "name": self.name,
            "side": self.side,
            "settings": self.settings,
            "tokens_per_s": statistics.median(rates),
            "decode_tokens_per_s": statistics.median(decode) if decode else None,
            "tau": statistics.median([len(w.tokens) / w.passes for w in steps]) if steps else None,
            "seconds": self.seconds,
            "same_tokens": {
                p: common_prefix_length(w.tokens, reference.last_results[p].tokens)
                for p, w in self.last_results.items()
            },
        }


def common_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def engine_contestant(  # noqa: PLR0913
    name: str,
    model: Model,
    method: Method,
    new: int,
    level: Level | None = None,
    models: dict[str, Model] | None = None,
    *,
    stop: Sequence[int] = (),
    seed: int = 0,
    heads: HeadClock | None = None,
) -> Contestant:
    """Our engine with `method`; its trace is written to a file at `level`, None: nothing is kept.

    `models`: further ones by role; `heads`: the clock of `model`, if it has one.
    """

    def write(prompt: list[int]) -> DecodeResult:
        with tempfile.TemporaryDirectory() as folder:
            session = Session(
                model,
                method,
                prompt,
                models=models,
                max_new_tokens=new,
                seed=seed,
                stop_tokens=stop,
                level=level or "summary",
            )
            session.sink = None if level is None else LazyWriter(Path(folder) / "bench.dstrace")
            began = session.header, session.start()
            steps: list[Step] = []
            spent: list[float] = []
            if heads is not None:
                heads.take_us()  # what the prompt took is no step's
            for step in session.stream():
                steps.append(step)
                spent.append(0.0 if heads is None else heads.take_us())
        return DecodeResult(session.tokens[session.prompt :], tuple(steps), tuple(spent), began)

    parts = {kind: part for kind, part in method.record().items() if part != Method().record()[kind]}
    read = model, *(models or {}).values()
    return Contestant(name, "decodescope", {"level": level or "none", **parts}, write, models=read)


def take_turns(
    contestants: Sequence[Contestant],
    ids: dict[str, list[int]],
    repeats: int,
    device: torch.device,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Warm up, then time each contestant `repeats` times on each prompt, in turns."""
    for one in contestants:
        say(f"warming up: {one.name}")
        one.write(next(iter(ids.values())))
    with Progress("rounds", len(ids) * repeats, "rounds") as progress:
        for name, prompt in ids.items():
            for turn in range(repeats):
                say(f"prompt {name!r}, round {turn + 1} of {repeats}")
                progress.at(progress.done, phase=f"prompt {name!r}")
                run_round(contestants, name, [prompt] * len(contestants), turn, device)
                progress.add()


def run_round(
    contestants: Sequence[Contestant],
    name: str,
    prompts: Sequence[list[int]],
    turn: int,
    device: torch.device,
) -> None:
    """Time every contestant once, each on its own one of `prompts`, which are called `name`; `turn` decides who begins."""
    shift, pairs = turn % len(contestants), list(zip(contestants, prompts, strict=True))
    for one, prompt in [*pairs[shift:], *pairs[:shift]]:
        gc.collect()
        wait_for_device(device)
        before, began = read_joules(), time.perf_counter()
        written = one.write(prompt)
        wait_for_device(device)
        one.seconds.setdefault(name, []).append(time.perf_counter() - began)
        one.joules.setdefault(name, []).append(joules_between(before, read_joules()))
        one.calls.setdefault(name, []).append(written)


def wait_for_device(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
