"""Jobs in helper processes: native code on other people's files runs there, and is ended when it takes too much.

Limits are of processor time, so that a busy machine refuses nothing; a large limit of waiting is behind them. The system holds
the limits where it can (`launcher.py`). The parent watches as well, which is all there is on Windows.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

LAUNCHER = Path(__file__).with_name("launcher.py")
USE_SYSTEM_LIMITS = True  # False: the parent alone watches, as on Windows
START_SECONDS = 60.0  # of waiting, for a process to start on a busy machine
POLL_SECONDS = 0.02
IDLE_SECONDS = 60.0  # after which a helper without work is ended
KEPT = 2  # helpers of one program that wait for work
ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
WORN = 0.25  # of the memory of a job: a helper that holds more of it than that may fail for what jobs before it left


@dataclass(frozen=True)
class JobLimits:
    """What one job may take.

    seconds: of processor time;  memory: bytes of the whole process;  wait: seconds until the parent waits no longer
    """

    seconds: float
    memory: int
    wait: float = 300.0


class HelperFailure(Exception):
    """A job was ended, or its process ended. The message is the end of a sentence: "it took more than ...".

    kind: "time", "memory", "wait", "crash", "error", or "stopped" when this process ends its helpers
    """

    def __init__(self, kind: str, why: str):
        super().__init__(why)
        self.kind = kind

    @property
    def lasting(self) -> bool:
        """Whether the same job would fail again, on another day of this machine too."""
        return self.kind in ("time", "memory", "crash", "error")


class _HelperProcess:
    """One process. It does one job at a time."""

    def __init__(self, program: Path):
        import psutil

        command = [sys.executable, "-P", str(LAUNCHER), str(program)]
        self._process = subprocess.Popen(
            [*command, "limited"] if USE_SYSTEM_LIMITS else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ONE_THREAD},
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._jobs: IO[bytes] = self._process.stdin
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        self._watched: psutil.Process | None = None
        self.stopped = False
        self.worn = False
        self.idle_since = 0.0

    def _read(self, answers: IO[bytes]) -> None:
        for line in answers:
            self._answers.put(line)
        self._answers.put(b"")
        answers.close()

    def do_job(self, job: Any, limits: JobLimits) -> Any:
        """The answer to a job. Raises HelperFailure, after which the helper must be ended."""
        if self._watched is None:
            self._receive(JobLimits(float("inf"), 1 << 62, START_SECONDS), 0.0)
            self._watched = self._find_process()
        begun, self.worn = self._seconds(), self._memory() > WORN * limits.memory
        request = {"seconds": limits.seconds, "memory": limits.memory, "job": job}
        with suppress(OSError):  # it ended before, which its output tells
            self._jobs.write(json.dumps(request).encode() + b"\n")
            self._jobs.flush()
        answer = self._receive(limits, begun)
        if "memory" in answer:
            raise HelperFailure("memory", _memory_sentence(limits))
        if "error" in answer:
            raise HelperFailure("error", answer["error"])
        return answer["answer"]

    def _receive(self, limits: JobLimits, begun: float) -> dict[str, Any]:
        """The next line, while time and memory are watched. begun: processor time before the job"""
        deadline = time.monotonic() + limits.wait
        while True:
            try:
                line = self._answers.get(timeout=POLL_SECONDS)
            except queue.Empty:
                self._check_use(limits, begun, deadline)
                continue
            if line:
                answer: dict[str, Any] = json.loads(line)
                return answer
            raise self._explain_end(limits)

    def _check_use(self, limits: JobLimits, begun: float, deadline: float) -> None:
        if (
            self._seconds() - begun > limits.seconds + 1
        ):  # the system counts whole seconds, and ends it at the next one
            raise HelperFailure("time", _time_sentence(limits))
        if self._memory() > limits.memory:
            raise HelperFailure("memory", _memory_sentence(limits))
        if time.monotonic() > deadline:
            raise HelperFailure("wait", f"it did not come to an end in {limits.wait:g} seconds")

    def _find_process(self) -> Any:
        import psutil

        try:
            return psutil.Process(self._process.pid)
        except psutil.Error:
            return None

    def _seconds(self) -> float:
        import psutil

        if self._watched is None:
            return 0.0
        try:
            times = self._watched.cpu_times()
        except psutil.Error:  # it has ended, which its output tells
            return 0.0
        return float(times.user + times.system)

    def _memory(self) -> int:
        import psutil

        if self._watched is None:
            return 0
        try:
            info = self._watched.memory_info()
        except psutil.Error:
            return 0
        return int(max(info.rss, getattr(info, "private", 0)))  # Windows counts private bytes

    def _explain_end(self, limits: JobLimits) -> HelperFailure:
        """Why the process ended by itself."""
        code = self._process.wait()
        if self.stopped:
            return HelperFailure("stopped", "this program is being closed")
        if code == -getattr(signal, "SIGXCPU", -1 << 30):
            return HelperFailure("time", _time_sentence(limits))
        if code in (-getattr(signal, "SIGKILL", -1 << 30), -signal.SIGABRT):
            # a library of Rust aborts when it gets no memory
            return HelperFailure("memory", _memory_sentence(limits))
        return HelperFailure("crash", f"its process ended with the code {code}")

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        with suppress(OSError):  # what was not sent is lost
            self._jobs.close()


def _time_sentence(limits: JobLimits) -> str:
    return f"it took more than {limits.seconds:g} seconds of processor time"


def _memory_sentence(limits: JobLimits) -> str:
    return f"it took more than {limits.memory >> 20} MiB of memory"


class _Pool:
    """The helpers of this process: those at work, and by program those that wait for work."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.working: set[_HelperProcess] = set()
        self.idle: dict[Path, list[_HelperProcess]] = {}
        self.timer: threading.Timer | None = None

    def take(self, program: Path, fresh: bool) -> _HelperProcess:
        """A helper for a job of this program; a new one if `fresh`."""
        with self.lock:
            waiting = self.idle.get(program, [])
            helper = waiting.pop() if waiting and not fresh else _HelperProcess(program)
            self.working.add(helper)
        return helper

    def give_back(self, program: Path, helper: _HelperProcess, keep: bool) -> None:
        """Keep a helper for the next job, or end it."""
        with self.lock:
            self.working.discard(helper)
            waiting = self.idle.setdefault(program, [])
            keep = keep and not helper.stopped and len(waiting) < KEPT
            if keep:
                helper.idle_since = time.monotonic()
                waiting.append(helper)
                self._set_timer()
        if not keep:
            helper.end()

    def _set_timer(self) -> None:
        if self.timer is None:
            self.timer = threading.Timer(IDLE_SECONDS, self._end_idle)
            self.timer.daemon = True
            self.timer.start()

    def _end_idle(self) -> None:
        """End what had no work for a while."""
        before = time.monotonic() - IDLE_SECONDS
        with self.lock:
            self.timer = None
            old = [x for waiting in self.idle.values() for x in waiting if x.idle_since <= before]
            self.idle = {
                program: [x for x in waiting if x not in old] for program, waiting in self.idle.items()
            }
            if any(self.idle.values()):
                self._set_timer()
        for helper in old:
            helper.end()

    def end_all(self) -> None:
        """End every helper; the jobs at work fail as stopped."""
        with self.lock:
            waiting = [x for some in self.idle.values() for x in some]
            self.idle = {}
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None
            for helper in self.working:
                helper.stopped = True
                helper._process.kill()
        for helper in waiting:
            helper.end()


_pool = _Pool()


def _forget_helpers() -> None:
    """A process that was split off has none: those of its parent are not its own."""
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_helpers)


def run_job(
    program: Path,
    job: Any,
    limits: JobLimits,
    *,
    fresh: bool = False,
    more: Callable[[], dict[str, Any]] | None = None,
) -> Any:
    """What `run_job(job)` of the file `program` returns, computed in a helper; job and answer are plain JSON values.

    fresh: in a process that has done no other job, and does none after it
    more:  gives what is sent as well to a helper that answers that it lacks it: something large that helpers keep between jobs
    Raises HelperFailure.
    """
    answer = _run_once(program, job, limits, fresh)
    if more is not None and "lacks" in answer:
        answer = _run_once(program, {**job, **more()}, limits, fresh)
    return answer


def _run_once(program: Path, job: Any, limits: JobLimits, fresh: bool) -> Any:
    """The answer of one helper, or of a fresh one where what jobs before left took the memory."""
    pool, whole = _pool, False
    while True:
        helper = pool.take(program, fresh or whole)
        keep = False
        try:
            answer = helper.do_job(job, limits)
            keep = not fresh
            return answer
        except HelperFailure as failure:
            keep = failure.kind == "error" and not fresh
            if whole or fresh or failure.kind != "memory" or not helper.worn:
                raise
            whole = True
        finally:
            pool.give_back(program, helper, keep)


@atexit.register
def end_helpers() -> None:
    """End all helpers of this process, at the latest when it ends."""
    _pool.end_all()
