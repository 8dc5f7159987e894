"""The command `bench kv`: cost of text under each cache policy and budget, pass keys still found, and bytes really held."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ..shared.bench import (
    format_number,
    format_share,
    parse_methods,
    print_result,
    select_questions,
    six_columns,
)
from ..shared.output import load_model, progress_printer, table


def kv(args: argparse.Namespace) -> int:
    """Read the texts under every policy, and print."""
    from decodescope.engine.bench.kv import FEWER, KEYS, SHORT, TEXTS, KVBench, measure_kv, select_texts
    from decodescope.engine.bench.questions.passkeys import make_passkeys

    count, keys = (SHORT, FEWER) if args.short else (TEXTS, KEYS)
    questions, about, out = select_questions(
        args, lambda all_: select_texts(all_, count) + make_passkeys(all_, keys)
    )
    methods = None if args.method is None else parse_methods(args.method, {})
    bench = KVBench(load_model(args.model, args.dtype, args.device), methods, words=args.new_tokens)
    result = measure_kv(
        bench, questions, asked=about, out=out, resume=args.resume, say=progress_printer(args.json)
    )
    return print_result(args, result, as_text, out)


COLUMNS = (
    "budget",
    "entries held",
    "bytes held",
    "nats a word",
    "KL to full",
    "same choice",
    "copying: nats",
    "KL",
    "same",
    "pass keys",
)


def rows(record: Mapping[str, Any]) -> list[list[str]]:
    """A line for each method and budget, under "method" and COLUMNS."""
    return [[name, *cells(point)] for name, points in record["methods"].items() for point in points]


def cells(point: Mapping[str, Any]) -> list[str]:
    """A point's figures under COLUMNS."""
    held = [format_share(point[x]) for x in ("share", "entries", "bytes")]
    kinds = (point["by_kind"][kind] for kind in ("text", "copy"))
    keys = point.get("passkey", {"asked": 0})  # a result of version 1 has none
    return [
        *held,
        *(
            cell
            for x in kinds
            for cell in (format_number(x["nats"]), format_number(x["kl"], 3), format_share(x["same"]))
        ),
        f"{keys['right']} of {keys['asked']}" if keys["asked"] else "-",
    ]


def sizes(record: Mapping[str, Any]) -> str:
    """What was read: how many texts of each kind, and how long they are."""
    s, kinds = record["settings"], record["kinds"]
    return (
        f"{kinds['text']} of kind text, {kinds['copy']} of kind copy: {s['prompt']} tokens read, then {s['words']} one by one; "
        f"{kinds.get('passkey', 0)} pass keys in {s['prompt']} tokens"
    )


def as_text(record: Mapping[str, Any]) -> str:
    """The figures as text."""
    s = record["settings"]
    head = (
        f"{s['machine']}, {s['device']}, {s['threads']} threads; torch {s['torch']}\n{s['model']}, {s['dtype']}; "
        f"{sizes(record)}; {record['seconds']:.0f} s\n"
    )
    parts = [head, table(("method", *COLUMNS), rows(record)), *six_columns(record)]
    faults = {
        fault: name
        for name, points in record["methods"].items()
        for point in points
        for fault in point["faults"]
    }
    parts += [f"{name}: {fault}" for fault, name in faults.items()]
    parts += [f"Left out: {name}: {why}" for name, why in s.get("left_out", {}).items()]
    skipped = record["skipped"]
    parts += [f"Texts left out: {len(skipped)}; the first: {skipped[0]['why']}"] if skipped else []
    return "\n\n".join(parts)
