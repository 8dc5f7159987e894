"""cloze: an adapter of `lab-mdm` that fills a mask behind a question with a label, and the questions themselves.

There are three sorts; each has an answer of one token among a few. `kind`: what a piece of text is (text, code, list). `claim`:
whether a word occurs in a story (true, false). `same`: whether two lists have the same items in whatever order (true, false).

<|end|> fills the places behind the mask up to a multiple of 8 tokens, as the model knows canvases. The loss is the cross
entropy at the mask, over the whole vocabulary. The embeddings of the labels learn too: the model never wrote these words, and
the rows of words that it never wrote are all alike.

`python -m decodescope.training.cloze` writes `assets/bench/cloze.jsonl`, questions of held-out text that
`decodescope bench cloze` asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from decodescope.engine.bench.questions.parallel_tasks import NAMES

from . import data
from .adapter_training import AdapterTraining
from .lowrank import enable_deltas
from .net import MASK, Net
from .tasks.task import pick, split_sentences, story

FILE = data.ROOT / "assets" / "bench" / "cloze.jsonl"
LABELS = {"kind": ("text", "code", "list"), "claim": ("true", "false"), "same": ("true", "false")}
TEXTS = {"text": "story", "code": "code", "list": "list"}  # label -> kind of the corpus
WEIGHTS = {"kind": 1, "claim": 4, "same": 1}  # how often each is asked in training
FILL, BATCH = 8, 1536  # tokens
ASKED = 150  # of each sort in the file
LONGEST = 88  # tokens of a window


@dataclass(frozen=True)
class LabelQuestion:
    """A question that ends with the place of its label, and which of the labels is right."""

    sort: str
    prompt: str
    labels: tuple[str, ...]
    answer: str


class LabelQuestions:
    """Questions of a split, made by rule from its text."""

    def __init__(self, split: str, seed: int, stories: int) -> None:
        texts, r = data.load(split), Random(seed)
        self.split, self.tokenizer = split, Tokenizer.from_file(str(data.TOKENIZER))
        self.texts = {label: texts[kind].ids for label, kind in TEXTS.items()}
        self.told = [split_sentences(story(r, split)[0].text) for _ in range(stories)]

    def ask(self, sort: str, r: Random) -> LabelQuestion:
        """A question of that sort."""
        makers: dict[str, Callable[[Random], tuple[str, str]]] = {
            "kind": self.kind,
            "claim": self.claim,
            "same": self.same,
        }
        prompt, answer = makers[sort](r)
        return LabelQuestion(sort, prompt, LABELS[sort], answer)

    def kind(self, r: Random) -> tuple[str, str]:
        """A piece of 8 to 32 tokens, and what it is."""
        label = r.choice(LABELS["kind"])
        size, ids = r.randint(8, 32), self.texts[label]
        at = r.randrange(len(ids) - size)
        return f"kind: {self.tokenizer.decode(ids[at : at + size].tolist())} ->", label

    def claim(self, r: Random) -> tuple[str, str]:
        """Three sentences of a story and a word, which in half of the cases is one of another story's."""
        while True:
            told, other = r.choice(self.told), " ".join(r.choice(self.told))
            at = r.randrange(max(1, len(told) - 2))
            whole, label = " ".join(told[at : at + 3]), r.choice(LABELS["claim"])
            here = set(re.findall(r"[A-Za-z]{4,}", whole))
            words = sorted(here if label == "true" else set(re.findall(r"[A-Za-z]{4,}", other)) - here)
            if len(whole) < 200 and words:
                return f"claim: {whole} / {r.choice(words)} ->", label

    def same(self, r: Random) -> tuple[str, str]:
        """Two lists of 2 to 4 names in any order; in half of the cases one name of the second is another."""
        first = list(pick(self.split, lambda: tuple(r.sample(NAMES, r.randint(2, 4)))))
        second = r.sample(first, len(first))
        label = r.choice(LABELS["same"])
        if label == "false":
            second[r.randrange(len(second))] = r.choice([x for x in NAMES if x not in first])
        return f"same: {' '.join(first)} / {' '.join(second)} ->", label

    def ids(self, q: LabelQuestion) -> list[int]:
        """The question's tokens, the mask, and <|end|> up to a multiple of FILL."""
        row = [*self.tokenizer.encode(q.prompt).ids, MASK]
        return row + [data.END] * (-len(row) % FILL)

    def token(self, label: str) -> int:
        """The one token of a label."""
        (only,) = self.tokenizer.encode(f" {label}").ids
        return only

    def batch(self, r: Random) -> tuple[Tensor, Tensor]:
        """Windows of one sort, int64 [B, T], and the token at each mask, int64 [B]."""
        sort = r.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        rows = list[list[int]]()
        due = list[int]()
        longest = 0
        while not rows or max(longest, len(rows[-1])) * (len(rows) + 1) <= BATCH:
            q = self.ask(sort, r)
            row = self.ids(q)
            if len(row) <= LONGEST:
                rows = [*rows, row]
                due = [*due, self.token(q.answer)]
                longest = max(longest, len(row))
        return torch.tensor([row + [data.END] * (longest - len(row)) for row in rows]), torch.tensor(due)


class ClozeAdapter(AdapterTraining):
    """The adapter as adapters.py trains it."""

    rank = 8
    rows = (609, 1273, 1555, 1787, 2352)  # " list", " code", " text", " true", " false"
    lr = 4e-3

    def learn(self) -> str:
        """Make the stories that questions are asked about."""
        self.asked, self.chance = LabelQuestions("train", self.seed, 4000), Random(self.seed)
        return "4000 stories"

    def loss(self) -> Tensor:
        """Of a batch of one sort."""
        ids, due = self.asked.batch(self.chance)
        # attention written out: on a processor the fused one is slow backwards through windows this short
        with sdpa_kernel(SDPBackend.MATH):
            logits = self.net.head(self.net.states(ids)[-1][ids == MASK]).float()  # [B, V]
        nats = F.cross_entropy(logits, due)
        self.count(ids.numel(), nats=nats)
        return nats

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """By sort, the share of the file's questions with the right label likeliest, without the adapter and with it."""
        found: dict[str, Any] = {}
        asked = LabelQuestions("valid", 0, 0)
        for name, on in (("base", False), ("adapted", True)):
            enable_deltas(self.head, on)
            for sort in LABELS:
                some = [q for q in load_cloze_questions() if q.sort == sort]
                right = [likeliest_label(self.net, asked, q) == q.answer for q in some]
                found.setdefault(sort, {})[name] = round(sum(right) / len(right), 4)
        return {"questions": len(load_cloze_questions()), "right": found}


def likeliest_label(net: Net, asked: LabelQuestions, q: LabelQuestion) -> str:
    """The likeliest label of a question."""
    ids = torch.tensor([asked.ids(q)])
    logits = net.head(net.states(ids)[-1][ids == MASK])[0]
    return max(q.labels, key=lambda label: float(logits[asked.token(label)]))


def load_cloze_questions() -> list[LabelQuestion]:
    """The questions of the file."""
    rows = (json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines())
    return [LabelQuestion(x["sort"], x["prompt"], tuple(x["labels"]), x["answer"]) for x in rows]


def main() -> None:
    """Write the file of questions."""
    asked = LabelQuestions("valid", 1, 200)
    r = Random(1)
    chosen = list[LabelQuestion]()
    for sort in LABELS:
        some: list[LabelQuestion] = []
        while len(some) < ASKED:
            q = asked.ask(sort, r)
            if len(asked.ids(q)) <= LONGEST and q not in some:
                some.append(q)
        chosen += some
    FILE.write_text(
        "".join(json.dumps(asdict(q), ensure_ascii=False) + "\n" for q in chosen), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
