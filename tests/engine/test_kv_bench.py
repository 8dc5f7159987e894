"""bench kv: texts read under budgets; the whole budget is the full cache, and what is counted is what the caches hold."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from bytewise import lively

from decodescope.engine import Method
from decodescope.engine.bench import kv
from decodescope.engine.bench.answers_figures import BASELINE
from decodescope.engine.bench.questions import LabBenchError, Question
from decodescope.engine.load import Model
from decodescope.engine.model.feed import Feed

LONG = "".join(chr(97 + (7 * i * i + i) % 26) for i in range(640))
TEXTS = kv.texts([Question(1, "chat", ("short",)), Question(2, "copy", (LONG,))], 1)


@pytest.fixture(scope="module")
def model() -> Model:
    one = lively()
    spec = replace(one.spec, max_positions=1024)
    one.decoder.spec = spec
    return replace(one, spec=spec)


@pytest.fixture(scope="module")
def found(model: Model) -> dict[str, Any]:
    methods = {name: Method.of(name) for name in ("h2o", "window")}
    return kv.kv(kv.KVBench(model, methods, words=16), TEXTS).record()


def test_the_longest_texts_are_read_on_and_copied() -> None:
    assert [(x.id, x.kind, len(x.turns[0])) for x in TEXTS] == [("2 text", "text", 640), ("2 copy", "copy", 640)]


def test_words_are_priced_as_one_dense_pass_prices_them(model: Model, found: dict[str, Any]) -> None:
    bench = kv.KVBench(model, {}, words=16)
    for text in TEXTS:
        tokens = bench.tokens(text)
        assert len(tokens) == 528 and (text.kind == "text" or tokens[512:] == tokens[:16])
        with torch.inference_mode():
            logp = model.decoder.forward(Feed.causal(tokens, 0), None)[0].log_softmax(-1)
        due = -logp[511:527].gather(1, torch.tensor(tokens[512:])[:, None]).mean()
        row = next(x for x in found["rows"] if x["method"] == BASELINE and x["kind"] == text.kind)
        assert row["nats"] == pytest.approx(float(due), abs=1e-4) and row["kl"] == 0 and row["same"] == 1


def test_smaller_budgets_hold_less_and_are_further_from_the_full_cache(found: dict[str, Any]) -> None:
    assert json.dumps(found, allow_nan=False) and found["kinds"] == {"text": 1, "copy": 1}
    for name in ("h2o", "window"):
        points = found["methods"][name]
        assert [x["share"] for x in points] == list(kv.SHARES)
        for more, less in pairwise(points):
            assert less["bytes"] <= more["bytes"] < 0.8 and less["entries"] < more["entries"]
        assert points[-1]["by_kind"]["text"]["kl"] > points[0]["by_kind"]["text"]["kl"] > 0
        held = {x["share"]: x["held"] for x in found["rows"] if x["method"] == name}
        assert held[0.25] == 128 * 3 * 2, "each head of each layer holds a quarter of the prompt"


def test_what_cannot_be_measured_is_said(model: Model) -> None:
    with pytest.raises(LabBenchError, match="leave the drafter prompt_lookup out"):
        kv.KVBench(model, {"x": Method.of("prompt_lookup")})
    short = kv.kv(kv.KVBench(model, {}, words=16), [Question("a", "text", ("short",))])
    assert not short.rows and "the text a has 5 tokens, and 528 are read" in short.skipped[0]["why"]
