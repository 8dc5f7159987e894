"""A part that did nothing in a run: the end of the run says so, with the reason, and only then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import toys

from decodescope.engine.core.activity import common_idle_notes
from decodescope.engine.methods.drafters.lookup.prompt_lookup import PromptLookup
from decodescope.engine.session.method import Method
from decodescope.engine.session.replay.fork import Fork
from decodescope.engine.trace import TraceError, open_trace
from decodescope.engine.trace.checks.record_consistency import validate_end
from decodescope.engine.trace.records.events import LEVELS, End
from decodescope.lab.wire.wire import end_message

FRESH = list(range(12))  # no token occurs twice
WIDE = {"heavy": 100, "recent": 20}

# parts, new tokens, and the note on a run over FRESH
IDLE: dict[str, tuple[dict[str, Any], int, str]] = {
    "a budget": (dict(policy=("h2o", WIDE)), 4, "h2o kept all 15 entries: its budget is 120."),
    "a budget of the prompt": (dict(policy="snapkv"), 4, "snapkv kept all 12 entries of the prompt: its budget is 64."),
    "no budget": (
        dict(policy=("fastgen", {"min_recovery": 1.0})), 4, "fastgen kept all 15 entries: no head holds more than it may keep.",
    ),
    "a pyramid that fits": (dict(policy="pyramidkv"), 4, "pyramidkv kept all 12 entries of the prompt: its budget is 64."),
    "a flat pyramid": (
        dict(policy=("pyramidkv", {"prompt_budget": 8, "window": 2})), 4,
        "pyramidkv gave all 3 layers the same budget of 10: the prompt has 12 tokens, and the budgets differ from 16 on.",
    ),
    "a pyramid of one budget": (
        dict(policy=("pyramidkv", {"prompt_budget": 2, "window": 2, "beta": 1})), 4,
        "pyramidkv gave all 3 layers the same budget of 4: beta is 1.",
    ),
    "pages": (dict(policy="quest"), 4, "quest let every pass read all 15 entries: a query head may read 256."),
    "a group": (dict(kv_compression="kivi"), 4, "kivi packed none of the 15 entries: it packs 32 at a time."),
    "a bar": (
        dict(adaptive_depth=("confidence_exit", {"min_layers": 1, "threshold": 1.0})), 4,
        "confidence_exit ran all 3 layers in each of 4 passes: its rule left none out.",
    ),
    "an empty plan": (dict(adaptive_depth="layer_plan"), 4,
                      "layer_plan ran all 3 layers in each of 4 passes: its rule left none out."),
    "a short prompt": (
        dict(prompt_compression="gemfilter"), 4,
        "gemfilter changed nothing: all 12 tokens of the prompt were read, its budget is 64.",
    ),
    "no match": (dict(drafter=("prompt_lookup", {"ngram": 3})), 2, "prompt_lookup drafted nothing in 1 step: it had no guess."),
    "no room": (dict(drafter="draft_model"), 1, "draft_model drafted nothing: no step had room for a draft."),
    "no draft to judge": (dict(acceptance="typical"), 4, "typical judged nothing: in 4 steps nothing was drafted."),
    "a length that stays": (
        dict(drafter=("draft_model", {"max_draft_tokens": 1}), schedule=("heuristic", {"max_draft_tokens": 1})), 6,
        r"heuristic changed no draft in \d steps: each had the drafter's own length, 1, or the room that was left\.",
    ),
    "a gate that is open": (
        dict(drafter="draft_model", schedule=("cerberus", {"min_probability": 0.0})), 4,
        r"cerberus changed no draft in \d steps?: it held none back\.",
    ),
    "a gate that is shut": (
        dict(drafter="draft_model", schedule=("cerberus", {"min_probability": 1.0})), 4,
        r"draft_model drafted nothing in 3 steps: the schedule held every draft back\.",
    ),
    "one model for all": (
        dict(strategy="switch", router=("entropy", {"tau": -1.0})), 4,
        r"entropy never handed over: the large model wrote everything\.",
    ),
    "any text": (
        dict(sampler=("grammar", {"definition": "[a-z]*"})), 4,
        r"grammar refused nothing in 4 steps: the likeliest token always fitted\.",
    ),
}  # fmt: skip


def notes(parts: dict[str, Any], prompt: list[int], count: int, level: str = "decisions") -> list[str]:
    return toys.decode(toys.method(**parts), prompt, count, level=level).end.notes


@pytest.mark.parametrize("why", IDLE)
def test_the_end_says_which_part_did_nothing_and_why(why: str) -> None:
    parts, count, due = IDLE[why]
    found = notes(parts, FRESH, count)
    assert len(found) == 1 and re.fullmatch(due, found[0]), found


ACTIVE: list[dict[str, Any]] = [  # each part above, set up so that it acts in the run
    dict(policy=("h2o", {"heavy": 4, "recent": 4})),
    dict(policy=("pyramidkv", {"prompt_budget": 4, "window": 2})),
    dict(policy=("snapkv", {"prompt_budget": 4, "window": 2})),
    dict(policy=("quest", {"token_budget": 16, "dense_layers": 1})),
    dict(kv_compression="kivi"),
    dict(adaptive_depth=("confidence_exit", {"min_layers": 1, "threshold": 0.0})),
    dict(adaptive_depth=("layer_plan", {"skip": "a1"})),
    dict(prompt_compression=("gemfilter", {"prompt_budget": 8})),
    dict(drafter="prompt_lookup", acceptance="typical"),
    dict(strategy="switch", router=("entropy", {"tau": 1.0, "min_turn_tokens": 1})),
    dict(sampler=("grammar", {"definition": "[a]*"})),
    dict(guidance="contrastive"),
    dict(sampler="temperature"),
    dict(),
]


@pytest.mark.parametrize("parts", ACTIVE, ids=lambda x: "-".join(map(str, x)) or "plain")
def test_a_part_that_did_something_is_not_named(parts: dict[str, Any]) -> None:
    for level in ("summary", "decisions"):
        assert notes(parts, toys.PROMPT * 2, 24, level) == [], level


def test_each_stage_of_a_chain_answers_for_itself() -> None:
    method = Method.from_names(
        {"sampler": ["temperature", "top_k"]}, {"temperature.temperature": 1.0, "top_k.k": 3}
    )
    assert toys.decode(method, FRESH, 4).end.notes == [
        "temperature changed no distribution in 4 steps with temperature = 1.0."
    ]
    method = Method.from_names(
        {"sampler": ["temperature", "top_k"]}, {"temperature.temperature": 0.5, "top_k.k": 1000}
    )
    assert toys.decode(method, FRESH, 4).end.notes == [
        "top_k changed no distribution in 4 steps with k = 1000."
    ]


def test_a_part_of_somebody_else_says_it_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """No central code knows a part by its name."""
    monkeypatch.setattr(
        PromptLookup,
        "idle_reason",
        lambda self, did: f"{self.name} of {did.steps} steps." if not did.drafted_count else "",
    )
    assert notes(dict(drafter="prompt_lookup"), FRESH, 2) == ["prompt_lookup of 2 steps."]


def test_notes_come_with_every_level_and_travel_in_the_trace(tmp_path: Path) -> None:
    for level in LEVELS:
        done = toys.decode(toys.method(policy=("h2o", WIDE)), FRESH, 4, level=level)
        assert done.end.notes == ["h2o kept all 15 entries: its budget is 120."]
    path = done.sink.save(tmp_path / "a.dstrace")
    assert open_trace(path).end.notes == done.end.notes == end_message(done.end)["notes"]
    plain = toys.decode(toys.method(), FRESH, 4)
    assert plain.end.notes == [], "nothing was chosen that could do nothing"


def test_a_fork_speaks_of_its_own_parts() -> None:
    before = toys.decode(toys.method(drafter="prompt_lookup"), FRESH, 2)
    assert [x.partition(" ")[0] for x in before.end.notes] == ["prompt_lookup"]
    wide = toys.method(policy=("h2o", WIDE))
    forked = Fork(toys.pair()[0], before.sink.header, list(before.sink.steps), 1, method=wide)
    assert toys.finish_session(forked).end.notes == ["h2o kept all 13 entries: its budget is 120."]


def test_notes_of_several_runs_become_one_line_for_each_part() -> None:
    runs = [["a kept all 3.", "b did not."], ["a kept all 4."]]
    assert common_idle_notes(runs) == ["In each of 2 runs, here the first: a kept all 3."]
    assert common_idle_notes(runs[:1]) == runs[0] and common_idle_notes([]) == []


def test_notes_of_a_trace_from_anywhere_are_short() -> None:
    for wrong in (["x" * 401], ["x"] * 33):
        with pytest.raises(
            TraceError, match="notes and violations must be at most 32, each of at most 400 characters"
        ):
            validate_end(End("stop_token", [], 0, notes=wrong), 9)
    validate_end(End("stop_token", [], 0, notes=["x" * 400] * 32), 9)
