"""What if: a verdict that is derived again from its record equals the engine's.

What the record does not hold is reported, not guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import toys
from sizes import thinned

from decodescope.engine.core.component import registry
from decodescope.engine.core.params import ParamError
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.session.replay.whatif import DerivedVerdict, NeedsRunError, WhatIfChange, derive
from decodescope.engine.trace import Step, Trace

WARM = ("temperature", dict(temperature=0.9))
DRAFTERS = {
    "chain": ("draft_model", dict(max_draft_tokens=3)),
    "tree": ("draft_model", dict(max_draft_tokens=3, width=3)),
    "lookup": ("prompt_lookup", dict(max_draft_tokens=4, ngram=1)),
    "chains": ("chains", {}),
}


def run(drafter: str, **more: Any) -> Any:
    method = toys.method(
        drafter=DRAFTERS[drafter], sampler=more.pop("sampler", WARM), acceptance=more.pop("rule", "lossless")
    )
    return toys.decode(method, count=16, **more)


def asked(made: Any, step: Step, node: int = 0, **change: Any) -> DerivedVerdict:
    return derive(made.header, made.sink.steps[: step.step], step, node, WhatIfChange(**change))


def real(made: Any, step: int, **parts: Any) -> Step:
    """The step as the engine makes it with other parts, after the same past and with the same draft and draws."""
    big, small = toys.pair()
    method = toys.method(**{"drafter": made.drafted_by, "sampler": WARM, **parts})
    fork = Fork(
        big,
        made.header,
        list(made.sink.steps),
        step,
        models={**toys.helper_models(), "draft": small},
        method=method,
    )
    fork.sink = Trace()
    while fork.steps <= step:
        fork.step()
    return fork.sink.steps[step]


def drafted(made: Any) -> list[Step]:
    return [x for x in made.sink.steps if x.draft is not None]


@pytest.mark.parametrize(("drafter", "level"), thinned(3, DRAFTERS, ["decisions", "full"]))
def test_another_rule_decides_as_the_engine_would_with_it(drafter: str, level: str) -> None:
    made, count = run(drafter, level=level, seed=1), Counter[str]()
    made.drafted_by = DRAFTERS[drafter]
    rules = [
        ("lossless", {}),
        ("typical", dict(epsilon=0.3)),
        ("leniency", dict(epsilon=0.5)),
        ("block", {}),
        ("spectr", {}),
        ("static_ensemble", dict(target_weight=0.5)),
        ("relaxed", dict(top_k=3, delta=0.2)),
        ("synthetic", dict(acceptance_rates=[0.7, 0.5])),
    ]
    others = [("leniency", dict(form="exponential")), ("typical", dict(epsilon=0.3, next_token="drawn"))]
    for step in drafted(made)[:8]:
        for rule, settings in [*rules, *others]:
            try:
                found = asked(made, step, rule=rule, settings=settings)
            except (NeedsRunError, ParamError) as no:
                count[type(no).__name__] += 1
                assert level == "decisions" or isinstance(no, ParamError), no
                continue
            due = real(made, step.step, acceptance=(rule, settings))
            count["missing" if found.missing else "whole"] += 1
            assert found.emitted == (due.emitted[: len(found.emitted)] if found.missing else due.emitted), (
                rule,
                step,
            )
            assert level == "decisions" or not found.missing
    assert count["whole"] > 8, count


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_what_happened_is_derived_again(drafter: str) -> None:
    made = run(drafter, seed=2)
    known = 0
    for step in drafted(made):
        try:
            found = asked(made, step)
        except NeedsRunError:
            continue
        known += 1
        assert found.emitted == step.emitted and found.path == step.path and not found.missing
    assert known > 0.6 * len(drafted(made))


def test_a_likeliest_token_is_derived_again_and_no_draw_decides_about_it() -> None:
    made, told = run("tree", rule="typical", seed=2), 0
    for step in drafted(made):
        try:
            found = asked(made, step)
        except NeedsRunError:
            continue
        told += 1
        assert found.emitted == step.emitted and found.u is None and not found.missing
        with pytest.raises(NeedsRunError, match="takes the likeliest token after the path"):
            asked(made, step, len(step.draft.tokens), u=0.5)
    assert told > 0.6 * len(drafted(made))


def test_a_token_that_was_drawn_is_derived_again_and_another_draw_or_choice_can_be_asked_for() -> None:
    made = run("chain", rule=("typical", {"next_token": "drawn"}), seed=2)
    step = next(x for x in drafted(made) if x.extra is not None and x.extra.high - x.extra.low > 0.2)
    middle = (step.extra.low + step.extra.high) / 2
    assert asked(made, step).emitted == step.emitted
    assert asked(made, step, len(step.draft.tokens), u=middle).token == step.extra.token
    assert asked(made, step, settings={"next_token": "likeliest"}).u is None


def test_another_draw_flips_the_verdict_where_its_test_says() -> None:
    made, flips, beyond = run("chain", seed=1), 0, 0
    for step in drafted(made):
        assert step.trials is not None
        for node, p, q, u, ok in zip(
            step.trials.node, step.trials.p, step.trials.q, step.trials.u, step.trials.ok, strict=True
        ):
            for other in (0.0, min(p / q * 0.99, 0.99), min(p / q * 1.01, 1.0), 1.0):
                found = asked(made, step, node, u=other)
                trial = next(x for x in found.trials if x.node == node)
                assert trial.ok == (min(other, 1 - 2**-53) * q < p) and trial.p == p and trial.q == q
                assert [x.node for x in found.trials if x.node < node] == [
                    x for x in step.trials.node if x < node
                ]
                flips += trial.ok != ok
                if trial.ok and not ok:  # the run never reached this node
                    beyond += bool(found.missing)
                    assert (
                        found.emitted[: node + 1] == step.draft.tokens[: node + 1]
                        and len(found.emitted) <= node + 2
                    )
            assert asked(made, step, node, u=u).emitted == step.emitted
    assert flips > 10 and beyond > 3


def test_with_whole_laws_nothing_is_missing_behind_a_flip() -> None:
    made = run("tree", level="full", seed=1)
    seen = 0
    for step in drafted(made)[:6]:
        node = next((x for x, ok in zip(step.trials.node, step.trials.ok, strict=True) if not ok), None)
        if node is None or step.trials.p[step.trials.node.index(node)] == 0:
            continue
        found = asked(made, step, node, u=0.0)
        seen += 1
        assert (
            not found.missing
            and found.token is not None
            and node in found.path
            and len(found.emitted) == len(found.path) + 1
        )
    assert seen > 2


def test_another_temperature_needs_whole_laws() -> None:
    made = run("chain", seed=1)
    with pytest.raises(NeedsRunError, match=r"needs the logits.*fork"):
        asked(made, drafted(made)[0], temperature=0.5)
    whole = run("chain", seed=1, level="full")
    for step in drafted(whole)[:6]:
        cold, same = asked(whole, step, temperature=0.05), asked(whole, step, temperature=0.9)
        assert same.emitted == step.emitted and "T = 0.05" in cold.lines[0] and not cold.missing
        best = whole.sink.steps[step.step].fields.logits.argmax(-1).tolist()
        greedy = asked(whole, step, temperature=0)
        for node, row in zip(greedy.path, [0, *(x + 1 for x in greedy.path)], strict=False):
            assert step.draft.tokens[node] == best[row], "T = 0 is exact matching"


def test_a_few_shown_tokens_are_the_whole_law_under_a_small_top_k() -> None:
    made = toys.decode(toys.method(drafter=DRAFTERS["lookup"], sampler="temperature"), count=8, seed=1)
    with pytest.raises(NeedsRunError):
        asked(made, drafted(made)[0], temperature=0.5)
    method = toys.Method.from_names(
        {"drafter": "prompt_lookup", "sampler": ["top_k", "temperature"]},
        {"top_k": {"k": 3}, "temperature": {"temperature": 1.0}},
    )
    made = toys.decode(method, count=24, seed=1)
    step = next(x for x in drafted(made) if x.trials.ok[0])
    p = step.trials.p[0]
    cold = asked(made, step, temperature=0.5)
    row = step.tops.p[0][: (step.tops.ids[0] >= 0).sum()].astype(float)
    assert cold.trials[0].p == pytest.approx(p**2 / (row**2).sum(), rel=1e-4)


def test_a_tie_can_be_broken_the_other_way() -> None:
    made = run("chain", sampler="greedy")
    step = next(x for x in drafted(made) if x.path)
    plain = asked(made, step, ties="second")
    assert plain.emitted == step.emitted and "changes nothing" in plain.lines[0]
    step.tie = [[0.0, 1e-4]]  # as if the two best after the root had been that close
    found = asked(made, step, ties="second")
    assert (
        found.path == []
        and found.emitted == [int(step.tops.ids[0, 1])]
        and "0.0001 nats apart" in found.lines[0]
    )
    with pytest.raises(NeedsRunError, match="nothing is drawn"):
        asked(made, step, u=0.5)


def test_the_target_s_own_token_is_drawn_anew_where_it_can_be_told() -> None:
    made, told = run("lookup", seed=1), 0
    for step in made.sink.steps:
        own = 0 if step.draft is None else len(step.draft.tokens)
        if step.extra is None:
            continue
        try:
            assert asked(made, step, own, u=step.extra.u).emitted == step.emitted
        except NeedsRunError:
            continue
        middle = (step.extra.low + step.extra.high) / 2
        found = asked(made, step, own, u=middle)
        told += not found.missing
        assert found.missing or found.token == step.extra.token
    assert told > 3


def test_what_follows_from_nothing_is_said() -> None:
    made = run("chain", seed=1)
    step = drafted(made)[0]
    for change, says in [
        (dict(u=1.5), "must lie in"),
        (dict(rule="nope"), "no acceptance is called"),
        (dict(ties="third"), "choose one of"),
        (dict(rule="leniency", settings=dict(epsilon=9)), "must lie in"),
    ]:
        with pytest.raises(ParamError, match=says):
            asked(made, step, **change)
    with pytest.raises(ParamError, match="nodes besides the root"):
        asked(made, step, 99)
    with pytest.raises(NeedsRunError, match="Judge decoding looks at more"):
        asked(made, step, rule="judge")
    with pytest.raises(NeedsRunError, match="LANTERN looks at more"):
        asked(made, step, rule="lantern")
    with pytest.raises(NeedsRunError, match="greedy sampler only"):
        asked(made, step, ties="second")
    counts = toys.decode(toys.method(drafter=DRAFTERS["chain"], sampler=WARM), count=8, level="summary")
    with pytest.raises(NeedsRunError, match="without its decisions"):
        asked(counts, counts.sink.steps[0])
    jacobi = toys.decode(toys.method(strategy="jacobi"), count=8)
    with pytest.raises(NeedsRunError, match="jacobi"):
        asked(jacobi, jacobi.sink.steps[0])


@pytest.mark.parametrize("level", ["decisions", "full"])
def test_the_judge_s_word_of_a_node_that_it_was_not_asked_about_is_missing_not_guessed(level: str) -> None:
    missing = 0
    for judged in (
        run("lookup", rule=("judge", dict(threshold=1.0)), level=level, seed=seed) for seed in range(4)
    ):
        for step in drafted(judged):
            last = len(step.trials.node) - 1
            if step.trials.ok[last] or last + 1 == len(step.draft.tokens) or not step.trials.p[last]:
                continue
            try:
                # the next node is then tested, and no record has the judge's answer for it
                asked(judged, step, last, u=0.0)
            except NeedsRunError as no:
                assert re.search(f"the judge was not asked about node [{last + 2}-9]", str(no))
                missing += 1
    assert missing > 2


def test_a_distribution_that_the_draft_has_not_is_named() -> None:
    greedy = run("lookup", sampler="greedy", level="full")
    with pytest.raises(
        NeedsRunError,
        match=r"Block.* since node 1 has no distribution that it was drawn from.*fork with it\.$",
    ):
        asked(greedy, drafted(greedy)[0], rule="block", temperature=0.5)


def test_a_fault_of_a_rule_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: Any) -> Any:
        return {}["a fault of ours"]

    made = run("chain", seed=1)
    monkeypatch.setattr(registry("acceptance")["leniency"], "verify", faulty)
    with pytest.raises(KeyError, match="a fault of ours"):
        asked(made, drafted(made)[0], rule="leniency")
