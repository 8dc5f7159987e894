"""Compress, then prompt: trained soft tokens before the text make up for the losses of a compressed cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.prompt_compression import PromptCompression, UnreadPrompt
from decodescope.engine.model.attention.extra_kv import ExtraEmbeds
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.heads.soft_prompt import SoftPrompt


@component
class CompressThenPrompt(PromptCompression):
    """Put trained embeddings before the prompt.

    They are not tokens: nothing evicts, scores or packs them, and the text's positions begin behind them at 0.

    They were trained with the language model's own loss while all older cache entries were packed in two bits, as `kivi` does.
    The gradient ignored the rounding (straight-through), and the model's weights did not change. So they are meant for a cache
    like that. The paper trains under quantised or pruned weights, and a model compressed in this way reads its prompt. Here
    only the cache is compressed. Without them, or with `use_soft_tokens` off, the text is the same as without this part.
    """

    title = "Compress, then prompt"
    source = "Xu et al. 2023, arXiv:2305.11186 (its abstract; the rest recalled); zirui-ray-liu/compress-then-prompt"
    caution = "Trained under the codec kivi with 2 bits; most of the gain is there with a full cache too (docs/heads.md)."
    changes = "soft tokens stand before the text"

    use_soft_tokens: bool = param(True, help="put the trained soft tokens before the text")

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return (
            missing_reason("compress_then_prompt", spec, "prompt_compression whole_prompt")
            if self.use_soft_tokens
            else None
        )

    def extra_entries(self, decoder: Decoder) -> int:
        return sum(len(x.rows) for x in self._soft_tokens(decoder))

    def vectors(self, reading: UnreadPrompt) -> Sequence[ExtraEmbeds]:
        return self._soft_tokens(reading.decoder)

    def _soft_tokens(self, decoder: Decoder) -> Sequence[ExtraEmbeds]:
        """The soft tokens, if they are enabled."""
        if not self.use_soft_tokens:
            return ()
        return [
            ExtraEmbeds(
                cast(SoftPrompt, decoder.heads["compress_then_prompt"]).embeds.detach(),
                "soft",
                origin="trained",
            )
        ]
