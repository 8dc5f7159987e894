"""Workload: the result of each request to an answer cache, by three eviction rules, and the savings of its hits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import accumulate
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from decodescope.engine.core.params import ParamError
from decodescope.engine.trace.records.lookups import EVICTS, Evicts, Lookup, Query, replay_lookups

from ..chart import ACCEPT, INK, MUTED, REJECT, TARGET, chart, text_label

WORDS = {"lec": "least expected cost", "gdsf": "GDSF", "lru": "LRU"}
LINES = {"lec": (ACCEPT, "solid"), "gdsf": (TARGET, "dash"), "lru": (MUTED, "dot")}
MARKS = {  # result of a request: colour, symbol, size
    "hit": (ACCEPT, "circle", 7),
    "answered": (INK, "circle-open", 7),
    "answered, others went": (REJECT, "x", 8),
    "answered, not kept": (REJECT, "x-open", 8),
}
GIGA = 1e9


def figure(
    given: Sequence[Lookup] | str | Path,
    capacity: int,
    evicts: Evicts = "lec",
    names: Mapping[Query, str] | None = None,
) -> go.Figure:
    """A row for each eviction rule and a mark for each request, and below it the savings of the hits so far.
    A mark is a hit, an answer, or an answer that evicted others. Hovering shows which answers were evicted, and why: how often
    each was requested, its cost, and the rule's score.

    given: the lookups of an `Answers`, or the file that `decodescope workload --out` wrote;  capacity, evicts: of that cache;
    the other rules are simulated on its requests;  names: of the queries. Raises ParamError for an invalid file.
    """
    lookups, named = (list(given), {}) if not isinstance(given, str | Path) else read_requests(Path(given))
    called = {**named, **(names or {})}
    every: dict[Evicts, Sequence[Lookup]] = {
        x: lookups if x == evicts else replay_lookups(lookups, x, capacity) for x in EVICTS
    }
    first = {x.query: x.cost for x in reversed(lookups) if not x.hit}
    marks: dict[str, list[tuple[int, str, str]]] = {kind: [] for kind in MARKS}
    for rule, done in every.items():
        for one, words in zip(done, describe_requests(done, rule, called), strict=True):
            marks[_mark_kind(one)].append((one.number, f"{WORDS[rule]}, {_hit_share(done)}", words))
    drawn = [
        go.Scatter(
            x=[x for x, _, _ in rows],
            y=[y for _, y, _ in rows],
            customdata=[words for _, _, words in rows],
            mode="markers",
            name=kind,
            marker=dict(color=MARKS[kind][0], symbol=MARKS[kind][1], size=MARKS[kind][2]),
            hovertemplate="%{customdata}<extra></extra>",
        )
        for kind, rows in marks.items()
    ]
    saved = [
        go.Scatter(
            x=[x.number for x in done],
            y=[*accumulate(first[x.query] / GIGA if x.hit else 0.0 for x in done)],
            name=f"saved, {WORDS[rule]}",
            mode="lines",
            line=dict(color=LINES[rule][0], dash=LINES[rule][1], shape="hv"),
            yaxis="y2",
            hovertemplate=WORDS[rule] + ": %{y:.3f} GFLOP saved up to request %{x}<extra></extra>",
        )
        for rule, done in every.items()
    ]
    drawing = chart(
        f"{len(lookups)} requests, a cache of {capacity}", "request", "", *drawn, *saved, height=520
    )
    axis = dict(drawing.layout["yaxis"].to_plotly_json())
    order = [f"{WORDS[rule]}, {_hit_share(done)}" for rule, done in reversed(every.items())]
    return drawing.update_layout(
        xaxis=dict(anchor="y2"),
        yaxis=dict(domain=[0.58, 1], categoryorder="array", categoryarray=order),
        yaxis2={**axis, "title": "saved, GFLOP", "domain": [0, 0.5], "rangemode": "tozero"},
        margin=dict(l=190, t=110),
    )


def describe_requests(
    lookups: Sequence[Lookup], evicts: Evicts, names: Mapping[Query, str] | None = None
) -> Iterator[str]:
    """For each request its result, and for each evicted answer the reason: the numbers in its score."""
    called = names or {}
    asked = Counter[Query]()
    since = Counter[Query]()
    costs: dict[Query, list[float]] = {}
    sizes: dict[Query, int] = {}
    for one in lookups:
        asked[one.query] += 1
        since[one.query] += 1
        if not one.hit:
            costs.setdefault(one.query, []).append(one.cost)
            sizes[one.query], since[one.query] = one.size, 1
        scores = dict(zip(one.held, one.scores, strict=True))
        lines = [f"request {one.number}: {_query_name(one.query, called)}"]
        lines.append(
            "held: no pass" if one.hit else f"answered for {one.cost / GIGA:.3f} GFLOP, size {one.size}"
        )
        for gone in one.victims:
            word = "not kept" if gone == one.query else f"{_query_name(gone, called)} went"
            if gone not in scores:
                lines.append(f"{word}: larger than the cache")
                continue
            paid = costs[gone]
            cost = (paid[-1] if evicts == "gdsf" and since[gone] == 1 else sum(paid) / len(paid)) / GIGA
            lines.append(
                f"{word}: {_explain_score(evicts, scores[gone], asked[gone], asked.total(), since[gone], cost, sizes[gone])}"
            )
        if scores:
            lines.append(f"the least of {len(scores)} that were weighed")
        yield "<br>".join(lines)


def _explain_score(
    evicts: Evicts, score: float, asked: int, total: int, since: int, cost: float, size: int
) -> str:
    """A score with its terms; costs in GFLOP."""
    if evicts == "lru":
        return f"last asked for at request {score:.0f}"
    if evicts == "lec":
        return f"{asked} of {total} requests × {cost:.3f} GFLOP = {score / GIGA:.4f}"
    clock = score / GIGA - since * cost / size
    return f"clock {abs(clock):.4f} + {since} × {cost:.3f} GFLOP / size {size} = {score / GIGA:.4f}"


def read_requests(path: Path) -> tuple[list[Lookup], dict[Query, str]]:
    """The requests that `decodescope workload --out` stored, and the names of its prompts. Raises ParamError."""
    wanted = {x.name for x in fields(Lookup)}
    lookups = []
    names = {}
    try:
        rows: list[Any] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise ParamError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        rows = []
    if not rows or not all(isinstance(x, dict) and wanted <= x.keys() for x in rows):
        raise ParamError(
            f"{path} holds no requests of decodescope workload --out: give the file that it wrote."
        )
    for said in rows:
        lookups.append(Lookup(**{key: said[key] for key in wanted}))
        names[lookups[-1].query] = str(said.get("name", lookups[-1].query))
    return lookups, names


def _mark_kind(one: Lookup) -> str:
    if one.hit:
        return "hit"
    if not one.victims:
        return "answered"
    return f"answered, {'not kept' if one.query in one.victims else 'others went'}"


def _hit_share(lookups: Sequence[Lookup]) -> str:
    return f"{sum(x.hit for x in lookups) / max(1, len(lookups)):.0%} hits"


def _query_name(query: Query, names: Mapping[Query, str]) -> str:
    text = names.get(query, query)
    return f"prompt {text}" if isinstance(text, int) else text_label(text, 32)
