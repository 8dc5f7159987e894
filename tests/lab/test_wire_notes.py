"""Notes on the wire: the recorded notes, with nodes counted as a view counts them, and within the budget."""

from __future__ import annotations

import json
from typing import Any

import pytest
import toys

from decodescope.engine import Method
from decodescope.engine.core.component import registry
from decodescope.engine.core.note import Note
from decodescope.engine.trace import Trace
from decodescope.engine.trace.checks.notes import declared_notes
from decodescope.lab.wire.messages import build_wire, messages
from decodescope.lab.wire.wire import BRIEF, BUDGET, NOTES, encode

from .planted import Planter, planted
from .runs import known


def of(trace: Trace, k: int, *, whole: bool = True) -> dict[str, Any]:
    """The planted part's notes in the message of step k."""
    return json.loads(encode(build_wire(trace).step(trace.steps[k], whole=whole)))["notes"]["drafter"]


def test_the_head_declares_each_note_without_what_is_empty() -> None:
    tells = json.loads(encode(build_wire(planted()).head()))["tells"]["drafter"]
    what = "how sure it was of the node"
    assert tells["sure"] == {
        "kind": "node",
        "word": "sureness",
        "unit": "nats",
        "what": what,
        "line": "bar",
        "at": "bar",
    }
    assert (tells["bar"]["line"], tells["bar"]["at"]) == ("floor", 1.5), "a knob's number"
    assert (tells["level"]["line"], tells["level"]["at"]) == ("bar", "bar"), "another note's name"
    assert tells["on"] == {"kind": "series", "word": "planted", "what": "whether it is on"}
    assert tells["sowing"]["unit"] == "s" and tells["crew"]["unit"] == "layer"


def test_a_line_at_zero_is_a_line() -> None:
    trace = planted(1)
    trace.header.tells["drafter"]["bar"] = Note("series", "bar", line="floor", at=0.0)  # type: ignore[index]
    assert build_wire(trace).head()["tells"]["drafter"]["bar"]["at"] == 0.0


def test_every_kind_has_one_shape() -> None:
    trace = planted()
    even, odd = of(trace, 4), of(trace, 5)
    assert even["sure"] == [2.25, 1.5, 0.5], "the root is node 0"
    assert even["before"] == [None, 0, 1], "nothing of the root; numbers of nodes are one higher"
    assert even["reach"] == [[4, 5], [10, 13]] and odd["reach"] == [[5, 9]]
    assert even["crew"] == [4, 7, 11] and even["beds"] == {"left": 4, "right": 2.5}
    assert even["seen"] == [{"token": 8, "text": "x"}, {"token": 9, "text": ["e2", "96"]}]
    assert even["sowing"] == 0.0019 and (even["on"], odd["bar"], of(trace, 6)["bar"]) == (False, 1.5, 2.0)
    assert not {"level", "reach", "crew", "beds"} & set(of(trace, 6)), (
        "nothing is sent of what nothing was told"
    )


def test_a_step_without_its_tree_has_all_but_the_notes_of_nodes() -> None:
    trace = planted()
    wire = build_wire(trace)
    brief, whole = (
        wire.brief(trace.steps[4])["notes"]["drafter"],
        wire.step(trace.steps[4])["notes"]["drafter"],
    )
    assert {name: x for name, x in whole.items() if name not in ("sure", "before")} == brief and set(
        whole
    ) - set(brief)


def test_a_run_whose_parts_declare_no_notes_is_sent_none() -> None:
    silent, undeclared = known("plain"), planted()
    undeclared.header.tells = {}
    for trace in (silent, undeclared):
        head, *steps = messages(trace)
        assert head["tells"] == {} and not any("notes" in x for x in steps if x["kind"] == "step")


def test_what_has_not_its_shape_or_is_not_declared_is_not_sent() -> None:
    trace = planted(2)
    trace.steps[0].draft.notes |= {"level": "high", "reach": [5, 1], "secret": 1}  # type: ignore[union-attr, operator]
    assert not {"level", "reach", "secret"} & set(of(trace, 0)) and "level" in of(trace, 1)


def test_of_too_much_the_notes_of_nodes_are_left_out_first_and_the_rest_comes_when_asked_for() -> None:
    trace = planted(3)
    step = trace.steps[1]
    step.draft.notes["sure"] = [0.123456789 + 1e-9, ["long " * 50] * 9, None]  # type: ignore[union-attr, index]
    step.draft.notes["crew"] = list(range(200))  # type: ignore[union-attr, index]
    wire = build_wire(trace)
    sent, whole = wire.step(step), wire.step(step, whole=True)
    assert sent["few"] and "few" not in whole and len(whole["notes"]["drafter"]["crew"]) == 200
    assert set(whole["notes"]["drafter"]) - set(sent["notes"]["drafter"]) == {"sure"}
    assert len(encode(sent["notes"])) <= NOTES + 100
    brief = wire.brief(step)["notes"]["drafter"]
    assert (
        "crew" not in brief
        and {"level", "bar", "sowing", "beds"} <= set(brief)
        and len(encode(brief)) <= BRIEF + 100
    )


def test_notes_keep_a_step_within_its_budget() -> None:
    trace, sizes = (
        toys.decode(
            toys.method(drafter=("trie", {"nodes": 40, "max_suffix": 3, "max_output_nodes": 8}))
        ).sink,
        [],
    )
    wire = build_wire(trace)
    for step in trace.steps:
        if step.draft is None or step.draft.notes is None:
            continue
        step.draft.notes["f_in"] = [1 / 3] * (len(step.draft.tokens) + 1)
        sizes.append(len(encode(wire.step(step))))
        assert sizes[-1] <= BUDGET
    assert max(sizes) > 1500, "the test needs notes"


def test_a_part_from_outside_is_heard_with_no_other_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry("drafter"), Planter().name, Planter)
    method = Method(drafter=Planter(floor=1.25))
    trace = toys.decode(method, count=12).sink
    head, *steps = [x for x in json.loads(encode(list(messages(trace)))) if x["kind"] != "end"]
    by_hand = json.loads(encode(list(messages(planted()))))
    declared = by_hand[0]["tells"]["drafter"]
    assert head["tells"]["drafter"] == {**declared, "bar": {**declared["bar"], "at": 1.25}}
    assert len(steps) > 6, "the test needs steps"
    for step, other in zip(steps, by_hand[1:], strict=False):
        heard = step["notes"]["drafter"] if step["drafted"] else {}
        assert {x: y for x, y in heard.items() if x not in SPOKEN} == {
            x: y for x, y in other["notes"]["drafter"].items() if x not in SPOKEN and step["drafted"]
        }


SPOKEN = ("seen", "rows")  # in these notes tokens have the text that the model gives them
FIRST = {  # notes that must be visible from the beginning
    "mu against tau": (dict(sampler="mirostat"), "sampler", {"mu"}),
    "a bar that moves": (
        dict(drafter="draft_model", schedule="confidence"),
        "schedule",
        {"threshold", "sure", "stop"},
    ),
    "a length that moves": (dict(drafter="draft_model", schedule="heuristic"), "schedule", {"length"}),
    "the trie": (dict(drafter=("trie", {"nodes": 12})), "drafter", {"f_in", "f_out", "matched"}),
    "exits and their tests": (
        dict(adaptive_depth=("confidence_exit", {"threshold": 0.6})),
        "adaptive_depth",
        {"depth", "sure", "tests"},
    ),
    "layers left out": (
        dict(drafter=("swift", {"window": 3, "skip_ratio": 0.5})),
        "drafter",
        {"attn", "ffn", "match"},
    ),
}


@pytest.mark.parametrize("name", FIRST)
def test_what_parts_tell_reaches_the_page(name: str) -> None:
    parts, kind, names = FIRST[name]
    trace = toys.decode(toys.method(**parts), count=40).sink
    head, *steps = [x for x in json.loads(encode(list(messages(trace)))) if x["kind"] != "end"]
    assert names <= set(head["tells"][kind])
    heard = {x for step in steps for x in step.get("notes", {}).get(kind, {})}
    assert names <= heard
    for message, step in zip(steps, trace.steps, strict=True):
        told_there = declared_notes(trace.header, step).get(kind, {})
        assert set(message.get("notes", {}).get(kind, {})) == set(told_there)
        for x, value in told_there.items():
            if head["tells"][kind][x]["kind"] == "series":
                assert message["notes"][kind][x] == value
