"""The books of two models that write one text by turns: whose turn it was, and what it had to catch up on, derived again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..details.looked import looks_problems
from ..details.switched import LANES, ORIGINS, Block, Size, Switch, goes_on, kept_of
from ..encoding.forks import method_at
from ..records.events import Header, Prefill, Step

ROUNDING = 1e-9  # of a mean of doubles


class SwitchValidator:
    """Follows the turns of two models through a run; `checked` counts the steps that were derived again."""

    def __init__(self, header: Header, prefill: Prefill | None):
        self._header, self._whole, self.checked = header, header.parent is None and prefill is not None, 0
        self._read = {size: _appended(prefill, lane) for size, lane in LANES.items()}
        self._next: Size | None = None
        self._stay, self._scores = 0, list[float]()

    def lose(self) -> None:
        """Another method goes on from here."""
        self._whole, self._next = False, None

    def problems(self, step: Step) -> Iterator[str]:
        """What is wrong with the switch of a step, a phrase each."""
        switch = step.switch
        if switch is None:
            return
        knobs = method_at(self._header, step.step).get("router") or {}
        if self._next is not None and switch.block is None and switch.wrote != self._next:
            yield f"the {switch.wrote} model wrote, and it was the turn of the {self._next} one"
        if switch.block is not None:
            yield from self._judged(step, switch, switch.block, knobs)
        else:
            yield from self._turn(step, switch, knobs)
        yield from self._rows(step, switch)
        yield from looks_problems(switch.looks, switch.looks_due)
        self._next = switch.next
        self.checked += 1

    def _turn(self, step: Step, switch: Switch, knobs: Mapping[str, Any]) -> Iterator[str]:
        """A token of one model: the mean of the last scores, the stay, and who goes on."""
        if step.origins != [ORIGINS[switch.wrote]] * len(step.emitted):
            yield f"its origins are {step.origins}, and the {switch.wrote} model wrote"
        window, least, tau, shift = (knobs.get(x) for x in ("window", "stay", "tau", "shift"))
        if (
            type(window) is not int
            or type(least) is not int
            or not all(type(x) in (int, float) for x in (tau, shift))
        ):
            if switch.mean is not None:
                yield "the header's router lacks the knobs from which its turns follow"
            return
        if switch.score is None or switch.mean is None:
            yield "its switch tells of no score"
            return
        self._scores.append(switch.score)
        begun = self._stay if self._next is not None else None
        due = float(tau) + (float(shift) if switch.wrote == "large" else 0.0)  # type: ignore[arg-type] # numbers, as asked above
        if not math.isclose(switch.tau, due, rel_tol=ROUNDING, abs_tol=ROUNDING):
            yield f"it held its mean against {switch.tau:g}, and by its router {due:g} is due"
        if self._whole:
            last = self._scores[-window:]
            mean = sum(last) / len(last)
            if not math.isclose(switch.mean, mean, rel_tol=ROUNDING, abs_tol=ROUNDING):
                yield f"its mean is {switch.mean:.6g}, and the last {len(last)} scores give {mean:.6g}"
        if begun is not None and switch.stay != begun + 1:
            yield f"its model has made {switch.stay} tokens in a row, and {begun + 1} are due"
        turn = goes_on(switch.wrote, switch.mean, switch.tau, switch.stay, least)
        if switch.next != turn:
            yield f"the {switch.next} model goes on, and by mean, tau and stay it is the turn of the {turn} one"
        self._stay = switch.stay if switch.next == switch.wrote else 0
        if switch.next != switch.wrote and knobs.get("reset") is True:
            self._scores = []

    def _judged(self, step: Step, switch: Switch, block: Block, knobs: Mapping[str, Any]) -> Iterator[str]:
        """A block of the small model, what the large one takes back, and its own token."""
        bar, least, most = (knobs.get(x) for x in ("rollback", "tau", "length"))
        if not all(type(x) in (int, float) for x in (bar, least, most)):
            yield "the header's router lacks the knobs from which its hand-overs follow"
            return
        if (block.bar, switch.tau) != (bar, least):
            yield f"its bars are {block.bar:g} and {switch.tau:g}, and its router has {bar:g} and {least:g}"
        if len(block.tokens) > most:  # type: ignore[operator] # a number, as asked above
            yield f"the small model wrote {len(block.tokens)} tokens in a row, above {most}"
        if any(x < switch.tau for x in block.sure[: len(block.tokens)]):
            yield "the small model wrote a token that it was not sure enough of"
        if len(block.sure) > len(block.tokens) and block.sure[-1] >= switch.tau:
            yield "the small model gave up where it was sure enough"
        if block.kept != (kept := kept_of(block.tokens, block.loss, block.choice, block.bar)):
            yield f"it keeps {block.kept} tokens of the block, and by its losses {kept} stay"
        due = block.tokens[: block.kept] + (block.choice[block.kept : block.kept + 1])
        if step.emitted[: len(due)] != due[: len(step.emitted)]:
            yield f"it emitted {step.emitted}, and its block gives {due}"
        if switch.next != ("large" if block.kept < len(block.tokens) else "small"):
            yield f"the {switch.next} model goes on, behind a block of which {block.kept} of {len(block.tokens)} stay"
        small = min(block.kept, len(step.emitted))
        if step.origins != ["draft"] * small + ["target"] * (len(step.emitted) - small):
            yield f"its origins are {step.origins}, and {small} tokens of the block stay"

    def _rows(self, step: Step, switch: Switch) -> Iterator[str]:
        """The rows that were caught up are those that the text has and the writer had not read; its passes read them."""
        read, n = self._read[switch.wrote], step.n
        if self._whole and switch.block is None and switch.caught != n - 1 - read:
            yield f"it caught up {switch.caught} rows, and {n - 1 - read} of the text had not been read"
        for size, lane in LANES.items():
            self._read[size] += _appended(step, lane)
        due = {switch.wrote: switch.caught + 1}
        if switch.block is not None:
            asked = len(switch.block.sure)
            due = {"large": 1 + len(switch.block.tokens), "small": switch.caught + asked}
        for size, rows in due.items():
            seen = sum(x.tokens for x in step.passes if x.lane == LANES[size])
            if step.passes and seen != rows:
                yield f"the {size} model's passes read {seen} rows, and {rows} are due"


def _appended(record: Prefill | Step | None, lane: str) -> int:
    """Tokens that the cache of a lane took up."""
    return 0 if record is None else sum(change.appended for change in record.cache if change.lane == lane)
