"""The command `trace`: tell what a recorded run holds, and check that it agrees with itself."""

from __future__ import annotations

import argparse
from typing import Any

from .decode import figures, line
from .refusal import Refusal
from .report import say_json


def show(args: argparse.Namespace) -> int:
    """Print what the trace holds."""
    from ..engine.trace import open_trace
    from ..engine.trace.limits import TraceError
    from ..engine.trace.summary import summarise

    trace = open_trace(args.file)
    try:
        made, head = summarise(trace), trace.header
        tokens = trace.tokens[len(head.prompt) :]
        text = trace.text(tokens) if all(x in trace.pieces for x in tokens) else None
    except TraceError as error:
        raise Refusal(f"{args.file} is damaged, so it cannot be summed up: {error}") from None
    finally:
        trace.close()
    if args.json:
        said: dict[str, Any] = {**figures(made), "end": made.end or None}
        said |= {"text": text, "prompt_tokens": head.prompt.tolist(), "tokens": tokens, "model": head.model["name"]}
        said |= {"method": head.method, "seed": head.seed, "dtype": head.dtype, "device": head.device}
        say_json({**said, "levels": head.levels, "damage": trace.damage, "trace": str(args.file)})
        return 0
    chosen = ", ".join(f"{kind} {part['name']}" for kind, part in head.method.items())
    print(f"{args.file}\n  model   {head.model['name']}, {head.dtype} on {head.device}, seed {head.seed}")
    print(f"  method  {chosen}\n  level   {head.levels[-1]}\n  run     {line(made)}")
    if text is not None:
        print(f"  text    {text[:200]!r}")
    if trace.damage:
        print(f"  damage  {trace.damage}")
    return 0


def check(args: argparse.Namespace) -> int:
    """Derive again what the trace claims; exit code 1 if something contradicts something else."""
    from ..engine.trace import check as derive
    from ..engine.trace import open_trace

    trace = open_trace(args.file)
    try:
        report = derive(trace)
    finally:
        trace.close()
    if args.json:
        said = {"ok": report.ok, "problems": report.problems, "counts": dict(report.counts), "notes": report.notes}
        say_json({**said, "trace": str(args.file)})
    else:
        print(report)
    return 0 if report.ok else 1
