"""Phases of passes: the phases that readers treat differently are named once, in Python and in JavaScript alike."""

from __future__ import annotations

import re
from pathlib import Path

from decodescope.engine.trace.records.events import Pass
from decodescope.engine.trace.records.phases import DECIDES, READS, is_deciding_pass

ROOT = Path(__file__).parents[2]
# "verify" next to a phase; the step's own time of that name and the shape of a mark do not count
ASKED = re.compile(r"""phase["\]']* (?:[=!]==?|in) [("']*verify""")


def test_only_a_pass_of_the_target_decides() -> None:
    passes = [
        Pass(lane, phase, 1, 0, 1.0)
        for lane in ("target", "draft")
        for phase in (*DECIDES, *READS, "draft", "search")
    ]
    assert [(one.lane, one.phase) for one in passes if is_deciding_pass(one)] == [
        ("target", phase) for phase in DECIDES
    ]
    assert not {*DECIDES} & {*READS}


def test_no_reader_names_the_phases_that_decide_by_itself() -> None:
    asks = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for room in ("engine", "lab", "app")
        for path in [*(ROOT / room).rglob("*.py"), *(ROOT / room).rglob("*.js")]
        for line in path.read_text(encoding="utf-8").splitlines()
        if ASKED.search(line)
    ]
    assert asks == ['lab/web/hardware/roofline.js: if (phase === "verify" || phase === "other") return '
                    's("circle", { cx: x, cy: y, r: phase === "other" ? r * 0.6 : r });']  # fmt: skip
    assert ASKED.search('p.lane == "target" and p.phase == "verify"') and ASKED.search(
        'row["phase"] == "verify"'
    )


def test_the_page_knows_the_same_phases() -> None:
    (named,) = re.findall(
        r"^const DECIDES = \[(.*)\];", (ROOT / "lab/web/scope/time/roof.js").read_text(encoding="utf-8"), re.M
    )
    assert re.findall(r'"(\w+)"', named) == list(DECIDES)
