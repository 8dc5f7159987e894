"""Shared by the measurements of `bench`: questions, methods by recipe, threads, and figures as text."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.refusal import sentence
from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.refusal import Refusal
from decodescope.lab.formatting.prompt_sentences import skipped_turns_sentence, template_sentence

from .output import format_bytes, print_json, print_note, table
from .run import build_method

if TYPE_CHECKING:
    from decodescope.engine.bench.questions.questions import BenchQuestion
    from decodescope.engine.bench.questions.result_file import BenchResult
    from decodescope.engine.session.method import Method


def run_with_threads(args: argparse.Namespace, work: Callable[[argparse.Namespace], int]) -> int:
    """Do `work` on questions, in the requested number of threads."""
    from decodescope.engine.kernels.choice import pass_threads, set_pass_threads

    before = pass_threads()
    set_pass_threads(args.threads or before)
    try:
        return work(args)
    finally:
        set_pass_threads(before)


def result_path(args: argparse.Namespace) -> Path | None:
    """The file of the result, if any. Raises Refusal if it cannot be written, or if there is nothing to resume."""
    from decodescope.engine.bench.questions.result_file import check_output

    if args.resume and args.out is None:
        raise Refusal("--resume goes on with a file: give --out with the name that the measurement had.")
    out = None if args.out is None else expand_path(args.out)
    if out is not None:
        check_output(out, args.resume)
    return out


def select_questions(
    args: argparse.Namespace, choose: Callable[[list[BenchQuestion]], list[BenchQuestion]]
) -> tuple[list[BenchQuestion], dict[str, Any], Path | None]:
    """The questions that `choose` takes of the file, what to record about it, and the file of the result, if any."""
    from decodescope.engine.bench.labbench import QUESTIONS
    from decodescope.engine.bench.questions.questions import read_questions

    out = result_path(args)
    questions, about = read_questions(args.questions or QUESTIONS)
    return choose(questions), {**about, "short": args.short}, out


def print_result(
    args: argparse.Namespace,
    result: BenchResult[Any],
    text: Callable[[dict[str, Any]], str],
    out: Path | None,
    *,
    first_turns: bool = False,
) -> int:
    """Print the result, as JSON or as `text`, with sentences on how the questions were put; the exit code.
    first_turns: only the first turn of each was asked"""
    record = result.record()
    if args.json:
        print_json(record)
    elif result.rows:
        print("\n\n".join([text(record), *question_notes(record["settings"], first_turns)]))
    else:
        print("Nothing was measured." + "".join(f" {x['why']}" for x in result.skipped[:1]))
    if not result.complete:
        print_note(
            "Interrupted."
            + ("" if out is None else f" {out}.partial holds what was measured: --resume goes on from there.")
        )
        return 130
    return 0


def question_notes(settings: Mapping[str, Any], first_turns: bool) -> list[str]:
    """A line on how questions were put to the model, and which of their turns; none if the settings do not say."""
    asked = settings.get("questions") or {}
    if "chat" not in settings or "later_turns" not in asked:
        return []
    count = asked["count"]
    later = asked["later_turns"]
    having = asked["with_later"]
    turns = "All turns were asked; a method's own answers are part of its later prompts." if later else ""
    turns = skipped_turns_sentence(later, having, count) if first_turns else turns
    return [" ".join(x for x in (template_sentence(count if settings["chat"] else 0, count), turns) if x)]


def parse_methods(
    words: Iterable[str], known: Mapping[str, Method], draws: bool = False
) -> dict[str, Method]:
    """The methods of several --method, by name. draws: each may have its own samplers."""
    methods: dict[str, Method] = {}
    for word in words:
        name, method = parse_method(word, known, draws)
        if name in methods:
            raise Refusal(
                f"--method {name} is given twice: give each its own name, e.g. --method other={name}."
            )
        methods[name] = method
    return methods


def parse_method(word: str, known: Mapping[str, Method], draws: bool = False) -> tuple[str, Method]:
    """Name and method of NAME or NAME=RECIPE.
    RECIPE is a known name, the name of a part, the words of `decodescope run` that choose a method, or the link or JSON of a
    recipe. draws: it may choose a sampler; a known name may do so in any case."""
    name, given, text = word.partition("=")
    name, text = name.strip(), text.strip() if given else name.strip()
    if not name or len(name) > 40 or not name.isprintable():
        raise Refusal(f"--method {word[:40]!r} has no name: write NAME, or NAME=RECIPE.")
    try:
        method = known[text] if text in known else _parse_recipe(text, known)
    except Refusal as error:
        raise Refusal(f"--method {name}: {sentence(error)}") from None
    if not (draws or method.sampler.greedy or method is known.get(text)):
        raise Refusal(
            f"--method {name} chooses a sampler, but all methods share one: leave it out and give --temperature."
        )
    return name, method


PARTS = (
    "drafter",
    "policy",
    "kv_compression",
    "adaptive_depth",
    "strategy",
    "guidance",
    "sampler",
)  # options that alone make a method


def _parse_recipe(text: str, known: Mapping[str, Method]) -> Method:
    """The method that a recipe describes."""
    from decodescope.app.runs.recipe import from_json
    from decodescope.engine.core.component import registry
    from decodescope.engine.session.method import Method

    kind = next((kind for kind in PARTS if text in registry(kind)), None)
    if kind is not None:
        return Method.from_names({kind: text})
    if text.startswith("{") or "#set=" in text:
        choice = from_json(text.rpartition("#set=")[2])
        return Method.from_names(choice.names, choice.settings)
    if not text.startswith(("-", "decodescope ")):
        names = "".join(f"{name}, " for name in known)
        raise Refusal(
            f"there is no {text[:40]!r}; take {names}a name that decodescope methods lists, or NAME=RECIPE."
        )
    from decodescope.app.basis.parser import build_parser

    try:
        words = shlex.split(text.removeprefix("decodescope run"))
    except ValueError as error:
        raise Refusal(f"its quotes do not match ({error}).") from None
    whole = [*words, "--model", "lab"] + (
        [] if any(x.startswith("--prompt") for x in words) else ["--prompt", "x"]
    )
    return build_method(build_parser().parse_args(["run", *whole]))


MET = {True: "met", False: "not met", None: "not asked"}


def acceptance_by_position(one: Mapping[str, Any]) -> list[str]:
    """For each depth of a draft, how many of the drafts that reached it were accepted up to it."""
    return [
        format_share(a / n)
        for a, n in zip(one["accepted_by_position"], one["offered_by_position"], strict=True)
    ]


def format_share(value: float | None) -> str:
    """A share in percent."""
    return "-" if value is None else f"{100 * value:.0f} %"


def six_columns(record: Mapping[str, Any]) -> list[str]:
    """The table of the six columns, alone in a list; none if an older record has no such figures."""
    figures = record.get("columns")
    if not figures:
        return []
    rows = [[name, *six_cells(one)] for name, one in figures.items()]
    unknown = (
        "compute use is of a peak that decodescope hardware measures"
        if record["settings"].get("peak") is None
        else ""
    )
    return [table(("method", *SIX), rows) + (f"\nn/a: {unknown}." if unknown else "")]


def unused_settings(set_aside: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each model with generation settings in its folder that neither side used."""
    sentences = []
    for name, unused in set_aside.items():
        settings = ", ".join(f"{setting} {json.dumps(value)[:60]}" for setting, value in unused.items())
        sentences.append(f"{name}: neither side uses these generation settings of its folder: {settings}")
    return sentences


SIX = (
    "memory",
    "compute use",
    "s an answer",
    "tokens/s",
    "J a token",
    "compression",
)  # as in engine/bench/questions/columns.py


def six_cells(one: Mapping[str, float | None]) -> list[str]:
    """The six figures of a method, under SIX; n/a for an unknown one."""
    memory, use, latency, rate, energy, times = one.values()
    known = (
        None if memory is None else format_bytes(round(memory)),
        None if use is None else f"{100 * use:.1f} %",
        None if latency is None else f"{latency:.3f}",
        None if rate is None else f"{rate:.1f}",
        None if energy is None else f"{energy:.3f}",
        None if times is None else f"x {times:.2f}",
    )
    return ["n/a" if x is None else x for x in known]


def format_number(value: float | None, digits: int = 2) -> str:
    """A number, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"
