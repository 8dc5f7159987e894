"""ModelSpec: the shape of a decoder-only transformer, without its weights. No torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding of the half-split kind.

    theta:      base of the frequencies
    dim:        leading features of a head that are rotated (head_dim unless the rotation is partial)
    kind:       "default", "linear" (positions divided by `factor`) or "llama3" (Llama 3.1's frequency bands)
    factor, low_freq_factor, high_freq_factor, original_positions: the scaling's constants; unused by "default"
    """

    theta: float = 10_000.0
    dim: int = 64
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192


@dataclass(frozen=True)
class ModelSpec:
    """Everything about a model that a cost, a cache or a view needs to know.

    windows:  per layer, the sliding window in tokens (a query sees the last `window` positions, itself included),
              or None for full attention; an empty tuple means full attention everywhere
    no_rope:  layers that do not rotate queries and keys
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

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.n_heads // self.n_kv_heads

    def window(self, layer: int) -> int | None:
        """The sliding window of `layer` in tokens, or None."""
        return self.windows[layer] if self.windows else None

    @property
    def layer_params(self) -> int:
        """Parameters of one layer, norms and biases included."""
        d, h, k, f = self.d_model, self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim, self.d_ff
        count = d * (h + 2 * k) + h * d + 3 * d * f + 2 * d
        count += (h + 2 * k) * self.qkv_bias + d * self.out_bias + (2 * f + d) * self.mlp_bias
        return count + 2 * self.head_dim * self.qk_norm

    @property
    def params(self) -> int:
        """Parameters in all; a tied embedding counts once."""
        return self.n_layers * self.layer_params + self.d_model + self.vocab * self.d_model * (1 if self.tied else 2)

    def kv_bytes(self, entries: int, itemsize: int) -> int:
        """Bytes of the keys and values of `entries` tokens in every layer and KV head."""
        return 2 * self.n_layers * self.n_kv_heads * entries * self.head_dim * itemsize

    def record(self) -> dict[str, Any]:
        """As plain data for a trace's header."""
        made = asdict(self)
        made["windows"], made["no_rope"] = list(self.windows), sorted(self.no_rope)
        made["params"] = self.params
        return made
