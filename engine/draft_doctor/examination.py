"""Examination: a draft and its target on the same texts; figures, experiments, and the causes they speak for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from decodescope.engine.core.roles import TARGET
from decodescope.engine.model.heads.base import Head
from decodescope.engine.session.compatibility import check_same_tokens
from decodescope.engine.session.load import Model
from decodescope.engine.trace.query.draft_findings import DraftFinding

from .distillation import DistillationGain, measure_distillation
from .drafting import count_places, measure_drafting
from .experiments import (
    ExperimentResult,
    fit_temperature,
    frequent_shifts,
    list_head_readings,
    list_model_readings,
    mark_reactions,
    try_first_token,
    try_offsets,
    try_readings,
    try_steps,
)
from .pair_checks import compare_files
from .places import OFFSETS, PairPlaces, read_overlaps, read_places
from .readers import HeadReader, ModelReader, TextReader
from .signatures import name_causes
from .texts import DoctorError, DoctorPrompt, DoctorText, write_texts

RANKS = (1, 2, 4, 8, 32)  # upper ends of the histogram of ranks
BLOCK = 32  # places of a bin of positions


@dataclass(frozen=True)
class DraftExamination:
    """What the doctor measured. findings: causes, the most certain first;  figures: everything measured, as plain data
    distillation: what a short training would bring, or why it was not measured; None: it was not asked for"""

    target: str
    draft: str
    findings: tuple[DraftFinding, ...]
    experiments: tuple[ExperimentResult, ...]
    figures: Mapping[str, Any]
    distillation: DistillationGain | str | None = None

    def record(self) -> dict[str, Any]:
        """As plain data."""
        rows = [
            {"cause": x.cause, "how": x.how, "before": x.before, "after": x.after, "error": _number(x.error)}
            for x in self.experiments
        ]
        return {
            "target": self.target,
            "draft": self.draft,
            "findings": [x.record() for x in self.findings],
            "experiments": rows,
            "distillation": self.distillation.record()
            if isinstance(self.distillation, DistillationGain)
            else self.distillation,
            **self.figures,
        }


def examine_draft(
    model: Model,
    draft: Model | str,
    prompts: Sequence[DoctorPrompt],
    *,
    answer_tokens: int = 64,
    window: int = 1024,
    distil: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> DraftExamination:
    """Examine a draft model, or the draft head of the model with that kind's name, on the target's answers to prompts.

    prompts: texts, each read plainly and through the chat template if the model has one; token ids; or as runs read them
    answer_tokens, window: tokens of an answer, and of prompt and answer together, at most
    distil: measure what a short training would bring, also where the draft is not weak

    Raises DoctorError (a head that is not there or cannot be read, no usable answer), MethodError for models that do not go
    together or a prompt that cannot be read.
    """
    if isinstance(draft, Model):
        check_same_tokens({TARGET: model, "draft": draft})
    say("writing the target's answers")
    return examine_texts(model, draft, write_texts(model, prompts, answer_tokens, window), say, distil)


def examine_texts(
    model: Model,
    draft: Model | str,
    texts: Sequence[DoctorText],
    say: Callable[[str], None] = lambda text: None,
    distil: bool = False,
) -> DraftExamination:
    """The same on texts that the target has written. Raises DoctorError."""
    target, reader = ModelReader(model.decoder), _make_reader(model, draft)
    say(f"reading {len(texts)} texts with both")
    places, sample = read_places(target, reader, texts)
    if not places.answer.any():
        raise DoctorError("The draft guesses no token of the answers: give prompts with longer answers.")
    if isinstance(reader, HeadReader):
        changed = list_head_readings(reader, places)
    else:
        changed = list_model_readings(reader.decoder, model.decoder, places)
    results = try_readings(target, reader, changed, texts, say)
    fit = fit_temperature(sample)
    results += [*try_offsets(places, OFFSETS), fit.result]
    if isinstance(reader, ModelReader):
        say("reading the draft in steps")
        results += [
            x for x in (try_first_token(target, reader, texts), try_steps(target, reader, texts)) if x
        ]
    results.sort(key=lambda x: -x.after)
    classes = token_classes(model, places, texts)
    drafted = reader.head if isinstance(reader, HeadReader) else draft
    differences = compare_files(model, drafted, texts) if isinstance(drafted, Model | Head) else []
    marks: frozenset[int] = getattr(model.tokenizer, "marks", frozenset())
    reactions = None if isinstance(reader, HeadReader) else mark_reactions([target, reader], texts, marks)
    findings = name_causes(
        places,
        results,
        classes,
        lambda at: _read_afresh(target, reader, texts, at),
        fit,
        differences,
        reactions,
    )
    kept = measure_drafting(model, reader, texts) if isinstance(reader, HeadReader) else count_places(places)
    if kept is not None:
        findings = [
            _add_drafting(x, results, kept, lambda other: measure_drafting(model, other, texts))
            for x in findings
        ]
    figures = {
        **measure_pair(places, classes),
        "temperature_scale": fit.scale,
        "tokens_a_pass": kept,
        "texts": len(texts),
    }
    name = draft.name if isinstance(draft, Model) else f"head {draft}"
    gain: DistillationGain | str | None = None
    if distil or findings[0].cause == "weak":
        gain = (
            measure_distillation(target, reader, texts, say)
            if isinstance(reader, ModelReader)
            else "Distillation of a head was not measured: decodescope train goes on with its training."
        )
    return DraftExamination(model.name, name, tuple(findings), tuple(results), figures, gain)


def _add_drafting(
    finding: DraftFinding,
    results: Sequence[ExperimentResult],
    kept: float,
    measure: Callable[[TextReader | None], float | None],
) -> DraftFinding:
    """The finding with the tokens a pass that the reading brings which undoes it, where one was tried."""
    best = next((x for x in results if x.cause == finding.cause and x.reader is not None), None)
    after = None if best is None else measure(best.reader)
    if after is None:
        return finding
    words = f"{finding.evidence} Drafting greedily, it then keeps {after:.1f} tokens a pass, as it stands {kept:.1f}."
    return replace(
        finding,
        evidence=words,
        figures={**finding.figures, "tokens_a_pass": kept, "tokens_a_pass_after": after},
    )


def _make_reader(model: Model, draft: Model | str) -> ModelReader | HeadReader:
    if isinstance(draft, Model):
        return ModelReader(draft.decoder)
    head = model.decoder.heads.get(draft)
    if not isinstance(head, Head):
        known = ", ".join(model.decoder.heads) or "none"
        raise DoctorError(
            f"{model.name} has no draft head {draft}: it has {known}; give another with --head."
        )
    return HeadReader(model.decoder, head)


def _read_afresh(
    target: TextReader, draft: TextReader, texts: Sequence[DoctorText], position: int
) -> tuple[float, float] | None:
    """Mean overlaps on what comes behind a position: the draft as it stands, and one that reads from half of it on.

    None where no text goes on so far, or for a head, whose states come from the target.
    """
    if isinstance(draft, HeadReader):
        return None
    begin = position // 2
    some = [DoctorText(x.ids, max(position, 1), x.chat) for x in texts if len(x.ids) > position + 1]
    if not some or begin < 8:
        return None
    rows = read_overlaps(target, [draft, _LateReader(draft, begin)], some)
    return float(np.nanmean(rows[0])), float(np.nanmean(rows[1]))


class _LateReader:
    """A draft that begins to read at token `begin`, as if the text began there."""

    def __init__(self, inner: TextReader, begin: int) -> None:
        self.inner, self.begin = inner, begin

    def read(self, ids: Sequence[int]) -> tuple[int, Any]:
        """Its logits of the tokens behind there."""
        first, logits = self.inner.read(ids[self.begin :])
        return first + self.begin, logits


def token_classes(model: Model, places: PairPlaces, texts: Sequence[DoctorText]) -> dict[str, np.ndarray]:
    """Name -> bool [N], the places whose token holds digits, is not ASCII, follows a line end or a special mark."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        return {}
    pieces = {x: tokenizer.bytes_of(int(x)) for text in texts for x in text.ids}
    marks = frozenset(tokenizer.marks)
    last = np.array([texts[t].ids[i - 1] for t, i in zip(places.text, places.index, strict=True)])

    def holds(ids: np.ndarray, test: Callable[[bytes], bool]) -> np.ndarray:
        return np.array([test(pieces[int(x)]) for x in ids], bool)

    return {
        "digits": holds(places.token, lambda x: any(48 <= b <= 57 for b in x)),
        "tokens that are not ASCII": holds(places.token, lambda x: any(b > 127 for b in x)),
        "tokens after line ends": holds(last, lambda x: x.endswith(b"\n")),
        "tokens after special marks": np.array([int(x) in marks for x in last], bool),
    }


def measure_pair(places: PairPlaces, classes: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The figures of a pair on the answers, by offset, distance of ids, rank, position, class and template, as plain data."""
    rows = places.select(places.answer)
    wrong = rows.select(~rows.right)
    shifts = frequent_shifts(rows)
    starts = np.arange(0, int(places.index.max()) + 1, BLOCK)
    bins = places.index // BLOCK
    low, ranks = 0, []
    for high in (*RANKS, None):
        inside = (rows.rank > low) & (rows.rank <= (high or np.inf))
        ranks.append({"from": low + 1, "to": high, "share": float(inside.mean())})
        low = high or low
    return {
        "places": len(rows.token),
        "overlap": float(rows.overlap.mean()),
        "kl": float(rows.kl.mean()),
        "top1": float(rows.right.mean()),
        "ranks": ranks,
        "by_offset": [
            {"offset": o, "agree": _mean(rows.offsets[:, k]), "overlap": _mean(rows.shifted[:, k])}
            for k, o in enumerate(OFFSETS)
        ],
        "by_id_distance": [
            {"distance": d, "share": _mean(rows.wanted - rows.guess == d)}
            for d in sorted({-2, -1, 0, 1, 2, *shifts})
        ],
        "sure_and_wrong": int(((wrong.q_guess >= 0.9) & (wrong.p_guess < 0.01)).sum()),
        "by_position": [
            {"from": int(x), "to": int(x) + BLOCK - 1, "overlap": _mean(places.overlap[bins == x // BLOCK])}
            for x in starts
            if (bins == x // BLOCK).any()
        ],
        "by_class": [
            {
                "class": name,
                "places": int(x[places.answer].sum()),
                "overlap": _mean(rows.overlap[x[places.answer]]),
            }
            for name, x in classes.items()
        ],
        "by_template": [
            {"chat": chat, "places": int(same.sum()), "overlap": _mean(rows.overlap[same])}
            for chat in (False, True)
            for same in [rows.chat == chat]
        ],
    }


def _mean(values: np.ndarray) -> float | None:
    """The mean of the numbers among them; None where there are none."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _number(value: float) -> float | None:
    """A number that JSON can hold."""
    return value if np.isfinite(value) else None
