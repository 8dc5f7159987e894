#!/usr/bin/env python3
"""Draw one picture for each cause of refused drafts, docs/pictures/causes/CAUSE.png.

    python scripts/environment.py python benchmarks/broken_drafts.py --count 3 --seed 4 --records FOLDER
    python scripts/environment.py python scripts/cause_pictures.py FOLDER [CAUSE ...]

Each shows the two panels in which the cause is seen best, next to the same draft without a fault. Needs playwright, Pillow and
the browser that the tests use.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pictures import ARGUMENTS, PICTURES, program, save_picture
from playwright.sync_api import sync_playwright

from decodescope.lab.figures.measured.draft_examination import figure

SOUND, SOUND_HEAD = "healthy: noise of 30 %", "healthy: EAGLE"
# cause -> the pair, the panels, the draft that it is held against
CAUSES = {
    "temperature": ("logits halved", ("readings", "positions"), SOUND),
    "output_ids": ("output ids off by one", ("ids", "ranks"), SOUND),
    "draft_vocabulary": ("d2t off by a block", ("ids", "ranks"), SOUND_HEAD),
    "input_ids": ("further: embedding off by one", ("readings", "ranks"), SOUND),
    "all_ids": ("embedding and head off by one", ("readings", "ranks"), SOUND),
    "place_shift": ("further: one place behind", ("offsets", "ranks"), SOUND),
    "rope_base": ("rope base wrong", ("readings", "positions"), SOUND),
    "rope_scaling": ("rope scaling wrong", ("readings", "positions"), SOUND),
    "window": ("a window", ("readings", "positions"), SOUND),
    "context": ("a short context", ("positions", "ranks"), SOUND),
    "missing_layers": ("last layer dropped", ("readings", "ranks"), SOUND),
    "first_token": ("first token missing", ("readings", "positions"), SOUND),
    "template": ("template missing", ("kinds", "ranks"), SOUND),
    "stale_cache": ("a stale cache", ("readings", "positions"), SOUND),
    "tokenizer": ("one merged token apart", ("kinds", "ranks"), SOUND),
    "other_target": ("target quantised later", ("ranks", "positions"), SOUND_HEAD),
    "norms": ("another norm", ("readings", "ranks"), SOUND_HEAD),
    "inputs": ("[embedding; state] swapped", ("readings", "ranks"), SOUND_HEAD),
    "wiring": ("further: head of another model", ("ranks", "positions"), SOUND),
    "not_finite": ("overflow", ("ranks", "positions"), SOUND),
    "weak": ("healthy: noise of 100 %", ("ranks", "positions"), SOUND),
}


def main(records: Path, causes: list[str]) -> None:
    """Draw the pictures of these causes, or all of them."""
    folder = PICTURES / "causes"
    folder.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as made:
        browser = playwright.chromium.launch(executable_path=program(), args=ARGUMENTS)
        for cause in causes or CAUSES:
            name, panels, beside = CAUSES[cause]
            record, sound = (
                json.loads((records / f"{x}.json").read_text(encoding="utf-8")) for x in (name, beside)
            )
            drawn = figure(record, sound, panels).update_layout(
                title=dict(text=name.partition(": ")[2] or name)
            )
            page = browser.new_page(viewport=dict(width=860, height=drawn.layout.height))
            path = Path(made) / "drawn.html"
            path.write_text(drawn.to_html(include_plotlyjs=True, full_html=True), encoding="utf-8")
            page.goto(path.as_uri())
            page.wait_for_selector(".main-svg")
            page.wait_for_timeout(500)
            save_picture(page.screenshot(), folder / f"{cause}.png")
            page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
