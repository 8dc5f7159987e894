"""Threads: chosen by what passes take, watched by what they take later, fixed by whoever says so; by a clock of our own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest
import torch
import toys

from decodescope.engine import Session
from decodescope.engine.model.executor import Executor
from decodescope.engine.timing.threads import REST_S, SLOW, WINDOW, Threads, numbers, timed
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.content import ContentHash
from decodescope.engine.trace.environment import threads_of
from decodescope.engine.trace.events import Environment, Pass


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class World:
    """A machine: what passes take in each number of threads, and a clock that goes only when it is told to."""

    def __init__(self, **ms: float):
        self.now, self.timings = 0.0, 0
        self.takes(**ms)

    def takes(self, **ms: float) -> None:
        self.us = {int(name[1:]): x * 1000 for name, x in ms.items()}

    def timing(self, decoder: object, threads: Sequence[int], budget_s: float) -> dict[int, list[float]]:
        self.timings += 1
        self.now += budget_s
        return {n: [self.us[n], 2 * self.us[n]] for n in threads}

    def threads(self, **more: object) -> Threads:
        given = {"environ": {}, "most": max(self.us), "timing": self.timing, "clock": lambda: self.now, **more}
        return Threads(**given)  # type: ignore[arg-type] # of several types

    def steps(self, threads: Threads, count: int, rows: int = 1) -> list[Environment]:
        """What the watch says of so many steps, each of one pass that takes what it takes now."""
        seen = []
        for _ in range(count):
            us = self.us[threads.number]
            self.now += us / 1e6
            seen.append(threads.look(toys.pair()[0].decoder, [Pass("target", "verify", rows, 20, us)]))
        return [x for x in seen if x is not None]


def test_the_fewest_threads_that_are_as_good_as_the_fastest_are_chosen() -> None:
    assert numbers(1) == [1] and numbers(2) == [1, 2] and numbers(6) == [1, 2, 4, 6] and numbers(8) == [1, 2, 4, 8]
    assert threads_of({1: [4.0, 9.0], 2: [3.0, 5.0]}) == 2
    assert threads_of({1: [4.0, 9.0], 2: [3.9, 8.9]}) == 1  # as good, and leaves a processor to others
    assert threads_of({1: [4.0, 4.0], 2: [4.3, 4.3]}, now=2) == 2 and threads_of({1: [4.0, 4.0], 2: [4.8, 4.8]}, now=2) == 1


def test_a_model_is_timed_once_and_torch_has_the_number() -> None:
    world = World(t1=5, t2=3)
    threads, decoder = world.threads(), toys.pair()[0].decoder
    threads.choose(decoder)
    threads.begin(decoder)
    assert threads.number == torch.get_num_threads() == 2 and world.timings == 1
    assert threads.record() == {"number": 2, "of": 2, "fixed": "", "rows": [1, 16], "ms": {"1": [5, 10], "2": [3, 6]}}


@pytest.mark.parametrize(
    ("given", "why"), [({"number": 2}, "--threads"), ({"environ": {"OMP_NUM_THREADS": "1"}}, "OMP_NUM_THREADS")]
)
def test_a_fixed_number_is_never_changed(given: dict[str, object], why: str) -> None:
    world = World(t1=5, t2=3)
    threads = world.threads(**given)
    threads.choose(toys.pair()[0].decoder)
    number = threads.number
    world.steps(threads, 40)
    world.takes(t1=500, t2=500)
    assert not world.steps(threads, 40) and world.timings == 0 and threads.fixed == why
    assert threads.number == number == torch.get_num_threads()


def test_passes_that_take_a_multiple_are_timed_anew_and_run_in_fewer_threads() -> None:
    world = World(t1=5, t2=3)
    threads = world.threads()
    threads.choose(toys.pair()[0].decoder)
    world.now += REST_S[0]
    assert not world.steps(threads, 30) and world.timings == 1
    world.takes(t1=6, t2=12)  # another program has come
    (one,) = world.steps(threads, WINDOW + 2)
    assert (one.before, one.after) == (2, 1) and torch.get_num_threads() == 1
    assert one.slower is not None and SLOW < one.slower <= 4 and one.rows == 1
    assert one.timed_us == {"1": [6000, 12000], "2": [12000, 24000]}
    world.takes(t1=5, t2=3)  # and gone: nothing shows that in passes of one thread, so the clock does
    assert not world.steps(threads, 3)
    world.now += REST_S[0]
    (back,) = world.steps(threads, WINDOW)
    assert (back.before, back.after, back.slower) == (1, 2, None)


def test_what_passes_of_a_run_take_counts_where_timing_meets_nobody_and_it_is_tried_ever_less_often() -> None:
    world = World(t1=5, t2=3)
    threads = world.threads()
    threads.choose(toys.pair()[0].decoder)
    world.now += REST_S[0]
    world.steps(threads, 30)
    threads._timing = lambda decoder, some, budget_s: {n: [{1: 5000, 2: 3000}[n], {1: 10000, 2: 6000}[n]] for n in some}
    world.takes(t1=6, t2=18)  # two programs have come, which passes that are timed by turns do not meet
    one, *later = world.steps(threads, 100 * 140)  # 100 s
    assert (one.before, one.after) == (2, 1) and one.slower is not None
    assert one.timed_us["1"] == [5000, 10000] and one.timed_us["2"][0] > 5000
    ups = [x for x in later if x.after > x.before]
    assert 2 <= len(ups) <= 6, "more threads are tried again, at longer and longer intervals"
    assert threads.number == 1


def test_one_long_pass_and_passes_of_more_rows_are_no_reason() -> None:
    world = World(t1=5, t2=3)
    threads, decoder = world.threads(), toys.pair()[0].decoder
    threads.choose(decoder)
    world.now += REST_S[0]
    world.steps(threads, 20)
    assert threads.look(decoder, [Pass("target", "verify", 1, 20, 90_000.0)]) is None
    assert not world.steps(threads, 20)
    world.takes(t1=50, t2=30)
    assert not world.steps(threads, 20, rows=16) and world.timings == 1  # a sort of its own: so long is usual for it


def test_where_nothing_is_better_it_is_looked_for_ever_less_often() -> None:
    world = World(t1=5, t2=8)
    threads = world.threads()
    threads.choose(toys.pair()[0].decoder)
    world.steps(threads, 200 * 100)  # 100 s
    assert 5 < world.timings < 10 and threads.number == 1


def test_a_switch_stands_in_the_trace_and_in_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executor, "elapsed_us", lambda *marks: 3000.0)  # else another program could be a reason
    world = World(t1=5, t2=3)
    runs = []
    for watched in (True, False):
        session = Session(toys.pair()[0], None, toys.PROMPT, max_new_tokens=30, seed=1)
        session.sink = trace = Trace()
        if watched:
            session.threads = threads = world.threads()
            world.now += 10
            session.start()
            threads.number = 1  # as after a change for the worse
        for step in session.stream():
            world.now += 1
            assert watched or step.environment is None
        runs.append(trace)
    switched = [step.environment for step in runs[0].steps if step.environment is not None]
    assert [(x.before, x.after) for x in switched] == [(1, 2)] and runs[0].header.threads == 2
    assert check(runs[0]).ok and runs[0].end.tokens == runs[1].end.tokens
    assert runs[0].end.content_hash == runs[1].end.content_hash != ContentHash().hexdigest()
    switched[0].after = 1
    assert any("2 are due" in x for x in map(str, check(runs[0]).problems))


def test_real_passes_are_timed_in_each_number() -> None:
    took = timed(toys.pair()[0].decoder, [1, 2], 0.0)
    assert set(took) == {1, 2} and all(len(x) == 2 and min(x) > 0 for x in took.values())
    both = SimpleNamespace(spec=toys.pair()[0].decoder.spec, device=torch.device("cuda"), dtype=torch.float32)
    threads = World(t1=1, t2=2).threads()
    threads.choose(both)  # type: ignore[arg-type] # a device that is none
    assert threads.took == {}
