"""`decodescope gallery`: what it writes, what it refuses, and its pages in a browser, from disk and from a plain server."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from sizes import first_of

from decodescope.app.cli import main
from decodescope.app.runs.catalogue.examples import examples, shipped_examples
from decodescope.app.runs.catalogue.families import PLAIN, family, family_titles
from decodescope.app.runs.catalogue.tours import tours
from decodescope.engine.trace import open_trace

Said = Callable[..., tuple[int, str, str]]
MIB = 1 << 20
SHOWN = "document.querySelector('.ds-tour .count')?.textContent"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gallery of the shipped examples."""
    out = tmp_path_factory.mktemp("pages") / "gallery"
    assert main(["gallery", str(out)]) == 0
    return out


class Links(HTMLParser):
    """The addresses that a page names in href and src."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.named: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.named += [value or "" for name, value in attrs if name in ("href", "src")]


# ---- what is written


@pytest.mark.nightly
def test_the_gallery_of_the_examples_is_small_and_has_them_all(folder: Path) -> None:
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 12 * MIB and max(sizes.values()) < 1.5 * MIB
    assert {path.stem for path in folder.glob("*.html")} == {"index", *(x.name for x in examples())}
    scripts = [path for path in sizes if path.suffix not in (".html", ".css")]
    assert {path.parent.name for path in scripts} == {"web"}, "scripts are shared, not repeated in pages"
    assert sum("function mount(" in path.read_text(encoding="utf-8") for path in sizes) == 1


def test_every_link_leads_into_the_folder(folder: Path) -> None:
    count = 0
    for page in folder.glob("*.html"):
        for link in Links(page.read_text(encoding="utf-8")).named:
            name = link.partition("#")[0]
            assert "/" not in name.removeprefix("web/") and ":" not in name, link
            assert (folder / (name or page.name)).is_file(), link
            count += 1
    assert count > 60
    for path in folder.glob("web/*"):
        assert "http" not in path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_every_run_has_a_family_and_families_stand_in_their_order(folder: Path) -> None:
    titles = []
    for example in examples():
        trace = open_trace(example.path)
        titles.append(family(trace.header).title)
        trace.close()
    assert titles.count(PLAIN.title) == 1, "a text that goes round, by the model alone"
    assert set(titles) <= set(family_titles()) and len(set(titles)) >= 8
    text = (folder / "index.html").read_text(encoding="utf-8")
    places = [text.index(f"<h2>{title}</h2>") for title in family_titles() if title in titles]
    assert places == sorted(places)


def test_a_run_of_one_s_own_has_a_page_beside_examples(said: Said, tmp_path: Path) -> None:
    own = tmp_path / "My run <1>.dstrace"
    own.write_bytes(shipped_examples()[0].path.read_bytes())
    code, out, err = said("gallery", str(tmp_path / "out"), str(own), "h2o", "h2o", "--json")
    made = json.loads(out)
    assert code == 0 and made["pages"] == ["first-rejection", "h2o"], "a copy of an example is that example"
    assert made["left_out"] == {} and "twice" in err


# ---- what is refused


def test_a_folder_that_holds_something_is_refused_and_left_alone(said: Said, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    code, out, err = said("gallery", str(tmp_path))
    assert code == 2 and out == "" and err.count("\n") == 1 and "not empty" in err
    assert [x.name for x in tmp_path.iterdir()] == ["mine.txt"]
    assert said("gallery", str(tmp_path / "mine.txt"))[0] == 2
    assert said("gallery", str(tmp_path / "no" / "folder"))[0] == 2


def test_a_name_that_is_no_trace_is_refused_before_anything_is_written(said: Said, tmp_path: Path) -> None:
    code, out, err = said("gallery", str(tmp_path / "out"), "h2o", "nothing-there")
    assert (
        code == 2
        and out == ""
        and err.count("\n") == 1
        and "nothing-there" in err
        and "first-rejection" in err
    )
    assert not (tmp_path / "out").exists()


def test_a_damaged_trace_is_left_out_or_cut_and_the_others_are_written(said: Said, tmp_path: Path) -> None:
    data = shipped_examples()[0].path.read_bytes()
    for name, content in (("torn", b"no trace"), ("cut", data[: len(data) // 2])):
        (tmp_path / f"{name}.dstrace").write_bytes(content)
    torn, cut = (str(tmp_path / f"{name}.dstrace") for name in ("torn", "cut"))
    code, out, err = said("gallery", str(tmp_path / "out"), torn, cut, "jacobi")
    assert code == 1 and "2 runs" in out
    assert next(x for x in err.splitlines() if x.startswith("Left out:")).startswith(f"Left out: {torn}")
    assert f"{cut} is damaged" in err
    page = (tmp_path / "out" / "first-rejection.html").read_text(encoding="utf-8")
    assert '<p class="damage">' in page and "jacobi.html" in page
    code, out, err = said("gallery", str(tmp_path / "none"), torn)
    assert code == 2 and err.count("\n") == 1 and torn in err and not (tmp_path / "none").exists()


# ---- in the browser


@pytest.fixture(scope="module", params=first_of("server", "disk"))
def base(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The address of the gallery: on disk, and on a server that only serves files."""
    if request.param == "disk":
        yield folder.as_uri()
        return
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(20)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """The standard library's file server, without its log."""

    def log_message(self, *words: Any) -> None:
        """Log nothing."""


class Visit:
    """A visitor of the gallery; records the requests and the errors."""

    def __init__(self, driver: Any, base: str, width: int, **settings: Any):
        self.base = base
        self.asked: list[str] = []
        self.troubles: list[str] = []
        settings = {"viewport": {"width": width, "height": 900}, "reduced_motion": "reduce", **settings}
        self.context = driver.new_context(**settings)
        self.page = self.context.new_page()
        self.page.on("request", lambda x: self.asked.append(x.url))
        self.page.on("requestfailed", lambda x: self.troubles.append(x.url))
        self.page.on("console", lambda x: self.troubles.append(x.text))
        self.page.on("pageerror", lambda x: self.troubles.append(str(x)))

    def open(self, name: str) -> Any:
        self.page.goto(f"{self.base}/{name}")
        return self.page

    def close(self) -> None:
        self.context.close()
        # a browser requests this file by itself
        asked = [x for x in self.asked if not x.endswith("/favicon.ico")]
        assert asked and all(unquote(x).startswith(unquote(self.base) + "/") for x in asked), asked
        assert not [x for x in self.troubles if "favicon" not in x], self.troubles


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.parametrize("width", first_of(390, 1440))
def test_from_the_index_to_a_run_and_through_its_tour_by_keyboard(driver: Any, base: str, width: int) -> None:
    example = shipped_examples()[0]
    stops = tours()[example.name]
    visit = Visit(driver, base, width)
    page = visit.open("index.html")
    assert page.locator("[data-find]:visible").count() == len(examples())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("link", name=example.title).first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".ds .node:visible")
    for part in (".stations", ".tree", ".decision", ".text-pane", ".cache-pane", ".time-pane", ".roof-pane"):
        assert page.locator(f".ds {part}").first.is_visible(), part
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.focus(".ds-tour button:visible")
    page.keyboard.press("Enter")
    for i, stop in enumerate(stops):
        page.wait_for_function(f"{SHOWN} == '{i + 1} of {len(stops)}'")
        page.wait_for_selector(f".ds h1:text-is('Step {stop.step}')")
        page.wait_for_selector(f'.ds .node[data-node="{stop.node}"][aria-selected=true]')
        assert stop.text in page.inner_text(".ds-tour")
        assert page.evaluate("location.hash") == f"#step={stop.step}&node={stop.node}"
        assert page.evaluate("document.activeElement.matches('.ds-tour .go')"), "the next press leads on"
        page.keyboard.press("Enter")
    page.wait_for_selector(".ds-tour .stop", state="hidden")
    visit.close()


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.nightly
def test_an_address_leads_to_a_step_and_a_node(driver: Any, base: str) -> None:
    visit = Visit(driver, base, 1440)
    page = visit.open("first-rejection.html#step=17&node=2")
    page.wait_for_selector(".ds h1:text-is('Step 17')")
    page.wait_for_selector('.ds .node[data-node="2"][aria-selected=true]')
    page.evaluate("location.hash = '#step=5'")
    page.wait_for_selector(".ds h1:text-is('Step 5')")
    page.locator(".ds").press("ArrowRight")
    page.wait_for_function("location.hash == '#step=6'")
    page.evaluate("location.hash = '#step=900'")  # the run has no such step
    page.evaluate("location.hash = '#step=7'")
    page.wait_for_selector(".ds h1:text-is('Step 7')")
    page.click(".stops summary")
    page.click(".stops li:nth-child(5) a")
    page.wait_for_selector(".ds h1:text-is('Step 2')")
    visit.close()


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.nightly
def test_the_search_finds_by_idea_and_is_kept_in_the_address(driver: Any, base: str) -> None:
    visit = Visit(driver, base, 390)
    page = visit.open("index.html")
    page.keyboard.press("/")
    page.keyboard.type("Residual temperature")
    page.wait_for_function("location.hash == '#find=Residual%20temperature'")
    left = page.locator("[data-find]:visible")
    assert 0 < left.count() < len(examples()) and "First rejection" in left.all_inner_texts()[0]
    assert page.locator(".family:visible").count() < page.locator(".family").count()
    page.reload()
    assert page.input_value("#find") == "Residual temperature" and left.count() < len(examples())
    page.fill("#find", "no such word anywhere")
    page.wait_for_selector("#none:text('No run has all of these words.')")
    page.evaluate("location.hash = '#find=%E0%A4%A'")  # not valid text
    page.wait_for_function("document.getElementById('find').value === ''")
    visit.close()


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.nightly
def test_light_and_dark_follow_the_system_until_they_are_chosen(driver: Any, base: str) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    visit = Visit(driver, base, 1440, color_scheme="dark")
    page = visit.open("jacobi.html")
    page.wait_for_selector(".ds[data-theme=dark] .node:visible")
    assert page.evaluate(ground) == "rgb(20, 23, 28)"
    page.click("#theme")
    page.wait_for_selector(".ds[data-theme=light]")
    page.reload()
    page.wait_for_selector(".ds[data-theme=light] .node:visible")
    page.click(".brand")
    page.wait_for_selector("#find")
    assert page.evaluate(ground) == "rgb(255, 255, 255)", "the choice holds on every page"
    visit.close()


SEEN = "[...document.querySelectorAll('.thumbnail')].map((x) => [...x.querySelectorAll('.frame')].filter((f) => %s).length)"
VISIBLE = SEEN % "getComputedStyle(f).visibility === 'visible'"


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
@pytest.mark.nightly
def test_thumbnails_move_unless_that_is_not_wanted(driver: Any, base: str) -> None:
    visit = Visit(driver, base, 1440)
    page = visit.open("index.html")
    assert (
        page.evaluate(f"{VISIBLE}.every((n) => n === 1)")
        and page.evaluate("document.getAnimations().length") == 0
    )
    visit.close()
    visit = Visit(driver, base, 1440, reduced_motion="no-preference")
    page = visit.open("index.html")
    assert page.evaluate("document.getAnimations().length") > 40
    seen = set()
    for at in (600, 1800, 9000, 9600 + 600):  # ms; a picture shows one frame at any time
        page.evaluate("at => document.getAnimations().forEach((x) => { x.pause(); x.currentTime = at; })", at)
        assert page.evaluate(f"{VISIBLE}.every((n) => n === 1)"), at
        seen.add(page.evaluate("document.querySelector('.thumbnail .f0') && getComputedStyle("
                               "document.querySelector('.thumbnail .f0')).visibility"))  # fmt: skip
    assert seen == {"visible", "hidden"}
    page.click("#moving")
    assert (
        page.evaluate(f"{VISIBLE}.every((n) => n === 1)")
        and page.evaluate("document.getAnimations().length") == 0
    )
    visit.close()
