"""Momentum decoding: the most likely token, unless it would continue a repetition of earlier text."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.values.alphabet import Alphabet


class _MomentumState(NamedTuple):
    """text: prompt and text, int64; the depth of the last token, and whether a likelier one was passed over."""

    text: np.ndarray
    depth: int | None = None
    deflected: bool | None = None


@component
class Momentum(Sampler):
    """Of the `top_k` most likely tokens take the one with the largest p(v) - alpha * f(l(v)).

    The text is a walk through a graph of tokens. l(v), the circuit depth, measures how far the step to v would retrace the
    walk. It is 0 if v is new, and otherwise the largest i such that the last i - 1 tokens followed by v are in the text
    already. f, the resistance, is a table; the prompt counts as text. With `no_repeat_ngram_size` a token of at least that
    depth is never taken: 4 is the blocking of 4-grams. If all k are forbidden, the most likely of them is taken.

    The distribution has one token, so nothing is random. Each level of depth takes one comparison of the text with its own end,
    and no graph is kept. Costs a top-k and these comparisons, each of the text's length.

    The authors' repository uses (0, 0, 0, 0, 5, infinity from there on), nearly a blocking of 4-grams. f(l) = l, the default
    here, is a comment there, for GPT2-XL.
    """

    title = "Momentum decoding"
    source = (
        "Lan et al. 2022, arXiv:2212.02175, section 3; gmftbyGMFTBY/MomentumDecoding, models/utlis_ngram.py"
    )
    stateful = True
    reads_logits = True
    departs = "tokens that retrace the text are passed over"
    tells: ClassVar[dict[str, Note]] = {
        "depth": Note(
            "series", "depth", "tokens", "that the token before this step retraced, itself included"
        ),
        "deflected": Note("series", "deflected", "", "whether a likelier token was passed over for it"),
    }

    top_k: int = param(
        5, low=1, high=1000, unit="tokens", help="choose among this many likeliest candidates (k)"
    )
    alpha: float = param(
        0.2, low=0.0, high=10.0, step=0.05, help="weight of the penalty for repeating earlier text"
    )
    resistance: tuple[float, ...] = param(
        (0, 1, 2, 3, 4, 5),
        low=0.0,
        high=1000.0,
        least=1,
        most=16,
        help="penalty for a repetition of length 0, 1, 2, ...; the last value holds for longer ones",
    )
    no_repeat_ngram_size: int = param(
        0, low=0, high=16, unit="tokens", help="avoid repeating n-grams of this size; 0: no limit"
    )

    def start(self, prompt: list[int], vocab: int, alphabet: Alphabet | None = None) -> _MomentumState:
        return _MomentumState(np.array(prompt, np.int64))

    def depths(self, text: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """int64 [k]: l of each of `tokens` (int64 [k]) behind `text` (int64 [n])."""
        most = max(len(self.resistance) - 1, self.no_repeat_ngram_size)
        runs = np.ones(len(text), np.int64)  # [n]: l of the token at each place, were it next
        along = np.ones(len(text), bool)
        for back in range(1, min(most, len(text))):
            along[:back] = False
            along[back:] &= text[:-back] == text[-back]
            runs += along
        lengths: np.ndarray = np.where(tokens[:, None] == text, runs.clip(max=most), 0).max(1, initial=0)
        return lengths

    def scores(self, logits: Tensor, text: np.ndarray) -> tuple[Tensor, Tensor]:
        """(the candidates, int64 [k], most likely first, and their scores, float64 [k])."""
        best = logits.topk(min(self.top_k, len(logits)))
        order = best.indices[torch.isfinite(best.values)]
        p = logits.double().softmax(-1)[order]
        depth = self.depths(text, order.cpu().numpy())
        f = np.array(self.resistance)[depth.clip(max=len(self.resistance) - 1)]
        scores = p - self.alpha * torch.from_numpy(f).to(p.device)
        gone = depth >= (self.no_repeat_ngram_size or np.inf)
        if gone.all():
            return order, p
        return order, scores.masked_fill(torch.from_numpy(gone).to(p.device), -torch.inf)

    def warp(self, logits: Tensor, state: _MomentumState) -> Tensor:
        order, scores = self.scores(logits, state.text)
        return torch.full_like(logits, -torch.inf).index_fill_(0, order[scores.argmax()], 0.0)

    def update(self, state: _MomentumState, token: int, logits: Tensor) -> _MomentumState:
        depth = int(self.depths(state.text, np.array([token]))[0])
        return _MomentumState(np.append(state.text, token), depth, token != int(logits.argmax()))

    def state_summary(self, state: _MomentumState) -> dict[str, Any]:
        return {"depth": state.depth, "deflected": state.deflected}
