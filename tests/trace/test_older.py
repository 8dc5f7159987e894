"""Traces of schema 1.0: what their rules say of themselves lies beside the reader, and is what the rules' own files say."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from decodescope.engine.core.component import registry
from decodescope.engine.trace.encoding import older

HOME = Path(older.__file__).with_name("older.json")
RULES = ("block", "judge", "leniency", "lossless", "spectr", "typical")


def plain(value: Any) -> Any:
    """A telling as JSON; what is as it is by default is left out."""
    if isinstance(value, list):
        return [plain(x) for x in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    made = {}
    for f in fields(value):
        usual = f.default if f.default_factory is MISSING else f.default_factory()
        if (x := getattr(value, f.name)) != usual:
            made[f.name] = plain(x)
    return made


def test_a_trace_of_1_0_is_told_as_its_rule_tells_itself() -> None:
    due = {name: plain(registry("acceptance")[name].telling) for name in RULES}
    text = json.dumps(due, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    assert json.loads(HOME.read_text(encoding="utf-8")) == due, (
        f"{HOME.name} is made of the rules' files; it must say:\n{text}"
    )
    for name in RULES:
        assert asdict(older.told_of(name)) == asdict(registry("acceptance")[name].telling)
