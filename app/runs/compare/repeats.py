"""Repeats: recorded runs decoded several more times, alternately and unrecorded, so that a speed ratio has an interval."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from decodescope.app.basis.refusal import RequestRefusal, explain_error
from decodescope.engine.bench.questions.bootstrap import bootstrap_interval
from decodescope.engine.core.roles import TARGET
from decodescope.lab.views.contrast import have_equal_prompts

from ..recipe import choice_from_header
from ..record_stream import RecordStream
from ..run_service import MOST_NEW, RunService, without_target
from .measurements import Measurements, RecordFolder

if TYPE_CHECKING:
    from decodescope.engine.bench.clock.contest import Contestant, DecodeResult
    from decodescope.engine.session.load import Model
    from decodescope.engine.session.runner import RunnerJob
    from decodescope.engine.session.session import Session
    from decodescope.engine.trace.records.events import End, EndReason, Header

FEWEST, MOST = 3, 40  # rounds
SURE = 0.95  # of the intervals
WARM = 8  # warm-up tokens of each contestant before the first round
REMEMBERED = 16  # repeats in memory


@dataclass(frozen=True)
class RoundResult:
    """The result of a round, for the worker: when it ended, counted from the beginning of the first round."""

    step: int
    t_us: float


class _StopRounds(Exception):
    """The rounds must end."""


class RepeatMeasurement:
    """Work for the runner's worker, which steps it like a session.
    A step is a round. Every run is decoded once as its header says, with its own seed, and only the time of its steps is kept.

    play: has the models, which are loaded if necessary;  channels: the runs, of one prompt;  times: rounds
    kept: where the record is stored when they are over. Raises RequestRefusal for runs that cannot be repeated.
    """

    def __init__(
        self, play: RunService, channels: Sequence[RecordStream], times: int, kept: RecordFolder | None = None
    ):
        if not FEWEST <= times <= MOST:
            raise RequestRefusal(f"Repeats = {times}: must lie in [{FEWEST}, {MOST}].")
        headers = [_finished_header(channel) for channel in channels]
        if not all(have_equal_prompts(headers[0], header) for header in headers[1:]):
            raise RequestRefusal(
                "The prompts of these runs differ, so their times cannot be compared: run them on one prompt first."
            )
        self.run_id = secrets.token_hex(8)
        self.times = times
        self.rounds = 0
        self.runs = [channel.run for channel in channels]
        self.end: End | None = None
        self.stopping = False
        self.job: RunnerJob | None = None
        self._kept = kept
        self._prompt: list[int] = headers[0].prompt.tolist()
        self._first = [_emitted_tokens(channel) for channel in channels]
        self.halted: Callable[[], bool] | None = None
        self._play, self._headers = play, dict(zip("ABCD", headers, strict=False))
        self._warm: list[Contestant] = []
        self._field: list[Contestant] = []
        names = {letter: _model_keys(play, header, letter) for letter, header in self._headers.items()}
        if all(play.models.acquire(one) is not None for one in names.values()):  # refusals are raised at once
            self._make_contestants()
        self._began = 0.0
        self._rates: list[list[float]] = [[] for _ in channels]  # tokens per second, by run and round
        self._same = [True] * len(channels)  # whether every call wrote the text of the recorded run

    def _make_contestants(self) -> None:
        """Make all contestants; models are loaded if necessary. Raises RequestRefusal."""
        for letter, header in self._headers.items():
            models = _load_models(self._play, header, letter)
            for side, one in zip(
                (self._warm, self._field), _build_contestants(self._play, header, letter, models), strict=True
            ):
                one.write = self._make_stoppable(one.write)
                side.append(one)
            self._device = models[TARGET].decoder.device

    def _make_stoppable(
        self, write: Callable[[list[int]], DecodeResult]
    ) -> Callable[[list[int]], DecodeResult]:
        def call(prompt: list[int]) -> DecodeResult:
            if self.stopping:
                raise _StopRounds
            return write(prompt)

        return call

    def step(self) -> RoundResult:
        """One round. Before the first one, missing models are loaded and everyone writes a few tokens.
        Raises Stopped if it cannot begin."""
        from decodescope.engine.bench.clock.contest import run_round
        from decodescope.engine.session.session import SessionStopped

        if not self._field:
            try:
                self._make_contestants()
            except RequestRefusal as error:
                self.finish("bad_input", str(error))
                raise SessionStopped from None
        self._began = self._began or time.perf_counter()
        try:
            for one in self._warm if not self.rounds else []:
                one.write(self._prompt)
            run_round(self._field, "", [self._prompt] * len(self._field), self.rounds, self._device)
        except _StopRounds:
            self.finish("stopped_by_user")
            return RoundResult(self.rounds, 0.0)
        for k, one in enumerate(self._field):
            call = one.calls.pop("")[-1]  # its records are no longer needed
            self._rates[k].append(len(call.tokens) / call.decode_s if call.decode_s else 0.0)
            # which may have been stopped before
            self._same[k] &= call.tokens[: len(self._first[k])] == self._first[k]
        self.rounds += 1
        if self.rounds == self.times:
            self.finish("max_new_tokens")
        return RoundResult(self.rounds - 1, (time.perf_counter() - self._began) * 1e6)

    def finish(self, reason: EndReason, message: str = "") -> End:
        """End the rounds; complete ones count."""
        from decodescope.engine.trace.records.events import End

        if self.end is None:
            self.end = End(reason, [], self.rounds, message)
            if self._kept is not None and self.rounds:
                self._kept.write(self.run_id, {**self.record(), "status": "done"})
        return self.end

    def branch(self) -> Session:
        """Raises RuntimeError: rounds are not a run."""
        raise RuntimeError("repeats have no branches.")

    def begin(self, play: RunService) -> RepeatMeasurement:
        """Queue the rounds after the waiting runs."""
        self.job = play.queue_work(self)
        return self

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.end is not None or (self.job is not None and self.job.is_over)

    def stop(self) -> None:
        """End after the present call."""
        self.stopping = True
        if self.job is not None:
            self.job.cancel()

    def record(self) -> dict[str, Any]:
        """The results so far, as plain data.

        runs: per run the median tokens per second of its steps, with an interval, and whether every call wrote the text of the
        recorded run;  ratios: run -> run -> how many times as fast as the first the second was, round by round: the median over
        the rounds, its interval, and n
        """

        def middle(values: list[float]) -> dict[str, Any]:
            return {
                "median": statistics.median(values),
                "interval": bootstrap_interval(values, sure=SURE),
                "n": len(values),
            }

        n, job = self.rounds, self.job
        each = [
            (run, rates[:n], same)
            for run, rates, same in zip(self.runs, self._rates, self._same, strict=True)
        ]
        whole = n >= 2 and all(all(rates) for _, rates, _ in each)
        record: dict[str, Any] = {"id": self.run_id, "rounds": n, "times": self.times, "sure": SURE}
        record["over"] = self.over
        record["status"] = "queued" if job is None else job.status
        record["message"] = "" if job is None else job.message
        record["phase"] = "" if self._field else self._play.models.phase  # while models are loaded
        record["runs"] = [
            {"run": run, "same_text": same, **(middle(rates) if whole else {})} for run, rates, same in each
        ]
        record["ratios"] = {}
        for base, slow, _ in each if whole else []:
            times = {run: [x / y for x, y in zip(quick, slow, strict=True)] for run, quick, _ in each}
            record["ratios"][base] = {run: middle(ratio) for run, ratio in times.items() if run != base}
        return record


class Repeats:
    """The repeats of a lab."""

    def __init__(self, play: RunService):
        self._play = play
        self._works = Measurements[RepeatMeasurement](RecordFolder(play.folder / "repeats"), REMEMBERED)

    def start(self, channels: Sequence[RecordStream], times: int) -> RepeatMeasurement:
        """Queue repeats of these runs. Raises RequestRefusal."""
        one = RepeatMeasurement(self._play, channels, times, self._works.kept)
        return self._works.add(one.run_id, one.begin(self._play))

    def record(self, name: str) -> dict[str, Any] | None:
        """The results of the repeats of that id so far; None if they are not here."""
        return self._works.record(name)

    def stop(self, name: str) -> None:
        """End the repeats of that id, if they are active."""
        self._works.stop(name)


def _emitted_tokens(channel: RecordStream) -> list[int]:
    return [token for step in channel.steps(0, channel.count) for token in step.emitted]


def _finished_header(channel: RecordStream) -> Header:
    """The header of a finished run. Raises RequestRefusal."""
    if channel.is_active or channel.wire is None:
        raise RequestRefusal("One of these runs is still going: repeat them when all are over.")
    if channel.reading:
        raise RequestRefusal(
            "The steps of one of these runs are still being read: repeat them when all are there."
        )
    header = channel.wire.header
    if not 1 <= header.max_new_tokens <= MOST_NEW:
        raise RequestRefusal(
            f"A run asked for {header.max_new_tokens} new tokens; runs of 1 to {MOST_NEW} are repeated here."
        )
    if header.stop_texts:
        raise RequestRefusal(
            "A run stopped at a text that it was given, and the page cannot repeat that: use decodescope run."
        )
    return header


def _model_keys(play: RunService, header: Header, name: str) -> dict[str, str]:
    """Role -> key of the models of a run, for which there is room. Raises RequestRefusal."""
    try:
        names = play.find_recorded_models(header)
        play.models.admit(names)
    except ValueError as error:
        raise RequestRefusal(f"Run {name} cannot be repeated: {explain_error(error)}") from None
    return names


def _load_models(play: RunService, header: Header, name: str) -> dict[str, Model]:
    """Role -> model of a run, with exactly the weights that it had. Raises RequestRefusal."""
    try:
        models = play.models.ensure_loaded(_model_keys(play, header, name))
    except RequestRefusal:
        raise
    except ValueError as error:
        raise RequestRefusal(f"Run {name} cannot be repeated: {explain_error(error)}") from None
    for role, recorded_as in {TARGET: header.model, **header.lanes}.items():
        if models[role].fingerprint != recorded_as.get("fingerprint"):
            raise RequestRefusal(
                f"Run {name} was made with the {role} model {str(recorded_as.get('name', '?'))[:80]}, and the one of that name "
                "here has other weights: run the methods on one prompt again."
            )
    return models


def _build_contestants(
    play: RunService, header: Header, name: str, models: dict[str, Model]
) -> tuple[Contestant, Contestant]:
    """The contestants of a run: for the warm-up, and for the rounds. Raises RequestRefusal."""
    from decodescope.engine.bench.clock.contest import engine_contestant
    from decodescope.engine.session.session import Session

    try:
        method = play.method(choice_from_header(header))
        target = models[TARGET]
        others = without_target(models)
        prompt, names = header.prompt.tolist(), play.find_recorded_models(header)
        session = Session(
            target, method, prompt, models=others, max_new_tokens=header.max_new_tokens, seed=header.seed
        )
        play.check_memory(session, names)
        given: dict[str, Any] = {"models": others, "stop": header.stop_tokens, "seed": header.seed}
        return engine_contestant(name, target, method, WARM, **given), engine_contestant(
            name, target, method, header.max_new_tokens, **given
        )
    except RequestRefusal:
        raise
    except ValueError as error:
        raise RequestRefusal(f"Run {name} cannot be repeated: {explain_error(error)}") from None
