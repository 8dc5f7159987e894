"""The command `calibrate`: choose knob values for a bounded risk, and store them under a name.

It chooses the value of a knob so that texts hold a risk, or thresholds by exit so that a token seldom differs."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.app.runs.prompts import JSON_LINES, LABBENCH, parse_prompts
from decodescope.app.runs.threads import choose_threads
from decodescope.engine.core.calibration import (
    ENDING,
    MARK,
    NAME,
    CalibratedValue,
    Calibration,
    CalibrationPoint,
    ConformalThresholds,
    default_folder,
    write,
)
from decodescope.engine.core.paths import PathRefusal, expand_path, shorten_path
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.model.checkpoint.prompt_source import PromptSource
from decodescope.lab.formatting.prompt_sentences import prompt_sentences

from .shared.output import print_json, print_note, table
from .shared.run import build_method, load_models, model_notes, prompt_ids, unused_model_notes
from .shared.texts import read_text

if TYPE_CHECKING:
    from decodescope.engine.bench.calibration.calibrate import CalibrationText
    from decodescope.engine.session.load import Model
    from decodescope.engine.session.method import Method

TESTED = "tested"  # learn then test; other words of --how are conformal procedures
RISK = ("knob", "grid", "risk", "delta", "whole")  # options of learn then test alone
EDIT, DELTA = "edit", 0.1  # their default values
PROMISING = ("independent", "shared")


def calibrate(args: argparse.Namespace) -> int:
    """Run the chosen procedure, store the result, and print it.
    The exit code is 1 if a grid's safe end does not hold the risk."""
    from decodescope.engine.bench.calibration.calibrate import CalibrationError

    target = calibration_path(args.name)
    try:
        one = _calibrate_by_test(args) if args.how == TESTED else _calibrate_exits(args)
    except CalibrationError as error:
        print_note(str(error))
        return 1
    one = replace(one, name=target.name.removesuffix(ENDING))
    try:
        write(one, target)
    except OSError as error:
        raise Refusal(f"The calibration cannot be written to {target}: {error.strerror}.") from None
    if args.json:
        print_json({**one.record(), "out": str(target)})
    else:
        called = one.name if NAME.fullmatch(args.name) else args.name
        print(f"\n{as_text(one)}\n--set {one.part}.{one.knob}={MARK}{called}\n{target}")
    return 0


def _calibrate_by_test(args: argparse.Namespace) -> Calibration:
    """A number by learn then test. Raises CalibrationError."""
    from decodescope.engine.bench.calibration.calibrate import (
        CalibrationSettings,
        calibrate,
        find_knob,
        with_knob,
    )

    if args.knob is None or args.grid is None:
        raise Refusal(
            "What is to be chosen? Give --knob and --grid, or thresholds by exit with --how shared."
        )
    grid = parse_grid(args.grid)
    method = build_method(args)
    kind, knob = find_knob(method, args.knob)
    method = with_knob(method, kind, knob.name, grid[0])  # so that a model is refused before weights are read
    model, drafts = _load_with_notes(args, method)
    texts = read_texts(args, model)
    delta = DELTA if args.delta is None else args.delta
    aim = CalibrationSettings(delta, args.eps, args.risk or EDIT, args.max_new_tokens, args.seed)

    def say(point: CalibrationPoint) -> None:
        if not args.json:
            print(f"{args.knob} = {point.value:g}: risk {point.risk:.4f}, p = {point.p:.2e}", flush=True)

    return calibrate(model, method, args.knob, grid, texts, aim, models=drafts, whole=args.whole, say=say)


def _calibrate_exits(args: argparse.Namespace) -> ConformalThresholds:
    """Thresholds by exit, by a conformal procedure."""
    from decodescope.engine.bench.calibration.scores import calibrate_exits

    for option in RISK:
        if (given := getattr(args, option)) is not None and given is not False:
            raise Refusal(
                f"--{option} is for --how {TESTED}: {args.how} chooses adaptive_depth.thresholds, from --texts and --eps."
            )
    method = build_method(args)
    model, _ = _load_with_notes(args, method)
    return calibrate_exits(
        model, method, read_texts(args, model), args.eps, args.how, args.max_new_tokens, args.seed
    )


def _load_with_notes(args: argparse.Namespace, method: Method) -> tuple[Model, dict[str, Model]]:
    notes = unused_model_notes(args, method)
    model, drafts = load_models(args, method)
    for text in notes + model_notes(method, model, drafts):
        print_note(text)
    choose_threads(args, model)
    return model, drafts


def calibration_path(name: str) -> Path:
    """The path of the calibration with this name or path. Raises Refusal if that file already exists."""
    if NAME.fullmatch(name):
        target = default_folder() / f"{name}{ENDING}"
    else:
        try:
            target = expand_path(name)
        except PathRefusal as error:
            raise Refusal(f"--name {shorten_path(name)!r} is no path: {error.why}.") from None
        stem = target.name.removesuffix(ENDING)
        if not target.name.endswith(ENDING) or not NAME.fullmatch(stem) or not target.parent.is_dir():
            raise Refusal(
                f"--name {name[:80]!r} is neither a name of letters, digits, - and _, nor FOLDER/NAME{ENDING}."
            )
    if target.exists():
        raise Refusal(f"{target} exists already: choose another --name, or move it away.")
    return target


def parse_grid(text: str) -> list[float]:
    """The values of FIRST:LAST:COUNT, evenly spaced, or of numbers with commas between them. Raises Refusal."""
    wrong = Refusal(
        f"--grid {text[:60]!r}: give FIRST:LAST:COUNT, such as 1:0.3:15, or numbers with commas, the safest first."
    )
    try:
        if ":" not in text:
            return [float(x) for x in text.split(",")]
        first, last, count = text.split(":")
        steps = int(count)
        if not 2 <= steps <= 1000:
            raise wrong
        return [round(float(first) + (float(last) - float(first)) * i / (steps - 1), 9) for i in range(steps)]
    except ValueError:
        raise wrong from None


def read_texts(args: argparse.Namespace, model: Model) -> list[CalibrationText]:
    """The prompts, read for the model; of questions with their references."""
    from decodescope.engine.bench.calibration.calibrate import CalibrationText
    from decodescope.engine.bench.labbench import QUESTIONS
    from decodescope.engine.bench.questions.questions import first_of_each_kind, read_questions

    if args.texts != LABBENCH and args.risk != "task":
        lines = parse_prompts(read_text(args.texts), args.texts, args.texts.endswith(JSON_LINES))
        sources = [x.source(args.chat) for x in lines]
        _print_sentences(
            args, prompt_sentences(sum(x.is_templated for x in sources), [x.later for x in lines])
        )
        return [CalibrationText(tuple(prompt_ids(model, x))) for x in sources]
    asked, _ = read_questions(QUESTIONS if args.texts == LABBENCH else args.texts)
    chat = bool(model.tokenizer and model.tokenizer.has_chat)
    chosen = (
        [x for x in first_of_each_kind(asked, 8) if x.scorer]
        if args.short
        else [x for x in asked if x.scorer]
    )
    _print_sentences(args, prompt_sentences(len(chosen) if chat else 0, [len(x.turns) - 1 for x in chosen]))
    return [
        CalibrationText(
            tuple(prompt_ids(model, PromptSource(x.turns[0], chat=chat))), x.references[0], x.scorer
        )
        for x in chosen
    ]


def _print_sentences(args: argparse.Namespace, sentences: list[str]) -> None:
    """Print sentences, where the output is text."""
    if not args.json:
        print("\n".join(sentences), flush=True)


def as_text(one: CalibratedValue) -> str:
    """What was found."""
    knob = f"{one.part}.{one.knob}"
    if isinstance(one, ConformalThresholds):
        shares = zip(one.value, one.agreed, one.leave, strict=True)
        rows = [
            [str(i), f"{x:.4g}", f"{agreed:.1%}", f"{leave:.1%}"]
            for i, (x, agreed, leave) in enumerate(shares, 1)
        ]
        rows.append(["none", "", "", f"{1 - sum(one.leave):.1%}"])
        kept = (
            f"of {one.tokens} tokens of {one.n} texts {one.wrong:.1%} leave and differ from the whole model's"
        )
        promised = (
            f"; of one more at most {one.eps:g}, its keys and values whole"
            if one.how in PROMISING
            else "; no promise"
        )
        return f"{table(('exit', knob, 'agreed', 'leave here'), rows)}\n\n{one.how}, eps {one.eps:g}: {kept}{promised}"
    assert isinstance(one, Calibration)
    rows = [[f"{x.value:g}", f"{x.risk:.4f}", f"{x.p:.2e}", "yes" if x.passed else "no"] for x in one.curve]
    return (
        f"{table((knob, f'risk ({one.risk})', 'p', 'passed'), rows)}\n\n{knob} = {one.value:g}: with a chance of "
        f"{1 - one.eps:.0%} at least, texts like these {one.n} have a risk of {one.delta:g} at most"
    )
