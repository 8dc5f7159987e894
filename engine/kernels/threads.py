"""Threads: several of them run one program, and never split a sum.

A program is a list of stages, a stage a compiled function and the number of its tasks. Threads take the next task of a stage
until none is left, wait until all are done, and go on to the next stage. Nobody waits for a thread that did not come: one that
is late finds less to do, and a busy neighbour takes only what it takes.

Helpers are threads of this process that sleep when there is nothing to do. One program at a time has them; another that comes
meanwhile, from another thread, runs without.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading

import numpy as np
from numba import njit

from .instructions import add_atomically, call_kernel, call_yield, load, read_atomically, store

STAGE = 5  # int64 of a stage: function, its arguments, tasks; tasks taken, tasks done
_SCRATCH = 1 << 16  # bytes that a thread has for itself, at least
# places in the state of a pool, in bytes
_OPEN = 0
_INSIDE = 64
_PROGRAM = 128
_COUNT = 136
_MEMORY = 144
_BYTES = 152
_THREADS = 160
_LOOKS = 1000  # looks at a value before the system is asked to let others go first
_PATIENCE = 1000  # times that a helper asks so before it sleeps: some milliseconds


@njit("void(intp, intp, intp, intp)", nogil=True, cache=True)
def run_stages(program: int, count: int, scratch: int, give_way: int) -> None:
    """Run what is left of a program of `count` stages, beside whoever runs it too."""
    for _ in range(count):
        function = load(program)
        arguments = load(program + 8)
        tasks = load(program + 16)
        while True:
            task = add_atomically(program + 24, 1)
            if task >= tasks:
                break
            call_kernel(function, arguments, task, scratch)
            add_atomically(program + 32, 1)
        looks = 0
        while read_atomically(program + 32) < tasks:
            looks += 1
            if looks % _LOOKS == 0:
                call_yield(give_way)
        program += 8 * STAGE


@njit("void(intp, intp, intp, intp)", nogil=True, cache=True)
def lead(state: int, program: int, count: int, give_way: int) -> None:
    """Run a program with the helpers of a pool."""
    store(state + _PROGRAM, program)
    store(state + _COUNT, count)
    add_atomically(state + _OPEN, 1)
    run_stages(program, count, load(state + _MEMORY), give_way)
    add_atomically(state + _OPEN, -1)
    looks = 0
    while read_atomically(state + _INSIDE) > 0:
        looks += 1
        if looks % _LOOKS == 0:
            call_yield(give_way)


@njit("void(intp, intp, intp)", nogil=True, cache=True)
def follow(state: int, number: int, give_way: int) -> None:
    """Help with the programs of a pool, as its helper of that number, until for a while there is none."""
    looks = 0
    while looks < _LOOKS * _PATIENCE:
        if read_atomically(state + _OPEN) == 0 or number >= read_atomically(state + _THREADS):
            looks += 1
            if looks % _LOOKS == 0:
                call_yield(give_way)
            continue
        add_atomically(state + _INSIDE, 1)
        if read_atomically(state + _OPEN) > 0 and number < load(state + _THREADS):
            scratch = load(state + _MEMORY) + number * load(state + _BYTES)
            run_stages(load(state + _PROGRAM), load(state + _COUNT), scratch, give_way)
            looks = 0
        add_atomically(state + _INSIDE, -1)


def _system_yield() -> int:
    """The address of the function by which a thread lets others go first."""
    if sys.platform == "win32":
        function = ctypes.windll.kernel32.SwitchToThread
    else:
        function = ctypes.CDLL(None).sched_yield
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class _Helper(threading.Thread):
    """A thread that helps one pool; its number is 1 or more."""

    def __init__(self, pool: ThreadPool, number: int):
        super().__init__(daemon=True, name="decodescope-kernel")
        self.pool, self.number = pool, number
        self.asleep = False
        self.wake = threading.Semaphore(0)

    def run(self) -> None:
        while True:
            follow(self.pool.address, self.number, self.pool.give_way)
            self.asleep = True
            if not self.pool.state[_OPEN]:
                self.wake.acquire()
            self.asleep = False


class ThreadPool:
    """The helpers of a process."""

    def __init__(self) -> None:
        self.state = np.zeros(32, np.int64)
        self.address, self.give_way = self.state.ctypes.data, _system_yield()
        self._lock = threading.Lock()
        self._helpers: list[_Helper] = []
        self._memory = np.empty(0, np.uint8)
        self._own = threading.local()

    def run(self, program: np.ndarray, threads: int, scratch: int = 0) -> None:
        """Run a program, int64 [stages, 5] whose last two columns are 0, with up to `threads` threads.

        scratch: bytes of memory that each has for itself
        """
        scratch = max(-(-scratch // 64) * 64, _SCRATCH)
        if threads > 1 and self._lock.acquire(blocking=False):
            try:
                self._prepare(threads, scratch)
                lead(self.address, program.ctypes.data, len(program), self.give_way)
            finally:
                self._lock.release()
            return
        own: np.ndarray | None = getattr(self._own, "memory", None)
        if own is None or len(own) < scratch:
            own = self._own.memory = np.empty(scratch, np.uint8)
        run_stages(program.ctypes.data, len(program), own.ctypes.data, self.give_way)

    def _prepare(self, threads: int, scratch: int) -> None:
        """Memory for so many threads, and helpers that are awake."""
        scratch = max(scratch, int(self.state[_BYTES // 8]))
        if threads * scratch > len(self._memory) or scratch > self.state[_BYTES // 8]:
            self._memory = np.empty(threads * scratch, np.uint8)
            self.state[_MEMORY // 8], self.state[_BYTES // 8] = self._memory.ctypes.data, scratch
        while len(self._helpers) < threads - 1:
            self._helpers.append(_Helper(self, len(self._helpers) + 1))
            self._helpers[-1].start()
        self.state[_THREADS // 8] = threads
        for helper in self._helpers[: threads - 1]:
            if helper.asleep:
                helper.asleep = False
                helper.wake.release()


class _Process:
    """Whose pool it is: a child that was forked has none of its parent's threads."""

    def __init__(self) -> None:
        self.renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.pool = ThreadPool()


_process = _Process()


def run_program(program: np.ndarray, threads: int, scratch: int = 0) -> None:
    """`ThreadPool.run` with the helpers of this process."""
    _process.pool.run(program, threads, scratch)
