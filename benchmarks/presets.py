"""What every preset writes on the prompt that it is shown on, and how much of it goes round: `python benchmarks/presets.py`.

With --write what is not there yet, or was measured under other settings, is measured and kept in `presets.json`, which
`tests/app/test_preset_prompts.py` holds against the presets. float32, a processor; nothing here is timed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import torch

from decodescope.app.runs.catalogue.presets import PRESETS
from decodescope.app.runs.preset_prompts import OWN, PresetPrompt
from decodescope.app.runs.recipe import initial_choice
from decodescope.engine import Method, load, run
from decodescope.engine.core.reference import without_weights
from decodescope.engine.core.roles import TARGET
from decodescope.engine.session.load import SHIPPED, Model, fingerprint
from decodescope.engine.trace.query.repeats import repeated_share

FILE = Path(__file__).resolve().with_suffix(".json")
NEW, SEED = 48, 7  # tokens that are written, and the seed of the example that the page opens on
OTHERS = {"draft": "lab-draft", "draft2": "lab-draft-plain"}
SAID = 80  # characters that are kept


def asked(name: str) -> PresetPrompt:
    """The prompt that a preset is shown on."""
    begin = initial_choice()
    return {name: PresetPrompt(begin.prompt, begin.chat), **OWN}[name]


def models_of(name: str) -> dict[str, str]:
    """Role -> model of a preset's run on the page."""
    preset = PRESETS[name]
    lanes = Method.from_names(preset.names, preset.settings).lanes
    return {TARGET: "lab", **{x: OTHERS[x] for x in lanes if x in OTHERS}, **preset.models}


@cache
def weights(name: str) -> str:
    """The fingerprint of a model's weights, an adapter's included."""
    base, _, adapter = str(without_weights(name)[0]).partition("+")
    return fingerprint(SHIPPED / base, adapter)


def settings(name: str) -> str:
    """A digest of all that a preset's text depends on, but for the program itself."""
    preset = PRESETS[name]
    prompt = asked(name)
    models = models_of(name)
    said = [
        dict(preset.names),
        {k: dict(v) for k, v in preset.settings.items()},
        models,
        prompt.prompt,
        prompt.chat,
        NEW,
        SEED,
    ]
    return hashlib.sha256(json.dumps([said, [weights(x) for x in models.values()]]).encode()).hexdigest()[:16]


@cache
def model(name: str) -> Model:
    """Loaded once."""
    return load(name, "float32", "cpu")


def written(name: str) -> dict[str, Any]:
    """A run of the preset: its settings, how it begins, how many tokens, and the share of their 4-grams that is said again."""
    preset, prompt = PRESETS[name], asked(name)
    models = {role: model(x) for role, x in models_of(name).items()}
    target, method = models.pop(TARGET), Method.from_names(preset.names, preset.settings)
    more: dict[str, Any] = {
        "models": models,
        "chat": prompt.chat,
        "max_new_tokens": NEW,
        "seed": SEED,
        "level": "summary",
    }
    done = run(target, method, prompt.prompt, **more)
    share = round(repeated_share(done.tokens), 2)
    return {"settings": settings(name), "tokens": len(done.tokens), "again": share, "text": done.text[:SAID]}


def kept() -> dict[str, dict[str, Any]]:
    """What was measured."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def main() -> None:
    """Measure what is missing where that is asked for; then a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="PRESET", help="measure these anew, whatever is kept of them"
    )
    parser.add_argument(
        "--write", action="store_true", help="measure what is missing or has changed, and keep it"
    )
    args, rows = parser.parse_args(), kept()
    if strange := [name for name in args.names if name not in PRESETS]:
        parser.error(f"there is no preset {strange[0]!r}: choose of {', '.join(PRESETS)}")
    torch.set_num_threads(1)
    for name in PRESETS if args.write else ():
        if name in args.names or name not in rows or rows[name]["settings"] != settings(name):
            rows[name] = written(name)
            print(f"{name}: {rows[name]['again']:.2f} {rows[name]['text']!r}", flush=True)
            text = json.dumps({x: rows[x] for x in PRESETS if x in rows}, indent=1, ensure_ascii=False)
            FILE.write_text(text + "\n", encoding="utf-8")
    print("| preset | said again | begins |\n| --- | --- | --- |")
    for name in (x for x in PRESETS if x in rows):
        row = rows[name]
        print(f"| {name} | {row['again']:.0%} | {json.dumps(row['text'], ensure_ascii=False)} |")


if __name__ == "__main__":
    main()
