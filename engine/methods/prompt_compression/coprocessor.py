"""Cache coprocessor: a second form of the model reads the prompt's cache and adds latent vectors to it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.lane import ComputedEmbeds, Lane
from decodescope.engine.decoding.bases.prompt_compression import PromptCompression, UnreadPrompt
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.coprocessor import Coprocessor
from decodescope.engine.model.heads.files import missing_reason


@component
class CacheCoprocessor(PromptCompression):
    """Let a coprocessor think about the prompt: it reads the KV cache once and adds `latent_tokens` vectors to it.

    The frozen model reads the prompt. Trained soft tokens [N, d] then go through the coprocessor, which is the model with
    low-rank changes of its matrices, and attend to the model's own cache. Its N outputs, after the final norm, become inputs of
    the frozen model at the next N positions. Their keys and values join the cache, and decoding continues. Latent k depends on
    the prompt and on the soft tokens up to k.

    The cost is two passes of N rows for each prompt, and N entries. The coprocessor shares the model's weights and its cache;
    its own rows are dropped. The latents are no tokens: drafters, samplers and policies see the text as it was given. With 0
    latents the run is plain decoding.

    In the paper the latents follow the whole prompt. Here its last token follows them, in training too, because that token's
    pass gives the first logits. The paper trains all weights of the copy, and low-rank changes as a smaller variant [recalled].
    """

    title = "Cache coprocessor (deliberation in latent space)"
    source = "Liu et al. 2024, arXiv:2412.17747, section 2 (the abstract was read; details recalled); no code was published"
    caution = "Needs long training: after 208 short steps the texts of `lab` were still worse with it (docs/heads.md)."
    changes: ClassVar[str] = "vectors computed from its cache are in the prompt"

    latent_tokens: int = param(
        8,
        low=0,
        high=64,
        unit="vectors",
        help="latent vectors added to the cache; the number of trained soft tokens also limits it; 0: none",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not self.latent_tokens:
            return None
        if spec.groups or spec.widths:
            return (
                f"{self.name} was trained for whole layers, and {spec.weights} cut some of {spec.name}; "
                "load the model without these weights, or choose prompt_compression whole_prompt."
            )
        return missing_reason(self.name, spec, "prompt_compression whole_prompt")

    def extra_entries(self, decoder: Decoder) -> int:
        return min(self.latent_tokens, self._net(decoder).shape["tokens"]) if self.latent_tokens else 0

    def vectors(self, reading: UnreadPrompt) -> Sequence[ComputedEmbeds]:
        if not self.latent_tokens:
            return ()
        at = len(reading.tokens) - 1
        return [ComputedEmbeds(self.compute_latents, "latent", at, "coprocessor, after the prompt")]

    def compute_latents(self, lane: Lane) -> Tensor:
        """float [N, d]: the latents behind everything that `lane` has read."""
        decoder, net = lane.decoder, self._net(lane.decoder)
        adapted = copy.copy(decoder)
        adapted.layers = [net.adapt(layer, i) for i, layer in enumerate(decoder.layers)]
        soft = net.embeds[: self.latent_tokens]
        feed = Feed.causal_chain([0] * len(soft), lane.cache.length, decoder.device, logits="last")
        feed.embeds = soft[None]
        feed.embed_rows = torch.ones(len(soft), dtype=torch.bool, device=decoder.device)
        states = lane.states_before(feed, decoder.spec.n_layers, "score", by=adapted)
        lane.rollback()
        return decoder.apply_norm(states)[0]

    def _net(self, decoder: Decoder) -> Coprocessor:
        return cast(Coprocessor, decoder.heads[self.name])

    def idle_reason(self, did: Activity) -> str:
        return "" if self.latent_tokens else f"{self.name} changed nothing: latent_tokens is 0."
