"""A reference for cache policies: a policy acts on a cache that drops nothing.

`Beside` reads texts as `Whole` does, under an explicit mask per layer and head. A policy acts on `Bare` stores. Such a store
holds the entries of each head in text order, and is gathered again whenever an entry leaves. No slot is reused, no page is
returned, and no kernel runs. If a policy has a rule of its own (`Rule`), the policy is not called. The rule says what is held,
from all keys and values, and from every attention weight that any row ever gave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from masked import Whole
from torch import Tensor

from decodescope.engine.core.moments import Moments
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.column import EntryColumn, expand_index


class Bare:
    """One layer as a policy sees it, with the methods of a LayerStore that policies use.

    Heads may hold different numbers of entries; positions after the last one are then -1.
    """

    heads = present = None
    m = 0

    def __init__(self, whole: Whole, layer: int, batch: int, columns: dict[str, EntryColumn]):
        self.whole, self.layer, self._columns = whole, layer, columns
        self.at = torch.zeros(batch, whole.spec.n_kv_heads, 0, dtype=torch.int64)
        self.columns = {name: x.table(*self.at.shape, "cpu") for name, x in columns.items()}
        self.evicted = self.merged = self.ranked = None

    @property
    def n(self) -> int:
        return self.at.shape[2]

    @property
    def lengths(self) -> list[int]:
        return (self.at[0] >= 0).sum(1).tolist()

    @property
    def kv(self) -> Tensor:
        return torch.stack([self.k, self.v])

    @property
    def k(self) -> Tensor:
        return self._of(self.whole.keys(self.layer))

    @property
    def v(self) -> Tensor:
        return self._of(self.whole.kv[self.layer][1])

    def _of(self, table: Tensor) -> Tensor:
        """Return the held rows of a table by position, [B, H_kv, n, D]."""
        return table.gather(2, expand_index(self.at.clamp(min=0), table, 2))

    def positions(self) -> Tensor:
        return self.at

    def column(self, name: str) -> Tensor:
        return self.columns[name]

    def write(self, which: int, x: Tensor) -> None:
        """Write as a LayerStore does; keys are rotated back to what they were before rotation."""
        x = self.whole.turned(x, -self.at) if which == 0 else x
        for b, h, slot in (self.at >= 0).nonzero().tolist():
            self.whole.kv[self.layer][which, b, h, self.at[b, h, slot]] = x[b, h, slot]

    def add(self, count: int) -> None:
        """After the whole has read `count` more tokens, hold them behind all others."""
        new = torch.arange(self.whole.n - count, self.whole.n).expand(*self.at.shape[:2], count)
        fresh = {name: x.table(*new.shape, "cpu") for name, x in self._columns.items()}
        self.at = torch.cat([self.at, new], 2)
        self.columns = {name: torch.cat([x, fresh[name]], 2) for name, x in self.columns.items()}
        self.keep_where(self.at >= 0)

    def evict(self, index: Tensor) -> None:
        self.keep_where(torch.ones_like(self.at, dtype=torch.bool).scatter(2, index, False))

    def evict_same(self, slots: Sequence[int]) -> None:
        self.evict(torch.tensor(slots).expand(*self.at.shape[:2], -1))

    def keep_where(self, keep: Tensor) -> None:
        keep = keep & (self.at >= 0)
        order = (~keep).to(torch.int8).argsort(dim=2, stable=True)[..., : int(keep.sum(2).max())]
        self.columns = {name: x.gather(2, expand_index(order, x, 2)) for name, x in self.columns.items()}
        self.at = self.at.gather(2, order).masked_fill(~keep.gather(2, order), -1)
        seen = torch.zeros(*self.at.shape[:2], self.whole.n + 1, dtype=torch.bool)
        self.whole.seen[self.layer] = seen.scatter(2, self.at % (self.whole.n + 1), True)[..., :-1]


class Evidence:
    """The attention weights that rules decide by.

    maps:   per layer float [B, H_kv, g, R, n], what each token's row gave to each position (0: not seen)
    prompt: number of prompt tokens if the prompt has just ended, else 0;  text: tokens so far
    read:   tokens that were read before the first pass after which entries may leave
    ends:   tokens of the text after each pass after which entries may leave
    """

    def __init__(self, whole: Whole):
        self.whole, self.prompt, self.text, self.read = whole, 0, 0, 0
        self.maps: list[Tensor] = []
        self.ends: list[int] = []

    def add(self, given: list[Tensor], rows: list[int], before: int) -> None:
        """Add the committed `rows` of a pass over `before` tokens."""
        at = [*range(before), *(before + row for row in rows)]
        new = [x[..., rows, :][..., at] for x in given]
        if not self.maps:
            self.maps = [x.new_zeros(*x.shape[:3], 0, 0) for x in new]
        grown = [torch.nn.functional.pad(x, (0, len(rows))) for x in self.maps]
        self.maps = [torch.cat([old, x], 3) for old, x in zip(grown, new, strict=True)]
        self.text = before + len(rows)


# (policy, evidence, layer, held bool [B, H_kv, n]) -> what stays, bool [B, H_kv, n]; it may rewrite the whole's keys and values
Rule = Callable[[Any, Evidence, int, Tensor], Tensor]


class Beside:
    """B texts under a policy. With a rule, the policy only gives its knobs; without one, it acts on bare stores."""

    def __init__(self, decoder: Decoder, policy: CachePolicy, batch: int, rule: Rule | None = None):
        self.policy, self.rule = policy, rule
        self.whole = Whole(decoder, batch, policy.sink_places, policy.band if policy.strict else None)
        self.layers = [Bare(self.whole, i, batch, policy.columns) for i in range(decoder.spec.n_layers)]
        self.prompt: PromptAttention | None = PromptAttention(decoder, Needs(queries=10**6) | policy.needs)
        self.evidence = Evidence(self.whole)
        self.spec = decoder.spec

    @property
    def length(self) -> int:
        return self.whole.n

    @property
    def memory(self) -> Any:
        raise AssertionError("what a policy does depends on no bytes")

    def read(
        self, tokens: Tensor, visible: Tensor | None = None, rows: list[int] | None = None, cut: bool = True
    ) -> Tensor:
        """Return the logits [B, T, V] of a pass over tokens int64 [B, T]; `rows` (None: all) are committed."""
        logits, before = self.whole.fed(tokens, visible), self.whole.n
        rows = list(range(tokens.shape[1])) if rows is None else rows
        self.whole.commit(rows)
        if self.rule is not None:
            self._ruled(before, rows, cut)
            return logits
        for store in self.layers:
            store.add(len(rows))
        if self.policy.reads:
            self.policy.read(self, tokens[:, rows])
        self._observed(before, rows, prefill=not cut)
        if cut:
            if self.prompt is not None:
                self.policy.prompt_end(self, self.prompt)
                self.prompt = None
            self.policy.compress(self)
        return logits

    def _observed(self, before: int, rows: list[int], prefill: bool) -> None:
        """Give the policy what it needs from the committed rows of a pass over `before` tokens."""
        places, needs = [before + i for i in range(len(rows))], self.policy.needs
        if self.prompt is not None:
            queries = {
                i: self.whole.turned(x[:, :, :, rows], torch.tensor(places))
                for i, x in enumerate(self.whole.asked)
            }
            first = max(0, (needs.moments or 0) - before)
            plain = {
                i: x.flatten(1, 2)[:, :, rows[first:]] for i, x in enumerate(self.whole.asked) if rows[first:]
            }
            moments = {} if needs.moments is None else {i: Moments.of(x) for i, x in plain.items()}
            self.prompt.add(Probe(needs, queries=queries, moments=moments), list(range(len(rows))), len(rows))
        if needs.attention == "none" or (prefill and needs.attention == "decode"):
            return
        at = [*range(before), *(before + row for row in rows)]
        for i, store in enumerate(self.layers):
            given = self.whole.given[i][:, :, :, rows][..., at]  # [B, H_kv, g, R, n]
            slots = store.at[:, :, None, None].expand(*given.shape[:4], -1)
            self.policy.observe(
                i, store, given.gather(4, slots.clamp(min=0)).masked_fill(slots < 0, 0).float()
            )

    def _ruled(self, before: int, rows: list[int], cut: bool) -> None:
        self.evidence.add(self.whole.given, rows, before)
        if cut:
            self.evidence.prompt, self.prompt = (before + len(rows) if self.prompt is not None else 0), None
            self.evidence.read = self.evidence.read if self.evidence.ends else before
            self.evidence.ends.append(before + len(rows))
            for i, seen in enumerate(self.whole.seen):
                self.whole.seen[i] = seen & self.rule(self.policy, self.evidence, i, seen)

    def kept(self) -> list[list[list[list[int]]]]:
        """Return the held positions by layer, text and KV head."""
        return [
            [[row.nonzero()[:, 0].tolist() for row in heads] for heads in seen] for seen in self.whole.seen
        ]
