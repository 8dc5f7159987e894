"""Deco-G: weigh every token by the probability that a text of the format can still be finished."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.sampler import Sampler, softmax
from decodescope.engine.decoding.shared.hidden_markov import (
    LARGEST,
    CompletionWeights,
    build_completion_weights,
    load_hidden_markov,
)
from decodescope.engine.decoding.shared.token_automaton import build_byte_automaton, build_token_automaton
from decodescope.engine.decoding.values.alphabet import Alphabet

TOP = 5  # tokens whose weights are recorded
MAKE = "python -m decodescope.training.hidden_markov"


@dataclass(frozen=True, eq=False)
class _FormatState:
    """After a text: the automaton's state, the tokens left, and the hidden state expected of the next token.

    expected: float64 [H], zero where pruned;  pruned: how many hidden states are
    open: False once the text has ended, and after a token that does not fit
    """

    weights: CompletionWeights
    place: int
    left: int
    expected: Tensor
    pruned: int
    stops: tuple[int, ...]
    _logs: list[Tensor] = field(default_factory=list, repr=False)

    def __deepcopy__(self, memo: object) -> _FormatState:
        return self

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _FormatState)
            and (self.place, self.left) == (other.place, other.left)
            and self.weights is other.weights
            and torch.equal(self.expected, other.expected)
        )

    def __hash__(self) -> int:
        return hash((self.place, self.left))

    @property
    def open(self) -> bool:
        automaton = self.weights.automaton
        return self.place < automaton.end and bool(self.weights.scales[self.left][self.place] > -torch.inf)

    def log_weights(self) -> Tensor:
        """float64 [V], computed once; -inf for tokens that do not fit. After the last token only a stop token fits."""
        if not self._logs:
            if self.left:
                logs = self.weights.log_weights(self.expected, self.place, self.left)
            else:
                logs = torch.full((len(self.weights.model.emission),), -torch.inf, dtype=torch.float64)
                logs[list(self.stops)] = 0.0
            self._logs.append(logs)
        return self._logs[0]


@component
class DecoG(Sampler):
    """p'(v | u) is proportional to p(v | u) P(the format is kept | u, v). A grammar only asks whether it can be kept.

    A hidden Markov model of the model's own texts gives the second factor, exactly: its forward belief after u and v times a
    table of all ways on through the format's automaton, for the number of tokens that are left. So a text of the format is
    complete within `max_tokens`; then only a stop token may follow. Set the run's limit at least one token higher. A shorter
    run may cut a text.

    State: the automaton's state, the tokens left, the belief. All are functions of the path, so each branch of a draft has its
    own, and verification is exact for this distribution. The table takes R E H + R Q H^2 steps once, for R tokens, Q states
    with E pairs of them and H hidden states; tokens that the automaton does not tell apart are summed first. A step takes V H.

    Lossy: the model's distribution is reweighted. It is the model's own distribution given the format only if the hidden
    Markov model is the model. The paper gives the product, the distillation on texts sampled with instructions, and pruning.
    The formulas of table and belief are derived (as in Ctrl-G), since the paper's own were not at hand, and so are the cut-off
    of pruning and the end by a stop token. The format is a regular expression without look-around: characters, . [a-z] [^a-z]
    \\d \\w \\s, groups (a|b), * + ? {m,n}.
    """

    title = "Deco-G"
    source = "Deng, Kung and Peng 2025, arXiv:2510.03595 (abstract); formulas derived, after Ctrl-G, arXiv:2406.13892"
    stateful = True
    constrains = True
    departs = "tokens are weighted by how likely the format can be kept"
    reads_text = True
    tells: ClassVar[dict[str, Note]] = {
        "place": Note("series", "state", "", "the number of the automaton's state before the step"),
        "left": Note("series", "left", "tokens", "in which the format must be complete"),
        "belief": Note("series", "belief", "nats", "entropy of the hidden state that is expected next"),
        "pruned": Note(
            "series", "pruned", "states", "hidden states that were left out, each expected too little"
        ),
        "kept": Note(
            "series", "kept", "", "probability that the model's own next token leaves the format within reach"
        ),
        "weighed": Note(
            "set",
            "weighed",
            "token,,,",
            "the likeliest tokens after weighting: p of the model, probability to keep the format, their product, normalised",
        ),
    }

    format: str = param(
        ".*", lines=True, most=2000, help="the format as a regular expression; the default allows one line"
    )
    max_tokens: int = param(
        64, low=1, high=1024, unit="tokens", help="the text must be complete after this many tokens"
    )
    markov_file: str = param(
        "",
        file=True,
        most=LARGEST,
        help="file of a hidden Markov model of the model's texts, as training/hidden_markov.py writes it",
    )
    min_belief: float = param(
        0.0, low=0.0, high=0.5, step=0.001, help="leave out hidden states expected less than this; 0: none"
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not method.acceptance.keeps_law:
            return (
                f"{method.acceptance.name} may keep a token that the format refuses; choose the acceptance lossless, or leave "
                f"the sampler {self.name} out."
            )
        if method.guidance.cuts:
            return f"{method.guidance.name} removes tokens, and the format may leave none of the others: choose guidance own."
        if not self.markov_file:
            return f"{self.name}.markov_file names no file; {MAKE} MODEL FILE makes one for a model, in a checkout."
        try:
            build_byte_automaton(self.format)
        except ParamError as error:
            return f"{self.name}.format: {error}"
        return None

    def start(self, prompt: list[int], vocab: int, alphabet: Alphabet | None = None) -> _FormatState:
        if alphabet is None:
            raise ParamError(
                f"{self.name} needs the texts of ids, and this model has no tokenizer: leave the sampler out."
            )
        if not alphabet.stops:
            raise ParamError(
                "a format ends its text with a stop token, and this run has none: let it end at its end token."
            )
        model = load_hidden_markov(self.markov_file, alphabet, f"{self.name}.markov_file")
        automaton = build_token_automaton(self.format, alphabet)
        weights = build_completion_weights(model, automaton, self.max_tokens)
        expected, pruned = self._prune(model.initial)
        state = _FormatState(weights, 0, self.max_tokens, expected, pruned, tuple(sorted(alphabet.stops)))
        if not state.open:
            raise ParamError(
                f"no text of the format has {self.max_tokens} tokens or fewer: allow more, or shorten the format."
            )
        return state

    def _prune(self, expected: Tensor) -> tuple[Tensor, int]:
        """The expected hidden states [H] without those below the cut-off, normalised, and how many those are."""
        low = expected < min(self.min_belief, float(expected.max()))
        if not low.any():
            return expected, 0
        left = expected.masked_fill(low, 0.0)
        return left / left.sum(), int(low.sum())

    def warp(self, logits: Tensor, state: _FormatState) -> Tensor:
        if not state.open:  # after the end, or after a refused token: nothing from here on is ever written
            return logits
        logs = state.log_weights().to(logits)
        weighed = logits + logs
        if weighed.amax() == -torch.inf:  # a draft model may give all tokens that fit probability 0
            return logs
        return weighed

    def update(self, state: _FormatState, token: int, logits: Tensor) -> _FormatState:
        automaton, model = state.weights.automaton, state.weights.model
        place = int(automaton.after[state.place, token])
        if not state.left:  # only a stop token fits
            return replace(state, place=place if place == automaton.end else automaton.dead, _logs=[])
        expected, pruned = self._prune(model.follow(state.expected, token))
        return replace(state, place=place, left=state.left - 1, expected=expected, pruned=pruned, _logs=[])

    def logits_summary(self, logits: Tensor, state: _FormatState) -> dict[str, Any] | None:
        if not state.open:
            return None
        alone, kept = softmax(logits.double()).cpu(), state.log_weights().exp()
        product = softmax(self.warp(logits, state).double()).cpu()
        best = product.topk(min(TOP, len(product))).indices
        columns = (alone[best], kept[best], product[best])
        return {
            "kept": min(1.0, float(alone @ kept)),
            "weighed": [
                [int(v), *map(float, row)] for v, row in zip(best, zip(*columns, strict=True), strict=True)
            ],
        }

    def state_summary(self, state: _FormatState) -> dict[str, Any]:
        spread = float(torch.special.entr(state.expected).sum())
        return {"place": state.place, "left": state.left, "belief": max(0.0, spread), "pruned": state.pruned}
