"""What a step tried by itself: each number with the threshold that decided, in Python's words and on the card."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import toys
from sizes import thinned

from decodescope.engine.core.component import registry
from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.engine.trace.values.mentions import mention_outcomes
from decodescope.lab.decision.block import explain_block
from decodescope.lab.decision.details import details_tally
from decodescope.lab.decision.explain import explain
from decodescope.lab.decision.step_tally import TallyRow
from decodescope.lab.decision.tally import StepTally, find_tally
from decodescope.lab.wire.messages import build_wire, max_node_number, messages

from .drawn import Drawn, told

NAMES = ["lexical_units", "joint_tokens", "edit_tags", "jump_coder", "planned"]


@cache
def run(name: str) -> Trace:
    more = {
        "lexical_units": {"min_probability": 0.5},
        "edit_tags": {"min_probability": 0.99},
        "planned": {"tests": "1\n2", "rollouts": 16},
    }
    settings = toys.settings_of("strategy", name)[-1] | more.get(name, {})
    return toys.decode(toys.method(strategy=(name, settings)), count=24).sink


def of(trace: Trace, step: Step) -> StepTally:
    made = find_tally(trace.header, step, lambda ids: " ".join(map(str, ids)))
    assert made is not None
    return made


def declared(strategy: str, name: str, columns: dict[str, list], **knobs: float) -> list[TallyRow]:
    """The rows of a card for one detail, by the declaration of a strategy."""
    trace = run("lexical_units")
    method = trace.header.method | {"strategy": {"name": strategy, **knobs}}
    header = replace(trace.header, details=registry("strategy")[strategy].details, method=method)
    step = replace(trace.steps[0], details=[TallyDetail(name, columns)])
    made = find_tally(header, step, str)
    assert made is not None
    return made.rows


@pytest.mark.parametrize("name", NAMES)
def test_every_step_tells_what_decided_and_it_follows(name: str) -> None:
    trace, rows = run(name), []
    for step in trace.steps:
        assert step.details or name == "planned"
        made = of(trace, step)
        rows += made.rows
        assert all(row.is_consistent for row in made.rows) and made.lines
        assert max_node_number(step) >= len(made.rows), "a reader may choose any row"
        explained = explain_block(trace, step)
        assert explained.agrees and explained.where
    both = {True, False} <= {row.holds for row in rows if row.bar is not None}
    assert both or name in ("jump_coder", "aligned"), "both outcomes"


def test_a_record_that_took_too_much_does_not_follow() -> None:
    trace = run("lexical_units")
    step = next(x for x in trace.steps if "bar" in x.detail("lexical_unit").columns["outcome"])
    unit = step.detail("lexical_unit")
    words = ["taken" if word == "bar" else word for word in unit.columns["outcome"]]
    forged = replace(step, details=[replace(unit, columns={**unit.columns, "outcome": words})])
    assert not all(row.is_consistent for row in of(trace, forged).rows)
    trace = run("edit_tags")
    step = trace.steps[0]
    first, *others = step.details
    words = ["left" if word == "made" else word for word in first.columns["outcome"]]
    assert words != first.columns["outcome"], "the test needs an edit that was made"
    forged = replace(step, details=[replace(first, columns={**first.columns, "outcome": words}), *others])
    assert not all(row.is_consistent for row in of(trace, forged).rows)


def test_a_mention_is_held_against_the_same_one_of_another_label() -> None:
    names = [
        ("Rome", 0, -1.0),
        ("Ada", 0, -0.5),
        ("Rome", 1, -0.25),
        ("Rome", 0, -3.0),
        ("Oslo", 0, -2.0),
        ("Oslo", 1, -2.0),
    ]
    texts, labels, logp = map(list, zip(*names, strict=True))
    outcomes, own, other = mention_outcomes(labels, texts, logp)
    columns = {"text": texts, "own": own, "other": other, "outcome": outcomes}
    rows = declared("label_parallel", "mentions", columns)
    held = [(-1.0, -0.25, False), (-0.5, None, True), (-0.25, -1.0, True), (-1.0, -0.25, False)]
    equal = [(-2.0, None, True), (-2.0, None, False)]
    assert all(row.is_consistent for row in rows)
    assert [(row.number, row.bar, row.holds) for row in rows] == held + equal
    forged = declared("label_parallel", "mentions", columns | {"outcome": ["likelier", *outcomes[1:]]})
    assert not forged[0].is_consistent


def test_a_line_is_inserted_where_enough_lines_gain() -> None:
    columns = {
        "text": [[5], [6], [7]],
        "at": [1, 0, 2],
        "first": [2.0, 1.0, 3.0],
        "gaining": [0, 2, None],
        "needed": [2, 2, None],
        "gain": [0.0, 1.0, None],
        "outcome": ["score", "inserted", "parse"],
    }
    rows = declared("jump_coder", "inserted_line", columns, tau=0.2)
    assert [(row.number, row.bar, row.holds) for row in rows] == [
        (0, 2, False),
        (2, 2, True),
        (None, None, False),
    ]
    assert all(row.is_consistent for row in rows)
    assert rows[1].word == "before line 1 (first logit 1.00): inserted, 1.00 in all"
    columns["outcome"] = ["inserted", "less", "parse"]
    columns["first"] = [None, 1.0, 3.0]
    forged, less, _ = declared("jump_coder", "inserted_line", columns, tau=0.2)
    assert not forged.is_consistent and forged.word == "before line 2: inserted" and "gains more" in less.word


def test_rows_without_room_wait_until_they_are_asked_for() -> None:
    trace = run("lexical_units")
    step = replace(trace.steps[0])
    unit = step.detail("lexical_unit")
    words = ["first", "bar", *["behind"] * 97]
    columns = {"token": unit.columns["token"][:1] * 99, "p": [0.125] * 99, "outcome": words}
    step.details = [replace(unit, columns=columns)]
    long = Trace()
    long.header, long.prefill, long.steps = trace.header, trace.prefill, [step]
    assert "rows" in next(m for m in messages(long) if m["kind"] == "step")["tally"]
    brief = next(m for m in messages(long, plenty=-1) if m["kind"] == "step")
    assert "tally" not in brief, "a brief has no card"
    message = build_wire(long).step(step)
    assert message["few"] and "rows" not in message["tally"] and message["tally"]["says"]


@cache
def routed(router: str, tau: float | None = None) -> Trace:
    """Two models under a router's first settings. For EAD tau is set within the range of the toys' entropies."""
    knobs = (
        {"tau": 1.0, "min_turn_tokens": 2, "window": 2}
        if router == "entropy"
        else toys.settings_of("router", router)[0]
    )
    knobs = knobs if tau is None else knobs | {"tau": tau}
    return toys.decode(
        toys.method(strategy=toys.router_strategy(router), router=(router, knobs)), count=16, level="full"
    ).sink


ROUTERS = ["entropy", "fallback", "answer_confidence", "agreement", "references", "trained_confidence"]


@pytest.mark.parametrize("router", ROUTERS)
def test_two_models_tell_who_writes_and_why_and_it_follows(router: str) -> None:
    rows = []
    traces = (
        [routed(router)]
        if toys.router_strategy(router) == "switch"
        else [routed(router, tau) for tau in (0.0, 1.1)]
    )
    for trace, step in [(one, step) for one in traces for step in one.steps]:
        card = find_tally(trace.header, step, str) or details_tally(trace.header, step, str, beside=True)
        if card is None:
            continue
        rows += card.rows
        assert (
            card.lines
            and card.says
            and max_node_number(step) >= len(card.rows)
            and all(row.is_consistent for row in card.rows)
        )
        explained = explain(trace, step.step)
        assert explained.agrees
        small = {*step.origins} == {"draft"}
        assert not small or explained.status == "draft"
        assert not small or ("nobody checked" in str(explained)) == (router == "entropy")
        assert ("Whose turn it is then:" in str(explained)) == (router == "entropy")
    assert {x.holds for x in rows} == {True, False}, "both outcomes"


def test_a_turn_and_a_block_that_do_not_follow_are_seen() -> None:
    trace = routed("entropy")
    step = next(x for x in trace.steps if x.details[0].columns["outcome"][0] in ("large", "small"))
    turn = step.details[0]
    other = "large" if turn.columns["outcome"] == ["small"] else "small"
    forged = replace(step, details=[replace(turn, columns={**turn.columns, "outcome": [other]})])
    card = details_tally(trace.header, forged, str, beside=True)
    assert card is not None and not card.rows[0].is_consistent
    assert find_tally(trace.header, step, str) is None, "it stands under the token's own decision"
    trace = routed("fallback")
    step = next(x for x in trace.steps if x.details[0].values["kept"] < x.details[0].values["written"])
    block = step.details[0]
    words = ["stays" if x == "taken back" else x for x in block.columns["outcome"]]
    forged = replace(step, details=[replace(block, columns={**block.columns, "outcome": words})])
    card = find_tally(trace.header, forged, str)
    assert card is not None and not all(row.is_consistent for row in card.rows)
    assert len(card.rows) == block.values["written"], "the large model's own token is not listed"


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_page_marks_what_the_small_model_wrote(drawn: Drawn) -> None:
    trace = routed("entropy")
    drawn.run(
        "(all) => { window.view = S.mount(place, {}); all.forEach((one) => view.push(one)); }", told(trace)
    )
    by_small = next(i for i, x in enumerate(trace.steps) if x.origins == ["draft"])
    by_large = next(i for i, x in enumerate(trace.steps) if x.origins == ["target"])
    assert drawn.page.locator(".key.drafted:visible").count() == 1
    assert drawn.page.locator(".tok.drafted").count() == sum(x.origins.count("draft") for x in trace.steps)
    drawn.run("(i) => view.seek(i)", by_small)
    card = drawn.text(".decision")
    assert "The small model's token" in card and "nobody checked it" in card and "Which model writes" in card
    assert drawn.page.locator(".decision header path.mark.draft").count() == 1
    drawn.run("(i) => view.seek(i)", by_large)
    assert "nobody checked it" not in drawn.text(".decision")


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_a_run_of_one_model_has_no_key_for_a_small_one(drawn: Drawn) -> None:
    alone = told(run("lexical_units"))
    drawn.run("(all) => { window.view = S.mount(place, {}); all.forEach((one) => view.push(one)); }", alone)
    assert (
        drawn.page.locator(".key.target:visible").count() == 1
        and not drawn.page.locator(".key.drafted:visible").count()
    )


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.parametrize(
    "name", thinned(2, [x for x in NAMES if x != "planned"])
)  # "planned" has a card of its own
def test_the_card_draws_each_row_and_derives_it_again(name: str, drawn: Drawn) -> None:
    trace = run(name)
    drawn.run(
        "(all) => { window.view = S.mount(place, {}); all.forEach((one) => view.push(one)); }", told(trace)
    )
    for i in (0, len(trace.steps) - 1):
        made = of(trace, trace.steps[i])
        drawn.run("(i) => view.seek(i)", i)
        card = drawn.page.locator(".decision-body")
        assert card.locator("tbody tr").count() == len(made.rows)
        assert card.locator("td:last-child").all_inner_texts() == [row.word for row in made.rows]
        assert (
            made.says in drawn.page.locator(".headline").inner_text() and card.locator(".agree").count() == 1
        )
        drawn.run("(i) => view.select({ step: i, node: 1 })", i)
        assert card.locator("tr.tried").count() == 1
    assert not drawn.page.locator("svg.tree:visible").count()
