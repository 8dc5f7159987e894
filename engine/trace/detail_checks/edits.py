"""Edits: the passes over a draft, made again from their probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..details.shapes import TallyDetail
from ..records.events import Step
from ..values.edits import KEEP, TAGS, apply_tags, edit_outcome, likely_edits, next_draft, place_tags

SHARED = (
    "passes",
    "changed",
    "given",
    "room",
    "end",
    "why",
)  # values that all passes of a step have in common


def edits_problems(detail: TallyDetail, step: Step, knobs: Mapping[str, Any]) -> Iterator[str]:
    """Problems of the passes of a step over its draft, a phrase each. The first pass reports for all."""
    passes = [x for x in step.details or () if isinstance(x, TallyDetail) and x.name == detail.name]
    if detail is not passes[0]:
        return
    sure, rounds = knobs.get("min_probability"), knobs.get("max_rounds")
    if not isinstance(sure, int | float) or type(rounds) is not int:
        yield "the header's strategy lacks the knobs from which edits follow"
        return
    if wrong := _passes_problem(passes):
        yield wrong
        return
    yield from _pass_problems(passes, sure)
    yield from _text_problems(passes, step.emitted, sure, rounds)


def _passes_problem(passes: list[TallyDetail]) -> str:
    """Why the passes cannot be followed; "": they can."""
    shared = passes[0].values
    for number, one in enumerate(passes, 1):
        columns = [one.columns.get(x, []) for x in (*TAGS, "instead", "behind", "edit", "token")]
        if not len(one) or any(len(x) != len(one) for x in columns):
            return f"its pass {number} lacks a column"
        if None in columns[-1][1:] or columns[-1][0] is not None or any(None in x for x in columns[:-1]):
            return f"its pass {number} lacks a number or a token of a place"
        if any(one.values.get(x) != shared.get(x) for x in SHARED) or one.values.get("index") != number:
            return f"its pass {number} does not go on from the one before it"
    if shared.get("passes") != len(passes) or type(shared.get("room")) is not int:
        return f"it records {shared.get('passes')} passes with room for {shared.get('room')}, and has {len(passes)}"
    return ""


def _tag_probabilities(one: TallyDetail) -> list[tuple[float, ...]]:
    """Of each place those of the four tags."""
    return list(zip(*(one.columns[x] for x in TAGS), strict=True))


def _pass_problems(passes: list[TallyDetail], sure: float) -> Iterator[str]:
    """Edits or outcomes of a pass that do not follow from its probabilities."""
    changed = 0
    for number, one in enumerate(passes, 1):
        p = _tag_probabilities(one)
        likely = likely_edits(p)
        outcomes = [edit_outcome(row[x], row[KEEP], sure) for row, x in zip(p, likely, strict=True)]
        if one.columns["edit"] != [TAGS[x] for x in likely] or one.columns["outcome"] != outcomes:
            yield f"its pass {number} has other edits than the probabilities give"
        changed += outcomes.count("made")
    if passes[0].values.get("changed") != changed:
        yield f"it says that {passes[0].values.get('changed')} places were changed, and {changed} were"


def _text_problems(passes: list[TallyDetail], emitted: list[int], sure: float, rounds: int) -> Iterator[str]:
    """Where a pass reads another draft than those before it give, or the text is not the last one."""
    values = passes[0].values
    room = values["room"]
    end = values.get("end")
    said = values.get("why")
    seen: list[list[int]] = []
    text, why = passes[0].columns["token"][1:], None
    for number, one in enumerate(passes, 1):
        tokens = one.columns["token"][1:]
        if why is not None:
            yield f"its pass {number} goes on where the edits had ended ({why})"
        if tokens != text:
            yield f"its pass {number} reads {tokens}, and the tags before it give {text}"
        seen.append(tokens)
        words = list(zip(one.columns["instead"], one.columns["behind"], strict=True))
        edited = apply_tags(tokens, place_tags(_tag_probabilities(one), sure), words)
        text, why = next_draft(tokens, edited, room, end, seen, rounds)
    if why != said:
        yield f"it says that its edits ended by {said!r}, and {why!r} follows"
    whole = text if end is None else [*text, end]
    if not emitted or emitted != whole[: len(emitted)]:
        yield f"it emitted {emitted}, and its edits give {whole}"
