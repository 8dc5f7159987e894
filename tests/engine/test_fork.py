"""Fork: the same run up to a step, then the requested change; forced verdicts; what cannot be forked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import toys
from masked import Masked, hitters

from decodescope.engine import Session
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session.method import MethodError
from decodescope.engine.session.replay.forcing import forced_path
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace import Step, Trace, check, open_trace
from decodescope.engine.trace.encoding.forks import fork_legs, header_at, method_at, reread_steps
from decodescope.engine.trace.records.parts import part_description
from decodescope.lab.wire.messages import build_wire

WARM = ("temperature", dict(temperature=1.0))
TREE = dict(drafter=("draft_model", dict(max_draft_tokens=3, width=2)), sampler=WARM)
AT = 5  # in this step of the run below, node 0 was accepted and node 2, its first child, refused


def base(**parts: Any) -> Any:
    return toys.decode(toys.method(**(parts or TREE)), seed=3)


def forked(run: Any, step: int = AT, until: int | None = None, **more: Any) -> Any:
    big, small = toys.pair()
    made = Fork(
        big, run.header, list(run.sink.steps), step, models={**toys.helper_models(), "draft": small}, **more
    )
    made.sink = Trace()
    while made.end is None and (until is None or made.steps <= until):
        made.step()
    return made


def test_what_the_parts_of_each_method_say_stands_in_the_header_of_a_fork() -> None:
    run = base()
    made = forked(run, method=toys.method(**{**TREE, "sampler": "greedy"}))
    twice = forked(made, AT + 2, method=toys.method(**TREE))
    assert header_at(made.header, AT - 1).parts == header_at(twice.header, AT - 1).parts == run.header.parts
    assert header_at(twice.header, AT).parts == made.header.parts
    assert header_at(made.header, AT) is made.header and header_at(twice.header, AT + 2) is twice.header
    greedy = [
        bool(part_description(header_at(twice.header, AT + k), "sampler").get("greedy")) for k in range(-1, 3)
    ]
    assert greedy == [False, True, True, False]
    wire = build_wire(twice.sink)
    told = [wire.step(step).get("sampler", {}).get("greedy") for step in twice.sink.steps[AT - 1 : AT + 3]]
    assert told == [False, True, True, None], "of the last method the head says it"


def test_what_parts_say_is_no_part_of_the_content_of_a_fork() -> None:
    trace = forked(base(), method=toys.method(**{**TREE, "sampler": "greedy"})).sink
    story = trace.header.fork
    silent = {**story, "base": {key: x for key, x in story["base"].items() if key != "parts"}}
    other = Trace([replace(trace.header, fork=silent), *list(trace.records())[1:-1]])
    other.seal(replace(trace.end))
    assert "parts" in story["base"] and other.end.content_hash == trace.end.content_hash


def facts(step: Step) -> Any:
    trials = None if step.trials is None else (step.trials.node, step.trials.u, step.trials.ok)
    return step.emitted, step.origins, step.path, trials


@pytest.mark.parametrize(
    "parts",
    [
        TREE,
        dict(sampler=WARM),
        dict(drafter="trie", sampler=WARM),
        dict(policy=("h2o", dict(heavy=4, recent=4))),
    ],
)
def test_a_fork_without_a_change_goes_on_as_the_run_did(parts: dict[str, Any]) -> None:
    run = base(**parts)
    made = forked(run)
    assert made.tokens == run.tokens and [*map(facts, made.sink.steps)] == [*map(facts, run.sink.steps)]
    assert made.header.lossless == run.header.lossless and made.header.method == run.header.method
    assert made.header.fork["of"] == run.run_id and made.header.fork["step"] == AT and check(made.sink).ok


CHANGES = [
    dict(method=toys.method(**{**TREE, "sampler": "greedy"})),
    dict(method=toys.method(drafter=("prompt_lookup", dict(max_draft_tokens=4)), sampler=WARM)),
    dict(method=toys.method(drafter=("medusa", dict(nodes=8)), sampler=WARM)),
    dict(method=toys.method(policy=("h2o", dict(heavy=4, recent=4)), sampler=WARM)),
    dict(method=toys.method(**TREE, acceptance="typical")),
    dict(method=toys.method(strategy=("jacobi", dict(block=4)))),
    dict(seed=11),
    dict(max_new_tokens=50),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_fork_is_the_run_up_to_its_step_and_then_goes_its_own_way(change: dict[str, Any]) -> None:
    run = base()
    made = forked(run, **change)
    assert [*map(facts, made.sink.steps[:AT])] == [*map(facts, run.sink.steps[:AT])] and len(
        made.sink.steps
    ) > AT
    if "max_new_tokens" in change:
        assert (
            made.tokens[: len(run.tokens) - 3] == run.tokens[:-3]
            and len(made.tokens) == len(toys.PROMPT) + 50
        )
    else:
        assert made.tokens != run.tokens
    report = check(made.sink)
    assert report.ok, report
    method = change.get("method")
    assert made.header.lossless == (method is None or method.lossless)
    assert method_at(made.header, AT - 1) == run.header.method
    assert method_at(made.header, AT) == (run.header.method if method is None else method.record())


@pytest.mark.parametrize("before", [("h2o", dict(heavy=4, recent=4)), "keep_all"], ids=["same", "another"])
def test_models_that_read_anew_read_as_the_run_did(before: Any) -> None:
    """The models read the prompt, its cut, and the recorded commits one by one.

    So entries and their masses are those that a run up to this step has.
    """
    after = ("h2o", dict(heavy=4, recent=4))
    run = base(**{**TREE, "policy": before})
    made = forked(run, until=AT, method=toys.method(**TREE | dict(drafter="none", policy=after)))
    reference, at = Masked(toys.pair()[0].decoder, hitters(4, 4)), len(toys.PROMPT) - 1
    with torch.inference_mode():
        reference.read(toys.PROMPT[:-1], cut=False)
        for step in made.sink.steps:
            reference.read(made.tokens[at : at + len(step.emitted)])
            at += len(step.emitted)
    assert max(len(step.emitted) for step in made.sink.steps[:AT]) > 1, "the test needs a commit of several"
    for i, store in enumerate(made.target.cache.layers):
        positions = store.positions()[0]
        assert positions.sort(1).values.tolist() == reference.kept[i]
        assert torch.allclose(store.column("mass")[0], reference.mass[i].gather(1, positions), atol=1e-5)
    assert check(made.sink).ok


SELDOM = dict(policy=("interval_eviction", dict(target_entries=7, interval=4, sink_tokens=2)))


def check_cuts(steps: list[Step]) -> None:
    """Each step holds what it holds if the prompt's end is cut to 7 entries, and so is every commit 4 or more tokens later."""
    held, since = 0, 4
    for step in steps:
        since += len(step.emitted)
        held = 7 if since >= 4 else held + len(step.emitted)
        since = 0 if since >= 4 else since
        assert step.cache[0].held == held, step.step


@pytest.mark.parametrize("drafter", [TREE["drafter"], "none"], ids=["goes on", "reads anew"])
def test_a_fork_counts_on_from_the_last_cut(drafter: Any) -> None:
    """When a policy cut last is no property of its cache: a fork that forgets it would cut at its first step."""
    run = base(**TREE, **SELDOM)
    check_cuts(run.sink.steps)
    made = forked(run, method=toys.method(**TREE | SELDOM | dict(drafter=drafter)))
    check_cuts(made.sink.steps)
    assert made.sink.steps[AT].cache[0].held > 7, "the test needs a first step without a cut"
    assert (made.tokens == run.tokens) is (drafter != "none") and check(made.sink).ok


@pytest.mark.parametrize("after", [None, "keep_all"], ids=["same", "another"])
def test_a_plan_of_the_prompt_is_no_bound_of_what_a_fork_holds(after: Any) -> None:
    once = dict(policy=("snapkv", dict(prompt_budget=4, window=2)))
    run = base(**once)
    made = forked(run, **({} if after is None else dict(method=toys.method(policy=after))))
    report = check(made.sink)
    assert check(run.sink).ok and report.ok, report


def test_a_change_that_begins_at_the_first_step_is_the_run_with_that_change() -> None:
    run, other = base(), toys.method(**{**TREE, "acceptance": "typical"})
    assert forked(run, 0, method=other).tokens == toys.decode(other, seed=3).tokens


@pytest.mark.parametrize(
    ("before", "after"),
    [(("beam", dict(width=3)), ("beam", dict(width=2))), ("draft_verify", ("samples", dict(samples=2)))],
)
def test_texts_that_are_read_anew_share_what_the_fork_says(before: Any, after: Any) -> None:
    made = forked(base(strategy=before), 4, method=toys.method(strategy=after))
    assert made.sink.steps[-1].cache[0].shared is not None and check(made.sink).ok, str(check(made.sink))


@pytest.mark.parametrize(
    "strategy", [("beam", dict(width=1)), ("samples", dict(samples=2))], ids=lambda x: x[0]
)
def test_a_fork_to_a_beam_goes_on_at_the_end_of_its_text(strategy: Any) -> None:
    """The likeliest hypothesis, or sample, of a greedy text is that text."""
    run = base(drafter=("draft_model", dict(max_draft_tokens=3)))
    assert sum(len(x.emitted) for x in run.sink.steps[:AT]) > AT, "the test needs a commit of several"
    made = forked(run, method=toys.method(strategy=strategy))
    assert made.tokens == run.tokens and made.end.reason == "max_new_tokens" and check(made.sink).ok


FORKS = ("apar", dict(fork_token="5", child_token="12"))


@pytest.mark.parametrize(
    "after", [FORKS, ("skeleton", dict(outline_prompt="3 5")), "encode_once", "draft_verify"], ids=str
)
@pytest.mark.parametrize("before", [FORKS, "draft_verify"], ids=str)
def test_a_fork_to_and_from_threads_goes_on_at_the_end_of_its_text(before: Any, after: Any) -> None:
    run = base(strategy=before)
    made = forked(run, method=toys.method(strategy=after))
    text = [token for step in run.sink.steps[:AT] for token in step.emitted]
    assert (
        made.tokens[: len(toys.PROMPT) + len(text)] == [*toys.PROMPT, *text]
        and made.end.reason == "max_new_tokens"
    )
    assert check(made.sink).ok, str(check(made.sink))
    assert (made.sink.steps[-1].detail("threads") is not None) == (after != "draft_verify")


def test_what_a_beam_loses_of_a_text_that_was_drafted_is_followed_to_its_end() -> None:
    parts = dict(policy=("tova", dict(cache_size=3)))
    run = base(drafter=("token_recycling", {"nodes": "16"}), **parts)
    assert sum(len(x.emitted) for x in run.sink.steps[:AT]) > AT, "the test needs a commit of several"
    made = forked(run, method=toys.method(strategy=("beam", dict(width=1)), **parts))
    gone = [x.cache[0].evicted for x in made.sink.steps[AT:] if x.cache[0].evicted is not None]
    assert max(int(x[:, 2].max()) for x in gone) >= len(toys.PROMPT) + AT + 1 and check(made.sink).ok, str(
        check(made.sink)
    )


def test_a_forced_verdict_is_taken_and_the_run_goes_on_from_there() -> None:
    run = base()
    step = run.sink.steps[AT]
    assert step.path == [0] and step.draft.parents == [-1, -1, 0, 1, 2, 3], "the test needs this draft"
    tokens = step.draft.tokens
    for node, path in [(0, [0]), (1, [1]), (2, [0, 2]), (3, [1, 3]), (5, [1, 3, 5])]:
        made = forked(run, forced={node: True})
        there = made.sink.steps[AT]
        assert there.path[: len(path)] == path and there.emitted[: len(path)] == [tokens[x] for x in path]
        assert there.forced == [node] and len(there.emitted) == len(there.path) + 1
        before = len(toys.PROMPT) + sum(len(x.emitted) for x in run.sink.steps[:AT])
        assert (
            made.tokens[before : before + len(path)] == [tokens[x] for x in path]
            and made.tokens[:before] == run.tokens[:before]
        )
        assert not made.header.lossless and made.header.forced and check(made.sink).ok
        assert made.header.fork["forced"] == [[node, True]]
        assert not any(x.forced for x in made.sink.steps if x.step != AT)
    same = forked(run, forced={0: True})
    assert same.sink.steps[AT].emitted[:1] == step.emitted[:1], "what was accepted anyway may be forced too"


def test_a_node_that_is_forced_out_is_not_taken_and_its_token_does_not_come_there() -> None:
    run = base()
    made = forked(run, forced={0: False})
    step = made.sink.steps[AT]
    assert 0 not in step.path and step.emitted[0] != run.sink.steps[AT].draft.tokens[0]
    assert (0, False) in zip(step.trials.node, step.trials.ok, strict=True) and step.trials.u[
        step.trials.node.index(0)
    ] is None
    both = forked(run, forced={0: True, 2: False}).sink.steps[AT]
    assert (
        both.path == [0] and both.emitted[1] != run.sink.steps[AT].draft.tokens[2] and both.forced == [0, 2]
    )


def test_under_a_greedy_law_the_second_choice_comes_where_the_first_is_forced_out() -> None:
    run = base(drafter=("draft_model", dict(max_draft_tokens=3)))
    at = next(x for x in run.sink.steps if x.path)
    made = forked(run, at.step, until=at.step, forced={at.path[0]: False}).sink.steps[at.step]
    assert made.path == [] and made.origins == ["correction"] and made.emitted != at.emitted[:1]
    row = list(at.tops.places).index(-1)
    assert made.emitted == [int(at.tops.ids[row, 1])]


@pytest.mark.parametrize("acceptance", ["block", "spectr", "typical", ("leniency", dict(epsilon=0.5))])
def test_every_rule_can_be_forced(acceptance: Any) -> None:
    run = base(drafter=("draft_model", dict(max_draft_tokens=3)), sampler=WARM, acceptance=acceptance)
    at = next(x for x in run.sink.steps[2:] if x.draft is not None and x.path is not None and len(x.path) < 2)
    made = forked(run, at.step, forced={1: True})
    assert (
        made.sink.steps[at.step].path[:2] == [0, 1]
        and check(made.sink).ok
        and made.end.reason == "max_new_tokens"
    )


def test_a_fork_of_a_fork_repeats_both_and_a_saved_one_reads_back(tmp_path: Any) -> None:
    run = base()
    first = forked(run, forced={1: True})
    second = forked(first, AT + 2, seed=8)
    assert [*map(facts, second.sink.steps[: AT + 2])] == [*map(facts, first.sink.steps[: AT + 2])]
    assert [x.first for x in fork_legs(second.header)] == [0, AT, AT + 2] and not second.header.lossless
    earlier = forked(second, AT - 1)  # before both turns: the first run again
    assert [x.first for x in fork_legs(earlier.header)] == [0, AT - 1] and earlier.tokens == run.tokens
    opened = open_trace(second.sink.save(tmp_path / "x.dstrace"))
    assert opened.header.fork == second.header.fork and opened.steps[AT].forced == [1] and check(opened).ok
    assert forked(run).end.content_hash == forked(run).end.content_hash


REFUSED = [
    (dict(step=99), "the run has"),
    (dict(max_new_tokens=2), "allow more"),
    (dict(forced={9: True}), "no drafted node 10"),
    (dict(forced={0: True, 1: True}), "cannot both be accepted"),
    (dict(forced={0: False, 2: True}), "cannot be rejected as well"),
    (dict(forced={0: True, 1: False}), "is not reached"),
    (dict(forced={3: False}), "not reached in step"),
    (
        dict(forced={0: True}, method=toys.method(strategy=("jacobi", dict(block=4)))),
        "no verdicts that could be forced",
    ),
]


@pytest.mark.parametrize(("how", "says"), REFUSED)
def test_what_cannot_be_forked_is_refused_in_a_sentence(how: dict[str, Any], says: str) -> None:
    with pytest.raises(MethodError, match=says):
        forked(base(), **how)


def test_another_model_or_another_past_is_refused() -> None:
    run = base()
    big, small = toys.pair()
    steps = list(run.sink.steps)
    with pytest.raises(MethodError, match="whose weights are others"):
        Fork(replace(big, fingerprint="1" * 16), run.header, steps, AT, models={"draft": small})
    with pytest.raises(MethodError, match="draft model, toy, is not loaded here"):
        Fork(big, run.header, steps, AT)
    lied = [replace(x, emitted=[7] * len(x.emitted)) if x.step == 2 else x for x in steps]
    made = Fork(big, run.header, lied, AT, models={"draft": small})
    made.sink = Trace()
    with pytest.raises(EngineFault, match="Step 2 came out otherwise"):
        [*made.stream()]
    assert made.end.reason == "bad_input" and len(made.sink.steps) == 2, "what is not the run is not kept"


def test_a_fork_goes_on_with_another_draft_as_a_run_with_it_does() -> None:
    """The text up to the step was drafted by the run's own; from there on every draft is the other one's."""
    parts = dict(drafter=("draft_model", dict(max_draft_tokens=3)))
    big, _ = toys.pair()
    repaired = toys.noisy_decoder(big.decoder, 0.01, seed=9)
    other = replace(toys.model(repaired), fingerprint="1" * 16)
    run = base(**parts)
    made = forked(run, instead={"draft": other})
    begun = len(run.header.prompt) + sum(len(x.emitted) for x in run.sink.steps[:AT])
    alone = Session(
        big, toys.method(**parts), run.tokens[:begun], models={"draft": other},
        max_new_tokens=len(run.tokens) - begun, stop_tokens=(),
    )  # fmt: skip
    later = [(x.emitted, x.draft.tokens) for x in toys.finish_session(alone).sink.steps]
    assert [(x.emitted, x.draft.tokens) for x in made.sink.steps[AT:]] == later
    assert made.tokens == run.tokens, "greedy: the target's text"
    assert len(made.sink.steps) < len(run.sink.steps), "the guard: the other draft is better"
    assert made.header.lanes["draft"]["fingerprint"] == other.fingerprint and check(made.sink).ok
    assert header_at(made.header, AT - 1).lanes == run.header.lanes and reread_steps(made.header) == {AT}
    again = forked(made, AT)
    assert again.tokens == run.tokens and again.header.lanes == run.header.lanes, "forked before the change"
    with pytest.raises(MethodError, match="took another draft before step 6"):
        forked(made, AT + 1)


def test_a_fork_goes_on_with_another_head() -> None:
    parts = dict(drafter=("eagle", dict(nodes=4)))
    run = base(**parts)
    big, _ = toys.pair()
    head = big.decoder.heads["eagle"]
    noise = torch.Generator().manual_seed(1)
    tensors = {
        name: x * torch.rand(x.shape, generator=noise, dtype=x.dtype) for name, x in head.tensors().items()
    }
    decoder = big.decoder.with_heads({"eagle": head.with_tensors(tensors)})
    made = forked(run, instead={"target": replace(big, decoder=decoder)})
    ours, theirs = ([s.draft and s.draft.tokens for s in x.sink.steps] for x in (made, run))
    assert (
        ours[:AT] == theirs[:AT]
        and ours[AT] != theirs[AT]
        and made.tokens == run.tokens
        and check(made.sink).ok
    )


@pytest.mark.parametrize(
    ("instead", "says"),
    [
        ({"draft2": "small"}, "reads no draft2 model"),
        ({"draft": "wide"}, "has d_ff = 40, the run's draft model 64"),
        ({"draft": "single"}, "loaded in float32: load it in float64"),
        ({"target": "small"}, "Only the target's heads can be others"),
    ],
)
def test_a_model_that_cannot_take_the_place_is_refused(instead: dict[str, str], says: str) -> None:
    _, small = toys.pair()
    models = {
        "small": replace(small, fingerprint="1" * 16),
        "wide": toys.model(toys.decoder(replace(small.spec, d_ff=40), 3)),
        "single": toys.model(small.decoder.to(torch.float32)),
    }
    with pytest.raises(MethodError, match=says):
        forked(base(), instead={role: models[name] for role, name in instead.items()})


def test_forced_verdicts_must_agree() -> None:
    parents = [-1, -1, 0, 1, 2]
    assert forced_path(parents, {}) == [] == forced_path(parents, {0: False}) and forced_path(
        parents, {4: True, 0: True}
    ) == [
        0,
        2,
        4,
    ]
    assert forced_path(parents, {1: True, 0: False}) == [1], (
        "a sibling that stands before it was refused first"
    )
    with pytest.raises(ValueError, match="not reached"):
        forced_path(parents, {0: True, 3: False})
