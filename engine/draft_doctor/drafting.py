"""Drafting: the tokens that a pass of the target keeps from a draft, greedily: as it is, and read with one thing changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from decodescope.engine.core.refusal import Refusal
from decodescope.engine.model.heads.base import Head
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method
from decodescope.engine.session.session import Session

from .places import PairPlaces
from .readers import HeadReader, TextReader
from .texts import DoctorText

LENGTH = 4  # tokens of a draft
DECODED = 4  # texts that a head drafts for


def count_passes(right: np.ndarray, length: int = LENGTH) -> int:
    """Passes in which greedy decoding with drafts of `length` tokens writes a text. right: bool [n], the draft's guess of each
    token, behind the tokens before it, is that token."""
    at = passes = 0
    while at < len(right):
        wrong = np.flatnonzero(~right[at : at + length])
        at += (int(wrong[0]) if len(wrong) else length) + 1
        passes += 1
    return passes


def count_kept(answers: Sequence[np.ndarray]) -> float:
    """Tokens a pass over answers. Each: bool [n], the tokens that the draft guesses right.

    The answers are greedy, and a draft reads what was kept: so its guesses are those of one pass over the text.
    """
    return sum(map(len, answers)) / max(1, sum(map(count_passes, answers)))


def count_places(places: PairPlaces) -> float:
    """Tokens a pass of the draft model that these places are of."""
    rows = places.select(places.answer)
    right = rows.guess == rows.token
    return count_kept([right[rows.text == x] for x in np.unique(rows.text)])


def measure_reading(reader: TextReader, texts: Sequence[DoctorText]) -> float:
    """Tokens a pass of a draft model that reads the target's answers so."""
    answers = []
    for text in texts:
        first, logits = reader.read(text.ids)
        start = max(text.start, first)
        answer = np.array(text.ids[start:])
        guesses = logits[start - first : start - first + len(answer)].argmax(-1).cpu().numpy()
        answers.append(guesses == answer)
    return count_kept(answers)


def measure_head(model: Model, head: Head, texts: Sequence[DoctorText]) -> float | None:
    """Tokens a pass of a head, which feeds its own states back: it drafts for a few texts. None where it drafts for none."""
    other = replace(model, decoder=model.decoder.with_heads({head.kind: head}))
    tokens = steps = 0
    for text in sorted(texts, key=lambda x: x.start - len(x.ids))[:DECODED]:
        new = len(text.ids) - text.start
        limits: dict[str, Any] = dict(max_new_tokens=new, stop_tokens=(), level="summary")
        try:
            session = Session(other, Method.of(head.kind), text.ids[: text.start], **limits)
            tokens += sum(len(step.emitted) for step in session.stream())
        except Refusal:
            return None  # no drafter of this name, or not with this target
        steps += session.steps
    return tokens / steps if steps else None


def measure_drafting(model: Model, reader: TextReader | None, texts: Sequence[DoctorText]) -> float | None:
    """Tokens a pass of a draft that is read so; None where that cannot be measured."""
    if isinstance(reader, HeadReader):
        return None if reader.layer_shift else measure_head(model, reader.head, texts)
    first: Any = reader
    while hasattr(first, "inner"):
        first = first.inner
    # a head whose ids are moved feeds back what it guessed; that is not read here
    return None if reader is None or isinstance(first, HeadReader) else measure_reading(reader, texts)
