"""The books of a simulated clock of layers: ticks and branches of a pipeline, derived again from passes and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .events import Header, Pass, Step
from .forks import method_at
from .notes import said as told_by
from .parts import said
from .passed import which_of
from .phases import decides

NAMES = ("exit", "head", "ticks", "clock", "plain", "work")


class TickBooks:
    """Follows the notes of a strategy that says that it tells `ticks`; `checked` counts the steps that were derived again.

    In a tick each token in flight runs one of M layers. When the token that is read has run d of them, branches begin with
    guesses of the next, and run the first M - d while it runs its last; the branch that was right goes on, so that its token
    has M - d layers behind it. T tokens of which such a branch had begun a share r take T (M - r (M - d)) ticks.
    """

    def __init__(self, header: Header):
        self._header, self._layers = header, int(header.model.get("n_layers", 1))
        self._ticks, self.checked = said(header, "strategy").get("ticks") is True, 0
        self._due: int | None = 0 if header.parent is None else None  # layers that the next root has behind it
        self._counted = header.parent is None  # whether all tokens since the clock began were seen
        self._tokens = self._ahead = 0  # tokens read, and layers that their branches had run before

    def lose(self) -> None:
        """Another method goes on from here."""
        self._due, self._counted = None, False

    def problems(self, step: Step) -> Iterator[str]:
        """What is wrong with the ticks of a step, a phrase each."""
        notes = told_by(step, method_at(self._header, step.step)).get("strategy") if self._ticks else None
        if notes is None:
            return self.lose()
        if step.draft is None or any(type(notes.get(name)) is not int for name in NAMES):
            yield f"its strategy tells of ticks, and not of {', '.join(NAMES)} in whole numbers"
            return self.lose()
        yield from self._layered(step, notes)
        yield from self._clocked(notes, len(step.draft.tokens))
        self._due = self._layers - int(notes["exit"]) if step.path else 0
        self.checked += 1

    def _layered(self, step: Step, notes: Mapping[str, Any]) -> Iterator[str]:
        """The passes ran what the notes say: the root from where its branch stood, and each branch its first layers."""
        layers, d, head = self._layers, notes["exit"], notes["head"]
        if not 0 < layers - d <= d:
            yield f"its exit stands behind layer {d} of {layers}, where no branch could end with the token that it follows"
        if self._due is not None and head != self._due:
            yield f"its token is said to be {head} layers ahead, and by the step before it is {self._due}"
        own = [x for x in step.passes if decides(x)]
        if [_from(x, layers) for x in own] not in ([head], [0] if any(x.instrumented for x in own) else [head]):
            yield f"its token was {head} layers ahead, and its passes did not run the others"
        guessed = [(x.tokens, x.attn, x.ffn) for x in step.passes if x.lane == "target" and x.phase == "draft"]
        k = 0 if step.draft is None else len(step.draft.tokens)
        if guessed != [(k, layers - d, layers - d)]:
            yield f"{k} branches run the first {layers - d} layers, and its passes ran {guessed}"

    def _clocked(self, notes: Mapping[str, Any], branches: int) -> Iterator[str]:
        """The clock by the closed form, and who ran when."""
        layers, d, head, clock = self._layers, notes["exit"], notes["head"], notes["clock"]
        ticks, beyond = layers - head, layers - d
        self._tokens, self._ahead = self._tokens + 1, self._ahead + head
        if notes["ticks"] != ticks:
            yield f"it took {notes['ticks']} ticks, and {ticks} of {layers} layers were left to run"
        if self._counted and (clock, notes["plain"]) != (due := (layers * self._tokens - self._ahead, layers * self._tokens)):
            yield f"its clocks stand at {clock} and {notes['plain']}, and {self._tokens} tokens give {due[0]} and {due[1]}"
        if notes["work"] != ticks + branches * beyond:
            yield f"it is said to have run {notes['work']} layers, and {ticks} + {branches} x {beyond} are due"
        for name, first in (("root", clock - ticks), ("branches", clock - beyond)):
            if notes.get(name) != [first, clock]:
                yield f"{name} ran in the ticks {notes.get(name)}, and [{first}, {clock}] are due"


def _from(one: Pass, layers: int) -> int | None:
    """The layer from which a pass ran all; None: it ran others."""
    ran = which_of(one.attn, range(layers))
    first = min(ran, default=layers)
    return first if ran == which_of(one.ffn, range(layers)) == {*range(first, layers)} else None
