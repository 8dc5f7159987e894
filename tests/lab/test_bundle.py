"""The drawing module: files that import each other by name, joined into one script for page, notebook and export."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from javascript import code

from decodescope.lab.views.bundle import ENTRY, WEB, BundleError, bare, bundle, joined, spare
from decodescope.lab.views.script import pieces
from decodescope.lab.wire.messages import messages
from decodescope.lab.wire.wire import encode

from .runs import known

MODULES = sorted((WEB / "scope").glob("*.js"))
OUTSIDE = re.compile(r"^\s*import\b|\bimport\(|https?://(?!www\.w3\.org/2000/svg)", re.MULTILINE)


def test_each_module_fits_in_a_head_and_the_script_in_a_page() -> None:
    """The script is weighed compressed: it may not grow unseen, and short lines that are easy to read shall cost nothing."""
    sizes = {path.name: path.stat().st_size for path in MODULES}
    assert len(sizes) > 10 and not {name: n for name, n in sizes.items() if n > 25_000}
    assert 20_000 < len(gzip.compress(bundle().encode(), mtime=0)) < 72_000


def strings(text: str) -> list[str]:
    """The strings and patterns of a script."""
    return [part.strip() for kind, part in pieces(text) if kind == "text" and not re.match(r"/[/*]", part)]


def test_the_script_asks_for_nothing_and_holds_every_module_once() -> None:
    assert not OUTSIDE.search(bundle())
    for path in MODULES:
        assert bundle().count(f"// ---- {path.name}\n") == 1, f"{path.name} is not needed by {ENTRY}"


def test_only_comments_and_spare_spaces_stay_behind() -> None:
    """No line of a text that looks like a comment is lost, no word grows into its neighbour, and texts stay as they are."""
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        literals: list[list[str]] = [[], [], []]
        kept = [code(x, own).splitlines() for x, own in zip((text, bare(text), spare(text)), literals, strict=True)]
        lines = [["".join(line.split()) for line in one if line.strip()] for one in kept]
        words = [re.findall(r"[\w$]+|[+-]+", "\n".join(one)) for one in kept]
        assert lines[0] == lines[1] == lines[2] and words[0] == words[1] == words[2], path.name
        assert literals[0] == literals[1] == literals[2] and strings(text) == strings(spare(text)), path.name
        assert not [x for x in literals[0] if "\n" in x], f"{path.name}: a text over lines would lose spaces"
        assert bare(text).split() == bare(bare(text)).split() and len(bare(text)) < len(text), path.name
    assert bare("  // a\n/* b\n * c */\nconst d = 1; // e\n") == "const d = 1; // e\n"
    assert spare("const a = { b: [1, 2] }, c = x + +y;\nreturn `a { ${ b } }` + 'c = d'; // e\n") == (
        "const a={b:[1,2]},c=x + +y;\nreturn `a { ${ b } }` + 'c = d';"
    )


def made(folder: Path, **texts: str) -> str:
    for name, text in texts.items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    return joined(folder, "main.js")


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


@pytest.mark.browser
@pytest.mark.xdist_group("drawn")
def test_the_modules_draw_the_same_by_themselves_as_joined(driver: Any) -> None:
    """A name that a module uses and does not import would be found in the script all the same; here it is missed."""
    data = encode(list(messages(known("tree")))).decode()
    page_text = """<!doctype html><body><div id="place" style="width:1200px"></div><script type="module">
    import { mount } from "/scope.js"; window.view = mount(document.getElementById("place"));</script>"""
    drawn = []
    for name in ("bundle", "modules"):
        page = driver.new_context(viewport={"width": 1280, "height": 900}).new_page()
        troubles: list[str] = []
        page.on("pageerror", lambda error, troubles=troubles: troubles.append(str(error)))

        def answer(route, name=name):
            asked = route.request.url.rsplit("/", 1)[1]
            if not asked:
                return route.fulfill(body=page_text, content_type="text/html")
            body = bundle() if name == "bundle" else (WEB / "scope" / asked).read_text(encoding="utf-8")
            return route.fulfill(body=body, content_type="text/javascript")

        page.route("http://scope.test/**", answer)
        page.goto("http://scope.test/")
        page.wait_for_function("window.view")
        page.evaluate("data => (JSON.parse(data).forEach((one) => view.push(one)), view.seek(2))", data)
        page.locator("h1", has_text="Step 2").wait_for()
        page.keyboard.press("?")
        drawn.append([page.locator(part).inner_text() for part in (".tree-pane", ".decision", ".time-pane", ".keys")])
        assert not troubles, (name, troubles)
    assert drawn[0] == drawn[1] and "Step 2" in drawn[0][0]
