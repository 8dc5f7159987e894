"""The command `report`: where drafts are rejected, over recorded traces or over prompts that are decoded first."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.arguments import option
from decodescope.app.basis.refusal import sentence
from decodescope.app.runs.compare.batch import uses_drafter
from decodescope.app.runs.prompts import (
    LABBENCH,
    PromptEntry,
    labbench_prompts,
    select_kinds,
)
from decodescope.app.runs.threads import choose_threads, measure_passes
from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.roles import DRAFTS
from decodescope.engine.model.checkpoint.prompt_source import PromptSource
from decodescope.engine.trace.query.prompt_reading import READINGS, classify_prompt
from decodescope.lab.formatting.prompt_sentences import summarize_skipped_turns

from .shared.output import format_bytes, print_json, print_note, table
from .shared.run import (
    PARTS,
    build_method,
    catch_interrupts,
    load_models,
    model_notes,
    special_token_notes,
    unused_model_notes,
)
from .shared.texts import read_prompt_entries, unused_template_note
from .shared.trace import check_new_file, write

if TYPE_CHECKING:
    from decodescope.engine.session.session import Session
    from decodescope.engine.trace import Trace
    from decodescope.lab.reports.changes import RatioCheck
    from decodescope.lab.reports.deployed_clock import Deployment
    from decodescope.lab.reports.report import AcceptanceReport
    from decodescope.lab.reports.tables import ReportTable


def report(args: argparse.Namespace) -> int:
    """Report on traces, or on prompts that are decoded first; the exit code."""
    files = {x: None if (name := getattr(args, x)) is None else expand_path(name) for x in ("html", "csv")}
    _check_options(args, files)
    if args.apart:
        return _report_apart(args)
    from decodescope.lab.reports.report import count_report as count

    deployment = find_deployment(args)
    before = count(open_traces(args.beside), deployment) if args.beside else None
    runs = DecodedRuns(args) if args.file == [] else None
    tally = count(open_traces(args.file) if runs is None else runs.traces(), deployment)
    tally.notes += [] if runs is None else runs.notes()
    check = None if before is None else compare_reports(before, tally, args.fail_below)
    if (html := files["html"]) is not None:
        from decodescope.lab.reports.page import page

        write(html, [page(tally)])
    if (csv := files["csv"]) is not None:
        from decodescope.lab.reports.acceptance_csv import export_acceptance

        write(csv, export_acceptance(tally, "traces" if runs is None else Path(args.prompts).stem))
    if args.metrics:
        from decodescope.lab.reports.metrics import report_metrics

        print_json(report_metrics(tally) | ({} if check is None else {"ratio": check.ratio}))
    elif args.json:
        written = {x: None if y is None else str(y) for x, y in files.items()}
        beside = None if before is None else changes_record(before, tally, check)
        print_json({**tally.record(), **written, "beside": beside})
    else:
        changes = [] if before is None else [changes_text(before, tally, check)]
        print("\n\n".join([as_text(tally), *changes, *([] if runs is None else runs.hints())]))
        for path in (x for x in files.values() if x is not None):
            print(f"\n{path}: {format_bytes(path.stat().st_size)}")
    if runs is not None and runs.stopped:
        return 130
    return 1 if check is not None and check.failed else 0


def _report_apart(args: argparse.Namespace) -> int:
    """A report for each way in which prompts were put; the exit code."""
    from decodescope.lab.reports.report import count_apart

    deployment = find_deployment(args)
    runs = DecodedRuns(args) if args.file == [] else None
    reports = count_apart(open_traces(args.file) if runs is None else runs.traces(), deployment)
    reports[0].notes += [] if runs is None else runs.notes()
    if args.json:
        print_json({"apart": [x.record() for x in reports]})
    else:
        print("\n\n\n".join(map(as_text, reports)))
    return 130 if runs is not None and runs.stopped else 0


def _check_options(args: argparse.Namespace, files: dict[str, Path | None]) -> None:
    """Raise Refusal for options that do not go together. files: option -> the file that it names"""
    if files["html"] is not None and files["html"] == files["csv"]:
        raise Refusal("--html and --csv name the same file: give them different ones.")
    for path in files.values():
        if path is not None:
            check_new_file(path)
    single = {**files, "beside": args.beside or None, "metrics": args.metrics or None}
    if args.apart and (other := next((x for x, given in single.items() if given is not None), None)):
        raise Refusal(
            f"--apart prints several reports, and --{other} is of one: leave it out, or give the runs of one way alone."
        )
    if bool(args.file) == (args.prompts is not None):
        raise Refusal(
            "Give traces (decodescope report a.dstrace b.dstrace), or --prompts FILE and a method to decode with."
        )
    if args.file and (given := _first_method_option(args)):
        raise Refusal(f"{given} belongs to --prompts: recorded traces say themselves how they were made.")
    if args.fail_below is not None and not args.beside:
        raise Refusal(
            "--fail-below needs a report to compare with: give its traces, --beside a.dstrace b.dstrace."
        )
    if args.sequences != 1 and args.machine is None:
        raise Refusal("--sequences belongs to --machine: give a machine, such as --machine h100-sxm.")


def find_deployment(args: argparse.Namespace) -> Deployment | None:
    """The machine that the advice is priced for; None: that of the runs."""
    if args.machine is None:
        return None
    from decodescope.engine.cost.hardware import device
    from decodescope.lab.reports.deployed_clock import Deployment

    return Deployment(device(args.machine), args.sequences)


def compare_reports(
    before: AcceptanceReport, after: AcceptanceReport, least: float | None
) -> RatioCheck | None:
    """The check of --fail-below; None without a limit. Raises Refusal if the two cannot be compared."""
    from decodescope.lab.reports.changes import check_ratio

    try:
        return None if least is None else check_ratio(before, after, least)
    except ValueError as error:
        raise Refusal(str(error)) from None


def changes_text(before: AcceptanceReport, after: AcceptanceReport, check: RatioCheck | None) -> str:
    """What changed from the one report to the other, as text."""
    from decodescope.lab.reports.changes import change_tables
    from decodescope.lab.reports.tables import headline

    lead = "Beside: " + headline(before)[0]
    parts = [
        lead,
        *(_table_text(x) for x in change_tables(before, after)),
        *([] if check is None else [str(check)]),
    ]
    return "\n\n".join(parts)


def changes_record(
    before: AcceptanceReport, after: AcceptanceReport, check: RatioCheck | None
) -> dict[str, Any]:
    """The same as plain data."""
    from decodescope.lab.reports.changes import change_tables
    from decodescope.lab.reports.oracle import oracle_curve

    curve = oracle_curve([before, after])
    verdict = None if check is None else {**asdict(check), "failed": check.failed}
    return {
        "report": before.record(),
        "changes": [asdict(x) for x in change_tables(before, after)],
        "oracle": None if isinstance(curve, str) else curve.record(),
        "check": verdict,
    }


def _first_method_option(args: argparse.Namespace) -> str:
    """The first given option on how prompts are decoded, as written; empty if there is none."""
    usual: dict[str, Any] = {
        "set": [],
        "head": None,
        "chat": False,
        "short": False,
        "allow_pickle": False,
        "batch": 1,
    }
    names = (
        "model",
        *DRAFTS,
        "role",
        "head",
        "allow_pickle",
        *PARTS,
        "sampler",
        "set",
        "chat",
        "short",
        "traces",
        "batch",
    )
    return next((option(x) for x in names if getattr(args, x) != usual.get(x)), "")


def as_text(tally: AcceptanceReport) -> str:
    """The report as text."""
    from decodescope.lab.reports.tables import headline, tables

    parts = ["\n".join(headline(tally))]
    return "\n\n".join([*parts, *map(_table_text, tables(tally)), *tally.notes])


def _table_text(given: ReportTable) -> str:
    one = given.with_steps()
    about = f"{one.about}\n" if one.about else ""
    below = "".join(f"\n{x}" for x in one.below)
    return f"{one.title}\n{about}{table(one.head, one.rows)}{below}"


def open_traces(names: list[str]) -> Iterator[Trace]:
    """The traces of these files, one after another; a file named twice is counted once, with a note."""
    from decodescope.engine.trace import open_trace

    counted: set[Path] = set()
    for name in names:
        if (place := expand_path(name).resolve()) in counted:
            print_note(f"Note: {name} is there twice and is counted once.")
            continue
        counted.add(place)
        with closing(open_trace(name)) as trace:
            yield trace


class DecodedRuns:
    """The runs of a method on every prompt. stopped: whether an interrupt ended them early"""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.stopped = False
        self.decoded: list[int] = []  # numbers of the prompts that have a trace
        if args.model is None:
            raise Refusal("--prompts needs a model to decode with: give --model lab, a folder or a hub id.")
        self.folder = None if args.traces is None else _make_traces_folder(args.traces)
        self.prompts = read_prompts(args.prompts, args.short)
        method = build_method(args)
        if not uses_drafter(method):
            raise Refusal(
                "This method drafts nothing, so no draft can die: choose one, e.g. --drafter draft_model --draft M."
            )
        self.method = method
        notes = unused_model_notes(args, method)
        self.model, self.drafts = load_models(args, method)
        for text in notes + model_notes(method, self.model, self.drafts):
            print_note(text)
        choose_threads(args, self.model)
        measure_passes(self.model, *self.drafts.values())
        assert self.model.tokenizer is not None
        self.has_chat = self.model.tokenizer.has_chat
        if not args.apart:
            _check_readings([self._source(i) for i in range(len(self.prompts))])
        for text in special_token_notes(
            args, self.model, [self._source(i) for i in range(len(self.prompts))]
        ):
            print_note(text)

    def notes(self) -> list[str]:
        """Notes of a report on its prompts: turns that were not asked."""
        return [x for x in [summarize_skipped_turns([self.prompts[i].later for i in self.decoded])] if x]

    def hints(self) -> list[str]:
        """A further note of the command line: that a chat template was not used."""
        return unused_template_note(self.model, map(self._source, self.decoded))

    def _source(self, i: int) -> PromptSource:
        """Prompt number `i` for the model."""
        return self.prompts[i].source(self.args.chat or (self.prompts[i].chat and self.has_chat))

    def traces(self) -> Iterator[Trace]:
        """A run's trace for every prompt, in their order; prompts that cannot be run are left out, with a note."""
        from decodescope.engine.session.batch.owner_sessions import session_sets

        faults: list[str] = []
        count, alone = len(self.prompts), self.args.batch == 1
        with catch_interrupts() as seen:
            for some in (
                [range(i, i + 1) for i in range(count)] if alone else session_sets(count, self.args.batch)
            ):
                if not self.args.json and not seen:
                    print_note(f"prompt{'s' if len(some) > 1 else ''} {_span(some)} of {count}")
                if seen:
                    done = {}
                elif alone:
                    done = self.run(some[0])
                else:
                    done = self._run_together(some, lambda: bool(seen))
                for i in sorted(done):
                    trace = done[i]
                    if isinstance(trace, Exception):
                        faults.append(f"prompt {i + 1}: {sentence(trace)}")
                    else:
                        self.decoded.append(i)
                        yield trace
                if len(done) < len(some):
                    self.stopped = True
                    print_note(f"Interrupted: the report is on the {some[0] + len(done)} prompts before.")
                    break
        if faults:
            if len(faults) == count:
                raise Refusal(f"No prompt could be decoded; {faults[0]}")
            print_note(f"Left out: {len(faults)}. The first, {faults[0]}")

    def run(self, i: int) -> dict[int, Trace | Exception]:
        """The trace of prompt `i`, or the reason why there is none."""
        from decodescope.engine.model.forward.executor import EngineFault
        from decodescope.engine.session.run import run

        try:
            return {i: run(self.model, self.method, self._source(i), **self._options(i)).trace}
        except (EngineFault, Refusal) as error:
            return {i: error}

    def _run_together(
        self, numbers: Iterable[int], halted: Callable[[], bool]
    ) -> dict[int, Trace | Exception]:
        """Find the traces of these prompts that can be reported together, or the reason why there are none.
        Stopped runs are left out."""
        from decodescope.engine.model.forward.executor import EngineFault
        from decodescope.engine.session.batch.owner_sessions import decode_for_owners
        from decodescope.engine.session.batch.shared_passes import SharedExecutor
        from decodescope.engine.session.run import Run, prepare_run

        done: dict[int, Trace | Exception] = {}
        runs: dict[int, Run] = {}

        def begin(i: int) -> Session:
            seat = SharedExecutor(self.model.decoder.device)
            runs[i] = prepare_run(self.model, self.method, self._source(i), executor=seat, **self._options(i))
            return runs[i].session

        def over(i: int, error: Exception | None) -> None:
            if error is not None and not isinstance(error, EngineFault | Refusal):
                raise error
            end = None if error is not None else runs[i].session.end
            if error is not None or (end is not None and end.reason != "stopped_by_user"):
                done[i] = error or runs[i].trace
            runs.pop(i, None)

        decode_for_owners(numbers, begin, self.args.batch, over=over, halted=halted)
        return done

    def _options(self, i: int) -> dict[str, Any]:
        """How a prompt is decoded; number `i` has the i-th seed after the first."""
        path = None if self.folder is None else self.folder / f"prompt-{i + 1:04d}.dstrace"
        options: dict[str, Any] = {"models": self.drafts, "max_new_tokens": self.args.max_new_tokens}
        return options | {"seed": self.args.seed + i, "path": path}


def _check_readings(sources: Sequence[PromptSource]) -> None:
    """Raise Refusal if these prompts are put in different ways, before any is decoded."""
    readings = [classify_prompt(x.is_templated, x.kind, x.turn) for x in sources]
    for i, reading in enumerate(readings):
        if reading != readings[0]:
            raise Refusal(
                f"Prompt {i + 1} is {READINGS[reading]}, prompt 1 {READINGS[readings[0]]}, and drafts fare differently "
                "there: give prompts of one sort, or --apart for a report on each."
            )


def _span(numbers: range) -> str:
    """Prompts by their numbers, counted from 1."""
    return f"{numbers[0] + 1} to {numbers[-1] + 1}" if len(numbers) > 1 else str(numbers[0] + 1)


def _make_traces_folder(name: str) -> Path:
    """An empty folder for traces, created if it does not exist."""
    folder = expand_path(name)
    try:
        folder.mkdir(exist_ok=True)
        if next(folder.glob("*.dstrace*"), None) is not None:
            raise Refusal(f"{folder} holds traces already: give --traces an empty folder.")
    except (OSError, ValueError) as error:
        raise Refusal(
            f"The folder {name[:200]} cannot be used: {getattr(error, 'strerror', None) or error}."
        ) from None
    return folder


def read_prompts(name: str, short: bool = False) -> list[PromptEntry]:
    """The prompts of a file, or LabBench's questions; short: the first SHORT of each kind."""
    if name == LABBENCH:
        from decodescope.engine.bench.labbench import SHORT

        return select_kinds(labbench_prompts(), each=SHORT if short else 0)
    if short:
        raise Refusal("--short chooses among LabBench's questions: leave it out, or give --prompts labbench.")
    return read_prompt_entries(name)
