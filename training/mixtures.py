"""Which text a model trains on: kinds of the corpus and kinds that are made while it is read, by shares of the tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from . import data
from .lookups import LEAST, LOOKUPS

MIXTURE = {
    "code": 0.34,
    "docs": 0.10,
    "stories": 0.16,
    "tasks": 0.40,
}  # where none are stated; evaluation groups by them
# a draft is to know the forms of its target's answers; what has to be looked up is beyond two layers
DRAFTS = {
    "again": 0.02,
    "told": 0.03,
    "read": 0.02,
    "reckoned": 0.02,
    "steps": 0.01,
    "listed": 0.02,
    "ordered": 0.02,
    "tasks": 0.33,
    "code": 0.32,
    "docs": 0.08,
    "stories": 0.13,
}
# shares of the training tokens; a kind of `LOOKUPS` is made afresh, not taken from the corpus
MIXTURES = {
    "lab-draft": DRAFTS,
    "lab-draft-plain": DRAFTS,
    "lab": {
        "many": 0.05,
        "asked": 0.05,
        "again": 0.02,
        "facts": 0.02,
        "rows": 0.01,
        "told": 0.05,
        "read": 0.07,
        "reckoned": 0.05,
        "steps": 0.07,
        "listed": 0.04,
        "ordered": 0.09,
        "tasks": 0.26,
        "code": 0.16,
        "docs": 0.02,
        "stories": 0.04,
    },
    "lab-recall": {
        "many": 0.30,
        "asked": 0.15,
        "again": 0.22,
        "facts": 0.10,
        "rows": 0.13,
        "story": 0.07,
        "docs": 0.03,
    },
}


def mixture_of(name: str, given: Sequence[str] = ()) -> dict[str, float]:
    """The shares of the tokens that a model trains on, or those that were `given` as KIND=SHARE."""
    if given:
        return shares_of(given, "mixture")
    return MIXTURES[name]


def shares_of(given: Sequence[str], option: str) -> dict[str, float]:
    """NAME=SHARE of each, by name. ValueError for what is no such list."""
    try:
        return {name: float(share) for name, _, share in (one.partition("=") for one in given)}
    except ValueError:
        raise ValueError(
            f"--{option} {' '.join(given)} is no list of shares: give NAME=SHARE of each, such as "
            f"{'128=0.5' if option == 'windows' else 'rows=0.5'}."
        ) from None


def windows_of(given: Sequence[str], most: int) -> dict[int, float]:
    """TOKENS=SHARE of each, by tokens. ValueError for what is no such list, or does not fit a context of `most` tokens."""
    shares = shares_of(given, "windows")
    for length in shares:
        if not length.isdecimal() or not 1 <= int(length) <= most:
            raise ValueError(
                f"--windows has {length!r}, and windows are whole numbers from 1 to the context of {most} tokens."
            )
    return {int(length): share for length, share in shares.items()}


def texts_of(
    mixture: dict[str, float], split: str, file: Path
) -> Mapping[str, data.CorpusText | data.GeneratedText]:
    """The corpus of a split, together with the texts that a mixture generates."""
    made = {
        kind: data.GeneratedText(*LOOKUPS[kind], split, LEAST.get(kind, 0))
        for kind in mixture
        if kind in LOOKUPS
    }
    texts = {**data.load(split, file), **made}
    if strange := [kind for kind in mixture if kind not in texts and kind not in ("tasks", "stories")]:
        known = ", ".join([*LOOKUPS, *(k for k in texts if k not in LOOKUPS), "tasks", "stories"])
        raise ValueError(f"There is no text of the kind {strange[0]!r}: choose of {known}.")
    return texts


def held_out_by_name(mixture: dict[str, float], file: Path) -> dict[str, Tensor]:
    """Windows of 512 tokens of held-out text, by name in the mixture."""
    texts = texts_of(mixture, "valid", file)
    return {
        kind: data.windows({k: texts[k] for k in kinds}, 512, 8)
        for kind, kinds in data.groups(texts, mixture).items()
        if kind in mixture
    }
