"""Edit tags: what the rows of a pass see, tags applied as one by one, edits to a fixed point, and a draft that nobody edits."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from random import Random

import pytest
import torch
import toys

from decodescope.engine import Method, MethodError, Session, load
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.edit import EditTagger, Places
from decodescope.engine.session.load import Model
from decodescope.engine.trace import check
from decodescope.engine.trace.details.edited import (
    DELETE,
    INSERT,
    KEEP,
    REPLACE,
    Edits,
    Tagged,
    after,
    applied,
    tagged,
)

LAB = Path(__file__).resolve().parents[2] / "assets" / "models" / "lab-mdm"
MASK = toys.both().spec.mask_token


@cache
def lively(seed: int = 3) -> Model:
    """The toy model that reads both sides, with a head that wants all four tags."""
    model = toys.model(copy.copy(toys.both().decoder))
    head = toys.heads("edit", model.spec.d_model, seed)
    with torch.no_grad():
        head.tags.weight.mul_(6)
        head.tags.bias.zero_()
        head.replace.weight.mul_(4)
        head.insert.weight.mul_(4)
    model.decoder.heads = {"edit": head.moved(dtype=torch.float64)}
    return model


def edited(
    count: int = 24,
    prompt: list[int] = toys.PROMPT,
    model: Model | None = None,
    stop=(),
    sampler="greedy",
    **knobs,
):
    method = toys.method(strategy=("edit_tags", {"block": 8, **knobs}), sampler=sampler)
    session = toys.finished(
        Session(model or lively(), method, prompt, max_new_tokens=count, stop_tokens=stop, seed=5)
    )
    report = check(session.sink)
    assert report.ok, str(report)
    return session


def one_by_one(tokens: list[int], tags: list[int], words: list[list[int]]) -> list[int]:
    """The tags, applied to a list in place, from its end, so that no edit moves what the others mean."""
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
        assert applied(tokens, tags, words) == one_by_one(tokens, tags, words)
        seen |= {*tags}
    assert seen == {KEEP, DELETE, REPLACE, INSERT}


def test_an_edit_is_done_where_it_is_likelier_than_none_and_sure_enough() -> None:
    p = [[0.4, 0, 0, 0.6], [0.4, 0.4, 0.1, 0.1], [0.2, 0.3, 0.3, 0.2], [0.1, 0.1, 0.7, 0.1]]
    assert tagged(p, 0.0) == [INSERT, KEEP, DELETE, REPLACE]
    assert tagged(p, 0.6) == [INSERT, KEEP, KEEP, REPLACE] and tagged(p, 1.01) == [KEEP] * 4


def test_edits_end_at_a_fixed_point_in_a_circle_or_at_their_limit() -> None:
    def behind(tokens: list[int], tags: list[int], seen: list[list[int]], rounds=9, end=None, room=9):
        words = [[5, 6]] * len(tags)
        return after(Edits(False, room, end, [Tagged(tokens, [], words, tags)]), seen, rounds)

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
    model, at = toys.both(), Places(3, 4, True)
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    feed = at.feed(tokens, MASK)
    logits = model.decoder.forward(feed, None)[0]
    plain, probe = Probe(Needs(hidden=frozenset({"final"}))), Probe(Needs(hidden=frozenset({"final"})))
    model.decoder.forward(Feed.causal(tokens[0].tolist(), 0), None, plain)
    model.decoder.forward(feed, None, probe)
    assert torch.allclose(probe.hidden["final"][0, :8], plain.hidden["final"][0], atol=1e-9), (
        "tokens see no mask"
    )
    for i in range(9):  # each mask by itself beside the tokens
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
    at, tokens = Places(2, 2, False), torch.tensor([[7, 3, 5, 1, 9, 9, 9, 9, 9]])
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
        session = edited(model=lively(seed), rounds=6)
        for step in session.sink.steps:
            n, edits = step.n, step.edits
            fed = [one.tokens for one in step.passes]
            assert fed == [len(toys.PROMPT) + 24, *(n + 3 * len(x.tokens) + 1 for x in edits.passes)]
            for one, then in zip(edits.passes, edits.passes[1:], strict=False):
                assert then.tokens == one_by_one(one.tokens, one.tags, one.words)[: edits.room]
            last = edits.passes[-1]
            if edits.why == "fixed":
                assert (
                    one_by_one(last.tokens, last.tags, last.words)[: edits.room]
                    == last.tokens
                    == step.emitted
                )
            whys.add(edits.why)
            tags |= {tag for one in edits.passes for tag in one.tags}
        assert session.target.cache.length == 0, "no entry is kept"
    assert tags == {KEEP, DELETE, REPLACE, INSERT} and len(whys) > 1, (
        "the test needs all tags, and several ends"
    )


@pytest.mark.parametrize("sampler", ["greedy", ("temperature", dict(temperature=1.0))])
def test_a_draft_that_no_edit_is_sure_enough_for_takes_one_pass_and_stays(sampler) -> None:
    session = edited(sure=1.01, sampler=sampler)
    text = []
    for step in session.sink.steps:
        (one,) = step.edits.passes
        assert step.edits.why == "fixed" and step.emitted == one.tokens
        text += one.tokens
    masked = toys.method(
        strategy=("masked", dict(block=8)), selector=("low_confidence", dict(steps=1)), sampler=sampler
    )
    due = toys.finished(Session(lively(), masked, toys.PROMPT, max_new_tokens=24, stop_tokens=(), seed=5))
    assert text == due.end.tokens, "the draft is what masked writes in one pass"


def test_a_given_draft_is_edited_first_and_its_end_stays() -> None:
    session = edited(draft="3 9 2 4 8 1", stop=[8])
    edits = session.sink.steps[0].edits
    assert edits.given and edits.end == 8 and edits.passes[0].tokens == [3, 9, 2, 4], (
        "what stands behind an end is left out"
    )
    assert (
        session.end.reason == "stop_token"
        and session.end.tokens[-1] == 8
        and 8 not in session.end.tokens[:-1]
    )
    assert edited(draft="3 9 2 4", stop=[8]).sink.steps[0].edits.end == 8, "a draft without one gets one"
    assert edited(draft="3 9 2 4").sink.steps[0].edits.end is None


def test_check_finds_tags_texts_and_ends_that_do_not_follow() -> None:
    session = edited(rounds=3)
    number = next(i for i, step in enumerate(session.sink.steps) if len(step.edits.passes) > 1)
    first = session.sink.steps[number].edits.passes[0]
    at = next(i for i, tag in enumerate(first.tags) if tag)
    changes = {
        "tags": lambda x: x.passes[0].tags.__setitem__(at, KEEP),
        "p": lambda x: x.passes[0].p.__setitem__(at, [1.0, 0.0, 0.0, 0.0]),
        "tokens": lambda x: x.passes[1].tokens.append(0),
        "words": lambda x: x.passes[-1].words.pop(),
        "why": lambda x: setattr(x, "why", "fixed" if x.why != "fixed" else "rounds"),
        "passes": lambda x: x.passes.pop(),
        "end": lambda x: setattr(x, "end", 99),
    }
    for name, change in changes.items():
        wrong = copy.deepcopy(session.sink)
        change(wrong.steps[number].edits)
        assert not check(wrong).ok, name


def test_a_model_without_masks_or_without_the_head_is_refused() -> None:
    bare = toys.model(toys.decoder(toys.shaped(causal=False, heads=("edit",)), 5))
    with pytest.raises(
        MethodError, match=r"knows none: choose a model whose config\.json gives mask_token_id"
    ):
        edited(model=bare)
    headless = toys.model(toys.decoder(toys.shaped(causal=False, heads=(), mask_token=12), 5))
    with pytest.raises(
        MethodError, match=r"has no heads/edit: train them with python -m decodescope\.training\.edit"
    ):
        edited(model=headless)


def test_the_shipped_head_corrects_a_mistake_and_leaves_a_right_answer_in_one_pass() -> None:
    model, passes, right = load(LAB), [], 0
    assert isinstance(model.decoder.heads["edit"], EditTagger)
    cases = ("Hugo Finn David", "Hugo Finn Paul", "Hugo David", "Hugo Finn Finn David")
    for draft in cases:
        method = Method.named({"strategy": "edit_tags"}, {"strategy": {"draft": f" {draft}"}})
        session = Session(
            model, method, model.tokenizer.encode("copy: Hugo Finn David ->"), max_new_tokens=10
        )
        toys.finished(session)
        text = model.tokenizer.decode([x for x in session.end.tokens if x not in model.stop_tokens])
        passes.append(len(session.sink.steps[0].edits.passes))
        right += text.split() == ["Hugo", "Finn", "David"]
        assert check(session.sink).ok
    assert passes[0] == 1 and right >= 3, (passes, right)
