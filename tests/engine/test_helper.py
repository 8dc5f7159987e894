"""Helper processes: each job has its limits, with the system's help and without; nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import eventually

from decodescope.app.http.startup import StartupApp
from decodescope.engine.sandbox import answers, helper
from decodescope.engine.sandbox.helper import HelperFailure, JobLimits, end_helpers, run_job

PROGRAM = """
import os, threading

def run_job(job):
    if job == "loop":
        while True:
            pass
    if job == "grow":
        held = []
        while True:
            held.append(bytearray(b"x" * (8 << 20)))
            threading.Event().wait(0.005)
    if job == "sleep":
        threading.Event().wait(600)
    if job == "exit":
        os._exit(3)
    if job == "raise":
        raise ValueError("no\\nsuch thing")
    if job == "print":
        print("what a library prints", flush=True)
    return [job, os.getpid()]
"""
LIMITS = JobLimits(1.0, 300 << 20, 120.0)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Path]:
    """A file of jobs. Helpers of other tests are ended before, so that only its own are counted; its own afterwards."""
    end_helpers()
    path = tmp_path / "jobs.py"
    path.write_text(PROGRAM)
    yield path
    end_helpers()


def helpers() -> list[psutil.Process]:
    """The helper processes of this process."""
    return [x for x in psutil.Process().children() if any("launcher.py" in word for word in words_of(x))]


def words_of(process: psutil.Process) -> list[str]:
    """The command of a process; none of one that has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize("system", [True, False], ids=["system", "parent"])
@pytest.mark.parametrize(
    ("job", "kind", "why"),
    [
        ("loop", "time", "it took more than 1 seconds of processor time"),
        ("grow", "memory", "it took more than 300 MiB of memory"),
        ("exit", "crash", "its process ended with the code 3"),
    ],
)
def test_a_job_that_takes_too_much_is_ended_and_the_next_one_is_done(
    job: str, kind: str, why: str, system: bool, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without limits of the system the parent watches, as on Windows."""
    monkeypatch.setattr(helper, "USE_SYSTEM_LIMITS", system)
    assert run_job(program, "before", LIMITS)[0] == "before"
    with pytest.raises(HelperFailure, match=why) as failure:
        run_job(program, job, LIMITS)
    assert failure.value.kind == kind
    assert failure.value.lasting
    assert run_job(program, "after", LIMITS)[0] == "after"


def test_waiting_has_an_end_that_is_no_answer_about_the_file(program: Path) -> None:
    with pytest.raises(HelperFailure, match="did not come to an end") as failure:
        run_job(program, "sleep", JobLimits(1.0, 300 << 20, 0.2))
    assert not failure.value.lasting
    assert not helpers()


def test_a_helper_is_used_again_unless_a_job_wants_its_own(program: Path) -> None:
    first = run_job(program, "a", LIMITS)[1]
    with pytest.raises(HelperFailure, match=r"^no such thing$"):
        run_job(program, "raise", LIMITS)
    assert run_job(program, "print", LIMITS) == ["print", first], "an error of a job harms no helper"
    assert run_job(program, "b", LIMITS, fresh=True)[1] != first != os.getpid()
    assert [x.pid for x in helpers()] == [first]


def test_helpers_without_work_end(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "IDLE_SECONDS", 0.05)
    run_job(program, "a", LIMITS)
    eventually(lambda: not helpers())


def test_ending_helpers_ends_the_job_at_work(program: Path) -> None:
    seen: list[HelperFailure] = []

    def work() -> None:
        try:
            run_job(program, "sleep", JobLimits(60.0, 300 << 20))
        except HelperFailure as failure:
            seen.append(failure)

    run_job(program, "a", LIMITS)
    thread = threading.Thread(target=work)
    thread.start()
    eventually(lambda: helper._pool.working)
    end_helpers()
    thread.join(60)
    assert [x.kind for x in seen] == ["stopped"]
    assert not helpers()


def test_a_server_that_ends_ends_its_helpers_first() -> None:
    """So no thread that waits for one holds the end up."""
    told: list[str] = []

    class Built:
        """An application without a life of its own."""

        router = None

    async def live() -> None:
        orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for name in ("startup", "shutdown"):
            orders.put_nowait({"type": f"lifespan.{name}"})

        async def send(message: dict[str, Any]) -> None:
            told.append(message["type"])

        app = StartupApp(Built, lambda: told.append("closed"))
        await app({"type": "lifespan"}, orders.get, send)

    with ThreadPoolExecutor(
        1
    ) as other:  # a browser that a test before this one opened keeps a loop in this thread
        other.submit(asyncio.run, live()).result()
    assert told == ["lifespan.startup.complete", "closed", "lifespan.shutdown.complete"]


def test_answers_are_kept_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "answers_folder", lambda: tmp_path / "trials")
    monkeypatch.setattr(answers, "KEPT", 3)
    assert answers.read_answer("kind", "0") is None
    for at in range(5):
        answers.store_answer("kind", str(at), {"refused": f"why {at}"})
        os.utime(tmp_path / "trials" / "kind" / f"{at}.json", (at, at))
    kept = [at for at in range(5) if answers.read_answer("kind", str(at)) is not None]
    assert kept == [2, 3, 4]
    assert answers.read_answer("kind", "4") == {"refused": "why 4"}
    for damage in ("[]", "{", "x" * (answers.ANSWER_BYTES + 1)):
        (tmp_path / "trials" / "kind" / "5.json").write_text(damage)
        answers._read_file.cache_clear()
        assert answers.read_answer("kind", "5") is None, "then the trial is made again"
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(answers, "answers_folder", lambda: tmp_path / "file")
    answers.store_answer("kind", "6", {"refused": ""})
    assert answers.read_answer("kind", "6") is None
