"""Choose the number of threads of a model's passes by timing them on this machine; time them again when other programs
take or leave the processors."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch

from decodescope.engine.core.roles import TARGET
from decodescope.engine.kernels.choice import OneThreadForTorch, pass_threads, set_pass_threads
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.trace.records.environment import Environment, choose_thread_count, mean_pass_time
from decodescope.engine.trace.records.events import Pass

from ..bases.lane import Lane
from ..bases.policy import CachePolicy
from .verify_cost import pass_us

ROWS = (1, 16)  # of the passes that are timed
FIRST_S, AGAIN_S = 0.12, 0.06  # what timing may take when a model is loaded, and between two steps
HELD = 32  # entries in the cache while timing
FAR = 3.0  # times as long as the fastest: not tried again
TOO_FAR = 10.0  # times as long as a pass in the fewest threads: one such pass is evidence enough
SPAN_US = 80e3  # of passes, over which a run is judged
TAKEN = 0.35  # of a processor, that others had while passes ran: a sign that they are there
SLOW = 1.25  # times as long as when they were timed: only then the sign counts
ROOM = 0.6  # unused share of a processor lately: reason to try more threads
REST_S = (1.0, 60.0)  # from one timing to the next at least, and at most
STAT = Path("/proc/stat")  # of Linux
VARIABLE = "OMP_NUM_THREADS"

Times = dict[int, list[float]]  # threads -> what a pass of each of ROWS takes, microseconds
Timing = Callable[[Decoder, Sequence[int], float], Times]


def thread_counts(most: int) -> list[int]:
    """The numbers of threads that are tried: powers of two, and all processors."""
    return sorted({most, *(1 << k for k in range(most.bit_length()) if 1 << k <= most)})


def processor_count() -> int:
    """How many processors this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # on Linux
    return (os.cpu_count() or 1) if allowed is None else len(allowed(0))


def idle_s() -> float | None:
    """Total idle time of this process's processors since the machine started, in seconds; None: unknown here. Time of
    low-priority programs counts as idle, unless this program has low priority too: they give way."""
    try:
        with STAT.open("rb") as stat:
            rows = [line.split() for line in takewhile(lambda line: line.startswith(b"cpu"), stat)]
    except OSError:
        return None
    free = (2, 4, 5) if os.nice(0) <= 0 else (4, 5)  # columns: low priority, idle, waiting for a disk
    ours = {b"cpu%d" % i for i in os.sched_getaffinity(0)}
    return sum(int(row[i]) for row in rows if row[0] in ours for i in free) / os.sysconf("SC_CLK_TCK")


@torch.inference_mode()
def time_passes(decoder: Decoder, threads: Sequence[int], budget_s: float) -> Times:
    """Pass times for each number of threads, measured in turns because other programs may run: means without the longest. A
    number that is far slower after a round is not tried again. torch's own number is changed afterwards."""
    lane = Lane("timed", decoder, CachePolicy())
    seen: dict[int, list[list[float]]] = {n: [[] for _ in ROWS] for n in threads}
    if decoder.spec.causal:
        lane.read([0] * min(HELD, decoder.spec.max_positions // 2))
    end = time.perf_counter() + budget_s
    tried = [*threads]
    longest = math.inf
    while True:
        for n in tried:
            set_pass_threads(n)
            woken = _pass_us(lane, n, ROWS[0])
            for rows, times in zip(ROWS, seen[n], strict=True):
                times.append(woken if woken > longest else _pass_us(lane, n, rows))
            longest = min(longest, TOO_FAR * seen[n][0][-1])
        took = {n: [round(_trimmed_mean(times), 1) for times in rows] for n, rows in seen.items()}
        if time.perf_counter() > end:
            return took
        least = min(map(mean_pass_time, took.values()))
        tried = [n for n in tried if mean_pass_time(took[n]) < FAR * least]


def _pass_us(lane: Lane, threads: int, rows: int) -> float:
    """Microseconds of a pass; in one thread only those in which it had a processor: what others take from one thread, they take
    from each of several."""
    began = time.thread_time()
    with OneThreadForTorch(lane.decoder.dtype, lane.decoder.device):
        us = pass_us(lane, min(rows, lane.decoder.spec.max_positions // 4))
    return us if threads > 1 or os.name != "posix" else min(us, (time.thread_time() - began) * 1e6)


def _trimmed_mean(times: Sequence[float]) -> float:
    """Their mean without the longest, which anything may have held up."""
    return fmean(sorted(times)[: max(1, len(times) - 1)])


class SlowPasses(NamedTuple):
    """A run's last passes took longer than those that were timed, and others had the processors meanwhile. times: as long;
    rows: of the target's passes, at most"""

    times: float
    rows: int


class ClockMark(NamedTuple):
    """A moment: seconds of a clock, of the processors' time that this process has used, and that none was used."""

    clock: float
    used: float
    idle: float | None

    def processors_until(self, now: ClockMark) -> float | None:
        """How many processors this process had since then, or could have had; None: unknown."""
        if self.idle is None or now.idle is None:
            return None
        return (now.used - self.used + now.idle - self.idle) / (now.clock - self.clock)


class RecentPasses:
    """The times of a run's last passes.

    us, used_us: all of them, and the processors' time of the process meanwhile, and between them
    target: rows and microseconds of the target's
    began:  if the passes before them were slow, the moment from which these count; else None
    """

    def __init__(self, began: ClockMark | None = None) -> None:
        self.began = began
        self.us = self.used_us = 0.0
        self.target: list[tuple[int, float]] = []

    def add(self, passes: Sequence[Pass], used_s: float) -> None:
        """A step more."""
        self.used_us += used_s * 1e6
        for one in passes:
            self.us += one.wall_us
            if one.lane == TARGET:
                self.target.append((one.tokens * one.batch, one.wall_us))

    def find_slowdown(self, threads: int, took: Times) -> SlowPasses | None:
        """If these passes in `threads` threads were slow and processors are missing, how slow. took: the times measured
        before"""
        missing = threads - self.used_us / self.us
        alike = [(rows, us) for rows, us in self.target if rows <= ROWS[-1]]
        if missing < TAKEN or threads not in took or not alike:
            return None
        rows, us = map(np.array, zip(*alike, strict=True))
        times = us.sum() / np.interp(rows, ROWS, took[threads]).sum()
        if times < SLOW:
            return None
        # the one thread that got least
        return SlowPasses(min(float(times), 1 / max(1 - missing, 1 / TOO_FAR)), int(rows.max()))


class ThreadCount:
    """The number of threads of a decoding process, and who set it.

    number: of torch, from the next run on, and from the next step of the current run
    fixed:  who fixed it ("--threads", the environment's variable, torch on a device that is no CPU): it is never changed then;
            "": it is chosen by timing, and watched
    took:   what passes took in each number when that was timed last, microseconds
    """

    def __init__(
        self,
        number: int | None = None,
        environ: Mapping[str, str] = os.environ,
        most: int | None = None,
        timing: Timing = time_passes,
        clock: Callable[[], float] = time.perf_counter,
        used: Callable[[], float] = time.process_time,
        idle: Callable[[], float | None] = idle_s,
    ):
        self.number, self.fixed = number or pass_threads(), "--threads" if number else ""
        if not self.fixed and environ.get(VARIABLE):
            self.fixed = VARIABLE
        self.took: Times = {}
        self._most = most or processor_count()
        self._timing = timing
        self._clock = clock
        self._used, self._idle = used, idle
        self._took: dict[
            Any, Times
        ] = {}  # shape and type of a model -> what its passes took when they were timed last
        self._began = 0.0  # the processors' time that was used when the step began
        self._lately = RecentPasses()
        self._when, self._rest = float("-inf"), REST_S[0]  # the last timing, and how long none is due
        self._left = float("-inf")  # when a number was left for a smaller one
        self._since = ClockMark(float("-inf"), 0.0, None)  # when room was looked for

    def choose(self, decoder: Decoder) -> None:
        """Time the passes of a model that was loaded, once for its shape and type, and let torch have the number, in this
        thread."""
        if self._may_change(decoder) and (key := _model_key(decoder)) not in self._took:
            self._took[key] = self.took = self._timing(decoder, thread_counts(self._most), FIRST_S)
            self.number = choose_thread_count(self.took)
            self._restart_watch()
        self._set(decoder)

    def begin(self, decoder: Decoder) -> None:
        """Begin a run in this thread: torch gets the number. If it is not all processors, and the last timing is long ago,
        they are timed again."""
        if self._may_change(decoder):
            self.choose(decoder)
            if self._is_retry_due():
                self._retime(decoder)
        self._set(decoder)

    def step(self) -> None:
        """A step begins, in this thread."""
        self._began = self._used()

    def observe_step(self, decoder: Decoder, passes: Sequence[Pass]) -> Environment | None:
        """Look at a step that is done, and at its passes. Where others had the processors and passes were slow, torch gets
        fewer threads; where there is room, more are tried. What was done, or None."""
        if not self._may_change(decoder):
            return None
        lately = self._lately
        lately.add(passes, self._used() - self._began)
        if lately.us > SPAN_US:
            slow = lately.find_slowdown(self.number, self._took[_model_key(decoder)])
            self._lately = RecentPasses(None if slow is None else self._mark())
            if (
                slow is not None
                and lately.began is not None
                and self._foreign_processors(lately.began) >= TAKEN
            ):
                return self._reduce(decoder, slow)
        return self._retime(decoder) if self._is_retry_due() else None

    def record(self) -> dict[str, Any]:
        """The figures for a page or a command: number, of how many processors, who fixed it, milliseconds of passes by
        number."""
        ms = {str(n): [x / 1e3 for x in times] for n, times in self.took.items()}
        return {"number": self.number, "of": self._most, "fixed": self.fixed, "rows": list(ROWS), "ms": ms}

    def _may_change(self, decoder: Decoder) -> bool:
        return not self.fixed and decoder.device.type == "cpu" and self._most > 1

    def _set(self, decoder: Decoder) -> None:
        if decoder.device.type == "cpu" and pass_threads() != self.number:
            set_pass_threads(self.number)

    def _mark(self) -> ClockMark:
        return ClockMark(self._clock(), self._used(), self._idle())

    def _foreign_processors(self, since: ClockMark) -> float:
        """Upper bound on the processors that others had. Threads that wait for a disk or for each other have no processor
        either, although no other program took it."""
        had = since.processors_until(self._mark())
        return math.inf if had is None else self._most - had

    def _is_retry_due(self) -> bool:
        """True if it is time to check whether more threads help again, and a processor was free in the last second. Passes with
        fewer threads cannot show that."""
        if self.number >= self._most or self._clock() - self._since.clock <= REST_S[0]:
            return False
        since, self._since = self._since, self._mark()
        had = since.processors_until(self._since)
        return (had is None or had - self.number >= ROOM) and self._since.clock - self._when > self._rest

    def _restart_watch(self) -> None:
        self._since, self._lately = self._mark(), RecentPasses()
        self._when = self._since.clock

    def _retime(self, decoder: Decoder) -> Environment:
        """Time the passes again, and take the best number now."""
        before, began = self.number, self._clock()
        self._took[_model_key(decoder)] = self.took = self._timing(
            decoder, thread_counts(self._most), AGAIN_S
        )
        self.number = choose_thread_count(self.took, before)
        if self.number == before:
            self._rest = min(2 * self._rest, REST_S[1])
        return self._apply_number(before, began)

    def _reduce(self, decoder: Decoder, slow: SlowPasses) -> Environment | None:
        """Take fewer threads if they are better than passes so slow, by what was timed last."""
        before, began = self.number, self._clock()
        took = {n: times for n, times in self._took[_model_key(decoder)].items() if n <= before}
        took[before] = [round(x * slow.times, 1) for x in took[before]]
        if (number := choose_thread_count(took, before)) == before:
            return None
        self.number, self.took = number, took
        often = began - self._left < 2 * REST_S[1]  # those who came come again and again
        self._rest, self._left = min(2 * self._rest, REST_S[1]) if often else REST_S[0], began
        return self._apply_number(before, began, slow)

    def _apply_number(self, before: int, began: float, slow: SlowPasses | None = None) -> Environment:
        """Let torch have the number; the record of that."""
        self._restart_watch()
        set_pass_threads(self.number)
        timed_us = {str(n): times for n, times in self.took.items()}
        spent = round((self._when - began) * 1e6, 1)
        slower, rows = (None, None) if slow is None else (round(slow.times, 2), slow.rows)
        return Environment(before, self.number, timed_us, spent, slower, rows)


def _model_key(decoder: Decoder) -> Any:
    spec = decoder.spec
    return spec.params, spec.n_layers, spec.d_model, spec.vocab, str(decoder.dtype)
