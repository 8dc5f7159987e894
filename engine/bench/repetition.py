"""Repetition: how likely a sentence becomes after it occurs in the text, and again, and again."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.progress import Progress
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import SHIPPED, Model
from decodescope.engine.session.method import Method
from decodescope.engine.trace.records.events import Piece

from .figures.labbench import mean
from .labbench import require_tokenizer, run_environment
from .questions.questions import LabBenchError

TEXT = SHIPPED.parent / "datastore.txt"  # what the training text of the shipped models is made of, by rule
VERSION = 1  # of the JSON object
SENTENCES, TIMES = 200, 16
BATCH, ROWS = 8, 1024  # texts of a pass, and rows of all of them
WORDS = range(4, 31)  # of a sentence
PARTS = ("least likely third", "middle third", "likeliest third")  # of the sentences, by their first copy

_SENTENCE = re.compile(r"\S.*?[.!?][\"'”\u2019)]*(?=\s+[^\sa-z]|\s*$)")


@dataclass(frozen=True)
class RepeatedSentence:
    """The probabilities that a model gave to copies of one sentence.

    prefix: the sentence before it;  text: the sentence;  pieces: its tokens
    p:      by copy, then token: the probability of the token after all tokens before it
    best:   the same: whether it is the likeliest token
    """

    prefix: str
    text: str
    pieces: list[Piece]
    p: list[list[float]]
    best: list[list[bool]]

    def tp(self, n: int) -> float:
        """The mean probability of a token of copy `n`, counted from 1."""
        return sum(self.p[n - 1]) / len(self.pieces)

    def ip(self, n: int) -> float:
        """The share of the tokens of copy `n` that are more likely than in the first."""
        return sum(x > first for x, first in zip(self.p[n - 1], self.p[0], strict=True)) / len(self.pieces)

    def wr(self, n: int) -> float:
        """The share of the tokens of copy `n` that are the likeliest at their position."""
        return sum(self.best[n - 1]) / len(self.pieces)


def sentence_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Each sentence of a text with the one before it in its paragraph, which is a line: (the one before, the sentence). No
    sentence comes twice, and none of a few words or of very many."""
    seen: set[str] = set()
    for line in text.splitlines():
        said = [x[0] for x in _SENTENCE.finditer(line)]
        for before, sentence in pairwise(said):
            if sentence not in seen and len(sentence.split()) in WORDS:
                seen.add(sentence)
                yield before, sentence


def read_pairs(path: str | Path) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """The sentences of a file, and its name and SHA-256. Raises LabBenchError if it cannot be read, or has none."""
    try:
        data = expand_path(path).read_bytes()
        pairs = list(sentence_pairs(data.decode("utf-8")))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise LabBenchError(
            f"The text {path} cannot be read ({why}): give a file of prose in UTF-8."
        ) from None
    if not pairs:
        raise LabBenchError(
            f"The text {path} has no sentence of {WORDS.start} to {WORDS.stop - 1} words behind another one in its line: give "
            "prose, a paragraph a line."
        )
    return pairs, {"file": Path(path).name, "file_sha256": hashlib.sha256(data).hexdigest()}


def spread_evenly(pairs: Sequence[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    """`count` of them, all where there are fewer, spread evenly."""
    if len(pairs) <= count:
        return list(pairs)
    return [pairs[(2 * i + 1) * len(pairs) // (2 * count)] for i in range(count)]


class RepetitionBench:
    """A causal model with a tokenizer, and how often a sentence is repeated. Raises MethodError or LabBenchError for others."""

    def __init__(self, model: Model, times: int = TIMES):
        Method().check(model.spec)
        require_tokenizer(model)
        self.model, self.times = model, times

    def measure(self, pairs: Sequence[tuple[str, str]]) -> list[RepeatedSentence]:
        """What the model makes of each sentence, in their order. Raises LabBenchError where copies do not fit the model."""
        tokenizer = self.model.tokenizer
        assert tokenizer is not None
        texts = [
            (tokenizer.encode(before), tokenizer.encode_plain(f" {sentence}")) for before, sentence in pairs
        ]
        self._check_length(texts)
        order = sorted(range(len(pairs)), key=lambda i: len(texts[i][0]) + self.times * len(texts[i][1]))
        read: dict[int, tuple[Tensor, Tensor]] = {}
        with Progress("sentences", len(pairs), "sentences") as progress:
            for at in range(0, len(order), BATCH):
                some = order[at : at + BATCH]
                read.update(
                    zip(
                        some,
                        read_copies(self.model.decoder, [texts[i] for i in some], self.times),
                        strict=True,
                    )
                )
                progress.at(len(read))
        return [
            RepeatedSentence(*pair, [tokenizer.piece(x) for x in one], p.tolist(), best.tolist())
            for pair, (_, one), (p, best) in zip(
                pairs, texts, (read[i] for i in range(len(pairs))), strict=True
            )
        ]

    def _check_length(self, texts: Sequence[tuple[list[int], list[int]]]) -> None:
        """Raise LabBenchError where the longest of the texts is longer than the model reads."""
        before, one = max(texts, key=lambda x: len(x[0]) + self.times * len(x[1]))
        longest, most = len(before) + self.times * len(one), self.model.spec.max_positions
        if longest > most:
            times = max(1, (most - len(before)) // len(one))
            raise LabBenchError(
                f"{self.times} copies of the longest sentence have {longest} tokens with the text before them, and "
                f"the model {self.model.spec.reading_limit}: choose --times {times} or fewer."
            )


@torch.inference_mode()
def read_copies(
    decoder: Decoder, texts: Sequence[tuple[list[int], list[int]]], times: int
) -> list[tuple[Tensor, Tensor]]:
    """The probability of each token of each of the `times` copies, and whether it is the likeliest there.

    Each text is the ids of its prefix and those of a sentence. Returns float and bool [times, L].

    All are read once, side by side in one cache, ROWS rows a pass. Shorter ones are padded behind their end: nothing is asked
    of the padding, and nothing before it sees it.
    """
    whole = [before + times * one for before, one in texts]
    longest = max(map(len, whole))
    # [B, T]
    tokens = torch.tensor([ids + [ids[-1]] * (longest - len(ids)) for ids in whole], device=decoder.device)
    lane = Lane("target", decoder, CachePolicy(), batch=len(whole))
    p, best = (torch.zeros_like(tokens, dtype=x) for x in (torch.float64, torch.bool))
    step = max(1, ROWS // len(whole))
    for at in range(0, longest - 1, step):
        due = tokens[:, at + 1 : at + 1 + step]  # what the rows are asked about
        places = torch.arange(at, at + due.shape[1], device=decoder.device).expand(len(whole), -1)
        logits = lane.forward(Feed(tokens[:, at : at + due.shape[1]], places), "score")  # [B, R, V]
        lane.commit([*range(due.shape[1])], compress=False)
        asked = logits.gather(2, due[:, :, None])[:, :, 0]
        p[:, at + 1 : at + 1 + step] = (asked - logits.logsumexp(-1)).exp()
        best[:, at + 1 : at + 1 + step] = logits.argmax(-1) == due
    places_of = [slice(len(before), len(ids)) for (before, _), ids in zip(texts, whole, strict=True)]
    return [(p[i, x].view(times, -1), best[i, x].view(times, -1)) for i, x in enumerate(places_of)]


def copy_curve(rows: Sequence[RepeatedSentence], times: int) -> list[dict[str, Any]]:
    """By copy, the means of TP, IP and WR over the sentences; all sentences have the same weight."""
    return [
        {
            "n": n,
            "tp": mean([x.tp(n) for x in rows]),
            "ip": mean([x.ip(n) for x in rows]),
            "wr": mean([x.wr(n) for x in rows]),
        }
        for n in range(1, times + 1)
    ]


def first_copy_thirds(rows: Sequence[RepeatedSentence], times: int) -> list[dict[str, Any]]:
    """The sentences in three parts, by how likely their first copy is: how many, and TP of the first and the last copy."""
    order = sorted(rows, key=lambda x: x.tp(1))
    cuts = [i * len(order) // len(PARTS) for i in range(len(PARTS) + 1)]
    parts, ends = zip(PARTS, cuts, cuts[1:], strict=False), {"first": 1, "last": times}
    return [
        {"part": name, "sentences": len(some)} | {at: mean([x.tp(n) for x in some]) for at, n in ends.items()}
        for name, begin, end in parts
        if (some := order[begin:end])
    ]


def measure_repetition(
    bench: RepetitionBench, pairs: Sequence[tuple[str, str]], about: dict[str, str]
) -> dict[str, Any]:
    """The measurement as plain data. about: the record of the sentences' source.

    The three figures are those of Xu et al. 2022, arXiv:2206.02369 (Jxu-Thu/DITTO, repetition_para_parse.py), without their
    separate ones of a sentence's first and last token: the mean probability of a token (TP), the share of tokens more likely
    than in the first copy (IP), the share that are the likeliest (WR).
    """
    began = time.perf_counter()
    rows = bench.measure(pairs)
    return {
        "repetition": VERSION,
        "settings": {
            **run_environment(bench.model),
            "text": about,
            "sentences": len(pairs),
            "times": bench.times,
        },
        "seconds": round(time.perf_counter() - began, 3),
        "curve": copy_curve(rows, bench.times),
        "starts": first_copy_thirds(rows, bench.times),
        "sentences": [asdict(x) for x in rows],
    }
