"""The drawing module: files that import each other by name, joined into one script for page, notebook and export."""

from __future__ import annotations

import gzip
import json
import re
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toys
from javascript import code
from toylab import Words

from decodescope.engine import Session
from decodescope.engine.trace import Trace
from decodescope.lab.views.bundle import (
    ASKS,
    ENTRY,
    PARTS,
    WEB,
    BundleError,
    bundle,
    core_script,
    join_modules,
    minify_script,
    needed_parts,
    part_module,
    part_script,
    requested_parts,
    strip_comments,
)
from decodescope.lab.views.script import split_script
from decodescope.lab.wire.messages import messages
from decodescope.lab.wire.wire import encode

from .runs import TEXTS, known

MODULES = [WEB / ENTRY, *sorted((WEB / "scope").rglob("*.js"))]
OUTSIDE = re.compile(r"^\s*import\b|\bimport\(|https?://(?!www\.w3\.org/2000/svg)", re.MULTILINE)


def weight(script: str) -> int:
    return len(gzip.compress(script.encode(), mtime=0))


def test_each_module_fits_in_a_head_and_the_script_in_a_page() -> None:
    """Scripts are weighed compressed.

    They must not grow unnoticed, while short readable lines cost nothing. Each page loads the core; a part is fetched when a
    run needs it.
    """
    sizes = {path.name: path.stat().st_size for path in MODULES}
    assert len(sizes) > 10 and not {name: n for name, n in sizes.items() if n > 25_000}
    assert 20_000 < weight(core_script()) < 56_000
    assert weight(bundle(frozenset())) <= weight(core_script()) + 100
    assert not {name: n for name in PARTS if not 1_000 < (n := weight(part_script(name))) < 11_000}


def test_a_part_holds_what_the_core_does_not() -> None:
    names = {"core": core_script(), **{name: part_script(name) for name in PARTS}}
    holds = {name: re.findall(r"^// ---- (.+)$", text, re.MULTILINE) for name, text in names.items()}
    assert sorted(x for all_ in holds.values() for x in all_) == sorted(path.name for path in MODULES)
    exported = re.search(r"^export \{ (.*) \};$", core_script(), re.MULTILINE)
    assert exported
    for name in PARTS:
        (line,) = re.findall(r"^import \{ (.*) \} from \"(.*)\";$", part_script(name), re.MULTILINE)
        assert line[1] == "../../scope.js" and {*line[0].split(", ")} <= {*exported[1].split(", ")}, name
        assert f'bring("{name}",' in part_script(name) and f"{name}.js" in holds[name]


def test_page_and_package_know_the_same_parts() -> None:
    (table,) = re.findall(
        r"^const ASKS = \{(.*?)\};",
        (WEB / "scope/shared/extras.js").read_text(encoding="utf-8"),
        re.M | re.DOTALL,
    )
    assert dict(re.findall(r'(\w+): "(\w+)"', table)) == ASKS
    loads = (WEB / "parts.js").read_text(encoding="utf-8")
    assert dict(re.findall(r'(\w+): \(\) => import\("\./(scope/[\w/]+\.js)"\)', loads)) == {
        name: part_module(name) for name in PARTS
    }


def test_a_run_takes_along_what_it_asks_for() -> None:
    tree = known("tree")
    assert needed_parts(messages(tree, last=5)) == set() and needed_parts(messages(tree)) == {"repeats"}, (
        "a toy goes round after a while"
    )
    assert needed_parts(messages(known("beam"), last=5)) == {"trees", "entries"}
    assert requested_parts({"kind": "head", "parts": {"adaptive_depth": {"usual": False}}}) == {"depth"}
    with_trees, without = bundle(frozenset({"trees"})), bundle(frozenset())
    assert "// ---- tree_steps.js" in with_trees and "// ---- canvas.js" not in with_trees
    assert "// ---- tree_steps.js" not in without and weight(without) < weight(with_trees) < weight(bundle())


def strings(text: str) -> list[str]:
    """The strings and regular expressions of a script."""
    return [
        part.strip() for kind, part in split_script(text) if kind == "text" and not re.match(r"/[/*]", part)
    ]


def test_the_script_asks_for_nothing_and_holds_every_module_once() -> None:
    assert not OUTSIDE.search(bundle())
    for path in MODULES:
        assert bundle().count(f"// ---- {path.name}\n") == 1, f"{path.name} is needed by {ENTRY} or a part"


def test_only_comments_and_spare_spaces_stay_behind() -> None:
    """No line of a text that looks like a comment is lost, no two words are joined, and texts stay unchanged."""
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        literals: list[list[str]] = [[], [], []]
        kept = [
            code(x, own).splitlines()
            for x, own in zip((text, strip_comments(text), minify_script(text)), literals, strict=True)
        ]
        lines = [["".join(line.split()) for line in one if line.strip()] for one in kept]
        words = [re.findall(r"[\w$]+|[+-]+", "\n".join(one)) for one in kept]
        assert lines[0] == lines[1] == lines[2] and words[0] == words[1] == words[2], path.name
        assert literals[0] == literals[1] == literals[2] and strings(text) == strings(minify_script(text)), (
            path.name
        )
        assert not [x for x in literals[0] if "\n" in x], f"{path.name}: a text over lines would lose spaces"
        assert strip_comments(text).split() == strip_comments(strip_comments(text)).split() and len(
            strip_comments(text)
        ) < len(text), path.name
    assert strip_comments("  // a\n/* b\n * c */\nconst d = 1; // e\n") == "const d = 1; // e\n"
    assert minify_script("const a = { b: [1, 2] }, c = x + +y;\nreturn `a { ${ b } }` + 'c = d'; // e\n") == (
        "const a={b:[1,2]},c=x + +y;\nreturn `a { ${ b } }` + 'c = d';"
    )


def made(folder: Path, **texts: str) -> str:
    for name, text in texts.items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    return join_modules(folder, "main.js")


def test_what_is_needed_stands_first_and_the_entry_s_names_come_out(tmp_path: Path) -> None:
    text = made(
        tmp_path,
        main='import { b } from "./b.js";\nexport { a } from "./a.js";\nexport const c = b + 1;\nexport default { c };\n',
        a="export const a = 1;\nconst own = 2;\n",
        b='import { a } from "./a.js";\nexport const b = a + 1;\n',
    )
    assert re.findall(r"^(?:const|export) .*$", text, re.MULTILINE) == [
        "const a=1;",
        "const own=2;",
        "const b=a + 1;",
        "const c=b + 1;",
        "export default{c};",
        "export { a, c };",
    ]


TAKES = 'import { a } from "./b.js";\n'
GIVES = "export const a = 1;\n"
WRONG = {
    "another is missing": ({"main": TAKES}, "imports b.js, which is not in"),
    "a name is missing": ({"main": TAKES, "b": "const a = 1;\n"}, "does not export it"),
    "a circle": ({"main": TAKES, "b": 'import { c } from "./main.js";\n'}, "in a circle"),
    "one name twice": ({"main": TAKES + "const k = 1;\n", "b": GIVES + "const k = 2;\n"}, "rename one"),
    "another name": ({"main": 'import { a as b } from "./b.js";\n', "b": GIVES}, "cannot be joined"),
    "everything": ({"main": 'export * from "./b.js";\n', "b": GIVES}, "cannot be joined"),
    "taken apart": ({"main": "const { a } = window;\n"}, "cannot be joined"),
    "later": ({"main": 'const a = () => import("./b.js");\n'}, "cannot be joined"),
    "two defaults": ({"main": TAKES, "b": GIVES + "export default { a };\n"}, "default export"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_joined_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    texts, told = WRONG[name]
    with pytest.raises(BundleError, match=told):
        made(tmp_path, **texts)


HOST = """<!doctype html><body><div id="place" style="width:1200px"></div><script type="module">
import { mount } from "/scope.js"; window.come = [];
const loads = Object.fromEntries(Object.entries(%s).map(([name, path]) =>
  [name, () => import(`/${path}`).then(() => come.push(name))]));
window.view = mount(document.getElementById("place"), { loads });</script>"""

SEEN = "[...view.root.children].filter((x) => !x.matches('.aloud') && x.checkVisibility()).map((x) => x.innerText).join()"

FRAMES = (
    "async () => { for (let k = 0; k < 6; k++) await new Promise((done) => requestAnimationFrame(done)); }"
)


def hosted(driver: Any, way: str) -> tuple[Any, list[str]]:
    """A page on which a run can be drawn, and its errors.

    way: "bundle", "modules" one by one, or the core and "parts". The window is high enough to show everything, because the page
    does not paint what is scrolled out of view.
    """
    page = driver.new_context(viewport={"width": 1280, "height": 4000}).new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    paths = {part_module(name): name for name in PARTS}

    def answer(route: Any) -> None:
        name = route.request.url.removeprefix("http://scope.test/")
        if not name:
            route.fulfill(
                body=HOST % json.dumps({name: path for path, name in paths.items()}), content_type="text/html"
            )
        elif way == "modules":
            route.fulfill(body=(WEB / name).read_text(encoding="utf-8"), content_type="text/javascript")
        else:
            text = (
                bundle() if way == "bundle" else core_script() if name == ENTRY else part_script(paths[name])
            )
            route.fulfill(body=text, content_type="text/javascript")

    page.route("http://scope.test/**", answer)
    page.goto("http://scope.test/")
    page.wait_for_function("window.view")
    return page, troubles


def asking() -> dict[str, Trace]:
    """Runs that need parts: each part of one run is needed by some run."""
    target = replace(toys.bidirectional_target(), tokenizer=Words(TEXTS))  # type: ignore[arg-type]
    canvas = Session(
        target, toys.method(strategy=("masked", {"block": 8})), toys.PROMPT, max_new_tokens=12, seed=0
    )
    canvas.sink = Trace()
    for _ in canvas.stream():
        pass
    deep = toys.method(adaptive_depth=("confidence_exit", {"threshold": 0.9, "min_layers": 1}))
    switch = toys.method(
        strategy="switch", router=("entropy", {"tau": 1.0, "min_turn_tokens": 2, "window": 2})
    )
    picture = toys.decode(
        toys.method(sampler="temperature"), count=9, pair=(toys.raster_target(), toys.pair()[1]), prompt=[4]
    ).sink
    answers = toys.method(strategy="cascade", router=("answer_confidence", {"tau": 1.1}))
    runs = {"tree": known("tree"), "beam": known("beam"), "canvas": canvas.sink, "picture": picture}
    runs["prompt_compression"] = toys.decode(
        toys.method(prompt_compression=("gemfilter", {"prompt_budget": 6})), count=4
    ).sink
    runs["cascade"] = toys.decode(answers, count=8).sink
    cut = copy(runs["tree"])
    cut.header = replace(cut.header, model=cut.header.model | {"widths": [64, 0, 64]})
    runs["model"] = cut
    runs["search"] = toys.decode(toys.method(strategy=("planned", {"tests": "1\n2"})), count=8).sink
    runs["threads"] = toys.decode(
        toys.method(strategy=("apar", {"fork_token": "5", "child_token": "12"})), count=8
    ).sink
    runs["survey"] = toys.decode(toys.method(strategy=("exact_extract", {"end_token": "7"})), count=9).sink
    return runs | {
        "adaptive_depth": toys.decode(deep, count=8).sink,
        "switch": toys.decode(switch, count=8).sink,
    }


@pytest.mark.nightly
@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_modules_draw_the_same_by_themselves_as_joined(driver: Any) -> None:
    """A name that a module uses but does not import would still be found in the joined script; here the test finds it missing.

    A fetched part draws the same as a part that is there, and it is fetched once, for the runs that need it.
    """
    runs = asking()
    wanted = {name: sorted(needed_parts(messages(trace))) for name, trace in runs.items()}
    assert {x for names in wanted.values() for x in names} | {"pair"} == set(PARTS), (
        "the test needs each part"
    )
    drawn: list[list[str]] = []
    for way in ("bundle", "modules", "parts"):
        page, troubles = hosted(driver, way)
        drawn.append([])
        fetched: set[str] = set()
        for name, trace in runs.items():
            page.evaluate("view.clear(); come.length = 0")
            data = encode(list(messages(trace))).decode()
            page.evaluate("data => (JSON.parse(data).forEach((one) => view.push(one)), view.seek(2))", data)
            page.locator("h1", has_text=f"Step {min(2, len(trace.steps) - 1)}").wait_for()
            here = [x for x in wanted[name] if way != "bundle" and x not in fetched]
            fetched.update(here)
            page.wait_for_function("(n) => come.length === n", arg=len(here))
            page.evaluate(FRAMES)
            drawn[-1].append(page.evaluate(SEEN))
            assert sorted(page.evaluate("come")) == here, (way, name)
        page.keyboard.press("?")
        drawn[-1].append(page.locator(".keys").inner_text())
        assert not troubles, (way, troubles)
    assert drawn[0] == drawn[1] == drawn[2] and "Step 2" in drawn[0][0]


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_nothing_is_drawn_before_its_part_is_there_and_a_lost_part_comes_later(driver: Any) -> None:
    page, troubles = hosted(driver, "parts")
    waiting: list[Any] = []
    page.route("http://scope.test/scope/tree/trees.js", lambda route: waiting.append(route))
    data = encode(list(messages(known("beam")))).decode()
    with page.expect_request("**/trees.js"):
        page.evaluate("data => (JSON.parse(data).forEach((one) => view.push(one)), view.seek(2))", data)
    page.evaluate(FRAMES)
    assert len(waiting) == 1 and page.locator(".empty").is_visible() and not page.locator("h1").is_visible()
    waiting.pop().abort()
    page.locator("h1", has_text="Step 2").wait_for()
    assert "fetching what draws this step" in page.locator(".tree-box").inner_text()
    page.unroute("http://scope.test/scope/tree/trees.js")
    page.locator(".beams li").first.wait_for()
    assert (
        "fetching" not in page.locator(".tree-box").inner_text() and page.locator(".decision h2").is_visible()
    )
    assert not troubles, troubles
