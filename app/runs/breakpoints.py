"""Breakpoints: the conditions at which a live run pauses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from decodescope.engine.trace.query.condition_grammar import ConditionError
from decodescope.engine.trace.query.conditions import Condition, Watch
from decodescope.engine.trace.records.events import Step

if TYPE_CHECKING:
    from .record_stream import RecordStream

MOST = 32  # conditions of one run


class Breakpoints:
    """The conditions of one channel. The worker calls `hit` after every step, when the channel already has it."""

    def __init__(self, channel: RecordStream, conditions: Sequence[Condition]):
        self.channel = channel
        self._waiting = list(conditions)  # until the header exists
        self._watches: list[tuple[Watch, int]] = []  # and the number of the next step for each

    def hit(self, step: Step) -> bool:
        """Whether the run pauses after `step`; the channel records the condition.
        A condition that cannot be evaluated for this run is reported in the same way, and then dropped."""
        wire, broke = self.channel.wire, None
        assert wire is not None, "a step comes after its header"
        while self._waiting:
            condition = self._waiting.pop(0)
            try:
                self._watches.append(
                    (condition.watch_run(wire.header), 0 if condition.running else step.step)
                )
            except ConditionError as error:
                broke = self._hit_record(condition, step, str(error))
        for k, (watch, due) in enumerate(self._watches):
            self._watches[k] = (watch, step.step + 1)
            try:
                if watch.condition.running:  # it was set during the run: it has not seen the steps before
                    for before in self.channel.steps(due, step.step):
                        watch.see(before, wire.pieces)
                hit = watch.see(step, wire.pieces)
            except ConditionError as error:
                broke = broke or self._hit_record(watch.condition, step, str(error))
            else:
                if hit.value is True and broke is None:
                    broke = self._hit_record(watch.condition, step, hit.why)
        if broke is not None:
            self.channel.broke = broke
        return broke is not None

    @staticmethod
    def _hit_record(condition: Condition, step: Step, why: str) -> dict[str, Any]:
        return {"condition": condition.text, "step": step.step, "why": why}
