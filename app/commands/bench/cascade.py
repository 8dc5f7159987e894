"""The command `bench cascade`: cost and savings of a small model in front of the large one, by router and threshold."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from decodescope.engine.core.refusal import Refusal

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

if TYPE_CHECKING:
    from decodescope.engine.bench.questions.questions import BenchQuestion


def cascade(args: argparse.Namespace) -> int:
    """Put the questions to every router, and print."""
    from decodescope.engine.bench.cascade import SHORT, CascadeBench, measure_cascade
    from decodescope.engine.bench.cascade_grid import held_out_questions
    from decodescope.engine.bench.questions.questions import first_of_each_kind

    if args.draft is None:
        raise Refusal("bench cascade needs a small model as well as the large one: name it with --draft.")
    methods = None if args.method is None else parse_methods(args.method, {})
    held: list[BenchQuestion] = []

    def choose(questions: list[BenchQuestion]) -> list[BenchQuestion]:
        """The questions that are asked; if no methods are given, some others are held out."""
        first = first_of_each_kind(questions, SHORT)
        held.extend(held_out_questions(questions, first) if methods is None else ())
        return first if args.short else [x for x in questions if x not in held]

    questions, about, out = select_questions(args, choose)
    large, small = (load_model(name, args.dtype, args.device) for name in (args.model, args.draft))
    bench = CascadeBench(large, small, methods, held=held, seed=args.seed, new_tokens=args.new_tokens)
    result = measure_cascade(
        bench, questions, asked=about, out=out, resume=args.resume, say=progress_printer(args.json)
    )
    return print_result(args, result, as_text, out)


COLUMNS = (
    "accuracy",
    "MFLOP a question",
    "both of large alone",
    "large of large alone",
    "tokens of large",
    "best",
)
GOAL = ("goal", "fewer of the large model's", "due", "both of large alone", "accuracy lost", "")


def cells(one: Mapping[str, Any]) -> list[str]:
    """A method's figures under COLUMNS."""
    return [
        format_number(None if one["accuracy"] is None else 100 * one["accuracy"], 1),
        format_number(None if one["flops"] is None else one["flops"] / 1e6, 0),
        format_share(one["cost"]),
        format_share(one["large"]),
        format_share(one["share"]),
        "*" if one["best"] else "",
    ]


def goal_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """The goal, if it was measured: the method, its measured and required savings, the cost of both, and the loss."""
    x = record["goal"]
    if x is None:
        return []
    return [
        [
            x["what"],
            *(format_share(x[name]) for name in ("fewer", "due", "cost")),
            format_number(x["lost"], 3),
            MET[x["met"]],
        ]
    ]


def as_text(record: Mapping[str, Any]) -> str:
    """The figures as text."""
    s, methods = record["settings"], record["methods"]
    head = (
        f"{s['model']} and {s['draft']}, {s['dtype']}, {s['device']}; torch {s['torch']}\n"
        f"{sum(record['kinds'].values())} questions; {record['seconds']:.0f} s\n"
    )
    parts = [head, table(("method", *COLUMNS), [[name, *cells(one)] for name, one in methods.items()])]
    parts += six_columns(record)
    if rows := goal_rows(record):
        parts.append(table(GOAL, rows))
    parts += [
        f"{name}: {fault}"
        for fault, name in {x: name for name, one in methods.items() for x in one["faults"]}.items()
    ]
    parts += [f"Left out: {name}: {why}" for name, why in s.get("left_out", {}).items()]
    return "\n\n".join(parts)
