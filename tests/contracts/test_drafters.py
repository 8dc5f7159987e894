"""What every drafter owes: the text is the target's, drafts are well-formed trees, and guesses leave no trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import toys
from sizes import in_turns, sizes

from decodescope.engine import Session
from decodescope.engine.core.component import build
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check

DRAFTERS = toys.variants("drafter")
DRAWN = [
    x for x in DRAFTERS if (made := build("drafter", *x)).lanes == ("draft",) and made.proposes != "onehot"
]


def drafting(
    name: str, settings: dict, sampler: str = "greedy", prompt: list[int] = toys.PROMPT, **more
) -> Session:
    target, _ = toys.pair()
    method = toys.method(drafter=(name, settings), sampler=sampler)
    return Session(target, method, prompt, models=toys.helpers(), **{"max_new_tokens": 40, **more})


def proposals(session: Session) -> Iterator[tuple[Draft, int]]:
    """Every draft of a run, seen before the target reads it, and the room it was given."""
    session.start()
    propose, seen = session.drafter.propose, []
    session.drafter.propose = lambda ctx: seen.append((propose(ctx), ctx.room)) or seen[-1][0]  # type: ignore[method-assign]
    while not session.done:
        session.step()
        yield seen[-1]


@pytest.mark.parametrize(("name", "settings"), DRAFTERS)
@sizes("count, more", usual=(20, 0), full=(40, 3))
def test_greedy_text_is_the_targets_own(name: str, settings: dict, count: int, more: int) -> None:
    target, _ = toys.pair()
    for prompt in [toys.PROMPT, [5], *toys.prompts(more)]:
        session = toys.decode(toys.method(drafter=(name, settings)), prompt, count)
        assert session.tokens[len(prompt) :] == toys.due(target, prompt, count)
        assert check(session.sink).ok


@pytest.mark.parametrize(("name", "settings", "sampler"), in_turns(DRAFTERS, ["greedy", "temperature"]))
@sizes("count", usual=20, full=40)
def test_draft_is_a_tree_that_fits(name: str, settings: dict, sampler: str, count: int) -> None:
    session = drafting(name, settings, sampler, seed=4, max_new_tokens=count)
    for draft, room in proposals(session):
        assert max(draft.depth, default=0) <= room, "a deeper draft would be cut"
        assert all(-1 <= parent < node for node, parent in enumerate(draft.parents)), (
            "a parent stands before its children"
        )
        assert all(0 <= token < toys.SPEC.vocab for token in draft.tokens)
        assert draft.is_chain or session.method.drafter.branches, "who drafts trees says so"
        for place in range(-1, len(draft)):
            tokens = [draft.tokens[child] for child in draft.children(place)]
            assert len(set(tokens)) == len(tokens) or draft.kind in ("iid", "mixed"), (
                "only independent draws may be equal"
            )
        if sampler == "greedy" or not draft.tokens:
            assert draft.q is None
        else:
            assert draft.kind == session.method.drafter.proposes
            laws_hold(draft)


def laws_hold(draft: Draft) -> None:
    """Each drawn node has the normalised law it was drawn from: positive on the node, zero on its earlier siblings."""
    for node, token in enumerate(draft.tokens):
        law = draft.law(node)
        if law is None:
            assert draft.kind in ("onehot", "mixed")
            continue
        assert abs(float(law.sum()) - 1) < 1e-9 and float(law[token]) > 0
        earlier = [draft.tokens[x] for x in draft.children(draft.parents[node]) if x < node]
        if draft.kind == "without_replacement":
            assert float(law[earlier].sum()) == 0


@torch.inference_mode()
def read_alone(decoder: Decoder, texts: list[list[int]]) -> torch.Tensor:
    """float [R, V]: the logits after each of the texts, every text read from its beginning without any cache."""
    made = torch.empty(len(texts), decoder.vocab, dtype=decoder.dtype)
    for length in {len(text) for text in texts}:
        rows = [i for i, text in enumerate(texts) if len(text) == length]
        tokens, positions = torch.tensor([texts[i] for i in rows]), torch.arange(length).expand(len(rows), -1)
        made[rows] = decoder.forward(Feed(tokens, positions, logits="last"), None)[:, 0]
    return made


def branches(text: list[int], draft: Draft) -> list[list[int]]:
    """The text up to the root, then up to each node of the draft."""
    made = [text]
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        made.append([*made[parent + 1], token])
    return made


@pytest.mark.parametrize(("name", "settings", "sampler"), in_turns(DRAFTERS, ["greedy", "temperature"]))
def test_one_pass_over_a_draft_equals_reading_every_branch_alone(
    name: str, settings: dict, sampler: str
) -> None:
    session = drafting(name, settings, sampler, seed=2)
    session.start()
    observe, seen = session.drafter.observe, []
    session.drafter.observe = lambda outcome: (seen.append(outcome), observe(outcome))[1]  # type: ignore[method-assign]
    for _ in range(7):
        text = list(session.tokens)
        session.step()
        assert seen[-1].draft.visible is None, "a drafter with a mask of its own has this test made for it"
        due = read_alone(session.target.decoder, branches(text, seen[-1].draft))
        assert torch.allclose(seen[-1].logits, due, atol=1e-9)
    assert sum(len(outcome.draft) for outcome in seen) > 0 or name == "none", "the test needs drafts"


@pytest.mark.parametrize(("name", "settings"), DRAWN)
def test_recorded_law_is_that_of_the_draft_model_reading_the_branch_alone(name: str, settings: dict) -> None:
    """Also where the draft model read a whole level in one pass; earlier siblings are taken out of it where they were."""
    session, drawn = drafting(name, settings, "temperature", seed=3), 0
    session.start()
    for _ in range(4):
        text = list(session.tokens)
        with torch.inference_mode():
            session.chance, kept = session.chance.copy(), session.chance
            draft = session.drafter.propose(session.context)
            session.chance = kept
        logits = read_alone(session.lanes["draft"].decoder, branches(text, draft))
        for node, parent in enumerate(draft.parents):
            q = draft.law(node)
            if q is None:
                continue
            due = session.context.law(logits[parent + 1], session.sampler_state)
            if draft.kind == "without_replacement":
                due = due.index_fill(
                    0, torch.tensor([draft.tokens[x] for x in draft.children(parent) if x < node]).long(), 0.0
                )
            assert torch.allclose(q, due / due.sum(), atol=1e-9)
            drawn += 1
        session.step()
    assert drawn > 5, "the test needs drawn nodes"


@pytest.mark.parametrize(("name", "settings", "sampler"), in_turns(DRAFTERS, ["greedy", "temperature"]))
@sizes("count, wrong", usual=(20, 4), full=(40, 10))
def test_guesses_leave_no_trace(name: str, settings: dict, sampler: str, count: int, wrong: int) -> None:
    """After a proposal nothing is pending in the target but the layers that the check need not run again; after a commit
    every cache equals a new reading of the text."""
    session = drafting(name, settings, sampler, seed=1, max_new_tokens=count)
    session.start()
    refused = 0
    while not session.done:
        with torch.inference_mode():
            session.chance, kept = session.chance.copy(), session.chance
            draft = session.drafter.propose(session.context)
            session.chance = kept
        for store in session.target.cache.layers:
            entries = draft.entries or [draft.enter] * (len(draft) + 1)
            assert store.m == sum(layer > store.layer for layer in entries)
        step = session.step()
        refused += step.drafted - step.accepted
        assert session.target.tokens == session.tokens[:-1]
        assert toys.same_as_fresh(session.target)
        assert all(toys.same_as_fresh(lane) for lane in session.lanes.values())
    assert refused > wrong or name == "none", "the test needs guesses that were wrong"


@pytest.mark.parametrize(("name", "settings"), DRAFTERS)
def test_drafter_makes_progress_and_keeps_its_books(name: str, settings: dict) -> None:
    """Every step emits, in one pass of the target; what was emitted is what was accepted and one token more."""
    trace = toys.decode(toys.method(drafter=(name, settings)), count=30).sink
    for step in trace.steps:
        verify = [x for x in step.passes if x.lane == "target" and x.phase == "verify"]
        aside = 0 if step.draft is None else len(step.draft.passengers or ())
        assert [x.tokens - (x.slots or 0) - aside for x in verify] == [step.drafted + 1]
        assert len(step.emitted) == step.accepted + (step.extra is not None) >= 1
    assert sum(len(step.emitted) for step in trace.steps) == 30


@pytest.mark.parametrize(("name", "settings", "count"), in_turns(DRAFTERS, [1, 2, 3]))
def test_short_answer_has_its_exact_length(name: str, settings: dict, count: int) -> None:
    session = toys.decode(toys.method(drafter=(name, settings)), count=count)
    assert len(session.tokens) == len(toys.PROMPT) + count and session.end.reason == "max_new_tokens"


@pytest.mark.parametrize(("name", "settings"), DRAFTERS)
def test_drafter_lists_the_models_it_needs(name: str, settings: dict) -> None:
    drafter = build("drafter", name, settings)
    target, _ = toys.pair()
    if drafter.lanes:
        with pytest.raises(ValueError, match=rf"{name} needs a model in the role '{drafter.lanes[0]}'.*\.$"):
            Session(target, toys.method(drafter=(name, settings)), toys.PROMPT)
    else:
        assert Session(target, toys.method(drafter=(name, settings)), toys.PROMPT).lanes == {}
