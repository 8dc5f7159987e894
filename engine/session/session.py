"""Session: one sequence being decoded. It can be stepped, streamed, branched, and dropped at any step."""

from __future__ import annotations

import copy
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from decodescope.engine.core.arguments import (
    SEEDS,
    Along,
    check_choice,
    check_ids,
    check_reference_kind,
    check_texts,
    check_whole_number,
)
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.roles import TARGET, WHOLE
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.prompt_compression import SCORES, UnreadPrompt
from decodescope.engine.decoding.bases.state import State, StoppingCriteria
from decodescope.engine.decoding.record.activity import count_record, note_acting_samplers
from decodescope.engine.decoding.record.recorder import Recorder
from decodescope.engine.decoding.shared.thread_count import ThreadCount
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.vocabulary_map import TranslatedText
from decodescope.engine.kernels.choice import OneThreadForTorch, kernels_in_use, pass_threads
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.executor import EngineFault, Executor
from decodescope.engine.saved.file import SavedCache
from decodescope.engine.timing.measure import known_measurement
from decodescope.engine.trace.query.causes import causes_of
from decodescope.engine.trace.records.events import (
    LEVELS,
    Cut,
    End,
    EndReason,
    Header,
    Level,
    Pass,
    Prefill,
    PromptKind,
    Step,
)

from .compatibility import (
    check_saved_cache,
    common_vocabulary,
    pair_models,
    reference_decoder,
    reference_models,
    vocabulary_maps,
)
from .header import further_model_fields, head_fields, known_pass_times, method_fields, transform_reports
from .length import LengthLimit, length_limit
from .load import Model, ensure_loaded, models_by_role
from .method import Method, MethodError


class RecordSink(Protocol):
    """Where records go: a TraceWriter, or a Trace in memory."""

    def write(self, record: Any) -> Any:
        """Append one record; it is kept when this returns."""
        ...

    def seal(self, end: End) -> Any:
        """Add the last record and close."""
        ...


class SessionStopped(Exception):
    """The prompt was not read to its end, because the run was stopped meanwhile; the session has ended."""


class Session(State):
    """Decodes one prompt with one method.

    A session is a State because strategies and the recorder are below this package. State is the interface through which they
    read and change the run; they never see what starts, records or branches it.

    header: the trace's first record, ready before anything was computed;  end: the last one, once there is one
    length: how long prompt and text may become together, and the model that sets that
    sink:   gets every record before anybody sees it; None: nobody keeps them
    halted: asked between two chunks of the prompt whether to stop there, which ends the run; None: nobody may
    threads: who has chosen the number of threads, watches it and may change it between two steps; None: nobody does
    watched: called before each chunk of the prompt with the lane that reads, how many tokens it has read, and their total
    reading: while the prompt is read, the lane that reads, how many tokens it has read, and their total
    turn:   the user's turn or the messages that a chat template made the prompt from, as they were written; "": there is none
    prompt_kind: how the prompt was given, for the header
    reference: the reference that runs along: a full cache next to the target's (True), which shows what its policy and KV
               compression cost, or "model"
    asked:  a policy or prompt compression takes its share of so many tokens of `prompt`; a run wrote the others; None: of all
    saved:  a cache that was read from a file, for the tokens with which `prompt` begins: no pass reads them
    executor: what runs the passes of all its models; None: one of its own
    batch:  how many prompts are decoded together with its own, for the header; None: it runs by itself
    """

    sink: RecordSink | None = None
    halted: Callable[[], bool] | None = None
    threads: ThreadCount | None = None
    watched: Callable[[str, int, int], None] | None = None
    reading: tuple[str, int, int] | None = None
    end: End | None = None
    prefilled: Prefill | None = None
    batch: int | None = None
    steps = 0
    _header: Header | None = None
    _parent: dict[str, Any] | None = None
    _opened = False
    _started = 0.0

    def __init__(  # noqa: PLR0913
        self,
        model: Model | str | Path,
        method: Method | str | Mapping[str, str] | None,
        prompt: Sequence[int],
        *,
        models: Mapping[str, Model | str | Path] | None = None,
        max_new_tokens: int = 64,
        seed: int = 0,
        stop_tokens: Sequence[int] | None = None,
        stop_texts: Sequence[str] = (),
        chat: bool = False,
        turn: str = "",
        prompt_kind: PromptKind = "text",
        level: Level = "decisions",
        layers: Sequence[int] | None = None,
        asked: int | None = None,
        saved: SavedCache | None = None,
        reference: bool | str = False,
        executor: Executor | None = None,
    ):
        prompt, stop_texts = check_ids(prompt, "prompt"), check_texts(stop_texts, "stop_texts")
        layers = layers if layers is None else check_ids(layers, "layers")
        max_new_tokens = check_whole_number(max_new_tokens, "max_new_tokens")
        seed = check_whole_number(seed, "seed", 0, SEEDS)
        check_choice(level, "level", LEVELS)
        self.method = m = copy.deepcopy(Method.of(method))
        model = ensure_loaded(model)
        others = {role: ensure_loaded(x, role) for role, x in models_by_role(models).items()}
        self._models = pair_models(m, model, others) | reference_models(
            m, model, check_reference_kind(reference), others
        )
        m.mark_files()
        self._saved = check_saved_cache(m, model, saved, prompt)
        self._loaded = None if saved is None else saved.record()
        self._vocabularies = vocabulary_maps(m, self._models)
        vocab = common_vocabulary(self._same_tokens)
        self.recorder = Recorder(level, None if model.tokenizer is None else model.tokenizer.piece, layers)
        self.recorder.forms = m.details
        lanes = self._lanes(vocab, executor)
        stop = stop_condition(model, stop_tokens, stop_texts)
        self.run_id = secrets.token_hex(8)
        alphabet = model.alphabet(vocab, stop.tokens)
        self.length = self._length(prompt, max_new_tokens, vocab)
        super().__init__(
            tokens=prompt,
            prompt=len(prompt),
            max_new=max_new_tokens,
            limit=self.length.tokens,
            stop=stop,
            target=lanes.pop(TARGET),
            lanes=lanes,
            drafter=m.drafter,
            schedule=m.schedule,
            acceptance=m.acceptance,
            adaptive_depth=m.adaptive_depth,
            unmasking=m.unmasking,
            router=m.router,
            guidance=m.guidance,
            sampler=m.sampler,
            sampler_state=m.sampler.start(list(prompt), vocab, alphabet),
            chance=Chance(seed),
            encode=getattr(
                model.tokenizer, "encode_plain", None
            ),  # a stand-in for a tokenizer may only name ids
            piece=getattr(model.tokenizer, "piece", None),
            alphabet=alphabet,
        )
        self._attach_reference(bool(reference))
        self._prepare(model, len(prompt) if asked is None else asked)
        self._seed = seed
        self._stop_texts = stop_texts
        self._chat = chat
        self._user_turn, self._prompt_kind = turn, prompt_kind
        self._whole = list(prompt)  # the prompt that the trace records
        self._begin = len(prompt)  # where the trace begins behind it

    def _length(self, prompt: Sequence[int], max_new: int, vocab: int) -> LengthLimit:
        """How long text and prompt may become together; raises MethodError where the prompt leaves no room, or is none."""
        if not prompt:
            raise MethodError("the prompt has no tokens: give at least one.")
        if max_new < 1:
            raise MethodError(f"max_new_tokens = {max_new}: must be at least 1.")
        bad = next((x for x in prompt if not 0 <= x < vocab), None)
        if bad is not None:
            names = " and ".join(x.spec.name for x in self._same_tokens.values())
            raise MethodError(f"the prompt holds token id {bad}; the ids of {names} are 0 to {vocab - 1}.")
        return length_limit(self.method, self._same_tokens, len(prompt))

    def _lanes(self, vocab: int, executor: Executor | None) -> dict[str, Lane]:
        """Role -> the lane that its model reads in, on one executor; the models choose among the first `vocab` ids.

        Only the target's cache has the method's policy and KV compression.
        """
        target, m = self._models[TARGET], self.method
        executor = executor or Executor(target.decoder.device)
        own = self._vocabularies
        asked = (
            m.needs
            | m.drafter.pass_needs(target.spec, target.decoder.heads)
            | m.guidance.pass_needs(target.spec)
            | self.recorder.needs(target.spec.n_layers)
        )
        lanes = {
            role: Lane(
                role,
                x.decoder if role in own else x.decoder.limit_vocab(vocab),
                m.policy if role == TARGET else KeepAll(),
                kv_compression=m.kv_compression if role == TARGET else None,
                needs=asked if role == TARGET else m.lane_needs(role),
                executor=executor,
            )
            for role, x in self._models.items()
            if role == TARGET or role in m.decoding_lanes
        }
        for role, words in own.items():
            lanes[role].translated = TranslatedText(words)
        return lanes

    @property
    def _same_tokens(self) -> dict[str, Model]:
        """Role -> model, of those that read the target's ids."""
        return {role: x for role, x in self._models.items() if role not in self._vocabularies}

    def _attach_reference(self, reference: bool) -> None:
        """Watch the target's lane, set what its policy may use, and attach the reference if there is one.

        Raises MethodError.
        """
        self.recorder.attach(self.target)
        self.limited_by = self.length.limit
        if "adaptive_depth" in self.method.used_parts and self.adaptive_depth.reads:
            self.target.set_depth_rule(self.adaptive_depth)
        self.target.open = partial(_open_lane, self._models, self.target.decoder.vocab, self.target.executor)
        self.target.encode = self.encode
        if reference:
            self.target.keep_reference(*reference_decoder(self._same_tokens))
        context, decoder = self.method.prompt_compression, self.target.decoder
        if self.target.reference is not None and (context.extra_entries(decoder) or context.states(decoder)):
            raise MethodError(
                f"{context.name} adds entries that are not of the text, and a full cache lacks them: leave one out."
            )
        if self.target.reference is not None and self._saved is not None:
            raise MethodError(
                "the full cache of a reference has not read a prompt that was loaded: leave one of the two out."
            )

    def _prepare(self, model: Model, count: int) -> None:
        """Give the parts that look at the prompt its number of tokens.

        Raises MethodError if the entries next to the text would be further away than the policy allows for any entry.
        """
        policy, context = self.method.policy, self.method.prompt_compression
        policy.settled = None  # of another run
        policy.attach_heads(model.decoder.heads)
        piece = getattr(model.tokenizer, "piece", None)
        marks = getattr(model.tokenizer, "marks", frozenset[int]())
        policy.begin(model.spec, count, piece, marks)
        context.begin(count)
        sinks, aside = policy.sink_places, context.extra_entries(model.decoder)
        if sinks is not None and sinks.cap is not None and aside >= sinks.cap:
            raise MethodError(
                f"{context.name} puts {aside} entries before the text, and with {policy.name} nothing is further away than "
                f"{sinks.cap}: choose a window of at least {aside}, or leave one out."
            )

    @property
    def header(self) -> Header:
        """The trace's first record. Made once, after the parts have settled what they leave open ("auto")."""
        if self._header is None:
            target, chosen = self._models[TARGET], self.threads
            threads = pass_threads() if chosen is None else chosen.number
            self._header = Header(
                **method_fields(self.method, self.run_id, self._whole, self.recorder),
                model={
                    **target.spec.record(),
                    "fingerprint": target.fingerprint,
                    **head_fields(self.method, target),
                },
                seed=self._seed,
                lanes=further_model_fields(self._models, self._vocabularies),
                reports=transform_reports(self._models),
                loaded=self._loaded,
                batch=self.batch,
                dtype=str(target.decoder.dtype).removeprefix("torch."),
                device=str(target.decoder.device),
                threads=threads,
                kernels=kernels_in_use(target.decoder.dtype, target.decoder.device),
                torch=torch.__version__,
                max_new_tokens=self.max_new - (self._begin - self.prompt),
                stop_tokens=sorted(self.stop.tokens),
                stop_texts=self._stop_texts,
                chat=self._chat,
                turn=self._user_turn,
                prompt_kind=self._prompt_kind,
                parent=self._parent,
                machine=known_measurement(target.decoder.dtype, target.decoder.device, threads),
                pass_us=known_pass_times(self._models, threads),
                reference=self.target.reference is not None,
            )
            self._header.parts = self._describe_parts(self.method)
            self._header.exactness = causes_of(self._header).exactness
        return self._header

    @property
    def models(self) -> Mapping[str, Model]:
        """Role -> model of all that this run reads, the target first."""
        return self._models

    def _describe_parts(self, method: Method) -> dict[str, dict[str, Any]]:
        """What the parts of a method say of themselves in the header, for the target's cache and heads."""
        parts, target = method.describe_parts(), self._models[TARGET].decoder
        parts["kv_compression"] |= method.kv_compression.sizes(target.spec, torch.finfo(target.dtype).bits)
        if shapes := method.strategy.decoders(target.heads, target.spec):
            parts["strategy"]["decoders"] = {lane: spec.record() for lane, spec in shapes.items()}
        return parts

    @property
    def outline(self) -> Header:
        """The header of a run that has not begun: parts may still set values that they leave open, which changes it."""
        header, self._header = self.header, None
        self.recorder.forget()
        return header

    @property
    def reference_kind(self) -> Along:
        """The kind of reference that runs along, as `reference` asks for it."""
        return "model" if WHOLE in self._models else self.target.reference is not None

    @property
    def given_prompt(self) -> list[int]:
        """The prompt as it was given; the prompt compression may have left some of it out of `tokens` before it was read."""
        return self._whole

    @property
    def is_done(self) -> bool:
        """Whether the run has ended, for whatever reason."""
        return self.end is not None

    @torch.inference_mode()
    def start(self) -> Prefill:
        """Read the prompt up to the root; the first step does this if nobody did it before.

        The prompt ends with the root, so the policy first acts when that is committed. Raises Stopped if it was stopped between
        two chunks.
        """
        if self.prefilled is not None:
            return self.prefilled
        if self.threads is not None:
            self.threads.begin(self._models[TARGET].decoder)
        self._started = time.perf_counter()
        with _FaultGuard(self):
            cut, passes = self._shorten()
            if self._saved is not None:
                self.target.load_kv(self._saved.tokens[:-1], self._saved.kv)
                self._saved = None  # the lane has it
            self.method.strategy.prefill(self)
            passes += [one for lane in (self.target, *self.lanes.values()) for one in lane.take_passes()]
            reference_us = 0.0 if self.target.reference is None else self.target.reference.us
            prefill_us = (time.perf_counter() - self._started) * 1e6 - reference_us
            self.method.strategy.begin(self)
            self.target.policy_us = 0.0
            self._leave_out_reference()
            change = self.recorder.cache(self)
            self.prefilled = Prefill(len(self.target.tokens), passes, change, round(prefill_us, 1), cut)
            self.did.prompt, self.did.layers = len(self._whole), self.target.decoder.spec.n_layers
            count_record(self.did, self.prefilled, packed=self._packed_entries)
            self._write_record(self.prefilled)
        return self.prefilled

    def _shorten(self) -> tuple[Cut | None, list[Pass]]:
        """Let the method's prompt compression leave tokens out; return its choice, and the passes that it took."""
        context = self.method.prompt_compression
        decoder = self.target.decoder
        lane = self.target.open
        assert lane is not None
        reading = UnreadPrompt(
            list(self.tokens), lane, self.chunk_callback, decoder, *self._models[TARGET].words
        )
        cut = context.cut(reading)
        if cut is not None:
            cut.held_bytes = reading.held_bytes
            if not self.recorder.decisions or len(self.tokens) > SCORES:
                cut.scores = cut.worth = None
            self.tokens[:] = [self.tokens[i] for i in cut.kept.tolist()]
            self.prompt = self._begin = len(self.tokens)
            self.sampler_state = self.sampler.start(
                list(self.tokens), self.target.decoder.vocab, self.alphabet
            )
        self.target.vectors = context.vectors(reading)
        self.target.cache.set_extra_kv(context.states(decoder))
        return cut, reading.passes

    def chunk_callback(self, role: str) -> Callable[[int, int], None]:
        """Before each chunk: say how far the lane of `role` has read, and raise Stopped if the run is to end there."""

        def between(read: int, of: int) -> None:
            self.reading = (role, read, of)
            if self.watched is not None:
                self.watched(role, read, of)
            if self.halted is not None and self.halted():
                raise SessionStopped

        return between

    @property
    def _packed_entries(self) -> int:
        """Entries of the target's cache in fewer bits."""
        return self.target.kv_compression.packed_entries(self.target.cache)

    @torch.inference_mode()
    def step(self) -> Step:
        """One round of the strategy: decide, commit, record. Raises EngineFault when the run cannot go on, and
        ValueError when it has ended."""
        if self.end is not None:
            raise ValueError(f"the run has ended: {self.end.reason}.")
        if self.prefilled is None:
            self.start()
        if (threads := self.threads) is not None:
            threads.step()
        began = time.perf_counter()
        n = len(self.tokens)
        room = self.room
        with _FaultGuard(self):
            move = self.method.strategy.step(self)
            wall, t_us = (time.perf_counter() - began) * 1e6, (began - self._started) * 1e6
            self._leave_out_reference()
            record = self.recorder.step(self, move, self.steps, n, t_us, wall)
            record.environment = (
                None if threads is None else threads.observe_step(self._models[TARGET].decoder, record.passes)
            )
            note_acting_samplers(self.did, self, move)
            count_record(self.did, record, room, self._packed_entries)
            self._write_record(record)
        self.steps += 1
        if move.end is not None:
            self.finish(move.end, self.length.full_message if move.end == "context_full" else "")
        return record

    def stream(self) -> Iterator[Step]:
        """Steps until the end. Pausing is not asking for the next one; closing the iterator stops the run."""
        try:
            while self.end is None:
                yield self.step()
        except GeneratorExit:
            self.finish("stopped_by_user")
            raise

    def finish(self, reason: EndReason, message: str = "") -> End:
        """End the run and seal its trace. The first reason counts."""
        if self.end is None:
            wall = (time.perf_counter() - self._started) * 1e6 if self._started else 0.0
            self.end = End(reason, self.tokens[self._begin :], self.steps, message, wall_us=round(wall, 1))
            self.end.notes = self.method.idle_reasons(self.did)
            self.end.violations = self._find_violations(reason)
            if self.sink is not None:
                self._open(self.sink)
                self.sink.seal(self.end)
        return self.end

    def _find_violations(self, reason: EndReason) -> list[str] | None:
        """What the finished text breaks of what its sampler holds it to; None: nothing, or it has not come to its end."""
        if reason != "stop_token" or "sampler" not in self.method.used_parts:
            return None
        tokens = self.tokens[self.prompt :]
        return self.sampler.violations_at_end(tokens, self.stop.tokens, self.alphabet) or None

    def _open(self, sink: RecordSink) -> None:
        """Write the header, unless it is written."""
        if not self._opened:
            header = self.header  # an interrupt while it is made leaves the trace unopened
            self._opened = True
            sink.write(header)

    def _leave_out_reference(self) -> None:
        """Move the start of the run later by the untimed work of a full cache next to it since the last record."""
        if self.target.reference is not None:
            self._started += self.target.reference.us / 1e6

    def _write_record(self, record: Any) -> None:
        if self.sink is not None:
            self._open(self.sink)
            self.sink.write(record)

    def branch(self) -> Session:
        """An independent session with the same past and, if nobody touches it, the same future; weights are shared.

        Its trace is a new one: the prompt is the text so far, the header names this run and step.
        """
        shared: list[Any] = [self._models, self.target.executor, self.threads, *self._models.values()]
        shared += [x.tokenizer for x in self._models.values()]
        memo = {id(x): x for x in shared if x is not None}
        for own in (self.sink, self.halted, self.watched):  # the branch has its own, or none
            memo[id(own)] = None
        twin = copy.deepcopy(self, memo)
        twin.sink, twin.run_id = None, secrets.token_hex(8)
        twin._parent = {"run": self.run_id, "step": self.steps}
        twin._header = None
        twin._opened = False
        twin._begin = len(twin.tokens)
        twin.steps = 0
        twin._whole = list(twin.tokens)
        twin.recorder.forget()
        return twin


def _open_lane(models: Mapping[str, Model], vocab: int, executor: Executor, role: str, needs: Needs) -> Lane:
    """A new lane for the model of a role, which keeps all entries."""
    return Lane(role, models[role].decoder.limit_vocab(vocab), KeepAll(), needs=needs, executor=executor)


def stop_condition(model: Model, tokens: Sequence[int] | None, texts: Sequence[str]) -> StoppingCriteria:
    """Where a text of `model` ends: at these tokens (None: its own), and at these texts. Raises MethodError."""
    pieces = None if model.tokenizer is None else model.tokenizer.bytes_of
    if texts and pieces is None:
        raise MethodError(
            f"{model.spec.name} has no tokenizer, so a text to stop at cannot be found; give stop_tokens."
        )
    return StoppingCriteria(
        frozenset(model.stop_tokens if tokens is None else tokens), tuple(t.encode() for t in texts), pieces
    )


class _FaultGuard:
    """Turns a fault in a step into the run's end: the steps so far stay, the lanes are left without pending rows."""

    def __init__(self, session: Session):
        self.session, self.length = session, len(session.tokens)
        decoder = session.target.decoder
        self._threads = OneThreadForTorch(decoder.dtype, decoder.device)

    def __enter__(self) -> None:
        self._threads.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._threads.__exit__()
        if error is None:
            return
        s = self.session
        for lane in (s.target, *s.lanes.values()):
            lane.rollback()
        del s.tokens[self.length :]  # of a step that has no record nothing counts
        if isinstance(error, EngineFault):
            s.finish(error.reason, str(error))
        elif isinstance(error, KeyboardInterrupt | SessionStopped):
            s.finish("stopped_by_user")
        elif isinstance(error, Exception):
            from decodescope.engine.trace import StorageFull

            if isinstance(error, StorageFull):
                s.finish("storage_full", str(error))
            else:
                s.finish("internal_error", f"{type(error).__name__}: {error}")
