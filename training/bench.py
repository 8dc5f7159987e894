"""The questions of LabBench: held-out tasks of every kind, in Spec-Bench's format.

    python -m decodescope.training.bench

writes `assets/bench/labbench.jsonl`, one JSON object a line. The same code writes the same bytes. If a kind, a story or a word
changes, the file changes, so write it again and raise VERSION here and in `assets/bench/README.md`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Tokenizer

from .tasks import KINDS, Task, render

ASSETS = Path(__file__).resolve().parents[1] / "assets"
FILE = ASSETS / "bench" / "labbench.jsonl"
VERSION = "1"
COUNT = 40  # questions of a kind, or of each of its variants
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "math": [{"form": "one-step"}, {"form": "words"}],
    "retrieval": [{"tokens": 512}, {"tokens": 1500}],
}
CONTEXT = 2048  # tokens that a question and its answers may take


def questions() -> Iterator[Task]:
    """The tasks, kind by kind, variants in turn; no two have the same text."""
    seen: set[tuple[str, ...]] = set()
    for kind, make in KINDS.items():
        for i in range(COUNT):
            for variant in VARIANTS.get(kind, [{}]):
                r = Random(f"labbench {VERSION}/{kind}/{i}/{sorted(variant.items())}")
                while (task := make(r, "held_out", **variant)).turns in seen:
                    pass
                seen.add(task.turns)
                yield task


def question_line(number: int, task: Task) -> str:
    """One question in Spec-Bench's format with our fields."""
    return (
        json.dumps(
            {
                "question_id": number,
                "category": task.kind,
                "turns": task.turns,
                "reference": task.references or task.answers,
                "scorer": task.scorer,
                "tags": task.tags,
            }
        )
        + "\n"
    )


def bench_text() -> str:
    """The whole file."""
    return "".join(question_line(i, task) for i, task in enumerate(questions(), 1))


def main() -> None:
    """Write the file, if every question fits."""
    tokenizer = Tokenizer.from_file(str(ASSETS / "models" / "lab" / "tokenizer.json"))
    sizes: dict[str, list[int]] = {}
    for task in questions():
        sizes.setdefault(task.kind, []).append(len(tokenizer.encode(render(task)).ids))
    for kind, found in sizes.items():
        print(f"{kind:12} {len(found):4} questions, {min(found)} to {max(found)} tokens")
    if too_long := [kind for kind, found in sizes.items() if max(found) > CONTEXT]:
        sys.exit(
            f"Questions of {', '.join(too_long)} take more than {CONTEXT} tokens: make the kind's texts shorter."
        )
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(bench_text(), encoding="utf-8", newline="\n")
    print(f"{FILE.relative_to(ASSETS.parent)}: {FILE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
