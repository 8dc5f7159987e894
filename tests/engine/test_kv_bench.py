"""bench kv: texts read under budgets; the full budget equals the full cache, and counts agree with the caches' contents."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from bytewise import RULES, lively, scripted

from decodescope.engine import Method
from decodescope.engine.bench import kv
from decodescope.engine.bench.figures.labbench import BASELINE
from decodescope.engine.bench.questions import passkeys
from decodescope.engine.bench.questions.questions import BenchQuestion, LabBenchError
from decodescope.engine.core.params import ParamError
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import MethodError

LONG = "".join(chr(97 + (7 * i * i + i) % 26) for i in range(640))
STORY = " ".join(
    f"The {x} went down to the river."
    for x in ("cat", "dog", "owl", "hen", "fox", "ant", "bee", "bat", "cow")
)
TOLD = [
    BenchQuestion(3, "qa", (f"Who?\n\n{STORY} The password is kubuda.",)),
    BenchQuestion(4, "math", ("There are 3 cats. " * 9,)),
]
TEXTS = kv.select_texts([BenchQuestion(1, "chat", ("short",)), BenchQuestion(2, "copy", (LONG,))], 1)


@pytest.fixture(scope="module")
def model() -> Model:
    one = lively()
    spec = replace(one.spec, max_positions=1024)
    one.decoder.spec = spec
    return replace(one, spec=spec)


@pytest.fixture(scope="module")
def found(model: Model) -> dict[str, Any]:
    methods = {name: Method.of(name) for name in ("h2o", "window")}
    return kv.measure_kv(kv.KVBench(model, methods, words=16), TEXTS).record()


def test_the_longest_texts_are_read_on_and_copied() -> None:
    assert [(x.id, x.kind, len(x.turns[0])) for x in TEXTS] == [
        ("2 text", "text", 640),
        ("2 copy", "copy", 640),
    ]


def test_words_are_priced_as_one_dense_pass_prices_them(model: Model, found: dict[str, Any]) -> None:
    bench = kv.KVBench(model, {}, words=16)
    for text in TEXTS:
        tokens = bench.tokens(text)
        assert len(tokens) == 528 and (text.kind == "text" or tokens[512:] == tokens[:16])
        with torch.inference_mode():
            logp = model.decoder.forward(Feed.causal_chain(tokens, 0), None)[0].log_softmax(-1)
        due = -logp[511:527].gather(1, torch.tensor(tokens[512:])[:, None]).mean()
        row = next(x for x in found["rows"] if x["method"] == BASELINE and x["kind"] == text.kind)
        assert row["nats"] == pytest.approx(float(due), abs=1e-4) and row["kl"] == 0 and row["same"] == 1


def test_smaller_budgets_hold_less_and_are_further_from_the_full_cache(found: dict[str, Any]) -> None:
    assert json.dumps(found, allow_nan=False) and found["kinds"] == {"text": 1, "copy": 1, "passkey": 0}
    for name in ("h2o", "window"):
        points = found["methods"][name]
        assert [x["share"] for x in points] == list(kv.SHARES)
        for more, less in pairwise(points):
            assert less["bytes"] <= more["bytes"] < 0.8 and less["entries"] < more["entries"]
        assert points[-1]["by_kind"]["text"]["kl"] > points[0]["by_kind"]["text"]["kl"] > 0
        held = {x["share"]: x["held"] for x in found["rows"] if x["method"] == name}
        assert held[0.25] == 128 * 3 * 2, "each head of each layer holds a quarter of the prompt"


def test_a_pass_key_is_said_once_in_as_much_of_the_stories_as_a_prompt_takes(model: Model) -> None:
    bench, keys = kv.KVBench(model, {}), passkeys.make_passkeys(TOLD, 2)
    assert len({x.references for x in keys}) == 2 and [x.tags["depth"] for x in keys] == [25, 75]
    assert passkeys.story_sentences(TOLD) == passkeys.split_sentences(STORY), (
        "no key of another question, no sentence with a digit"
    )
    for key in keys:
        prompt, said = bench.passkey_prompt(key), f"The pass key is {key.references[0]}."
        assert prompt is not None and model.tokenizer is not None
        text = model.tokenizer.decode(prompt)
        parts = passkeys.split_sentences(text.split("\n\n")[0])
        more = passkeys.hide_key(key, len(parts))
        assert len(prompt) <= 512 < len(more), "a token for each byte: one more sentence would be too long"
        assert text.count(said) == 1 and text.endswith(("What is the pass key?", "Tell me the pass key."))
        depth = parts.index(said) / (len(parts) - 1)
        assert depth == pytest.approx(int(key.tags["depth"]) / 100, abs=0.05)


def test_an_answer_is_right_if_it_is_the_key_and_counted_by_method() -> None:
    # it answers every question mark with 42, and writes nothing after a full stop
    model = scripted(RULES, max_positions=1024)
    keys = [
        replace(x, references=(said,))
        for x, said in zip(passkeys.make_passkeys(TOLD, 3), ("42", "42", "4242"), strict=True)
    ]
    found = kv.measure_kv(kv.KVBench(model, {"window": Method.of("window")}), keys).record()
    assert found["kinds"] == {"text": 0, "copy": 0, "passkey": 3}
    assert [(x["said"], x["right"]) for x in found["rows"] if x["share"] == 0.05] == [
        ("42", True),
        ("", False),
        ("42", False),
    ]
    points = found["methods"]["window"]
    assert [(x["passkey"]["right"], x["passkey"]["asked"], x["entries"]) for x in points] == [
        (1, 3, None)
    ] * 4
    shares = [x["passkey"]["bytes"] for x in points]
    assert 1 > shares[0] > shares[1] > shares[2] >= shares[3] > 0


def test_a_method_that_fails_at_its_begin_is_a_row_and_a_pass_key_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = scripted(RULES, max_positions=1024)
    bench, answer = kv.KVBench(model, {"window": Method.of("window")}), kv.KVBench.answer
    errors = iter((MethodError("no."), ParamError("not so.")))

    def fails(self: Any, method: Method, *more: Any) -> Any:
        if method != kv.PLAIN and (error := next(errors, None)):
            raise error
        return answer(self, method, *more)

    monkeypatch.setattr(kv.KVBench, "answer", fails)
    points = kv.measure_kv(bench, passkeys.make_passkeys(TOLD, 1)).record()["methods"]["window"]
    assert [x["faults"] for x in points] == [["no."], ["not so."], [], []] and {
        x["passkey"]["asked"] for x in points
    } == {1}


def test_policies_that_cannot_run_on_the_model_are_left_out_by_name(model: Model) -> None:
    bench = kv.KVBench(model)
    assert "duo_attention" in bench.left_out and "heads/duo_attention" in bench.left_out["duo_attention"]
    assert {"h2o", "snapkv", "window"} <= set(bench.methods) and not set(bench.left_out) & set(bench.methods)
    assert bench.settings()["left_out"] == bench.left_out


def test_what_cannot_be_measured_is_said(model: Model) -> None:
    with pytest.raises(LabBenchError, match="leave the drafter prompt_lookup out"):
        kv.KVBench(model, {"x": Method.of("prompt_lookup")})
    short = kv.measure_kv(kv.KVBench(model, {}, words=16), [BenchQuestion("a", "text", ("short",))])
    none = kv.measure_kv(
        kv.KVBench(model, {}), passkeys.make_passkeys([BenchQuestion(1, "chat", ("short",))], 1)
    )
    assert not none.rows and none.skipped[0]["why"] == "the stories around pass key 1 end before 512 tokens."
    assert not short.rows and "the text a has 5 tokens, and 528 are read" in short.skipped[0]["why"]
