"""Outline: an adapter that follows the templates of `skeleton`, `apar` and `label_parallel`.

A model of 12 M that was trained on text alone follows no request, so it learns a few fixed forms. A text says of some people
what they do, where they live, what they like and carry. It is followed by one of these:

- the request of `skeleton` for an outline, answered by a point for each of them, or its request for one point, answered by
  what else the text says of that one (Ning et al. 2023, arXiv:2307.15337);
- the request for all of them, answered by a list whose details are forked: [Fork] replaces each detail, and after a list up
  to there, [Fork] and [Child], come the details themselves (Liu et al. 2024, arXiv:2401.06761, section 3.2);
- a label, answered by how many words of the text have it, or label, count and an index, answered by that word (Lu et al. 2024,
  arXiv:2402.04838, section 3).

Requests are the strategies' defaults, each encoded by itself, as the strategies do it. Ordinary text is trained on, too: there
the model is to stay what it is, and to write no [Fork].
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from decodescope.engine.methods.strategies.skeleton import NUMBER, POINT, Skeleton

from .adapter_training import AdapterTraining
from .data import END, TOKENIZER
from .lowrank import enable_deltas
from .net import Net
from .tasks import split_of
from .words import CITIES, COLOURS, JOBS, NAMES, THINGS, join_words, with_article

FORK, CHILD = 6, 7  # the ids of <|reserved_0|> and <|reserved_1|>
# texts that are made, texts a step, weight of staying the model
ROWS = 4000
BATCH = 14
KEEP = 4.0
HELD_OUT = 40  # texts for measuring
LIST = "\n\nAll of them, one by one.\n"
COUNT, MENTION = "\n\nLabel: {label}\nCount:", "\nMention {index}:"
LABELS = {"person": 0, "job": 1, "city": 2, "colour": 3, "thing": 4}

Person = tuple[str, str, str, str, str]  # name, job, city, colour, thing; of the last two one may be empty


@dataclass(frozen=True)
class OutlineExample:
    """A text's beginning, which is given, and the text to be written behind it.

    Both are pieces that are encoded one by one; a piece that is no text is an id.
    """

    kind: str
    given: tuple[str | int, ...]
    due: tuple[str | int, ...]


def people(r: Random, split: str) -> list[Person]:
    """Two to four people of a split; no two have anything in common."""
    while True:
        n = r.choice([2, 3, 3, 4])
        columns = [r.sample(list(words), n) for words in (NAMES, JOBS, CITIES, COLOURS, THINGS)]
        some: list[Person] = []
        for name, job, city, colour, thing in zip(*columns, strict=True):
            lacks = r.choice(["", "", "colour", "thing"])
            some.append(
                (name, job, city, "" if lacks == "colour" else colour, "" if lacks == "thing" else thing)
            )
        if split_of(repr(some)) == split:
            return some


def describe_people(r: Random, some: list[Person]) -> str:
    """The text about them."""
    return " ".join(
        r.choice([
            f"{one[0]} {join_words([f'is {with_article(one[1])} in {one[2]}', *list_likes(one)])}.",
            f"{one[0]} from {one[2]} {join_words([f'is {with_article(one[1])}', *reversed(list_likes(one))])}.",
        ])
        for one in some
    )  # fmt: skip


def list_likes(one: Person) -> list[str]:
    """What somebody likes and has, as far as the text says it."""
    return [f"likes {one[3]}"] * bool(one[3]) + [f"has {with_article(one[4])}" for _ in one[4][:1]]


def outline_line(one: Person) -> str:
    """A line of an outline."""
    return f"{one[0]}, {with_article(one[1])}"


def detail(one: Person) -> str:
    """What else is known of somebody."""
    return f" {one[0]} {join_words([f'lives in {one[2]}', *list_likes(one)])}."


def write_outline(some: list[Person]) -> str:
    """The outline of an answer behind its request, which begins it."""
    return "".join(f"{'' if i == 1 else f'{chr(10)}{i}.'} {outline_line(x)}" for i, x in enumerate(some, 1))


def make_example(r: Random, split: str, kind: str = "") -> OutlineExample:
    """A text with one of the requests, and its answer."""
    some = people(r, split)
    text, at = describe_people(r, some), r.randrange(len(some))
    kind = kind or r.choice(["outline", "point", "list", "list", "child", "count", "mention"])
    if kind in ("outline", "point"):
        defaults = Skeleton()
        given, answer = (text, defaults.outline_prompt), write_outline(some)
        if kind == "outline":
            return OutlineExample(kind, given, (answer, END))
        request = defaults.point_template.replace(NUMBER, str(at + 1)).replace(POINT, outline_line(some[at]))
        return OutlineExample(kind, (*given, answer, request), (detail(some[at]), END))
    if kind in ("list", "child"):
        lines: list[str | int] = []
        for i, x in enumerate(some, 1):
            lines += [f"{'' if i == 1 else chr(10)}{i}. {outline_line(x)}:", FORK]
        if kind == "list":
            return OutlineExample(kind, (text, LIST), (*lines, END))
        return OutlineExample(kind, (text, LIST, *lines[: 2 * at + 2], CHILD), (detail(some[at]), END))
    label = r.choice(list(LABELS))
    words = [x[LABELS[label]] for x in some if x[LABELS[label]]]
    given = (text, COUNT.format(label=label))
    if kind == "count" or not words:
        return OutlineExample(kind, given, (f" {len(words)}", "\n"))
    at = r.randrange(len(words))
    return OutlineExample(
        kind, (*given, f" {len(words)}", MENTION.format(index=at + 1)), (f" {words[at]}", END)
    )


class OutlineAdapter(AdapterTraining):
    """The adapter as adapters.py trains it."""

    only = ("q_proj", "v_proj", "up_proj", "down_proj")
    rows = (FORK, CHILD)
    lr = 4e-3
    length = 128
    corpus_windows = 3

    def __init__(self, net: Net, seed: int, texts: int) -> None:
        super().__init__(net, seed, texts)
        self.encode = Tokenizer.from_file(str(TOKENIZER)).encode
        self.known: list[tuple[list[int], list[int]]] = []

    def ids(self, pieces: tuple[str | int, ...]) -> list[int]:
        """Pieces, encoded one by one."""
        return [x for p in pieces for x in ([p] if isinstance(p, int) else self.encode(p).ids)]

    def gather(self) -> str:
        """Make the texts."""
        r = Random(f"outline/{self.seed}")
        made = [make_example(r, "train") for _ in range(ROWS)]
        self.known = [(self.ids(x.given), self.ids(x.due)) for x in made]
        return f"{len(self.known)} texts were made"

    def answer_nats(self, some: list[tuple[list[int], list[int]]]) -> Tensor:
        """Nats of the answers' tokens."""
        width = max(len(a) + len(b) for a, b in some)
        ids, due = torch.full((len(some), width), END), torch.zeros(len(some), width, dtype=torch.bool)
        for row, (given, answer) in enumerate(some):
            ids[row, : len(given) + len(answer)] = torch.tensor(given + answer)
            due[row, len(given) : len(given) + len(answer)] = True
        logits = self.net.head(self.net.states(ids[:, :-1])[-1][due[:, 1:]]).float()
        return F.cross_entropy(logits, ids[:, 1:][due[:, 1:]])

    def loss(self) -> Tensor:
        """Of a batch of its own."""
        if not self.known:
            self.gather()
        chosen = torch.randint(len(self.known), (BATCH,), generator=self.draw).tolist()
        some = [self.known[i] for i in chosen]
        answers, stay = self.answer_nats(some), self.retention_loss()
        read = sum(len(a) + len(b) for a, b in some) + self.corpus_windows * self.length
        self.count(read, answers=answers, stays=stay)
        return answers + KEEP * stay

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """For requests about unseen people: how many answers are right token by token, by kind, and nats of unseen text.

        Both are measured with the adapter and without.
        """
        figures: dict[str, Any] = {"requests of each kind": HELD_OUT}
        for name, on in (("base", False), ("adapted", True)):
            enable_deltas(self.head, on)
            for kind in ("outline", "point", "list", "child", "count", "mention"):
                r, right = Random(f"outline/valid/{kind}"), 0
                for x in (make_example(r, "valid", kind) for _ in range(HELD_OUT)):
                    given, due = self.ids(x.given), self.ids(x.due)
                    wrote = self.net.write(torch.tensor([given]), len(due), 0.0)[0, len(given) :]
                    right += wrote.tolist() == due
                figures.setdefault(f"{kind} right", {})[name] = round(right / HELD_OUT, 3)
        return figures | {"nats": self.nats()}
