"""The program that tries and uses a tokenizer.json of others, in a helper process. It imports nothing of ours.

A tokenizer.json says how the tokenizers library changes and cuts a text, in steps that can multiply the text or search it
without end. The library cannot be interrupted, and holds Python's lock meanwhile.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import tokenizers

SIZES = (1, 256, 1024, 4096, 16384)  # bytes of the texts of a trial
TEXT_SECONDS = 1.0  # of processor time for the longest of them; shorter ones may take their share
IDS_A_BYTE = 64  # the most that a byte of text may become, and
IDS_MORE = 4096  # what may be added to any text
LETTERS = 8  # letters and tokens of the vocabulary that are tried
MARKS = 4  # added tokens that are tried
LOADED = 3  # tokenizers that stay loaded
SCRIPTS = (
    "Straße Ελλάδα Россия ישראל العربية हिन्दी ไทย 한국어 日本語 中文 \ufdfa \ufb03 e\u0301\u0323 \U0001f469\u200d\U0001f467 "
    "\U0001f1e9\U0001f1ea ½ \u2167 \uff41\uff42 \u0130\u00a0\u200b\u3000 \r\n\t"
)
WORDS = "It's one of 12,345 words: don't (stop), x_1 = f(a.b[0]) // 3.14e-5\n\n    return \"done\";\n"

_loaded: dict[str, tokenizers.Tokenizer] = {}


def build_tokenizer(spec: str) -> tokenizers.Tokenizer:
    """The library's tokenizer, which neither pads nor cuts."""
    tokenizer = tokenizers.Tokenizer.from_str(spec)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def repeated_units(table: dict[str, Any], marks: list[str]) -> list[str]:
    """What texts of a trial repeat: words, letters of all scripts, letters and tokens of the vocabulary, marks."""
    vocab = (table.get("model") or {}).get("vocab") or []
    tokens = sorted({x if isinstance(x, str) else str(x[0]) for x in vocab})
    some = tokens[:: max(1, len(tokens) // LETTERS)][:LETTERS]
    letters = [x[:1] for x in some] + [x[-1:] for x in some]
    longest = [max(tokens, key=len)] if tokens else []
    units = [WORDS, SCRIPTS, "a", "0", " ", "\n", "é", "\U0001f642", *letters, *longest, *marks]
    return [*dict.fromkeys(x for x in units if x)]


def repeat_unit(unit: str) -> Iterator[str]:
    """Texts of `unit` alone, from short to long; another letter follows those of one letter."""
    width = len(unit.encode("utf-8", "replace"))
    for size in SIZES:
        if size == 1 or size >= width:
            text = unit * max(1, size // width)
            yield text if len(unit) > 1 else text + "!"


def try_spec(spec: str) -> dict[str, str]:
    """{"refused": why, or nothing}; {"damaged": ...} if the library cannot read it."""
    try:
        table = json.loads(spec)
        tokenizer = build_tokenizer(spec)
    except MemoryError:
        raise
    except BaseException as error:  # the library raises bare Exception, and lets its panics through
        return {"damaged": type(error).__name__}
    tokenizer.get_vocab(with_added_tokens=True)
    marks = [x["content"] for x in table.get("added_tokens") or []][:MARKS]
    for special in (False, True):
        if why := _measure(tokenizer, "a", special)[1]:
            return {"refused": why}
    for unit in repeated_units(table, marks):
        for marks_are_text in (True, False) if unit in marks else (True,):
            tokenizer.encode_special_tokens = marks_are_text
            for text in repeat_unit(unit):
                took, why = _measure(tokenizer, text, False)
                if why:
                    return {"refused": why}
                if len(text) >= SIZES[-2] and took * 64 < TEXT_SECONDS:
                    break  # four times as much text takes less than the limit, even if time grows with the cube
    return {"refused": ""}


def _measure(tokenizer: tokenizers.Tokenizer, text: str, special: bool) -> tuple[float, str]:
    """Processor seconds of a text, and why it takes too much; nothing if it does not."""
    begun = time.process_time()
    try:
        ids = len(tokenizer.encode(text, add_special_tokens=special).ids)
    except MemoryError:
        raise
    except BaseException:  # a text that the library gives up on is refused when it is a prompt
        ids = 0
    took = time.process_time() - begun
    if took > TEXT_SECONDS * max(0.25, len(text) / SIZES[-1]):
        much = f"{took:.2f} seconds of processor time for {_count_bytes(text)} bytes of text"
        return took, f"it took {much}, more than the limit of {TEXT_SECONDS:g} for {SIZES[-1]} bytes"
    return took, _growth_problem(text, ids)


def _growth_problem(text: str, ids: int) -> str:
    """Why these are too many tokens for a text; nothing if they are not."""
    most = IDS_A_BYTE * _count_bytes(text) + IDS_MORE
    result = f"it made {ids} tokens of {_count_bytes(text)} bytes of text"
    return f"{result}, more than the limit of {most}" if ids > most else ""


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def encode_text(job: dict[str, Any]) -> dict[str, Any]:
    """{"ids", "offsets"} of a text; {"lacks": true} if the spec must be sent as well; {"failed": why}."""
    key, text = job["key"], job["text"]
    if key not in _loaded:
        if "spec" not in job:
            return {"lacks": True}
        while len(_loaded) >= LOADED:
            del _loaded[next(iter(_loaded))]
        _loaded[key] = build_tokenizer(job["spec"])
    _loaded[key].encode_special_tokens = job["marks_are_text"]
    try:
        encoding = _loaded[key].encode(text, add_special_tokens=False)
    except MemoryError:
        raise
    except BaseException as error:  # a panic of the library is no Exception
        return {"failed": str(error)[:80]}
    ids = encoding.ids
    if why := _growth_problem(text, len(ids)):
        return {"failed": why}
    return {"ids": ids, "offsets": encoding.offsets if job["offsets"] else []}


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """A trial of job["try"], or a text in tokens."""
    return try_spec(job["try"]) if "try" in job else encode_text(job)
