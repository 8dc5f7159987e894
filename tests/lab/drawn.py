"""A page that holds only what the drawing module draws, for tests that look at it in a browser."""

from __future__ import annotations

import json
from typing import Any

from browser import DRAWN

from decodescope.engine.trace import Trace
from decodescope.lab.views.bundle import WEB, bundle
from decodescope.lab.wire.messages import messages
from decodescope.lab.wire.wire import encode

PAGE = """<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="/scope.css">
<body style="margin:0;background:var(--bg)"><input id="other"><div id="place" style="padding:16px"></div>
<script type="module">import * as S from "/scope.js"; window.S = S; window.place = document.getElementById("place");
window.asked = []; window.told = [];</script>"""


def answer(kind: str, body: str) -> Any:
    """A route that answers with this content."""
    return lambda route: route.fulfill(body=body, content_type=kind)


class Drawn:
    """The page; `troubles` collects the errors of its script."""

    def __init__(self, driver: Any, width: int = 1440, **more: Any):
        self.page = driver.new_context(viewport={"width": width, "height": 900}, **more).new_page()
        self.page.set_default_timeout(30_000)
        self.troubles: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        kept = {
            "": ("text/html", PAGE),
            "scope.js": ("text/javascript", bundle()),
            "scope.css": ("text/css", (WEB / "styles/scope.css").read_text(encoding="utf-8")),
        }
        for name, (kind, body) in kept.items():
            self.page.route(f"http://scope.test/{name}", answer(kind, body))
        self.page.goto("http://scope.test/")
        self.page.wait_for_function("() => !!window.told")

    def run(self, code: str, *given: Any) -> Any:
        """Evaluate a function of `given` on the page, wait until the page is drawn, and return the result."""
        made = self.page.evaluate(f"given => ({code})(...given)", list(given))
        self.settled()
        return made

    def settled(self) -> None:
        """Wait until everything requested is drawn: first the views, then the elements around them."""
        self.page.evaluate(DRAWN)

    def text(self, selector: str) -> str:
        """The text of the first of these elements."""
        return str(self.page.locator(selector).first.inner_text())

    def cells(self, rows: str) -> list[list[str]]:
        """The texts of the cells of these rows of a table, once they are drawn."""
        self.settled()
        return self.page.locator(rows).evaluate_all(
            "rows => rows.map((row) => Array.from(row.cells, (cell) => cell.textContent))"
        )

    def close(self) -> None:
        """Close the page; fail if it reported an error."""
        self.page.context.close()
        assert not self.troubles, self.troubles


def told(trace: Trace) -> list[dict[str, Any]]:
    """The messages of a trace, as they are after passing through the wire."""
    return json.loads(encode(list(messages(trace))))
