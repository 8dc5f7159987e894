"""What drafting would gain on a model of 300 M: what is accepted is that of recorded runs, what passes cost is measured.

    python benchmarks/replayed.py record --out steps.json [--threads 1] [--draft2 lab-draft-plain] [--method NAME ...]
    python benchmarks/replayed.py measure steps.json --out costs.json [--threads 1] [--params 300M --draft-params 25M]
    python benchmarks/replayed.py price steps.json costs.json [--write]

`record` lets every method of `decodescope bench speculation --short` write its twelve answers with the shipped models,
greedily, and keeps what its steps did: passes by model, rows and share of the layers; calls of draft heads and unembeddings by
the rows that they read; tokens; and the method's own books, the time of a step outside both, by its median. It may be
interrupted, and goes on with --resume. None of this but the books depends on how fast the machine was.

`measure` makes a target and a draft model of random weights, and heads of the recorded kinds in the target's width, and times
passes of both models, whole and with a quarter of their layers, by rows; every recorded call of heads; and a pass of one row in
int8 and int4. Between measured rows a time is interpolated; a pass of some layers takes its share of what all layers take.

`price` adds up: passes + heads + books of every answer, over plain decoding's. --write puts it into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from labbench import table
from replay_costs import ROWS, Costs, Curve, measured
from replay_steps import VERSION, Recording, ReplayResult, ReplayRow
from speculation import with_section

from decodescope.app.basis.arguments import parameter_count
from decodescope.app.commands.bench.speculation import goal_rows, kind_cells, names_by_gain, parse_variants
from decodescope.app.commands.shared.bench import format_number, format_share
from decodescope.engine.bench.labbench import QUESTIONS
from decodescope.engine.bench.questions.questions import read_questions, spread_over_kinds
from decodescope.engine.bench.speculation import NEW_TOKENS, SHORT, measure_speculation
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.session.load import load

DOCS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
MARKS = "<!-- replayed: written by benchmarks/replayed.py -->", "<!-- replayed: end -->"
TITLE = "## What drafting would gain on 300 M"


# ---- pricing


def priced(row: ReplayRow, costs: Costs) -> ReplayRow:
    """The same steps in the time that they would take."""
    passes = sum(n * costs.pass_us(*json.loads(one)) for one, n in row.parts["passes"].items())
    heads = sum(n * costs.head_us(call) for call, n in row.parts["heads"].items())
    own, n = row.parts["own_us"], max(1, row.steps)
    seconds = [(passes + heads + own) / 1e6]
    return replace(
        row,
        seconds=seconds,
        decode_s=seconds,
        step_us=1e6 * seconds[0] / n,
        pass_us=passes / n,
        head_us=heads / n,
        own_us=own / n,
    )


def replayed(steps: Mapping[str, Any], costs: Costs) -> dict[str, Any]:
    """The record of `bench speculation`, had the models been as large as those of `costs`."""
    rows = [priced(ReplayRow(**row), costs) for row in steps["rows"]]
    return ReplayResult(dict(steps["settings"]), rows, complete=True).record()


COLUMNS = (
    "tokens per pass",
    "times plain, shipped models",
    "times plain, 300 M",
    "90 %",
    "passes",
    "heads",
    "books",
    "step, ms",
)
BEST = 3  # methods of a kind that are named


def page(steps: Mapping[str, Any], costs: Costs, beside: bool = False) -> str:
    """The section in Markdown. beside: other programs ran when it was measured."""
    found = replayed(steps, costs)
    s = steps["settings"]
    c = costs.settings
    order, kinds = names_by_gain(found), found["kinds"]
    lines = [[f"`{name}`", *_cells(found["methods"][name], steps["methods"][name])] for name in order]
    for words, times in costs.bits.items():
        lines.append([f"`autoregressive`, {words} weights", "1.00", "-", format_number(times), *["-"] * 5])
    best = [[kind, *_best(found, order, kind)] for kind in kinds]
    sizes = {role: f"{n / 1e6:.0f} M" for role, n in c["params"].items()}
    how = (
        f"Verify and draft costs are measured on random weights, acceptance is that of the shipped models: {s['model']} with "
        f"{', '.join(s['drafts'].values())}, {len(steps['rows']) // len(steps['methods'])} questions of "
        f"{s['questions'].get('file', 'a list')}, up to {s['new_tokens']} tokens each, greedy. The target has "
        f"{sizes['target']} parameters, the draft model {sizes['draft']}, bfloat16, {c['held']} entries held; {c['machine']}, "
        f"{c['threads']} threads, torch {c['torch']}. Heads have the target's width, those with a layer one of its size. Books "
        "are a step's time outside passes and heads, taken from the recorded runs. A larger draft model, or another "
        "acceptance, is another table."
    )
    bits = ", ".join(
        f"{ms:.1f} ms in {'bfloat16' if name == 'dense' else name}" for name, ms in c["one"].items()
    )
    bits = f"A pass of one row takes {bits}." + " Measured beside other work: read the ratios." * beside
    return "\n\n".join(
        [
            TITLE,
            "    " + "\n    ".join(commands(s, c)),
            how,
            bits,
            table(("method", *COLUMNS), lines),
            table(("kind", "best", "times plain", "then"), best),
            table(
                ("times plain, 300 M (questions)", *(f"{kind} ({n})" for kind, n in kinds.items())),
                [[f"`{name}`", *kind_cells(found["methods"][name], kinds)] for name in order],
            ),
            table(("goal, on 300 M", "at least", "reached", "", "by"), goal_rows(found)),
            table(("a pass of 300 M", *(f"{n} rows" if n > 1 else "1 row" for n in ROWS)), _pass_lines(c)),
        ]
    )


def _pass_lines(c: Mapping[str, Any]) -> list[list[str]]:
    target, draft = (c["ms"][f"{role} whole"] for role in ("target", "draft"))
    return [
        ["ms", *(f"{x:.1f}" for x in target)],
        ["times one row", *(format_number(x / target[0]) for x in target)],
        ["draft model, of the target's one row", *(format_share(x / target[0]) for x in draft)],
    ]


def _cells(one: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    times, then = one["ratio"] or {}, before["ratio"] or {}
    return [
        format_number(one["tau"]),
        format_number(then.get("median")),
        format_number(times.get("median")),
        " to ".join(format_number(x) for x in times["interval"]) if times else "-",
        *(format_share(one[key]) for key in ("passes", "heads", "overhead")),
        format_number(None if one["step_us"] is None else one["step_us"] / 1e3),
    ]


def _best(found: Mapping[str, Any], order: Sequence[str], kind: str) -> list[str]:
    """The method that gains most on a kind, how much, and those that follow."""
    times = {
        name: (found["methods"][name]["by_kind"][kind]["ratio"] or {}).get("median") or 0.0 for name in order
    }
    first, *others = sorted(times, key=lambda name: -times[name])[:BEST]
    then = ", ".join(f"`{name}` {times[name]:.2f}" for name in others)
    return [f"`{first}`", format_number(times[first]), then]


def commands(s: Mapping[str, Any], c: Mapping[str, Any]) -> list[str]:
    """What was called."""
    second = "".join(f" --{role} {name}" for role, name in s["drafts"].items() if role != "draft")
    return [
        f"python benchmarks/replayed.py record --out steps.json --threads {s['threads']}{second} "
        f"--new-tokens {s['new_tokens']} --repeats {s['repeats']}",
        f"python benchmarks/replayed.py measure steps.json --out costs.json --threads {c['threads']} --rounds {c['rounds']}",
        "python benchmarks/replayed.py price steps.json costs.json --write",
    ]


# ---- files


def read(path: Path, what: str = "steps") -> dict[str, Any]:
    """What a file of `record` ("steps") or of `measure` ("costs") holds; one sentence ends the program if it is neither."""
    way = f"give the file of replayed.py {'record' if what == 'steps' else 'measure'} --out"
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{path} cannot be read ({str(error)[:80]}): {way}.")
    mark = "replayed" if what == "steps" else "replay_costs"
    if not isinstance(said, dict) or said.get(mark) != VERSION:
        sys.exit(f"{path} holds no {what} of version {VERSION}: {way}.")
    if what == "steps" and not said["rows"]:
        sys.exit(f"{path} holds no answer: {way}.")
    return said


def costs_of(said: Mapping[str, Any]) -> Costs:
    """The costs in a file that was read."""
    curves = {role: Curve(**x) for role, x in said["passes"].items()}
    return Costs(curves, said["heads"], said["bits"], said["settings"])


def as_plain(costs: Costs) -> dict[str, Any]:
    """What `costs_of` reads."""
    curves = {role: vars(x) for role, x in costs.passes.items()}
    return {
        "replay_costs": VERSION,
        "passes": curves,
        "heads": costs.heads,
        "bits": costs.bits,
        "settings": costs.settings,
    }


def record(args: argparse.Namespace) -> None:
    """Write the steps of every method, or of some."""
    questions, about = read_questions(QUESTIONS)
    methods = None if args.method is None else parse_variants(args.method)
    model, drafts = load(args.model, args.dtype, "cpu"), {"draft": load(args.draft, args.dtype, "cpu")}
    if args.draft2 is not None:
        drafts["draft2"] = load(args.draft2, args.dtype, "cpu")
    bench = Recording(model, drafts, methods, new_tokens=args.new_tokens, repeats=args.repeats, temperature=0)
    asked_, short = {**about, "short": True}, spread_over_kinds(questions, SHORT)
    result = measure_speculation(
        bench, short[: args.questions], asked=asked_, out=args.out, resume=args.resume, say=_say
    )
    if not result.complete:
        sys.exit(f"Interrupted. {args.out}.partial holds what was recorded: --resume goes on from there.")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ways = parser.add_subparsers(dest="way", required=True)
    one = ways.add_parser("record")
    one.add_argument("--model", default="lab")
    one.add_argument("--draft", default="lab-draft")
    one.add_argument("--draft2")
    one.add_argument("--dtype", default="bfloat16")
    one.add_argument("--new-tokens", type=int, default=NEW_TOKENS)
    one.add_argument("--repeats", type=int, default=1)
    one.add_argument("--questions", type=int, help="so many of the twelve")
    one.add_argument("--method", action="append", metavar="NAME[=RECIPE]")
    one.add_argument("--resume", action="store_true")
    two = ways.add_parser("measure")
    two.add_argument("--params", type=parameter_count, default=parameter_count("300M"))
    two.add_argument("--draft-params", type=parameter_count, default=parameter_count("25M"))
    two.add_argument("--rounds", type=int, default=5)
    three = ways.add_parser("price")
    for way in (two, three):
        way.add_argument("steps", type=Path)
    three.add_argument("costs", type=Path)
    three.add_argument("--write", action="store_true", help="rewrite the section of docs/benchmarks.md")
    three.add_argument(
        "--beside", action="store_true", help="say that other programs ran when it was measured"
    )
    for way in (one, two):
        way.add_argument("--out", type=Path, required=True)
        way.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Record, measure, or price."""
    args = parsed()
    try:
        if args.way != "price":
            torch.set_num_threads(args.threads)
        if args.way == "record":
            record(args)
        elif args.way == "measure":
            costs = measured(read(args.steps), args.params, args.draft_params, args.rounds, _say)
            args.out.write_text(json.dumps(as_plain(costs)) + "\n", encoding="utf-8")
        else:
            text = page(read(args.steps), costs_of(read(args.costs, "costs")), args.beside)
            if not args.write:
                print(text)
            else:
                DOCS.write_text(with_section(DOCS.read_text(encoding="utf-8"), text, MARKS), encoding="utf-8")
    except Refusal as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
