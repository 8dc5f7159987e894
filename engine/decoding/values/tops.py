"""Tops: the few tokens that matter at each visited place, and what all others add up to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.trace.records.events import TOP, Tops

from .draft import Draft, Verdict

# Half types round near-equal logits together: a choice between them is a tie (docs/trace.md, `tie`)
TIE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.25}


WIDE, BLOCK = 1 << 14, 64  # entries of a row from which on its largest are sought by blocks, and of a block


def tops_record(draft: Draft, verdict: Verdict, logits: Tensor) -> Tops:
    """The best tokens at each visited place; logits float [N + 1, V]. Under a greedy distribution p is the plain softmax.

    Operations over whole distributions are few and cover all places at once. The few tokens of each place are computed as
    plain numbers.
    """
    places = [node for node, _ in verdict.places]
    law, z = _target_distribution(verdict, logits, places)
    ids, p = _largest_values(law)
    entropy = _entropy(law) if z is None else _entropy_of_softmax(law, z, p)
    q = _proposals(draft, places)
    if q is None and not verdict.trials:
        return _build_tops(
            places,
            ids,
            p,
            [[0.0] * len(row) for row in p],
            [[x, 0.0, x] for x in map(_remaining_mass, p)],
            entropy,
        )
    return _tops_with_draft(draft, verdict, places, ids, law, q, entropy)


def tops_without_draft(logits: Tensor) -> Tops:
    """The same if nothing was drafted: of the places after the root and after each token that a step wrote, except the last,
    in order; logits float [R, V] of these places."""
    places: list[tuple[int, Tensor | None]] = [(i - 1, None) for i in range(len(logits))]
    return tops_record(Draft(), Verdict([], None, "target", places=places), logits)


def token_probabilities(logits: Tensor, tokens: list[int]) -> list[float]:
    """The probability of each row's token under the softmax of that row of logits [R, V], in doubles."""
    z, at = logits.double(), torch.tensor(tokens, device=logits.device)[:, None]
    law: list[float] = (z.gather(1, at)[:, 0] - z.logsumexp(-1)).exp().tolist()
    return law


def _tops_with_draft(
    draft: Draft,
    verdict: Verdict,
    places: list[int],
    best: list[list[int]],
    law: Tensor,
    q: Tensor | None,
    entropy: Any,
) -> Tops:
    """The same where something was drafted: the best of p and of q, and the tokens tried."""
    rows = best if q is None else [a + b for a, b in zip(best, _largest_values(q)[0], strict=True)]
    place = {node: i for i, node in enumerate(places)}
    for trial in verdict.trials:
        rows[place[draft.parents[trial.node]]].append(draft.tokens[trial.node])
    rows = [list(dict.fromkeys(row)) for row in rows]
    counts = [len(row) for row in rows]
    width = max(counts)
    ids = [row + [-1] * (width - len(row)) for row in rows]
    index = torch.tensor([row + row[:1] * (width - len(row)) for row in rows], device=law.device)

    def shown(of: Tensor) -> list[list[float]]:
        """The probabilities of each place's tokens in the distributions [P, V]; 0 for the padding."""
        return [
            row[:n] + [0.0] * (width - n) for row, n in zip(of.gather(1, index).tolist(), counts, strict=True)
        ]

    p_shown = shown(law)
    tails = [_remaining_mass(row) for row in p_shown]
    if q is None:
        return _build_tops(
            places, ids, p_shown, [[0.0] * width] * len(rows), [[x, 0.0, x] for x in tails], entropy
        )
    q_shown = shown(q)
    sums = torch.stack([q.sum(1), (law - q).clamp_min_(0).sum(1)], 1).tolist()
    rest = [
        [
            tail,
            max(0.0, whole - sum(b)),
            max(0.0, over - sum(x - y for x, y in zip(a, b, strict=True) if x > y)),
        ]
        for tail, (whole, over), a, b in zip(tails, sums, p_shown, q_shown, strict=True)
    ]
    return _build_tops(places, ids, p_shown, q_shown, rest, entropy)


def _remaining_mass(shown: list[float]) -> float:
    """1 minus the sum of these shares."""
    return max(0.0, 1 - sum(shown))


def _build_tops(
    places: list[int],
    ids: list[list[int]],
    p: list[list[float]],
    q: list[list[float]],
    rest: list[list[float]],
    entropy: Any,
) -> Tops:
    """The record."""
    return Tops(
        np.array(places, np.int32),
        np.array(ids, np.int32),
        *(np.array(x, np.float32) for x in (p, q, rest, entropy)),
    )


def _entropy(law: Tensor) -> list[float]:
    """Entropy of each row of law [P, V], in nats."""
    entropies: list[float] = torch.special.entr(law).sum(-1).tolist()
    return entropies


def _target_distribution(verdict: Verdict, logits: Tensor, places: list[int]) -> tuple[Tensor, Tensor | None]:
    """p [P, V], and the logits [P, V] that it is the softmax of; None: it is another distribution."""
    laws = [law for _, law in verdict.places if law is not None]
    if laws:
        return torch.stack(laws) if len(laws) > 1 else laws[0][None], None
    z = logits if len(places) == len(logits) else logits[[node + 1 for node in places]]
    return z.softmax(-1), z


def _proposals(draft: Draft, places: list[int]) -> Tensor | None:
    """[P, V]: the distribution of the first draw at each place, zeros where nothing was drawn; None if nowhere."""
    if draft.q is None or draft.q_row is None:
        return None
    first = [draft.children(node)[:1] for node in places]
    rows = [draft.q_row[kids[0]] if kids else -1 for kids in first]
    if max(rows) < 0:
        return None
    q = draft.q[rows]
    if min(rows) < 0:
        q[[i for i, row in enumerate(rows) if row < 0]] = 0.0
    return q


def _entropy_of_softmax(law: Tensor, z: Tensor, p: list[list[float]]) -> list[float]:
    """The same of rows that are the softmax of z [P, V]: z_max - ln p_max - sum p z, which takes no logarithm of each number.
    p: the largest of each row first."""
    means = (law * z).sum(-1)
    if z.is_cpu:
        sums = zip(z.numpy().max(-1).tolist(), means.tolist(), strict=True)
    else:  # one wait for both
        sums = zip(*torch.stack([z.amax(-1), means]).tolist(), strict=True)
    entropies = [peak - math.log(row[0]) - mean for (peak, mean), row in zip(sums, p, strict=True)]
    return [max(x, 0.0) for x in entropies] if all(map(math.isfinite, entropies)) else _entropy(law)


def _largest_values(p: Tensor) -> tuple[list[list[int]], list[list[float]]]:
    """The TOP largest of each row [P, V], ids and values: the largest first, the lowest id first among equal ones."""
    values, ids = top_values(p)
    if p.is_cpu or p.dtype.itemsize < 4:
        return settle_ties(p, ids.tolist(), values.tolist())
    # one wait for both; whole numbers below 2^24 are exact in float32
    rows, count = torch.cat([values, ids.to(p.dtype)], 1).tolist(), values.shape[1]
    return settle_ties(p, [[int(x) for x in row[count:]] for row in rows], [row[:count] for row in rows])


def top_values(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The TOP + 1 largest values of rows [P, V] and their ids, each [P, K]. The last shows whether others equal the one before.

    On the CPU a wide row is cut into columns of BLOCK entries first: only those with the largest maxima can hold one of them.
    That takes a quarter of the time of searching the row itself.
    """
    count, width = min(TOP + 1, rows.shape[1]), rows.shape[1] // BLOCK
    if not rows.is_cpu or rows.shape[1] < WIDE:
        return rows.topk(count, -1)
    columns = rows[:, : width * BLOCK].view(len(rows), BLOCK, width).amax(1).topk(count, -1).indices  # [P, K]
    places = torch.arange(0, width * BLOCK, width, device=rows.device)
    ids = (columns[:, :, None] + places).view(len(rows), count * BLOCK)
    behind = torch.arange(width * BLOCK, rows.shape[1], device=rows.device).expand(len(rows), -1)
    ids = torch.cat([ids, behind], 1)
    best = rows.gather(1, ids).topk(count, -1)
    return best.values, ids.gather(1, best.indices)


def settle_ties(
    p: Tensor, ids: list[list[int]], values: list[list[float]], least: float = 0.0
) -> tuple[list[list[int]], list[list[float]]]:
    """The TOP largest of each row [P, V] from its TOP + 1 largest, which are changed: the lowest id first among equal ones.

    least: a value that no possible token has
    """
    for i, (row_ids, row_values) in enumerate(zip(ids, values, strict=True)):
        if len(set(row_values)) < len(row_values):
            if (
                len(row_values) > TOP and row_values[-2] == row_values[-1] > least
            ):  # which of the impossible ones is all the same
                above = [x for x, value in zip(row_ids, row_values, strict=True) if value > row_values[-1]]
                row_ids[:] = above + (p[i] == row_values[-1]).nonzero()[: TOP - len(above), 0].tolist()
                row_values[len(row_ids) :] = []
            order = sorted(range(len(row_ids)), key=lambda k: (-row_values[k], row_ids[k]))  # used at once
            row_ids[:], row_values[:] = [row_ids[k] for k in order], [row_values[k] for k in order]
        row_ids[TOP:], row_values[TOP:] = [], []
    return ids, values


def near_ties(shown: Tops, dtype: torch.dtype) -> list[list[float]] | None:
    """[place's rank, difference in nats] where the two best logits could have come out in either order in `dtype`."""
    bound = math.exp(-TIE[dtype])
    close = [i for i, row in enumerate(shown.p.tolist()) if len(row) > 1 and row[1] >= row[0] * bound]
    return [[float(i), math.log(float(shown.p[i, 0]) / float(shown.p[i, 1]))] for i in close] or None
