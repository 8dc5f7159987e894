"""Freed: which entries a thread that ends takes with it, derived from how threads hang together."""

from __future__ import annotations

from collections.abc import Collection

from decodescope.engine.core.prefix import common_prefix

from ..details.threads import TextThread


def thread_start(strand: TextThread, prompt: int) -> int:
    """The place in its text of the first token that the thread wrote; prompt: tokens of the run's."""
    above = prompt if strand.parent is None else thread_start(strand.parent, prompt) + strand.at
    return above + len(strand.given)


def divergence_places(a: TextThread, b: TextThread, prompt: int) -> tuple[int, int]:
    """The first place at which the texts of two threads may differ by where they began, and the first at which they do, with
    what was put after both."""
    first, second = _ancestor_path(a), _ancestor_path(b)
    same = next(
        (i for i, (x, y) in enumerate(zip(first, second, strict=False)) if x is not y),
        min(len(first), len(second)),
    )
    above = prompt if not same else thread_start(first[same - 1], prompt)
    below = [line[same] for line in (first, second) if same < len(line)]
    place = above + min((x.at for x in below), default=len(a.tokens))
    if len(below) == 2 and below[0].at == below[1].at:
        return place, place + common_prefix(below[0].given, below[1].given)
    return place, place


def freed_entries_problem(
    ended: TextThread, freed: list[int], others: Collection[TextThread], prompt: int
) -> str:
    """Why an ending thread cannot free the entries at the places `freed` of its text; "": it can. All of them must be after
    the part that any of the remaining `others` reads too, up to the last that the thread has read."""
    if not freed:
        return ""
    read = thread_start(ended, prompt) + len(ended.tokens) - 1
    # one cut off before it wrote may have read no more than the thread that it began in, with that last token waiting too
    least = read if ended.tokens else read - len(ended.given)
    if not least <= freed[-1] + 1 <= read or freed != list(range(freed[0], freed[-1] + 1)):
        return f"thread {ended.number} took places {freed[0]} to {freed[-1]} with it, and had read up to {read - 1}"
    places = [divergence_places(ended, x, prompt) for x in others]
    least, most = (max((x[i] for x in places), default=prompt) for i in (0, 1))
    if not least <= freed[0] <= most:
        return f"thread {ended.number} took entries from place {freed[0]} on with it, and alone it read from {least} on"
    return ""


def _ancestor_path(strand: TextThread) -> list[TextThread]:
    """From the first ancestor down to the thread."""
    return [*([] if strand.parent is None else _ancestor_path(strand.parent)), strand]
