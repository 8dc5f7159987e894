"""Checks of two models that write one text in turns: derive again which one wrote, and what it had to catch up on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..details.shapes import TallyDetail
from ..details.turns import LANES, ORIGINS, Size, kept_count, turn_outcome, writer_from_outcome
from ..records.events import Header, Prefill, Step
from .details import knobs_of, tallies_by_check

ROUNDING = 1e-9  # of a mean of doubles
TURN = {"token": "token", "lane": "text", "bits": "number", "mean": "number", "outcome": "text"}
TURN_VALUES = {"bar": "number", "turn": "number", "caught": "number"}
BLOCK = {"token": "token", "lane": "text", "sure": "number?", "loss": "number?", "choice": "token?"}
BLOCK_VALUES = {
    "kept": "number",
    "written": "number",
    "asked": "number",
    "gave_up": "number?",
    "caught": "number",
}


class SwitchValidator:
    """Follows the turns of two models through a run; `checked` counts the steps that were derived again."""

    def __init__(self, header: Header, prefill: Prefill | None):
        self._header = header
        self._whole = header.parent is None and prefill is not None
        self.checked = 0
        self._read = {size: _appended_tokens(prefill, lane) for size, lane in LANES.items()}
        self._next: Size | None = None
        self._stay, self._scores = 0, list[float]()

    def lose(self) -> None:
        """Another method goes on from here."""
        self._whole, self._next = False, None

    def problems(self, step: Step) -> Iterator[str]:
        """Problems of the turns of a step, a phrase each."""
        for check, columns, values, follow in (
            ("turns", TURN, TURN_VALUES, self._check_turn),
            ("blocks", BLOCK, BLOCK_VALUES, self._check_block),
        ):
            tallies, problems = tallies_by_check(self._header, step, check, columns, values)
            yield from problems
            for detail in tallies:
                yield from follow(
                    step, detail, knobs_of(self._header, step.step, self._header.details[detail.name])
                )
                self.checked += 1

    def _check_turn(self, step: Step, detail: TallyDetail, knobs: Mapping[str, Any]) -> Iterator[str]:
        """Check a token of one model: the mean of the last scores, the stay, the next writer, and what was read for it."""
        if len(detail) != 1 or detail.columns["lane"][0] not in LANES:
            yield "its turn is no token of one of the two models"
            return
        row, values = detail.row(0), detail.values
        wrote: Size = row["lane"]
        if self._next is not None and wrote != self._next:
            yield f"the {wrote} model wrote, and it was the turn of the {self._next} one"
        if step.emitted != [row["token"]]:
            yield f"it emitted {step.emitted}, and the token of its turn is {row['token']}"
        if step.origins != [ORIGINS[wrote]] * len(step.emitted):
            yield f"its origins are {step.origins}, and the {wrote} model wrote"
        yield from self._check_decision(row, values, knobs)
        unread = step.n - 1 - self._read[wrote]
        if self._whole and values["caught"] != unread:
            yield f"it caught up {values['caught']} rows, and {unread} of the text had not been read"
        yield from self._check_rows(step, {wrote: values["caught"] + 1})
        self._next = writer_from_outcome(row["outcome"])

    def _check_decision(
        self, row: Mapping[str, Any], values: Mapping[str, Any], knobs: Mapping[str, Any]
    ) -> Iterator[str]:
        """Check which model writes next, by the scores so far."""
        window, least, tau, shift = (
            knobs.get(x) for x in ("window", "min_turn_tokens", "tau", "large_tau_offset")
        )
        whole = all(type(x) is int and x > 0 for x in (window, least))
        if not whole or not all(type(x) in (int, float) for x in (tau, shift)):
            yield "the header's router lacks the knobs from which its turns follow"
            return
        assert isinstance(window, int) and isinstance(least, int) and tau is not None and shift is not None
        wrote: Size = row["lane"]
        mean = row["mean"]
        bar = values["bar"]
        stay = values["turn"]
        self._scores.append(row["bits"])
        due = float(tau) + (float(shift) if wrote == "large" else 0.0)
        if not math.isclose(bar, due, rel_tol=ROUNDING, abs_tol=ROUNDING):
            yield f"it held its mean against {bar:g}, and by its router {due:g} is due"
        if self._whole:
            last = self._scores[-window:]
            average = sum(last) / len(last)
            if not math.isclose(mean, average, rel_tol=ROUNDING, abs_tol=ROUNDING):
                yield f"its mean is {mean:.6g}, and the last {len(last)} scores give {average:.6g}"
        if (self._next is not None or self._whole) and stay != self._stay + 1:
            yield f"its model has made {stay} tokens in a row, and {self._stay + 1} are due"
        outcome = turn_outcome(wrote, mean, bar, stay, least)
        following = writer_from_outcome(row["outcome"])
        if row["outcome"] != outcome:
            words = f"the {following} model goes on, {row['outcome']!r}"
            yield f"{words}, and by mean, tau and stay {outcome!r} is due"
        self._stay = stay if following == wrote else 0
        if following != wrote and knobs.get("reset_window") is True:
            self._scores = []

    def _check_block(self, step: Step, detail: TallyDetail, knobs: Mapping[str, Any]) -> Iterator[str]:
        """A block of the small model, what the large one takes back, and its own token."""
        if wrong := _block_problem(detail):
            yield wrong
            return
        bar, least, most = (knobs.get(x) for x in ("rollback_threshold", "tau", "max_draft_tokens"))
        if (
            bar is None
            or least is None
            or most is None
            or not all(type(x) in (int, float) for x in (bar, least, most))
        ):
            yield "the header's router lacks the knobs from which its hand-overs follow"
            return
        values = detail.values
        n = values["written"]
        kept = values["kept"]
        gave_up = values["gave_up"]
        tokens, sure, loss, choice = (
            detail.columns[name][:n] for name in ("token", "sure", "loss", "choice")
        )
        if n > most:
            yield f"the small model wrote {n} tokens in a row, above {most}"
        if any(x < least for x in sure):
            yield "the small model wrote a token that it was not sure enough of"
        if gave_up is not None and gave_up >= least:
            yield "the small model gave up where it was sure enough"
        if kept != (due := kept_count(tokens, loss, choice, bar)):
            yield f"it keeps {kept} tokens of the block, and by its losses {due} stay"
        own = detail.columns["token"][n:]
        if own and kept < n and own[0] != choice[kept]:
            yield f"the large model's token is {own[0]}, and its choice there is {choice[kept]}"
        small = min(kept, len(step.emitted))
        if step.origins != ["draft"] * small + ["target"] * (len(step.emitted) - small):
            yield f"its origins are {step.origins}, and {small} tokens of the block stay"
        yield from self._check_rows(step, {"large": 1 + n, "small": values["caught"] + values["asked"]})
        self._next = "large" if kept < n else "small"

    def _check_rows(self, step: Step, due: Mapping[Size, int]) -> Iterator[str]:
        """Check that the passes of the models read as many rows as due."""
        for size, lane in LANES.items():
            self._read[size] += _appended_tokens(step, lane)
        for size, rows in due.items():
            seen = sum(x.tokens for x in step.passes if x.lane == LANES[size])
            if step.passes and seen != rows:
                yield f"the {size} model's passes read {seen} rows, and {rows} are due"


def _block_problem(detail: TallyDetail) -> str:
    """Why the rows of a block are none: those of the small model, then at most one of the large one; "": they are."""
    n, kept, asked = (detail.values[name] for name in ("written", "kept", "asked"))
    gave_up = detail.values["gave_up"]
    if not all(type(x) is int for x in (n, kept, asked)) or not 0 <= kept <= n <= len(detail) <= n + 1:
        return f"it has a block of {len(detail)} rows, of {n} tokens, {kept} of them kept"
    if detail.columns["lane"] != ["small"] * n + ["large"] * (len(detail) - n):
        return f"{n} tokens of the small model are due in its block, and one of the large one at most"
    if asked != n + (gave_up is not None):
        return f"the small model was asked about {asked} places, and its block of {n} tokens records others"
    numbers = [x for name in ("sure", "loss", "choice") for x in detail.columns[name][:n]]
    if any(x is None for x in numbers):
        return "its block has other numbers than it has tokens"
    here = [gave_up if kept == n else None]
    if len(detail) > n and (
        detail.columns["sure"][n:] != here
        or any(detail.columns[x][n] is not None for x in ("loss", "choice"))
    ):
        return "the large model's token has numbers of another place"
    return ""


def _appended_tokens(record: Prefill | Step | None, lane: str) -> int:
    """Tokens that the cache of a lane took up."""
    return 0 if record is None else sum(change.appended for change in record.cache if change.lane == lane)
