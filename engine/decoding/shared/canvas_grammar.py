"""Grammatical: a canvas that stays such that a text of a grammar can be made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.trace.details.veto import Veto
from decodescope.engine.trace.values.grammar import OPEN, PLACES, Language, parse_grammar

from ..bases.state import State


@dataclass
class CanvasGrammar:
    """A grammar's constraints on the passes over one canvas.

    language: the canvases that it allows;  start: position of the first place;  recorded: True if a record has its terminals
    vetoes: of the present pass;  witness: a text that the canvas can still become
    """

    language: Language
    start: int
    recorded: bool
    vetoes: list[Veto]
    witness: list[int]

    @classmethod
    def create(cls, s: State, text: str, places: int) -> CanvasGrammar:
        """Create it for an open canvas of `places` places. Raises EngineFault if no text of the grammar fits into it."""
        read, decoder = parse_grammar(text), s.target.decoder
        if places > PLACES:
            raise EngineFault(
                "bad_input",
                f"A canvas with a grammar has at most {PLACES} places, not {places}: lower max_new_tokens.",
            )
        if s.stop.texts:
            raise EngineFault(
                "bad_input",
                "A grammar's text ends at a token, not at a text: leave the texts to stop at out.",
            )
        ids: list[list[int]] = [[] for _ in read.names]
        for token in range(decoder.vocab):
            if token == decoder.spec.mask_token:
                continue
            piece = str(token) if s.piece is None else s.piece(token)
            if isinstance(piece, str):
                for t in read.matching_terminals(piece):
                    ids[t].append(token)
        language = Language(read, ids, s.stop.tokens)
        witness = language.witness([OPEN] * places)
        if witness is None:
            raise EngineFault(
                "bad_input",
                f"No text of the grammar fits into {places} tokens of {decoder.spec.name}, each a string or pattern of it: "
                "raise max_new_tokens, or write another grammar.",
            )
        return cls(language, len(s.tokens), False, [], witness)

    def allowed_tokens(
        self, canvas: Sequence[int], places: Sequence[int], vocab: int, device: torch.device | str
    ) -> Tensor:
        """bool [O, V]: what each of the open positions may get so that the canvas still fits."""
        return torch.from_numpy(
            self.language.allowed_tokens(canvas, [x - self.start for x in places], vocab)
        ).to(device)

    def refuse(self, canvas: Sequence[int], order: Sequence[tuple[int, int]]) -> list[int]:
        """Of (position, token), to be settled in this order, those by number that must not be; the vetoes are noted, and what
        the canvas can become with the others."""
        refused = self.language.joint_conflicts(
            canvas, [(place - self.start, token) for place, token in order]
        )
        whole = list(canvas)
        for i, (place, token) in enumerate(order):
            if i in refused:
                self.vetoes.append(Veto(place, token, together=True))
            else:
                whole[place - self.start] = token
        witness = self.language.witness(whole)
        assert witness is not None, "the first of them fits, and each that was kept"
        self.witness = witness
        return refused

    def take_terminals(self) -> dict[str, list[int]] | None:
        """The terminals for a record: all of them in the canvas's first record, then None."""
        recorded, self.recorded = self.recorded, True
        names = self.language.grammar.names
        return None if recorded else dict(zip(names, self.language.terminals, strict=True))
