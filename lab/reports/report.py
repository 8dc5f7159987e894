"""Report: where drafts are rejected, over several runs of one method, counted from their traces."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from decodescope.engine.core.activity import common_idle_notes, merge_violations
from decodescope.engine.core.exactness import Exactness
from decodescope.engine.core.roles import WHOLE
from decodescope.engine.trace import Header, Trace, TraceError
from decodescope.engine.trace.query.causes import causes_shown
from decodescope.engine.trace.query.draft_findings import DraftFinding
from decodescope.engine.trace.query.prompt_reading import READINGS, PromptReading, prompt_reading
from decodescope.engine.trace.records.parts import part_description

from .advice import Advice, advice, drafting_payoff
from .deployed_clock import Deployment
from .rejections import Rejection
from .speed_curve import SpeedCurves, SpeedPoint
from .step_clock import DepthCounts
from .step_index import StepIndex
from .tally import AcceptanceCount, DepthCount, DraftTally, ProbabilityBin, RunCounts
from .trace_signatures import diagnose, doctor_command

CONFUSIONS = 20
NO_TRACE = "There is no trace to report on: give one at least."


@dataclass(frozen=True)
class Confusion:
    """A draft was rejected at the token `drafted`, and `came` replaced it.
    before: text before one such place, which is in the run numbered `run` (from 0) at `step`."""

    drafted: str
    came: str
    count: int
    before: str
    run: int
    step: int


@dataclass
class AcceptanceReport:
    """Where the drafts of some runs were rejected, and what to try next.

    runs: number of traces;  model, draft, method, sampler: what ran, in words;  exactness: one of four
    values;  causes: why it is not lossless
    tokens, steps, passes, tau, tokens_per_s: of decoding, all runs together;  drafted, accepted: nodes
    fates: steps by what became of the draft: refused at some place; whole: accepted to its end; none: there was no
    draft; cut: the text ended inside it. Of cut steps nothing else is counted
    depths, entropy: of places on the path;  kinds, ranks, bins: of guesses tried there;  came: kind -> tokens that replaced
    rejected drafts
    expected: mean chance by both distributions that the first guess is accepted, over places that show both (None: no such)
    confusions: the commonest;  others: drafts rejected at rarer pairs;  again: drafts rejected at a token that was drawn next
    all the same
    spent: draft, verify, policy, rest: shares of the steps' time
    advice: what to try (lab/reports/advice.py);  speed: by length and width (lab/reports/speed_curve.py), in the record
    `curve`, `widths` and `speed`, its sentences;  clock: measured speed over the modelled one
    deployment: the machine for which advice and curve are priced, in words; empty: that of the runs
    payoff: what these drafts can gain at most by the measured cost of a pass, in a sentence; empty: it was not measured
    notes: what the record does not show, and why
    begins: how the prompt of each run begins;  deaths: the first LISTED places at which a draft was rejected
    lengths: accepted tokens per drafting step, a mean for each run that drafted
    templated: runs with a prompt that the model's chat template made;  reading: how all prompts were put (`PromptReading`)
    steps_of: for each row of a table the steps to look at, in the record as table -> row -> [[run from 0, step], ...]
    findings: why drafts were refused, as far as the record says, the most certain first;  lacking: what it does not show
    doctor: the command line that examines both models, "" if nothing drafts from a model or a head
    by_run: the counts of each run, for comparison with another report; not in the record
    """

    runs: int
    model: str
    draft: str
    method: str
    sampler: str
    exactness: Exactness
    causes: list[str]
    device: str
    tokens: int
    steps: int
    passes: int
    tau: float
    tokens_per_s: float
    drafted: int
    accepted: int
    fates: dict[str, int]
    depths: list[DepthCount]
    entropy: list[AcceptanceCount]
    kinds: list[AcceptanceCount]
    came: dict[str, int]
    ranks: list[AcceptanceCount]
    bins: list[ProbabilityBin]
    expected: float | None
    confusions: list[Confusion]
    others: int
    again: int
    spent: dict[str, float]
    advice: list[Advice] = field(default_factory=list)
    speed: SpeedCurves = field(default_factory=SpeedCurves)
    clock: float | None = None
    payoff: str = ""
    deployment: str = ""
    notes: list[str] = field(default_factory=list)
    begins: list[str] = field(default_factory=list)
    deaths: list[Rejection] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    templated: int = 0
    reading: PromptReading = "raw"
    steps_of: StepIndex = field(default_factory=StepIndex)
    findings: list[DraftFinding] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    doctor: str = ""
    by_run: list[RunCounts] = field(default_factory=list)

    @property
    def curve(self) -> list[SpeedPoint]:
        """Speed by length of the draft."""
        return self.speed.lengths

    def record(self) -> dict[str, Any]:
        """As plain data; rows of counts include their share."""
        record = asdict(replace(self, by_run=[], speed=SpeedCurves(), steps_of=StepIndex()))
        del record["by_run"]
        for name in ("depths", "entropy", "kinds", "ranks", "bins"):
            for row, one in zip(record[name], getattr(self, name), strict=True):
                row["share"] = one.share
        record["steps_of"] = self.steps_of.record()
        record["speed"] = self.speed.sentences
        record["curve"] = [point._asdict() for point in self.curve]
        record["widths"] = [point._asdict() for point in self.speed.widths]
        return record


def _nothing_counted_reason(cut: int) -> str:
    """Why there is nothing to count. cut: drafts cut off by the end of a text, which are not counted"""
    if not cut:
        return (
            "No step of these traces holds a draft: take runs of a method that drafts, such as draft_model."
        )
    which = "The only draft of these traces was" if cut == 1 else f"All {cut} drafts of these traces were"
    ends = "a stop token, a text to stop at, or the last token that was asked for"
    return f"{which} cut by the end of the text ({ends}), so there is nothing to count: take longer runs."


def count_report(traces: Trace | Iterable[Trace], deployment: Deployment | None = None) -> AcceptanceReport:
    """Count over the traces, which are read one after another, each once from begin to end.

    deployment: where the method shall run, for the advice; None: where it was recorded

    Raises TraceError if they were not made by one method on one model, their prompts were put in different ways, they do not
    hold decisions, or hold no draft that was decided before its text ended.
    """
    tally = DraftTally()
    for trace in [traces] if isinstance(traces, Trace) else traces:
        tally.count_run(trace)
    return _make_report(tally, deployment)


def count_apart(traces: Iterable[Trace], deployment: Deployment | None = None) -> list[AcceptanceReport]:
    """A report for each way in which prompts were put, in the order in which the traces have them.

    Raises TraceError as `count_report` does, if none of the ways has a draft that can be counted; a note of the first report
    names a way that has none.
    """
    tallies: dict[PromptReading, DraftTally] = {}
    for trace in traces:
        tallies.setdefault(prompt_reading(trace.header), DraftTally()).count_run(trace)
    reports: list[AcceptanceReport] = []
    faults: list[tuple[PromptReading, TraceError]] = []
    for reading, tally in tallies.items():
        try:
            reports.append(_make_report(tally, deployment))
        except TraceError as error:
            faults.append((reading, error))
    if not reports:
        raise faults[0][1] if faults else TraceError(NO_TRACE)
    reports[0].notes += [f"Prompts that were {READINGS[reading]}: {error}" for reading, error in faults]
    return reports


def _make_report(tally: DraftTally, deployment: Deployment | None) -> AcceptanceReport:
    """The report on what was counted. Raises TraceError if there is nothing."""
    head, seen = tally.header, tally.seen
    if head is None:
        raise TraceError(NO_TRACE)
    if not tally.depths:
        raise TraceError(_nothing_counted_reason(tally.fates["cut"]))
    bins = _filled_bins(tally)
    if not bins:
        tally.notes.append(
            "The draft chose its tokens without chance (one-hot), so there is no q to compare with acceptance."
        )
    seen.rates = [DepthCounts(x.tested, x.accepted, x.first) for x in tally.depths]
    tried, speeds, more = advice(head, seen, deployment)
    curve = speeds.lengths
    diagnosis = diagnose(tally.places)
    speed = tally.tokens / tally.wall * 1e6 if tally.wall else 0.0
    deep = min(max(x.depth for x in seen.cycles), len(curve) - 1)
    modelled = curve[deep].tokens / curve[deep].step_us * 1e6 if curve and deployment is None else None
    return AcceptanceReport(
        runs=tally.runs,
        model=str(head.model.get("name", "?")),
        draft=", ".join(str(x.get("name", "?")) for role, x in head.lanes.items() if role != WHOLE),
        method=_method_text(head),
        sampler=_part_text(head.method, "sampler"),
        exactness=head.exactness,
        causes=causes_shown(head),
        device=head.device_text,
        tokens=tally.tokens,
        steps=tally.steps,
        passes=tally.passes,
        tau=tally.tokens / tally.passes if tally.passes else 0.0,
        tokens_per_s=speed,
        drafted=tally.drafted,
        accepted=tally.accepted,
        fates=tally.fates,
        depths=tally.depths,
        entropy=tally.entropy,
        kinds=list(tally.kinds.values()),
        came=tally.came,
        ranks=tally.ranks,
        bins=bins,
        expected=statistics.fmean(seen.overlap) if seen.overlap else None,
        confusions=[
            _build_confusion(tally, *pair, count) for pair, count in tally.pairs.most_common(CONFUSIONS)
        ],
        others=sum(count for _, count in tally.pairs.most_common()[CONFUSIONS:]),
        again=tally.again,
        spent={name: us / tally.wall if tally.wall else 0.0 for name, us in tally.spent.items()},
        advice=tried,
        speed=speeds,
        clock=speed / modelled if modelled else None,
        payoff=drafting_payoff(head, seen) if deployment is None else "",
        deployment="" if deployment is None else deployment.words,
        notes=[
            *tally.notes,
            *merge_violations(tally.broken),
            *common_idle_notes(tally.idle),
            *_shared_pass_notes(tally),
            *more,
        ],
        begins=tally.begins,
        deaths=tally.deaths,
        lengths=tally.lengths,
        templated=tally.templated,
        reading=tally.reading or "raw",
        steps_of=tally.index,
        findings=diagnosis.findings,
        lacking=diagnosis.lacking,
        doctor=doctor_command(head),
        by_run=tally.by_run,
    )


def _shared_pass_notes(tally: DraftTally) -> list[str]:
    """The meaning of times if runs were decoded together."""
    if not tally.shared:
        return []
    return [
        f"{tally.shared} of {tally.passes} target passes were run for several texts at once: a step lasts until its own tokens "
        "are there, what was done for the others meanwhile is part of rest, and speeds are those of one text."
    ]


def _filled_bins(tally: DraftTally) -> list[ProbabilityBin]:
    """The ranges of q in which a guess was drawn, with the means of its q and p."""
    for one, drawn in zip(tally.bins, tally.drawn, strict=True):
        known = [p for _, p in drawn if p is not None]
        one.q = statistics.fmean(q for q, _ in drawn) if drawn else 0.0
        one.p = statistics.fmean(known) if known else None
    return [x for x in tally.bins if x.tested]


def _method_text(header: Header) -> str:
    """The parts that decide on drafts, in words."""
    schedule, method = _part_text(header.method, "schedule"), header.method
    kept = "" if schedule == "?" or part_description(header, "schedule").get("usual") else f", {schedule}"
    return f"{_part_text(method, 'drafter')}{kept} with {_part_text(method, 'acceptance')}"


def _build_confusion(tally: DraftTally, drafted: str, came: str, count: int) -> Confusion:
    before, run, step = tally.examples[drafted, came]
    return Confusion(drafted, came, count, before, run, step)


def _part_text(method: dict[str, Any], kind: str) -> str:
    """A part of the method and its knobs, in words."""
    part = method.get(kind)
    if not isinstance(part, dict):
        return "?"
    stages = [x for x in part.get("stages") or [part] if isinstance(x, dict)]
    return " + ".join(
        " ".join(
            [str(x.get("name", "?")), *(f"{k}={v}" for k, v in x.items() if k not in ("name", "stages"))]
        )
        for x in stages
    )
