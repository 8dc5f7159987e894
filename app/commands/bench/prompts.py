"""The command `bench prompts`: what contexts leave of a prompt, and what that costs and saves."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ..shared.measuring import asked, figure, finished, named, share
from ..shared.output import load_model, steps_told, table
from ..shared.run import further


def prompts(args: argparse.Namespace) -> int:
    """Put the questions to every context, and print; kinds take turns, so that what there is at any time is of all kinds."""
    from decodescope.engine.bench.questions.questions import first_of_each, in_turns
    from decodescope.engine.bench.shortened import SHORT, ShortenedBench, known, shortened

    questions, about, out = asked(
        args, lambda all_: in_turns(first_of_each(all_, SHORT) if args.short else all_)
    )
    methods = None if args.method is None else named(args.method, known())
    given = further(args)
    if args.draft is not None:
        given.setdefault("draft", args.draft)
    read = {role for x in (known() if methods is None else methods).values() for role in x.lanes}
    models = {role: load_model(name, args.dtype, args.device) for role, name in given.items() if role in read}
    model = load_model(args.model, args.dtype, args.device)
    bench = ShortenedBench(model, methods, models, seed=args.seed)
    result = shortened(bench, questions, asked=about, out=out, resume=args.resume, say=steps_told(args.json))
    return finished(args, result, told, out, first_turns=True)


COLUMNS = ("read", "nats a token", "more than whole", "first token", "of whole", "looking", "operations")


def cells(one: Mapping[str, Any]) -> list[str]:
    """A method's figures under COLUMNS."""
    return [
        share(one["read"]),
        figure(one["nats"]),
        figure(one["more"]),
        f"{figure(one['first_ms'], 1)} ms",
        figure(one["first"]),
        share(one["look"]),
        figure(one["flops"]),
    ]


def told(record: Mapping[str, Any]) -> str:
    """The figures as text."""
    s, methods = record["settings"], record["methods"]
    head = (
        f"{s['machine']}, {s['device']}, {s['threads']} threads; torch {s['torch']}\n{s['model']}, {s['dtype']}; "
        f"{sum(record['kinds'].values())} questions; {record['seconds']:.0f} s\n"
    )
    parts = [head, table(("method", *COLUMNS), [[name, *cells(one)] for name, one in methods.items()])]
    parts += [
        f"{name}: {fault}"
        for fault, name in {x: name for name, one in methods.items() for x in one["faults"]}.items()
    ]
    parts += [f"Left out: {name}: {why}" for name, why in s.get("left_out", {}).items()]
    return "\n\n".join(parts)
