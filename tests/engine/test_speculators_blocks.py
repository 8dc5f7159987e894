"""DFlash and DSpark drafts that the library speculators wrote, and its drafts with them; benchmarks/fidelity records both."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
RECORDED: dict[str, dict[str, Any]] = json.loads((HERE / "speculators_blocks.json").read_text())


@pytest.fixture(scope="module")
def comparison() -> Any:
    """The script that recorded them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE.parents[1] / "benchmarks" / "fidelity"))
        return import_module("speculators_blocks")


def test_every_form_is_recorded(comparison: Any) -> None:
    assert set(RECORDED) == set(comparison.FORMS)
    assert all(len(x["tokens"]) == comparison.STEPS for x in RECORDED.values())
    assert all(len(set(x["tokens"])) > 1 for x in RECORDED.values())
    assert len({tuple(x["total"]) for x in RECORDED.values()}) == len(RECORDED), "no two forms are one net"


@pytest.mark.parametrize("form", RECORDED)
def test_a_draft_of_the_library_is_ours(form: str, comparison: Any, tmp_path: Path) -> None:
    """Each token of greedy drafts one behind the other, the sum of its logits' exponentials, and its confidence are theirs."""
    facts = RECORDED[form]
    write_folder = import_module("speculators_heads").write_folder
    folder = write_folder(tmp_path / "head", facts["config"], facts["shapes"])
    blocks = comparison.our_blocks(folder)
    assert blocks.tokens == facts["tokens"]
    for made, known in (
        (blocks.logits.logsumexp(-1), facts["total"]),
        (blocks.confidence, facts["confidence"]),
    ):
        assert torch.allclose(made, torch.tensor(known), atol=2e-5, rtol=1e-5)
