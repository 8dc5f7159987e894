"""`check` finds every false statement about a run, and none in an honest one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from decodescope.engine.trace import End, Step, Trace, check, open_trace
from decodescope.engine.trace.detail_checks.sharing import SharingValidator
from decodescope.engine.trace.details.declarations import DetailColumn, TreeForm
from decodescope.engine.trace.details.shapes import TreeDetail
from decodescope.engine.trace.records.events import (
    CacheChange,
    DraftTree,
    Extra,
    Pass,
    Plan,
    Tops,
    Trials,
)
from decodescope.engine.trace.records.reference import ReferenceRecord

# texts that are read side by side; one becomes the run's text at the end
SIDE_BY_SIDE = {
    "texts": TreeForm("Texts", columns=[DetailColumn("token", "token")], batch=True, settles_at_end=True)
}


def memory(
    toy: Any, made: list[Step], rule: str = "lossless", details: dict[str, TreeForm] | None = None, **end: Any
) -> Trace:
    trace = Trace([toy.header(rule, details=details or {}), toy.prefill(), *made])
    tokens = [token for step in made for token in step.emitted]
    trace.seal(End("max_new_tokens", **{"tokens": tokens, "steps": len(made), **end}))
    return trace


def test_an_honest_run_agrees_with_itself(toy, small):
    for trace in (open_trace(small), memory(toy, toy.steps("pdpd"))):
        report = check(trace)
        assert report.ok, report
        assert (
            report.counts["trials"] == 6 and report.counts["tokens"] == 6 and report.counts["residuals"] == 6
        )
        assert report.counts["cache changes"] == 5 and report.counts["records"] == 6
        assert "agrees with itself" in str(report)


LIES: list[tuple[Callable[[Step], Any], str]] = [
    (lambda s: s.trials.ok.__setitem__(1, True), "trial 1 says ok = True"),
    (lambda s: s.trials.ok.__setitem__(0, False), "trial 0 says ok = False"),
    (lambda s: s.trials.u.__setitem__(0, 0.7), "trial 0 says ok = True"),
    (lambda s: s.trials.u.__setitem__(1, None), "decided without a draw"),
    (lambda s: s.trials.r.__setitem__(0, 0.6), "trial 0 has r = 0.6"),
    (
        lambda s: s.trials.r.__setitem__(2, 0.16),
        "trial 2 has r = 0.16, but after 1 rejected siblings 0.142857",
    ),
    (lambda s: s.trials.p.__setitem__(1, 0.2), "node 1 was tried with p = 0.2"),
    (lambda s: s.trials.threshold.__setitem__(1, 0.9), "trial 1 has the threshold 0.9"),
    (lambda s: s.trials.node.__setitem__(slice(1, 3), [2, 1]), "tried in draw order"),
    (lambda s: s.trials.node.__setitem__(0, 1), "which is no child of node -1"),
    (lambda s: s.emitted.__setitem__(0, 9), "it emitted [9, 20]"),
    (lambda s: s.emitted.__setitem__(1, 21), "it emitted [8, 21]"),
    (lambda s: s.origins.__setitem__(1, "bonus"), "its origins are"),
    (lambda s: setattr(s, "drafted", 4), "drafted is 4, but the tree has 3 nodes"),
    (lambda s: setattr(s, "accepted", 2), "accepted is 2"),
    (lambda s: setattr(s, "path", [0, 1]), "the path is [0, 1]"),
    (lambda s: setattr(s, "n", 9), "n is 9, but 8 tokens come before it"),
    (lambda s: setattr(s.extra, "u", 0.51), "u = 0.51, outside its interval [0.3, 0.5)"),
    (lambda s: setattr(s.extra, "origin", "bonus"), "called 'bonus', but a token was rejected there"),
    (lambda s: s.tops.p.__setitem__((0, 1), 0.5), "p after node -1 adds up to 1.25"),
    (lambda s: s.tops.q.__setitem__((1, 0), 0.1), "q after node 0 adds up to 0.7"),
    (lambda s: setattr(s.cache[0], "held", 9), "holds 9 entries, but the changes give 10"),
    (lambda s: setattr(s.draft, "parents", [-1, -1, 0]), "trial 1 is of node 1, which is no child of node 0"),
]


@pytest.mark.parametrize(("lie", "says"), LIES)
def test_one_changed_number_is_found(toy, lie, says):
    steps = copy.deepcopy(toy.steps("pdpd"))
    lie(steps[1])
    report = check(memory(toy, steps))
    assert not report.ok
    assert any(one.startswith("step 1: ") and says in one for one in report.problems), report


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ({"tokens": [0, 8, 20, 2, 8]}, "its 5 tokens are not the 6"),
        ({"tokens": [0, 8, 20, 2, 9, 20]}, "token 4 is the first that differs"),
        ({"steps": 3}, "it counts 3 steps, there are 4"),
    ],
)
def test_lies_of_the_end_record_are_found(toy, end, says):
    assert any(says in one for one in check(memory(toy, toy.steps("pdpd"), **end)).problems)


def test_records_changed_after_the_end_are_found_by_the_hashes(toy):
    trace = memory(toy, toy.steps("pdpd"))
    trace.steps[1].draft.source = "somebody else"
    problems = " ".join(check(trace).problems)
    assert "sha256 is" in problems and "content_hash is" in problems


def test_drift_without_an_end_and_more_kinds_than_a_plan_can_name_are_found(toy):
    endless = ReferenceRecord(
        np.zeros((1, 2, 2), "<f4"), np.full(1, np.inf, "<f4"), np.array([3], "<i4"), 64, 1.0
    )
    for tell, says in (
        (lambda x: setattr(x, "reference", endless), "reference.drift"),
        (
            lambda x: setattr(x, "plan", Plan(np.zeros((1, 1), "<i4"), ["a"] * 128)),
            "128 words, above the limit of 127",
        ),
    ):
        steps = copy.deepcopy(toy.steps("p"))
        tell(steps[0].cache[0])
        assert says in str(check(memory(toy, steps)))


def test_the_limits_of_the_header_bind_the_text(toy):
    trace = Trace([toy.header(max_new_tokens=5, stop_tokens=[20]), toy.prefill(), *toy.steps("pdpd")])
    trace.seal(End("max_new_tokens", trace.emitted_ids[:], 4))
    problems = " ".join(check(trace).problems)
    assert "6 tokens, where 5 were allowed" in problems and "a stop token comes before" in problems


def chain(toy: Any, accepted: int, **more: Any) -> Step:
    """A chain of three nodes; `more` gives p, q, u, threshold, ok."""
    step = toy.drafted_step(0, toy.prompt)
    step.tops = None
    step.draft = DraftTree([8, 9, 10], [-1, 0, 1], more["q"], more.pop("proposal", "iid"))
    nodes = list(range(len(more["p"])))
    step.trials = Trials(nodes, more["p"], more["p"], more["q"], more["u"], more["threshold"], more["ok"])
    step.path, step.accepted = list(range(accepted)), accepted
    step.extra = Extra(20, "residual", 0.4, 0.3, 0.5)
    step.emitted, step.origins = [*[8, 9, 10][:accepted], 20], ["accepted"] * accepted + ["residual"]
    step.cache = [toy.change(accepted + 1, toy.prompt + accepted + 1)]
    return step


def test_block_verification_is_derived_from_u_and_h(toy):
    h = [0.2, 0.8, 0.1]
    step = chain(
        toy, 2, p=[0.2, 0.3, 0.1], q=[0.4, 0.2, 0.5], u=[0.9, 0.5, 0.6], threshold=h, ok=[False, True, False]
    )
    step.trials.num, step.trials.den = h, [1.0] * 3
    step.rule = {"w": [1.0, 0.5, 0.75, 0.15]}
    report = check(memory(toy, [step], "block"))
    assert report.ok and report.counts["blocks"] == 1, report
    step.trials.num = [0.2, 0.4, 0.1]
    assert "give a block of 0" in str(check(memory(toy, [step], "block")))
    step.trials.num, step.rule["w"] = h, [1.0, 0.5, 0.5, 0.1]
    assert "w at 2 is 0.5" in str(check(memory(toy, [step], "block")))


def test_typical_acceptance_is_derived_from_p_and_its_bound(toy):
    bound = [0.09, 0.09, 0.09]
    step = chain(
        toy, 2, p=[0.2, 0.3, 0.01], q=[1.0] * 3, u=[None] * 3, threshold=bound, ok=[True, True, False]
    )
    step.trials.den = [*bound]
    step.rule = {"entropy": [1.0, 1.0, 1.0]}
    assert check(memory(toy, [step], "typical")).ok
    step.trials.threshold[1] = step.trials.den[1] = 0.4
    assert "trial 1 says ok = True, but p = 0.3" in str(check(memory(toy, [step], "typical")))
    step.trials.threshold[1] = step.trials.den[1] = 0.09
    step.extra.u = None
    law = [np.array([x], "<f4") for x in ([0.6, 0.3], [0.0, 0.0], [0.1, 0.0, 0.1], 1.0)]
    step.tops = Tops(np.array([1], "<i4"), np.array([[20, 7]], "<i4"), *law)
    assert check(memory(toy, [step], "typical")).ok, "a token without a draw is the likeliest after the path"
    step.tops.ids[0] = [7, 20]
    assert "taken as the likeliest and has p = 0.3, but another token has p = 0.6" in str(
        check(memory(toy, [step], "typical"))
    )
    short = chain(
        toy, 1, p=[0.2, 0.3, 0.01], q=[1.0] * 3, u=[None] * 3, threshold=bound, ok=[True, True, False]
    )
    short.trials.den = [*bound]
    short.rule = {"entropy": [1.0]}
    assert "the path has 1 nodes, but the longest that passed has 2" in str(
        check(memory(toy, [short], "typical"))
    )


@pytest.mark.parametrize("rule", ["lossless", "block", "typical"])
def test_exact_matching_needs_no_draw(toy, rule):
    step = chain(
        toy,
        1,
        p=[1.0, 0.0],
        q=[1.0, 1.0],
        u=[None] * 2,
        threshold=[1.0] * 2,
        ok=[True, False],
        proposal="onehot",
    )
    step.draft.q = [1.0] * 3
    step.extra.origin = step.origins[-1] = "correction"
    assert check(memory(toy, [step], rule)).ok, check(memory(toy, [step], rule))
    step.trials.ok = [True, True]
    assert "trial 1 says ok = True" in str(check(memory(toy, [step], rule)))


def test_a_text_that_stops_inside_the_path_is_no_lie(toy):
    ones = [1.0] * 3
    step = chain(toy, 3, p=ones, q=ones, u=[None] * 3, threshold=ones, ok=[True] * 3, proposal="onehot")
    step.path, step.accepted, step.extra = [0, 1], 2, None
    step.emitted, step.origins = [8, 9], ["accepted"] * 2
    step.cache = [toy.change(2, toy.prompt + 2)]
    assert check(memory(toy, [step])).ok


def test_level_counts_records_a_path_without_its_tree(toy, tmp_path):
    made = toy.steps("pd")
    made[1].draft = made[1].trials = made[1].extra = made[1].tops = None
    made[0].extra = made[0].path = None
    assert check(memory(toy, made)).ok
    assert check(open_trace(toy.write(tmp_path / "counts.dstrace", made))).ok
    made[1].path, made[1].accepted = [3], 1
    assert "path names the node 3 of a tree of 3" in str(check(memory(toy, made)))


def test_the_verdicts_of_an_unknown_rule_are_said_to_be_unchecked(toy):
    step = toy.drafted_step(0, toy.prompt)
    step.trials.ok[1] = True
    report = check(memory(toy, [step], "oracle"))
    assert report.ok and report.counts["trials not re-derived"] == 3 and "'oracle'" in report.notes[0]
    step.emitted[0] = 9
    assert not check(memory(toy, [step], "oracle")).ok


def test_evictions_balance_the_books_of_the_cache(toy):
    def run(*changes: CacheChange) -> str:
        steps = toy.steps("p" * len(changes))
        for step, change in zip(steps, changes, strict=True):
            step.cache = [change]
        return str(check(memory(toy, steps)))

    def all_heads(*positions: int) -> np.ndarray:
        return np.array(positions, "<i4")

    def heads(*rows: list[int]) -> np.ndarray:
        return np.array(rows, "<i4")

    fine = "agrees with itself"
    assert fine in run(toy.change(1, 8), toy.change(1, 8, evicted_all=all_heads(0)))
    assert fine in run(toy.change(1, 8, evicted=heads([0, 1, 2], [0, 1, 3])), toy.change(1, 9))
    everywhere = heads([0, 0, 2], [0, 1, 2], [1, 0, 2], [1, 1, 3])
    assert fine in run(toy.change(1, 7, evicted=everywhere), toy.change(1, 7, evicted_all=all_heads(4)))
    assert fine in run(toy.change(1, 5, evicted_count=3), toy.change(1, 5, evicted_count=1)), "only counted"
    silent = [toy.change(1, 8), toy.change(1, 9, evicted_all=all_heads(0))]
    assert "holds 9 entries, but the changes give 8" in run(*silent)
    twice = [toy.change(1, 7, evicted_all=all_heads(1)) for _ in range(2)]
    assert "position 1 a second time" in run(*twice)
    assert "position 99" in run(toy.change(1, 7, evicted_all=all_heads(99)))
    assert "the model has not" in run(toy.change(1, 8, evicted=heads([5, 0, 1])))


def test_what_was_merged_has_left_and_what_it_went_into_is_there(toy):
    left = np.array([[0, 0, 2], [0, 1, 2], [1, 0, 2], [1, 1, 3]], "<i4")

    def run(*rows: list[int], by: int | None = None) -> str:
        steps = toy.steps("pp")
        numbers = np.ones((len(rows) if by is None else by, 2), "<f4")
        steps[0].cache = [toy.change(1, 7, evicted_all=np.array([0], "<i4"))]
        steps[1].cache = [toy.change(1, 7, evicted=left, merged=np.array(rows, "<i4"), merged_by=numbers)]
        return str(check(memory(toy, steps)))

    assert "agrees with itself" in run([0, 1, 2, 4], [1, 1, 3, 2])
    assert "agrees with itself" in run([0, 1, 2, -1]), "it was dropped"
    assert "merged position 2 into 99 of a text of" in run([0, 1, 2, 99])
    assert "merged position 3, which has not left" in run([0, 1, 3, 4])
    assert "merged position 3 into 0, which is gone" in run([1, 1, 3, 0])
    assert "merged_by has the shape [2, 2], not [1, 2]" in run([0, 1, 2, 4], by=2)


def test_what_a_pass_read_is_told_of_the_layers_and_heads_of_the_model(toy):
    layers, heads = toy.header().model["n_layers"], toy.header().model["n_kv_heads"]

    def run(layers: int, heads: int, bounds: int) -> str:
        step = toy.plain_step(0, toy.prompt)
        read = [[1] * heads for _ in range(layers)]
        step.passes = [Pass("target", "verify", 1, toy.prompt - 1, 1.0, read=read, bounds=[0] * bounds)]
        return str(check(memory(toy, [step])))

    assert "agrees with itself" in run(layers, heads, layers)
    assert "other layers or KV heads than" in run(layers + 1, heads, layers + 1)
    assert "other layers or KV heads than" in run(layers, heads + 1, layers)
    step = toy.plain_step(0, toy.prompt)
    step.passes = [Pass("target", "verify", 1, toy.prompt - 1, 1.0, bounds=[0] * (layers + 1))]
    assert "bounds of other layers than" in str(check(memory(toy, [step])))


@pytest.mark.parametrize("batch", [None, 0, 10**12])
def test_texts_of_passes_that_no_run_makes_are_not_followed(toy, batch):
    step = toy.plain_step(0, toy.prompt)
    step.passes = [] if batch is None else [Pass("target", "verify", 1, toy.prompt, 1.0, batch=batch)]
    step.details = [TreeDetail("texts", [], earlier=True)]
    step.cache = [toy.change(1, 8, shared=np.array([[-1, 0, 8, 1]], "<i4"), shared_bytes=0)]
    assert check(memory(toy, [step], details=SIDE_BY_SIDE)).ok


def test_many_texts_that_part_one_by_one_are_followed(toy):
    """Text i shares i entries with every later text, so each node has another node below it."""
    count, texts = 1100, SharingValidator(toy.header(details=SIDE_BY_SIDE), 1)
    texts._paths = [
        [*((j, 0) for j in range(i)), *((j, i + 1) for j in range(i, count))] for i in range(count)
    ]
    step = toy.plain_step(count, count + 1)
    step.details = [TreeDetail("texts", [*range(count)], earlier=True)]
    step.cache = [toy.change(1, count + 1, shared=np.array([[-1, 0, 1, 1]], "<i4"), shared_bytes=0)]
    assert "and by their origins they do not" in next(texts.problems(step))


def test_a_damaged_or_torn_trace_is_a_problem(small):
    data = small.read_bytes()
    small.write_bytes(data[:-20])
    assert "ends in the middle" in str(check(open_trace(small)))
