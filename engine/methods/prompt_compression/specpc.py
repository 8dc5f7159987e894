"""SpecPC: a draft model's attention chooses the tokens of the prompt that the target reads."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.prompt_compression import (
    PromptCompression,
    UnreadPrompt,
    share_knob,
    tokens_from_share,
)
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.records.events import Cut

from .shared.pooling import pool_scores
from .shared.units import PromptText

DRAFT = "draft"
WEIGHTS = 1 << 25  # attention weights of one pass held at a time


@component
class SpecPC(PromptCompression):
    """A smaller model reads the prompt first; the target reads the tokens that it attends to.

    A token's score is the largest weight that any head gave it, in any layer from `first_layer` on. It covers the rows of the
    last `window` tokens of the prompt, weighted 0, ..., 1 from the first to the last. It also covers the rows of `lookahead`
    further tokens that the draft model writes and reads. Scores are pooled by their maximum over `kernel` tokens. The best
    tokens bring their neighbours, the nearest first, until they and the window are `prompt_budget` tokens. The target reads
    these in order, at consecutive positions. The draft model's cache is freed by then; a draft model that also drafts reads the
    short prompt, as the target does.

    Differences from the authors' code: weights stay float32; theirs are rounded to the model's type before the maximum. Of
    equal scores the first token is taken, and of two equally near neighbours the left one. Their lookahead of 1 is a token that
    no pass reads, and is 0 here.
    """

    title = "SpecPC"
    source = "Galim et al. 2025, arXiv:2506.08373, SpecPC; furiosa-ai/draft-based-approx-llm, draft_approx_llm/specpc"
    lanes = (DRAFT,)

    prompt_budget: int = param(
        64, low=1, high=65_536, unit="tokens", help="number of prompt tokens that the target reads"
    )
    window: int = param(
        16,
        low=1,
        high=1024,
        unit="tokens",
        help="last tokens of the prompt (w); their attention scores the others, and they stay",
    )
    kernel: int = param(
        5,
        low=1,
        high=255,
        unit="tokens",
        help="number of neighbouring scores over which the maximum is taken",
    )
    neighbours: int = param(
        5,
        low=1,
        high=255,
        unit="tokens",
        help="number of tokens kept around each chosen token, itself counted",
    )
    first_layer: int = param(
        1, low=0, high=511, help="first layer of the draft model whose attention is used"
    )
    lookahead: int = param(
        0,
        low=0,
        high=256,
        unit="tokens",
        help="tokens that the draft model writes ahead to score the prompt; 0: none",
    )
    budget_share: float = share_knob()

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.budget_share or self.window <= self.prompt_budget:
            return None
        most = self.prompt_budget
        return f"specpc.window = {self.window} stays, and specpc.prompt_budget is {most}: choose a window of at most {most}."

    def refuse_model(self, role: str, spec: ModelSpec) -> str | None:
        if self.first_layer < spec.n_layers:
            return None
        last = spec.n_layers - 1
        return f"specpc.first_layer = {self.first_layer}: the draft model {spec.name} has the layers 0 to {last}; choose one."

    def lane_tokens(self, prompt: int, new: int) -> int:
        return prompt + self.lookahead

    @property
    def budget(self) -> int:
        return self.prompt_budget

    def begin(self, prompt: int) -> None:
        if self.budget_share:
            self.prompt_budget = max(self.window, tokens_from_share(self.budget_share, prompt))

    def cut(self, reading: UnreadPrompt) -> Cut | None:
        if len(reading.tokens) <= self.prompt_budget:
            return None
        with reading.lane(DRAFT) as lane:
            layers = list(range(self.first_layer, lane.decoder.spec.n_layers))
            weights, ahead = self._read_attention(lane, reading, layers)
        scores = pool_scores(weights, self.kernel, "max").cpu().numpy()
        last = np.arange(len(scores)) >= len(scores) - self.window
        return PromptText(reading).shorten_by_character(
            scores, last, self.prompt_budget, near=self.neighbours, layers=layers, lookahead=ahead or None
        )

    def _read_attention(
        self, lane: Lane, reading: UnreadPrompt, layers: list[int]
    ) -> tuple[Tensor, list[int]]:
        """float32 [n]: the largest weight of each token, over heads, rows and layers; and the tokens of the lookahead."""
        tokens, between = reading.tokens, reading.between(DRAFT)
        n, spec = len(tokens), lane.decoder.spec
        begin = n - self.window
        lane.read(tokens[:begin], "score", between)
        lane.set_needs(Needs("rows", frozenset(layers)))
        weight = torch.linspace(0, 1, self.window) if self.window > 1 else torch.ones(1)
        largest = torch.zeros(n, device=lane.decoder.device)
        few = max(1, WEIGHTS // (n * spec.n_heads * len(layers)))
        last = None
        for at in range(begin, n, few):
            between(at, n)
            last = self._read_rows(lane, tokens[at : min(at + few, n)], at, weight[at - begin :], largest)
        ahead: list[int] = []
        while last is not None and len(ahead) < min(self.lookahead, spec.max_positions - n):
            ahead.append(last)
            last = self._read_rows(lane, [last], n + len(ahead) - 1, torch.ones(1), largest)
        return largest, ahead

    def _read_rows(self, lane: Lane, tokens: list[int], at: int, weight: Tensor, largest: Tensor) -> int:
        """Read `tokens` from position `at` on, raise `largest` [n] to their weighted rows; return the likeliest next token."""
        logits = lane.forward(Feed.causal_chain(tokens, at, lane.decoder.device, logits="last"), "score")
        lane.commit(list(range(len(tokens))))
        assert lane.probe is not None
        scale = weight[: len(tokens), None].to(largest.device)
        for rows in lane.probe.rows.values():  # [1, H_kv, g, rows, entries]
            seen = (rows[0] * scale).amax((0, 1, 2))[: len(largest)]
            largest[: len(seen)] = torch.maximum(largest[: len(seen)], seen)
        return int(logits[0, -1].argmax())
