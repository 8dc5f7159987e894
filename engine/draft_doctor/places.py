"""Places: how target and draft compare at every token of the texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.progress import Progress

from .readers import TextReader, align_vocabulary
from .texts import DoctorText

OFFSETS = (-2, -1, 0, 1, 2)  # places before and after
FLOOR = -30.0  # log-probability of an id that the draft excludes, so that a divergence stays a number


@dataclass(frozen=True)
class PairPlaces:
    """One row for every token of the texts that the draft guesses, the prompts included; arrays [N], at temperature 1.

    text: number of its text;  index: of the token in it;  answer: it belongs to the answer;  chat: so does its text
    token: that came;  wanted, guess: the likeliest ids of target and draft
    overlap: 1 - TV, the acceptance of lossless verification;  kl: nats, of the draft's distribution from the target's
    rank: of `wanted` in the draft's distribution, from 1 on;  q_guess, p_guess: what both give the draft's guess
    p_wanted: what the target gives its own;  finite: the draft's logits are numbers
    offsets: [N, 5], 1 where the guess is the target's likeliest id that many places away (OFFSETS); NaN outside the text
    shifted: [N, 5], the overlap with the target's distribution there
    """

    text: np.ndarray
    index: np.ndarray
    answer: np.ndarray
    chat: np.ndarray
    token: np.ndarray
    wanted: np.ndarray
    guess: np.ndarray
    overlap: np.ndarray
    kl: np.ndarray
    rank: np.ndarray
    q_guess: np.ndarray
    p_guess: np.ndarray
    p_wanted: np.ndarray
    finite: np.ndarray
    offsets: np.ndarray
    shifted: np.ndarray

    @property
    def right(self) -> np.ndarray:
        """bool [N]: the likeliest ids of both are the same."""
        return np.asarray(self.wanted == self.guess)

    def select(self, rows: np.ndarray) -> PairPlaces:
        """The rows of a mask, bool [N]."""
        return PairPlaces(*(getattr(self, x.name)[rows] for x in fields(self)))


@dataclass(frozen=True)
class LogitSample:
    """Log-probabilities of both at some places of the answers, float32 [n, V] each, for fits."""

    p: Tensor
    q: Tensor


def overlap_of(p: Tensor, q: Tensor) -> Tensor:
    """1 - TV of log-probabilities [..., V] -> [...]."""
    return torch.minimum(p, q).exp().sum(-1).clamp(max=1)


def finite_logits(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [rows, V] with rows that hold no number made uniform, and bool [rows], which rows were good."""
    good = ~(
        logits.isnan().any(-1) | (logits == float("inf")).any(-1) | (logits.max(-1).values == float("-inf"))
    )
    return torch.where(good[:, None], logits, torch.zeros_like(logits)), good


def read_places(
    target: TextReader, draft: TextReader, texts: Sequence[DoctorText], sample: int = 512
) -> tuple[PairPlaces, LogitSample]:
    """Compare both at every place of the texts, and keep about `sample` places of the answers whole."""
    answers = sum(len(x.ids) - x.start for x in texts)
    every = max(1, answers // sample)
    tables = []
    ps, qs = list[Tensor](), list[Tensor]()
    with Progress("reading the texts with both", len(texts), "texts") as progress:
        for number, text in enumerate(texts):
            p, q, first, good = read_pair(target, draft, text)
            tables.append(_compare_text(p, q, first, good, text, number))
            kept = slice(max(0, text.start - first), None, every)
            ps.append(p[kept])
            qs.append(q[kept])
            progress.add()
    columns = [np.concatenate([getattr(table, x.name) for table in tables]) for x in fields(PairPlaces)]
    return PairPlaces(*columns), LogitSample(torch.cat(ps), torch.cat(qs))


def read_pair(target: TextReader, draft: TextReader, text: DoctorText) -> tuple[Tensor, Tensor, int, Tensor]:
    """Log-probabilities [rows, V] of both for the tokens of a text, the index of the first of these, and the good rows.

    Both are of the tokens that the draft guesses and that the text holds.
    """
    _, p = target.read(text.ids)
    first, q = draft.read(text.ids)
    count = min(len(q), len(text.ids) - first)
    q, good = finite_logits(q[:count])
    p = p[first - 1 : first - 1 + count].log_softmax(-1)
    return p, align_vocabulary(q, p.shape[-1]), first, good


def _compare_text(
    p: Tensor, q: Tensor, first: int, good: Tensor, text: DoctorText, number: int
) -> PairPlaces:
    """The rows of one text. p, q: log-probabilities [rows, V] of token `first` and those after it."""
    rows = len(p)
    index = np.arange(first, first + rows)
    p_wanted, wanted = p.max(-1)
    q_guess, guess = q.max(-1)
    at_wanted = q.gather(1, wanted[:, None])
    hits = torch.full((rows, len(OFFSETS)), float("nan"), device=q.device)
    shifted = torch.full((rows, len(OFFSETS)), float("nan"), device=q.device)
    for k, o in enumerate(OFFSETS):
        here = slice(max(0, -o), rows - max(0, o))
        there = slice(max(0, o), rows - max(0, -o))
        hits[here, k] = (guess[here] == wanted[there]).float()
        shifted[here, k] = overlap_of(p[there], q[here])
    columns: list[np.ndarray | Tensor] = [
        np.full(rows, number),
        index,
        index >= text.start,
        np.full(rows, text.chat),
        np.array(text.ids[first : first + rows]),
        wanted,
        guess,
        overlap_of(p, q),
        (p.exp() * (p - q.clamp(min=FLOOR))).sum(-1).clamp(min=0),
        (q > at_wanted).sum(-1) + 1,
        q_guess.exp(),
        p.gather(1, guess[:, None])[:, 0].exp(),
        p_wanted.exp(),
        good,
        hits,
        shifted,
    ]
    return PairPlaces(*(x if isinstance(x, np.ndarray) else x.cpu().numpy() for x in columns))


def read_overlaps(
    target: TextReader, drafts: Sequence[TextReader], texts: Sequence[DoctorText]
) -> np.ndarray:
    """Mean overlap on the answers, float64 [drafts, texts], of the draft read in several ways; NaN where a text has none."""
    means = np.full((len(drafts), len(texts)), np.nan)
    with Progress("reading the draft in other ways", len(texts) * len(drafts), "passes") as progress:
        for k, text in enumerate(texts):
            _, rows = target.read(text.ids)
            known = rows.log_softmax(-1)
            for i, draft in enumerate(drafts):
                first, q = draft.read(text.ids)
                count = min(len(q), len(text.ids) - first)
                q, _ = finite_logits(q[:count])
                known_rows = known[first - 1 : first - 1 + count]
                overlap = overlap_of(known_rows, align_vocabulary(q, known.shape[-1]))
                if len(answer := overlap[max(0, text.start - first) :]):
                    means[i, k] = float(answer.mean())
                progress.add()
    return means
