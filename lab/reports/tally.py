"""Tally: counts over the places at which drafts were decided, while the traces of some runs go by."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from decodescope.engine.core.roles import WHOLE
from decodescope.engine.core.tree import depths
from decodescope.engine.trace import Header, Step, Trace, TraceError
from decodescope.engine.trace.encoding.forks import fork_legs
from decodescope.engine.trace.query.facts import StepFacts
from decodescope.engine.trace.query.prompt_reading import READINGS, PromptReading, prompt_reading
from decodescope.engine.trace.records.auxiliary_nodes import drafted_depths as levels_of
from decodescope.engine.trace.records.auxiliary_nodes import drafted_nodes
from decodescope.engine.trace.records.parts import part_description
from decodescope.engine.trace.records.phases import is_deciding_pass
from decodescope.engine.trace.records.pieces import join
from decodescope.lab.decision.path_places import PathPlace, TriedGuess, path_places
from decodescope.lab.formatting.kinds import KINDS, LOOKED_AT, kind_of
from decodescope.lab.formatting.tokens import visible_token

from .advice import simulate_prompt_lookup
from .rejections import LISTED, Rejection
from .step_clock import AdviceData, CutTree, StepCost
from .step_index import Place, StepIndex
from .trace_places import PlaceLog

ENTROPY = (0.05, 0.2, 0.5, 1.0, 2.0, 3.0)  # nats; the bins are between them
BINS = 10  # of q
CONTEXT = 48  # tokens before a guess, usually enough for LOOKED_AT characters
SHOWN = 40  # characters before an example, and of a prompt's beginning
BEGINS = 12  # tokens of a prompt's beginning
FATES = ("refused", "whole", "none", "cut")
FIGURES = tuple(
    ("figures", name) for name in ("accepted length", "tokens per target pass", "tokens a second")
)
Figure = tuple[str, str]  # in a comparison of two reports: its table, and its row there
# the count and its total: a figure is the quotient, over runs that of the sums
Count = tuple[float, float]
NONE: Count = (0.0, 0.0)
_ORDINALS = {0: "1st", 1: "2nd", 2: "3rd"}


class TextStep(NamedTuple):
    """A step in a run's text. at: tokens of the text before it;  nodes: of its draft, by level;  path: accepted tokens"""

    at: int
    nodes: tuple[int, ...]
    path: int


@dataclass(frozen=True)
class RunCounts:
    """The counts of one run. prompt, text: ids of its prompt, and of what came;  steps: those that are counted"""

    prompt: tuple[int, ...]
    counts: dict[Figure, Count]
    text: tuple[int, ...] = ()
    steps: tuple[TextStep, ...] = ()


@dataclass
class AcceptanceCount:
    """The number of tests, and how many of them were accepted."""

    label: str
    tested: int = 0
    accepted: int = 0

    @property
    def share(self) -> float | None:
        """accepted / tested; None if nothing was tested."""
        return self.accepted / self.tested if self.tested else None

    def add(self, accepted: bool) -> None:
        """Count one test."""
        self.tested += 1
        self.accepted += accepted


@dataclass
class DepthCount(AcceptanceCount):
    """Places at one depth. offered: drafts that reached this depth; nodes: their guesses at this depth, tried or not; first:
    places with an accepted first guess."""

    offered: int = 0
    nodes: int = 0
    first: int = 0


@dataclass
class ProbabilityBin(AcceptanceCount):
    """Guesses drawn with a probability in one range. q: their mean probability; p: the target's mean (None: not known)."""

    q: float = 0.0
    p: float | None = None


class DraftTally:
    """Counts while the traces go by."""

    def __init__(self) -> None:
        self.header: Header | None = None  # of the first trace
        self.begins: list[str] = []  # beginning of each run's prompt
        self.deaths: list[Rejection] = []
        self.kept: list[int] = []  # accepted per drafting step of the present run
        self.lengths: list[float] = []  # their mean, by run
        self.by_run: list[RunCounts] = []
        self.templated = 0  # runs with a prompt made by a chat template
        self.reading: PromptReading | None = None  # how all prompts were put
        self.runs = self.tokens = self.steps = self.passes = self.drafted = self.accepted = self.again = (
            self.shared
        ) = 0
        self.wall = 0.0
        self.spent: Counter[str] = Counter()
        self.fates: dict[str, int] = dict.fromkeys(FATES, 0)
        self.depths: list[DepthCount] = []
        bounds = [0.0, *ENTROPY]
        self.entropy = [AcceptanceCount(f"{low:g} to {high:g}") for low, high in pairwise(bounds)]
        self.entropy.append(AcceptanceCount(f"{ENTROPY[-1]:g} and more"))
        self.kinds = {kind: AcceptanceCount(kind) for kind in KINDS}
        self.came: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.ranks: list[AcceptanceCount] = []
        self.bins = [ProbabilityBin(f"{k / BINS:.1f} to {(k + 1) / BINS:.1f}") for k in range(BINS)]
        # q and p of each guess
        self.drawn: list[list[tuple[float, float | None]]] = [[] for _ in range(BINS)]
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.examples: dict[tuple[str, str], tuple[str, int, int]] = {}
        self.seen = AdviceData()
        self.index = StepIndex()
        self.places = PlaceLog()
        self.notes: list[str] = []
        self.broken: list[list[str]] = []  # for each run, what its text breaks of a schema
        self.idle: list[list[str]] = []  # for each run, the parts that its end notes as inactive

    def count_run(self, trace: Trace) -> None:
        """Count one trace. Of a fork only the decisions of its own method by itself count.
        Steps before it by another method, and a step with forced verdicts, are left out, and a note says how many."""
        head = trace.header
        name = trace.path.name if trace.path is not None else f"trace {self.runs + 1}"
        if "decisions" not in head.levels:
            raise TraceError(
                f"{name} was recorded at level {head.levels[-1]}, without decisions: record it with --trace-level decisions."
            )
        strategy = part_description(head, "strategy")
        if "drafter" in strategy.get("uses", ()) and not strategy.get("verdicts"):
            raise TraceError(
                f"{name} was written by {head.method['strategy'].get('name')}, whose drafts and verifications run "
                "at the same time; a report is about those that follow each other: take a run of draft_verify with the same "
                "draft model."
            )
        self._check_comparable(head, name)
        if trace.damage:
            self.notes.append(f"{name} is damaged; counted are the steps before the damage.")
        text = trace.effective_prompt
        read = len(text)
        parts = fork_legs(head)
        left = 0
        placed: list[TextStep] = []
        counted = self.counts()
        self.kept = []
        for step in trace.steps:
            part = [x for x in parts if x.first <= step.step][-1]
            if part.method == head.method and not (part.forced and part.first == step.step):
                self.count_step(trace, step, text)
                placed.append(_place_step(step, len(text) - read))
            else:
                left += 1
            text += step.emitted
        if left:
            self.notes.append(
                f"{name} is a fork: {left} of its steps were made by another method or forced, and are left out."
            )
        self.places.end_run(trace, text, read)
        steps, tokens, sizes = simulate_prompt_lookup(text, read, head.max_new_tokens or len(text))
        before = self.seen.looked_up
        self.seen.looked_up = before[0] + steps, before[1] + tokens, before[2] + sizes
        self.runs += 1
        self.idle.append([] if trace.end is None else trace.end.notes)
        self.broken.append([] if trace.end is None else trace.end.violations or [])
        self.templated += head.chat
        self.lengths += [sum(self.kept) / len(self.kept)] if self.kept else []
        own = {of: _subtract_counts(count, counted.get(of, NONE)) for of, count in self.counts().items()}
        self.by_run.append(RunCounts(tuple(head.prompt.tolist()), own, tuple(text[read:]), tuple(placed)))
        self.begins.append(" ".join(join(head.prompt[:BEGINS].tolist(), trace.pieces).split())[:SHOWN])

    def _check_comparable(self, head: Header, name: str) -> None:
        """Raise TraceError if this run has another method or model than those before, or its prompt was put in another way."""
        self.header = self.header or head
        for what, (ours, theirs) in {
            x: (_comparison_key(self.header)[x], y) for x, y in _comparison_key(head).items()
        }.items():
            if ours != theirs:
                raise TraceError(
                    f"{name} has another {what} than the traces before it: report on one method at a time."
                )
        reading = prompt_reading(head)
        self.reading = self.reading or reading
        if reading != self.reading:
            raise TraceError(
                f"The prompt of {name} was {READINGS[reading]}, those before it were {READINGS[self.reading]}, and drafts fare "
                "differently there: report on the runs of each alone, or apart with --apart."
            )

    def counts(self) -> dict[Figure, Count]:
        """The counts so far for comparing two reports."""
        figures = (
            (sum(self.lengths), len(self.lengths)),
            (self.tokens, self.passes),
            (self.tokens, self.wall / 1e6),
        )
        fates = {("fates", name): (count, self.steps) for name, count in self.fates.items()}
        shares = (("depths", self.depths), ("kinds", self.kinds.values()))
        rows = {(table, x.label): (x.accepted, x.tested) for table, among in shares for x in among}
        return {**dict(zip(FIGURES, figures, strict=True)), **fates, **rows}

    def count_step(self, trace: Trace, step: Step, text: list[int]) -> None:
        """Count a step; `text`: the ids before it."""
        self.steps += 1
        self.tokens += len(step.emitted)
        self.drafted += step.drafted
        self.accepted += step.accepted
        self.passes += sum(map(is_deciding_pass, step.passes))
        self.shared += sum(is_deciding_pass(x) and x.together is not None for x in step.passes)
        self.wall += step.wall_us
        rest = max(0.0, step.wall_us - step.draft_us - step.verify_us - step.policy_us)
        spent = {"draft": step.draft_us, "verify": step.verify_us, "policy": step.policy_us, "rest": rest}
        self.spent.update(spent)
        at = (self.runs, step.step)
        for name, us in spent.items():
            self.index.add("spent", name, at, us)
        if step.draft is not None and step.extra is None:
            self._add_fate("cut", at)
            return
        if step.extra is None:  # neither a draft nor a token of its own: the text ended here
            return
        levels = levels_of(step.draft)
        deep = max(levels, default=0)
        rows = sum(p.tokens for p in step.passes if is_deciding_pass(p))
        own = any(p.phase == "draft" or p.lane != "target" for p in step.passes)
        nodes = tuple(levels.count(k) for k in range(1, deep + 1))
        path = len(step.path or [])
        places = list(path_places(step, trace.header))
        widths = tuple(_cut_by_width(step, places))
        self.index.add("path", str(path), at)
        self.index.add(
            "widths", str(next((k for k, x in enumerate(widths, 1) if x.path == path), 0)), at, path
        )
        self.seen.cycles.append(
            StepCost(
                depth=deep,
                nodes=nodes,
                path=path,
                rows=rows,
                passes=own,
                draft_us=step.draft_us,
                verify_us=step.verify_us,
                rest_us=rest + step.policy_us,
                widths=widths,
            )
        )
        self.seen.held.append(step.n)
        if not levels:
            self._add_fate("none", at)
            return
        self.kept.append(step.accepted)
        self.depths += [DepthCount(str(k + 1)) for k in range(len(self.depths), deep)]
        for k in range(deep):
            self.depths[k].offered += 1
            self.depths[k].nodes += nodes[k]
        refused = False
        for place in places:
            refused = not place.passed
            self.count_place(trace, step, place, text)
        self._add_fate("refused" if refused else "whole", at)

    def _add_fate(self, fate: str, at: Place) -> None:
        """Count what became of the draft of a step."""
        self.fates[fate] += 1
        self.index.add("fates", fate, at)

    def count_place(self, trace: Trace, step: Step, place: PathPlace, text: list[int]) -> None:
        """Count the guesses of one place."""
        law = place.law
        row = self.depths[place.depth - 1]
        first = place.guesses[0]
        row.add(place.passed)
        row.first += first.ok
        at, worth = (self.runs, step.step), float(not place.passed)
        self.index.add("depths", row.label, at, worth)
        if law is not None:
            openness = self.entropy[bisect_right(ENTROPY, law.entropy)]
            openness.add(place.passed)
            self.index.add("entropy", openness.label, at, worth)
        if law is not None and law.drawn and first.q is not None:
            self.seen.overlap.append(law.overlap)
            self.seen.agree.append(law.agree)
            if place.depth == 1 and len(place.guesses) == 1 and not place.passed:
                self.seen.rescue.append(law.second_guess_chance(first.token))
        ids = [*text[-CONTEXT:], *step.emitted[: place.depth - 1]]
        self.places.add(trace, step, place, ids[-1])
        before = join(ids, trace.pieces)
        for guess in place.guesses:
            kind = _token_kind(trace, guess.token, before)
            self.kinds[kind].add(guess.ok)
            self.index.add("kinds", kind, at, float(not guess.ok))
            self.ranks += [
                AcceptanceCount(_ORDINALS.get(k, f"{k + 1}th"))
                for k in range(len(self.ranks), guess.rank + 1)
            ]
            self.ranks[guess.rank].add(guess.ok)
            self.index.add("ranks", self.ranks[guess.rank].label, at, float(guess.ok))
            if guess.q is not None:
                k = min(int(guess.q * BINS), BINS - 1)
                self.bins[k].add(guess.ok)
                self.index.add("bins", self.bins[k].label, at, float(not guess.ok))
                self.drawn[k].append((guess.q, guess.p))
        if not place.passed and step.extra is not None:
            self.count_rejection(trace, step, place, first, step.extra.token, before)

    def count_rejection(
        self, trace: Trace, step: Step, place: PathPlace, first: TriedGuess, came: int, before: str
    ) -> None:
        """A draft was rejected at `first`, the first guess of its place, and the target's token replaced it."""
        replaced = _token_kind(trace, came, before)
        self.came[replaced] += 1
        self.index.add("kinds", replaced, (self.runs, step.step))
        pair = visible_token(first.token, trace.pieces), visible_token(came, trace.pieces)
        if len(self.deaths) < LISTED:
            kind, law = _token_kind(trace, first.token, before), place.law
            entropy = "" if law is None else self.entropy[bisect_right(ENTROPY, law.entropy)].label
            believed = "" if first.q is None else self.bins[min(int(first.q * BINS), BINS - 1)].label
            self.deaths.append(
                Rejection(
                    run=self.runs,
                    step=step.step,
                    node=first.node,
                    depth=place.depth,
                    kind=kind,
                    entropy=entropy,
                    believed=believed,
                    drafted=pair[0],
                    came=pair[1],
                    before=before[-SHOWN:],
                    p=first.p,
                    q=first.q,
                    drafted_id=first.token,
                    came_id=came,
                    position=step.n + place.depth - 1,
                    draft_rank=StepFacts(step, trace.header, {}).column("draft_rank")[-1],
                )
            )
        if first.token == came:
            self.again += 1
            return
        self.pairs[pair] += 1
        self.examples.setdefault(pair, (before[-SHOWN:], self.runs, step.step))


def _place_step(step: Step, at: int) -> TextStep:
    """A step in the text of its run. Of a draft that the end of the text cut, the tokens that are in the text were accepted."""
    levels = levels_of(step.draft)
    path = min(step.accepted, len(step.emitted) - (step.extra is not None))
    return TextStep(at, tuple(levels.count(k) for k in range(1, max(levels, default=0) + 1)), path)


def _cut_by_width(step: Step, places: Sequence[PathPlace]) -> Iterator[CutTree]:
    """The draft of a step with at most 1, 2, ... guesses at a place, until it is whole."""
    if step.draft is None:
        return
    # auxiliary nodes, which are never tried, take no turn
    drafted, parents = set(drafted_nodes(step.draft)), step.draft.parents
    turns: Counter[int] = Counter()
    needed: list[int] = []  # for each node, the largest turn among it and those above it, from 1
    for node, parent in enumerate(parents):
        turns[parent] += node in drafted
        needed.append(max(turns[parent], needed[parent] if parent >= 0 else 1))
    deep = depths(parents)
    winners = [next((x.rank + 1 for x in place.guesses if x.ok), None) for place in places]
    for width in range(1, max(needed, default=0) + 1):
        kept = [i for i in drafted if needed[i] <= width]
        path = next((k for k, turn in enumerate(winners) if turn is None or turn > width), len(winners))
        yield CutTree(len(kept), max((deep[i] for i in kept), default=0), path)


def _subtract_counts(count: Count, before: Count) -> Count:
    return count[0] - before[0], count[1] - before[1]


def _token_kind(trace: Trace, token: int, before: str) -> str:
    special = token in trace.header.stop_tokens
    return "special" if special else kind_of(trace.pieces.get(token), before[-LOOKED_AT:])


def _comparison_key(header: Header) -> dict[str, Any]:
    """The properties that traces must share to be counted together."""
    lanes = {role: x.get("fingerprint") for role, x in header.lanes.items() if role != WHOLE}
    place = (header.dtype, header.device)
    return {
        "model": header.model.get("fingerprint"),
        "draft model": lanes,
        "method": header.method,
        "type or device": place,
    }
