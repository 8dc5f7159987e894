"""Files: the folders of the user's data, and the knob values that are files.

A record names a file by its name and hash, never by its place on a machine.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from .refusal import Refusal

MARK = re.compile(r"([\w.()+ -]{1,80})@([0-9a-f]{16})")  # NAME@HASH: how a record names a file
WANTED = "give the path of a text file, or leave it empty"
KNOWN: dict[str, Path] = {}  # hash -> file of those that this process has read


class FileRefusal(Refusal):
    """A file that a knob names cannot be used. One sentence."""


def data_folder() -> Path:
    """The folder of the user's data, the platform's usual place for them; on Linux XDG_DATA_HOME moves it. Not created here."""
    import platformdirs

    return Path(platformdirs.user_data_dir("decodescope", appauthor=False))


def uploads_folder() -> Path:
    """The folder of the files that were uploaded to the page or that recorded runs name, next to the traces."""
    return data_folder() / "traces" / "files"


def measurement_path(folder: Path, key: Mapping[str, str | int]) -> Path:
    """The JSON file in `folder` for a measurement under `key` (machine, threads, dtype, ...); it may not exist yet."""
    words = "-".join(str(part) for part in key.values()).lower()
    return folder / (re.sub(r"[^a-z0-9.]+", "-", words).strip("-") + ".json")


def write_json(path: Path, value: Any) -> None:
    """Write plain data to a file, in one piece or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.JSONEncoder(indent=1).iterencode(value), private=True)


def write_whole(path: Path, parts: Iterable[str], *, replace: bool = True, private: bool = False) -> None:
    """Write a text, in parts, to a file, in one piece or not at all: a program that is killed leaves the file as it was.

    replace: whether a file of that name may be there;  private: only its owner may read it. Raises OSError.
    """
    if not replace and path.exists():
        raise FileExistsError(errno.EEXIST, "it exists already", str(path))
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.writelines(parts)
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def hash_of(value: str) -> str | None:
    """The hash, if the value of a knob is NAME@HASH; None if it is a path."""
    match = MARK.fullmatch(value)
    return match[2] if match else None


def file_mark(value: str, most: int) -> str:
    """NAME@HASH of the file that a knob's value names, by its path or as NAME@HASH already.

    From then on this process knows the file's path. most: its largest size in bytes. Raises FileRefusal if the file cannot be
    read, is empty, is too large, or is no text.
    """
    if MARK.fullmatch(value):
        locate_file(value, most)
        return value
    path = _absolute_path(value)
    digest, wrong = _inspect_file(path, most)
    if wrong:
        raise FileRefusal(wrong)
    KNOWN[digest] = path
    return f"{safe_file_name(path.name)}@{digest}"


def locate_file(value: str, most: int) -> Path:
    """The path of the file that a knob's value names.

    Raises FileRefusal if the file cannot be read or has changed since.
    """
    digest = hash_of(value)
    if digest is None:
        path = _absolute_path(value)
        file_mark(value, most)
        return path
    for place in (KNOWN.get(digest), uploads_folder() / digest):
        if place is not None and place.is_file() and _inspect_file(place, most)[0] == digest:
            return place
    raise FileRefusal(
        f"the file {value} is not on this machine, or is not what it was; give its path, or upload it again."
    )


def file_problem(value: str, most: int) -> str | None:
    """Why the file that a knob's value names cannot be used, in a sentence; None if it can."""
    try:
        locate_file(value, most)
    except FileRefusal as no:
        return str(no)
    return None


def safe_file_name(name: str) -> str:
    """A file's name as a mark holds it: without characters that separate folders or cannot be shown."""
    return re.sub(r"[^\w.()+ -]", "_", name)[-80:] or "file"


def store_file(text: bytes, name: str, folder: Path, most: int) -> str:
    """Write these bytes to `folder` under their hash; return NAME@HASH.

    Raises FileRefusal if they are no text of at most `most` bytes, OSError.
    """
    wrong = _text_problem(text, name, most, "choose a text file")
    if wrong:
        raise FileRefusal(wrong)
    digest = _content_hash(text)
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / digest, folder / f".{secrets.token_hex(8)}.upload"
    try:
        part.write_bytes(text)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    KNOWN[digest] = target
    return f"{safe_file_name(name)}@{digest}"


def _absolute_path(value: str) -> Path:
    try:
        return Path(value).expanduser().absolute()
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, a home that nobody has
        raise FileRefusal(f"the file {value[:200]!r} cannot be read; {WANTED}.") from None


def _inspect_file(path: Path, most: int) -> tuple[str, str]:
    """The hash of a file, and what is wrong with it; read again when it changed."""
    name = str(path)[:200]
    try:
        if not path.is_file():
            return "", f"there is no file {name!r}; {WANTED}."
        state = path.stat()
        if state.st_size > most:
            return "", _size_problem(name, state.st_size, most)
        return _read_and_check(path, state.st_size, state.st_mtime_ns, most)
    except (OSError, ValueError):
        return "", f"the file {name!r} cannot be read; {WANTED}."


@lru_cache(maxsize=32)
def _read_and_check(path: Path, size: int, changed: int, most: int) -> tuple[str, str]:
    text = path.read_bytes()
    return _content_hash(text), _text_problem(text, str(path)[:200], most, WANTED)


def _content_hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def _size_problem(name: str, size: int, most: int) -> str:
    return f"the file {name!r} has {size} bytes; it must have 1 to {most}: cut the file."


def _text_problem(text: bytes, name: str, most: int, wanted: str) -> str:
    if not 0 < len(text) <= most:
        return _size_problem(name, len(text), most)
    try:
        odd = text.decode("utf-8").find("\0")
    except UnicodeDecodeError as error:
        return f"the file {name!r} is not UTF-8 text (byte {error.start}): save it as UTF-8, or {wanted}."
    return f"the file {name!r} is no text, it holds a zero byte: {wanted}." if odd >= 0 else ""
