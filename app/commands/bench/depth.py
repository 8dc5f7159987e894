"""The command `bench depth`: cost and savings of running fewer layers, for every depth rule, lossy and checked."""

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
    select_questions,
    six_columns,
)
from ..shared.output import load_model, progress_printer, table


def depth(args: argparse.Namespace) -> int:
    """Put the questions to every rule, and print."""
    from decodescope.engine.bench.depth import SHORT, DepthBench, measure_depth
    from decodescope.engine.bench.questions.questions import first_of_each_kind

    questions, about, out = select_questions(
        args, lambda all_: first_of_each_kind(all_, SHORT) if args.short else all_
    )
    methods = None if args.method is None else parse_methods(args.method, {})
    model = load_model(args.model, args.dtype, args.device)
    bench = DepthBench(model, methods, seed=args.seed, new_tokens=args.new_tokens)
    result = measure_depth(
        bench, questions, asked=about, out=out, resume=args.resume, say=progress_printer(args.json)
    )
    return print_result(args, result, as_text, out)


COLUMNS = ("accuracy", "alike", "layers a token", "MFLOP a token", "of plain", "tokens a pass", "times plain")
GOALS = ("goal", "times plain", "due", "accuracy lost", "")


def cells(one: Mapping[str, Any]) -> list[str]:
    """A method's figures under COLUMNS."""
    return [
        format_number(None if one["accuracy"] is None else 100 * one["accuracy"], 1),
        format_share(one["alike"]),
        format_number(one["layers"]),
        format_number(None if one["flops"] is None else one["flops"] / 1e6),
        format_share(one["share"]),
        format_number(one["tokens_a_pass"]),
        format_number(one["times"]),
    ]


def goal_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """Rows of the goals: the rule, its measured and required speedup, its loss, and whether the goal is met."""
    return [
        [
            x["what"],
            format_number(x["times"]),
            format_number(x["due"]),
            format_number(x["lost"], 3),
            MET[x["met"]],
        ]
        for x in record["goals"]
    ]


def as_text(record: Mapping[str, Any]) -> str:
    """The figures as text."""
    s, methods = record["settings"], record["methods"]
    head = (
        f"{s['machine']}, {s['device']}, {s['threads']} threads; torch {s['torch']}\n{s['model']}, {s['dtype']}; "
        f"{sum(record['kinds'].values())} questions; {record['seconds']:.0f} s\n"
    )
    parts = [head, table(("rule", *COLUMNS), [[name, *cells(one)] for name, one in methods.items()])]
    parts += six_columns(record)
    if record["goals"]:
        parts.append(table(GOALS, goal_rows(record)))
    parts += [
        f"{name}: {fault}"
        for fault, name in {x: name for name, one in methods.items() for x in one["faults"]}.items()
    ]
    parts += [f"Left out: {name}: {why}" for name, why in s.get("left_out", {}).items()]
    return "\n\n".join(parts)
