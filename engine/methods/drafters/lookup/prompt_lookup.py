"""Prompt lookup decoding: draft by copying what followed the same n-gram earlier in the text."""

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
class PromptLookup(Drafter):
    """Find an earlier occurrence of the last n tokens, longest n first, and propose what followed it.

    Costs no pass of any model, and O(ngram) table look-ups per token, however long the text. The draft is chosen without
    chance: lossless under any sampler. The original takes the leftmost match; the latest one usually continues better and is
    the default here. A continuation may be shorter than `max_draft_tokens` and may overlap the suffix.
    """

    title = "Prompt lookup"
    source = "Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding"
    looks_up = True
    copies = True
    tells: ClassVar[dict[str, Note]] = {
        "span": Note("span", "matched", "positions", "the earlier occurrence; what follows it is drafted"),
        "ngram": Note("series", "n", "tokens", "length of the suffix that stood before", line="ngram"),
        "matches": Note("series", "matches", "places", "where the suffix stood before"),
        "copied": COPIED,
    }

    max_draft_tokens: int = param(10, low=1, high=64, unit="tokens", help="maximum length of a draft")
    ngram: int = param(3, low=1, high=8, unit="tokens", help="longest suffix of the text to search for")
    match: str = param(
        "latest", choices=("latest", "first"), help="which earlier occurrence of the suffix to copy from"
    )

    def begin(self, ctx: Context) -> None:
        self._index = SuffixIndex(self.ngram)

    def propose(self, ctx: Context) -> Draft:
        text = ctx.tokens
        self._index.extend(text)
        for n in range(min(self.ngram, len(text) - 1), 0, -1):
            ends = self._index.ends(text[-n:])  # the last of them is the suffix itself
            if len(ends) > 1:
                at = ends[-2] if self.match == "latest" else ends[0]
                copied = text[at : at + min(self.max_draft_tokens, ctx.room)]
                notes = {"span": [at - n, at], "ngram": n, "matches": len(ends) - 1}
                notes["copied"] = [*range(at, at + len(copied))]
                return Draft.chain(copied, source="copied from the text", notes=notes)
        return Draft()
