"""TidalDecode: two layers read all entries and select those that the layers after them read."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.policy import MOST, CachePolicy
from decodescope.engine.model.attention.attention import soft_cap, upcast_half
from decodescope.engine.model.stores.cache import LayerStore
from decodescope.engine.model.stores.sparse_read import SparseChoice, SparseRead, top_mask
from decodescope.engine.trace.records.events import Piece

START, AGAIN = 2, 4  # the defaults


@component
class TidalDecode(CachePolicy):
    """In each pass, two layers read everything and select the entries that the other layers read.

    In the layers `selection_layer` and `reselection_layer`, each query head selects the `top_k` entries with the largest
    scores. The layers behind them read only what the last of the two has selected, per query head. The layers before
    `selection_layer` read everything, and so do the tokens of the prompt. If a model has too few layers for the defaults, these
    are lowered, and the header records it. Any other missing layer is refused.

    Of n entries a query head reads n in `selection_layer` + 2 layers and k in each of the others. A KV head reads the union of
    its query heads' selections, k to g k entries, and each query head attends to its own. All entries stay in memory. A row of
    a draft selects what it would one by one, also among its own ancestors, so drafts change no text. Of equal scores the first
    are selected.

    This follows the authors' Python code. There a mask hides unselected entries and everything is multiplied; here they are not
    read. Their layers are 2, and 13 or 9 of 32. Their paper also re-reads the generated text from time to time, to correct keys
    and values made by partial attention (cache correction, recalled). Their code does not, nor does this one.
    """

    title = "TidalDecode (positions shared by layers)"
    source = "Yang et al. 2024, arXiv:2410.05076, section 3; DerrickYLJ/TidalDecode, src/tidal_build/modify_llama.py"
    does = frozenset({"select"})
    goes = "Nothing leaves: two layers look at everything, the others read what those have given the largest scores."
    tells: ClassVar[dict[str, Note]] = {
        "covered": Note(
            "grid",
            "attention covered",
            what="by layer that looks at everything, the part of its attention that falls on what it notes; first row",
        )
    }

    top_k: int = param(
        256,
        low=1,
        high=MOST,
        unit="entries",
        help="highest-scoring entries that each query head selects for later layers to read",
    )
    selection_layer: int = param(
        START,
        low=0,
        high=255,
        unit="layer",
        help="first layer that selects entries; layers before it read every entry",
    )
    reselection_layer: int = param(
        AGAIN,
        low=0,
        high=255,
        unit="layer",
        help="second layer that selects entries; none if it is not above the first",
    )

    @property
    def max_read_entries(self) -> int:
        return self.top_k

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if method.drafter.resumes:
            return (
                f"{method.drafter.name} lets a pass begin behind the layers that its draft has run, and {self.name} chooses in "
                "those what the others read: choose the drafter prompt_lookup, or the policy keep_all."
            )
        stop, start = method.adaptive_depth.defer_layer, max(0, min(self.selection_layer, spec.n_layers - 2))
        if stop is not None and stop > start:
            return (
                f"under {method.adaptive_depth.name} tokens go on from layer {stop}, "
                f"and {self.name} chooses in layer {start} what the "
                f"layers behind it read; let them stop in front of layer {start} at most, or choose the policy quest."
            )
        last = spec.n_layers - 1
        if not last:
            return (
                f"{spec.name} has one layer, and {self.name} reads less in those behind the first: "
                "choose the policy keep_all."
            )
        if self.selection_layer >= last and self.selection_layer != START:
            return (
                f"tidal_decode.selection_layer = {self.selection_layer}: {spec.name} has the layers 0 to {last}, "
                f"and none of them would read less; choose at most {last - 1}."
            )
        if self.reselection_layer > last and self.reselection_layer != AGAIN:
            at = f"tidal_decode.reselection_layer = {self.reselection_layer}"
            return f"{at}: {spec.name} has the layers 0 to {last}; choose one of them, 0 for none."
        return None

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        super().begin(spec, prompt, pieces, marks)
        self.selection_layer = min(self.selection_layer, spec.n_layers - 2)
        self.reselection_layer = self.reselection_layer if self.reselection_layer < spec.n_layers else 0
        self._scale, self._cap = spec.score_scale, spec.attn_cap
        self._covered: list[Tensor | None] = [None] * spec.n_layers

    def select(self, layer: int, store: LayerStore, q: Tensor, board: SparseRead) -> SparseChoice | None:
        if layer < self.selection_layer or store.n + store.m <= self.top_k:
            return None
        if board.shared is None or layer == self.reselection_layer:
            board.shared = self._top_entries(layer, store, q, board.seen)
            return None
        noted: Tensor = board.shared  # bool [B, H_kv, g, T, n + m]
        return SparseChoice(noted[..., : store.n], noted[..., store.n :])

    def _top_entries(self, layer: int, store: LayerStore, q: Tensor, seen: Tensor) -> Tensor:
        """bool [B, H_kv, g, T, n + m]: the entries with the largest scores of each query."""
        hidden = ~F.pad(seen, (store.n, 0), value=True)
        scores = (upcast_half(q) @ upcast_half(store.k)[:, :, None].mT).masked_fill(hidden, -torch.inf)
        noted = top_mask(scores, self.top_k)
        first = soft_cap(scores[0, :, :, 0] * self._scale, self._cap).softmax(-1)  # [H_kv, g, n + m]
        self._covered[layer] = (first * noted[0, :, :, 0]).sum(-1).mean()
        return noted

    def notes(self) -> dict[str, Any] | None:
        covered = self._covered
        self._covered = [None] * len(covered)
        shares = [None if x is None else float(x) for x in covered]
        return {"covered": shares} if any(x is not None for x in shares) else None
