"""Turned: what a view is told of a step in which one of two models wrote, or wrote and was judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from decodescope.engine.trace.details.switched import LANES
from decodescope.engine.trace.records.events import Piece, Step


def turned(step: Step, text: Callable[[int], Piece]) -> dict[str, Any]:
    """lanes: {"tau", "caught": rows that a model had to read first, "passes": [small, large], "tried": [[who, token, number
    that was held against tau, mean, whether it stays], ...]}, or nothing. who: "S" the small model, "M" the large one; the
    number is bits, or of a block (`judged`) the small model's largest probability. Tokens behind the end are left out."""
    s = step.switch
    if s is None:
        return {}
    passes = [sum(one.lane == lane for one in step.passes) for lane in (LANES["small"], LANES["large"])]
    said = {"tau": s.tau, "caught": s.caught, "passes": passes}
    block = s.block
    if block is None:
        who = "S" if s.wrote == "small" else "M"
        return {"lanes": said | {"tried": [[who, text(x), s.score, s.mean, 1] for x in step.emitted]}}
    n, count = len(block.tokens), len(step.emitted)
    kept = min(block.kept, count)
    tried = [["S", text(block.tokens[k]), block.sure[k], None, 1] for k in range(kept)]
    tried += [["S", text(block.tokens[k]), block.sure[k], None, 0] for k in range(block.kept, n)]
    # its place is the one that was given up
    here = block.sure[n] if len(block.sure) > n == block.kept else None
    tried += [["M", text(x), here, None, 1] for x in step.emitted[kept:]]
    return {"lanes": said | {"tried": tried, "judged": 1}}
