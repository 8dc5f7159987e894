"""Key rerotation: once the prompt is cut, the keys that stay are turned to adjacent positions."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.policy import MOST, share_knob
from decodescope.engine.decoding.bases.prefill_eviction import PrefillEviction
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.model.layers.rope import RopeTable, rotate_
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.events import Piece
from decodescope.engine.trace.records.parts import Zone

from .shared.key_scores import SCORER_HELP, SCORERS, score_entries


@component
class KeyRerotation(PrefillEviction):
    """Cut the prompt by a score of the keys, then close the gaps: each KV head's kept keys get adjacent positions.

    A key holds its position as a rotation. When entries between two kept ones leave, the model still sees the old distance.
    Here the i-th of a head's K kept keys is turned from its position p to n - K + i, n the length of the prompt. So the kept
    entries end right before the next token, as if the prompt had only ever had K tokens. Rotations add up, so a key is turned
    by the difference n - K + i - p alone, once, in place.

    kvpress turns the keys back to 0 .. K - 1 instead and goes on counting from K; all distances are the same. Here the text
    keeps its own positions, so records say what is held, and the context limit is that of the whole text. A layer with a
    sliding window also goes by the text's positions. Layers without rotations are only cut. For a cache that closes gaps at
    every step, see the policies by place that count positions in the cache.
    """

    title = "Key rerotation"
    source = (
        "NVIDIA/kvpress, kvpress/presses/key_rerotation_press.py; Corallo and Papotti 2024 (FINCH), arXiv:2408.00167, "
        "section 3"
    )
    goes = "When the prompt has been read each KV head gives up what is worth least, and turns the rest to adjacent positions."
    tells: ClassVar[dict[str, Note]] = {
        "turned": Note(
            "grid",
            "mean turn of a key",
            "positions",
            what="by layer.KV head: how far kept keys were moved towards the text's end",
        )
    }

    scorer: str = param("difference", choices=SCORERS, help=SCORER_HELP)
    prompt_budget: int = param(
        60, low=1, high=MOST, unit="entries", help="prompt entries that each KV head keeps"
    )
    sink_tokens: int = param(4, low=0, high=64, unit="entries", help="first entries, always kept")
    turn_keys: bool = param(
        True, help="turn the kept keys; off: they keep the rotations of their old positions"
    )
    budget_share: float = share_knob()

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("sinks", "first", self.sink_tokens), Zone("chosen", "chosen", self.prompt_budget)

    def set_budget(self, budget: int) -> None:
        self.prompt_budget = max(1, budget - self.sink_tokens)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if len(spec.no_rope) < spec.n_layers:
            return None
        return f"{self.name} turns rotary keys, and no layer of {spec.name} rotates its keys; choose another policy."

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        super().begin(spec, prompt, pieces, marks)
        self._turned: dict[str, float] = {}  # by layer.KV head, until it has been recorded

    def entry_scores(self, layer: int, store: LayerStore, prompt: PromptAttention) -> Tensor:
        return score_entries(store, self.scorer)

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        super().prompt_end(cache, prompt)
        turned: dict[str, float] = {}
        for layer, store in enumerate(cache.layers):
            if self.turn_keys and layer not in prompt.spec.no_rope:
                turns = close_gaps(store, prompt.decoder.rope_of(layer), prompt.length)
                turned |= {f"{layer}.{h}": x for h, x in enumerate(turns[0].double().mean(-1).tolist())}
        self._turned = turned

    def notes(self) -> dict[str, Any] | None:
        turned, self._turned = self._turned, {}
        return {"turned": turned} if turned else None


def close_gaps(store: LayerStore, table: RopeTable, length: int) -> Tensor:
    """Turn the keys of a layer, in place, so that each head's entries have the positions up to `length` - 1 in their order.

    Returns int64 [B, H_kv, n], by slot: by how many positions each key was turned.
    """
    at = store.positions().expand(store.batch, len(store.lengths), -1)
    rank = at.argsort(-1).argsort(-1)
    turns = length - store.n + rank - at
    cos, sin = table.at(turns, length)  # [B, H_kv, n, 1, dim]
    rotate_(store.k[:, :, :, None], cos / table.rope.amplitude, sin / table.rope.amplitude)
    return turns
