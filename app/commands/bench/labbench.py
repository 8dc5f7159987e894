"""The command `bench labbench`: what each method keeps of the answers to questions with known ones, beside what it gains."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..shared.measuring import MET, asked, by_position, figure, finished, named, share, six_columns
from ..shared.output import load_model, size, steps_told, table
from ..shared.run import further

if TYPE_CHECKING:
    from decodescope.engine.bench.answers import Bench


def labbench(args: argparse.Namespace) -> int:
    """Put the questions to every method, and print."""
    from decodescope.engine.bench.answers import SHORT, labbench
    from decodescope.engine.bench.questions.questions import first_of_each

    questions, about, out = asked(args, lambda all_: first_of_each(all_, SHORT) if args.short else all_)
    say = steps_told(args.json)
    result = labbench(
        prepared(args), questions, asked=about, batch=args.batch, out=out, resume=args.resume, say=say
    )
    return finished(args, result, told, out)


def prepared(args: argparse.Namespace) -> Bench:
    """The models, and the methods that were asked for. The methods are checked before weights are read."""
    from decodescope.engine.bench.answers import Bench, compositions, under
    from decodescope.engine.session.load import describe, find

    methods = (
        compositions(args.draft is not None) if args.method is None else named(args.method, compositions())
    )
    read = {role for x in methods.values() for role in x.lanes}
    given = {role: name for role, name in further(args).items() if role in read}
    name, folder, adapter, weights = find(args.model)
    for method in under(methods, args.temperature).values():
        method.check(describe(folder, name, None, adapter, weights), given)
    model = load_model(args.model, args.dtype, args.device)
    drafts = {role: load_model(name, args.dtype, args.device) for role, name in given.items()}
    draft = drafts.pop("draft", None)
    more: dict[str, Any] = dict(temperature=args.temperature, seed=args.seed, new_tokens=args.new_tokens)
    return Bench(model, methods, draft, further=drafts, **more)


def told(record: Mapping[str, Any]) -> str:
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
        [f"{kind} ({count})", *(share(one["by_kind"][kind]["accuracy"]) for one in methods.values())]
        for kind, count in record["kinds"].items()
    ]
    deep = max((len(x["offered_by_position"]) for x in methods.values()), default=0)
    places = [[name, *by_position(one)] for name, one in methods.items() if one["offered_by_position"]]
    parts = [head, main, *six_columns(record), table(("accuracy", *methods), kinds)]
    if places:
        padded = [[*row, *[""] * (deep + 1 - len(row))] for row in places]
        parts.append(table(("accepted at position", *map(str, range(1, deep + 1))), padded))
    goals = [
        [x["what"], f"{100 * x['goal']:.0f} %", share(x["value"]), MET[x["met"]], str(x["questions"])]
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
        share(one["accuracy"]),
        figure(one["tau"]),
        figure(one["tokens_per_s"], 1),
        figure(one["ratio"]),
        str(one["target_passes"]),
        size(one["peak_kv_bytes"]),
        size(one["step_kv_bytes"]),
        likeness(one),
        str(one["faults"] or "-"),
    ]


def likeness(one: Mapping[str, Any]) -> str:
    """How many texts equal those of plain decoding, and what was written before the others part."""
    if one["identity"] is None:
        return "-"
    count = one["identity"]
    said = f"{count['equal']} of {sum(count.values())}"
    if count["tied"]:
        said += f", {count['tied']} by ties"
    return said if not count["parted"] else f"{said}; {share(one['alike'])} alike"
