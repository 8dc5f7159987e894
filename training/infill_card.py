"""Measure `lab-mdm` and write its card, `assets/models/MDM.md`.

    python -m decodescope.training.infill_card

Questions are drawn by their own seed. Lists this short are few enough that some of them stood in the training text, too;
nothing is learnt by heart where a share is that of a perfect model. Decoding is that of infill.py: the surest tokens first.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random

import torch

from decodescope.engine.bench.questions.parallel_tasks import (
    LENGTHS,
    LISTS,
    NAMES,
    SETTLED,
    TASKS,
    chance_at_once,
    make_question,
    make_questions,
)

from . import data
from .infill import CANVAS, NAME, fill_canvas, marks_of
from .infill_data import InfillSource, cloze_pair
from .net import Net, count_weights
from .train import MODELS, RECORDS

PASSES = (CANVAS, CANVAS // 2, CANVAS // 4, 1)
SEED, GRID = 7_000_000, 17
SAMPLES = ("copy", "reverse", "sort", "insert_index", "remove_random", "shuffle", "latin_square", "sudoku")


def measure(net: Net, source: InfillSource, count: int) -> dict[str, dict[int, float]]:
    """Task -> passes -> share of right answers of `count` questions; grids at one token a pass alone."""
    shares: dict[str, dict[int, float]] = {task: {} for task in TASKS}
    for passes in PASSES:
        for task, marks in marks_of(
            net, source, make_questions(LISTS, count, SEED, LENGTHS), CANVAS, passes
        ).items():
            shares[task][passes] = sum(marks) / count
    for task, marks in marks_of(
        net, source, make_questions(("latin_square", "sudoku"), count, SEED), GRID, GRID
    ).items():
        shares[task][GRID] = sum(marks) / count
    return shares


def gap_accuracy(net: Net, source: InfillSource, count: int) -> float:
    """The share of `count` gaps in sentences that are filled with the original word, one token a pass."""
    right, chance = 0, Random(f"{SEED}/cloze")
    for _ in range(count):
        text, word = cloze_pair(chance)
        ids = fill_canvas(net, torch.tensor([source.tokenizer.encode(text).ids]), CANVAS, CANVAS)[0].tolist()
        end = ids.index(data.END) if data.END in ids else CANVAS
        right += source.tokenizer.decode(ids[:end]).strip() == word
    return right / count


def perfect_score(task: str) -> str:
    """What a perfect model gets at once over the lengths, in percent; a dash for a grid."""
    return (
        f"{sum(float(chance_at_once(task, n)) for n in LENGTHS) / len(LENGTHS):.0%}" if task in LISTS else "-"
    )


def card(net: Net, source: InfillSource, count: int) -> str:
    """The card as Markdown."""
    shares, runs = measure(net, source, count), json.loads((RECORDS / f"{NAME}.json").read_text())
    gate = sum(shares[task][CANVAS] for task in SETTLED) / len(SETTLED)
    rows = [
        [
            f"`{task}`",
            *(f"{shares[task][p]:.0%}" if p in shares[task] else "-" for p in PASSES),
            perfect_score(task),
        ]
        for task in LISTS
    ]
    rows += [
        [f"`{task}`", f"{shares[task][GRID]:.0%}", "-", "-", "-", "-"] for task in ("latin_square", "sudoku")
    ]
    made = [
        [
            str(i + 1),
            f"{r['tokens'] / 1e6:.2f} M",
            f"{r['minutes']:.0f}",
            f"`{r['command']}`",
            r.get("note", ""),
            "; ".join(
                f"{k}: " + ", ".join(f"{kind} {share:.0%}" for kind, share in some.items())
                for k, some in r["mixture"].items()
            ),
        ]
        for i, r in enumerate(runs)
    ]
    parts = [
        HEAD.format(
            size=count_weights(net),
            names=", ".join(NAMES),
            low=LENGTHS[0],
            high=LENGTHS[-1],
            canvas=CANVAS,
            count=count,
            gate=gate,
            tokens=sum(r["tokens"] for r in runs) / 1e6,
        ),
        table(
            [
                "task",
                "one a pass",
                *(f"{p} passes" for p in PASSES[1:-1]),
                "at once",
                "a perfect model at once",
            ],
            rows,
        ),
        GAPS.format(count=count, share=gap_accuracy(net, source, count)),
        MADE,
        table(["part", "tokens", "minutes", "arguments", "remarks", "rows by window"], made),
        SAID,
    ]
    for task in SAMPLES:
        q = make_question(task, Random(f"{SEED}/{task}"))
        canvas = GRID if task in ("latin_square", "sudoku") else CANVAS
        ids = fill_canvas(net, torch.tensor([source.tokenizer.encode(q.prompt).ids]), canvas, canvas)[
            0
        ].tolist()
        parts.append(f"    {q.prompt}{source.tokenizer.decode(ids, skip_special_tokens=False)}")
    return "\n".join([*parts, WEAK]).rstrip() + "\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows]) + "\n"


HEAD = """\
# lab-mdm

A masked-diffusion model: no causal mask; it fills in `<|mask|>` (id 5) in any order. {size:,} numbers, 6 layers of width 96,
context 256, the tokenizer of the others; trained here on {tokens:.2f} M tokens with LLaDA's objective (arXiv 2502.09992). Its
strategies are those that fill places on both sides; one that writes from left to right refuses it.

It answers list tasks in a form of its own, made by `engine/bench/questions/parallel_tasks.py`, such as `sort: Finn
Ben Ada ->`. Lists
have {low} to {high} items of these: {names}.
Every item is one token, and `<|end|>` fills the canvas behind the answer.

## Right answers

{count} questions a task, a canvas of {canvas} tokens, the surest tokens first. Lists with one right answer, one token a pass:
**{gate:.1%}** (the gate is 95 %). `python -m decodescope.training.infill_card` measures it and writes this page.
"""
GAPS = """\
Of {count} sentences with a gap (`fill in: ... ->`), {share:.0%} got the word that stood there, which the sentence before holds.
"""
MADE = """\
At once, the model takes each slot's likeliest token; the perfect model of the last column draws from exact marginals, over the
same lengths. A likeliest token can do better where all slots lean to one answer, and worse where none of them leans.

## How it was made

`python -m decodescope.training.infill` with these arguments, each part going on from the one before, on one busy core.
Windows are named by their longest length in tokens.
"""
SAID = "## What it says\n\nThe first question drawn of each task, one token a pass.\n"
WEAK = """
## Known weaknesses

It was trained for an hour and a half on a part of a busy processor, with half of the 30 M tokens that were planned. The list
tasks and the Latin square are learnt, one token a pass; no sudoku comes out right, which the last part left out. Of programs
and stories it saw about a million tokens each, which teach little more than the look of them; nothing here measures those.
Other names, longer lists and other words of the question are unknown to it.
"""


def main() -> None:
    """Write the card."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--questions", type=int, default=100, help="of a task")
    parser.add_argument("--model", default=str(MODELS / NAME), metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=MODELS / "MDM.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.write_text(
        card(Net.from_folder(args.model).eval(), InfillSource({}), args.questions), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
