"""Report tables: a report as tables of words, the same for the terminal, the file and the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from decodescope.engine.core.exactness import exactness_text
from decodescope.lab.formatting.prompt_sentences import template_sentence
from decodescope.lab.formatting.style import format_percent
from decodescope.lab.formatting.tokens import visible_piece

from .report import AcceptanceReport
from .step_index import Place, format_places
from .tally import AcceptanceCount

PLACE = "run, step"  # head of a column that names places
FEW = 20  # tests below which a share is marked as one of few


@dataclass(frozen=True)
class ReportTable:
    """A table of a report.
    about: a sentence that says how to read it. head, rows: column heads and rows. bars: for each row a share from 0 to 1, drawn
    as a bar; None: no bar; empty: the table has none;  below: sentences shown under it
    where: for each row the fields of the deaths that it counts, as text; {}: it counts all, None: none; empty: no row counts
    any
    steps: for each row the steps to look at, as (number of the run, from 0, and step); empty: the rows have none"""

    title: str
    about: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    bars: Sequence[float | None] = ()
    below: Sequence[str] = ()
    where: Sequence[Mapping[str, str] | None] = ()
    steps: Sequence[Sequence[Place]] = ()

    def with_steps(self) -> ReportTable:
        """The table with its steps in a last column, unless it has one of places already."""
        if not self.steps or PLACE in self.head:
            return self
        rows = [(*row, format_places([*places])) for row, places in zip(self.rows, self.steps, strict=True)]
        return replace(self, head=(*self.head, PLACE), rows=rows)


def headline(report: AcceptanceReport) -> list[str]:
    """What ran and how it went, in sentences."""
    runs = "1 run" if report.runs == 1 else f"{report.runs} runs"
    models = report.model + (f" with {report.draft}" if report.draft else "")
    share = format_percent(report.accepted / report.drafted) if report.drafted else "none"
    lines = [
        f"{runs} of {models}: {report.method}, {report.sampler}; {report.device}.",
        f"{report.tokens} tokens in {report.steps} steps, {report.tau:.2f} per target pass, {report.tokens_per_s:.1f} a "
        f"second; {report.accepted} of {report.drafted} drafted tokens ({share}) stayed.",
        template_sentence(report.templated, report.runs, report.reading == "later"),
    ]
    best = next((x for x in report.advice if x.kind != "limit"), None)
    if best is not None:
        lines.append(
            f"Most promising by the model: {best.name}, {best.gain:.2f} times as fast."
            if best.gain > 1.02
            else "By the model nothing that was looked at is faster than what ran."
        )
    lines += [report.payoff] if report.payoff else []
    why = f", because: {'; '.join(report.causes)}" if report.causes else ""
    return (
        lines
        if report.exactness == "lossless"
        else [*lines, f"The text is {exactness_text(report.exactness)}{why}."]
    )


def tables(report: AcceptanceReport) -> list[ReportTable]:
    """All tables, in reading order; empty ones are left out."""
    whole = [
        _cause_table(report),
        _outcome_table(report),
        _depth_table(report),
        _entropy_table(report),
        _kind_table(report),
        _rank_table(report),
        _bin_table(report),
    ]
    whole += [_confusion_table(report), _time_table(report), _advice_table(report), _speed_table(report)]
    whole.append(_width_table(report))
    return [_index_steps(x, report) for x in whole if x is not None and x.rows]


# title of a table -> the table of the index, and the labels of its rows there, in order
_INDEXED: dict[str, tuple[str, Callable[[AcceptanceReport], list[str]]]] = {
    "What became of the drafts": ("fates", lambda x: [name for name, n in x.fates.items() if n]),
    "By depth": ("depths", lambda x: [row.label for row in x.depths if row.offered]),
    "By the target's entropy": ("entropy", lambda x: [row.label for row in x.entropy if row.tested]),
    "By kind of token": (
        "kinds",
        lambda x: [row.label for row in x.kinds if row.tested or x.came[row.label]],
    ),
    "By order at a place": ("ranks", lambda x: [row.label for row in x.ranks]),
    "What the draft believed": ("bins", lambda x: [row.label for row in x.bins]),
    "Where the time went": ("spent", lambda x: [name for name, share in x.spent.items() if share >= 0.0005]),
    "Speed by length": ("path", lambda x: [str(row.length) for row in x.curve]),
    "Speed by tree width": ("widths", lambda x: [str(row.width) for row in x.speed.widths]),
}
_EVIDENCE = {  # kind of an advice -> row of the index that speaks for it
    "length": ("fates", "refused"),
    "tree": ("depths", "1"),
    "temperature": ("depths", "1"),
    "drafter": ("spent", "draft"),
    "limit": ("spent", "draft"),
}


def _index_steps(table: ReportTable, report: AcceptanceReport) -> ReportTable:
    """The table with the steps to look at for each of its rows."""
    index = report.steps_of
    if table.title == "What to try":
        return replace(table, steps=[index.places(*_EVIDENCE[x.kind]) for x in report.advice])
    if table.title == "Why drafts were refused":
        shown = index.places("fates", "refused") or index.places("fates", "whole")
        return replace(table, steps=[shown for _ in report.findings])
    if table.title == "Taken for another":
        return replace(table, steps=[[(x.run, x.step)] for x in report.confusions])
    name, labels = _INDEXED[table.title]
    return replace(table, steps=[index.places(name, label) for label in labels(report)])


def _cause_table(report: AcceptanceReport) -> ReportTable:
    about = "Named from these recordings alone, without the models: a hint at where to look first, the most certain first."
    rows = [(x.title, format_percent(x.certainty), x.evidence, x.check) for x in report.findings]
    below = [*report.lacking]
    if report.doctor:
        below.append(doctor_sentence(report))
    head = ("cause", "certainty", "evidence", "what to check")
    return ReportTable(
        "Why drafts were refused", about, head, rows, [x.certainty for x in report.findings], below
    )


def doctor_sentence(report: AcceptanceReport) -> str:
    """The sentence with the command line of the draft doctor, as the last one below the first table."""
    return f"With both models at hand, this examines them: {report.doctor}"


def _outcome_table(report: AcceptanceReport) -> ReportTable:
    words = {
        "refused": "a guess was rejected and the draft died there",
        "whole": "accepted down to its end",
        "none": "there was no draft",
        "cut": "the text ended inside it; not counted below",
    }
    rows = [(words[x], str(n), format_percent(n / report.steps)) for x, n in report.fates.items() if n]
    bars = [n / report.steps for n in report.fates.values() if n]
    where: list[Mapping[str, str] | None] = [
        {} if x == "refused" else None for x, n in report.fates.items() if n
    ]
    return ReportTable(
        "What became of the drafts", "", ("draft of a step", "steps", "share"), rows, bars, where=where
    )


def _depth_table(report: AcceptanceReport) -> ReportTable:
    about = (
        "Places on the accepted path, by depth of the guess. accepted: of the places that were reached, where some guess "
        "stayed; so far: of all drafts that deep, those accepted down to there."
    )
    head = ("depth", "drafts", "reached", "accepted", "share", "so far")
    rows = [
        (
            x.label,
            str(x.offered),
            str(x.tested),
            str(x.accepted),
            _format_tested_share(x),
            format_percent(x.accepted / x.offered),
        )
        for x in report.depths
        if x.offered
    ]
    deep = [x for x in report.depths if x.offered]
    return ReportTable(
        "By depth", about, head, rows, [x.share for x in deep], where=[{"depth": x.label} for x in deep]
    )


def _entropy_table(report: AcceptanceReport) -> ReportTable:
    about = (
        "How open the target's own distribution was at the place: 0 nats is one certain token, 1 about three equal ones. It is "
        "the model distribution, before the sampler, under a greedy sampler, else the sampling distribution, after it."
    )
    tested = [x for x in report.entropy if x.tested]
    head, where = ("entropy, nats", "places", "accepted", "share"), [{"entropy": x.label} for x in tested]
    return ReportTable("By the target's entropy", about, head, *_share_rows(tested), where=where)


def _kind_table(report: AcceptanceReport) -> ReportTable:
    about = "Kind of the guessed token; came: how often the token that replaced a rejected draft was of this kind."
    kinds = [x for x in report.kinds if x.tested or report.came[x.label]]
    rows = [(*row, str(report.came[x.label])) for row, x in zip(_share_rows(kinds)[0], kinds, strict=True)]
    head, where = ("guess", "tried", "accepted", "share", "came"), [{"kind": x.label} for x in kinds]
    return ReportTable("By kind of token", about, head, rows, [x.share for x in kinds], where=where)


def _rank_table(report: AcceptanceReport) -> ReportTable | None:
    if len(report.ranks) < 2:
        return None
    about = "Guesses at one place are tried in the order in which they were drawn; later ones only after rejections."
    return ReportTable(
        "By order at a place", about, ("guess", "tried", "accepted", "share"), *_share_rows(report.ranks)
    )


def _bin_table(report: AcceptanceReport) -> ReportTable:
    about = "q is what the draft gave its own guess, p what the target gave it: a draft that knows itself has p near q."
    if report.expected is not None:
        first = sum(x.first for x in report.depths) / max(1, sum(x.tested for x in report.depths))
        about += (
            f" By both distributions {format_percent(report.expected)} of first guesses are due to stay; "
        )
        about += f"{format_percent(first)} did."
    rows = [
        (
            x.label,
            str(x.tested),
            f"{x.q:.2f}",
            "–" if x.p is None else f"{x.p:.2f}",
            str(x.accepted),
            _format_tested_share(x),
        )
        for x in report.bins
    ]
    head = ("q", "guesses", "mean q", "mean p", "accepted", "share")
    where = [{"believed": x.label} for x in report.bins]
    return ReportTable(
        "What the draft believed", about, head, rows, [x.share for x in report.bins], where=where
    )


def _confusion_table(report: AcceptanceReport) -> ReportTable:
    about = "The first guess where a draft died, and the token that came; commonest first, with one place of each."
    if report.others:
        about += f" {report.others} more died on rarer pairs."
    if report.again:
        about += f" {report.again} more died on a token that was then drawn all the same."
    rows = [
        (x.drafted, x.came, str(x.count), f"{visible_piece(x.before, 80)}|", f"{x.run + 1}, {x.step}")
        for x in report.confusions
    ]
    where = [{"drafted": x.drafted, "came": x.came} for x in report.confusions]
    return ReportTable(
        "Taken for another", about, ("drafted", "came", "times", "behind", "run, step"), rows, where=where
    )


def _time_table(report: AcceptanceReport) -> ReportTable:
    words = {
        "draft": "drafting",
        "verify": "verifying, the rule included",
        "policy": "evicting",
        "rest": "bookkeeping",
    }
    rows = [(words[x], format_percent(share)) for x, share in report.spent.items() if share >= 0.0005]
    return ReportTable(
        "Where the time went",
        "",
        ("phase", "of the steps' time"),
        rows,
        [x for x in report.spent.values() if x >= 0.0005],
    )


def _advice_table(report: AcceptanceReport) -> ReportTable:
    about = "Speed over the present one, both by the same model of costs; a limit is what nothing of its kind surpasses."
    if report.deployment:
        about += f" Both are priced for {report.deployment}."
    if report.clock is not None:
        about += f" For what ran, the clock gave {report.clock:.2f} times the model's speed."
    advice = report.advice
    names = [x.name + (" (limit)" if x.kind == "limit" else "") for x in advice]
    rows = [
        (name, f"{x.gain:.2f}", f"{x.tokens:.2f}", f"{x.step_us / 1000:.2f}", x.how or "–")
        for name, x in zip(names, advice, strict=True)
    ]
    granted = [f"{x.name[:1].upper()}{x.name[1:]}: {x.why}." for x in advice]
    head = ("try", "times as fast", "tokens a step", "ms a step", "option")
    below = [f"Taken for granted. {granted[0]}", *granted[1:]] if granted else []
    return ReportTable("What to try", about, head, rows, relative_to_largest(x.gain for x in advice), below)


def _speed_table(report: AcceptanceReport) -> ReportTable:
    about = (
        "Drafts that end at this depth; 0 is plain decoding. Behind the deepest draft seen it is carried on. always right: the "
        "speed over plain decoding of a chain as long that is never rejected."
    )
    rows = [
        (
            str(x.length),
            f"{x.tokens:.2f}",
            f"{x.step_us / 1000:.2f}",
            f"{x.gain:.2f}",
            f"{x.over_plain:.2f}",
            f"{x.perfect:.2f}",
        )
        for x in report.curve
    ]
    head = (
        "depth of the draft",
        "tokens a step",
        "ms a step",
        "times as fast",
        "over plain",
        "always right",
    )
    bars = relative_to_largest(x.over_plain for x in report.curve)
    return ReportTable("Speed by length", about, head, rows, bars, report.speed.sentences)


def _width_table(report: AcceptanceReport) -> ReportTable:
    about = "The recorded trees without the later guesses of each place; deeper and other guesses stay as they were."
    widths = report.speed.widths
    rows = [
        (
            str(x.width),
            f"{x.nodes:.1f}",
            f"{x.tokens:.2f}",
            f"{x.step_us / 1000:.2f}",
            f"{x.over_plain:.2f}",
        )
        for x in widths
    ]
    head = ("guesses at a place", "nodes", "tokens a step", "ms a step", "over plain")
    return ReportTable(
        "Speed by tree width", about, head, rows, relative_to_largest(x.over_plain for x in widths)
    )


def _share_rows(shares: Sequence[AcceptanceCount]) -> tuple[list[tuple[str, ...]], list[float | None]]:
    rows: list[tuple[str, ...]] = [
        (x.label, str(x.tested), str(x.accepted), _format_tested_share(x)) for x in shares
    ]
    return rows, [x.share for x in shares]


def _format_tested_share(one: AcceptanceCount) -> str:
    """In percent; marked if there are few tests."""
    return "–" if one.share is None else format_percent(one.share) + (" (few)" if one.tested < FEW else "")


def relative_to_largest(values: Iterable[float]) -> list[float]:
    """As shares of the largest."""
    numbers = list(values)
    most = max(numbers, default=0.0)
    return [x / most if most > 0 else 0.0 for x in numbers]
