"""EAGLE-3 and P-EAGLE heads that the library speculators wrote, and its drafts with them, recorded by benchmarks/fidelity."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
RECORDED: dict[str, dict[str, Any]] = json.loads((HERE / "speculators_heads.json").read_text())
MASKED: dict[str, dict[str, Any]] = json.loads((HERE / "speculators_p_eagle.json").read_text())


def load_script(name: str) -> Any:
    """The script that recorded them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE.parents[1] / "benchmarks" / "fidelity"))
        return import_module(name)


@pytest.fixture(scope="module")
def comparison() -> Any:
    return load_script("speculators_heads")


@pytest.fixture(scope="module")
def of_masks() -> Any:
    return load_script("speculators_p_eagle")


def test_every_form_is_recorded(comparison: Any) -> None:
    assert set(RECORDED) == set(comparison.FORMS)
    assert all(len(x["tokens"]) == comparison.STEPS for x in RECORDED.values())
    assert sum(len(set(x["tokens"])) > 2 for x in RECORDED.values()) > 20, (
        "chains that stand still show little"
    )
    same = len(RECORDED) - len({tuple(x["total"]) for x in RECORDED.values()})
    assert same == 1, "only the usual layers, left out or named, are one head"


LONG = ("all norms", "plain, Qwen 3", "window, Qwen 3")  # all 64 steps of these, 16 of the others


@pytest.mark.parametrize("form", RECORDED)
def test_a_head_of_the_library_drafts_here_as_it_does_there(
    form: str, comparison: Any, tmp_path: Path
) -> None:
    """Each token of a greedy chain, the largest logit of its step and the sum of all are the library's."""
    facts, steps = RECORDED[form], comparison.STEPS if form in LONG else 16
    folder = comparison.write_folder(tmp_path / "head", facts["config"], facts["shapes"])
    agree(comparison.our_chain(folder, steps), facts, steps)


def agree(chain: Any, facts: dict[str, Any], steps: int) -> None:
    """AssertionError unless the first `steps` tokens are the recorded ones, and so are their logits, to rounding."""
    assert chain.tokens == facts["tokens"][:steps]
    for made, known in (
        (chain.logits.max(-1).values, facts["largest"]),
        (chain.logits.logsumexp(-1), facts["total"]),
    ):
        assert torch.allclose(made, torch.tensor(known[:steps]), atol=2e-4, rtol=1e-4)


def test_every_form_of_p_eagle_is_recorded(of_masks: Any) -> None:
    assert tuple(MASKED) == of_masks.CHOSEN and all(len(set(x["tokens"])) > 5 for x in MASKED.values())
    assert all(len(x["tokens"]) == of_masks.ROUNDS * of_masks.TOKENS for x in MASKED.values())


@pytest.mark.parametrize("form", MASKED)
def test_masks_of_the_library_guess_here_what_they_guess_there(
    form: str, comparison: Any, of_masks: Any, tmp_path: Path
) -> None:
    """All tokens of each round, with a cache here and without one there."""
    facts, rounds = MASKED[form], of_masks.ROUNDS if form == "all norms" else 2
    folder = comparison.write_folder(tmp_path / "head", facts["config"], facts["shapes"])
    agree(of_masks.our_chain(folder, rounds), facts, rounds * of_masks.TOKENS)
