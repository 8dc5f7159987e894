"""One stream a browser: runs join it and leave it while it is sent, and each run's events come once."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.testclient import TestClient
from toylab import finished
from waiting import awaited

from decodescope.app.runs import browser_streams
from decodescope.app.runs.browser_streams import BrowserStreams, Subscription, parse_changes
from decodescope.app.runs.event_stream import EventReader
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import GONE, RunService

EVENT = re.compile(rb"^event: (\w+)\n(?:id: (\d+):(\d*)\n)?data: (.*)$", re.MULTILINE)


class Reading:
    """A browser that reads its stream. events: (kind, name, number, data) of each"""

    def __init__(self, streams: BrowserStreams):
        self.streams, self.name = streams, ""
        self.events: list[tuple[str, str, int, Any]] = []
        self._parts: AsyncIterator[bytes] = streams.open()

    async def until(self, kind: str, name: str = "") -> None:
        """Read until that event has come."""
        while not any(x[:2] == (kind, name) for x in self.events):
            part = await anext(self._parts)
            for found, of, number, data in EVENT.findall(part):
                at = int(number) if number else -1
                self.events.append((found.decode(), of.decode(), at, json.loads(data)))
        if kind == "ready":
            self.name = self.events[-1][3]["stream"]

    def steps(self, name: str) -> list[int]:
        return [number for kind, of, number, _ in self.events if (kind, of) == ("step", name)]

    def change(self, *add: tuple[str, RecordStream | None, int], drop: tuple[str, ...] = ()) -> None:
        added = [(Subscription(name, "", after, name == "7"), channel) for name, channel, after in add]
        self.streams.change(self.name, added, drop)

    async def close(self) -> None:
        await self._parts.aclose()  # type: ignore[attr-defined] # a generator


def test_runs_join_and_leave_a_stream_that_goes_on(play: RunService) -> None:
    a, b = finished(play), finished(play, max_new=12)

    async def read() -> Reading:
        one = Reading(BrowserStreams(play.runs_ahead))
        await one.until("ready")
        one.change(("1", a, -1))
        await one.until("end", "1")
        one.change(("2", b, 1), ("7", a, -1), ("8", None, -1))
        await one.until("end", "7")
        await one.until("end", "2")
        assert a.readers == b.readers == 0, "a run that has ended has no reader in a stream that goes on"
        await one.close()
        return one

    one = awaited(read())
    assert one.steps("1") == one.steps("7") == list(range(a.count)) and one.steps("2") == list(
        range(2, b.count)
    )
    assert ("gone", "8", -1, {"error": GONE}) in one.events
    whole = {of: [x for k, n, _, x in one.events if (k, n) == ("step", of)][-1] for of in ("1", "7")}
    assert whole["1"].keys() & {"laws", "passes"} and not whole["7"].keys() & {"laws", "passes"}


def test_a_dropped_run_sends_nothing_more_and_its_reader_is_free(play: RunService) -> None:
    waiting = RecordStream("f" * 16, play.folder / "f.dstrace")  # a run that never begins
    waiting.job = type("Job", (), {"status": "paused"})()

    async def read() -> None:
        one = Reading(BrowserStreams(play.runs_ahead))
        await one.until("ready")
        one.change(("1", waiting, -1), ("2", waiting, -1))
        await one.until("state", "2")
        assert waiting.readers == 2
        one.change(drop=("1", "99"))
        assert waiting.readers == 1
        one.change(("2", waiting, -1))
        assert waiting.readers == 1, "a name has one reader"
        await one.close()
        assert waiting.readers == 0, "a stream that is closed has none"

    awaited(read())


def test_a_run_that_cannot_be_read_leaves_the_stream_to_the_others(
    play: RunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = finished(play), finished(play, max_new=12)
    events = EventReader.new_events

    def failing(self: EventReader) -> list[bytes]:
        if self.channel is bad:
            raise OSError("the disk is gone")
        return events(self)

    monkeypatch.setattr(EventReader, "new_events", failing)

    async def read() -> Reading:
        one = Reading(BrowserStreams(play.runs_ahead))
        await one.until("ready")
        one.change(("1", bad, -1), ("2", good, -1))
        await one.until("end", "2")
        await one.close()
        return one

    one = awaited(read())
    (error,) = [data["error"] for kind, of, _, data in one.events if (kind, of) == ("gone", "1")]
    assert error == "The steps of this run cannot be read (OSError): load the page again."
    assert one.steps("2") == list(range(good.count)) and bad.readers == 0


def test_more_runs_than_the_limit_are_refused_one_by_one(
    play: RunService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_streams, "MOST_READERS", 2)
    waiting = RecordStream("f" * 16, play.folder / "f.dstrace")
    waiting.job = type("Job", (), {"status": "paused"})()

    async def read() -> None:
        streams = BrowserStreams(play.runs_ahead)
        one, other = Reading(streams), Reading(streams)
        for reading in (one, other):
            await reading.until("ready")
        one.change(("1", waiting, -1))
        other.change(("1", waiting, -1), ("2", waiting, -1))
        await other.until("full", "2")
        await other.until("state", "1")
        full = "2 runs are being watched, which is the limit: close a page."
        assert ("full", "2", -1, {"error": full}) in other.events
        await one.close()
        other.change(("3", waiting, -1))
        await other.until("state", "3")
        await other.close()

    awaited(read())


def test_a_request_that_names_no_runs_or_no_stream_is_refused(client: TestClient) -> None:
    answer = client.post("/ds/events/0123", json={"add": []})
    assert answer.status_code == 404 and answer.json()["error"] == "This stream is closed: open another one."
    fine = {"name": "1", "run": "0" * 16, "after": -1, "brief": False}
    assert parse_changes({"add": [fine], "drop": ["2"]}) == ([Subscription("1", "0" * 16, -1, False)], ["2"])
    for bad in (
        {"add": 1},
        {"drop": [1]},
        {"drop": ["x"]},
        {"add": ["1"]},
        {"add": [fine] * 2000},
        *({"add": [{**fine, key: value}]} for key, value in (("name", "1:2"), ("name", "²"), ("run", 1))),
        *({"add": [{**fine, "after": value}]} for value in (-2, 1.5, True, "1", 10**11)),
        {"add": [{**fine, "brief": 1}]},
    ):
        with pytest.raises(ValueError, match=r"^Send "):
            parse_changes(bad)
