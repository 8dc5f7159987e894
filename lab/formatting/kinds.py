"""Kinds: the kind of a token, from its text and the text before it."""

from __future__ import annotations

import keyword
import re

from decodescope.engine.trace.records.events import Piece

KINDS = ("indent", "keyword", "name", "digit", "word start", "inside a word", "punctuation", "special")
LOOKED_AT = 200  # characters before a token that decide whether it is in code
_SPECIAL = re.compile(r"<\|[^<>]*\|>|</?(s|pad|bos|eos|unk)>|<(start|end)_of_turn>")
_CODE = re.compile(r"[(\[{=;]|:\n[ \t]")
_SENTENCE = ".!?:\n"
_QUOTED = " \t\"'\u201c\u201d\u2018\u2019"  # may be between the end of a sentence and the next word


def kind_of(piece: Piece | None, before: str) -> str:
    """One of KINDS for a token with the text `piece` (None: its text is not known) after the text `before`.

    indent: white space alone, line ends included;  special: marks of a template, and tokens without text
    keyword, name: Python's keywords, and all other words of code; elsewhere a name is a word with a capital inside a
    sentence. Code is where the 200 characters before contain one of ( [ { = ; or a colon and an indented line
    inside a word: text directly after a letter, and bytes that are part of a character
    """
    if piece is None or piece == "" or (isinstance(piece, str) and _SPECIAL.fullmatch(piece.strip())):
        return "special"
    if not isinstance(piece, str):
        return "inside a word"
    core = piece.lstrip()
    if not core:
        return "indent"
    if core[0].isdigit():
        return "digit"
    if not _is_word_character(core[0]):
        return "punctuation"
    if core == piece and before and _is_word_character(before[-1]):
        return "inside a word"
    if _CODE.search(before[-LOOKED_AT:]):
        return "keyword" if keyword.iskeyword(core) else "name"
    said = before.rstrip(_QUOTED)
    return (
        "name" if core[0].isupper() and core != "I" and said and said[-1] not in _SENTENCE else "word start"
    )


def _is_word_character(char: str) -> bool:
    return char.isalnum() or char == "_"
