"""Runs of the toy lab for the tests of views: every rule that the lab explains, and hostile texts."""

from __future__ import annotations

from functools import cache
from typing import Any

import toys
from toylab import HOSTILE, Words

from decodescope.engine import Session
from decodescope.engine.trace import Trace

TEXTS = [f" {letter}" for letter in "abcdefghijklm"]
METHODS: dict[str, dict[str, Any]] = {
    "chain": dict(drafter=("draft_model", {"max_draft_tokens": 3}), sampler="temperature"),
    "tree": dict(drafter=("draft_model", {"max_draft_tokens": 2, "width": 4}), sampler="temperature"),
    "copied": dict(drafter=("prompt_lookup", {"max_draft_tokens": 4, "ngram": 1}), sampler="temperature"),
    "block": dict(
        drafter=("draft_model", {"max_draft_tokens": 4}), acceptance="block", sampler="temperature"
    ),
    "typical": dict(
        drafter=("draft_model", {"max_draft_tokens": 3, "width": 3}),
        acceptance="typical",
        sampler="temperature",
    ),
    "lenient": dict(
        drafter=("draft_model", {"max_draft_tokens": 3, "width": 2}),
        acceptance="leniency",
        sampler="temperature",
    ),
    "k-SEQ": dict(
        drafter=("chains", {"max_draft_tokens": 3, "chains": 3}), acceptance="spectr", sampler="temperature"
    ),
    "judged": dict(
        drafter=("draft_model", {"max_draft_tokens": 3}),
        acceptance=("judge", {"threshold": 0.7}),
        sampler="temperature",
    ),
    "greedy": dict(drafter=("draft_model", {"max_draft_tokens": 3}), sampler="greedy"),
    "plain": dict(sampler="temperature"),
    "plain greedy": dict(),
    "heavy": dict(policy=("h2o", {"heavy": 2, "recent": 2})),
    "jacobi": dict(strategy=("jacobi", {"block": 4})),
    "beam": dict(strategy=("beam", {"width": 3})),
}


def run(
    name: str, *, count: int = 60, hostile: bool = False, level: Any = "decisions", seed: int = 0
) -> Trace:
    """A finished run of the toy pair under one of METHODS. Its tokens have letters as texts, or hostile strings."""
    target, draft = toys.target(seed=toys.LIVELY), toys.draft(noise=0.3, seed=toys.LIVELY)
    target.tokenizer = draft.tokenizer = Words(HOSTILE if hostile else TEXTS)  # type: ignore[assignment]
    made = Session(
        target,
        toys.method(**METHODS[name]),
        toys.PROMPT,
        models={"draft": draft},
        max_new_tokens=count,
        level=level,
        seed=seed,
    )
    made.sink = Trace()
    for _ in made.stream():
        pass
    made.sink.header.machine = None  # a test must not depend on whether this machine was measured before
    return made.sink


@cache
def known(name: str) -> Trace:
    """The same run, made only once: for tests that change nothing."""
    return run(name)
