"""EAGLE heads written out once more, without a cache and without our nets: what a folder means by its project's sources.

vLLM: model_executor/models/llama_eagle3.py; speculators: models/eagle3 and, of old versions, models/eagle.py; SafeAILab/EAGLE:
eagle/model/cnets.py and cnets1.py. Everything is read from the two files of the folder, in float64.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor


class ReferenceHead:
    """The head in `folder`, for a target with this embedding and unembedding [V, d]."""

    def __init__(self, folder: Path, embed: Tensor, unembed: Tensor) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.layer: dict[str, Any] = self.config.get("transformer_layer_config", self.config)
        self.flags: dict[str, Any] = {**self.config, **self.config.get("eagle_config", {})}
        self.t = {
            name: x.double() if x.is_floating_point() else x
            for name, x in load_file(folder / "model.safetensors").items()
        }
        self.embed = self.t.get("embed_tokens.weight", embed)
        self.unembed = unembed
        self.eps = self.layer.get("rms_norm_eps", 1e-6)
        self.heads, self.groups, self.width = (
            self.layer[x] for x in ("num_attention_heads", "num_key_value_heads", "head_dim")
        )

    def norm(self, name: str, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.t[f"{name}.weight"]

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.t[f"{name}.weight"], self.t.get(f"{name}.bias"))

    def rotate(self, x: Tensor) -> Tensor:
        """Rows [T, heads, width] by their positions 0, 1, ...; features behind the rotated part stay."""
        table = self.layer.get("rope_parameters") or {}
        table = table.get("sliding_attention", table)
        theta = table.get("rope_theta", self.layer.get("rope_theta", 10_000.0))
        part = table.get("partial_rotary_factor", self.layer.get("partial_rotary_factor", 1.0))
        dim = int(self.width * part)
        by = table.get("factor", 1.0) if table.get("rope_type") == "linear" else 1.0
        angle = torch.outer(
            torch.arange(len(x)).double() / by, theta ** -(torch.arange(0, dim, 2).double() / dim)
        )
        cos, sin = (y.repeat(1, 2)[:, None] for y in (angle.cos(), angle.sin()))
        one, two = x[..., :dim].chunk(2, -1)
        return torch.cat([x[..., :dim] * cos + torch.cat([-two, one], -1) * sin, x[..., dim:]], -1)

    def attend(self, place: str, x: Tensor, window: int | None) -> Tensor:
        q, k, v = (
            self.linear(f"{place}.self_attn.{name}_proj", x).view(len(x), n, self.width)
            for name, n in (("q", self.heads), ("k", self.groups), ("v", self.groups))
        )
        if f"{place}.self_attn.q_norm.weight" in self.t:
            q, k = self.norm(f"{place}.self_attn.q_norm", q), self.norm(f"{place}.self_attn.k_norm", k)
        q, k = self.rotate(q), self.rotate(k)
        seen = torch.ones(len(x), len(x), dtype=torch.bool).tril()
        seen = seen if window is None else seen.triu(1 - window)
        made = []
        for h in range(self.heads):
            g = h * self.groups // self.heads
            scores = (q[:, h] @ k[:, g].T / self.width**0.5).masked_fill(~seen, -torch.inf)
            made.append(scores.softmax(-1) @ v[:, g])
        return self.linear(f"{place}.self_attn.o_proj", torch.cat(made, -1))

    def mlp(self, place: str, x: Tensor) -> Tensor:
        y = self.norm(f"{place}.post_attention_layernorm", x)
        gate, up = (self.linear(f"{place}.mlp.{name}_proj", y) for name in ("gate", "up"))
        return x + self.linear(f"{place}.mlp.down_proj", F.silu(gate) * up)

    def window(self, i: int) -> int | None:
        types = self.layer.get("layer_types")
        return self.layer["sliding_window"] if types and types[i] == "sliding_attention" else None


class ReferenceEagle3(ReferenceHead):
    """EAGLE-3, of any number of layers and states."""

    def enter(self, states: list[Tensor]) -> Tensor:
        if self.flags.get("fc_norm"):
            states = [self.norm(f"fc_norm.{i}", x) for i, x in enumerate(states)]
        x = torch.cat(states, -1)
        if "fc.weight" not in self.t:
            return x
        return self.linear("fc", self.norm("input_norm", x) if self.flags.get("norm_before_fc") else x)

    def outputs(self, features: Tensor, tokens: list[int]) -> Tensor:
        """[T, d]: what is fed back after each pair of a feature [T, d] and the token after it."""
        first = "layers.0" if "layers.0.hidden_norm.weight" in self.t else "midlayer"
        normed = self.norm(f"{first}.hidden_norm", features)
        e = self.norm(f"{first}.input_layernorm", self.embed[tokens])
        x = normed if self.flags.get("norm_before_residual") else features
        x = self.mlp(first, x + self.attend(first, torch.cat([e, normed], -1), self.window(0)))
        for i in range(1, self.layer.get("num_hidden_layers", 1)):
            place = f"layers.{i}"
            x = self.mlp(
                place, x + self.attend(place, self.norm(f"{place}.input_layernorm", x), self.window(i))
            )
        return self.norm("norm", x) if self.flags.get("norm_output") else x

    def logits(self, outputs: Tensor) -> Tensor:
        """[T, V], -inf for ids outside the draft vocabulary."""
        x = outputs if self.flags.get("norm_output") else self.norm("norm", outputs)
        kept = self.config.get("draft_vocab_size") or len(self.unembed)
        ids = torch.arange(kept) + self.t.get("d2t", torch.zeros(kept, dtype=torch.int64))
        tied = self.layer.get("tie_word_embeddings") and "embed_tokens.weight" in self.t
        rows = self.t.get("lm_head.weight", (self.embed if tied else self.unembed)[ids])
        full = x.new_full((len(x), len(self.unembed)), -torch.inf)
        full[:, ids] = x @ rows.T
        return full


class ReferencePEagle(ReferenceEagle3):
    """P-EAGLE (speculators: models/peagle): EAGLE-3, and masks whose state is learnt and whose token the config names."""

    def guesses(self, states: list[Tensor], text: list[int], k: int) -> Tensor:
        """The logits [k, V] after a text, all of one pass over its pairs and k - 1 masks."""
        named = [self.config.get(x) for x in ("mask_token_id", "pard_token", "ptd_token_id")]
        mask = self.t["mask_hidden"].flatten()
        masks = [x.expand(k - 1, -1) for x in mask.chunk(len(states))]
        features = self.enter([torch.cat([x, y]) for x, y in zip(states, masks, strict=True)])
        token = next(x for x in named if x is not None)
        return self.logits(self.outputs(features, [*text[1:], *[token] * (k - 1)])[-k:])


class ReferenceEagle(ReferenceHead):
    """EAGLE-1, with the names of its authors or of old versions of speculators."""

    def enter(self, states: list[Tensor]) -> Tensor:
        return torch.cat(states, -1)

    def outputs(self, features: Tensor, tokens: list[int]) -> Tensor:
        fuse, place = ("fc", "layers.0") if "fc.weight" in self.t else ("fusion_fc", "transformer")
        x = self.linear(fuse, torch.cat([self.embed[tokens], features], -1))
        return self.mlp(place, x + self.attend(place, x, self.window(0)))

    def logits(self, outputs: Tensor) -> Tensor:
        return outputs @ self.unembed.T


def greedy_chain(head: Any, states: list[Tensor], text: list[int], length: int) -> tuple[list[int], Tensor]:
    """The tokens that a head guesses after a text one by one, and the logits [length, V] of each. states: of the text without
    its last token, at each place, [n - 1, d]."""
    features, tokens, rows = head.enter(states), list(text[1:]), []
    for _ in range(length):
        made = head.outputs(features, tokens)[-1:]
        rows.append(head.logits(made)[0])
        features, tokens = torch.cat([features, made]), [*tokens, int(rows[-1].argmax())]
    return tokens[len(text) - 1 :], torch.stack(rows) if rows else torch.zeros(0)
