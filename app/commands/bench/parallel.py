"""The command `bench parallel`: savings and cost of filling several places per pass, where answers follow a rule."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ..shared.bench import (
    MET,
    format_number,
    format_share,
    parse_methods,
    print_result,
    result_path,
    six_columns,
)
from ..shared.output import load_model, progress_printer, table


def parallel(args: argparse.Namespace) -> int:
    """Put the questions to every method, and print."""
    from decodescope.engine.bench.parallel import COUNT, FEWER, ParallelBench, all_methods, measure_parallel

    out = result_path(args)
    methods = None if args.method is None else parse_methods(args.method, all_methods())
    model = load_model(args.model, args.dtype, args.device)
    bench = ParallelBench(model, methods, count=FEWER if args.short else COUNT, seed=args.seed)
    result = measure_parallel(bench, out=out, resume=args.resume, say=progress_printer(args.json))
    return print_result(args, result, as_text, out)


PERFECT = "a perfect model, all at once"
GOALS = ("goal: half the passes, at most 1 % lost", "right, one a pass", "times fewer passes", "lost", "")
COLUMNS = ("right", "passes", "tokens a pass", "rows a token", "times one a pass")


def cells(one: Mapping[str, Any]) -> list[str]:
    """A method's figures under COLUMNS."""
    return [
        format_share(one["right"]),
        str(one["passes"]),
        format_number(one["tokens_a_pass"]),
        format_number(one["rows_a_token"], 1),
        format_number(one["times"]),
    ]


def kind_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """A line per method with its right answers by task, and a line for a perfect model that draws all slots at once."""
    lines = {name: one["by_kind"] for name, one in record["methods"].items()} | {PERFECT: record["at_once"]}
    return [
        [name, *(format_share(shares[kind]) for kind in record["kinds"])] for name, shares in lines.items()
    ]


def goal_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """Rows of the goals: the task, the savings and loss, and whether the goal is met."""
    return [
        [
            f"threshold on {x['what']}",
            format_share(x["right"]),
            format_number(x["saved"]),
            format_share(x["lost"]),
            MET[x["met"]],
        ]
        for x in record["goals"]
    ]


def as_text(record: Mapping[str, Any]) -> str:
    """The figures as text."""
    s, methods = record["settings"], record["methods"]
    head = (
        f"{s['machine']}, {s['device']}, {s['threads']} threads; torch {s['torch']}\n{s['model']}, {s['dtype']}; "
        f"{sum(record['kinds'].values())} questions, seed {s['seed']}; {record['seconds']:.0f} s\n"
    )
    parts = [
        head,
        table(("method", *COLUMNS), [[name, *cells(one)] for name, one in methods.items()]),
        *six_columns(record),
        table(
            ("right", *(f"{kind} ({count})" for kind, count in record["kinds"].items())), kind_rows(record)
        ),
    ]
    if record["goals"]:
        parts.append(table(GOALS, goal_rows(record)))
    faults = {fault: name for name, one in methods.items() for fault in one["faults"]}
    parts += [f"{name}: {fault}" for fault, name in faults.items()]
    return "\n\n".join(parts)
