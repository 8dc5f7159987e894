"""Reports: where the drafts of chosen runs were rejected, for the page: as tables, and as a file to download."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import Response

from decodescope.app.basis.refusal import RequestRefusal, sentence
from decodescope.app.runs.compare.batch import MOST, later_turns
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import GONE, RunService
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.trace import Trace, open_trace

from .library import FRESH, GOING, LARGEST

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from decodescope.lab.reports.oracle import OracleCurve
    from decodescope.lab.reports.report import AcceptanceReport


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes; refused(status, sentence) makes a refusal."""

    @api.get("/ds/report")
    def tables(runs: str = "") -> Response:
        def body(report: AcceptanceReport) -> bytes:
            return _encode_json(report_record(report))

        return answer(runs, body, "application/json", {})

    @api.get("/ds/report.html")
    def page(runs: str = "") -> Response:
        from decodescope.lab.reports.page import page as written

        def body(report: AcceptanceReport) -> bytes:
            return written(report).encode("utf-8", "replace")

        name = {"content-disposition": 'attachment; filename="decodescope-report.html"'}
        return answer(runs, body, "text/html; charset=utf-8", name)

    @api.get("/ds/report/changes")
    def changed(runs: str = "", others: str = "") -> Response:
        from decodescope.lab.reports.changes import change_tables
        from decodescope.lab.reports.oracle import oracle_curve
        from decodescope.lab.reports.tables import headline

        def two() -> bytes:
            first, second = (_build_report(play, find_finished_runs(play, x)) for x in (runs, others))
            leads = [headline(first)[:2], headline(second)[:2]]
            curve = oracle_curve([first, second])
            chart = speed_chart(first, None if isinstance(curve, str) else curve)
            compared = [asdict(x) for x in change_tables(first, second)]
            return _encode_json({"leads": leads, "tables": compared, "chart": chart})

        return guarded(two, "application/json", {})

    @api.get("/ds/plotly.js")
    def plotly(v: str = "") -> Response:
        kept = {"cache-control": "max-age=31536000, immutable"} if v else FRESH
        return Response(_plotly_script(), media_type="text/javascript", headers=kept)

    def answer(
        runs: str, body: Callable[[AcceptanceReport], bytes], kind: str, headers: dict[str, str]
    ) -> Response:
        return guarded(lambda: body(_build_report(play, find_finished_runs(play, runs))), kind, headers)

    def guarded(work: Callable[[], bytes], kind: str, headers: dict[str, str]) -> Response:
        try:
            page = work()
        except (ValueError, LookupError, ArithmeticError) as error:
            if isinstance(error, RequestRefusal):
                raise
            # a record from elsewhere may be well-formed and yet make no sense
            known = (
                sentence(error)
                if isinstance(error, Refusal)
                else "one of these traces holds what no run writes."
            )
            return refused(422, f"There is no report on this: {known}")
        return Response(page, media_type=kind, headers={**FRESH, **headers})


def find_finished_runs(play: RunService, runs: str) -> list[RecordStream]:
    """The runs of a question, ids with commas between them, all finished and not too large together. Raises RequestRefusal."""
    names = list(dict.fromkeys(x for x in runs.split(",") if x))
    if not 0 < len(names) <= MOST:
        raise RequestRefusal(f"A report is on 1 to {MOST} runs; {len(names)} were named.", 400)
    channels: list[RecordStream] = []
    for name in names:
        channel = play.find(name)
        if channel is None or not (channel.is_active or channel.path.is_file()):
            raise RequestRefusal(f"{GONE} Choose others above.", 404)
        if channel.is_active:
            raise RequestRefusal(GOING, 409)
        channels.append(channel)
    if sum(x.path.stat().st_size for x in channels) > LARGEST:
        raise RequestRefusal(f"The traces are larger than {LARGEST >> 20} MiB: use decodescope report.", 413)
    return channels


def _encode_json(data: Any) -> bytes:
    return json.dumps(data, allow_nan=False).encode("utf-8", "replace")


def _build_report(play: RunService, channels: list[RecordStream]) -> AcceptanceReport:
    from decodescope.lab.formatting.prompt_sentences import summarize_skipped_turns
    from decodescope.lab.reports.report import count_report

    tally = count_report(_open_traces(channels))
    later = later_turns(play.folder, [x.run for x in channels])
    tally.notes += [x for x in [summarize_skipped_turns(later)] if x]
    return tally


def _open_traces(channels: list[RecordStream]) -> Iterator[Trace]:
    for channel in channels:
        with closing(open_trace(channel.path)) as trace:
            yield trace


@cache
def _plotly_script() -> bytes:
    """The script that draws charts in a browser, as the installed library ships it."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).encode()


def speed_chart(report: AcceptanceReport, oracle: OracleCurve | None = None) -> dict[str, Any] | None:
    """The chart of speed by length in both colours, with the address of the library that draws it; None without times."""
    if not report.curve:
        return None
    from decodescope.lab.reports.figures import lengths

    return page_chart(lengths(report, oracle))


def page_chart(figure: Figure) -> dict[str, Any]:
    """A figure for the page in both colours, with the address of the library that draws it."""
    import plotly

    from decodescope.lab.figures.chart import themed_figures

    return {**themed_figures(figure), "library": f"ds/plotly.js?v={plotly.__version__}"}


def report_record(report: AcceptanceReport) -> dict[str, Any]:
    """The report as the page draws it: sentences, tables of words with bars, and the rejections one by one."""
    from decodescope.lab.formatting.tokens import visible_piece
    from decodescope.lab.reports.tables import doctor_sentence, headline, tables

    shown = [asdict(x) for x in tables(report)]
    if report.doctor:  # the page has a button beside the command
        said = doctor_sentence(report)
        shown = [{**x, "below": [y for y in x["below"] if y != said]} for x in shown]
    return {
        "lead": headline(report),
        "tables": shown,
        "doctor": report.doctor,
        "notes": report.notes,
        "chart": speed_chart(report),
        "speed": report.speed.sentences,
        "begins": report.begins,
        "deaths": [{**asdict(x), "before": visible_piece(x.before, 80)} for x in report.deaths],
        "died": report.fates["refused"],
    }
