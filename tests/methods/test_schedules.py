"""Schedules: the rules for a draft's length, that none changes the text's distribution, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, pairwise
from typing import Any

import pytest
import torch
import toys
from law.cases import SAMPLERS, worlds
from sizes import thinned

from decodescope.engine import Method, MethodError, Session
from decodescope.engine.core.component import build, registry
from decodescope.engine.cost.hardware import DEVICES
from decodescope.engine.cost.pass_curve import ROWS
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.schedule import Schedule
from decodescope.engine.decoding.shared.pass_time import LinearPassTime, MeasuredPassTime
from decodescope.engine.decoding.values.draft import Draft, Verdict
from decodescope.engine.kernels.choice import pass_threads
from decodescope.engine.methods.drafters.draft_model.draft_model import DraftModel
from decodescope.engine.methods.schedules import confidence, goodput
from decodescope.engine.methods.schedules.confidence import best_threshold
from decodescope.engine.methods.schedules.goodput import Goodput
from decodescope.engine.methods.schedules.heuristic import Heuristic
from decodescope.engine.methods.schedules.specdec_pp import USUAL
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.drafting.specdec import AcceptanceHead
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace, check
from decodescope.testing.reference import text_distribution
from decodescope.testing.tables import TableDecoder, table_model
from decodescope.testing.walk import Walk, distribution_distance

SCHEDULES = toys.variants("schedule")
DRAFTERS = {
    "draft_model": dict(max_draft_tokens=4),
    "early_exit": dict(max_draft_tokens=4, layers=1),
    "layer_skip": dict(max_draft_tokens=4, skip_ratio=0.5, min_probability=0.0),
}
DRAWING = ["greedy", ("temperature", {"temperature": 0.9})]
MODELS_ONLY = ("specdec_pp", "goodput", "adaptive_verification")  # these require a draft model


def scheduled(schedule: Any, drafter: str = "draft_model", sampler: Any = "greedy", **more: Any) -> Session:
    return toys.decode(
        toys.method(drafter=(drafter, DRAFTERS[drafter]), schedule=schedule, sampler=sampler), **more
    )


def said(session: Session) -> list[dict[str, Any]]:
    """The schedule's notes of each draft."""
    return [step.draft.notes["schedule"] for step in session.sink.steps if step.draft]


def outcome(drafted: int, accepted: int) -> DraftOutcome:
    verdict = Verdict(list(range(accepted)), 0, "bonus" if accepted == drafted else "residual")
    return DraftOutcome(0, Draft.chain([1] * drafted), verdict, torch.zeros(0), [], {})


def asked(room: int = 99) -> Context:
    return Context(list(toys.PROMPT), None, {}, None, None, None, room, 1)  # type: ignore[arg-type] # only lengths are used


# ---- every schedule


@pytest.mark.parametrize("schedule, drafter, sampler", thinned(2, SCHEDULES, DRAFTERS, DRAWING))
def test_scheduled_drafts_keep_the_text_the_caches_and_the_books(
    schedule: Any, drafter: str, sampler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if schedule[0] == "adaptive_verification":  # a draft as dear as its target is worth no row
        costs = cycle([LinearPassTime(10.0, 2.0, 0.0), LinearPassTime(0.0, 0.0, 0.0)])
        monkeypatch.setattr(LinearPassTime, "from_profile", classmethod(lambda *_: next(costs)))
    if schedule[0] in MODELS_ONLY and drafter != "draft_model":
        with pytest.raises(
            MethodError, match=rf"^{schedule[0]} .* {drafter} (drafts without one|does nei).*\.$"
        ):
            scheduled(schedule, drafter)
        return
    (target, _), runs = toys.pair(), []
    for prompt, count in ((toys.PROMPT, 30), ([5], 9)):
        session = scheduled(schedule, drafter, sampler, prompt=prompt, count=count)
        runs += session.sink.steps
        assert len(session.end.tokens) == count and check(session.sink).ok
        assert sampler != "greedy" or session.end.tokens == toys.greedy_text(target.decoder, prompt, count)
        assert toys.matches_fresh_reading(session.target) and all(
            toys.matches_fresh_reading(lane) for lane in session.lanes.values()
        )
    if schedule[0] != "fixed":
        assert len({step.drafted for step in runs}) > 1, "the test needs drafts of different lengths"


def test_fixed_leaves_drafts_and_traces_as_they_are_without_a_schedule() -> None:
    for drafter, settings in DRAFTERS.items():
        plain, named = (
            toys.decode(toys.method(drafter=(drafter, settings), **x)) for x in ({}, {"schedule": "fixed"})
        )
        assert plain.end.content_hash == named.end.content_hash
        assert all("schedule" not in (step.draft.notes or {}) for step in named.sink.steps if step.draft)
        room = [min(4, 39 - (step.n - len(toys.PROMPT))) for step in named.sink.steps]
        assert [step.drafted for step in named.sink.steps] == room


def test_schedule_is_in_the_header() -> None:
    method = toys.method(drafter="draft_model", schedule=("confidence", {"threshold": 0.7}))
    record = toys.decode(method, count=4).header.method
    assert record["schedule"] == {
        "name": "confidence",
        "threshold": 0.7,
        "max_draft_tokens": 20,
        "tune_threshold": True,
    }
    assert Method.from_record(record) == method


def test_drafter_that_does_not_ask_is_refused_in_one_sentence() -> None:
    fit = [name for name, cls in registry("drafter").items() if cls().uses_schedule]
    assert fit == ["draft_model", "early_exit", "layer_skip", "online", "s2d", "tli"]
    for parts in (
        {"drafter": "prompt_lookup"},
        {"drafter": ("draft_model", {"width": 2})},
        {"drafter": ("layer_skip", {"siblings": True})},
        {},
    ):
        with pytest.raises(MethodError) as refusal:
            toys.decode(toys.method(schedule="heuristic", **parts))
        text = str(refusal.value)
        assert (
            "so the schedule heuristic would be ignored; choose" in text
            and text.count(". ") == 0
            and text.endswith(".")
        )


# ---- the distribution


VOCAB, BEGINNING = 2, [1, 0, 1]  # so that whole runs of some length can be walked


class Stated(TableDecoder):
    """A table with each row's distribution as the state after the row."""

    def forward(self, feed, cache, probe=None, skip=None, depth=None, ran=None):
        logits = super().forward(feed, cache, probe, skip, depth)
        if probe is not None:
            probe.hidden["final"] = logits.softmax(-1)
        return logits


def judged(logits: Any, vocab: int) -> Model:
    """A table as draft model, with a random acceptance head."""
    made = Stated(logits, vocab)
    made.spec = replace(made.spec, heads=("specdec",))
    made.heads = {"specdec": toys.heads("specdec", vocab, 3).copy_to(dtype=torch.float64)}
    return Model("table", None, made.spec, made, None, "0" * 16, [])


class FromTheStart(Walk):
    """Walk whole runs; the schedule starts again with each of them."""

    def go_to(self, tokens: list[int], state: Any) -> None:
        super().go_to(tokens, state)
        self.s.schedule.begin(self.s.context)
        self.lengths: set[int] = getattr(self, "lengths", set())

    def _step(self, chance):
        move = super()._step(chance)
        self.lengths.add(len(move.draft))
        return move


def walked(
    schedule: Schedule, kind: str, sampler: str, drafter: DraftModel, length: int
) -> tuple[float, set[int]]:
    """The distance of the method's distribution from the target's, and the lengths of its drafts."""
    target, draft = worlds(VOCAB, kind)
    method = Method(drafter=drafter, schedule=schedule, sampler=SAMPLERS[sampler][0])
    walk = FromTheStart(
        method,
        {"target": table_model(target, VOCAB), "draft": judged(draft, VOCAB)},
        length,
        prompt=BEGINNING,
    )
    law = text_distribution(target, SAMPLERS[sampler][1], BEGINNING, length, VOCAB, frozenset())
    return distribution_distance(walk.full_run_distribution(), law), walk.lengths


@pytest.mark.parametrize(
    ("sampler", "kind"), [("T=0.7", "mixed"), ("T=1.5", "support"), ("penalty, mirostat", "independent")]
)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("heuristic", {"max_draft_tokens": 3}),
        ("confidence", {"max_draft_tokens": 3, "threshold": 0.5}),
        ("specdec_pp", {"max_draft_tokens": 3, "threshold": 0.5}),
        ("goodput", {"max_draft_tokens": 2, "alpha": 0.5, "decay": 0.3}),
        ("adaptive_verification", {"max_draft_tokens": 2}),
    ],
)
def test_the_law_is_the_targets_whatever_the_schedule_decides(
    name, settings, sampler, kind, monkeypatch
) -> None:
    monkeypatch.setattr(confidence, "ENOUGH", 1)  # so that the threshold changes even in such a short text
    costs = cycle([LinearPassTime(4.0, 0.1, 0.0), LinearPassTime(0.9, 0.1, 0.0)])
    monkeypatch.setattr(LinearPassTime, "from_profile", classmethod(lambda cls, spec, machine: next(costs)))
    off, lengths = walked(build("schedule", name, settings), kind, sampler, DraftModel(max_draft_tokens=2), 5)
    assert off <= 1e-12, f"{name}, {kind} draft, {sampler}: the law is off by {off:.3g}"
    assert len(lengths - {0}) > 1, "the test needs drafts of different lengths"


def test_a_token_taken_back_by_its_own_probability_would_change_the_law() -> None:
    """The walk above would detect a schedule that drops the token which made it stop: the distribution would depend on it."""

    class Dropping(DraftModel):
        def propose(self, ctx):
            draft = super().propose(ctx)
            keep = next((i for i, x in enumerate(draft.tokens) if float(draft.law(i)[x]) < 0.4), len(draft))
            if keep == len(draft):
                return draft
            return Draft.chain(
                draft.tokens[:keep], kind="iid", q=draft.q[:keep], q_row=list(range(keep)), u=draft.u[:keep]
            )

    Dropping.__module__ = DraftModel.__module__
    off, _ = walked(build("schedule", "heuristic"), "mixed", "T=0.7", Dropping(max_draft_tokens=2), 3)
    assert off > 1e-3


# ---- heuristic


def test_heuristic_grows_by_two_when_all_matched_and_shrinks_by_one_to_no_less_than_one() -> None:
    rule = Heuristic()
    rule.begin(asked())
    lengths = []
    for drafted, accepted in [(4, 4), (6, 6), (8, 2), (7, 0), (6, 5), (0, 0), (5, 5)]:
        lengths.append(rule.draft_limit(asked(), 4))
        rule.observe(outcome(drafted, accepted))
    assert (
        lengths == [4, 6, 8, 7, 6, 5, 5]
        and rule.draft_limit(asked(), 4) == 7
        and rule.draft_limit(asked(room=3), 4) == 3
    )
    assert (
        Heuristic(decrement=9).next_length(4, matched=False) == 1
        and Heuristic(max_draft_tokens=5).next_length(4, matched=True) == 5
    )


def test_heuristic_in_a_run_follows_its_rule() -> None:
    session = scheduled("heuristic", count=60)
    steps, lengths = session.sink.steps, [x["length"] for x in said(session)]
    for (step, now), after in zip(zip(steps, lengths, strict=False), lengths[1:], strict=False):
        assert after == (min(now + 2, 20) if step.accepted == step.drafted else max(now - 1, 1))
    assert {b - a for a, b in pairwise(lengths)} >= {2, -1}


# ---- confidence


def test_best_threshold_by_hand() -> None:
    """At 0.8: 2 of 3 right ones let through, no wrong one: 0 + 3 / 3 = 1. At 0.5: 1 of 2 wrong ones, all right ones: 1 / 2."""
    assert best_threshold([0.9, 0.8, 0.6, 0.5, 0.2], [True, True, False, True, False]) == 0.5
    assert best_threshold([0.9, 0.8, 0.6, 0.2], [True, True, False, False]) == 0.8
    assert best_threshold([0.3, 0.7], [True, False]) == 0.3, "all are let through: 1 is less than 0 + 3"


@pytest.mark.parametrize("seed", range(5))
def test_best_threshold_is_that_of_every_threshold_tried(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    sure = (torch.rand(40, generator=g, dtype=torch.float64) * 12).round().div(12).tolist()  # many are equal
    right = [bool(torch.rand((), generator=g) < x) for x in sure]

    def cost(t: float) -> float:
        wrong_in = sum(x >= t for x, ok in zip(sure, right, strict=True) if not ok)
        right_out = sum(x < t for x, ok in zip(sure, right, strict=True) if ok)
        return wrong_in / right.count(False) + 3 * right_out / right.count(True)

    found = best_threshold(sure, right)
    assert cost(found) == pytest.approx(min(map(cost, sure)))
    assert all(cost(t) > cost(found) + 1e-12 for t in sure if t > found)


@pytest.mark.parametrize("tune", [True, False])
def test_confidence_stops_after_the_first_unsure_token_and_learns_from_those_judged(tune: bool) -> None:
    session = scheduled(
        ("confidence", {"threshold": 0.6, "tune_threshold": tune, "max_draft_tokens": 3}), count=80
    )
    steps = [step for step in session.sink.steps if step.draft]
    sure, right, bound = [], [], 0.6
    for step, note in zip(steps, said(session), strict=True):
        assert note["threshold"] == pytest.approx(bound, abs=1e-4) and note["pairs"] == len(sure)
        assert len(note["sure"]) == step.drafted and all(x >= bound - 1e-4 for x in note["sure"][:-1])
        assert (note["sure"][-1] < bound) == (note["stop"] == "threshold")
        for i, x in enumerate(note["sure"][: step.accepted + 1]):
            sure.append(x)
            right.append(i < step.accepted)
        if tune and len(sure) > 5 and set(right) == {True, False}:
            bound = best_threshold(sure, right)
    assert {note["stop"] for note in said(session)} == {"threshold", "length"}
    assert (len({note["threshold"] for note in said(session)}) > 2) == tune


# ---- specdec_pp


@pytest.mark.parametrize(("h", "length"), [(1.0, 5), (0.0, 2)])
def test_h_one_never_stops_and_h_zero_stops_at_two(h: float, length: int) -> None:
    session = scheduled(("specdec_pp", {"threshold": h, "max_draft_tokens": 5}), sampler="temperature")
    room = [len(toys.PROMPT) + 39 - step.n for step in session.sink.steps]
    assert [step.drafted for step in session.sink.steps] == [min(length, x) for x in room]


@pytest.mark.parametrize(
    ("threshold", "takes"), [(0.85, 0.85), (None, USUAL)], ids=["calibrated", "without a calibration"]
)
def test_auto_takes_the_value_that_the_head_was_calibrated_for_and_the_header_has_the_number(
    threshold: float | None, takes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = toys.pair()
    monkeypatch.setattr(pair[1].decoder.heads["specdec"], "threshold", threshold)
    method = toys.method(drafter=("draft_model", {"max_draft_tokens": 4}), schedule="specdec_pp")
    session, named = (
        toys.decode(x, pair=pair)
        for x in (method, replace(method, schedule=build("schedule", "specdec_pp", {"threshold": takes})))
    )
    assert session.header.method["schedule"] == {
        "name": "specdec_pp",
        "threshold": takes,
        "max_draft_tokens": 20,
    }
    assert {note["h"] for note in said(session)} == {takes} and said(session) == said(named)
    assert method.record()["schedule"]["threshold"] == "auto", (
        "the method that a run was made with stays as it was"
    )
    assert Method.from_record(method.record()) == method
    other = toys.decode(
        replace(method, schedule=build("schedule", "specdec_pp", {"threshold": 0.6})), pair=pair
    )
    assert said(other) != said(session), "the test needs a value that matters"


@torch.inference_mode()
def test_the_head_judges_each_token_by_the_state_behind_it() -> None:
    """a_i is the head on the draft model's state of token i, without a cache. The last token is checked without a score."""
    session = scheduled(("specdec_pp", {"threshold": 0.6, "max_draft_tokens": 9}))
    _, draft = toys.pair()
    head = draft.decoder.heads["specdec"]
    steps = [step for step in session.sink.steps if step.draft]
    stops = set()
    for step, note in zip(steps, said(session), strict=True):
        text = [*session.tokens[: step.n], *step.draft.tokens]
        layers = draft.decoder.spec.n_layers
        states = draft.decoder.apply_norm(
            draft.decoder.states_before(Feed.causal_chain(text, 0), None, layers)
        )[0]
        a = head.acceptance_probability(states[step.n : step.n + step.drafted - 1])
        assert note["a"] == pytest.approx(a.tolist(), abs=1e-4)
        assert note["product"] == pytest.approx(float(a.prod()), abs=1e-4)
        assert all(float(x) >= 0.4 for x in a.cumprod(0)[:-1]), "it went on"
        assert (note["product"] < 0.4) == (note["stop"] == "rejection likely")
        stops.add(note["stop"])
    assert stops == {"rejection likely", "length"}


def test_blocks_of_the_head_are_not_tied() -> None:
    """[Block()] * n would be one block n times: one gradient for all, and a third of the weights."""
    head = AcceptanceHead(d=4, blocks=3)
    assert len({x.data_ptr() for x in head.parameters()}) == 2 * 3 + 2
    assert sum(p.numel() for p in head.parameters()) == 3 * (4 * 4 + 4) + 4 * 2 + 2
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        head.blocks[1].weight.fill_(0.5)
        head.says.weight[1] = 1.0
    assert [bool(block.weight.any()) for block in head.blocks] == [False, True, False]
    once = x + torch.nn.functional.silu(x.sum(1, keepdim=True) * 0.5)
    assert torch.allclose(head(x)[:, 1], once.sum(1), atol=1e-6), "one block acts, once"
    head.says.weight.requires_grad_(True)
    head(x)[:, 1].square().sum().backward()
    grads = [block.weight.grad for block in head.blocks]
    assert not torch.equal(grads[0], grads[1]) and not torch.equal(grads[1], grads[2])


def test_draft_model_without_the_head_is_refused_in_one_sentence() -> None:
    target, draft = toys.pair()
    bare = replace(draft, spec=replace(draft.spec, name="small", heads=()))
    method = toys.method(drafter="draft_model", schedule="specdec_pp")
    with pytest.raises(MethodError) as refusal:
        Session(target, method, toys.PROMPT, models={"draft": bare})
    assert str(refusal.value) == (
        "specdec_pp needs an acceptance head and small has no heads/specdec: train it with python "
        "-m decodescope.training.specdec (shipped models only), or choose the schedule confidence, which needs no training."
    )


# ---- goodput


def tokens(alpha: float, k: int) -> float:
    """Expected tokens of a step: 1 + alpha + ... + alpha^k."""
    return sum(alpha**i for i in range(k + 1))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("batch", [1, 16, 512])
def test_k_has_the_largest_goodput_of_all(alpha: float, batch: int) -> None:
    rule = Goodput(batch=batch, max_draft_tokens=12)
    target, draft = LinearPassTime(50.0, 0.2, 0.001), LinearPassTime(4.0, 0.02, 0.0001)
    us = rule.step_times(target, draft, 100)
    by_hand = [
        50 + 0.2 * batch * (k + 1) + 0.001 * batch * 100 + k * (4 + 0.02 * batch + 0.0001 * batch * 100)
        for k in range(13)
    ]
    assert us == pytest.approx(by_hand)
    rates = [batch * tokens(alpha, k) / by_hand[k] for k in range(13)]
    assert rates[rule.best_length(us, alpha)] == pytest.approx(max(rates))
    assert alpha > 0 or rule.best_length(us, alpha) == 0


def test_goodput_by_hand() -> None:
    """1 / 10, 1.5 / 11, 1.75 / 12, 1.875 / 13 tokens a microsecond: 0.1, 0.136, 0.1458, 0.1442."""
    assert Goodput(max_draft_tokens=3).best_length([10.0, 11.0, 12.0, 13.0], 0.5) == 2


def test_k_falls_to_nothing_as_the_batch_grows_and_never_with_alpha() -> None:
    target, draft = (
        LinearPassTime.from_profile(toys.toy_spec(d_model=x, d_ff=4 * x), DEVICES["a100-80g"])
        for x in (4096, 256)
    )
    chosen = [
        Goodput(batch=b).best_length(Goodput(batch=b).step_times(target, draft, 200), 0.7)
        for b in (1, 64, 256, 1024, 4096)
    ]
    assert chosen == sorted(chosen, reverse=True) and chosen[0] > 2 and chosen[-1] == 0
    us = Goodput(batch=64).step_times(target, draft, 200)
    ks = [Goodput(batch=64).best_length(us, i / 50) for i in range(51)]
    assert ks == sorted(ks) and ks[0] == 0 and ks[-1] == 8


def test_alpha_is_a_moving_average_of_what_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a draft of 4 with 1 accepted, 2 were judged, and the last two never were. Earlier counts decay by `decay`."""
    monkeypatch.setattr(goodput, "PRIOR", 2.0)
    session = scheduled(("goodput", {"alpha": 0.5, "decay": 0.5}), count=2)
    rule = session.method.schedule
    session.start()
    rule.begin(session.context)
    assert rule._alpha() == 0.5
    rule.observe(outcome(4, 1))
    assert rule._alpha() == pytest.approx((0.5 * 1 + 1) / (0.5 * 2 + 2))
    rule.observe(outcome(3, 3))
    assert rule._alpha() == pytest.approx((0.5 * 1.5 + 3) / (0.5 * 3 + 3))
    before = rule._alpha()
    rule.observe(outcome(0, 0))
    assert rule._alpha() == before, "a step without a draft judges nothing"


def test_what_goodput_notes_gives_its_choice_again() -> None:
    """From the notes alone: k is the best for the recorded alpha and times, or a probe after steps without a draft."""
    session = scheduled(("goodput", {"probe_interval": 2}), count=60)
    notes, probes = said(session), 0
    for note in notes:
        best = max(range(9), key=lambda k, note=note: tokens(note["alpha"], k) / note["us"][k])
        assert note["k"] == (best or 1)
        probes += best == 0
        assert best or note["off"] == 2
    drafted = [step.drafted for step in session.sink.steps]
    assert probes > 3 and drafted.count(0) > 6
    never = scheduled(("goodput", {"probe_interval": 0}), count=60)
    assert not any(step.drafted for step in never.sink.steps), (
        "a draft as dear as its target is not worth a step"
    )


def test_times_of_this_machine_are_the_measured_curve_whatever_the_context() -> None:
    target, _ = toys.pair()
    made = target.decoder.to(dtype=torch.float64)
    made.costs = {(pass_threads(), "torch"): {n: 30.0 + 2.5 * n for n in ROWS}}
    time = MeasuredPassTime.measure(made)
    assert [time.us(n, 500) for n in (1, 3, 16, 40)] == pytest.approx([32.5, 37.5, 70.0, 130.0])


def test_modelled_times_are_weights_arithmetic_and_context() -> None:
    spec, machine = toys.SPEC, DEVICES["a100-80g"]
    line = LinearPassTime.from_profile(spec, machine)
    assert line.entry == pytest.approx(2 * spec.n_layers * spec.n_kv_heads * spec.head_dim * 2 / 2039e9 * 1e6)
    per_layer = (4 + 2 * 2) * 8 * 32 + 32 * 32 + 3 * 32 * 64
    # and the norms
    assert line.fixed == pytest.approx(2 * (3 * per_layer + 13 * 32) / 2039e9 * 1e6, rel=0.05)
    assert line.row == pytest.approx(2 * (3 * per_layer + 13 * 32) / 312e12 * 1e6, rel=0.1)


LOOKUPS = [name for name, part in registry("drafter").items() if part.looks_up]  # type: ignore[attr-defined] # a Drafter's


@pytest.mark.parametrize("drafter", LOOKUPS)
def test_goodput_shortens_chains_that_are_copied_from_text(
    drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass of k + 1 rows costs 10 + 3 (k + 1), copying nothing. No draft is longer than the k of its step, which is the best
    for the recorded alpha; without the schedule some are; and the text is that of plain decoding."""
    monkeypatch.setattr(
        LinearPassTime, "from_profile", classmethod(lambda *_: LinearPassTime(10.0, 3.0, 0.0))
    )
    prompt = toys.cached_greedy_text(toys.pair()[0], toys.PROMPT, 40) * 2
    own, shortened = (
        toys.decode(toys.method(drafter=drafter, schedule=schedule), prompt=[*prompt], count=60)
        for schedule in ("fixed", ("goodput", {"alpha": 0.5, "decay": 0.0}))
    )
    assert shortened.end.tokens == own.end.tokens and check(shortened.sink).ok
    steps = [step for step in shortened.sink.steps if step.draft]
    assert steps
    for step in steps:
        note = step.draft.notes["schedule"]
        assert note["us"] == pytest.approx([10 + 3 * (k + 1) for k in range(9)])
        assert step.drafted <= note["k"]
    longest = max(step.drafted for step in own.sink.steps)
    assert any(step.drafted == step.draft.notes["schedule"]["k"] < longest for step in steps)


@pytest.mark.parametrize("drafter", ["token_recycling", "medusa", "lookahead"])
def test_goodput_refuses_drafts_whose_cost_it_does_not_know(drafter: str) -> None:
    with pytest.raises(
        MethodError, match=rf"^goodput knows what a draft costs .* {drafter} does neither as set; choose "
    ):
        toys.decode(toys.method(drafter=drafter, schedule="goodput"), count=2)


# ---- sessions


def branches() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from ((name, settings) for name, settings in toys.representatives("schedule"))


@pytest.mark.parametrize(("name", "settings"), list(branches()))
def test_a_branch_goes_on_with_the_schedule_it_had(name: str, settings: dict[str, Any]) -> None:
    target, draft = toys.pair()
    method = toys.method(
        drafter=("draft_model", {"max_draft_tokens": 4}), schedule=(name, settings), sampler="temperature"
    )
    session = Session(target, method, toys.PROMPT, models={"draft": draft}, max_new_tokens=40, seed=2)
    session.sink = Trace()
    for _ in range(5):
        session.step()
    other = session.branch()
    ways = [[(step.drafted, step.emitted) for step in one.stream()] for one in (session, other)]
    assert ways[0] == ways[1] and len(ways[0]) > 3
