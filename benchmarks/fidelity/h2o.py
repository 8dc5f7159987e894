"""H2O's eviction beside ours: the same attention, token by token; which entries does each head keep?

    python benchmarks/fidelity/h2o.py CHECKOUT        # of FMInference/H2O

We decode with the policy `h2o`. After every pass the attention that it was shown goes to their `H2OKVCache_LayerWise` as well,
one for each layer, whose heads are our KV heads (the attention of the query heads of a group, added up); entries are told
apart by their position. Theirs takes any of several entries with equal scores, ours the older ones. Where the sets differ,
theirs goes on from ours, so that one difference counts once.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, cast

import torch
import torch.nn.functional as F
from official import Code, Texts, main, parser, told
from torch import Tensor

from decodescope.engine import Method
from decodescope.engine.methods.policies.h2o import H2O
from decodescope.engine.model.stores.cache import KVCache, LayerStore

BUDGETS = ((8, 8), (16, 16), (48, 16), (1, 31))


class Beside:
    """A policy's eyes, through which theirs looks too, and after each commit the sets that both keep."""

    def __init__(self, policy: H2O, theirs: Any, layers: int):
        with redirect_stdout(StringIO()):  # theirs says its sizes
            self.theirs = [theirs(policy.heavy, policy.recent) for _ in range(layers)]
        self.count = Counter[str]()
        # float [H, n]: attention since the last commit
        self._seen: list[list[Tensor]] = [[] for _ in range(layers)]
        self._columns, self._rows, self._compress = policy.observe_columns, policy.observe, policy.compress
        policy.observe_columns, policy.observe = self.columns, self.rows  # type: ignore[method-assign]
        policy.compress = self.compress  # type: ignore[method-assign]

    def columns(self, layer: int, store: LayerStore, columns: Tensor) -> None:
        """See attention that is summed over its rows already."""
        self._seen[layer].append(columns[0])
        self._columns(layer, store, columns)

    def rows(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        """See attention row by row."""
        self._seen[layer].append(rows[0].sum((1, 2)))
        self._rows(layer, store, rows)

    def compress(self, cache: KVCache) -> None:
        """Let both evict, and compare what is left."""
        due = []
        for theirs, store, seen in zip(self.theirs, cache.layers, self._seen, strict=True):
            positions, order = _by_position(store)
            attention = torch.stack([F.pad(x, (0, store.n - x.shape[-1])) for x in seen], 1)  # [H, R, n]
            entries = positions[None, :, :, None].float()
            left = theirs((entries, entries), attention.gather(-1, order[:, None].expand_as(attention))[None])
            due.append(left[0][0, :, :, 0].long())
            seen.clear()
        self._compress(cache)
        for theirs, store, kept in zip(self.theirs, cache.layers, due, strict=True):
            positions, order = _by_position(store)
            same = (positions == kept).all(-1)
            mass = store.column("mass")[0].gather(-1, order)
            if store.n == theirs.cache_size:
                # other entries with the same scores
                tied = (mass.sort(-1).values == theirs.hh_score.sort(-1).values).all(-1)
                self.count.update(sets=len(same), same=int(same.sum()), tied=int((tied & ~same).sum()))
            theirs.hh_score = mass


def _by_position(store: LayerStore) -> tuple[Tensor, Tensor]:
    """The positions of a layer's entries [H, n], sorted, and the slots that they are in."""
    found = store.positions().expand_as(store.column("mass"))[0].sort(dim=-1)
    return found.values, found.indices


@torch.inference_mode()
def compare(args: argparse.Namespace) -> None:
    """Decode, evict with both, and print."""
    code = Code(args.checkout, "h2o_hf/utils_real_drop/modify_llama.py")
    (theirs,) = code.take("H2OKVCache_LayerWise", torch=torch)
    texts, rows = Texts(args), []
    for heavy, recent in BUDGETS:
        count: Counter[str] = Counter()
        method = Method.from_names({"policy": "h2o"}, {"policy": {"heavy": heavy, "recent": recent}})
        for i in range(len(texts.prompts)):
            session = texts.session(method, i, begun=False)
            beside = Beside(cast(H2O, session.target.policy), theirs, texts.model.spec.n_layers)
            session.start()
            while not session.is_done:
                session.step()
            count += beside.count
        rows.append([heavy, recent, *(count[x] for x in ("sets", "same", "tied"))])
    told(code, ("heavy", "recent", "sets of a head", "same set", "differ by a tie"), rows)


if __name__ == "__main__":
    sys.exit(main(compare, parser(__doc__)))
