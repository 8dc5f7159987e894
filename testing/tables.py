"""Models that are tables: the logits depend on every token before, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.load import Model

Seen = tuple[tuple[int, int], ...]  # (position, token) of every entry that a row sees, ascending
Logits = Callable[[Seen], Tensor]  # -> float64 [V]
PROMPT = [1, 2, 1]


def logit_table(vocab: int, seed: int, scale: float = 1.5) -> Logits:
    """Independent normal logits for everything that can be seen."""

    def logits(seen: Seen) -> Tensor:
        flat = [x for entry in seen for x in entry]
        return torch.from_numpy(np.random.default_rng([seed, *flat]).normal(0, scale, vocab))

    return memoize_logits(logits)


def constant_logits(*probs: float) -> Logits:
    """The same distribution after every text."""
    logits = torch.tensor(probs, dtype=torch.float64).log()
    return lambda seen: logits


def draft_table(kind: str, target: Logits, vocab: int, seed: int = 77) -> Logits:
    """equal: the target's own. mixed: 0.7 of each. independent. support: nothing on the half of the ids that the target
    likes best. onehot: all on one id."""
    other = logit_table(vocab, seed)

    def logits(seen: Seen) -> Tensor:
        own = other(seen)
        if kind == "equal":
            return target(seen)
        if kind == "mixed":
            return 0.7 * target(seen) + 0.7 * own
        if kind == "support":
            return own.index_fill(0, target(seen).topk(vocab // 2).indices, -torch.inf)
        if kind == "onehot":
            return torch.full_like(own, -torch.inf).index_fill(0, own.argmax(), 0.0)
        return own

    return memoize_logits(logits)


KINDS = ("equal", "mixed", "independent", "support", "onehot")


def memoize_logits(logits: Logits) -> Logits:
    """The same function, each value decoder once."""
    memo: dict[Seen, Tensor] = {}

    def look(seen: Seen) -> Tensor:
        if seen not in memo:
            memo[seen] = logits(seen)
        return memo[seen]

    return look


class TableDecoder(Decoder):
    """A decoder with a cache that stores each fed token and its position as key and value.
    It finds the text of a row by reading back what that row may see. A stale row, a wrong position or a wrong mask asks the
    table for another text.

    skipped: the table of passes that skip sub-layers (layer skip's drafts)
    """

    def __init__(self, logits: Logits, vocab: int, skipped: Logits | None = None):
        one = torch.ones(1, dtype=torch.float64)
        layers = 1 if skipped is None else 3
        spec = ModelSpec("table", layers, 1, 1, 1, 1, 1, vocab, max_positions=64, mask_token=vocab - 1)
        super().__init__(spec, one.expand(vocab, 1), [], one, one.expand(vocab, 1))
        self.logits, self.skipped = logits, skipped
        self._known: dict[tuple[object, ...], Tensor] = {}

    def forward(  # type: ignore[override] # it keeps its text in a cache, and needs one
        self,
        feed: Feed,
        cache: KVCache,
        probe: Any = None,
        skip: Any = None,
        depth: Any = None,
        ran: Any = None,
    ) -> Tensor:
        """float64 [1, T, V], or [1, R, V] of the rows that the feed asks for."""
        look = self.logits if skip is None or self.skipped is None else self.skipped
        n = cache.layers[0].n
        before = cache.layers[0].m
        T = feed.length
        for store in cache.layers:
            store.append(
                torch.stack([feed.tokens, feed.positions]).double().view(2, 1, 1, T, 1), feed.positions
            )
        kv = cache.layers[-1].kv[:, 0, 0, : n + before + T, 0]
        mask = b"" if feed.visible is None else feed.visible.numpy().tobytes()
        key = (kv.numpy().tobytes(), n, T, mask, str(feed.logits), look)
        if key not in self._known:
            self._known[key] = self._rows(kv, n, before, feed, look)
        return self._known[key].clone()

    def _rows(self, kv: Tensor, n: int, before: int, feed: Feed, look: Logits) -> Tensor:
        """The same, with the content of the cache: keys and values [2, entries], the first n of them committed."""
        T, read = feed.length, kv.long().tolist()
        entries = list(zip(read[1], read[0], strict=True))
        visible = None if feed.visible is None else feed.visible[0].tolist()
        rows = []
        for i in range(T - 1 if feed.logits == "last" else 0, T):
            pending = entries[n : n + before + i + 1]
            if visible is not None:
                pending = [entry for entry, sees in zip(entries[n:], visible[i], strict=True) if sees]
            rows.append(look(tuple(sorted(entries[:n] + pending))))
        known = torch.stack(rows)[None, :, : self.vocab]
        return known[:, feed.logits] if isinstance(feed.logits, list) else known


def table_model(logits: Logits, vocab: int, skipped: Logits | None = None) -> Model:
    """A loaded model that is a table."""
    decoder = TableDecoder(logits, vocab, skipped)
    return Model("table", cast(Path, None), decoder.spec, decoder, None, "0" * 16, [])
