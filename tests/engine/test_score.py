"""Scorers: what each calls right, compared with brute force where possible, and that no text stops them."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.engine.bench.questions import score as scorers
from decodescope.engine.bench.questions.score import SCORERS, levenshtein, score
from decodescope.engine.core.arithmetic import evaluate_expression

CASES = [
    ("exact", "the  red\n lamp.", "the red lamp", 1.0),
    ("exact", "The red lamp", "the red lamp", 0.0),
    ("exact", "", "", 1.0),
    ("span_f1", "In the garden!", "the garden", 2 / 3),
    ("span_f1", "A garden", "the Garden.", 1.0),
    ("span_f1", "red red red", "red", 0.5),
    ("span_f1", "", "garden", 0.0),
    ("span_f1", "the", "a", 1.0),
    ("edit_distance", "kitten", "sitting", 1 - 3 / 7),
    ("edit_distance", " abc\n", "abc", 1.0),
    ("edit_distance", "", "", 1.0),
    ("edit_distance", "", "abcd", 0.0),
    ("list", "[3, 1, 2]", "3, 1, 2", 1.0),
    ("list", "- red\n- dark blue\n", "red, dark  blue", 1.0),
    ("list", "1. red\n2. blue", "red; blue.", 1.0),
    ("list", "red blue green", "red, blue, green", 1.0),
    ("list", '["red", "blue"]', "red, blue", 1.0),
    ("list", "blue, red", "red, blue", 0.0),
    ("list", "red, blue, blue", "red, blue", 0.0),
    ("list", "1 2 3", "1, 2, 3", 1.0),
    ("shuffled", "blue, red, blue", "red, blue, blue", 1.0),
    ("shuffled", "[red, blue, blue]", "red, blue, blue", 0.0),
    ("shuffled", "blue, red", "red, blue, blue", 0.0),
    ("json", '{"a": 1, "b": [true]}', '{"b": [true], "a": 1.0}', 1.0),
    ("json", '{"a": 1, "b": 2}', '{"a": 1, "b": 3}', 0.5),
    ("json", '```json\n{"a": 1}\n```', '{"a": 1}', 1.0),
    ("json", "{'a': 1}", '{"a": 1}', 0.0),
    ("json", '{"a": NaN}', '{"a": 1}', 0.0),
    ("json", '{"a": 1}', '{"a": "1"}', 0.0),
    ("json", "[1]", "[true]", 0.0),
    ("json", "null", "null", 1.0),
    ("json", "[[], {}]", "[{}, []]", 0.0),
    ("json", "anything", "", 0.0),
    ("json", "[7]", "", 1.0),
    ("expression", "(2 + 3) * 4", "20", 1.0),
    ("expression", "6 × 7 = 42.", "40 + 2", 1.0),
    ("expression", "1/3 + 1/6", "0.5", 1.0),
    ("expression", "0.1 + 0.2", "0.3", 1.0),
    ("expression", "7 // 2 + 7 % 2", "4", 1.0),
    ("expression", "−3 ** 2", "-9", 1.0),
    ("expression", "1 / 0", "1", 0.0),
    ("expression", "__import__('os')", "0", 0.0),
    ("expression", "twelve", "twelve", 0.0),
    ("number", "12 + 30 = 42.", "42", 1.0),
    ("number", "He pays $1,234.50 in all", "#### 1234.5", 1.0),
    ("number", "it is -7", "−7", 1.0),
    ("number", "9 - 7", "7", 1.0),
    ("number", "no number", "7", 0.0),
    ("number", "7", "no number", 0.0),
    ("number", "route66", "66", 0.0),
    ("number", "1, 2, 3", "3", 1.0),
]


@pytest.mark.parametrize(("scorer", "said", "reference", "due"), CASES)
def test_score(scorer: str, said: str, reference: str, due: float) -> None:
    assert score(scorer, said, reference) == pytest.approx(due)


def test_an_unknown_scorer_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no scorer is called 'bleu'; there are exact, span_f1"):
        score("bleu", "a", "a")


def by_table(a: str, b: str) -> int:
    """Compute it with the textbook's table."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    return row[-1]


@given(st.text("abc", max_size=90), st.text("abc", max_size=90))
@settings(deadline=None, max_examples=300)
def test_distance_is_the_table_s(a: str, b: str) -> None:
    assert levenshtein(a, b) == by_table(a, b)


def test_what_is_behind_the_limit_of_a_comparison_counts_as_wrong() -> None:
    short, most = "a" * 10, scorers.CHARS
    assert score("edit_distance", "a" * (most + 500), "a" * most) == pytest.approx(1 - 500 / (most + 500))
    assert score("edit_distance", "a" * (most * 3), short) == pytest.approx(10 / (most * 3))


HOSTILE = [
    "((((((((((" * 500,
    "[" * 100_000,
    '{"a":' * 50_000,
    "9" * 100_000,
    "9**9**9**9**9",
    "(9**999)" + "*(9**999)" * 20,
    "1" + "+1" * 150,
    "-" * 390 + "1",
    "2**-1" * 3,
    "1e999999",
    "1//0",
    "0**-1",
    "," * 50_000,
    "1," * 50_000,
    "1,234" * 20_000,
    "- " * 50_000,
    "`" * 50_000,
    "```json\n" * 10_000,
    "\ud800\udfff\0",
    "a'" * 50_000,
    "= " * 50_000,
    " " * 200_000,
    "\u0661\u0662",
    "١٢ + ٣",
]


@pytest.mark.parametrize("scorer", SCORERS)
def test_no_text_stops_a_scorer(scorer: str) -> None:
    for said in HOSTILE:
        for reference in ("7", '{"a": [1, 2]}', "a short answer", said[:3000]):
            began = time.perf_counter()
            assert 0 <= score(scorer, said, reference) <= 1
            assert time.perf_counter() - began < 2, (said[:20], reference[:20])


@given(st.text(max_size=80), st.text(max_size=80), st.sampled_from(list(SCORERS)))
@settings(deadline=None, max_examples=300)
def test_any_text_has_a_score(said: str, reference: str, scorer: str) -> None:
    assert 0 <= score(scorer, said, reference) <= 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=4)
    )
)
@settings(deadline=None)
def test_a_json_text_is_right_against_itself(value: object) -> None:
    assert score("json", json.dumps(value), json.dumps(value, indent=2)) == 1


def test_a_value_is_exact_and_bounded() -> None:
    assert evaluate_expression("1 / 3 * 3") == 1
    assert evaluate_expression("2 ** 1000") == 2**1000
    assert evaluate_expression("2 ** 5000") is None and evaluate_expression("2 ** 0.5") is None
