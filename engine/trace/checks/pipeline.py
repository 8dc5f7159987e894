"""The books of a simulated clock of layers: ticks and guesses of a pipeline, derived again from passes and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..encoding.forks import method_at
from ..records.events import Header, Pass, Step
from ..records.parts import part_description
from ..records.passes import resolve_layers
from ..records.phases import is_deciding_pass
from .notes import collect_notes as told_by

Runs = list[tuple[int, int]]  # for each token but the first, its first layer and the layer after its last
NAMES = ("exit", "head", "ticks", "clock", "plain", "work")


class TickValidator:
    """Follows the notes of a strategy that records `ticks`; `checked` counts the steps that were derived again.

    In a tick each token in flight runs one of M layers. When the token that is read has run d of them, guesses of the next
    begin. "branches" run the first M - d while it runs its last. In a "chain" there is one guess; when it has run d layers, it
    has a guess begin in its turn, and so on. The right guess goes on, so that its token has M - d layers done. T tokens, with
    a share r of them begun, take T (M - r (M - d)) ticks.
    """

    def __init__(self, header: Header):
        self._header, self._layers = header, int(header.model.get("n_layers", 1))
        self._ticks, self.checked = part_description(header, "strategy").get("ticks"), 0
        # layers that the next root has run already
        self._due: int | None = 0 if header.parent is None else None
        self._counted = header.parent is None  # True if all tokens since the clock began were seen
        self._tokens = self._ahead = 0  # tokens read, and layers that they had run before

    def lose(self) -> None:
        """Another method goes on from here."""
        self._due, self._counted = None, False

    def problems(self, step: Step) -> Iterator[str]:
        """Problems of the ticks of a step, a phrase each."""
        notes = (
            told_by(step, method_at(self._header, step.step)).get("strategy")
            if self._ticks in AHEAD
            else None
        )
        if notes is None:
            return self.lose()
        if step.draft is None or any(type(notes.get(name)) is not int for name in NAMES):
            yield f"its strategy records ticks, and not {', '.join(NAMES)} in whole numbers"
            return self.lose()
        layers = self._layers
        d = notes["exit"]
        head = notes["head"]
        beyond = layers - d
        if not 0 < beyond < layers or (self._ticks == "branches" and beyond > d):
            yield f"its exit is behind layer {d} of {layers}, where no guess could end with the token that it follows"
            return self.lose()
        if self._due is not None and head != self._due:
            yield f"its token is said to be {head} layers ahead, and by the step before it is {self._due}"
        beside = AHEAD[self._ticks](layers, d, head, len(step.draft.tokens))
        yield from self._check_layers(step, head, beside, d)
        yield from self._check_clock(notes, beside, bool(step.path))
        self._due = beyond if step.path else 0
        self.checked += 1

    def _check_layers(self, step: Step, head: int, beside: Runs, d: int) -> Iterator[str]:
        """Check that the passes ran what the notes say: the root from its layer on, and each of the others its own layers."""
        layers, own = self._layers, [x for x in step.passes if is_deciding_pass(x)]
        if [_first_layer(x, layers) for x in own] not in (
            [head],
            [0] if any(x.instrumented for x in own) else [head],
        ):
            yield f"its token was {head} layers ahead, and its passes did not run the others"
        ran = [
            (x.tokens, _layers_run(x, layers))
            for x in step.passes
            if x.lane == "target" and x.phase == "draft"
        ]
        cut = [
            (a, b)
            for run in beside
            for a, b in (((run[0], d), (d, run[1])) if run[0] < d < run[1] else (run,))
        ]
        due = [(1, [*range(a, b)]) for a, b in cut]
        if self._ticks == "branches":
            due = [(len(beside), [*range(layers - d)])]
        if ran != due:
            yield f"guesses run the layers {_format_runs(due)} in its passes, and these ran {_format_runs(ran)}"

    def _check_clock(self, notes: Mapping[str, Any], beside: Runs, right: bool) -> Iterator[str]:
        """The clock by the closed form, and who ran when."""
        layers = self._layers
        head = notes["head"]
        clock = notes["clock"]
        ticks, others = layers - head, [b - a for a, b in beside]
        self._tokens, self._ahead = self._tokens + 1, self._ahead + head
        if notes["ticks"] != ticks:
            yield f"it took {notes['ticks']} ticks, and {ticks} of {layers} layers were left to run"
        if self._counted and (clock, notes["plain"]) != (
            due := (layers * self._tokens - self._ahead, layers * self._tokens)
        ):
            yield f"its clocks are at {clock} and {notes['plain']}, and {self._tokens} tokens give {due[0]} and {due[1]}"
        if notes["work"] != ticks + sum(others):
            yield f"it is said to have run {notes['work']} layers, and {ticks} and {sum(others)} of guesses are due"
        bars = [bar[1:3] for bar in notes.get("flight") or ()]
        if bars != (spans := [[clock - n, clock] for n in (ticks, *others)]):
            yield f"its tokens ran in the ticks {bars}, and {spans} are due"
        if any(bar[4] == "goes on" for bar in notes.get("flight") or ()) is not (right and bool(others)):
            yield "what goes on in its pipeline is not what its verdict took"


def _branch_runs(layers: int, d: int, head: int, guesses: int) -> Runs:
    """The first layers of each, from 0 to as many as the token had left at its exit."""
    return [(0, layers - d)] * guesses


def _chain_runs(layers: int, d: int, head: int, guesses: int) -> Runs:
    """The layer range of each guess: it ends d layers below the one before it, and starts where the next one ends (`head` 0: at
    0)."""
    return [(max(0, end - d) if head else 0, end) for end in range(layers - d, 0, -d)]


AHEAD: dict[Any, Callable[[int, int, int, int], Runs]] = {"branches": _branch_runs, "chain": _chain_runs}


def _format_runs(runs: list[tuple[int, list[int]]]) -> str:
    return ", ".join(f"{n} x {x[0]} to {x[-1]}" if x else f"{n} x none" for n, x in runs) or "none"


def _layers_run(one: Pass, layers: int) -> list[int]:
    """The layers with both sub-layers run by a pass."""
    return sorted(resolve_layers(one.attn, range(layers)) & resolve_layers(one.ffn, range(layers)))


def _first_layer(one: Pass, layers: int) -> int | None:
    """The layer from which a pass ran all; None: it ran others."""
    ran = resolve_layers(one.attn, range(layers))
    first = min(ran, default=layers)
    return first if ran == resolve_layers(one.ffn, range(layers)) == {*range(first, layers)} else None
