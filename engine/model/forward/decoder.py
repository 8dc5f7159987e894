"""Decoder: a Llama-style transformer that reads a Feed against a KVCache, and reports what it did on request."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.probe import Probe
from decodescope.engine.core.spec import ModelSpec

from ..attention.attention import soft_cap
from ..layers.gates import OPEN
from ..layers.layer import Layer as Layer
from ..layers.matrix import copy_weight_to, linear, pack
from ..layers.norm import double_weight, rms_norm, single_weight
from ..layers.partial_pass import NOTHING, DepthRule, ExecutedLayers, LazyLogits, Skip
from ..layers.rope import RopeTable, shared_rope_table
from ..layers.stack import LayerStack
from ..layers.vocabulary import CompanionNet
from ..stores.cache import KVCache
from . import general, plain
from .attention_block import AttentionBlock
from .conditional import ConditionalPass
from .feed import Feed


class Decoder:
    """The model: `spec`, the weights, and `forward`. Weights are read-only while decoding, so copies share them.

    head: the unembedding as loaded (the embedding itself where they are tied);  unembedding: the same, perhaps packed
    """

    def __init__(self, spec: ModelSpec, embed: Tensor, layers: list[Layer], norm: Tensor, head: Tensor):
        self.spec = spec
        self.embed = embed
        self.layers = layers
        self.norm = norm
        self.head = head
        self.unembedding = head
        more = spec.max_positions, embed.dtype, embed.device
        self.rope = shared_rope_table(spec.rope, *more)
        self.local_rope = self.rope if spec.local_rope is None else shared_rope_table(spec.local_rope, *more)
        self.usable: int | None = (
            None  # ids below this may be emitted; the rows above pad the matrix and get no logit
        )
        # (threads, kernels) -> rows of a pass -> microseconds, once measured
        self.costs: dict[tuple[int, str], dict[int, float]] = {}
        self.fingerprint = ""  # of the model that was loaded; empty: made in memory, or changed since
        self.heads: Mapping[str, CompanionNet] = {}  # draft heads trained on this model, by name
        self.gates = OPEN

    def __deepcopy__(self, memo: object) -> Decoder:
        return self

    @property
    def vocab(self) -> int:
        """V, the number of ids that get a logit."""
        return self.spec.vocab if self.usable is None else min(self.usable, self.spec.vocab)

    def share(self, other: Decoder) -> None:
        """Be that model, weights and all, in a class that adds to what a decoder does; it takes the place of `__init__`."""
        self.__dict__.update(vars(other))

    def limit_vocab(self, vocab: int) -> Decoder:
        """The same model, with shared weights, that may emit only ids below `vocab`."""
        if vocab >= self.vocab:
            return self
        decoder = copy.copy(self)
        decoder.usable = vocab
        return decoder

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights and of the cache."""
        return self.embed.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed.device

    def rope_of(self, layer: int) -> RopeTable:
        """The rotation of `layer`: layers with a window may have their own."""
        return self.stack.rope_of(layer)

    @property
    def stack(self) -> LayerStack:
        """The layers with what they share, as a forward pass runs them."""
        return LayerStack(self.spec, self.layers, self.rope, self.local_rope, self.gates)

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Decoder:
        """The same model in another type or place."""
        given: tuple[tuple[str, torch.dtype | torch.device | str | None], ...] = (
            ("dtype", dtype),
            ("device", device),
        )
        where = {name: x for name, x in given if x is not None}
        embed = self.embed.to(**where)  # type: ignore[call-overload] # keywords of Tensor.to
        head = embed if self.head is self.embed else copy_weight_to(self.head, **where)
        norm = single_weight(self.norm, self.spec.d_model).to(**where)  # type: ignore[call-overload] # as above
        decoder = Decoder(self.spec, embed, [layer.to(**where) for layer in self.layers], norm, head)
        decoder.usable, decoder.gates = self.usable, self.gates
        decoder.heads = {name: head.copy_to(**where) for name, head in self.heads.items()}
        return decoder

    def with_heads(self, heads: Mapping[str, CompanionNet]) -> Decoder:
        """The same model, with shared weights, and these heads, by kind, for its own of that kind."""
        decoder = copy.copy(self)
        decoder.heads = {**self.heads, **heads}
        return decoder

    def pack_weights(self) -> Decoder:
        """The same model with its matrices laid out for this processor. The plain matrices are dropped, except a tied
        embedding, because its rows are still looked up. Otherwise memory stays the same."""
        decoder = copy.copy(self)
        decoder.layers = [layer.pack_weights() for layer in self.layers]
        decoder.norm = double_weight(single_weight(self.norm, self.spec.d_model))
        decoder.unembedding = pack(self.head)
        decoder.head = self.head if self.head is self.embed else decoder.unembedding
        decoder.forget_costs()
        return decoder

    def forget_costs(self) -> None:
        """Forget the measured times of passes, and the model of which they were: the matrices are no longer those."""
        self.costs, self.fingerprint = {}, ""

    def forward(
        self,
        feed: Feed,
        cache: KVCache | None,
        probe: Probe | None = None,
        skip: Skip | None = None,
        depth: DepthRule | None = None,
        ran: ExecutedLayers | None = None,
    ) -> Tensor:
        """Logits float32 (float64 if the model is) [B, T, V], or [B, R, V] of those R rows that the feed names.

        A pass takes one of three ways, which give the same bits for what they all can do:

        - `plain.py` where nothing is asked of the pass, its layers and stores are alike, and it feeds at most 64 rows after
          some text (`plain.can_run`). Decoding steps usually go this way.
        - `general.py` where every layer runs for every row: prompts, probes, windows, special stores, a feed that enters
          above the first layer.
        - `conditional.py` where `skip` leaves sub-layers out, `depth` decides inside the pass, or the rows of the feed enter
          at different layers.

        Every layer that runs appends T pending rows to its store. For layers that do not run, the skipped-KV value of `skip` or
        `depth` defines what they get. `ran` records what ran.
        """
        answer = None
        everything = skip is None and depth is None
        if everything and probe is None and ran is None and plain.can_run(self.spec, self.gates, feed, cache):
            x = plain.run(self.spec, self.layers, self.rope, feed, cache, self.embed_rows(feed))
        elif everything and feed.entries is None:
            x = general.run(self._block(feed, cache, probe), self.input_states(feed), self.spec.n_layers)
            if ran is not None:
                ran.enter_all(feed.length, range(feed.enter, self.spec.n_layers))
        else:
            block = self._block(feed, cache, probe)
            job = ConditionalPass(block, skip or NOTHING, depth, ran or ExecutedLayers(), self.lazy_logits)
            x = job.run(self.input_states(feed))
            answer = job.exit
        return self._logits(x, answer, feed, probe)

    def states_before(self, feed: Feed, cache: KVCache | None, until: int) -> Tensor:
        """The states [B, T, d_model] that enter layer `until`. The layers below it, from where the feed enters, run and append
        T pending rows each."""
        return general.run(self._block(feed, cache), self.input_states(feed), until)

    def queries(self, feed: Feed, cache: KVCache, layer: int) -> Tensor:
        """The queries [B, T, H, D] of `layer`, rotated. The layers below it run; of its own, keys and values alone are made: T
        rows are pending in it as in those."""
        block = self._block(feed, cache)
        qkv = block.project(layer, general.run(block, self.input_states(feed), layer))
        block.store_kv(layer, qkv)
        return qkv[:, :, : self.spec.heads_at(layer)]

    def _block(self, feed: Feed, cache: KVCache | None, probe: Probe | None = None) -> AttentionBlock:
        """The attention blocks of a pass over `feed`."""
        return AttentionBlock(self.stack, feed, cache, probe)

    def _logits(self, x: Tensor, answer: LazyLogits | None, feed: Feed, probe: Probe | None) -> Tensor:
        """Those that a pass asks for, of its last states x [B, T, d_model], or the `answer` of an exit."""
        rows = feed.rows
        if answer is None:
            if probe is None or "final" not in probe.needs.hidden:
                x, rows = x[:, rows], slice(None)
            answer = self.lazy_logits(x)
        elif isinstance(rows, list):
            rows = slice(None)
        if probe is not None and "final" in probe.needs.hidden:
            probe.hidden["final"] = answer.feature
        return answer.logits(rows)

    def lazy_logits(self, x: Tensor) -> LazyLogits:
        """The logits of the states x [B, T, d_model], which some layer has left: not yet computed."""
        return LazyLogits(x, self.apply_norm, self.unembed, self.spec.name)

    def input_states(self, feed: Feed) -> Tensor:
        """The states [B, T, d_model] with which a pass begins: the feed's own, or the embeddings of its rows."""
        return self.embed_rows(feed) if feed.states is None else feed.states

    def embed_rows(self, feed: Feed) -> Tensor:
        """float [B, T, d_model]: token embeddings, or the feed's own vectors where it gives some."""
        x = F.embedding(feed.tokens, self.embed)
        if self.spec.embed_scale != 1:
            # rounded to the model's type first, as it was trained
            x = x * x.new_tensor(self.spec.embed_scale)
        if feed.embeds is not None and feed.embed_rows is not None:
            x = torch.where(feed.embed_rows[None, :, None], feed.embeds.to(x.dtype), x)
        return x

    def apply_norm(self, x: Tensor) -> Tensor:
        """The final norm of x [..., d_model]: the feature that the unembedding reads."""
        return rms_norm(x, self.norm, self.spec.norm_eps)

    def unembed(self, feature: Tensor) -> Tensor:
        """Logits [..., V] of final features [..., d_model], V being the usable ids; half types come out as float32.

        The kernels round their sums to float32 once. In bfloat16 logits around 25 are 0.125 apart, and many would be equal.
        """
        wide = torch.promote_types(feature.dtype, torch.float32)
        logits = linear(feature, self.unembedding, dtype=wide)
        return soft_cap(logits[..., : self.usable], self.spec.logit_cap)
