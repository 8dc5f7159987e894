"""The command `batch`: decode many prompts, plainly with each shared prefix read and held once, or with any method."""

from __future__ import annotations

import argparse
import contextlib
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.refusal import sentence
from decodescope.app.runs.prompts import BEGINS, JSON_LINES, PromptEntry, parse_prompts
from decodescope.app.runs.threads import choose_threads
from decodescope.engine.core.activity import common_idle_notes, merge_violations
from decodescope.engine.core.refusal import Refusal
from decodescope.lab.formatting.prompt_sentences import prompt_sentences

from .batch_method import MethodBatch, sharing_sentence, uses_method
from .shared.growing_texts import PARTIAL, GrowingTexts, write_line
from .shared.output import format_bytes, load_model, new_file_path, print_json, print_note
from .shared.run import catch_interrupts, further_models, parse_parts, prompt_ids, special_token_notes
from .shared.texts import read_text, unused_template_note

if TYPE_CHECKING:
    from decodescope.engine.session.batch.decode import BatchResult, BatchSettings
    from decodescope.engine.session.batch.plan import BatchPlan
    from decodescope.engine.session.load import Model


def batch(args: argparse.Namespace) -> int:
    """Decode the prompts of a file as asked; the exit code."""
    out = None if args.out is None else new_file_path(args.out, "--out", "the texts", PARTIAL)
    prompts = parse_prompts(read_text(args.prompts), args.prompts, args.prompts.endswith(JSON_LINES))
    if uses_method(args):
        return _decode_with_method(args, prompts, out)
    sampler = _build_sampler(args)
    from decodescope.engine.session.batch.decode import check_prompts, decode_batch
    from decodescope.engine.session.batch.plan import plan_batch

    model = load_model(args.model, args.dtype, args.device)
    if model.tokenizer is None:
        raise Refusal(
            f"{model.name} has no tokenizer.json, so it cannot read a text: add the file to its folder."
        )
    chats = model.tokenizer.has_chat
    sources = [x.source(args.chat or (x.chat and chats), args.marks) for x in prompts]
    templated = [x.is_templated for x in sources]
    ids = [prompt_ids(model, x) for x in sources]
    check_prompts(model, ids)
    for text in special_token_notes(args, model, sources, decodes=not args.plan_only):
        print_note(text)
    choose_threads(args, model)
    if args.plan_only:
        _print_plan(args, prompts, plan_batch(ids))
        return 0
    growing = GrowingTexts(out)
    asked_of = _batch_settings(args, model, sampler)
    with catch_interrupts() as seen, _progress_bar(len(ids)) as progress, closing(growing):
        asked_of = replace(
            asked_of,
            halted=lambda: bool(seen),
            over=progress.add,
            each=lambda i, text: growing.add(_output_row(model, prompts[i], ids[i], text)),
        )
        done = decode_batch(model, ids, asked_of)
    answers = [_output_row(model, *x) for x in zip(prompts, ids, done.texts, strict=True)]
    kept = out is None or _write_texts(out, answers)
    growing.remove()
    asked = [
        *prompt_sentences(sum(templated), [x.later for x in prompts]),
        *unused_template_note(model, sources),
    ]
    ends = _end_notes(answers)
    _print_result(args, prompts, [*asked, *ends], done, answers, out if kept else None)
    if done.fault is not None:
        so_far = f"{done.ended_count} of {len(ids)} texts were decoded to their end, the others are kept as far as they came"
        print_note(f"{so_far}: {sentence(done.fault)}")
    if seen:
        return 130
    if kept and done.fault is None:
        return 0
    return 1


def _decode_with_method(args: argparse.Namespace, prompts: list[PromptEntry], out: Path | None) -> int:
    """Decode the prompts by sessions that run together; the exit code."""
    if args.plan_only:
        raise Refusal(
            "--plan-only is about what prompts share in plain decoding: leave the method and --traces out."
        )
    group = MethodBatch(args, prompts)
    for text in group.notes:
        print_note(text)
    growing = GrowingTexts(out)
    group.keep = growing.add
    choose_threads(args, group.model)
    with catch_interrupts() as seen, _progress_bar(len(prompts)) as progress, closing(growing):
        done = group.run(lambda: bool(seen), progress.add)
    answers = [group.answers[i] for i in sorted(group.answers)]
    kept = out is None or _write_texts(out, answers)
    growing.remove()
    group.notes += (ends := _end_notes(answers))
    tokens = sum(len(x["tokens"]) for x in answers)
    rate = f"{tokens} tokens, {tokens / done.wall_s:.1f} tokens/s; {sharing_sentence(done)}"
    asked = [
        *prompt_sentences(sum(x.is_templated for x in group.sources), [x.later for x in prompts]),
        *unused_template_note(group.model, group.sources),
    ]
    if args.json:
        counts = {
            "new_tokens": tokens,
            "passes": done.pass_counts.total(),
            "shared": dict(sorted(done.pass_counts.items())),
        }
        counts |= {"wall_s": done.wall_s, "out": str(out) if out and kept else None, "traces": args.traces}
        print_json({"texts": answers, **counts, "faults": group.faults, "notes": [*group.notes, *asked]})
    else:
        line = rate + (f"; traces: {args.traces}" if args.traces else "")
        _print_texts(prompts, asked, answers, out if kept else None, line)
    for text in [*group.faults, *ends]:
        print_note(text)
    if seen:
        return 130
    if kept and not group.faults:
        return 0
    return 1


def _end_notes(answers: list[dict[str, Any]]) -> list[str]:
    """Notes on what texts break, and on parts that did nothing in any of them."""
    broken = [answer.get("violations", []) for answer in answers]
    idle = [[x for x in a.get("notes", ()) if x not in b] for a, b in zip(answers, broken, strict=True)]
    return [f"Note: {x}" for x in [*merge_violations(broken), *common_idle_notes(idle)]]


def _print_texts(
    prompts: list[PromptEntry], asked: list[str], answers: list[dict[str, Any]], out: Path | None, line: str
) -> None:
    """Print the texts, unless they are in a file, sentences on how the prompts were put, and a line with figures."""
    begins = {x.name: f"{x.beginning}{'…' if len(x.text) > BEGINS else ''}" for x in prompts}
    for answer in answers if out is None else ():
        print(f"{answer['name']}: {begins[answer['name']]}\n{answer['text']}\n")
    print("\n".join([*asked, line + (f"; texts: {out}" if out else "")]))


def _write_texts(out: Path, answers: list[dict[str, Any]]) -> bool:
    """Write all texts, one per line, and return whether all were written.
    If the disk fills up, the file keeps the texts that fitted completely, and a note informs the user."""
    whole = 0
    lines = 0
    error = None
    fresh = out if out.exists() else out.with_name(out.name + ".new")  # a device is written as it is
    try:
        with fresh.open("wb", buffering=0) as file:
            for answer in answers:
                whole += write_line(file, answer)
                lines += 1
    except OSError as raised:
        error = raised.strerror
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    if error is not None:
        with contextlib.suppress(OSError):  # a device has no length
            os.truncate(fresh, whole)
        print_note(
            f"{out} has {lines} of the {len(answers)} texts, since no more could be written ({error}): here they are all."
        )
    if fresh != out:
        with contextlib.suppress(FileNotFoundError):  # it could not even be created
            os.replace(fresh, out)
    return error is None


def _build_sampler(args: argparse.Namespace) -> Any:
    """The sampler of the command line; a knob of another part is refused."""
    from decodescope.engine.session.method import Method

    names, settings = parse_parts(args, "temperature.temperature=0.7")
    other = next((part for part in settings if part not in ("sampler", *names.get("sampler", []))), None)
    if other is not None:
        what = f"A batch without a method is decoded plainly, so a knob of {other} would be ignored"
        raise Refusal(f"{what}: name the part too, or set knobs of samplers alone.")
    if idle := [*further_models(args), *(f"{name} heads" for name, _ in args.head or ())]:
        what = f"A batch without a method is decoded plainly and reads no {idle[0]}"
        raise Refusal(f"{what}: name a part that does, or leave it out.")
    if args.trace_level is not None:
        raise Refusal("--trace-level says what --traces DIR records: give that too, or leave it out.")
    return Method.from_names(names, settings).sampler


def _batch_settings(args: argparse.Namespace, model: Model, sampler: Any) -> BatchSettings:
    from decodescope.engine.session.batch.decode import BatchSettings
    from decodescope.engine.session.session import stop_condition

    return BatchSettings(
        sampler,
        stop_condition(model, [] if args.ignore_eos else None, args.stop),
        max_new=args.max_new_tokens,
        seed=args.seed,
        most=args.texts,
    )


def _progress_bar(count: int) -> Any:
    from decodescope.engine.core.progress import Progress

    return Progress("decoding", count, "texts")


def _output_row(model: Model, prompt: PromptEntry, ids: list[int], text: Any) -> dict[str, Any]:
    """The record of a prompt, as a line of --out."""
    assert model.tokenizer is not None
    said = {"name": prompt.name, **({"category": prompt.kind} if prompt.kind else {}), "prompt": prompt.text}
    text_of = model.tokenizer.decode(text.tokens)
    broken = {"violations": text.violations} if text.violations else {}
    figures = {"prompt_tokens": len(ids), "text": text_of, "tokens": text.tokens, "end": text.end}
    return {**said, **figures, **broken}


def _plan_record(plan: BatchPlan) -> dict[str, Any]:
    groups = [{"prefix": x.prefix, "members": list(x.members)} for x in plan.groups]
    return {
        "groups": groups,
        "prompt_tokens": plan.tokens,
        "read_tokens": plan.read,
        "least_tokens": plan.least,
    }


def _plan_sentence(plan: BatchPlan) -> str:
    """The plan in a sentence."""
    shared = [x for x in plan.groups if x.prefix]
    if not shared:
        return f"{plan.tokens} tokens of prompts, and no two prompts begin alike: all are read"
    many = f"{sum(len(x.members) for x in shared)} prompts share {len(shared)} prefix{'es' if len(shared) > 1 else ''}"
    return f"{plan.tokens} tokens of prompts, {plan.read} of them read, {1 - plan.read / plan.tokens:.0%} fewer: {many}"


def _print_plan(args: argparse.Namespace, prompts: list[PromptEntry], plan: BatchPlan) -> None:
    if args.json:
        print_json(_plan_record(plan))
        return
    for group in plan.groups:
        print(
            f"{group.prefix} tokens shared by {len(group.members)}: {', '.join(prompts[i].name for i in group.members)}"
        )
    print(f"\n{_plan_sentence(plan)}; prefixes behind prefixes would need {plan.least}")


def _print_result(
    args: argparse.Namespace,
    prompts: list[PromptEntry],
    asked: list[str],
    done: BatchResult,
    answers: list[dict[str, Any]],
    out: Path | None,
) -> None:
    """The texts in the order of the file, and a line with figures; or one JSON object."""
    tokens = sum(len(x.tokens) for x in done.texts)
    figures = {
        "new_tokens": tokens,
        "passes": done.passes,
        "wall_s": done.wall_s,
        "kv_bytes_peak": done.peak_bytes,
    }
    if args.json:
        plan = {**_plan_record(done.plan), **figures, "out": None if out is None else str(out)}
        print_json({"texts": answers, **plan, "notes": asked})
        return
    rate = (
        f"{tokens} tokens in {done.passes} passes, {tokens / done.wall_s:.1f} tokens/s" if done.wall_s else ""
    )
    _print_texts(
        prompts,
        asked,
        answers,
        out,
        f"{_plan_sentence(done.plan)}; {rate}; KV at most {format_bytes(done.peak_bytes)}",
    )
