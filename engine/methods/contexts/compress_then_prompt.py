"""Compress, then prompt: soft tokens that were trained to make up for what a compressed cache loses stand before the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.prompt_context import PromptContext, Reading
from decodescope.engine.model.attention.extra_kv import Vectors
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.files import missing
from decodescope.engine.model.heads.soft_prompt import SoftPrompt


@component
class CompressThenPrompt(PromptContext):
    """Put trained embeddings before the prompt. They are no tokens: nothing evicts, scores or packs them, and the text's
    positions begin behind them at 0.

    They were trained with the language model's own loss while all older entries of the cache stood in two bits, as `kivi` packs
    them, the rounding counting as none for the gradient (straight-through); the model's weights stayed as they were. So they
    are for a cache like that. The paper trains under quantised or pruned weights, and its prompt is read by a model that is
    compressed so; here the cache alone is. Without them, or with `use` off, the text is what it is without this part.
    """

    title = "Compress, then prompt"
    source = "Xu et al. 2023, arXiv:2305.11186 (its abstract; the rest recalled); zirui-ray-liu/compress-then-prompt"
    caution = "Trained under the codec kivi with 2 bits; most of the gain is there with a full cache too (docs/heads.md)."
    changes = "soft tokens stand before the text"

    use: bool = param(True, help="whether they are put there")

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return missing("compress_then_prompt", spec, "the context whole_prompt") if self.use else None

    def aside(self, decoder: Decoder) -> int:
        return sum(len(x.rows) for x in self._trained(decoder))

    def vectors(self, reading: Reading) -> Sequence[Vectors]:
        return self._trained(reading.decoder)

    def _trained(self, decoder: Decoder) -> Sequence[Vectors]:
        """The soft tokens, if they are wanted."""
        if not self.use:
            return ()
        return [
            Vectors(
                cast(SoftPrompt, decoder.heads["compress_then_prompt"]).embeds.detach(),
                "soft",
                origin="trained",
            )
        ]
