"""Worked examples of a prompt: the paragraphs before the question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .units import PromptText


@dataclass
class Shots:
    """The worked examples of a prompt.

    stays: bool [n], the tokens that are always read: marks of a chat, the last paragraph with a word and all behind it, and the
    first one if it is an instruction;  first: the token at which the last paragraph begins;  spans: (start, stop) of each
    example, including the blank line that ends it
    """

    stays: np.ndarray
    first: int
    spans: list[tuple[int, int]]


def find_shots(text: PromptText, instruction: bool) -> Shots:
    """The examples of a text; none if there are no blank lines to separate them."""
    starts = text.unit_starts("paragraph")
    spans = [x for x in zip(starts, [*starts[1:], text.n], strict=True) if text.has_word(*x)]
    stays = text.protected_mask("none")
    if len(spans) < 2:
        return Shots(np.ones(text.n, bool), 0, [])
    first = spans[-1][0]
    stays[first:] = True
    if instruction:
        stays[slice(*spans[0])] = True
    return Shots(stays, first, [x for x in spans[:-1] if not stays[slice(*x)].any()])
