"""Measure the budget slider over a cut prompt: how long the page takes to make the cut anew from the record.

    python benchmarks/slider.py [--tokens 2000] [--moves 60]

A prompt of so many tokens is cut by contexts of each sort (single tokens, phrases, segments, neighbours) and exported as one
HTML file. The slider is then moved over its whole range. Told is all that the page does until a move is handled (the rule,
every token's classes, the words beside them), and the layout that follows, which the browser is made to do at once. Needs
playwright and Chromium (DECODESCOPE_BROWSER names it).
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from page import _spread, browser

from decodescope.engine import Method, Session, load
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace
from decodescope.lab.views.export import export_html

CONTEXTS: dict[str, dict[str, Any]] = {
    "gemfilter": {"prompt_compression.budget_share": 0.5},
    "specpc": {"prompt_compression.budget_share": 0.5},
    "selective_context": {
        "prompt_compression.reduce_ratio": 0.5,
        "prompt_compression.scorer_context": "prompt",
    },
    "llmlingua": {"prompt_compression.keep_rate": 0.5},
}
TEXT = Path(__file__).resolve().parents[1] / "docs" / "exactness.md"
MOVE = """(moves) => { const pane = document.querySelector('.prompt-pane'), range = pane.querySelector('input[type=range]');
  const low = Number(range.min), high = Number(range.max), handled = [], laid = [];
  for (let k = 0; k < moves; k++) {
    range.value = low + Math.round(((k * 37) % moves) / moves * (high - low));
    const a = performance.now();
    range.dispatchEvent(new Event('input'));
    const b = performance.now();
    pane.querySelector('.text').getBoundingClientRect();
    handled.push(b - a), laid.push(performance.now() - b); }
  const up = (x) => x.sort((a, b) => a - b);
  return [up(handled), up(laid), pane.querySelectorAll('.tok').length]; }"""


def cut(model: Model, draft: Model, context: str, ids: list[int]) -> Trace:
    """The trace of two tokens behind the cut prompt."""
    method, trace = Method.from_names({"prompt_compression": context}, CONTEXTS[context]), Trace()
    models = {"draft": draft} if "draft" in method.lanes else {}
    session = Session(model, method, ids, models=models, max_new_tokens=2, stop_tokens=[])
    session.sink = trace
    session.start()
    while session.end is None:
        session.step()
    return trace


def main() -> None:
    """Cut, export, move, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=2000, help="of the prompt")
    parser.add_argument("--moves", type=int, default=60, help="of the slider")
    parser.add_argument("--only", nargs="+", default=[*CONTEXTS], choices=[*CONTEXTS], help="of the contexts")
    args = parser.parse_args()
    model, draft = load("lab", "float32", "cpu"), load("lab-draft", "float32", "cpu")
    assert model.tokenizer is not None
    ids = model.tokenizer.encode_plain(TEXT.read_text(encoding="utf-8"))[: args.tokens]
    load_s = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors{load_s}; {args.moves} moves, ms"
    )
    with tempfile.TemporaryDirectory() as folder, browser() as page:
        for name in args.only:
            path = Path(folder) / f"{name}.html"
            path.write_text(export_html(cut(model, draft, name, ids)), encoding="utf-8")
            page.goto(path.as_uri())
            page.wait_for_selector(".prompt-pane .tok", state="attached")
            page.evaluate(MOVE, args.moves)  # the first time warms up
            handled, laid, shown = page.evaluate(MOVE, args.moves)
            print(f"{name:18}  {shown} tokens; handled: {_spread(handled)}; layout: {_spread(laid)}")


if __name__ == "__main__":
    main()
