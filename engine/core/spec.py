"""ModelSpec: the shape of a decoder-only transformer, without its weights. No torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

MOST_CELLS = 256  # of a picture's side


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding of the half-split kind.

    theta:      base of the frequencies
    dim:        leading features of a head that are rotated (head_dim unless the rotation is partial)
    kind:       "default", "linear" (positions divided by `factor`), "llama3" (Llama 3.1's frequency bands), "yarn" or
                "longrope" (each pair has its own factor)
    factor, low_freq_factor, high_freq_factor, original_positions, beta_fast, beta_slow: the scaling's constants, as far
                as its kind has them; unused by "default"
    whole:      yarn's bands end at whole feature pairs
    amplitude:  what cosines and sines are multiplied by
    factors:    longrope's divisors, one for the frequency of each feature pair. They hold up to `original_positions` tokens
    """

    theta: float = 10_000.0
    dim: int = 64
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    whole: bool = True
    amplitude: float = 1.0
    factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class PictureSpec:
    """The grey pictures that a model writes, in ids of its vocabulary.

    height, width: in cells
    levels:   of grey, from the background on; neighbours in this list look alike
    cells:    of a model that writes in any order: the instructions, one for each cell in raster order. The level behind an
              instruction is that cell's. None where the model writes only levels, in raster order
    """

    height: int
    width: int
    levels: tuple[int, ...]
    cells: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Cells in all."""
        return self.height * self.width

    def vocab_problem(self, vocab: int) -> str | None:
        """Why a model of so many ids cannot write this picture, as the end of a sentence; None if it can."""
        ids = self.levels + self.cells
        if min(self.height, self.width) < 1 or max(self.height, self.width) > MOST_CELLS:
            return f"{self.height} x {self.width} cells; each side must be from 1 to {MOST_CELLS}"
        if len(self.levels) < 2:
            return f"{len(self.levels)} grey levels; there must be 2 or more"
        if len(self.cells) not in (0, self.size):
            return (
                f"{len(self.cells)} instructions for {self.size} cells; there must be one for each, or none"
            )
        if len(set(ids)) < len(ids):
            return "one id for two levels or cells; each needs its own"
        if not all(0 <= x < vocab for x in ids):
            return f"the id {next(x for x in ids if not 0 <= x < vocab)}; it must be below {vocab}"
        return None


@dataclass(frozen=True)
class ModelSpec:
    """Everything about a model that a cost, a cache or a view needs to know.

    windows:  per layer, the sliding window in tokens (a query sees the last `window` positions, itself included), or None for
              full attention; an empty tuple means full attention everywhere
    no_rope:  layers that do not rotate queries and keys
    local_rope: the rotation of layers with a window, where it differs from that of the others (Gemma 3)
    act:      the gate's activation, "silu" or "gelu" (its tanh approximation)
    post_norms: the outputs of attention and feed-forward block are normed before they are added
    embed_scale: the factor that multiplies a looked-up embedding
    query_dim: attention scores are divided by its root; None: head_dim
    attn_cap, logit_cap: scores or logits x become cap * tanh(x / cap); None: they stay as they are
    heads:    draft heads in the checkpoint's folder, by name
    causal:   whether a row sees only itself and the rows before it; otherwise it sees all that its pass reads
    mask_token: the id of a token not yet written, where the model has learnt one
    adapter:  the adapter that is merged into the weights, by its name in the checkpoint's folder; empty: none
    pad_token: the id that fills up shorter texts, where the model names one; no record keeps it
    picture:  the grey pictures that the model writes; None: it writes text
    block_length: tokens of a block, if this is the token decoder of a Block Transformer, which sees no other tokens; 0: it is
                  none
    groups:   only for a model that was cut: by layer and remaining KV head, the query heads that read it. A layer without KV
              heads has no attention. n_heads and n_kv_heads stay those of the whole model. Empty: all layers alike
    widths:   only for a model that was cut: by layer, the columns of its feed-forward block; 0: there is none. Empty: d_ff each
    weights:  the transforms that its weights went through, as `load` takes them; empty: they are as the checkpoint has them
    bits:     per layer, bits of a number in the matrices qkv, out, gate_up and down, scales included, and at the end those of
              the head alone; empty: all as the model's type has them
    stored_as: the types of its matrices in the GGUF file that it was read from; empty: it was read from another file
    """

    name: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_model: int
    d_ff: int
    vocab: int
    max_positions: int = 2048
    family: str = "llama"
    rope: Rope = field(default_factory=Rope)
    norm_eps: float = 1e-5
    tied: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int | None, ...] = ()
    no_rope: frozenset[int] = frozenset()
    causal: bool = True
    local_rope: Rope | None = None
    act: str = "silu"
    post_norms: bool = False
    embed_scale: float = 1.0
    query_dim: float | None = None
    attn_cap: float | None = None
    logit_cap: float | None = None
    heads: tuple[str, ...] = ()
    mask_token: int | None = None
    adapter: str = ""
    pad_token: int | None = None
    picture: PictureSpec | None = None
    block_length: int = 0
    groups: tuple[tuple[int, ...], ...] = ()
    widths: tuple[int, ...] = ()
    weights: str = ""
    bits: tuple[tuple[float, ...], ...] = ()
    stored_as: str = ""

    @property
    def original_spec(self) -> ModelSpec:
        """The shape of the original model, before transforms; itself where there were none."""
        usual = {"groups": (), "widths": (), "bits": (), "weights": ""}
        name = self.name.removesuffix(f"@{self.weights}")
        return replace(self, name=name, **usual) if self.weights else self  # type: ignore[arg-type] # of several kinds

    @property
    def reading_limit(self) -> str:
        """How many tokens it reads, and the source of that number, to follow the words "the model"."""
        scaled = self.rope.kind == "yarn" and self.max_positions == int(
            self.rope.original_positions * self.rope.factor
        )
        key = "the yarn table" if scaled else "max_position_embeddings"
        if self.rope.kind == "longrope" and self.max_positions == self.rope.original_positions:
            key = "original_max_position_embeddings"
        return f"{self.name} reads at most {self.max_positions} tokens, the answer included ({key} of its config.json)"

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.n_heads // self.n_kv_heads

    @property
    def score_scale(self) -> float:
        """What the product of a query and a key is multiplied by."""
        return float((self.query_dim or self.head_dim) ** -0.5)

    def window(self, layer: int) -> int | None:
        """The sliding window of `layer` in tokens, or None."""
        return self.windows[layer] if self.windows else None

    def heads_at(self, layer: int) -> int:
        """Query heads of `layer`."""
        return sum(self.groups[layer]) if self.groups else self.n_heads

    def kv_at(self, layer: int) -> int:
        """KV heads of `layer`."""
        return len(self.groups[layer]) if self.groups else self.n_kv_heads

    def ff_at(self, layer: int) -> int:
        """Columns of the feed-forward block of `layer`."""
        return self.widths[layer] if self.widths else self.d_ff

    def groups_at(self, layer: int) -> tuple[int, ...]:
        """For each KV head of `layer`, the query heads that read it."""
        return self.groups[layer] if self.groups else (self.group,) * self.n_kv_heads

    def uneven_at(self, layer: int) -> tuple[int, ...] | None:
        """Query heads of each KV head of `layer`, if their numbers differ; else None."""
        return self.groups[layer] if self.groups and len(set(self.groups[layer])) > 1 else None

    @property
    def absent_blocks(self) -> tuple[str, ...]:
        """Blocks that were cut out whole, in the words of a layer plan.

        a2 is the attention of layer 2, f3 the feed-forward block of layer 3.
        """
        attn = [f"a{i}" for i in range(self.n_layers) if not self.kv_at(i)]
        return *attn, *(f"f{i}" for i in range(self.n_layers) if not self.ff_at(i))

    def matrices_at(self, layer: int) -> tuple[tuple[int, int], ...]:
        """Rows and columns of the matrices of `layer`, in the order of `bits`: qkv, out, gate_up, down."""
        d = self.d_model
        h = self.heads_at(layer) * self.head_dim
        f = self.ff_at(layer)
        return (h + 2 * self.kv_at(layer) * self.head_dim, d), (d, h), (2 * f, d), (d, f)

    def params_at(self, layer: int) -> int:
        """Parameters of `layer`, norms and biases included; an absent block has none."""
        d, f = self.d_model, self.ff_at(layer)
        h, k = self.heads_at(layer) * self.head_dim, self.kv_at(layer) * self.head_dim
        attn = d * (h + 2 * k) + h * d + d + (h + 2 * k) * self.qkv_bias + d * self.out_bias
        attn += 2 * self.head_dim * self.qk_norm + d * self.post_norms
        ffn = 3 * d * f + d + (2 * f + d) * self.mlp_bias + d * self.post_norms
        return attn * bool(k) + ffn * bool(f)

    def choose_below(self, instead: str) -> str:
        """Advice for a number of layers that must be below all of them; `instead`: the advice for a model of one layer."""
        return f"choose 1 to {self.n_layers - 1}" if self.n_layers > 1 else f"choose {instead}"

    @property
    def params(self) -> int:
        """Parameters in all; a tied embedding counts once."""
        layers = sum(map(self.params_at, range(self.n_layers)))
        return layers + self.d_model + self.vocab * self.d_model * (1 if self.tied else 2)

    def bits_at(self, layer: int, matrix: int, usual: float) -> float:
        """Bits of a number in a matrix (0 to 3, in the order of `bits`) of `layer`; `usual` if `bits` does not say."""
        return self.bits[layer][matrix] if self.bits else usual

    def head_bits(self, usual: float) -> float:
        """The same for the head."""
        return self.bits[-1][0] if self.bits else usual

    def weight_bytes(self, itemsize: int) -> int:
        """Bytes of all weights; `itemsize`: bytes of a number of the usual type.

        A head that is tied to the embedding but stored differently counts in addition to it.
        """
        if not self.bits:
            return self.params * itemsize
        usual, saved = 8 * itemsize, 0.0
        for i, row in enumerate(self.bits[:-1]):
            saved += sum(n * m * (usual - x) for (n, m), x in zip(self.matrices_at(i), row, strict=True))
        head, table = self.head_bits(usual), self.vocab * self.d_model
        saved += table * ((usual - head) if not self.tied else -head * (head != usual))
        return round(self.params * itemsize - saved / 8)

    def kv_bytes(self, entries: int, itemsize: int) -> int:
        """Bytes of the keys and values of `entries` tokens in every layer and KV head."""
        heads = sum(map(len, self.groups)) if self.groups else self.n_layers * self.n_kv_heads
        return 2 * heads * entries * self.head_dim * itemsize

    def record(self) -> dict[str, Any]:
        """As plain data for a trace's header."""
        record = asdict(self)
        record["windows"], record["no_rope"] = list(self.windows), sorted(self.no_rope)
        record["heads"] = list(self.heads)
        record["params"] = self.params
        del record["pad_token"]
        if self.mask_token is None:
            del record["mask_token"]
        if not self.adapter:
            del record["adapter"]
        if not self.weights:
            del record["weights"]
        if not self.bits:
            del record["bits"]
        else:
            record["bits"] = [list(x) for x in self.bits]
        if not self.block_length:
            del record["block_length"]
        for name in ("groups", "widths", "stored_as"):
            if not record[name]:
                del record[name]
        for rope in (record["rope"], record["local_rope"]):
            if rope is not None and not rope["factors"]:
                del rope["factors"]
        if self.picture is None:
            del record["picture"]
        else:
            record["picture"] |= {"levels": list(self.picture.levels), "cells": list(self.picture.cells)}
        return record
