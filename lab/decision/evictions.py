"""Explain evictions: why an entry left the cache, from its policy's description and the recorded scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from decodescope.engine.core.arguments import check_whole_number
from decodescope.engine.trace import Step, Trace, TraceError
from decodescope.engine.trace.records.parts import part_description as says
from decodescope.engine.trace.records.parts import zones
from decodescope.lab.cache.lifetimes import KEPT, NEVER, WORDS, EntryLifetimes
from decodescope.lab.cache.mass import recorded_mass, relative_mass, thinning_note
from decodescope.lab.formatting.numbers import f
from decodescope.lab.formatting.tokens import visible_token

from .explanation import Explanation, ExplanationLine


class CacheEntry(NamedTuple):
    """One entry of the target's cache: a position of the text in a layer and KV head."""

    position: int
    layer: int
    head: int


def explain_eviction(
    trace: Trace, step: Step, position: int | None = None, layer: int | None = None, head: int | None = None
) -> Explanation:
    """Why an entry left the cache in `step`, or why it is still there after it; without a position, the first that left.
    Raises TraceError if the record holds no evictions, or none in this step, and ParamError for an invalid place."""
    if trace.prefill is None:
        raise TraceError("The run holds no reading of its prompt, with which the lives of its cache begin.")
    lives = EntryLifetimes.of(trace)
    entry = _find_entry(lives, step.step, position, layer, head)
    row = entry.layer * lives.heads + entry.head
    left = int(lives.eviction_steps(step.step)[row, entry.position])
    token = visible_token(lives.tokens[entry.position], trace.pieces)
    where = f"position {entry.position}, layer {entry.layer}, KV head {entry.head}, after step {step.step}"
    part = trace.header.method.get("policy") or {}
    why = Explanation("reject", "Evicted", token, where, str(part.get("name", "")).replace("_", " "))
    kept = zones(trace.header)
    policy = says(trace.header, "policy")
    words = (
        "Entries leave once more than the budget are held."
        if policy.get("does")
        else "This policy keeps every entry."
    )
    words = policy.get("goes", words)
    sums = tuple(f"{zone.entries} {zone.word}" for zone in kept)
    of = " of the prompt" if lives.once else ""
    why.lines.append(ExplanationLine(f"{words} Each KV head keeps{of}:" if sums else words, sums))
    if left == KEPT:
        letter = lives.letters(row, step.step, entry.position, entry.position + 1)[0]
        if letter in NEVER:
            why.status, why.title = "unreached", "Never there"
            why.lines.append(ExplanationLine(f"There is no such entry, {WORDS[letter]}."))
            return why
        why.status, why.title = "accept", "Held"
        why.lines.append(ExplanationLine(f"This entry is still there, {WORDS[letter]}."))
        return why
    if left < 0:
        why.title = "Evicted when the prompt was read"
        return why
    if left != step.step:
        why.title = f"Evicted in step {left}"
    return _add_step_record(why, trace, lives, entry, left)


def _add_step_record(
    why: Explanation, trace: Trace, lives: EntryLifetimes, entry: CacheEntry, i: int
) -> Explanation:
    """What the record has on the step in which it left."""
    row, n = entry.layer * lives.heads + entry.head, lives.length[i]
    stay = np.flatnonzero(lives.held_mask(i)[row])
    gone = int((lives.eviction_steps(i)[row] == i).sum())
    age = n - 1 - entry.position
    words = f"It held {len(stay) + gone} entries, so {gone} had to go."
    why.lines.append(ExplanationLine(words, (f"{age} tokens of text came after it",)))
    first, edge = lives.sinks or 0, lives.window_start(n)
    safe = entry.position < first or entry.position >= edge
    free = stay[(stay >= first) & (stay < edge)]
    if not lives.evicts_by_score:
        why.test = (
            f"position {entry.position} < {int(free.min())}" if len(free) else f"position {entry.position}"
        )
        why.lines.append(
            ExplanationLine("Of those that may go it was the oldest.", (why.test,) if len(free) else ())
        )
        why.agrees = not safe and not (free < entry.position).any()
        return why
    scores = _entry_scores(trace, entry, row, i)
    why.agrees = False if safe else None
    if scores is None:
        why.lines.append(ExplanationLine("The scores that it went by are not in the record."))
        return why
    score, after, thinned = scores
    cut = min((float(after[q]) for q in free), default=None)
    weighed = says(trace.header, "policy").get("column", "")
    what = f"its {weighed}" if weighed else "its score"
    why.numbers = [(f"{what}, before the step", "s", score), ("least that stayed", "m", cut)]
    sums = [f"s = {f(score)} of the largest of the layer, as it stood before the step"]
    if cut is not None:
        lowest = int(free[np.argmin(after[free])])
        sums.append(f"m = {f(cut)}, the least of the {len(free)} others that stayed (position {lowest})")
        why.test = f"s {'<' if score < cut else '≈'} m:  {f(score)} and {f(cut)}"
    words = (
        "What it was worth, compared with the kept entries. Scores are recorded after a step, in 255 shades."
    )
    if thinned:
        words += f" This map was thinned: {thinned}."
    why.lines.append(ExplanationLine(words, tuple(sums)))
    return why


def _find_entry(
    lives: EntryLifetimes, i: int, position: int | None, layer: int | None, head: int | None
) -> CacheEntry:
    """The requested entry; an argument that is missing means the first one that left."""
    at = lives.eviction_steps(i).reshape(lives.layers, lives.heads, -1)
    here = at == i
    for axis, (name, value) in enumerate([("layer", layer), ("head", head), ("position", position)]):
        if value is not None:
            named = np.arange(at.shape[axis]) == check_whole_number(value, name, 0, at.shape[axis] - 1)
            here = here & np.expand_dims(named, tuple(k for k in range(3) if k != axis))
    if here.any():
        at_layer, at_head, at_position = (int(x) for x in np.argwhere(here)[0])
        return CacheEntry(at_position, at_layer, at_head)
    if position is not None:
        return CacheEntry(position, layer or 0, head or 0)
    steps = np.unique(at[(at >= 0) & (at < KEPT)])
    why = lives.unlisted_reason or f"by then some had in steps {_format_steps(steps)}"
    raise TraceError(
        f"No entry of the cache left in step {i}; {why if lives.unlisted_reason or len(steps) else 'none has by then'}."
    )


def _format_steps(steps: np.ndarray) -> str:
    return ", ".join(map(str, steps[:8].tolist())) + (", ..." if len(steps) > 8 else "")


def _entry_scores(trace: Trace, entry: CacheEntry, row: int, i: int) -> tuple[float, np.ndarray, str] | None:
    """The mass of the entry of a row before step i, and float [n] of all positions of its KV head after it,
    both as shares of the layer's largest, and how a thinned map is to be read."""
    before = trace.prefill if i == 0 else trace.steps[i - 1]
    records = [] if before is None else [before, trace.steps[i]]
    changes = [change for one in records for change in one.cache if change.lane == "target"]
    masses = [mass for change in changes if (mass := recorded_mass(change)) is not None]
    if len(masses) < 2:
        return None
    one, other = (relative_mass(mass)[row] for mass in masses)
    return (
        None if entry.position >= len(one) else (float(one[entry.position]), other, thinning_note(masses[0]))
    )
