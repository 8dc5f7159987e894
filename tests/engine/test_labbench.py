"""LabBench: figures of models that write what a script says, files that are wrong, and runs that are interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toys
from bytewise import RULES, WHOLE, lively, question, scripted

from decodescope.engine import Method
from decodescope.engine.bench.batched_answers import answer_in_batches
from decodescope.engine.bench.figures.labbench import (
    BASELINE,
    LabBenchResult,
    LabBenchRow,
    compare_targets,
    figures,
)
from decodescope.engine.bench.labbench import (
    Bench,
    default_methods,
    is_greedy_up_to_ties,
    measure_labbench,
    with_baseline,
)
from decodescope.engine.bench.questions.questions import (
    BenchQuestion,
    LabBenchError,
    count_kinds,
    first_of_each_kind,
    read_questions,
)
from decodescope.engine.bench.talk import Talk, TurnAnswer
from decodescope.engine.core.tree import height
from decodescope.engine.session.run import run


def speculative(length: int = 4) -> dict[str, Method]:
    return {"drafted": toys.method(drafter=("draft_model", {"max_draft_tokens": length}))}


def row(kind: str = "qa", method: str = BASELINE, score: float | None = 1.0, **more: Any) -> LabBenchRow:
    usual: dict[str, Any] = dict(
        question=1, scorer="exact", tags={}, said=["x"], ends=["stop_token"], fault="", prompt_tokens=[4], tokens=10, steps=10,
        passes=10, drafted=0, accepted=0, offered=[], reached=[], kv_bytes=100, step_kv_bytes=80, prefill_s=0.1, decode_s=1.0,
        identity="equal", alike=10,
    )  # fmt: skip
    return LabBenchRow(
        kind=kind, method=method, scores=None if score is None else [score], **{**usual, **more}
    )


# ---- figures


def test_accuracy_is_that_of_the_script() -> None:
    asked = [
        question(1, "six times seven?", "42"),
        question(2, "and?", "43"),
        question(3, "well!", "no."),
        question(4, "what is it?", "it is 42", kind="math", scorer="number"),
        question(5, "unjudged?", kind="open"),
    ]
    found = measure_labbench(Bench(scripted(RULES)), asked).record()
    for one in found["methods"].values():
        assert one["by_kind"]["qa"]["accuracy"] == pytest.approx(2 / 3)
        assert one["by_kind"]["math"]["accuracy"] == 1 and one["by_kind"]["open"]["accuracy"] is None
        assert one["accuracy"] == pytest.approx((2 / 3 + 1) / 2), "kinds count alike"
        assert (
            one["tokens"] == 5 * 3
            and one["identity"] == {"equal": 5, "tied": 0, "parted": 0}
            and one["alike"] == 1
        )
    assert found["complete"] and found["kinds"] == {"qa": 3, "math": 1, "open": 1}
    assert [x["said"] for x in found["rows"] if x["method"] == "h2o"] == [
        ["42"],
        ["42"],
        ["no"],
        ["42"],
        ["42"],
    ]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_usual_methods_are_eight_and_without_a_draft_model_seven() -> None:
    assert len(default_methods()) == 8 and set(default_methods()) - set(default_methods(False)) == {
        "draft_model"
    }
    assert next(iter(default_methods())) == BASELINE
    assert {method.exactness for method in default_methods().values()} >= {"lossless", "lossy"}


@pytest.mark.parametrize(
    ("wrong", "passes", "offered", "reached"),
    [
        ({}, 3, [3, 2, 2, 2], [3, 2, 2, 2]),  # 5, 5 and 2 tokens: the last draft has room for one
        ({"C": "x"}, 4, [4, 4, 3, 3], [4, 4, 0, 0]),  # B and C are accepted, A is the correction
        ({"A": "x"}, 12, [11, 10, 9, 8], [0, 0, 0, 0]),  # depth 1 is tried as long as there is room
    ],
    ids=["always right", "right twice", "wrong at first"],
)
def test_accepted_lengths_are_those_of_the_script(
    wrong: dict[str, str], passes: int, offered: list[int], reached: list[int]
) -> None:
    bench = Bench(scripted(RULES), speculative(), scripted({**RULES, **wrong}), new_tokens=12)
    if wrong == {"A": "x"}:  # after B and C the draft would be right, so make it wrong there too
        bench.draft = scripted({"A": "x", "B": "x", "C": "x"})
    plain, drafted = bench.rows(question(1, "go A"))
    assert plain.said == drafted.said == ["BCABCABCABCA"] and drafted.identity == "equal"
    assert (plain.passes, plain.offered) == (12, [])
    assert (drafted.passes, drafted.offered, drafted.reached) == (passes, offered, reached)
    assert drafted.accepted == sum(reached)
    made = figures([drafted], [plain])
    assert made["tau"] == pytest.approx(12 / passes)
    assert (made["offered_by_position"], made["accepted_by_position"]) == (offered, reached)


def test_a_draft_behind_the_end_of_the_text_was_not_tried() -> None:
    model = scripted(RULES)
    drafted = Bench(model, speculative(4), model).rows(question(1, "so?"))[1]
    assert (drafted.tokens, drafted.passes, drafted.drafted) == (3, 1, 4)
    assert drafted.offered == drafted.reached == [1, 1, 1]


def test_depth_of_a_tree() -> None:
    assert [height(x) for x in ([], [-1], [-1, -1, -1], [-1, 0, 1], [-1, 0, -1, 2, 3])] == [0, 1, 1, 3, 3]


def test_cache_bytes_are_the_most_that_was_held() -> None:
    bench = Bench(lively(), {"window": toys.method(policy=("window", {"window": 8}))}, new_tokens=150)
    asked = question(1, "a prompt of some letters")
    plain, window = bench.rows(asked)
    for row_, method in ((plain, Method()), (window, bench.methods["window"])):
        trace = run(
            bench.model, method, bench.prompt(asked, [{"content": asked.turns[0]}]), max_new_tokens=150
        ).trace
        held = [sum(c.held_bytes for c in x.cache) for x in (trace.prefill, *trace.steps)]
        assert row_.kv_bytes == max(held) and row_.step_kv_bytes == max(held[1:])
    assert window.kv_bytes < plain.kv_bytes


def test_ratio_is_of_the_questions_that_both_finished() -> None:
    plain = [row(question=1, tokens=10, decode_s=1.0), row(question=2, tokens=10, decode_s=3.0)]
    mine = [
        row(question=1, tokens=20, decode_s=0.5, passes=4),
        row(question=2, fault="no room", decode_s=0.0, tokens=0),
    ]
    made = figures(mine, plain)
    assert made["ratio"] == pytest.approx(40 / 10) and made["tokens_per_s"] == 40 and made["tau"] == 5
    assert made["faults"] == 1 and made["questions"] == 2
    assert figures([row(decode_s=0.0)], plain)["ratio"] is None


# ---- like plain decoding, or not


def test_a_lossy_method_parts_where_its_text_does() -> None:
    bench = Bench(lively(), {"window": toys.method(policy=("window", {"window": 30}))}, new_tokens=40)
    asked = question(1, "a prompt of some letters")
    plain, window = bench.rows(asked)
    prompt = bench.prompt(asked, [{"content": asked.turns[0]}])
    texts = [run(bench.model, method, prompt, max_new_tokens=40).tokens for method in bench.methods.values()]
    same = next(i for i, (a, b) in enumerate(zip(*texts, strict=True)) if a != b)
    assert 0 < same < 40, "the test needs texts that part"
    assert (window.identity, window.alike, plain.alike) == ("parted", same, 40)
    made = figures([window], [plain])
    assert made["alike"] == same / 40 and made["identity"] == {"equal": 0, "tied": 0, "parted": 1}


@pytest.mark.parametrize("chunk", [1, 2, 128])
def test_ties_are_forgiven_and_nothing_else(chunk: int) -> None:
    model = scripted({**RULES, "A": "BC"})  # after A both are equally good
    prompt, ids = model.tokenizer.encode("go A"), model.tokenizer.encode
    assert is_greedy_up_to_ties(model, prompt, ids("BCABCAC"), chunk) and is_greedy_up_to_ties(
        model, prompt, ids("CAC"), chunk
    )
    assert not is_greedy_up_to_ties(model, prompt, ids("BCAD"), chunk)
    assert not is_greedy_up_to_ties(model, prompt, ids("BA"), chunk)


def test_only_a_lossless_method_may_part_by_a_tie() -> None:
    model = scripted({**RULES, "A": "BC"})
    bench = Bench(model, {})
    prompt, ids = model.tokenizer.encode("go A"), model.tokenizer.encode
    plain, other, wrong = (
        [TurnAnswer(prompt, ids(text), "max_new_tokens")] for text in ("BCAB", "CABC", "BCAD")
    )
    lossy = toys.method(policy=("window", {"window": 8}))
    assert bench.identity(Method(), plain, plain) == "equal"
    assert (
        bench.identity(Method(), other, plain) == "tied" and bench.identity(lossy, other, plain) == "parted"
    )
    assert bench.identity(Method(), wrong, plain) == "parted"
    assert bench.identity(Method(), [replace(plain[0], fault="gone")], plain) is None


def test_drawn_texts_are_not_compared() -> None:
    bench = Bench(scripted(RULES), speculative(), scripted(RULES), temperature=1.5, new_tokens=8)
    assert all(method.sampler.name == "temperature" for method in bench.methods.values())
    found = measure_labbench(bench, [question(1, "so?", "42")]).record()
    assert all(one["identity"] is None and one["alike"] is None for one in found["methods"].values())
    again = measure_labbench(bench, [question(1, "so?", "42")]).record()
    assert [x["said"] for x in found["rows"]] == [x["said"] for x in again["rows"]]


# ---- talks


def test_later_turns_hear_the_model_s_own_answers() -> None:
    bench = Bench(scripted(RULES, WHOLE), {})
    asked = question(1, ("one?", "two!", "three?"), ("42", "no", "41"))
    (plain,) = bench.rows(asked)
    assert (
        plain.said == ["42", "no", "42"] and plain.scores == [1, 1, 0] and plain.score == pytest.approx(2 / 3)
    )
    assert plain.prompt_tokens == [4, 4 + 2 + 4, 4 + 2 + 4 + 2 + 6]
    assert plain.tokens == 9 and plain.ends == ["stop_token"] * 3


def test_without_a_template_the_talk_is_plain_text() -> None:
    bench = Bench(scripted({**RULES, "\n": "n"}, None), {})
    assert not bench.settings()["chat"]
    (plain,) = bench.rows(question(1, ("one", "two"), ("no", "no")))
    assert plain.said == ["no", "no"] and plain.prompt_tokens == [len("one\n\n"), len("one\n\nno\n\ntwo\n\n")]


def test_a_talk_that_outgrows_the_context_ends_with_a_fault() -> None:
    bench = Bench(scripted(RULES, WHOLE), {}, new_tokens=64)
    (plain,) = bench.rows(question(1, ("go A", "x" * 40, "and?"), ("", "", "42")))
    assert len(plain.said) == 2 and "reads at most 96" in plain.fault and plain.ends[-1] == "bad_input"
    assert plain.scores == [0.0, 0.0, 0.0] and plain.identity is None


def test_what_one_method_cannot_read_is_its_fault_alone() -> None:
    bench = Bench(scripted(RULES), speculative(), scripted(RULES, max_positions=8))
    plain, drafted = bench.rows(question(1, "a longer question?", "42"))
    assert plain.score == 1 and not plain.fault
    assert drafted.score == 0 and "reads at most 8" in drafted.fault and drafted.identity is None
    assert figures([drafted], [plain])["faults"] == 1


def test_what_the_model_cannot_read_is_left_out() -> None:
    spec = scripted(RULES).spec
    found = measure_labbench(
        Bench(scripted(RULES), {}), [question("long", "x" * 200), question("short", "so?", "42")]
    ).record()
    assert "reads at most 96 tokens" in spec.reading_limit
    assert found["skipped"] == [
        {"question": "long", "why": f"The prompt has 200 tokens, and the model {spec.reading_limit}."}
    ]
    assert [x["question"] for x in found["rows"]] == ["short"] and found["complete"]


def test_an_answer_has_room_for_its_reference() -> None:
    bench = Bench(scripted(RULES), {})
    assert bench.max_answer_tokens(question(1, "so?", "42", kind="retrieval")) == 32
    assert bench.max_answer_tokens(question(1, "so?", "x" * 50, kind="retrieval")) == 66
    assert bench.max_answer_tokens(question(1, "so?", kind="writing")) == 256
    assert Bench(scripted(RULES), {}, new_tokens=5).max_answer_tokens(question(1, "so?", "x" * 50)) == 5


def test_methods_take_turns_in_an_order_that_turns() -> None:
    class Told(Bench):
        def talk(
            self, question: BenchQuestion, method: Method, new_tokens: int | None = None
        ) -> list[TurnAnswer]:
            order.append(next(name for name, x in self.methods.items() if x is method))
            return super().talk(question, method, new_tokens)

    order: list[str] = []
    bench = Told(
        scripted(RULES), {"a": toys.method(drafter="prompt_lookup"), "b": toys.method(drafter="layer_skip")}
    )
    for turn in range(2):
        assert [x.method for x in bench.rows(question(1, "so?"), turn)] == [BASELINE, "a", "b"]
    assert order == [BASELINE, "a", "b", "a", "b", BASELINE]


def test_methods_that_cannot_run_are_refused_before_anything_is_asked() -> None:
    with pytest.raises(ValueError, match="needs a model in the role 'draft'"):
        Bench(scripted(RULES), speculative())
    with pytest.raises(LabBenchError, match="The name autoregressive is that of plain decoding"):
        with_baseline({BASELINE: toys.method(drafter="prompt_lookup")}, 0.0)
    with pytest.raises(LabBenchError, match="has no tokenizer"):
        Bench(toys.target())


# ---- several at a time

SEVERAL = [
    question(1, "six times seven?", "42"),
    question(2, ("go A", "and?", "well!"), ("", "42", "no")),
    question("long", "x" * 200),
    question(3, "well!", "no"),
    question(4, ("so?", "y" * 80), ("42", "")),
    question(5, "A", "BCABCABCABCA", kind="copy"),
]


def test_answers_that_are_written_side_by_side_are_those_of_one_at_a_time() -> None:
    """It includes talks of several turns, one that grows too long in its second turn, and a draft model that reads less."""

    def bench() -> Bench:
        methods = {
            **speculative(),
            "copied": toys.method(drafter="prompt_lookup"),
            "h2o": toys.method(policy="h2o"),
        }
        return Bench(scripted(RULES, WHOLE), methods, scripted(RULES, max_positions=64), new_tokens=12)

    said: list[str] = []
    alone = measure_labbench(bench(), SEVERAL)
    several = measure_labbench(bench(), SEVERAL, batch=2, say=said.append)
    assert (alone.settings["batch"], several.settings["batch"]) == (1, 2) and several.complete
    assert f"{BASELINE}: 5 questions, 2 at a time" in said and several.skipped == alone.skipped != []
    for one, other in zip(several.rows, alone.rows, strict=True):
        times = {"prefill_s": 0.0, "decode_s": 0.0, "spent": {}}
        assert replace(one, **times) == replace(other, **times)
        for name in ("tokens", "flops", "kv_bytes"):
            assert one.spent.get(name) == other.spent.get(name), name
    assert [x.method for x in several.rows if x.fault] == ["drafted"], "the test needs a fault"


def test_seconds_of_answers_are_shares_of_the_time_that_all_took() -> None:
    bench = Bench(lively(), {}, new_tokens=12)
    talks = [
        Talk(bench, question(i, text)) for i, text in enumerate(("a", "some letters", "more of them", "b"))
    ]
    done = answer_in_batches(bench, talks, bench.methods[BASELINE], 3)
    answers = [x.answers[0] for x in talks]
    alone = [bench.talk(x.question, Method())[0] for x in talks]
    assert done.pass_counts[3] > 8 and [x.tokens for x in answers] == [x.tokens for x in alone]
    assert sum(x.prefill_s + x.decode_s for x in answers) == pytest.approx(done.wall_s)
    assert sum(x.spent["seconds"] for x in answers) > 2 * done.wall_s, (
        "each waits for others: latency is no share"
    )


def test_what_was_answered_in_sets_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    measure_labbench(bench_of(), ASKED, batch=2, out=out, say=interrupted_at(4))
    with pytest.raises(LabBenchError, match="was measured with batch = 2, now it is 1"):
        measure_labbench(bench_of(), ASKED, out=out, resume=True)
    again: list[str] = []
    done = measure_labbench(bench_of(), ASKED, batch=2, out=out, resume=True, say=again.append)
    assert [x.question for x in done.rows] == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ] and "copied: 2 questions, 2 at a time" in again


# ---- the file while it goes

ASKED = [question(i, f"question {i}?", "42") for i in range(5)]


def interrupted_at(number: int) -> Callable[[str], None]:
    def say(text: str) -> None:
        if text.startswith(f"question {number} "):
            raise KeyboardInterrupt

    return say


def bench_of(**more: Any) -> Bench:
    return Bench(scripted(RULES), {"copied": toys.method(drafter="prompt_lookup")}, **more)


def test_an_interrupted_run_keeps_what_it_has_and_goes_on(tmp_path: Path) -> None:
    out, part = tmp_path / "found.json", tmp_path / "found.json.partial"
    first = measure_labbench(bench_of(), ASKED, out=out, say=interrupted_at(4))
    assert not first.complete and not out.exists() and [x.question for x in first.rows] == [0, 0, 1, 1, 2, 2]
    assert len(part.read_bytes().splitlines()) == 4, "settings and three questions"
    # it ended in the middle of a line
    part.write_bytes(part.read_bytes() + b'{"question": 3, "rows": [{"quest')
    again: list[str] = []
    second = measure_labbench(bench_of(), ASKED, out=out, resume=True, say=again.append)
    assert again == ["warming up", "question 4 of 5: qa", "question 5 of 5: qa"]
    assert (
        second.complete
        and second.rows[:6] == first.rows
        and [x.question for x in second.rows[6:]] == [3, 3, 4, 4]
    )
    assert not part.exists() and json.loads(out.read_text()) == json.loads(json.dumps(second.record()))
    assert second.seconds > first.seconds > 0


def test_a_run_that_was_interrupted_behind_its_last_question_only_writes_its_result(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    measure_labbench(bench_of(), ASKED, out=out)
    lines = [{"settings": json.loads(out.read_text())["settings"]}]
    rows = json.loads(out.read_text())["rows"]
    for i in range(5):
        mine = [{k: v for k, v in x.items() if k != "score"} for x in rows if x["question"] == i]
        lines.append({"question": i, "rows": mine, "skipped": "", "seconds": 1.0})
    out.unlink()
    out.with_name("found.json.partial").write_text("".join(json.dumps(x) + "\n" for x in lines))
    said: list[str] = []
    assert measure_labbench(bench_of(), ASKED, out=out, resume=True, say=said.append).complete
    assert said == [] and json.loads(out.read_text())["rows"] == rows


def test_files_in_the_way_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    with pytest.raises(LabBenchError, match=r"There is no .*partial to go on from: leave --resume out"):
        measure_labbench(bench_of(), ASKED, out=out, resume=True)
    measure_labbench(bench_of(), ASKED, out=out, say=interrupted_at(2))
    with pytest.raises(LabBenchError, match="exists already: go on with --resume"):
        measure_labbench(bench_of(), ASKED, out=out)
    with pytest.raises(LabBenchError, match="was measured with seed = 0, now it is 7"):
        measure_labbench(bench_of(seed=7), ASKED, out=out, resume=True)
    with pytest.raises(LabBenchError, match="was measured with questions = "):
        measure_labbench(bench_of(), ASKED[:4], out=out, resume=True)
    measure_labbench(bench_of(), ASKED, out=out, resume=True)
    with pytest.raises(LabBenchError, match="exists already: choose another name"):
        measure_labbench(bench_of(), ASKED, out=out)
    with pytest.raises(LabBenchError, match="There is no folder"):
        measure_labbench(bench_of(), ASKED, out=tmp_path / "no folder" / "found.json")
    with pytest.raises(LabBenchError, match="cannot be written: "):
        measure_labbench(bench_of(), ASKED, out=tmp_path / ("x" * 5000))


HALF = b'{"question": 1, "rows": [{}], "skipped": "", "seconds": 1}'


@pytest.mark.parametrize("line", [b"{}", b"not JSON", HALF, b"[]", b"7"])
def test_a_partial_of_something_else_is_refused(tmp_path: Path, line: bytes) -> None:
    out = tmp_path / "found.json"
    measure_labbench(bench_of(), ASKED, out=out, say=interrupted_at(2))
    part = tmp_path / "found.json.partial"
    before = part.read_bytes() + line + b"\n"
    part.write_bytes(before)
    with pytest.raises(LabBenchError, match=r"Line 3 of .* is not of a measurement"):
        measure_labbench(bench_of(), ASKED, out=out, resume=True)
    assert part.read_bytes() == before, "nothing of it was lost"


def test_a_full_disk_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from decodescope.engine.bench.questions.result_file import ResultFile

    def full(self: ResultFile, *rest: Any) -> None:
        self.file = _Full(self.file)
        honest(self, *rest)

    honest = ResultFile.add
    monkeypatch.setattr(ResultFile, "add", full)
    with pytest.raises(LabBenchError, match=r"cannot be written \(No space left on device\): make room"):
        measure_labbench(bench_of(), ASKED, out=tmp_path / "found.json")


class _Full:
    """A file on a full disk."""

    def __init__(self, file: Any):
        self.close = file.close

    def write(self, data: bytes) -> int:
        raise OSError(28, "No space left on device")


# ---- questions


def written(path: Path, *lines: Any) -> Path:
    path.write_text(
        "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines), encoding="utf-8"
    )
    return path


GOOD = {
    "question_id": 1,
    "category": "qa",
    "turns": ["Who?"],
    "reference": ["Ada"],
    "scorer": "exact",
    "tags": {"tokens": 9},
}


def test_questions_are_read_in_our_form_and_in_spec_bench_s(tmp_path: Path) -> None:
    theirs = [
        {"question_id": 2, "category": "writing", "turns": ["Write.", "Rewrite."]},
        {"question_id": 3, "category": "rag", "turns": ["Which?"], "reference": [["one", "two"]]},
        {
            "question_id": 4,
            "category": "math_reasoning",
            "turns": ["How many?"],
            "reference": ["6 + 1 = 7\n#### 7"],
        },
        {"question_id": 5, "category": "qa", "turns": ["Who?"], "reference": None},
    ]
    found, about = read_questions(written(tmp_path / "q.jsonl", GOOD, "", *theirs))
    assert found[0] == BenchQuestion(1, "qa", ("Who?",), ("Ada",), "exact", {"tokens": 9})
    assert [x.scorer for x in found] == ["exact", None, None, "number", None]
    assert (
        found[1].turns == ("Write.", "Rewrite.")
        and found[2].references == ()
        and found[3].references[0].endswith("7")
    )
    assert about["file"] == "q.jsonl" and len(about["file_sha256"]) == 64
    assert count_kinds(found) == {"qa": 2, "writing": 1, "rag": 1, "math_reasoning": 1}
    assert [x.id for x in first_of_each_kind(found, 1)] == [1, 2, 3, 4]


BAD = {
    "no JSON": ("{", "it is no JSON"),
    "no object": ([1], "it is no object"),
    "no id": ({**GOOD, "question_id": None}, "question_id is missing; it must be a whole number or a name"),
    "odd id": ({**GOOD, "question_id": [1]}, "question_id is an unfitting list"),
    "true id": ({**GOOD, "question_id": True}, "question_id is true"),
    "no kind": ({**GOOD, "category": ""}, 'category is ""'),
    "kind of two lines": ({**GOOD, "category": "a\nb"}, "category is"),
    "no turns": ({**GOOD, "turns": []}, "turns is an unfitting list; it must be a list of 1 to 16 texts"),
    "empty turn": ({**GOOD, "turns": [" "]}, "turns is an unfitting list"),
    "turns of numbers": ({**GOOD, "turns": [1]}, "turns is an unfitting list"),
    "unknown scorer": ({**GOOD, "scorer": "bleu"}, 'scorer is "bleu"; it must be one of exact, span_f1'),
    "odd scorer": ({**GOOD, "scorer": {}}, "scorer is an unfitting object"),
    "no reference": ({**GOOD, "reference": None}, "reference is missing; it must be a list of 1 text"),
    "too few references": (
        {**GOOD, "turns": ["a", "b"]},
        "reference is an unfitting list; it must be a list of 2 text",
    ),
    "odd tags": ({**GOOD, "tags": {"a": []}}, "tags is an unfitting object"),
    "deep": ("[" * 100_000, "it is no JSON"),
}


@pytest.mark.parametrize(("line", "why"), BAD.values(), ids=BAD)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, line: Any, why: str) -> None:
    path = written(tmp_path / "q.jsonl", {**GOOD, "question_id": 9}, "", line)
    with pytest.raises(LabBenchError) as error:
        read_questions(path)
    assert str(error.value).startswith(f"Line 3 of {path}: {why}") and str(error.value).endswith(".")
    assert "\n" not in str(error.value)


def test_every_bad_line_has_its_sentence_up_to_a_limit(tmp_path: Path) -> None:
    with pytest.raises(LabBenchError) as error:
        read_questions(written(tmp_path / "q.jsonl", GOOD, GOOD, *["x"] * 6))
    lines = str(error.value).splitlines()
    assert "question_id 1 is in line 1 already" in lines[0]
    assert [x[:6] for x in lines[:4]] == [f"Line {i}" for i in range(2, 6)]
    assert lines[4:] == ["3 further lines are bad too."]


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabBenchError, match="cannot be read: No such file"):
        read_questions(tmp_path / "none")
    with pytest.raises(LabBenchError, match="are none: give one JSON object a line"):
        read_questions(written(tmp_path / "q.jsonl", "", " "))


# ---- targets


def test_targets_take_plain_decoding_s_own_rows() -> None:
    rows = [
        row("copy", score=1.0), row("edit", score=0.7), row("copy", "h2o", score=0.0),
        row("retrieval", score=1.0, tags={"tokens": 512}), row("retrieval", score=0.6, tags={"tokens": 1500}),
        row("lists", score=1.0, tags={"length": 8}), row("lists", score=0.0, tags={"length": 9}),
        row("json", score=0.0, scorer="json", said=["{}"]), row("json", score=1.0, scorer="exact", said=["no JSON"]),
        row("math", score=0.8, tags={"form": "one-step"}), row("math", score=0.0, tags={"form": "words"}),
    ]  # fmt: skip
    exactness = {BASELINE: "lossless", "h2o": "lossy"}
    found = LabBenchResult(
        {"methods": {BASELINE: {}, "h2o": {}}, "exactness": exactness, "questions": {}}, rows
    ).record()
    told = {x["what"]: (x["value"], x["questions"], x["met"]) for x in found["targets"]}
    assert compare_targets(found) == found["targets"]
    assert list(told.values()) == [
        (pytest.approx(0.85), 2, False),
        (1.0, 1, True),
        (0.6, 1, False),
        (1.0, 1, True),
        (None, 0, None),
        (1.0, 1, True),
        (0.8, 1, True),
    ]
    assert [x["goal"] for x in found["targets"]] == [0.9, 0.9, 0.7, 0.8, 0.7, 0.95, 0.8]
