"""bench depth: the counts are those of the passes, and a checked rule changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import toys
from bytewise import RULES, letters, question, scripted

from decodescope.app.cli import main
from decodescope.app.commands.bench import depth as bench_depth
from decodescope.engine import Method
from decodescope.engine.bench.depth import DepthBench, depth_rules, layer_rows, measure_depth
from decodescope.engine.bench.figures.depth import CHECKED, STAIRS, DepthRow, goals
from decodescope.engine.bench.figures.labbench import BASELINE
from decodescope.engine.bench.questions.questions import BenchQuestion, LabBenchError
from decodescope.engine.core.component import parse_component
from decodescope.engine.cost.cost import PassShape, pass_cost
from decodescope.engine.session.load import Model
from decodescope.engine.trace.records.events import Pass

ASKED = [question(1, "six times seven?", "42"), question(2, "well!", "no"), question(3, "and?", "43")]


def random() -> Model:
    """A random model of six layers that never ends, with a token for every byte."""
    spec = toys.toy_spec(vocab=257, name="random", n_layers=6)
    return Model("random", Path("random"), spec, toys.decoder(spec, 5), letters(), "2" * 16, [])


@pytest.fixture(scope="module")
def lively() -> dict[str, Any]:
    bench = DepthBench(random(), new_tokens=6)
    assert not bench.left_out, bench.left_out
    return measure_depth(
        bench, [question("a", "What was it?", "z"), question("b", "Once upon", "z", kind="story")]
    ).record()


@pytest.mark.nightly
def test_layers_that_do_nothing_may_be_left_out() -> None:
    """Every exit agrees with the last layer, so texts and accuracy equal plain decoding's under every rule."""
    bench = DepthBench(scripted(RULES, n_layers=5))
    found = measure_depth(bench, ASKED).record()
    assert json.dumps(found, allow_nan=False) and found["complete"] and found["kinds"] == {"qa": 3}
    assert bench.left_out and all("heads" in why for why in bench.left_out.values()), (
        "this model has no trained exits"
    )
    for name, one in found["methods"].items():
        assert one["accuracy"] == pytest.approx(2 / 3) and one["alike"] == 1.0 and not one["faults"], name
    plain, stairs = found["methods"][BASELINE], found["methods"][STAIRS]
    assert (plain["layers"], plain["share"], stairs["layers"]) == (5.0, 1.0, 3.0)
    assert stairs["flops"] < found["methods"]["layer_plan 60 %"]["flops"] * 1.001 < plain["flops"]


def test_a_checked_rule_writes_what_plain_decoding_writes_and_a_lossy_one_does_not(
    lively: dict[str, Any],
) -> None:
    methods = lively["methods"]
    assert set(methods) == {
        BASELINE,
        *(x for name in depth_rules(toys.toy_spec(n_layers=6)) for x in (name, name + CHECKED)),
    }
    for name, one in methods.items():
        assert not one["faults"], (name, one["faults"])
        if name.endswith(CHECKED):
            assert one["alike"] == 1.0 and one["tokens_a_pass"] >= 1.0, name
        elif name != BASELINE:
            # for a missing trigram, three rows run the layer that is looked up
            assert one["layers"] <= (5.0 + 3.0 if name == "trigrams" else 6.0), name
    assert min(one["alike"] for name, one in methods.items() if not name.endswith(CHECKED)) < 0.9
    assert methods["hash_exit"]["layers"] < 6.0 and methods["hash_exit"]["share"] < 1.0


def test_operations_are_those_of_the_passes_tests_too() -> None:
    model = random()
    never = {
        "never": Method(
            adaptive_depth=parse_component("adaptive_depth", "entropy_exit threshold=0.0", "never")
        )
    }
    plain, asking = DepthBench(model, never, new_tokens=5).figures(question(1, "What?"), 0)
    prompt = len("What?")
    bare = sum(
        pass_cost(model.spec, PassShape(1, prompt - 1 + i, weight_bits=32, act_bits=32, kv_bits=32)).flops
        for i in range(5)
    )
    assert plain.flops == bare and plain.layers == 5 * 6 and plain.passes == 5
    head = 2 * model.spec.d_model * model.spec.vocab
    assert asking.layers == plain.layers and asking.equal == asking.longer == 5
    assert asking.flops >= plain.flops + 5 * 4 * head, "four exits ask for the whole head each time"


def test_a_block_is_half_a_layer_and_a_ragged_check_reads_rows_by_layer() -> None:
    spec = toys.toy_spec(n_layers=3)
    one = Pass("target", "verify", 4, 7, 1.0, attn=[0, 2], ffn=[0])
    assert layer_rows(spec, one) == 4 * 1.5 and layer_rows(spec, Pass("target", "verify", 2, 7, 1.0)) == 6.0
    one = Pass("target", "verify", 4, 7, 1.0)
    one.rows = [1, 3, 4]
    assert layer_rows(spec, one) == 8.0


def test_goals_and_what_is_refused() -> None:
    usual = {"alike": 1.0}
    methods = {
        BASELINE: {**usual, "accuracy": 0.5, "times": 1.0},
        STAIRS: {**usual, "accuracy": 0.1, "times": 1.4},
        "quick": {**usual, "accuracy": 0.2, "times": 3.0},
        "close": {**usual, "accuracy": 0.495, "times": 1.1},
    }
    assert [(x["what"], x["met"]) for x in goals(methods)] == [(STAIRS, True), ("close", False)]
    assert goals({BASELINE: methods[BASELINE]}) == []
    with pytest.raises(LabBenchError, match="leave methods with a draft model out"):
        DepthBench(random(), {"x": Method.of("draft_model")})


@pytest.mark.nightly
def test_the_text_names_rules_goals_and_faults(lively: dict[str, Any]) -> None:
    text = bench_depth.as_text(lively)
    assert "hash_exit (checked)" in text and "goal" in text and STAIRS in text and "6.00" in text
    faulty = {**lively, "methods": {"odd": {**lively["methods"][BASELINE], "faults": ["it broke."]}}}
    assert "odd: it broke." in bench_depth.as_text(faulty)


@pytest.mark.nightly
def test_the_command_asks_questions_and_its_script_writes_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, out = tmp_path / "asked.jsonl", tmp_path / "found.json"
    line = {
        "question_id": 1,
        "category": "qa",
        "turns": ["Where is the dog?"],
        "reference": ["here"],
        "scorer": "exact",
    }
    asked.write_text(json.dumps(line))
    words = [
        "bench",
        "depth",
        "--model",
        "lab-draft",
        "--questions",
        str(asked),
        "--threads",
        "1",
        "--new-tokens",
        "4",
    ]
    assert (
        main(
            [
                *words,
                "--method",
                "half=--adaptive-depth confidence_exit --set adaptive_depth.min_layers=1",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    assert "half" in capsys.readouterr().out
    assert list(json.loads(out.read_text())["methods"]) == [BASELINE, "half"]
    script = Path(bench_depth.__file__).parents[3] / "benchmarks" / "depth.py"
    made = subprocess.run(
        [sys.executable, str(script), str(out), "--untimed"], capture_output=True, text=True, check=True
    )
    assert "| half | 0.0 | " in made.stdout and "times plain" not in made.stdout
    assert main([*words, "--repeats", "2"]) == 2 and "leave it out of bench depth" in capsys.readouterr().err


def test_rows_come_back_from_a_file() -> None:
    row = DepthRow("a", "qa", "x", 1.0, 3, 2, 3, 4.5, 6.0, 3, 0.1)
    assert DepthRow(**json.loads(json.dumps(vars(row)))) == row and isinstance(ASKED[0], BenchQuestion)
