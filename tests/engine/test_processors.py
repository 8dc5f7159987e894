"""Threads: chosen by the time of passes, adjusted to other programs' use of the processors, fixed by the user.

The tests use a clock of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import toys

from decodescope.engine import Session
from decodescope.engine.decoding.shared.thread_count import (
    REST_S,
    SLOW,
    SPAN_US,
    TAKEN,
    TOO_FAR,
    ThreadCount,
    idle_s,
    thread_counts,
    time_passes,
)
from decodescope.engine.model.forward.executor import Executor
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.encoding.content import ContentHash
from decodescope.engine.trace.records.environment import choose_thread_count
from decodescope.engine.trace.records.events import Environment, Pass


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class World:
    """A simulated machine: the time of a pass per number of threads, the processors in use by other programs, and clocks.

    The clocks advance only when a test advances them.
    """

    def __init__(self, **ms: float):
        self.now, self.used, self.idle, self.timings, self.others = 0.0, 0.0, 0.0, 0, 0.0
        self.most = len(ms)
        self.takes(**ms)

    def takes(self, others: float = 0.0, **ms: float) -> None:
        self.others, self.us = others, {int(name[1:]): x * 1000 for name, x in ms.items()}

    def goes(self, seconds: float, threads: int = 0) -> None:
        """Advance by `seconds` with `threads` threads; if no processor is free, others' processors reduce ours."""
        ours = min(threads, self.most - self.others)
        self.now, self.used = self.now + seconds, self.used + ours * seconds
        self.idle += (self.most - self.others - ours) * seconds

    def timing(self, decoder: object, threads: Sequence[int], budget_s: float) -> dict[int, list[float]]:
        self.timings += 1
        self.goes(budget_s, max(threads))
        return {n: [self.us[n], 2 * self.us[n]] for n in threads}

    def threads(self, **more: object) -> ThreadCount:
        given = {"environ": {}, "most": max(self.us), "timing": self.timing, "clock": lambda: self.now}
        given |= {"used": lambda: self.used, "idle": lambda: self.idle}
        return ThreadCount(**(given | more))  # type: ignore[arg-type] # of several types

    def steps(self, threads: ThreadCount, seconds: float, times: float = 1.0) -> list[Environment]:
        """Run steps of one pass for `seconds`, and return what the watch reports; passes take `times` as long as set."""
        seen, end = [], self.now + seconds
        while self.now < end:
            threads.step()
            us = times * self.us[threads.number]
            self.goes(us / 1e6, threads.number)
            seen.append(threads.observe_step(toys.pair()[0].decoder, [Pass("target", "verify", 1, 20, us)]))
        return [x for x in seen if x is not None]


def test_the_fewest_threads_that_are_as_good_as_the_fastest_are_chosen() -> None:
    assert (
        thread_counts(1) == [1]
        and thread_counts(2) == [1, 2]
        and thread_counts(6) == [1, 2, 4, 6]
        and thread_counts(8) == [1, 2, 4, 8]
    )
    assert choose_thread_count({1: [4.0, 9.0], 2: [3.0, 5.0]}) == 2
    assert (
        choose_thread_count({1: [4.0, 9.0], 2: [3.9, 8.9]}) == 1
    )  # equally good, and leaves a processor to others
    assert (
        choose_thread_count({1: [4.0, 4.0], 2: [4.3, 4.3]}, now=2) == 2
        and choose_thread_count({1: [4.0, 4.0], 2: [4.8, 4.8]}, now=2) == 1
    )


def test_a_model_is_timed_once_and_torch_has_the_number() -> None:
    world = World(t1=5, t2=3)
    threads, decoder = world.threads(), toys.pair()[0].decoder
    threads.choose(decoder)
    threads.begin(decoder)
    assert threads.number == torch.get_num_threads() == 2 and world.timings == 1
    assert threads.record() == {
        "number": 2,
        "of": 2,
        "fixed": "",
        "rows": [1, 16],
        "ms": {"1": [5, 10], "2": [3, 6]},
    }


@pytest.mark.parametrize(
    ("given", "why"),
    [({"number": 2}, "--threads"), ({"environ": {"OMP_NUM_THREADS": "1"}}, "OMP_NUM_THREADS")],
)
def test_a_fixed_number_is_never_changed(given: dict[str, object], why: str) -> None:
    world = World(t1=5, t2=3)
    threads = world.threads(**given)
    threads.choose(toys.pair()[0].decoder)
    number = threads.number
    world.steps(threads, 1)
    world.takes(t1=500, t2=500, others=1)
    assert not world.steps(threads, 9) and world.timings == 0 and threads.fixed == why
    assert threads.number == number == torch.get_num_threads()


def test_where_others_take_the_processors_fewer_threads_go_on_at_once_and_more_when_they_left() -> None:
    world = World(t1=5, t2=3)
    threads = world.threads()
    threads.choose(toys.pair()[0].decoder)
    world.takes(t1=5, t2=12, others=0.5)  # another program has come
    (one,) = world.steps(threads, 0.25)
    assert (one.before, one.after) == (2, 1) and torch.get_num_threads() == 1 and world.timings == 1
    assert one.slower == 2 and one.rows == 1, "twice as long, if one of two threads has half a processor"
    assert one.timed_us == {"1": [5000, 10000], "2": [6000, 12000]}
    world.takes(t1=5, t2=12, others=1)
    assert not world.steps(threads, 30) and world.timings == 1, "no processor is free, so nothing is tried"
    world.takes(t1=5, t2=3)  # and gone
    (back,) = world.steps(threads, 2.2)
    assert (back.before, back.after, back.slower) == (1, 2, None) and world.timings == 2


def test_a_process_that_begins_beside_others_in_too_many_threads_leaves_them_after_a_few_passes() -> None:
    world = World(t1=5, t2=4)  # the few timed passes run while no other program does
    threads = world.threads()
    threads.choose(toys.pair()[0].decoder)
    assert threads.number == 2
    world.takes(t1=6, t2=30, others=1)  # the run's passes run next to another program, from the first one on
    (one,) = world.steps(threads, 2.5 * SPAN_US / 1e6)
    assert (one.before, one.after) == (2, 1) and one.slower == 7.5


def test_those_who_come_again_and_again_are_met_ever_less_often() -> None:
    world = World(t1=5, t2=3)
    threads = world.threads()
    threads.choose(toys.pair()[0].decoder)
    ups: list[float] = []
    for _ in range(100):  # 2.7 s without them, and 0.9 s with them
        world.takes(t1=5, t2=3)
        ups += [world.now for x in world.steps(threads, 2.7) if x.after == 2]
        world.takes(t1=5, t2=12, others=0.9)
        world.steps(threads, 0.9)
    assert 4 < len(ups) < 12 and ups[-1] - ups[-2] >= REST_S[1] > 10 * (ups[1] - ups[0])


@pytest.mark.parametrize(
    ("others", "times", "rows", "ours"),
    [(0, 9, 1, 2), (0, 9, 1, 1), (0.9 * TAKEN, 9, 1, 2), (1, 0.9 * SLOW, 1, 2), (1, 9, 64, 2)],
    ids=[
        "a long context",
        "threads that wait for a disk",
        "little taken",
        "no slower",
        "more rows than were timed",
    ],
)
def test_slow_passes_alone_are_no_reason_nor_are_others(
    others: float, times: float, rows: int, ours: int
) -> None:
    world = World(t1=5, t2=3)
    threads, decoder = world.threads(), toys.pair()[0].decoder
    threads.choose(decoder)
    world.others = others
    for _ in range(100):
        threads.step()
        world.goes(times * 3e-3, ours)
        assert threads.observe_step(decoder, [Pass("target", "verify", rows, 20, times * 3e3)]) is None


def test_what_holds_up_a_few_passes_once_is_no_reason() -> None:
    world = World(t1=5, t2=3)
    threads = world.threads()
    threads.choose(toys.pair()[0].decoder)
    for _ in range(20):
        world.takes(t1=5, t2=3)
        assert not world.steps(threads, 0.3)
        world.takes(t1=5, t2=12, others=1)
        assert not world.steps(threads, 0.6 * SPAN_US / 1e6)


def test_where_nothing_is_better_it_is_looked_for_ever_less_often() -> None:
    world = World(t1=5, t2=8)
    threads = world.threads()
    threads.choose(toys.pair()[0].decoder)
    world.steps(threads, 100)
    assert 5 < world.timings < 10 and threads.number == 1
    world = World(t1=5, t2=8)
    world.steps(threads := world.threads(idle=lambda: None), 0)
    threads.choose(toys.pair()[0].decoder)
    world.others = 1
    world.steps(threads, 100)
    assert 5 < world.timings < 10, "where nobody says what is idle, the clock alone decides"


def test_a_switch_stands_in_the_trace_and_in_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    # otherwise another program could be a reason
    monkeypatch.setattr(Executor, "elapsed_us", lambda *marks: 3000.0)
    world = World(t1=5, t2=3)
    runs = []
    for watched in (True, False):
        session = Session(toys.pair()[0], None, toys.PROMPT, max_new_tokens=30, seed=1)
        session.sink = trace = Trace()
        if watched:
            session.threads = threads = world.threads()
            world.now += 10
            session.start()
            threads.number = 1  # as after a switch to fewer threads
        for step in session.stream():
            world.goes(1)
            assert watched or step.environment is None
        runs.append(trace)
    switched = [step.environment for step in runs[0].steps if step.environment is not None]
    assert [(x.before, x.after) for x in switched] == [(1, 2)] and runs[0].header.threads == 2
    assert check(runs[0]).ok and runs[0].end.tokens == runs[1].end.tokens
    assert runs[0].end.content_hash == runs[1].end.content_hash != ContentHash().hexdigest()
    switched[0].after = 1
    assert any("2 are due" in x for x in map(str, check(runs[0]).problems))


def test_real_passes_are_timed_in_each_number() -> None:
    took = time_passes(toys.pair()[0].decoder, [1, 2], 0.0)
    assert set(took) == {1, 2} and all(len(x) == 2 and min(x) > 0 for x in took.values())
    both = SimpleNamespace(spec=toys.pair()[0].decoder.spec, device=torch.device("cuda"), dtype=torch.float32)
    threads = World(t1=1, t2=2).threads()
    threads.choose(both)  # type: ignore[arg-type] # a device that is none
    assert threads.took == {}


def test_a_number_whose_first_pass_takes_very_long_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []

    def slow(lane: object, rows: int) -> float:
        passes.append(torch.get_num_threads())
        return 1e9 if torch.get_num_threads() == 2 else 1e9 / TOO_FAR / 2

    monkeypatch.setattr("decodescope.engine.decoding.shared.thread_count.pass_us", slow)
    took = time_passes(toys.pair()[0].decoder, [1, 2], 0.0)
    # for one thread, its processor time
    assert passes == [1, 1, 1, 2] and took[2] == [1e9, 1e9] and 0 < took[1][0] < 1e6


def test_idle_processors_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"cpu{n} 700 {100 * (n + 1)} 90 5000 20 0 8 3 0 0" for n in range(64)]
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5\n" + "\n".join(lines) + "\nintr 17\n")
    monkeypatch.setattr("decodescope.engine.decoding.shared.thread_count.STAT", tmp_path / "stat")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 2}, raising=False)
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    for niceness, seconds in ((0, 104.4), (5, 100.4)):
        monkeypatch.setattr("os.nice", lambda more, now=niceness: now)
        assert idle_s() == pytest.approx(seconds)
    monkeypatch.setattr("decodescope.engine.decoding.shared.thread_count.STAT", tmp_path / "none")
    monkeypatch.delattr("os.nice")  # as on a system without that file
    assert idle_s() is None
