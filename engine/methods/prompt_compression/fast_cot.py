"""Fast-CoT: a rough preview of the answer, guessed in a few parallel passes, is put into the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.component import component, param
from decodescope.engine.core.roles import TARGET
from decodescope.engine.decoding.bases.prompt_compression import PromptCompression, UnreadPrompt
from decodescope.engine.model.attention.extra_kv import ExtraEmbeds
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed


@component
class FastCoT(PromptCompression):
    """Guess the next `preview_tokens` tokens by a few Jacobi passes, and let the model see the guess while it answers.

    The target reads the prompt. Then `iterations` passes each replace all guesses at once by the target's likeliest tokens
    after the guesses before them, beginning with copies of the first. They stop early at a fixed point, where the preview is
    the greedy answer. What they leave is rough: its first tokens are right, later ones are the model's idea of what is to
    come. The preview enters the prompt before its last `tail_tokens` tokens, and the answer is then written token by token,
    with the preview in view. That changes the answer: the method is lossy. With 0 preview tokens it is plain decoding.

    In the paper the passes that guess go on while the reasoning is written, and a shorter reasoning saves the time. Here the
    preview is made once. It costs a second reading of the prompt and `iterations` passes of `preview_tokens` rows. The
    preview is put in as input vectors: it has entries in the cache, and no tokens in the text, so drafters, samplers and
    policies see the prompt as it was given.
    """

    title = "Fast-CoT (a preview of the answer)"
    source = "Zhang et al. 2023, arXiv:2311.08263, section 3 [details recalled]; passes: Santilli et al. 2023, arXiv:2305.10427"
    changes: ClassVar[str] = "a guessed preview of the answer is in the prompt"

    preview_tokens: int = param(
        16, low=0, high=256, unit="tokens", help="length of the preview; 0: no preview, and plain decoding"
    )
    iterations: int = param(
        3,
        low=1,
        high=256,
        unit="passes",
        help="most passes that improve the preview; each replaces all guesses at once",
    )
    tail_tokens: int = param(
        1,
        low=1,
        high=64,
        unit="tokens",
        help="last tokens of the prompt that stay behind the preview, e.g. an answer's cue",
    )

    def extra_entries(self, decoder: Decoder) -> int:
        return self.preview_tokens

    def vectors(self, reading: UnreadPrompt) -> Sequence[ExtraEmbeds]:
        if not self.preview_tokens:
            return ()
        preview, passes = self.guess_preview(reading)
        rows = reading.decoder.embed_rows(Feed.causal_chain(preview, 0, reading.decoder.device))[0]
        at = max(0, len(reading.tokens) - self.tail_tokens)
        return [ExtraEmbeds(rows, "latent", at, f"preview after {passes} passes")]

    @torch.inference_mode()
    def guess_preview(self, reading: UnreadPrompt) -> tuple[list[int], int]:
        """The preview's tokens, and the number of passes that were made for it."""
        with reading.lane(TARGET) as lane:
            first = int(lane.read(reading.tokens, "score", reading.between(TARGET)).argmax())
            preview, passes = [first] * self.preview_tokens, 0
            while passes < self.iterations:
                passes += 1
                lane.forward(Feed.causal_chain(preview, len(reading.tokens), reading.decoder.device), "score")
                improved = [first, *lane.best[:-1]]
                lane.rollback()
                if improved == preview:
                    break
                preview = improved
        return preview, passes

    def idle_reason(self, did: Activity) -> str:
        return "" if self.preview_tokens else f"{self.name} changed nothing: preview_tokens is 0."
