"""The shipped datastore is what its script makes, and holds no question of the bench."""

from __future__ import annotations

import json
from pathlib import Path

from decodescope.engine.methods.drafters.shared.datastore import BETWEEN, SHIPPED, shipped_texts
from decodescope.training import datastore

ASSETS = Path(__file__).resolve().parents[2] / "assets"


def test_the_file_is_what_its_script_writes_now() -> None:
    assert SHIPPED == datastore.STORE
    assert shipped_texts() == [*datastore.documents()[:-1], datastore.documents()[-1] + "\n"]
    assert not any(BETWEEN in text or "<|" in text for text in datastore.documents())


def test_no_question_of_the_bench_is_in_it() -> None:
    """A question is found neither as a whole nor by one of its long lines."""
    text = SHIPPED.read_text("utf-8")
    questions = [
        json.loads(line) for line in (ASSETS / "bench" / "labbench.jsonl").read_text("utf-8").splitlines()
    ]
    whole = ["\n".join(one["turns"]) for one in questions]
    assert len(whole) > 500 and not [one for one in whole if one in text]
    long = {line for one in whole for line in one.splitlines() if len(line) > 120}
    assert len(long) > 500 and not {line for line in long if line in text}
