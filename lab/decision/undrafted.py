"""Undrafted: one step of a strategy that drafts nothing, told."""

from __future__ import annotations

from collections import Counter

from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.detail_checks.details import details_problems
from decodescope.engine.trace.details.declarations import ThreadsForm
from decodescope.engine.trace.details.shapes import ThreadsDetail
from decodescope.engine.trace.details.threads import schedule, threads_scope
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.formatting.numbers import f, said
from decodescope.lab.formatting.tokens import shown, shown_id

from .canvas import canvas_explanation
from .explanation import Explanation, Line
from .tally import tally
from .trees import tree, with_tree


def undrafted(trace: Trace, step: Step) -> Explanation | None:
    """What a step did whose strategy says so itself; None: it drafted, or nothing was recorded."""
    if step.detail_of("threads") is not None:
        return threads(trace, step)
    return canvas_explanation(trace, step) or with_tree(tried(trace, step), tree(trace, step))


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


def tried(trace: Trace, step: Step) -> Explanation | None:
    """What a step tried by itself, each number beside the threshold that decided; None: it keeps no such record."""
    card = tally(trace.header, step, lambda ids: shown(join(ids, trace.pieces)))
    if card is None:
        return None
    who = "draft" if {*step.origins} == {"draft"} else "target"
    wrote = shown(join(step.emitted, trace.pieces))
    explained = Explanation(who, card.title, wrote, card.where or card.says, card.rule)
    if card.account:
        explained.lines += [Line(words, sums) for words, sums in card.account]
    else:
        rows = [f"{said(x.text)}: {_held(x.number, x.bar)}{x.word}" for x in card.rows]
        explained.lines.append(Line(f"What was tried ({card.number}, against {card.bar}):", tuple(rows)))
        explained.lines += map(Line, card.lines)
    wrong = details_problems(trace.header, step, Counter())
    explained.agrees = all(x.follows for x in card.rows) and not any(wrong)
    return explained


def _held(number: float | None, bar: float | None) -> str:
    """A number beside its threshold."""
    if number is None:
        return ""
    return f"{f(number)}, " if bar is None else f"{f(number)} {'≥' if number >= bar else '<'} {f(bar)}, "
