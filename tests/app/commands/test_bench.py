"""The benchmarks: both sides write the same text and take turns; the figures follow from the times; the LabBench command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import toys
from scripted import script

from decodescope.app.basis.arguments import add_weight_transforms, bench_models
from decodescope.app.basis.parser import build_parser
from decodescope.app.cli import main
from decodescope.app.commands.bench.bench import USUAL
from decodescope.app.commands.bench.decode import as_text
from decodescope.app.commands.shared.bench import parse_method, question_notes
from decodescope.app.runs.recipe import as_json, recipe
from decodescope.app.runs.run_service import RunChoice
from decodescope.engine.bench.clock import speed as bench
from decodescope.engine.bench.clock.contest import Contestant, DecodeResult, common_prefix_length, take_turns
from decodescope.engine.bench.labbench import default_methods, describe_questions
from decodescope.engine.bench.parallel import all_methods as canvases
from decodescope.engine.bench.questions.questions import BenchQuestion
from decodescope.engine.core.refusal import Refusal


def pretend(name: str, side: str, seconds: dict[str, list[float]]) -> Contestant:
    """A contestant with its recorded times."""
    made = Contestant(name, side, {}, lambda prompt: DecodeResult([1, 2]), seconds)
    made.calls = {p: [DecodeResult([1, 2, 3, 4])] for p in seconds}
    return made


def test_a_ratio_is_of_medians_and_then_the_median_over_prompts() -> None:
    mine = {"a": [1.0, 9.0, 1.0], "b": [2.0, 2.0, 2.0], "c": [1.0, 1.0, 1.0]}
    theirs = {"a": [2.0, 2.0, 2.0], "b": [2.0, 2.0, 9.0], "c": [3.0, 3.0, 3.0]}
    names = (
        "autoregressive",
        "autoregressive, nothing recorded",
        "autoregressive, summary",
        "autoregressive, decisions",
    )
    field = [pretend(name, "decodescope", mine) for name in names] + [
        pretend("generate", "transformers", theirs)
    ]
    field[-2].seconds = {p: [x * 1.1 for x in times] for p, times in mine.items()}
    found = bench.compare_contestants(field)
    figures = {"ratio": 2.0, "low": 1.0, "high": 3.0, "same_texts": 3}
    assert found["ratios"] == [{"name": "autoregressive against generate", **figures}]
    assert found["recording_percent"] == pytest.approx({"summary": 0.0, "decisions": 10.0})


@pytest.mark.nightly
def test_contestants_take_turns_in_an_order_that_turns() -> None:
    import torch

    calls: list[str] = []

    def called(name: str) -> Contestant:
        def write(prompt: list[int]) -> DecodeResult:
            calls.append(name)
            return DecodeResult([0])

        return Contestant(name, "decodescope", {}, write)

    take_turns([called("A"), called("B"), called("C")], {"p": [1]}, 3, torch.device("cpu"), lambda text: None)
    assert "".join(calls) == "ABC" + "ABC" + "BCA" + "CAB"


def test_agreement_is_the_common_prefix() -> None:
    assert [common_prefix_length([1, 2, 3], x) for x in ([1, 2, 3], [1, 5, 3], [], [1, 2])] == [3, 1, 0, 2]


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """A short measurement of the shipped draft model, which is the smaller one."""
    return bench.measure_speed(
        "lab-draft", "lab-draft", new_tokens=12, repeats=1, threads=1, prompts={"code": "def add(a, b):\n"}
    )


def test_both_sides_write_the_same_number_of_the_same_tokens(measured: dict[str, Any]) -> None:
    assert {x["side"] for x in measured["contestants"]} == {"decodescope", "transformers"}
    for one in measured["contestants"]:
        assert one["same_tokens"] == {"code": 12}, one["name"]
        assert len(one["seconds"]["code"]) == 1 and one["tokens_per_s"] > 0


@pytest.mark.nightly
def test_every_pair_is_compared(measured: dict[str, Any]) -> None:
    assert [x["name"] for x in measured["ratios"]] == [name for name, _, _ in bench.PAIRS]
    settings = {x["name"]: x["settings"] for x in measured["contestants"]}
    assert settings["assisted generation"] == bench.DRAFTING
    assert settings["assisted generation, equal length"]["num_assistant_tokens"] == bench.LENGTH
    assert settings["draft_model"]["drafter"]["max_draft_tokens"] == bench.LENGTH
    assert settings["prompt lookup"] == {"prompt_lookup_num_tokens": bench.COPIED}


def test_our_defaults_of_assisted_generation_are_those_of_transformers() -> None:
    from transformers import GenerationConfig

    theirs = GenerationConfig()._get_default_generation_params()
    assert {name: theirs[name] for name in bench.DRAFTING} == bench.DRAFTING


def test_the_text_names_everyone_and_the_machine(measured: dict[str, Any]) -> None:
    text = as_text(measured)
    assert all(x["name"] in text for x in [*measured["contestants"], *measured["ratios"]])
    assert measured["machine"] in text and "1 threads" in text and "1 of 1" in text


def test_the_six_columns_are_those_of_the_calls_and_n_a_where_nobody_counted(
    measured: dict[str, Any],
) -> None:
    columns, settings = measured["columns"], measured["settings"]
    assert [*columns] == [x["name"] for x in measured["contestants"]] and columns["autoregressive"][
        "compression"
    ] == 1.0
    for one in measured["contestants"]:
        figures = columns[one["name"]]
        assert figures["latency"] == pytest.approx(one["seconds"]["code"][0]), (
            "of the whole call, on both sides"
        )
        if one["side"] == "transformers":
            assert (
                figures["memory"],
                figures["compute use"],
                figures["throughput"],
                figures["compression"],
            ) == (None,) * 4
        else:
            assert (
                figures["memory"] > settings["weights"][one["name"]] > 0
                and figures["throughput"] > one["tokens_per_s"]
            )
    weights = settings["weights"]
    assert (
        weights["draft_model"] > 1.9 * weights["autoregressive"]
        and 0.4 < columns["draft_model"]["compression"] < 0.6
    )
    text = as_text(measured)
    assert "s an answer" in text and text.count("n/a") >= 4 * 4
    assert "without the transforms" not in text and "without the transforms" in as_text(
        {**measured, "theirs": "lab"}
    )


@pytest.mark.parametrize(
    ("chat", "first", "says"),
    [
        (True, False, "Every prompt was put through the model's chat template. All turns were asked; a "
                      "method's own answers are part of its later prompts."),
        (False, True, "The prompts were put as raw text, without a chat template. Only first turns were asked. Left out: 3 "
                      "later turns, of 2 of 3 prompts."),
    ],
)  # fmt: skip
def test_a_measurement_says_how_questions_were_put_and_which_turns_of_them(
    chat: bool, first: bool, says: str
) -> None:
    asked = [BenchQuestion(i, "qa", turns) for i, turns in enumerate([("a",), ("b", "c"), ("d", "e", "f")])]
    settings = {"chat": chat, "questions": describe_questions(asked, {})}
    assert question_notes(settings, first) == [says]
    assert (
        "turns"
        not in question_notes({"chat": chat, "questions": describe_questions(asked[:1], {})}, first)[0]
    )
    assert question_notes({}, first) == [], "an older record does not say"


def test_transforms_of_weights_are_put_to_the_model_that_a_measurement_takes() -> None:
    def named(*words: str) -> tuple[str | None, str | None]:
        args = build_parser().parse_args(["bench", *words])
        add_weight_transforms(args)
        return args.model, args.draft

    assert named("decode", "--weights", "int8") == ("lab@int8", None)
    assert named("parallel", "--weights", "int8")[0] == "lab-mdm@int8"
    assert named("cloze", "--weights", "int8")[0] == "lab-mdm+cloze@int8"
    assert named("kv", "--model", "lab-draft", "--weights", "int8")[0] == "lab-draft@int8"
    assert named("labbench", "--weights", "int8", "--draft-weights", "int4") == ("lab@int8", "lab-draft@int4")
    args = build_parser().parse_args(["bench", "--model", "lab-mdm", "--draft-weights", "int4"])
    with pytest.raises(Refusal, match="--draft-weights is given and no --draft"):
        add_weight_transforms(args)
    args = build_parser().parse_args(["bench", "decode", "--weights", "int8"])
    add_weight_transforms(args)
    assert bench_models(args)["draft"] == "lab-draft", "of lab, whatever is made of it"


def test_json_is_one_object(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def decode(*args: Any, **more: Any) -> dict[str, Any]:
        asked.update(more, models=args)
        return {"ratios": []}

    monkeypatch.setattr(bench, "measure_speed", decode)
    assert (
        main(["bench", "decode", "--json", "--threads", "2", "--trace-level", "none", "--draft", "none"]) == 0
    )
    assert json.loads(capsys.readouterr().out) == {"ratios": []}
    assert asked["models"] == ("lab", None) and asked["threads"] == 2 and asked["level"] is None


# ---- LabBench

ROOT = Path(__file__).resolve().parents[3]
QUESTIONS = (
    {
        "question_id": 1,
        "category": "copy",
        "turns": ["Say this again:\na b a b a b"],
        "reference": ["a b"],
        "scorer": "exact",
    },
    {
        "question_id": 2,
        "category": "copy",
        "turns": ["Say this again:\nc d"],
        "reference": ["c d"],
        "scorer": "exact",
    },
    {"question_id": "open", "category": "talk", "turns": ["Who?", "Why?"]},
)
SHORT = [
    "--model",
    "lab-draft",
    "--new-tokens",
    "8",
    "--method",
    "prompt_lookup",
    "--method",
    "near=--policy window",
    "--json",
]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """A small file of questions."""
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(x) + "\n" for x in QUESTIONS), encoding="utf-8")
    return path


def test_labbench_measures_the_named_methods_and_writes_its_result(
    questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    assert main(["bench", "labbench", "--questions", str(questions), "--out", str(out), *SHORT]) == 0
    printed, remarks = capsys.readouterr()
    found = json.loads(printed)
    assert json.loads(out.read_text()) == found and remarks == ""
    assert list(found["methods"]) == ["autoregressive", "prompt_lookup", "near"] and found["kinds"] == {
        "copy": 2,
        "talk": 1,
    }
    assert found["methods"]["prompt_lookup"]["identity"]["parted"] == 0
    assert found["methods"]["autoregressive"]["tau"] == 1 and found["methods"]["autoregressive"]["ratio"] == 1
    assert all(row["tokens"] <= 8 * len(row["said"]) for row in found["rows"]) and len(found["rows"]) == 9
    assert found["settings"]["draft"] is None and found["settings"]["questions"]["short"] is False
    tables = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "labbench.py"), str(out)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (
        re.search(r"(?m)^\| near \| 0 % \| 1\.00 \|", tables) and "| copy (2) | 0 % | 0 % | 0 % |" in tables
    )


@pytest.mark.nightly
def test_labbench_reads_as_many_draft_models_as_a_method_asks_for(
    questions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = [
        "--method",
        "two=--drafter specinfer --set drafter.models=2",
        "--draft",
        "lab-draft",
        "--draft2",
        "lab-draft",
    ]
    words = [
        "--questions",
        str(questions),
        "--model",
        "lab-draft",
        *two,
        "--new-tokens",
        "4",
        "--threads",
        "1",
    ]
    assert main(["bench", "labbench", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["settings"]["further"]["draft2"]["name"] == "lab-draft" and found["methods"]["two"]["tau"] > 1
    )
    assert found["methods"]["two"]["identity"]["parted"] == 0
    assert main(["bench", "labbench", "--model", "lab-draft", *two[:4]]) == 2
    assert "'draft2'" in capsys.readouterr().err


def test_the_text_of_labbench_names_methods_kinds_and_targets(
    questions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "labbench", "--questions", str(questions), "--threads", "1", *SHORT[:-1]]) == 0
    printed, remarks = capsys.readouterr()
    assert re.search(r"(?m)^near +0 % +1\.00 ", printed) and re.search(
        r"(?m)^prompt_lookup +0 % +\d", printed
    )
    assert (
        re.search(r"(?m)^talk \(1\) +- +- +-$", printed) and "3 of 3 questions of questions.jsonl" in printed
    )
    assert re.search(r"(?m)^copy and edit, similarity +90 % +0 % +not met +2$", printed)
    assert "question 3 of 3: talk" in remarks


@pytest.mark.nightly
def test_labbench_is_interrupted_and_goes_on(
    questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from decodescope.engine.bench.labbench import Bench

    def interrupted(self: Bench, question: Any, turn: int = 0) -> Any:
        if question.id == 2:
            raise KeyboardInterrupt
        return honest(self, question, turn)

    honest, out = Bench.rows, tmp_path / "found.json"
    asked = ["bench", "labbench", "--questions", str(questions), "--out", str(out), *SHORT]
    monkeypatch.setattr(Bench, "rows", interrupted)
    assert main(asked) == 130
    printed, remarks = capsys.readouterr()
    assert json.loads(printed)["complete"] is False and f"{out}.partial holds what was measured" in remarks
    monkeypatch.setattr(Bench, "rows", honest)
    assert main([*asked, "--resume"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["complete"] and [x["question"] for x in found["rows"]] == [
        1,
        1,
        1,
        2,
        2,
        2,
        "open",
        "open",
        "open",
    ]


def test_the_short_form_asks_the_first_of_each_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from decodescope.engine.bench import labbench as labbench

    given: list[int] = []

    def measured(made: Any, questions: Any, **more: Any) -> Any:
        given.extend(x.id for x in questions)
        raise KeyboardInterrupt

    path = tmp_path / "questions.jsonl"
    lines = ({"question_id": i, "category": "ab"[i % 2], "turns": ["x"]} for i in range(30))
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    monkeypatch.setattr(labbench, "measure_labbench", measured)
    assert main(["bench", "labbench", "--short", "--questions", str(path), *SHORT]) == 130
    assert given == list(range(16))


def test_the_shipped_questions_are_forty_of_a_kind() -> None:
    from decodescope.engine.bench.labbench import LONGEST, QUESTIONS
    from decodescope.engine.bench.questions.questions import count_kinds, read_questions

    found, _ = read_questions(QUESTIONS)
    assert set(count_kinds(found)) == set(LONGEST) and min(count_kinds(found).values()) >= 40
    assert all(x.scorer for x in found)


def test_a_method_is_named_or_given_as_words_a_link_or_json() -> None:
    known = default_methods()
    choice = RunChoice(
        "a prompt", {"drafter": "prompt_lookup"}, {"drafter": {"max_draft_tokens": 6}}, max_new=9
    )
    wanted = toys.method(drafter=("prompt_lookup", {"max_draft_tokens": 6}))
    command = recipe(choice, {"target": "lab"}, "command")
    assert command.startswith("decodescope run --model lab --drafter")
    for text in (
        "--drafter prompt_lookup --set drafter.max_draft_tokens=6",
        command,
        as_json(choice),
        "http://127.0.0.1:7860/" + recipe(choice, {}, "link"),
    ):
        assert parse_method(f"six={text}", known) == ("six", wanted)
    assert parse_method("jacobi", known) == ("jacobi", toys.method(strategy="jacobi"))
    assert parse_method("h2o", known) == ("h2o", known["h2o"]) and parse_method("x = h2o", known) == (
        "x",
        known["h2o"],
    )
    canvas = canvases()
    for name in (
        "all at once (drawn)",
        "explore",
        "learn2pd",
    ):  # one of those that are always measured may draw
        assert parse_method(name, canvas) == (name, canvas[name])
    assert parse_method("top_p", {}, draws=True) == ("top_p", toys.method(sampler="top_p"))


def test_a_measurement_that_knows_no_names_offers_none() -> None:
    """`bench depth --method autoregressive`: it measures plain decoding anyway. Its rules have no names of their own."""
    with pytest.raises(Refusal) as why:
        parse_method("autoregressive", {})
    way = "take a name that decodescope methods lists, or NAME=RECIPE."
    assert str(why.value) == f"--method autoregressive: there is no 'autoregressive'; {way}"


BAD_METHODS = {
    "unknown": ("nobody", "there is no 'nobody'; take autoregressive, prompt_lookup"),
    "no name": ("=--drafter none", "has no name"),
    "unknown drafter": ("x=--drafter nobody", "no drafter is called 'nobody'"),
    "sampler": ("x=--sampler temperature", "all methods share one: leave it out and give --temperature"),
    "quotes": ("x=--drafter 'a", "its quotes do not match"),
    "no link": ("x=#set=abc", "cannot be read"),
    "no recipe": ("x={}", "cannot be read"),
}


@pytest.mark.parametrize(("word", "why"), BAD_METHODS.values(), ids=BAD_METHODS)
def test_a_bad_method_is_refused_in_a_sentence(word: str, why: str) -> None:
    with pytest.raises(Refusal, match=re.escape(why)):
        parse_method(word, default_methods())


BAD_OPTIONS = {
    "option of others": (
        ["labbench", "--repeats", "3"],
        "--repeats is an option of bench decode and speculation: leave it",
    ),
    "the other way round": (
        ["decode", "--short"],
        "--short is an option of bench labbench and speculation and kv",
    ),
    "of one only": (["speculation", "--trace-level", "none"], "--trace-level is an option of bench decode"),
    "no recipe for speculation": (
        ["speculation", "--method", "nobody"],
        "there is no 'nobody'; take draft_model (tree)",
    ),
    "speculation goes on": (["speculation", "--resume"], "--resume goes on with a file: give --out"),
    "resume without a file": (["labbench", "--resume"], "--resume goes on with a file: give --out"),
    "no such file": (["labbench", "--questions", "nowhere"], "The questions nowhere cannot be read"),
    "twice": (["labbench", "--method", "h2o", "--method", "h2o"], "--method h2o is given twice"),
    "temperature": (["labbench", "--temperature", "-1"], "must be a number from 0 to 5"),
    "hot": (["labbench", "--temperature", "5.1"], "must be a number from 0 to 5"),
    "Jacobi draws": (
        ["labbench", "--method", "j=--strategy jacobi", "--temperature", "1"],
        "jacobi solves for the greedy",
    ),
    "no draft": (
        ["labbench", "--draft", "none", "--method", "draft_model"],
        "draft_model needs a model in the role 'draft'",
    ),
    "plain": (
        ["labbench", "--method", "autoregressive=h2o"],
        "The name autoregressive is that of plain decoding",
    ),
}


@pytest.mark.parametrize(("words", "why"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_are_refused_in_a_sentence(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and why in err and err.count("\n") == 1


def test_options_of_decode_keep_their_usual_values(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(bench, "measure_speed", lambda *args, **more: asked.update(more) or {"ratios": []})
    assert main(["bench", "--json"]) == 0
    assert (asked["new_tokens"], asked["repeats"], asked["level"], asked["prompts"]) == (
        128,
        5,
        "summary",
        None,
    )


def test_markdown_cells_cannot_be_ended_by_a_name() -> None:
    text = script("labbench").table(("a|b", "c"), [["x\n| y |", "z"]])
    assert text == "| a/b | c |\n| --- | --- |\n| x / y / | z |"


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"labbench": 99, "rows": []}'])
def test_the_script_refuses_what_is_no_result(tmp_path: Path, text: str) -> None:
    (tmp_path / "found.json").write_text(text)
    with pytest.raises(SystemExit, match=r"give the file of decodescope bench labbench --out\."):
        script("labbench").read(tmp_path / "found.json")


# ---- caches


@pytest.mark.nightly
def test_kv_reads_the_texts_under_the_policies_and_writes_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, html = tmp_path / "found.json", tmp_path / "curves.html"
    words = [
        "bench",
        "kv",
        "--model",
        "lab-draft",
        "--short",
        "--new-tokens",
        "2",
        "--method",
        "window",
        "--threads",
        "1",
    ]
    assert (
        main([*words, "--method", "small=--policy h2o --set policy.budget_share=0.05", "--out", str(out)])
        == 0
    )
    printed, remarks = capsys.readouterr()
    found = json.loads(out.read_text())
    assert [len(x) for x in found["methods"].values()] == [1, 4, 1] and "question 6 of 6: passkey" in remarks
    assert re.search(r"(?m)^window +50 % +50 % +\d+ % +\d\.\d\d.* 0 of 4$", printed)
    markdown = run_script("kv.py", str(out), "--figure", str(html))
    assert re.search(r"(?m)^\| window \| 5 % \| 5 % \| ", markdown) and html.stat().st_size > 1 << 20
    assert main(["bench", "kv", "--temperature", "1"]) == 2
    assert "--temperature is an option of bench labbench and speculation" in capsys.readouterr().err


# ---- speculation


def speculated(questions: Path, *more: str) -> int:
    """A short measurement of the shipped draft model, which drafts for itself."""
    words = [
        "bench",
        "speculation",
        "--model",
        "lab-draft",
        "--draft",
        "lab-draft",
        "--new-tokens",
        "4",
        "--repeats",
        "1",
    ]
    return main([*words, "--threads", "1", "--method", "prompt_lookup", "--questions", str(questions), *more])


@pytest.mark.nightly
def test_speculation_measures_both_sides_and_writes_its_result(
    questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    assert (
        speculated(
            questions,
            "--short",
            "--method",
            "two=--drafter draft_model --set drafter.max_draft_tokens=2",
            "--out",
            str(out),
        )
        == 0
    )
    printed, remarks = capsys.readouterr()
    found = json.loads(out.read_text())
    ours = [name for name, x in found["methods"].items() if x["side"] == "decodescope"]
    assert ours == ["autoregressive", "prompt_lookup", "two"] and found["kinds"] == {"copy": 1, "talk": 1}
    assert len(found["methods"]) == 7 and all(x["whole"]["median"] > 0 for x in found["methods"].values())
    assert found["methods"]["two"]["against_assisted"]["median"] > 0 and found["methods"]["two"]["tau"] > 1
    assert found["settings"]["dtype"] == "bfloat16" and found["settings"]["questions"]["short"] is True
    assert re.search(r"(?m)^two +\d\.\d\d +\d", printed) and re.search(
        r"(?m)^best method on code +2\.50 +- +not asked", printed
    )
    assert "question 2 of 2: talk" in remarks
    tokens = [row["tokens"] for row in found["rows"] if row["kind"] == "talk"]
    assert len(tokens) == 7 and len(set(tokens)) == 1 and tokens[0] > 4, (
        "both sides answer both turns, of 4 tokens at most"
    )
    assert "by Spec-Bench's arithmetic" in printed and "These are not Spec-Bench's questions, so" in printed
    assert ", published, " not in printed and "All turns were asked" in printed
    markdown = run_script("speculation.py", str(out))
    assert re.search(r"(?m)^\| `two` \| \d\.\d\d \| ", markdown) and "--new-tokens 4 --repeats 1" in markdown
    profile = [
        "--from",
        str(out),
        "--model",
        "lab-draft",
        "--threads",
        "1",
        "--new-tokens",
        "4",
        "--rows",
        "999",
    ]
    whole, rest = run_script("steps.py", *profile), run_script("steps.py", *profile, "--overhead")
    for table in (whole, rest):
        assert len(re.findall(r"(?m)^\w+: \d+ steps of \d+ us", table)) == table.count("\nfunction  ") == 2
        assert table.count("draft_verify.py") > 1
    assert "scaled_dot_product_attention" in whole and "scaled_dot_product_attention" not in rest


def run_script(name: str, *words: str) -> str:
    """The output of a script in benchmarks/."""
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / name), *words], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.nightly
def test_passes_over_a_tenth_of_a_cache_are_timed_beside_those_over_all_of_it() -> None:
    """On a tiny model, whose figures mean nothing, every policy has a row for every shape, with the bytes of its storages."""
    text = run_script("cache_speed.py", "--quick", "--threads", "1")
    for shape, entries in product(("12 KV heads", "4 KV heads"), ("128", "256")):
        lines = [x for x in text.splitlines() if re.match(rf"{shape} +{entries} ", x)]
        whats = ("full cache", "streaming_llm", "key_norm", "h2o", "full, with rows")
        assert len(lines) == 5 and all(what in line for what, line in zip(whats, lines, strict=True))
        assert all(re.search(r"\d+% of 1\.\d\d +\d\.\d% and a page a head", line) for line in lines[1:4])
    assert text.count("H2O reads 64 tokens in ") == 2 and "Wanted: at 16,384 entries" in text


def told(**gains: float) -> dict[str, Any]:
    """A result in which methods with these gains were measured."""
    times = {name: {"median": x, "interval": [x, x]} for name, x in gains.items()}
    one = dict(
        tau=2.0,
        whole=None,
        against_assisted=None,
        against_lookup=None,
        draft=0.1,
        passes=0.9,
        heads=0.0,
        overhead=0.1,
    )
    settings = dict(
        model="lab", drafts={"draft": "lab-draft"}, dtype="bfloat16", threads=2, new_tokens=48, repeats=3, temperature=0.8,
        seed=0, machine="m", device="cpu", torch="2", transformers="5", questions={"count": 2},
        left_out={"medusa": "no heads."}, set_aside={"lab": {"repetition_penalty": 1.3}},
    )  # fmt: skip
    usual = dict(
        side="decodescope",
        drawn=False,
        plain=False,
        step_us=3000.0,
        identity=None,
        offered_by_position=[4, 2],
    )
    methods = {
        name: {**one, **usual, "accepted_by_position": [2, 1], "ratio": x, "by_kind": {"code": {"ratio": x}}}
        for name, x in times.items()
    }
    goals = [{"what": "best", "goal": 2.0, "value": 2.5, "met": True, "methods": ["llma"]}]
    return {
        "settings": settings,
        "methods": methods,
        "kinds": {"code": 2},
        "goals": goals,
        "skipped": [],
        "seconds": 9.0,
    }


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/speculation.py as a module."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return script("speculation")


def test_measured_columns_are_written_into_the_tables_of_methods_md(writer: ModuleType) -> None:
    before = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    found = told(
        **{
            "prompt_lookup": 2.5,
            "medusa": 1.5,
            "draft_model": 1.75,
            "draft_model (heuristic)": 1.25,
            "autoregressive": 1,
        }
    )
    book = {
        "headlines": {"drafter": {"medusa": "2.2x"}, "router": {"entropy": "67 %"}},
        "measured": writer.measured(found),
    }
    assert book["measured"]["figures"]["drafter"] == {
        "draft_model": [2.0, 1.75], "medusa": [2.0, 1.5], "none": [2.0, 1], "prompt_lookup": [2.0, 2.5]
    }  # fmt: skip
    assert json.loads(writer.as_text(book)) == book and '"medusa": [2.0, 1.5]' in writer.as_text(book)
    text = writer.with_columns(before, book)
    rows = {
        line.split("|")[1].strip(): [x.strip() for x in line.split("|")[3:6]]
        for line in text.split("\n")
        if line[:3] == "| `"
    }
    assert rows["`prompt_lookup`"] == ["", "2.00", "2.50"] and rows["`llma`"] == ["", "-", "-"]
    assert rows["`medusa`"] == ["2.2x", "2.00", "1.50"] and rows["`none`"] == ["", "2.00", "1.00"]
    assert rows["`heuristic`"][1:] == ["2.00", "1.25"] and rows["`fixed`"][1:] == ["2.00", "1.75"]
    assert (
        text.count("Measured: `decodescope bench speculation --model lab --draft lab-draft --dtype bfloat16")
        == 2
    )
    others = {
        x[1].strip(): x[4].strip()
        for line in text.split("\n")
        if line[:10] == "| router `"
        for x in [line.split("|")]
    }
    assert others["router `entropy`"] == "67 %" and others["router `fallback`"] == ""
    assert writer.with_columns(text, book) == text, "a second time changes nothing"
    gone = set(before.split("\n")) - set(text.split("\n"))
    assert all(line.startswith(("|", "Measured:")) for line in gone)


def test_methods_md_says_what_the_page_says(writer: ModuleType) -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    book = json.loads(writer.BOOK.read_text(encoding="utf-8"))
    assert writer.with_columns(page, book) == page, "run python benchmarks/speculation.py --write"


def test_the_section_of_benchmarks_md_is_replaced_between_its_marks(writer: ModuleType) -> None:
    first = writer.with_section("# Benchmarks\n\ntext\n", writer.page(told(llma=2.5)))
    assert (
        first.startswith("# Benchmarks\n\ntext\n\n<!--")
        and "| `llma` | 2.00 | 2.50 | 2.50 to 2.50 |" in first
    )
    assert "| best | 2.00 | 2.50 | met | llma |" in first and "Left out: `medusa`: no heads." in first
    assert "lab: neither side uses these generation settings of its folder: repetition_penalty 1.3" in first
    second = writer.with_section(first + "\nafter\n", writer.page(told(rest=1.5)))
    assert (
        "`llma` |" not in second
        and "`rest` |" in second
        and second.endswith("\nafter\n")
        and second.count(writer.END) == 1
    )


def test_gains_above_the_tokens_per_pass_are_doubted(writer: ModuleType) -> None:
    assert writer.gain_warning(told(llma=2.5, rest=2.1, trie=1.5)).endswith(
        "the machine was busy; measure again: llma."
    )
    assert writer.gain_warning(told(rest=2.1)) == "" and "measure again" not in writer.page(told(rest=2.1))


def test_the_figure_shows_gains_and_where_steps_go(writer: ModuleType) -> None:
    strip, *bars = writer.draw(told(llma=2.5, rest=1.5)).data
    assert list(strip.y) == ["llma", "rest"] and [list(x) for x in strip.z] == [[2.5], [1.5]]
    assert {bar.name: list(bar.x) for bar in bars} == {
        "passes": [90, 90],
        "heads": [0, 0],
        "overhead": [10, 10],
    }


def test_the_usual_values_of_the_options_are_those_of_the_engine() -> None:
    from decodescope.engine.bench.speculation import DRAWN, NEW_TOKENS, REPEATS

    usual = USUAL["speculation"]
    assert (usual["new_tokens"], usual["repeats"], usual["temperature"]) == (NEW_TOKENS, REPEATS, DRAWN)


@pytest.mark.nightly
def test_cells_of_a_picture_are_counted_by_window_and_rule_or_by_strategy() -> None:
    lines = run_script("pictures.py", "--seeds", "1", "--classes", "2").splitlines()
    assert len(lines) == 14 and lines[0].split()[:5] == ["window,", "or", "strategy", "rule", "tokens"]
    passes = {line.split("  ")[0]: line.replace(",", "").split()[-3] for line in lines[9:]}
    assert [*map(int, passes.values())] == [2 * (16 + 6 * 3), 2 * 64, 2 * 24, 2 * 16, 2 * 64], (
        "those of the schedules"
    )
    for line in lines[1:]:
        tokens, passes, a_pass, _ = line.replace(",", "").split()[-4:]
        assert int(tokens) > 2 * 60 and float(a_pass) == pytest.approx(int(tokens) / int(passes), abs=0.005)
