"""Alphabet: the text of a model's ids, for samplers that look at the text and not at numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Alphabet:
    """What a sampler gets to know of the ids when it starts. It is shared by all runs of a model and never changes.

    vocab: how many ids there are;  stops: those that end this run's text
    marks: ids of special tokens; their bytes are the name by which they are written
    table: makes the bytes of every id; called on first use, once for each model
    """

    vocab: int
    stops: frozenset[int]
    marks: frozenset[int]
    table: Callable[[], list[bytes]]

    @property
    def pieces(self) -> list[bytes]:
        """id -> its bytes, for all `vocab` ids."""
        return self.table()[: self.vocab]

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        """The bytes of a text."""
        table = self.table()
        return b"".join(table[i] for i in ids)

    def __deepcopy__(self, memo: object) -> Alphabet:
        return self
