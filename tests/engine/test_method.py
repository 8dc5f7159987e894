"""Method: composed by name, recorded and made again, and refused if its parts do not fit."""

from __future__ import annotations

import pytest
import toys

from decodescope.engine import Method, MethodError, ParamError
from decodescope.engine.core.component import KINDS
from decodescope.engine.methods.samplers.chain import Chain


def test_named_method_from_the_words_of_a_command_line() -> None:
    made = Method.from_names(
        {"drafter": "prompt_lookup", "policy": "h2o", "sampler": "temperature"},
        {"drafter": {"max_draft_tokens": "4"}, "policy": {"heavy": "8"}, "sampler": {"temperature": "0.7"}},
    )
    assert made.record()["drafter"] == {
        "name": "prompt_lookup",
        "max_draft_tokens": 4,
        "ngram": 3,
        "match": "latest",
    }
    assert made.record()["policy"]["heavy"] == 8 and made.sampler.temperature == 0.7
    assert Method.from_names({}, {"acceptance": {}}) == Method()


def test_several_samplers_make_a_chain_in_their_order() -> None:
    made = Method.from_names(
        {"sampler": ["top_p", "temperature"]}, {"top_p": {"p": 0.8}, "temperature": {"temperature": "0.5"}}
    )
    assert isinstance(made.sampler, Chain) and [s.name for s in made.sampler.stages] == [
        "top_p",
        "temperature",
    ]
    assert [s["name"] for s in made.record()["sampler"]["stages"]] == ["top_p", "temperature"]


@pytest.mark.parametrize("kind", KINDS)
def test_record_makes_the_same_method_again(kind: str) -> None:
    for part in toys.variants(kind):
        made = toys.method(**{kind: part})
        assert Method.from_record(made.record()) == made
    chain = Method.from_names({"sampler": ["repetition_penalty", "top_k", "mirostat"]}, {"top_k": {"k": 7}})
    assert Method.from_record(chain.record()) == chain


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        ({"drafer": "none"}, {}, "there is no part 'drafer'. Did you mean 'drafter'?"),
        ({}, {"top_p": {"p": 0.5}}, "settings name 'top_p', which is no part of this method."),
        ({"sampler": ["top_p", "top_k"]}, {"sampler": {"p": 0.5}}, "settings name 'sampler'"),
        (
            {"drafter": "prompt_lokup"},
            {},
            "no drafter is called 'prompt_lokup'. Did you mean 'prompt_lookup'?",
        ),
        ({"drafter": "none"}, {"drafter": {"length": 3}}, "none has no knob 'length'. It has none."),
        ({"policy": "h2o"}, {"policy": {"hevy": 3}}, "h2o has no knob 'hevy'. Did you mean 'heavy'?"),
    ],
)
def test_misspelt_names_fail_where_they_are_written(names: dict, settings: dict, message: str) -> None:
    with pytest.raises((MethodError, ParamError)) as refusal:
        Method.from_names(names, settings)
    assert str(refusal.value).startswith(message) and str(refusal.value).endswith(".")


def test_lossless_is_a_property_of_the_whole() -> None:
    for parts, lossless in (
        ({}, True),
        (dict(drafter="draft_model", sampler="temperature"), True),
        (dict(strategy="jacobi"), True),
        (dict(strategy="beam"), False),
        (dict(policy="window"), False),
        (dict(adaptive_depth="confidence_exit"), False),
        (dict(acceptance="typical", drafter="prompt_lookup", sampler="temperature"), False),
        (dict(acceptance="typical", drafter="prompt_lookup"), True),
        (dict(acceptance="typical"), True),
        (dict(acceptance="typical", sampler="temperature"), False),
        (dict(acceptance=("typical", dict(next_token="drawn")), sampler="temperature"), True),
    ):
        assert toys.method(**parts).lossless == lossless, parts


def test_needs_are_the_union_of_the_parts() -> None:
    assert toys.method(policy="h2o").needs.attention == "columns" and not toys.method(policy="window").needs
