"""The command `bench speculation`: the speedup of every method over plain decoding, and where the time of its steps goes."""

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
    unused_settings,
)
from ..shared.output import load_model, progress_printer, table
from ..shared.run import further_models

if TYPE_CHECKING:
    from decodescope.engine.bench.questions.questions import BenchQuestion
    from decodescope.engine.session.method import Method


def speculation(args: argparse.Namespace) -> int:
    """Measure everything on some questions, and print."""
    from decodescope.engine.bench.clock.speed import Reference
    from decodescope.engine.bench.questions.questions import spread_over_kinds
    from decodescope.engine.bench.questions.spec_bench import is_spec_bench, spec_bench_task
    from decodescope.engine.bench.speculation import PER_KIND, SHORT, SpeculationBench, measure_speculation

    def choose(questions: list[BenchQuestion]) -> list[BenchQuestion]:
        """The first questions of each kind; of Spec-Bench's own file of each task, as it has equally many of each."""
        kinds = {"kind_of": spec_bench_task} if is_spec_bench(questions) else {}
        return spread_over_kinds(questions, SHORT if args.short else PER_KIND, **kinds)

    questions, about, out = select_questions(args, choose)
    methods = None if args.method is None else parse_variants(args.method)
    dtype = args.dtype or "bfloat16"
    model = load_model(args.model, dtype, args.device)
    drafts = {role: load_model(name, dtype, args.device) for role, name in further_models(args).items()}
    bench = SpeculationBench(
        model,
        drafts,
        methods,
        Reference(model, drafts.get("draft"), model.stop_tokens),
        new_tokens=args.new_tokens,
        repeats=args.repeats,
        temperature=args.temperature,
        seed=args.seed,
    )
    say = progress_printer(args.json)
    result = measure_speculation(bench, questions, asked=about, out=out, resume=args.resume, say=say)
    return print_result(args, result, as_text, out)


def parse_variants(words: list[str]) -> dict[str, Method]:
    """The methods of several --method; the names of the default variants are known."""
    from decodescope.engine.bench.speculation import VARIANTS
    from decodescope.engine.session.method import Method

    return parse_methods(words, {name: Method.from_names(*parts) for name, parts in VARIANTS.items()})


COLUMNS = (
    "tokens per pass",
    "times plain",
    "90 %",
    "whole call",
    "times assisted",
    "times their lookup",
    "drafting",
    "passes",
    "heads",
    "overhead",
    "step, ms",
    "as plain decoding",
)


def cells(one: Mapping[str, Any]) -> list[str]:
    """A method's figures under COLUMNS."""
    times = one["ratio"] or {}
    same, parted = one["identity"], "-"
    if same is not None:
        parted = f"{same['equal']} of {sum(same.values())}" + (
            f", {same['tied']} by ties" if same["tied"] else ""
        )
    return [
        format_number(one["tau"]),
        format_number(times.get("median")),
        "-" if not times else " to ".join(format_number(x) for x in times["interval"]),
        *(
            format_number((one[key] or {}).get("median"))
            for key in ("whole", "against_assisted", "against_lookup")
        ),
        *(format_share(one[key]) for key in ("draft", "passes", "heads", "overhead")),
        format_number(None if one["step_us"] is None else one["step_us"] / 1e3),
        parted,
    ]


def names_by_gain(record: Mapping[str, Any]) -> list[str]:
    """The names of all that took part: ours by speedup, then transformers."""

    def gain(name: str) -> tuple[bool, bool, float]:
        one = record["methods"][name]
        times = one["ratio"] or one["whole"]
        return one["side"] != "decodescope", one["drawn"], -(times["median"] if times else 0.0)

    return sorted(record["methods"], key=gain)


def kind_cells(one: Mapping[str, Any], kinds: Mapping[str, int]) -> list[str]:
    """Speed relative to plain decoding on each kind of question; for transformers, of the whole call."""
    key = "ratio" if one["side"] == "decodescope" else "whole"
    return [format_number((one["by_kind"][kind][key] or {}).get("median")) for kind in kinds]


def heading(record: Mapping[str, Any]) -> tuple[str, str]:
    """Where and on what it was measured."""
    s, count = record["settings"], sum(record["kinds"].values())
    asked, drafts = s["questions"], ", ".join(s["drafts"].values()) or "no draft model"
    program = f"torch {s['torch']}, transformers {s['transformers'] or '-'}"
    where = f"{s['machine']}, {s['device']}, {s['threads']} threads; {program}"
    what = (
        f"{s['model']} with {drafts}, {s['dtype']}; {count} of {asked['count']} questions of {asked.get('file', 'a list')}, up "
        f"to {s['new_tokens']} tokens each, medians of {s['repeats']} rounds; drawn at temperature {s['temperature']:g}, seed "
        f"{s['seed']}; {record['seconds']:.0f} s"
    )
    return where, ". ".join([what, *unused_settings(s["set_aside"])])


def goal_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """Rows of the goals: the goal, its target, the best value and its method, and whether the goal is met."""
    rows = []
    for x in record["goals"]:
        if x["goal"] < 1:
            form = format_share
        elif isinstance(x["goal"], float):
            form = format_number
        else:
            form = _format_integer
        rows.append(
            [x["what"], form(x["goal"]), form(x["value"]), MET[x["met"]], "; ".join(x["methods"]) or "-"]
        )
    return rows


def _format_integer(value: float | None) -> str:
    return "-" if value is None else str(value)


def gain_warning(record: Mapping[str, Any]) -> str:
    """A sentence that names the methods with a larger gain than their tokens per pass allow; empty if there are none.
    A pass of several rows costs at least one of a single row, so something else took the machine's time."""
    ours = {name: x for name, x in record["methods"].items() if x["tau"] and x["ratio"]}
    names = [name for name, x in ours.items() if x["ratio"]["median"] > SLACK * x["tau"]]
    if not names:
        return ""
    return f"These gained more than their tokens per pass allow, so the machine was busy; measure again: {'; '.join(names)}."


def spec_table(record: Mapping[str, Any]) -> list[str]:
    """The figures computed with Spec-Bench's arithmetic; empty where nothing was timed.
    Spec-Bench's own questions are grouped by task and shown next to its published rows for the same methods. Other questions
    are grouped by kind and shown alone."""
    from decodescope.engine.bench.questions.spec_bench import load_published

    figures, s = record.get("spec_bench") or {}, record["settings"]
    if not figures:
        return []
    groups = list(next(iter(figures.values()))["times"])

    def row(name: str, one: Mapping[str, Any]) -> list[str]:
        return [
            name,
            *(format_number(one["times"][x]) for x in groups),
            format_number(one["accepted"]),
            format_number(one["overall"]),
        ]

    lines = [row(name, figures[name]) for name in names_by_gain(record) if name in figures]
    head = ("by Spec-Bench's arithmetic", *groups, "mean accepted", "overall")
    if not s["questions"]["spec_bench"]:
        why = "These are not Spec-Bench's questions, so its published rows are not shown here."
        return [table(head, lines) + f"\n{why} --questions question.jsonl, its own file, has them."]
    book, parts = load_published(), {x["method"] for x in s["contestants"].values()}
    lines += [row(f"{x['name']}, published, {x['gpu']}", x) for x in book["rows"] if x["method"] in parts]
    here = f"Here: {s['questions']['count']} of its 480 questions, answers of up to {s['new_tokens']} tokens; there up to 1024."
    return [table(head, lines) + f"\nPublished: {book['source']}. {here}"]


SLACK = 1.1
GOALS = ("goal", "at least", "reached", "", "by")


def as_text(record: Mapping[str, Any]) -> str:
    """The figures as text."""
    methods = record["methods"]
    kinds = record["kinds"]
    order = names_by_gain(record)
    deep = max((len(x["offered_by_position"]) for x in methods.values()), default=0)
    places = [
        [name, *acceptance_by_position(methods[name])]
        for name in order
        if methods[name]["offered_by_position"]
    ]
    parts = [
        "\n".join(heading(record)) + "\n",
        table(("method", *COLUMNS), [[name, *cells(methods[name])] for name in order]),
        *six_columns(record),
        table(
            ("times plain", *(f"{k} ({n})" for k, n in kinds.items())),
            [[x, *kind_cells(methods[x], kinds)] for x in order],
        ),
    ]
    parts += spec_table(record)
    if places:
        padded = [[*row, *[""] * (deep + 1 - len(row))] for row in places]
        parts.append(table(("accepted at position", *map(str, range(1, deep + 1))), padded))
    parts.append(table(GOALS, goal_rows(record)))
    parts += [gain_warning(record)] if gain_warning(record) else []
    parts += [f"Left out: {name}: {why}" for name, why in record["settings"]["left_out"].items()]
    if record["skipped"]:
        parts.append(
            f"Questions left out: {len(record['skipped'])}; the first: {record['skipped'][0]['why']}"
        )
    return "\n\n".join(parts)
