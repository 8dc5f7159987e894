"""The command `run`: decode one prompt and report what happened."""

from __future__ import annotations

import argparse
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.arguments import option
from decodescope.app.basis.parser import KINDS
from decodescope.app.basis.refusal import sentence
from decodescope.app.runs.threads import choose_threads
from decodescope.engine.core.calibration import MARK, NAME, load_calibration
from decodescope.engine.core.exactness import exactness_text
from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.roles import DRAFTS, TARGET, role_option

from .output import LivePrinter, format_bytes, new_file_path, print_json, print_note
from .texts import LARGEST, read_source, read_text

if TYPE_CHECKING:
    from decodescope.engine.model.checkpoint.prompt_source import PromptSource
    from decodescope.engine.saved.file import SavedCache
    from decodescope.engine.session.load import Model
    from decodescope.engine.session.method import Method
    from decodescope.engine.session.run import Run
    from decodescope.engine.session.session import Session
    from decodescope.engine.trace.query.summary import Summary
    from decodescope.engine.trace.records.events import Header

FIGURES = (
    "steps",
    "target_passes",
    "tau",
    "accepted",
    "drafted",
    "prefill_s",
    "wall_s",
    "tokens_per_s",
    "kv_bytes_held",
    "kv_bytes_peak",
    "kv_bytes_kept",
    "kv_bytes_full",
    "exactness",
    "end",
)
PARTS = tuple(kind for kind in KINDS if kind != "sampler")  # several samplers are given in one text


def run(args: argparse.Namespace) -> int:
    """Decode as requested; the exit code."""
    source = read_source(args)
    return decode_prompt(args, source, lambda model: (prompt_ids(model, source), None))


def prompt_ids(model: Model, source: PromptSource) -> list[int]:
    """The ids of a prompt; raises Refusal if the model cannot read it."""
    from decodescope.engine.session.run import encode_source

    try:
        return encode_source(model, source)
    except ValueError as error:
        raise Refusal(str(error)) from None


def special_token_notes(
    args: argparse.Namespace, model: Model, prompts: Iterable[PromptSource], decodes: bool = True
) -> list[str]:
    """Notes on special tokens in these prompts, and on how the chat template ends.
    decodes: whether the command writes texts, which have to end"""
    from decodescope.engine.model.checkpoint.prompt_notes import COMMAND, PAGE, PromptAdvice, prompt_notes

    ways = PromptAdvice(
        COMMAND.chat if hasattr(args, "chat") else "",
        COMMAND.stop if hasattr(args, "stop") else PAGE.stop,
        COMMAND.marks if hasattr(args, "marks") else "",
    )
    ends = model.stop_tokens if decodes and not getattr(args, "ignore_eos", False) else None
    return [
        f"Note: {x}" for x in prompt_notes(model.tokenizer, prompts, ends, getattr(args, "stop", ()), ways)
    ]


def check_option_texts(texts: Iterable[tuple[str, str]]) -> None:
    """Refuse option texts, (option, text), that the terminal could not pass on."""
    for name, text in texts:
        if re.search("[\ud800-\udfff]", text):
            raise Refusal(
                f"The text of {name} holds bytes that are no UTF-8: type it in the terminal's own encoding."
            )


def decode_prompt(
    args: argparse.Namespace,
    source: PromptSource,
    read: Callable[[Model], tuple[list[int], SavedCache | None]],
) -> int:
    """Decode as requested; the exit code. read: the ids of the prompt for a model, and its cache if that was saved"""
    target = None if args.trace is None else new_trace_path(args.trace)
    check_option_texts((("--prompt", source.text), *(("--stop", text) for text in args.stop)))
    if "" in args.stop:
        raise Refusal(
            "--stop is empty, and every text holds that: give the text to end at, or leave --stop out."
        )
    notes = [] if target is not None else recording_option_notes(args)
    reference = target is not None and (getattr(args, "reference", None) or False)
    if reference and args.trace_level == "summary":
        what = "the model that reads along" if reference == "model" else "a full reference cache"
        raise Refusal(
            f"--trace-level summary records nothing of {what}: leave --reference or --trace-level out."
        )
    method = build_method(args)
    notes += unused_model_notes(args, method) + calibration_notes(method)
    model, drafts = load_models(args, method)
    notes += model_notes(method, model, drafts)
    from decodescope.engine.session.session import Session

    threads = choose_threads(args, model)
    ids, saved = read(model)
    notes += special_token_notes(args, model, [source])
    session = Session(
        model,
        method,
        ids,
        models=drafts,
        max_new_tokens=args.max_new_tokens,
        seed=args.seed,
        stop_tokens=[] if args.ignore_eos else None,
        stop_texts=args.stop,
        chat=source.is_templated,
        turn=source.turn,
        prompt_kind=source.kind,
        saved=saved,
        level="summary" if target is None else args.trace_level or "decisions",
        layers=None if target is None else args.layers,
        reference=reference,
    )
    session.threads = threads
    return run_session(session, model, target, args.json, notes)


def recording_option_notes(args: argparse.Namespace) -> list[str]:
    """Notes on the recording options if nothing is recorded."""
    asked = [x for x in ("trace_level", "layers", "reference") if getattr(args, x, None) not in (None, False)]
    return [f"Note: nothing is recorded without --trace OUT, so {option(x)} is ignored." for x in asked]


def run_session(
    session: Session, model: Model, target: Path | None, as_json: bool, notes: Sequence[str] = ()
) -> int:
    """Decode to the end, record to `target` if given, and show the result with the notes; the exit code."""
    from decodescope.engine.model.forward.executor import EngineFault
    from decodescope.engine.session.remembered import remember_models
    from decodescope.engine.session.run import LazyWriter, Run, Tee
    from decodescope.engine.trace import Trace

    if cut := session.length.cut_message(session.prompt, session.max_new):
        notes = [*notes, f"Note: {cut}, so --max-new-tokens {session.max_new} is cut to that."]
    for text in notes:
        print_note(text)
    trace = Trace()
    session.sink = trace if target is None else Tee(trace, LazyWriter(target))
    code, why = 0, None
    if target is not None:
        keep_files(session)
        remember_models(session.models.values())
    try:
        run_steps(session, model, None if as_json else LivePrinter())
        if session.end is not None and session.end.reason == "stopped_by_user":
            code = 130
    except EngineFault as fault:
        code, why = 1, str(fault)
    except Refusal as error:
        if not trace.steps:  # nothing was done yet: there is no result to show
            raise
        code, why = 1, sentence(error)
    done = Run(model, session, trace)
    ends = [f"Note: {text}" for text in done.notes]
    print_result(done, target, as_json, [*notes, *ends])
    for text in [*ends, *([why] if why else [])]:
        print_note(text)
    return code


def keep_files(session: Session) -> None:
    """Copy the files named by the method's knobs next to the usual traces, where a repeated run looks for them."""
    from decodescope.engine.core import files

    for part in session.method.parts().values():
        for value in part.file_knobs().values():
            if (files.uploads_folder() / str(files.hash_of(value))).is_file():
                continue
            try:
                files.store_file(
                    files.locate_file(value, LARGEST).read_bytes(), value, files.uploads_folder(), LARGEST
                )
            except OSError as error:
                print_note(
                    f"Note: no copy of {value} was kept ({error.strerror}); repeating this run will take its path."
                )


def run_steps(session: Session, model: Model, live: LivePrinter | None) -> None:
    """Make every step, and print the text as it comes.
    An interrupt ends the run after the present step, or after the present chunk of the prompt; a second one ends it at once."""
    from decodescope.engine.core.progress import Progress
    from decodescope.engine.session.run import read_prompt
    from decodescope.engine.session.session import SessionStopped

    assert model.tokenizer is not None
    with catch_interrupts() as seen:
        session.halted = lambda: bool(seen)
        try:
            read_prompt(session)
            with Progress("decoding", session.remaining_tokens, "tokens") as progress:
                while session.end is None:
                    if seen:
                        session.finish("stopped_by_user")
                        break
                    step = session.step()
                    if live is not None:  # the text itself shows the progress
                        live.add(b"".join(map(model.tokenizer.bytes_of, step.emitted)))
                    else:
                        progress.add(len(step.emitted))
        except (KeyboardInterrupt, SessionStopped):
            session.finish("stopped_by_user")
        except BrokenPipeError:
            session.finish("stopped_by_user")
            raise
    if live is not None:
        live.add(b"", final=True)


@contextmanager
def catch_interrupts() -> Iterator[list[int]]:
    """Count interrupts; the second one raises KeyboardInterrupt."""
    seen: list[int] = []

    def heard(number: int, frame: object) -> None:
        seen.append(number)
        if len(seen) > 1:
            raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGINT, heard)
    except ValueError:  # not the main thread: another thread gets the interrupts
        yield seen
        return
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def print_result(run: Run, target: Path | None, as_json: bool, notes: Sequence[str]) -> None:
    """The result: one JSON object, or a line under the text."""
    kept = None if target is None or not target.exists() else str(target)
    if not hasattr(run.trace, "header"):  # ended during the prefill: there is nothing to sum up
        run.trace.write(run.session.header)
    summary = run.summary
    if as_json:
        said = {
            "text": run.text,
            "prompt_tokens": run.prompt,
            "tokens": run.tokens,
            **summary_figures(summary),
        }
        said |= {"causes": summary.causes, "models": model_records(run.trace.header)}
        said |= {"loaded": summary.loaded} if summary.loaded else {}
        print_json({**said, "trace": kept, "notes": notes})
        return
    print(f"\n\n{summary_sentence(summary)}" + (f"; trace: {kept}" if kept else ""))


def model_records(header: Header) -> dict[str, dict[str, Any]]:
    """Role -> name, fingerprint, changed weights, adapter and types in its GGUF file of each model of a run, for JSON."""
    said = ("name", "weights", "adapter", "stored_as", "fingerprint")
    roles = {TARGET: header.model, **header.lanes}
    return {role: {word: model.get(word, "") for word in said} for role, model in roles.items()}


def summary_figures(summary: Summary) -> dict[str, Any]:
    """The figures that a run's JSON contains in addition to its text and tokens."""
    return {name: getattr(summary, name) for name in FIGURES}


def summary_sentence(summary: Summary) -> str:
    """The figures in a sentence."""
    parts = [f"{summary.tokens} tokens in {summary.steps} steps"]
    if summary.target_passes:
        parts.append(f"{summary.tau:.2f} tokens per target pass")
    if summary.drafted:
        parts.append(f"{summary.accepted} of {summary.drafted} drafted tokens accepted")
    how = f"{summary.loaded} of the prompt's tokens loaded, ready" if summary.loaded else "prompt read"
    parts.append(f"{summary.tokens_per_s:.1f} tokens/s ({how} in {summary.prefill_s:.3f} s)")
    parts.append(f"KV entries {format_bytes(summary.kv_bytes_kept)} of {format_bytes(summary.kv_bytes_full)}")
    why = f" (because: {'; '.join(summary.causes)})" if summary.causes else ""
    parts.append(exactness_text(summary.exactness) + why)
    return f"{', '.join(parts)}; ended: {summary.end or 'not yet'}"


def new_trace_path(name: str) -> Path:
    """The path of a trace that can be written; raises Refusal before anything is loaded if it cannot."""
    return new_file_path(name, "--trace", "the trace", ".partial")


def build_method(args: argparse.Namespace) -> Method:
    """The method of the command line.
    Names and knobs are checked here; the compatibility of its parts is checked with the model."""
    from decodescope.engine.session.method import Method

    return Method.from_names(*parse_parts(args, "drafter.max_draft_tokens=6"))


def parse_parts(
    args: argparse.Namespace, example: str, before: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The named parts and the set knobs, as Method.from_names takes them; `example`: a setting, for messages.
    before: the default parts, where none is named"""
    names: dict[str, Any] = {kind: getattr(args, kind) for kind in PARTS if getattr(args, kind) is not None}
    if args.sampler is not None:
        names["sampler"] = [x.strip() for x in args.sampler.split(",")]
    settings: dict[str, dict[str, Any]] = {}
    for text in args.set:
        setting = re.fullmatch(r"([\w-]+)\.(\w+)=(.*)", text, re.DOTALL)
        if setting is None:
            raise Refusal(f"The setting {text!r} is not of the form PART.knob=value, e.g. --set {example}.")
        settings.setdefault(setting[1], {})[setting[2]] = _parse_knob(
            {**(before or {}), **names}, *setting.groups()
        )
    return names, settings


def _parse_knob(names: dict[str, Any], part: str, knob: str, text: str) -> Any:
    """Parse the text that the user typed for a knob.
    `calibrated:PATH` is read here; the engine reads names. For a knob that takes a file, its path becomes NAME@HASH. For a
    text of several lines, @FILE is replaced by the file's text, and @@ is an escaped @."""
    from decodescope.app.runs.recipe import part_knobs
    from decodescope.engine.core.files import FileRefusal, file_mark

    known = part_knobs(names, part).get(knob)
    if (
        known is not None
        and known.is_numeric
        and text.startswith(MARK)
        and not NAME.fullmatch(text[len(MARK) :])
    ):
        return load_calibration(expand_path(text[len(MARK) :]))
    if known is not None and known.file and text:
        try:
            return file_mark(text, known.most or 0)
        except FileRefusal as no:
            raise Refusal(f"{part}.{knob}: {no}") from None
    if known is None or not known.lines or not text.startswith("@"):
        return text
    return text[1:] if text.startswith("@@") else read_text(text[1:], f"text for {part}.{knob},")


def further_models(args: argparse.Namespace) -> dict[str, str]:
    """Role -> the name of the model given for it, without the target."""
    names = {role: name for role in DRAFTS if (name := getattr(args, role)) is not None}
    for role, name in args.role or ():
        if role in names:
            raise Refusal(f"The role {role} is given two models, {names[role]} and {name}: give it one.")
        names[role] = name
    return names


def head_folders(args: argparse.Namespace, option: str = "head") -> dict[str, Path]:
    """Kind -> folder of the heads that an option gives. Raises Refusal for a kind that is given twice."""
    folders: dict[str, Path] = {}
    for kind, folder in getattr(args, option) or ():
        if kind in folders:
            raise Refusal(f"The heads {kind} are given twice, {folders[kind]} and {folder}: give them once.")
        folders[kind] = folder
    return folders


def unused_model_notes(args: argparse.Namespace, method: Method) -> list[str]:
    """Notes on the given models and heads that the method does not read."""
    roles, given = method.lanes, further_models(args)
    options = [
        f"--{x}" if x in DRAFTS else " ".join(role_option(x, given[x])) for x in given if x not in roles
    ]
    notes = [
        f"Note: this method needs no{' such' if roles else ' further'} model, so {x} is ignored."
        for x in options
    ]
    if not (heads := head_folders(args)):
        return notes
    from decodescope.engine.session.load import describe, find_model

    name, folder, *_ = find_model(args.model)
    read = method.target_heads(describe(folder, name, heads))
    unread = [kind for kind in heads if kind not in read]
    return notes + [
        f"Note: this method does not read {x} heads, so --head {x}=... is ignored." for x in unread
    ]


def calibration_notes(method: Method) -> list[str]:
    """Notes on the knobs with values calibrated for a risk."""
    return [
        f"Note: {kind}.{knob} = {one.as_text}, from {MARK}{one.name}: {one.promise}."
        for kind, part in method.parts().items()
        for knob, one in part.calibrated.items()
    ]


def load_models(args: argparse.Namespace, method: Method) -> tuple[Model, dict[str, Model]]:
    """The target, and by role the further models that the method uses. The method is checked before weights are read."""
    from decodescope.engine.session.load import describe, find_model, load

    roles, given = method.lanes, further_models(args)
    name, folder, adapter, weights = find_model(args.model)
    heads = head_folders(args)
    method.check(describe(folder, name, heads, adapter, weights), given)
    model = load(args.model, args.dtype, args.device, heads, args.allow_pickle)
    if model.tokenizer is None:
        raise Refusal(
            f"{model.name} has no tokenizer.json, so it cannot read a text: add the file to its folder."
        )
    others = {role: load(given[role], args.dtype, args.device) for role in roles if role in given}
    return model, others


def model_notes(method: Method, model: Model, others: Mapping[str, Model]) -> list[str]:
    """Notes on how the files of these models were read, and on models with another tokenizer than the target: how many tokens
    they share with it. None twice."""
    from decodescope.engine.session.compatibility import vocabulary_remarks

    read = [x for one in (model, *others.values()) for x in one.remarks]
    return [f"Note: {x}" for x in dict.fromkeys(read + vocabulary_remarks(method, {TARGET: model, **others}))]
