"""Typed marks: texts of special tokens that a user wrote in a message. They stay text, and change no token around them.

The reference is the rendered chat, in which the template's marks are read as marks and only the typed ones as text. So the
text is encoded in one piece, by a tokenizer with secret names for its marks. The template's marks get these names, and a
typed mark matches none of them.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Span = tuple[int, int]
LETTER = "ꀀ"  # has no case, no parts, and means nothing to a normalizer
FREE = range(0xE000, 0xF8FF)  # private characters
BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def strings(value: Any) -> Iterator[str]:
    """All texts in a plain value, the keys of its objects left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for x in value.values() if isinstance(value, dict) else value:
            yield from strings(x)


def map_strings(value: Any, change: Any) -> Any:
    """A plain value with `change` applied to all its texts."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: map_strings(x, change) for key, x in value.items()}
    return [map_strings(x, change) for x in value] if isinstance(value, list) else value


def pattern_of(marks: Iterable[str]) -> re.Pattern[str]:
    """Finds any of these marks, of several at one place the longest."""
    return re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True))) or "(?!)")


@dataclass
class Fence:
    """Two characters around each typed mark while a template runs, so that the mark is found again.

    find: where the marks in a text are, in their order;  marks: the texts of those that were found
    """

    find: Callable[[str], list[Span]]
    begin: str
    end: str
    marks: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, find: Callable[[str], list[Span]], used: str) -> Fence:
        """A fence of characters that are not in `used`."""
        free = (chr(x) for x in FREE if chr(x) not in used)
        return cls(find, next(free), next(free))

    def put(self, value: Any) -> Any:
        """A plain value with a fence around each mark in its texts."""
        return map_strings(value, self._put)

    def _put(self, text: str) -> str:
        spans = self.find(text)
        self.marks |= {text[a:b] for a, b in spans}
        return replace_spans(text, [(a, b, f"{self.begin}{text[a:b]}{self.end}") for a, b in spans])

    def take(self, text: str) -> tuple[str, list[Span]]:
        """The text without its fences, and where the marks between two of them are. A template may have parted some."""
        parts = list[str]()
        spans = list[Span]()
        length = 0
        whole = f"{self.begin}({pattern_of(self.marks).pattern}){self.end}|[{self.begin}{self.end}]"
        for i, part in enumerate(re.split(whole, text)):
            if part is None:  # a fence alone
                continue
            if i % 2:
                spans.append((length, length + len(part)))
            parts.append(part)
            length += len(part)
        return "".join(parts), spans


def merge_spans(spans: Iterable[Span], more: Iterable[Span]) -> list[Span]:
    """These spans in their order, with those of the others that overlap none of them."""
    kept = sorted(spans)
    return sorted([*kept, *((a, b) for a, b in more if not any(a < d and c < b for c, d in kept))])


def mask_spans(text: str, spans: Sequence[Span], free: str) -> str:
    """The text with each of these spans replaced by one of its length in which no mark is found. Its letters stay letters and
    its spaces spaces, since some marks look at their neighbours."""
    return replace_spans(text, [(a, b, "".join(_mask_letter(x, free) for x in text[a:b])) for a, b in spans])


def _mask_letter(letter: str, free: str) -> str:
    if letter.isspace():
        return letter
    if letter.isalnum() or letter == "_":
        return LETTER
    return free


def replace_spans(text: str, spans: Sequence[tuple[int, int, str]]) -> str:
    """The text with each (begin, end) replaced by its own text."""
    pieces, last = [], 0
    for begin, end, other in spans:
        pieces += [text[last:begin], other]
        last = end
    return "".join([*pieces, text[last:]])


def rename_marks(spec: str, marks: Sequence[str]) -> tuple[str, dict[str, str]]:
    """A tokenizer.json in which these added tokens have secret names, and the names: mark -> name.

    A mark that is a piece of the model too is renamed there, and no merge makes it: so no text can become it. Pieces of one
    character and bytes keep their names, because other text needs them.
    """
    table, secret = json.loads(spec), "".join(secrets.choice("bcdfghjk") for _ in range(24))
    letters = {x: "".join("bcdfghjk"[int(d)] for d in oct(i)[2:]) for i, x in enumerate(marks)}
    names = {x: f"{LETTER}{secret}z{letters[x]}{LETTER}" for x in marks}
    for entry in table["added_tokens"]:
        entry["content"] = names.get(entry["content"], entry["content"])
    model, moved = table["model"], {x: names[x] for x in marks if len(x) > 1 and not BYTE.fullmatch(x)}
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {moved.get(x, x): at for x, at in vocab.items()}
    else:
        model["vocab"] = [[moved.get(x, x), score] for x, score in vocab]
    if model.get("unk_token") in moved:
        model["unk_token"] = moved[model["unk_token"]]
    if model.get("merges"):
        pairs = (x.split(" ", 1) if isinstance(x, str) else x for x in model["merges"])
        model["merges"] = [
            [a, b] for a, b in pairs if a not in moved and b not in moved and a + b not in moved
        ]
    table["post_processor"] = None
    return json.dumps(table), names
