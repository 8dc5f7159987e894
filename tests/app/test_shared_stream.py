"""All tabs of a browser share one event stream.

A browser keeps six connections to a server. Tabs may come and go, be closed without a word, or fall behind: none of them takes
the connection of a request, and none loses an event or gets one twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from browser import LONG, STEP, Lab, served
from toylab import speculative, toy_play
from waiting import eventually

from decodescope.app.http.guard import Guard
from decodescope.app.page.head import MARK
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.server import build_app

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
TABS = 8  # more than a browser has connections
MOST = {"shared": 1, "own": 3}  # streams of one browser
UNSHARED = "delete window.SharedWorker"
# a hidden tab: Playwright shows all of them
HIDE = """(state) => {
  Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
FOLLOW = """async ([run, after, mark]) => {
  document.head.append(Object.assign(document.createElement("meta"), { name: "decodescope-events", content: mark }));
  const { follow } = await import("/ds/web/events/follow.js");
  const heard = (window.heard = { head: [], step: [], state: [], end: [], lost: [], gone: [] });
  const takes = Object.fromEntries(Object.keys(heard).map((kind) => [kind, (x) => heard[kind].push(x)]));
  window.leave = follow(run, after, takes);
}"""
STEPS = "heard.step.map((step) => step.i)"
# a hub whose server answers at once, and what it asks that server; connect() makes a tab
HUB = """async () => {
  const { createHub } = await import("/ds/web/events/hub.js"), sources = (window.sources = []), asked = (window.asked = []);
  window.EventSource = class extends EventTarget {
    constructor() { super(); sources.push(this); setTimeout(() => this.say("ready", JSON.stringify({ stream: "s" }))); }
    close() { this.closed = true; }
    say(kind, data, lastEventId = "") { this.dispatchEvent(new MessageEvent(kind, { data, lastEventId })); }
  };
  window.fetch = async (_, { body }) => (asked.push(JSON.parse(body)), { ok: true });
  const hub = (window.hub = createHub(location.origin + "/ds/"));
  window.connect = () => { const tab = { got: [] }; tab.take = hub.connect((x) => tab.got.push(x)); return tab; };
}"""


class Watched:
    """An application that counts the open event streams, and can cut them off."""

    def __init__(self, app: Any):
        self.app, self.cut = app, False
        self.open = self.most = 0
        self.tasks: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()

    def check(self, sharing: str) -> None:
        """The tabs of one browser have no more streams than they may. The server may notice late that one is closed."""
        eventually(lambda: self.open <= MOST[sharing], "a browser has too many streams")
        assert 1 <= self.most < TABS and (sharing == "own" or self.most == 1)

    def cut_off(self) -> None:
        """End all streams, and refuse others until `cut` is false."""
        self.cut = True
        for loop, task in [*self.tasks]:
            loop.call_soon_threadsafe(task.cancel)
        self.tasks.clear()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") != "/ds/events":
            return await self.app(scope, receive, send)

        if self.cut:  # as a proxy whose server is away
            await send({"type": "http.response.start", "status": 502, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return None

        self.open += 1
        self.most = max(self.most, self.open)
        try:
            task = asyncio.ensure_future(self.app(scope, receive, send))
            self.tasks.add((asyncio.get_running_loop(), task))
            await asyncio.wait([task])
        finally:
            self.open -= 1


@pytest.fixture(scope="module")
def lab(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose event streams are counted and can be cut off."""
    play = toy_play(tmp_path_factory.mktemp("traces"))
    watched = Watched(build_app(play))
    with served(lambda port: Guard(watched, port)) as address:
        made = Lab(driver, address, play)
        made.watched = watched  # type: ignore[attr-defined] # only the lab of this file has it
        yield made
        play.close()
    assert not made.troubles, made.troubles


@pytest.fixture
def watched(paused: Lab) -> Watched:
    """What counts the streams, from zero."""
    found: Watched = paused.watched  # type: ignore[attr-defined] # only the lab of this file has it
    eventually(lambda: found.open == 0, "a stream of an earlier test is still open")
    found.most = 0
    return found


class Tabs:
    """The tabs of one browser, without the page around the script that they share."""

    def __init__(self, lab: Lab, sharing: str):
        self.address = lab.address + "/ds/limits"
        self.context = lab.driver.new_context()
        self.context.set_default_timeout(LONG)
        self.sharing = sharing
        if sharing == "own":
            self.context.add_init_script(UNSHARED)

    def open(self) -> Any:
        page = self.context.new_page()
        page.goto(self.address)
        return page

    def follow(self, channel: RecordStream, after: int = -1) -> Any:
        """A tab that follows the run."""
        page = self.open()
        page.evaluate(FOLLOW, [channel.run, after, MARK])
        return page


@pytest.fixture(params=["shared", "own"])
def tabs(paused: Lab, request: pytest.FixtureRequest) -> Iterator[Tabs]:
    """Tabs with and without a worker that they share."""
    made = Tabs(paused, request.param)
    yield made
    made.context.close()


def stepped(lab: Lab, channel: RecordStream, times: int) -> None:
    """Let a paused run make so many steps."""
    for _ in range(times):
        made = channel.count
        lab.play.act(channel, "step")
        eventually(lambda: channel.count > made, "the run makes no step")  # noqa: B023 # called at once


def arrived(page: Any, channel: RecordStream) -> None:
    """Wait until the newest step of the run is in the tab."""
    page.wait_for_function("(i) => heard.step.at(-1)?.i === i", arg=channel.count - 1)


def test_eight_tabs_follow_one_run_and_a_request_is_answered(
    paused: Lab, tabs: Tabs, watched: Watched
) -> None:
    channel = paused.play.start(speculative(max_new=100))
    stepped(paused, channel, 2)
    pages = [tabs.follow(channel) for _ in range(TABS)]
    for page in pages:
        arrived(page, channel)
    stepped(paused, channel, 3)
    for page in pages:
        arrived(page, channel)
    watched.check(tabs.sharing)
    stop = "(run) => fetch(`/ds/run/${run}/stop`, { method: 'POST' }).then((answer) => answer.status)"
    assert pages[-1].evaluate(stop, channel.run) == 200
    for page in pages:
        page.wait_for_function("heard.end.length")
    stored = RecordStream.from_trace(channel.run, channel.path)
    recorded = [step["made"] for step in json.loads(stored.range(0, channel.count))["steps"]]
    stored.close()
    for page in pages:
        heard = page.evaluate("heard")
        assert [step["i"] for step in heard["step"]] == list(range(channel.count))
        assert [step["made"] for step in heard["step"]] == recorded, "as the file has them"
        assert len(heard["head"]) == len(heard["end"]) == 1 and not heard["lost"] and not heard["gone"]
        assert heard["end"][0]["reason"] == "stopped_by_user"


def test_no_event_is_lost_or_doubled_while_tabs_come_and_go_and_the_stream_breaks(
    paused: Lab, tabs: Tabs, watched: Watched
) -> None:
    channel = paused.play.start(speculative(max_new=100))
    stepped(paused, channel, 2)
    stays = tabs.follow(channel)
    arrived(stays, channel)
    goes = tabs.follow(channel)
    arrived(goes, channel)
    before = channel.count
    goes.close()
    stepped(paused, channel, 2)
    late = tabs.follow(channel, before - 1)  # a tab that has the steps up to here
    stepped(paused, channel, 1)
    arrived(late, channel)
    watched.cut_off()
    stepped(paused, channel, 2)
    for page in (stays, late):
        page.wait_for_function("heard.lost.length")
    watched.cut = False
    stepped(paused, channel, 1)
    for page, first in ((stays, 0), (late, before)):
        arrived(page, channel)
        assert page.evaluate(STEPS) == list(range(first, channel.count))
        assert page.evaluate("heard.lost[0]").startswith("reconnecting, last step ")
        assert page.evaluate("heard.head.length") == 1
    stays.evaluate("leave()")
    late.close()
    eventually(lambda: channel.readers == 0, "runs that nobody follows are still read")
    paused.play.act(channel, "stop")
    gone = tabs.open()
    gone.evaluate(FOLLOW, ["0" * 16, -1, MARK])
    gone.wait_for_function("heard.gone[0] === 'This run is not here any more.'")


@pytest.mark.parametrize("tabs", ["own"], indirect=True)
def test_a_hidden_tab_without_a_shared_worker_has_no_stream_and_catches_up(
    paused: Lab, tabs: Tabs, watched: Watched
) -> None:
    channel = paused.play.start(speculative(max_new=100))
    stepped(paused, channel, 1)
    page = tabs.follow(channel)
    arrived(page, channel)
    page.evaluate(HIDE, "hidden")
    eventually(lambda: watched.open == 0, "the stream of a hidden tab is open")
    stepped(paused, channel, 3)
    page.evaluate(HIDE, "visible")
    arrived(page, channel)
    assert page.evaluate(STEPS) == list(range(channel.count))


@pytest.mark.parametrize("tabs", ["shared"], indirect=True)
def test_a_tab_that_dies_or_does_not_read_leaves_the_stream(tabs: Tabs) -> None:
    """The hub of the worker, with a server and tabs that the test plays."""
    page = tabs.open()
    page.evaluate(HUB)
    page.evaluate(
        """() => { window.a = connect(); window.b = connect();
        for (const [tab, run] of [[a, "r"], [b, "s"]]) tab.take({ kind: "follow", key: 1, run, after: -1, brief: false }); }"""
    )
    page.wait_for_function("asked.length === 1")
    assert [x["run"] for x in page.evaluate("asked[0].add")] == ["r", "s"]
    page.evaluate("() => { for (let k = 0; k < 31; k++) { a.take({ kind: 'here' }); hub.beat(); } }")
    page.wait_for_function("asked.length === 2")
    assert page.evaluate("asked[1]") == {"add": [], "drop": ["2"]}, "the silent tab"
    page.evaluate("b.take({ kind: 'here' })")
    assert page.evaluate("b.got.at(-1).kind") == "again", "it is told to connect again"
    page.evaluate(
        "() => { for (let i = 0; i < 10; i++) sources[0].say('step', ' '.repeat(1 << 20), `1:${i}`); }"
    )
    page.wait_for_function("asked.length === 3")
    got = page.evaluate("a.got.filter((x) => x.kind === 'step').length")
    assert got < 10 and page.evaluate("asked[2]") == {"add": [], "drop": ["1"]}, "a tab that reads nothing"
    page.evaluate("a.take({ kind: 'read', read: 8 << 20 })")
    page.wait_for_function("asked.length === 4")
    assert page.evaluate("asked[3].add") == [{"name": "3", "run": "r", "after": got - 1, "brief": False}]
    page.evaluate("sources[0].say('step', '{}', '1:99')")
    assert page.evaluate("a.got.filter((x) => x.kind === 'step').length") == got, "nothing under the old name"
    page.evaluate("() => { a.take({ kind: 'bye' }); }")
    assert page.evaluate("sources.at(-1).closed"), "a stream without tabs"


@pytest.mark.parametrize("tabs", ["shared"], indirect=True)
@pytest.mark.parametrize("fault", ["does not answer", "does not load", "is forbidden"])
def test_a_tab_whose_shared_worker_fails_has_a_stream_of_its_own(
    paused: Lab, tabs: Tabs, fault: str, watched: Watched
) -> None:
    begin = {
        "does not answer": "const port = { postMessage() {}, close() {} }; this.port = port;",
        "does not load": "this.port = { postMessage() {}, close() {} }; setTimeout(() => this.onerror({}));",
        "is forbidden": "throw new DOMException('no', 'SecurityError');",
    }[fault]
    tabs.context.add_init_script(
        f"window.SharedWorker = class {{ constructor() {{ {begin} }} }};"
        "const every = setInterval; window.setInterval = (call, ms) => every(call, ms / 50);"
    )
    channel = paused.play.start(speculative(max_new=100))
    stepped(paused, channel, 2)
    page = tabs.follow(channel)
    arrived(page, channel)
    assert page.evaluate(STEPS) == list(range(channel.count)) and watched.open == 1


def workers(lab: Lab) -> list[str]:
    """The addresses of the shared workers that run."""
    session = lab.driver.new_browser_cdp_session()
    targets = session.send("Target.getTargets", {"filter": [{}]})["targetInfos"]
    session.detach()
    return [x["url"] for x in targets if x["type"] == "shared_worker" and x["url"].startswith(lab.address)]


def nightly(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.nightly)


@pytest.mark.parametrize(("sharing", "whole"), [("shared", 2), nightly("shared", TABS), nightly("own", TABS)])
def test_eight_tabs_of_one_browser_show_a_run_and_see_its_stop(
    paused: Lab, watched: Watched, sharing: str, whole: int
) -> None:
    """whole: so many of them are the page; the others follow the run without the page around it, which costs less."""
    channel = paused.play.start(speculative(max_new=100))
    stepped(paused, channel, 3)
    first = paused.open("/ds/limits", ready=False)
    if sharing == "own":
        first.context.add_init_script(UNSHARED)
    parts = [first.context.new_page() for _ in range(TABS - whole)]
    pages = [first, *(first.context.new_page() for _ in range(whole - 1))]
    for page in parts:
        page.goto(paused.address + "/ds/limits")
        page.evaluate(FOLLOW, [channel.run, -1, MARK])
    for page in pages:
        page.set_default_timeout(LONG)
        page.goto(f"{paused.address}/#run={channel.run}")
    for page in pages:
        page.wait_for_function(f"{STEP} == {channel.count - 1}")
    watched.check(sharing)
    paused.ready(pages[-1])
    if sharing == "shared":
        assert workers(paused) == [f"{paused.address}/ds/web/events/worker.js?{MARK}"]
    pages[-1].click(".ds-button.stop")
    for page in pages:
        page.wait_for_selector(".ds .outcome >> text=Stopped.")
    for page in parts:
        page.wait_for_function("heard.end[0]?.reason === 'stopped_by_user'")
    first.context.close()
    eventually(lambda: channel.readers == 0 and watched.open == 0, "tabs that are closed still hold a stream")
