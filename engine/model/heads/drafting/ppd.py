"""PPD's prompt tokens: trained embeddings that the target reads after a token, and where it then guesses later ones."""

from __future__ import annotations

from .slot_tokens import SlotTokens


class PromptTokens(SlotTokens):
    """`heads` prompt tokens of `ensemble` members each, with averaged logits."""

    kind = "ppd"

    def __init__(self, d: int, heads: int, ensemble: int = 1) -> None:
        super().__init__(d, heads, ensemble, ensemble=ensemble)
