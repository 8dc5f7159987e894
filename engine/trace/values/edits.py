"""Edits: a draft with all its places tagged at once, and how tags become the next draft. A place is the end of the prompt,
before the first token, or a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

TAGS = ("keep", "delete", "replace", "insert")  # to insert is to keep the token and put another one after it
KEEP, DELETE, REPLACE, INSERT = range(4)
Why = Literal["fixed", "again", "rounds", "empty"]


def likely_edits(p: Sequence[Sequence[float]]) -> list[int]:
    """The likeliest edit of each place, the first of equals. p: of each place the probabilities of the four tags"""
    return [max((DELETE, REPLACE, INSERT), key=row.__getitem__) for row in p]


def edit_outcome(edit: float, keep: float, sure: float) -> str:
    """The outcome of an edit by its probability and that of keep: "made" if it is likelier and at least `sure`; "tie" if
    it is as likely; else "left"."""
    if edit > keep and edit >= sure:
        return "made"
    return "tie" if edit == keep else "left"


def place_tags(p: Sequence[Sequence[float]], sure: float) -> list[int]:
    """The tag of each place: its likeliest edit where that is made, else keep."""
    best = zip(likely_edits(p), p, strict=True)
    return [x if edit_outcome(row[x], row[KEEP], sure) == "made" else KEEP for x, row in best]


def apply_tags(tokens: Sequence[int], tags: Sequence[int], words: Sequence[Sequence[int]]) -> list[int]:
    """Apply the tags of all places to a draft, all at once. words: of each place the tokens that would replace it, and
    follow it"""
    kept: list[list[int]] = [[], *([x] for x in tokens)]
    edited: list[int] = []
    for here, tag, (instead, behind) in zip(kept, tags, words, strict=True):
        if tag == REPLACE:
            edited.append(instead)
        elif tag != DELETE:
            edited += here
        if tag == INSERT:
            edited.append(behind)
    return edited


def next_draft(
    before: list[int],
    edited: list[int],
    room: int,
    end: int | None,
    seen: Sequence[Sequence[int]],
    rounds: int,
) -> tuple[list[int], Why | None]:
    """The draft after a pass that read `before` and made `edited` of it, and why that pass is the last, if it is: it changed
    nothing, it is "fixed"; it gave a text "again" that an earlier one had read; no more "rounds" are allowed; or it left
    nothing, "empty", where the text goes on, so that it is not applied.

    room: tokens that a draft may have at most;  end: the token that ends it; None: the text goes on after it
    seen: the drafts that all passes have read
    """
    text = edited[:room]
    if text == before:
        return text, "fixed"
    if not text and end is None:
        return before, "empty"
    if text in seen:
        return text, "again"
    return text, "rounds" if len(seen) >= rounds else None
