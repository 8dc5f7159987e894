"""The command `batch` with a method: one session per prompt, run together, each with a trace of its own on request."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.refusal import sentence
from decodescope.app.runs.prompts import PromptEntry
from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.refusal import Refusal

from .shared.run import (
    PARTS,
    build_method,
    calibration_notes,
    load_models,
    model_notes,
    prompt_ids,
    special_token_notes,
    summary_figures,
    unused_model_notes,
)

if TYPE_CHECKING:
    from decodescope.engine.session.batch.shared_passes import SharedPassStats
    from decodescope.engine.session.run import Run
    from decodescope.engine.session.session import Session

TOLD = (
    "steps",
    "target_passes",
    "tau",
    "accepted",
    "drafted",
    "kv_bytes_peak",
    "exactness",
)  # recorded for each text in addition to the text
ENDING = ".dstrace"


def uses_method(args: argparse.Namespace) -> bool:
    """Whether the prompts are decoded by a method or recorded, rather than plainly after their shared prefix."""
    return args.traces is not None or any(getattr(args, kind) is not None for kind in PARTS)


def make_traces_folder(name: str | None) -> Path | None:
    """The folder for the traces, created if it does not exist; raises Refusal if it is not empty."""
    if name is None:
        return None
    place = expand_path(name)
    try:
        place.mkdir(exist_ok=True)
        if any(place.iterdir()):
            raise Refusal(
                f"{place} is not empty: choose a folder of its own for --traces, which is made if it is not there."
            )
    except (OSError, ValueError) as error:
        wrong = getattr(error, "strerror", None) or error
        raise Refusal(f"The traces cannot be written to {name[:200]}: {wrong}.") from None
    return place


class MethodBatch:
    """The prompts of a batch as sessions of one method.

    answers: lines of --out for the prompts that have ended, by prompt number;  faults: errors that ended texts early
    """

    def __init__(self, args: argparse.Namespace, prompts: list[PromptEntry]):
        from decodescope.engine.session.remembered import remember_models

        self.args = args
        self.prompts = prompts
        self.folder = make_traces_folder(args.traces)
        self.method = build_method(args)
        self.notes = unused_model_notes(args, self.method) + calibration_notes(self.method)
        self.model, self.others = load_models(args, self.method)
        self.notes += model_notes(self.method, self.model, self.others)
        if self.folder is not None:
            remember_models([self.model, *self.others.values()])
        assert self.model.tokenizer is not None
        chats = self.model.tokenizer.has_chat
        self.sources = [x.source(args.chat or (x.chat and chats), args.marks) for x in prompts]
        self.ids = [prompt_ids(self.model, x) for x in self.sources]
        self.notes += special_token_notes(args, self.model, self.sources)
        self.going: dict[int, Run] = {}  # by number of the prompt
        self.answers: dict[int, dict[str, Any]] = {}
        self.faults: list[str] = []
        self.keep: Callable[[dict[str, Any]], None] = lambda row: None
        # if the longest prompt fits, all do
        self._make_session(max(range(len(prompts)), key=lambda i: len(self.ids[i])))

    def run(self, halted: Callable[[], bool], over: Callable[[int], None]) -> SharedPassStats:
        """Decode all prompts.
        halted: asked before each pass whether to stop;  over: called with the number of texts that have just ended"""
        from decodescope.engine.session.batch.owner_sessions import decode_for_owners

        def ended(i: int, error: Exception | None) -> None:
            if error is not None:
                self.faults.append(
                    f"prompt {self.prompts[i].name}: {sentence(error) if isinstance(error, Refusal) else error}"
                )
            if i in self.going:
                self.answers[i] = self._output_row(i, self.going.pop(i))
                self.keep(self.answers[i])
            over(1)

        return decode_for_owners(
            range(len(self.prompts)), self._begin_session, self.args.texts, over=ended, halted=halted
        )

    def _begin_session(self, i: int) -> Session:
        """Create the session of a prompt and keep its records."""
        from decodescope.engine.session.run import LazyWriter, Run, Tee
        from decodescope.engine.trace import Trace

        session, trace = self._make_session(i), Trace()
        session.batch = len(self.prompts)
        session.sink = trace if self.folder is None else Tee(trace, LazyWriter(self._trace_path(i)))
        self.going[i] = Run(self.model, session, trace)
        return session

    def _make_session(self, i: int) -> Session:
        from decodescope.engine.session.batch.shared_passes import SharedExecutor
        from decodescope.engine.session.method import MethodError
        from decodescope.engine.session.session import Session

        try:
            return Session(
                self.model,
                self.method,
                self.ids[i],
                models=self.others,
                max_new_tokens=self.args.max_new_tokens,
                seed=self.args.seed + i,
                stop_tokens=[] if self.args.ignore_eos else None,
                stop_texts=self.args.stop,
                chat=self.sources[i].is_templated,
                turn=self.sources[i].turn,
                prompt_kind=self.sources[i].kind,
                level="summary" if self.folder is None else self.args.trace_level or "decisions",
                executor=SharedExecutor(self.model.decoder.device),
            )
        except MethodError as error:
            raise MethodError(f"prompt {self.prompts[i].name}: {error}") from None

    def _trace_path(self, i: int) -> Path:
        """The trace of a prompt, by its place among the prompts."""
        assert self.folder is not None
        return self.folder / f"{i + 1:0{len(str(len(self.prompts)))}}{ENDING}"

    def _output_row(self, i: int, done: Run) -> dict[str, Any]:
        """The record of a prompt, as a line of --out."""
        prompt, end = self.prompts[i], done.session.end
        kind = {"category": prompt.kind} if prompt.kind else {}
        said: dict[str, Any] = {"name": prompt.name, **kind, "prompt": prompt.text}
        said |= {"prompt_tokens": len(self.ids[i]), "text": done.text, "tokens": done.tokens}
        if not hasattr(done.trace, "header"):  # it ended while its prompt was read
            done.trace.write(done.session.header)
        known = summary_figures(done.summary)
        said |= {"end": None if end is None else end.reason, **{name: known[name] for name in TOLD}}
        said |= {"notes": done.notes, **({"violations": end.violations} if end and end.violations else {})}
        return said | (
            {"trace": str(self._trace_path(i))}
            if self.folder is not None and self._trace_path(i).exists()
            else {}
        )


def sharing_sentence(done: SharedPassStats) -> str:
    """How passes were shared, in a sentence."""
    passes = done.pass_counts.total()
    mean = sum(count * n for count, n in done.pass_counts.items()) / max(1, passes)
    return f"{passes} passes, {mean:.1f} sequences each, {max(done.pass_counts, default=0)} at most"
