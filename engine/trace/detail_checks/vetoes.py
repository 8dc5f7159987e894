"""Vetoes derived again: what a grammar left of a canvas at each pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..details.canvas_fill import confidence_of, recorded_mask
from ..details.shapes import CanvasDetail
from ..details.veto import commit_order
from ..records.events import Header
from ..values.grammar import OPEN, PLACES, GrammarError, Language, parse_grammar

_VOCAB = 1 << 22  # ids of the largest vocabulary that is looked at


class VetoValidator:
    """Follows a canvas under a grammar. The header's strategy names the grammar, and the first fill lists its tokens."""

    def __init__(self, header: Header):
        self._header = header
        self._language: Language | None = None

    def problems(self, fill: CanvasDetail, before: Sequence[int], text: Any) -> Iterator[str]:
        """Problems of the vetoes of a fill, a phrase each. before: the canvas before the pass, OPEN where no token is;
        text: the grammar, or nothing."""
        if not isinstance(text, str) or not text.strip():
            if fill.vetoes is not None or fill.witness is not None:
                yield "it records a grammar, and its strategy has none"
            return
        if fill.vetoes is None or fill.witness is None or fill.length > PLACES:
            yield f"it lacks what its grammar refused, or a witness, or has more than {PLACES} places"
            return
        if fill.terminals is not None:
            try:
                read = parse_grammar(text)
            except GrammarError as error:
                yield f"its grammar cannot be read ({error})"
                return
            if [*fill.terminals] != read.names:
                yield f"its terminals are {[*fill.terminals][:8]}, and those of the grammar {read.names[:8]}"
                return
            self._language = Language(read, [*fill.terminals.values()], self._header.stop_tokens)
        if self._language is None:
            yield "it does not say which tokens are the grammar's terminals"
            return
        yield from self._check_single_vetoes(fill, [*before], self._language)
        yield from _check_joint_vetoes(fill, [*before], self._language)
        yield from _check_witness(fill, [*before], self._language)

    def _check_single_vetoes(
        self, fill: CanvasDetail, canvas: list[int], language: Language
    ) -> Iterator[str]:
        """Candidates fit, each alone, and what was refused alone does not."""
        tried = fill.explored_index
        if fill.explored is not None and tried is not None:
            canvas[fill.explored.place - fill.start] = int(fill.candidate[tried])
        rows = {int(place): i for i, place in enumerate(fill.open) if i != tried}
        vocab = min(_VOCAB, max([int(self._header.model.get("vocab", 0)), *(x + 1 for x in fill.ids)]))
        may = language.allowed_tokens(canvas, [place - fill.start for place in rows], vocab)
        allowed = dict(zip(rows, may, strict=True))
        for place, i in rows.items():
            if not allowed[place][fill.candidate[i]]:
                yield f"its candidate {fill.candidate[i]} at {place} leaves no text of the grammar"
        for veto in fill.vetoes or ():
            if not veto.together and (veto.place not in allowed or allowed[veto.place][veto.token]):
                yield f"it refuses token {veto.token} at {veto.place}, with which there is a text of the grammar"


def _check_joint_vetoes(fill: CanvasDetail, canvas: list[int], language: Language) -> Iterator[str]:
    """Check that exactly those commits were refused that leave no text together with the others."""
    taken = recorded_mask(fill).nonzero()[0].tolist()
    order = commit_order(taken, confidence_of(fill), fill.columns.get("order"), fill.explored_index)
    refused = language.joint_conflicts(
        canvas, [(int(fill.open[i]) - fill.start, int(fill.candidate[i])) for i in order]
    )
    due = {int(fill.open[order[k]]) for k in refused}
    if due != fill.refused_places:
        yield f"it leaves {sorted(fill.refused_places)} open as what does not go together, and {sorted(due)} are due"


def _check_witness(fill: CanvasDetail, canvas: list[int], language: Language) -> Iterator[str]:
    """Check that the witness is a text of the grammar, and that the canvas after the pass can become it."""
    for place, token in zip(fill.places, fill.tokens, strict=True):
        canvas[place - fill.start] = token
    text = fill.witness or []
    ends = len(text) == len(canvas) or (len(text) < len(canvas) and language.may_end(canvas[len(text)]))
    same = all(x in (OPEN, y) for x, y in zip(canvas, text, strict=False))
    words = all(any(x in ids for ids in language.terminals) for x in text)
    if not (ends and same and words and language.fits(text)):
        yield f"its witness {text[:8]} is no text of the grammar that its canvas can become"
