"""The command `bench words`: effects and cost of samplers and searches on answers."""

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
from ..shared.run import further_models


def words(args: argparse.Namespace) -> int:
    """Put the questions to every method, and print."""
    from decodescope.engine.bench.questions.questions import first_of_each_kind
    from decodescope.engine.bench.words import SHORT, WordsBench, default_methods, measure_words

    questions, about, out = select_questions(
        args, lambda all_: first_of_each_kind(all_, SHORT) if args.short else all_
    )
    methods = None if args.method is None else parse_methods(args.method, default_methods(), draws=True)
    given = further_models(args)
    if args.draft is not None:  # the draft model is the amateur too, if none is given
        given.setdefault("amateur", args.draft)
    read = {role for x in (default_methods() if methods is None else methods).values() for role in x.lanes}
    models = {role: load_model(name, args.dtype, args.device) for role, name in given.items() if role in read}
    model = load_model(args.model, args.dtype, args.device)
    bench = WordsBench(model, methods, models, seed=args.seed, new_tokens=args.new_tokens)
    result = measure_words(
        bench, questions, asked=about, out=out, resume=args.resume, say=progress_printer(args.json)
    )
    return print_result(args, result, as_text, out)


COLUMNS = (
    "accuracy",
    "in form",
    "said again",
    "bits a token",
    "tokens",
    "passes a token",
    "rows a token",
    "masks",
)
GOALS = ("goal: masks of a step", "share", "due", "")


def cells(one: Mapping[str, Any]) -> list[str]:
    """A method's figures under COLUMNS."""
    return [
        format_number(None if one["accuracy"] is None else 100 * one["accuracy"], 1),
        format_share(one["fits"]),
        format_small_share(one["again"]),
        format_number(one["bits"]),
        format_number(one["length"], 1),
        format_number(one["passes"]),
        format_number(one["fed"]),
        format_small_share(one["masks"]),
    ]


def format_small_share(value: float | None) -> str:
    """A small share in percent, with a decimal."""
    return "-" if value is None else f"{100 * value:.1f} %"


def goal_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """Rows of the goals: the method, its share, the largest share allowed, and whether the goal is met."""
    return [
        [x["what"], format_small_share(x["share"]), format_small_share(x["due"]), MET[x["met"]]]
        for x in record["goals"]
    ]


def as_text(record: Mapping[str, Any]) -> str:
    """The figures as text."""
    s, methods = record["settings"], record["methods"]
    head = (
        f"{s['machine']}, {s['device']}, {s['threads']} threads; torch {s['torch']}\n{s['model']}, {s['dtype']}; "
        f"{sum(record['kinds'].values())} questions, seed {s['seed']}; {record['seconds']:.0f} s\n"
    )
    parts = [head, table(("method", *COLUMNS), [[name, *cells(one)] for name, one in methods.items()])]
    parts += six_columns(record)
    if record["goals"]:
        parts.append(table(GOALS, goal_rows(record)))
    parts += [
        f"{name}: {fault}"
        for fault, name in {x: name for name, one in methods.items() for x in one["faults"]}.items()
    ]
    parts += [f"Left out: {name}: {why}" for name, why in s.get("left_out", {}).items()]
    return "\n\n".join(parts)
