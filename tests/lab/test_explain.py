"""Explained decisions: their numbers are re-derived, the residual sums to one, and no token becomes markup."""

from __future__ import annotations

import copy
import html
from html.parser import HTMLParser

import pytest
import toys
from toylab import HOSTILE

from decodescope.engine import Method
from decodescope.engine.core.tree import depths
from decodescope.engine.trace import Trace, TraceError
from decodescope.lab import decisions, explain
from decodescope.lab.decision.explain import Explanation
from decodescope.lab.decision.residual import residual_rows

from .runs import METHODS, known, run

DRAFTING = [name for name, parts in METHODS.items() if "drafter" in parts]


def everything(trace: Trace) -> list[Explanation]:
    """Explanations of every node of every step, and of every token that the target added itself."""
    made = []
    for step in trace.steps:
        nodes = range(len(step.draft.tokens)) if step.draft is not None else []
        made += [explain(trace, step.step, node) for node in nodes]
        if step.extra is not None or step.details is not None:
            made.append(explain(trace, step.step))
    return made


@pytest.mark.parametrize("name", METHODS)
def test_every_decision_can_be_told_and_follows_from_its_numbers(name: str) -> None:
    told = everything(known(name))
    assert len(told) > 20
    assert all(e.agrees is not False for e in told)
    assert {e.agrees for e in told if e.status in ("accept", "reject")} <= {True}
    assert all(e.lines and str(e).startswith(e.title) for e in told)


@pytest.mark.parametrize("name", DRAFTING)
def test_status_is_what_became_of_the_token(name: str) -> None:
    trace = known(name)
    seen = set()
    for step, node in decisions(trace):
        e, path = explain(trace, step, node), trace.steps[step].path or []
        seen.add(e.status)
        assert (e.status == "accept") == (node in path) or trace.steps[step].extra is None
    assert {"accept", "reject"} <= seen, "the test needs both"


def test_lossless_numbers_are_the_recorded_ones() -> None:
    trace, count = known("tree"), 0
    for step, node in decisions(trace):
        t = trace.steps[step].trials
        assert t is not None
        at, e = t.node.index(node), explain(trace, step, node)
        values = {symbol: value for _, symbol, value in e.numbers}
        assert (values["p(x)"], values["q(x)"], values["u"]) == (t.p[at], t.q[at], t.u[at])
        assert values.get("r(x)", t.p[at]) == t.r[at]
        if e.box is not None:
            r, q, u = e.box
            assert (u * q < r) == t.ok[at]
            count += "r(x)" in values
    assert count > 5, "the test needs later siblings"


@pytest.mark.parametrize("name", ["chain", "copied", "tree"])
def test_what_is_left_after_a_refusal_adds_up_to_one(name: str) -> None:
    trace, count = known(name), 0
    for step, node in decisions(trace, ok=False):
        rows = [row for row in explain(trace, step, node).rows if row.left is not None]
        if rows:
            count += 1
            assert sum(row.left for row in rows) == pytest.approx(1, abs=1e-5)  # type: ignore[misc]
            assert all(row.left >= -1e-9 for row in rows)  # type: ignore[operator]
            assert next(row.left for row in rows if row.tried) == pytest.approx(0, abs=1e-6)
    assert count > 10, "the test needs refusals"


@pytest.mark.parametrize("name", ["chain", "copied", "tree"])
def test_what_is_left_is_what_the_next_draw_used(name: str) -> None:
    """The extra token's interval, and a later sibling's r, are probabilities under the residual distribution that is shown."""
    trace, count = known(name), 0
    for record in trace.steps:
        t, draft, extra = record.trials, record.draft, record.extra
        if t is None or draft is None:
            continue
        for i, (node, ok) in enumerate(zip(t.node, t.ok, strict=True)):
            if ok:
                continue
            left = {row.token: row.left for row in residual_rows(trace, record, i)[0]}
            later = [j for j in range(i + 1, len(t.node)) if draft.parents[t.node[j]] == draft.parents[node]]
            known_as = (draft.tokens[t.node[later[0]]], t.r[later[0]]) if later else None
            if known_as is None and extra is not None:
                known_as = (extra.token, extra.high - extra.low)
            if known_as is not None and left.get(known_as[0]) is not None:
                count += 1
                assert left[known_as[0]] == pytest.approx(known_as[1], abs=1e-4)
    assert count > 10


def test_laws_at_a_place_add_up_to_one() -> None:
    for e in everything(known("chain")):
        if e.rows:
            assert sum(row.p for row in e.rows) == pytest.approx(1, abs=1e-5)


def test_block_names_the_last_success() -> None:
    trace, repaired = known("block"), 0
    for step, node in decisions(trace):
        trials, path = trace.steps[step].trials, trace.steps[step].path or []
        assert trials is not None and trials.num is not None
        passed = [u < h for u, h in zip(trials.u, trials.num, strict=True)]
        last = max((i + 1 for i, ok in enumerate(passed) if ok), default=0)
        e = explain(trace, step, node)
        assert f"the last success is at {last} of {len(passed)}" in e.test
        repaired += node in path and not passed[node]
    assert repaired > 0, "the test needs a failure that a later success repairs"


def test_a_greedy_draft_has_no_distribution_in_words_either() -> None:
    for name, drawn in (("chain", True), ("greedy", False)):
        trace = known(name)
        e = explain(trace, *next(decisions(trace, ok=False)))
        assert e.has_draft_distribution is drawn and (" q 0." in str(e)) is drawn, str(e)


def test_typical_bound_is_derived_from_entropy_and_knobs() -> None:
    trace = known("typical")
    step, node = next(decisions(trace, ok=False))
    told = str(explain(trace, step, node))
    assert "b = min(ε, δ · exp(−H))" in told and "= min(0.09, 0.3 · exp(" in told
    assert "changes the text" in told


def test_a_token_that_was_taken_as_the_likeliest_says_whose_doing_that_is() -> None:
    trace = known("typical")
    told = [explain(trace, step.step) for step in trace.steps if step.extra is not None]
    assert {e.agrees for e in told} == {True} and all("This rule adds what is surest" in str(e) for e in told)
    assert "The sampler is greedy" in str(explain(known("greedy"), 0))


def test_a_card_of_a_greedy_run_has_the_models_own_probability_beside_p() -> None:
    trace = known("greedy")
    step = next(x for x in trace.steps if x.trials is not None and x.tops is not None and x.trials.ok[0])
    told = explain(trace, step.step, 0).numbers
    assert [word for word, _, _ in told] == ["after the sampler", "model, before it"]
    assert told[0][2] == 1 and told[1][2] == step.tops.p[step.tops.places.tolist().index(-1)].max() < 1


def test_a_greedy_sampler_behind_another_stage_takes_the_likeliest_of_what_that_leaves() -> None:
    """The written token and each guess: does the target's distribution have a token likelier than the written one?"""
    method = Method.from_names(
        {"drafter": "prompt_lookup", "sampler": ["repetition_penalty", "greedy"]},
        {"drafter": {"ngram": 1, "max_draft_tokens": 3}, "repetition_penalty": {"penalty": 1.3}},
    )
    trace, seen = toys.decode(method, count=60).sink, set()
    for step in trace.steps:
        for place, ids, p in zip(step.tops.places, step.tops.ids, step.tops.p, strict=True):
            depth = 0 if place < 0 else depths(step.draft.parents)[place]
            moved = ids[p.argmax()] != step.emitted[depth]
            tried = (
                [] if step.trials is None else [i for i in step.trials.node if step.draft.parents[i] == place]
            )
            for node in tried:
                words = "the likeliest of what that leaves" if moved else "its most likely token"
                assert words in str(explain(trace, step.step, node))
                seen.add(("guess", bool(moved)))
            if step.extra is not None and depth == len(step.emitted) - 1:
                words = (
                    "of what it leaves of the target's distribution"
                    if moved
                    else "the target's most likely token"
                )
                assert words in str(explain(trace, step.step))
                seen.add(("own", bool(moved)))
    assert len(seen) == 4, "the test needs both, of guesses and of the target's own tokens"


def test_a_forged_verdict_is_told() -> None:
    trace = copy.deepcopy(run("chain", count=20))
    step, node = next(decisions(trace, ok=False))
    trials = trace.steps[step].trials
    assert trials is not None
    trials.ok[trials.node.index(node)] = True
    e = explain(trace, step, node)
    assert e.agrees is False and "does not re-derive" in e._repr_html_() and "DOES NOT FOLLOW" in str(e)


def test_strategies_without_a_draft_are_told_too() -> None:
    block, beams = explain(known("jacobi"), 0), explain(known("beam"), 2)
    assert block.title == "One pass over a block" and "final after this pass" in str(block)
    assert beams.title == "Beams kept" and beams.agrees and len(beams.lines[0].sums) == 3


def test_a_pass_over_a_canvas_is_told_with_what_it_settled() -> None:
    trace = toys.decode(
        toys.method(strategy=("masked", {"block": 8}), unmasking=("threshold", {"tau": 0.3})), count=16
    ).sink
    for step in trace.steps:
        told = explain(trace, step.step)
        canvas = step.detail("canvas")
        assert told.agrees and len(told.lines[0].sums) == len(canvas.places)
        assert all(rule in line for rule, line in zip(canvas.rules, told.lines[0].sums, strict=True))
    for column in ("places", "rules", "tokens"):
        getattr(trace.steps[0].detail("canvas"), column).pop()
    assert not explain(trace, 0).agrees


def test_refusals_say_what_is_missing() -> None:
    trace = known("chain")
    for step, node, what in ((-1, None, "no step"), (10_000, None, "no step"), (0, 99, "no node 99")):
        with pytest.raises(TraceError, match=what):
            explain(trace, step, node)
    with pytest.raises(TraceError, match='level="decisions"'):
        explain(run("chain", count=4, level="summary"), 0, 0)


class Tags(HTMLParser):
    """The elements and attributes of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


OURS = {
    "div",
    "style",
    "p",
    "span",
    "b",
    "svg",
    "rect",
    "path",
    "text",
    "circle",
    "g",
    "table",
    "tr",
    "td",
    "th",
    "h4",
    "code",
}


@pytest.mark.parametrize("name", METHODS)
def test_hostile_tokens_stay_text(name: str) -> None:
    trace, seen = run(name, hostile=True, count=40), ""
    for e in everything(trace):
        parsed = Tags()
        parsed.feed(e._repr_html_())
        assert parsed.tags <= OURS | {"ol", "li"}
        assert not {a for a in parsed.attributes if a.startswith("on") or a in ("src", "href", "srcdoc")}
        seen += parsed.text
        assert not set(str(e) + parsed.text) & set("\0\x1b\x7f\u202e"), (
            "no control and no bidi mark comes through"
        )
    shown = [text for text in HOSTILE if text.isprintable() and " " not in text]
    assert any(html.unescape(text) in seen or text in seen for text in shown), "the texts were shown as text"
