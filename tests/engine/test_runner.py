"""Runner and Job: one worker, runs in order; pause, step, cancel between steps; a failed run does not affect the next one."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest
import torch
import toys

from decodescope.engine import Session
from decodescope.engine.session.runner import PAUSED, QueueFull, Runner, RunnerJob
from decodescope.engine.trace import Trace, check

LONG = 60


@pytest.fixture
def runner() -> Iterator[Runner]:
    made = Runner(queue=3)
    yield made
    made.close()
    assert not made._worker.is_alive()


def session(count: int = LONG, **more) -> Session:
    made = Session(
        toys.pair()[0], toys.method(sampler="temperature"), toys.PROMPT, max_new_tokens=count, **more
    )
    made.sink = Trace()
    return made


def until(job: RunnerJob, *statuses: str) -> RunnerJob:
    """Wait until the job has one of these statuses; each change must notify, or a waiting page would learn of it late."""
    with job._changed:
        while job.status not in statuses:
            assert job._changed.wait(30), f"it is {job.status}, and nobody said that anything changed"
    return job


def paused(runner: Runner, **more) -> RunnerJob:
    """A job that was paused before its first step."""
    return until(runner.submit(session(**more), paused=True), "paused")


def held(runner: Runner) -> tuple[RunnerJob, Event]:
    """A running job that stays at its current step until the event is set."""
    job, free = runner.submit(session(), paused=True), Event()
    until(job, "paused").until = lambda step: free.wait(60) and False
    job.resume()
    return until(job, "running"), free


def test_run_goes_to_its_end_and_its_steps_can_be_read_from_any_number(runner: Runner) -> None:
    job = runner.submit(session(), "first")
    steps = list(job.events(timeout=30))
    assert job.wait(30) and job.status == "done" and job.end.reason == "max_new_tokens"
    assert [step.step for step in steps] == list(range(LONG)) == list(range(job.count))
    assert (
        [step.step for step in job.events(since=55)]
        == [55, 56, 57, 58, 59]
        == [s.step for s in job.steps_since(55)]
    )
    assert check(job.session.sink).ok
    assert job.session.tokens == toys.decode(toys.method(sampler="temperature"), count=LONG).tokens


def test_pause_step_resume(runner: Runner) -> None:
    job = paused(runner)
    assert job.count == 0 and runner.jobs_ahead(job) == 0
    for wanted in (1, 3):
        before = job.count
        job.step(wanted)
        with job._changed:
            assert job._changed.wait_for(lambda: job.count == before + wanted and job.status == "paused", 30)  # noqa: B023
    job.resume()
    assert job.wait(30) and job.count == LONG and job.status == "done"


def test_cancelled_run_keeps_its_steps(runner: Runner) -> None:
    job = paused(runner)
    job.step(2)
    with job._changed:
        assert job._changed.wait_for(lambda: job.count == 2 and job.status == "paused", 30)
    job.cancel()
    assert job.wait(30) and job.status == "cancelled" and job.end.reason == "stopped_by_user"
    assert len(job.end.tokens) == 2 and check(job.session.sink).ok
    job.cancel(), job.pause(), job.resume(), job.step()
    assert job.status == "cancelled" and job.count == 2


def test_a_run_is_cancelled_while_its_prompt_is_read(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", 4)
    begun = session()
    forward, passes = begun.target.decoder.forward, []

    def slow(*args):
        passes.append(len(passes))
        if len(passes) == 2:
            next(iter(runner.jobs.values())).cancel()
        return forward(*args)

    monkeypatch.setitem(vars(begun.target.decoder), "forward", slow)  # as below
    job = runner.submit(begun)
    assert job.wait(60) and job.status == "cancelled" and job.end.reason == "stopped_by_user"
    assert passes == [0, 1] and job.count == 0
    assert runner.submit(session(3)).wait(60), "the next one runs"


def test_runs_are_served_in_order_and_the_queue_is_bounded(runner: Runner) -> None:
    first, free = held(runner)
    rest = [runner.submit(session(4, seed=i)) for i in range(3)]
    assert [runner.jobs_ahead(job) for job in rest] == [1, 2, 3] and all(
        job.status == "queued" for job in rest
    )
    with pytest.raises(QueueFull, match=r"3 runs are waiting, which is the limit: .*\.$"):
        runner.submit(session(4))
    order: list[str] = []
    for job in (first, *rest):
        job._set_status = lambda status, message="", job=job, put=job._set_status: (
            order.append(job.id),
            put(status, message),
        )  # type: ignore[method-assign]
    first.cancel()
    free.set()
    assert all(job.wait(30) for job in rest)
    assert order == [job.id for job in (first, *rest)] and [job.status for job in rest] == ["done"] * 3
    assert runner.submit(session(2)).wait(30), "the queue has room again"


def test_cancelled_while_queued(runner: Runner) -> None:
    (first, free), second = held(runner), runner.submit(session(4))
    second.cancel()
    assert second.status == "cancelled", "at once"
    first.cancel()
    free.set()
    assert second.wait(30) and second.status == "cancelled" and second.count == 0 and second.end.tokens == []


def test_failed_run_leaves_the_next_one_clean(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, calls = toys.pair()[0].decoder, [0]
    forward = decoder.forward

    def harmed(*args):
        calls[0] += 1
        if calls[0] == 6:
            raise torch.OutOfMemoryError("tried to allocate")
        return forward(*args)

    # a shared decoder has no function of its own afterwards
    monkeypatch.setitem(vars(decoder), "forward", harmed)
    job, after = runner.submit(session()), runner.submit(session(20))
    assert (
        job.wait(30)
        and job.status == "failed"
        and job.end.reason == "out_of_memory"
        and "Memory" in job.message
    )
    assert job.count == 4 == len(job.session.sink.steps) and check(job.session.sink).ok
    assert after.wait(30) and after.status == "done"
    assert after.session.tokens == toys.decode(toys.method(sampler="temperature"), count=20).tokens


def test_mistake_of_ours_ends_one_run_too(runner: Runner) -> None:
    wrong = session()
    wrong.drafter.observe = lambda outcome: 1 / 0  # type: ignore[method-assign]
    job, after = runner.submit(wrong), runner.submit(session(3))
    assert job.wait(30) and job.status == "failed" and job.end.reason == "internal_error"
    assert "division by zero" in job.message and after.wait(30) and after.status == "done"


def test_run_beyond_its_time_is_stopped() -> None:
    runner = Runner(longest_s=0.0)
    job = runner.submit(session())
    assert job.wait(30) and job.end.reason == "stopped_by_user" and "limit of 0 s" in job.end.message
    assert job.count >= 1
    runner.close()


def test_branch_of_a_paused_run(runner: Runner) -> None:
    job = paused(runner)
    with pytest.raises(RuntimeError, match="pause the run"):
        runner.submit(session(4)).branch()
    job.step(2)
    with job._changed:
        assert job._changed.wait_for(lambda: job.count == 2 and job.status == "paused", 30)
    branch = job.branch()
    job.resume()
    assert job.wait(30)
    for _ in branch.stream():
        pass
    assert branch.tokens == job.session.tokens


def test_slow_reader_misses_the_oldest_and_stops_nobody(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decodescope.engine.session.runner.RING", 8)
    job = runner.submit(session())
    assert job.wait(30) and [s.step for s in job.steps_since(0)] == list(range(LONG - 8, LONG))
    assert [s.step for s in job.events()] == list(range(LONG - 8, LONG))
    assert len(job.session.sink.steps) == LONG, "the trace is complete"


def test_a_job_pauses_where_it_is_told_to_and_one_step_more_is_one(runner: Runner) -> None:
    job = paused(runner)
    job.until = lambda step: step.step == 3
    job.resume()
    with job._changed:
        assert job._changed.wait_for(lambda: job.count == 4 and job.status == "paused", 30)
    job.step()
    with job._changed:
        assert job._changed.wait_for(lambda: job.count == 5 and job.status == "paused", 30)
    job.resume()
    assert job.wait(30) and job.count == LONG


def test_a_paused_job_gives_the_device_away_and_goes_on_in_turn(runner: Runner) -> None:
    job = paused(runner)
    job.step(3)
    with job._changed:
        assert job._changed.wait_for(lambda: job.count == 3 and job.status == "paused", 30)
    behind = runner.submit(session(8))
    assert behind.wait(30) and behind.status == "done" and job.status == "paused" and job.count == 3
    (first, free), last = held(runner), runner.submit(session(4))
    job.resume()
    assert job.status == "queued" and runner.jobs_ahead(job) == 1 and runner.jobs_ahead(last) == 2, (
        "it was begun before"
    )
    free.set()
    assert job.wait(30) and last.wait(30) and first.wait(30) and job.status == "done"
    assert job.session.tokens == toys.decode(toys.method(sampler="temperature"), count=LONG).tokens, (
        "as if it had not stood"
    )


def test_a_paused_job_is_stopped_at_once_though_another_runs(runner: Runner) -> None:
    job = paused(runner)
    _, free = held(runner)
    job.cancel()
    assert job.status == "cancelled" and job.end is not None and job.end.reason == "stopped_by_user"
    assert job.session.sink.end is job.end
    free.set()


def test_of_too_many_paused_jobs_the_one_that_stood_longest_ends(runner: Runner) -> None:
    jobs = [paused(runner) for _ in range(PAUSED)]
    jobs[0].step()
    with jobs[0]._changed:
        assert jobs[0]._changed.wait_for(lambda: jobs[0].count == 1 and jobs[0].status == "paused", 30)
    paused(runner)
    assert (
        jobs[1].wait(30)
        and jobs[1].status == "cancelled"
        and f"more than {PAUSED} runs that were paused" in jobs[1].message
    )
    assert [job.status for job in jobs].count("paused") == PAUSED - 1
