"""bench cascade: the counts are those of both models' passes, and no dominated router is called best."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import toys
from bytewise import RULES, letters, lively, question, scripted

from decodescope.app.cli import main
from decodescope.app.commands.bench import cascade as bench_cascade
from decodescope.engine import Method
from decodescope.engine.bench.cascade import THRESHOLDS, CascadeBench, measure_cascade
from decodescope.engine.bench.cascade_grid import held_out_questions
from decodescope.engine.bench.figures.cascade import SMALL, cascade_goal, pareto_front
from decodescope.engine.bench.figures.labbench import BASELINE
from decodescope.engine.bench.questions.questions import LabBenchError, first_of_each_kind
from decodescope.engine.cost.cost import PassShape, pass_cost
from decodescope.engine.session.load import Model

KNOWING = {"?": "4", "4": "2", "2": "", "!": "n", "n": "o", "o": ""}
ASKED = [question(1, "six times seven?", "42"), question(2, "well!", "no")]


def small() -> Model:
    """A random model of one layer with a head that predicts whether the model is right."""
    spec = toys.toy_spec(vocab=257, name="little", n_layers=1, heads=("correctness",))
    return Model("little", Path("little"), spec, toys.decoder(spec, 6), letters(), "3" * 16, [])


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    bench = CascadeBench(lively(), small(), new_tokens=6)
    assert list(bench.left_out) == ["cascade: references"]
    return measure_cascade(
        bench, [question("a", "What was it?", "z"), question("b", "Once upon", "z", kind="story")]
    ).record()


def test_every_router_stands_between_the_two_models(found: dict[str, Any]) -> None:
    methods = found["methods"]
    asked = {name: taus for name, taus in THRESHOLDS.items() if name[1] != "references"}
    assert len(methods) == 2 + 4 + sum(map(len, asked.values())) and json.dumps(found, allow_nan=False)
    assert not [one["faults"] for one in methods.values() if one["faults"]]
    plain, alone = methods[BASELINE], methods[SMALL]
    assert (plain["cost"], plain["large"], plain["share"]) == (1.0, 1.0, 1.0)
    assert (alone["large"], alone["share"]) == (0.0, 0.0) and 0 < alone["cost"] < 0.7
    for name, one in methods.items():
        if name.startswith("cascade"):  # a run pays for both models, or for one alone
            assert one["large"] <= 1.0 and one["cost"] >= min(1.0, alone["cost"]), name
    for (strategy, router), taus in asked.items():
        theirs = [methods[f"{strategy}: {router} {tau:g}"]["share"] for tau in taus]
        if strategy == "cascade" and router != "agreement":
            assert theirs == sorted(theirs, reverse=router == "entropy"), (router, theirs)


def test_operations_are_those_of_both_models_passes() -> None:
    large, little = lively(), small()
    kept, asked = (
        Method.from_names({"strategy": "cascade", "router": "entropy"}, {"router": {"tau": x}})
        for x in (64.0, -1.0)
    )
    plain, few, both = CascadeBench(large, little, {"few": kept, "both": asked}, new_tokens=4).figures(
        question(1, "What?")
    )
    n = len("What?")
    price = [
        pass_cost(x.spec, PassShape(n - 1, 0)).flops + pass_cost(x.spec, PassShape(4, n - 1, logits=4)).flops
        for x in (large, little)
    ]
    price[1] += 4 * 7 * little.spec.vocab  # the entropies of four tokens
    assert (plain.large, plain.small, plain.theirs) == (price[0], 0.0, 4)
    assert (few.large, few.small, few.theirs, few.tokens) == (0.0, price[1], 0, 4)
    assert (both.small, both.theirs) == (price[1], 4)
    assert both.large == price[0] - 2 * large.spec.d_model * large.spec.vocab, (
        "a late prompt is read in one pass"
    )


def test_a_small_model_that_knows_spares_the_large_one() -> None:
    """Both models write the same texts, so every router keeps the accuracy; one that always keeps the answer meets the goal."""
    bench = CascadeBench(scripted(RULES, n_layers=5), scripted(KNOWING))
    record = measure_cascade(bench, ASKED).record()
    assert {one["accuracy"] for name, one in record["methods"].items() if "agreement" not in name} == {1.0}
    assert record["goal"]["met"] and record["goal"]["fewer"] > 0.15 and record["goal"]["lost"] == 0.0
    assert (
        len(bench.left_out) == 3 and sum("heads/correctness" in why for why in bench.left_out.values()) == 2
    )
    assert record["methods"][SMALL]["best"] and not record["methods"][BASELINE]["best"]


def test_the_best_are_those_that_none_beats_and_a_miss_is_told() -> None:
    methods = {
        BASELINE: {"accuracy": 0.5, "cost": 1.0, "large": 1.0},
        SMALL: {"accuracy": 0.1, "cost": 0.2, "large": 0.0},
        "near": {"accuracy": 0.495, "cost": 1.1, "large": 0.9},
        "good": {"accuracy": 0.4, "cost": 0.6, "large": 0.5},
        "poor": {"accuracy": 0.3, "cost": 0.6, "large": 0.4},
    }
    assert pareto_front(methods) == {BASELINE, SMALL, "good"}
    miss = cascade_goal(methods)
    assert (
        miss is not None
        and (miss["what"], miss["met"]) == ("near", False)
        and miss["fewer"] == pytest.approx(0.1)
    )
    assert cascade_goal({BASELINE: methods[BASELINE]}) is None
    with pytest.raises(LabBenchError, match="leave plainly out"):
        CascadeBench(lively(), small(), {"plainly": Method()})


@pytest.mark.nightly
def test_the_command_asks_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: dict[str, Any]
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
    words = ["bench", "cascade", "--questions", str(asked), "--threads", "1", "--new-tokens", "3", "--draft"]
    method = ["--method", "mine=--strategy cascade --router answer_confidence --set router.tau=0.9"]
    assert main([*words, "lab-draft", *method, "--out", str(out)]) == 0 and "mine" in capsys.readouterr().out
    assert list(json.loads(out.read_text())["methods"]) == [BASELINE, "mine"]
    script = Path(bench_cascade.__file__).parents[3] / "benchmarks" / "cascade.py"
    made = subprocess.run([sys.executable, str(script), str(out)], capture_output=True, text=True, check=True)
    assert "| mine | 0.0 | " in made.stdout
    assert main([*words, "none"]) == 2 and "name it with --draft" in capsys.readouterr().err
    text = bench_cascade.as_text(found)
    assert SMALL in text and "Left out: cascade: references" in text and "fewer of the large model's" in text


def test_thresholds_and_pairs_are_of_questions_that_are_not_asked() -> None:
    kinds = {"qa": "ab", "story": "cd"}
    whole = [
        question(f"{kind}{i}", f"{word * (i + 1)}?", "42", kind=kind)
        for kind, word in kinds.items()
        for i in range(6)
    ]
    asked = first_of_each_kind(whole, 2)
    held = held_out_questions(whole, asked)
    assert [x.id for x in held] == ["qa4", "qa5", "story4", "story5"] and not {x.id for x in held} & {
        x.id for x in asked
    }
    assert held_out_questions(asked, asked) == []
    bench = CascadeBench(lively(), small(), held=held, new_tokens=4)
    assert bench.left_out == {} and bench.settings()["held"]["questions"] == [x.id for x in held]

    def taus_of(router: str) -> list[float]:
        return [x.router.tau for name, x in bench.methods.items() if name.startswith(f"cascade: {router}")]

    taus, low = taus_of("answer_confidence"), taus_of("entropy")
    keeping = Method.from_names(
        {"strategy": "cascade", "router": "answer_confidence"}, {"router": {"tau": 0.0}}
    )
    own = [
        bench.answer(keeping, bench.first_prompt(x), 4).records[0].detail("answer_likelihood").values["score"]
        for x in held
    ]
    assert taus == list(dict.fromkeys(float(f"{sorted(own, reverse=True)[i]:.4g}") for i in (0, 0, 1, 2))), (
        "10, 25, 50, 75 %"
    )
    assert low == sorted(low), "few bits are kept first"
    router = next(x.router for name, x in bench.methods.items() if "references" in name)
    pairs = [json.loads(x) for x in router.pairs.splitlines()]
    assert [x["right"] for x in pairs] == [True, True, False, False]
    assert all(x["question"] in [bench.first_prompt(y) for y in held] for x in pairs)
    assert bench.text(pairs[0]["answer"]) == "42" != bench.text(pairs[2]["answer"])
    first = [x for x in bench.methods if x.endswith("small first")]
    assert len(first) == 4 and all(bench.methods[x].router.first_model == "small" for x in first)
    talk = bench.figures(asked[0])
    assert not [x.fault for x in talk if x.fault]
