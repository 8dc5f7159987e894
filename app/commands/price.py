"""The command `price`: cost of one pass of a model on a machine, by the cost model and by LLM-Viewer's table."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from decodescope.engine.core.refusal import Refusal

from .shared.output import print_json, table

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec
    from decodescope.engine.cost.hardware import HardwareProfile
    from decodescope.engine.cost.operators import Cost
    from decodescope.engine.cost.roofline import Estimate
    from decodescope.engine.cost.viewer import BitWidths, CostComparison, Stage

HERE = "here"


def price(args: argparse.Namespace) -> int:
    """Price the pass by both tables, and print where they differ."""
    from decodescope.engine.cost.viewer import compare_costs

    bits = parse_bits(args.bits)
    spec, machine = find_shape(args.model), find_machine(args.machine, args.data)
    stage: Stage = "prefill" if args.prefill else "decode"
    both = compare_costs(
        spec, stage, args.context, machine, batch=args.sequences, bits=bits, fused=not args.unfused
    )
    if args.json:
        print_json(record(both, spec, machine, args, bits))
    else:
        print(as_text(both, spec, machine, args, bits))
    return 0


def parse_bits(text: str) -> BitWidths:
    """Bits of weights, activations and cache, of one number or three."""
    from decodescope.engine.cost.viewer import BitWidths

    if not re.fullmatch(r"\d{1,2}(\.\d{1,3})?(,\d{1,2}(\.\d{1,3})?){0,2}", text):
        raise Refusal(
            f"--bits {text[:40]!r} must be one to three numbers with commas between them, such as 4,16,16."
        )
    given = [float(x) for x in text.split(",")]
    if min(given) < 1 or max(given) > 64:
        raise Refusal(f"--bits {text}: each number must lie from 1 to 64.")
    weights, acts = given[0], given[1] if len(given) > 1 else max(16.0, given[0])
    return BitWidths(weights, acts, given[2] if len(given) > 2 else acts)


def find_shape(name: str) -> ModelSpec:
    """The shape of a known model, or of a model with weights on this machine."""
    from decodescope.engine.session.load import describe, find_model, load
    from decodescope.lab.cost.pricer import SHAPES

    if name in SHAPES:
        return SHAPES[name]
    called, folder, adapter, weights = find_model(name)
    # with transforms, only the loaded model shows the size of its matrices
    return load(name).spec if weights else describe(folder, called, None, adapter)


def find_machine(name: str, data: str | None) -> HardwareProfile:
    """A machine of the list, or this machine, which is measured if it was not before."""
    from decodescope.engine.cost.hardware import device

    if name != HERE:
        return device(name)
    from decodescope.app.basis.storage import data_folder, ensure_writable
    from decodescope.engine.timing.measure import profile_here

    return profile_here("bfloat16", "cpu", None if data is None else ensure_writable(data_folder(data)))


def record(
    both: CostComparison, spec: ModelSpec, machine: HardwareProfile, args: argparse.Namespace, bits: BitWidths
) -> dict[str, Any]:
    """The whole as plain data."""
    theirs, ours = both.totals
    return {
        "model": spec.name,
        "machine": machine.name,
        "stage": "prefill" if args.prefill else "decode",
        "context": args.context,
        "sequences": args.sequences,
        "bits": [bits.weights, bits.acts, bits.cache],
        "ours": {**ours.record(), "estimate": both.ours.record()},
        "viewer": {**theirs.record(), "estimate": both.theirs.record()},
        "parts": [
            {"part": x.name, "ours": x.ours.record(), "viewer": x.theirs.record(), "why": list(x.why)}
            for x in both.parts
        ],
    }


COLUMNS = ("", "FLOPs", "bytes", "FLOP / byte", "time", "bound")


def as_text(
    both: CostComparison, spec: ModelSpec, machine: HardwareProfile, args: argparse.Namespace, bits: BitWidths
) -> str:
    """The figures as text."""
    theirs, ours = both.totals
    what = f"a prompt of {args.context} tokens" if args.prefill else f"one token, the {args.context}th"
    each = "" if args.sequences == 1 else f" of each of {args.sequences} sequences"
    widths = f"{bits.weights:g}-bit weights, {bits.acts:g}-bit activations, {bits.cache:g}-bit cache"
    head = f"{spec.name} on {machine.name} ({machine.kind}): {what}{each}; {widths}"
    rows = [_row("ours", ours, both.ours), _row("LLM-Viewer", theirs, both.theirs)]
    parts = []
    for x in both.parts:
        figures = x.ours.flops, x.theirs.flops, x.ours.bytes, x.theirs.bytes
        parts.append([x.name, *(f"{n:.4g}" for n in figures), " ".join(x.why)])
    head_of = ("part", "FLOPs, ours", "theirs", "bytes, ours", "theirs", "why they part")
    rule = "Time is the sum of the operators' own, nothing overlapping, at best; launches are added where they are known."
    return f"{head}\n\n{table(COLUMNS, rows)}\n\n{table(head_of, parts)}\n\n{rule}"


def _row(name: str, cost: Cost, estimate: Estimate) -> list[str]:
    us = estimate.us
    time = f"{us / 1e3:.6g} ms" if us >= 1e3 else f"{us:.6g} us"
    return [name, f"{cost.flops:.5e}", f"{cost.bytes:.5e}", f"{cost.intensity:.2f}", time, estimate.bound]
