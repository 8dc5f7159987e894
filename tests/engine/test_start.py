"""start: a run in the background equals the one that `run` makes; it can be stopped, awaited, and begun again."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import toys

from decodescope.engine import MethodError, ParamError, run, start
from decodescope.engine.decoding.bases import lane
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session.run import RunOptions
from decodescope.engine.session.runner import RunnerJob
from decodescope.engine.session.start import BackgroundRun
from decodescope.engine.trace import End, Header, Prefill, Step, check, open_trace

SAMPLED = dict(max_new_tokens=20, seed=3)
LONG = 1000  # more tokens than any test waits for


def begun(count: int = 20, **more) -> BackgroundRun:
    return start(
        toys.pair()[0], toys.method(sampler="temperature"), toys.PROMPT, max_new_tokens=count, seed=3, **more
    )


def test_it_writes_what_run_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.dstrace"
    running = begun(path=path)
    records = list(running.records())
    assert [type(x) for x in records] == [Header, Prefill, *[Step] * 20, End]
    done = running.wait(30)
    alone = run(toys.pair()[0], toys.method(sampler="temperature"), toys.PROMPT, **SAMPLED)
    assert done.tokens == alone.tokens and running.is_over and running.status == "done"
    assert check(running.trace).ok and open_trace(path).tokens == running.trace.tokens
    assert [type(x) for x in running.records()] == [type(x) for x in records], (
        "whoever comes late gets the same"
    )


def test_it_stands_goes_on_and_is_stopped() -> None:
    running = begun(LONG)
    running.pause()
    with pytest.raises(TimeoutError, match="wait longer"):
        running.wait(0.01)
    running.step(2)
    running.resume()
    running.stop()
    stopped = running.wait(30)
    assert running.status == "cancelled" and stopped.trace.end.reason == "stopped_by_user"
    assert len(stopped.tokens) < LONG and check(stopped.trace).ok


def test_again_is_the_same_run_with_another_method() -> None:
    first = begun()
    same, greedy = first.rerun(), first.rerun(toys.method())
    assert same.wait(30).tokens == first.wait(30).tokens
    assert greedy.wait(30).tokens == run(toys.pair()[0], toys.method(), toys.PROMPT, **SAMPLED).tokens
    assert greedy.method.sampler.name == "greedy" and first.method.sampler.name == "temperature"


def test_ctrl_c_while_it_is_waited_for_ends_it_and_its_trace_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, wait, asked = begun(LONG), RunnerJob.wait, []

    def interrupted(job: RunnerJob, timeout: float | None = None) -> bool:
        asked.append(timeout)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return wait(job, timeout)

    monkeypatch.setattr(RunnerJob, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        running.wait()
    assert running.status == "cancelled" and check(running.trace).ok


def test_a_fault_is_raised_where_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(lane.Lane, "forward", broken)
    running = begun()
    with pytest.raises(EngineFault, match="planted"):
        running.wait(30)
    assert running.status == "failed"
    assert isinstance(list(running.records())[-1], End)


def test_all_that_run_takes_start_takes_but_on_step() -> None:
    asked = set(inspect.signature(run).parameters) - {"model", "method", "text_or_ids", "path", "on_step"}
    assert asked == set(RunOptions.__annotations__)


def test_what_cannot_be_run_is_refused_at_once() -> None:
    with pytest.raises(ParamError, match="max_new_tokens"):
        begun("many")
    with pytest.raises(MethodError, match="start takes no 'tokens'"):
        begun(tokens=3)
