"""ConditionalPass: a forward pass that need not run every layer for every row.

Each layer goes through the same steps, and this file has them in that order:

    late rows   rows that enter at this layer join those that entered below (`Feed.entries`)
    exit        a rule may leave here: the answer is read off the state, and the layers above are filled or left empty
    flush       tokens with passes that stopped before this layer go on with the rows (`KVCache.waiting`)
    attention   left out (`Skip`), run for the rows that a rule chooses, or run for all
    ffn         left out (`Skip`, or closed by the rule further down), run for chosen rows, or run for all

What ran is entered in `ExecutedLayers`. What the cache of a layer gets for rows that did not run is in `skipped_kv.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ..layers.column import PROPAGATED
from ..layers.partial_pass import DepthRule, ExecutedLayers, LazyLogits, Skip
from ..layers.row_routing import SkippedRows, choose_rows, complement_rows
from .attention_block import AttentionBlock
from .skipped_kv import fill_skipped_kv


class ConditionalPass:
    """One such pass over `block.feed`.

    skip: sub-layers that are left out;  rule: decides inside the pass, or None;  ran: records what ran
    read: states [B, T, d_model] -> their logits, not yet computed
    exit: the answer of the exit by which the pass left; None: it went to the end
    """

    def __init__(
        self,
        block: AttentionBlock,
        skip: Skip,
        rule: DepthRule | None,
        ran: ExecutedLayers,
        read: Callable[[Tensor], LazyLogits],
    ):
        self.block = block  # of the rows that are under way by now
        self.stack = block.stack
        self.spec = block.spec
        self.feed = block.feed
        self.cache, self.probe = block.cache, block.probe
        self.skip = skip
        self.rule = rule
        self.ran = ran
        self.read = read
        self.router = rule if rule is not None and rule.routes else None
        self.closed = set(skip.ffn)  # feed-forward blocks that do not run
        self.waiting = {} if rule is None or self.cache is None else self.cache.waiting
        self.late = 0 if self.feed.entries is None else self.feed.length  # rows that have not entered yet
        self.exit: LazyLogits | None = None

    def run(self, states: Tensor) -> Tensor:
        """The states [B, T, d_model] of the fed rows after the last layer that ran; states: those that enter, likewise."""
        feed, ran = self.feed, self.ran
        x, ran.fed = states[:, self.late :], feed.length
        for i in range(feed.enter, self.spec.n_layers):
            if self.late:
                x = self._enter_late_rows(i, x, states)
            if self.probe is not None and i in self.probe.needs.hidden:
                self.probe.hidden[i] = x[:, -feed.length :] if self.waiting else x
            if self.rule is not None and self.exit is None and self._exits(i, x, self.rule):
                break
            if i in self.waiting:
                x = self._flush(i, x)
            x = self._attention(i, x)
            x = self._ffn(i, x)
            if self.late:
                ran.rows[i] = feed.length - self.late
        x = x[:, -feed.length :] if ran.joined else x
        if self.probe is not None and self.spec.n_layers in self.probe.needs.hidden:
            self.probe.hidden[self.spec.n_layers] = x
        return x

    def _enter_late_rows(self, i: int, x: Tensor, states: Tensor) -> Tensor:
        """The states x with those of the rows that enter at layer i before them."""
        late = self.feed.deferred_rows(i)
        if late >= self.late:
            return x
        x, self.late = torch.cat([states[:, late : self.late], x], 1), late
        self.block = AttentionBlock(self.stack, self.feed.rows_from(late), self.cache, self.probe)
        return x

    def _exits(self, i: int, x: Tensor, rule: DepthRule) -> bool:
        """True if the pass ends before layer i. A rule that is `whole` gives its answer here and lets the layers above run."""
        own = self.feed.deciding_rows(x)
        answer = self.read(own)
        if not rule.leave(i, own, answer):
            return False
        self.exit = answer
        if rule.whole:
            return False
        self._fill(range(i, self.spec.n_layers), x, rule.skipped_kv)
        return True

    def _flush(self, i: int, x: Tensor) -> Tensor:
        """The states x, preceded by the states of the tokens that waited at layer i."""
        waiting = self.waiting[i]
        self.ran.joined[waiting.layer] = len(waiting)
        feed = self.block.feed.prepend(waiting.tokens, waiting.positions)
        if feed.board is not None:
            feed.board.prepend_positions(waiting.positions)
        self.block = AttentionBlock(self.stack, feed, self.cache, self.probe)
        return torch.cat([waiting.states, x], 1)

    def _attention(self, i: int, x: Tensor) -> Tensor:
        """x after the attention block of layer i, as far as that runs."""
        if i in self.skip.attn:
            self._fill((i,), x, self.skip.gap)
            return x
        if self.router is not None:
            rows = choose_rows(self.router, i, "attn", x, self.probe)
            if rows is not None:
                return self._attention_of(i, x, rows, self.router.skipped_kv)
        x = self.block.attend(i, x)
        ran = self.ran
        fed = self.feed.length
        ran.attn.append(i)
        if ran.joined:
            ran.pending[i] = [-1] * (x.shape[1] - fed) + [*range(fed)]
        return x

    def _attention_of(self, i: int, x: Tensor, rows: Tensor, gap: str) -> Tensor:
        """x after the attention block of layer i for `rows` (int64 [R], ascending) alone. The other rows skip it; `gap`
        defines what the cache gets of them."""
        block, ran = self.block, self.ran
        ran.enter_rows(i, "attn", rows)
        if not len(rows):
            self._fill((i,), x, gap)
            return x
        store, ran.gap = None if self.cache is None else self.cache.layers[i], gap
        filled = gap == "propagate"
        pending = 0 if store is None else store.m
        feed = block.feed.select_rows(rows, pending, filled and self.spec.causal, filled)
        passing = None
        if filled:
            others = complement_rows(rows, x.shape[1])
            part = AttentionBlock(self.stack, block.feed.select_rows(others, 0, False, False), None, None)
            passing = SkippedRows(part.keys_values(i, x[:, others]), rows, others, block.feed.positions)
        else:
            ran.pending[i] = rows.tolist()
        running = AttentionBlock(self.stack, feed, self.cache, self.probe, passing)
        x = x.index_copy(1, rows, running.attend(i, x[:, rows]))
        if passing is not None and store is not None and "origin" in store.columns:
            store.mark_origin(PROPAGATED, block.feed.length, passing.others)
        return x

    def _ffn(self, i: int, x: Tensor) -> Tensor:
        """x after the feed-forward block of layer i, as far as that runs. The rule may then close blocks further up."""
        if i in self.closed:
            return x
        rows = None if self.router is None else choose_rows(self.router, i, "ffn", x, self.probe)
        if rows is None:
            y = self.stack.ffn(i, x)
            self.ran.ffn.append(i)
        else:
            self.ran.enter_rows(i, "ffn", rows)
            y = x.index_copy(1, rows, self.stack.ffn(i, x[:, rows])) if len(rows) else x
        if self.rule is not None:
            fed = self.feed.length
            self.closed.update(self.rule.gate(i, x[:, -fed:], y[:, -fed:]))
        return y

    def _fill(self, layers: Iterable[int], x: Tensor, gap: str) -> None:
        """Fill the cache of `layers`, ascending, with skipped attention, as `gap` defines."""
        fill_skipped_kv(self.block, layers, x, gap, self.ran)
