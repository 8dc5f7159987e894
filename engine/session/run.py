"""run: decode a prompt with a method, and keep the trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from torch.nn import Module

from decodescope.engine.core.arguments import (
    SEEDS,
    check_choice,
    check_ids,
    check_texts,
    check_whole_number,
    format_value,
)
from decodescope.engine.core.progress import Progress
from decodescope.engine.core.roles import TARGET
from decodescope.engine.model.checkpoint.prompt_notes import PYTHON, prompt_notes
from decodescope.engine.model.checkpoint.prompt_source import PromptSource, PromptValue, parse_ids
from decodescope.engine.model.forward.executor import Executor
from decodescope.engine.trace import PARTIAL, Trace, TraceWriter
from decodescope.engine.trace.query.summary import Summary, summarise
from decodescope.engine.trace.records.events import LEVELS, Header, Level, Step

from .compatibility import ModelInfo
from .load import Model, ensure_loaded, models_by_role
from .method import Method, MethodError
from .remembered import remember_models
from .session import Session


class Run:
    """A run, usually a finished one: its text, its tokens, its trace.

    notes: gives its notes, when somebody first asks
    """

    def __init__(self, model: Model, session: Session, trace: Trace, notes: Callable[[], list[str]] = list):
        self.session, self.trace = session, trace
        self._model, self._notes = model, notes

    @property
    def prompt(self) -> list[int]:
        """Token ids of the prompt, as it was given."""
        return self.session.given_prompt

    @property
    def tokens(self) -> list[int]:
        """Token ids of the text, without the prompt."""
        return self.session.tokens[self.session.prompt :]

    @property
    def text(self) -> str:
        """The text, without the prompt; token ids where the model has no tokenizer."""
        if self._model.tokenizer is None:
            return " ".join(map(str, self.tokens))
        return self._model.tokenizer.decode(self.tokens)

    @cached_property
    def prompt_notes(self) -> list[str]:
        """Sentences on special tokens in the prompt, and on how the chat template ends an answer."""
        return self._notes()

    @property
    def notes(self) -> list[str]:
        """Notes on the prompt and, once the run has ended, on what its text breaks, and on parts that did nothing."""
        return [*self.prompt_notes, *([] if self.session.end is None else self.session.end.remarks)]

    @property
    def summary(self) -> Summary:
        """The figures of the run."""
        return summarise(self.trace)


def encode_text_or_ids(model: ModelInfo, text_or_ids: str | Sequence[int], chat: bool = False) -> list[int]:
    """Token ids of a prompt: ids as they are, text through the tokenizer, or as a user's turn of a chat.

    Raises ParamError for anything else, MethodError for a text where there is no tokenizer.
    """
    if not isinstance(text_or_ids, str):
        return check_ids(text_or_ids, "the prompt")
    return encode_source(model, PromptSource(text_or_ids, chat=chat))


def encode_source(model: ModelInfo, source: PromptSource) -> list[int]:
    """Token ids of a prompt of any kind. Raises what its `encode` does, MethodError where that lacks a tokenizer."""
    if source.kind == "ids":
        return (
            parse_ids(source.text, source.where) if source.text else []
        )  # the session refuses an empty prompt
    if model.tokenizer is None:
        raise MethodError(f"{model.name} has no tokenizer: give the prompt as token ids.")
    return source.encode(model.tokenizer)


class Tee:
    """A sink that passes every record to several."""

    def __init__(self, *sinks: Any):
        self.sinks = sinks
        self._begun = 0  # sinks that took the header

    def write(self, record: Any) -> None:
        """Append to each sink, the file first: a record is stored before anyone sees it."""
        for i, sink in enumerate(self.sinks):
            sink.write(record)
            self._begun = max(self._begun, i + 1)

    def seal(self, end: Any) -> None:
        """Close each that has a header to close."""
        for sink in self.sinks[: self._begun]:
            sink.seal(end)


def run(  # noqa: PLR0913
    model: Model | str | Path | Module,
    method: Method | str | Mapping[str, str] | None = None,
    text_or_ids: PromptValue = "",
    *,
    models: Mapping[str, Model | str | Path] | None = None,
    draft: Model | str | Path | None = None,
    max_new_tokens: int = 64,
    seed: int = 0,
    chat: bool = False,
    marks: bool = False,
    ignore_eos: bool = False,
    stop: str | Sequence[str] = (),
    level: Level = "decisions",
    layers: Sequence[int] | None = None,
    reference: bool | str = False,
    tokenizer: Any = None,
    path: str | Path | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Run:
    """Decode `text_or_ids` with `method` (plain greedy decoding if None) and return text, tokens and trace.

    A model may be given as `load` takes it, also one of transformers with its `tokenizer`; a method as `Method.of` takes it:
    run("lab", "prompt_lookup", text). draft is short for models={"draft": draft}. chat puts the text as a user's turn, by the
    model's template; marks reads special tokens in a text that a template has made already; ignore_eos goes on after the
    model's end token; `stop` is one text or several.

    The prompt may also be messages, [{"role": "user", "content": "..."}], or a request of the OpenAI API: a dict with
    "messages", and perhaps "tools" and "documents". The model's template then makes the prompt.

    reference keeps a full cache next to the run's own, which shows what a policy costs. Or it runs the "model" that the target
    was made from along. With a `path` the trace is also written there while the run goes. What takes longer than a second shows
    its progress (`engine/core/progress.py`).

    Raises LoadError, MethodError or ParamError for what cannot be run. A failure on the way ends the run with a reason in its
    trace and raises EngineFault.
    """
    asked = RunOptions(
        models=models,
        draft=draft,
        max_new_tokens=max_new_tokens,
        seed=seed,
        chat=chat,
        marks=marks,
        ignore_eos=ignore_eos,
        stop=stop,
        level=level,
        layers=layers,
        reference=reference,
        tokenizer=tokenizer,
    )
    opened = prepare_run(model, method, text_or_ids, path=path, **asked)
    session = opened.session
    read_prompt(session)
    with Progress("decoding", session.remaining_tokens, "tokens") as progress:
        for step in session.stream():
            progress.add(len(step.emitted))
            if on_step is not None:
                on_step(step)
    return opened


class RunOptions(TypedDict, total=False):
    """Options of `run` and `start` in addition to model, method and prompt; `run` explains each."""

    models: Mapping[str, Model | str | Path] | None
    draft: Model | str | Path | None
    max_new_tokens: int
    seed: int
    chat: bool
    marks: bool
    ignore_eos: bool
    stop: str | Sequence[str]
    level: Level
    layers: Sequence[int] | None
    reference: bool | str
    tokenizer: Any


def prepare_run(
    model: Model | str | Path | Module,
    method: Method | str | Mapping[str, str] | None,
    text_or_ids: PromptValue,
    *,
    path: str | Path | None = None,
    executor: Executor | None = None,
    **asked: Unpack[RunOptions],
) -> Run:
    """Prepare the requested run without computing anything; its records go into its trace, and to `path`.

    Models are loaded after all else was checked. executor: a Seat, where the run goes with others. Raises what `run` does for
    what cannot be run.
    """
    draft, given = asked.get("draft"), models_by_role(asked.get("models"))
    given |= {} if draft is None else {"draft": draft}
    composed, stops = Method.of(method), check_texts(asked.get("stop", ()), "stop")
    if path is not None and not isinstance(path, str | Path):
        raise MethodError(
            f"path is {format_value(path)}: give the path of the file that the trace is written to."
        )
    source = PromptSource.of(text_or_ids, asked.get("chat", False), asked.get("marks", False))
    level = asked.get("level", "decisions")
    layers = asked.get("layers")
    count = check_whole_number(asked.get("max_new_tokens", 64), "max_new_tokens")
    seed = check_whole_number(asked.get("seed", 0), "seed", 0, SEEDS)
    check_choice(level, "level", LEVELS)
    model = ensure_loaded(model, tokenizer=asked.get("tokenizer"))
    models = {role: ensure_loaded(x, role) for role, x in given.items()}
    session = Session(
        model,
        composed,
        encode_source(model, source),
        models=models,
        max_new_tokens=count,
        seed=seed,
        stop_tokens=[] if asked.get("ignore_eos") else None,
        stop_texts=stops,
        chat=source.is_templated,
        turn=source.turn,
        prompt_kind=source.kind,
        level=level,
        layers=layers,
        reference=asked.get("reference", False),
        executor=executor,
    )
    trace = Trace()
    session.sink = trace if path is None else Tee(LazyWriter(path), trace)
    if path is not None:
        remember_models([model, *models.values()])
    ends = None if asked.get("ignore_eos") else model.stop_tokens
    return Run(model, session, trace, partial(prompt_notes, model.tokenizer, [source], ends, stops, PYTHON))


def read_prompt(session: Session) -> None:
    """Read the prompt, and show how far that is. Raises what `session.start` does."""
    with Progress("reading the prompt", unit="tokens") as progress:

        def watched(role: str, read: int, of: int) -> None:
            who = "" if role == TARGET else f" ({role})"
            progress.at(read, of, f"reading the prompt{who}")

        session.watched = watched
        try:
            session.start()
        finally:
            session.watched = None


class LazyWriter:
    """A TraceWriter that is opened by the header, the first record; it is made when the prompt has been read."""

    def __init__(self, path: str | Path, overwrite: bool = False):
        self.path, self.overwrite = path, overwrite
        self.writer: TraceWriter | None = None

    def announce(self, outline: Header) -> None:
        """Write PATH.partial with only a header, for a run that waits.

        If its program ends meanwhile, that file remains.
        """
        TraceWriter(self.path, outline, overwrite=self.overwrite).close()
        self.overwrite = True

    def withdraw(self) -> None:
        """Remove the announced file: the run will not come."""
        Path(f"{self.path}{PARTIAL}").unlink(missing_ok=True)

    def write(self, record: Any) -> None:
        """Open the file with the header, append what follows."""
        if self.writer is None:
            self.writer = TraceWriter(self.path, record, overwrite=self.overwrite)
        else:
            self.writer.write(record)

    def seal(self, end: Any) -> None:
        """Close the file, if a header came."""
        if self.writer is not None:
            self.writer.seal(end)
