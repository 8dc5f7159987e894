"""bench models: distributions and answers show what a transformed model loses; random models have the requested size."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from bytewise import RULES, question, scripted

from decodescope.app.commands.bench.models import as_text, parse_transforms, timing_text
from decodescope.engine.bench.figures.models import DENSE, ModelsResult, ModelsRow
from decodescope.engine.bench.models import (
    ModelsBench,
    make_models,
    measure_models,
    measure_speeds,
    random_decoder,
    random_shape,
)
from decodescope.engine.bench.questions.questions import LabBenchError
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.model.forward.feed import Feed

ASKED = [question(1, "go A", "BCABCABCABCA", kind="code"), question(2, "ab A", "no such text", kind="copy")]


@pytest.fixture(scope="module")
def measured() -> ModelsResult:
    other = scripted({**RULES, "C": "x"})
    return measure_models(
        ModelsBench({DENSE: scripted(RULES), "same": scripted(RULES), "other": other}, new_tokens=12), ASKED
    )


def test_a_model_that_is_the_same_loses_nothing_and_another_one_does(measured: ModelsResult) -> None:
    record = measured.record()
    assert json.dumps(record, allow_nan=False) and record["complete"]
    dense, same, other = (record["methods"][name] for name in (DENSE, "same", "other"))
    assert dense["kl"] == same["kl"] == 0 < other["kl"] and dense["same"] == 1 > other["same"]
    assert dense["perplexity"] == same["perplexity"] > 1
    assert set(record["columns"]) == {DENSE, "same", "other"}
    assert record["columns"]["same"]["compression"] == pytest.approx(1, 0.01)
    assert all(name in as_text(record) for name in ("KL to dense", "compression", "other"))


def test_answers_are_kept_of_those_that_the_dense_model_has_right() -> None:
    def row(number: int, kind: str, name: str, right: bool | None) -> ModelsRow:
        return ModelsRow(
            number, kind, name, score=None if right is None else float(right), right=right, places=1
        )

    rows = [
        row(1, "qa", DENSE, True),
        row(2, "qa", DENSE, False),
        row(3, "copy", DENSE, True),
        row(4, "chat", DENSE, None),
    ]
    rows += [row(1, "qa", "int8", True), row(2, "qa", "int8", True), row(4, "chat", "int8", None)]
    rows.append(replace(row(3, "copy", "int8", False), fault="it broke", score=None))
    figures = ModelsResult({"models": {}}, rows=rows).record()["methods"]
    assert figures["int8"]["kept"] == {"qa": [1, 1], "copy": [0, 1]} and figures["int8"]["kept_share"] == 0.5
    assert figures[DENSE]["kept"] == {"qa": [1, 1], "copy": [1, 1]} and figures["int8"]["accuracy"] == 0.5


def test_words_of_transforms_are_checked_and_named_once() -> None:
    assert parse_transforms(["int8", "small=int4 group=64"]) == {"int8": "int8", "small": "int4 group=64"}
    assert parse_transforms(["int4 group=64"]) == {"int4 group=64": "int4 group=64"}
    for wrong in (["int8", "int8"], ["nothing"], ["int4 group=7"]):
        with pytest.raises(Refusal):
            parse_transforms(wrong)
    dense = scripted(RULES)
    with pytest.raises(LabBenchError, match="as it is"):
        make_models(dense, {DENSE: "int8"}, lambda words: dense)


def test_random_weights_have_the_size_asked_for_and_are_timed_by_rows() -> None:
    for params in (20_000_000, 300_000_000):
        assert random_shape(params).params == pytest.approx(params, rel=0.1)
    record = measure_speeds(1_000_000, {"int8": "int8"}, rows=(1, 2), repeats=1)
    assert [*record["ms"]] == [DENSE, "int8"] and all(
        len(x) == 2 and min(x) > 0 for x in record["ms"].values()
    )
    assert record["bytes"]["int8"] < record["bytes"][DENSE] and "2 rows" in timing_text(record)
    plain = random_decoder(1_000_000, torch.float32)
    assert torch.isfinite(plain.forward(Feed.causal_chain([1, 2, 3], 0), None)[0]).all()
