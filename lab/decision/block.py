"""Block: what became of a step's block, or of its draft as a whole, and the signals that its parts recorded."""

from __future__ import annotations

from typing import Any

from decodescope.engine.core.note import Note
from decodescope.engine.core.tree import height
from decodescope.engine.trace import Step, Trace, TraceError
from decodescope.engine.trace.checks.notes import declared_notes, iter_note_values
from decodescope.lab.formatting.numbers import f, quote_token
from decodescope.lab.formatting.tokens import visible_token

from .draftless_step import explain_draftless_step
from .explanation import Explanation, ExplanationLine

FATES = {  # whether a tested node is in the path, and whether its own test was passed
    (True, True): "accepted",
    (True, False): "accepted, though its own test failed",
    (False, True): "its test was passed, it is not in the text",
    (False, False): "rejected",
}
MOST = 12  # maximum number of tokens, or values of a note, that are listed


def explain_block(trace: Trace, step: Step) -> Explanation:
    """What the block of a step did. Raises TraceError if the step has none.
    It is the block of a fixed-point method, the hypotheses of a search, or the draft as a whole."""
    if (itself := explain_draftless_step(trace, step)) is not None:
        return itself
    draft = step.draft
    if draft is None or not draft.tokens:
        raise TraceError(
            f"Step {step.step} holds no block: nothing was drafted in it, or its draft was not recorded."
        )
    path, high = step.path or [], height(draft.parents)
    status = "accept" if path else "reject"
    title = f"{step.accepted} of {step.drafted} accepted"
    chain = high == len(draft.tokens)
    shape = "a chain" if chain else f"a tree, {high} deep"
    rule = " ".join(
        str((trace.header.method.get(kind) or {}).get("name", "")) for kind in ("strategy", "acceptance")
    )
    why = Explanation(
        status, title, _format_tokens(trace, [draft.tokens[n] for n in path]), shape, rule.replace("_", " ")
    )
    words = f"{len(draft.tokens)} tokens were drafted as {shape}, and one pass of the target read them all."
    why.lines.append(ExplanationLine(words, (_format_tokens(trace, draft.tokens),) if chain else ()))
    trials = step.trials
    if trials is not None:
        tested = [
            f"{quote_token(visible_token(draft.tokens[n], trace.pieces))} (node {n}): {FATES[n in path, ok]}"
            for n, ok in zip(trials.node[:MOST], trials.ok, strict=False)
        ]
        more = f"{len(trials.node) - MOST} more tests are not listed"
        why.lines.append(
            ExplanationLine(
                f"{len(trials.node)} were tested:", (*tested, *([more] if len(trials.node) > MOST else []))
            )
        )
    if step.extra is not None:
        own = quote_token(visible_token(step.extra.token, trace.pieces))
        why.lines.append(
            ExplanationLine(
                f"After them the target's own token {own} was added, so the step wrote {len(step.emitted)}."
            )
        )
    else:
        why.lines.append(
            ExplanationLine(f"No token of the target's own was added; the step wrote {len(step.emitted)}.")
        )
    why.agrees = step.accepted == len(path) and [draft.tokens[n] for n in path] == step.emitted[: len(path)]
    why.lines += _note_lines(trace, step)
    return why


def _note_lines(trace: Trace, step: Step) -> list[ExplanationLine]:
    """The signals that the parts recorded for the step, in their own words."""
    nodes, lines = len(step.draft.tokens) if step.draft is not None else 0, []
    for part, values in declared_notes(trace.header, step).items():
        notes = trace.header.tells[part]
        sums = tuple(_format_note(notes[name], value, nodes) for name, value in values.items())
        lines.append(ExplanationLine(f"What the {part} recorded of this step:", sums))
    return lines


def _format_note(note: Note, value: Any, nodes: int) -> str:
    listed = [_format_value(one) for _, one in iter_note_values(note, value, nodes)]
    more = ", ..." if len(listed) > MOST else ""
    what = f"   ({note.what})" if note.what else ""
    return f"{note.word}: {', '.join(listed[:MOST])}{more}{' ' + note.unit if note.unit else ''}{what}"


def _format_value(x: Any) -> str:
    return f(x) if isinstance(x, float) else str(x)


def _format_tokens(trace: Trace, tokens: list[int]) -> str:
    more = " ..." if len(tokens) > MOST else ""
    return " ".join(visible_token(token, trace.pieces) for token in tokens[:MOST]) + more
