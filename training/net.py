"""A Llama in plain torch, for training: small enough to read at once, with the weight names that everyone uses.

Axes: B windows, T tokens, D width, H query heads, G key/value heads, d head width, V vocabulary, L layers. The weights are
named as in transformers' LlamaForCausalLM, so that the folders that it writes can be read here and the other way round.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

MASK = 5  # the id of <|mask|>


@dataclass(frozen=True)
class NetShape:
    """The sizes of a net. The unembedding is the embedding; a net that is not causal fills in `MASK`."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    inner: int
    vocabulary: int = 4096
    context: int = 2048
    theta: float = 10000.0
    epsilon: float = 1e-5
    causal: bool = True

    @classmethod
    def from_config(cls, config: dict) -> NetShape:
        """The sizes that a `config.json` states. ValueError for a model that this net cannot be."""
        if config.get("model_type") != "llama" or not config.get("tie_word_embeddings"):
            raise ValueError(
                "The training net is a Llama with tied embeddings, and this config.json says otherwise."
            )
        return cls(
            layers=config["num_hidden_layers"],
            width=config["hidden_size"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_width=config["head_dim"],
            inner=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            context=config["max_position_embeddings"],
            theta=(config.get("rope_parameters") or config)["rope_theta"],
            epsilon=config["rms_norm_eps"],
            causal=not config.get("use_bidirectional_attention"),
        )

    def config(self) -> dict:
        """The `config.json` of this shape."""
        both = {} if self.causal else dict(use_bidirectional_attention=True, mask_token_id=MASK)
        return dict(
            architectures=["LlamaForCausalLM"],
            attention_bias=False,
            attention_dropout=0.0,
            bos_token_id=None,
            dtype="bfloat16",
            eos_token_id=0,
            head_dim=self.head_width,
            hidden_act="silu",
            hidden_size=self.width,
            initializer_range=0.02,
            intermediate_size=self.inner,
            max_position_embeddings=self.context,
            mlp_bias=False,
            model_type="llama",
            num_attention_heads=self.heads,
            num_hidden_layers=self.layers,
            num_key_value_heads=self.kv_heads,
            pad_token_id=1,
            pretraining_tp=1,
            rms_norm_eps=self.epsilon,
            rope_parameters=dict(rope_theta=self.theta, rope_type="default"),
            rope_theta=self.theta,  # readers differ in where they look for it
            tie_word_embeddings=True,
            transformers_version="5.23.0",
            use_cache=self.causal,
            vocab_size=self.vocabulary,
            **both,
        )


class Norm(nn.Module):
    """RMSNorm with a learnt scale."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as `x`, of unit mean square along the last axis, then scaled."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class NetAttention(nn.Module):
    """Attention, causal or to both sides, with rotary positions and fewer key/value heads than query heads."""

    def __init__(self, shape: NetShape) -> None:
        super().__init__()
        s, self.shape = shape, shape
        self.q_proj = nn.Linear(s.width, s.heads * s.head_width, bias=False)
        self.k_proj = nn.Linear(s.width, s.kv_heads * s.head_width, bias=False)
        self.v_proj = nn.Linear(s.width, s.kv_heads * s.head_width, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head_width, s.width, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], past: Past | None, layer: int) -> Tensor:
        """[B, T, D] of normed input [B, T, D]; `turn` holds cosine and sine [T, d]. `past` gets the new keys and values."""
        s = self.shape
        q, k, v = (
            p(x).unflatten(2, (n, s.head_width)).transpose(1, 2)  # [B, H or G, T, d]
            for p, n in ((self.q_proj, s.heads), (self.k_proj, s.kv_heads), (self.v_proj, s.kv_heads))
        )
        q, k = apply_rotary(q, turn), apply_rotary(k, turn)
        if past is not None:
            k, v = past.extend(layer, k, v)
        # one new query sees everything there is; several begin a text
        causal = s.causal and q.shape[2] > 1
        if causal and q.requires_grad and q.dtype == torch.bfloat16 and not q.is_cuda:
            y = blockwise_attention(q, k, v)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """The gated feed-forward part."""

    def __init__(self, shape: NetShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] of normed input [B, T, D]."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class NetLayer(nn.Module):
    """One block: attention, then the feed-forward part, each added to the residual stream."""

    def __init__(self, shape: NetShape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.width, shape.epsilon)
        self.self_attn = NetAttention(shape)
        self.post_attention_layernorm = Norm(shape.width, shape.epsilon)
        self.mlp = MLP(shape)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], past: Past | None, layer: int, keep: Tensor | None
    ) -> Tensor:
        """[B, T, D]. A window whose `keep` (float [B]) is 0 passes through unchanged."""
        kept = (lambda y: y) if keep is None else (lambda y: keep[:, None, None] * y)
        x = x + kept(self.self_attn(self.input_layernorm(x), turn, past, layer))
        return x + kept(self.mlp(self.post_attention_layernorm(x)))


class Past:
    """Keys and values of the tokens that were read: [L, B, G, room, d] each, `length` of them filled."""

    def __init__(self, shape: NetShape, windows: int, room: int, like: Tensor) -> None:
        self.keys = like.new_zeros(shape.layers, windows, shape.kv_heads, room, shape.head_width)
        self.values, self.length = torch.zeros_like(self.keys), 0

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store [B, G, T, d] behind what is there; return all of the layer's keys and values."""
        end = self.length + k.shape[2]
        self.keys[layer, :, :, self.length : end], self.values[layer, :, :, self.length : end] = k, v
        return self.keys[layer, :, :, :end].to(k.dtype), self.values[layer, :, :, :end].to(v.dtype)


class Trunk(nn.Module):
    """Embedding, blocks and last norm: what the weight names call `model`."""

    def __init__(self, shape: NetShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(NetLayer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width, shape.epsilon)


class Net(nn.Module):
    """A Llama with tied embeddings."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, shape: NetShape) -> None:
        """Fresh weights from the global generator; what writes into the residual stream starts small."""
        super().__init__()
        self.shape, self.model = shape, Trunk(shape)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                small = (
                    (2 * shape.layers) ** -0.5
                    if name.endswith(("o_proj.weight", "down_proj.weight"))
                    else 1.0
                )
                nn.init.normal_(weight, std=0.02 * small)
        angle = torch.outer(
            torch.arange(shape.context).float(),
            shape.theta ** -(torch.arange(0, shape.head_width, 2).float() / shape.head_width),
        )
        angle = torch.cat((angle, angle), 1)  # [context, d]
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)

    @property
    def layers(self) -> Iterator[NetLayer]:
        """The decoder layers, from the first to the last."""
        return cast("Iterator[NetLayer]", iter(self.model.layers))

    @classmethod
    def from_folder(cls, folder: str | Path) -> Net:
        """The model of a folder (config.json, model.safetensors), in float32."""
        folder = Path(folder)
        net = cls(NetShape.from_config(json.loads((folder / "config.json").read_text())))
        net.load_state_dict({k: w.float() for k, w in load_file(folder / "model.safetensors").items()})
        return net

    def to_folder(self, folder: str | Path, more: dict | None = None) -> None:
        """Write config.json, generation_config.json and the weights in bfloat16, each whole under another name first.

        `more`: words of config.json in addition to those of the shape.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        config = self.shape.config() | (more or {})
        said = dict(eos_token_id=0, pad_token_id=1, transformers_version="5.23.0")
        for name, content in (("config.json", config), ("generation_config.json", said)):
            (folder / f"{name}.partial").write_text(
                json.dumps(dict(sorted(content.items())), indent=2) + "\n"
            )
            os.replace(folder / f"{name}.partial", folder / name)
        weights = {k: w.detach().to("cpu", torch.bfloat16).contiguous() for k, w in self.state_dict().items()}
        save_file(weights, folder / "model.safetensors.partial", metadata={"format": "pt"})
        os.replace(folder / "model.safetensors.partial", folder / "model.safetensors")

    @property
    def width(self) -> int:
        """Width of the states."""
        return self.shape.width

    @property
    def n_layers(self) -> int:
        """How many decoder layers there are."""
        return self.shape.layers

    @property
    def vocab(self) -> int:
        """How many ids have logits."""
        return self.shape.vocabulary

    @property
    def final_norm(self) -> Tensor:
        """float [D]: the weights of the last norm."""
        return self.model.norm.weight

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.embed_tokens.weight.device

    def embed(self, ids: Tensor) -> Tensor:
        """The embeddings [..., D] of ids int64 [...]."""
        return self.model.embed_tokens(ids)

    def read(self, ids: Tensor, layers: Sequence[int]) -> tuple[list[Tensor], Tensor]:
        """The states [B, T, D] that enter each of `layers`, and the final feature, for ids int64 [B, T]."""
        states = self.states(ids)
        return [states[i] for i in layers], self.model.norm(states[-1])

    def unembed(self, feature: Tensor) -> Tensor:
        """Logits [..., V] of final features [..., D]."""
        return F.linear(feature, self.model.embed_tokens.weight)

    def unembed_ids(self, feature: Tensor, ids: Tensor) -> Tensor:
        """The logits [..., K] of `unembed` for ids int64 [K] alone."""
        return F.linear(feature, self.model.embed_tokens.weight[ids])

    def unembedding_rows(self, ids: Tensor) -> Tensor:
        """float [K, D]: the rows of the unembedding for ids int64 [K]."""
        return self.model.embed_tokens.weight[ids]

    def states(self, ids: Tensor, past: Past | None = None, keep: Tensor | None = None) -> list[Tensor]:
        """[B, T, D] each, for ids int64 [B, T]: the embeddings, then the output of every layer, before the last norm.

        `keep` float [L, B] switches layers off by window. With `past`, `ids` are what follows it.
        """
        at = past.length if past is not None else 0
        assert not at or ids.shape[1] == 1, (
            "attention is causal from the start, or of one token to all before it"
        )
        turn = self.cosine[at : at + ids.shape[1]], self.sine[at : at + ids.shape[1]]
        out = [self.model.embed_tokens(ids)]
        for i, layer in enumerate(self.layers):
            out.append(layer(out[-1], turn, past, i, None if keep is None else keep[i]))
        if past is not None:
            past.length += ids.shape[1]
        return out

    def head(self, h: Tensor) -> Tensor:
        """Logits [..., V] of hidden states [..., D]: last norm, then the unembedding."""
        return F.linear(self.model.norm(h), self.model.embed_tokens.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [B, T, V] of ids int64 [B, T]."""
        return self.head(self.states(ids)[-1])

    @torch.no_grad()
    def write(
        self,
        ids: Tensor,
        new: int,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        stop: int | None = None,
    ) -> Tensor:
        """int64 [B, T + new]: `ids` and `new` tokens drawn after them, the likeliest ones at temperature 0.

        Fewer where every row has drawn the token `stop`; what a row says after its own means nothing.
        """
        past = Past(self.shape, len(ids), ids.shape[1] + new, self.cosine)
        ended = ids.new_zeros(len(ids), dtype=torch.bool)
        fed = ids
        for _ in range(new):
            logits = self.head(self.states(fed, past)[-1][:, -1]).float()  # [B, V]
            if temperature:
                fed = torch.multinomial((logits / temperature).softmax(1), 1, generator=generator)
            else:
                fed = logits.argmax(1, keepdim=True)
            ids = torch.cat((ids, fed), 1)
            if stop is not None and bool((ended := ended | (fed[:, 0] == stop)).all()):
                break
        return ids


def apply_rotary(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """[B, H, T, d] with each pair (x[i], x[i + d/2]) turned by its position's angle."""
    cosine, sine = (t.to(x.dtype) for t in turn)
    low, high = x.chunk(2, 3)
    return x * cosine + torch.cat((-high, low), 3) * sine


def blockwise_attention(q: Tensor, k: Tensor, v: Tensor, block: int = 128) -> Tensor:
    """Causal attention, [B, H, T, d] for q [B, H, T, d] and k, v [B, G, T, d]: `block` queries at a time see what was before.

    The processor's fused kernel takes two to four times as long in bfloat16, with its gradient: one thread, H 6, G 2, d 64,
    4,096 tokens in windows of 128, 512 and 2,048: 82, 143 and 289 ms a layer, and 22, 58 and 204 in blocks. It keeps the
    weights of attention for the gradient.
    """
    shape = q.shape
    rows = q.shape[0] * k.shape[1]
    length = q.shape[2]
    width = q.shape[3]
    q = q.reshape(rows, -1, length, width)
    k = k.reshape(rows, length, width)
    v = v.reshape(rows, length, width)
    heads, y = q.shape[1], []
    for start in range(0, length, block):
        some = q[:, :, start : start + block] * width**-0.5
        size = some.shape[2]
        later = torch.full((size, size), -torch.inf, dtype=q.dtype).triu(1)
        hidden = F.pad(later, (start, 0)).repeat(heads, 1)  # of each head's queries, the keys behind them
        weights = (some.flatten(1, 2) @ k[:, : start + size].mT + hidden).softmax(2)
        y.append((weights @ v[:, : start + size]).unflatten(1, (heads, size)))
    return torch.cat(y, 2).view(shape)


def muon_weights(net: nn.Module) -> list[Tensor]:
    """The weights that Muon trains: all matrices but the embedding."""
    return [w for name, w in net.named_parameters() if w.ndim == 2 and "embed" not in name]


def adamw_weights(net: nn.Module) -> list[Tensor]:
    """The weights that AdamW trains: embedding and norms."""
    return [w for name, w in net.named_parameters() if w.ndim == 1 or "embed" in name]


def count_weights(weights: Sequence[Tensor] | nn.Module) -> int:
    """How many numbers there are."""
    return sum(w.numel() for w in (weights.parameters() if isinstance(weights, nn.Module) else weights))
