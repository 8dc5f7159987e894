"""bench prompts: tokens, operations and losses are those of the passes, compared with a reading of the whole prompt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bytewise import lively, question

from decodescope.app.commands.bench import prompts as bench_prompts
from decodescope.engine import Method
from decodescope.engine.bench.figures.labbench import BASELINE
from decodescope.engine.bench.figures.prompt_compression import PromptCompressionResult
from decodescope.engine.bench.prompt_compression import (
    LEAST,
    PromptCompressionBench,
    default_methods,
    measure_prompt_compression,
)
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.session import Session

TEXT = "What did it say? The cat sat on the mat. It was a large mat, and the cat was small. Then it ran. Who ran?"
METHODS = {
    "half": Method.from_names(
        {"prompt_compression": "selective_context"}, {"prompt_compression.reduce_ratio": 0.5}
    ),
    "own": Method.from_names({"prompt_compression": "gemfilter"}, {"prompt_compression.budget_share": 0.5}),
}


@pytest.fixture(scope="module")
def measured() -> tuple[PromptCompressionBench, PromptCompressionResult]:
    made = PromptCompressionBench(lively(), METHODS, {"draft": lively(6)})
    return made, measure_prompt_compression(
        made, [question("a", TEXT, "the cat"), question("b", "Who?", "z"), question("c", TEXT[17:], "it")]
    )


def test_figures_are_those_of_the_passes(
    measured: tuple[PromptCompressionBench, PromptCompressionResult],
) -> None:
    bench, result = measured
    found = result.record()
    assert (
        json.dumps(found, allow_nan=False)
        and found["complete"]
        and [*found["methods"]] == [BASELINE, *METHODS]
    )
    assert [x["question"] for x in found["skipped"]] == ["b"] and f"fewer than {LEAST}" in found["skipped"][
        0
    ]["why"]
    plain, half, own = found["methods"].values()
    assert (plain["read"], plain["more"], plain["first"], plain["look"], plain["flops"]) == (
        1.0,
        0.0,
        1.0,
        0.0,
        1.0,
    )
    assert (
        0.4 < own["read"] < 0.6
        and 0.4 < half["read"] < 0.9
        and half["look"] > 0
        and half["nats"] != plain["nats"]
    )
    assert half["flops"] > 1 > 0.4 < own["flops"], "a scorer as large as the target saves nothing"
    texts = {"a": TEXT, "c": TEXT[17:]}
    for row in result.rows:
        method, prompt = (
            bench.methods[row.method],
            bench.first_prompt(question(row.question, texts[str(row.question)])),
        )
        session = Session(bench.model, method, prompt, models=bench.models(method), max_new_tokens=1)
        session.start()
        assert row.read == session.prompt <= row.prompt == len(prompt)


@torch.no_grad()
def test_the_loss_of_the_answer_is_that_of_a_dense_pass(
    measured: tuple[PromptCompressionBench, PromptCompressionResult],
) -> None:
    bench, result = measured
    asked = question("a", TEXT, "the cat")
    row = next(x for x in result.rows if x.method == BASELINE)
    answer = bench.model.tokenizer.encode_plain("the cat")  # type: ignore[union-attr] # it has one
    prompt = bench.first_prompt(asked)
    laws = bench.model.decoder.forward(Feed.causal_chain([*prompt, *answer], 0), None)[0].log_softmax(-1)
    due = [-float(laws[len(prompt) - 1 + i, token]) for i, token in enumerate(answer)]
    assert row.nats == pytest.approx(sum(due) / len(due), rel=1e-5)


@pytest.mark.nightly
def test_each_context_is_known_at_each_share_and_the_table_has_a_line_for_each(
    measured: tuple[PromptCompressionBench, PromptCompressionResult], tmp_path: Path
) -> None:
    assert {x.prompt_compression.name for x in default_methods().values()} == {
        "selective_context",
        "llmlingua",
        "specpc",
        "gemfilter",
    }
    record = measured[1].record()
    assert all(name in bench_prompts.as_text(record) for name in METHODS)
    (tmp_path / "found.json").write_text(json.dumps(record))
    script = Path(__file__).parents[2] / "benchmarks" / "prompts.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path / "found.json"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout.count("\n| ") == 2 + len(METHODS) + 1, done.stderr
