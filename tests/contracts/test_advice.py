"""Every way out that a refusal of two parts names is accepted when it is followed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import covering
import pairs
import pytest
import toys
from sizes import sizes

from decodescope.engine.core.component import KINDS, registry

Parts = dict[str, tuple[str, dict[str, Any]]]
EVERY = 61  # a commit tries one in so many pairs of the product; of each sort of refusal a few are tried
FEW = 3
HOMES = {name: kind for kind in reversed(KINDS) for name in registry(kind)}
WORDS = {
    "none",
    "chain",
    "fixed",
    "temperature",
    "window",
    "random",
}  # also ordinary words: read as parts only after their kind
OPEN = (  # ways out that are left to the reader, each with the reason
    "settings without branches",  # only the drafter knows which of its knobs makes branches
    "'s criterion",  # two changes at once: the rule becomes a knob of the drafter
    "let them stop in front of",  # the number for a knob
)


def ways(said: str) -> list[str]:
    """The ways out that a refusal names, each as a few words."""
    clause = re.split(r"(?:; |: |\. )(?=[Cc]hoose |leave |let |use )", said)[-1]
    clause = re.sub(r" \([^()]*\)$", "", clause.rstrip("."))
    return [x.strip(" .") for x in re.split(r",? or |, and (?=\w+ as )", clause)]


def followed(way: str, parts: Parts) -> Parts | None:
    """The parts after this way out was taken; None if the words name nothing that can be chosen."""
    if left := re.search(r"\bleave (?:the )?(?:sampler )?(\w+) out", way):
        return {kind: part for kind, part in parts.items() if left[1] not in (kind, part[0])}
    knobs = {knob: int(x) if x.isdigit() else x for knob, x in re.findall(r"(\w+) = (\w+)", way)}
    for kind, name in [
        *re.findall(rf"\b({'|'.join(KINDS)}) (\w+)", way),
        *(("", x) for x in re.findall(r"\w+", way)),
    ]:
        home = kind or (HOMES[name] if name in HOMES and name not in {*WORDS, *KINDS} else "")
        if home and name in registry(home):
            before = (
                parts[home][1]
                if home in parts and parts[home][0] == name
                else toys.settings_of(home, name)[0]
            )
            return {**parts, home: (name, {**before, **knobs})}
    return None


def refused(every: int) -> Iterator[tuple[Parts, str]]:
    """Pairs that do not fit together, and the refusal: a few of each sort of refusal."""
    seen: dict[str, int] = {}
    for parts in [*covering.every_pair()][::every]:
        if said := pairs.refusal(parts):
            sort = pairs.sort_of(said, parts)
            seen[sort] = seen.get(sort, 0) + 1
            if seen[sort] <= FEW:
                yield parts, said


@sizes("every", usual=EVERY, full=1)
def test_each_way_out_of_a_refusal_leads_out(every: int) -> None:
    taken = 0
    for parts, said in refused(every):
        whole = pairs.whole(parts)
        for way in ways(said):
            if any(x in way for x in OPEN):
                continue
            other = followed(way, whole)
            assert other is not None, f"{way!r} names nothing that can be chosen: {said}"
            assert not (again := pairs.refusal(other)), f"{way!r} of {said!r} is refused: {again}"
            taken += 1
    assert taken > 40, "the test needs refusals"


# sorts of refusals that a commit's stride may miss: these once recommended what was refused
ONCE_WRONG: list[Parts] = [
    {"drafter": ("s2d", {}), "policy": ("tidal_decode", {})},
    {"kv_compression": ("kivi", {}), "adaptive_depth": ("layer_plan", {"skip": "a1"})},
    {"policy": ("quest", {}), "adaptive_depth": ("row_pruning", {})},
    {"policy": ("kvzip", {}), "adaptive_depth": ("skipdecode", {})},
    {"policy": ("tidal_decode", {}), "drafter": ("early_exit", {})},
    {"strategy": ("cascade", {}), "router": ("agreement", {}), "policy": ("h2o", {})},
    {"strategy": ("switch", {}), "router": ("entropy", {}), "unmasking": ("explore", {})},
    {"unmasking": ("explore", {}), "drafter": ("prompt_lookup", {})},
]


@pytest.mark.parametrize("parts", ONCE_WRONG, ids=covering.name)
def test_advice_that_was_wrong_is_mended(parts: Parts) -> None:
    parts = {kind: (name, knobs or toys.settings_of(kind, name)[0]) for kind, (name, knobs) in parts.items()}
    said = pairs.refusal(parts)
    assert said, "the parts go together"
    for way in ways(said):
        other = followed(way, pairs.whole(parts))
        assert other is not None and not pairs.refusal(other), f"{way!r} of {said!r}"


def test_a_way_out_that_is_refused_is_seen() -> None:
    parts: Parts = {"drafter": ("s2d", {}), "policy": ("tidal_decode", {})}
    assert ways("x does not; choose the policy keep_all, or early_exit.") == [
        "choose the policy keep_all",
        "early_exit",
    ]
    other = followed("early_exit", parts)
    assert other is not None and other["drafter"][0] == "early_exit" and pairs.refusal(other)
    assert followed("choose another drafter", parts) is None
