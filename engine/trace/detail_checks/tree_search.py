"""Tree searches: a tree of beginnings of texts made again, round by round, from candidates and rewards, and its texts judged
again by their tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from decodescope.engine.core.arithmetic import check_cases, parse_cases

from ..details.declarations import Growth
from ..details.shapes import TallyDetail
from ..details.tree import TreeReading
from ..values.formula import evaluate_formula, formula

# the score of a candidate from its prior, its value and visits, and the visits of its node
Score = Callable[[float, float, int, int], float]
SYMBOLS = "0123456789+*="  # of the first ids of a model without a tokenizer


class SearchReplay:
    """A growing tree of text beginnings, a node a round: which node is looked at next, and what becomes of its number.

    Node 0 is the beginning of all texts; the others are in the order of their creation.

    candidates, priors: of each node the tokens that may follow it, and a number of each
    closed: for each node, True if the search after it has ended
    """

    def __init__(self, score: Score, candidates: Sequence[int], priors: Sequence[float]):
        self._score = score
        self.candidates = [list(candidates)]
        self.priors = [list(priors)]
        self.tokens: list[int | None] = [None]
        self.parents = [-1]
        self.closed = [not candidates]
        self.visits = [1]
        self.values = [0.0]
        self.kids: list[dict[int, int]] = [{}]

    def scores(self, node: int) -> list[float]:
        """Of each candidate of a node, by which one is chosen; minus infinity where it is closed."""
        rows = []
        for token, prior in zip(self.candidates[node], self.priors[node], strict=True):
            child = self.kids[node].get(token)
            value, seen = (0.0, 0) if child is None else (self.values[child], self.visits[child])
            shut = child is not None and self.closed[child]
            rows.append(-math.inf if shut else self._score(prior, value, seen, self.visits[node]))
        return rows

    def select(self) -> tuple[int, int]:
        """The node after which the next one is born, and its token; -1 where it has no candidates."""
        node = 0
        while True:
            scores = self.scores(node)
            if not scores:
                return node, -1
            token = self.candidates[node][scores.index(max(scores))]
            if token not in self.kids[node]:
                return node, token
            node = self.kids[node][token]

    def add_node(self, parent: int, token: int, candidates: Sequence[int], priors: Sequence[float]) -> int:
        """A new node, which is closed where it has no candidates."""
        node = len(self.tokens)
        self.kids[parent][token] = node
        self.kids.append({})
        self.tokens.append(token)
        self.parents.append(parent)
        self.candidates.append(list(candidates))
        self.priors.append(list(priors))
        self.closed.append(not candidates)
        self.visits.append(0)
        self.values.append(0.0)
        return node

    def reward(self, node: int, reward: float) -> None:
        """Give a node and all before it the reward of its text: the largest counts. Exhausted nodes are closed."""
        at = node
        while at >= 0:
            self.visits[at] += 1
            self.values[at] = max(self.values[at], reward)
            kids = self.kids[at]
            if not self.closed[at] and all(x in kids and self.closed[kids[x]] for x in self.candidates[at]):
                self.closed[at] = True
            at = self.parents[at]

    def path(self, node: int) -> list[int]:
        """The tokens from the first node to this one."""
        tokens: list[int] = []
        while (token := self.tokens[node]) is not None:
            tokens.append(token)
            node = self.parents[node]
        return tokens[::-1]


def end_reason(rewards: Sequence[float], exhausted: bool, most: int) -> str | None:
    """Why a search ends after texts with these rewards: the last passed all, nothing is left to try, or there are `most`. None:
    it goes on."""
    if rewards and rewards[-1] == 1:
        return "solved"
    if exhausted:
        return "exhausted"
    return "rollouts" if len(rewards) >= most else None


def score_function(growth: Growth, knobs: Mapping[str, Any]) -> Score:
    """The score that a declaration gives."""
    parts = formula(growth.score)

    def score(p: float, q: float, n: int, parent: int) -> float:
        own: dict[str, Any] = {**knobs, "p": p, "q": q, "n": n, "N": parent}
        number = evaluate_formula(
            parts, lambda name: x if isinstance(x := own.get(name), int | float) else None
        )
        return -math.inf if number is None else number

    return score


def replay_rounds(
    reading: TreeReading, upto: int | None = None
) -> Iterator[tuple[SearchReplay, list[float]]]:
    """The tree as it was before each of its rounds, up to `upto` of them, with the scores of the candidates after the new
    node's parent; and last as it is after all rounds, without scores. Rounds are taken as they were recorded."""
    growth, detail = reading.form.growth, reading.detail
    assert growth is not None
    candidates, priors = detail.columns[growth.candidates], detail.columns[growth.priors]
    again = SearchReplay(score_function(growth, reading.knobs), candidates[0], priors[0])
    rounds = len(reading) - 1 if upto is None else upto
    for node in range(1, rounds + 1):
        parent, token = detail.parents[node], reading.token(node)
        assert token is not None
        yield again, again.scores(parent)
        again.add_node(parent, token, candidates[node], priors[node])
        again.reward(node, reading.number(node) or 0.0)
    yield again, []


def search_problems(
    reading: TreeReading,
    judged: TallyDetail,
    emitted: Sequence[int],
    stops: Sequence[int],
    text: Callable[[list[int]], str] | None,
    shown: bool,
) -> Iterator[str]:
    """Problems of a search that emitted these tokens, a phrase each. The search is repeated from its candidates and rewards.
    judged: its texts, a row each;  stops: ids that end texts;  text: of ids;  shown: True if the text is known"""
    growth, knobs = reading.form.growth, reading.knobs
    most = knobs.get("rollouts")
    if growth is None or not isinstance(most, int | float) or not len(judged):
        yield "its strategy does not say how a search goes, or there was none"
        return
    if (wrong := [*_candidate_problems(reading, growth)]) or (wrong := [*_text_problems(judged)]):
        yield from wrong
        return
    rewards = judged.columns["reward"]
    most = int(most) if str(knobs.get("tests", "")).strip() else 1
    yield from _growth_problems(reading, growth, judged, most)
    yield from _sum_problems(judged)
    due = rewards.index(max(rewards))
    if (best := judged.values.get("best")) != due + 1:
        yield f"it wrote the text of rollout {best}, and that of {due + 1} is the best"
    texts = judged.columns["text"]
    if list(emitted) != texts[due] and best == due + 1:
        yield f"it emitted {list(emitted)}, and its best text is {texts[due]}"
    if shown:
        yield from _judged_problems(judged, str(knobs.get("tests", "")), stops, text)


def _candidate_problems(reading: TreeReading, growth: Growth) -> Iterator[str]:
    """Nodes with candidates that contradict their outcome, or that are not sorted with the likeliest first."""
    columns = reading.detail.columns
    words = zip(columns["outcome"], reading.outcomes, strict=True)
    rows = zip(words, columns[growth.candidates], columns[growth.priors], strict=True)
    for node, ((word, outcome), candidates, priors) in enumerate(rows):
        if bool(candidates) != (outcome.fate == "open" or word == growth.closed):
            yield f"node {node} has {len(candidates)} candidates, and it is {word}"
            return
        if node and reading.token(node) is None:
            yield f"node {node} has no token"
            return
        if candidates and (
            priors != sorted(priors, reverse=True)
            or not all(0 <= p <= 1 + 1e-9 for p in priors)
            or not math.isclose(sum(priors), 1, abs_tol=1e-6)
        ):
            yield f"the candidates of node {node} are not ordered with the likeliest first, or do not sum to 1"


def _text_problems(judged: TallyDetail) -> Iterator[str]:
    """Rows without a text, its tests and a reward that follows from them."""
    kinds = {"text": list, "passed": list, "reward": int | float, "begun": int | float, "read": int | float}
    if any(not isinstance(x, kind) for name, kind in kinds.items() for x in judged.columns.get(name, [None])):
        yield "it has a text without its tokens, tests, reward or what was read"
        return
    cases = judged.values.get("cases")
    rows = zip(judged.columns["passed"], judged.columns["reward"], strict=True)
    for number, (results, reward) in enumerate(rows, 1):
        if any(x not in (0, 1) for x in results) or len(results) != cases:
            yield f"rollout {number} has {len(results)} tests, passed or not, where {cases} are due"
        elif reward != (due := sum(results) / len(results) if results else 0.0):
            yield f"the reward of rollout {number} is {reward:.6g}, and its tests give {due:.6g}"


def _sum_problems(judged: TallyDetail) -> Iterator[str]:
    """Numbers of all texts that are not those of the rows."""
    for name, due in (("most", max(judged.columns["reward"])), ("total", sum(judged.columns["read"]))):
        if (held := judged.values.get(name)) != due:
            yield f"{name} of its texts is {held!r}, and their rows give {due!r}"


def _growth_problems(reading: TreeReading, growth: Growth, judged: TallyDetail, most: int) -> Iterator[str]:
    """Rounds that do not follow from the scores, and wrong final values of the nodes."""
    rewards, texts = judged.columns["reward"], judged.columns["text"]
    states = replay_rounds(reading)
    for number in range(1, len(judged) + 1):
        again, _ = next(states)
        if (why := end_reason(rewards[: number - 1], again.closed[0], most)) is not None:
            yield f"it went on with rollout {number}, and was over before: {why}"
            return
        parent, token = again.select()
        there = reading.detail.parents[number]
        if (parent, token) != (there, reading.token(number)):
            yield f"rollout {number} looked behind node {there}, and node {parent} with {token} was due"
            return
        path, text = [*again.path(parent), token], texts[number - 1]
        ends = not reading.detail.columns[growth.candidates][number]
        begun = judged.columns["begun"][number - 1]
        if begun != len(path) or text[: len(path)] != path or (ends and len(path) != len(text)):
            yield f"the text of rollout {number} does not begin as its node does"
    again, _ = next(states)
    yield from _end_problems(reading, growth, again)
    if (ended := judged.values.get("why")) != (over := end_reason(rewards, again.closed[0], most)):
        yield f"it ended with {ended!r}, and by its rollouts that is {over!r}"


def _end_problems(reading: TreeReading, growth: Growth, again: SearchReplay) -> Iterator[str]:
    """Final values of the nodes that do not follow."""
    columns = reading.detail.columns
    counted: dict[str, list[Any]] = {
        growth.visits: again.visits,
        growth.values: again.values,
        "outcome": node_outcomes(reading, again),
    }
    for name, due in counted.items():
        if (held := columns[name]) != due:
            at = next(i for i, (a, b) in enumerate(zip(held, due, strict=True)) if a != b)
            yield f"{name} of node {at} is {held[at]!r}, and its rollouts give {due[at]!r}"


def node_outcomes(reading: TreeReading, again: SearchReplay) -> list[str]:
    """The outcome of each node of the current tree: what ends a text, or whether its candidates are all closed."""
    growth = reading.form.growth
    assert growth is not None
    going = next((word for word, x in reading.form.outcomes.items() if x.fate == "open"), "")
    held = reading.detail.columns["outcome"]
    outcomes = []
    for some, shut, outcome in zip(again.candidates, again.closed, held, strict=False):
        if some:
            outcome = growth.closed if shut else going
        outcomes.append(outcome)
    return outcomes


def judged_text(tokens: Sequence[int], stops: Sequence[int], text: Callable[[list[int]], str] | None) -> str:
    """The part of a text that is judged: without the token that ends it; text: of ids, None: there is no tokenizer."""
    body = [*tokens[:-1]] if tokens and tokens[-1] in stops else [*tokens]
    return text(body) if text is not None else "".join(SYMBOLS[x] if x < len(SYMBOLS) else " " for x in body)


def _judged_problems(
    judged: TallyDetail, tests: str, stops: Sequence[int], text: Callable[[list[int]], str] | None
) -> Iterator[str]:
    """Which texts have other results than their tests give."""
    try:
        cases = parse_cases(tests)
    except ValueError as error:
        yield f"its tests cannot be read: {str(error).rstrip('.')}"
        return
    rows = zip(judged.columns["text"], judged.columns["passed"], strict=True)
    for number, (tokens, results) in enumerate(rows, 1):
        if [bool(x) for x in results] != (due := check_cases(judged_text(tokens, stops, text), cases)):
            yield f"the text of rollout {number} passes {sum(results)} of {len(due)} tests, and {sum(due)} are right"
