"""ReferenceCache: a full KV cache, or the uncompressed model, run along to measure what eviction and compression cost."""

from __future__ import annotations

import torch
from torch import Tensor

from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import Executor
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.faults import require_finite
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.reference import ReferenceRecord


class ReferenceCache:
    """Reads what a lane commits, in a pass of its own after each commit, with a cache that keeps everything.

    The text is the lane's, so its weights and logits are those of the full cache, or of the whole model, on that text. It
    changes no text, doubles the passes, and holds memory that the lane's figures leave out.

    us:     microseconds that it took, since they were last taken
    logits: of the lane's last pass, float [B, T, V], as the lane leaves them here
    """

    def __init__(
        self, decoder: Decoder, executor: Executor, batch: int, columns: bool, whole: bool, weight_bytes: int
    ):
        """columns: True if attention of prompt tokens is requested, too;  whole: True if the decoder is the original of the
        lane's model, with heads of its own: then distributions are compared, and no attention;  weight_bytes: of weights that
        only this reads."""
        self.decoder = decoder
        self.executor = executor
        self._whole = whole
        self._weight_bytes = weight_bytes
        self.cache = KVCache(decoder.spec, batch=batch, dtype=decoder.dtype, device=decoder.device)
        self.us, self.logits = 0.0, torch.empty(0)
        self._needs = Needs("columns" if columns else "decode")
        if whole:
            self._needs = Needs("none")
        self._probe = Probe(self._needs)
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []  # lost [R, L, H_kv], drift [R], said [R]
        self._stays: list[
            Tensor
        ] = []  # for each layer [H_kv]: what the last row gave to entries that the lane holds
        self._cut: Tensor | None = None

    def follow(self, feed: Feed, rows: list[int], cache: KVCache) -> None:
        """Read the `rows` of the lane's last pass that it has just committed to `cache`, before its policy acts."""
        if not rows:
            return
        start = self.executor.mark()
        self.cache.truncate(cache.length - len(rows))
        own = Feed(
            feed.tokens[:, rows], feed.positions[:, rows], logits=feed.logits, highest=cache.length - 1
        )
        self._probe = Probe(self._needs)
        logits = self.executor.run(self.decoder, own, self.cache, self._probe, None, None)
        require_finite(logits, f"what {self.decoder.spec.name} says with a full cache")
        self.cache.commit(range(len(rows)))
        self._stays = []
        if feed.logits != "last":  # rows of a prompt decide about nothing
            full, mine = (x[0].double().log_softmax(-1) for x in (logits, self.logits[:, rows]))
            parts = full.exp() * (full - mine)
            drift = parts.masked_fill(full == -torch.inf, 0).sum(-1).clamp(0, torch.finfo(torch.float32).max)
            self._rows.append((self._lost_mass(cache, len(rows)), drift, logits[0].argmax(-1)))
        self.us += self.executor.elapsed_us(start, self.executor.mark())

    def _lost_mass(self, cache: KVCache, rows: int) -> Tensor:
        """float32 [R, L, H_kv]: what the rows last followed give to entries that the lane no longer holds."""
        if self._whole:
            return torch.zeros(rows, 0, 0)
        kept = torch.stack([self.rows(store).sum(-1)[0].mean(1) for store in cache.layers])  # [L, H_kv, R]
        self._stays = list(kept[..., -1])
        return (1 - kept).clamp(min=0).permute(2, 0, 1)

    def measure_cut(self, cache: KVCache) -> None:
        """The lane's policy has acted: what of the last row's weights fell on what has left."""
        if self._stays:
            start = self.executor.mark()
            now = [self.rows(store)[0, :, :, -1].sum(-1).mean(1) for store in cache.layers]  # [H_kv] each
            self._cut = (torch.stack(self._stays) - torch.stack(now)).clamp(min=0)
            self.us += self.executor.elapsed_us(start, self.executor.mark())

    def rows(self, store: LayerStore) -> Tensor:
        """float32 [B, H_kv, g, R, n]: what the rows last followed give to the entries of a layer of the lane, by slot."""
        return _gather_held(self._probe.rows[store.layer], store)

    def columns(self, store: LayerStore) -> Tensor | None:
        """float32 [B, H_kv, n]: the same of a prompt's tokens, summed over them and the group; None: they were no prompt's."""
        columns = self._probe.columns.get(store.layer)
        return None if columns is None else _gather_held(columns, store)

    def take_record(self) -> ReferenceRecord | None:
        """The record of everything since the last call; None: nothing."""
        rows, self._rows = self._rows, []
        cut, self._cut = self._cut, None
        if not rows:
            return None
        lost, drift, said = (torch.cat(x).cpu() for x in zip(*rows, strict=True))
        return ReferenceRecord(
            lost.float().numpy(),
            drift.float().numpy(),
            said.int().numpy(),
            self.cache.nbytes,
            round(self.us, 1),
            None if cut is None else cut.cpu().numpy(),
            self._weight_bytes,
        )


def _gather_held(table: Tensor, store: LayerStore) -> Tensor:
    """A table [B, H_kv, ..., N] by position, at the positions of a store: [B, H_kv, ..., n]; 0 where a head has none."""
    at = store.positions().expand(*table.shape[:2], -1)
    at = at.view(*at.shape[:2], *[1] * (table.dim() - 3), at.shape[2]).expand(*table.shape[:-1], -1)
    return table.gather(-1, at.clamp(min=0)).masked_fill(at < 0, 0)
