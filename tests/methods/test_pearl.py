"""PEARL: rounds of two models at once keep the target's distribution, and the two clocks report the gain from overlap."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest
import torch
import toys
from law.cases import SAMPLERS, models, true_law

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.core.component import build
from decodescope.engine.cost.hardware import DEVICES
from decodescope.engine.decoding.shared.pass_time import LinearPassTime
from decodescope.engine.methods.drafters.draft_model.draft_model import DraftModel
from decodescope.engine.methods.strategies.pearl import Pearl
from decodescope.engine.methods.strategies.shared.rounds import DraftBlock, join_blocks
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import Trace, TraceError, check
from decodescope.lab.decision.explain import explain
from decodescope.lab.reports.report import count_report
from decodescope.testing.walk import Walk, distribution_distance

DRAWN = ("temperature", {"temperature": 0.9})


def pearl(length: int = 4, sampler: Any = "greedy", **knobs) -> Method:
    return toys.method(
        strategy=("pearl", knobs), drafter=("draft_model", {"max_draft_tokens": length}), sampler=sampler
    )


def said(session: Session) -> list[dict[str, Any]]:
    return [step.draft.notes["pearl"] for step in session.sink.steps]


# ---- the distribution


@pytest.mark.parametrize(
    ("sampler", "length", "kind"),
    [
        ("T=1", 2, "mixed"),
        ("top-p 0.8", 3, "independent"),
        ("top-k 2", 2, "support"),
        ("penalty, mirostat", 2, "mixed"),
    ],
)
def test_the_law_is_the_targets(sampler: str, length: int, kind: str) -> None:
    """All paths of whole runs, three tokens over three ids: a block is carried over, judged, wasted, and written again."""
    drafter = DraftModel(max_draft_tokens=length)
    method = Method(strategy=Pearl(), drafter=drafter, sampler=SAMPLERS[sampler][0])
    walk = Walk(method, models(3, kind, drafter), 3)
    assert distribution_distance(walk.full_run_distribution(), true_law(3, sampler, 3)) <= 1e-12
    assert walk.refused and (walk.kept or kind == "support")


@pytest.mark.parametrize(("overlap", "stop"), [(True, ()), (False, (1,))])
def test_the_law_is_the_targets_in_two_threads_and_with_a_stop_token(
    overlap: bool, stop: tuple[int, ...]
) -> None:
    drafter = DraftModel(max_draft_tokens=2)
    method = Method(strategy=Pearl(overlap=overlap), drafter=drafter, sampler=SAMPLERS["T=0.7"][0])
    walk = Walk(method, models(2, "mixed", drafter), 3, stop, [1, 0, 1])
    assert (
        distribution_distance(walk.full_run_distribution(), true_law(2, "T=0.7", 3, stop, (1, 0, 1))) <= 1e-12
    )


# ---- rounds


def test_rounds_by_hand() -> None:
    """A draft model that is the target: one token in the pre-verify, then gamma in every round, and never a bonus."""
    target = toys.pair()[0]
    session = toys.decode(pearl(4), count=14, pair=(target, target))
    assert [len(step.emitted) for step in session.sink.steps] == [1, 4, 4, 4, 1]
    assert [x["mode"] for x in said(session)] == ["pre", "post", "post", "post", "post"]
    assert [x["run"] for x in said(session)] == [1, 5, 9, 13, 14] and not any(
        x["wasted"] for x in said(session)
    )
    assert all(step.extra is None and set(step.origins) == {"accepted"} for step in session.sink.steps)
    assert [x.tokens for step in session.sink.steps for x in step.passes if x.lane == "target"] == [
        1,
        4,
        4,
        4,
        2,
    ]


@pytest.mark.parametrize("sampler", ["greedy", DRAWN], ids=["greedy", "drawn"])
def test_rounds_follow_the_two_modes_and_keep_their_books(sampler: Any) -> None:
    session = toys.decode(pearl(3, sampler), count=60, seed=3)
    steps, notes = session.sink.steps, said(session)
    assert check(session.sink).ok and {x["mode"] for x in notes} == {"pre", "post"}
    run, total = 0, 0.0
    for step, x in zip(steps, notes, strict=True):
        passes = {lane: [p for p in step.passes if p.lane == lane] for lane in ("target", "draft")}
        due = step.drafted + (x["written"] == 0)
        assert [p.tokens for p in passes["target"]] == [due], (
            "the root, and what is judged but the first of the new block"
        )
        assert len(passes["draft"]) == x["written"], "a pass for every token, the root's among them"
        assert x["draft_us"] == pytest.approx(sum(p.wall_us for p in passes["draft"]), abs=1)
        assert (
            x["round_us"] == max(x["draft_us"], x["target_us"])
            and x["simulated"] == "here"
            and not x["overlap"]
        )
        run, total = run + step.accepted, total + x["round_us"]
        assert x["run"] == run and x["clock_us"] == pytest.approx(total, abs=1)
        run = run if step.extra is None else 0
    assert sum(x["round_us"] for x in notes) < sum(x["draft_us"] + x["target_us"] for x in notes)
    whole = 0
    for (step, x), (after, y) in pairwise(zip(steps, notes, strict=True)):
        refused = step.extra is not None
        assert (y["mode"] == "pre") == refused, "a refusal leads back to the pre-verify"
        assert (after.drafted == 1) or y["mode"] == "post"
        left = x["written"] - 1 if not refused else 0
        assert after.drafted == left + (y["written"] > 0), "what was not judged is judged next, and one more"
        assert x["wasted"] == (step.drafted - 1 + x["written"] - step.accepted - 1 if refused else 0)
        whole += not refused
    assert whole > 5 and len(steps) - whole > 5, "the test needs both"


def test_logits_in_full_stand_where_all_that_was_drafted_was_read() -> None:
    session = toys.decode(pearl(3, DRAWN), count=20, seed=3, level="full")
    steps = session.sink.steps
    assert check(session.sink).ok, str(check(session.sink))
    kept = [step for step in steps if step.fields.logits is not None]
    assert all(len(step.fields.logits) == step.drafted + 1 for step in kept) and len(kept) < len(steps)


@pytest.mark.parametrize("count", [1, 2, 5, 17])
def test_texts_have_their_length_and_nothing_is_drafted_behind_it(count: int) -> None:
    target = toys.pair()[0]
    for models_ in ((target, target), toys.pair()):
        session = toys.decode(pearl(4), count=count, pair=models_)
        assert session.end.tokens == toys.greedy_text(target.decoder, toys.PROMPT, count)
        lane = session.lanes["draft"]
        assert (
            len(lane.tokens) < len(toys.PROMPT) + count
            and toys.matches_fresh_reading(lane)
            and toys.matches_fresh_reading(session.target)
        )


def test_a_branch_takes_the_unjudged_block_along() -> None:
    target, small = toys.pair()
    for sampler in ("greedy", DRAWN):
        session = Session(
            target, pearl(3, sampler), toys.PROMPT, models={"draft": small}, max_new_tokens=40, seed=2
        )
        while not (session.scratch and session.scratch.ahead.tokens):
            session.step()
        branch = session.branch()
        assert branch.scratch.ahead is not session.scratch.ahead
        texts = []
        for run in (session, branch):
            while not run.is_done:
                run.step()
            texts.append(run.tokens)
        assert texts[0] == texts[1]


@pytest.mark.parametrize("to", ["temperature", "greedy"])
def test_a_block_that_outlives_its_sampler_is_judged_by_how_it_was_written(to: str) -> None:
    target, small = toys.pair()
    session = Session(
        target,
        pearl(3, "greedy" if to == "temperature" else DRAWN),
        toys.PROMPT,
        models={"draft": small},
        seed=2,
    )
    while not (session.scratch and session.scratch.ahead.tokens):
        session.step()
    session.sampler = build("sampler", to)  # type: ignore[assignment] # a sampler, by kind
    chosen, drawn = (
        DraftBlock([1, 2], [None, None], [None, None]),
        DraftBlock([3], [torch.full((13,), 1 / 13)], [0.5]),
    )
    made = join_blocks(chosen, drawn, "x") if to == "temperature" else join_blocks(drawn, chosen, "x")
    assert made.kind == "mixed" and made.q_row == ([-1, -1, 0] if to == "temperature" else [0, -1])
    assert [made.law(i) is None for i in range(len(made))] == [x < 0 for x in made.q_row]
    while not session.is_done and session.steps < 20:
        session.step()
    assert session.target.tokens == session.tokens[:-1]


# ---- the clocks


def sequential(right: list[bool], gamma: int, target: float, draft: float) -> float:
    """Time of draft-and-verify over a greedy text; `right` marks the tokens that the draft model would write."""
    at, time = 0, 0.0
    while at < len(right):
        run = next((i for i, ok in enumerate(right[at : at + gamma]) if not ok), gamma)
        at, time = at + run + 1, time + gamma * draft + target
    return time


def overlapped(right: list[bool], gamma: int, target: float, draft: float) -> float:
    """The same time for PEARL's rounds: one token is judged after a refusal, gamma otherwise."""
    at, time, judged = 0, 0.0, 1
    while at < len(right):
        run = next((i for i, ok in enumerate(right[at : at + judged]) if not ok), None)
        at, judged = (at + judged, gamma) if run is None else (at + run + 1, 1)
        time += max(gamma * draft, target)
    return time


@pytest.mark.parametrize("gamma", [1, 2, 3, 4])
def test_at_balanced_costs_no_greedy_text_takes_longer(gamma: int) -> None:
    """Every pattern of right and wrong guesses over 12 tokens, at t_target = gamma t_draft.

    With a draft model that costs nothing the result is different.
    """
    patterns = list(product([True, False], repeat=12))
    times = [
        (overlapped(list(x), gamma, gamma, 1.0), sequential(list(x), gamma, gamma, 1.0)) for x in patterns
    ]
    assert all(a <= b for a, b in times) and any(a < b for a, b in times)
    if gamma > 1:
        assert any(
            overlapped(list(x), gamma, 1.0, 0.0) > sequential(list(x), gamma, 1.0, 0.0) for x in patterns
        )


@pytest.mark.parametrize("sampler", ["greedy", DRAWN], ids=["greedy", "drawn"])
def test_real_runs_at_fixed_costs_take_what_the_clocks_say(sampler: Any) -> None:
    """gamma = 3 and a target that costs three passes of the draft model.

    Compared with the same rounds one after the other, and, for greedy texts, with draft-and-verify.
    """
    target, small = toys.pair()
    for seed, prompt in enumerate(toys.prompts(2, 12, seed=9)):
        session = Session(
            target, pearl(3, sampler), prompt, models={"draft": small}, max_new_tokens=40, seed=seed
        )
        session.sink = Trace()
        session.start()
        session.scratch.costs = {
            "target": LinearPassTime(3.0, 0.0, 0.0),
            "draft": LinearPassTime(1.0, 0.0, 0.0),
        }
        while not session.is_done:
            session.step()
        notes = said(session)
        assert notes[-1]["clock_us"] == 3 * len(notes) < sum(x["draft_us"] + x["target_us"] for x in notes)
        if sampler == "greedy":
            text = session.end.tokens
            right = [int(small_says(small.decoder, [*prompt, *text[:i]])) == text[i] for i in range(40)]
            assert notes[-1]["clock_us"] == overlapped(right, 3, 3.0, 1.0) <= sequential(right, 3, 3.0, 1.0)


@torch.inference_mode()
def small_says(decoder: Any, text: list[int]) -> torch.Tensor:
    return decoder.forward(Feed.causal_chain(text, 0), None)[0, -1].argmax()


def test_clocks_of_another_machine_come_from_counts_of_work() -> None:
    target, small = toys.pair()
    session = toys.decode(pearl(3, machine="h100-pcie"), count=20)
    line, other = (LinearPassTime.from_profile(x.spec, DEVICES["h100-pcie"]) for x in (target, small))
    for step, x in zip(session.sink.steps, said(session), strict=True):
        due = {"target": 0.0, "draft": 0.0}
        for one in step.passes:
            due[one.lane] += (line if one.lane == "target" else other).us(one.tokens, one.held + one.tokens)
        assert (x["target_us"], x["draft_us"]) == (round(due["target"], 1), round(due["draft"], 1))
        assert x["simulated"] == "h100-pcie"


# ---- real concurrency


@pytest.mark.parametrize("sampler", ["greedy", DRAWN], ids=["greedy", "drawn"])
def test_two_threads_write_the_same_rounds(sampler: Any) -> None:
    runs = [toys.decode(pearl(4, sampler, overlap=overlap), count=40, seed=5) for overlap in (False, True)]
    shapes = [
        [(x.emitted, x.origins, x.path, x.draft.tokens, x.draft.u, x.draft.q) for x in run.sink.steps]
        for run in runs
    ]
    assert shapes[0] == shapes[1]
    assert {x["overlap"] for x in said(runs[1])} == {True} and check(runs[1].sink).ok
    assert all(toys.matches_fresh_reading(lane) for lane in (runs[1].target, *runs[1].lanes.values()))


@pytest.mark.parametrize("overlap", [False, True])
def test_a_fault_of_the_draft_model_ends_the_run_whichever_thread_it_is_in(overlap: bool) -> None:
    target, small = toys.pair()
    session = Session(
        target, pearl(3, overlap=overlap), toys.PROMPT, models={"draft": small}, max_new_tokens=40
    )
    session.step()
    text = list(session.tokens)
    lane = session.lanes["draft"]
    lane.decoder = toys.noisy_decoder(small.decoder, float("nan"))
    with pytest.raises(EngineFault, match="has no finite logits"):
        session.step()
    assert session.end.reason == "non_finite_logits" and session.tokens == text
    assert all(store.m == 0 for x in (session.target, lane) for store in x.cache.layers)


# ---- what it refuses


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {"drafter": "prompt_lookup"},
            r"which prompt_lookup, as set, does not; choose the drafter draft_model with width = 1",
        ),
        ({"drafter": ("draft_model", {"width": 2})}, r"which draft_model, as set, does not; choose"),
        (
            {"drafter": "draft_model", "acceptance": "block"},
            r"pearl uses no acceptance, so block would be ignored",
        ),
        (
            {"drafter": "draft_model", "schedule": "heuristic"},
            r"pearl uses no schedule, so heuristic would be ignored",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_one_sentence(parts: dict, said: str) -> None:
    with pytest.raises(MethodError, match=said) as refusal:
        toys.decode(toys.method(strategy="pearl", **parts))
    assert "\n" not in str(refusal.value) and build("strategy", "pearl").lossless


def test_without_a_draft_model_it_is_plain_decoding() -> None:
    made, plain = (
        toys.decode(toys.method(strategy=x, sampler=DRAWN), count=20, seed=1)
        for x in ("pearl", "draft_verify")
    )
    assert made.end.tokens == plain.end.tokens and [x.origins for x in made.sink.steps] == [["target"]] * 20


def test_a_report_on_drafts_and_checks_in_turn_is_refused_in_one_sentence() -> None:
    with pytest.raises(
        TraceError,
        match=r"was written by pearl, whose .*: take a run of draft_verify with the same draft model\.$",
    ):
        count_report(toys.decode(pearl(3), count=12).sink)


def test_a_round_without_a_token_of_the_targets_own_is_explained_as_such() -> None:
    target = toys.pair()[0]
    session = toys.decode(pearl(3), count=9, pair=(target, target))
    with pytest.raises(
        TraceError, match="has no token of the target's own: all was accepted, the draft had gone on already"
    ):
        explain(session.sink, 1)
    assert explain(session.sink, 1, 0).status == "accept"
