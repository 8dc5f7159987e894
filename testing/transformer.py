"""A transformer so small that its distribution can be enumerated, and its logits by prefix."""

from __future__ import annotations

from functools import cache

import torch

from decodescope.engine.core.spec import ModelSpec, Rope
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed

from . import toys
from .tables import Logits, Seen, memoize_logits

V = 6
SPEC = ModelSpec("tiny", 2, 4, 2, 8, 32, 64, V, max_positions=64, rope=Rope(dim=8))


@cache
def decoders() -> tuple[Decoder, Decoder]:
    """A transformer over six ids, and one that is somewhat like it."""
    target = toys.decoder(SPEC, dtype=torch.float64)
    return target, toys.noisy_decoder(target, 0.5)


def logits_by_prefix(decoder: Decoder) -> Logits:
    """The decoder's logits after each text, read from the beginning without any cache; each text once."""

    @torch.inference_mode()
    def logits(seen: Seen) -> torch.Tensor:
        assert [position for position, _ in seen] == list(range(len(seen))), (
            "a row sees something else than a text"
        )
        return decoder.forward(Feed.causal_chain([token for _, token in seen], 0, logits="last"), None)[0, 0]

    return memoize_logits(logits)


@cache
def decoder_logits() -> tuple[Logits, Logits]:
    """Their logits by prefix."""
    target, draft = decoders()
    return logits_by_prefix(target), logits_by_prefix(draft)
