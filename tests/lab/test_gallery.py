"""The gallery's pages: their content, a trace's text stays text, and thumbnails show the record."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from toylab import HOSTILE

from decodescope.engine.trace import Trace
from decodescope.lab.views import gallery as module
from decodescope.lab.views.bundle import BundleError, classic_script, declared_names
from decodescope.lab.views.gallery import POLICY, GalleryEntry, gallery
from decodescope.lab.views.thumbnail import FRAMES, thumbnail
from decodescope.lab.wire.messages import messages

from .elements import Page
from .runs import known, run


def entry(trace: Trace, name: str = "one", text: str = "A run") -> GalleryEntry:
    stop = {"title": text, "text": text, "step": 0, "node": 1}
    return GalleryEntry(name=name, title=text, about=text, family=text, kind=text, stops=[stop], trace=trace)


def pages(tmp_path: Path, *entries: GalleryEntry) -> dict[str, Page]:
    gallery(entries, tmp_path)
    return {path.stem: Page(path.read_text(encoding="utf-8")) for path in tmp_path.glob("*.html")}


def test_a_page_runs_only_the_gallery_s_own_files(tmp_path: Path) -> None:
    for page in pages(tmp_path, entry(known("tree"))).values():
        assert [a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"] == [
            POLICY
        ]
        scripts = [a for tag, a in page.tags if tag == "script"]
        assert all(
            a.get("type") == "application/json" or (a["src"] or "").startswith("web/") for a in scripts
        )
        assert not [name for _, a in page.tags for name in a if name.startswith("on") or name == "style"]
    assert "unsafe-inline" not in POLICY.split("style-src-attr")[0], "scripts and sheets come from files"


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    bad = "".join(HOSTILE) + "<!-- ways -->@@DATA@@"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    hostile = pages(
        tmp_path / "a", entry(run("tree", hostile=True, count=40), text=bad), entry(known("tree"), "two")
    )
    plain = pages(tmp_path / "b", entry(known("tree")), entry(known("tree"), "two"))
    for name in ("one", "index"):
        assert {tag for tag, _ in hostile[name].tags} == {tag for tag, _ in plain[name].tags}
        assert {key for _, a in hostile[name].tags for key in a} == {
            key for _, a in plain[name].tags for key in a
        }
    data = hostile["one"].scripts[1]
    assert not set(data) & set("<>&\u2028\u2029")
    shown = json.loads(data)
    texts = {row[1] for x in shown["messages"] if x["kind"] == "step" for row in x["nodes"] if row}
    assert len(texts & set(HOSTILE)) > 3 and shown["stops"][0]["title"] == bad, (
        "the texts are there as they were"
    )


def test_a_run_that_is_too_long_for_a_page_is_cut_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trace = run("chain", count=200)
    monkeypatch.setattr(module, "ROOM", 8 << 10)
    for name, page, trees, word in (
        ("few", 40_000, 20_000, "steps 0 to"),
        ("briefs", 1 << 20, 20_000, "With all trees"),
    ):
        monkeypatch.setattr(module, "PAGE", page)
        monkeypatch.setattr(module, "TREES", trees)
        (tmp_path / name).mkdir()
        one = pages(tmp_path / name, entry(trace))["one"]
        assert (tmp_path / name / "one.html").stat().st_size < page
        shown = json.loads(one.scripts[1])
        assert word in shown["without"] and len(shown["messages"]) > 5
        assert (len(shown["messages"]) == len(trace.steps) + 2) == (name == "briefs")


def frames(name: str) -> list[str]:
    svg = thumbnail(list(messages(known(name))))
    assert svg.count('class="frame f') == int(re.search(r"thumbnail of(\d)", svg)[1]) <= FRAMES  # type: ignore[index]
    assert svg.count(" shown") == 1
    return svg.split("<g ")[1:]


def test_a_thumbnail_of_drafts_has_a_mark_for_each_node() -> None:
    steps = [x for x in messages(known("tree")) if x["kind"] == "step" and len(x["nodes"]) > 1][:FRAMES]
    drawn = frames("tree")
    assert len(drawn) == len(steps) > 1
    for frame, step in zip(drawn, steps, strict=True):
        said = [row[6] if len(row) > 6 else "unreached" for row in step["nodes"]]
        for status in ("accept", "reject"):
            assert frame.count(f'class="mark {status}"') == said.count(status)


def test_a_thumbnail_of_a_cache_has_the_entries_that_are_held() -> None:
    trace = known("heavy")
    drawn = frames("heavy")
    change = next(x for x in trace.steps[-1].cache if x.lane == "target")
    assert drawn[-1].count("cell held") == change.held and drawn[-1].count("cell gone") > 0
    assert drawn[0].count("cell gone") < drawn[-1].count("cell gone")


def test_a_thumbnail_of_a_block_fills_what_became_final() -> None:
    steps = [x["chain"] for x in messages(known("jacobi")) if "chain" in x][:FRAMES]
    assert frames("jacobi")[-1].count("cell final") == sum(x["fixed"] for x in steps)


def test_a_thumbnail_of_plain_decoding_has_a_bar_for_each_pass() -> None:
    trace = known("plain")
    assert frames("plain")[-1].count("cell final") == len(trace.steps)


def test_a_plain_script_has_no_name_and_no_import_left() -> None:
    text = classic_script(*(module.WEB / x for x in ("tour/walk.js", "gallery/trace.js")))
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    assert (
        text.startswith("(() => {") and text.rstrip().endswith("})();") and text.count("function mount(") == 1
    )


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_no_name_of_the_joined_scripts_hides_one_of_the_browser_s(driver: Any) -> None:
    """A function of ours named `history` or `stop` would shadow the browser's own in every script."""
    paths = [
        module.WEB / "scope.js",
        *(module.WEB / "scope").rglob("*.js"),
        module.WEB / "tour/walk.js",
        *(module.WEB / "gallery").glob("*.js"),
    ]
    names = sorted({x for path in paths for x in declared_names(path.read_text(encoding="utf-8"))})
    page = driver.new_context().new_page()
    page.goto("about:blank")
    assert page.evaluate("(names) => names.filter((x) => x in window)", ["history", "stop", *names]) == [
        "history",
        "stop",
    ]
    assert len(names) > 300


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        ("export const a = 1;\n", 'import { b } from "./first.js";\n', "does not export"),
        ("const a = 1;\n", 'import { b } from "./third.js";\n', "not named before"),
        ("const a = 1;\n", "const a = 2;\n", "rename one"),
        ("const a = 1;\n", "var b = 2;\n", "cannot be joined"),
    ],
)
def test_scripts_that_cannot_be_joined_are_refused(
    first: str, second: str, word: str, tmp_path: Path
) -> None:
    for name, text in (("first.js", first), ("second.js", second)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BundleError, match=word):
        classic_script(tmp_path / "first.js", tmp_path / "second.js")


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_hostile_texts_run_nothing_on_a_page(driver: Any, tmp_path: Path) -> None:
    gallery([entry(run("tree", hostile=True, count=40), text="".join(HOSTILE))], tmp_path)
    page = driver.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    for name in ("index", "one"):
        page.goto((tmp_path / f"{name}.html").as_uri())
        page.wait_for_selector("h1")
        assert page.evaluate("window.trap") is None and not said, said
    page.wait_for_selector(".ds .node:visible")
    page.click(".ds-tour button")
    page.wait_for_selector(".ds-tour .stop:visible")
    assert page.evaluate("window.trap") is None and not said, said
    page.close()
