"""A beam search on the page: the hypotheses of every step with their texts and parents, and the winner."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import toys
from followed import endings, followed, texts_of
from toylab import Words

from decodescope.engine import Session
from decodescope.engine.trace import Trace
from decodescope.engine.trace.details.declarations import Sentence

from .drawn import Drawn, told
from .runs import TEXTS

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("drawn")]
WON = ".hypotheses .won"


def search(width: int = 3, count: int = 14, **more: Any) -> Trace:
    """A finished beam search of the toy, with letters as the texts of its tokens."""
    return run(("beam", {"width": width}), count, **more)


def run(strategy: tuple[str, dict[str, Any]], count: int, **more: Any) -> Trace:
    """A finished run of the toy, with letters as the texts of its tokens."""
    target = toys.target(seed=toys.LIVELY)
    target.tokenizer = Words(TEXTS)  # type: ignore[assignment]
    session = Session(
        target, toys.method(strategy=strategy), toys.PROMPT, max_new_tokens=count, seed=0, **more
    )
    session.sink = Trace()
    for _ in session.stream():
        pass
    return session.sink


def texts(trace: Trace, upto: int) -> list[list[int]]:
    """The tokens of the hypotheses after step `upto`, from the record alone."""
    return texts_of(trace.steps)[upto]


def shown(trace: Trace, tokens: list[int]) -> str:
    return "".join(str(trace.pieces[x]) for x in tokens)


def open_run(drawn: Drawn, messages: list[dict[str, Any]]) -> None:
    drawn.run(
        "(all) => { window.view = S.mount(place, {}); all.forEach((one) => view.push(one)); }", messages
    )


def rows(drawn: Drawn) -> list[str]:
    return drawn.page.locator(".beams li:visible").all_inner_texts()


@pytest.mark.nightly
def test_every_step_has_the_texts_scores_and_origins_of_its_hypotheses(drawn: Drawn) -> None:
    trace = search()
    open_run(drawn, told(trace))
    reordered = 0
    for i, step in enumerate(trace.steps):
        drawn.run("(i) => view.seek(i)", i)
        b = followed(step)
        reordered += b.parents != sorted(b.parents)
        due = zip(rows(drawn), texts(trace, i), b.parents, b.scores, strict=True)
        for k, (row, text, parent, score) in enumerate(due):
            figures, words = f"{k + 1}  −{-score:.2f} nats  ", shown(trace, text)
            assert row == f"{figures}{f'from {parent + 1}' if i else ''}  {words}", (i, k)
            title = drawn.page.locator(".beams button").nth(k).get_attribute("title")
            assert title == words
        # the first pieces, which all hypotheses share, are drawn in a quieter colour than the rest
        both = drawn.page.locator(".beams .both").first.text_content()
        assert all(shown(trace, text).startswith(both) for text in texts(trace, i))
    assert reordered, "the test needs hypotheses that overtake each other"


@pytest.mark.nightly
def test_lines_lead_from_each_hypothesis_to_the_one_that_it_went_on_from(drawn: Drawn) -> None:
    trace = search()
    open_run(drawn, told(trace))
    at = len(trace.steps) - 2
    drawn.run("(i) => view.seek(i)", at)
    drawn.page.locator(".beams button").nth(1).click()
    drawn.settled()
    paths = drawn.page.locator(".lines path").evaluate_all(
        "x => x.map((y) => [y.getAttribute('class'), y.getAttribute('d')])"
    )
    rank, own = 1, []
    for i in range(at, at - 7, -1):
        parent = followed(trace.steps[i]).parents[rank]
        own.append((parent, rank))
        rank = parent
    ends = [
        [float(x.split(",")[1]) for x in (d.split("C")[0], d.split(" ")[-1])]
        for kind, d in paths
        if kind == "own"
    ]
    assert sorted(((a - 13) / 26, (b - 13) / 26) for a, b in ends) == sorted(own)
    assert len(paths) == 7 * 3 and {kind for kind, _ in paths} == {"own", "kept", "left"}


def test_the_hypothesis_that_won_is_told_at_the_end(drawn: Drawn) -> None:
    trace = search()
    open_run(drawn, told(trace))
    last = len(trace.steps) - 1
    assert trace.steps[last].emitted == texts(trace, last)[0], "the test needs one that was cut by the length"
    assert drawn.text(WON).startswith("Won: hypothesis 1, −") and drawn.text(WON).endswith("over 14 tokens.")
    assert drawn.page.locator(".beams .best").count() == 1
    drawn.run("() => view.seek(3)")
    assert drawn.page.locator(WON).is_hidden() and drawn.page.locator(".beams .best").count() == 0


@pytest.mark.nightly
def test_one_that_ended_is_listed_and_may_win(drawn: Drawn) -> None:
    found = None
    for stop in range(13):
        trace = search(2, 12, stop_tokens=[stop])
        ended = endings(trace.steps)
        won = next((one for one in ended if one[1] == trace.steps[-1].emitted), None)
        if won and won[0] < len(trace.steps) - 1:
            found = trace, ended, won
    assert found, "the test needs a search that is won by one that ended before its last step"
    trace, ended, (step, _, score) = found
    open_run(drawn, told(trace))
    assert drawn.text(WON).startswith(
        f"Won: the hypothesis that ended in step {step}, −{-score:.2f} nats over"
    )
    lines = drawn.page.locator(".over li").all_inner_texts()
    assert len(lines) == min(4, len(ended))
    for line, (i, tokens, score) in zip(lines, ended[-4:], strict=True):
        assert line.startswith(f"ended in step {i}  −{-score:.2f} nats  ")
        assert line.endswith(shown(trace, tokens)) and "<#" not in line
    drawn.run("(i) => view.seek(i)", ended[0][0] - 1) if ended[0][0] else None
    assert drawn.page.locator(".over").is_hidden() == bool(ended[0][0])


GROUPS = ("diverse_beam", {"width": 4, "groups": 2, "diversity_penalty": 2.0})


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", [("beam", {"width": 3}), GROUPS], ids=lambda x: x[0])
def test_what_was_left_stands_under_the_hypotheses_and_groups_are_named(
    drawn: Drawn, strategy: tuple[str, Any]
) -> None:
    trace = run(strategy, 8)
    open_run(drawn, told(trace))
    drawn.run("() => view.seek(4)")
    step, before = followed(trace.steps[4]), texts(trace, 3)
    due = sorted(step.left, key=lambda row: -row[2])[:6]
    lines = drawn.page.locator(".pruned li").all_inner_texts()
    assert lines == [
        f"left  −{-z:.2f} nats  from {p + 1}  {shown(trace, [*before[p], x])}" for p, x, z in due
    ]
    for k, row in enumerate(rows(drawn)):
        assert (f"group {step.groups[k] + 1}, from " in row) if step.groups else "group" not in row
    drawn.page.locator(".beams button").nth(2).click()
    drawn.settled()
    card = drawn.page.locator(".ds").first.inner_text()
    assert ("fined, nats" in card) == (step.groups is not None)
    assert not step.groups or (step.fines[2] > 0 and f"{step.fines[2]:.3f}" in card)


@pytest.mark.nightly
def test_card_of_a_superposed_draft_tells_model_ngrams_and_its_share_of_the_next_row(drawn: Drawn) -> None:
    trace = run(("superposed", {"datastore": toys.DATASTORE, "temperature": 1.0}), 8)
    open_run(drawn, told(trace))
    known = 0
    for i, step in enumerate(trace.steps[1:], 1):
        drawn.run("(i) => view.seek(i)", i)
        drawn.page.locator(".beams button").nth(1).click()
        drawn.settled()
        b, card = followed(step), drawn.text(".decision")
        model, known_as = (b.detail.columns[name][1] for name in ("p", "ngrams"))
        odds = [math.exp(score - b.scores[0]) for score in b.scores]
        cells = drawn.page.locator(".decision td").all_inner_texts()
        assert float(cells[cells.index("p, the model") + 1]) == pytest.approx(model, abs=1e-3)
        assert float(cells[cells.index("share of the next row") + 1]) == pytest.approx(
            odds[1] / sum(odds), abs=1e-3
        )
        words = cells[cells.index("n-grams") + 1]
        assert words == "unknown" if known_as == 0 else float(words) == pytest.approx(known_as, abs=1e-3)
        assert "the mean of the last tokens" in card
        known += known_as > 0
    assert known, "the test needs n-grams that know a token"


def tree(trace: Trace) -> dict[tuple[int, ...], tuple[int, bool]]:
    """Every text that was a hypothesis -> the last step with a text that continues it, and whether it survived to the end."""
    last: dict[tuple[int, ...], tuple[int, bool]] = {}
    for i in range(len(trace.steps)):
        for text in map(tuple, texts(trace, i)):
            for n in range(1, len(text) + 1):
                last[text[:n]] = i, i == len(trace.steps) - 1
    return last


@pytest.mark.parametrize("strategy", [("beam", {"width": 3}), GROUPS], ids=lambda x: x[0])
def test_all_hypotheses_are_one_tree_whose_branches_say_why_they_were_left(
    drawn: Drawn, strategy: tuple[str, Any]
) -> None:
    trace = run(strategy, 8)
    open_run(drawn, told(trace))
    branches = drawn.page.locator(".all-nodes li:visible")
    every, groups = tree(trace), strategy[1].get("groups", 1)
    leaves = [text for text in every if not any(len(x) == len(text) + 1 and x[:-1] == text for x in every)]
    if groups == 1:
        assert branches.count() == len(leaves), "a branch for each text that nothing went on from"
    heads = drawn.page.locator(".all-nodes .begins:visible").all_inner_texts()
    assert heads == ([f"group {k + 1}" for k in range(groups)] if groups > 1 else [])
    kinds = branches.evaluate_all("x => x.map((y) => y.className)")
    assert kinds.count("best") == 1 and "★ the text" in branches.nth(kinds.index("best")).inner_text()
    assert drawn.page.locator(".all-nodes path.won").count() == 1
    shut = [k for k, kind in enumerate(kinds) if kind == "shut"]
    assert len(shut) > 2, "the test needs branches that were left"
    drawn.run("() => view.seek(3)")
    assert branches.count() == len(kinds), "the tree stays as it is; what comes behind the step is faint"
    reasons = 0
    for k in shut:
        branches.nth(k).locator("button").click()
        drawn.settled()
        at, node = drawn.run("() => [view.at, view.selection.node]")
        kept = followed(trace.steps[at + 1])
        assert node - 1 not in kept.parents, "it has no successor in the next step"
        said = drawn.text(".all-nodes .took")
        assert f": left in step {at + 1}: " in said
        own = [z for p, _, z in kept.left if p == node - 1]
        if own and f"−{-max(own):.2f} nats" in said:
            reasons += 1
        else:
            assert "no extension of it was among the next best" in said
    assert reasons, "the test needs a branch whose best extension is known"
    drawn.page.locator(".all-nodes header button").click()
    drawn.settled()
    left = sum(min(6, len(followed(step).left)) for step in trace.steps)
    assert branches.filter(has_text="left, −").count() == left and branches.count() < 96


@pytest.mark.nightly
def test_the_words_are_those_of_the_header(drawn: Drawn) -> None:
    """The same tree under another name and with other words, as a strategy outside the package may declare them."""
    trace = run(GROUPS, 8)
    form = trace.header.details["grouped_hypotheses"]
    words = {"noun": "vine", "nouns": "vines", "won": "Picked", "check": "", "card": [Sentence("It grows.")]}
    words |= {
        "worth": [Sentence("{score:1} cm")],
        "why": [Sentence("its shoot had {own:1} cm, cut at {bar:1}")],
    }
    words |= {"says": [Sentence("{open} vines", given={"emitted": 0}), Sentence("ripe")]}
    outcomes = {**form.outcomes, "left": replace(form.outcomes["left"], words=[Sentence("cut")])}
    trace.header.details = {"vines": replace(form, outcomes=outcomes, **words)}
    for step in trace.steps:
        step.details[0].name = "vines"
    open_run(drawn, told(trace))
    assert drawn.text(WON).startswith("Picked: vine ") and " cm over 8 tokens." in drawn.text(WON)
    assert drawn.text(".headline .lead") == "8 tokens: ripe" and drawn.text(".all-nodes h3") == "All vines"
    drawn.run("() => view.seek(4)")
    b = followed(trace.steps[4])
    assert drawn.text(".decision h2") == "Vine 1 of 4" and "It grows." in drawn.text(".decision")
    assert f"1  −{-b.scores[0]:.1f} cm  group 1, from {b.parents[0] + 1}  " in rows(drawn)[0]
    assert drawn.page.locator(".pruned li").first.inner_text().startswith("cut  −")
    assert drawn.text(".headline .lead") == "0 tokens: 4 vines"
    shut = drawn.page.locator(".all-nodes li.shut:visible button")
    said = []
    for k in range(shut.count()):
        shut.nth(k).click()
        drawn.settled()
        said.append(drawn.text(".all-nodes .took"))
    assert any(": its shoot had −" in x and " cm, cut at −" in x for x in said)
    page = drawn.page.locator(".ds").inner_text()
    assert "hypothes" not in page and "nats" not in page.replace("score, nats", "").replace(
        "score before, nats", ""
    ).replace("fined, nats", "")
