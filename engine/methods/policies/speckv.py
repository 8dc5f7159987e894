"""SpecKV: a draft model continues the prompt, and the prompt entries that its text attends to are kept."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.policy import share_knob
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.events import Piece

from .shared.observation_window import ObservationWindow

DRAFT = "draft"


@component
class SpecKV(ObservationWindow):
    """SnapKV that looks ahead: the prompt's last `window` tokens vote, and the tokens that a smaller model writes behind it.

    The draft model reads the prompt and greedily writes `lookahead` tokens. The target reads them behind the prompt, in one
    pass, and drops them. An entry gets the largest weight (or the mean) of any query head of its group in the rows of both. It
    then gets the largest (or mean) value among its neighbours within `pool_radius`. Each KV head keeps the `prompt_budget` best
    and the window. If the target is its own draft model, these are the rows of the text that it then writes greedily with the
    full cache: the oracle's choice. Without a lookahead and with means it is SnapKV. A prompt of at most `prompt_budget` +
    `window` tokens is kept whole, and the draft model does not run.

    Differences from the authors' code: their window does not count the prompt's last token; this one does. Of equal scores the
    lower position stays. The prompt is read densely; their code can leave out blocks of it. Their lookahead is as long as the
    text may get; here it is a number. The draft model's cache is freed before the target continues, so a draft model that also
    drafts reads the prompt once more.
    """

    title = "SpecKV"
    source = "Galim et al. 2025, arXiv:2506.08373, SpecKV; furiosa-ai/draft-based-approx-llm, draft_approx_llm/speckv"
    lanes = (DRAFT,)
    goes = (
        "When the prompt has been read each KV head gives up the entries that neither its end nor the draft model's text "
        "behind it looks at. What is written stays."
    )
    asks = True
    tells: ClassVar[dict[str, Note]] = {
        "lookahead": Note(
            "series", "tokens ahead", "tokens", what="that the draft model wrote behind the prompt, as voters"
        ),
        "draft_bytes": Note(
            "series", "draft's cache", "bytes", what="that the draft model's cache held meanwhile"
        ),
    }

    lookahead: int = param(
        32,
        low=0,
        high=1024,
        unit="tokens",
        help="tokens that the draft model writes ahead, which vote as well; 0: none",
    )
    reduce: str = param(
        "max",
        choices=("max", "mean"),
        help="how the votes of a group's queries are combined: their maximum or their mean",
    )
    pool_radius: int = param(
        3,
        low=0,
        high=31,
        unit="entries",
        help="neighbours on each side whose votes are pooled with an entry's own; 0: no pooling",
    )
    pool: str = param(
        "max",
        choices=("mean", "max"),
        help="how the votes of neighbours are pooled: their mean or their maximum",
    )
    budget_share: float = share_knob()

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        super().begin(spec, prompt, pieces, marks)
        self._votes: dict[
            int, Tensor
        ] = {}  # layer -> float32 [B, H_kv, n], the lookahead's scores of the entries
        self._notes: dict[str, Any] | None = None

    def max_entries(self, prompt: int, new: int) -> int:
        ahead = self.lookahead if prompt > self.capacity else 0
        return max(prompt + ahead, super().max_entries(prompt, new))

    def lane_tokens(self, prompt: int, new: int) -> int:
        return prompt + self.lookahead if self.lookahead and prompt > self.capacity else 0

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        if prompt.length <= self.capacity:
            return
        tokens = self._write_lookahead(prompt)
        if tokens:
            with prompt.lookahead(tokens) as behind:
                for i, store in enumerate(cache.layers):
                    parts = [self._reduce_rows(rows) for rows in behind.tiles(i, store)]
                    both = torch.stack(parts)
                    self._votes[i] = both.amax(0) if self.reduce == "max" else both.sum(0)
        super().prompt_end(cache, prompt)
        self._votes = {}

    def _write_lookahead(self, prompt: PromptAttention) -> list[int]:
        """The tokens that the draft model writes behind the prompt."""
        tokens: list[int] = []
        if not self.lookahead:
            return tokens
        with prompt.lane.open_side_lane(DRAFT) as lane:
            target = prompt.spec.max_positions - prompt.shift
            room = min(self.lookahead, min(lane.decoder.spec.max_positions, target) - prompt.length)
            logits = lane.read(list(prompt.lane.tokens), "score")
            while len(tokens) < room:
                tokens.append(int(logits.argmax()))
                if len(tokens) < room:
                    at = prompt.length + len(tokens) - 1
                    logits = lane.forward(Feed.causal_chain(tokens[-1:], at, lane.decoder.device), "score")[
                        0, -1
                    ]
                    lane.commit([0])
            self._notes = {"lookahead": len(tokens), "draft_bytes": lane.cache.nbytes}
        return tokens

    def _reduce_rows(self, rows: Tensor) -> Tensor:
        """Reduce rows [B, H_kv, g, t, n] to one score per entry, [B, H_kv, n]: the largest weight, or their sum."""
        return rows.amax((2, 3)) if self.reduce == "max" else rows.sum((2, 3))

    def entry_scores(self, layer: int, store: LayerStore, prompt: PromptAttention) -> Tensor:
        before = store.n - self.window
        votes = self._reduce_rows(prompt.rows(layer, store, self.window))
        if layer in self._votes:
            ahead = self._votes[layer]
            votes = torch.maximum(votes, ahead) if self.reduce == "max" else votes + ahead
        return F.pad(self.pool_votes(votes[..., :before]), (0, self.window))

    def notes(self) -> dict[str, Any] | None:
        notes, self._notes = self._notes, None
        return notes
