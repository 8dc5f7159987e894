"""Gallery: recorded runs as a folder of static pages that a web server or a file manager opens, with nothing to install.

It has an index of the families, a page for each run, and in `web/` the sheet and the scripts that the pages share. Each page
contains the data that it draws: a browser reads no second file for a page that was opened from disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decodescope.engine.trace import Trace
from decodescope.engine.trace.query.comparability import exactness_mark_text
from decodescope.engine.trace.query.summary import summarise
from decodescope.engine.trace.records.parts import method_label
from decodescope.engine.trace.values.limits import TraceError
from decodescope.lab.formatting.style import format_count, format_percent
from decodescope.lab.formatting.tokens import escape_html, visible_token
from decodescope.lab.wire.messages import messages
from decodescope.lab.wire.wire import encode

from .bundle import WEB, classic_script, needed_parts, strip_comments
from .chapter import Chapter
from .document import document
from .export import RUN, RUN_STYLE, VIEWS, embed_json, run_card, steps_table
from .thumbnail import thumbnail

# `file:` in addition to 'self': a page from disk has no origin of its own in every browser. Views place bars by style
# attributes
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; style-src-attr 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
PAGE = 3 << 19  # bytes of a page, 1.5 MiB
TREES = 1 << 20  # bytes of steps with their trees; later steps come with text and times
ROOM = 1 << 17  # bytes of a page reserved for everything but the steps
PARTS = "web"  # the folder of the shared files
COURSE = "course-"  # prefix of the names of notebook pages
SHEETS = ("scope.css", "walk.css", "gallery.css")
SCRIPTS = ("theme.js", "index.js")  # in addition to pages.js, which contains the drawing module
FOUND = 2000  # characters of a run's text that the search looks through


@dataclass(frozen=True)
class GalleryEntry:
    """One run of a gallery.

    name: of its page, of the letters a to z, digits and hyphens;  family, kind: title and sentence of its family
    stops: of its guided tour, {"title", "text", "step", "node"};  trace: opened
    """

    name: str
    title: str
    about: str
    family: str
    kind: str
    stops: Sequence[Mapping[str, Any]]
    trace: Trace


@dataclass(frozen=True)
class _EntryPage:
    """The data of an entry that is kept once its trace is read.
    It has its page without the links to the others, its line and its picture, and the parts of the drawing that it needs."""

    entry: GalleryEntry
    page: str
    line: str
    picture: str
    parts: frozenset[str]


def gallery(
    entries: Iterable[GalleryEntry],
    folder: Path,
    families: Sequence[str] = (),
    damaged: Callable[[GalleryEntry, str], None] | None = None,
    course: Sequence[Chapter] = (),
) -> list[str]:
    """Write the gallery into `folder`, which exists and is empty, and return the names of its pages.
    An entry with a damaged trace is left out and passed to damaged(entry, sentence); if none is left, nothing is written.
    families: titles in display order, others follow. course: notebooks that get a page each, course-NAME.html."""
    drawn: list[_EntryPage] = []
    for entry in entries:
        try:
            drawn.append(_draw_entry(entry))
        except TraceError as error:
            if damaged is None:
                raise
            damaged(entry, str(error))
    if not drawn:
        return []
    ranks = {title: i for i, title in enumerate(families)}
    drawn.sort(key=lambda one: ranks.get(one.entry.family, len(ranks)))
    shared = folder / PARTS
    shared.mkdir()
    live = [one for each in course for shown in each.live for sent in _live_messages(shown) for one in sent]
    for name, text in _shared_files(
        needed_parts(live).union({"pair"} if course else (), *(one.parts for one in drawn))
    ):
        _write_file(shared / name, text)
    for i, one in enumerate(drawn):
        ways = [
            (way, drawn[k].entry) for way, k in (("Previous", i - 1), ("Next", i + 1)) if 0 <= k < len(drawn)
        ]
        _write_file(
            folder / f"{one.entry.name}.html",
            one.page.replace(_WAYS, "".join(_neighbour_link(*x) for x in ways), 1),
        )
    for each in course:
        _write_file(folder / f"{COURSE}{each.name}.html", _chapter_page(each))
    _write_file(folder / "index.html", _index_page(drawn, course))
    return [one.entry.name for one in drawn]


def _write_file(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _live_messages(shown: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """The messages of what a notebook shows: of one run, or of each of two."""
    return list(shown.get("runs") or [shown["messages"]])


def _shared_files(parts: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Name and text of the files that all pages share; parts: of the drawing module, those that a page needs"""
    sheets = [(WEB / "styles" / name).read_text(encoding="utf-8") for name in SHEETS]
    yield "style.css", "".join([*sheets, RUN_STYLE])
    for name in SCRIPTS:
        yield (
            name,
            f"(() => {{\n{strip_comments((WEB / 'gallery' / name).read_text(encoding='utf-8'))}}})();\n",
        )
    own = (WEB / "gallery" / x for x in ("trace.js", "course.js", "pages.js"))
    yield "pages.js", classic_script(WEB / "tour/walk.js", *own, parts=parts)


# ---- the page of a run


def _draw_entry(entry: GalleryEntry) -> _EntryPage:
    """Read the trace of an entry once. Raises TraceError."""
    trace, steps = entry.trace, len(entry.trace.steps)
    sent, last = _fit_messages(trace)
    page = document(_TRACE, {
        "POLICY": POLICY,
        "TITLE": escape_html(f"{entry.title} - DecodeScope gallery"),
        "NAME": escape_html(entry.title),
        "ABOUT": escape_html(entry.about),
        "FAMILY": escape_html(entry.family),
        "STOPS": _tour_links(entry),
        "DAMAGE": f'<p class="damage">{escape_html(trace.damage)}</p>' if trace.damage else "",
        "CARD": run_card(trace, 0, last),
        "TABLE": steps_table(trace, last, True),
        "DATA": embed_json({"messages": sent, "views": list(VIEWS), "without": _missing_steps_reason(sent, last, steps),
                         "stops": [dict(stop) for stop in entry.stops]}),
        "WAYS": _WAYS,
    }, _LINKS)  # fmt: skip
    return _EntryPage(entry, page, _entry_line(entry), thumbnail(sent), needed_parts(sent))


def _fit_messages(trace: Trace) -> tuple[list[dict[str, Any]], int]:
    """Head, steps and end as far as they fit on a page, and the last step that does."""
    sent: list[dict[str, Any]] = []
    spent, last = ROOM, -1
    for message in messages(trace, plenty=TREES):
        # text that is no letter grows in a page: a < becomes a code
        size = len(embed_json(message)) + _table_row_bytes(message)
        if message["kind"] == "step" and spent + size > PAGE:
            break
        if message["kind"] == "end" and last < len(trace.steps) - 1:
            break
        spent += size
        last = message.get("i", last)
        sent.append(message)
    return sent, last


def _table_row_bytes(message: dict[str, Any]) -> int:
    """A rough upper bound of the bytes of a step's row in the table for readers without JavaScript."""
    return (
        160 + 40 * len(message["made"]) + 6 * len(encode(message["made"])) if message["kind"] == "step" else 0
    )


def _missing_steps_reason(sent: Sequence[dict[str, Any]], last: int, steps: int) -> str:
    """Why trees or steps are missing from a page, in a sentence."""
    if last < steps - 1:
        return (
            f"The page holds steps 0 to {last} of {steps}: all would be larger than {PAGE / (1 << 20):g} MiB."
        )
    if any(x.get("brief") for x in sent):
        return f"With all trees the page would be larger than {PAGE / (1 << 20):g} MiB."
    return ""


def _tour_links(entry: GalleryEntry) -> str:
    """The tour as links, each to its step and node."""
    if not entry.stops:
        return ""
    items = "".join(
        f'<li><a href="#step={int(x["step"])}&amp;node={int(x["node"])}">{escape_html(x["title"])}</a> '
        f"{escape_html(x['text'])}</li>"
        for x in entry.stops
    )
    return f'<details class="stops"><summary>The tour as links</summary><ol>{items}</ol></details>'


def _neighbour_link(word: str, entry: GalleryEntry) -> str:
    rel = "prev" if word == "Previous" else "next"
    return f'<a rel="{rel}" href="{entry.name}.html">{word}<span>: {escape_html(entry.title)}</span></a>'


# ---- the index


def _entry_line(entry: GalleryEntry) -> str:
    """The run in the list of its family."""
    trace, head = entry.trace, entry.trace.header
    s = summarise(trace)
    numbers = [f"{format_count(s.tokens)} tokens", f"{s.tau:.2f} per pass"]
    if s.acceptance is not None:
        numbers.append(f"{format_percent(s.acceptance)} accepted")
    if entry.stops:
        numbers.append(f"tour of {len(entry.stops)} stops")
    text = " ".join(visible_token(token, trace.pieces) for token in trace.tokens[: FOUND // 4])[:FOUND]
    tour = " ".join(f"{x['title']} {x['text']}" for x in entry.stops)
    words = (
        entry.title,
        entry.about,
        entry.family,
        entry.kind,
        method_label(head),
        head.model.get("name", ""),
        exactness_mark_text(head),
    )
    sought = " ".join(map(str, [*words, tour, text])).lower()
    return (
        f'<li data-find="{escape_html(sought)}"><a href="{entry.name}.html">{escape_html(entry.title)}</a>'
        f'<p>{escape_html(entry.about)}</p><p class="quiet">{escape_html(", ".join([method_label(head), *numbers]))}</p></li>'
    )


def _chapter_page(one: Chapter) -> str:
    parts = {
        "POLICY": POLICY,
        "TITLE": escape_html(f"{one.title} - DecodeScope gallery"),
        "BODY": one.body,
        "DATA": embed_json({"live": one.live}),
    }
    return document(_CHAPTER, parts, _LINKS)


def _index_page(drawn: Sequence[_EntryPage], course: Sequence[Chapter]) -> str:
    families: dict[str, list[_EntryPage]] = {}
    for one in drawn:
        families.setdefault(one.entry.family, []).append(one)
    parts = {
        "POLICY": POLICY,
        "TITLE": "DecodeScope gallery",
        "COURSE": _course_list(course),
        "FAMILIES": "".join(map(_family_section, families.values())),
    }
    return document(_INDEX, parts, _LINKS)


def _course_list(course: Sequence[Chapter]) -> str:
    if not course:
        return ""
    items = "".join(f'<li><a href="{COURSE}{x.name}.html">{escape_html(x.title)}</a></li>' for x in course)
    return f'<section class="course"><h2>Course</h2><ul>{items}</ul></section>'


def _family_section(runs: Sequence[_EntryPage]) -> str:
    first = runs[0]
    return (
        f'<section class="family"><a class="picture" href="{first.entry.name}.html" tabindex="-1" aria-hidden="true">'
        f"{first.picture}</a><div><h2>{escape_html(first.entry.family)}</h2><p>{escape_html(first.entry.kind)}</p>"
        f"<ul>{''.join(x.line for x in runs)}</ul></div></section>"
    )


_WAYS = "<!-- ways -->"
_LINKS = f"""<link rel="stylesheet" href="{PARTS}/style.css">
<script src="{PARTS}/theme.js"></script>"""
_LOGO = """<svg class="ds-logo" viewBox="0 0 30 22" width="30" height="22" aria-hidden="true"><path class="off" d="M4,6H24"/>
<path class="on" d="M4,6H9Q12,6 12,9V14Q12,17 15,17H25"/><rect class="root" x="1" y="3" width="6" height="6"/>
<circle class="no" cx="24" cy="6" r="3.5"/><circle class="yes" cx="25" cy="17" r="3.5"/></svg>"""
_MOON = """<button type="button" id="theme" aria-label="light or dark" title="light or dark"><svg viewBox="0 0 16 16" width="16"
height="16" aria-hidden="true"><path d="M12.5 10A5.5 5.5 0 0 1 6 3.5a5 5 0 1 0 6.5 6.5z"/></svg></button>"""
_TRACE = f"""<header class="top"><a class="brand" href="index.html">{_LOGO}<span>Gallery</span></a>
<nav>@@WAYS@@</nav>{_MOON}</header>
<h1>@@NAME@@</h1>
<p class="about">@@ABOUT@@ <span class="quiet">@@FAMILY@@</span></p>
@@DAMAGE@@<div id="tour"></div>
@@STOPS@@
{RUN}<script src="{PARTS}/pages.js"></script>
</body>
</html>
"""
_CHAPTER = f"""<header class="top"><a class="brand" href="index.html">{_LOGO}<span>Gallery</span></a>{_MOON}</header>
<article class="chapter">@@BODY@@</article>
</main>
<script type="application/json" id="data">@@DATA@@</script>
<script src="{PARTS}/pages.js"></script>
</body>
</html>
"""
_INDEX = f"""<header class="top"><span class="brand">{_LOGO}<span>DecodeScope gallery</span></span>{_MOON}</header>
<h1>How fast decoding works, step by step</h1>
<p class="about">Recorded runs of real models: what was drafted, what was kept and why, what the cache held, what each step
cost.</p>
<p class="search"><input type="search" id="find" placeholder="Method, idea, word of a text" aria-label="Search the runs"
autocomplete="off" spellcheck="false">
<button type="button" class="ds-button" id="moving" aria-pressed="false">Stop the pictures</button>
<span id="none" role="status" class="quiet"></span></p>
<div class="families">@@FAMILIES@@</div>
@@COURSE@@
</main>
<script src="{PARTS}/index.js"></script>
</body>
</html>
"""
