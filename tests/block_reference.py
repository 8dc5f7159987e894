"""DFlash and DSpark drafts written out once more, without a cache and without our nets: what a folder means by its sources.

vllm-project/speculators: models/dflash and models/dspark; z-lab/dflash: dflash/model.py; deepseek-ai/DeepSpec: modeling/dspark.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from eagle_reference import ReferenceHead
from torch import Tensor


class Guessed(NamedTuple):
    """A greedy draft: its tokens, the logits [n, V] of each, and the chance of acceptance of each ([n], or empty)."""

    tokens: list[int]
    logits: Tensor
    confidence: Tensor


class ReferenceBlock(ReferenceHead):
    """The draft in `folder`, for a target with this embedding and unembedding [V, d]."""

    def __init__(self, folder: Path, embed: Tensor, unembed: Tensor) -> None:
        super().__init__(folder, embed, unembed)
        top = {key: x for key, x in self.config.items() if x is not None}
        self.flags = {**self.config.get("dflash_config", {}), **top}
        kind = self.config.get("speculators_model_type") or self.config["architectures"][0].lower()
        self.anchor = self.config.get("sample_from_anchor", "dspark" in kind)
        self.block = self.flags["block_size"]

    def enter(self, states: list[Tensor]) -> Tensor:
        return self.norm("hidden_norm", self.linear("fc", torch.cat(states, -1)))

    def sees(self, i: int, n: int, place: int) -> list[int]:
        """Which rows place number `place` sees in layer i: those of n tokens of text, then those of the block."""
        window, both_ways = self.window(i), not self.flags.get("causal", False)
        if window is not None and "speculators_model_type" in self.config:
            both_ways = self.config.get("sliding_window_non_causal", False)
        text = [j for j in range(n) if window is None or j >= n - window]
        return text + [n + j for j in range(self.block) if both_ways or j <= place]

    def attend_block(self, i: int, x: Tensor, features: Tensor) -> Tensor:
        name, rows, n = f"layers.{i}.self_attn", torch.cat([features, x]), len(features)
        q, k, v = (
            self.linear(f"{name}.{part}_proj", rows).view(len(rows), heads, self.width)
            for part, heads in (("q", self.heads), ("k", self.groups), ("v", self.groups))
        )
        q, k = self.rotate(self.norm(f"{name}.q_norm", q)), self.rotate(self.norm(f"{name}.k_norm", k))
        made = torch.zeros(self.block, self.heads, self.width, dtype=torch.float64)
        for place in range(self.block):
            seen = self.sees(i, n, place)
            for h in range(self.heads):
                g = h * self.groups // self.heads
                scores = k[seen, g] @ q[n + place, h] / self.width**0.5
                made[place, h] = scores.softmax(-1) @ v[seen, g]
        return self.linear(f"{name}.o_proj", made.flatten(1))

    def outputs(self, features: Tensor, root: int) -> Tensor:
        """[block, d]: the normed outputs of all places behind a text with these features [n, d]."""
        x = self.embed[[root, *[self.flags["mask_token_id"]] * (self.block - 1)]]
        for i in range(self.layer["num_hidden_layers"]):
            place = f"layers.{i}"
            y = self.attend_block(i, self.norm(f"{place}.input_layernorm", x), features)
            x = self.mlp(place, x + y)
        return self.norm("norm", x)

    def greedy(self, features: Tensor, root: int) -> Guessed:
        """The likeliest token of every place that guesses, from the first on."""
        h, kept = self.outputs(features, root), self.config.get("draft_vocab_size") or len(self.unembed)
        ids = torch.arange(kept) + self.t.get("d2t", torch.zeros(kept, dtype=torch.int64))
        rows = self.t.get("lm_head.weight", self.unembed[ids])
        tokens, logits, confidence = [], [], []
        state, before = torch.zeros(self.config.get("markov_rank", 0), dtype=torch.float64), root
        for place in range(self.block):
            row, e = rows @ h[place], h.new_zeros(0)
            if len(state):
                e = self.t["markov_head.markov_w1.weight"][before]
                z, state = self.markov(h[place], e, state)
                row = row + self.t["markov_head.markov_w2.weight"] @ z
            if place == 0 and not self.anchor:
                continue
            if "confidence_head.proj.weight" in self.t:
                told = self.config.get("confidence_head_with_markov", True)
                read = torch.cat([h[place], e]) if told else h[place]
                confidence.append(self.linear("confidence_head.proj", read).sigmoid())
            logits.append(row.new_full((len(self.unembed),), -torch.inf).index_copy(0, ids, row))
            before = int(logits[-1].argmax())
            tokens.append(before)
        return Guessed(tokens, torch.stack(logits), torch.cat(confidence) if confidence else torch.zeros(0))

    def markov(self, h: Tensor, e: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """What the bias is made of, and the state behind a place, of its output and of the token before it."""
        form = self.config.get("markov_head_type", "vanilla")
        if form == "gated":
            return self.linear("markov_head.gate_proj", torch.cat([h, e])).sigmoid() * e, state
        if form == "rnn":
            gate, new, out = self.linear("markov_head.joint_proj", torch.cat([state, e, h])).chunk(3)
            return out.tanh(), gate.sigmoid() * state + (1 - gate.sigmoid()) * new.tanh()
        return e, state
