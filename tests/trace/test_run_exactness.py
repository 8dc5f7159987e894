"""Exactness of a run's text: one mark for a whole run, from what its parts declare."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decodescope.engine.core.component import build, registry
from decodescope.engine.session.method import Method
from decodescope.engine.trace import Header, TraceError
from decodescope.engine.trace.checks.record_consistency import validate_header
from decodescope.engine.trace.query.causes import causes_of
from decodescope.engine.trace.query.comparability import (
    comparison_key,
    describe_divergence,
    exactness_mark_text,
    is_plain,
)

LOSSY = {
    "beam": ({"strategy": "beam"}, "the continuation with the best sum is kept (beam)"),
    "calm": ({"adaptive_depth": "confidence_exit"}, "layers are left out (confidence exit)"),
    "h2o": ({"policy": "h2o"}, "entries leave the cache (h2o)"),
    "streaming": ({"policy": "streaming_llm"}, "entries leave the cache (streaming llm)"),
    "typical": (
        {"drafter": "prompt_lookup", "acceptance": "typical", "sampler": ["temperature"]},
        "what the target finds likely enough is kept (typical)",
    ),
}


def header(method: Method, seed: int = 7, prompt: int = 1) -> Header:
    made = Header(
        {"fingerprint": "f"}, method.record(), np.array([prompt], "<i4"), seed, parts=method.describe_parts()
    )
    return valued(made)


def valued(header: Header, **changes: Any) -> Header:
    """Return the header with these changes, and the exactness that follows from it."""
    changed = replace(header, **changes)
    return replace(changed, exactness=causes_of(changed).exactness)


@pytest.mark.parametrize("name", LOSSY)
def test_a_run_whose_text_may_differ_says_because_of_what(name: str) -> None:
    parts, why = LOSSY[name]
    assert exactness_mark_text(header(Method.from_names(parts))) == f"lossy, because: {why}"


def test_a_rule_is_no_reason_where_it_changes_nothing() -> None:
    """With a greedy target `typical` matches exactly, and without drafts nothing is tested: H2O alone is the reason."""
    greedy = Method.from_names({"drafter": "prompt_lookup", "acceptance": "typical", "policy": "h2o"})
    assert exactness_mark_text(header(greedy)) == "lossy, because: entries leave the cache (h2o)"
    assert (
        exactness_mark_text(header(Method.from_names({"drafter": "prompt_lookup", "acceptance": "typical"})))
        == "lossless"
    )


def test_a_lossless_run_says_whether_its_text_is_one_of_a_distribution() -> None:
    assert exactness_mark_text(header(Method.from_names({"drafter": "prompt_lookup"}))) == "lossless"
    drawn = {"drafter": "prompt_lookup", "sampler": ["temperature"]}
    assert exactness_mark_text(header(Method.from_names(drawn))) == "lossless, in distribution"


def test_a_greedy_lossless_run_says_how_its_text_compares_with_plain_decodings() -> None:
    drafts, plain = (header(Method.from_names(x)) for x in ({"drafter": "prompt_lookup"}, {}))
    drafts.kernels = plain.kernels = "rows"
    assert exactness_mark_text(drafts) == "lossless, the same bits as plain decoding"
    assert exactness_mark_text(plain) == "lossless"
    drafts.kernels, drafts.dtype = "torch", "bfloat16"
    assert exactness_mark_text(drafts) == "lossless, but for numerical ties"
    drafts.dtype = "float32"
    assert exactness_mark_text(drafts) == "lossless"


def test_where_another_law_stands_the_text_is_said_to_be_of_that_law_and_is_held_against_no_other() -> None:
    law = Method.from_names(
        {"guidance": "contrastive", "drafter": "prompt_lookup", "sampler": ["temperature"]}
    )
    guided = "because: guidance replaces the model's distribution (contrastive)"
    assert exactness_mark_text(header(law)) == f"exact for settings, in distribution; {guided}"
    plain, other = (
        Method.of("contrastive"),
        Method.from_names({"guidance": "contrastive"}, {"guidance.alpha": 0.5}),
    )
    assert is_plain(header(plain)) and comparison_key(header(plain)) != comparison_key(header(Method()))
    lanes = {"amateur": {"fingerprint": "g"}}
    assert (
        len(
            {
                comparison_key(header(plain)),
                comparison_key(header(other)),
                comparison_key(replace(header(plain), lanes=lanes)),
            }
        )
        == 3
    )


@pytest.mark.parametrize(
    "bits", [10**400, float("nan"), -1.0, True, "4"], ids=["huge", "nan", "below", "flag", "text"]
)
def test_bits_that_are_no_number_are_refused_with_the_header(bits: object) -> None:
    entry = replace(header(Method()), prompt=np.arange(3), loaded={"entries": 2, "bits": 4.2})
    validate_header(entry)
    with pytest.raises(TraceError, match=r"loaded\.bits is .*, which is no number from 0 to"):
        validate_header(replace(entry, loaded={"entries": 2, "bits": bits}))


def test_what_no_part_says_is_said_of_the_run() -> None:
    forced = valued(header(Method()), forced=True)
    assert exactness_mark_text(forced) == "lossy, because: verdicts were forced"
    loaded = valued(header(Method()), loaded={"entries": 12, "bits": 4.2134})
    assert exactness_mark_text(loaded).endswith(
        "because: 12 entries of the prompt were loaded from a file, in 4.21 bits a number"
    )
    earlier = replace(header(Method()), exactness="lossy", fork={"of": "x", "step": 1})
    assert exactness_mark_text(earlier).endswith("another method decoded before the fork")
    rule = Method.from_names(
        {"drafter": "prompt_lookup", "acceptance": "typical", "sampler": ["temperature"]}
    )
    assert exactness_mark_text(header(rule)).endswith("what the target finds likely enough is kept (typical)")


@pytest.mark.parametrize("kind", ["strategy", "acceptance"])
def test_a_part_says_why_exactly_where_it_changes_the_text(kind: str) -> None:
    for name in registry(kind):
        part = build(kind, name, {})
        assert bool(part.changes) is not part.lossless, f"{name} says {part.changes!r}"


def test_plain_decoding_is_held_against_runs_with_its_settings() -> None:
    plain, h2o = header(Method()), header(Method.from_names({"policy": "h2o"}))
    assert (
        is_plain(plain)
        and not is_plain(h2o)
        and not is_plain(header(Method.from_names({"drafter": "prompt_lookup"})))
    )
    assert (
        comparison_key(plain)
        == comparison_key(h2o)
        == comparison_key(header(Method(), seed=8))
        != comparison_key(header(Method(), prompt=2))
    )
    drawn = [header(Method.from_names({"sampler": ["temperature"]}), seed) for seed in (7, 8)]
    assert len({comparison_key(x) for x in (plain, *drawn)}) == 3, "what is drawn depends on the seed"


def test_where_two_texts_part_is_counted_from_one() -> None:
    assert describe_divergence([1, 2, 3], [1, 2, 4]) == "parted from plain decoding at token 3"
    assert describe_divergence([1, 2], [1, 2, 4], "A") == "as A for 2 tokens"
