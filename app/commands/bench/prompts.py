"""The command `bench prompts`: what prompt compression keeps of a prompt, and its cost and savings."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ..shared.bench import format_number, format_share, parse_methods, print_result, select_questions
from ..shared.output import load_model, progress_printer, table
from ..shared.run import further_models


def prompts(args: argparse.Namespace) -> int:
    """Put the questions to every context and print the results. Kinds alternate, so partial results cover all kinds."""
    from decodescope.engine.bench.prompt_compression import (
        SHORT,
        PromptCompressionBench,
        default_methods,
        measure_prompt_compression,
    )
    from decodescope.engine.bench.questions.questions import alternate_kinds, first_of_each_kind

    questions, about, out = select_questions(
        args, lambda all_: alternate_kinds(first_of_each_kind(all_, SHORT) if args.short else all_)
    )
    methods = None if args.method is None else parse_methods(args.method, default_methods())
    given = further_models(args)
    if args.draft is not None:
        given.setdefault("draft", args.draft)
    read = {role for x in (default_methods() if methods is None else methods).values() for role in x.lanes}
    models = {role: load_model(name, args.dtype, args.device) for role, name in given.items() if role in read}
    model = load_model(args.model, args.dtype, args.device)
    bench = PromptCompressionBench(model, methods, models, seed=args.seed)
    result = measure_prompt_compression(
        bench, questions, asked=about, out=out, resume=args.resume, say=progress_printer(args.json)
    )
    return print_result(args, result, as_text, out, first_turns=True)


COLUMNS = ("read", "nats a token", "more than whole", "first token", "of whole", "looking", "operations")


def cells(one: Mapping[str, Any]) -> list[str]:
    """A method's figures under COLUMNS."""
    return [
        format_share(one["read"]),
        format_number(one["nats"]),
        format_number(one["more"]),
        f"{format_number(one['first_ms'], 1)} ms",
        format_number(one["first"]),
        format_share(one["look"]),
        format_number(one["flops"]),
    ]


def as_text(record: Mapping[str, Any]) -> str:
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
