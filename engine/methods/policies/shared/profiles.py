"""Head profiles: the type of each token, and the result of each head's own candidate."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Container

import torch
from torch import Tensor

from decodescope.engine.trace.records.events import Piece

TEXT, SPECIAL, PUNCTUATION = range(3)


class TokenTypes:
    """pieces: id -> piece of text, or None where there is no tokenizer;  marks: ids of special tokens"""

    def __init__(self, pieces: Callable[[int], Piece] | None, marks: Container[int]):
        self._pieces = pieces
        self._marks = marks
        self._known: dict[int, int] = {}

    def classify(self, tokens: Tensor) -> Tensor:
        """uint8 [B, T] of tokens int64 [B, T]: TEXT, SPECIAL or PUNCTUATION, which is nothing but marks and signs."""
        sorts = [[self._classify_token(token) for token in row] for row in tokens.tolist()]
        return torch.tensor(sorts, dtype=torch.uint8, device=tokens.device)

    def _classify_token(self, token: int) -> int:
        if token not in self._known:
            piece = "" if self._pieces is None else self._pieces(token)
            text = piece.strip() if isinstance(piece, str) else ""
            punctuation = text and all(unicodedata.category(x)[0] in "PS" for x in text)
            if token in self._marks:
                self._known[token] = SPECIAL
            elif punctuation:
                self._known[token] = PUNCTUATION
            else:
                self._known[token] = TEXT
        return self._known[token]


def own_mask(kept: Tensor, chosen: Tensor) -> Tensor:
    """bool [B, H_kv, n]: the entries that each head's chosen candidate (int64 [B, H_kv]) keeps; kept: bool [C, B, H_kv, n]."""
    return kept.gather(0, chosen.expand(kept.shape[1:3])[None, ..., None].expand(1, *kept.shape[1:]))[0]


def values_by_head(values: Tensor) -> dict[str, float]:
    """Convert values [L, H_kv] to a dict by "layer.head"."""
    return {f"{i}.{h}": x for i, row in enumerate(values.tolist()) for h, x in enumerate(row)}
