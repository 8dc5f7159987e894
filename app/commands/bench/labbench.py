"""The command `bench labbench`: accuracy that each method keeps on questions with known answers, and its speedup."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..shared.bench import (
    MET,
    acceptance_by_position,
    format_number,
    format_share,
    parse_methods,
    print_result,
    select_questions,
    six_columns,
)
from ..shared.output import format_bytes, load_model, progress_printer, table
from ..shared.run import further_models

if TYPE_CHECKING:
    from decodescope.engine.bench.labbench import Bench


def labbench(args: argparse.Namespace) -> int:
    """Put the questions to every method, and print."""
    from decodescope.engine.bench.labbench import SHORT, measure_labbench
    from decodescope.engine.bench.questions.questions import first_of_each_kind

    questions, about, out = select_questions(
        args, lambda all_: first_of_each_kind(all_, SHORT) if args.short else all_
    )
    say = progress_printer(args.json)
    result = measure_labbench(
        build_bench(args), questions, asked=about, batch=args.batch, out=out, resume=args.resume, say=say
    )
    return print_result(args, result, as_text, out)


def build_bench(args: argparse.Namespace) -> Bench:
    """The models and the requested methods. The methods are checked before weights are read."""
    from decodescope.engine.bench.labbench import Bench, default_methods, with_baseline
    from decodescope.engine.session.load import describe, find_model

    methods = (
        default_methods(args.draft is not None)
        if args.method is None
        else parse_methods(args.method, default_methods())
    )
    read = {role for x in methods.values() for role in x.lanes}
    given = {role: name for role, name in further_models(args).items() if role in read}
    name, folder, adapter, weights = find_model(args.model)
    for method in with_baseline(methods, args.temperature).values():
        method.check(describe(folder, name, None, adapter, weights), given)
    model = load_model(args.model, args.dtype, args.device)
    drafts = {role: load_model(name, args.dtype, args.device) for role, name in given.items()}
    draft = drafts.pop("draft", None)
    more: dict[str, Any] = dict(temperature=args.temperature, seed=args.seed, new_tokens=args.new_tokens)
    return Bench(model, methods, draft, further=drafts, **more)


def as_text(record: Mapping[str, Any]) -> str:
    """The figures of LabBench as text."""
    settings, methods = record["settings"], record["methods"]
    asked = settings["questions"]
    drafts = [x for x in (settings["draft"], *(x["name"] for x in settings.get("further", {}).values())) if x]
    head = (
        f"{settings['machine']}, {settings['device']}, {settings['threads']} threads; torch {settings['torch']}\n"
        f"{settings['model']} with {', '.join(drafts) or 'no draft model'}, {settings['dtype']}, "
        + (
            "greedy"
            if not settings["temperature"]
            else f"temperature {settings['temperature']:g}, seed {settings['seed']}"
        )
        + (f", {batch} answers at a time" if (batch := settings.get("batch", 1)) > 1 else "")
        + f"; {sum(record['kinds'].values())} of {asked['count']} questions of {asked.get('file', 'a list')}, "
        f"{record['seconds']:.0f} s\n"
    )
    rows = [[name, *cells(one)] for name, one in methods.items()]
    main = table(("method", *COLUMNS), rows)
    kinds = [
        [f"{kind} ({count})", *(format_share(one["by_kind"][kind]["accuracy"]) for one in methods.values())]
        for kind, count in record["kinds"].items()
    ]
    deep = max((len(x["offered_by_position"]) for x in methods.values()), default=0)
    places = [
        [name, *acceptance_by_position(one)] for name, one in methods.items() if one["offered_by_position"]
    ]
    parts = [head, main, *six_columns(record), table(("accuracy", *methods), kinds)]
    if places:
        padded = [[*row, *[""] * (deep + 1 - len(row))] for row in places]
        parts.append(table(("accepted at position", *map(str, range(1, deep + 1))), padded))
    goals = [
        [x["what"], f"{100 * x['goal']:.0f} %", format_share(x["value"]), MET[x["met"]], str(x["questions"])]
        for x in record["targets"]
    ]
    if any(x["questions"] for x in record["targets"]):
        parts.append(table(("target of plain decoding", "goal", "reached", "", "questions"), goals))
    if record["skipped"]:
        parts.append(
            f"Questions left out: {len(record['skipped'])}; the first: {record['skipped'][0]['why']}"
        )
    return "\n\n".join(parts)


COLUMNS = (
    "accuracy",
    "tokens per pass",
    "tokens/s",
    "times as fast",
    "target passes",
    "most KV",
    "most while writing",
    "as plain decoding",
    "faults",
)


def cells(one: Mapping[str, Any]) -> list[str]:
    """A method's figures under COLUMNS."""
    return [
        format_share(one["accuracy"]),
        format_number(one["tau"]),
        format_number(one["tokens_per_s"], 1),
        format_number(one["ratio"]),
        str(one["target_passes"]),
        format_bytes(one["peak_kv_bytes"]),
        format_bytes(one["step_kv_bytes"]),
        agreement_text(one),
        str(one["faults"] or "-"),
    ]


def agreement_text(one: Mapping[str, Any]) -> str:
    """How many texts equal those of plain decoding, and how much was written before the others differ."""
    if one["identity"] is None:
        return "-"
    count = one["identity"]
    said = f"{count['equal']} of {sum(count.values())}"
    if count["tied"]:
        said += f", {count['tied']} by ties"
    return said if not count["parted"] else f"{said}; {format_share(one['alike'])} alike"
