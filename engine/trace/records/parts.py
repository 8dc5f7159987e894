"""Parts: descriptions of the parts of a run's method, so that readers of a trace need to know none of them by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from .events import Header

PLACES = ("first", "chosen", "newest")
# zones of a policy, characters of a word, entries: what a view draws
MOST_ZONES = 8
LONGEST = 64
MOST = 1 << 40
MOST_WORDS = 16  # of a list
SENTENCE = 200  # characters


@dataclass(frozen=True)
class Zone:
    """Entries that a policy keeps for one reason, per layer and KV head.

    word: as people call them;  place: the "first" of the text, its "newest", or "chosen" among the others
    """

    word: str
    place: str
    entries: int

    def record(self) -> list[Any]:
        """The form in a header: [word, place, entries]."""
        return list(astuple(self))


UNNAMED_REASON = "the text may differ"  # of a part that gives no reason, or none that can be shown


def part_description(header: Header, kind: str) -> dict[str, Any]:
    """The description of the part of `kind` (`describe` of its base class), with those of the words below that are valid.

    usual:    True for the part that a method has by default
    uses, verdicts: of a strategy;  places: of one that fills a canvas, how many a block has;  settles: of one that writes a
            picture, how its passes follow from its knobs, "rows" or "cells" (engine/trace/details/picture_passes.py);
            ticks: of one with notes of a simulated clock of layers, which tokens run with the first, "branches" or a "chain"
            (engine/trace/checks/pipeline.py)
    drafts, speaks, copies: of a drafter;  exact: of a depth rule
    commits: of a selector: how its choice follows from its knobs (engine/trace/detail_checks/fills.py)
    greedy: of a sampler;  heat: the temperature that it divides the logits by;  cuts: whether it may remove tokens
    does: of a policy or KV compression;  column: of a policy;  goes: which of its entries leave, and when, as a sentence
    once: of a policy that cuts when the prompt has been read: its zones are the prompt's, and what is written stays
    bits, whole: of a packing KV compression: bits of a packed number, with its share of scales and everything else; and
            how many entries are packed at a time, and are whole until then;  reads: bits that a pass reads of a packed
            number, if that differs: two layers read what is stored once
    decoders: of a strategy: lane -> the shape (ModelSpec.record()) of a decoder made from the target's trained heads
    changes: of a strategy, rule or context: why the text may differ from the target's
    departs: of guidance or a sampler: why the text is not the original model's, although nothing else changes it
    calibrated: knob -> what is known of a value that was chosen for a risk: the `name` of its file, `eps`, `n`;
            and `risk`, `delta`, or of thresholds by exit `how`, `tokens`
    """
    words = header.parts.get(kind)
    if not isinstance(words, dict):
        return {}
    said = {word: words[word] for word, fits in _WORDS.items() if word in words and fits(words[word])}
    # a reason that cannot be shown is still a reason: without it a lossy text would count as lossless
    return {word: UNNAMED_REASON for word in ("changes", "departs") if words.get(word)} | said


def zones(header: Header) -> list[Zone]:
    """The zones of the run's cache policy; none for one that keeps all."""
    whole = header.parts.get("policy")
    rows = whole.get("zones") if isinstance(whole, dict) else None
    return [Zone(*row) for row in rows[:MOST_ZONES] if _is_zone(row)] if isinstance(rows, list) else []


def zone_entries(zones: Sequence[Zone], place: str) -> int | None:
    """Entries of the zones at one place together; None if there is no such zone."""
    held = [zone.entries for zone in zones if zone.place == place]
    return sum(held) if held else None


def method_label(header: Header) -> str:
    """The parts of the method that are not the usual ones, in short, after "batch" or "loaded cache" where that is so."""
    read = ["batch"] * bool(header.batch) + ["loaded cache"] * bool(header.loaded)
    parts = {kind: part for kind, part in header.method.items() if isinstance(part, dict)}
    unusual = [
        part
        for kind, part in parts.items()
        if kind == "sampler" or not part_description(header, kind).get("usual")
    ]
    names = [
        str(stage.get("name", "")).replace("_", " ")
        for part in unusual
        for stage in part.get("stages") or [part]
    ]
    return " + ".join([*read, *names]) or "plain decoding"


def _is_word(x: Any) -> bool:
    return type(x) is str and len(x) <= LONGEST


def _is_sentence(x: Any) -> bool:
    return type(x) is str and len(x) <= SENTENCE


def _are_words(x: Any) -> bool:
    return type(x) is list and len(x) <= MOST_WORDS and all(map(_is_word, x))


def _is_switch(x: Any) -> bool:
    return type(x) is bool


def _is_heat(x: Any) -> bool:
    return type(x) is float and 0 <= x < MOST


def _is_count(x: Any) -> bool:
    return type(x) is int and 0 < x < MOST


def _are_shapes(x: Any) -> bool:
    return (
        type(x) is dict
        and len(x) <= MOST_ZONES
        and all(_is_word(lane) and type(y) is dict for lane, y in x.items())
    )


def _is_calibrated(x: Any) -> bool:
    return (
        type(x) is dict
        and len(x) <= MOST_ZONES
        and all(type(y) is dict and _is_word(y.get("name")) for y in x.values())
    )


def _is_zone(row: Any) -> bool:
    if type(row) is not list or len(row) != 3:
        return False
    word, place, entries = row
    return _is_word(word) and place in PLACES and type(entries) is int and 0 <= entries < MOST


_WORDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("usual", "verdicts", "drafts", "copies", "exact", "greedy", "cuts", "once"), _is_switch),
    **dict.fromkeys(("heat", "bits", "reads"), _is_heat),
    **dict.fromkeys(("whole", "places"), _is_count),
    **dict.fromkeys(("uses", "does"), _are_words),
    **dict.fromkeys(("speaks", "column", "changes", "departs", "commits", "settles", "ticks"), _is_word),
    "goes": _is_sentence,
    "calibrated": _is_calibrated,
    "decoders": _are_shapes,
}
