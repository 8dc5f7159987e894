"""Refusals of the page, and the sentences that it shows for errors."""

from __future__ import annotations

from decodescope.engine.core.refusal import Refusal


class RequestRefusal(Refusal):
    """A request of the page is refused. status: of the answer;  offer: the name of a missing model that can be fetched"""

    def __init__(self, why: str, status: int = 422, offer: str = ""):
        super().__init__(why)
        self.status = status
        self.offer = offer


def sentence(error: Exception) -> str:
    """The message on one line."""
    return " ".join(str(error).split())


def explain_error(error: BaseException) -> str:
    """The page's sentence for an error: its own message if it is meant for people, else that something went wrong."""
    if isinstance(error, OSError):
        return f"The file system refused: {error.strerror or type(error).__name__}."
    if isinstance(error, Refusal):
        return sentence(error)
    return f"This did not work ({type(error).__name__})."
