"""Paths: what people type for a file or a folder, made a path, or refused where none can have that name."""

from __future__ import annotations

import os
from pathlib import Path

from .refusal import Refusal

NAME, WHOLE = 255, 4095  # bytes that file systems take for one name, and Linux for a whole path
SHOWN = 80  # characters of a path in a sentence


class PathRefusal(Refusal):
    """No file can have this name. One sentence; why: its second half."""

    def __init__(self, name: str, why: str):
        super().__init__(f"{shorten_path(name)!r} is no path: {why}.")
        self.why = why


def expand_path(text: str | Path) -> Path:
    """The path that `text` names; ~ and ~USER expand to home folders. Raises PathRefusal."""
    name = str(text)
    if why := _name_problem(name):
        raise PathRefusal(name, why)
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise PathRefusal(
            name, f"{shorten_path(name.partition('/')[0])} is nobody's home here, write the path out"
        ) from None


def is_folder(text: str | Path) -> bool:
    """Whether `text` names a folder that is there; what can be no path names none."""
    try:
        return expand_path(text).is_dir()
    except (PathRefusal, OSError, ValueError):
        return False


def is_model_path(text: str | Path) -> bool:
    """Whether `text` names a folder, or a file of a model, that is there."""
    try:
        return is_folder(text) or (str(text).lower().endswith(".gguf") and expand_path(text).is_file())
    except (PathRefusal, OSError, ValueError):
        return False


def shorten_path(name: str) -> str:
    """A path as a sentence shows it: what is long without its middle."""
    return name if len(name) <= SHOWN else f"{name[: SHOWN // 2]}…{name[-SHOWN // 2 :]}"


def _name_problem(name: str) -> str:
    """Why no file can have this name; empty if one can."""
    if not name.strip():
        return "it is empty, give the name of a file or folder"
    if "\0" in name:
        return "a name holds no zero byte, leave it out"
    try:
        data = os.fsencode(name)
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair, leave it out"
    longest = max(map(len, data.replace(b"\\", b"/").split(b"/")))
    if longest > NAME or len(data) > WHOLE:
        most = (
            f"{longest} bytes, and at most {NAME}"
            if longest > NAME
            else f"{len(data)} bytes, and at most {WHOLE}"
        )
        return f"{'a name in it' if longest > NAME else 'it'} has {most} are possible, choose a shorter one"
    return ""
