"""check: re-derive from a trace what it claims, so that a number on screen can be believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from .checks.decisions import rule_at, step_trials
from .checks.draft_tops import check_draft_tops
from .checks.entries import CacheValidator
from .checks.pipeline import TickValidator
from .checks.record_consistency import (
    validate_end,
    validate_header,
    validate_prefill,
    validate_step,
    vocab_size,
)
from .checks.skipped_layers import check_gaps, check_prompt, check_scores
from .checks.verdicts import check_extra, check_tops, check_verdicts
from .detail_checks.answers import answers_problems
from .detail_checks.beam_search import SearchValidator
from .detail_checks.copies import copied_places, copied_problems, prompt_as_read
from .detail_checks.details import UNKNOWN, detail_by_check, details_by_check, details_problems
from .detail_checks.drawn_texts import DrawnTextValidator
from .detail_checks.fills import FillValidator
from .detail_checks.labels import labels_problems
from .detail_checks.lines import LineValidator
from .detail_checks.sharing import SharingValidator
from .detail_checks.spans import passage_tokens, spans_problems
from .detail_checks.threads import ThreadValidator
from .detail_checks.tree_search import search_problems
from .detail_checks.trees import TreeValidator, settles_at_end, tree_reading
from .detail_checks.turns import SwitchValidator
from .details.consistency import token_ids
from .details.declarations import TreeForm
from .details.shapes import TallyDetail, ThreadsDetail, TreeDetail
from .details.threads import ThreadTree
from .encoding.forks import method_at, reread_steps
from .encoding.frame import encode
from .file.trace import Trace
from .file.writer import complete_end_record
from .query.causes import exactness_problem
from .records.auxiliary_nodes import drafted_nodes
from .records.choices import Choice, choices_problems
from .records.events import End, Header, Prefill, Step
from .records.exits import check_ahead, check_exit
from .records.parts import part_description
from .records.pieces import join
from .records.prompt import effective_prompt
from .records.prompt_cut import check_cut
from .values.limits import TraceError

_SHOWN = 100


@dataclass
class Report:
    """The result of `check`.

    problems: one sentence each; counts: what was derived again, by name; notes: what could not be
    cut: True if the file ends before its run does, which is then the first of the problems
    """

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    cut: bool = False

    @property
    def ok(self) -> bool:
        """True if nothing contradicts anything else, and nothing is missing."""
        return not self.problems

    def add(self, where: str, what: str) -> None:
        """Enter one problem; after the first hundred, only count."""
        self.counts["problems"] += 1
        if len(self.problems) < _SHOWN:
            self.problems.append(f"{where}: {what}.")

    def __str__(self) -> str:
        counted = ", ".join(f"{n:,} {name}" for name, n in self.counts.items() if name != "problems")
        wrong = self.counts["problems"] - self.cut
        verdict = (
            f"contradicts itself in {wrong} place{'s' if wrong > 1 else ''}"
            if wrong
            else "agrees with itself"
        )
        begins = "The trace is cut off; what is there" if self.cut else "The trace"
        return "\n".join([f"{begins} {verdict} ({counted}).", *self.problems, *self.notes])


def check(trace: Trace, see: Callable[[], object] = lambda: None) -> Report:  # noqa: C901, PLR0915
    """Re-derive tokens, verdicts, counts, cache entries and hashes of `trace` from its records. see: called after each step"""
    report = Report()
    if trace.damage:
        report.cut = trace.file is not None and trace.file.cut
        report.add("file", trace.damage.rstrip("."))
    emitted: list[int] = []
    try:
        _check_header(report, trace.header)
        vocab = vocab_size(trace.header)
        books = CacheValidator(trace.header, report.add)
        if trace.prefill is not None:
            validate_prefill(trace.prefill, trace.header)
        prompt = effective_prompt(trace.header, trace.prefill)
        read = len(prompt)
        text = prompt_as_read(trace.header, trace.prefill)
        if trace.prefill is not None:
            _check_prefill(report, trace.prefill, trace.header, books, read)
        texts = SharingValidator(trace.header, read)
        threads = ThreadValidator(trace.header.stop_tokens, read)
        fills = FillValidator(trace.header)
        lines, switches = LineValidator(trace.header, prompt), SwitchValidator(trace.header, trace.prefill)
        drawn = DrawnTextValidator(trace.header)
        searches = SearchValidator(trace.header, trace.prefill is not None)
        trees = TreeValidator(trace.header, trace.prefill is not None)
        n: int | None = read
        anew = reread_steps(trace.header)
        grown = 0
        ticks = TickValidator(trace.header)
        for index, step in enumerate(trace.steps):
            where = f"step {index}"
            if trace.file is None:  # else its reader has done so
                validate_step(step, index, vocab, trace.header.details)
            n = _check_tokens(report, where, step, n, settles_at_end(trace.header, step))
            _check_decisions(report, where, step, trace.header)
            if index in anew:
                for kept in (books, texts, threads, lines, fills, switches, drawn, searches, trees, ticks):
                    kept.lose()
            # texts that are settled at the end grow by a token a step, the text of the run only then
            unsettled = settles_at_end(trace.header, step)
            if not unsettled:
                grown = 0
            elif index in anew:
                grown = 1
            else:
                grown = grown + 1
            length = step.n + (grown if unsettled else len(step.emitted))
            books.check_read_shapes(where, step.passes)
            if (
                trace.prefill is not None
            ):  # a branch begins in the midst of its texts, without their extra entries
                books.check_extra_entries(where, step.passes)
            books.enter(where, step.cache, length)
            if trace.prefill:
                wrong = (
                    *texts.problems(step),
                    *_check_threads(trace.header, step, threads),
                    *lines.problems(step),
                )
                for problem in (*wrong, *_check_copies(report, trace, step, text)):
                    report.add(where, problem)
            wrong = (
                *fills.problems(step),
                *_check_labels(report, trace, step, threads),
                *switches.problems(step),
            )
            for problem in (*wrong, *drawn.problems(step), *searches.problems(step), *ticks.problems(step)):
                report.add(where, problem)
            for problem in trees.problems(step):
                report.add(where, problem)
            emitted += step.emitted
            text += step.emitted
            report.counts["steps"] += 1
            see()
        _add_counts(report, books, threads, fills, lines, ticks)
        own = {
            "turns of models": switches.checked,
            "drawn texts": drawn.checked,
            "hypotheses": searches.checked,
        }
        report.counts.update(_nonzero_counts(own))
        if trace.end is not None:
            validate_end(trace.end, vocab)
            _check_end(report, trace, trace.end, emitted)
    except TraceError as error:
        report.add(f"record after {report.counts['steps']} steps", str(error).rstrip("."))
    if report.counts["trials not re-derived"]:
        rule = str(rule_at(trace.header, len(trace.steps)).get("name", ""))
        report.notes.append(
            f"The verdicts of the rule {rule!r} were not re-derived: this version has no check for it."
        )
    if report.counts[UNKNOWN]:
        report.notes.append(
            f"{report.counts[UNKNOWN]} details were not re-derived: the header does not declare them, or names a check that "
            "this version lacks."
        )
    if report.counts["forced steps"]:
        report.notes.append(
            "Verdicts that were forced follow from nothing, so those of their steps were not re-derived."
        )
    return report


def _check_prefill(
    report: Report, prefill: Prefill, header: Header, books: CacheValidator, read: int
) -> None:
    """Begin the bookkeeping with a prompt of `read` tokens to read, and check what a rule left out of it."""
    books.begin(prefill, read)
    for problem in check_prompt(prefill.passes, prefill.cache, int(header.model.get("n_layers", 1))):
        report.add("prefill", problem)
    for problem in () if prefill.cut is None else check_cut(prefill.cut):
        report.add("prefill", problem)


def _check_threads(header: Header, step: Step, threads: ThreadValidator) -> Iterator[str]:
    """Check a step's record of threads, and its cache's record of the entries freed with them."""
    record = detail_by_check(header, step, "threads", ThreadsDetail)
    freed = [places for change in step.cache for places in change.freed or ()]
    yield from threads.problems(record, step.emitted, freed)


def _check_spans_and_search(report: Report, trace: Trace, step: Step) -> Iterator[str]:
    """Check a step's spans, and its search."""
    yield from spans_problems(trace.header, step)
    report.counts.update(_nonzero_counts({"spans": passage_tokens(trace.header, step)}))
    for detail in details_by_check(trace.header, step, "tree_search"):
        form = trace.header.details[detail.name]
        if isinstance(detail, TreeDetail) and isinstance(form, TreeForm):
            yield from _check_search(report, trace, step, detail, form)


def _check_copies(report: Report, trace: Trace, step: Step, text: list[int]) -> Iterator[str]:
    """Check where a step's draft was copied from, after this text; nothing if a text began elsewhere."""
    if trace.header.parent is not None or trace.prefill is None:
        return
    places = copied_places(trace.header, step)
    if places:
        yield from copied_problems(trace.header, step, text)
        report.counts["copied tokens"] += sum(x is not None for x in places)


def _check_labels(report: Report, trace: Trace, step: Step, threads: ThreadValidator) -> Iterator[str]:
    """Check a step's labels against the threads so far, and its spans and search."""
    yield from _check_spans_and_search(report, trace, step)
    labels = details_by_check(trace.header, step, "labels")
    if labels and threads.tree is not None and trace.prefill:
        yield from labels_problems(labels, threads.tree, _thread_text(trace, threads.tree))
        report.counts["labels"] += sum(
            len(x.columns.get("name", ())) for x in labels[:1] if isinstance(x, TallyDetail)
        )


def _check_search(
    report: Report, trace: Trace, step: Step, detail: TreeDetail, form: TreeForm
) -> Iterator[str]:
    """Check a step's search by repeating it."""
    judged = step.detail(form.judged)
    if not isinstance(judged, TallyDetail):
        yield "it has no texts that were judged"
        return
    pieces, ids = trace.pieces, token_ids([detail, judged], trace.header.details)
    text = (lambda ids: join(ids, pieces)) if pieces else None
    shown = text is None or all(x in pieces for x in ids)
    reading = tree_reading(trace.header, step, detail, form)
    yield from search_problems(reading, judged, step.emitted, trace.header.stop_tokens, text, shown)
    report.counts["rollouts"] += len(judged)


def _thread_text(trace: Trace, tree: ThreadTree) -> Callable[[list[int]], str] | None:
    """A function from a thread's tokens to its text; None if the trace does not show all of them."""
    pieces = trace.pieces
    shown = all(token in pieces for strand in tree.strands for token in strand.tokens)
    return (lambda ids: join(ids, pieces)) if shown else None


def _add_counts(
    report: Report,
    books: CacheValidator,
    threads: ThreadValidator,
    fills: FillValidator,
    lines: LineValidator,
    ticks: TickValidator,
) -> None:
    """Enter what the books have derived again."""
    report.counts["cache changes"] = books.checked
    checked = {
        "tokens of threads": threads.checked,
        "fills": fills.checked,
        "scores of entries": books.judged,
    }
    checked |= {"proposed lines": lines.checked, "ticks of a pipeline": ticks.checked}
    report.counts.update(_nonzero_counts(checked))
    if lines.unread:
        report.notes.append(
            f"Of {lines.unread} proposed lines the scores were judged again, and not their texts."
        )
    if fills.underived:
        report.notes.append(
            f"Of {fills.underived} fills count and bars were not re-derived from a selector's knobs."
        )


def _nonzero_counts(counts: dict[str, int]) -> dict[str, int]:
    """Only the counts above 0."""
    return {name: n for name, n in counts.items() if n}


def _check_tokens(report: Report, where: str, step: Step, n: int | None, unsettled: bool) -> int | None:
    """Check the text of one step against its path and extra token; returns the n that is due next, None if unknown.
    unsettled: True if the text is settled only at the run's end; until then steps emit what may be replaced"""
    if n is not None and step.n != n:
        report.add(where, f"n is {step.n}, but {n} tokens come before it")
    if step.accepted != step.origins.count("accepted"):
        report.add(where, f"accepted is {step.accepted}, but {step.origins.count('accepted')} origins say so")
    if step.draft is not None and step.drafted != (many := len(drafted_nodes(step.draft))):
        aside = ", passengers not counted" if step.draft.passengers else ""
        report.add(where, f"drafted is {step.drafted}, but the tree has {many} nodes{aside}")
    if step.path is not None and step.accepted != len(step.path):
        report.add(where, f"accepted is {step.accepted}, but the path has {len(step.path)} nodes")
    if step.draft is not None or step.extra is not None:  # at level "summary" neither is recorded
        path = step.path or []
        tokens = [step.draft.tokens[node] for node in path] if step.draft is not None else []
        origins = ["accepted"] * len(path)
        if step.extra is not None:
            tokens.append(step.extra.token)
            origins.append(step.extra.origin)
        if step.emitted != tokens:
            report.add(where, f"it emitted {step.emitted}, but path and extra token give {tokens}")
        if step.origins != origins:
            report.add(where, f"its origins are {step.origins}, but path and extra token give {origins}")
        report.counts["tokens"] += len(tokens)
    return None if unsettled else step.n + len(step.emitted)


def _check_decisions(report: Report, where: str, step: Step, header: Header) -> None:  # noqa: C901
    if step.forced:
        report.counts["forced steps"] += 1
        return
    tests = step_trials(header, step)
    if tests is not None:
        for problem in check_verdicts(tests, step, report.counts):
            report.add(where, problem)
        report.counts["trials"] += len(tests)
        for name in tests.wrong_columns():
            report.add(where, f"rule.{name} does not hold the numbers that the header says it holds")
    elif step.trials is not None:
        report.counts["trials not re-derived"] += len(step.trials.node)
    if step.extra is not None:
        for problem in check_extra(step, tests):
            report.add(where, problem)
        report.counts["extra tokens"] += 1
    for left in step.exits or ():
        for problem in check_exit(left, int(header.model.get("n_layers", left.depth))):
            report.add(where, problem)
        report.counts["exits"] += 1
    if step.exits:
        ahead = [x.tokens for x in step.passes if (x.lane, x.phase) == ("target", "search")]
        layers = int(header.model.get("n_layers", 1))
        gaps = check_gaps(step.passes, step.cache, layers, step.path)
        for problem in (
            *gaps,
            *check_ahead(step.exits, ahead),
            *check_scores(step.passes, step.exits, layers),
        ):
            report.add(where, problem)
    for problem in (*details_problems(header, step, report.counts), *answers_problems(header, step)):
        report.add(where, problem)
    if step.choices is not None:
        for problem in _check_choices(step, step.choices, header):
            report.add(where, problem)
        report.counts["choices"] += len(step.choices)
    if step.tops is not None:
        for problem in check_tops(step):
            report.add(where, problem)
        report.counts["distributions"] += len(step.tops.places)
    if step.draft_tops is not None:
        for problem in check_draft_tops(step):
            report.add(where, problem)
        report.counts["distributions of drafts"] += len(step.draft_tops.places)


def _check_header(report: Report, header: Header) -> None:
    """Check that the header makes sense, and claims no more exactness than its parts allow. Raises TraceError."""
    validate_header(header)
    if why := exactness_problem(header):
        report.add("header", why)


def _check_choices(step: Step, choices: Sequence[Choice], header: Header) -> Iterator[str]:
    """Problems of how a step's tokens were chosen: by guidance and then a sampler, or by its strategy."""
    if step.path is None:  # no rule judged: the strategy chose, and takes the best
        return choices_problems(choices, step.emitted, best=True)
    alone = not (method_at(header, step.step).get("sampler") or {}).get("stages")  # others may move a score
    best = alone and header.is_exact and bool(part_description(header, "sampler").get("greedy"))
    rows = (
        []
        if step.tops is None or not best
        else zip(step.tops.ids.tolist(), step.tops.p.tolist(), strict=True)
    )
    return choices_problems(choices, step.emitted, best, [[*zip(ids, p, strict=True)] for ids, p in rows])


def _check_end(report: Report, trace: Trace, end: End, emitted: list[int]) -> None:
    header, where = trace.header, "end"
    unsettled = any(settles_at_end(header, step) for step in trace.steps[-1:])
    if end.steps != len(trace.steps):
        report.add(where, f"it counts {end.steps} steps, there are {len(trace.steps)}")
    if not unsettled and end.tokens != emitted:
        at = next((i for i, (a, b) in enumerate(zip(end.tokens, emitted, strict=False)) if a != b), None)
        differ = f"token {at} is the first that differs" if at is not None else "one text is longer"
        report.add(
            where, f"its {len(end.tokens)} tokens are not the {len(emitted)} that the steps emitted: {differ}"
        )
    if header.max_new_tokens and len(end.tokens) > header.max_new_tokens:
        report.add(where, f"it has {len(end.tokens)} tokens, where {header.max_new_tokens} were allowed")
    if not header.forced and any(token in header.stop_tokens for token in end.tokens[:-1]):
        report.add(where, "a stop token comes before its last token")
    due = complete_end_record(_record_bodies(trace), None)
    for name in ("records", "sha256", "content_hash"):
        if getattr(end, name) != getattr(due, name):
            report.add(
                where, f"{name} is {getattr(end, name)!r}, but the records give {getattr(due, name)!r}"
            )
    report.counts["records"] = due.records


def _record_bodies(trace: Trace) -> Iterator[bytes]:
    """The records before the end record, as bytes of the file, present or not."""
    if trace.file is not None:
        return (trace.file.body(number) for number in range(len(trace.file) - 1))
    return (encode(record, seq) for seq, record in enumerate(trace.records()) if not isinstance(record, End))
