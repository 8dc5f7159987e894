"""The cloze adapter and the exits of lab-mdm: asked as in training, correct on what they learnt, and in fewer layers."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tokenizers import Tokenizer

from decodescope.engine.bench.cloze import ClozeBench, ClozeRow, load_cloze_questions
from decodescope.engine.core.component import build
from decodescope.engine.model.checkpoint.folder import read_json
from decodescope.engine.session.load import fingerprint, load
from decodescope.training import cloze, data

ASSETS = Path(__file__).resolve().parents[2] / "assets"

MODEL = ASSETS / "models" / "lab-mdm"


def by_rule() -> cloze.LabelQuestions:
    """Build questions from a fixed story, without the corpus."""
    made = object.__new__(cloze.LabelQuestions)
    made.split, made.tokenizer = "valid", Tokenizer.from_file(str(data.TOKENIZER))
    made.told = [
        ["Ada went home.", "It was late.", "Nobody saw her there."],
        ["The whale sang.", "They laughed."],
    ]
    return made


def test_what_is_asked_is_true_where_it_says_so() -> None:
    made, r = by_rule(), Random(0)
    for _ in range(40):
        prompt, answer = made.same(r)
        first, second = prompt.removeprefix("same: ").removesuffix(" ->").split(" / ")
        assert (sorted(first.split()) == sorted(second.split())) is (answer == "true") and len(first) > 3
        prompt, answer = made.claim(r)
        told, word = prompt.removeprefix("claim: ").removesuffix(" ->").split(" / ")
        assert (word in told) is (answer == "true")


def test_the_bench_asks_as_the_training_did() -> None:
    asked, made = load_cloze_questions(each=5), by_rule()
    bench = ClozeBench(load("lab-mdm", "float32", "cpu"), asked)
    for q, (ids, place) in zip(asked, bench._rows, strict=True):
        assert ids == made.ids(cloze.LabelQuestion(q.sort, q.prompt, q.labels, q.answer)) and ids[place] == 5
        assert all(made.token(x) in cloze.ClozeAdapter.rows for x in q.labels), "rows that learn"


def test_the_shipped_adapter_answers_and_its_exits_do_so_in_fewer_layers() -> None:
    model, asked = (
        load("lab-mdm+cloze", "float32", "cpu"),
        [q for q in load_cloze_questions(each=40) if q.sort != "claim"],
    )
    bench = ClozeBench(model, asked)
    assert bench.heads and read_json(MODEL / "heads" / "exits", "config.json")["target"] == fingerprint(
        MODEL, "cloze"
    )
    whole: ClozeRow = bench.measure("whole", build("adaptive_depth", "all_layers", {}))
    early = bench.measure(
        "early",
        build("adaptive_depth", "entropy_exit", {"threshold": 0.2, "min_layers": 1, "heads": "exits"}),
    )
    assert sum(whole.right.values()) >= 0.95 * len(asked) and whole.layers == 6 * len(asked)
    assert sum(early.right.values()) >= sum(whole.right.values()) - 4 and early.layers < 5 * len(asked)
