"""Trees in a trace: declarations and nodes are read as they were written, and hostile ones are refused with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decodescope.engine.trace import UPLOADED, End, Step, Trace, TraceError, check, open_trace
from decodescope.engine.trace.detail_checks.trees import tree_reading
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    Figure,
    Growth,
    NodeOutcome,
    Relation,
    Sentence,
    TallyForm,
    Term,
    TreeForm,
)
from decodescope.engine.trace.details.levels import filter_details
from decodescope.engine.trace.details.shapes import TallyDetail, TreeDetail

COLUMNS = [
    DetailColumn("token", "token", "summary"),
    DetailColumn("score", "number"),
    DetailColumn("outcome", "text"),
]
LIVES = NodeOutcome("open", [Sentence("lives")])
DIES = NodeOutcome("left", [Sentence("dies")], level="decisions")
FORM = TreeForm(
    "Twigs",
    "twig",
    "twigs",
    says=[Sentence("{open} of {nodes} twigs live")],
    columns=COLUMNS,
    outcomes={"lives": LIVES, "dies": DIES},
    number="score",
    figures=[Figure("grown", "mm", [Sentence("{score - before(score):1}")])],
    relations=[Relation("score >= before(score)")],
    best_first="score",
)
GROWTH = Growth(
    "offers", "priors", "visits", "value", "full", "q + p * log(N + 1) / (1 + n)", [Term("P", "p")]
)
GROWN = TreeForm(
    "Shoots",
    columns=[
        *COLUMNS,
        DetailColumn("offers", "tokens"),
        DetailColumn("priors", "numbers"),
        DetailColumn("visits", "number"),
        DetailColumn("value", "number"),
    ],
    outcomes={"open": NodeOutcome("open"), "full": NodeOutcome("ended")},
    growth=GROWTH,
    judged="fruits",
    text="tokens",
)
FRUITS = TallyForm("Fruits", columns=[DetailColumn("tokens", "tokens")])
FORMS = {"twigs": FORM, "shoots": GROWN, "fruits": FRUITS}


def twigs(parents: list[int], scores: list[float], dead: int = 0, earlier: bool = True) -> TreeDetail:
    words = ["lives"] * (len(parents) - dead) + ["dies"] * dead
    columns: dict[str, list[Any]] = {"token": [3] * len(parents), "score": scores, "outcome": words}
    return TreeDetail("twigs", parents, columns, earlier=earlier)


def shoots(**more: list[Any]) -> list[Any]:
    columns = {
        "token": [None, 4],
        "outcome": ["open", "full"],
        "offers": [[4, 5], []],
        "priors": [[0.75, 0.25], []],
    }
    columns |= {"visits": [2, 1], "value": [0.5, 0.5]}
    return [TreeDetail("shoots", [-1, 0], {**columns, **more}), TallyDetail("fruits", {"tokens": [[4, 5]]})]


def run(toy: Any, *details: list[Any], forms: dict[str, Any] | None = None) -> Trace:
    """Make a trace with these details in its steps."""
    steps = toy.steps("p" * len(details))
    for step, own in zip(steps, details, strict=True):
        step.details = own
    trace = Trace([toy.header(details=FORMS if forms is None else forms), toy.prefill(), *steps])
    trace.seal(End("max_new_tokens", [token for step in steps for token in step.emitted], len(steps)))
    return trace


def test_declarations_and_nodes_are_read_as_they_were_written(toy: Any, tmp_path: Path) -> None:
    made: list[Step] = toy.steps("pp")
    made[0].details, made[1].details = (
        [twigs([0, 0, 0], [2.0, 1.0, 0.5], 1), *shoots()],
        [twigs([0, 1], [4.0, 3.0])],
    )
    path = toy.write(tmp_path / "twigs.dstrace", made, head=toy.header(details=FORMS))
    trace = open_trace(path, UPLOADED)
    assert trace.header.details == FORMS
    assert [step.details for step in trace.steps] == [step.details for step in made]
    assert check(trace).ok, check(trace)
    reading = tree_reading(trace.header, trace.steps[1], trace.steps[1].details[0], FORM, trace.steps[0])
    assert reading.whole_scope.say_first(FORM.says) == "2 of 2 twigs live"
    assert [reading.node_scope(k).say_first(FORM.figures[0].says) for k in (0, 1)] == ["2.0", "2.0"]


def test_levels_keep_nodes_by_what_became_of_them() -> None:
    tree = twigs([0, 0, 0], [2.0, 1.0, 0.5], 1)
    (kept,) = filter_details("decisions", [tree], FORMS)
    assert kept is tree
    (few,) = filter_details("summary", [tree], FORMS)
    assert few.parents == [0, 0] and few.columns == {"token": [3, 3]} and len(tree) == 3


WRONG: dict[str, tuple[Callable[[], list[list[Any]]], str]] = {
    "a score below that of its parent": (
        lambda: [[twigs([0], [2.0])], [twigs([0], [1.0])]],
        "node 1 of twigs breaks score >= before(score)",
    ),
    "the best is not first": (lambda: [[twigs([0, 0], [1.0, 2.0])]], "are not ordered with the best first"),
    "no score": (lambda: [[twigs([0], [None])]], "lack the numbers that order them"),  # type: ignore[list-item]
    "a parent that does not live": (
        lambda: [[twigs([0, 0], [1.0, 0.5], 1)], [twigs([1], [3.0])]],
        "its twig 1 goes on from 2, and the step before has 1",
    ),
    "a huge parent": (
        lambda: [[twigs([0], [1.0])], [twigs([10**12], [3.0])]],
        "goes on from 1000000000001, and the step before has 1",
    ),
    "a parent below all": (lambda: [[twigs([-2], [1.0])]], "a parent comes before its children"),
    "the living behind the dead": (
        lambda: [
            [
                replace(x, columns=x.columns | {"outcome": ["dies", "lives"]})
                for x in [twigs([0, 0], [2.0, 1.0])]
            ]
        ],
        "goes on behind one that does not",
    ),
    "a parent behind its child": (lambda: [[twigs([0], [1.0], earlier=False)]], "comes before its children"),
    "candidates without numbers": (lambda: [shoots(priors=[[0.75], []])], "candidates without a number each"),
    "a candidate that is none": (
        lambda: [shoots(offers=[[4, None], []])],
        "candidate without a token or a number",
    ),
    "a node without candidates": (lambda: [shoots(offers=[None, []])], "candidates without a number each"),
    "no visits": (lambda: [shoots(visits=[None, 1])], "without its visits or value"),
    "an id outside": (lambda: [shoots(offers=[[4, 10**9], []])], "outside the vocabulary"),
    "no row for a node": (lambda: [shoots()[:1]], "has not one row of fruits for each node"),
    "too many rows": (
        lambda: [[shoots()[0], TallyDetail("fruits", {"tokens": [[4], [5]]})]],
        "has not one row of fruits for each node",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_tree_that_cannot_be_is_found(toy: Any, what: str) -> None:
    details, says = WRONG[what]
    assert any(says in one for one in check(run(toy, *details())).problems), check(run(toy, *details()))


HOSTILE: dict[str, tuple[Callable[[], Any], str]] = {
    "a fate that there is not": (
        lambda: replace(FORM, outcomes={"lives": NodeOutcome("flies"), "dies": DIES}),  # type: ignore[arg-type]
        "of the fate 'flies'",
    ),
    "a level that there is not": (
        lambda: replace(FORM, outcomes={"lives": NodeOutcome(level="all"), "dies": DIES}),  # type: ignore[arg-type]
        "has the outcome 'lives'",
    ),
    "no column of tokens": (lambda: replace(FORM, token="score"), "no column 'score' of the type token"),
    "no column of outcomes": (lambda: replace(FORM, columns=COLUMNS[:2]), "no column 'outcome'"),
    "groups that are texts": (
        lambda: replace(FORM, group="outcome"),
        "no column 'outcome' of the type number",
    ),
    "a figure that runs code": (
        lambda: replace(FORM, figures=[Figure("a", "b", [Sentence("{open('x')}")])]),
        "is no formula",
    ),
    "a number that runs code": (lambda: replace(FORM, number="score.real"), "is no formula"),
    "a relation that is none": (lambda: replace(FORM, relations=[Relation("score")]), "is no relation"),
    "too many figures": (lambda: replace(FORM, figures=[Figure("", "", [])] * 999), "more than 128"),
    "a score that runs code": (
        lambda: replace(GROWN, judged="", growth=replace(GROWTH, score="__import__('os')")),
        "is no formula",
    ),
    "no column of candidates": (
        lambda: replace(GROWN, judged="", growth=replace(GROWTH, candidates="score")),
        "no column 'score' of the type tokens",
    ),
    "a closed outcome that is none": (
        lambda: replace(GROWN, judged="", growth=replace(GROWTH, closed="shut")),
        "which is no outcome",
    ),
    "a scale of one": (
        lambda: replace(GROWN, judged="", growth=replace(GROWTH, scale=["none"])),
        "lacks a scale",
    ),
    "no tally of its texts": (lambda: GROWN, "which is no tally of texts"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_declaration_is_refused(toy: Any, tmp_path: Path, what: str) -> None:
    form, says = HOSTILE[what]
    path = toy.write(tmp_path / "bad.dstrace", toy.steps("p"), head=toy.header(details={"twigs": form()}))
    with pytest.raises(TraceError) as caught:
        open_trace(path, UPLOADED)
    assert "details.twigs" in str(caught.value) and says in str(caught.value), caught.value


def test_a_check_that_needs_what_a_tree_lacks_says_so(toy: Any) -> None:
    """A header may name any check; the check finds its columns or says what is missing, and never fails."""
    for name in ("beam_search", "text_mixture", "tree_search"):
        columns = [
            DetailColumn("token", "token"),
            DetailColumn("score", "text"),
            DetailColumn("outcome", "text"),
        ]
        forms = {
            "twigs": replace(
                FORM, columns=columns, check=name, best_first="", relations=[], figures=[], number=""
            )
        }
        forged = twigs([0], ["high"])  # type: ignore[list-item]
        report = check(run(toy, [forged], [TreeDetail("twigs", [], earlier=True)], forms=forms))
        assert not report.ok and any("step 0" in one for one in report.problems), (name, report)
