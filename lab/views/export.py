"""Export: a trace as one HTML file that replays offline, from disk, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from decodescope.engine.core.files import write_whole
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.trace import Trace
from decodescope.engine.trace.file.named_trace import trace_of
from decodescope.engine.trace.query.comparability import exactness_mark_text
from decodescope.engine.trace.query.summary import summarise
from decodescope.engine.trace.records.parts import method_label
from decodescope.lab.formatting.style import format_count, format_percent, origin_word
from decodescope.lab.formatting.tokens import escape_html, visible_token
from decodescope.lab.wire.messages import PLENTY, messages
from decodescope.lab.wire.wire import encode as as_json

from .bundle import WEB, bundle, needed_parts
from .document import document

POLICY = "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data:"
VIEWS = ("strip", "tree", "card", "depth", "text", "cache", "notes", "model", "time", "roof")
ROWS = 2000  # steps in the table for readers without JavaScript
_AS_CODES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def export_html(  # noqa: PLR0913
    given: Any,
    path: str | Path | None = None,
    *,
    first: int | None = None,
    last: int | None = None,
    text: bool = True,
    views: tuple[str, ...] = VIEWS,
    step: int | None = None,
    profile: HardwareProfile | None = None,
    beside: Any = None,
) -> str:
    """One HTML file with module, styles and steps inside; written to `path` if given, and returned. `given` and `beside` are
    traces, results of `run`, or paths.

    Steps `first` to `last` have their trees; steps before have none, so that the text is whole; steps after are left out.
    Without `text` it holds token ids only, which the model's tokenizer can still turn back into text. It opens at `step`, by
    default the first one with a tree. With the `profile` of the machine that ran it, it draws the roofline. With another run
    `beside` it shows both under one scrubber, all steps of them; the table is that of `trace`.
    """
    trace = trace_of(given)
    beside = None if beside is None else trace_of(beside)
    if beside is not None and (first, last, step) != (None, None, None):
        raise ValueError(
            "A file of two runs holds all their steps: leave first, last and step out, or export one run."
        )
    first = max(0, first or 0)
    last = len(trace.steps) - 1 if last is None else min(last, len(trace.steps) - 1)
    title = f"{trace.header.model.get('name', 'model')}, {method_label(trace.header)}"
    sent = list(messages(trace, first=first, last=last, text=text, profile=profile))
    shown: dict[str, Any] = {
        "without": _missing_trees_reason(first, last, len(trace.steps), sent),
        "views": list(views),
        "step": first if step is None else step,
        "messages": sent,
    }
    module, cards = bundle(needed_parts(sent)), run_card(trace, first, last)
    if beside is not None:
        title = f"{title}, next to {method_label(beside.header)}"
        shown = {"runs": [list(messages(one, text=text)) for one in (trace, beside)]}
        module = bundle(needed_parts(one for run in shown["runs"] for one in run) | {"pair"})
        cards = f"<tr><th>A</th></tr>{cards}<tr><th>B</th></tr>{run_card(beside, 0, len(beside.steps) - 1)}"
    assert "</script" not in module.lower() and "<!--" not in module
    parts = {
        "POLICY": POLICY,
        "TITLE": escape_html("DecodeScope: " + title),
        "STYLE": (WEB / "styles/scope.css").read_text(encoding="utf-8") + _STYLE + RUN_STYLE,
        "CARD": cards,
        "TABLE": steps_table(trace, last, text),
        "DATA": embed_json(shown),
        "MODULE": module,
        "START": _START,
    }
    # one pass: a model's text is inserted and not scanned again
    page = document(_PAGE, parts)
    if path is not None:
        write_whole(Path(path), [page])
    return page


class SandboxFrame:
    """An exported run inside a notebook: a frame that may run its own script and access nothing else."""

    def __init__(self, page: str, height: int = 640):
        self.page, self.height = page, height

    def _repr_html_(self) -> str:
        return (
            f'<iframe sandbox="allow-scripts" style="width:100%;height:{int(self.height)}px;border:0" title="decoding run" '
            f'srcdoc="{escape_html(self.page)}"></iframe>'
        )


def _missing_trees_reason(first: int, last: int, count: int, sent: list[dict[str, Any]]) -> str:
    """Why trees are missing from a file, in a sentence."""
    if any(message.get("brief") for message in sent[first + 1 :]):
        return f"With all trees the file would be larger than {PLENTY >> 20} MiB."
    return (
        "" if (first, last) == (0, count - 1) else f"The file was cut to steps {first} to {last} of {count}."
    )


def embed_json(value: Any) -> str:
    """JSON that no HTML parser can leave: characters that could end the element are written as codes."""
    return as_json(value).decode().translate(_AS_CODES)


def run_card(trace: Trace, first: int, last: int) -> str:
    """The run's method, settings and results."""
    h, s = trace.header, summarise(trace)
    models = [("target", h.model), *h.lanes.items()]
    rows: list[tuple[str, str]] = [
        (
            role,
            f"{m.get('name', '?')}, {format_count(m.get('params', 0))} parameters, fingerprint {m.get('fingerprint', '?')}",
        )
        for role, m in models
    ]
    for kind, part in h.method.items():
        stages = part.get("stages") or [part]
        rows.append((kind, "; ".join(_part_text(x) for x in stages)))
    rows += [
        ("seed", str(h.seed)),
        ("text", exactness_mark_text(h)),
        ("type and device", f"{h.dtype} on {h.device}, {h.threads} threads"),
        ("versions", f"decodescope {h.project or '?'}, torch {h.torch or '?'}, trace schema {h.schema}"),
        ("run", f"{h.run or '?'}, {h.created or 'no date'}"),
        (
            "tokens",
            f"{s.tokens} in {s.target_passes} target passes: {s.tau:.2f} per pass, {s.tokens_per_s:.1f} a second",
        ),
        (
            "acceptance",
            format_percent(s.acceptance) + " of trials" if s.acceptance is not None else "no trials",
        ),
        ("end", s.end or "not ended"),
        *(("note", text) for text in ([] if trace.end is None else trace.end.remarks)),
        (
            "content hash",
            trace.end.content_hash if trace.end is not None and trace.end.content_hash else "not sealed",
        ),
    ]
    if (first, last) != (0, len(trace.steps) - 1):
        rows.append(("steps in this file", f"{first} to {last} of {len(trace.steps)}"))
    return "".join(
        f"<tr><th>{escape_html(name)}</th><td>{escape_html(value)}</td></tr>" for name, value in rows
    )


def _part_text(part: dict[str, Any]) -> str:
    knobs = (f"{k}={v}" for k, v in part.items() if k not in ("name", "stages"))
    return " ".join([str(part.get("name", "?")), *knobs])


def steps_table(trace: Trace, last: int, text: bool) -> str:
    """The steps for readers without JavaScript."""
    rows, pieces = [], trace.pieces if text else {}
    for step in trace.steps[: min(last + 1, ROWS)]:
        words = " ".join(
            f"{visible_token(token, pieces)} ({origin_word(origin)})"
            for token, origin in zip(step.emitted, step.origins, strict=True)
        )
        cells = (step.step, words, f"{step.accepted} of {step.drafted}", f"{step.wall_us / 1000:.1f}")
        rows.append("<tr>" + "".join(f"<td>{escape_html(cell)}</td>" for cell in cells) + "</tr>")
    return "".join(rows)


# style of the content of RUN
RUN_STYLE = """
.card-of-run table, noscript table { border-collapse: collapse; }
.card-of-run summary { cursor: pointer; }
.card-of-run th, .card-of-run td, noscript th, noscript td { text-align: left; padding: 2px 16px 2px 0;
  font-weight: 400; vertical-align: top; overflow-wrap: anywhere; }
.card-of-run th { opacity: .7; white-space: nowrap; }
"""
_STYLE = """
body { margin: 0; background: var(--bg); color: var(--ink); font: 13px/1.5 var(--sans); }
@media (prefers-color-scheme: dark) { body { background: #14171c; color: #e6edf3; } }
main { max-width: 1200px; margin: 0 auto; padding: 24px; }
main > * { margin-bottom: 24px; }
"""
_START = """
const { views, step, messages, runs, without } = JSON.parse(document.getElementById("data").textContent);
const place = document.getElementById("scope");
const replay = runs ? pair(place) : mount(place, { views, without, label: "recorded run" });
for (const message of messages || []) replay.push(message);
(runs || []).forEach((told, which) => told.forEach((message) => replay.views[which].push(message)));
replay.seek(runs ? { token: 1 } : step);
"""
# the place of the picture, below it the description of the run, the steps for readers without JavaScript, and the data of the
# script
RUN = """<div id="scope"></div>
<details class="card-of-run"><summary>About this run</summary><table>@@CARD@@</table></details>
<noscript><table><tr><th>step</th><th>written</th><th>accepted</th><th>ms</th></tr>@@TABLE@@</table></noscript>
</main>
<script type="application/json" id="data">@@DATA@@</script>
"""
_PAGE = f"""{RUN}<script type="module">
@@MODULE@@
@@START@@</script>
</body>
</html>
"""
