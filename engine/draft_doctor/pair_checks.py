"""Pair checks: what the files of two models, or of a head, say without reading a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.model.heads.base import Head
from decodescope.engine.session.load import Model, fingerprint

from .texts import DoctorText

SHOWN = 12  # characters of a piece in a sentence


@dataclass(frozen=True)
class PairDifference:
    """Something in which target and draft differ. cause: key of the fault that this can be;  evidence: one sentence"""

    cause: str
    evidence: str


def compare_files(model: Model, draft: Model | Head, texts: Sequence[DoctorText]) -> list[PairDifference]:
    """What differs between a target and its draft model, or the target that a head was trained on."""
    if isinstance(draft, Head):
        return list(_compare_target(model, draft))
    if model.tokenizer is None or draft.tokenizer is None or draft.tokenizer is model.tokenizer:
        return []
    return list(_compare_tokenizers(model.tokenizer, draft.tokenizer, texts))


def _compare_tokenizers(
    target: Tokenizer, draft: Tokenizer, texts: Sequence[DoctorText]
) -> Iterator[PairDifference]:
    """Texts that both split in different ways, by the ids of either."""
    split = 0
    first: tuple[str, str] | None = None
    for text in texts:
        words = target.decode(list(text.ids))
        ours, theirs = target.encode_plain(words), draft.encode_plain(words)
        if ours == theirs:
            continue
        split += 1
        if first is None:
            at = next(
                (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
                min(len(ours), len(theirs)),
            )
            first = target.decode(ours[at : at + 1])[:SHOWN], draft.decode(theirs[at : at + 1])[:SHOWN]
    if first is not None:
        yield PairDifference(
            "tokenizer",
            f"The tokenizers split {split} of {len(texts)} texts in different ways; first, the target reads {first[0]!r} "
            f"where the draft reads {first[1]!r}.",
        )


def _compare_target(model: Model, head: Head) -> Iterator[PairDifference]:
    """A head that was trained on other weights than those that are loaded."""
    if not head.made_for or head.made_for == model.fingerprint:
        return
    if model.spec.weights and head.made_for == fingerprint(model.path, model.spec.adapter):
        why = f"on this model before {model.spec.weights} changed its weights"
    else:
        why = f"on a model with the fingerprint {head.made_for[:40]}, and this one has {model.fingerprint}"
    yield PairDifference("other_target", f"The head was trained {why}.")
