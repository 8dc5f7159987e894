"""Units of a prompt: its sentences and phrases, as runs of whole tokens, and the tokens that always stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import regex

from decodescope.engine.core.component import param
from decodescope.engine.decoding.bases.prompt_compression import UnreadPrompt
from decodescope.engine.trace.records.events import Cut, Piece
from decodescope.engine.trace.records.prompt_cut import shorten

FUNCTION = (
    "a an the this that these those of in on at to for from by with about into over under and or but nor so as if than when "
    "where which who whom whose what is are was were be been being has have had do does did will would can could may must not "
    "it its he she they his her their you your we our i my"
)
_SENTENCE = regex.compile(
    r"(?V1)[.!?]+[\"'\u201d\u2019)\]]*(?:\s*\n+|(?=\s|[\p{Han}\p{Hiragana}\p{Katakana}]))|\n+"
    r"|[[\p{Sentence_Break=STerm}\p{Sentence_Break=ATerm}]--\p{ASCII}]+\p{Sentence_Break=Close}*(?:\s*\n+)?"
)  # writing without spaces ends sentences without one
_PARAGRAPH = regex.compile(r"\n[ \t]*\n+")
_COMMA = regex.compile(r"(?V1)[,;:)](?=\s)|[\p{Terminal_Punctuation}--\p{ASCII}]")
_WORDS = regex.compile(rf"\s(?:(?:{FUNCTION.replace(' ', '|')})\b[ \t]?)+", regex.IGNORECASE)
_CHARACTER = regex.compile(r"\X")  # as a reader sees it: a letter with its accents, an emoji of several parts


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

    pieces: the text of each token, empty for a mark; of a part of a character U+FFFD;  marks: bool [n]
    characters: the first token of each character, or of each run of characters that share tokens; a mark is one
    unforetold: True if nothing precedes the first token
    """

    def __init__(self, reading: UnreadPrompt):
        piece = reading.piece
        self.known, self.n = piece is not None, len(reading.tokens)
        self.unforetold = not reading.front
        self.marks = np.array([token in reading.marks for token in reading.tokens], bool)
        said = [] if piece is None else [piece(token) for token in reading.tokens]
        self.pieces = ["" if mark else _piece_text(x) for x, mark in zip(said, self.marks, strict=False)]
        raw = [b"" if mark else _piece_bytes(x) for x, mark in zip(said, self.marks, strict=False)]
        self._text = b"".join(raw).decode("utf-8", "surrogateescape")
        self._byte_at = np.cumsum([0, *map(len, raw)])[:-1]
        self._char_at = np.cumsum([0, *map(_byte_length, self._text)])
        self.characters = self._character_starts() if self.known else [*range(self.n)]

    def _character_starts(self) -> list[int]:
        """The tokens that begin where a character begins, and marks."""
        borders = self._char_at[[0, *(x.end() for x in _CHARACTER.finditer(self._text))]]
        whole = np.isin(self._byte_at, borders) | self.marks
        whole[:1] = True
        whole[1:] |= self.marks[:-1]
        return np.flatnonzero(whole).tolist()

    def unit_starts(self, unit: str) -> list[int]:
        """The first token of each unit ("token", "phrase", "sentence" or "paragraph"), from 0 on.

        A mark is a separate unit. A token is never split: a token with a boundary inside belongs to the unit before it. Nor is
        a character: the tokens that it consists of belong to one unit.
        """
        if unit == "token":
            return self.characters
        if not self.known:
            return [0]
        ends = [x.end() for x in (_PARAGRAPH if unit == "paragraph" else _SENTENCE).finditer(self._text)]
        if unit == "phrase":
            ends += [x.end() for x in _COMMA.finditer(self._text)]
            ends += [x.start() for x in _WORDS.finditer(self._text)]
        places = set(np.searchsorted(self._byte_at, self._char_at[ends], "left").tolist()) if ends else set()
        beside = {at + x for at in np.flatnonzero(self.marks).tolist() for x in (0, 1)}
        firsts = np.array(self.characters)
        at = np.searchsorted(firsts, sorted(x for x in places | beside if x < self.n), "left")
        return sorted({0, *firsts[at[at < len(firsts)]].tolist()})

    def keep_characters_whole(self, chosen: np.ndarray) -> np.ndarray:
        """bool [n]: the tokens of `chosen` (bool [n]) and all others of their characters."""
        sizes = np.diff([*self.characters, self.n])
        return np.repeat(np.logical_or.reduceat(chosen, self.characters), sizes)

    def shorten_by_character(self, scores: np.ndarray, stays: np.ndarray, budget: int, **more: Any) -> Cut:
        """The cut by the scores [n] of tokens, which takes or leaves all tokens of a character: their mean counts. `stays`,
        `budget`, `more`: as for `shorten`."""
        if len(self.characters) == self.n:
            return shorten(scores, stays, budget, **more)
        return shorten(
            scores,
            self.keep_characters_whole(stays),
            budget,
            unit="character",
            units=np.array(self.characters, np.int32),
            worth=unit_scores(scores, self.characters, "mean"),
            **more,
        )

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
        return self.keep_characters_whole(stays)

    def has_word(self, start: int, stop: int) -> bool:
        """Whether these tokens contain a word."""
        if not self.known:
            return False
        first, behind = np.searchsorted(self._char_at, [self._byte_at[start], self._byte_end(stop)], "left")
        return any(x.isalnum() for x in self._text[first:behind])

    def _byte_end(self, stop: int) -> int:
        """The byte behind the token before `stop`."""
        return int(self._byte_at[stop] if stop < self.n else self._char_at[-1])


def _piece_text(piece: Piece) -> str:
    """The text of a token's piece; U+FFFD for bytes that are no text alone."""
    return piece if isinstance(piece, str) else "\ufffd"


def _piece_bytes(piece: Piece) -> bytes:
    """The bytes of a token's piece: a text, or the hex codes of bytes that are no text alone."""
    return piece.encode() if isinstance(piece, str) else bytes(int(x, 16) for x in piece)


def _byte_length(character: str) -> int:
    """The bytes of a character; an escaped byte is one."""
    return len(character.encode("utf-8", "surrogateescape"))


def unit_scores(scores: np.ndarray, starts: list[int], by: str) -> np.ndarray:
    """float32 [u]: the score of each unit, from the scores [n] of its tokens."""
    total = np.add.reduceat(scores.astype(np.float64), starts)
    return (total / np.diff([*starts, len(scores)]) if by == "mean" else total).astype(np.float32)


def tokens_to_read(stays: np.ndarray, share: float) -> int:
    """The number of tokens to read: those that stay, and the others except a `share` of them, rounded down."""
    free = int((~stays).sum())
    return len(stays) - int(share * free + 1e-9)  # 0.29 * 100 is 29, despite float rounding
