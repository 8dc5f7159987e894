"""Refusals: why a model was not fetched."""

from __future__ import annotations

from ..checkpoint.folder import LoadError


class FetchError(LoadError):
    """A model cannot be fetched. One sentence: what, where, why, what to do next."""


class FetchStopped(FetchError):
    """The user stopped the download. What was fetched so far is kept."""


class ConnectionCut(Exception):
    """The connection to a server could not be made, or it ended too early. Another try may succeed."""
