"""A program that is killed while it writes leaves the old content or the whole new one, or what was finished of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import writers

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no fork")
SCRIPT = Path(__file__).with_name("killing.py")


def kill(folder: Path, kills: int, which: str, seconds: int) -> dict[str, Any]:
    """Kill writers in a process of its own, and print what was found."""
    words = [sys.executable, str(SCRIPT), str(folder), str(kills), "7", which]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    print(json.dumps(found, indent=1))
    return found


def test_a_few_kills_break_no_file(tmp_path: Path) -> None:
    """Without torch, in seconds."""
    found = kill(tmp_path, 6 * len(writers.LIGHT), "light", 120)
    assert {*found} == {writer.name for writer in writers.LIGHT}
    assert not any(one["wrong"] for one in found.values()), found
    assert sum(one.get("inside", 0) for one in found.values()) > len(found), (
        "the test needs kills inside a write"
    )


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_kills_break_no_file(tmp_path: Path) -> None:
    found = kill(tmp_path, 1000, "all", 3600)
    assert {*found} == {*writers.WRITERS}
    assert not any(one["wrong"] for one in found.values()), found
    assert sum(one.get("inside", 0) for one in found.values()) > 400, "the test needs kills inside a write"
