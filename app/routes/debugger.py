"""Debugger: the routes of the Debugger page. Nodes are counted as on the wire: 0 is the root, drafted ones follow, the target's
own token is the last one.

GET  /ds/conditions                names of the language, of functions too, and how long a text may be; rules and ways to break
                                   ties that a what-if can ask for
POST /ds/conditions                {"text"}: whether it is a condition, and which names it reads; "watch": true, a figure
POST /ds/run/RUN/breaks            {"conditions": [...]}: those at which the run pauses; they take the place of all before
GET  /ds/run/RUN/find              ?condition=, from=, way=1|-1: the first step from there on (itself included) where it holds
                                   all=1: all of them, at most LISTED
GET  /ds/run/RUN/watch             ?expression=, from=, to=: a number of each step from <= i < to
POST /ds/run/RUN/whatif            {"step", "node", "u", "rule", "rule_settings", "temperature", "ties"}: the verdict derived
                                   again from the record, or {"kind": "rerun", "why"} where that takes a run
POST /ds/run/RUN/fork              {"step", "name", "change", "force"}: a run that repeats this one up to there, then goes on
                                   with the change (names, settings, seed, new as in a recipe; temperature, rule,
                                   rule_settings, drafter for short; instead: {"draft": key, KIND: key}, another draft model or
                                   other heads) and with verdicts forced, [{"node", "verdict":
                                   "accept" | "reject"}]; it need not wait for a run that is paused
GET  /ds/run/RUN/knobs             the knobs of its drafter with their values: what "drafter" of a change can say
GET  /ds/run/RUN/replacements      what "instead" of a change can name: {"draft": [{"key", "name"}, ...], "heads": [{"key",
                                   "name", "kind"}, ...]}
GET  /ds/run/RUN/branches          which run this one was forked off, and which ones off it

A search takes SEARCH_S seconds at most; then "more" is true and "next" says where to go on.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.responses import Response

from decodescope.app.basis.refusal import RequestRefusal, explain_error
from decodescope.app.http.body import read_json_body
from decodescope.app.runs.breakpoints import MOST, Breakpoints
from decodescope.app.runs.forks import ForkIndex, drafter_knobs, fork, list_replacements
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import RunService
from decodescope.engine.trace.query.condition_grammar import FUNCTIONS, LONGEST, ConditionError
from decodescope.engine.trace.query.conditions import Condition, ConditionResult
from decodescope.engine.trace.query.facts import FACTS
from decodescope.engine.trace.records.events import Step

from .hardware import answer_for_run, json_response
from .whatif import rules, whatif

# the answer of work on the run of that id
Of: TypeAlias = Callable[[str, Callable[[RecordStream], Any]], Awaitable[Response]]

BODY = 1 << 16  # bytes of a request
SEARCH_S = 5.0  # seconds of one answer
LISTED = 1000  # steps in one list
VALUES = 4096  # values of one watch
CHUNK = 256  # steps that are read at once
WATCHES = {
    "accepted": "mean(accepted)",
    "alpha": "alpha",
    "kl": "kl",
    "entropy": "entropy",
}  # names that a page watches to begin with -> how


def add(api: FastAPI, play: RunService, refused: Callable[[int, str], Response]) -> None:
    """Add the routes to the application; refused(status, sentence) makes a refusal."""

    async def of(run: str, work: Callable[[RecordStream], Any]) -> Response:
        return await answer_for_run(play, refused, run, work, "Nothing was derived from this record")

    _add_condition_routes(api, play, refused, of)
    _add_search_routes(api, refused, of)
    _add_whatif_routes(api, play, of)


def _add_condition_routes(
    api: FastAPI, play: RunService, refused: Callable[[int, str], Response], of: Of
) -> None:
    """Conditions: their vocabulary, whether a text is one, and those that stop a run."""

    @api.get("/ds/conditions")
    def names() -> Response:
        from decodescope.engine.session.replay.whatif import TIES

        return json_response(
            {"names": language_names(), "limit": LONGEST, "rules": rules(), "ties": list(TIES.items())}
        )

    @api.post("/ds/conditions")
    async def checked(request: Request) -> Response:
        body = await read_json_body(request, BODY)
        try:
            return json_response(
                {
                    "ok": True,
                    "reads": Condition(_text_field(body, "text"), number=body.get("watch") is True).reads,
                }
            )
        except ConditionError as error:
            return refused(422, explain_error(error))

    @api.post("/ds/run/{run}/breaks")
    async def breaks(run: str, request: Request) -> Response:
        texts = (await read_json_body(request, BODY)).get("conditions")
        if not isinstance(texts, list) or not all(isinstance(x, str) for x in texts):
            return refused(400, 'Send {"conditions": [...]}, a list of texts.')
        if len(texts) > MOST:
            return refused(
                422, f"{len(texts)} conditions were given; a run takes at most {MOST}: remove some."
            )
        return await of(run, lambda channel: {"conditions": set_breakpoints(play, channel, texts)})


def set_breakpoints(play: RunService, channel: RecordStream, texts: list[str]) -> list[str]:
    """Let a run pause where one of these conditions holds; none: nowhere. Raises RequestRefusal, ConditionError."""
    conditions = [Condition(x) for x in texts]
    if not channel.is_active:
        raise RequestRefusal("The run is over, so it cannot be paused: look for the condition in its record.")
    if channel.wire is not None:
        for one in conditions:
            one.check(channel.wire.header)
    play.pause_at(channel, Breakpoints(channel, conditions).hit if conditions else None)
    return [x.text for x in conditions]


def _add_search_routes(api: FastAPI, refused: Callable[[int, str], Response], of: Of) -> None:
    """Searches in a record, and watches over its steps."""

    @api.get("/ds/run/{run}/find")
    async def find(run: str, request: Request) -> Response:
        asked = request.query_params
        text = asked.get("condition", "")
        way = asked.get("way", "1")
        every = asked.get("all") == "1"
        if way not in ("1", "-1"):
            return refused(400, "way is 1, forward, or -1, backward.")

        def work(channel: RecordStream) -> dict[str, Any]:
            first = _int_param(asked.get("from"), "from", 0 if way == "1" else max(0, channel.count - 1))
            condition = Condition(text)
            return (
                find_all_hits(channel, condition)
                if every
                else find_nearest_hit(channel, condition, first, int(way))
            )

        return await of(run, work)

    @api.get("/ds/run/{run}/watch")
    async def watch(run: str, request: Request) -> Response:
        asked = request.query_params

        def work(channel: RecordStream) -> dict[str, Any]:
            first = _int_param(asked.get("from"), "from", 0)
            last = _int_param(asked.get("to"), "to", channel.count)
            if last < first:
                raise RequestRefusal(f"from = {first} lies behind to = {last}.")
            return step_values(
                channel, Condition(asked.get("expression", ""), number=True), first, min(last, first + VALUES)
            )

        return await of(run, work)


def _add_whatif_routes(api: FastAPI, play: RunService, of: Of) -> None:
    """What-if: decisions judged again, and runs that continue in another way."""
    branches = ForkIndex(play)

    @api.post("/ds/run/{run}/whatif")
    async def what(run: str, request: Request) -> Response:
        body = await read_json_body(request, BODY)
        return await of(run, lambda channel: whatif(play, channel, body))

    @api.post("/ds/run/{run}/fork")
    async def forked(run: str, request: Request) -> Response:
        body = await read_json_body(request, BODY)
        return await of(run, lambda channel: {"run": fork(play, channel, body).run})

    @api.get("/ds/run/{run}/knobs")
    async def knobs(run: str) -> Response:
        return await of(run, drafter_knobs)

    @api.get("/ds/run/{run}/replacements")
    async def replacements(run: str) -> Response:
        return await of(run, lambda channel: list_replacements(play, channel))

    @api.get("/ds/run/{run}/branches")
    async def known(run: str) -> Response:
        return await of(run, branches.relations)


def language_names() -> list[dict[str, Any]]:
    """The names of the language, as a page lists them; watch: the page's initial watch on it, or whether it can have one."""
    rows: list[dict[str, Any]] = [
        {"name": name, "meaning": x.meaning, "example": x.example, "kind": x.kind, "per": x.per}
        for name, x in FACTS.items()
    ]
    for row in rows:
        if row["name"] in WATCHES:
            row["watch"] = WATCHES[row["name"]]
    rows.append(
        {
            "name": "evicts position",
            "meaning": "This position left the target's cache.",
            "example": "evicts position 7",
        }
    )
    examples = {"any": "any(p < 0.1)", "all": "all(p > 0.5)", "count": "count(p < 0.1) >= 2"}
    rows += [
        {"name": f"{x}(…)", "meaning": meaning, "example": examples.get(x, f"{x}(accepted) > 2")}
        for x, meaning in FUNCTIONS.items()
    ]
    return rows


# ---- searching


def find_nearest_hit(channel: RecordStream, condition: Condition, first: int, way: int) -> dict[str, Any]:
    """The first step from `first` on, that one included, where the condition holds."""
    count = channel.count
    until = time.monotonic() + SEARCH_S
    searched = 0
    if way < 0:
        first = min(first, count - 1)
    best: tuple[Step, ConditionResult] | None = None
    last = first
    begin = 0 if condition.running and way <= 0 else first
    for step, hit in watch_steps(channel, condition, begin, way):
        if not condition.running or way > 0 or step.step <= first:
            searched += 1
        if hit.value is True and (step.step >= first if way > 0 else step.step <= first):
            best = (step, hit)
            if way > 0 or not condition.running:
                break
        if way < 0 and condition.running and step.step >= first:
            break
        last = step.step
        if time.monotonic() > until and not condition.running:
            return {**_no_hit(condition, searched), "more": True, "next": last + way}
    if best is None:
        return _no_hit(condition, searched)
    step, hit = best
    node = None if hit.node is None else hit.node + 1
    return {"step": step.step, "node": node, "why": hit.why, "searched": searched}


def _no_hit(condition: Condition, searched: int) -> dict[str, Any]:
    steps = f"{searched} step{'' if searched == 1 else 's'}"
    return {
        "step": None,
        "node": None,
        "why": f"In {steps}, {condition.text} holds nowhere.",
        "searched": searched,
    }


def find_all_hits(channel: RecordStream, condition: Condition) -> dict[str, Any]:
    """All steps where the condition holds: the first LISTED, and how many there are."""
    until = time.monotonic() + SEARCH_S
    count = 0
    searched = 0
    steps: list[int] = []
    for step, hit in watch_steps(channel, condition, 0, 1):
        searched += 1
        if hit.value is True:
            count += 1
            if len(steps) < LISTED:
                steps.append(step.step)
        if time.monotonic() > until:
            return {"steps": steps, "count": count, "searched": searched, "more": True, "next": step.step + 1}
    return {"steps": steps, "count": count, "searched": searched}


def step_values(channel: RecordStream, figure: Condition, first: int, last: int) -> dict[str, Any]:
    """The figure of each step first <= i < last; null where a step has none."""
    until, points = time.monotonic() + SEARCH_S, []
    for step, value in watch_steps(channel, figure, 0 if figure.running else first, 1):
        if step.step >= last:
            break
        if step.step >= first:
            points.append([step.step, value.value])
        if time.monotonic() > until:
            return {"values": points, "more": True, "next": step.step + 1}
    return {"values": points}


def watch_steps(
    channel: RecordStream, condition: Condition, first: int, way: int
) -> Iterator[tuple[Step, ConditionResult]]:
    """The steps from `first` on in that direction, each with the condition's result.
    A search in a running run begins at 0 and goes forward."""
    if channel.wire is None:
        return
    watch = condition.watch_run(channel.wire.header)
    pieces = channel.wire.pieces
    count = channel.count
    at, way = (0, 1) if condition.running else (first, way)
    while 0 <= at < count:
        chunk = (
            channel.steps(at, at + CHUNK) if way > 0 else channel.steps(max(0, at + 1 - CHUNK), at + 1)[::-1]
        )
        for step in chunk:
            yield step, watch.see(step, pieces)
        if not chunk:
            return
        at = chunk[-1].step + way


def _int_param(text: str | None, name: str, default: int) -> int:
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise RequestRefusal(f"{name} = {text[:20]!r} is no whole number from 0.")
    return int(text)


def _text_field(body: dict[str, Any], name: str) -> str:
    text = body.get(name)
    if not isinstance(text, str):
        raise RequestRefusal(f'Send {{"{name}": ...}}, a text.')
    return text
