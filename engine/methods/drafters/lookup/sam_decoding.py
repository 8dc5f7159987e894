"""SAM decoding: copy where the end of the text has a long match, and let another drafter guess where it has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import Draft

from ..shared.copy_note import COPIED
from ..shared.datastore import LARGEST, load_datastore
from ..shared.inner_drafter import parse_drafter, refuse_files
from ..shared.suffix_array import DEPTH, SuffixArray
from ..shared.suffix_automaton import SuffixAutomaton


@component
class SAMDecoding(Drafter):
    """A suffix automaton of the text beside any drafter that chooses without chance: the longer match decides.

    Before each draft, find the longest end of the text that stood earlier in the text (m tokens), and the longest that the
    datastore holds (s tokens). If max(m, s - `datastore_bias`) is at least `min_match`, draft the tokens that followed there:
    from the text if m is the larger or both are equal. Else draft what `other_drafter` guesses, a trained head or a table.

    Copied is what followed the first occurrence. If that is too close to the end to give a whole draft, the next shorter end of
    the text with an earlier occurrence is taken, as in the official code. Entering a token in the automaton takes amortised
    constant time, and so does following the match. The datastore is searched by a suffix array instead of a second automaton;
    its longest match is the same. Empty, as by default, it has no match.

    In a step that copies, the other drafter drafts nothing, but still reads what was accepted, so that its state stays the
    text's. The authors' drafters are `token_recycling`, `eagle` and `eagle2`. Their 40 tokens count the root. The draft is
    chosen without chance: lossless under any sampler.
    """

    title = "SAM decoding (suffix automaton beside a drafter)"
    source = "Hu et al. 2025, arXiv:2411.10666, section 3; hyx1999/SAM-Decoding, samd/draft.py, samd/sam, commit 18c41f05"
    tells: ClassVar[dict[str, Note]] = {
        "by": Note("set", "drafted by", what="a copy from the text or the datastore, or the other drafter"),
        "match": Note(
            "series", "match", "tokens", "at the text's end that stood before in it", line="min_match"
        ),
        "stored": Note("series", "stored match", "tokens", "at the text's end that stand in the datastore"),
        "copied": COPIED,
    }

    max_draft_tokens: int = param(39, low=1, high=255, unit="tokens", help="maximum length of a copied draft")
    min_match: int = param(
        5, low=1, high=DEPTH, unit="tokens", help="copy if at least this many tokens at the text's end match"
    )
    datastore_bias: int = param(
        5,
        low=0,
        high=DEPTH,
        unit="tokens",
        help="subtracted from a match in the datastore before it is compared",
    )
    datastore: str = param(
        "", file=True, most=LARGEST, help="text file to search as well, at most 16 MiB; empty: only the text"
    )
    other_drafter: str = param(
        "token_recycling nodes=24",
        help="drafter for steps without a long match, with its knobs, e.g. 'eagle2 nodes=24'",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._other_drafter()

    def _other_drafter(self) -> Drafter:
        """A new drafter for the other steps; raises ParamError if there is no such drafter or knob."""
        return parse_drafter(self.other_drafter, "sam_decoding.other_drafter")

    @property
    def branches(self) -> bool:
        return self._other_drafter().branches

    @property
    def largest_draft(self) -> tuple[int, int] | None:
        other = self._other_drafter().largest_draft
        return None if other is None else tuple(max(self.max_draft_tokens, x) for x in other)  # type: ignore[return-value] # two

    @property
    def reads_text(self) -> bool:
        return self._other_drafter().reads_text

    def pass_needs(self, spec: ModelSpec, heads: Mapping[str, Any]) -> Needs:
        return self._other_drafter().pass_needs(spec, heads)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        other = self._other_drafter()
        if other.proposes != "onehot" or other.lanes or other.resumes or other.name == self.name:
            return (
                f"sam_decoding.other_drafter = {self.other_drafter!r}: {other.name}, as set, does not choose without chance "
                "and without a draft model or the target's first layers; choose token_recycling, prompt_lookup, medusa, hydra "
                "or eagle2."
            )
        if reason := refuse_files(other, self.other_drafter, "sam_decoding.other_drafter"):
            return reason
        return other.refuse(method, spec)

    def begin(self, ctx: Context) -> None:
        vocab = ctx.target.decoder.vocab
        self._stored = (
            load_datastore(self.datastore, ctx.encode, vocab) if self.datastore else SuffixArray([])
        )
        self._text = SuffixAutomaton()
        self._other = self._other_drafter()
        self._other.begin(ctx)

    def propose(self, ctx: Context) -> Draft:
        self._text.extend(ctx.tokens)
        match = self._text.match
        stored, low, high = self._stored.find_longest(ctx.tokens, DEPTH)
        lengths = {"match": match, "stored": stored}
        if max(match, stored - self.datastore_bias) < self.min_match:
            draft = self._other.propose(ctx)
            draft.notes = {"by": self._other.name, **lengths} if draft.tokens else None
            return draft
        self._other.propose(replace(ctx, room=0))  # it reads what was accepted, and drafts nothing
        length = min(self.max_draft_tokens, ctx.room)
        if match >= stored - self.datastore_bias:
            at = self._text.place(length)
            copied = ctx.tokens[at : at + length]
            notes = {"by": "text", **lengths, "copied": [*range(at, at + len(copied))]}
            return Draft.chain(copied, source="copied from the text", notes=notes if copied else None)
        rows = self._stored.windows(self._stored.order[low:high].min(keepdims=True), stored, length)[0]
        copied = rows[rows >= 0].tolist()
        return Draft.chain(
            copied, source="datastore", notes={"by": "datastore", **lengths} if copied else None
        )

    def observe(self, outcome: DraftOutcome) -> None:
        self._other.observe(outcome)
