"""Threads: in how many a model's passes run, chosen by timing them on this machine, and anew where they become slow."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

from decodescope.engine.core.roles import TARGET
from decodescope.engine.decoding.lane import Lane
from decodescope.engine.decoding.policy import CachePolicy
from decodescope.engine.model.decoder import Decoder
from decodescope.engine.trace.environment import Environment, cost, threads_of
from decodescope.engine.trace.events import Pass

from .verify_cost import pass_us

ROWS = (1, 16)  # of the passes that are timed
FIRST_S, AGAIN_S = 0.12, 0.06  # what timing may take when a model is loaded, and between two steps
HELD = 32  # entries in the cache while timing
WINDOW = 6  # passes of which the mean counts, without the longest
FAR = 3.0  # times as long as the fastest: not tried again
SLOW = 1.6  # times as long as usual: reason to time anew
REST_S = (1.0, 60.0)  # from one timing to the next at least, and at most
VARIABLE = "OMP_NUM_THREADS"

Times = dict[int, list[float]]  # threads -> what a pass of each of ROWS takes, microseconds
Timing = Callable[[Decoder, Sequence[int], float], Times]


def numbers(most: int) -> list[int]:
    """The numbers of threads that are tried: powers of two, and all processors."""
    return sorted({most, *(1 << k for k in range(most.bit_length()) if 1 << k <= most)})


def processors() -> int:
    """How many processors this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # on Linux
    return (os.cpu_count() or 1) if allowed is None else len(allowed(0))


@torch.inference_mode()
def timed(decoder: Decoder, threads: Sequence[int], budget_s: float) -> Times:
    """What passes take in each number of threads, by turns, since others may work here meanwhile: means without the longest. A
    number that is far behind after a round is not tried again. torch's number is another one afterwards."""
    lane = Lane("timed", decoder, CachePolicy())
    seen: dict[int, list[list[float]]] = {n: [[] for _ in ROWS] for n in threads}
    if decoder.spec.causal:
        lane.read([0] * min(HELD, decoder.spec.max_positions // 2))
    end, tried = time.perf_counter() + budget_s, [*threads]
    while True:
        for n in tried:
            torch.set_num_threads(n)
            for rows, times in zip((ROWS[0], *ROWS), ([], *seen[n]), strict=True):  # the first one wakes the threads
                times.append(pass_us(lane, min(rows, decoder.spec.max_positions // 4)))
        took = {n: [round(_usual(times), 1) for times in rows] for n, rows in seen.items()}
        if time.perf_counter() > end:
            return took
        least = min(map(cost, took.values()))
        tried = [n for n in tried if cost(took[n]) < FAR * least]


def _usual(times: Sequence[float]) -> float:
    """Their mean without the longest, which anything may have held up."""
    return fmean(sorted(times)[: max(1, len(times) - 1)])


class Slow(NamedTuple):
    """The last passes of a sort took much longer than usual. times: as long;  us: their mean;  rows, lane: of the sort"""

    times: float
    us: float
    rows: int
    lane: str


class Threads:
    """The number of threads of a process that decodes, and who says so.

    number: of torch, from the next run on, and from the next step of the run that goes
    fixed:  who fixed it ("--threads", the environment's variable, torch on a device that is no CPU): it is never changed then;
            "": it is chosen by timing, and watched
    took:   what passes took in each number when that was timed last, microseconds
    """

    def __init__(
        self,
        number: int | None = None,
        environ: Mapping[str, str] = os.environ,
        most: int | None = None,
        timing: Timing = timed,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.number, self.fixed = number or torch.get_num_threads(), "--threads" if number else ""
        if not self.fixed and environ.get(VARIABLE):
            self.fixed = VARIABLE
        self.took: Times = {}
        self._most, self._timing, self._clock = most or processors(), timing, clock
        self._chosen: dict[Any, tuple[int, Times]] = {}  # shape and type of a model -> what was chosen for it
        self._last: dict[Any, deque[float]] = {}  # sort of pass -> how long the last ones took
        self._calm: dict[Any, float] = {}  # sort of pass -> the least mean of so many
        self._when, self._rest = float("-inf"), REST_S[0]  # the last timing, and how long none is due by the clock alone
        self._left = float("-inf")  # when a number was left because passes had become slow

    def choose(self, decoder: Decoder) -> None:
        """Time the passes of a model that was loaded, once for its shape and type, and let torch have the number, in this
        thread."""
        if self._free(decoder) and (key := _shape(decoder)) not in self._chosen:
            self.took = self._timing(decoder, numbers(self._most), FIRST_S)
            self._when, self.number = self._clock(), threads_of(self.took)
            self._chosen[key] = self.number, self.took
        self._set(decoder)

    def begin(self, decoder: Decoder) -> None:
        """A run begins, in this thread: torch gets the number. Where it is not all processors, and the last timing is long ago,
        they are timed anew."""
        if self._free(decoder):
            self.choose(decoder)
            if self._due():
                self._again(decoder)
        self._set(decoder)

    def look(self, decoder: Decoder, passes: Sequence[Pass]) -> Environment | None:
        """Look at the times of a step's passes; where those of a sort take a multiple of what they took, time anew and let
        torch have the number that is best now. What was done, or None."""
        if not self._free(decoder):
            return None
        slow = [x for x in map(self._slow, passes) if x is not None]
        if not slow and not self._due():
            return None
        if self._clock() - self._when < REST_S[0]:
            return None
        return self._again(decoder, max(slow, key=lambda x: x.times, default=None))

    def record(self) -> dict[str, Any]:
        """What a page or a command says: number, of how many processors, who fixed it, and milliseconds of passes by number."""
        ms = {str(n): [x / 1e3 for x in times] for n, times in self.took.items()}
        return {"number": self.number, "of": self._most, "fixed": self.fixed, "rows": list(ROWS), "ms": ms}

    def _free(self, decoder: Decoder) -> bool:
        return not self.fixed and decoder.device.type == "cpu" and self._most > 1

    def _set(self, decoder: Decoder) -> None:
        if decoder.device.type == "cpu" and torch.get_num_threads() != self.number:
            torch.set_num_threads(self.number)

    def _due(self) -> bool:
        """Whether it is time to look if more threads are of use again: that shows in no pass of fewer."""
        return self.number < self._most and self._clock() - self._when > self._rest

    def _slow(self, one: Pass) -> Slow | None:
        """What the last passes like this one took, if that was much longer than usual."""
        sort = one.lane, (one.tokens * one.batch).bit_length(), one.layers, one.fullest >> 9, self.number
        last = self._last.setdefault(sort, deque(maxlen=WINDOW))
        last.append(one.wall_us)
        if len(last) < WINDOW:
            return None
        mean = _usual(last)
        calm = self._calm[sort] = min(mean, self._calm.get(sort, mean))
        return Slow(mean / calm, mean, one.tokens * one.batch, one.lane) if mean > SLOW * calm else None

    def _again(self, decoder: Decoder, slow: Slow | None = None) -> Environment:
        """Time anew, and take what is best now; of fewer threads, where passes are slow."""
        before, began = self.number, self._clock()
        tried = [n for n in numbers(self._most) if slow is None or n <= before]
        self.took = self._timing(decoder, tried, AGAIN_S)
        if slow is not None and slow.lane == TARGET:
            self.took[before] = _met(self.took[before], slow)
        self.number = threads_of(self.took, before)
        self._when = self._clock()
        if slow is not None and self.number < before:
            calm = self._when - self._left > REST_S[1]  # those who came did not come again and again
            self._rest, self._left = REST_S[0] if calm else min(4 * self._rest, REST_S[1]), self._when
        elif self.number == before:
            self._rest = min(2 * self._rest, REST_S[1])
            for sort, last in self._last.items():  # as slow as it is, this is the best there is
                if len(last) == WINDOW:
                    self._calm[sort] = _usual(last)
        self._last.clear()
        torch.set_num_threads(self.number)
        timed_us = {str(n): times for n, times in self.took.items()}
        spent = round((self._when - began) * 1e6, 1)
        slower, rows = (None, None) if slow is None else (round(slow.times, 2), slow.rows)
        return Environment(before, self.number, timed_us, spent, slower, rows)


def _met(took: list[float], slow: Slow) -> list[float]:
    """What passes take where those of a run took so long: the few that are timed by turns meet hardly any of the programs that
    a run meets."""
    times = min(slow.times, slow.us / float(np.interp(slow.rows, ROWS, took)))
    return [round(x * times, 1) for x in took] if times > 1 and slow.rows <= ROWS[-1] else took


def _shape(decoder: Decoder) -> Any:
    spec = decoder.spec
    return spec.params, spec.n_layers, spec.d_model, spec.vocab, str(decoder.dtype)
