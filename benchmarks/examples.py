"""What an example writes behind each prompt of a pool, and how much of it goes round: `python benchmarks/examples.py NAME ...`

Several names are examples that share a prompt, which is taken where none of them goes round. Those of `SEARCHED` are kept in
`examples.json` with --write, each prompt under a digest of all that its text depends on, so that only what is new is measured;
`tests/app/test_examples.py` holds that against the bound. float32, a processor; nothing here is timed, nothing recorded.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from presets import model, weights

from decodescope.app.runs.preset_prompts import MOST, OWN, PresetPrompt
from decodescope.engine import Method, run
from decodescope.engine.trace.query.repeats import repeated_share

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).resolve().with_suffix(".json")
SEARCHED = ("jacobi", "cllm")  # all eight guesses of a block are one token: what settles first may go round
SAID = 80  # characters that are kept
OTHERS = (  # in addition to those of presets
    *(
        PresetPrompt(x, False)
        for x in ("Once upon a time, there was a little girl", "One day, a girl named", "Max was a dog who")
    ),
    *(
        PresetPrompt(x, False)
        for x in ("There once was a shepherd called Jakob", "On Sunday, Bertha and Oliver went to the")
    ),
    PresetPrompt(
        '{"id": 64, "name": "Oliver", "city": "Sydney", "tags": ["brown", "red"], "active": false}\nRepeat this.'
    ),
    PresetPrompt("Say this once more: red brown silver gold green blue white black"),
    PresetPrompt("Write the expression for the sum of 10 and 19."),
    PresetPrompt("Write a function that tests whether a number is prime."),
)


@cache
def recording() -> ModuleType:
    """assets/traces/make.py as a module."""
    spec = importlib.util.spec_from_file_location("traces_make", ROOT / "assets" / "traces" / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pool() -> list[PresetPrompt]:
    """The prompts that are tried, each once; those of the models of pictures and canvases are not among them."""
    return [*dict.fromkeys([*(x for x in OWN.values() if x.chat), *OTHERS])]


def settings(name: str, prompt: PresetPrompt) -> str:
    """A digest of all that an example's text behind a prompt depends on, but for the program itself."""
    what = recording().EXAMPLES[name]
    lanes = Method.from_names(what["names"], what["settings"]).lanes
    models = {
        "target": what.get("model", "lab"),
        **{x: y for x, y in recording().ROLES.items() if x in lanes},
    }
    said = [what["names"], what["settings"], what["new"], what["seed"], models, prompt.prompt, prompt.chat]
    return hashlib.sha256(json.dumps([said, [weights(x) for x in models.values()]]).encode()).hexdigest()[:16]


def written(name: str, prompt: PresetPrompt) -> dict[str, Any]:
    """A run of the example behind a prompt: its settings, how it begins, its tokens and steps, and the share of 4-grams that is
    said again."""
    what, roles = recording().EXAMPLES[name], recording().ROLES
    method = Method.from_names(what["names"], what["settings"])
    models = {role: model(x) for role, x in roles.items() if role in method.lanes}
    more: dict[str, Any] = {
        "models": models,
        "chat": prompt.chat,
        "max_new_tokens": what["new"],
        "seed": what["seed"],
    }
    done = run(model(what.get("model", "lab")), method, prompt.prompt, level="summary", **more)
    found = {"settings": settings(name, prompt), "tokens": len(done.tokens), "steps": len(done.trace.steps)}
    return found | {"again": round(repeated_share(done.tokens), 2), "text": done.text[:SAID]}


def kept() -> list[dict[str, Any]]:
    """What was measured: a row for each prompt."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []


def measured(names: tuple[str, ...], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each prompt of the pool: `prompt`, `chat`, and by example what it writes; the best first.

    Rows are taken from `before` where they are still valid. The best are those with no example that loops or ends early; among
    these the one with fewest steps is first.
    """
    old = {(x["prompt"], x["chat"]): x for x in before}
    rows = []
    for one in pool():
        row: dict[str, Any] = {"prompt": one.prompt, "chat": one.chat}
        for name in names:
            known = old.get((one.prompt, one.chat), {}).get(name)
            fits = known is not None and known["settings"] == settings(name, one)
            row[name] = known if fits else written(name, one)
        rows.append(row)
    return sorted(
        rows, key=lambda row: (not good(row, names), sum(row[x]["steps"] / row[x]["tokens"] for x in names))
    )


def good(row: dict[str, Any], names: tuple[str, ...]) -> bool:
    """Whether an example that is recorded behind this prompt is taken: it has steps enough, and does not go round."""
    made = recording()
    return all(
        row[x]["again"] <= MOST and row[x]["steps"] >= made.EXAMPLES[x].get("enough", made.ENOUGH)
        for x in names
    )


def main() -> None:
    """Measure, keep where that is asked for, and a line for each prompt."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", default=SEARCHED, metavar="EXAMPLE", help=f"{' and '.join(SEARCHED)} without one"
    )
    parser.add_argument(
        "--write", action="store_true", help="keep what is measured of " + " and ".join(SEARCHED)
    )
    args = parser.parse_args()
    names = tuple(args.names)
    if strange := [name for name in names if name not in recording().EXAMPLES]:
        parser.error(f"there is no example {strange[0]!r}: choose of {', '.join(recording().EXAMPLES)}")
    torch.set_num_threads(1)
    rows = measured(names, kept())
    if args.write and names == SEARCHED:
        FILE.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print("| taken | prompt | " + " | ".join(f"{x}: steps, said again, begins" for x in names) + " |")
    print("| --- " * (2 + len(names)) + "|")
    for row in rows:
        cells = [
            f"{row[x]['steps']}, {row[x]['again']:.0%}, {json.dumps(row[x]['text'], ensure_ascii=False)}"
            for x in names
        ]
        begins = json.dumps(row["prompt"][:SAID], ensure_ascii=False)
        print(f"| {'yes' if good(row, names) else 'no'} | {begins} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
