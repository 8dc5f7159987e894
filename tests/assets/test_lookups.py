"""Lookups made while a model reads: no document occurs twice, each fits its window, and each answer is in the text."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import pytest
import torch

from decodescope.engine import Method, load, run
from decodescope.training import answer_accuracy, data, losses, recall, train
from decodescope.training.lookups import LEAST, LOOKUPS, WINDOWS
from decodescope.training.losses import Objective
from decodescope.training.mixtures import mixture_of, windows_of
from decodescope.training.net import Net, NetShape, count_weights

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
TINY = NetShape(layers=2, width=16, heads=2, kv_heads=1, head_width=8, inner=24, context=512)
MIXTURE = {"many": 0.6, "rows": 0.4}
PLAN = train.TrainingPlan(
    512, {512: 1.0}, {256: 1.0}, warmup=2, course=((0.001, {256: 1.0}), (0.002, {128: 1.0}))
)


def mixer(seed: int = 0, split: str = "train") -> data.Mixer:
    return data.Mixer(
        {kind: data.GeneratedText(*LOOKUPS[kind], split) for kind in MIXTURE}, MIXTURE, [256, 512], seed
    )


@pytest.mark.parametrize(
    ("kind", "window"),
    [*product(("asked", "many", "again", "told"), WINDOWS), *product(("read",), (1024, 2048))],
)
def test_what_is_asked_stands_in_the_text(kind, window):
    make, fitting = LOOKUPS[kind][0], 0
    for seed in range(12):
        document = make(Random(seed), "train", window)
        fitting += len(data.load_tokenizer(True).encode(document).ids) <= window
        first, *more = document.split("<|end|>")[:-1]
        for answer in [
            part.partition("<|assistant|>\n")[2] for part in (first, *more) if "<|assistant|>" in part
        ]:
            for line in answer.split("\n") if kind == "again" else answer.split(", "):
                assert line in first
    assert fitting > (3 if kind == "told" else 6), "documents must fit the window that they are made for"


@pytest.mark.parametrize("window", WINDOWS)
def test_sums_and_lists_fill_a_window_in_a_row_and_are_right(window):
    sizes, steps, lists = [], 0, 0
    for seed in range(8):
        reckoned, listed = (
            LOOKUPS[kind][0](Random(seed), "train", window) for kind in ("reckoned", "listed")
        )
        sizes += [len(data.load_tokenizer(True).encode(text).ids) / window for text in (reckoned, listed)]
        for a, sign, b, total in re.findall(r"(\d+) ([+-]) (\d+) = (\d+)", reckoned):
            assert int(total) == int(a) + (int(b) if sign == "+" else -int(b))
            steps += 1
        for given, backwards in re.findall(
            r"(?:backwards|round)\.\n(.+)<\|end\|>\n<\|assistant\|>\n(.+)<", listed
        ):
            assert backwards.split(", ") == given.split(", ")[::-1]
            lists += 1
    assert max(sizes) <= 1 and sum(sizes) / len(sizes) > 0.3
    assert steps > window // 16 and (lists or window < 512), "the test needs sums and lists"


@pytest.mark.parametrize("window", WINDOWS)
def test_orders_about_a_list_are_about_the_list_as_it_was_given(window):
    sizes, checked = [], 0
    for seed in range(12):
        document = LOOKUPS["ordered"][0](Random(seed), "train", window)
        sizes.append(len(data.load_tokenizer(True).encode(document).ids) / window)
        first, *_ = turns = re.findall(
            r"<\|user\|>\n(.+?)<\|end\|>\n<\|assistant\|>\n(.+?)<\|end\|>", document, re.DOTALL
        )
        given = max(first[0].split("\n"), key=lambda line: line.count(", ")).split(", ")
        assert {*map(len, turns)} == {2} and len(given) > 2
        for order, answer in turns:
            if re.search("backwards|Reverse|Turn the order", order):
                assert answer.split(", ") == given[::-1]
            elif re.search("How|Count", order):
                assert answer == str(len(given))
            else:
                continue
            checked += 1
    assert sum(size <= 1 for size in sizes) > 6 and checked > 2, "the test needs orders"


@pytest.mark.parametrize("window", WINDOWS)
def test_sums_in_lines_are_right_and_most_have_a_small_number(window):
    small = count = 0
    for seed in range(24):
        lines = LOOKUPS["steps"][0](Random(seed), "train", window).splitlines()
        for a, sign, b, total in (
            re.fullmatch(r"(\d+) ([+-]) (\d+) = (\d+)", line).groups() for line in lines
        ):
            assert int(total) == int(a) + (int(b) if sign == "+" else -int(b))
            small, count = small + (min(int(a), int(b)) < 10), count + 1
    assert count > 24 and 0.3 < small / count < 0.8


def test_stories_with_questions_are_kept_for_windows_that_have_room():
    names = {
        s.name
        for s in data.GeneratedText(*LOOKUPS["read"], least=LEAST["read"]).streams("read", 0.1, WINDOWS, 0)
    }
    assert names == {"read/1024", "read/2048"}
    assert [
        s.name
        for s in data.GeneratedText(*LOOKUPS["read"], least=LEAST["read"]).streams("read", 0.1, [512], 0)
    ] == ["read/512"]


def test_a_document_that_is_another_one_since_is_read_from_its_beginning():
    (spring,) = data.GeneratedText(*LOOKUPS["rows"]).streams("rows", 1.0, [128], 0)
    spring.restore(0, 3, 10_000, 0)
    assert spring.open()[:20].tolist() == spring.take(20).tolist()


def test_no_document_comes_twice_and_none_is_cut():
    source, seen = mixer(), set()
    for row in source.rows(256, 60).tolist():
        text = data.load_tokenizer(True).decode(row, skip_special_tokens=False)
        assert text.count("<|user|>") == text.count("<|assistant|>"), "a document was cut"
        for document in text.split("<|end|>\n<|end|>"):
            if document.startswith("<|user|>"):
                assert document not in seen
                seen.add(document)
    assert len(seen) > 40, "the test needs documents"


def test_a_split_and_a_seed_have_documents_of_their_own_and_a_mixer_goes_on_where_it_stood():
    one, two = mixer(), mixer()
    one.rows(256, 9), one.rows(512, 5)
    two.load_state(one.state())
    rows = one.rows(512, 8)
    assert torch.equal(rows, two.rows(512, 8))
    others = {"seed": mixer(1), "split": mixer(split="held_out")}
    for other in others.values():
        assert not torch.equal(mixer().rows(512, 4), other.rows(512, 4))


def test_a_course_of_windows_comes_before_the_steady_ones():
    torch.manual_seed(0)
    texts = {kind: data.GeneratedText(*LOOKUPS[kind]) for kind in MIXTURE}
    run = train.LanguageTrainer(Net(TINY), texts, PLAN, Objective(), (0.01, 0.01), mixture=MIXTURE)
    assert PLAN.lengths() == [128, 256, 512]
    assert [run.batch(step, False)[0].shape[1] - 1 for step in range(6)] == [256, 256, 128, 128, 512, 512]
    assert run.batch(0, True)[0].shape[1] - 1 == 256
    assert replace(PLAN, course=()).windows(0, False) == PLAN.steady


def test_questions_of_no_weight_are_read_and_not_predicted():
    torch.manual_seed(0)
    net, rows = Net(TINY), mixer().rows(256, 2)
    asked, answered = data.question_mask(rows)[:, 1:], data.answer_mask(rows)[:, 1:]
    assert asked.any() and answered.any() and not (asked & answered).any()
    weights = 1 + 5.0 * answered - 1.0 * asked
    some, every = (
        losses.loss_of(net, rows, weights, torch.tensor(0), None, None, Objective(answers=6.0, questions=q))
        for q in (0.0, 1.0)
    )
    assert torch.allclose(some[0], every[0], rtol=1e-3) and torch.allclose(some[1][1], every[1][1], rtol=1e-3)
    grads = [torch.autograd.grad(loss, net.model.norm.weight)[0] for loss, _ in (some, every)]
    assert torch.allclose(*grads, rtol=0.05, atol=1e-5)
    with pytest.raises(ValueError, match="above 0"):
        Objective(questions=0.0, exits=0.2)


def test_the_shipped_mixture_has_its_texts_and_the_model_its_size():
    shape = train.SHAPES["lab-recall"]
    assert count_weights(Net(shape)) <= 2_500_000
    mixture = mixture_of("lab-recall")
    assert sum(mixture.values()) == pytest.approx(1)
    assert all(sum(mixture_of(x).values()) == pytest.approx(1) for x in train.SHAPES)
    assert mixture_of("lab", ["rows=0.5", "story=0.5"]) == {"rows": 0.5, "story": 0.5}
    with pytest.raises(ValueError, match=r"--mixture rows is no list.*such as rows=0\.5"):
        mixture_of("lab", ["rows"])
    with pytest.raises(ValueError, match=r"--windows 128=much is no list.*such as 128=0\.5"):
        windows_of(["128=much"], 2048)
    for wrong in ("long=1", "4096=1", "0=1"):
        with pytest.raises(ValueError, match="whole numbers from 1 to the context of 2048 tokens"):
            windows_of(["128=0.5", wrong], 2048)
    assert windows_of(["128=0.5", "2048=0.5"], 2048) == {128: 0.5, 2048: 0.5}
    assert {k for k in mixture if k not in LOOKUPS} == {"story", "docs"}


def test_an_answer_is_right_where_greedy_decoding_writes_it():
    torch.manual_seed(3)
    net = Net(replace(TINY, vocabulary=4096, context=256)).eval()
    marks = {form: recall.questions(form, 128, 3) for form in recall.FORMS}
    assert all(
        task.tags == task.tags | {"form": form, "asked": 1} for form, some in marks.items() for task in some
    )
    for task in marks["pairs"]:
        prompt = f"<|user|>\n{task.turns[0]}<|end|>\n<|assistant|>\n"
        answer = data.load_tokenizer(True).encode(f"{task.answers[0]}<|end|>").ids
        assert len(recall.token_correctness(net, data.load_tokenizer(True), task)) == len(answer)
        ids = torch.tensor([data.load_tokenizer(True).encode(prompt).ids])
        written = net.write(ids, 6, 0.0)[0, ids.shape[1] :].tolist()
        echo = replace(task, answers=(data.load_tokenizer(True).decode(written[:1]),))
        again = data.load_tokenizer(True).encode(echo.answers[0]).ids
        assert recall.token_correctness(net, data.load_tokenizer(True), echo)[0] == (again[:1] == written[:1])
        assert recall.sample(net, data.load_tokenizer(True), task).count(task.turns[0]) == 1, (
            "the card asks once"
        )
    table = recall.score_table(recall.measure(net, data.load_tokenizer(True), 2, sizes=(128,)))
    assert "of 70% wanted" in table and table.count("\n") == 2 + len(recall.FORMS)
    lines = recall.aims_report(
        {key: (least + (0.01 if key[0] == "lines" else -0.01), 1.0) for key, least in recall.WANTED.items()}
    )
    assert lines.count("**reached**") == 1 and lines.count("**missed**") == len(recall.WANTED) - 1


def test_what_a_model_answers_is_told_by_kind_and_is_what_decoding_writes():
    asked = answer_accuracy.questions_by_kind(2)
    assert {"retrieval 512", "retrieval 1500", "math"} <= asked.keys() and not asked.keys() & {
        *answer_accuracy.FREE
    }
    assert all(len(task.turns) == len(task.answers) == 1 for tasks in asked.values() for task in tasks)
    lab = Net.from_folder(MODELS / "lab").eval()
    some = {
        "math": answer_accuracy.questions_by_kind(6)["math"]
    }  # answers that end within the sampled length
    share, _ = answer_accuracy.answer_accuracy(lab, some)["math"]
    written = [
        recall.sample(lab, data.load_tokenizer(True), replace(task, answers=("",))) for task in some["math"]
    ]
    whole = [
        f"<|assistant|>\n{task.answers[0]}<|end|>\n" in text
        for task, text in zip(some["math"], written, strict=True)
    ]
    assert share == sum(whole) / 6 and 0 < share < 1, (
        "some are answered and some are not, or the test shows nothing"
    )


def test_the_shipped_model_finds_pass_keys_and_a_window_loses_them() -> None:
    model, asked = load("lab-recall", "float32", "cpu"), recall.questions("passkey", 128, 6)
    window = Method.from_names({"policy": "window"}, {"policy": {"budget_share": 0.25}})
    hits = {
        name: sum(
            run(model, method, x.turns[0], chat=True, max_new_tokens=8).text == f"{x.answers[0]}<|end|>"
            for x in asked
        )
        for name, method in {"all": None, "window": window}.items()
    }
    assert hits["all"] >= 5 and hits["window"] < hits["all"], hits
