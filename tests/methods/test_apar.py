"""APAR: a text forks where the model decides; each thread equals a run of its own; passes count the longest path of threads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import bytewise
import pytest
import torch
import toys
from torch import Tensor

from decodescope.engine import MethodError, Session
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.threads import TextThread, build_thread_tree, thread_schedule

PROMPT = list(b"Three rivers of the north")
FORK, CHILD, END = 1, 2, 3
FORKS = {"fork_token": str(FORK), "child_token": str(CHILD)}


class Forking(Decoder):
    """A model that writes [Fork] when its text has reached certain places, and ends its text at others after a [Child]."""

    forks: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    def forward(self, feed: Any, *rest: Any) -> Tensor:
        logits = super().forward(feed, *rest)
        places = feed.positions[:, feed.rows] + 1
        logits[..., [FORK, CHILD, END]] = -30.0
        for wanted, token in ((self.forks, FORK), (self.ends, END)):
            logits[..., token][torch.isin(places, torch.tensor(wanted, dtype=torch.int64))] = 60.0
        return logits


def model(forks: tuple[int, ...] = (30, 33, 40), ends: tuple[int, ...] = ()) -> Model:
    made, decoder = bytewise.lively(), Forking.__new__(Forking)
    decoder.share(made.decoder)
    decoder.forks, decoder.ends = forks, ends
    made.decoder = decoder
    return made


def run(
    made: Model, parts: dict[str, Any], prompt: list[int] = PROMPT, count: int = 200, **more: Any
) -> Session:
    session = Session(made, toys.method(**parts), prompt, max_new_tokens=count, **more)
    session.sink = Trace()
    for _ in session.stream():
        pass
    assert check(session.sink).ok, str(check(session.sink))
    return session


def tree(session: Session) -> list[TextThread]:
    return build_thread_tree(step.detail("threads") for step in session.sink.steps).strands


def before(strand: TextThread) -> list[int]:
    """All tokens before what a thread wrote."""
    if strand.parent is None:
        return [*PROMPT, *strand.given]
    return [*before(strand.parent), *strand.parent.tokens[: strand.at], *strand.given]


@pytest.mark.parametrize(
    "sampler", [{}, {"sampler": ("temperature", {"temperature": 0.9})}], ids=["greedy", "drawn"]
)
def test_each_thread_is_a_run_of_its_own_in_whatever_order_they_run(sampler: dict[str, Any]) -> None:
    made = model(ends=(52,))
    session = run(made, {"strategy": ("apar", FORKS), **sampler}, seed=3, stop_tokens=[END])
    every = tree(session)
    assert len(every) == 8 and {x.parent and x.parent.number for x in every} == {None, 0, 1, 2, 3}, (
        "threads fork in turn"
    )
    for strand in reversed(every):  # one after another, the last one first
        alone = run(made, sampler, before(strand), seed=3 + strand.number, stop_tokens=[END])
        assert alone.end.tokens == strand.tokens and strand.tokens[-1] == END


def test_passes_are_the_longest_way_and_the_text_has_a_child_where_it_forked() -> None:
    session = run(model(ends=(52,)), {"strategy": ("apar", FORKS)}, stop_tokens=[END])
    took = thread_schedule(step.detail("threads") for step in session.sink.steps)
    assert took.rounds == took.longest == session.steps < took.tokens / 2
    phases = [x.phase for step in session.sink.steps for x in step.passes]
    assert phases == ["verify"] * took.rounds, "no pass but those of the rounds"

    def text(strand: TextThread) -> list[int]:
        out: list[int] = []
        for i, token in enumerate(strand.tokens[:-1], 1):
            out += [token, *(x for kid in strand.children.get(i, []) for x in text(kid))]
        return out

    assert session.end.tokens == [*text(tree(session)[0]), END] and session.end.reason == "stop_token"
    assert session.end.tokens.count(FORK) == 7


def test_no_more_entries_are_held_than_plain_decoding_of_the_text_holds() -> None:
    session = run(
        model(forks=(30, 33, 40, 60, 70), ends=(52, 75)), {"strategy": ("apar", FORKS)}, stop_tokens=[END]
    )
    peak = max(change.held for step in session.sink.steps for change in step.cache)
    assert peak < len(PROMPT) + len(session.end.tokens) - 1
    rows = [sum(x.tokens for x in step.passes) for step in session.sink.steps]
    alive = [len(step.detail("threads").alive) for step in session.sink.steps]
    assert rows == alive and max(alive) >= 8, (
        "a row of each thread: a child's [Child] stands behind its parent's row of [Fork]"
    )


def taken(trace: Trace) -> list[list[int]]:
    """The places of the entries freed with each thread that ended before the last step; empty lists are left out."""
    return [places for step in trace.steps[:-1] for one in step.cache for places in one.freed or () if places]


def faulty(session: Session, lie: Callable[[list[list[int]]], None]) -> str:
    """The problems that `check` finds once `lie` has changed which entries were freed with the run's threads."""
    trace = copy.deepcopy(session.sink)
    lie(taken(trace))
    return str(check(trace))


def test_entries_that_go_with_threads_are_followed_to_the_end() -> None:
    session = run(model(ends=(48, 55)), {"strategy": ("apar", FORKS)}, count=120, stop_tokens=(END,))
    report = check(session.sink)
    early = taken(session.sink)
    assert report.ok and report.counts["cache changes"] == len(session.sink.steps) + 1, report
    assert early and all(len(x) > 1 for x in early), "the test needs threads that end before others"
    assert "its cache evicted" in faulty(session, lambda x: x[0].pop(0))
    assert "and had read up to" in faulty(session, lambda x: x[0].__setitem__(-1, x[0][-1] + 1))
    assert "and alone it read from" in faulty(session, lambda x: x[0].insert(0, x[0][0] - 1))


def test_a_model_that_never_forks_is_decoded_plainly() -> None:
    made = model(forks=())
    plain = run(made, {}, count=40)
    for settings in (FORKS, {}):
        session = run(made, {"strategy": ("apar", settings)}, count=40)
        assert session.end.tokens == plain.end.tokens and session.target.cache.layers[0].in_order
        assert not session.header.lossless


def test_child_is_never_drawn_and_a_fork_follows_none() -> None:
    class Eager(Forking):
        def forward(self, feed: Any, *rest: Any) -> Tensor:
            logits = super().forward(feed, *rest)
            logits[..., CHILD], logits[..., FORK] = 90.0, 80.0
            return logits

    made, decoder = model(forks=()), Eager.__new__(Eager)
    decoder.share(made.decoder)
    made.decoder = decoder
    session = run(made, {"strategy": ("apar", {**FORKS, "max_threads": 4})}, count=60)
    for strand in tree(session):
        assert CHILD not in strand.tokens and (strand.parent is None or strand.tokens[:1] != [FORK])
        assert all(b != FORK for a, b in zip(strand.tokens, strand.tokens[1:], strict=False) if a == FORK)
    assert max(len(step.detail("threads").alive) for step in session.sink.steps) == 4, (
        "no more at once than `most`"
    )
    assert len(session.end.tokens) == 60


def test_marks_that_do_not_serve_are_refused_in_a_sentence() -> None:
    with pytest.raises(
        MethodError, match=r"^apar\.fork_token and apar\.child_token belong together: give both, or neither"
    ):
        Session(model(), toys.method(strategy=("apar", {"fork_token": "1"})), PROMPT)
    with pytest.raises(MethodError, match=r"^apar\.fork_token and apar\.child_token are both '1'"):
        Session(model(), toys.method(strategy=("apar", {"fork_token": "1", "child_token": "1"})), PROMPT)
    for fork, said in (
        ("999", r"^apar\.fork_token = 999: the ids of random are 0 to 256\."),
        ("no token", "has no such token"),
    ):
        session = Session(
            model(), toys.method(strategy=("apar", {"fork_token": fork, "child_token": "2"})), PROMPT
        )
        with pytest.raises(EngineFault, match=said):
            session.start()
    marked = run(
        model(forks=()), {"strategy": ("apar", {"fork_token": "<|end|>", "child_token": "x"})}, count=4
    )
    assert marked.scratch.marks == (256, ord("x") - 33), "a mark, and a token by their texts"
