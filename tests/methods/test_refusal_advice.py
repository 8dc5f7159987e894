"""Refusals of parts that do not fit a model's direction or a strategy: each way out that one names leads out of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
import toys

from decodescope.engine.core.component import KINDS, build, registry
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.weights import CalibrationData
from decodescope.engine.session.method import Method, MethodError, all_roles, default_part

SHAPE = dict(n_layers=4, n_heads=2, n_kv_heads=1, head_dim=8, d_model=16, d_ff=8, vocab=64, mask_token=63)
SPECS = {causal: ModelSpec("model", causal=causal, **SHAPE) for causal in (True, False)}  # type: ignore[arg-type] # numbers
CIRCLING = re.compile("in both directions: choose|from left to right only: choose|would be ignored; leave")


class Choice(NamedTuple):
    """A model that reads from left to right, or both sides, and parts by kind."""

    causal: bool
    names: tuple[tuple[str, str], ...]


def refusal(choice: Choice) -> str:
    try:
        Method.of(dict(choice.names)).check(SPECS[choice.causal], all_roles())
    except MethodError as error:
        return str(error)
    return ""


def followed(choice: Choice, sentence: str) -> Iterator[tuple[str, Choice]]:
    """Each way out that a refusal names, and the choice of who takes it."""
    advice = re.split("[:;] (?=choose|leave)", sentence.split(" (")[0])[-1]
    for way in advice.removesuffix(".").split(", or "):
        names, causal = dict(choice.names), choice.causal
        for listed in re.findall("leave (.*) out", way) + re.findall("without (the .*)", way):
            for kind in re.findall(r"the (\w+)", listed):
                del names[kind]
        if chosen := re.search(r"the strategy (\w+)", way):
            names["strategy"] = chosen[1]
        if mask := re.search("a model (with|without) a causal mask", way):
            causal = mask[1] == "with"
        taken = Choice(causal, tuple(names.items()))
        assert taken != choice, f"{way!r} changes nothing"
        yield way, taken


@pytest.mark.parametrize("kind", [x for x in KINDS if x != "strategy"])
def test_no_way_out_of_a_refusal_leads_to_another_one(kind: str) -> None:
    count = 0
    for name in registry(kind):
        for strategy in ("draft_verify", "masked", "edit_tags", "jacobi"):
            for causal in SPECS:
                if name == default_part(kind).name:
                    continue
                choice = Choice(causal, (("strategy", strategy), (kind, name)))
                sentence = refusal(choice)
                for way, taken in followed(choice, sentence) if CIRCLING.search(sentence) else ():
                    count += 1
                    then = refusal(taken)
                    assert not CIRCLING.search(then), (sentence, way, then)
    assert count > 10, "the test needs refusals"


def test_a_part_whose_list_is_empty_is_refused_with_the_way_out() -> None:
    """Without pairs every answer would have the same score, and without blocks nothing would be cut."""
    with pytest.raises(
        MethodError, match=r"references\.pairs is empty: give .*, or choose the router answer_confidence"
    ):
        Method.of({"strategy": "cascade", "router": "references"}).check(SPECS[True], all_roles())
    with pytest.raises(ParamError, match=r"cut_layers\.skip names no block, .* or leave cut_layers out"):
        build("weights", "cut_layers").transform(
            toys.pair()[0].decoder, CalibrationData(lambda: torch.zeros(1, 4))
        )
