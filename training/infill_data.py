"""Training data of `lab-mdm`: questions with their answers, filled up with <|end|> to one length, generated for every step.

The fill is part of the answer, as in LLaDA's fine-tuning (2502.09992): the model says itself where the answer ends, and a
canvas may be longer than it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from decodescope.engine.bench.questions.parallel_tasks import LISTS, draw_answer, make_question

from . import data
from .tasks.task import split_sentences, story

# how often a list task is asked, relative to 1 for all others
HARD = {"sort": 3, "insert_index": 2, "replace_index": 2, "replace_random": 2, "shuffle": 2}
WEIGHTS = [HARD.get(task, 1) for task in LISTS]
TRIES = 40  # draws of a kind before another is taken
FILL = 6  # so many <|end|> close an answer at most
SPARSE = 0.15  # share of the windows in which any number may close it
Pair = tuple[list[int], list[int]]  # ids of the prompt and of the answer, without <|end|>


@dataclass(frozen=True)
class InfillWindows:
    """Windows of one length: ids int64 [B, T], and which of them are the answer, bool [B, T]."""

    ids: Tensor
    answer: Tensor

    def to(self, device: torch.device) -> InfillWindows:
        """The same on that device."""
        return InfillWindows(self.ids.to(device), self.answer.to(device))


class InfillSource:
    """Pairs of every kind. The programs and the stories are those of the corpus, where it was built."""

    KINDS = ("lists", "latin_square", "sudoku", "programs", "cloze", "stories")

    def __init__(self, texts: dict[str, data.CorpusText]) -> None:
        self.tokenizer = Tokenizer.from_file(str(data.TOKENIZER))
        self.texts = {
            kind: texts[name]
            for kind, name in (("programs", "coding"), ("stories", "story"))
            if name in texts
        }
        self.kinds = tuple(k for k in self.KINDS if k not in ("programs", "stories") or k in self.texts)
        self.newline = self.tokenizer.encode("\n").ids[0]

    def pair(self, kind: str, r: Random, room: int) -> Pair | None:
        """A pair of that kind that leaves room for one <|end|> and mostly for few more; None where what was drawn does not."""
        prompt, answer = getattr(self, kind)(r, room) if kind in self.texts else self.question_pair(kind, r)
        fill = room - len(prompt) - len(answer)
        least, most = (0, 0) if kind == "stories" else (1, room if r.random() < SPARSE else FILL)
        return (prompt, answer) if least <= fill <= most else None

    def question_pair(self, kind: str, r: Random) -> Pair:
        """A question by rule and one of its answers, or a sentence with a gap and the original word."""
        if kind == "cloze":
            text, answer = cloze_pair(r)
        else:
            q = make_question(r.choices(LISTS, WEIGHTS)[0] if kind == "lists" else kind, r)
            text, answer = q.prompt, " ".join(draw_answer(q, r))
        return self.tokenizer.encode(text).ids, self.tokenizer.encode(f" {answer}").ids

    def programs(self, r: Random, room: int) -> Pair:
        """A chat that asks for a function's body, and the body."""
        ids = self.document("programs", r)
        at = int(np.flatnonzero(ids == data.ASSISTANT)[0]) + 1
        at += int(ids[at] == self.newline)
        end = at + int(np.flatnonzero(ids[at:] == data.END)[0])
        return ids[:at].tolist(), ids[at:end].tolist()

    def stories(self, r: Random, room: int) -> Pair:
        """A piece of a story that fills the room, cut at random."""
        ids = self.document("stories", r)
        start = r.randint(0, max(0, len(ids) - 1 - room)) if r.random() < 0.7 else 0
        piece = ids[start : start + room].tolist()
        cut = r.randint(room // 8, room // 2)
        return piece[:cut], piece[cut:]

    def document(self, kind: str, r: Random) -> np.ndarray:
        """uint16 [n]: a document of the corpus."""
        text = self.texts[kind]
        at = r.randrange(len(text.ends))
        return text.ids[text.ends[at - 1] if at else 0 : text.ends[at]]

    def rows(self, r: Random, length: int, count: int, shares: dict[str, float]) -> InfillWindows:
        """`count` windows; kinds in those shares, as far as what is drawn fits the length."""
        ids, answer = np.full((count, length), data.END, np.int64), np.ones((count, length), bool)
        kinds = [k for k in self.kinds if shares.get(k)]
        for i in range(count):
            pair = None
            while pair is None:
                kind = r.choices(kinds, [shares[k] for k in kinds])[0]
                pair = next((p for _ in range(TRIES) if (p := self.pair(kind, r, length))), None)
            prompt, said = pair
            ids[i, : len(prompt) + len(said)] = prompt + said
            answer[i, : len(prompt)] = False
        return InfillWindows(torch.from_numpy(ids), torch.from_numpy(answer))


def cloze_pair(r: Random) -> tuple[str, str]:
    """Two sentences of a story, where the second lacks a word of the first; and that word."""
    while True:
        told = split_sentences(story(r, "train")[0].text)
        for at in r.sample(range(len(told) - 1), min(4, len(told) - 1)):
            first, second = told[at], told[at + 1]
            words = [w for w in re.findall(r"(?<= )[A-Za-z]{4,}", second) if re.search(rf" {w}\b", first)]
            if words and len(first) + len(second) < 200:
                word = r.choice(words)
                gap = re.sub(rf" {word}\b", " _", second, count=1)
                return f"fill in: {first} {gap} ->", word
