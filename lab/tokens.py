"""Tokens as text in Python's views: the same symbols as in web/scope/tokens.js, and none of it markup."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Mapping

from ..engine.trace.events import Piece

_SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\x7f": "␡"}
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}


def shown(piece: Piece | None, most: int = 40) -> str:
    """A piece with white space, controls and bidi marks made visible, bytes as `⟨E2 82⟩`; at most `most` characters."""
    if piece is None:
        return "⟨?⟩"
    if not isinstance(piece, str):
        return f"⟨{' '.join(piece).upper()}⟩"
    made = "".join(_visible(char) for char in piece[:most])
    if made and unicodedata.category(piece[0]).startswith("M"):
        made = "◌" + made
    return made + "…" if len(piece) > most else made


def shown_id(token: int, pieces: Mapping[int, Piece], most: int = 40) -> str:
    """The piece of `token`, or `#7` where the trace does not show it."""
    return shown(pieces[token], most) if token in pieces else f"#{token}"


def escaped(text: object) -> str:
    """`text` as content or quoted attribute of HTML."""
    return html.escape(str(text), quote=True)


def _visible(char: str) -> str:
    if char in _SIGNS:
        return _SIGNS[char]
    if ord(char) < 0x20:
        return chr(0x2400 + ord(char))
    return f"‹U+{ord(char):04X}›" if unicodedata.category(char) in _HIDDEN else char
