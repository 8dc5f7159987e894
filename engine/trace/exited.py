"""Exit: where a pass left early, and by which tests."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Exit:
    """Early exits of one pass: the depth at which it left, and the tests made on the way.

    depth: layers that ran; tests: [[layer, confidence, threshold], ...] in order
    """

    depth: int
    criterion: str
    tests: list[list[float]] = field(default_factory=list)
