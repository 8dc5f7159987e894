"""bench repetition: probabilities equal those of a pass per token, and TP, IP and WR match their definitions."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
import toys

from decodescope.engine.bench import repetition
from decodescope.engine.bench.questions.questions import LabBenchError
from decodescope.engine.bench.repetition import (
    TEXT,
    RepeatedSentence,
    copy_curve,
    first_copy_thirds,
    read_copies,
    read_pairs,
    sentence_pairs,
    spread_evenly,
)
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.method import MethodError
from decodescope.engine.trace.query.repeats import find_repeats, repeated_share

TIMES = 4
TEXTS = [([3, 1, 4], [1, 5, 9, 2]), ([2], [7, 1, 8]), ([6, 6, 2, 0, 5], [3, 3, 4, 10, 11, 3]), ([1, 2], [5])]


@torch.inference_mode()
def brute(decoder: Decoder, before: list[int], one: list[int]) -> tuple[list[list[float]], list[list[bool]]]:
    """Probabilities and hits by copy and token, each from its own pass over the whole text before the token."""
    p: list[list[float]] = []
    best: list[list[bool]] = []
    text = list(before)
    for _ in range(TIMES):
        laws = []
        for token in one:
            laws.append(decoder.forward(Feed.causal_chain(text, 0, logits="last"), None)[0, 0].softmax(-1))
            text.append(token)
        p.append([float(law[x]) for law, x in zip(laws, one, strict=True)])
        best.append([int(law.argmax()) == x for law, x in zip(laws, one, strict=True)])
    return p, best


@pytest.mark.parametrize("rows", [1024, 12, 4])  # rows of a pass: all at once, three places of each text, one
def test_side_by_side_every_token_has_the_probability_of_a_pass_of_its_own(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repetition, "ROWS", rows)
    decoder, kinds = toys.pair()[0].decoder, set()
    for (before, one), (p, best) in zip(TEXTS, read_copies(decoder, TEXTS, TIMES), strict=True):
        due_p, due_best = brute(decoder, before, one)
        assert p.shape == best.shape == (TIMES, len(one))
        assert (
            torch.allclose(p, torch.tensor(due_p, dtype=torch.float64), atol=1e-9)
            and best.tolist() == due_best
        )
        kinds |= {x for row in due_best for x in row}
    assert kinds == {True, False}, "the test needs tokens that are the likeliest, and others"


def test_the_three_figures_are_means_over_the_tokens_of_a_copy() -> None:
    p, best = [[0.1, 0.2, 0.3, 0.4], [0.2, 0.2, 0.1, 0.9]], [[True, False, False, False], [True] * 4]
    one = RepeatedSentence("a", "b", ["x", "y", "z", "u"], p, best)
    assert [one.tp(n) for n in (1, 2)] == pytest.approx([0.25, 0.35])
    assert [one.ip(n) for n in (1, 2)] == [0.0, 0.5], "what is equal is no increase"
    assert [one.wr(n) for n in (1, 2)] == [0.25, 1.0]
    other = RepeatedSentence("a", "c", ["x"], [[0.8], [0.9]], [[True], [False]])
    rows = copy_curve([one, other], 2)
    assert [x["n"] for x in rows] == [1, 2] and [x["tp"] for x in rows] == pytest.approx([0.525, 0.625])
    assert [x["ip"] for x in rows] == [0.0, 0.75] and [x["wr"] for x in rows] == [0.625, 0.5], (
        "sentences count alike"
    )


def test_by_their_first_copy_sentences_fall_into_three_parts() -> None:
    rows = [
        RepeatedSentence("", str(i), ["x"], [[i / 10], [1 - i / 10]], [[True], [True]])
        for i in (5, 1, 9, 3, 7, 2, 8)
    ]
    parts = first_copy_thirds(rows, 2)
    assert [x["sentences"] for x in parts] == [2, 2, 3]
    assert [x["first"] for x in parts] == pytest.approx([0.15, 0.4, 0.8])
    assert [x["last"] for x in parts] == pytest.approx([0.85, 0.6, 0.2])
    assert [x["sentences"] for x in first_copy_thirds(rows[:1], 2)] == [1], (
        "a part without a sentence is not there"
    )


def test_a_sentence_comes_behind_the_one_before_it_in_its_line() -> None:
    text = (
        'She set off at dawn. The road was long and wet. "Who goes there at night?" asked the old guard. No.\n'
        "Nothing came of it for weeks. The road was long and wet.\nOnly one sentence stands alone here.\n"
    )
    assert list(sentence_pairs(text)) == [
        ("She set off at dawn.", "The road was long and wet."),
        ("The road was long and wet.", '"Who goes there at night?" asked the old guard.'),
    ]
    pairs, about = read_pairs(TEXT)
    assert len(pairs) > 1500 and len({x for _, x in pairs}) == len(pairs) and about["file"] == "datastore.txt"
    some = spread_evenly(pairs, 20)
    assert len(some) == 20 and [pairs.index(x) for x in some] == sorted(pairs.index(x) for x in some)
    assert pairs.index(some[0]) < len(pairs) / 20 and pairs.index(some[-1]) > 19 * len(pairs) / 20
    assert spread_evenly(pairs[:3], 20) == pairs[:3]


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(
        LabBenchError, match="has no sentence of 4 to 30 words behind another one in its line"
    ):
        read_pairs(tmp_path / "list.txt")
    with pytest.raises(LabBenchError, match="cannot be read"):
        read_pairs(tmp_path / "none.txt")
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(LabBenchError, match="it is not UTF-8 text"):
        read_pairs(tmp_path / "odd.txt")
    with pytest.raises(LabBenchError, match="has no tokenizer"):
        repetition.RepetitionBench(toys.pair()[0])
    with pytest.raises(MethodError):
        repetition.RepetitionBench(toys.bidirectional_target())


def test_repeats_are_the_stretches_that_agree_with_an_earlier_place() -> None:
    """Compared with every pair of places: a stretch begins where an n-gram occurs again that is in no earlier stretch."""
    rng, looped = random.Random(5), 0
    for _ in range(300):
        text, n = [rng.randrange(3) for _ in range(rng.randrange(30))], rng.randint(1, 4)
        due, inside = [], 0
        for at in range(len(text) - n + 1):
            likes = [x for x in range(at) if text[x : x + n] == text[at : at + n]]
            if at < inside or not likes:
                continue
            lasts = next(
                (k for k in range(len(text) - at) if text[likes[-1] + k] != text[at + k]), len(text) - at
            )
            due.append((at, at - likes[-1], lasts, at + lasts == len(text)))
            inside = at + lasts - n + 1
        stretches = list(find_repeats(text, n))
        assert [(x.at, x.period, x.lasts, x.ending) for x in stretches] == due
        grams = [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]
        again = sum(gram in grams[:i] for i, gram in enumerate(grams))
        assert repeated_share(text, n) == pytest.approx(again / len(grams) if grams else 0.0)
        looped += sum(x.loop for x in stretches)
    assert looped > 100, "the test needs texts that go round"


def test_a_text_that_goes_round_is_a_loop_of_its_period() -> None:
    (only,) = find_repeats([9, 8, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3], 4)
    assert (only.at, only.period, only.lasts, only.loop, only.ending) == (7, 5, 8, True, True)
    (short,) = find_repeats([1, 2, 3, 4, 0, 0, 1, 2, 3, 4, 7], 4)
    assert (short.at, short.period, short.loop, short.ending) == (6, 6, False, False)
