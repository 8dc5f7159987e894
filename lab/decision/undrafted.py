"""Undrafted: one step of a strategy that drafts nothing, told."""

from __future__ import annotations

from decodescope.engine.trace import Step, Trace
from decodescope.lab.words.numbers import said
from decodescope.lab.words.tokens import shown_id

from .explanation import Explanation, Line


def iteration(trace: Trace, step: Step) -> Explanation:
    """One pass of a fixed-point method: what did not change any more is final."""
    it = step.iteration
    assert it is not None
    texts = [shown_id(token, trace.pieces) for token in it.tokens]
    where = f"{len(texts)} tokens from position {it.start}"
    explained = Explanation("target", "One pass over a block", texts[0], where, "fixed point")
    explained.lines.append(Line("All tokens of the block were guessed, and one pass says what the target puts at each place."))
    words = "A token is final when everything before it is: then the target has read what it would have read anyway."
    counted = f"{it.fixed} of {len(texts)} are final after this pass"
    if it.before is not None and len(it.before) == len(it.tokens):
        was = [shown_id(token, trace.pieces) for token in it.before]
        places = zip(was, texts, strict=True)
        rows = [f"place {k}:  guess {said(a)}, the target's choice {said(b)}" for k, (a, b) in enumerate(places, 1)]
        explained.lines.append(Line("Before and after:", tuple(rows)))
        right = next((k for k, (a, b) in enumerate(zip(it.before, it.tokens, strict=True)) if a != b), len(texts))
        explained.agrees = it.fixed == min(right + 1, len(texts)) and step.emitted == it.tokens[: len(step.emitted)]
        if right < len(texts):
            words += f" The first {right} guesses are the target's choice, and place {right + 1} was read behind them alone."
    explained.lines.append(Line(words, (counted,)))
    if it.fixed < len(texts):
        explained.lines.append(Line(f"The other {len(texts) - it.fixed} choices are the guesses of the next pass."))
    explained.test = f"{it.fixed} of {len(texts)} final"
    return explained


def beams(trace: Trace, step: Step) -> Explanation:
    """One step of beam search: the hypotheses that were kept."""
    b = step.beams
    assert b is not None
    texts = [shown_id(token, trace.pieces) for token in b.tokens]
    explained = Explanation("target", "Beams kept", texts[0] if texts else "", f"{len(texts)} hypotheses", "beam search")
    kept = tuple(
        f"{rank}. {text}   continues hypothesis {parent + 1} of the step before, {score:.3f} nats"
        for rank, (text, parent, score) in enumerate(zip(texts, b.parents, b.scores, strict=True), 1)
    )
    explained.lines.append(Line("The texts with the largest sums of log-probabilities stay; nothing is drawn.", kept))
    explained.agrees = b.scores == sorted(b.scores, reverse=True)
    return explained
