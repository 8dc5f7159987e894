"""One file over HTTP: resumed where it was interrupted, verified by its checksum."""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .package_index import WAIT_S, IndexSettings, WheelLink, hide_password, verification
from .refusals import ConnectionCut, FetchError, FetchStopped

if TYPE_CHECKING:
    import requests

PIECE = 1 << 16  # bytes that are written at once; a cut connection loses less than this
TRIES = 5  # in a row that fetched nothing
PAUSE_S = 2.0  # before another try

Report = Callable[[str, int, int], None]  # (phase, bytes done, bytes in all)


def ignore_report(phase: str, done: int, total: int) -> None:
    """A report that nobody reads."""


class FileDownload:
    """The download of one file to `part`, which stays when it is interrupted and is continued by the next one.

    size: of the file, in bytes;  report: called after each piece;  is_stopped: asked after each piece
    pause_s: seconds between two tries
    """

    def __init__(
        self,
        part: Path,
        size: int,
        report: Report = ignore_report,
        is_stopped: Callable[[], bool] = lambda: False,
        pause_s: float = PAUSE_S,
    ):
        self.part = part
        self.size = size
        self.report = report
        self.is_stopped = is_stopped
        self.pause_s = pause_s

    @property
    def held(self) -> int:
        """Bytes that are there already."""
        return self.part.stat().st_size if self.part.is_file() else 0

    def run(self, link: WheelLink, settings: IndexSettings, session: requests.Session) -> None:
        """Fetch what is missing and verify the whole. Raises FetchError, FetchStopped, ConnectionCut."""
        resumed = self.held > 0
        self._fetch(link, settings, session)
        if not link.sha256 or self._digest() == link.sha256:
            return
        self.part.unlink()
        if resumed:  # the part was of another file, or damaged
            return self.run(link, settings, session)
        raise FetchError(
            f"{hide_password(link.url)} does not have the checksum that its index gives, so nothing of it was kept; try again, "
            "or choose another index with PIP_INDEX_URL."
        )

    def _fetch(self, link: WheelLink, settings: IndexSettings, session: requests.Session) -> None:
        """Fetch until all bytes are there; a connection that is cut is made again while that brings something."""
        tries = 0
        while self.held < self.size:
            before = self.held
            try:
                self._continue(link, settings, session)
            except ConnectionCut:
                tries = tries + 1 if self.held <= before else 0
                if tries >= TRIES:
                    raise
                time.sleep(self.pause_s)

    def _continue(self, link: WheelLink, settings: IndexSettings, session: requests.Session) -> None:
        """Ask once for the rest of the file, and write what comes."""
        import requests

        held = self.held
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={held}-"} if held else {})}
        where = hide_password(link.url)
        try:
            with session.get(
                link.url,
                headers=headers,
                timeout=WAIT_S,
                stream=True,
                verify=verification(settings, session, link.url),
            ) as answer:
                if held and answer.status_code == 416:  # the part is of another file
                    self.part.unlink()
                    return
                if answer.status_code in (401, 403, 404, 410):
                    raise FetchError(
                        f"{where} is not given out (status {answer.status_code}); choose another index with PIP_INDEX_URL."
                    )
                answer.raise_for_status()
                goes_on = answer.headers.get("content-range", "").startswith(f"bytes {held}-")
                self._write(answer, held if answer.status_code == 206 and goes_on else 0, where)
        except requests.RequestException as error:
            raise ConnectionCut(f"{where} ({type(error).__name__})") from None

    def _write(self, answer: requests.Response, begin: int, where: str) -> None:
        """Write an answer to the part, from byte `begin` on."""
        announced = answer.headers.get("content-length", "")
        total = begin + int(announced) if announced.isdigit() else self.size
        if total != self.size:
            raise FetchError(
                f"{where} has {total:,} bytes, and {self.size:,} are expected; choose another index with PIP_INDEX_URL."
            )
        done = begin
        with self.part.open("r+b" if begin else "wb") as file:
            file.seek(begin)
            file.truncate()
            self.report("downloading", done, self.size)
            for piece in answer.iter_content(PIECE):
                done += len(piece)
                if done > self.size:
                    raise FetchError(f"{where} sends more than the {self.size:,} bytes that are expected.")
                file.write(piece)
                self.report("downloading", done, self.size)
                if self.is_stopped():
                    raise FetchStopped(f"The download was stopped; {done:,} of {self.size:,} bytes are kept.")
        if done < self.size:
            raise ConnectionCut(f"{where} (it ended after {done:,} of {self.size:,} bytes)")

    def _digest(self) -> str:
        with self.part.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def is_disk_full(error: OSError) -> bool:
    """Whether an error says that there is no room on the disk."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
