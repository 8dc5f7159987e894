"""Planned: the search finds the best text from its candidates, reads no prefix twice, and keeps the largest reward."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import followed
import pytest
import torch
import toys
from followed import Searched

from decodescope.engine import MethodError, Session
from decodescope.engine.core.arithmetic import check_cases, evaluate_expression, parse_cases
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.lab.decision.explain import explain

PROMPT = [3, 1, 4, 1, 5]
TESTS = "a = 2, b = 3: 6\na = 1, b = 5: 5\na = 4, b = 4: 16\na = 2, b = 2: 5"  # no expression passes all four


class Symbols(toys.LetterTokenizer):
    """A tokenizer with the signs of expressions in a and b as ids; the last id ends a text."""

    signs = "ab0123+*-()/"

    def bytes_of(self, token: int) -> bytes:
        return b"<end>" if token == self.end else self.signs[token].encode()


SIGNS = Symbols()
END = Symbols.end
WARM = replace(toys.target(torch.float64, toys.LIVELY), tokenizer=SIGNS, stop_tokens=[END])


def planned(count: int = 4, prompt: list[int] = PROMPT, **knobs: Any) -> Session:
    """A finished run with a consistent trace."""
    made = toys.method(strategy=("planned", {"tests": TESTS, "top_k": 4, **knobs}))
    session = toys.decode(made, prompt, count, pair=(WARM, WARM))
    report = check(session.sink)
    assert report.ok and report.counts["rollouts"] == len(searched(session).texts), str(report)
    return session


def searched(session: Session) -> Searched:
    return followed.searched(session.sink)


@cache
def offers(text: tuple[int, ...], k: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The k likeliest tokens after a text, computed without a cache, and their probabilities, normalised to 1."""
    with torch.inference_mode():
        row = WARM.decoder.forward(Feed.causal_chain([*PROMPT, *text], 0), None)[0, -1]
    top = row.topk(k)
    return tuple(top.indices.tolist()), tuple(top.values.softmax(0).tolist())


def every(count: int, k: int, text: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """All texts that can be made of candidates."""
    for token in offers(text, k)[0]:
        longer = (*text, token)
        if token == END or len(longer) == count:
            yield longer
        else:
            yield from every(count, k, longer)


def reward(text: tuple[int, ...] | list[int]) -> float:
    results = check_cases("".join(SIGNS.signs[x] for x in text if x != END), parse_cases(TESTS))
    return sum(results) / len(results)


def test_it_finds_the_best_of_all_texts_that_its_candidates_make_and_each_of_them() -> None:
    session = planned(rollouts=1024)
    search, texts = searched(session), [*every(4, 4)]
    assert search.why == "exhausted" and {tuple(x.tokens) for x in search.texts} == set(texts)
    best = max(map(reward, texts))
    assert 0 < best < 1 and max(x.reward for x in search.texts) == reward(session.end.tokens) == best
    assert reward(next(iter(texts))) < best, "the test needs a greedy text that is not the best"
    beginnings = {text[:n] for text in texts for n in range(1, len(text) + 1)}
    assert len(search.tokens) == 1 + len(beginnings) == 1 + len(search.texts)
    ended = {"stop_token"} if any(END in x for x in texts) else set()
    assert {x for x in search.outcomes if x != "open"} == {"max_new_tokens", "exhausted"} | ended


def test_no_beginning_is_read_twice() -> None:
    for rollouts in (1, 5, 40):
        session = planned(9, rollouts=rollouts, top_k=3)
        search, (step,) = searched(session), session.sink.steps
        read = {tuple(x.tokens[:n]) for x in search.texts for n in range(len(x.tokens))}
        assert [one.tokens for one in step.passes] == [1] * len(read), (
            "a pass of one row each, the prompt's end one of them"
        )
        assert sum(x.read for x in search.texts) == len(read) - 1
    assert len(read) < 1 + 40 * 9 / 2, "the test needs texts that have beginnings in common"


def test_one_rollout_is_greedy_decoding_and_so_is_a_run_without_tests() -> None:
    for prompt in [PROMPT, *toys.prompts(3, seed=4)]:
        due = toys.decode(toys.method(), prompt, 12, pair=(WARM, WARM))
        for knobs in (dict(rollouts=1), dict(tests="")):
            session = planned(12, prompt, **knobs)
            assert session.end.tokens == due.end.tokens and session.end.reason == due.end.reason
            assert toys.matches_fresh_reading(session.target) and len(session.sink.steps[0].passes) == len(
                due.end.tokens
            )


@pytest.mark.parametrize(("c", "base"), [(4.0, 10.0), (0.0, 1.0), (20.0, 0.5)])
def test_each_rollout_goes_where_p_ucb_says_by_the_rollouts_before_it(c: float, base: float) -> None:
    search = searched(planned(rollouts=90, ucb_constant=c, ucb_base=base))
    texts: list[tuple[tuple[int, ...], float]] = []
    full: set[tuple[int, ...]] = set()
    for number, rollout in enumerate(search.texts, 1):
        text: tuple[int, ...] = ()
        while True:
            behind = [r for path, r in texts if path[: len(text)] == text]
            n, best = len(behind) + (not text), (-math.inf, -1)
            for token, prior in zip(*offers(text, 4), strict=True):
                rewards = [r for path, r in texts if path[: len(text) + 1] == (*text, token)]
                beta = math.log((n + base + 1) / base) + c
                score = max(rewards, default=0) + beta * prior * math.sqrt(math.log(n)) / (1 + len(rewards))
                if (*text, token) not in full and score > best[0]:
                    best = score, token
            text = (*text, best[1])
            if not any(path[: len(text)] == text for path, _ in texts):
                break
        assert tuple(search.path(number)) == text
        texts.append((text, rollout.reward))
        if rollout.tokens == [*text]:
            full.add(text)
        while text and all((*text[:-1], x) in full for x in offers(text[:-1], 4)[0]):
            text = text[:-1]
            full.add(text)
    assert len(full) > 3 and len({r for _, r in texts}) > 1, (
        "the test needs closed nodes and rewards that differ"
    )


def test_a_value_is_the_largest_reward_below_and_visits_are_the_rollouts_below() -> None:
    search = searched(planned(rollouts=200))
    for node in range(len(search.tokens)):
        path = search.path(node)
        below = [x.reward for x in search.texts if search.path(x.node)[: len(path)] == path]
        assert search.values[node] == max(below) and search.visits[node] == len(below) + (node == 0)
    assert len({*search.values}) > 1, "the test needs rewards that differ"


def test_it_stops_at_a_text_that_passes_all() -> None:
    texts = [*every(4, 4)]
    due = next(
        x
        for x in reversed(texts)
        if (v := evaluate_expression("".join(SIGNS.signs[t] for t in x if t != END))) is not None and v
    )
    value = evaluate_expression("".join(SIGNS.signs[t] for t in due if t != END))
    search = searched(session := planned(tests=str(value), rollouts=1024))
    rewards = [x.reward for x in search.texts]
    assert search.why == "solved" and rewards[-1] == 1 and set(rewards[:-1]) <= {0}
    assert session.end.tokens == search.texts[-1].tokens


def column(name: str, at: int, value: Any) -> Callable[[Any], None]:
    """A change of one entry of a column."""
    return lambda detail: detail.columns[name].__setitem__(at, value)


LIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a test": ("judged_texts", column("passed", 0, [1, 1, 1, 1])),
    "a reward": ("judged_texts", column("reward", 0, 0.75)),
    "a value": ("beginnings", column("value", 0, 0.75)),
    "visits": ("beginnings", column("visits", 0, 3)),
    "the best": ("judged_texts", lambda x: x.values.update(best=x.values["best"] % 200 + 1)),
    "its reward": ("judged_texts", lambda x: x.values.update(most=1.0)),
    "what was read": ("judged_texts", lambda x: x.values.update(total=0)),
    "how many tests": ("judged_texts", lambda x: x.values.update(cases=3)),
    "why it ended": ("judged_texts", lambda x: x.values.update(why="exhausted")),
    "where a text was begun": ("judged_texts", column("begun", 0, 2)),
    "what became of a text": ("judged_texts", column("outcome", 0, "written")),
    "the order of candidates": ("beginnings", lambda x: x.columns["priors"][0].reverse()),
    "a closed node": ("beginnings", column("outcome", 0, "exhausted")),
    "a token": ("beginnings", lambda x: x.columns["token"].__setitem__(1, x.columns["offers"][0][1])),
    "no token": ("beginnings", column("token", 2, None)),
    "a parent": ("beginnings", lambda x: x.parents.__setitem__(5, 0)),
    "no candidates": (
        "beginnings",
        lambda x: [x.columns[name].__setitem__(0, []) for name in ("offers", "priors")],
    ),
    "a text": ("judged_texts", column("text", 3, [0, 0, 0, 0])),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_record_of_another_search_is_found_out(lie: str) -> None:
    name, tell = LIES[lie]
    trace = copy.deepcopy(longest().sink)
    assert check(trace).ok
    tell(trace.steps[0].detail(name))
    assert any("sha256" not in x and "content_hash" not in x for x in check(trace).problems), check(trace)


@cache
def longest() -> Session:
    return planned(rollouts=200)


@pytest.mark.parametrize(
    "knob",
    [
        dict(ucb_constant=0.0),
        dict(rollouts=5),
        dict(tests="a = 1: 1"),
        dict(ucb_constant="none"),
        dict(ucb_base=0),
    ],
)
def test_a_search_of_other_knobs_is_found_out(knob: dict[str, Any]) -> None:
    trace = copy.deepcopy(longest().sink)
    trace.header.method["strategy"] |= knob
    assert any("sha256" not in x and "content_hash" not in x for x in check(trace).problems), check(trace)
    other = copy.deepcopy(longest().sink)
    other.steps[0].emitted[-1] = 0 if other.steps[0].emitted[-1] else 1
    assert any("and its best text is" in x for x in check(other).problems)


def test_it_is_told() -> None:
    trace = planned(6, rollouts=12, top_k=3).sink
    told = explain(trace, 0)
    assert told.agrees and "written" in str(told) and "tokens were read" in str(told)


def test_expressions_have_values_by_names_and_tests_are_read_line_by_line() -> None:
    two, three = Fraction(2), Fraction(3)
    names = {"a": two, "b": three, "ab": Fraction(7)}
    for text, due in (
        ("a * b + 1", 7),
        ("ab - a", 5),
        ("x = a ** b", 8),
        ("(a + b) / 2", Fraction(5, 2)),
        ("b // a.", 1),
    ):
        assert evaluate_expression(text, names) == due
    for text in ("c", "ba", "2a", "a(b)", "a if b else a", "__import__('os')", "a.real", "1or 2", "a b", ""):
        assert evaluate_expression(text, names) is None
    assert evaluate_expression("a") is None and evaluate_expression("2 * 3") == 6
    cases = parse_cases("6\n\n a = 2, b=3 : 2 * 3\n")
    assert [(dict(x.names), x.due) for x in cases] == [({}, 6), ({"a": two, "b": three}, 6)]
    assert check_cases("a * b", cases) == [False, True] and check_cases("6", cases) == [True, True]
    wrong = (
        ("a: 3", "'a' gives no name a number"),
        ("x", "'x' is no number"),
        ("a = b: 1", "'a = b' gives no name"),
    )
    for line, why in wrong:
        with pytest.raises(ValueError, match=why):
            parse_cases(line)
    with pytest.raises(
        MethodError, match=r"^planned.tests: 'twelve' is no number or arithmetic. Write a value a line"
    ):
        planned(tests="twelve")
