"""Alphabet: what the ids of a model stand for, for samplers that look at the text and not at numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Alphabet:
    """What a sampler is told of the ids when it starts. It is shared by all runs of a model and never changes.

    vocab: how many ids there are;  stops: those that end this run's text
    marks: ids of special tokens, whose bytes are the name that they are written by
    table: makes the bytes of every id; called when somebody asks for them, and for one model they are made once
    """

    vocab: int
    stops: frozenset[int]
    marks: frozenset[int]
    table: Callable[[], list[bytes]]

    @property
    def pieces(self) -> list[bytes]:
        """id -> the bytes that it stands for, of all `vocab` ids."""
        return self.table()[: self.vocab]

    def __deepcopy__(self, memo: object) -> Alphabet:
        return self
