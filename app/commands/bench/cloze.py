"""The command `bench cloze`: early exits of a model without a causal mask, by rule and threshold."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from decodescope.engine.core.paths import expand_path

from ..shared.bench import six_columns
from ..shared.output import load_model, print_json, progress_printer, table
from ..shared.trace import write


def cloze(args: argparse.Namespace) -> int:
    """Put the questions to every rule at every bound, and print."""
    from decodescope.engine.bench.cloze import SHORT, ClozeBench, load_cloze_questions, measure_cloze
    from decodescope.engine.bench.questions.result_file import check_output

    out = None if args.out is None else expand_path(args.out)
    if out is not None:
        check_output(out, False)
    bench = ClozeBench(
        load_model(args.model, args.dtype, args.device),
        load_cloze_questions(each=SHORT if args.short else None),
    )
    record = measure_cloze(bench, progress_printer(args.json))
    if out is not None:
        write(out, [json.dumps(record, indent=1), "\n"])
    if args.json:
        print_json(record)
    else:
        print(as_text(record))
    return 0


def as_text(record: Mapping[str, Any]) -> str:
    """The figures as text."""
    rules = record["rules"]
    sorts = list(next(iter(rules.values()))["by sort"])
    rows = [[name, *_cells(x, sorts, next(iter(rules.values()))["flops"])] for name, x in rules.items()]
    read = "trained exits" if record["heads"] else "the last norm"
    head = f"{record['model']}, {record['questions']} questions, exits read by {read}; layers of {record['layers']}"
    main = table(("rule", "right", *sorts, "layers", "rows", "tests", "flop", "found"), rows)
    return "\n\n".join([head, main, *six_columns(record)])


def _cells(x: Mapping[str, Any], sorts: Sequence[str], whole: float) -> list[str]:
    """A row: shares by sort, layers, rows, tests, FLOPs as a share of the `whole` model's, and table statistics."""
    hits = f"{x['hits']:.1%} in {x['table'] / 1000:,.0f} kB" if "hits" in x else "-"
    right = [f"{x['right']:.1%}", *(f"{x['by sort'][sort]:.1%}" for sort in sorts)]
    return [
        *right,
        f"{x['layers']:.2f}",
        f"{x['rows']:.1%}",
        f"{x['tests']:.2f}",
        f"{x['flops'] / whole:.1%}",
        hits,
    ]
