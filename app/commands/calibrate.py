"""The command `calibrate`: choose the value of a knob so that texts hold a risk, and keep it under a name."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.app.runs.prompts import JSON_LINES, LABBENCH, of_text
from decodescope.engine.core.calibrated import ENDING, MARK, NAME, Calibration, Point, usual, write
from decodescope.engine.core.refusal import Refusal

from .output import note, say_json, table
from .run import compose, ignored, models, prompt_ids
from .texts import read_text

if TYPE_CHECKING:
    from decodescope.engine.calibration.calibrate import Text
    from decodescope.engine.load import Model


def calibrate(args: argparse.Namespace) -> int:
    """Try the grid, keep what was found, and print; exit code 1 if not even its safe end holds the risk."""
    from decodescope.engine.calibration.calibrate import Aim, Uncalibrated, calibrate, knob_of, under

    target = place(args.name)
    grid = values(args.grid)
    method = compose(args)
    kind, knob = knob_of(method, args.knob)
    method = under(method, kind, knob.name, grid[0])  # so that a model is refused before weights are read
    for text in ignored(args, method):
        note(text)
    model, drafts = models(args, method)
    texts = read_texts(args, model)
    aim = Aim(args.delta, args.eps, args.risk, args.max_new_tokens, args.seed)

    def say(point: Point) -> None:
        if not args.json:
            print(f"{args.knob} = {point.value:g}: risk {point.risk:.4f}, p = {point.p:.2e}", flush=True)

    try:
        calibration = calibrate(model, method, args.knob, grid, texts, aim, models=drafts, whole=args.whole, say=say)
    except Uncalibrated as error:
        note(str(error))
        return 1
    calibration = replace(calibration, name=target.name.removesuffix(ENDING))
    try:
        write(calibration, target)
    except OSError as error:
        raise Refusal(f"The calibration cannot be written to {target}: {error.strerror}.") from None
    if args.json:
        say_json({**calibration.record(), "out": str(target)})
    else:
        print(told(calibration, args.name, target))
    return 0


def place(name: str) -> Path:
    """Where a calibration of this name, or path, is kept. Raises Refusal where one lies already."""
    if NAME.fullmatch(name):
        target = usual() / f"{name}{ENDING}"
    else:
        target = Path(name).expanduser()
        stem = target.name.removesuffix(ENDING)
        if not target.name.endswith(ENDING) or not NAME.fullmatch(stem) or not target.parent.is_dir():
            raise Refusal(f"--name {name[:80]!r} is neither a name of letters, digits, - and _, nor FOLDER/NAME{ENDING}.")
    if target.exists():
        raise Refusal(f"{target} exists already: choose another --name, or move it away.")
    return target


def values(text: str) -> list[float]:
    """The values of FIRST:LAST:COUNT, evenly spaced, or of numbers with commas between them. Raises Refusal."""
    wrong = Refusal(f"--grid {text[:60]!r}: give FIRST:LAST:COUNT, such as 1:0.3:15, or numbers with commas, the safest first.")
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


def read_texts(args: argparse.Namespace, model: Model) -> list[Text]:
    """The prompts, read for the model; of questions with their references."""
    from decodescope.engine.bench.answers import QUESTIONS
    from decodescope.engine.bench.questions import first_of_each, read_questions
    from decodescope.engine.calibration.calibrate import Text

    if args.texts != LABBENCH and args.risk != "task":
        lines = of_text(read_text(args.texts), args.texts, args.texts.endswith(JSON_LINES))
        return [Text(tuple(prompt_ids(model, x.text, args.chat))) for x in lines]
    asked, _ = read_questions(QUESTIONS if args.texts == LABBENCH else args.texts)
    chat = bool(model.tokenizer and model.tokenizer.has_chat)
    chosen = [x for x in first_of_each(asked, 8) if x.scorer] if args.short else [x for x in asked if x.scorer]
    return [Text(tuple(prompt_ids(model, x.turns[0], chat)), x.references[0], x.scorer) for x in chosen]


def told(one: Calibration, name: str, target: Path) -> str:
    """What was found, and how it is used."""
    rows = [[f"{x.value:g}", f"{x.risk:.4f}", f"{x.p:.2e}", "yes" if x.passed else "no"] for x in one.curve]
    knob = f"{one.part}.{one.knob}"
    called = one.name if NAME.fullmatch(name) else name
    return (
        f"\n{table((knob, f'risk ({one.risk})', 'p', 'passed'), rows)}\n\n{knob} = {one.value:g}: with a chance of "
        f"{1 - one.eps:.0%} at least, texts like these {one.n} have a risk of {one.delta:g} at most\n"
        f"--set {knob}={MARK}{called}\n{target}"
    )
