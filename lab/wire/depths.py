"""Depths: the message fields on the layers that ran in a step, and on the tests by which a pass skipped others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from decodescope.engine.cost.passes import SPENT, PassPricer
from decodescope.engine.trace.records.events import Exit, Header, Pass, Piece, Step
from decodescope.engine.trace.records.passes import resolve_layers


def layer_letters(one: Pass, layers: int) -> str:
    """A letter for each layer of a pass.
    r: it ran; a: its attention alone; f: its feed-forward block alone; p: it got keys and values from the state at an exit;
    c: those of the layer below; w: its rows wait for it; s: its rows did not all run the same of it; "-": nothing of it was
    there."""
    attn, ffn = (resolve_layers(x, range(layers)) for x in (one.attn, one.ffn))
    rest = [x for x in range(layers) if x not in attn]
    filled, copied = (resolve_layers(x or 0, rest) for x in (one.propagated, one.copied))
    none = "w" if one.gap == "defer" else "-"
    each = []
    for x in range(layers):
        if x in attn:
            each.append("r" if x in ffn else "a")
        elif x in ffn:
            each.append("f")
        else:
            each.append(_absent_letter(x in filled, x in copied, none))
    rows = one.routed or []
    return "".join(
        "s" if len({*signs}) > 1 else sign for sign, signs in zip_longest(each, rows, fillvalue="")
    )


def _absent_letter(filled: bool, copied: bool, none: str) -> str:
    if filled:
        return "p"
    if copied:
        return "c"
    return none


def count_resumed_rows(step: Step, layers: int) -> list[int]:
    """By layer, tokens that had waited before it and ran it in a step, together with its rows or in a flush."""
    passes = [x for x in step.passes if x.lane == "target"]
    ran = [(one, resolve_layers(one.attn, range(layers))) for one in passes]
    return [
        sum(_count_deferred_rows(one) + one.joined_tokens(i) for one, which in ran if i in which)
        for i in range(layers)
    ]


def _count_deferred_rows(one: Pass) -> int:
    """Rows of a pass that had waited: all of a flush; of another pass only those that joined it."""
    return one.tokens if one.phase == "flush" else 0


def partial_passes(step: Step) -> list[Pass]:
    """The passes of the target that wrote in a step, if one of them skipped something, or tested an exit."""
    passes = [x for x in step.passes if x.lane == "target" and x.phase in SPENT]
    parts = [part for x in passes for part in (x.attn, x.ffn, x.propagated, x.joined, x.routed)]
    some = (
        step.exits or any(part is not None for part in parts) or any(x.phase == "flush" for x in step.passes)
    )
    return passes if some else []


def encode_depth(step: Step, header: Header, passes: PassPricer) -> dict[str, Any]:
    """depth: the layers that ran. Empty if all layers ran, without a test.

    `ran`: a row for each pass of the target that wrote, in order: its letters, the rows that it fed, whether it was a drafting
    one (the last of these may run only the layers below the check), and a 1 if rows chose alone what they ran.
    `went`: by layer, tokens that had waited and ran it;  `saved`: layers that the step saved against plain decoding, net of
    tests."""
    layers, ran = int(header.model.get("n_layers", 0)), partial_passes(step)
    if not ran or layers < 1:
        return {}
    saved = passes.saved_layers(step.passes, len(step.emitted))
    rows = [
        [layer_letters(x, layers), x.tokens, int(x.phase == "draft")] + [1] * (x.routed is not None)
        for x in ran
    ]
    went = count_resumed_rows(step, layers)
    shown = {"ran": rows, "saved": None if saved is None else round(saved, 3)}
    return {"depth": shown | ({"went": went} if any(went) else {})}


def exit_pass_indices(step: Step, ran: Sequence[Pass]) -> list[int]:
    """For each exit of a step, the index of its pass in `ran`."""
    turns = {
        drafted: iter([k for k, x in enumerate(ran) if (x.phase == "draft") is drafted])
        for drafted in (True, False)
    }
    return [next(turns[left.drafted], len(ran) - 1) for left in step.exits or ()]


def add_exits(message: dict[str, Any], step: Step, text: Callable[[int], Piece], whole: bool) -> None:
    """Put the exits of a step into its message, one for each pass that tested; unless `whole`, only the last of them.
    `of`: the number of that pass in `ran`. A test is [layer, score, bound, best token, its text]; `known`: [rows found in a
    table, rows looked up, bytes of the table]."""
    if not step.exits or "depth" not in message:
        return
    shown = [
        {"of": k, **_encode_exit(left, text)}
        for k, left in zip(exit_pass_indices(step, partial_passes(step)), step.exits, strict=True)
    ]
    message["depth"]["exits"] = shown if whole else shown[-1:]
    if len(shown) > 1 and not whole:
        message["few"] = True


def _encode_exit(left: Exit, text: Callable[[int], Piece]) -> dict[str, Any]:
    best = [[x, text(x)] for x in left.best] if left.best is not None else [[]] * len(left.tests)
    tests = [[int(test[0]), *test[1:], *named] for test, named in zip(left.tests, best, strict=False)]
    whole = None if left.whole is None else [[x, text(x)] for x in left.whole]
    known = None if left.known is None else [sum(left.known), len(left.known), left.table]
    more: dict[str, Any] = {"rows": left.rows, "closed": left.closed, "whole": whole, "known": known}
    if left.scores is not None:
        first = [round(x, 3) for x in left.scores[0]] if len(left.scores) == 1 else None
        more |= {"open": round(left.open_share, 4), "over": left.over, "scores": first}
    shown = {
        "depth": left.depth,
        "by": left.criterion,
        "asks": left.asks,
        "below": int(left.below),
        "tests": tests,
    }
    return shown | {name: value for name, value in more.items() if value is not None}
