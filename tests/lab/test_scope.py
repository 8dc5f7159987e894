"""The widget: what it sends, when, and what a reopened notebook holds; and two widgets under one cursor."""

from __future__ import annotations

import json
from typing import Any

import pytest
import toys
from toylab import HOSTILE
from traitlets import TraitError

from decodescope.engine.trace import Trace
from decodescope.lab import Scope, compare, open_trace, show
from decodescope.lab.views import scope as module
from decodescope.lab.views.compare import differences
from decodescope.lab.wire.messages import build_wire
from decodescope.lab.wire.wire import Wire, encode

from .runs import known, run


class Clock:
    """A clock that the test sets by hand instead of the `time` module."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Heard(Scope):
    """A scope that remembers what it sent."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.sent: list[Any] = []
        super().__init__(*args, **more)

    def send(self, content: Any, buffers: Any = None) -> None:
        self.sent.append(content)

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [
            x for one in self.sent if one["kind"] == "batch" for x in one["messages"] if x["kind"] == "step"
        ]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def test_a_shown_trace_lies_whole_in_one_trait() -> None:
    trace = known("chain")
    made = show(trace, 3)
    kinds = [message["kind"] for message in made.messages]
    assert kinds == ["head", *["step"] * len(trace.steps), "end"] and made.step == 3
    assert not any(message.get("brief") for message in made.messages[1:-1])
    assert made.get_state()["messages"] == made.messages, "a reopened notebook draws from the state alone"


def test_a_long_trace_comes_with_trees_first_and_then_without(monkeypatch: pytest.MonkeyPatch) -> None:
    from decodescope.lab.wire import messages

    monkeypatch.setattr(
        messages.messages, "__kwdefaults__", {**messages.messages.__kwdefaults__, "plenty": 20_000}
    )
    steps = [m for m in show(known("chain")).messages if m["kind"] == "step"]
    assert not steps[0].get("brief") and steps[-1].get("brief") and len(steps) == len(known("chain").steps)


def test_streamed_steps_go_in_batches_ten_times_a_second_at_most(clock: Clock) -> None:
    trace, made = run("chain", count=120), Heard()
    for record in trace.records():
        made.write(record)
        clock.now += 0.01
    batches = [one for one in made.sent if one["kind"] == "batch"]
    assert [s["i"] for s in made.steps] == list(range(len(trace.steps))), "each once, in order"
    assert len(batches) <= len(trace.steps) * 0.01 / module.EVERY + 3
    assert all(len(encode(one)) <= 1.2 * module.MOST for one in batches)
    assert made.trace is not None and [m["kind"] for m in made.messages][-1] == "end"


def test_a_backlog_is_sent_without_its_oldest_trees(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 20_000)
    trace, made = run("tree", count=150), Heard()
    made._begin(trace.header)
    made._sent = clock.now
    for step in trace.steps:
        made._take(step)
    assert not made.steps, "the last message was just now"
    made.flush()
    assert [s["i"] for s in made.steps] == list(range(len(trace.steps)))
    assert made.steps[0].get("brief") and not made.steps[-1].get("brief")
    assert max(len(encode(one)) for one in made.sent) <= 1.2 * module.MOST


def test_push_alone_shows_steps_of_a_run_that_told_no_header(clock: Clock) -> None:
    trace, made = known("chain"), Heard()
    for step in trace.steps:
        made.push(step)
    made.flush()
    assert [s["i"] for s in made.steps] == list(range(len(trace.steps)))
    assert made.steps[0]["nodes"][0][1] == "…", "what stands before the first step is not known"
    assert made.show(trace).messages[0]["kind"] == "head"


@pytest.mark.parametrize("kept", [False, True], ids=["alone", "beside a trace"])
def test_a_watched_session_is_shown_and_kept(kept: bool, clock: Clock) -> None:
    session = toys.Session(toys.target(), toys.method(sampler="temperature"), toys.PROMPT, max_new_tokens=12)
    session.sink = Trace() if kept else None
    first, made = session.sink, Heard()
    made.watch(session)
    assert (
        [s["i"] for s in made.steps] == list(range(12))
        and made.trace is not None
        and made.trace.end is not None
    )
    assert not kept or [s.emitted for s in first.steps] == [s.emitted for s in made.trace.steps]


def test_a_gap_is_filled_with_whole_steps(clock: Clock) -> None:
    made = Heard(known("tree"))
    made._answer_request(made, {"kind": "gap", "from": 2, "to": 5}, [])
    made.flush()
    assert [s["i"] for s in made.steps] == [2, 3, 4] and all(
        "nodes" in s and "cut" not in s for s in made.steps
    )
    for content in ({"kind": "gap", "from": -5, "to": 10**9}, {"kind": "other"}, {"kind": "gap"}, "text"):
        made._answer_request(made, content, [])  # type: ignore[arg-type]


def test_selection_explains_the_node_that_was_clicked() -> None:
    trace = known("chain")
    made = show(trace)
    step = next(
        s for s in trace.steps if s.draft is not None and len(s.draft.tokens) > 1 and s.extra is not None
    )
    made.selection = {"step": step.step, "node": 1}
    assert made.explain().where.startswith("node 0")
    made.selection = {"step": step.step, "node": len(step.draft.tokens) + 1}  # type: ignore[union-attr]
    assert made.explain().status in ("bonus", "resample")


def test_node_and_selection_are_one_thing_in_two_forms() -> None:
    scope = show("first-rejection", 3)
    nodes: list[Any] = []
    scope.observe(lambda change: nodes.append(change["new"]), "node")
    scope.selection = {"step": 3, "node": 2}  # a click
    assert scope.node == 2
    scope.node = 1
    assert scope.selection == {"step": 3, "node": 1} and "node 0" in scope.explain().where
    scope.step = 4
    assert scope.node is None and scope.selection == {"step": 3, "node": 1}, (
        "what was selected stays with its step"
    )
    scope.step = 3
    scope.node = None
    assert scope.selection is None and nodes == [2, 1, None, 1, None]
    drafted = open_trace("first-rejection").steps[3].drafted
    with pytest.raises(
        TraitError, match=rf"node = 99: the step that is shown has nodes 0 \(the root\) to {drafted + 1}"
    ):
        scope.node = 99
    newest = show("jacobi")
    newest.step, newest.node = -1, 0
    assert newest.selection == {"step": 28, "node": 0}


def test_hostile_tokens_stay_data_in_the_traits() -> None:
    made = show(run("chain", hostile=True, count=40))
    back = json.loads(json.dumps(made.messages))
    texts = {row[1] for m in back if m["kind"] == "step" for row in m["nodes"] if row}
    assert len(texts & set(HOSTILE)) > 5


def test_a_comparison_holds_both_runs_and_answers_for_each() -> None:
    a, b = run("plain greedy", count=60), run("greedy", count=60)
    made = compare(a, b)
    assert [len([m for m in told if m["kind"] == "step"]) for told in made.runs] == [
        len(a.steps),
        len(b.steps),
    ]
    sent: list[Any] = []
    made.send = lambda content, buffers=None: sent.append(content)  # type: ignore[method-assign]
    for which, trace in enumerate((a, b)):
        made._answer_request(None, {"kind": "gap", "which": which, "from": 3, "to": 5}, None)
        wire = build_wire(trace)
        assert sent.pop() == {
            "which": which,
            "messages": [wire.step(s, whole=True) for s in trace.steps[3:5]],
        }
    made._answer_request(None, {"kind": "gap", "which": 2, "from": 0, "to": 1}, None)
    assert not sent and made.get_state()["runs"] == made.runs
    with pytest.raises(TraitError, match="align"):
        made.align = "words"


def test_differences_name_settings_figures_and_the_first_other_token() -> None:
    a, b = run("plain", count=40), run("chain", count=40, seed=1)
    rows = {row.what: row for row in differences(a, b)}
    assert (rows["drafter"].a, rows["drafter"].b) == ("none", "draft_model")
    assert (rows["seed"].a, rows["seed"].b) == ("0", "1")
    assert "draft_model.max_draft_tokens" not in rows and "draft model" not in rows, (
        "what one has alone is no difference"
    )
    assert "model" not in rows and "sampler" not in rows, "what is equal is left out"
    assert rows["tokens per target pass (tau)"].a == "1.00" and "trials accepted" not in rows
    made, other = a.tokens[len(a.header.prompt) :], b.tokens[len(b.header.prompt) :]
    first = next(i for i, (x, y) in enumerate(zip(made, other, strict=True)) if x != y)
    assert f"first difference, token {first}" in rows
    same = {row.what: row for row in differences(run("plain greedy"), run("greedy"))}
    assert same["first difference"].a == "none"


def test_hostile_tokens_stay_data_in_a_comparison() -> None:
    made = compare(run("plain", hostile=True, count=20), run("chain", hostile=True, count=20))
    texts = {text for told in made.runs for m in told if m["kind"] == "step" for _, text, _ in m["made"]}
    assert len(texts & set(HOSTILE)) > 5
    assert "tokens per target pass" in str(made)


def test_an_unknown_trace_is_refused_with_the_known_ones(tmp_path: Any) -> None:
    from decodescope.engine.trace import TraceError

    with pytest.raises(TraceError, match="examples: "):
        open_trace("no_such_example")
    path = known("chain").save(tmp_path / "one.dstrace")
    assert len(open_trace(path).steps) == len(known("chain").steps)


def test_a_scope_without_a_trace_says_so() -> None:
    for call in (Scope().explain, Scope().freeze):
        with pytest.raises(ValueError, match="Nothing is shown yet"):
            call()


def test_the_stream_is_the_wire_s(clock: Clock) -> None:
    trace, made = known("chain"), Heard()
    wire = Wire(trace.header)
    for record in trace.records():
        made.write(record)
        clock.now += 1
        if record is trace.prefill or record in trace.steps:
            wire.learn(record)
    assert made.steps[-1] == wire.step(trace.steps[-1])
    assert isinstance(made.trace, Trace)
