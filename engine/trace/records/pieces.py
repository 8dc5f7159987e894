"""Pieces: the text of tokens; some tokens are only some bytes of a character."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping

from .events import Piece

_SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\x7f": "␡"}  # the same as in lab/web/scope/shared/tokens.js
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}


def join(ids: Iterable[int], pieces: Mapping[int, Piece]) -> str:
    """The text of `ids`. Neighbouring byte pieces are put together before they are read as UTF-8; bytes that still make
    no character show as U+FFFD, ids without a piece as in `token_label`."""
    return b"".join(_piece_bytes(pieces.get(token, token_label(token, pieces))) for token in ids).decode(
        "utf-8", "replace"
    )


def token_label(token: int, pieces: Mapping[int, Piece]) -> str:
    """One token for a label: its text, `<E2 82>` for bytes that are no text alone, `<#123>` for an unknown id."""
    piece = pieces.get(token)
    if piece is None:
        return f"<#{token}>"
    return piece if isinstance(piece, str) else f"<{' '.join(piece).upper()}>"


def visible_piece(piece: Piece | None, most: int = 40) -> str:
    """A piece with white space, controls and bidi marks made visible, bytes as `⟨E2 82⟩`; at most `most` characters."""
    if piece is None:
        return "⟨?⟩"
    if not isinstance(piece, str):
        return f"⟨{' '.join(piece).upper()}⟩"
    text = "".join(_visible_character(char) for char in piece[:most])
    if text and unicodedata.category(piece[0]).startswith("M"):
        text = "◌" + text
    return text + "…" if len(piece) > most else text


def visible_token(token: int, pieces: Mapping[int, Piece], most: int = 40) -> str:
    """The piece of `token`, or `#7` where the trace does not show it."""
    return visible_piece(pieces[token], most) if token in pieces else f"#{token}"


def _visible_character(char: str) -> str:
    if char in _SIGNS:
        return _SIGNS[char]
    if ord(char) < 0x20:
        return chr(0x2400 + ord(char))
    return f"‹U+{ord(char):04X}›" if unicodedata.category(char) in _HIDDEN else char


def _piece_bytes(piece: Piece) -> bytes:
    return piece.encode("utf-8", "replace") if isinstance(piece, str) else bytes.fromhex("".join(piece))
