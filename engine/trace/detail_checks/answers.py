"""Answers of a small model: derive again which one was kept, by which votes, and what was read for it, from a tally."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..details.references import compare_to_reference, vote_share, vote_weight
from ..details.shapes import TallyDetail
from ..records.events import Header, Step
from .details import knobs_of, tallies_by_check

ROUNDING = 1e-6  # of means that were taken of single numbers
RANKED = "ranked answers"  # the references of the same step decide about them
REFERENCES = "labelled answers"
UNASKED = "unasked"
COLUMNS = {"tokens": "tokens?", "logp": "numbers?", "bits": "numbers?", "outcome": "text"}
VALUES = {"score": "number", "kept": "number", "read": "number"}
COMPARED = {"right": "number", "logp": "number", "judged": "number", "weight": "number", "outcome": "text"}


def answers_problems(header: Header, step: Step) -> Iterator[str]:
    """Problems of the answers of a step, beyond those that their declaration covers, a phrase each."""
    for check in ("answers", RANKED):
        tallies, problems = tallies_by_check(header, step, check, COLUMNS, VALUES)
        yield from problems
        for answers in tallies:
            yield from _check_texts(answers, step)
            if "votes" in answers.columns:
                yield from _check_votes(answers)
            if check == RANKED:
                yield from _check_ranking(header, step, answers)


def _check_texts(answers: TallyDetail, step: Step) -> Iterator[str]:
    """Problems of the texts, of what was emitted of them, or of the rows that were read for them."""
    columns = answers.columns
    for tokens, logp, bits, outcome in zip(*(columns[name] for name in COLUMNS), strict=True):
        if (tokens is None) != (outcome == UNASKED):
            yield f"an answer of the tokens {tokens} is {outcome!r}"
        elif any(len(numbers or ()) != len(tokens or ()) for numbers in (logp, bits)):
            yield "an answer has other numbers than its tokens"
    kept = [x for x, outcome in zip(columns["tokens"], columns["outcome"], strict=True) if outcome == "kept"]
    if kept and step.emitted != kept[0]:
        yield f"it emitted {step.emitted}, and the answer that it kept is {kept[0]}"
    if step.origins != ["draft" if kept else "target"] * len(step.emitted):
        yield f"its origins are {step.origins}, and the {'small' if kept else 'large'} model's answer counts"
    rows = sum(x.tokens * (x.batch or 1) for x in step.passes if x.lane == "draft")
    if step.passes and rows != answers.values["read"]:
        yield f"the small model's passes had {rows} rows, and {answers.values['read']} are recorded"


def _check_votes(answers: TallyDetail) -> Iterator[str]:
    """Problems of the votes of answers: each is the share of all answers that agree."""
    votes, outcomes = answers.columns["votes"], answers.columns["outcome"]
    n = len(votes)
    if any(type(x) not in (int, float) or not 0 <= x <= 1 for x in votes):
        yield "a vote of its answers is no part of all of them"
        return
    for vote in set(votes):
        same = votes.count(vote)
        if same % max(1, round(vote * n)) or not math.isclose(vote * n, round(vote * n), abs_tol=ROUNDING):
            yield f"{same} of {n} answers have a vote of {vote:g}"
    texts = [tuple(x or ()) for x in answers.columns["tokens"]]
    by_text = dict(zip(texts, votes, strict=True))
    if any(by_text[text] != vote for text, vote in zip(texts, votes, strict=True)):
        yield "answers of the same tokens have different votes"
    first = votes.index(max(votes)) if votes else None
    chosen = next((i for i, outcome in enumerate(outcomes) if outcome in ("kept", "lost")), None)
    if chosen != first:
        yield f"answer {chosen} was chosen, and answer {first} has the most votes"


def _check_ranking(header: Header, step: Step, answers: TallyDetail) -> Iterator[str]:
    """Problems of the references that the answer was compared with, and of the score that they give."""
    tallies, problems = tallies_by_check(header, step, REFERENCES, COMPARED, {})
    yield from problems
    if len(tallies) != 1 or len(answers) != 1:
        yield f"{len(answers)} answers are ranked by {len(tallies)} lists of references, where one of each is due"
        return
    (compared,) = tallies
    score = vote_share(compared.columns["weight"])
    if not math.isclose(score, answers.values["score"], rel_tol=ROUNDING, abs_tol=ROUNDING):
        yield f"its score is {answers.values['score']:.6g}, and its references give {score:.6g}"
    knobs = knobs_of(header, step.step, header.details[compared.name])
    logp = answers.columns["logp"][0]
    weights, tie = _parse_numbers(knobs.get("vote_weights")), knobs.get("tie_margin")
    if not logp or not _are_numbers(logp) or not _are_numbers(weights, 6) or not _are_numbers([tie]):
        yield "its answer, or the header's router, lacks the numbers from which the votes of references follow"
        return
    yield from _check_comparisons(
        compared, sum(logp) / len(logp), {"vote_weights": weights, "tie_margin": tie}
    )


def _check_comparisons(compared: TallyDetail, logp: float, knobs: Mapping[str, Any]) -> Iterator[str]:
    """References whose recorded judgement does not follow from the answer's mean log-probability (nats)."""
    for i in range(len(compared)):
        one = compared.row(i)
        judged = compare_to_reference(logp, one["logp"], knobs["tie_margin"])
        weight = vote_weight(knobs["vote_weights"], bool(one["right"]), judged)
        if (one["judged"], one["weight"]) != (judged, weight):
            said = f"judged {one['judged']} with the weight {one['weight']:g}"
            yield f"reference {i} was {said}, and it is {judged} with {weight:g}"


def _parse_numbers(knob: Any) -> Any:
    """The numbers of a knob that holds several, which a record writes as one text; what is no such text as it is."""
    try:
        return [float(x) for x in knob.split(",")] if isinstance(knob, str) else knob
    except ValueError:
        return knob


def _are_numbers(values: Any, count: int | None = None) -> bool:
    """True if these are numbers, `count` of them if it is given."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        return False
    return count in (None, len(values)) and all(type(x) in (int, float) for x in values)
