"""What a method's parts say of themselves in a header."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decodescope.app.runs.catalogue.families import family, family_titles
from decodescope.engine.core.component import registry
from decodescope.engine.session.method import Method
from decodescope.engine.trace import Header
from decodescope.engine.trace.records.parts import Zone, method_label, part_description, zones


def header(parts: dict[str, Any] | None = None, **method: Any) -> Header:
    return Header({}, method, np.array([1], "<i4"), 0, parts=parts or {})


def of(method: Method) -> Header:
    """The header of a run of this method."""
    return header(method.describe_parts(), **method.record())


@pytest.mark.parametrize("kind", sorted(Method().record()))
def test_what_a_part_says_is_read_whole(kind: str) -> None:
    """Every word that a base class declares must have a reader."""
    for name in registry(kind):
        method = Method.from_names({kind: name})
        declared = method.describe_parts()[kind]
        read = part_description(of(method), kind)
        assert {word: value for word, value in declared.items() if word != "zones"} == read
        assert kind != "policy" or bool(declared["zones"]) is bool(zones(of(method)))


def test_several_samplers_are_greedy_if_one_is() -> None:
    for stages, greedy in ((["top_k", "temperature"], False), (["repetition_penalty", "greedy"], True)):
        made = Method.from_names({"sampler": stages})
        assert bool(part_description(of(made), "sampler").get("greedy")) is greedy


def test_a_method_is_called_by_its_unusual_parts() -> None:
    assert method_label(header()) == "plain decoding"
    assert method_label(of(Method())) == "greedy"
    method = Method.from_names(
        {"drafter": "prompt_lookup", "policy": "h2o", "sampler": ["top_k", "temperature"]}
    )
    assert method_label(of(method)) == "prompt lookup + h2o + top k + temperature"
    read = replace(of(Method()), batch=3), replace(of(Method()), loaded={"entries": 1})
    assert [method_label(x) for x in read] == ["batch + greedy", "loaded cache + greedy"]
    assert [family(x).title for x in (*read, of(Method()))] == ["Batches", "Loaded caches", "Plain decoding"]
    assert {family(x).title for x in read} <= {*family_titles()}


def test_where_the_header_says_nothing_of_a_part_nothing_is_known_of_it() -> None:
    silent = header(**Method.from_names({"policy": "streaming_llm"}).record())
    assert all(part_description(silent, kind) == {} for kind in silent.method) and zones(silent) == []


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
        {"policy": odd, "strategy": 3}, policy={"name": "window", "window": 8}, strategy={"name": "beam"}
    )
    assert (
        part_description(made, "policy") == {"does": ["evict"]} and part_description(made, "strategy") == {}
    )
    assert zones(made) == [Zone("sinks", "first", 4)]
    assert (
        zones(header({"policy": {"zones": 3}}))
        == zones(header(policy=3))
        == zones(header(policy={"name": []}))
        == []
    )


def test_a_reason_too_long_to_show_is_still_a_reason() -> None:
    """Else a rule from elsewhere with a long reason would make a run that counts as lossless."""
    made = header({"acceptance": {"changes": "x" * 65}, "sampler": {"departs": ["odd"]}})
    assert part_description(made, "acceptance") == {"changes": "the text may differ"}
    assert part_description(made, "sampler") == {"departs": "the text may differ"}
    assert part_description(header({"acceptance": {"changes": ""}}), "acceptance") == {"changes": ""}


def test_a_sampler_says_its_temperature_and_whether_it_removes_tokens() -> None:
    for stages, settings, heat, cuts in (
        (["temperature"], {"temperature": {"temperature": 0.5}}, 0.5, False),
        (["repetition_penalty", "temperature"], {"temperature": {"temperature": 1.5}}, 1.5, False),
        (["top_k", "temperature"], {"temperature": {"temperature": 0.8}}, 0.8, True),
        (["min_p"], {}, 1.0, True),
    ):
        words = part_description(of(Method.from_names({"sampler": stages}, settings)), "sampler")
        assert (words["heat"], words["cuts"]) == (heat, cuts), stages
    assert "heat" not in part_description(
        header({"sampler": {"heat": "hot", "cuts": True}}, sampler={"name": "top_p"}), "sampler"
    )
