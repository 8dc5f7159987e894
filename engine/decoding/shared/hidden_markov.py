"""Hidden Markov model: a small model of text for which the probability that a format is kept can be computed.

h_1 is drawn by `initial`, token v_t by row h_t of `emission`, and h_(t+1) by row h_t of `transition`. Zhang et al. 2024,
arXiv:2406.13892 (Ctrl-G), multiply such a model with an automaton.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.files import locate_file
from decodescope.engine.core.params import ParamError

from ..values.alphabet import Alphabet
from .token_automaton import TokenAutomaton

LARGEST = 16 << 20  # bytes of a file
HIDDEN = 256  # the most hidden states
TABLE = 1 << 25  # numbers in a table of weights


@dataclass(frozen=True, eq=False)
class HiddenMarkov:
    """initial: float64 [H];  transition: float64 [H, H];  emission: float64 [V, H], its columns sum to 1. All are above 0."""

    initial: Tensor
    transition: Tensor
    emission: Tensor

    def __deepcopy__(self, memo: object) -> HiddenMarkov:
        return self

    def follow(self, expected: Tensor, token: int) -> Tensor:
        """float64 [H]: the hidden state of the next token, when that of `token` was expected to be `expected`."""
        belief = expected * self.emission[token]
        total = belief.sum()
        return (belief / total if total > 0 else expected) @ self.transition


def hash_tokens(alphabet: Alphabet) -> str:
    """Sixteen digits that name the texts of a model's ids; a file of one model is refused for another."""
    digest = hashlib.sha256()
    for piece in alphabet.pieces:
        digest.update(b"%d:" % len(piece) + piece)
    return digest.hexdigest()[:16]


def encode_hidden_markov(model: HiddenMarkov, tokens: str) -> str:
    """The text of a file: JSON with the natural logarithms as float16 in base64. tokens: the hash of the alphabet."""
    kept = {
        name: base64.b64encode(getattr(model, name).log().numpy().astype("<f2").tobytes()).decode()
        for name in ("initial", "transition", "emission")
    }
    hidden, vocab = len(model.initial), len(model.emission)
    return json.dumps({"hidden_markov": 1, "hidden": hidden, "vocab": vocab, "tokens": tokens, **kept})


def load_hidden_markov(path: str, alphabet: Alphabet, knob: str) -> HiddenMarkov:
    """Load a file that `encode_hidden_markov` wrote, for the model of this alphabet.

    Raises FileRefusal if the file cannot be used, ParamError if it holds something else or fits another model.
    """
    file = locate_file(path, LARGEST)
    stat = file.stat()
    try:
        model, tokens = _read_file(file, stat.st_size, stat.st_mtime_ns)
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise ParamError(
            f"{knob} = {path}: no hidden Markov model ({error}); python -m decodescope.training.hidden_markov makes one."
        ) from None
    if len(model.emission) != alphabet.vocab or tokens != hash_tokens(alphabet):
        raise ParamError(
            f"{knob} = {path}: made for a model with other tokens; python -m decodescope.training.hidden_markov makes one for "
            "this model."
        )
    return model


@lru_cache(maxsize=4)
def _read_file(file: Path, size: int, changed: int) -> tuple[HiddenMarkov, str]:
    """The model in a file, and the hash of its tokens; `size` and `changed` key the cache. Raises ValueError."""
    kept = json.loads(file.read_text("utf-8"))
    if not isinstance(kept, dict) or kept.get("hidden_markov") != 1:
        raise ValueError('"hidden_markov": 1 must be there')
    hidden, vocab = kept["hidden"], kept["vocab"]
    if type(hidden) is not int or type(vocab) is not int or not 0 < hidden <= HIDDEN or vocab < 1:
        raise ValueError(f"1 to {HIDDEN} hidden states and at least one token are due")
    initial = _decode_logs(kept, "initial", (hidden,)).softmax(-1)
    transition = _decode_logs(kept, "transition", (hidden, hidden)).softmax(-1)
    emission = _decode_logs(kept, "emission", (vocab, hidden)).softmax(0)
    return HiddenMarkov(initial, transition, emission), str(kept.get("tokens"))


def _decode_logs(kept: dict[str, Any], name: str, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(kept[name], str):
        raise ValueError(f"{name} is no text in base64")
    try:
        logs = np.frombuffer(base64.b64decode(kept[name], validate=True), "<f2").reshape(shape)
    except (binascii.Error, ValueError):
        raise ValueError(
            f"{name} is not {' x '.join(map(str, shape))} numbers of 16 bits in base64"
        ) from None
    if not np.isfinite(logs).all():
        raise ValueError(f"{name} has a probability of 0, or no number")
    return torch.from_numpy(logs.astype(np.float64))


@dataclass(frozen=True, eq=False)
class CompletionWeights:
    """w_r(q, h): the probability that a text of the format is there after at most r more tokens, from automaton state q and
    when the last token had hidden state h.

        w_0(q, .) = 1 if q accepts, else 0
        w_r(q, h) = sum_h' transition(h, h') sum_v emission(h', v) w_(r-1)(after(q, v), h')

    The state behind a stop token accepts and stays. So a text counts if it ends by a stop token within r tokens, or is whole
    after exactly r tokens. Each w_r(q, .) is kept as a scale and values of at most 1, since long fixed texts are very unlikely.

    scales: float64 [R + 1, Q + 2], natural logarithms, -inf if the format cannot be kept
    values: float64 [R + 1, Q + 2, H]
    """

    model: HiddenMarkov
    automaton: TokenAutomaton
    scales: Tensor
    values: Tensor

    def __deepcopy__(self, memo: object) -> CompletionWeights:
        return self

    def log_weights(self, expected: Tensor, state: int, left: int) -> Tensor:
        """float64 [V]: ln P(the format is kept | the text so far, v) for each next token v; -inf if it cannot be.

        expected: float64 [H], of the next token's hidden state; zeros are hidden states that were pruned
        left: tokens that may still be written, the next one included, at least 1
        """
        after = self.automaton.after[state]
        fits = (self.scales[left - 1][after] > -torch.inf).nonzero()[:, 0]
        kept = expected.nonzero()[:, 0]
        there = after[fits]
        belief = self.model.emission[fits][:, kept] * expected[kept]  # [F, K], not normalised
        share = (belief * self.values[left - 1][there][:, kept]).sum(1) / belief.sum(1)
        logs = torch.full((len(after),), -torch.inf, dtype=torch.float64)
        logs[fits] = share.log() + self.scales[left - 1][there]
        return logs


@lru_cache(maxsize=4)
def build_completion_weights(model: HiddenMarkov, automaton: TokenAutomaton, most: int) -> CompletionWeights:
    """The weights for up to `most` tokens.

    Tokens of one kind are summed first, so that no step costs a factor of the vocabulary. Raises ParamError for a table that
    would be too large.
    """
    states, hidden = len(automaton.after), len(model.initial)
    if (most + 1) * states * hidden > TABLE:
        raise ParamError(
            f"{most} tokens, {states} states of the format and {hidden} hidden states make a table that is too large: allow "
            f"fewer tokens, at most {max(1, TABLE // (states * hidden) - 1)}."
        )
    mass = torch.zeros(automaton.kind_after.shape[1], hidden, dtype=torch.float64)
    mass.index_add_(0, automaton.kinds, model.emission)
    begin, there, weight = _edges(automaton, mass)
    values = torch.zeros(most + 1, states, hidden, dtype=torch.float64)
    scales = torch.full((most + 1, states), -torch.inf, dtype=torch.float64)
    values[0][automaton.accepts] = 1.0
    scales[0][automaton.accepts] = 0.0
    for r in range(1, most + 1):
        ahead = scales[r - 1][there]
        top = torch.full((states,), -torch.inf, dtype=torch.float64)
        top.scatter_reduce_(0, begin, ahead, "amax")
        live = ahead > -torch.inf
        part = (ahead[live] - top[begin[live]]).exp()[:, None] * values[r - 1][there[live]] * weight[live]
        total = torch.zeros(states, hidden, dtype=torch.float64).index_add_(0, begin[live], part)
        total = total @ model.transition.T
        largest = total.amax(1)
        scales[r] = torch.where(largest > 0, top + largest.log(), -torch.inf)
        values[r] = total / torch.where(largest > 0, largest, 1.0)[:, None]
    return CompletionWeights(model, automaton, scales, values)


def _edges(automaton: TokenAutomaton, mass: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(from, to, probability of its tokens by hidden state [E, H]) of every pair of states between which tokens lead."""
    begin: list[Tensor] = []
    there: list[Tensor] = []
    weight: list[Tensor] = []
    for state, row in enumerate(automaton.kind_after):
        if state == automaton.dead:
            continue
        distinct, number = row.unique(return_inverse=True)
        summed = torch.zeros(len(distinct), mass.shape[1], dtype=torch.float64).index_add_(0, number, mass)
        live = distinct != automaton.dead
        begin.append(torch.full((int(live.sum()),), state))
        there.append(distinct[live])
        weight.append(summed[live])
    return torch.cat(begin), torch.cat(there), torch.cat(weight)
