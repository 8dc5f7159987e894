"""The temperature of a draft: at 0 it takes the likeliest tokens, else it draws from q at that temperature; no text changes."""

from __future__ import annotations

import pytest
import toys

from decodescope.engine import MethodError
from decodescope.engine.core.component import build, registry
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.trace import check
from decodescope.testing.contracts.drafters import collect_proposals, drafting_session
from decodescope.testing.toys import feed_tokens

WARM = ("temperature", {"temperature": 1.3})
DRAWING = [x for x in toys.representatives("drafter") if build("drafter", *x).proposes != "onehot"]
KNOB = "draft_temperature"


def first_draft(name: str, settings: dict, sampler: object) -> Draft:
    """The draft of the first step, which follows the same text whatever the sampler draws."""
    return next(collect_proposals(drafting_session(name, settings, sampler)))[0]  # type: ignore[arg-type]


def test_every_drafter_that_draws_has_the_knob_once() -> None:
    have = {name for name, cls in registry("drafter").items() if KNOB in {p.name for p in cls.params()}}
    assert {name for name, _ in DRAWING} - have == {"sjd"}, "sjd keeps what the target drew"


@pytest.mark.parametrize(("name", "settings"), [x for x in DRAWING if x[0] != "sjd"])
def test_at_zero_a_draft_is_that_of_a_greedy_sampler(name: str, settings: dict) -> None:
    """No distribution, no uniform: the rule must take each node as one-hot."""
    cold = first_draft(name, {**settings, KNOB: 0.0}, WARM)
    greedy = first_draft(name, settings, "greedy")
    assert (cold.tokens, cold.parents, cold.kind) == (greedy.tokens, greedy.parents, "onehot")
    assert cold.q is None and cold.u is None
    assert cold.tokens or name in ("look_ahead_tokens", "space"), "the test needs drafts"


@pytest.mark.parametrize("heat", [0.5, 2.0])
def test_q_is_the_draft_models_law_at_that_temperature(heat: float) -> None:
    """The temperature of the draft takes the place of the target's; what its top-k removes stays removed."""
    stages = {"stages": [build("sampler", "temperature", WARM[1]), build("sampler", "top_k", {"k": 4})]}
    method = toys.method(drafter=("draft_model", {"max_draft_tokens": 1, KNOB: heat}))
    method.sampler = registry("sampler")["chain"](**stages)  # type: ignore[assignment, call-arg]
    session = toys.open_session(method)
    draft, _ = next(collect_proposals(session))
    lane = toys.open_session(toys.method(drafter="draft_model")).lanes["draft"]
    z = feed_tokens(lane, *toys.PROMPT)[-1] / heat
    kept = z.topk(4).indices
    due = z.new_zeros(len(z)).index_copy(0, kept, z[kept].softmax(0))
    assert float((draft.law(0) - due).abs().max()) < 1e-9


def test_a_one_hot_draft_is_kept_as_often_as_the_target_writes_it() -> None:
    session = toys.decode(
        toys.method(drafter=("draft_model", {"max_draft_tokens": 3, KNOB: 0.0}), sampler=WARM), count=60
    )
    assert session.header.lossless and check(session.sink).ok
    trials = [step.trials for step in session.sink.steps if step.trials]
    assert all(set(t.q) == {1.0} and t.threshold == t.p for t in trials)
    assert 5 < sum(sum(t.ok) for t in trials) < sum(len(t.ok) for t in trials), "the test needs both outcomes"


def test_a_rule_for_drawn_drafts_alone_is_refused() -> None:
    method = toys.method(drafter=("draft_model", {KNOB: 0.0}), sampler=WARM, acceptance="block")
    with pytest.raises(MethodError, match="exact for drafts that are iid; those of draft_model are onehot"):
        toys.open_session(method)


def test_the_header_says_the_temperature() -> None:
    for value in ("auto", 0.5):
        session = toys.decode(toys.method(drafter=("draft_model", {KNOB: value}), sampler=WARM), count=3)
        assert session.header.method["drafter"][KNOB] == value
