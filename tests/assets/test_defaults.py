"""Trained parts that say when to stop: with the shipped head, each acts at its default setting and improves the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from decodescope.engine import Method, Session
from decodescope.engine.session.load import Model, load
from decodescope.engine.session.run import encode_text_or_ids
from decodescope.engine.trace.records.phases import is_deciding_pass

# texts of the kinds that the models know, none of them from LabBench
TEXTS = (
    "Once upon a time there was a cheerful turtle named Conrad. In March he",
    "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\ndef mul(",
    "The king of the north had three daughters. The eldest",
)


@cache
def loaded(name: str) -> Model:
    return load(name, "float32", "cpu")


def drafted(
    drafter: tuple[str, dict[str, Any]], schedule: str = "fixed", new: int = 40, texts: Sequence[str] = TEXTS
) -> tuple[float, float, Counter[int]]:
    """Return tokens per pass, the share of drafted tokens that were accepted, and the draft lengths, over some texts."""
    method = Method.from_names({"drafter": drafter[0], "schedule": schedule}, {"drafter": drafter[1]})
    target, lengths = loaded("lab"), Counter[int]()
    tokens = passes = accepted = 0
    models = {"draft": loaded("lab-draft")} if "draft" in method.lanes else {}
    for text in texts:
        made = Session(
            target,
            method,
            encode_text_or_ids(target, text),
            models=models,
            max_new_tokens=new,
            stop_tokens=[],
            level="summary",
        )
        for step in made.stream():
            tokens += len(step.emitted)
            passes += sum(map(is_deciding_pass, step.passes))
            accepted += step.accepted
            lengths[step.drafted] += 1
    return tokens / passes, accepted / max(1, sum(k * n for k, n in lengths.items())), lengths


def test_specdec_pp_drafts_as_long_as_is_needed_and_nearly_as_well_as_a_fixed_length() -> None:
    threshold = loaded("lab-draft").decoder.heads["specdec"].threshold  # type: ignore[attr-defined] # a Head's
    assert threshold is not None, "the shipped head has the value that it was calibrated for"
    fixed, _, _ = drafted(("draft_model", {"max_draft_tokens": 4}), new=24, texts=TEXTS[:2])
    found, _, lengths = drafted(("draft_model", {}), "specdec_pp", new=24, texts=TEXTS[:2])
    assert found > 0.9 * fixed, (found, fixed)
    assert max(lengths.values()) < 0.75 * lengths.total() and len(lengths) > 2, lengths
    assert lengths[2] < 0.25 * lengths.total(), "the least length is not that of nearly every draft"


@pytest.mark.nightly
def test_kangaroo_ends_the_drafts_early_that_would_be_rejected() -> None:
    whole, stayed, _ = drafted(("kangaroo", {"min_probability": 0.0}))
    found, more, lengths = drafted(("kangaroo", {}))
    assert more > 1.2 * stayed and found > 0.75 * whole, (found, whole, more, stayed)
    assert len(lengths) > 3 and max(lengths.values()) < 0.75 * lengths.total(), lengths


@pytest.mark.nightly
def test_cerberus_leaves_steps_without_a_draft_that_would_be_rejected() -> None:
    whole, stayed, every = drafted(("hydra", {}))
    found, more, lengths = drafted(("hydra", {}), "cerberus")
    assert more > stayed and found > 0.75 * whole, (found, whole, more, stayed)
    assert 0.05 < lengths[0] / lengths.total() < 0.6 and lengths[0] > every[0] + 3, lengths
