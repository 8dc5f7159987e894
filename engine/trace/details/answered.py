"""Candidates: whole answers of a small model, what a router thinks of them, and whether one was kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..values.limits import TraceError
from .looked import Look, Looked, looks_problems

ROUNDING = 1e-6  # of means that were taken of single numbers


@dataclass
class Candidate:
    """One answer of the small model.

    tokens: ids; none: it was not asked;  form: number of the form of the question that it answers
    logp:   of each token the natural logarithm of its probability by the small model, before the sampler
    bits:   and the entropy of the law there
    ended:  whether it ends with a token or text that ends texts, not with the limit
    """

    tokens: list[int]
    form: int
    logp: list[float]
    bits: list[float]
    ended: bool


@dataclass
class Compared:
    """The answer beside a reference. right: its label;  logp: mean over its answer's tokens, nats, by the small model
    judged: 1: the answer is likelier, 0: they are alike, -1: it is less likely;  weight: what that counts"""

    right: bool
    logp: float
    judged: int
    weight: float


@dataclass
class Bet:
    """By what a model is chosen before either answers. wrong: the chance that the small one's answer is wrong; small, large:
    FLOP of an answer of each"""

    wrong: float
    small: float
    large: float


@dataclass
class Candidates:
    """What the small model answered, and whether the large one was asked.

    by:     how the score follows from the answers, in the router's word; score: of all of them together;  tau: what it was held
            against;  above: whether a score of at least tau keeps the answer, else one of at most tau
    kept:   whether an answer of the small model was kept;  chosen: which one would be, or is; None: there is none
    votes:  of each answer the part of all that agree with it, where answers vote
    rows:   so many rows the passes of the small model had, up to the decision
    compared: the answer beside references, where the router has some;  bet: by what the model was chosen before any answer
    looks:  what the router ran beside the passes
    """

    answers: list[Candidate]
    by: str
    score: float
    tau: float
    above: bool
    kept: bool
    rows: int
    chosen: int | None = None
    votes: list[float] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    bet: Bet | None = None
    looks: list[Look] = field(default_factory=list)

    @property
    def looks_due(self) -> list[tuple[Looked, str, int]]:
        """What its router had to look at, by what the score is made of; of references' own rows the least that there can be."""
        n = len(self.answers[0].tokens) if self.answers else 0
        laws: dict[str, tuple[Looked, str, int]] = {"entropy": ("entropy", "draft", n)}
        laws |= dict.fromkeys(("likelihood", "trained", "weights"), ("law", "draft", n))
        own = [laws[self.by]] if self.by in laws else []
        net: list[tuple[Looked, str, int]] = (
            [("net", "draft", 1)] if self.by in ("trained", "expected") else []
        )
        return [*own, *net, *[("law", "draft", 1) for _ in self.compared]]


def mean_entropy(answers: Sequence[Candidate], chosen: int) -> float:
    """Bits that the law of a token has in an answer, on average."""
    bits = answers[chosen].bits
    return sum(bits) / max(len(bits), 1)


def mean_logp(answer: Candidate) -> float:
    """Nats: the length-normalised log-probability of an answer's tokens."""
    return sum(answer.logp) / max(len(answer.logp), 1)


def share_of(compared: Sequence[Compared]) -> float:
    """What the votes of references come to, from 0, all against the answer, to 1, all for it."""
    most = sum(abs(x.weight) for x in compared)
    return 0.5 + 0.5 * sum(x.weight for x in compared) / most if most else 0.5


def judged_by(logp: float, reference: float, tie: float) -> int:
    """How an answer stands beside a reference, by their mean log-probabilities: 1 likelier, 0 alike, -1 less likely."""
    if abs(logp - reference) <= tie:
        return 0
    if logp > reference:
        return 1
    return -1


def worth_of(bet: Bet) -> float:
    """How often the price of a small answer is what it saves, on average: c_S + P(wrong) c_M < c_M where it is above 1."""
    return (1 - bet.wrong) * bet.large / bet.small


# how a score follows from the record, by the router's word
SCORES: dict[str, Callable[[Candidates, int], float]] = {
    "entropy": lambda record, chosen: mean_entropy(record.answers, chosen),
    "votes": lambda record, chosen: record.votes[chosen],
    "likelihood": lambda record, chosen: math.exp(mean_logp(record.answers[chosen])),
    "weights": lambda record, chosen: share_of(record.compared),
    "expected": lambda record, chosen: 0.0 if record.bet is None else worth_of(record.bet),
}


def keeps(score: float, tau: float, above: bool) -> bool:
    """Whether an answer with this score is kept."""
    return score >= tau if above else score <= tau


def consistent_candidates(record: Candidates | None, vocab: int) -> None:
    """What must agree inside the record, if there is one. Raises TraceError."""
    if record is None:
        return
    n = len(record.answers)
    if any(not len(x.tokens) == len(x.logp) == len(x.bits) for x in record.answers):
        raise TraceError("candidates has an answer with other numbers than its tokens")
    if any(not 0 <= token < vocab for x in record.answers for token in x.tokens):
        raise TraceError(f"candidates holds an id outside the vocabulary of {vocab:,}")
    if record.votes and len(record.votes) != n:
        raise TraceError(f"candidates has {len(record.votes)} votes for {n} answers")
    if (record.chosen is None) != (n == 0) or not 0 <= (record.chosen or 0) < max(n, 1) or record.rows < 0:
        raise TraceError(f"candidates chose answer {record.chosen} of {n}")


def candidates_problems(record: Candidates, step: Any, knobs: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the record of a step, by a router with these knobs, a phrase each."""
    tau = knobs.get("tau")
    if type(tau) not in (int, float) or record.tau != tau:
        yield f"its score was held against {record.tau:g}, and its router has {tau}"
    due = record.chosen is not None and keeps(record.score, record.tau, record.above)
    if record.kept != due:
        yield f"an answer with the score {record.score:g} was {'' if record.kept else 'not '}kept, by a tau of {record.tau:g}"
    if record.votes and record.chosen != (first := record.votes.index(max(record.votes))):
        yield f"answer {record.chosen} was chosen, and answer {first} has the most votes"
    if record.chosen is not None:
        if record.by in SCORES and (record.by != "votes" or record.votes):
            score = SCORES[record.by](record, record.chosen)
            if not math.isclose(score, record.score, rel_tol=ROUNDING, abs_tol=ROUNDING):
                yield f"its score is {record.score:.6g}, and its answers give {score:.6g}"
        if record.kept and step.emitted != record.answers[record.chosen].tokens:
            yield f"it emitted {step.emitted}, and the answer that it kept is {record.answers[record.chosen].tokens}"
    if step.origins != ["draft" if record.kept else "target"] * len(step.emitted):
        yield f"its origins are {step.origins}, and the {'small' if record.kept else 'large'} model's answer counts"
    yield from _weighed(record, knobs)
    yield from looks_problems(record.looks, record.looks_due, least=bool(record.compared))
    rows = sum(x.tokens * (x.batch or 1) for x in step.passes if x.lane == "draft")
    if step.passes and rows != record.rows:
        yield f"the small model's passes had {rows} rows, and {record.rows} are told"


def _weighed(record: Candidates, knobs: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the votes of answers, with references, or with a choice before any answer."""
    n = len(record.answers)
    for vote in set(record.votes):
        same = record.votes.count(vote)
        if same % max(1, round(vote * n)) or not math.isclose(vote * n, round(vote * n), abs_tol=ROUNDING):
            yield f"{same} of {n} answers have a vote of {vote:g}"
    by_tokens = {tuple(x.tokens): vote for x, vote in zip(record.answers, record.votes, strict=False)}
    if any(by_tokens[tuple(x.tokens)] != vote for x, vote in zip(record.answers, record.votes, strict=False)):
        yield "answers of the same tokens have different votes"
    weights, tie = knobs.get("weights"), knobs.get("tie")
    for i, one in enumerate(record.compared):
        if record.chosen is None or not isinstance(tie, int | float) or not isinstance(weights, list | tuple):
            continue
        if len(weights) != 6:
            continue
        judged = judged_by(mean_logp(record.answers[record.chosen]), one.logp, tie)
        weight = weights[3 * (not one.right) + 1 - judged]
        if (one.judged, one.weight) != (judged, weight):
            yield f"reference {i} was judged {one.judged} with the weight {one.weight:g}, and it is {judged} with {weight:g}"
    if record.bet is not None and bool(n) != keeps(worth_of(record.bet), record.tau, record.above):
        yield f"the small model was {'' if n else 'not '}asked, and its answer is worth {worth_of(record.bet):.6g} of its price"
