"""What a model answers: LabBench's questions by kind, each in one pass without decoding, to compare trainings quickly.

    python -m decodescope.training.answer_accuracy assets/models/lab build/training/lab.pt     folders and checkpoints, side
    by side

A question counts as answered where greedy decoding writes the reference and ends (`recall.right`), in its first turn.
LabBench's own scorers accept more than that where several answers are right, so their shares are higher. Kinds whose reference
is one answer of many are left out.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import torch

from .bench import questions
from .data import load_tokenizer
from .infill_card import table
from .net import Net
from .recall import load_net, score_tasks
from .tasks import Task

FREE = ("chat", "summary", "translation")


def questions_by_kind(count: int) -> dict[str, list[Task]]:
    """Kind, with its size where it has several -> the first `count` questions; only the first turn is asked."""
    out = defaultdict(list)
    for task in questions():
        name = f"{task.kind} {size}" if (size := task.tags.get("tokens")) else task.kind
        if task.kind not in FREE and len(out[name]) < count:
            out[name].append(replace(task, turns=task.turns[:1], answers=task.answers[:1]))
    return out


def answer_accuracy(net: Net, asked: dict[str, list[Task]]) -> dict[str, tuple[float, float]]:
    """Kind -> the share of questions that are answered, and of the references' tokens that are the likeliest ones."""
    return {kind: score_tasks(net, load_tokenizer(True), tasks) for kind, tasks in asked.items()}


def main() -> None:
    """Print a table: kinds down, models across."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "models", nargs="+", type=Path, help="model folders, or checkpoints of `lab`'s training"
    )
    parser.add_argument("--count", type=int, default=40, help="questions of a kind")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    asked = questions_by_kind(args.count)
    found = [answer_accuracy(load_net(model, "lab"), asked) for model in args.models]
    rows = [[kind, *(f"{one[kind][0]:.0%} ({one[kind][1]:.0%})" for one in found)] for kind in asked]
    rows.append(["mean", *(f"{sum(s for s, _ in one.values()) / len(one):.0%}" for one in found)])
    print(table(["answered (tokens right)", *(model.stem for model in args.models)], rows))


if __name__ == "__main__":
    main()
