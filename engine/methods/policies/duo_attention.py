"""DuoAttention: retrieval heads keep all entries; streaming heads keep the first and the newest."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Mapping
from typing import Any, ClassVar, cast

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.policy import MOST, CachePolicy, entries_from_share, share_knob
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.model.forward.feed import Band
from decodescope.engine.model.heads.duo_attention import DuoAttentionGates
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.layers.vocabulary import CompanionNet
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.trace.records.events import Piece
from decodescope.engine.trace.records.head_plan import make_plan
from decodescope.engine.trace.records.parts import Zone

NAMED = re.compile(r"(\d+)\.(\d+)")


@component
class DuoAttention(CachePolicy):
    """Split the KV heads once: a retrieval head keeps every entry; a streaming head keeps the first `sink_tokens` and the last
    `recent`. All entries keep their positions in the text.

    Each KV head has a gate alpha, trained while the model is frozen (training). In training, the head's output is alpha * full
    + (1 - alpha) * streaming attention. The loss is the squared distance from the full model's states where the text repeats
    something from far back, plus a penalty on every open gate. The share `streaming_share` of all KV heads with the lowest
    gates streams. If no head streams, the cache is full, bit for bit.

    Distance alone decides what a streaming head sees. So these heads read a prompt as a band, and their entries leave after
    each chunk. Each row of a draft sees what it would see one by one, so drafts change no text. The authors read a prompt
    densely and cut after it. They permute a layer's weights to put its retrieval heads first, and hold two tensors. Here heads
    stay in place, each with its own pages.

    `retrieval_heads` names heads by hand instead, for models without gates. With a `budget_share`, as many heads stream as
    needed to hold that share of the prompt's entries. If even that is too much, all stream, with fewer recent entries.
    """

    title = "DuoAttention"
    source = (
        "Xiao et al. 2025, arXiv:2410.10819, sections 2.2, 2.3; mit-han-lab/duo-attention, duo_attn/train.py"
    )
    goes = "In streaming heads the oldest behind the sinks leave, once they hold more than those and a window; others keep all."
    banded = True
    strict = True
    tells: ClassVar[dict[str, Note]] = {
        "alpha": Note("grid", "gate", what="alpha of each layer.KV head: how much is lost where it streams"),
        "retrieval": Note(
            "grid", "retrieval heads", what="1: the layer.KV head keeps everything, 0: it streams"
        ),
    }

    streaming_share: float = param(
        0.5,
        low=0.0,
        high=1.0,
        step=0.05,
        unit="of the KV heads",
        help="share of heads that keep only sinks and newest entries; 0: none, the full cache",
    )
    sink_tokens: int = param(
        4, low=0, high=64, unit="entries", help="first entries that a streaming head keeps for good"
    )
    recent: int = param(
        60, low=1, high=MOST, unit="entries", help="newest entries that a streaming head keeps"
    )
    retrieval_heads: str = param(
        "", most=2000, help="heads that keep everything, as layer.head: 0.1 3.0; empty: by trained gates"
    )
    budget_share: float = share_knob()

    @property
    def zones(self) -> tuple[Zone, ...]:
        return Zone("sinks", "first", self.sink_tokens), Zone("window", "newest", self.recent)

    @property
    def budget(self) -> int | None:
        """None: a retrieval head keeps all."""
        return None

    @property
    def uses_gates(self) -> bool:
        """Whether the gates decide which heads stream: some stream, some do not, and no knob names them."""
        return not self.retrieval_heads and (self.budget_share > 0 or 0 < self.streaming_share < 1)

    @property
    def band(self) -> Band | None:
        """The band of earlier text that a row sees in the streaming heads; None: no head streams."""
        return Band(self.sink_tokens, self.recent, self._streams) if any(map(any, self._streams)) else None

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.uses_gates:
            return missing_reason(
                "duo_attention",
                spec,
                "its retrieval heads by hand (policy.retrieval_heads), or the policy streaming_llm",
            )
        heads = NAMED.findall(self.retrieval_heads)
        odd = next(
            (f"{i}.{h}" for i, h in heads if int(i) >= spec.n_layers or int(h) >= spec.n_kv_heads), None
        )
        if odd is None and NAMED.sub("", self.retrieval_heads).strip(" ,"):
            odd = self.retrieval_heads
        if odd is None:
            return None
        return (
            f"duo_attention.retrieval_heads names {odd[:40]!r}: give heads as layer.head, such as 0.1 3.0; "
            f"{spec.name} has layers "
            f"0 to {spec.n_layers - 1} and KV heads 0 to {spec.n_kv_heads - 1}."
        )

    def attach_heads(self, heads: Mapping[str, CompanionNet]) -> None:
        self._gates = heads.get("duo_attention") if self.uses_gates else None

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        count = spec.n_layers * spec.n_kv_heads
        named = {int(i) * spec.n_kv_heads + int(h) for i, h in NAMED.findall(self.retrieval_heads)}
        if self.budget_share:
            self._set_head_budget(
                entries_from_share(self, self.budget_share, prompt),
                prompt,
                len(named) / count if named else None,
            )
        gates = torch.ones(count)
        if self.uses_gates:
            gates = cast(DuoAttentionGates, self._gates).alpha.detach().float().flatten().cpu()
        lowest = gates.argsort(stable=True)[: math.ceil(self.streaming_share * count - 1e-9)].tolist()
        streams = [i not in named if self.retrieval_heads else i in lowest for i in range(count)]
        rows = [streams[i : i + spec.n_kv_heads] for i in range(0, count, spec.n_kv_heads)]
        self._streams = tuple(map(tuple, rows))
        self._retrieves = [~torch.tensor(row) for row in rows]  # bool [H_kv] each
        names = [f"{i}.{h}" for i in range(spec.n_layers) for h in range(spec.n_kv_heads)]
        kinds = {name: float(not x) for name, x in zip(names, streams, strict=True)}
        alpha = dict(zip(names, gates.tolist(), strict=True)) if self.uses_gates else None
        self._map = {"alpha": alpha, "retrieval": kinds}
        self._unsaid: dict[str, Any] | None = None

    def _set_head_budget(self, budget: int, prompt: int, retrieval: float | None) -> None:
        """Set the knobs so that a head holds `budget` entries of a prompt on average.

        retrieval: the share of the heads named as retrieval heads.
        """
        window = self.sink_tokens + self.recent
        if retrieval is not None:
            left = (budget - retrieval * prompt) / (1 - retrieval) if retrieval < 1 else window
            self.recent = max(1, int(left) - self.sink_tokens)
        elif budget <= window:
            self.streaming_share, self.recent = 1.0, max(1, budget - self.sink_tokens)
        else:
            self.streaming_share = min(1.0, max(0, prompt - budget) / max(1, prompt - window))

    def prompt_end(self, cache: KVCache, prompt: PromptAttention) -> None:
        self._unsaid = self._map  # for the first step's record
        held = [[self.sink_tokens + self.recent if x else -1 for x in row] for row in self._streams]
        self.settled = make_plan(held, ("retrieval", "streaming"), self._streams)

    def compress(self, cache: KVCache) -> None:
        most = self.sink_tokens + self.recent
        for store, streams, retrieves in zip(cache.layers, self._streams, self._retrieves, strict=True):
            if any(x and n > most for x, n in zip(streams, store.lengths, strict=True)):
                at = store.positions()
                stays = (
                    (at < self.sink_tokens)
                    | (at >= cache.length - self.recent)
                    | retrieves.to(at.device)[:, None]
                )
                store.keep_where(stays)

    def notes(self) -> dict[str, Any] | None:
        notes, self._unsaid = self._unsaid, None
        return notes
