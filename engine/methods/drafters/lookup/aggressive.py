"""Aggressive decoding, guided by the input: draft that the answer continues as the input does."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import Draft

from ..shared.copy_note import COPIED
from ..shared.ngrams import SuffixIndex


@component
class Aggressive(Drafter):
    """Assume that the answer repeats the input from its first token on, and propose the rest of the input from a cursor.

    The cursor moves with every token that agrees. If the target departs, its token is kept and the cursor is lost. Tokens then
    come one by one until the last j of the answer occur at exactly one place of the input, with j as small as possible. The
    cursor continues behind them.

    For answers that mostly repeat their input, as in correcting or simplifying a text. The paper's input is an encoder's; here
    it is the prompt without its first `tokens_before_input` and its last `tokens_after_input` tokens (a span without tokens
    drafts nothing). The paper proposes all the rest and does not limit j. Here `max_draft_tokens` and `ngram` bound them, as 3
    bounds j in the official code. The token at which the target departed may already determine the new place. The paper's
    second half, a drafter that is not autoregressive, is not part of this. The draft is chosen without chance: lossless under
    any sampler. Costs O(ngram) table look-ups per token, no pass of any model.
    """

    title = "Aggressive decoding"
    source = "Ge et al. 2022, arXiv:2205.10350, input-guided; microsoft/unilm, decoding/IAD/inference.py"
    looks_up = True
    tells: ClassVar[dict[str, Note]] = {
        "mode": Note("set", "mode", what="copy: the cursor has its place"),
        "cursor": Note("series", "cursor", "position", "in the prompt, from which is copied"),
        "suffix": Note(
            "series",
            "j",
            "tokens",
            "length of the end of the answer that found the cursor's place",
            line="ngram",
        ),
        "copied": COPIED,
    }

    max_draft_tokens: int = param(32, low=1, high=512, unit="tokens", help="maximum length of a draft")
    ngram: int = param(
        3,
        low=1,
        high=16,
        unit="tokens",
        help="longest suffix of the answer to search for in the input after a mismatch",
    )
    tokens_before_input: int = param(
        0,
        low=0,
        high=1 << 20,
        unit="tokens",
        help="length of the part of the prompt before the input that the answer repeats",
    )
    tokens_after_input: int = param(
        0,
        low=0,
        high=1 << 20,
        unit="tokens",
        help="length of the part of the prompt after the input that the answer repeats",
    )

    def begin(self, ctx: Context) -> None:
        self._input = ctx.tokens[self.tokens_before_input : max(0, ctx.prompt - self.tokens_after_input)]
        self._index = SuffixIndex(self.ngram)
        self._index.extend(self._input)
        self._cursor: int | None = 0
        self._read = ctx.prompt
        self._suffix = 0  # j of the last re-alignment

    def propose(self, ctx: Context) -> Draft:
        for end in range(self._read + 1, len(ctx.tokens) + 1):
            self._cursor = self.follow(ctx.tokens[max(ctx.prompt, end - self.ngram) : end])
        self._read = len(ctx.tokens)
        if self._cursor is None:
            return Draft()
        copied = self._input[self._cursor : self._cursor + min(self.max_draft_tokens, ctx.room)]
        at = self.tokens_before_input + self._cursor
        notes = {
            "mode": "copy",
            "cursor": at,
            "suffix": self._suffix,
            "copied": [*range(at, at + len(copied))],
        }
        return Draft.chain(copied, source="the rest of the input", notes=notes if copied else None)

    def follow(self, answer: list[int]) -> int | None:
        """The cursor after the last token of `answer`, the end of the text so far; None: no place is known."""
        if self._cursor is not None and self._input[self._cursor : self._cursor + 1] == answer[-1:]:
            return self._cursor + 1
        for n in range(1, len(answer) + 1):
            ends = self._index.ends(answer[-n:])
            if len(ends) <= 1:
                self._suffix = n
                return ends[0] if ends else None
        return None
