"""Pair sheet: what the files of a target and of a draft model say, side by side. No weights are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.checkpoint.gguf.source import derived_folder
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.session.compatibility import ModelInfo, differing_id, differing_marks
from decodescope.engine.session.load import describe, find_model

from .readers import describe_rope

PROBES = (
    "The quick brown fox, aged 27, said: 'no way!'",
    "def area(w, h):\n    return w * h  # 3.14",
    "  two  spaces\tand a tab\n\n\nthree lines",
    "Zürich, São Paulo, Привет, 東京, 😀",
)
SHOWN = 24  # characters of a token in a cell


class UnloadedModel(NamedTuple):
    """A model whose weights are not read. tokenizer: None: its folder has none"""

    name: str
    spec: ModelSpec
    tokenizer: Tokenizer | None


def open_unloaded(reference: str) -> UnloadedModel:
    """The model that `load` would read under this name. Raises LoadError."""
    name, folder, adapter, weights = find_model(reference)
    files = derived_folder(folder) if folder.is_file() else folder
    tokenizer = Tokenizer.from_folder(files) if (files / "tokenizer.json").exists() else None
    return UnloadedModel(name, describe(folder, name, None, adapter, weights), tokenizer)


@dataclass(frozen=True)
class PairRow:
    """A line of the sheet. matters: what a difference does to drafts; empty: both are alike, or it does nothing"""

    what: str
    target: str
    draft: str
    matters: str = ""


@dataclass(frozen=True)
class PairSheet:
    """All lines. fits: whether a method may use the pair without translating tokens"""

    target: str
    draft: str
    fits: bool
    rows: tuple[PairRow, ...]

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "target": self.target,
            "draft": self.draft,
            "fits": self.fits,
            "rows": [asdict(x) for x in self.rows],
        }


def compare_pair(target: ModelInfo, draft: ModelInfo) -> PairSheet:
    """Lay the configs and tokenizers of both side by side."""
    fits = not differing_id(target, draft) or bool(differing_marks(target, draft))
    rows = [*_config_rows(target.spec, draft.spec), *_token_rows(target, draft)]
    return PairSheet(target.name, draft.name, fits, tuple(rows))


def _row(what: str, ours: object, theirs: object, matters: str = "") -> PairRow:
    ours, theirs = str(ours), str(theirs)
    return PairRow(what, ours, theirs, matters if ours != theirs else "")


def _config_rows(target: ModelSpec, draft: ModelSpec) -> Iterator[PairRow]:
    yield _row("family", target.family, draft.family)
    yield _row("layers, width", f"{target.n_layers}, {target.d_model}", f"{draft.n_layers}, {draft.d_model}")
    yield _row("rotary positions", describe_rope(target.rope), describe_rope(draft.rope))
    yield _row(
        "context",
        target.max_positions,
        draft.max_positions,
        "Behind the shorter context the draft guesses badly, or not at all."
        if draft.max_positions < target.max_positions
        else "",
    )
    yield _row("windows", _windows(target), _windows(draft))
    yield _row(
        "rows of the vocabulary",
        target.vocab,
        draft.vocab,
        "Ids that only one has pad it to a round size, or are never drafted.",
    )
    yield _row("logit cap", target.logit_cap or "none", draft.logit_cap or "none")
    yield _row(
        "stored as", target.stored_as or "as config.json says", draft.stored_as or "as config.json says"
    )


def _windows(spec: ModelSpec) -> str:
    sizes = sorted({x for x in spec.windows if x})
    return f"{', '.join(map(str, sizes))} tokens" if sizes else "none"


def _token_rows(target: ModelInfo, draft: ModelInfo) -> Iterator[PairRow]:
    ours, theirs = target.tokenizer, draft.tokenizer
    if ours is None or theirs is None:
        missing = "The tokens of both cannot be compared: add the missing tokenizer.json."
        yield _row(
            "tokenizer", "none" if ours is None else "there", "none" if theirs is None else "there", missing
        )
        return
    yield _row("tokens", ours.vocab, theirs.vocab)
    yield _first_difference(target, draft)
    yield _splits(ours, theirs)
    yield _row(
        "at the beginning of a text",
        _pieces(ours, ours.front),
        _pieces(theirs, theirs.front),
        "Give the draft the ids that the target reads: a missing first token costs acceptance everywhere.",
    )
    yield _row(
        "ends a text",
        _pieces(ours, ours.stop_ids),
        _pieces(theirs, theirs.stop_ids),
        "The draft was trained to end elsewhere: its guesses at the end of a turn are refused.",
    )
    yield _templates(ours, theirs)


def _first_difference(target: ModelInfo, draft: ModelInfo) -> PairRow:
    difference = differing_id(target, draft)
    if difference is None:
        return PairRow("ids", "the same", "the same")
    at, ours, theirs = difference
    marks = differing_marks(target, draft)
    matters = (
        f"Only special tokens differ, {len(marks)} of them: the pair can be used, and drafts are refused there."
        if marks
        else "The ids mean other texts: only a drafter that translates tokens can use the pair."
    )
    here, there = (f"id {at} is {str(x)[:SHOWN]!r}" for x in (ours, theirs))
    return PairRow("ids", here, there, matters)


def _splits(ours: Tokenizer, theirs: Tokenizer) -> PairRow:
    counts = [[len(x.encode_plain(text)) for text in PROBES] for x in (ours, theirs)]
    same = all(ours.encode_plain(x) == theirs.encode_plain(x) for x in PROBES)
    here, there = (f"{sum(x)} tokens for {len(PROBES)} texts" for x in counts)
    return PairRow(
        "splits of sample texts",
        here,
        there,
        "" if same else "The draft was trained on other splits of a text than the target writes.",
    )


def _templates(ours: Tokenizer, theirs: Tokenizer) -> PairRow:
    here, there = (
        "none"
        if x.templates.source is None
        else f"{len(x.templates.source):,} characters, {hashlib.sha256(x.templates.source.encode()).hexdigest()[:8]}"
        for x in (ours, theirs)
    )
    matters = "The target's template is used for both: a draft trained with its own is weaker on chats."
    return _row("chat template", here, there, matters)


def _pieces(tokenizer: Tokenizer, ids: list[int]) -> str:
    return ", ".join(f"{x} {tokenizer.decode([x])!r}" for x in ids) or "nothing"
