"""Bounds on the work of a tokenizer.json, read off its parts: whether any text, whatever its letters, is encoded in a time and
memory that grow with its length alone.

A trial with some texts (`run_tokenizer.py`) cannot show that: a rule may wait for one word. So the texts of a file with a part
that is not known here are encoded in a helper process.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar

from .gguf.tokenizer import PRE

T = TypeVar("T")

MOST_GROWTH = 64.0  # letters that one letter may become in all steps of a normalizer
MOST_STEPS = 32
MOST_PART = 64  # letters of a text that a step inserts
MOST_WORD = 256  # letters of a word that WordPiece searches, in a time of their cube; BERT has 100
MOST_PIECE = 256  # letters of a piece of a Unigram model, which are tried at every letter of a text

_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SIGN, _SPACES = r"[^\r\n\p{L}\p{N}]?", r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
# Patterns of published tokenizers, besides those of GGUF files: none goes back and forth over a text.
KNOWN_PATTERNS = frozenset(
    {
        *(pattern for words in PRE.values() for pattern in words.patterns),
        *(rf"{_ENDINGS}|{_SIGN}\p{{L}}+|{digits}|{_SIGNS}|{_SPACES}" for digits in (r"\p{N}", r"\p{N}{1,3}")),
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        *(
            rf"{_SIGN}{_UPPER}*{_LOWER}+{end}|{_SIGN}{_UPPER}+{_LOWER}*{end}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
            for end in ("", f"{_ENDINGS}?")
            for digits in (r"\p{N}", r"\p{N}{1,3}")
        ),
        r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",  # CLIP
        r"'(?:[sdmtSDMT]|ll|ve|re)(?!\p{L})|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+[^\S\r\n]*|"
        r"\s+(?!\S)|\s+",  # the shipped models
        r"@[0-7],[0-7]|[\s\S]",  # the shipped models of digits
        *(
            r"\s+",
            " +",
            " {2,}",
            r"\A +| +\z",
            r"\d",
            r"\d{1,3}",
            r"[0-9]",
            r"\p{Han}",
            r"\s",
            "\n",
            r"[\r\n]",
        ),
    }
)
_NORMALIZERS = {
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Lowercase",
    "Strip",
    "StripAccents",
    "BertNormalizer",
    "Nmt",
    "ByteLevel",
}
_GROWING = {"NFD": 4.0, "NFKC": 18.0, "NFKD": 18.0}  # letters that the decomposition of one has at most
_PRE_TOKENIZERS = {
    *("ByteLevel", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits", "Metaspace"),
    *("CharDelimiterSplit", "UnicodeScripts", "FixedLength"),
}
_POST_PROCESSORS = {"ByteLevel", "BertProcessing", "RobertaProcessing"}


def has_bounded_work(table: dict[str, Any]) -> bool:
    """True if this tokenizer.json holds known parts alone, whose work any text bounds by its length."""
    try:
        return (
            _bounds_normalizer(table.get("normalizer"))
            and _bounds_pre_tokenizer(table.get("pre_tokenizer"))
            and _bounds_model(_field(table, "model", dict))
            and _count_copies(table.get("post_processor")) <= 2
        )
    except (ValueError, RecursionError):
        return False  # of another form than the known ones


def _field(part: Any, name: str, kind: type[T], usual: T | None = None) -> T:
    """A value of a part. Raises ValueError for one of another type, and for one that lacks, unless `usual` takes its place."""
    value = part.get(name, usual) if isinstance(part, dict) else None
    if not isinstance(value, kind):
        raise ValueError("of another form")
    return value


def _bounds_normalizer(part: Any) -> bool:
    steps, growth = _flatten(part, "normalizers"), 1.0
    for step in steps:
        growth *= _growth(step)
    return len(steps) <= MOST_STEPS and growth <= MOST_GROWTH


def _flatten(part: Any, inner: str) -> list[dict[str, Any]]:
    """The steps of a part, those of its sequences one after the other."""
    if part is None:
        return []
    if _field(part, "type", str) == "Sequence":
        return [step for x in _field(part, inner, list) for step in _flatten(x, inner)]
    return [part]


def _growth(step: dict[str, Any]) -> float:
    """Letters that one letter becomes at most; infinite if that is not known."""
    kind = _field(step, "type", str)
    if kind in _NORMALIZERS:
        return _GROWING.get(kind, 1.0)
    if kind == "Prepend":  # before every text between two marks, so before every letter at worst
        return 1.0 + len(_field(step, "prepend", str))
    if kind == "Precompiled":
        return float(_longest_replacement(_field(step, "precompiled_charsmap", str)))
    if kind == "Replace" and _is_known(step):
        content, pattern = _field(step, "content", str), _field(step, "pattern", dict)
        length = len(_field(pattern, "String", str, "x"))
        return max(1.0, len(content) / length) if len(content) <= MOST_PART else float("inf")
    return float("inf")


def _is_known(step: dict[str, Any]) -> bool:
    """True if a step looks for a text that is not empty, or for a regular expression of a published tokenizer."""
    pattern = _field(step, "pattern", dict)
    if "String" in pattern:
        return len(_field(pattern, "String", str)) > 0
    return _field(pattern, "Regex", str) in KNOWN_PATTERNS


def _longest_replacement(charsmap: str) -> int:
    """Letters of the longest text in a map of characters of SentencePiece: a table, and texts that end with a zero byte."""
    try:
        data = base64.b64decode(charsmap, validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None
    texts = data[4 + int.from_bytes(data[:4], "little") :]
    return max((len(x.decode("utf-8", "replace")) for x in texts.split(b"\0")), default=0) or 1


def _bounds_pre_tokenizer(part: Any) -> bool:
    steps = _flatten(part, "pretokenizers")
    return len(steps) <= MOST_STEPS and all(
        step["type"] in _PRE_TOKENIZERS or (step["type"] == "Split" and _is_known(step)) for step in steps
    )


def _bounds_model(model: dict[str, Any]) -> bool:
    kind = model.get("type")
    added = ("continuing_subword_prefix", "end_of_word_suffix")
    if any(len(_field({x: model.get(x) or ""}, x, str)) > MOST_PART for x in added):
        return False
    if kind == "WordPiece":
        return _field(model, "max_input_chars_per_word", int, 100) <= MOST_WORD
    if kind == "Unigram":
        pieces = [x[0] for x in _field(model, "vocab", list) if isinstance(x, list) and x]
        return max((len(x) for x in pieces if isinstance(x, str)), default=0) <= MOST_PIECE
    return kind in ("BPE", "WordLevel")


def _count_copies(part: Any) -> int:
    """How often a post-processor writes the text."""
    copies = 1
    for step in _flatten(part, "processors"):
        if step["type"] == "TemplateProcessing":
            copies *= max(1, sum("Sequence" in x for x in _field(step, "single", list)))
        elif step["type"] not in _POST_PROCESSORS:
            raise ValueError("not known")
    return copies
