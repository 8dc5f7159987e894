"""The sample of pairs that a commit runs covers what tests/covering.py promises, and the nightly run covers all pairs."""

from __future__ import annotations

from itertools import combinations

import pytest
from covering import (
    SAMPLED,
    families,
    family,
    key,
    open_to_chance,
    recorded,
    runs,
    sample,
    settings,
    small_sample,
    stand_ins,
    usual,
)

from decodescope.engine.core.component import KINDS, registry

PAIRS = [tuple((kind, part[0]) for kind, part in parts.items()) for parts in sample()]
MEETS = {
    (one, (kind, family(kind, name, one[0])))
    for x in PAIRS
    if len(x) == 2
    for one, (kind, name) in (x, x[::-1])
}
LEVELS = [
    tuple((kind, part[0]) for kind, part in parts.items()) for parts in small_sample(("policy", "strategy"))
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_meets_every_family_of_every_other_kind(kind: str) -> None:
    """Exceptions: a kind's default part, with which others run as they do alone, and strategies that do not use the kind."""
    due = 0
    for name in set(registry(kind)) - {usual(kind)}:
        for other in (x for x in KINDS if x != kind and family(kind, name, x) is not None):
            groups = {family(other, x, kind) for x in registry(other) if x != usual(other)} - {None}
            missing = {group for group in groups if ((kind, name), (other, group)) not in MEETS}
            assert not missing, f"{name} meets no {other} of {missing}"
            due += len(groups)
    assert due > 20, "the test needs parts and families"


def test_every_part_is_in_the_sample_and_no_pair_twice() -> None:
    assert {one for x in PAIRS for one in x} == {(kind, name) for kind in KINDS for name in registry(kind)}
    assert len({frozenset(x) for x in PAIRS}) == len(PAIRS) and len(PAIRS) > 1000


def test_families_part_what_a_mistake_would_part() -> None:
    """Otherwise all families would be one, and the sample would be minimal."""
    assert {*families("drafter", "policy")} >= {"lookup", "draft_model", "own_layers", "heads", "jacobi"}
    assert {*families("strategy", "sampler")} >= {"", "cascades", "diffusion", "pictures"}
    assert not families("strategy", "adaptive_depth"), (
        "of strategies only the usual one reads under a depth rule"
    )
    assert "draft_verify" not in families("strategy", "policy")[""]


def test_every_part_runs_in_both_ways_where_it_leaves_them_open() -> None:
    here = [case.values[0] for case in runs() if not case.marks]
    drawn = {(kind, part[0]) for x in here if SAMPLED.items() <= x.items() for kind, part in x.items()}
    greedily = {(kind, part[0]) for x in here if "sampler" not in x for kind, part in x.items()}
    free = {(kind, part[0]) for x in sample() if open_to_chance(x) for kind, part in x.items()}
    assert free <= drawn & greedily and len(free) > 100 and len(here) < 1.05 * len(PAIRS)


def test_levels_are_compared_for_every_part_under_a_policy_and_for_every_strategy() -> None:
    parts = {one for x in LEVELS for one in x}
    assert {("policy", x) for x in registry("policy")} | {
        ("strategy", x) for x in registry("strategy")
    } <= parts
    under = {one for x in LEVELS for one in x if any(kind == "policy" for kind, _ in x)}
    due = {
        (kind, x)
        for kind in KINDS
        for x in registry(kind)
        if x != usual(kind) and kind not in ("policy", "strategy")
    }
    assert due <= under


def test_the_night_runs_all_pairs() -> None:
    due = {
        frozenset(((a, x), (b, y)))
        for a, b in combinations(KINDS, 2)
        for x in registry(a)
        for y in registry(b)
    }
    assert due <= {key(case.values[0]) for case in runs()} and len(due) > 10_000
    third = {key(case.values[0]) for case in recorded() if case.marks}
    assert len(third) > 1000 and not third & {frozenset(x) for x in LEVELS}


def test_where_a_pair_is_refused_each_part_gets_another_of_the_same_family() -> None:
    depth, codec = settings("adaptive_depth")["ffn_skip"], settings("kv_compression")["kivi"]
    pair = {"kv_compression": codec, "adaptive_depth": depth}
    several = [*stand_ins(pair, lambda x: codec in x.values() and x["adaptive_depth"][0] != "vote")]
    assert several[0]["kv_compression"] == codec and several[0]["adaptive_depth"][0] == "vote"
    assert (
        several[1]["kv_compression"] != codec and several[1]["adaptive_depth"] == depth and len(several) == 2
    )
    assert (
        [*stand_ins(pair, lambda x: True)] == [*stand_ins({"kv_compression": codec}, lambda x: False)] == []
    )
