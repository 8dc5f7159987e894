"""Prompt: what of a run's prompt the target read, where its context left tokens out."""

from __future__ import annotations

from .events import Header, Prefill


def effective_prompt(header: Header, prefill: Prefill | None) -> list[int]:
    """The ids that the target read as its prompt: position i of the run holds the i-th of them."""
    ids: list[int] = header.prompt.tolist()
    return ids if prefill is None or prefill.cut is None else [ids[i] for i in prefill.cut.kept.tolist()]
