"""DFlash's drafter: layers fill a block of masks in one pass; their keys of the text are made from the target's states."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from ...layers.vocabulary import Vocabulary
from ...stores.cache import LayerStore
from ..base import HeadLinear, unit_rms_norm
from .attention import THETA, DraftAttention, LeadingStore
from .draft_vocabulary import DraftVocabularyHead
from .eagle import EPS, GatedBlock

CAUSAL = ("none", "windowed", "all")  # which layers are causal inside a block, by the number in a net's shape


class InjectedAttention(DraftAttention):
    """Attention of a block's places. They see each other, and keys and values of the text, which are made from other states
    than theirs and come before them.

    Queries have a product of their own: text needs keys and values alone. window: the last `window` tokens of the text in front
    of the block; 0: all. A window does not move inside a block.  causal: "none", "windowed" (if there is a window) or "all"
    """

    joins: ClassVar[tuple[str, ...]] = ("k", "v")
    causal: str = CAUSAL[0]

    @property
    def is_causal(self) -> bool:
        """Whether a place sees only itself and those before it in its block."""
        return self.causal == "all" or (self.causal == "windowed" and self.window > 0)

    def queries(self, x: Tensor, positions: Tensor, highest: int) -> Tensor:
        """float [B, H, T, D] of x [B, T, d] at `positions` (int64 [B, T], none above `highest`)."""
        q = self.q(x).view(*x.shape[:2], self.sizes[0], self.sizes[2])
        q = q if self.q_norm is None else unit_rms_norm(q, self.q_norm, self.eps)
        self.rotate_in_place(q, positions, highest)
        return q.transpose(1, 2)

    def keys_and_values(self, x: Tensor, positions: Tensor, highest: int) -> Tensor:
        """float [2, B, H_kv, T, D] of x [B, T, d] at `positions` (int64 [B, T], none above `highest`)."""
        _, G, D = self.sizes
        k, v = self.project_all(x).view(*x.shape[:2], 2, G, D).unbind(2)
        k = k if self.k_norm is None else unit_rms_norm(k, self.k_norm, self.eps)
        self.rotate_in_place(k, positions, highest)
        return torch.stack([k, v]).transpose(2, 3)

    def read_block(self, x: Tensor, store: LayerStore) -> Tensor:
        """The output [1, T, d] for the places x [1, T, d] of a block behind the text in the store, where their keys and values
        are pending afterwards."""
        n, T = store.n, x.shape[1]
        positions = torch.arange(n, n + T, device=x.device)[None]
        store.append(self.keys_and_values(x, positions, n + T - 1), positions)
        first = max(0, n - self.window) if self.window else 0
        mask = None
        if self.is_causal:
            mask = torch.ones(T, n + T - first, dtype=torch.bool, device=x.device).tril(n - first)
        q = self.queries(x, positions, n + T - 1)
        return self.mix(q, store.k[:, :, first:], store.v[:, :, first:], mask)

    def read_blocks(self, x: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        """The output [B, A, K, d] for blocks x [B, A, K, d] that begin at places `anchors` (int64 [A]) of whole texts, whose
        keys are those of features [B, T, d]. No block sees another one, nor text from its anchor on."""
        (B, A, K, d), T = x.shape, features.shape[1]
        text = torch.arange(T, device=x.device)
        places = (anchors[:, None] + torch.arange(K, device=x.device)).flatten()
        rows, highest = x.view(B, A * K, d), T + K
        kv = [
            self.keys_and_values(y, at.expand(B, -1), highest) for y, at in ((features, text), (rows, places))
        ]
        keys, values = torch.cat(kv, 3)
        begins = anchors.repeat_interleave(K)[:, None]
        sees = text < begins
        if self.window:
            sees &= text >= begins - self.window
        block = torch.arange(A, device=x.device).repeat_interleave(K)
        own = block[:, None] == block
        own = own & (places <= places[:, None]) if self.is_causal else own
        q = self.queries(rows, places.expand(B, -1), highest)
        return self.mix(q, keys, values, torch.cat([sees, own], 1)).view(B, A, K, d)


class BlockLayer(nn.Module):
    """A decoder layer over the places of a block: x + attention(norm(x)), and then the feed-forward block."""

    __call__: Callable[..., Tensor]

    def __init__(self, attention: InjectedAttention, block: GatedBlock) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(attention.out.out_features))
        self.attention, self.block = attention, block

    def forward(self, x: Tensor, read: Callable[[Tensor], Tensor]) -> Tensor:
        """x [..., d] -> float [..., d]; read: its attention of normed states."""
        return self.block(x + read(unit_rms_norm(x, self.first, self.block.eps)))


class DFlashNet(DraftVocabularyHead):
    """A block of K = `block` places follows the text: the root, the last token, and K - 1 masks. One pass of `layers` decoder
    layers guesses tokens in all places at once.

    The text is not embedded. f_t = norm(W [states of token t that enter `states` layers of the target]) is made into a key and
    a value in every layer, the same f_t for all of them, with that layer's matrices. So the text costs one product a layer, and
    what is made of accepted text is final. Places of a block get keys and values from their own states, and all see all of
    them. h = norm(output) is unembedded: place k makes the token k after the root, and place 0 nothing; or, with anchor = 1,
    place k makes the token k + 1 after it (`guesses` says how many).

    mask_token: the id whose embedding a mask is;  own_mask = 1: a vector of its own instead;  bias = 1: queries, keys, values
    and output of the attention have one;  causal: 1: layers with a window are causal inside a block, 2: all are, 0: none is.
    Queries and keys are normed, as in Qwen 3. The rest is EAGLE-3's: vocab, kept, own, own_embed, theta, eps, states.
    """

    kind = "dflash"
    works = ("logits", "enter", "add_text", "read_block")

    known_sizes: ClassVar[dict[str, int | None]] = {
        **dict.fromkeys(("d", "vocab", "kept", "n_heads", "n_kv_heads", "head_dim", "d_ff", "block")),
        **dict(layers=1, states=3, anchor=0, mask_token=0, own_mask=0, bias=0, causal=0),
        **dict(own=0, own_embed=0, theta=THETA, eps=EPS),
    }

    def __init__(self, **shape: int) -> None:
        usual = {name: size for name, size in self.known_sizes.items() if size is not None}
        if (usual | shape).keys() != self.known_sizes.keys():
            raise TypeError(
                f"{self.kind} nets have the sizes {', '.join(self.known_sizes)}, and were given {', '.join(shape)}"
            )
        super().__init__(**(usual | shape))
        size, d = self.shape, self.shape["d"]
        self.eps = size["eps"] * 1e-9
        self.own_embed = nn.Parameter(torch.zeros(size["own_embed"], d)) if size["own_embed"] else None
        self.mask_embedding = nn.Parameter(torch.randn(d) * 0.1) if size["own_mask"] else None
        self.fuse = HeadLinear(size["states"] * d, d, bias=False)
        self.second, self.last = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))  # norms of f and h
        self.layers = nn.ModuleList()
        heads = size["n_heads"], size["n_kv_heads"], size["head_dim"]
        for _ in range(size["layers"]):
            part = InjectedAttention(
                d, *heads, bias=bool(size["bias"]), theta=size["theta"], out_bias=bool(size["bias"])
            )
            part.norm_queries_and_keys(self.eps)
            part.causal = CAUSAL[size["causal"]]
            self.layers.append(BlockLayer(part, GatedBlock(d, size["d_ff"], self.eps)))
        self.words = nn.ModuleList([HeadLinear(d, size["kept"], bias=False)]) if size["own"] else None

    @classmethod
    def sizes(cls) -> dict[str, int | None]:
        """The table `known_sizes`."""
        return cls.known_sizes

    @property
    def guesses(self) -> int:
        """How many tokens a block guesses."""
        return self.shape["block"] - (not self.shape["anchor"])

    @property
    def _stack(self) -> list[BlockLayer]:
        return cast("list[BlockLayer]", list(self.layers))

    def store(self) -> LayerStore:
        """An empty store for keys and values of one sequence, of all layers."""
        first, *further = [layer.attention for layer in self._stack]
        return first.store([attention.store() for attention in further])

    def enter(self, states: Tensor) -> Tensor:
        """The features f [..., d] of states [..., states * d], in the order of `places`."""
        return unit_rms_norm(self.fuse(states), self.second, self.eps)

    def add_text(self, features: Tensor, store: LayerStore) -> None:
        """Make keys and values of features [T, d], which go on in the store, and commit them."""
        n, T = store.n, len(features)
        positions = torch.arange(n, n + T, device=features.device)[None]
        for layer, own in zip(self._stack, _stores(store), strict=True):
            own.append(layer.attention.keys_and_values(features[None], positions, n + T - 1), positions)
        store.commit(range(T))

    def mask_vector(self, table: Tensor) -> Tensor:
        """float [d]: what enters the first layer at a mask, where tokens enter with the rows of `table` [V, d]."""
        return table[self.shape["mask_token"]] if self.mask_embedding is None else self.mask_embedding

    def fill_block(self, roots: Tensor, mask: Tensor) -> Tensor:
        """What enters the first layer, float [..., K, d], for embeddings of roots [..., d] and that of a mask [d]."""
        masks = mask.to(roots.dtype).expand(*roots.shape[:-1], self.shape["block"] - 1, -1)
        return torch.cat([roots[..., None, :], masks], -2)

    def read_block(self, embedded: Tensor, store: LayerStore) -> Tensor:
        """The outputs h [K, d] of the block float [K, d] behind the text in the store. Its rows are pending afterwards."""
        x = embedded[None]
        for layer, own in zip(self._stack, _stores(store), strict=True):
            x = layer(x, lambda y, part=layer.attention, own=own: part.read_block(y, own))
        return unit_rms_norm(x[0], self.last, self.eps)

    def forward(self, features: Tensor, blocks: Tensor, anchors: Tensor) -> Tensor:
        """The outputs h [B, A, K, d] of blocks [B, A, K, d] that begin at places `anchors` (int64 [A]) of whole texts with
        features [B, T, d]: without a store, as training sees them."""
        x = blocks
        for layer in self._stack:
            x = layer(x, lambda y, part=layer.attention: part.read_blocks(y, features, anchors))
        return unit_rms_norm(x, self.last, self.eps)

    def guessing(self, outputs: Tensor) -> Tensor:
        """The places of outputs [..., K, d] that guess a token: float [..., guesses, d]."""
        return outputs[..., self.shape["block"] - self.guesses :, :]

    def _logits(self, features: Tensor, decoder: Vocabulary, first: int) -> Tensor:
        if self.words is None and self.shape["kept"] == self.shape["vocab"]:
            return decoder.unembed(features)  # the whole matrix, of which no copy is made
        return super()._logits(features, decoder, first)


def _stores(store: LayerStore) -> list[LayerStore]:
    """The stores of all layers, the leading one first."""
    return [store, *(store.further if isinstance(store, LeadingStore) else ())]
