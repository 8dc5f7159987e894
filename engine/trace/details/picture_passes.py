"""The cells of a picture that a pass settles, several rows at once or group by group; used to settle and to check."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import cos, floor, pi


def picture_start(tokens: Sequence[int], levels: Collection[int]) -> int:
    """The beginning of the picture at the end of `tokens`: after the last token that is not a grey level."""
    known, at = set(levels), len(tokens)
    while at and tokens[at - 1] in known:
        at -= 1
    return at


def zipar_passes(first: int, behind: int, width: int, window: int) -> list[list[int]]:
    """ZipAR: the cells of each pass, of those from `first` to the one before `behind` in raster order. The first row is written
    alone; the one below it begins when it is whole, each other one `window` passes after the row above."""
    column, passes = first % width, dict[int, list[int]]()
    for cell in range(first, behind):
        down = cell // width - first // width
        begun = width - column + (down - 1) * window if down else -column
        passes.setdefault(begun + cell % width, []).append(cell)
    return [passes[t] for t in range(len(passes))]


def randar_group_sizes(cells: int, steps: int) -> list[int]:
    """RandAR: how many of `cells` each pass writes. After pass i of `steps`, floor((1 - cos(pi / 2 (i + 1) / steps)) cells + 1)
    cells are written, at most all of them; each pass writes at least one."""
    steps = min(steps, cells)
    sizes = list[int]()
    done = 0
    while done < cells:
        due = floor((1 - cos(pi / 2 * (len(sizes) + 1) / steps)) * cells + 1)
        sizes.append(max(min(due, cells) - done, 1))
        done += sizes[-1]
    return sizes
