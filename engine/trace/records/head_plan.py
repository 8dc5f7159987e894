"""Plan: what a policy has settled for each KV head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Plan:
    """What a policy has settled for each KV head of the run: recorded once, in the step in which it was settled. The header is
    written earlier, because most policies need the prompt.

    entries: int32 [L, H_kv], how many a head is to hold: of the prompt if the policy cuts once, else in total; -1: no such
             number
    kinds:   words for kinds of heads;  kind: int8 [L, H_kv], which of them each is, if there are several
    """

    entries: np.ndarray
    kinds: list[str] = field(default_factory=list)
    kind: np.ndarray | None = None


def make_plan(
    entries: Sequence[Sequence[int]], kinds: Sequence[str] = (), kind: Sequence[Sequence[int]] | None = None
) -> Plan:
    """A plan from numbers by layer and KV head."""
    return Plan(np.array(entries, np.int32), list(kinds), None if kind is None else np.array(kind, np.int8))
