"""Undrafted: one step of a strategy that drafts nothing, told."""

from __future__ import annotations

from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.details.declarations import ThreadsForm
from decodescope.engine.trace.details.joined import joint_problems
from decodescope.engine.trace.details.shapes import ThreadsDetail
from decodescope.engine.trace.details.threads import schedule, threads_scope
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.formatting.numbers import f, said
from decodescope.lab.formatting.tokens import shown, shown_id

from .canvas import canvas_explanation
from .explanation import Explanation, Line
from .tally import tally


def undrafted(trace: Trace, step: Step) -> Explanation | None:
    """What a step did whose strategy says so itself; None: it drafted, or nothing was recorded."""
    records = step.beams, step.detail_of("threads"), step.joint
    for record, explained in zip(records, (beams, threads, joint), strict=True):
        if record is not None:
            return explained(trace, step)
    return canvas_explanation(trace, step) or tried(trace, step)


def beams(trace: Trace, step: Step) -> Explanation:
    """One step of beam search: the hypotheses that were kept."""
    b = step.beams
    assert b is not None
    texts = [shown_id(token, trace.pieces) for token in b.tokens]
    explained = Explanation(
        "target", "Beams kept", texts[0] if texts else "", f"{len(texts)} hypotheses", "beam search"
    )
    groups, fines = b.groups or [0] * len(texts), b.penalties or [0.0] * len(texts)
    rows = zip(texts, b.parents, b.scores, groups, fines, strict=True)
    kept = tuple(
        f"{rank}. {text}   continues hypothesis {parent + 1} of the step before, {score:.3f} nats"
        + ("" if b.groups is None else f", group {group + 1}, fined {fine:g}")
        for rank, (text, parent, score, group, fine) in enumerate(rows, 1)
    )
    explained.lines.append(
        Line("The texts with the largest sums of log-probabilities stay; nothing is drawn.", kept)
    )
    if b.groups is not None:
        words = "Each group chooses by itself, and is fined for every token that a group before it chose in the same step."
        explained.lines.append(Line(words))
    if b.pruned:
        left = [
            f"{shown_id(int(x), trace.pieces)}   behind hypothesis {int(p) + 1}, {z:.3f} nats"
            for p, x, z in b.pruned
        ]
        explained.lines.append(Line("The next best were left:", tuple(left)))
    order = [(group, fine - score) for group, fine, score in zip(groups, fines, b.scores, strict=True)]
    explained.agrees = order == sorted(order)
    return explained


def threads(trace: Trace, step: Step) -> Explanation:
    """One round of threads: what each of them wrote, and what by then stands of the text."""
    t: ThreadsDetail = step.detail_of("threads")
    form = trace.header.details.get(t.name)
    if not isinstance(form, ThreadsForm):
        form = ThreadsForm("Threads")
    scope = threads_scope(t, len(step.emitted))
    texts = [shown_id(token, trace.pieces) for token in t.tokens]
    explained = Explanation(
        "target", form.title, texts[0] if texts else "", f"{len(texts)} threads", "threads"
    )
    wrote = tuple(f"thread {number}: {text}" for number, text in zip(t.alive, texts, strict=True))
    explained.lines.append(Line(" ".join(scope.all(form.lines)), wrote))
    begun = tuple(
        f"thread {x.thread} begins behind {'the prompt' if x.parent < 0 else f'{x.at} tokens of thread {x.parent}'}"
        + (f" and {len(x.given)} that nobody wrote" if x.given else "")
        for x in t.begun
    )
    ended = tuple(f"thread {x.thread} ended: {x.why.replace('_', ' ')}" for x in t.ended)
    if begun or ended:
        explained.lines.append(Line("Threads begin and end:", (*begun, *ended)))
    taken = schedule(one.detail_of("threads") for one in trace.steps[: step.step + 1])
    counted = f"{taken.rounds} rounds, {taken.longest} tokens on the longest way, {taken.tokens} in all"
    explained.lines.append(Line(f"{len(step.emitted)} tokens stand by now that did not before.", (counted,)))
    explained.agrees = len(t.alive) == len(t.tokens)
    if (more := tried(trace, step)) is not None:
        explained.lines += more.lines
        explained.agrees = explained.agrees and more.agrees
    return explained


def joint(trace: Trace, step: Step) -> Explanation:
    """What the texts of several tokens were worth that one pass offered, and what was written of them."""
    j = step.joint
    assert j is not None
    texts = ["".join(shown_id(token, trace.pieces) for token in text) for text in j.texts]
    wrote = shown_id(step.emitted[0], trace.pieces) if j.chosen is None else texts[j.chosen]
    where = f"{j.level} tokens, one of {len(texts)} texts" if texts else "one token"
    explained = Explanation("target", "Tokens taken together", wrote, where, "joint probability")
    words = "One pass says what each of the next tokens may be; what stands together in other texts corrects their product."
    best = [f"{n} token{'s' if n > 1 else ''}: the best text has {x:.3f}" for n, x in enumerate(j.best, 1)]
    explained.lines.append(Line(words, tuple(best)))
    if j.chosen is None:
        explained.lines.append(
            Line(f"No text of several tokens has {j.threshold:g}, so the target's next token stands alone.")
        )
    else:
        rows = [
            f"{said(x)}: {both:.3f}, apart {alone:.3f}"
            for x, both, alone in zip(texts, j.joint, j.alone, strict=True)
        ]
        explained.lines.append(Line(f"The longest that have {j.threshold:g} were offered:", tuple(rows)))
        chosen = "the best was taken" if j.u is None else f"u = {j.u:.3f} fell on text {j.chosen + 1}"
        explained.lines.append(Line("No token of it but the first was the target's own choice.", (chosen,)))
    explained.agrees = not [*joint_problems(j, step.emitted)]
    return explained


def tried(trace: Trace, step: Step) -> Explanation | None:
    """What a step tried by itself, each number beside the threshold that decided; None: it keeps no such record."""
    card = tally(trace.header, step, lambda ids: shown(join(ids, trace.pieces)))
    if card is None:
        return None
    who = "draft" if {*step.origins} == {"draft"} else "target"
    explained = Explanation(who, card.title, shown(join(step.emitted, trace.pieces)), card.says, "tally")
    rows = [f"{said(x.text)}: {_held(x.number, x.bar)}{x.word}" for x in card.rows]
    explained.lines.append(Line(f"What was tried ({card.number}, against {card.bar}):", tuple(rows)))
    explained.lines += map(Line, card.lines)
    explained.agrees = all(x.follows for x in card.rows)
    return explained


def _held(number: float | None, bar: float | None) -> str:
    """A number beside its threshold."""
    if number is None:
        return ""
    return f"{f(number)}, " if bar is None else f"{f(number)} {'≥' if number >= bar else '<'} {f(bar)}, "
