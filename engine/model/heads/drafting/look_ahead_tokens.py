"""PaSS's look-ahead tokens: trained embeddings after the text, where the target guesses what comes later."""

from __future__ import annotations

from .slot_tokens import SlotTokens


class LookAheadTokensNet(SlotTokens):
    """`heads` look-ahead tokens, each with one embedding, and nothing else that is trained."""

    kind = "look_ahead_tokens"

    def __init__(self, d: int, heads: int) -> None:
        super().__init__(d, heads)
