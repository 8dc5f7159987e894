"""Prompt compression takes or leaves whole characters, in all scripts, and keeps the question."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import pytest
import regex

from decodescope.engine import Method, load, run
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.prompt_compression import UnreadPrompt
from decodescope.engine.methods.prompt_compression.shared.units import PromptText
from decodescope.engine.session.load import Model
from decodescope.engine.trace import check
from decodescope.engine.trace.records.prompt_cut import LEFT, NEAR, SCORE, STAYS, Cut, reasons_under_budget

TEXTS = {  # what is told, several times, and the question
    "Chinese": ("从前有一个小女孩。她住在河边，她有一只狗。", "狗叫什么名字？"),  # noqa: RUF001
    "Japanese": ("むかしむかし、おじいさんがいました。川のそばに住んでいました。", "犬の名前は何ですか？"),  # noqa: RUF001
    "Hindi": ("एक समय की बात है। वह नदी के किनारे रहती थी।", "कुत्ते का नाम क्या है?"),
    "Arabic": ("كان هناك فتاة صغيرة. كانت تعيش قرب النهر، ولديها كلب.", " ما اسم الكلب؟"),
    "emoji": (
        "She had a dog 🐕‍🦺 and a family 👨‍👩‍👧‍👦. She lived by the river 🏞️. ",
        "What is the name of the dog 🐕?",
    ),
    "accents": (
        "E\u0301tait une fois une petite fille a\u0300 la rivie\u0300re. Elle avait un chien. ",
        "Quel est son nom?",
    ),
}
COMPRESSIONS: list[tuple[str, dict[str, Any]]] = [
    ("llmlingua", {"keep_rate": 0.3, "segment": 20}),
    *(("selective_context", {"reduce_ratio": 0.6, "unit": unit}) for unit in ("phrase", "sentence", "token")),
    ("specpc", {"prompt_budget": 60, "window": 4, "neighbours": 3, "lookahead": 2}),
    ("gemfilter", {"prompt_budget": 40}),
]


EMOJI = ("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea")  # a family, a flag


def no_lane(role: str, needs: Needs) -> NoReturn:
    raise AssertionError("nothing is scored here")


def no_wait(role: str) -> NoReturn:
    raise AssertionError("nothing is scored here")


@cache
def models() -> tuple[Model, Model]:
    return load("lab", "float32", "cpu"), load("lab-draft", "float32", "cpu")


def prompt_of(script: str) -> tuple[str, str]:
    said, question = TEXTS[script]
    return said * 4 + question, question.strip()


@pytest.mark.parametrize("script", TEXTS)
@pytest.mark.parametrize(("name", "settings"), COMPRESSIONS)
def test_no_character_is_cut_in_two(name: str, settings: dict[str, Any], script: str) -> None:
    model, draft = models()
    assert model.tokenizer is not None
    text, question = prompt_of(script)
    method = Method.of(
        {"prompt_compression": name, **{f"prompt_compression.{k}": x for k, x in settings.items()}}
    )
    drafts = {"draft": draft} if "draft" in method.lanes else {}
    ran = run(model, method, text, models=drafts, max_new_tokens=2, ignore_eos=True)
    kept = model.tokenizer.decode(ran.session.tokens[: ran.session.prompt])
    assert check(ran.trace).ok and len(kept) < len(text)
    assert "\ufffd" not in kept
    whole = regex.findall(r"\X", text)
    assert set(regex.findall(r"\X", kept)) <= set(whole), "a letter without its accent, or a part of an emoji"
    if name in ("llmlingua", "selective_context"):
        assert kept.endswith(question)


@pytest.mark.parametrize("unit", ["token", "phrase", "sentence", "paragraph"])
def test_units_begin_where_characters_begin(unit: str) -> None:
    """In random texts of several scripts with a mark in the middle: the units are the text, cut between characters."""
    model, _ = models()
    assert model.tokenizer is not None
    dice = random.Random(5)
    letters = [
        *"ab .,\n",
        *"\u72d7\u3002\uff0c\uff1f",
        "\u0e01\u0e33",
        "e\u0301",
        *EMOJI,
        "\u0928\u0964",
        "\r\n",
    ]
    mark = min(model.tokenizer.marks)
    for _ in range(20):
        texts = ["".join(dice.choices(letters, k=20)) for _ in range(2)]
        begin, end = map(model.tokenizer.encode_plain, texts)
        tokens = [*begin, mark, *end]
        reading = UnreadPrompt(
            tokens, no_lane, no_wait, model.decoder, piece=model.tokenizer.piece, marks=frozenset([mark])
        )
        starts = PromptText(reading).unit_starts(unit)
        parts = [
            b"".join(model.tokenizer.bytes_of(x) for x in tokens[a:b] if x != mark).decode()
            for a, b in pairwise([*starts, len(tokens)])
        ]
        assert [x for part in parts for x in regex.findall(r"\X", part)] == [
            x for text in texts for x in regex.findall(r"\X", text)
        ]
        assert {len(begin), len(begin) + 1} <= {*starts}


def test_neighbours_of_a_character_are_characters() -> None:
    """Units of 1, 2, 3 and 1 tokens, the third worth most: with 3 units around it, the two at its sides come as wholes."""
    cut = Cut(
        np.zeros(0, np.int32),
        scores=np.zeros(7, np.float32),
        reason=np.array([LEFT] * 6 + [STAYS], np.uint8),
        units=np.array([0, 1, 3, 6], np.int32),
        worth=np.array([0.1, 0.2, 0.9, 0.0], np.float32),
        near=3,
    )
    assert reasons_under_budget(cut, 5).tolist() == [LEFT, NEAR, NEAR, SCORE, SCORE, SCORE, STAYS]
    assert reasons_under_budget(cut, 2).tolist() == [LEFT, LEFT, LEFT, SCORE, SCORE, SCORE, STAYS]
