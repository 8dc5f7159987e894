"""The command `measure`: properties of a model's text: how likely repetition becomes, and where a text loops."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from decodescope.engine.core.refusal import Refusal
from decodescope.engine.trace.query.repeats import Repeat, find_repeats, repeated_share

from .shared.bench import format_number, format_share, run_with_threads
from .shared.output import load_model, print_json, result_paths, table
from .shared.texts import read_text
from .shared.trace import write

MOST = 10  # stretches that are listed


def repetition(args: argparse.Namespace) -> int:
    """Read sentences again and again, and print how likely each copy is."""
    return run_with_threads(args, _measure_repetition)


def _measure_repetition(args: argparse.Namespace) -> int:
    from decodescope.engine.bench.repetition import (
        TEXT,
        RepetitionBench,
        measure_repetition,
        read_pairs,
        spread_evenly,
    )

    out, html = result_paths(args)
    pairs, about = read_pairs(args.text or TEXT)
    bench = RepetitionBench(load_model(args.model, args.dtype, args.device), args.times)
    record = measure_repetition(bench, spread_evenly(pairs, args.sentences), about)
    if out is not None:
        write(out, [json.dumps(record), "\n"])
    if html is not None:
        from decodescope.lab.figures.repetition import figure as drawn

        write(html, [drawn(record).to_html(include_plotlyjs=True)])
    if args.json:
        print_json(record)
    else:
        print(repetition_text(record))
    return 0


COLUMNS = ("copy", "TP", "IP", "WR")
STARTS = ("sentences by their first copy", "how many", "TP of the first", "TP of the last")


def curve_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """A line for each copy, under COLUMNS."""
    return [
        [str(x["n"]), format_number(x["tp"], 3), format_share(x["ip"]), format_share(x["wr"])]
        for x in record["curve"]
    ]


def start_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """A line for each part of the sentences, under STARTS."""
    return [
        [x["part"], str(x["sentences"]), format_number(x["first"], 3), format_number(x["last"], 3)]
        for x in record["starts"]
    ]


def repetition_text(record: Mapping[str, Any]) -> str:
    """The figures as text."""
    s = record["settings"]
    head = (
        f"{s['machine']}, {s['device']}, {s['threads']} threads; torch {s['torch']}\n{s['model']}, {s['dtype']}; "
        f"{s['sentences']} sentences of {s['text']['file']}, {s['times']} times each; {record['seconds']:.0f} s\n"
    )
    return "\n\n".join([head, table(COLUMNS, curve_rows(record)), table(STARTS, start_rows(record))])


def loops(args: argparse.Namespace) -> int:
    """Print where a text repeats what it said before; exit code 1 if it does not."""
    text, shown = _read_tokens(args)
    stretches = list(find_repeats(text, args.grams))
    again = repeated_share(text, args.grams)
    if args.json:
        rows = [
            {
                "at": x.at,
                "period": x.period,
                "lasts": x.lasts,
                "loop": x.loop,
                "ending": x.ending,
                "text": shown(x.at, x.lasts),
            }
            for x in stretches
        ]
        print_json({"tokens": len(text), "grams": args.grams, "said_again": again, "repeats": rows})
    elif not stretches:
        print(f"No {args.grams} tokens occur twice among {len(text)}.")
    else:
        print(
            loops_text(
                stretches, again, len(text), args.grams, [shown(x.at, x.lasts) for x in stretches[:MOST]]
            )
        )
    return 0 if stretches else 1


def _read_tokens(args: argparse.Namespace) -> tuple[Sequence[int], Any]:
    """The tokens of a file, and a function that shows some of them.
    They are the tokens that a run wrote, from a trace, or a text tokenized by --model."""
    from decodescope.engine.trace import PARTIAL, open_trace

    if args.file.endswith((".dstrace", PARTIAL)):
        trace = open_trace(args.file)
        try:
            ids = trace.tokens[len(trace.header.prompt) :]
            pieces = [trace.text([x]) if x in trace.pieces else f"<{x}>" for x in ids]
        finally:
            trace.close()
        return ids, lambda at, n: "".join(pieces[at : at + n])
    from decodescope.engine.session.load import load

    words = read_text(args.file, "text")
    tokenizer = load(args.model).tokenizer
    if tokenizer is None:
        raise Refusal(
            f"{args.model} has no tokenizer, so it reads no text: choose another --model, or give a trace."
        )
    ids = tokenizer.encode_plain(words)
    return ids, lambda at, n: tokenizer.decode(ids[at : at + n])


def loops_text(stretches: Sequence[Repeat], again: float, tokens: int, n: int, texts: Sequence[str]) -> str:
    """The first stretches as text; and the one at the end of the text, if it ends in a loop."""
    first, last = stretches[0], stretches[-1]
    rows = [
        [str(x.at), str(x.period), str(x.lasts), "yes" if x.loop else "no", repr(text[:60])]
        for x, text in zip(stretches, texts, strict=False)
    ]
    lines = [
        f"{tokens} tokens; {again:.0%} of the {n}-grams already occur earlier in the text.",
        f"The first {n} that are repeated begin at token {first.at}, {first.period} behind their like.",
        table(("token", "period", "lasts", "goes round", "text"), rows),
    ]
    if len(stretches) > MOST:
        lines.insert(3, f"and {len(stretches) - MOST} more")
    if last.loop and last.ending:
        lines.append(f"The text ends in a loop: from token {last.at} on every {last.period} tokens.")
    return "\n\n".join(lines)
