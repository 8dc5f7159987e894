"""Edit tags: what the rows of a pass see, tags applied as one by one, edits to a fixed point, and drafts that need no edit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import toys

from decodescope.engine import Method, MethodError, Session, load
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.edit import EditRows, EditTagger
from decodescope.engine.session.load import Model
from decodescope.engine.trace import check
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.engine.trace.records.events import Step
from decodescope.engine.trace.values.edits import (
    DELETE,
    INSERT,
    KEEP,
    REPLACE,
    TAGS,
    apply_tags,
    edit_outcome,
    next_draft,
    place_tags,
)
from decodescope.lab.decision.tally import find_tally

LAB = Path(__file__).resolve().parents[2] / "assets" / "models" / "lab-mdm"
MASK = toys.bidirectional_target().spec.mask_token


def edited(
    count: int = 24,
    prompt: list[int] = toys.PROMPT,
    model: Model | None = None,
    stop=(),
    sampler="greedy",
    **knobs,
):
    method = toys.method(strategy=("edit_tags", {"block": 8, **knobs}), sampler=sampler)
    session = toys.finish_session(
        Session(
            model or toys.tagging_target(), method, prompt, max_new_tokens=count, stop_tokens=stop, seed=5
        )
    )
    report = check(session.sink)
    assert report.ok, str(report)
    return session


def passes_of(step: Step) -> list[TallyDetail]:
    """The passes over a step's draft."""
    assert step.details and {one.name for one in step.details} == {"edits"}
    return step.details


def tokens_of(one: TallyDetail) -> list[int]:
    """The draft that a pass read."""
    return one.columns["token"][1:]


def made_of(one: TallyDetail) -> list[int]:
    """The draft after a pass, with its edits applied one by one."""
    tags = [
        TAGS.index(edit) if outcome == "made" else KEEP
        for edit, outcome in zip(one.columns["edit"], one.columns["outcome"], strict=True)
    ]
    words = [*map(list, zip(one.columns["instead"], one.columns["behind"], strict=True))]
    return one_by_one(tokens_of(one), tags, words)[: one.values["room"]]


def one_by_one(tokens: list[int], tags: list[int], words: list[list[int]]) -> list[int]:
    """Apply the tags to a list in place, from its end, so that no edit moves the places of the others."""
    text = list(tokens)
    for place in reversed(range(len(tags))):
        if tags[place] == INSERT:
            text.insert(place, words[place][1])
        if tags[place] == REPLACE:
            text[place - 1] = words[place][0]
        if tags[place] == DELETE:
            del text[place - 1]
    return text


# ---- tags


def test_tags_are_applied_at_once_as_they_would_be_one_by_one() -> None:
    r, seen = Random(0), set()
    for _ in range(300):
        tokens = [r.randrange(9) for _ in range(r.randrange(7))]
        tags = [r.choice((KEEP, INSERT)), *(r.randrange(4) for _ in tokens)]
        words = [[r.randrange(9), r.randrange(9)] for _ in tags]
        assert apply_tags(tokens, tags, words) == one_by_one(tokens, tags, words)
        seen |= {*tags}
    assert seen == {KEEP, DELETE, REPLACE, INSERT}


def test_an_edit_is_done_where_it_is_likelier_than_none_and_sure_enough() -> None:
    p = [[0.4, 0, 0, 0.6], [0.4, 0.4, 0.1, 0.1], [0.2, 0.3, 0.3, 0.2], [0.1, 0.1, 0.7, 0.1]]
    assert place_tags(p, 0.0) == [INSERT, KEEP, DELETE, REPLACE]
    assert place_tags(p, 0.6) == [INSERT, KEEP, KEEP, REPLACE] and place_tags(p, 1.01) == [KEEP] * 4
    words = [edit_outcome(*numbers) for numbers in ((0.4, 0.4, 0.0), (0.5, 0.4, 0.5), (0.5, 0.4, 0.6))]
    assert words == ["tie", "made", "left"]


def test_edits_end_at_a_fixed_point_in_a_circle_or_at_their_limit() -> None:
    def behind(tokens: list[int], tags: list[int], seen: list[list[int]], rounds=9, end=None, room=9):
        words = [[5, 6]] * len(tags)
        return next_draft(tokens, apply_tags(tokens, tags, words), room, end, seen, rounds)

    assert behind([1, 2], [0, 0, 0], [[1, 2]]) == ([1, 2], "fixed")
    assert behind([5], [0, 2], [[5]]) == ([5], "fixed"), "a word that replaces itself changes nothing"
    assert behind([1, 2], [0, 2, 0], [[5, 2], [1, 2]]) == ([5, 2], "again")
    assert behind([1, 2], [0, 2, 0], [[1, 2]]) == ([5, 2], None)
    assert behind([1, 2], [0, 2, 0], [[1, 2]], rounds=1) == ([5, 2], "rounds")
    assert behind([1], [0, 1], [[1]]) == ([1], "empty") and behind([1], [0, 1], [[1]], end=3) == ([], None)
    assert behind([1, 2], [3, 0, 0], [[1, 2]], room=2) == ([6, 1], None), (
        "what goes beyond the room is cut off"
    )


# ---- rows


@torch.inference_mode()
def test_a_mask_sees_all_tokens_but_the_one_in_whose_place_it_stands_and_no_other_mask() -> None:
    model, at = toys.bidirectional_target(), EditRows(3, 4, True)
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    feed = at.feed(tokens, MASK)
    logits = model.decoder.forward(feed, None)[0]
    plain, probe = Probe(Needs(hidden=frozenset({"final"}))), Probe(Needs(hidden=frozenset({"final"})))
    model.decoder.forward(Feed.causal_chain(tokens[0].tolist(), 0), None, plain)
    model.decoder.forward(feed, None, probe)
    assert torch.allclose(probe.hidden["final"][0, :8], plain.hidden["final"][0], atol=1e-9), (
        "tokens see no mask"
    )
    for i in range(9):  # each mask by itself together with the tokens
        row, place = at.masks[i], (3 + i if i < 4 else 3 + i - 4)
        positions = torch.tensor([[*range(8), place]])
        sight = torch.ones(9, 9, dtype=torch.bool)
        sight[:8, 8] = False
        if i < 4:
            sight[8, 3 + i] = False
        alone = model.decoder.forward(
            Feed(torch.cat([tokens, torch.tensor([[MASK]])], 1), positions, sight[None], [8]), None
        )
        assert feed.positions[0, row] == place and torch.allclose(logits[i], alone[0, 0], atol=1e-9)


def test_what_is_scored_is_what_the_masks_would_write() -> None:
    at, tokens = EditRows(2, 2, False), torch.tensor([[7, 3, 5, 1, 9, 9, 9, 9, 9]])
    logits = torch.randn(1, 5, 10, generator=torch.Generator().manual_seed(0)) * 3
    laws = logits.log_softmax(-1)[0]
    scores = at.scores(tokens, logits)[0] * 4
    for place, (here, behind) in enumerate(((3, 5), (5, 1), (1, 9))):
        there, since = torch.zeros(10) if place == 0 else laws[place - 1], laws[2 + place]
        due = [there[here], there[behind], there.max(), since[here], since[behind], since.max()]
        assert torch.allclose(scores[place], torch.stack(due).clamp(min=-12), atol=1e-5)


# ---- runs


def test_each_pass_reads_what_the_tags_before_it_made_and_feeds_three_rows_a_token() -> None:
    whys, tags = set(), set()
    for seed in range(6):
        session = edited(model=toys.tagging_target(seed), max_rounds=6)
        for step in session.sink.steps:
            n, passes = step.n, passes_of(step)
            fed = [one.tokens for one in step.passes]
            assert fed == [len(toys.PROMPT) + 24, *(n + 3 * len(tokens_of(x)) + 1 for x in passes)]
            for one, then in pairwise(passes):
                assert tokens_of(then) == made_of(one)
            last = passes[-1]
            if last.values["why"] == "fixed":
                assert made_of(last) == tokens_of(last) == step.emitted
            whys.add(last.values["why"])
            for one in passes:
                made = zip(one.columns["edit"], one.columns["outcome"], strict=True)
                tags |= {TAGS.index(edit) if outcome == "made" else KEEP for edit, outcome in made}
        assert session.target.cache.length == 0, "no entry is kept"
    assert tags == {KEEP, DELETE, REPLACE, INSERT} and len(whys) > 1, (
        "the test needs all tags, and several ends"
    )


@pytest.mark.parametrize("sampler", ["greedy", ("temperature", dict(temperature=1.0))])
def test_a_draft_that_no_edit_is_sure_enough_for_takes_one_pass_and_stays(sampler) -> None:
    session = edited(min_probability=1.01, sampler=sampler)
    text = []
    for step in session.sink.steps:
        (one,) = passes_of(step)
        assert one.values["why"] == "fixed" and step.emitted == tokens_of(one)
        text += tokens_of(one)
    masked = toys.method(
        strategy=("masked", dict(block=8)), unmasking=("low_confidence", dict(steps=1)), sampler=sampler
    )
    due = toys.finish_session(
        Session(toys.tagging_target(), masked, toys.PROMPT, max_new_tokens=24, stop_tokens=(), seed=5)
    )
    assert text == due.end.tokens, "the draft is what masked writes in one pass"


def test_a_given_draft_is_edited_first_and_its_end_stays() -> None:
    session = edited(draft="3 9 2 4 8 1", stop=[8])
    first = session.sink.steps[0].detail("edits")
    assert first.values["given"] == 1 and first.values["end"] == 8
    assert tokens_of(first) == [3, 9, 2, 4], "what stands behind an end is left out"
    assert (
        session.end.reason == "stop_token"
        and session.end.tokens[-1] == 8
        and 8 not in session.end.tokens[:-1]
    )
    first = edited(draft="3 9 2 4", stop=[8]).sink.steps[0].detail("edits")
    assert first.values["end"] == 8, "a draft without one gets one"
    assert edited(draft="3 9 2 4").sink.steps[0].detail("edits").values["end"] is None


def test_check_finds_tags_texts_and_ends_that_do_not_follow() -> None:
    session = edited(max_rounds=3)
    number = next(i for i, step in enumerate(session.sink.steps) if len(passes_of(step)) > 1)
    first = passes_of(session.sink.steps[number])[0]
    at = first.columns["outcome"].index("made")
    why = first.values["why"]

    def column(name: str, place: int, entry: Any, which: int = 0) -> Callable[[list[TallyDetail]], Any]:
        return lambda x: x[which].columns[name].__setitem__(place, entry)

    def value(name: str, entry: Any) -> Callable[[list[TallyDetail]], Any]:
        return lambda x: [one.values.__setitem__(name, entry) for one in x]

    def certain(x: list[TallyDetail]) -> None:
        for tag in TAGS:
            x[0].columns[tag][at] = float(tag == "keep")

    def gone(x: list[TallyDetail]) -> None:
        x.pop()
        value("passes", len(x))(x)

    lies = [
        ("against", column("outcome", at, "left")),
        ("against", certain),
        ("than the probabilities give", column("edit", at, "keep")),
        ("entries, where", lambda x: x[1].columns["token"].append(0)),
        ("entries, where", lambda x: x[-1].columns["instead"].pop()),
        ("and the tags before it give", column("token", 1, (first.columns["token"][1] + 1) % 13, 1)),
        ("edits ended by", value("why", "fixed" if why != "fixed" else "rounds")),
        ("edits ended by", gone),
        ("outside the vocabulary", value("end", 99)),
        ("places were changed", value("changed", first.values["changed"] + 1)),
        ("does not go on from", lambda x: x[1].values.__setitem__("index", 7)),
        ("does not go on from", lambda x: x[1].values.__setitem__("room", 1)),
        ("passes with room for None", value("room", None)),
        ("passes with room for", value("passes", 99)),
        ("lacks a column", lambda x: x[0].columns.pop("behind")),
        ("lacks a number or a token", column("behind", 0, None)),
        ("lacks a number or a token", column("token", 0, 3)),
        ("breaks keep + delete", column("keep", 0, 3.0)),
        ("breaks insert >= 0", column("insert", 0, -1.0)),
        ("breaks delete == 0", column("delete", 0, 0.5)),
        ("lacks the numbers that decide it", column("keep", at, None)),
        ("must hold entries of the type number", column("keep", at, "sure")),
        ("without an outcome", column("outcome", at, "done")),
    ]
    for said, lie in lies:
        wrong = copy.deepcopy(session.sink)
        lie(wrong.steps[number].details)
        assert any(said in x for x in check(wrong).problems), (said, str(check(wrong)))
    wrong = copy.deepcopy(session.sink)
    wrong.steps[number].emitted[0] += 1
    assert any("and its edits give" in x for x in check(wrong).problems)
    wrong = copy.deepcopy(session.sink)
    del wrong.header.method["strategy"]["max_rounds"]
    assert any("lacks the knobs" in x for x in check(wrong).problems)


def test_a_card_lists_what_changed_or_nearly_did_and_counts_the_rest() -> None:
    session = edited(model=toys.tagging_target(0), max_rounds=6)
    for step in session.sink.steps:
        card = find_tally(session.sink.header, step, lambda ids: "".join(f"({x})" for x in ids))
        places = [one.row(k) for one in passes_of(step) for k in range(len(one))]
        listed = [x for x in places if max(x["delete"], x["replace"], x["insert"]) >= 0.1]
        assert card.title == "Edits of a draft" and len(card.rows) == len(listed) < len(places)
        assert f"{len(places) - len(listed)} more stayed, with less than 0.1 for any edit." in card.lines[-1]
        assert len(card.lines) == 2, "they are said once, below the last pass"
        for row, x in zip(card.rows, listed, strict=True):
            here = "" if x["token"] is None else f"({x['token']})"
            there = {"delete": "", "replace": f"({x['instead']})", "insert": f"{here}({x['behind']})"}
            assert row.text == f"{here}→{there[x['edit']]}" and row.is_consistent


def test_a_model_without_masks_or_without_the_head_is_refused() -> None:
    bare = toys.model(toys.decoder(toys.toy_spec(causal=False, heads=("edit",)), 5))
    with pytest.raises(
        MethodError, match=r"knows none: choose a model whose config\.json gives mask_token_id"
    ):
        edited(model=bare)
    headless = toys.model(toys.decoder(toys.toy_spec(causal=False, heads=(), mask_token=12), 5))
    with pytest.raises(
        MethodError, match=r"has no heads/edit: train them with python -m decodescope\.training\.edit"
    ):
        edited(model=headless)


def test_the_shipped_head_corrects_a_mistake_and_leaves_a_right_answer_in_one_pass() -> None:
    model, passes, right = load(LAB), [], 0
    assert isinstance(model.decoder.heads["edit"], EditTagger)
    cases = ("Hugo Finn David", "Hugo Finn Paul", "Hugo David", "Hugo Finn Finn David")
    for draft in cases:
        method = Method.from_names({"strategy": "edit_tags"}, {"strategy": {"draft": f" {draft}"}})
        session = Session(
            model, method, model.tokenizer.encode("copy: Hugo Finn David ->"), max_new_tokens=10
        )
        toys.finish_session(session)
        text = model.tokenizer.decode([x for x in session.end.tokens if x not in model.stop_tokens])
        passes.append(len(passes_of(session.sink.steps[0])))
        right += text.split() == ["Hugo", "Finn", "David"]
        assert check(session.sink).ok
    assert passes[0] == 1 and right >= 3, (passes, right)
