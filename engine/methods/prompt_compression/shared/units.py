"""Units of a prompt: its sentences and phrases, as runs of whole tokens, and the tokens that always stay."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from decodescope.engine.core.component import param
from decodescope.engine.decoding.bases.prompt_compression import UnreadPrompt

FUNCTION = (
    "a an the this that these those of in on at to for from by with about into over under and or but nor so as if than when "
    "where which who whom whose what is are was were be been being has have had do does did will would can could may must not "
    "it its he she they his her their you your we our i my"
)
_SENTENCE = re.compile(r"[.!?]+[\"'\u201d\u2019)\]]*(?:\s*\n+|(?=\s))|\n+")
_PARAGRAPH = re.compile(r"\n[ \t]*\n+")
_COMMA = re.compile(r"[,;:)](?=\s)")
_WORDS = re.compile(rf"\s(?:(?:{FUNCTION.replace(' ', '|')})\b[ \t]?)+", re.IGNORECASE)


def question_knob() -> Any:
    """The knob for the question's place; `PromptText.protected_mask` applies it."""
    return param(
        "both",
        choices=("both", "end", "start", "none"),
        help="sentence that always stays, as the question: the last, the first, both or none",
    )


class PromptText:
    """A prompt as text: the piece of each token, and the places of its marks.

    Without a tokenizer it is one sentence of tokens.

    pieces: the text of each token, empty for a mark;  marks: bool [n];  unforetold: True if nothing precedes the first token
    """

    def __init__(self, reading: UnreadPrompt):
        piece = reading.piece
        self.known, self.n = piece is not None, len(reading.tokens)
        self.unforetold = not reading.front
        self.marks = np.array([token in reading.marks for token in reading.tokens], bool)
        said = [] if piece is None else [piece(token) for token in reading.tokens]
        texts = [x if isinstance(x, str) else "\ufffd" for x in said]
        self.pieces = ["" if mark else x for x, mark in zip(texts, self.marks, strict=False)]
        self._at = np.cumsum([0, *map(len, self.pieces)])[:-1]
        self._text = "".join(self.pieces)

    def unit_starts(self, unit: str) -> list[int]:
        """The first token of each unit ("token", "phrase", "sentence" or "paragraph"), from 0 on.

        A mark is a separate unit. A token is never split: a token with a boundary inside belongs to the unit before it.
        """
        if unit == "token":
            return [*range(self.n)]
        if not self.known:
            return [0]
        ends = [x.end() for x in (_PARAGRAPH if unit == "paragraph" else _SENTENCE).finditer(self._text)]
        if unit == "phrase":
            ends += [x.end() for x in _COMMA.finditer(self._text)]
            ends += [x.start() for x in _WORDS.finditer(self._text)]
        places = {int(np.searchsorted(self._at, end, "left")) for end in ends}
        beside = {at + x for at in np.flatnonzero(self.marks).tolist() for x in (0, 1)}
        return sorted({0} | {at for at in places | beside if at < self.n})

    def protected_mask(self, question: str) -> np.ndarray:
        """bool [n], the tokens that always stay: marks, the last token, the question, and a first token that nothing predicts.

        A mark includes a blank or line break right behind it. The question is the last sentence with a word, the first one, or
        both.
        """
        stays = self.marks.copy()
        blank = np.array([x.isspace() for x in self.pieces], bool) if self.known else ~stays
        stays[1:] |= self.marks[:-1] & blank[1:]
        stays[-1] = True
        stays[0] |= self.unforetold
        starts = self.unit_starts("sentence") if self.known else [0]
        spans = (
            [x for x in zip(starts, [*starts[1:], self.n], strict=True) if self.has_word(*x)]
            if self.known
            else []
        )
        asks = {"start": spans[:1], "end": spans[-1:], "both": [*spans[:1], *spans[-1:]], "none": []}
        for start, stop in asks[question]:
            stays[start:stop] = True
        return stays

    def has_word(self, start: int, stop: int) -> bool:
        """Whether these tokens contain a word."""
        return any(x.isalnum() for x in "".join(self.pieces[start:stop]))


def unit_scores(scores: np.ndarray, starts: list[int], by: str) -> np.ndarray:
    """float32 [u]: the score of each unit, from the scores [n] of its tokens."""
    total = np.add.reduceat(scores.astype(np.float64), starts)
    return (total / np.diff([*starts, len(scores)]) if by == "mean" else total).astype(np.float32)


def tokens_to_read(stays: np.ndarray, share: float) -> int:
    """The number of tokens to read: those that stay, and the others except a `share` of them, rounded down."""
    free = int((~stays).sum())
    return len(stays) - int(share * free + 1e-9)  # 0.29 * 100 is 29, despite float rounding
