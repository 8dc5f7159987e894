"""The command `trace`: print what a recorded run contains, verify it, or write it in other forms."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from decodescope.engine.core.files import write_whole
from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.refusal import Refusal

from .output import format_bytes, print_json
from .run import summary_figures, summary_sentence


def show(args: argparse.Namespace) -> int:
    """Print the content of the trace."""
    from decodescope.engine.trace import open_trace
    from decodescope.engine.trace.query.summary import summarise
    from decodescope.engine.trace.values.limits import TraceError

    trace = open_trace(args.file)
    try:
        summary = summarise(trace)
        head = trace.header
        notes = [] if trace.end is None else trace.end.remarks
        tokens = trace.tokens[len(head.prompt) :]
        text = trace.text(tokens) if all(x in trace.pieces for x in tokens) else None
    except TraceError as error:
        raise Refusal(f"{args.file} is damaged, so it cannot be summed up: {error}") from None
    finally:
        trace.close()
    if args.json:
        said: dict[str, Any] = {**summary_figures(summary), "end": summary.end or None}
        said |= {
            "text": text,
            "prompt_tokens": head.prompt.tolist(),
            "tokens": tokens,
            "model": head.model["name"],
        }
        said |= {"method": head.method, "seed": head.seed, "dtype": head.dtype, "device": head.device}
        print_json(
            {**said, "levels": head.levels, "damage": trace.damage, "notes": notes, "trace": str(args.file)}
        )
        return 0
    chosen = ", ".join(f"{kind} {part['name']}" for kind, part in head.method.items())
    print(f"{args.file}\n  model   {head.model['name']}, {head.dtype} on {head.device}, seed {head.seed}")
    print(f"  method  {chosen}\n  level   {head.levels[-1]}\n  run     {summary_sentence(summary)}")
    if text is not None:
        print(f"  text    {text[:200]!r}")
    if trace.damage:
        print(f"  damage  {trace.damage}")
    for text in notes:
        print(f"  note    {text}")
    return 0


def check(args: argparse.Namespace) -> int:
    """Derive the claims of the trace again; exit code 1 if there is a contradiction."""
    from decodescope.engine.core.progress import Progress
    from decodescope.engine.trace import check as derive
    from decodescope.engine.trace import open_trace

    trace = open_trace(args.file)
    try:
        with Progress("checking", len(trace.steps), "steps") as progress:
            report = derive(trace, progress.add)
    finally:
        trace.close()
    if args.json:
        said = {
            "ok": report.ok,
            "cut": report.cut,
            "problems": report.problems,
            "counts": dict(report.counts),
        }
        print_json({**said, "notes": report.notes, "trace": str(args.file)})
    else:
        print(report)
    return 0 if report.ok else 1


WAYS = ("html", "perfetto", "csv")


def export(args: argparse.Namespace) -> int:
    """Write the trace as HTML, as trace events or as a table of decisions, or as several of them. Nothing is overwritten."""
    wanted = {way: expand_path(name) for way in WAYS if (name := getattr(args, way)) is not None}
    if not wanted:
        raise Refusal("Say what to write: --html OUT, --perfetto OUT, --csv OUT, or several.")
    if len(set(wanted.values())) < len(wanted):
        raise Refusal(
            f"{' and '.join('--' + way for way in wanted)} name the same file: give them different ones."
        )
    for target in wanted.values():
        check_new_file(target)
    from decodescope.engine.trace import open_trace
    from decodescope.engine.trace.values.limits import TraceError

    trace = open_trace(args.file)
    try:
        for way, target in wanted.items():
            write(target, _export_parts(trace, way))
            if not args.json:
                print(f"{target}: {format_bytes(target.stat().st_size)}")
    except TraceError as error:
        raise Refusal(f"{args.file} is damaged, so it cannot be exported: {error}") from None
    finally:
        trace.close()
    if args.json:
        print_json(
            {"trace": str(args.file), **{way: str(wanted[way]) if way in wanted else None for way in WAYS}}
        )
    return 0


def _export_parts(trace: Any, way: str) -> Iterable[str]:
    """The text of a form, in parts; a table of decisions comes step by step."""
    from decodescope.lab.decision.decision_csv import export_csv
    from decodescope.lab.views.export import export_html
    from decodescope.lab.views.perfetto import export_perfetto

    if way == "csv":
        return export_csv(trace)
    return [
        export_html(trace) if way == "html" else json.dumps(export_perfetto(trace), separators=(",", ":"))
    ]


def check_new_file(target: Path) -> None:
    """Raise Refusal if the file exists already, or cannot be created."""
    try:
        if target.exists():
            raise Refusal(f"{target} exists already: choose another name, or move it away.")
        if not target.parent.is_dir():
            raise Refusal(f"There is no folder {target.parent}: make it first, or choose another.")
    except (OSError, ValueError) as error:
        raise Refusal(
            f"{str(target)[:200]} cannot be written: {getattr(error, 'strerror', None) or error}."
        ) from None


def write(target: Path, parts: Iterable[str]) -> None:
    """Write a text, in parts, to a new file; raises Refusal if that fails. A failed write leaves no file."""
    try:
        write_whole(target, parts, replace=False)
    except OSError as error:
        raise Refusal(f"{str(target)[:200]} cannot be written: {error.strerror or error}.") from None
