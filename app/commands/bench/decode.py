"""The command `bench decode`: compare our engine with transformers on the same weights."""

from __future__ import annotations

import argparse
from typing import Any

from decodescope.engine.core.refusal import Refusal

from ..shared.bench import six_columns, unused_settings
from ..shared.output import print_json, progress_printer, table
from ..shared.texts import read_text


def decode(args: argparse.Namespace) -> int:
    """Measure our engine and transformers, and print."""
    prompts = None if args.prompt_file is None else {args.prompt_file: read_text(args.prompt_file)}
    if prompts is not None and not any(prompts.values()):
        raise Refusal(f"The prompt file {args.prompt_file} is empty: give a text to go on from.")
    from decodescope.engine.bench.clock.speed import measure_speed

    record = measure_speed(
        args.model,
        args.draft,
        dtype=args.dtype,
        device=args.device,
        threads=args.threads,
        new_tokens=args.new_tokens,
        repeats=args.repeats,
        prompts=prompts,
        level=None if args.trace_level == "none" else args.trace_level,
        say=progress_printer(args.json),
    )
    if args.json:
        print_json(record)
    else:
        print(as_text(record))
    return 0


def as_text(record: dict[str, Any]) -> str:
    """The figures as text."""
    head = (
        f"{record['machine']}, {record['device']}, {record['threads']} threads; torch {record['torch']}, transformers "
        f"{record['transformers']}\n{record['model']} with {record['draft'] or 'no draft model'}, {record['dtype']}, "
        f"{len(record['prompts'])} prompts of {', '.join(map(str, record['prompts'].values()))} tokens, "
        f"{record['new_tokens']} new ones; medians of {record['repeats']} rounds\n"
    )
    if record["theirs"] != record["model"]:
        head += f"transformers has {record['theirs']} as it is, without the transforms\n"
    head += "".join(f"{x}\n" for x in unused_settings(record["set_aside"]))
    rows = [
        [
            x["name"],
            x["side"],
            f"{x['tokens_per_s']:.1f}",
            "-" if x["tau"] is None else f"{x['tau']:.2f}",
            f"{sum(n == record['new_tokens'] for n in x['same_tokens'].values())} of {len(x['same_tokens'])}",
        ]
        for x in record["contestants"]
    ]
    speeds = table(("method", "by", "tokens/s", "tokens per pass", "same text"), rows)
    count = len(record["prompts"])
    times = [
        [
            x["name"],
            f"{x['ratio']:.2f}",
            f"{x['low']:.2f} to {x['high']:.2f}",
            f"{x['same_texts']} of {count}",
        ]
        for x in record["ratios"]
    ]
    ratios = table(("times as fast", "median", "over the prompts", "same text"), times)
    if any(x["same_texts"] < count for x in record["ratios"]):
        ratios += "\nWhere the text is not the same, a ratio compares the times of different texts."
    cost = ", ".join(f"{kept} {percent:+.1f} %" for kept, percent in record["recording_percent"].items())
    six = "".join(f"\n\n{x}" for x in six_columns(record))
    return f"{head}\n{speeds}\n\n{ratios}{six}\n\nWhat recording to a file adds to our autoregressive decoding: {cost}."
