"""The tasks: every answer is right, each split has its own tasks, and LabBench is what its script writes."""

from __future__ import annotations

import ast
import json
import re
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from decodescope.engine.bench.questions.score import score
from decodescope.training import bench
from decodescope.training.tasks import KINDS, SPLITS, Task, render, split_of, translation

ASSETS = Path(__file__).resolve().parents[2] / "assets"

LAB = ASSETS / "models" / "lab"
DRAWS = 200


def drawn(kind: str, split: str, count: int = DRAWS) -> list[Task]:
    """Draw `count` tasks of a kind, each from its own seed."""
    return [KINDS[kind](Random(f"{kind} {split} {i}"), split) for i in range(count)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(LAB / "tokenizer.json"))


@pytest.fixture(scope="module")
def auto():
    return AutoTokenizer.from_pretrained(LAB)


# ---- every kind


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_task_in_the_split_it_was_asked_for(kind):
    keys = {}
    for split in SPLITS:
        tasks = drawn(kind, split)
        assert tasks == drawn(kind, split)
        assert {split_of(task.key) for task in tasks} == {split}
        keys[split] = {task.key for task in tasks}
        assert len(keys[split]) > (20 if split == "valid" else 100), "the test needs different tasks"
    assert (
        not keys["train"] & keys["held_out"]
        and not keys["train"] & keys["valid"]
        and not keys["valid"] & keys["held_out"]
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", SPLITS)
def test_answers_are_right(kind, split):
    for task in drawn(kind, split):
        assert task.kind == kind and len(task.turns) == len(task.answers) > 0
        due = task.references or task.answers
        assert all(score(task.scorer, a, b) == 1 for a, b in zip(task.answers, due, strict=True))
        assert RIGHT[kind](task), render(task)


def test_a_wrong_answer_scores_less():
    for kind in KINDS:
        tasks = drawn(kind, "train", 60)
        told = [score(a.scorer, b.answers[0], a.answers[0]) for a, b in pairwise(tasks)]
        assert sum(told) / len(told) < 0.7, f"the answers of {kind} are too much alike to be scored"


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_is_rendered_as_the_chat_template_does_and_its_question_is_a_prefix(kind, tokenizer, auto):
    for task in drawn(kind, "train", 40):
        turns = []
        for turn, answer in zip(task.turns, task.answers, strict=True):
            turns.append({"role": "user", "content": turn})
            asked = auto.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
            turns.append({"role": "assistant", "content": answer})
            ids = tokenizer.encode(asked).ids
            assert tokenizer.encode(asked + answer).ids[: len(ids)] == ids
        assert auto.apply_chat_template(turns, tokenize=False) == render(task)
        assert not re.search(r"<\||\^|[{}]{2}", " ".join([*task.turns, *task.answers]))


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="no split 'test'; choose one of train, valid, held_out"):
        KINDS["math"](Random(0), "test")


def test_splits_have_their_shares():
    found = [split_of(repr(i)) for i in range(20_000)]
    assert [round(100 * found.count(s) / len(found)) for s in SPLITS] == [90, 2, 8]


def test_most_tasks_are_short(tokenizer):
    sizes = {
        kind: sorted(len(tokenizer.encode(render(t)).ids) for t in drawn(kind, "train")) for kind in KINDS
    }
    assert all(found[-1] <= bench.CONTEXT for found in sizes.values())
    short = [kind for kind, found in sizes.items() if found[len(found) // 2] <= 300]
    assert set(KINDS) - set(short) <= {"chat", "summary"}, "only whole stories may be longer"


# ---- what is right, kind by kind: read from the text alone


def right_span(task: Task) -> bool:
    return all(answer and answer in task.turns[0] for answer in task.answers)


def right_math(task: Task) -> bool:
    steps = re.findall(r"(\d+) ([+-]) (\d+) = (\d+)", task.answers[0])
    given = set(re.findall(r"\d+", task.turns[0]))
    for i, (a, sign, b, c) in enumerate(steps):
        if int(c) != (int(a) + int(b) if sign == "+" else int(a) - int(b)) or b not in given:
            return False
        if a != (steps[i - 1][3] if i else a) or (not i and a not in given):
            return False
    last = re.findall(r"\d+", task.answers[0])[-1]
    return len(steps) == task.tags["steps"] and last == steps[-1][3] and len(given) <= len(steps) + 1


def right_retrieval(task: Task) -> bool:
    turn, answers = task.turns[0], task.answers[0].split(", ")
    question = next(
        p for p in (turn.split("\n\n")[0], turn.split("\n\n")[-1]) if re.match("What is|Tell me", p)
    )
    asked = re.sub(r"^(What is|Tell me) |[?.]$|\bthe number of (?=[A-Z])", "", question)
    labels = [part.removeprefix("the ") for part in asked.split(" and ")]
    said = [re.findall(rf"\b{label}(?: is| =|:| ->) (\w+)", turn) for label in labels]
    return [x[0] for x in said] == answers and all(len(x) == 1 for x in said)


def right_copy(task: Task) -> bool:
    turn, answer = task.turns[0], task.answers[0]
    return turn.endswith(":\n" + answer) or (
        turn.startswith(answer + "\n") and turn[len(answer) + 1 :].count("\n") == 0
    )


def right_edit(task: Task) -> bool:
    turn, answer = task.turns[0], task.answers[0]
    lines = turn.split("\n")
    if task.tags["form"] == "grammar":
        return answer not in turn and max(score("edit_distance", line, answer) for line in lines) > 0.8
    for asked, text in ((lines[0], "\n".join(lines[1:])), (lines[-1], "\n".join(lines[:-1]))):
        shapes = (
            r"with (\w+) instead of (\w+)\.$",
            r"Write (\w+) instead of (\w+)\.$",
            r"(?:by|to) (\w+)\.$",
            r"Call (\w+) (\w+) instead\.$",
        )
        for i, shape in enumerate(shapes):
            if found := re.search(shape, asked):
                new = found[2] if i == 3 else found[1]
                old = (
                    found[2]
                    if i < 2
                    else found[1]
                    if i == 3
                    else asked.split(" to ")[0].split(" by ")[0].split()[-1]
                )
                if re.sub(rf"\b{old}\b", new, text) == answer != text:
                    return True
    return False


def right_list(task: Task) -> bool:
    lines = task.turns[0].split("\n")
    form, n = task.tags["form"], task.tags["length"]
    asked, given = next((a, b.split(", ")) for a, b in (lines, lines[::-1]) if len(b.split(", ")) == n)
    answer = task.answers[0].split(", ")
    number = given[0].isdigit()
    words = re.findall(r"\w+", asked)
    named = [w for w in words if w in given]
    if form in ("sort", "sort_down"):
        return answer == sorted(given, key=lambda x: int(x) if number else x, reverse=form == "sort_down")
    if form == "shuffle":
        return task.references == (", ".join(given),) and sorted(answer) == sorted(given) and answer != given
    if form in ("first", "last"):
        n = int(re.search(r"\d+", asked)[0])
        return answer == (given[:n] if form == "first" else given[len(given) - n :])
    if form in ("replace", "insert"):
        new = next(x for x in answer if x not in given)
        assert new in words and len(named) == 1
        at = given.index(named[0])
        return answer == [*given[: at + (form == "insert")], new, *given[at + 1 :]]
    return (
        answer
        == {"reverse": given[::-1], "count": [str(n)], "remove": [x for x in given if x not in named]}[form]
    )


def right_json(task: Task) -> bool:
    turn, answer = task.turns[0], task.answers[0]
    if task.tags["form"] == "write":
        found = json.loads(answer)
        said = [x for v in found.values() for x in (v if isinstance(v, list) else [v])]
        return len(found) == task.tags["fields"] and all(str(x).lower() in turn.lower() for x in said)
    record = json.loads(re.search(r"^\{.*\}$", turn, re.M)[0])
    asked = re.sub(r"^\{.*\}$", "", turn, flags=re.M).strip()
    key = next(k for k in record if re.search(rf"\b{k}\b", asked))
    if task.tags["form"] == "field":
        return answer == str(record[key])
    new = re.search(r"(?:to|=) (\w+)\.$", asked)[1]
    return json.loads(answer) == record | {key: int(new) if new.isdigit() else new} != record


def right_expression(task: Task) -> bool:
    turn, answer = task.turns[0], task.answers[0]
    if task.tags["form"] == "evaluate":
        due = value_of(re.search(r"[\d(][\d+*() -]*[\d)]|\d", turn)[0])
        return all(value_of(a) == value_of(b) for a, b in (x.split(" = ") for x in answer.split("\n"))) and (
            value_of(answer.split(" = ")[-1]) == due
        )
    words = re.findall(r"sum|difference|product|and|plus|minus|times|\d+", turn)
    value, rest = read(words)
    return rest == [] and value_of(answer) == value


def value_of(text: str) -> int:
    """The value of a sum in signs."""
    assert re.fullmatch(r"[\d+*() -]+", text), text
    return eval(compile(ast.parse(text, mode="eval"), "", "eval"))


def read(words: list[str]) -> tuple[int, list[str]]:
    """Read 'sum A and B', 'a plus b' or a number at the start of `words`; return the value and the remaining words."""
    do = {
        "sum": int.__add__,
        "difference": int.__sub__,
        "product": int.__mul__,
        "plus": int.__add__,
        "minus": int.__sub__,
        "times": int.__mul__,
    }
    if words[0] in do:
        a, rest = read(words[1:])
        assert rest[0] == "and"
        b, rest = read(rest[1:])
        return do[words[0]](a, b), rest
    if len(words) > 1 and words[1] in do:
        return do[words[1]](int(words[0]), int(words[2])), words[3:]
    return int(words[0]), words[1:]


# what a function of each name must return, given its argument and the number or letter in its name
MEANT = {
    "add": lambda x, n: x + n,
    "subtract": lambda x, n: x - n,
    "times": lambda x, n: x * n,
    "remainder": lambda x, n: x % n,
    "is": lambda x, n: x == n,
    "is_above": lambda x, n: x > n,
    "is_below": lambda x, n: x < n,
    "divides": lambda x, n: x % n == 0,
    "at_most": min,
    "at_least": max,
    "count_to": lambda x, n: [*range(x, n + 1)],
    "first": lambda x, n: x[:n],
    "last": lambda x, n: x[max(0, len(x) - n) :],
    "without_first": lambda x, n: x[n:],
    "every": lambda x, n: [v for i, v in enumerate(x) if i % n == 0],
    "has": lambda x, n: n in x,
    "count": lambda x, n: sum(v == n for v in x),
    "scale": lambda x, n: [v * n for v in x],
    "raise": lambda x, n: [v + n for v in x],
    "above": lambda x, n: [v for v in x if v > n],
    "below": lambda x, n: [v for v in x if v < n],
    "without": lambda x, n: [v for v in x if v != n],
    "sum_above": lambda x, n: sum(v for v in x if v > n),
    "count_below": lambda x, n: sum(v < n for v in x),
    "append": lambda x, n: [*x, n],
    "repeat": lambda x, n: "".join([x] * n),
    "shorten": lambda x, n: x[:n],
    "is_longer": lambda x, n: len(x) > n,
    "starts": lambda x, c: x[:1] == c,
    "ends": lambda x, c: x[-1:] == c,
    "split": lambda x, c: x.split(c),
    "drop": lambda x, c: "".join(v for v in x if v != c),
}


def right_code(task: Task) -> bool:
    head = re.search(r"def .*\n.*", task.turns[0])[0]
    space: dict = {}
    exec(head + "\n" + re.sub(r"^", "    ", task.answers[0], flags=re.M), space)
    name, end = re.search(r"def (\w+)_(\w+)\(", head).groups()
    n = int(end) if end.isdigit() else end
    if name.startswith(("get_", "set_")):
        key = name[4:]
        return space[f"{name}_{n}"]({}) == (n if name[0] == "g" else {key: n}) and (
            space[f"{name}_{n}"]({key: 1}) == (1 if name[0] == "g" else {key: n})
        )
    if re.search(r"\((text|word|line|name|title)\)", head):
        given: list = ["", "a", f"{n}b{n}", "the quick brown fox jumps over the lazy dog" * 3]
    elif re.search(r"\((values|items|numbers|data)\)", head):
        given = [[], [n], [*range(120)], [n - 1, n, n, n + 1]]
    else:
        given = [0, 1, n - 1, n, n + 1, 2 * n]
    return all(space[f"{name}_{n}"](x[:] if isinstance(x, list) else x) == MEANT[name](x, n) for x in given)


# ---- Lomeri, read by the grammar in assets/bench/README.md


def read_lomeri(text: str) -> translation.SentenceMeaning:
    """The meaning of a sentence in Lomeri: [time] who [where] whom verb[-tense] [ne] [ka]."""
    words = text.removesuffix(".").split()
    back = [{v: k for k, v in d.items()} for d in
            (translation.NOUN, translation.ADJECTIVE, translation.VERB, translation.PRONOUN, translation.NUMBER,
             translation.PLACE, translation.TIME)]  # fmt: skip
    noun, adjective, verb, pronoun, number, place, time = back

    def group() -> translation.NounGroup:
        word, _, many = words.pop(0).partition("-")
        if word not in noun:
            return translation.NounGroup(pronoun.get(word, word))
        described = adjective[words.pop(0)] if words[0] in adjective else ""
        counted = number[words.pop(0)] if words[0] in number else ""
        return translation.NounGroup(noun[word], many == "ri", described, counted)

    when = time[words.pop(0)] if words[0] in time else ""
    who = [group()]
    while words[0] == "e":
        words.pop(0)
        who.append(group())
    whom, where = group(), None
    if words[0] in place:
        where = (place[words.pop(0)], whom)
        whom = group()
    does, _, tense = words.pop(0).partition("-")
    return translation.SentenceMeaning(
        tuple(who),
        verb[does],
        whom,
        {"": "present", "ta": "past", "so": "future"}[tense],
        "ne" in words,
        "ka" in words,
        where,
        when,
    )


def right_translation(task: Task) -> bool:
    turn, answer = task.turns[0], task.answers[0]
    if task.tags["way"] == "to":
        return translation.to_english(read_lomeri(answer)) in turn
    given = re.search(r"(?:^|[:?] )([^:?\n]+\.)", turn.split("\nTranslate")[0])[1]
    said = read_lomeri(given)
    return translation.to_english(said) == answer and translation.to_lomeri(said) == given


def test_lomeri_has_one_sentence_for_every_meaning_and_back():
    r = Random(0)
    said = [translation.draw_sentence(r) for _ in range(20_000)]
    assert all(read_lomeri(translation.to_lomeri(s)) == s for s in said)
    meant: dict[str, translation.SentenceMeaning] = {}
    assert all(meant.setdefault(translation.to_english(s), s) == s for s in said), (
        "two meanings have one English sentence"
    )


def test_lomeri_words_are_all_different():
    tables = (translation.NOUN, translation.ADJECTIVE, translation.VERB, translation.PRONOUN, translation.NUMBER,
              translation.PLACE, translation.TIME)  # fmt: skip
    words = [word for table in tables for word in table.values()]
    assert len(words) == len(set(words)) >= 150
    assert not {"e", "ne", "ka"} & set(words)


# ---- retrieval


@pytest.mark.parametrize("size", [128, 256, 512, 1024, 1500])
def test_a_needle_is_hidden_in_as_many_tokens_as_its_tag_says(size, tokenizer):
    found = [KINDS["retrieval"](Random(i), "train", size) for i in range(40)]
    lengths = [len(tokenizer.encode(task.turns[0]).ids) for task in found]
    assert {task.tags["tokens"] for task in found} == {size}
    low = 40 if size == 128 else 0.8 * size
    assert low <= min(lengths) and max(lengths) <= 1.15 * size + 10, (min(lengths), max(lengths))
    assert min(t.tags["depth"] for t in found) < 25 and max(t.tags["depth"] for t in found) > 75


RIGHT = {
    "chat": right_span,
    "qa": right_span,
    "summary": right_span,
    "math": right_math,
    "retrieval": right_retrieval,
    "copy": right_copy,
    "edit": right_edit,
    "lists": right_list,
    "json": right_json,
    "expression": right_expression,
    "code": right_code,
    "translation": right_translation,
}


# ---- LabBench


def test_labbench_is_what_its_script_writes():
    assert bench.FILE.read_text(encoding="utf-8") == bench.bench_text(), (
        "run: python -m decodescope.training.bench"
    )


def test_labbench_has_all_kinds_and_fits(tokenizer):
    lines = [json.loads(line) for line in bench.FILE.read_text(encoding="utf-8").splitlines()]
    assert [line["question_id"] for line in lines] == [*range(1, len(lines) + 1)]
    assert bench.FILE.stat().st_size < 1.5e6
    page = (bench.FILE.parent / "README.md").read_text(encoding="utf-8")
    assert f"Version {bench.VERSION}," in page
    for kind in KINDS:
        found = [line for line in lines if line["category"] == kind]
        assert len(found) >= 40 and f"| {kind} | {len(found)} |" in page
        assert all(f"`{line['scorer']}`" in page for line in found)
    tasks = list(bench.questions())
    assert all(split_of(task.key) == "held_out" for task in tasks)
    assert max(len(tokenizer.encode(render(task)).ids) for task in tasks) <= 2048
    for task in tasks:
        if task.kind == "retrieval":
            assert abs(len(tokenizer.encode(task.turns[0]).ids) / int(task.tags["tokens"]) - 1) < 0.1
    for form, tag in (("one-step", "form"), ("words", "form"), (512, "tokens"), (1500, "tokens")):
        assert sum(task.tags.get(tag) == form for task in tasks if task.kind in ("math", "retrieval")) >= 40


def test_no_question_of_labbench_is_ever_drawn_for_training():
    asked = {task.turns for task in bench.questions()}
    keys = {task.key for task in bench.questions()}
    slow = ("chat", "summary", "qa", "retrieval")
    counts = {kind: 500 if kind in slow else 2250 for kind in KINDS}
    drawn_ones = [
        KINDS[kind](Random(f"train {kind} {i}"), "train") for kind, n in counts.items() for i in range(n)
    ]
    assert len(drawn_ones) >= 20_000
    assert not asked & {task.turns for task in drawn_ones}
    assert not keys & {task.key for task in drawn_ones}


def test_the_readme_names_every_word_of_lomeri_and_its_examples_are_right():
    page = (bench.FILE.parent / "README.md").read_text(encoding="utf-8")
    said = " ".join(page.split())
    tables = (translation.NOUN, translation.ADJECTIVE, translation.VERB, translation.PRONOUN, translation.NUMBER,
              translation.PLACE, translation.TIME)  # fmt: skip
    assert not [word for table in tables for pair in table.items() if (word := " ".join(pair)) not in said]
    examples = re.findall(r"(?m)^    ([A-Z].*?[.?])  +(.*[.])$", page)
    assert len(examples) >= 4
    assert all(translation.to_english(read_lomeri(lomeri)) == english for english, lomeri in examples)
