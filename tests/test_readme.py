"""The README's Python part runs unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_example_in_python_runs_and_says_something(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"(?ms)^```python\n(.*?)^```$", README.read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    exec(compile(example, str(README), "exec"), names)
    said = capsys.readouterr().out
    assert "tokens per pass of the target" in said and "ejected" in said and "threshold" in said
    assert str(names["story"].text) in said  # type: ignore[attr-defined]
