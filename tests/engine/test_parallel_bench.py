"""bench parallel: the counts are those of the passes, and the task's rule says whether an answer is right."""

from __future__ import annotations

import json
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from decodescope.app.commands.bench import parallel as bench_parallel
from decodescope.engine import Method
from decodescope.engine.bench import parallel
from decodescope.engine.bench.figures.parallel import ONE, ParallelResult, ParallelRow
from decodescope.engine.bench.questions.parallel_tasks import TASKS, chance_at_once, is_right, right_answers
from decodescope.engine.bench.questions.parallel_tasks import make_questions as asked
from decodescope.engine.bench.questions.questions import LabBenchError
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import MethodError

SEED, COUNT = 3, 3
END, MASK = "<|end|>", "<|mask|>"


def words() -> Tokenizer:
    """A tokenizer with a token for every word of this test's questions."""
    texts = [x.prompt for x in asked(TASKS, COUNT, SEED)]
    known = sorted({form for text in texts for word in text.split() for form in (word, "▁" + word)})
    made = tokenizers.Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(known)}, unk_token=known[0])
    )
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(prepend_scheme="never"), decoders.Metaspace()
    made.add_special_tokens([END, MASK])
    return Tokenizer(made.to_str(), {"eos_token": END})


class Copier(Decoder):
    """A stand-in that reads the whole text and copies the list: place i of the canvas gets word i with certainty.

    After the last word it writes the end.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.colon, self.arrow = tokenizer.encode("copy:")[0], tokenizer.encode("copy: ->")[1]
        self.end, (mask,) = tokenizer.stop_ids[0], tokenizer.marks - set(tokenizer.stop_ids)
        one = torch.ones(1)
        spec = ModelSpec(
            "copier", 1, 1, 1, 1, 1, 1, tokenizer.vocab, max_positions=64, causal=False, mask_token=mask
        )
        super().__init__(spec, one.expand(spec.vocab, 1), [], one, one.expand(spec.vocab, 1))

    def forward(self, feed: Feed, cache: Any, probe=None, skip=None, depth=None, ran=None) -> torch.Tensor:
        text = feed.tokens[0].tolist()
        cache.layers[0].append(torch.zeros(2, 1, 1, feed.length, 1), feed.positions)
        canvas = text.index(self.arrow) + 1
        items = text[text.index(self.colon) + 1 : canvas - 1] if self.colon in text else []
        logits = torch.zeros(1, feed.length, self.spec.vocab)
        for i in range(feed.length):
            at = i - canvas
            logits[0, i, items[at] if 0 <= at < len(items) else self.end] = 20.0
        return logits[:, feed.rows]


@pytest.fixture(scope="module")
def model() -> Model:
    tokenizer = words()
    made = Copier(tokenizer)
    return Model("copier", Path("copier"), made.spec, made, tokenizer, "3" * 16, tokenizer.stop_ids)


@pytest.fixture(scope="module")
def found(model: Model) -> dict[str, Any]:
    methods = {name: x for name, x in parallel.default_methods().items() if "cache" not in name}
    return parallel.measure_parallel(parallel.ParallelBench(model, methods, count=COUNT, seed=SEED)).record()


def test_every_list_is_copied_and_nothing_else_is_right(found: dict[str, Any]) -> None:
    assert json.dumps(found, allow_nan=False) and found["complete"]
    assert list(found["kinds"]) == list(TASKS) and set(found["kinds"].values()) == {COUNT}
    for name, one in found["methods"].items():
        assert one["by_kind"] == {kind: float(kind == "copy") for kind in TASKS}, name
        assert one["right"] == pytest.approx(1 / len(TASKS))


def test_passes_and_rows_are_those_of_the_schedule(model: Model, found: dict[str, Any]) -> None:
    """A canvas has one place more than the answer has slots. The copier is sure of all, so a threshold takes one pass."""
    bench = parallel.ParallelBench(model, {}, count=COUNT, seed=SEED)
    rows = {(row["method"], row["question"]): row for row in found["rows"] if row["kind"] == "copy"}
    due = {
        ONE: lambda n: n + 1,
        "two passes": lambda n: 2,
        "all at once": lambda n: 1,
        "threshold": lambda n: 1,
    }
    for name, passes in due.items():
        for question, task in bench.tasks.items():
            if task.task == "copy":
                row = rows[name, question]
                length = len(model.tokenizer.encode(task.prompt)) + task.slots + 1
                assert (row["passes"], row["tokens"]) == (passes(task.slots), task.slots + 1), (
                    name,
                    question,
                )
                assert row["fed"] == row["passes"] * length
    one = found["methods"][ONE]
    mine = [row for row in found["rows"] if row["method"] == ONE]
    assert one["tokens_a_pass"] == sum(row["tokens"] for row in mine) / sum(row["passes"] for row in mine)
    assert one["times"] == 1.0 and found["methods"]["all at once"]["passes"] == len(bench.tasks)


def test_closed_forms_are_those_of_the_questions(found: dict[str, Any]) -> None:
    for kind in ("copy", "remove_random", "replace_random"):
        lengths = [x.length for x in asked([kind], COUNT, SEED)]
        assert found["at_once"][kind] == pytest.approx(
            sum(float(chance_at_once(kind, n)) for n in lengths) / COUNT
        )


def test_a_shuffle_is_held_against_a_model_that_never_leaves_the_list_as_it_was(
    found: dict[str, Any],
) -> None:
    pair, four = (next(x for x in asked(["shuffle"], 60, SEED) if x.length == n) for n in (2, 4))
    assert parallel.question_chance(pair) == 1 and float(chance_at_once("shuffle", 2)) == 0.25, (
        "two names have one other order"
    )
    places = [[answer[i] for answer in right_answers(four)] for i in range(4)]
    drawn = [answer for answer in product(four.items, repeat=4) if is_right(four, answer)]
    brute = sum(
        prod(place.count(word) / len(place) for place, word in zip(places, x, strict=True)) for x in drawn
    )
    assert parallel.question_chance(four) == pytest.approx(brute, rel=1e-12) and brute > float(
        chance_at_once("shuffle", 4)
    )
    lengths = [parallel.question_chance(x) for x in asked(["shuffle"], COUNT, SEED)]
    assert found["at_once"]["shuffle"] == pytest.approx(sum(lengths) / COUNT)


def test_goals_need_something_to_lose() -> None:
    def goals(before: bool, after: bool, passes: int) -> list[bool | None]:
        rows = [
            ParallelRow("copy 1", "copy", ONE, 3, 3, 4, before, "", 4, 40, 1.0),
            ParallelRow("copy 1", "copy", "threshold", 3, 3, 4, after, "", passes, 40, 1.0),
        ]
        return [x["met"] for x in ParallelResult({"at_once": {"copy 1": 1.0}}, rows).record()["goals"]]

    assert (
        goals(True, True, 2) == [True]
        and goals(True, True, 3) == [False]
        and goals(True, False, 1) == [False]
    )
    assert goals(False, False, 1) == [None], "a model that knows nothing loses nothing"


def test_figures_are_told(found: dict[str, Any]) -> None:
    text = bench_parallel.as_text(found)
    assert "one place a pass" in text and "a perfect model, all at once" in text and "met" in text


def test_what_cannot_be_measured_is_refused_in_a_sentence(model: Model) -> None:
    with pytest.raises(MethodError, match="writes from left to right"):
        parallel.ParallelBench(model, {"plain": Method()})
    bare = Model("bare", Path("bare"), model.spec, model.decoder, None, "4" * 16, [])
    with pytest.raises(LabBenchError, match=r"^bare has no tokenizer.json"):
        parallel.ParallelBench(bare)
