"""The pairs of parts that a commit runs: a sample that covers what it promises. `make nightly` runs all pairs.

The number of pairs grows with the square of the parts: 163 parts make 11,500 pairs. A mistake between two parts is usually one
between their families, such as drafters that read trees and policies that evict. So the sample holds, for any two kinds:

- every part of one kind with every family of the other kind, and the other way round (`families`);
- of a family, the part that was taken least often so far, so that all parts get a turn;
- every part greedily and drawn, where one of its pairs leaves open how tokens are chosen.

A kind's usual part is no partner: with it a part runs as it does alone. A refused pair satisfies neither part: its test goes on
to the next part of the family until one runs (`stand_ins`). So every part runs with every family that it can run with. A part
that is in no pair runs alone. Names are ordered by their hashes under `SEED`, the same on every machine.
tests/contracts/test_covering.py tests what is promised here.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from functools import cache
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
import toys

from decodescope.engine import Method
from decodescope.engine.core.component import KINDS, registry

SEED = 1
Part = tuple[str, dict[str, Any]]  # name, settings
Parts = dict[str, Part]  # by kind
SAMPLED: Parts = {"sampler": ("temperature", {"temperature": 0.9})}
GREEDY_ONLY = (
    "beam",
    "contrastive_search",
    "diverse_beam",
    "jacobi",
    "superposed",
)  # strategies that draw nothing


def family(kind: str, name: str, other: str) -> str | None:
    """The room of a part's file: what parts of one kind have in common towards the kind `other`.

    None: a strategy that does not use `other` and refuses every part of it; tests/contracts/test_strategies.py tests that.
    """
    part: Any = registry(kind)[name]
    if kind == "strategy" and other not in part.uses:
        return None
    within = part.__module__.split(".methods.")[-1].split(".")
    return within[1] if len(within) > 2 else ""


def mixed(words: Iterable[str]) -> list[str]:
    """The words in the order of their hashes."""
    return sorted(words, key=lambda word: hashlib.sha256(f"{SEED} {word}".encode()).digest())


@cache
def settings(kind: str) -> Parts:
    """Map each name of a kind to its part, in the first of its settings in tests/toys.py."""
    return {part[0]: part for part in toys.representatives(kind)}


@cache
def usual(kind: str) -> str:
    """The name of the part that a method has if nobody names another."""
    return Method().parts()[kind].name


@cache
def families(kind: str, other: str) -> dict[str, list[str]]:
    """Family towards `other` -> the names of its parts, without the usual one."""
    several: dict[str, list[str]] = {}
    for name in mixed(settings(kind).keys() - {usual(kind)}):
        if (group := family(kind, name, other)) is not None:
            several.setdefault(group, []).append(name)
    return several


def cover(one: str, other: str) -> list[tuple[str, str]]:
    """Pairs of names of two kinds: every part of one with every family of the other, and the other way round."""
    left, right = families(one, other), families(other, one)
    lacks = {(name, group) for names in right.values() for name in names for group in left}
    pairs, taken = list[tuple[str, str]](), Counter[str]()

    def take(name: str, partner: str, group: str) -> None:
        pairs.append((name, partner))
        taken.update((name, partner))
        lacks.discard((partner, group))

    for group, names in left.items():
        for name in names:
            for partners in right.values():
                take(
                    name, min(partners, key=lambda x, group=group: ((x, group) not in lacks, taken[x])), group
                )
    for group, names in left.items():
        for partner in [x for partners in right.values() for x in partners if (x, group) in lacks]:
            take(min(names, key=taken.__getitem__), partner, group)
    return pairs


def sample() -> Iterator[Parts]:
    """Yield the pairs of a commit, and alone the parts that are in none of them."""
    taken = set()
    for one, other in combinations(KINDS, 2):
        for name, partner in cover(one, other):
            taken |= {(one, name), (other, partner)}
            yield {one: settings(one)[name], other: settings(other)[partner]}
    yield from alone(KINDS, taken)


def small_sample(kinds: Iterable[str]) -> Iterator[Parts]:
    """Yield every part of every kind with a part of each of these `kinds`, where there is one that uses it.

    That part is the one that was taken least often so far. Parts of these kinds that are in no pair come alone.
    """
    taken = Counter[tuple[str, str]]()
    for kind in kinds:
        for other in (x for x in KINDS if x != kind):
            partners = [name for names in families(kind, other).values() for name in names]
            for name in [x for names in families(other, kind).values() for x in names] if partners else ():
                partner = min(partners, key=lambda x, kind=kind: taken[kind, x])
                taken[kind, partner] += 1
                yield {kind: settings(kind)[partner], other: settings(other)[name]}
    yield from alone(kinds, taken)


def alone(kinds: Iterable[str], taken: Container[tuple[str, str]]) -> Iterator[Parts]:
    """Each part of these kinds that is not `taken`."""
    for kind in kinds:
        yield from ({kind: part} for name, part in settings(kind).items() if (kind, name) not in taken)


def stand_ins(parts: Parts, refused: Callable[[Parts], bool]) -> Iterator[Parts]:
    """For each part of a refused pair: yield it with the first part of the other's family that fits, if one does."""
    for kind, other in (tuple(parts), tuple(parts)[::-1]) if len(parts) == 2 else ():
        names = families(other, kind).get(family(other, parts[other][0], kind) or "", ())
        pairs = (
            {kind: parts[kind], other: settings(other)[name]} for name in names if name != parts[other][0]
        )
        if (fits := next((pair for pair in pairs if not refused(pair)), None)) is not None:
            yield fits


# --- as parameters of a test ---


def name(parts: Parts) -> str:
    """The id of a test."""
    return "-".join(x[0] + "".join(f"_{Path(str(v)).name}" for v in x[1].values()) for x in parts.values())


def every_pair() -> Iterator[Parts]:
    for a, b in combinations(KINDS, 2):
        yield from ({a: x, b: y} for x in toys.representatives(a) for y in toys.representatives(b))


def open_to_chance(parts: Parts) -> bool:
    """Whether a pair leaves open how tokens are chosen."""
    return "sampler" not in parts and parts.get("strategy", ("",))[0] not in GREEDY_ONLY


def key(parts: Parts) -> frozenset[tuple[str, str]]:
    return frozenset((kind, part[0]) for kind, part in parts.items())


def ways() -> dict[frozenset[tuple[str, str]], set[int]]:
    """Return how each pair of the sample runs, 0: greedily, 1: drawn.

    A pair that leaves it open runs as its parts did less often. A part that would run in only one way also runs in the other,
    in the first of its pairs.
    """
    served, chosen = Counter[tuple[Any, int]](), dict[frozenset[tuple[str, str]], set[int]]()
    free = [key(parts) for parts in sample() if open_to_chance(parts)]
    for pair in free:
        way = min((0, 1), key=lambda way, pair=pair: sum(served[part, way] for part in pair))
        chosen[pair] = {way}
        served.update((part, way) for part in pair)
    for pair in free:
        lacks = {way for part in pair for way in (0, 1) if not served[part, way]}
        chosen[pair] |= lacks
        served.update((part, way) for part in pair for way in lacks)
    return {key(parts): chosen.get(key(parts), {0}) for parts in sample()}


def runs() -> Iterator[Any]:
    """Yield every pair as it is, which is greedy, and with a temperature where it leaves that open.

    A commit takes the sample, in its `ways`.
    """
    here = ways()
    for parts in chain(every_pair(), (x for x in sample() if len(x) == 1)):
        several = here.get(key(parts), set())
        for way, more in enumerate([{}, SAMPLED] if open_to_chance(parts) else [{}]):
            marks = () if way in several else pytest.mark.nightly
            yield pytest.param({**parts, **more}, id=name(parts) + "-drawn" * way, marks=marks)


def recorded() -> Iterator[Any]:
    """Yield the pairs of a strategy or a policy.

    A commit takes the small sample of tests/covering.py, the nightly run a third of the others.
    """
    few = [*small_sample(("policy", "strategy"))]
    here = {key(parts) for parts in few}
    others = [x for x in every_pair() if ("strategy" in x or "policy" in x) and key(x) not in here]
    yield from (pytest.param(parts, id=name(parts)) for parts in few)
    yield from (pytest.param(parts, id=name(parts), marks=pytest.mark.nightly) for parts in others[::3])
