"""Union: merge several token trees into one that holds each path once, and find the shared prefixes of many texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from decodescope.engine.decoding.values.draft import ROOT


def merge_trees(
    trees: Iterable[tuple[Sequence[int], Sequence[int]]],
) -> tuple[list[int], list[int], list[list[int]]]:
    """Merge `trees` (tokens, parents) into one tree with the paths of all of them.

    Returns the tokens and parents of the union and, for each tree, the node of the union for each of its nodes.

    The first tree's nodes come first, then the nodes that the next one adds, and so on. The union of unions is the same tree in
    the same order. O(nodes).
    """
    tokens: list[int] = []
    parents: list[int] = []
    places: list[list[int]] = []
    known: dict[tuple[int, int], int] = {}  # (parent, token) -> node
    for own, above in trees:
        at: list[int] = []
        for token, parent in zip(own, above, strict=True):
            key = (ROOT if parent == ROOT else at[parent], token)
            if key not in known:
                known[key] = len(tokens)
                tokens.append(token)
                parents.append(key[0])
            at.append(known[key])
        places.append(at)
    return tokens, parents, places


def frequent_prefixes(rows: np.ndarray, nodes: int) -> tuple[list[int], list[int], list[int]]:
    """Tokens, parents and counts of the `nodes` most frequent prefixes of `rows`, best first.

    rows: int [P, L] with equal prefixes adjacent; a negative id ends its row
    """
    # whether a prefix begins here: it differs from that of the row above
    new = np.ones(rows.shape, dtype=bool)
    new[1:] = np.logical_or.accumulate(rows[1:] != rows[:-1], axis=1)
    group = new.cumsum(axis=0) - 1  # [P, L]: which prefix of its level it is
    levels, firsts = np.nonzero((new & (rows >= 0)).T)
    sizes = [np.bincount(column) for column in group.T]
    counts = np.array(
        [sizes[d][group[row, d]] for d, row in zip(levels, firsts, strict=True)], dtype=np.int64
    )
    best = np.lexsort((firsts, levels, -counts))[:nodes]
    place: dict[tuple[int, int], int] = {}
    parents = []
    for i, (d, row) in enumerate(zip(levels[best].tolist(), firsts[best].tolist(), strict=True)):
        place[d, int(group[row, d])] = i
        parents.append(ROOT if d == 0 else place[d - 1, int(group[row, d - 1])])
    return rows[firsts[best], levels[best]].tolist(), parents, counts[best].tolist()
