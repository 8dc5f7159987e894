"""The command `train`: train a draft head for a model on the model's own answers to prompts."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.model.checkpoint.prompt_source import PromptSource

from .shared.bench import run_with_threads
from .shared.output import load_model, new_file_path, print_json, print_note, progress_printer
from .shared.run import prompt_ids
from .shared.texts import read_prompt_entries, unused_template_note

if TYPE_CHECKING:
    from decodescope.engine.session.load import Model
    from decodescope.engine.training.run import TrainedHead, TrainingSettings

SIZES = {"rank": "rank", "d_ff": "d_ff", "kept_tokens": "kept"}  # option -> size of a net
NEWS_SECONDS = 10  # after which a browser reads the picture of a training again


def head(args: argparse.Namespace) -> int:
    """Train a head, and print where it lies and how far its drafts get."""
    return run_with_threads(args, _train_head)


def _train_head(args: argparse.Namespace) -> int:
    from decodescope.engine.model.heads.files import HEADS

    if args.kind not in HEADS:
        raise Refusal(
            f"There are no heads called {args.kind[:40]!r} to train: choose one of {', '.join(HEADS)}."
        )
    html = _picture_path(args)
    prompts = read_prompt_entries(args.prompts)
    if args.out is not None:
        _check_out_folder(expand_path(args.out))
    model = load_model(args.model, args.dtype, args.device, None, False, args.weights or "", False)
    if model.tokenizer is None:
        raise Refusal(
            f"{model.name} has no tokenizer.json, so it cannot read a text: add the file to its folder."
        )
    chats = model.tokenizer.has_chat
    sources = [x.source(args.chat or (x.chat and chats)) for x in prompts]
    for text in unused_template_note(model, sources):
        print_note(text)
    ids = _read_ids(model, sources)
    out = _out_folder(args, model)
    from decodescope.engine.training.run import train_head

    title = f"{args.kind} head for {model.name}"
    trained = train_head(
        model,
        ids,
        _settings(args),
        out,
        progress_printer(args.json),
        lambda rows: _draw(html, title, rows, True),
    )
    _draw(html, title, trained.metrics, False)
    record = _record(trained, out)
    if args.json:
        print_json(record)
    else:
        print(_as_text(record, args.kind, model))
    return 0


def _picture_path(args: argparse.Namespace) -> Path | None:
    """The file of the picture, if one is wanted: a new one, or that of a training that goes on."""
    if args.html is None:
        return None
    path = expand_path(args.html)
    goes_on = args.out is not None and (expand_path(args.out) / "run.json").exists()
    if goes_on and path.is_file():
        return path
    return new_file_path(args.html, "--html", "the picture of the training")


def _draw(path: Path | None, title: str, metrics: list[dict[str, Any]], going: bool) -> None:
    """Draw the training so far in the file, whole or not at all. going: a browser that shows it looks for news."""
    if path is None:
        return
    from decodescope.lab.figures.measured.head_training import figure

    page = figure(title, metrics).to_html(include_plotlyjs=True)
    if going:
        page = page.replace("<head>", f'<head><meta http-equiv="refresh" content="{NEWS_SECONDS}">', 1)
    part = path.with_name(f"{path.name}.partial")
    part.write_text(page, encoding="utf-8")
    os.replace(part, path)


def _read_ids(model: Model, sources: list[PromptSource]) -> list[list[int]]:
    """The ids of the prompts; those of a chat go through the template together."""
    assert model.tokenizer is not None
    try:
        through = iter(model.tokenizer.chat_each([x.text for x in sources if x.chat_turn]))
    except ValueError as error:
        raise Refusal(str(error)) from None
    return [next(through) if x.chat_turn else prompt_ids(model, x) for x in sources]


def _settings(args: argparse.Namespace) -> TrainingSettings:
    from decodescope.engine.training.run import TrainingSettings

    if args.answer_tokens >= args.window:
        raise Refusal(
            f"--answer-tokens {args.answer_tokens} leaves no room for a prompt in --window {args.window}: give a larger window."
        )
    sizes = {size: getattr(args, name) for name, size in SIZES.items() if getattr(args, name) is not None}
    return TrainingSettings(
        args.kind,
        args.tokens,
        sizes,
        args.answer_tokens,
        args.window,
        args.temperature,
        args.batch_tokens,
        args.lr,
        args.muon,
        args.every,
        seed=args.seed,
    )


def _check_out_folder(out: Path) -> None:
    """Refuse a folder that cannot be made, before anything is loaded."""
    there = next(x for x in (out, *out.absolute().parents) if x.exists())
    if not there.is_dir():
        raise Refusal(f"The training cannot be kept in {out}: {there} is a file, give a folder with --out.")


def _out_folder(args: argparse.Namespace, model: Model) -> Path:
    """The folder of the training; without --out one in the user's data, by model and kind."""
    from decodescope.engine.core.files import safe_file_name
    from decodescope.engine.training.records import default_folder

    if args.out is not None:
        return expand_path(args.out)
    return default_folder() / f"{safe_file_name(model.name)}-{args.kind}"


def _record(trained: TrainedHead, out: Path) -> dict[str, Any]:
    last = trained.metrics[-1]
    return {
        "folder": str(trained.folder),
        "out": str(out),
        "steps": last["steps"],
        "tokens": last["tokens"],
        "loss": last["loss"],
        "accepted": last["accepted"],
        "tokens_per_pass": last["tokens_per_pass"],
        "seconds": trained.seconds,
        "metrics": trained.metrics,
    }


def _as_text(record: dict[str, Any], kind: str, model: Model) -> str:
    shares = ", ".join(f"{x:.1%}" for x in record["accepted"])
    return "\n".join(
        [
            f"{record['tokens']:,} tokens in {record['steps']:,} steps, {record['seconds']:.0f} s; loss {record['loss']:.3f}",
            f"on held-out prompts accepted by position {shares}: {record['tokens_per_pass']:.2f} tokens a pass",
            f"{record['folder']} (how it was made: {record['out']}/card.md)",
            f"decodescope run --model {model.reference} --head {kind}={record['folder']} --drafter {kind} ...",
        ]
    )
