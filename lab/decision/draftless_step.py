"""Draftless step: explain one step of a strategy that drafts nothing."""

from __future__ import annotations

from collections import Counter

from decodescope.engine.trace import Step, Trace
from decodescope.engine.trace.detail_checks.details import details_problems
from decodescope.engine.trace.details.declarations import ThreadsForm
from decodescope.engine.trace.details.shapes import ThreadsDetail
from decodescope.engine.trace.details.threads import thread_schedule, threads_scope
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.formatting.numbers import f, quote_token
from decodescope.lab.formatting.tokens import visible_piece, visible_token

from .canvas import explain_canvas
from .explanation import Explanation, ExplanationLine
from .tally import find_tally
from .trees import explain_tree, merge_tree


def explain_draftless_step(trace: Trace, step: Step) -> Explanation | None:
    """Explain a step from its strategy's own record; None: it drafted, or nothing was recorded."""
    if step.detail_of("threads") is not None:
        return explain_threads(trace, step)
    return explain_canvas(trace, step) or merge_tree(explain_tally(trace, step), explain_tree(trace, step))


def explain_threads(trace: Trace, step: Step) -> Explanation:
    """One round of threads: what each of them wrote, and how much of the text exists after it."""
    t: ThreadsDetail = step.detail_of("threads")
    form = trace.header.details.get(t.name)
    if not isinstance(form, ThreadsForm):
        form = ThreadsForm("Threads")
    scope = threads_scope(t, len(step.emitted))
    texts = [visible_token(token, trace.pieces) for token in t.tokens]
    explained = Explanation(
        "target", form.title, texts[0] if texts else "", f"{len(texts)} threads", "threads"
    )
    wrote = tuple(f"thread {number}: {text}" for number, text in zip(t.alive, texts, strict=True))
    explained.lines.append(ExplanationLine(" ".join(scope.say_all(form.lines)), wrote))
    begun = tuple(
        f"thread {x.thread} begins behind {'the prompt' if x.parent < 0 else f'{x.at} tokens of thread {x.parent}'}"
        + (f" and {len(x.given)} that nobody wrote" if x.given else "")
        for x in t.begun
    )
    ended = tuple(f"thread {x.thread} ended: {x.why.replace('_', ' ')}" for x in t.ended)
    if begun or ended:
        explained.lines.append(ExplanationLine("Threads begin and end:", (*begun, *ended)))
    taken = thread_schedule(one.detail_of("threads") for one in trace.steps[: step.step + 1])
    counted = f"{taken.rounds} rounds, {taken.longest} tokens on the longest way, {taken.tokens} in all"
    explained.lines.append(ExplanationLine(f"{len(step.emitted)} more tokens are final now.", (counted,)))
    explained.agrees = len(t.alive) == len(t.tokens)
    if (more := explain_tally(trace, step)) is not None:
        explained.lines += more.lines
        explained.agrees = explained.agrees and more.agrees
    return explained


def explain_tally(trace: Trace, step: Step) -> Explanation | None:
    """What a step tried by itself, each number with the threshold that decided; None: it keeps no such record."""
    card = find_tally(trace.header, step, lambda ids: visible_piece(join(ids, trace.pieces)))
    if card is None:
        return None
    who = "draft" if {*step.origins} == {"draft"} else "target"
    wrote = visible_piece(join(step.emitted, trace.pieces))
    explained = Explanation(who, card.title, wrote, card.where or card.says, card.rule)
    if card.account:
        explained.lines += [ExplanationLine(words, sums) for words, sums in card.account]
    else:
        rows = [f"{quote_token(x.text)}: {_format_threshold(x.number, x.bar)}{x.word}" for x in card.rows]
        explained.lines.append(
            ExplanationLine(f"What was tried ({card.number}, against {card.bar}):", tuple(rows))
        )
        explained.lines += map(ExplanationLine, card.lines)
    wrong = details_problems(trace.header, step, Counter())
    explained.agrees = all(x.is_consistent for x in card.rows) and not any(wrong)
    return explained


def _format_threshold(number: float | None, bar: float | None) -> str:
    """A number compared with its threshold."""
    if number is None:
        return ""
    return f"{f(number)}, " if bar is None else f"{f(number)} {'≥' if number >= bar else '<'} {f(bar)}, "
