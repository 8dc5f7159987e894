"""What trials of files in a helper process found, kept in the user's own data folder by the hash of what was tried."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from decodescope.engine.core.files import data_folder, write_json

KEPT = 1000  # answers of one kind; above it the oldest go
ANSWER_BYTES = 1 << 16

Answer = dict[str, str | bool]


def answers_folder() -> Path:
    """The folder of the answers. Not created here."""
    return data_folder() / "trials"


def hash_texts(*parts: str) -> str:
    """The hash of some texts, in their order."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def read_answer(kind: str, key: str) -> Answer | None:
    """What a trial of this kind found for `key`; None if there was none, or if its file cannot be read."""
    return _read_file(_answer_path(kind, key))


def store_answer(kind: str, key: str, answer: Answer) -> None:
    """Keep an answer. A folder that cannot be written keeps none, and the next trial is made again."""
    _read_file.cache_clear()
    path = _answer_path(kind, key)
    with suppress(OSError):
        write_json(path, answer)
        others = list(path.parent.iterdir())
        if len(others) > KEPT:
            others.sort(key=lambda x: x.stat().st_mtime)
            for old in others[: len(others) - KEPT]:
                old.unlink(missing_ok=True)


def _answer_path(kind: str, key: str) -> Path:
    return answers_folder() / kind / f"{key}.json"


@lru_cache(maxsize=256)
def _read_file(path: Path) -> Answer | None:
    try:
        if path.stat().st_size > ANSWER_BYTES:
            return None
        answer = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None
