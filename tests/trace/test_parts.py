"""What the parts of a method say of themselves in a header: in new files by themselves, in those from before by a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decodescope.engine.core.component import registry
from decodescope.engine.session.method import Method
from decodescope.engine.trace import Header
from decodescope.engine.trace.records import parts as told
from decodescope.engine.trace.records.parts import Zone, called, said, zones

OLDER = [(kind, name) for kind, names in told._OLDER.items() for name in names]


def header(parts: dict[str, Any] | None = None, **method: Any) -> Header:
    return Header({}, method, np.array([1], "<i4"), 0, parts=parts or {})


@pytest.mark.parametrize(("kind", "name"), OLDER)
def test_the_table_of_older_files_says_what_the_parts_say_today(kind: str, name: str) -> None:
    method = Method.named({kind: name})
    new = header(method.said(), **method.record())
    old = replace(new, parts={})
    for word, value in said(old, kind).items():
        assert said(new, kind)[word] == value
    assert {word for word, value in said(new, kind).items() if value is True} <= said(old, kind).keys() | {
        "drafts"
    }
    assert zones(old) == zones(new) and called(old) == called(new)


@pytest.mark.parametrize("kind", sorted(told._OLDER))
def test_what_a_part_says_is_read_whole(kind: str) -> None:
    """A word that a base class says and nobody reads would be a word for nobody."""
    for name in registry(kind):
        method = Method.named({kind: name})
        declared = method.said()[kind]
        read = said(header(method.said(), **method.record()), kind)
        assert {word: value for word, value in declared.items() if word != "zones"} == read
        assert kind != "policy" or bool(declared["zones"]) is bool(
            zones(header(method.said(), **method.record()))
        )


def test_several_samplers_are_greedy_if_one_is() -> None:
    for stages, greedy in ((["top_k", "temperature"], False), (["repetition_penalty", "greedy"], True)):
        made = Method.named({"sampler": stages})
        for parts in ({}, made.said()):
            assert bool(said(header(parts, **made.record()), "sampler").get("greedy")) is greedy


def test_a_method_is_called_by_its_unusual_parts() -> None:
    assert called(header()) == "plain decoding"
    assert called(header(**Method().record())) == "greedy"
    method = Method.named({"drafter": "prompt_lookup", "policy": "h2o", "sampler": ["top_k", "temperature"]})
    for parts in ({}, method.said()):
        assert called(header(parts, **method.record())) == "prompt lookup + h2o + top k + temperature"


def test_words_that_make_no_sense_are_passed_over() -> None:
    odd: dict[str, Any] = {
        "usual": "yes",
        "uses": ["drafter", 3],
        "does": ["evict"],
        "column": "x" * 65,
        "zones": [
            ["sinks", "first", 4],
            ["sinks", "middle", 4],
            ["sinks", "first", -1],
            ["sinks", "first"],
            7,
            None,
        ],
    }
    made = header(
        {"policy": odd, "strategy": 3}, policy={"name": "window", "size": 8}, strategy={"name": "beam"}
    )
    assert said(made, "policy") == {"does": ["evict"]} and said(made, "strategy") == {}
    assert zones(made) == [Zone("sinks", "first", 4)]
    assert (
        zones(header({"policy": {"zones": 3}}))
        == zones(header(policy=3))
        == zones(header(policy={"name": []}))
        == []
    )
    assert zones(header(policy={"name": "streaming_llm", "sinks": 2})) == [Zone("sinks", "first", 2)]


def test_a_sampler_says_its_temperature_and_whether_it_removes_tokens() -> None:
    """In new files by itself, in older ones by the knobs that they hold."""
    for stages, settings, heat, cuts in (
        (["temperature"], {"temperature": {"temperature": 0.5}}, 0.5, False),
        (["repetition_penalty", "temperature"], {"temperature": {"temperature": 1.5}}, 1.5, False),
        (["top_k", "temperature"], {"temperature": {"temperature": 0.8}}, 0.8, True),
        (["min_p"], {}, 1.0, True),
    ):
        made = Method.named({"sampler": stages}, settings)
        for parts in ({}, {"sampler": {"greedy": False}}, made.said()):
            words = said(header(parts, **made.record()), "sampler")
            assert (words["heat"], words["cuts"]) == (heat, cuts), (stages, parts)
    assert "heat" not in said(
        header({"sampler": {"heat": "hot", "cuts": True}}, sampler={"name": "top_p"}), "sampler"
    )
