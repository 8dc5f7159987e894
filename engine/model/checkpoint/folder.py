"""A model folder: what it may hold, how its small files are read, and how a refusal is worded."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from decodescope.engine.core.refusal import Refusal

CONFIG_BYTES = 4 << 20
TOKENIZER_BYTES = 64 << 20
MOST_FILES = 64  # in a folder inside the folder
HASHED = 64 << 20  # files up to this size are hashed whole, larger ones by their ends and length
EDGE = 1 << 20


class LoadError(Refusal):
    """A model cannot be used. The message is one sentence: what, where, the limit, what to do next.

    Names and values in it come from other people's files, so unprintable characters appear as escapes.
    """

    def __init__(self, message: str):
        super().__init__(escape_unprintable(message))


def escape_unprintable(text: str) -> str:
    """The text with an escape for each character that does not print."""
    return "".join(x if x.isprintable() else ascii(x)[1:-1] for x in text)


def member_file(folder: Path, name: str) -> Path | None:
    """The file `name` of a model folder, or None if there is none.

    Links that lead out of the folder are refused. Links of a hub snapshot to the blobs next to it are allowed: the hub's
    cache works that way.
    """
    if Path(name).name != name or name in ("", ".", ".."):
        raise LoadError(
            f"{folder} names a file {name[:80]!r} outside itself; files must lie in the folder itself."
        )
    return _require_inside(folder, folder / name)


def _require_inside(folder: Path, path: Path) -> Path | None:
    """`path`, which must not lead out of `folder`, or None if there is nothing."""
    if not path.exists():
        return None
    home = folder.resolve()
    roots = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    if not any(path.resolve().is_relative_to(root) for root in roots):
        raise LoadError(
            f"{path} is a link that leads out of its folder; copy the file into the folder instead."
        )
    if not path.is_file():
        raise LoadError(f"{path} is no file; a model folder holds plain files.")
    return path


def read_text(folder: Path, name: str, limit: int = CONFIG_BYTES) -> str | None:
    """The text of the file `name`, or None if there is none; refused above `limit` bytes."""
    path = member_file(folder, name)
    return None if path is None else _read_utf8(path, limit)


def read_texts(folder: Path, inner: str, ending: str, limit: int = CONFIG_BYTES) -> dict[str, str]:
    """Name without its ending -> text of the files in the folder `inner` of `folder`, by name; refused above MOST_FILES."""
    paths = sorted((folder / inner).glob(f"*{ending}")) if (folder / inner).is_dir() else []
    if len(paths) > MOST_FILES:
        raise LoadError(
            f"{folder / inner} holds {len(paths)} files, more than the limit of {MOST_FILES}; remove some."
        )
    return {
        x.name.removesuffix(ending): _read_utf8(x, limit)
        for x in paths
        if _require_inside(folder, x) is not None
    }


def _read_utf8(path: Path, limit: int) -> str:
    size = path.stat().st_size
    if size > limit:
        raise LoadError(
            f"{path} has {size} bytes, more than the limit of {limit}; this is no file of a known model."
        )
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise LoadError(f"{path} cannot be read ({error.strerror}); see who may read it.") from None
    except UnicodeDecodeError:
        raise LoadError(f"{path} is not UTF-8 text; download the file again.") from None


def read_json(folder: Path, name: str, limit: int = CONFIG_BYTES) -> dict[str, Any] | None:
    """The JSON object in the file `name`, or None if there is none."""
    text = read_text(folder, name, limit)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LoadError(
            f"{folder / name} is not JSON ({str(error)[:80]}); download the file again."
        ) from None
    if not isinstance(value, dict):
        raise LoadError(f"{folder / name} holds no JSON object; download the file again.")
    return value


class EndTokens(NamedTuple):
    """Ids that end a text, and remarks on what is no id."""

    ids: set[int]
    remarks: list[str]


def read_ends(folder: Path) -> EndTokens:
    """The ids that end a text by generation_config.json and config.json."""
    ends = EndTokens(set(), [])
    for name in ("generation_config.json", "config.json"):
        value = (read_json(folder, name) or {}).get("eos_token_id")
        if value is None:
            continue
        for x in value if isinstance(value, list) else [value]:
            if isinstance(x, int) and not isinstance(x, bool) and x >= 0:
                ends.ids.add(x)
            else:
                ends.remarks.append(
                    f"eos_token_id {json.dumps(x)[:40]} in its {name} is no id of a token, so it ends no text."
                )
    return ends


@lru_cache(maxsize=256)
def hash_file(path: Path, size: int, changed: int) -> str:
    """sha256 of a file of `size` bytes; of one above HASHED, its length, first and last MiB. `changed` keys the cache."""
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if size <= HASHED:
            digest.update(file.read())
        else:
            digest.update(file.read(EDGE))
            file.seek(-EDGE, 2)
            digest.update(file.read(EDGE))
    return digest.hexdigest()
