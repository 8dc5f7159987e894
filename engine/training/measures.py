"""Measures: how often heads and their model agree on held-out text, and what a table of trigrams reaches there."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.drafting.eagle import EagleLayer
from decodescope.engine.model.heads.drafting.fspad import FspadLayer
from decodescope.engine.model.heads.drafting.shift import head_shifts

from .guesses import head_guesses, head_logits
from .target import HeadTarget, read_states

ROWS = 16  # windows read at once
RANKS = 10  # guesses with recorded accuracy
LEVELS = 5  # of a draft at which EAGLE is measured


@torch.no_grad()
def measure(target: HeadTarget, head: Head, windows: Tensor) -> list[list[float]]:
    """Per head, at what share of the positions of int64 [N, T] its guess of rank 0, 1, ... is the model's likeliest token."""
    parts: list[Tensor] = []
    for ids in windows.split(ROWS):
        r = read_states(target, ids, head.shape.get("layer", 0))
        hits = []
        for s, x in head_guesses(head, r):
            wanted = target.unembed(s.align_target(r.feature)).argmax(-1, keepdim=True)
            top = head_logits(target, head, x).topk(min(RANKS, target.vocab)).indices
            hits.append(
                (top == wanted).flatten(0, 1).sum(0).double() / (len(windows) * s.rows(windows.shape[1]))
            )  # [RANKS]
        parts.append(torch.stack(hits))
    return torch.stack(parts).sum(0).tolist()


@torch.no_grad()
def measure_unrolled(
    target: HeadTarget, head: Head, windows: Tensor, levels: int = LEVELS, stride: int = 12
) -> list[list[float]]:
    """`measure` for the deeper levels 1 to levels - 1 of EAGLE and FSPAD: drafting from every `stride`-th place of int64
    [N, T] on guessed features, with the tokens of the text."""
    hits = torch.zeros(levels - 1, min(RANKS, target.vocab), dtype=torch.float64, device=target.device)
    count = 0
    for ids in windows.split(1):
        r, store = read_states(target, ids), cast(EagleLayer | FspadLayer, head).attention.store()
        first = head(r.feature[:, :-1], r.embedded[:, 1:], 0, store)  # slot t guesses the feature of t + 1
        store.commit(range(first.shape[1]))
        for t in reversed(range(0, ids.shape[1] - levels - 1, stride)):
            store.truncate(t + 1)
            guess, count = first[:, t : t + 1], count + 1
            for level in range(1, levels):
                slot = t + level
                guess = head(guess, r.embedded[:, slot + 1 : slot + 2], slot, store)
                top = head_logits(target, head, guess)[0, 0].topk(hits.shape[1]).indices
                hits[level - 1] += (top == target.unembed(r.feature[0, slot + 1]).argmax()).double()
    return (hits / count).tolist()


class TrigramTable:
    """The most frequent token at a distance behind two tokens, counted on rows of text (int [N, T]).

    If the pair never occurred, it is counted behind the last token alone.
    """

    def __init__(self, text: np.ndarray, distance: int, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        text = text.astype(np.int64)
        a = text[:, : -1 - distance]
        b = text[:, 1:-distance]
        c = text[:, 1 + distance :]
        self.pairs = self._most_frequent((a * vocabulary + b).ravel(), c.ravel())
        self.singles = self._most_frequent(b.ravel(), c.ravel())

    def _most_frequent(self, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, counts = np.unique(keys * self.vocabulary + values, return_counts=True)
        order = np.lexsort((-counts, codes // self.vocabulary))
        codes = codes[order]
        first = np.unique(codes // self.vocabulary, return_index=True)[1]
        return codes[first] // self.vocabulary, codes[first] % self.vocabulary

    def guess(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The guess behind each pair (a, b); -1 where b never came."""
        guess = np.full(a.shape, -1)
        for (keys, values), wanted in ((self.singles, b), (self.pairs, a * self.vocabulary + b)):
            at = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
            guess = np.where(keys[at] == wanted, values[at], guess)
        return guess


@torch.no_grad()
def trigram_floor(
    target: HeadTarget, kind: str, heads: int, text: np.ndarray, windows: Tensor, root: bool = False
) -> list[float]:
    """Per head, the share that a table of trigrams reaches at the places where the head is measured.

    The table gets the last two tokens that the head itself reads something of. root: it gets the last two known tokens, though
    Medusa and blockwise do not get the root.
    """
    shares, ids = [], windows.cpu().numpy().astype(np.int64)
    best = (
        torch.cat(
            [target.unembed(read_states(target, part).feature).argmax(-1) for part in windows.split(ROWS)]
        )
        .cpu()
        .numpy()
    )  # [N, T]
    for s in head_shifts(kind, heads):
        last = s.known if root else s.last
        table = TrigramTable(text, s.says - last, target.vocab)
        t = np.arange(max(0, 1 - last), s.rows(ids.shape[1]))
        guess = table.guess(ids[:, t + last - 1], ids[:, t + last])
        shares.append(float((guess == best[:, t + s.says - 1]).mean()))
    return shares
