"""The command `bench models`: savings and loss of weight transforms, and the speed of random weights under them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any

from decodescope.engine.core.refusal import Refusal

from ..shared.bench import format_number, format_share, print_result, select_questions, six_columns
from ..shared.output import format_bytes, load_model, print_json, progress_printer, table


def models(args: argparse.Namespace) -> int:
    """Put the questions to every model, or time passes of random weights, and print."""
    from decodescope.engine.bench.models import (
        SHORT,
        ModelsBench,
        default_transforms,
        make_models,
        measure_models,
    )
    from decodescope.engine.bench.questions.questions import first_of_each_kind
    from decodescope.engine.session.load import load

    wanted = default_transforms() if args.method is None else parse_transforms(args.method)
    if args.random is not None:
        return time_random_weights(args, wanted)
    questions, about, out = select_questions(
        args, lambda all_: first_of_each_kind(all_, SHORT) if args.short else all_
    )
    dense = load_model(args.model, args.dtype, args.device)
    if dense.spec.weights:
        raise Refusal(
            "bench models begins with the model as it is: name transforms by --method, not behind the model's name."
        )
    variants, left_out = make_models(
        dense,
        wanted,
        lambda words: load(args.model, args.dtype, args.device, weights=words),
        args.method is None,
    )
    bench = ModelsBench(variants, left_out, new_tokens=args.new_tokens)
    result = measure_models(
        bench, questions, asked=about, out=out, resume=args.resume, say=progress_printer(args.json)
    )
    return print_result(args, result, as_text, out)


def parse_transforms(words: list[str]) -> dict[str, str]:
    """Name -> transforms, of several --method NAME=TRANSFORMS, or the transforms alone."""
    from decodescope.engine.decoding.bases.weights import parse_transform_list

    wanted: dict[str, str] = {}
    for word in words:
        named = re.fullmatch(r"([\w ,.+-]{1,40}?)=(?=[a-z])(.+)", word)
        name, text = (
            (named[1].strip(), named[2].strip())
            if named and " " not in named[1]
            else (word.strip(), word.strip())
        )
        parse_transform_list(text)  # refuses what is no transform
        if name in wanted:
            raise Refusal(
                f"--method {name} is given twice: give each its own name, e.g. --method other={text}."
            )
        wanted[name] = text
    return wanted


def time_random_weights(args: argparse.Namespace, wanted: Mapping[str, str]) -> int:
    """Time passes of random weights under each transform."""
    import torch

    from decodescope.engine.bench.models import measure_speeds

    if args.out is not None or args.questions is not None:
        raise Refusal(
            "--random times passes and asks nothing: leave --out and --questions out; --json prints the figures."
        )
    dtype = getattr(torch, args.dtype or "bfloat16")
    if args.method is None:  # the transforms that need no text
        from decodescope.engine.core.component import registry

        parts = registry("weights")
        wanted = {name: words for name, words in wanted.items() if not getattr(parts[words], "reads", False)}
    record = measure_speeds(args.random, wanted, dtype=dtype, say=progress_printer(args.json))
    if args.json:
        print_json(record)
    else:
        print(timing_text(record))
    return 0


COLUMNS = ("accuracy", "KL to dense", "perplexity", "same choice", "answers kept")


def cells(one: Mapping[str, Any]) -> list[str]:
    """A model's figures under COLUMNS."""
    kept = [sum(x) for x in zip(*one["kept"].values(), strict=True)]
    return [
        format_number(None if one["accuracy"] is None else 100 * one["accuracy"], 1),
        "-" if one["kl"] is None else f"{one['kl']:.2g}",
        format_number(one["perplexity"], 3),
        format_share(one["same"]),
        f"{kept[0]} of {kept[1]}" if kept else "-",
    ]


def kept_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """One row per kind with correct answers of the dense model: how many of those answers each model keeps."""
    methods = record["methods"]
    kinds = [kind for kind in record["kinds"] if any(kind in one["kept"] for one in methods.values())]
    lines = []
    for kind in kinds:
        pairs = [one["kept"].get(kind) for one in methods.values()]
        lines.append(
            [f"{kind} ({record['kinds'][kind]})", *("-" if x is None else f"{x[0]} of {x[1]}" for x in pairs)]
        )
    return lines


def as_text(record: Mapping[str, Any]) -> str:
    """The figures as text."""
    s, methods = record["settings"], record["methods"]
    head = (
        f"{s['machine']}, {s['device']}, {s['threads']} threads; torch {s['torch']}\n{s['model']}, {s['dtype']}; "
        f"{sum(record['kinds'].values())} questions, plain greedy decoding; {record['seconds']:.0f} s\n"
    )
    parts = [
        head,
        table(("model", *COLUMNS), [[name, *cells(one)] for name, one in methods.items()]),
        *six_columns(record),
    ]
    if lines := kept_rows(record):
        parts.append(table(("answers kept of those that dense has right", *methods), lines))
    parts += [
        f"{name}: {fault}"
        for fault, name in {x: name for name, one in methods.items() for x in one["faults"]}.items()
    ]
    parts += [f"Left out: {name}: {why}" for name, why in s.get("left_out", {}).items()]
    return "\n\n".join(parts)


def timing_text(record: Mapping[str, Any]) -> str:
    """The times of random weights as text: milliseconds of a pass, and its rate relative to the dense model, by rows."""
    plain = next(iter(record["ms"].values()))
    head = (
        f"{record['params'] / 1e6:.0f} M random weights, {record['dtype']}, {record['held']} entries held; ms of a pass, "
        f"medians of {record['repeats']} rounds, and how many times as fast as dense\n"
    )
    lines = []
    for name, each in record["ms"].items():
        pairs = [f"{ms:.1f} (x {first / ms:.2f})" for ms, first in zip(each, plain, strict=True)]
        lines.append([name, format_bytes(record["bytes"][name]), *pairs])
    return f"{head}\n{table(('weights', 'bytes', *(f'{n} rows' if n > 1 else '1 row' for n in record['rows'])), lines)}"
