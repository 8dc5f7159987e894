"""Choice: the candidates for an emitted token, and the terms that make up each one's score."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..values.limits import TraceError

ROUNDING = 1e-4  # of sums of single floats, in nats
TINY = 1e-7  # of sums of probabilities
CLOSE = 1e-3  # of two scores, below which either may be the larger one in another order of sums
LEAST = 1e-6  # smallest single-precision probability for a logarithm

Joined = Literal["log", "mixture"]


@dataclass
class Choice:
    """How one token was chosen.

    candidates: ids, the best first, then those that were excluded;  chosen: which of them was written
    terms:   name -> its value for each candidate;  weights: name -> its factor in the sum
    scores:  the sum of each candidate; None: it was excluded, whatever its sum is
    floors:  name of a term -> its minimum for a candidate to stay
    joined:  what is summed. "log": logarithms, or corrections of them; the distribution is the softmax of the scores.
             "mixture": probabilities, with weights that sum to 1; a score is a probability of the resulting distribution
    """

    candidates: list[int]
    chosen: int
    terms: dict[str, list[float]]
    weights: dict[str, float]
    scores: list[float | None]
    floors: dict[str, float] = field(default_factory=dict)
    joined: Joined = "log"

    def log_score(self, score: float) -> float:
        """A score as a logarithm, by which two of one record are compared."""
        if self.joined == "log":
            return score
        return math.log(score) if score > 0 else -math.inf

    def sum_terms(self, i: int) -> float:
        """The score of a candidate, added up again; NaN where the terms have no sum."""
        try:
            return math.fsum(weight * self.terms[name][i] for name, weight in self.weights.items())
        except (
            ValueError,
            OverflowError,
        ):  # infinite terms of both signs, or finite ones with a sum beyond all numbers
            return math.nan

    def stays(self, i: int) -> bool:
        """True if no term of a candidate is below its floor."""
        return all(self.terms[name][i] >= floor for name, floor in self.floors.items())


def validate_choices(choices: Sequence[Choice] | None, emitted: int, vocab: int) -> None:
    """Check the records of a step that emitted `emitted` tokens, if there are any. Raises TraceError."""
    if choices is None:
        return
    if len(choices) != emitted:
        raise TraceError(f"choices has {len(choices)} entries for {emitted} emitted tokens")
    for choice in choices:
        n = len(choice.candidates)
        if any(not 0 <= x < vocab for x in choice.candidates):
            raise TraceError(f"choices holds an id outside the vocabulary of {vocab:,}")
        short = len(choice.scores) != n or any(len(x) != n for x in choice.terms.values())
        if short or not 0 <= choice.chosen < n:
            raise TraceError(
                f"choices has not one score and one of each term for each of {n} candidates, one of them chosen"
            )
        if choice.weights.keys() != choice.terms.keys() or not choice.floors.keys() <= choice.terms.keys():
            raise TraceError(
                "choices weighs or bounds a term that it does not have, or does not weigh one that it has"
            )
        if choice.joined == "mixture":
            _validate_mixture(choice)


def _validate_mixture(choice: Choice) -> None:
    """A mixture is one of probabilities, by shares. Raises TraceError."""
    shares = choice.weights.values()
    if any(x < 0 for x in shares) or not math.isclose(math.fsum(shares), 1, abs_tol=ROUNDING):
        raise TraceError("choices mixes by weights that are no shares: they must add up to 1, none below 0")
    if any(not 0 <= x <= 1 + ROUNDING for values in choice.terms.values() for x in values):
        raise TraceError("choices mixes what is no probability")


def choices_problems(
    choices: Sequence[Choice],
    emitted: Sequence[int],
    best: bool,
    laws: Sequence[Sequence[tuple[int, float]]] = (),
) -> Iterator[str]:
    """Problems of the records of a step that emitted these tokens, a phrase each. best: True if each had to be the best
    of its candidates;  laws: of each place (token, probability) by the sampler's logits, of a few tokens"""
    for i, (choice, token) in enumerate(zip(choices, emitted, strict=True)):
        yield from _choice_problems(choice, token, best)
        scores = dict(zip(choice.candidates, choice.scores, strict=True))
        shown = laws[i] if i < len(laws) else ()
        known = [(s, p) for x, p in shown if p > LEAST and (s := scores.get(x)) is not None]
        shifts = [choice.log_score(s) - math.log(p) for s, p in known]
        if choice.joined == "mixture":
            shifts.append(0.0)  # a mixture is the distribution itself, not one up to a factor
        if shifts and max(shifts) - min(shifts) > CLOSE:
            due = "the mixture" if choice.joined == "mixture" else "the softmax of the scores"
            yield f"its distribution after {i} tokens is another than {due}"


def _choice_problems(choice: Choice, token: int, best: bool) -> Iterator[str]:
    if choice.candidates[choice.chosen] != token:
        yield f"it chose the token {choice.candidates[choice.chosen]}, and {token} was emitted"
    for i, (x, score) in enumerate(zip(choice.candidates, choice.scores, strict=True)):
        total = choice.sum_terms(i)
        near = ROUNDING if choice.joined == "log" else TINY
        if score is not None and not math.isclose(score, total, rel_tol=ROUNDING, abs_tol=near):
            yield f"the score of token {x} is {score:.6g}, and its terms add up to {total:.6g}"
        bound = any(abs(choice.terms[name][i] - floor) < ROUNDING for name, floor in choice.floors.items())
        if not bound and (score is not None) != choice.stays(i):
            yield f"token {x} {'is left out' if score is None else 'stays'}, and by its terms and floors it should not"
    scores = [x for x in choice.scores if x is not None]
    if scores != sorted(scores, reverse=True):
        yield "its candidates are not ordered with the best first"
    own = choice.scores[choice.chosen]
    if best and (own is None or choice.log_score(own) < choice.log_score(max(scores)) - CLOSE):
        yield "a candidate with a larger score was left behind, where the best is always taken"
