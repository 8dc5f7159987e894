"""Explain exits: why a pass of the target exited where it did, with its tests and their bound."""

from __future__ import annotations

from decodescope.engine.trace import Step, Trace, TraceError
from decodescope.engine.trace.records.events import Exit, Pass
from decodescope.engine.trace.records.parts import part_description
from decodescope.engine.trace.records.passes import resolve_layers
from decodescope.engine.trace.records.phases import is_deciding_pass
from decodescope.lab.formatting.numbers import f
from decodescope.lab.formatting.tokens import visible_token

from .explanation import Explanation, ExplanationLine


def explain_exit(trace: Trace, step: Step) -> Explanation:
    """The last pass of a step that tested an exit, or skipped layers as it did in every step.
    Raises TraceError if there is none."""
    if not step.exits:
        last = next((x for x in reversed(step.passes) if is_deciding_pass(x)), None)
        lossy = (
            "decisions" in trace.header.levels
            and part_description(trace.header, "adaptive_depth").get("exact") is False
        )
        if last is not None and (lossy or last.attn is not None or last.ffn is not None):
            return _explain_plan(trace, step, last)
        raise TraceError(
            f"No pass of step {step.step} asked whether to leave early: take a run with a depth rule."
        )
    left, layers = step.exits[-1], int(trace.header.model.get("n_layers", 0))
    if left.closed is not None:
        return _explain_gates(trace, step, left)
    if left.known is not None:
        return _explain_lookup(trace, step, left, left.known)
    if left.asks == "router":
        return _explain_routers(trace, step, left, layers)
    whole = left.depth >= layers
    token = visible_token(step.emitted[-1], trace.pieces) if step.emitted else ""
    title = f"All {layers} layers ran" if whole else f"Left after {left.depth} of {layers} layers"
    why = Explanation("target", title, token, f"step {step.step}", _exit_rule_name(trace, left.criterion))
    tests = [x for x in left.tests if len(x) == 3]
    words = "In front of a layer the pass asks how sure the target already is, and leaves at the first bound that is reached."
    why.lines.append(ExplanationLine(words, tuple(_format_test(left, *one) for one in tests)))
    if not tests and not left.asks:
        why.lines.append(
            ExplanationLine("The rule asks nothing: the token that is read says how deep its pass goes.")
        )
    elif not tests:
        why.lines.append(
            ExplanationLine(
                "No layer of this pass was asked: it had nothing to compare with, or no layer was due."
            )
        )
    else:
        layer, sure, bound = tests[-1]
        why.numbers = [("how sure", "c", sure), ("bound", "b", bound)]
        why.test = f"c {'≥' if sure >= bound else '<'} b:  {f(sure)} and {f(bound)}"
        stops = [int(at) for at, c, b in tests if left.test_leaves(c, b)]
        why.agrees = stops == ([] if whole else [left.depth]) and int(layer) <= left.depth
    if whole:
        why.lines.append(
            ExplanationLine("No test was passed, so the token is the one that the whole model chooses.")
        )
    else:
        words = f"The {layers - left.depth} layers above did not run; their keys and values come from the state at the exit."
        why.lines.append(ExplanationLine(words + " The whole model might have chosen another token."))
    return why


def _explain_routers(trace: Trace, step: Step, left: Exit, layers: int) -> Explanation:
    """Which sub-layers the rows of a pass ran by the scores of their routers."""
    token = visible_token(step.emitted[-1], trace.pieces) if step.emitted else ""
    rows = left.scores or []
    title = f"{left.open_share:.0%} of the sub-layers ran" if rows else "Routers chose what ran"
    why = Explanation("target", title, token, f"step {step.step}", _exit_rule_name(trace, left.criterion))
    words = "In front of every sub-layer a router scores the token; it runs the block where the score is above the threshold "
    first = rows[0] if rows else []
    lines = tuple(
        f"{kind} {i}:  s = {f(s)} {'>' if s > left.over else '≤'} {f(left.over)}   {'it ran' if s > left.over else 'left out'}"
        for i in range(len(first) // 2)
        for kind, s in zip(("attention", "feed-forward"), first[2 * i : 2 * i + 2], strict=True)
    )
    many = f" Of {len(rows)} rows, which chose separately, the first:" if len(rows) > 1 else ""
    why.lines.append(ExplanationLine(f"{words.rstrip()}.{many}", lines))
    if not rows:
        why.lines.append(ExplanationLine("The scores were not recorded at this trace's level."))
    why.agrees = len(first) in (0, 2 * layers)
    return why


def _explain_gates(trace: Trace, step: Step, left: Exit) -> Explanation:
    """Why a pass skipped the feed-forward blocks that it skipped."""
    closed, token = left.closed or [], visible_token(step.emitted[-1], trace.pieces) if step.emitted else ""
    title = f"{len(closed)} feed-forward blocks left out" if closed else "All feed-forward blocks ran"
    why = Explanation("target", title, token, f"step {step.step}", _exit_rule_name(trace, left.criterion))
    words = "Behind a feed-forward block the pass asks how alike the states are that entered and left it; where they are "
    tests = tuple(
        f"behind layer {int(at)}:  c = {f(c)} {'≥' if c >= b else '<'} {f(b)} = b" for at, c, b in left.tests
    )
    why.lines.append(
        ExplanationLine(
            words + "alike enough, blocks further up are left out. Attention runs in every layer.", tests
        )
    )
    if closed:
        why.lines.append(
            ExplanationLine(
                f"Left out: those of the layers {', '.join(map(str, closed))}; their weights were not read."
            )
        )
    if left.tests:
        _, sure, bound = left.tests[-1]
        why.numbers = [("how alike", "c", sure), ("bound", "b", bound)]
        why.test = f"c {'≥' if sure >= bound else '<'} b:  {f(sure)} and {f(bound)}"
        why.agrees = any(left.test_leaves(c, b) for _, c, b in left.tests) == bool(closed)
    return why


def _explain_lookup(trace: Trace, step: Step, left: Exit, known: list[bool]) -> Explanation:
    """The source of the states that entered the first layer of a pass."""
    layers = int(trace.header.model.get("n_layers", 0))
    token = visible_token(step.emitted[-1], trace.pieces) if step.emitted else ""
    title = f"{sum(known)} of {len(known)} states found in the table"
    why = Explanation("target", title, token, f"step {step.step}", _exit_rule_name(trace, left.criterion))
    first = layers - left.depth
    words = f"What enters layer {first} is a function of three tokens alone: looked up, or worked out from these and kept."
    why.lines.append(
        ExplanationLine(
            f"{words} The layers below did not run for the text. The table takes {left.table:,} bytes."
        )
    )
    why.lines.append(
        ExplanationLine(
            "The whole model's first layers see all of the text; it might have chosen another token."
        )
    )
    return why


def _explain_plan(trace: Trace, step: Step, last: Pass) -> Explanation:
    """The layers skipped by a pass without a test."""
    layers = int(trace.header.model.get("n_layers", 0))
    token = visible_token(step.emitted[-1], trace.pieces) if step.emitted else ""
    out = [
        [i for i in range(layers) if i not in resolve_layers(ran, range(layers))]
        for ran in (last.attn, last.ffn)
    ]
    title = f"{len(out[0])} attention and {len(out[1])} feed-forward blocks left out"
    kinds = zip(("attention", "feed-forward"), out, strict=True)
    lines = tuple(f"{kind}: layers {', '.join(map(str, which))}" for kind, which in kinds if which)
    known = (
        "what a pass leaves out was known before it. Not run:"
        if lines
        else "nothing of this pass was to be left out."
    )
    why = Explanation("target", title, token, f"step {step.step}", _exit_rule_name(trace))
    why.lines.append(ExplanationLine(f"The rule asks nothing: {known}", lines))
    return why


def _exit_rule_name(trace: Trace, criterion: str = "") -> str:
    name = (trace.header.method.get("adaptive_depth") or {}).get("name", "")
    return " ".join(x.replace("_", " ") for x in (str(name), criterion) if x)


def _format_test(left: Exit, layer: float, sure: float, bound: float) -> str:
    sign, end = "≥" if sure >= bound else "<", "it leaves" if left.test_leaves(sure, bound) else "it goes on"
    return f"before layer {int(layer)}:  c = {f(sure)} {sign} {f(bound)} = b   {end}"
