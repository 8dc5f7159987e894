"""Budgets as a share of the prompt: their entries, the memory that they free, and that run and forks keep them fixed."""

from __future__ import annotations

from typing import Any

import pytest
import toys

from decodescope.engine.bench.questions.prompts import PROMPTS
from decodescope.engine.core.component import build
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.policy import LEAST, MOST
from decodescope.engine.session.load import load
from decodescope.engine.session.method import Method
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.session.session import Session
from decodescope.engine.trace import Trace, check

PARTS = {"h2o": ("heavy", "recent"), "streaming_llm": ("sink_tokens", "recent"), "window": ("window",)}
WARM = ("temperature", dict(temperature=1.0))


def begun(name: str, prompt: int, **settings: Any) -> Any:
    policy = build("policy", name, settings)
    policy.begin(toys.SPEC, prompt)
    return policy


def budget(policy: Any) -> int:
    return sum(getattr(policy, knob) for knob in PARTS[policy.name])


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize(
    ("share", "prompt", "due"),
    [
        (0.25, 200, 50),
        (0.25, 203, 50),
        (0.29, 100, 29),
        (0.5, 33, 16),
        (1, 77, 77),
        (0.1, 4000, 400),
        (0.25, 12, LEAST),
    ],
)
def test_the_budget_is_the_share_of_the_prompt(name: str, share: float, prompt: int, due: int) -> None:
    """The knobs hold the resulting numbers, from which the same prompt makes the same policy again."""
    policy = begun(name, prompt, budget_share=share)
    assert budget(policy) == due and policy.knobs()["budget_share"] == share
    assert begun(name, prompt, **policy.knobs()) == policy
    assert budget(begun(name, prompt)) == budget(build("policy", name)), "without a share the numbers stay"


def test_a_share_is_divided_as_the_numbers_are() -> None:
    for heavy, recent, due in [
        (64, 64, (25, 25)),
        (10, 30, (12, 38)),
        (0, 7, (0, 50)),
        (65_536, 1, (49, 1)),
        (3, 1, (37, 13)),
    ]:
        made = begun("h2o", 200, heavy=heavy, recent=recent, budget_share=0.25)
        assert (made.heavy, made.recent) == due
    for sinks, due in [(0, (0, 50)), (4, (4, 46)), (64, (64, 1))]:
        made = begun("streaming_llm", 200, sink_tokens=sinks, budget_share=0.25)
        assert (made.sink_tokens, made.recent) == due


@pytest.mark.parametrize("name", PARTS)
def test_a_share_that_makes_no_sense_is_refused(name: str) -> None:
    for share in (-0.1, 1.01, float("nan"), "much", True):
        with pytest.raises(
            ParamError,
            match=rf"^{name}\.budget_share = .*: must (lie in \[0, 1\] of the prompt|be a number)\.$",
        ):
            Method.from_names({"policy": name}, {"policy": {"budget_share": share}})
    long = 4 * MOST
    with pytest.raises(
        ParamError,
        match=rf"{name}\.budget_share = 0\.5: of the prompt's {long} .* at most {MOST}; .* 0\.25\.$",
    ):
        begun(name, long, budget_share=0.5)
    assert budget(begun(name, long, budget_share=0.25)) == MOST


def ran(name: str, prompt: list[int], share: float, **parts: Any) -> Session:
    numbers = dict.fromkeys(PARTS[name], 4)
    return toys.decode(
        toys.method(policy=(name, dict(numbers, budget_share=share)), **parts), prompt, count=24
    )


@pytest.mark.parametrize("name", PARTS)
def test_the_memory_falls_with_the_share(name: str) -> None:
    """The recorded held entries equal the budget, their bytes are those of the storages, and smaller budgets free more."""
    prompt, sizes = toys.prompts(1, 320)[0], []
    for share in (0.75, 0.5, 0.2):
        session = ran(name, prompt, share)
        change = session.sink.steps[-1].cache[0]
        assert change.held == budget(session.method.policy) == int(320 * share)
        assert change.held_bytes == session.target.cache.nbytes
        assert session.header.method["policy"] == {"name": name, **session.method.policy.knobs()}
        assert check(session.sink).ok
        sizes.append(change.held_bytes)
    assert sizes[0] > sizes[1] > sizes[2] and sizes[2] < change.full_bytes / 2


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize(
    "drafter", ["none", ("draft_model", dict(max_draft_tokens=3, width=3))], ids=["plain", "tree"]
)
def test_a_share_does_what_the_numbers_that_it_comes_to_do(name: str, drafter: Any) -> None:
    prompt = toys.prompts(1, 90, seed=4)[0]
    a = ran(name, prompt, 0.3, drafter=drafter, sampler=WARM)
    numbers = {knob: getattr(a.method.policy, knob) for knob in PARTS[name]}
    b = toys.decode(toys.method(policy=(name, numbers), drafter=drafter, sampler=WARM), prompt, count=24)
    assert sum(numbers.values()) == 27 and a.tokens == b.tokens
    for x, y in zip(a.sink.steps, b.sink.steps, strict=True):
        assert (x.emitted, x.cache[0].held, x.cache[0].evicted_count) == (
            y.emitted,
            y.cache[0].held,
            y.cache[0].evicted_count,
        )
    assert sum(x.cache[0].evicted_count for x in a.sink.steps) > 20


@pytest.mark.parametrize(
    "change",
    [
        {},
        dict(seed=11),
        dict(drafter=("prompt_lookup", dict(max_draft_tokens=4))),
        dict(policy=("h2o", dict(heavy=3, recent=1, budget_share=0.8))),
    ],
    ids=["none", "seed", "drafter", "share"],
)
def test_a_fork_keeps_to_the_prompt_of_the_run(change: dict[str, Any]) -> None:
    """At the fork the text is twice as long, and the budget is still a share of the original prompt."""
    prompt = toys.prompts(1, 50, seed=2)[0]
    parts: dict[str, Any] = dict(
        policy=("h2o", dict(heavy=3, recent=1, budget_share=0.5)), drafter="trie", sampler=WARM
    )
    run = toys.decode(toys.method(**parts), prompt, count=60, seed=3)
    assert run.header.method["policy"] == {
        "name": "h2o",
        "heavy": 18,
        "recent": 7,
        "oracle": False,
        "budget_share": 0.5,
    }
    seed, other = change.get("seed"), {**parts, **{kind: x for kind, x in change.items() if kind != "seed"}}
    big, small = toys.pair()
    made = Fork(
        big,
        run.header,
        list(run.sink.steps),
        len(run.sink.steps) - 8,
        models={**toys.helper_models(), "draft": small},
        seed=seed,
        method=None if other == parts else toys.method(**other),
    )
    made.sink = Trace()
    while made.end is None:
        made.step()
    asked = {"name": "h2o", "heavy": 30, "recent": 10, "oracle": False, "budget_share": 0.8}
    due = asked if "policy" in change else run.header.method["policy"]
    assert made.header.method["policy"] == {"name": "h2o", **made.target.policy.knobs()} == due
    assert made.target.cache.fullest_length == due["heavy"] + due["recent"] and check(made.sink).ok
    if not change:
        assert made.tokens == run.tokens


@pytest.mark.nightly
@pytest.mark.parametrize(
    "drafter",
    [("eagle", {}), ("eagle2", {}), ("draft_model", dict(max_draft_tokens=4, width=2))],
    ids=lambda x: x[0],
)
def test_trees_on_the_shipped_pair_with_a_quarter_of_the_prompt(drafter: tuple[str, dict[str, Any]]) -> None:
    """Eviction happens at commits only, never of a refused node, and held entries are as the trace records them."""
    model = load("lab")
    assert model.tokenizer is not None
    prompt = model.tokenizer.encode("\n\n".join(PROMPTS.values()))
    made = Method.from_names(
        {"drafter": drafter[0], "policy": "h2o"}, {"drafter": drafter[1], "policy": {"budget_share": 0.25}}
    )
    session = Session(model, made, prompt, models={"draft": load("lab-draft")}, max_new_tokens=32)
    session.sink = Trace()
    due = len(prompt) // 4
    while session.end is None:
        step = session.step()
        change = step.cache[0]
        assert change.held == session.target.cache.fullest_length == due
        # the first cut follows the commit of the prompt's last token
        assert change.evicted_count == change.appended + (len(prompt) - 1 - due if step.step == 0 else 0)
        assert change.appended == len(step.emitted)
        assert change.held_bytes == session.target.cache.nbytes < change.full_bytes
        assert len(session.target.tokens) == len(session.tokens) - 1
    steps = session.sink.steps
    assert (
        len(prompt) > 200
        and check(session.sink).ok
        and max(len(x.draft.parents) for x in steps if x.draft) > 4
    )
    assert sum(x.accepted for x in steps) > 0
