"""Prompt sets: two to four methods on a set of prompts, a recorded run each, compared with the first by prompt."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.engine.bench.questions.bootstrap import bootstrap_interval
from decodescope.engine.trace import open_trace
from decodescope.engine.trace.query.summary import summarise
from decodescope.engine.trace.records.parts import method_label
from decodescope.lab.decision.decision_csv import escape_formula

from ..composition import RunChoice, admit_numbers
from ..prompts import PromptEntry
from ..record_stream import RecordStream
from ..run_service import RunService
from .batch import BatchRow, SequentialRuns, make_row
from .comparison import LETTERS
from .measurements import Measurements, RecordFolder
from .repeats import SURE

MOST = 128  # prompts of a set
REMEMBERED = 8  # sets in memory
GONE = "This set is not here any more; its runs are in the Library."


@dataclass(frozen=True)
class SetCell:
    """One run of a set. rate: tokens per second of decoding;  tau: tokens per target pass;  accepted: drafted tokens that
    stayed, per drafting step, None: no step drafted;  same: leading tokens that equal the baseline's;  parted: whether
    others follow"""

    called: str
    tokens: int
    rate: float
    tau: float
    accepted: float | None
    same: int
    parted: bool


class PromptSet(SequentialRuns):
    """The runs of several choices on prompts. Raises RequestRefusal.
    On each prompt all choices have one seed. The first one rotates, so that other load on the machine affects all of them."""

    def __init__(
        self,
        play: RunService,
        choices: Sequence[RunChoice],
        prompts: Sequence[PromptEntry],
        kept: RecordFolder,
    ):
        for letter, choice in zip(LETTERS, choices, strict=False):
            admit_numbers(choice)
            if why := play.compose(choice).why:
                raise RequestRefusal(f"Method {letter}: {why}")
        self._lines = [
            [make_row(play, prompt, choice, i) for choice in choices] for i, prompt in enumerate(prompts)
        ]
        self._cells: dict[int, tuple[SetCell, list[int]]] = {}  # id of a row -> its figures and tokens
        turns = [line[i % len(line) :] + line[: i % len(line)] for i, line in enumerate(self._lines)]
        super().__init__(play, [row for line in turns for row in line], kept)

    def on_run_end(self, row: BatchRow) -> None:
        """Read the figures of a run that is over."""
        if row.channel is not None and not row.why and row.channel.count and not self.is_stopped:
            self._cells[id(row)] = _read_cell(row.channel)

    def record(self) -> dict[str, Any]:
        """The results so far, as plain data.

        methods: name of each;  lines: per prompt its name, kind, beginning, number of turns after the first, run ids, and per
        method a Cell or None, and the ratio of its tokens per second to the first method's
        kinds: as `summarise_lines`, of all prompts ("all") and of each kind;  asked: sentences on how the prompts were put to
        the model
        """
        # read first: rows that are over then have all their figures in what follows
        state = {
            "of": len(self.rows),
            "done": sum(x.over for x in self.rows),
            "over": self.over,
            "stopped": self.is_stopped,
        }
        lines = [self._line(line) for line in self._lines]
        count = len(self._lines[0]) if self._lines else 0
        names = [next((x["cells"][k]["called"] for x in lines if x["cells"][k]), "") for k in range(count)]
        kinds = list(dict.fromkeys(x["kind"] for x in lines))
        rows = [{"kind": "all", **summarise_lines(lines, count)}]
        if len(kinds) > 1:
            rows += [
                {"kind": kind or "none", **summarise_lines([x for x in lines if x["kind"] == kind], count)}
                for kind in kinds
            ]
        return {
            "id": self.id,
            **state,
            "sure": SURE,
            "asked": self.prompt_sentences,
            "methods": names,
            "kinds": rows,
            "lines": lines,
        }

    def _line(self, line: Sequence[BatchRow]) -> dict[str, Any]:
        known = [self._cells.get(id(row)) for row in line]
        base, cells = known[0], list[dict[str, Any] | None]()
        for one in known:
            if one is None:
                cells.append(None)
                continue
            same = 0 if base is None else _agreement(one[1], base[1])
            parted = base is not None and same < min(len(one[1]), len(base[1]))
            cells.append({**asdict(one[0]), "same": same, "parted": parted})
        prompt = line[0].prompt
        runs = [row.channel.run if row.channel is not None else "" for row in line]
        whys = [row.why for row in line if row.why]
        first = cells[0]
        ratios = [x["rate"] / first["rate"] if x and first and first["rate"] else None for x in cells]
        about = {
            "name": prompt.name,
            "kind": prompt.kind,
            "begins": prompt.beginning,
            "later": prompt.later,
            "runs": runs,
        }
        return {**about, "why": whys[0] if whys else "", "cells": cells, "ratios": ratios}


def summarise_lines(lines: Sequence[dict[str, Any]], count: int) -> dict[str, Any]:
    """Summary of each of `count` methods over prompts.
    `ratio` is the median of the paired ratios, and `accepted` the mean of the prompts' accepted lengths. Each has its
    `interval` over the prompts and their number n; None if no prompt has one. n: prompts."""
    ratios, accepted = [], []
    for k in range(count):
        paired = [x["ratios"][k] for x in lines if x["ratios"][k] is not None] if k else []
        kept = [
            x["cells"][k]["accepted"]
            for x in lines
            if x["cells"][k] and x["cells"][k]["accepted"] is not None
        ]
        ratios.append(
            {
                "median": statistics.median(paired),
                "interval": bootstrap_interval(paired, sure=SURE),
                "n": len(paired),
            }
            if paired
            else None
        )
        spread = bootstrap_interval(kept, sure=SURE, of=statistics.fmean) if kept else None
        accepted.append(
            {"mean": statistics.fmean(kept), "interval": spread, "n": len(kept)} if kept else None
        )
    return {"n": len(lines), "ratio": ratios, "accepted": accepted}


class PromptSets:
    """The sets of a lab."""

    def __init__(self, play: RunService):
        self._play = play
        self._works = Measurements[PromptSet](RecordFolder(play.folder / "sets"), REMEMBERED)

    def start(self, choices: Sequence[RunChoice], prompts: Sequence[PromptEntry]) -> PromptSet:
        """Begin a set. Raises RequestRefusal."""
        one = PromptSet(self._play, choices, prompts, self._works.kept)
        return self._works.add(one.id, one.begin())

    def record(self, name: str) -> dict[str, Any]:
        """The results of the set of that id so far. Raises RequestRefusal if it is not here."""
        return self._works.require(name, GONE)

    def stop(self, name: str) -> None:
        """End the set of that id, if it is active."""
        self._works.stop(name)


def as_csv(record: dict[str, Any]) -> str:
    """A line per prompt and method, with a head."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    figures = ("tokens", "rate", "tau", "accepted", "same")
    writer.writerow(["prompt", "kind", "begins", "method", "called", "run", "tokens", "tokens per second", "tokens per pass",
                     "accepted per drafting step", "tokens equal to A's", "times A's speed"])  # fmt: skip
    for line in record["lines"]:
        for k, cell in enumerate(line["cells"]):
            head = [escape_formula(line[x]) for x in ("name", "kind", "begins")]
            known = [cell[x] if cell else None for x in figures]
            name = escape_formula(cell["called"]) if cell else ""
            writer.writerow([*head, LETTERS[k], name, line["runs"][k], *known, line["ratios"][k]])
    return out.getvalue()


def _read_cell(channel: RecordStream) -> tuple[SetCell, list[int]]:
    with closing(open_trace(channel.path)) as trace:
        summary = summarise(trace)
        kept = [step.accepted for step in trace.steps if step.drafted]
        tokens = list(trace.emitted_ids)
        accepted = statistics.fmean(kept) if kept else None
        cell = SetCell(
            method_label(trace.header), len(tokens), summary.tokens_per_s, summary.tau, accepted, 0, False
        )
    return cell, tokens


def _agreement(a: Sequence[int], b: Sequence[int]) -> int:
    from decodescope.engine.bench.clock.contest import common_prefix_length

    return common_prefix_length(a, b)
