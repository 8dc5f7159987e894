"""PPD: prompt tokens guess after the nodes of the check, disturb nothing there, and share its rows in the best way."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
import toys
from drafting import path_of

from decodescope.engine import MethodError, Session
from decodescope.engine.decoding.shared import verify_cost as curve
from decodescope.engine.decoding.values.draft import ROOT, Draft, Slots
from decodescope.engine.methods.drafters.heads.ppd import RATES, SIZES
from decodescope.engine.methods.drafters.shared.slot_plan import (
    RESTART,
    SlotTree,
    _tree_with_ends,
    distribute_slots,
    evaluate_trees,
    slot_plan,
)
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.drafting.ppd import PromptTokens
from decodescope.engine.model.heads.drafting.slot_tokens import slot_mask
from decodescope.engine.session.replay.exact_distribution import exact_distribution

V5 = toys.model(toys.decoder(toys.toy_spec(vocab=5), 3, torch.float64, sharp=2.0))


def steps(rows: int, count: int = 8, sampler: str = "greedy", prompt: list[int] = toys.PROMPT):
    """(text with the root last, outcome) of the first steps of a run of the lively target."""
    session = Session(
        toys.pair()[0], toys.method(drafter=("ppd", {"rows": str(rows)}), sampler=sampler), prompt, seed=5
    )
    session.start()
    observe, seen = session.drafter.observe, []
    session.drafter.observe = lambda outcome: (seen.append(outcome), observe(outcome))[1]  # type: ignore[method-assign]
    for _ in range(count):
        text = list(session.tokens)
        session.step()
        yield text, seen[-1], session.drafter


@torch.inference_mode()
def alone(text: list[int], prompts: torch.Tensor) -> torch.Tensor:
    """float64 [V]: the lively target's logits after a text and the embeddings [n, d] after it, read as one plain sequence."""
    n = len(prompts)
    feed = Feed.causal_chain([*text, *[0] * n], 0, logits="last")
    feed.embeds = torch.nn.functional.pad(prompts, (0, 0, len(text), 0))[None]
    feed.embed_rows = torch.arange(len(text) + n) >= len(text)
    return toys.pair()[0].decoder.forward(feed, None)[0, 0]


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_slots_change_no_logits_of_the_tree(sampler: str) -> None:
    """The pass with prompt tokens equals the same pass without them, row by row; and nothing of them is kept."""
    ridden = 0
    for text, outcome, _ in steps(24, sampler=sampler):
        draft = outcome.draft
        if draft.slots is None or not draft.tokens:
            continue
        decoder = toys.pair()[0].decoder
        with torch.inference_mode():
            session = Session(toys.pair()[0], toys.method(), text)
            session.start()
            plain = decoder.forward(
                Draft(draft.tokens, draft.parents).build_feed(text[-1], len(text) - 1), session.target.cache
            )[0]
            session.target.rollback()
            ridden_pass = decoder.forward(draft.build_feed(text[-1], len(text) - 1), session.target.cache)[0]
        assert torch.allclose(outcome.logits, plain, atol=1e-12) and torch.allclose(
            ridden_pass[: len(plain)], plain, atol=1e-12
        )
        ridden += len(draft.slots)
    assert ridden > 30, "the test needs prompt tokens beside candidates"


def test_a_slot_says_what_the_target_says_behind_its_branch_and_the_prompt_tokens_before_it() -> None:
    head: PromptTokens = toys.pair()[0].decoder.heads["ppd"]
    compared = 0
    for text, outcome, _ in steps(24, count=5):
        slots = outcome.draft.slots
        rows = head.rows(outcome.draft.notes["slots"]).T.tolist()
        for i, (node, (place, number, member)) in enumerate(zip(slots.at, rows, strict=True)):
            assert node == place - 1 and slots.steps[i] == number + 1
            due = alone([*text, *path_of(outcome.draft, node)], head.embeds[: number + 1, member])
            assert torch.allclose(outcome.slots[i], due, atol=1e-9)
            compared += 1
    assert compared > 40


def test_the_next_draft_holds_the_mean_guesses_of_the_last_node_of_the_path() -> None:
    before, used = None, 0
    for _, outcome, _ in steps(24, count=12):
        draft = outcome.draft
        if before is not None:
            old = before.draft.slots
            last = before.verdict.path[-1] if before.verdict.path else ROOT
            mine = before.slots[[i for i, node in enumerate(old.at) if node == last]]
            guesses = mine.view(-1, 2, mine.shape[-1]).mean(1).argsort(1, descending=True)  # two members each
            assert draft.notes["state"] == len(guesses) == before.draft.notes["slots"][last + 1]
            for node, rank in enumerate(draft.notes["ranks"]):
                assert draft.tokens[node] == guesses[draft.depth[node] - 1, rank]
                used += 1
        before = outcome
    assert used > 10, "the test needs drafts"


def test_members_see_their_own_line_only() -> None:
    rows = PromptTokens(8, heads=3, ensemble=2).rows([2, 0, 1])
    assert rows.T.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [2, 0, 0], [2, 0, 1]]
    seen = [[x for x, sees in enumerate(row) if sees] for row in slot_mask(rows).tolist()]
    assert seen == [[0], [1], [0, 2], [1, 3], [4], [5]]


def test_positions_and_mask_of_a_pass_with_slots() -> None:
    """Root, a chain of two, one slot after node 0 and two after the root."""
    sees = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 1, 1]]).bool()
    slots = Slots([0, ROOT, ROOT], [1, 1, 2], sees, torch.zeros(3, 4))
    feed = Draft.chain([7, 8], slots=slots).build_feed(5, 10)
    assert feed.tokens[0, :3].tolist() == [5, 7, 8] and feed.slots == 3 and feed.highest == 12
    assert (
        feed.positions[0].tolist() == [10, 11, 12, 12, 11, 12]
        and feed.embed_rows.tolist() == [False] * 3 + [True] * 3
    )
    assert feed.visible[0].int().tolist() == [
        [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 1],
    ]  # fmt: skip


def test_first_step_drafts_nothing_and_asks() -> None:
    _, outcome, _ = next(steps(16))
    assert (
        not outcome.draft.tokens
        and set(outcome.draft.slots.at) == {ROOT}
        and outcome.draft.notes["state"] == 0
    )
    _, outcome, _ = next(steps(16, prompt=[4]))
    assert not outcome.draft.tokens and len(outcome.draft.slots) > 0


def test_nothing_is_asked_that_can_no_longer_be_drafted() -> None:
    """A prompt token k + 1 positions after a node of depth d guesses the token d + k + 2 levels below the root.

    A step that may emit n tokens drafts n - 1 levels, and the next one begins a level below the node and its own token.
    """
    session = Session(
        toys.pair()[0], toys.method(drafter=("ppd", {"rows": "32"})), toys.PROMPT, max_new_tokens=6, seed=5
    )
    session.start()
    propose, late = session.drafter.propose, 0
    session.drafter.propose = lambda ctx: seen.append((propose(ctx), ctx.room)) or seen[-1][0]  # type: ignore[method-assign]
    seen: list[tuple[Draft, int]] = []
    while not session.is_done:
        session.step()
        draft, room = seen[-1]
        asked = [] if draft.slots is None else list(zip(draft.slots.at, draft.slots.steps, strict=True))
        assert all((draft.depth[node] if node >= 0 else 0) + step + 1 <= room for node, step in asked)
        late += room <= 3
    assert late and any(draft.slots is None for draft, _ in seen) and any(draft.slots for draft, _ in seen)


# ---- how the rows are shared

TINY = [((0.6, 0.3), (0.4, 0.2)), ((0.5, 0.1), (0.45, 0.05)), ((0.2, 0.2), (0.9, 0.1))]


def chain_of(trees: tuple[SlotTree, ...]) -> np.ndarray:
    """float [K + 1, K + 1]: the probability with which each state follows each."""
    states = range(len(trees))
    return np.array(
        [[sum(e for e, k in zip(x.ends, x.slots, strict=True) if k == s) for s in states] for x in trees]
    )


def gain(trees: tuple[SlotTree, ...]) -> float:
    """Tokens per step in a long run that begins in state 0."""
    power = (
        np.eye(len(trees)) + chain_of(trees)
    ) / 2  # the lazy chain has the same long-run distribution and no cycles
    for _ in range(14):
        power = power @ power
    return float(power[0] @ np.array([x.template.expected for x in trees]))


@pytest.mark.parametrize("rates", TINY)
@pytest.mark.parametrize(("rows", "ensemble"), [(3, 1), (4, 1), (5, 1), (5, 2)])
def test_plan_is_the_best_of_all_by_trying_every_one(rates, rows: int, ensemble: int) -> None:
    """Every number of candidates and every way to attach prompt tokens to them, in each of the states 0, 1, 2."""
    per_state = []
    for s in range(3):
        found = []
        for count in range(rows if s else 1):
            template, ends = _tree_with_ends(rates[:s], count)
            budget = (rows - 1 - len(template)) // ensemble
            ways = product(range(3), repeat=len(ends))
            found += [SlotTree(template, slots, ends) for slots in ways if sum(slots) <= budget]
        per_state.append(found)
    best = max(gain(trees) for trees in product(*per_state))
    plan = slot_plan(rates, rows, ensemble)
    assert plan.tokens == pytest.approx(best, abs=1e-6) == pytest.approx(gain(plan.trees), abs=1e-6)
    assert all(1 + len(x.template) + ensemble * sum(x.slots) <= rows for x in plan.trees)


def test_stationary_shares_add_up_and_stay_as_they_are() -> None:
    for rows in SIZES:
        plan = slot_plan(RATES[:3], rows)
        shares = np.array(plan.stationary)
        assert shares.sum() == pytest.approx(1) and (shares >= 0).all()
        assert shares @ chain_of(plan.trees) == pytest.approx(shares, abs=10 * RESTART)
        assert float(shares @ [x.template.expected for x in plan.trees]) == pytest.approx(plan.tokens)
        assert evaluate_trees(plan.trees)[0].tokens == plan.tokens
        assert all(sum(x.ends) == pytest.approx(1) for x in plan.trees)
    assert [slot_plan(RATES[:3], rows).tokens for rows in SIZES] == sorted(
        slot_plan(RATES[:3], rows).tokens for rows in SIZES
    )


def test_stationary_shares_and_tokens_predict_a_run_whose_guesses_are_right_as_often_as_said() -> None:
    """The states of a long run in which the accepted path ends according to the rates."""
    plan, r = slot_plan(RATES[:3], 24), np.random.default_rng(0)
    state, visits, tokens = 0, np.zeros(4), 0
    for _ in range(20_000):
        tree = plan.trees[state]
        visits[state] += 1
        place = int(r.choice(len(tree.ends), p=tree.ends))
        depth, node = 0, place - 1
        while node != ROOT:
            depth, node = depth + 1, tree.template.parents[node]
        tokens, state = tokens + depth + 1, tree.slots[place]
    assert visits / visits.sum() == pytest.approx(plan.stationary, abs=0.02)
    assert tokens / 20_000 == pytest.approx(plan.tokens, rel=0.02)


def way(parents, ranks, node: int) -> tuple[int, ...]:
    """The ranks from the root down to a node."""
    return () if node < 0 else (*way(parents, ranks, parents[node]), ranks[node])


def test_states_of_a_run_are_the_prompt_tokens_that_hung_where_the_path_ended() -> None:
    session = toys.decode(toys.method(drafter=("ppd", {"rows": "16"})), count=120)
    plan, told = slot_plan(RATES[:3], 16, 2), 0
    known = [step for step in session.sink.steps if step.draft is not None]
    for step in known[:-3]:
        notes = step.draft.notes
        tree = plan.trees[notes["state"]]
        planned = {
            way(tree.template.parents, tree.template.ranks, i): k for i, k in enumerate(tree.slots[1:])
        }
        assert {
            way(step.draft.parents, notes["ranks"], i): k for i, k in enumerate(notes["slots"][1:])
        } == planned
        assert notes["slots"][0] == tree.slots[0] and notes["expected"] == pytest.approx(
            tree.template.expected, abs=1e-4
        )
        after = next((x for x in session.sink.steps if x.step == step.step + 1), None)
        due = notes["slots"][(step.path[-1] + 1) if step.path else 0]
        assert after is None or (after.draft.notes["state"] if after.draft else 0) == due
        told += 1
    assert told > 20


@pytest.mark.parametrize("worth", [(0.0, 0.5, 0.7, 0.75), (0.0, 0.1, 0.9, 0.9), (0.0, 0.3, 0.1, 0.6)])
def test_dealing_out_is_exact_whatever_a_prompt_token_is_worth(worth: tuple[float, ...]) -> None:
    """Also if the second of two is worth more than the first: a greedy allocation would fail then."""
    ends = [0.4, 0.3, 0.2, 0.1]
    for budget in range(8):
        ways = [x for x in product(range(4), repeat=4) if sum(x) <= budget]
        value, slots = distribute_slots(ends, np.array(worth), budget)
        assert value == pytest.approx(
            max(sum(e * worth[k] for e, k in zip(ends, x, strict=True)) for x in ways)
        )
        assert sum(slots) <= budget and sum(
            e * worth[k] for e, k in zip(ends, slots, strict=True)
        ) == pytest.approx(value)


def test_auto_takes_the_rows_with_most_tokens_per_microsecond(monkeypatch: pytest.MonkeyPatch) -> None:
    yields = [slot_plan(RATES[:3], rows, 2).tokens for rows in SIZES]
    for costs in (
        [1.0] * 5,
        [1, 1.01, 5, 9, 12],
        [y * c for y, c in zip(yields, (2, 2, 1.9, 2, 2), strict=True)],
    ):
        monkeypatch.setattr(curve, "verify_costs", lambda *_, costs=costs: costs)
        rates = [y / c for y, c in zip(yields, costs, strict=True)]
        session = toys.decode(toys.method(drafter="ppd"), count=6)
        assert session.header.method["drafter"]["rows"] == str(SIZES[rates.index(max(rates))])


def test_leaving_early_is_refused() -> None:
    with pytest.raises(MethodError, match=r"^ppd puts trained tokens into the check.*all_layers\.$"):
        Session(toys.pair()[0], toys.method(drafter="ppd", adaptive_depth="confidence_exit"), toys.PROMPT)


@pytest.mark.parametrize("rows", ["8", "16"])
@pytest.mark.parametrize("k", [2, 3])
def test_law_is_the_targets_by_counting_every_outcome(rows: str, k: int) -> None:
    knobs = {"temperature": {"temperature": 1.0}, "top_k": {"k": k}}
    names = {"sampler": ["temperature", "top_k"]}
    plain = toys.Method.from_names(names, knobs)
    drafted = toys.Method.from_names({**names, "drafter": "ppd"}, {**knobs, "drafter": {"rows": rows}})
    found, due = (
        exact_distribution(V5, drafted, [1, 2, 1, 3], 4),
        exact_distribution(V5, plain, [1, 2, 1, 3], 4),
    )
    assert len(due) >= 8 and found == pytest.approx(due, abs=1e-12)
