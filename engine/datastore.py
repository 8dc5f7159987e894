"""Datastore: a body of text as token ids in a suffix array, made from a file or from the text of this package."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from .params import ParamError
from .suffix import SuffixArray

PACKAGE = Path(__file__).resolve().parent.parent
# the text that came with the package: the lessons, and what the shipped models were trained on and how. Nothing that a
# model wrote is among it (assets/models/README.md shows some): a draft from there would be the answer itself.
SHIPPED = ("notebooks/*.ipynb", "assets/models/CORPUS.md", "assets/training/*.py")
LEFT_OUT = ("bench.py", "evaluate.py")  # they belong to the measurement of what a method is worth
LARGEST = 16 << 20  # bytes of a file


def unfit(path: str) -> str | None:
    """Why the file cannot be a datastore, in a sentence; None if it can."""
    try:
        file = Path(path).expanduser()
        if not file.is_file():
            return f"there is no file {path[:200]!r}; give the path of a text file, or leave it empty."
        size = file.stat().st_size
        with file.open("rb"):
            pass
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, a home that nobody has
        return f"the file {path[:200]!r} cannot be read; give the path of a text file, or leave it empty."
    if not 0 < size <= LARGEST:
        return f"the file {path!r} has {size} bytes; a datastore must have 1 to {LARGEST}: cut the file."
    return None


def datastore(path: str, encode: Callable[[str], list[int]] | None, vocab: int) -> SuffixArray:
    """The suffix array of the text file at `path`, of the package's own text if that is empty; the last few are kept.

    encode: text -> ids; None: the file holds ids, and without a file there are none. What the model has no id for (vocab and
    above) parts the text there. Raises ParamError if the file cannot serve.
    """
    if not path:
        return SuffixArray([]) if encode is None else _built(None, 0, 0, encode, vocab)
    reason = unfit(path)
    if reason:
        raise ParamError(reason)
    file = Path(path).expanduser().resolve()
    stat = file.stat()
    return _built(file, stat.st_size, stat.st_mtime_ns, encode, vocab)


@lru_cache(maxsize=4)
def _built(file: Path | None, size: int, changed: int, encode: Callable[[str], list[int]] | None, vocab: int) -> SuffixArray:
    """The suffix array of `file` (None: the shipped text); `size` and `changed` key the cache."""
    parts: list[np.ndarray] = []
    for text in [file.read_text("utf-8", "replace")] if file else shipped_texts():
        ids = _numbers(text, str(file)) if encode is None else np.array(encode(text), dtype=np.int64)
        parts += [np.where((ids >= 0) & (ids < vocab), ids, -1), np.array([-1])]
    return SuffixArray(np.concatenate(parts))


def _numbers(text: str, name: str) -> np.ndarray:
    try:
        return np.array([int(x) for x in text.split()], dtype=np.int64)
    except (ValueError, OverflowError):
        raise ParamError(
            f"the datastore {name!r} is no list of ids: for a model without a tokenizer write ids with blanks between them."
        ) from None


def shipped_texts() -> list[str]:
    """The texts that came with the package, each a document: of a notebook, what its cells say."""
    files = [file for pattern in SHIPPED for file in sorted(PACKAGE.glob(pattern)) if file.name not in LEFT_OUT]
    return [_cells(file) if file.suffix == ".ipynb" else file.read_text("utf-8") for file in files]


def _cells(file: Path) -> str:
    return "\n\n".join("".join(cell["source"]) for cell in json.loads(file.read_text("utf-8"))["cells"])
