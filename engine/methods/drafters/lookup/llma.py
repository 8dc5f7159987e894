"""LLMA: draft by copying from a reference text, where the last tokens of the answer occur in it."""

from __future__ import annotations

from typing import Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import Draft

from ..shared.copy_note import COPIED
from ..shared.ngrams import SuffixIndex

LONGEST = 1 << 18  # characters of a reference: in UTF-8 at most 1 MiB, the limit of one text in a trace


@component
class LLMA(Drafter):
    """Search a reference for the last n tokens of the answer, from n = `ngram` down to n = `min_ngram`.

    At the first place of the reference with the longest match, propose the tokens that follow.

    Only the answer is matched, never the prompt, so the first step drafts nothing. A place with nothing behind it does not
    count. The reference is given as text, not as a path, because a page must open no files of its machine. Without one, the
    prompt is the reference. The target's tokenizer reads it once, in O(tokens * ngram). After that a step costs `ngram` table
    look-ups and no pass of any model. The draft is chosen without chance: lossless under any sampler. The paper's copy length k
    counts the target's own token too, so k = 20 is `max_draft_tokens` 19 here.
    """

    title = "Inference with reference (LLMA)"
    source = "Yang et al. 2023, arXiv:2304.04487; microsoft/LMOps, llma/src/decode.py"
    looks_up = True
    tells: ClassVar[dict[str, Note]] = {
        "document": Note("set", "copied from", what="the text given, or the prompt"),
        "offset": Note("series", "from", "position", "in that text"),
        "ngram": Note(
            "series", "n", "tokens", "length of the end of the answer that stands there", line="ngram"
        ),
        "matches": Note("series", "matches", "places", "where it stands"),
        "copied": COPIED,
    }

    max_draft_tokens: int = param(19, low=1, high=255, unit="tokens", help="maximum length of a draft")
    ngram: int = param(
        5, low=1, high=8, unit="tokens", help="longest suffix of the answer to search for in the reference"
    )
    min_ngram: int = param(
        1, low=1, high=8, unit="tokens", help="shortest suffix of the answer to search for in the reference"
    )
    reference: str = param("", lines=True, most=LONGEST, help="text to copy from; empty: the prompt")

    @property
    def reads_text(self) -> bool:
        return bool(self.reference)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.min_ngram > self.ngram:
            above = f"llma.min_ngram = {self.min_ngram} is above llma.ngram = {self.ngram}"
            return f"{above}, so nothing matches; lower min_ngram."
        return None

    def begin(self, ctx: Context) -> None:
        self._text = ctx.tokens[: ctx.prompt]
        if self.reference:
            assert ctx.encode is not None
            vocab = ctx.target.decoder.vocab
            self._text = [x for x in ctx.encode(self.reference) if x < vocab]
        self._index = SuffixIndex(self.ngram)
        self._index.extend(self._text[:-1])  # what ends at the end of the reference has no follower

    def propose(self, ctx: Context) -> Draft:
        answer = ctx.tokens[max(ctx.prompt, len(ctx.tokens) - self.ngram) :]
        for n in range(len(answer), self.min_ngram - 1, -1):
            ends = self._index.ends(answer[-n:])
            if ends:
                copied = self._text[ends[0] : ends[0] + min(self.max_draft_tokens, ctx.room)]
                where = "reference" if self.reference else "prompt"
                notes: dict[str, Any] = {
                    "document": where,
                    "offset": ends[0],
                    "ngram": n,
                    "matches": len(ends),
                }
                if not self.reference:
                    notes["copied"] = [*range(ends[0], ends[0] + len(copied))]
                return Draft.chain(copied, source=f"copied from the {where}", notes=notes)
        return Draft()
