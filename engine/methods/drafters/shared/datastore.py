"""Datastore: a body of text as token ids in a suffix array, made from a file or from the text that comes with the package."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from decodescope.engine.core.files import locate_file
from decodescope.engine.core.params import ParamError

from .suffix_array import SuffixArray

# 240 KB of stories, talks and tasks made by rule, as the shipped models were trained on: training/datastore.py makes
# the file. Nothing that a model wrote is in it, a draft from there would be the answer itself, and no question of the bench.
SHIPPED = Path(__file__).resolve().parents[4] / "assets" / "datastore.txt"
BETWEEN = "\n\f\n"  # between its documents
LARGEST = 16 << 20  # bytes of a file
HELP = "text file to search, at most 16 MiB; empty: the file shipped with the package"


def load_datastore(path: str, encode: Callable[[str], list[int]] | None, vocab: int) -> SuffixArray:
    """The suffix array of the text file that `path` names, of SHIPPED if that is empty; the last few are kept.

    encode: text -> ids; None: the file holds ids, and without a file there are none. What the model has no id for (vocab and
    above) parts the text there. Raises FileRefusal if there is no such file, ParamError if it cannot serve.
    """
    if not path:
        return SuffixArray([]) if encode is None else _build_suffix_array(None, 0, 0, encode, vocab)
    file = locate_file(path, LARGEST)
    stat = file.stat()
    return _build_suffix_array(file, stat.st_size, stat.st_mtime_ns, encode, vocab)


@lru_cache(maxsize=4)
def _build_suffix_array(
    file: Path | None, size: int, changed: int, encode: Callable[[str], list[int]] | None, vocab: int
) -> SuffixArray:
    """The suffix array of `file` (None: the shipped text); `size` and `changed` key the cache."""
    parts: list[np.ndarray] = []
    for text in [file.read_text("utf-8")] if file else shipped_texts():
        ids = _parse_ids(text, str(file)) if encode is None else np.array(encode(text), dtype=np.int64)
        parts += [np.where((ids >= 0) & (ids < vocab), ids, -1), np.array([-1])]
    return SuffixArray(np.concatenate(parts))


def _parse_ids(text: str, name: str) -> np.ndarray:
    try:
        return np.array([int(x) for x in text.split()], dtype=np.int64)
    except (ValueError, OverflowError):
        raise ParamError(
            f"the datastore {name!r} is no list of ids: for a model without a tokenizer write ids with blanks between them."
        ) from None


def shipped_texts() -> list[str]:
    """The documents of SHIPPED."""
    return SHIPPED.read_text("utf-8").split(BETWEEN)
