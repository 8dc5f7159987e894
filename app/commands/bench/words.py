"""The command `bench words`: what samplers and searches make of answers, and what they cost."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ..shared.measuring import MET, asked, figure, finished, named, share, six_columns
from ..shared.output import load_model, steps_told, table
from ..shared.run import further


def words(args: argparse.Namespace) -> int:
    """Put the questions to every method, and print."""
    from decodescope.engine.bench.questions.questions import first_of_each
    from decodescope.engine.bench.words import SHORT, WordsBench, known, words

    questions, about, out = asked(args, lambda all_: first_of_each(all_, SHORT) if args.short else all_)
    methods = None if args.method is None else named(args.method, known(), draws=True)
    given = further(args)
    if args.draft is not None:  # what drafts is the amateur too, where none is given
        given.setdefault("amateur", args.draft)
    read = {role for x in (known() if methods is None else methods).values() for role in x.lanes}
    models = {role: load_model(name, args.dtype, args.device) for role, name in given.items() if role in read}
    model = load_model(args.model, args.dtype, args.device)
    bench = WordsBench(model, methods, models, seed=args.seed, new_tokens=args.new_tokens)
    result = words(bench, questions, asked=about, out=out, resume=args.resume, say=steps_told(args.json))
    return finished(args, result, told, out)


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
        figure(None if one["accuracy"] is None else 100 * one["accuracy"], 1),
        share(one["fits"]),
        percent(one["again"]),
        figure(one["bits"]),
        figure(one["length"], 1),
        figure(one["passes"]),
        figure(one["fed"]),
        percent(one["masks"]),
    ]


def percent(value: float | None) -> str:
    """A small share in percent, with a decimal."""
    return "-" if value is None else f"{100 * value:.1f} %"


def goal_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """The goals: of which method, its share and the largest one due, and whether that is met."""
    return [[x["what"], percent(x["share"]), percent(x["due"]), MET[x["met"]]] for x in record["goals"]]


def told(record: Mapping[str, Any]) -> str:
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
