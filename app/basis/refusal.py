"""What the page refuses, and what it says of an error."""

from __future__ import annotations

from decodescope.engine.core.refusal import Refusal


class RequestRefusal(Refusal):
    """What the page asked will not be done. status: of the answer that says so."""

    def __init__(self, why: str, status: int = 422):
        super().__init__(why)
        self.status = status


def sentence(error: Exception) -> str:
    """The message on one line."""
    return " ".join(str(error).split())


def explain_error(error: BaseException) -> str:
    """What the page says of an error: its own sentence if it is meant for people, else that something went wrong."""
    if isinstance(error, OSError):
        return f"The file system refused: {error.strerror or type(error).__name__}."
    if isinstance(error, Refusal):
        return sentence(error)
    return f"This did not work ({type(error).__name__})."
