"""Trees of a trace, as tests read them: the texts that a step followed, and a search with its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from decodescope.engine.trace import Header, Step, Trace
from decodescope.engine.trace.detail_checks.tree_search import SearchReplay, replay_rounds
from decodescope.engine.trace.detail_checks.trees import declared_trees, tree_reading
from decodescope.engine.trace.details.shapes import TreeDetail


@dataclass
class Followed:
    """The texts of a step that go on, that ended, and that were left.

    The texts that ended are (parent, token, score, group) each, the texts that were left are (parent, token, score).
    """

    detail: TreeDetail
    tokens: list[int]
    parents: list[int]
    scores: list[float]
    groups: list[int] | None
    fines: list[float] | None
    ended: list[tuple[int, int, float, int | None]]
    left: list[tuple[int, int, float]]


def followed(step: Step) -> Followed:
    """Read the first tree of a step that grows over steps."""
    detail = next(x for x in step.details or () if isinstance(x, TreeDetail) and x.earlier)
    columns = detail.columns
    own = {word: [k for k, x in enumerate(columns["outcome"]) if x == word] for word in columns["outcome"]}
    kept = own.get("kept", [])

    def pick(name: str, nodes: list[int]) -> list[Any]:
        return [columns[name][k] for k in nodes]

    def rows(nodes: list[int]) -> list[tuple[int, int, float]]:
        return [(detail.parents[k], columns["token"][k], columns["score"][k]) for k in nodes]

    groups = columns.get("group")
    ended = own.get("ended", [])
    return Followed(
        detail,
        pick("token", kept),
        [detail.parents[k] for k in kept],
        pick("score", kept),
        None if groups is None else pick("group", kept),
        pick("fine", kept) if "fine" in columns else None,
        [(*row, None if groups is None else groups[k]) for k, row in zip(ended, rows(ended), strict=True)],
        rows(own.get("left", [])),
    )


def texts_of(steps: list[Step]) -> list[list[list[int]]]:
    """For each step, the tokens of the texts that go on, from the record alone."""
    texts: list[list[list[int]]] = []
    before: list[list[int]] | None = None
    for step in steps:
        own = followed(step)
        now = [
            [*(before[parent] if before is not None else []), token]
            for parent, token in zip(own.parents, own.tokens, strict=True)
        ]
        texts.append(now)
        before = now
    return texts


def endings(steps: list[Step]) -> list[tuple[int, list[int], float]]:
    """The texts that ended: step, tokens and score."""
    texts = texts_of(steps)
    return [
        (i, [*(texts[i - 1][parent] if i else []), token], score)
        for i, step in enumerate(steps)
        for parent, token, score, _ in followed(step).ended
    ]


@dataclass
class Judged:
    """A text that was completed and judged after a node."""

    node: int
    tokens: list[int]
    passed: list[bool]
    read: int
    reward: float


@dataclass
class Searched:
    """A search: for each node its token, parent, outcome, candidates, their numbers, visits and value.

    Also its texts, which of them was written (from 0), and why the search ended.
    """

    tokens: list[int | None]
    parents: list[int]
    outcomes: list[str]
    offers: list[list[int]]
    priors: list[list[float]]
    visits: list[int]
    values: list[float]
    texts: list[Judged]
    best: int
    why: str
    header: Header
    step: Step

    def path(self, node: int) -> list[int]:
        """The tokens from the first node to this one."""
        tokens: list[int] = []
        while (token := self.tokens[node]) is not None:
            tokens.append(token)
            node = self.parents[node]
        return tokens[::-1]

    def behind(self, upto: int) -> tuple[SearchReplay, list[float]]:
        """Return the tree after `upto` texts, and the scores that chose the last one."""
        detail, form = declared_trees(self.header, self.step)[0]
        scores: list[float] = []
        for count, (again, due) in enumerate(
            replay_rounds(tree_reading(self.header, self.step, detail, form), upto)
        ):
            if count == upto:
                return again, scores
            scores = due
        raise AssertionError("the tree has fewer texts")


def searched(trace: Trace) -> Searched:
    """Read the search of a run of one step."""
    (step,) = trace.steps
    tree, judged = step.detail("beginnings"), step.detail("judged_texts")
    columns, rows = tree.columns, judged.columns
    texts = zip(rows["text"], rows["passed"], rows["read"], rows["reward"], strict=True)
    return Searched(
        columns["token"],
        tree.parents,
        columns["outcome"],
        columns["offers"],
        columns["priors"],
        columns["visits"],
        columns["value"],
        [Judged(k, *one) for k, one in enumerate(texts, 1)],
        judged.values["best"] - 1,
        judged.values["why"],
        trace.header,
        step,
    )
