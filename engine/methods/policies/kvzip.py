"""KVzip: the model repeats the prompt, and the entries that it attends to for that are kept, for any later question."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.exit_rule import LACKING
from decodescope.engine.decoding.bases.policy import MOST, share_knob
from decodescope.engine.decoding.bases.prefill_eviction import PrefillEviction
from decodescope.engine.decoding.values.prompt_attention import LookaheadAttention, PromptAttention
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.events import Piece
from decodescope.engine.trace.records.head_plan import make_plan
from decodescope.engine.trace.records.parts import Zone

FIRST = "\n\nRepeat the previous context exactly."
LATER = "\n\nRepeat the part of the previous context exactly, starting with "
ROOM = 64  # minimum free tokens of the context for a repetition


@component
class KVzip(PrefillEviction):
    """Cut the prompt once, by what the model needs to repeat it.

    The cut knows no question, so any question may follow.

    After the prompt has been read, its pieces are read once more behind it, `chunk` tokens at a time. Such a pass reads an
    instruction to repeat the context, from the second piece on the `prefix_tokens` tokens before it, and the piece itself. Its
    rows are computed over the sinks, the piece's own entries and the pass's, in a separate softmax. The worth of an entry is
    the largest weight that any row of any query head of its group gave it. Then the repetition is dropped. ONE cut over all
    layers and heads keeps the best, on average `prompt_budget` per KV head, of equal ones the lower position, layer and head.
    So heads differ in their number of entries and their memory. The first `sink_tokens` entries and the last `window` (for
    example the question) stay everywhere and are not repeated. A prompt with no more entries than these is kept whole, and
    nothing is repeated.

    A repetition comes after the prompt, so it must fit into the model's context; with less room, pieces are shorter. Without a
    tokenizer the instruction is left out. A chat template's turn, which the authors put after it, is left out as well. The
    authors keep a share of all entries that are above the threshold, so with ties slightly fewer. Their question comes after
    the cut.
    """

    title = "KVzip"
    source = (
        "Kim et al. 2025, arXiv:2505.23416, section 3; snu-mllab/KVzip, attention/score.py, model/wrapper.py"
    )
    goes = (
        "When the prompt has been read those entries leave, of all layers and KV heads together, which the model looks at "
        "least to repeat it. What is written stays."
    )
    asks = True
    tells: ClassVar[dict[str, Note]] = {
        "threshold": Note("series", "threshold", what="the least weight that an entry was kept for"),
        "kept": Note("grid", "entries kept", "entries", what="for their weights, by layer.KV head"),
    }

    sink_tokens: int = param(4, low=0, high=64, unit="entries", help="first entries, always kept")
    prompt_budget: int = param(
        92,
        low=1,
        high=MOST,
        unit="entries",
        help="prompt entries kept for their score, on average over all KV heads",
    )
    window: int = param(32, low=1, high=512, unit="entries", help="last entries of the prompt, always kept")
    chunk: int = param(
        2000,
        low=1,
        high=8192,
        unit="tokens",
        help="size of a piece of the prompt that the model repeats in one pass",
    )
    prefix_tokens: int = param(
        8,
        low=0,
        high=64,
        unit="tokens",
        help="tokens before a piece that the instruction to repeat it quotes",
    )
    budget_share: float = share_knob()

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if method.adaptive_depth.skipped_kv not in LACKING:
            return None
        return (
            f"{self.name} ranks the entries of all layers together, and with skipped_kv = "
            f"{method.adaptive_depth.skipped_kv} of {method.adaptive_depth.name} layers lack entries; choose adaptive_depth "
            "all_layers, or the policy h2o."
        )

    @property
    def zones(self) -> tuple[Zone, ...]:
        sinks = (Zone("sinks", "first", self.sink_tokens),) if self.sink_tokens else ()
        return *sinks, Zone("repeated", "chosen", self.prompt_budget), Zone("window", "newest", self.window)

    def set_budget(self, budget: int) -> None:
        self.sink_tokens, self.window = min(self.sink_tokens, budget // 4), min(self.window, budget // 2)
        self.prompt_budget = budget - self.sink_tokens - self.window

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        super().begin(spec, prompt, pieces, marks)
        self._notes: dict[str, Any] | None = None
        if self.capacity < prompt and prompt + ROOM > spec.max_positions:
            raise ParamError(
                f"{self.name} repeats the prompt behind itself, this prompt has {prompt} tokens, and the model "
                f"{spec.reading_limit}: give a prompt of at most {spec.max_positions - ROOM} tokens, or a budget of {prompt} "
                "entries."
            )

    def max_entries(self, prompt: int, new: int) -> int:
        again = prompt + min(prompt, self.chunk) + ROOM if prompt > self.capacity else prompt
        return max(again, super().max_entries(prompt, new))

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        if prompt.length <= self.capacity:
            return
        # [L, B, H_kv, m]
        worth = torch.cat(
            [self._repeat_weights(cache, prompt, at, end) for at, end in self._pieces(prompt)], -1
        )
        keep = self._best_mask(worth)
        ends = self.sink_tokens, self.window
        for store, seen, stays in zip(
            cache.layers, F.pad(worth, ends), F.pad(keep, ends, value=True), strict=True
        ):
            self.record_ranking(store, seen, prompt.length)
            store.keep_where(stays)
        chosen = keep[:, 0].sum(-1)
        self.settled = make_plan((chosen + sum(ends)).tolist())
        counts = {f"{i}.{h}": x for i, row in enumerate(chosen.tolist()) for h, x in enumerate(row)}
        self._notes = {"threshold": float(worth[:, 0][keep[:, 0]].min()), "kept": counts}

    def _pieces(self, prompt: PromptAttention) -> Iterator[tuple[int, int]]:
        """The (start, end) of each repeated piece of the prompt; each fits behind the prompt with its instruction."""
        encode, end = prompt.lane.encode, prompt.length - self.window
        asked = 0 if encode is None else max(len(encode(text)) for text in (FIRST, LATER))
        room = prompt.spec.max_positions - prompt.shift - prompt.length
        size = min(self.chunk, room - asked - self.prefix_tokens)
        if size < 1:
            raise ParamError(
                f"{self.name} repeats the prompt behind itself, and of the {prompt.spec.max_positions} tokens that "
                f"{prompt.spec.name} reads {room} are left; "
                f"the instruction and kvzip.prefix_tokens take {asked + self.prefix_tokens}: give a "
                "shorter prompt or fewer prefix_tokens."
            )
        for at in range(self.sink_tokens, end, size):
            yield at, min(at + size, end)

    def _repeat_weights(self, cache: KVCache, prompt: PromptAttention, at: int, end: int) -> Tensor:
        """float32 [L, B, H_kv, end - at]: the largest weight of each position from `at` to `end` when these are repeated."""
        tokens, encode = prompt.lane.tokens, prompt.lane.encode
        asked = [] if encode is None else encode(FIRST if at == self.sink_tokens else LATER)
        before = [] if at == self.sink_tokens else tokens[max(self.sink_tokens, at - self.prefix_tokens) : at]
        device = cache.layers[0].kv.device
        among = torch.cat(
            [torch.arange(self.sink_tokens, device=device), torch.arange(at, end, device=device)]
        )
        with prompt.lookahead([*asked, *before, *tokens[at:end]]) as behind:
            return torch.stack(
                [self._max_weights(behind, i, store, among) for i, store in enumerate(cache.layers)]
            )

    def _max_weights(
        self, behind: LookaheadAttention, layer: int, store: LayerStore, among: Tensor
    ) -> Tensor:
        tiles = [rows.amax((2, 3)) for rows in behind.tiles(layer, store, among)]  # [B, H_kv, k] each
        return torch.stack(tiles).amax(0)[..., self.sink_tokens :]

    def _best_mask(self, worth: Tensor) -> Tensor:
        """bool, as `worth` [L, B, H_kv, m]: the best of all layers and heads together, on average `prompt_budget` per head."""
        layers, batch, heads, m = worth.shape
        # [B, m * L * H_kv]: of equal ones the lower position, layer, head
        flat = worth.permute(1, 3, 0, 2).flatten(1)
        order = flat.argsort(dim=1, descending=True, stable=True)[:, : layers * heads * self.prompt_budget]
        keep = torch.zeros_like(flat, dtype=torch.bool).scatter(1, order, True)
        return keep.view(batch, m, layers, heads).permute(2, 0, 3, 1)

    def notes(self) -> dict[str, Any] | None:
        notes, self._notes = self._notes, None
        return notes
