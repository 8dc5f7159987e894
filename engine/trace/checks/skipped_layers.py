"""Skipped KV: what skipped layers hold of a pass's tokens, derived from the pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..records.events import CacheChange, Exit, Pass
from ..records.phases import is_deciding_pass

WITHOUT = ("monotone", "absent", "defer")  # a layer that did not run has no entry, or none yet


def check_gaps(
    passes: Sequence[Pass], cache: Sequence[CacheChange], layers: int, path: Sequence[int] | None = None
) -> Iterator[str]:
    """Problems of skipped KV in a step of a model with `layers` layers: sentences without their full stop. path: the
    drafted nodes that were accepted, if they were recorded."""
    for one in passes:
        yield from _check_filled_layers(one, layers)
        yield from _check_routing(one, layers)
    due, said = [one for one in passes if is_deciding_pass(one)], [x for x in cache if x.lane == "target"]
    if len(due) != 1 or len(said) != 1:
        return
    lacks, appended = said[0].lacks or [0] * layers, said[0].appended
    ran = set(_resolve_layers(due[0].attn, range(layers)))
    holes = set(range(layers)) - ran if due[0].gap in WITHOUT else set()
    if due[0].misses:
        yield from _check_missing_entries(due[0], lacks, appended, path)
        return
    for layer, count in enumerate(lacks):
        went = due[0].joined_tokens(layer) if layer in ran else 0
        went += sum(
            _flushed_tokens(one, layer) for one in passes if one.phase == "flush" and one.lane == "target"
        )
        if count != (appended if layer in holes else 0) - went:
            ran_here = _describe_layer(layer in ran, due[0].gap)
            yield f"its cache lacks {count} of {appended} entries in layer {layer}, which {ran_here}"
            return


def check_scores(passes: Sequence[Pass], exits: Sequence[Exit], layers: int) -> Iterator[str]:
    """Problems of the scores by which rows chose what they ran: sentences without their full stop."""
    for drafted in (False, True):
        said = [x for x in exits if x.drafted is drafted]
        ran = [
            x
            for x in passes
            if (x.lane == "target" and x.phase == "draft" if drafted else is_deciding_pass(x))
        ]
        for left, one in zip(said, ran, strict=False):
            if left.scores is None or any(len(row) != 2 * layers for row in left.scores):
                continue
            if left.signs != (one.routed or ["r" * one.tokens] * layers):
                yield "rows of a pass ran other sub-layers than their scores say"


def check_prompt(passes: Sequence[Pass], cache: Sequence[CacheChange], layers: int) -> Iterator[str]:
    """Problems of skipped KV in a prompt that was read by a rule: sentences without their full stop."""
    read = [one for one in passes if one.lane == "target" and one.routed is not None]
    for one in read:
        yield from _check_routing(one, layers)
    missed = [one for one in read if one.misses and len(one.routed or []) == layers]
    due = [sum(one.tokens - len(one.running_rows(i, "attn")) for one in missed) for i in range(layers)]
    said = next((x.lacks for x in cache if x.lane == "target"), None) or [0] * layers
    if missed and said != due:
        yield f"its cache lacks {said} entries by layer, and {due} rows did not run their attention"


def _check_routing(one: Pass, layers: int) -> Iterator[str]:
    """Check that a pass's record of its rows agrees with its record of its layers."""
    if one.routed is None:
        return
    if len(one.routed) != layers:
        yield f"a pass records its rows in {len(one.routed)} layers, of {layers}"
        return
    for block, said in (("attn", one.attn), ("ffn", one.ffn)):
        ran = [i for i in range(layers) if one.running_rows(i, block)]
        if ran != list(_resolve_layers(said, range(layers))):
            yield f"rows of a pass ran the {block} of the layers {ran}, which are not those that it says it ran"
    some = any(len(one.running_rows(i, "attn")) < one.tokens for i in range(layers))
    if some and one.gap not in ("propagate", "absent"):
        yield f"a pass left rows out of attention, and its gap is {one.gap or 'none'}"


def _check_missing_entries(
    one: Pass, lacks: Sequence[int], appended: int, path: Sequence[int] | None
) -> Iterator[str]:
    """A layer lacks those of the rows kept that did not run its attention."""
    rows = range(one.tokens) if path is None else [0, *(node + 1 for node in path)]
    if path is None and appended < one.tokens:
        return  # which of the rows were kept was not recorded
    for layer, count in enumerate(lacks):
        due = len(set(rows[:appended]) - set(one.running_rows(layer, "attn")))
        if count != due:
            yield f"its cache lacks {count} of {appended} entries in layer {layer}, and {due} rows did not run its attention"
            return


def _check_filled_layers(one: Pass, layers: int) -> Iterator[str]:
    """Check that every layer without attention was filled as `gap` says."""
    left = [i for i in range(layers) if i not in set(_resolve_layers(one.attn, range(layers)))]
    for gap, given in (("propagate", one.propagated), ("copy", one.copied)):
        count = len(_resolve_layers(given, left)) if given is not None else 0
        if one.gap and count and one.gap != gap:
            yield f"a pass filled {count} layers, and its gap is {one.gap}"
        elif one.gap == gap and count > len(left):
            yield f"a pass filled {count} layers, and {len(left)} did not run"


def _flushed_tokens(flush: Pass, layer: int) -> int:
    """Tokens that a pass over those that had waited took through `layer`."""
    return (
        flush.tokens + flush.joined_tokens(layer)
        if isinstance(flush.attn, list) and layer in flush.attn
        else 0
    )


def _resolve_layers(given: int | list[int] | None, among: Sequence[int]) -> Sequence[int]:
    if given is None:
        return among
    return among[:given] if isinstance(given, int) else given


def _describe_layer(ran: bool, gap: str) -> str:
    if ran:
        return "ran"
    if gap:
        return f"did not run, under the gap {gap}"
    return "did not run"
