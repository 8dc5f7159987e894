"""docs/trace.md agrees with events.py, and the package needs no torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path

from decodescope.engine.trace import OWN, UPLOADED
from decodescope.engine.trace.file import schema
from decodescope.engine.trace.records import events

PAGE = Path(__file__).parents[2] / "docs" / "trace.md"


def test_the_page_is_made_from_the_schema():
    page = PAGE.read_text(encoding="utf-8")
    assert page == schema.update(page), (
        "python -m decodescope.engine.trace.file.schema --write docs/trace.md makes it anew"
    )
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and is_dataclass(kind)]
    assert len(kinds) > 12 and all(f"### {kind.__name__}" in page for kind in kinds)


def test_the_page_names_the_limits_that_are_enforced():
    page = PAGE.read_text(encoding="utf-8")
    for row in (
        f"| file | {UPLOADED.file_bytes >> 20} MiB | {OWN.file_bytes >> 30} GiB |",
        f"| expanded, counted while inflating | {UPLOADED.expanded_bytes >> 20} MiB | {OWN.expanded_bytes >> 30} GiB |",
        f"| one record | {UPLOADED.record_bytes >> 20} MiB | {OWN.record_bytes >> 20} MiB |",
        f"expands at most {UPLOADED.ratio} times",
        f"{UPLOADED.depth} levels deep",
        f"{UPLOADED.string_bytes >> 20} MiB, {UPLOADED.piece_bytes >> 10} KiB",
        f"{UPLOADED.array_numbers // 10**6} million numbers",
        f"{UPLOADED.steps // 10**6} million |",
    ):
        assert row in page, row


def test_the_package_is_imported_where_torch_is_blocked():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import decodescope.engine.trace, decodescope.engine.trace.file.schema\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'transformers', 'gradio', 'pandas', 'plotly'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == "[]", done.stderr
