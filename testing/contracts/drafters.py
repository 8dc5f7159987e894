"""What every drafter has to keep: the text is the target's, drafts are trees that fit, and guesses leave no trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.session import Session
from decodescope.engine.trace import check
from decodescope.testing import toys

Settings = dict[str, Any]


def drafting_session(
    name: str, settings: Settings, sampler: str = "greedy", prompt: Sequence[int] = toys.PROMPT, **more: Any
) -> Session:
    """A session of the lively toy that drafts with this drafter. more: for the Session"""
    target, _ = toys.pair()
    method = toys.method(drafter=(name, settings), sampler=sampler)
    return Session(
        target, method, list(prompt), models=toys.helper_models(), **{"max_new_tokens": 40, **more}
    )


def collect_proposals(session: Session) -> Iterator[tuple[Draft, int]]:
    """Every draft of a run, seen before the target reads it, with its limit."""
    session.start()
    propose, seen = session.drafter.propose, list[tuple[Draft, int]]()

    def noted(context: Any) -> Draft:
        draft = propose(context)
        seen.append((draft, context.room))
        return draft

    session.drafter.propose = noted  # type: ignore[method-assign, assignment] # of this session's own copy
    while not session.is_done:
        session.step()
        yield seen[-1]


def text_is_the_targets_own(name: str, settings: Settings, count: int = 20, prompts: int = 0) -> None:
    """The greedy text equals that of plain decoding, and the trace agrees with itself."""
    target, _ = toys.pair()
    for prompt in [toys.PROMPT, [5], *toys.prompts(prompts)]:
        session = toys.decode(toys.method(drafter=(name, settings)), prompt, count)
        text, due = session.tokens[len(prompt) :], toys.cached_greedy_text(target, prompt, count)
        assert text == due, f"behind the prompt {prompt} it wrote {text}, and plain decoding writes {due}"
        report = check(toys.session_trace(session))
        assert report.ok, str(report)


def draft_is_a_tree_that_fits(
    name: str, settings: Settings, sampler: str = "greedy", count: int = 20
) -> None:
    """Drafts are no deeper than the room; parents come before children; siblings differ, unless they were drawn independently;
    a drawn node has the normalised distribution that it was drawn from."""
    session = drafting_session(name, settings, sampler, seed=4, max_new_tokens=count)
    for draft, room in collect_proposals(session):
        assert max(draft.depth, default=0) <= room, "a deeper draft would be cut"
        assert all(-1 <= parent < node for node, parent in enumerate(draft.parents)), (
            "a parent stands before its children"
        )
        assert all(0 <= token < toys.SPEC.vocab for token in draft.tokens), "a token is no id of the model"
        assert draft.is_chain or session.method.drafter.branches, (
            "a drafter that drafts trees says so (`branch_texts`)"
        )
        for place in range(-1, len(draft)):
            tokens = [draft.tokens[child] for child in draft.children(place)]
            assert len(set(tokens)) == len(tokens) or draft.kind in ("iid", "mixed"), (
                "only independent draws may be equal"
            )
        if sampler == "greedy" or not draft.tokens:
            assert draft.q is None, "under a greedy sampler nothing is drawn"
        else:
            assert draft.kind == session.method.drafter.proposes, "`proposes` says how its nodes are drawn"
            check_distributions(draft)


def check_distributions(draft: Draft) -> None:
    """Each drawn node has a normalised distribution: positive at the node, zero at its earlier siblings."""
    for node, token in enumerate(draft.tokens):
        law = draft.law(node)
        if law is None:
            assert draft.kind in ("onehot", "mixed"), f"node {node} was drawn, and has no distribution"
            continue
        total = float(law.sum())
        assert abs(total - 1) < 1e-9 and float(law[token]) > 0, (
            f"the distribution of node {node} sums to {total}"
        )
        earlier = [draft.tokens[x] for x in draft.children(draft.parents[node]) if x < node]
        if draft.kind == "without_replacement":
            assert float(law[earlier].sum()) == 0, f"node {node} could be one of its earlier siblings"


@torch.inference_mode()
def read_alone(decoder: Decoder, texts: list[list[int]]) -> torch.Tensor:
    """float [R, V]: the logits after each of the texts, every text read from its beginning without any cache."""
    logits = torch.empty(len(texts), decoder.vocab, dtype=decoder.dtype)
    for length in {len(text) for text in texts}:
        rows = [i for i, text in enumerate(texts) if len(text) == length]
        tokens, positions = torch.tensor([texts[i] for i in rows]), torch.arange(length).expand(len(rows), -1)
        logits[rows] = decoder.forward(Feed(tokens, positions, logits="last"), None)[:, 0]
    return logits


def branch_texts(text: list[int], draft: Draft) -> list[list[int]]:
    """The text up to the root, then up to each node of the draft."""
    texts = [text]
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        texts.append([*texts[parent + 1], token])
    return texts


def one_pass_equals_reading_each_branch(name: str, settings: Settings, sampler: str = "greedy") -> None:
    """The pass that verifies a draft gives each node the logits of its branch read alone."""
    session = drafting_session(name, settings, sampler, seed=2)
    session.start()
    observe, seen = session.drafter.observe, list[Any]()

    def noted(outcome: Any) -> None:
        seen.append(outcome)
        observe(outcome)

    session.drafter.observe = noted  # type: ignore[method-assign] # of this session's own copy
    for _ in range(7):
        text = list(session.tokens)
        session.step()
        assert seen[-1].draft.visible is None, "a drafter with a mask of its own has this test made for it"
        due = read_alone(session.target.decoder, branch_texts(text, seen[-1].draft))
        assert torch.allclose(seen[-1].logits, due, atol=1e-9), "the pass and the branches read alone differ"
    assert sum(len(outcome.draft) for outcome in seen) > 0 or drafts_nothing(name, settings), (
        "it drafted nothing"
    )


def drafts_nothing(name: str, settings: Settings) -> bool:
    """Whether the drafter is meant to draft nothing."""
    drafter = cast(Drafter, build("drafter", name, settings))
    return not drafter.drafts


def draws_from_draft_model(name: str, settings: Settings) -> None:
    """A drawn node's distribution is the draft model's after its branch alone, without the earlier siblings that were excluded.
    For drafters that draw from one draft model."""
    session, drawn = drafting_session(name, settings, "temperature", seed=3), 0
    session.start()
    for _ in range(4):
        text = list(session.tokens)
        draft = _draft_of(session)
        logits = read_alone(session.lanes["draft"].decoder, branch_texts(text, draft))
        for node, parent in enumerate(draft.parents):
            q = draft.law(node)
            if q is None:
                continue
            due = session.context.law(logits[parent + 1], session.sampler_state)
            if draft.kind == "without_replacement":
                earlier = torch.tensor([draft.tokens[x] for x in draft.children(parent) if x < node])
                due = due.index_fill(0, earlier.long(), 0.0)
            assert torch.allclose(q, due / due.sum(), atol=1e-9), f"node {node} was drawn from something else"
            drawn += 1
        session.step()
    assert drawn > 5, "the test needs drawn nodes"


@torch.inference_mode()
def _draft_of(session: Session) -> Draft:
    """A draft of the session in its present state; the session's chance is not used up."""
    session.chance, kept = session.chance.copy(), session.chance
    draft = session.drafter.propose(session.context)
    session.chance = kept
    return draft


def guesses_leave_no_trace(
    name: str, settings: Settings, sampler: str = "greedy", count: int = 20, wrong: int = 4
) -> None:
    """After a proposal, nothing is pending in the target except layers that verification need not run again; after a commit,
    every cache equals a new reading of the text. wrong: guesses that must have been refused, or the test shows nothing"""
    session = drafting_session(name, settings, sampler, seed=1, max_new_tokens=count)
    session.start()
    refused = 0
    while not session.is_done:
        draft = _draft_of(session)
        for store in session.target.cache.layers:
            entries = draft.entries or [draft.enter] * (len(draft) + 1)
            assert store.m == sum(layer > store.layer for layer in entries), (
                "entries of guesses are left pending"
            )
        step = session.step()
        refused += step.drafted - step.accepted
        assert session.target.tokens == session.tokens[:-1], "the target's cache holds another text"
        assert toys.matches_fresh_reading(session.target), "the target's cache is not that of a new reading"
        assert all(toys.matches_fresh_reading(lane) for lane in session.lanes.values()), (
            "a draft model's cache is not"
        )
    assert refused > wrong or drafts_nothing(name, settings), (
        f"only {refused} guesses were wrong, so this shows nothing"
    )


def progress_is_counted(name: str, settings: Settings) -> None:
    """Every step emits tokens in one pass of the target: the accepted ones and one more."""
    trace = toys.session_trace(toys.decode(toys.method(drafter=(name, settings)), count=30))
    for step in trace.steps:
        verify = [x for x in step.passes if x.lane == "target" and x.phase == "verify"]
        aside = 0 if step.draft is None else len(step.draft.passengers or ())
        rows = [x.tokens - (x.slots or 0) - aside for x in verify]
        assert rows == [step.drafted + 1], (
            f"step {step.step} drafted {step.drafted}, and its passes read {rows} rows"
        )
        assert len(step.emitted) == step.accepted + int(step.extra is not None) >= 1, (
            f"step {step.step} miscounts"
        )
    assert sum(len(step.emitted) for step in trace.steps) == 30, (
        "the text has another length than was asked for"
    )


def short_answer_has_its_length(name: str, settings: Settings, count: int = 1) -> None:
    """An answer of one token has one token."""
    session = toys.decode(toys.method(drafter=(name, settings)), count=count)
    assert len(session.tokens) == len(toys.PROMPT) + count, (
        f"{len(session.tokens) - len(toys.PROMPT)} of {count}"
    )
    assert session.end is not None and session.end.reason == "max_new_tokens", "it ended for another reason"


def models_it_needs_are_named(name: str, settings: Settings) -> None:
    """Without a model in a role that it reads, the refusal names the role; without roles it runs alone."""
    drafter = build("drafter", name, settings)
    target, _ = toys.pair()
    try:
        session = Session(target, toys.method(drafter=(name, settings)), toys.PROMPT)
    except ValueError as error:
        first = f"{name} needs a model in the role {drafter.lanes[0]!r}" if drafter.lanes else ""
        assert first and first in str(error) and str(error).endswith("."), f"the refusal says {error}"
    else:
        assert not drafter.lanes and session.lanes == {}, "it names roles and runs without them"


def proposes_by_draft_model(name: str, settings: Settings) -> bool:
    """Whether it draws its nodes from one draft model, which has read the nodes above."""
    drafter = cast(Drafter, build("drafter", name, settings))
    return drafter.lanes == ("draft",) and drafter.proposes != "onehot" and not drafter.independent
