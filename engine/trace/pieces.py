"""Pieces: the text that tokens stand for, some of which are only bytes of a character."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .events import Piece


def join(ids: Iterable[int], pieces: Mapping[int, Piece]) -> str:
    """The text of `ids`. Neighbouring byte pieces are put together before they are read as UTF-8; bytes that still make
    no character show as U+FFFD, ids without a piece as in `label`."""
    return b"".join(_bytes(pieces.get(token, label(token, pieces))) for token in ids).decode("utf-8", "replace")


def label(token: int, pieces: Mapping[int, Piece]) -> str:
    """One token for a label: its text, `<E2 82>` for bytes that are no text alone, `<#123>` for an unknown id."""
    piece = pieces.get(token)
    if piece is None:
        return f"<#{token}>"
    return piece if isinstance(piece, str) else f"<{' '.join(piece).upper()}>"


def _bytes(piece: Piece) -> bytes:
    return piece.encode("utf-8", "replace") if isinstance(piece, str) else bytes.fromhex("".join(piece))
