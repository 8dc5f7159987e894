"""Users: names with passwords, in a file with a line for each: the name, a colon, and a hash by scrypt."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import re
import secrets
import unicodedata
from pathlib import Path

from decodescope.engine.core.files import write_whole
from decodescope.engine.core.refusal import Refusal

COST = 1 << 14  # of scrypt: 16 MiB and some 50 ms for a guess
BLOCK = 8
SHORTEST = 8  # characters of a password
LONGEST = 1024
MOST_BYTES = 1 << 20  # of the file
NAME = re.compile(r"[\w.@+-]{1,64}")
_HASH = re.compile(r"scrypt\$(\d{1,6})\$(\d{1,2})\$1\$([A-Za-z0-9+/=]{16,64})\$([A-Za-z0-9+/=]{44})")


class UserFileError(Refusal):
    """A file of users, a name or a password that cannot be used. One sentence."""


def clean_name(name: str) -> str | None:
    """The name in its usual form; None if nobody can be called that."""
    name = unicodedata.normalize("NFC", name.strip()) if len(name) <= 256 else ""
    return name if NAME.fullmatch(name) else None


def hash_password(password: str) -> str:
    """The hash of a password, with a new salt, as a line of the file has it."""
    salt = secrets.token_bytes(16)
    text = (base64.b64encode(x).decode() for x in (salt, _derive_key(password, salt, COST, BLOCK)))
    return "$".join(("scrypt", str(COST), str(BLOCK), "1", *text))


# compared with the password of a name that is not in the file, so that it takes as long
NOBODY = f"scrypt${COST}${BLOCK}$1${'A' * 22}==${'A' * 43}="


def is_right_password(password: str, stored: str | None) -> bool:
    """Whether the password has this hash; without a hash it takes as long, and is wrong."""
    match = _HASH.fullmatch(stored or NOBODY)
    if match is None or len(password) > LONGEST:
        return False
    derived = _derive_key(password, base64.b64decode(match[3]), int(match[1]), int(match[2]))
    return hmac.compare_digest(derived, base64.b64decode(match[4])) and stored is not None


def _derive_key(password: str, salt: bytes, cost: int, block: int) -> bytes:
    text = unicodedata.normalize("NFC", password).encode("utf-8", "replace")
    return hashlib.scrypt(text, salt=salt, n=cost, r=block, p=1, maxmem=64 << 20, dklen=32)


class UserFile:
    """The names and hashes of a file. A change of the file holds at once; one that cannot be read changes nothing."""

    def __init__(self, path: Path):
        self.path = path
        self._mark = self._state()
        self._hashes = read_users(path)
        if not self._hashes:
            raise UserFileError(
                f"{str(path)[:200]} holds no name: add one with decodescope app --add-user NAME --users FILE."
            )

    def hash_of(self, name: str) -> str | None:
        """The stored hash of a name, None if it is not in the file."""
        mark = self._state()
        if mark != self._mark:
            self._mark = mark
            with contextlib.suppress(UserFileError):
                self._hashes = read_users(self.path)
        return self._hashes.get(name)

    def _state(self) -> tuple[int, int, int] | None:
        try:
            state = os.stat(self.path)
        except OSError:
            return None
        return state.st_mtime_ns, state.st_size, state.st_ino


def read_users(path: Path) -> dict[str, str]:
    """name -> hash of all lines; raises UserFileError. Empty lines and those that begin with # are skipped."""
    shown = str(path)[:200]
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        lines = content.decode().splitlines()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserFileError(f"The file of users {shown} cannot be read ({why}).") from None
    except ValueError:
        raise UserFileError(f"The file of users {shown} is no UTF-8 text.") from None
    if len(content) > MOST_BYTES:
        raise UserFileError(f"The file of users {shown} is larger than 1 MiB, which is the limit.")
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, stored = line.strip().partition(":")
        if clean_name(name) != name or not _is_hash(stored):
            raise UserFileError(
                f"Line {number} of {shown} is not NAME:HASH: write it with decodescope app --add-user NAME --users FILE."
            )
        users[name] = stored
    return users


def _is_hash(stored: str) -> bool:
    match = _HASH.fullmatch(stored)
    if match is None:
        return False
    cost, block = int(match[1]), int(match[2])
    try:
        base64.b64decode(match[3], validate=True), base64.b64decode(match[4], validate=True)
    except ValueError:
        return False
    return cost > 1 and cost & (cost - 1) == 0 and block > 0 and 128 * cost * block <= 32 << 20


def check_name(name: str) -> str:
    """The name in its usual form; raises UserFileError if nobody can be called that."""
    known = clean_name(name)
    if known is None:
        raise UserFileError(
            f"--add-user {name[:80]!r}: a name has 1 to 64 letters, digits or . _ - @ +, and no spaces."
        )
    return known


def add_user(path: Path, name: str, password: str) -> bool:
    """Write a name and the hash of its password into the file; whether it was there before. Raises UserFileError."""
    known = check_name(name)
    if not SHORTEST <= len(password) <= LONGEST:
        raise UserFileError(
            f"A password has {SHORTEST} to {LONGEST} characters; this one has {len(password)}."
        )
    users = read_users(path) if path.exists() else {}
    there = known in users
    users[known] = hash_password(password)
    text = "".join(f"{one}:{stored}\n" for one, stored in users.items())
    try:
        write_whole(path, [text], private=True)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserFileError(f"The file of users {str(path)[:200]} cannot be written ({why}).") from None
    return there
