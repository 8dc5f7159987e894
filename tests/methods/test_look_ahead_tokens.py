"""PaSS: after the text the target guesses what it will write later; two passes in turn, or both in one."""

from __future__ import annotations

import pytest
import torch
import toys
from drafting import path_of

from decodescope.engine import MethodError, Session
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.replay.exact_distribution import exact_distribution

V5 = toys.model(toys.decoder(toys.toy_spec(vocab=5), 3, torch.float64, sharp=2.0))
KIND = "look_ahead_tokens"


def steps(where: str, count: int = 12, sampler: str = "greedy"):
    """(text with the root last, outcome) of the first steps of a run of the lively target."""
    session = Session(
        toys.pair()[0],
        toys.method(drafter=(KIND, {"placement": where}), sampler=sampler),
        toys.PROMPT,
        seed=5,
    )
    session.start()
    observe, seen = session.drafter.observe, []
    session.drafter.observe = lambda outcome: (seen.append(outcome), observe(outcome))[1]  # type: ignore[method-assign]
    for _ in range(count):
        text = list(session.tokens)
        session.step()
        yield text, seen[-1]


@torch.inference_mode()
def alone(text: list[int], count: int) -> torch.Tensor:
    """float64 [count, V]: the lively target's output in look-ahead tokens after a text, read as one plain sequence."""
    decoder = toys.pair()[0].decoder
    feed = Feed.causal_chain([*text, *[0] * count], 0)
    feed.embeds = torch.nn.functional.pad(decoder.heads[KIND].embeds[:count, 0], (0, 0, len(text), 0))[None]
    feed.embed_rows = torch.arange(len(text) + count) >= len(text)
    return decoder.forward(feed, None)[0, len(text) :]


@pytest.mark.parametrize("where", ["alone", "everywhere"])
def test_a_draft_is_what_the_target_says_in_the_look_ahead_tokens_behind_the_token_before_the_root(
    where: str,
) -> None:
    """The k-th look-ahead token guesses the k-th drafted token.

    It sees nothing after the token before the root: not the root.
    """
    drafted = 0
    for text, outcome in steps(where):
        draft = outcome.draft
        assert draft.tokens == alone(text[:-1], len(draft)).argmax(-1).tolist() and draft.is_chain
        assert draft.notes["look_ahead"] == list(range(1, len(draft) + 1))
        drafted += len(draft)
    assert drafted > 12


def test_passes_take_turns_or_do_both() -> None:
    for i, (_, outcome) in enumerate(steps("alone")):
        assert (len(outcome.draft), outcome.slots is not None) == ((3, False) if i % 2 else (0, True))
        assert outcome.draft.notes["slots"] == ([0, 0, 0, 0] if i % 2 else [3])
    for i, (text, outcome) in enumerate(steps("everywhere")):
        assert outcome.draft.notes["slots"] == [3] * (len(outcome.draft) + 1) and len(outcome.draft) == (
            3 if i else 0
        )
        for place in range(len(outcome.draft) + 1):
            due = alone([*text, *path_of(outcome.draft, place - 1)], 3)
            assert torch.allclose(outcome.slots[3 * place : 3 * place + 3], due, atol=1e-9)


def test_what_is_drawn_is_told_with_what_it_was_drawn_from() -> None:
    """If the sampler draws, q is the look-ahead token's distribution under it, and the uniform draws the token from q."""
    drawn = 0
    for text, outcome in steps("everywhere", 16, "temperature"):
        draft = outcome.draft
        if not draft.tokens:
            continue
        assert draft.kind == "iid" and draft.q_row == [0, 1, 2]
        assert torch.allclose(draft.q.double(), alone(text[:-1], 3).softmax(-1), atol=1e-9)
        for token, q, u in zip(draft.tokens, draft.q, draft.u, strict=True):
            below = q.double().cumsum(0)
            assert below[token] - q[token] - 1e-12 <= u < below[token] + 1e-12
            drawn += token != int(q.argmax())
    assert drawn > 3, "the test needs chance"


@pytest.mark.parametrize("where", ["alone", "everywhere"])
def test_nothing_is_asked_that_can_no_longer_be_drafted_and_a_text_costs_a_pass_a_step(where: str) -> None:
    session = toys.decode(toys.method(drafter=(KIND, {"placement": where})), count=20)
    late = [step.draft.notes["slots"] for step in session.sink.steps[-3:] if step.draft is not None]
    assert all(len([x for x in step.passes if x.lane == "target"]) == 1 for step in session.sink.steps)
    assert session.end.tokens == toys.cached_greedy_text(toys.pair()[0], toys.PROMPT, 20) and any(
        max(x) < 3 for x in late
    )


def test_length_bounds_what_is_asked() -> None:
    session = toys.decode(
        toys.method(drafter=(KIND, {"max_draft_tokens": 2, "placement": "everywhere"})), count=20
    )
    drafts = [step.draft for step in session.sink.steps if step.draft is not None]
    assert max(len(x.tokens) for x in drafts) == 2 and max(max(x.notes["slots"]) for x in drafts) == 2


def test_leaving_early_is_refused() -> None:
    with pytest.raises(
        MethodError, match=r"^look_ahead_tokens puts trained tokens into the check.*all_layers\.$"
    ):
        Session(toys.pair()[0], toys.method(drafter=KIND, adaptive_depth="confidence_exit"), toys.PROMPT)


@pytest.mark.parametrize("where", ["alone", "everywhere"])
def test_law_is_the_targets_by_counting_every_outcome(where: str) -> None:
    knobs = {"temperature": {"temperature": 1.0}, "top_k": {"k": 2}}
    names = {"sampler": ["temperature", "top_k"]}
    plain = toys.Method.from_names(names, knobs)
    drafted = toys.Method.from_names(
        {**names, "drafter": KIND}, {**knobs, "drafter": {"placement": where, "max_draft_tokens": 2}}
    )
    counted, due = (
        exact_distribution(V5, drafted, [1, 2, 1, 3], 4),
        exact_distribution(V5, plain, [1, 2, 1, 3], 4),
    )
    assert len(due) >= 8 and counted == pytest.approx(due, abs=1e-12)
