"""What a model finds again: held-out questions of `tasks.retrieval` by form and length, and the card of `lab-recall`.

    python -m decodescope.training.recall build/training/lab-recall.pt     a checkpoint while it trains
    python -m decodescope.training.recall assets/models/lab-recall --write assets/models/RECALL.md

Every question asks for one thing. An answer is right if greedy decoding writes it and then ends. That is so exactly where each
of its tokens, `<|end|>` too, is the likeliest one behind the right ones before it: one pass a question, no decoding. The share
of such tokens is also reported, since it rises long before answers are right.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer

from . import data
from .infill_card import table
from .net import Net, count_weights
from .tasks import Task, render, retrieval
from .train import RECORDS, SHAPES

NAME = "lab-recall"
SEED = 9_000_000
SIZES = (128, 512, 1500)
FORMS = {
    "passkey": "a pass key in a story",
    "needle": "a needle among sentences (up to four)",
    "lines": "a number among lines of the same shape",
    "pairs": "a pair in a table of nonsense words",
}
WANTED = {
    ("passkey", 1500): 0.95,
    ("needle", 512): 0.9,
    ("lines", 128): 0.7,
    ("pairs", 128): 0.7,
}  # shares of exact answers
SAID = 40  # tokens of a sample at most
Scores = dict[tuple[str, int], tuple[float, float]]


def questions(form: str, tokens: int, count: int) -> list[Task]:
    """The first `count` held-out questions of a form and length that ask for one thing."""
    r, out = Random(f"{SEED}/{form}/{tokens}"), list[Task]()
    while len(out) < count:
        task = retrieval.make(r, "held_out", tokens)
        if task.tags["form"] == form and task.tags["asked"] == 1:
            out.append(task)
    return out


@torch.no_grad()
def token_correctness(net: Net, tokenizer: Tokenizer, task: Task) -> list[bool]:
    """Whether each token of the right answer, and the end behind it, is the likeliest one."""
    prompt, _, _ = render(task).partition("<|assistant|>\n")
    asked = tokenizer.encode(f"{prompt}<|assistant|>\n").ids
    answer = tokenizer.encode(f"{task.answers[0]}<|end|>").ids
    ids = torch.tensor([asked + answer])
    said = net.head(net.states(ids[:, :-1])[-1][0, len(asked) - 1 :]).argmax(1)
    return (said == ids[0, len(asked) :]).tolist()


def measure(net: Net, tokenizer: Tokenizer, count: int, sizes: tuple[int, ...] = SIZES) -> Scores:
    """(form, length) -> the share of answers that are right, and of their tokens."""
    out: Scores = {}
    for form in FORMS:
        for tokens in sizes:
            out[form, tokens] = score_tasks(net, tokenizer, questions(form, tokens, count))
    return out


@torch.no_grad()
def score_tasks(net: Net, tokenizer: Tokenizer, tasks: list[Task]) -> tuple[float, float]:
    """The share of tasks with right answers, and of the answers' tokens."""
    marks = [token_correctness(net, tokenizer, task) for task in tasks]
    return sum(map(all, marks)) / len(marks), sum(map(sum, marks)) / sum(map(len, marks))


def score_table(scores: Scores) -> str:
    """The scores as a table: exact answers, in brackets their tokens and the goal."""
    sizes = sorted({tokens for _, tokens in scores})
    return table(
        ["exact (tokens right)", *(f"{n:,} tokens" for n in sizes)],
        [[said, *(score_cell(form, n, scores[form, n]) for n in sizes)] for form, said in FORMS.items()],
    )


def score_cell(form: str, tokens: int, score: tuple[float, float]) -> str:
    """One score, next to the target score."""
    aim = next((f", of {least:.0%} wanted" for place, least in WANTED.items() if place == (form, tokens)), "")
    return f"{score[0]:.0%} ({score[1]:.0%}{aim})"


def aims_report(scores: Scores) -> str:
    """The goals, each reached or missed."""
    lines = []
    for (form, tokens), least in WANTED.items():
        share = scores[form, tokens][0]
        word = "reached" if share >= least else "missed"
        lines.append(f"- {FORMS[form]}, {tokens:,} tokens: {share:.0%}, of {least:.0%} wanted: **{word}**.")
    return "\n".join(lines) + "\n"


def sample(net: Net, tokenizer: Tokenizer, task: Task) -> str:
    """A question and what the model answers, greedily."""
    prompt, _, _ = render(task).partition("<|assistant|>\n")
    ids = torch.tensor([tokenizer.encode(f"{prompt}<|assistant|>\n").ids])
    said = net.write(ids, SAID, 0.0, stop=data.END)[0, ids.shape[1] :]
    answer = tokenizer.decode(said.tolist(), skip_special_tokens=False)
    return f"{prompt}<|assistant|>\n{answer}\n(right: {task.answers[0]})"


def card(net: Net, tokenizer: Tokenizer, count: int) -> str:
    """The card as Markdown."""
    runs = json.loads((RECORDS / f"{NAME}.json").read_text())
    made = [
        [
            str(i),
            f"{r['tokens'] / 1e6:.2f} M",
            f"{r['steps']:,}",
            f"{r['minutes']:.0f}",
            r["device"],
            f"`{r['command']}`",
        ]
        for i, r in enumerate(runs, 1)
    ]
    making = table(["training", "tokens", "steps", "minutes", "device", "arguments"], made)
    kinds = list(runs[-1]["mixture"])
    ways = [(at, found) for r in runs for at, found in r["held_out"]]
    some = ways[:: max(1, len(ways) // 8)]
    curve = table(
        ["held-out nats a token", *(f"{at / 1e6:.1f} M" for at, _ in some)],
        [[k, *(f"{found[k]:.2f}" for _, found in some)] for k in kinds],
    )
    mixture = ", ".join(f"{k} {share:.0%}" for k, share in runs[-1]["mixture"].items())
    samples = [f"~~~~text\n{sample(net, tokenizer, questions(form, 128, 1)[0])}\n~~~~\n" for form in FORMS]
    scores = measure(net, tokenizer, count)
    first = "The first question drawn of each form, at 128 tokens, answered greedily:\n"
    return (
        "\n".join(
            [
                HEAD.format(size=count_weights(net), count=count, shape=net.shape),
                score_table(scores),
                aims_report(scores),
                MADE,
                making,
                f"Text: {mixture}.\n",
                curve,
                first,
                *samples,
            ]
        ).rstrip()
        + "\n"
    )


HEAD = """\
# lab-recall

A model of {size:,} numbers that looks things up: {shape.layers} layers of width {shape.width}, {shape.heads} query and \
{shape.kv_heads} KV heads, the tokenizer of `lab`. It
is for watching what a cache policy loses and keeps. It knows stories and the questions below, and nothing else. This page is
written by `python -m decodescope.training.recall assets/models/lab-recall --write assets/models/RECALL.md`.

Held-out questions, {count} a cell; no training saw their needles, nor the stories around them.
"""
MADE = """\
## How it was made

By `training/train.py`, from nothing, on documents that were made while it read them, none twice
(`training/lookups.py`), with stories and documentation between them. Windows grow over the course of the training.
Questions are read and not predicted; an answer's token counts six times.
"""


def load_net(source: Path, name: str = NAME) -> Net:
    """The model of a folder, or of a checkpoint of the training of `name`."""
    if source.is_dir():
        return Net.from_folder(source).eval()
    net = Net(SHAPES[name])
    net.load_state_dict(torch.load(source, map_location="cpu")["net"])
    return net.eval()


def main() -> None:
    """Measure, and write the card where one is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", type=Path, help="a model's folder, or a checkpoint (.pt)")
    parser.add_argument("--count", type=int, default=60, help="questions of each form and length")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the card there")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if not args.source.exists():
        raise SystemExit(
            f"There is no {args.source}: train it first, with python -m decodescope.training.train {NAME}."
        )
    net, tokenizer = load_net(args.source), Tokenizer.from_file(str(data.TOKENIZER))
    if args.write:
        args.write.write_text(card(net, tokenizer, args.count), encoding="utf-8")
    else:
        print(score_table(measure(net, tokenizer, args.count)))


if __name__ == "__main__":
    main()
