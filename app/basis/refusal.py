"""Refusals of the page, and the sentences that it shows for errors."""

from __future__ import annotations

import errno

from decodescope.engine.core.refusal import Refusal

# errors of a disk or a folder, by number
STORAGE = {
    errno.ENOSPC,
    errno.EDQUOT if hasattr(errno, "EDQUOT") else errno.ENOSPC,  # not on Windows
    *(errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR),
}


class RequestRefusal(Refusal):
    """A request of the page is refused. status: of the answer;  offer: the name of a missing model that can be fetched"""

    def __init__(self, why: str, status: int = 422, offer: str = ""):
        super().__init__(why)
        self.status = status
        self.offer = offer


def sentence(error: Exception) -> str:
    """The message on one line."""
    return " ".join(str(error).split())


def explain_storage_fault(error: Exception) -> str:
    """A sentence for a file that the file system refuses in the middle of a command; empty: it is another error."""
    if not isinstance(error, OSError) or error.errno not in STORAGE:
        return ""
    name = f"{str(error.filename)[:200]} could not be" if error.filename else "A file could not be"
    why = error.strerror or type(error).__name__
    return f"{name} written or read ({why}): what was finished before is kept; make room, or choose another folder."


def explain_error(error: BaseException) -> str:
    """The page's sentence for an error: its own message if it is meant for people, else that something went wrong."""
    if isinstance(error, OSError):
        return f"The file system refused: {error.strerror or type(error).__name__}."
    if isinstance(error, Refusal):
        return sentence(error)
    return f"This did not work ({type(error).__name__})."
