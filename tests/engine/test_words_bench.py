"""bench words: counts are those of the passes, surprise is the model's own, and a grammar is the question's."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bytewise import RULES, lively, question, scripted

from decodescope.app.cli import main
from decodescope.app.commands.bench import words as bench_words
from decodescope.engine import Method
from decodescope.engine.bench import words as bench
from decodescope.engine.bench.figures.labbench import BASELINE
from decodescope.engine.bench.figures.words import WordsResult, WordsRow, goals
from decodescope.engine.bench.labbench import QUESTIONS
from decodescope.engine.bench.questions.questions import read_questions
from decodescope.engine.bench.words import (
    ANY,
    FORMS,
    METHODS,
    AnswerForm,
    WordsBench,
    default_methods,
    measure_words,
    question_form,
    with_form,
    with_tests,
)
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import MethodError
from decodescope.engine.session.session import Session

TOKENS = 10
MASKED = ("grammar", "grammar (drawn)", "aligned")


@pytest.fixture(scope="module")
def random() -> Model:
    """A random model with a text that never ends and a known end token, as grammars require."""
    return replace(lively(), stop_tokens=[256])


@pytest.fixture(scope="module")
def measured(random: Model) -> WordsResult:
    amateur = {"amateur": lively(6)}
    made = WordsBench(random, further=amateur, new_tokens=TOKENS)
    assert not made.left_out, made.left_out
    return measure_words(
        made, [question("a", "What was it?", "z"), question("b", "Once upon", "z", kind="story")]
    )


def test_every_method_has_its_figures(measured: WordsResult) -> None:
    found = measured.record()
    assert (
        json.dumps(found, allow_nan=False) and found["complete"] and found["kinds"] == {"qa": 1, "story": 1}
    )
    assert [*found["methods"]] == [BASELINE, *METHODS]
    for name, one in found["methods"].items():
        assert not one["faults"], (name, one["faults"])
        assert one["again"] is None or 0 <= one["again"] <= 1, name
        assert one["bits"] > 0 and one["fits"] is None, name
        assert (one["masks"] is not None) == (name in MASKED), name
    plain, law, beam = (found["methods"][name] for name in (BASELINE, "contrastive", "beam"))
    assert (plain["passes"], plain["fed"]) == (1.0, 1.0) and (law["passes"], law["fed"]) == (1.0, 2.0)
    assert beam["fed"] > 2 and beam["bits"] < found["methods"]["temperature"]["bits"]


def test_surprise_is_that_of_the_text_under_the_model_alone(random: Model) -> None:
    asked, method = question("a", "What was it?"), METHODS["temperature"]
    made = WordsBench(random, {"x": Method.from_names(*method)}, new_tokens=TOKENS)
    plain, drawn = made.figures(asked, 0)
    prompt = random.tokenizer.encode("What was it?")
    for row, one in ((plain, Method()), (drawn, Method.from_names(*method))):
        session = Session(random, one, prompt, max_new_tokens=TOKENS, seed=0)
        text = [token for step in session.stream() for token in step.emitted]
        law = random.decoder.forward(Feed.causal_chain([*prompt, *text], 0), None)[0].log_softmax(-1)
        due = -sum(float(law[len(prompt) - 1 + i, token]) for i, token in enumerate(text)) / math.log(2)
        grams = [tuple(text[i : i + 4]) for i in range(len(text) - 3)]
        assert row.bits == pytest.approx(due, abs=1e-4) and row.tokens == len(text) == TOKENS
        assert (row.grams, row.again) == (len(grams), len(grams) - len(set(grams)))
    assert plain.bits != pytest.approx(drawn.bits), "the test needs two texts"


def test_a_grammar_is_that_of_the_question_and_one_that_was_written_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FORMS, "qa", AnswerForm("regex", "4[0-9]{3}"))
    model = scripted(RULES)  # it answers 42
    form, loose = question(1, "six times seven?", "4211"), question(2, "six times seven?", "forty-two")
    own = Method.from_names({"sampler": ("grammar", "greedy")}, {"grammar.definition": "42?"})
    made = WordsBench(
        model,
        {"g": Method.from_names(*METHODS["grammar"]), "own": own, "t": Method.from_names(*METHODS["beam"])},
    )
    assert question_form(form) == FORMS["qa"] and question_form(loose) is None
    rows = {row.method: row for row in made.figures(form, 0)}
    assert [rows[x].fits for x in (BASELINE, "g", "own")] == [False, True, False]
    assert rows["g"].tokens == 5 and rows["own"].tokens == 3 and rows["g"].bits > rows[BASELINE].bits
    assert rows["g"].mask_s is not None and 0 < rows["g"].mask_s < rows["g"].seconds
    rows = {row.method: row for row in made.figures(loose, 1)}
    assert rows["g"].fits is None and rows["g"].tokens == rows[BASELINE].tokens == 3, (
        "any text is allowed there"
    )
    assert (
        with_form(own, FORMS["qa"]) == own and with_form(made.methods["t"], FORMS["qa"]) is made.methods["t"]
    )


def test_a_search_by_tests_is_given_what_the_expression_is_worth_and_tests_that_were_written_stay() -> None:
    bare, own = (
        Method.from_names(*METHODS["planned"]),
        Method.from_names({"strategy": "planned"}, {"strategy.tests": "8"}),
    )
    asked = replace(question(1, "Write the sum of 3 and 4.", "3 + 4"), scorer="expression")
    number = replace(asked, scorer="number")
    given = [
        with_tests(*x).record()["strategy"]["tests"] for x in ((bare, asked), (own, asked), (bare, number))
    ]
    assert given == ["7", "8", ""]
    assert (
        bare == Method.from_names(*METHODS["planned"])
        and with_tests(default_methods()["beam"], asked) == default_methods()["beam"]
    )


def test_forms_are_those_of_the_shipped_answers() -> None:
    asked, _ = read_questions(QUESTIONS)
    shares = {kind: [question_form(x) is not None for x in asked if x.kind == kind] for kind in FORMS}
    assert {kind for kind, fits in shares.items() if all(fits)} == {
        "math",
        "retrieval",
        "lists",
        "expression",
    }
    assert sum(shares["json"]) == 34, "six ask for a single value"
    assert not any(question_form(x) for x in asked if x.kind not in FORMS)
    assert (
        FORMS["json"].fits('{"a": 1}') and not FORMS["json"].fits("[1]") and not FORMS["json"].fits('{"a": ')
    )
    assert not FORMS["math"].fits("67 + 47 =") and ANY.fits("one\ntwo, {")


def test_figures_count_faults_as_wrong_answers_and_masks_have_a_goal() -> None:
    rows = [
        WordsRow(1, "a", "x", 1.0, True, 10, 7, 2, 5.0, 10, 40, 0.2, 1.0),
        WordsRow(2, "a", "x", fault="it broke.", fits=False),
        WordsRow(3, "b", "x", 0.5, None, 10, 7, 0, 15.0, 11, 41, 0.4, 3.0),
    ]
    found = WordsResult({}, [replace(row, score=row.score or 0.0) for row in rows]).record()
    one = found["methods"]["x"]
    assert (one["accuracy"], one["fits"], one["bits"], one["length"]) == (0.5, 0.5, 1.0, 10.0)
    assert (one["passes"], one["fed"]) == (21 / 20, 81 / 20) and one["again"] == pytest.approx(2 / 14)
    assert one["masks"] == pytest.approx(0.15) and one["faults"] == ["it broke."]
    assert found["goals"] == [{"what": "x", "share": one["masks"], "due": 0.1, "met": False}]
    assert goals({"y": {"masks": None}, "z": {"masks": 0.1}})[0]["met"]
    assert WordsRow(**json.loads(json.dumps(vars(rows[0])))) == rows[0]


def test_what_cannot_run_here_is_told_or_refused(random: Model) -> None:
    made = WordsBench(random)
    assert set(made.left_out) == {"contrastive"} and "'amateur'" in made.left_out["contrastive"]
    with pytest.raises(MethodError, match="'amateur'"):
        WordsBench(random, {"contrastive": default_methods()["contrastive"]})


@pytest.mark.nightly
def test_the_command_takes_samplers_and_its_script_writes_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "SHORT", 1)
    asked, out = tmp_path / "asked.jsonl", tmp_path / "found.json"
    line: dict[str, Any] = {
        "question_id": 1,
        "category": "math",
        "turns": ["2 + 3?"],
        "reference": ["2 + 3 = 5"],
    }
    asked.write_text(json.dumps({**line, "scorer": "number"}))
    words = [
        "bench",
        "words",
        "--model",
        "lab-draft",
        "--questions",
        str(asked),
        "--threads",
        "1",
        "--new-tokens",
        "6",
    ]
    methods = [
        "--method",
        "hot=--sampler temperature --set sampler.temperature=2",
        "--method",
        "grammar",
        "--method",
        "top_p",
    ]
    assert (
        main([*words, *methods, "--method", "contrastive", "--role", "amateur=lab-draft", "--out", str(out)])
        == 0
    )
    printed, _ = capsys.readouterr()
    found = json.loads(out.read_text())
    assert [*found["methods"]] == [
        BASELINE,
        "hot",
        "grammar",
        "top_p",
        "contrastive",
    ] and "goal: masks of a step" in printed
    assert found["settings"]["further"]["amateur"]["name"] == "lab-draft"
    faulty = {**found, "methods": {"odd": {**found["methods"][BASELINE], "faults": ["it broke."]}}}
    assert "odd: it broke." in bench_words.as_text(faulty)
    script = Path(bench_words.__file__).parents[3] / "benchmarks" / "words.py"
    table = subprocess.run(
        [sys.executable, str(script), str(out)], capture_output=True, text=True, check=True
    ).stdout
    assert "with the amateur `lab-draft`" in table and "| hot | " in table and "| grammar | " in table
    assert main([*words, "--repeats", "2"]) == 2 and "leave it out of bench words" in capsys.readouterr().err
