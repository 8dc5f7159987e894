"""Contrastive search: among the likeliest tokens, take one whose state differs from those of the text before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.records.choices import Choice

MAP = 128  # maximum number of tokens of a text for which a record has all cosines


@dataclass
class _Text:
    """The text's states and its last token.

    states: float [room, d_model], the last states of the text's tokens, normalised to length one, in the first `read` rows;
    row: the row of the text's last token in the last pass, still pending;  logits, best: float [V] behind it, and its argmax;
    None: it has not been read
    """

    states: Tensor
    read: int = 0
    row: int = 0
    logits: Tensor | None = None
    best: int = 0

    def add(self, states: Tensor) -> None:
        """Append the states float [R, d_model] of further tokens."""
        stop = self.read + len(states)
        if stop > len(self.states):
            grown = self.states.new_empty(max(stop, 2 * len(self.states)), self.states.shape[1])
            grown[: self.read] = self.states[: self.read]
            self.states = grown
        self.states[self.read : stop] = normalize(states.to(self.states.dtype), dim=-1)
        self.read = stop

    def similarity(self, states: Tensor) -> Tensor:
        """float [k, n]: the cosines of states [k, d_model] with those of the text."""
        return (normalize(states.to(self.states.dtype), dim=-1) @ self.states[: self.read].T).clamp_(
            -1.0, 1.0
        )

    def end_with(self, lane: Lane, row: int, logits: Tensor) -> None:
        """End the text with the token in this row of the lane's last pass, with logits float [R, V]."""
        assert lane.probe is not None
        self.row = row
        self.logits = logits[row]
        self.best = lane.best[row]
        self.add(lane.probe.hidden["final"][0, row : row + 1])


@component
class ContrastiveSearch(Strategy):
    """Of the `top_k` likeliest tokens v take the one with the largest

        (1 - alpha) p(v) - alpha max_j cos(h_v, h_j),

    where h_v is the last state, after the final norm, that v would have, and h_j that of each token of prompt and text so far.
    So a token with a state similar to an earlier one is penalised. The score is between -alpha and 1. alpha = 0 or k = 1 is
    greedy decoding. Nothing is drawn, and p is the target's own.

    One pass per token reads all k candidates, as siblings behind the text with tree attention over one cache; the authors copy
    the cache k times. The chosen row stays pending, and the next step commits it. Its logits and its state are reused, so it is
    read once. The first step also reads the prompt's last token first. The states of the text are in one tensor [n, d_model],
    whatever a policy evicts from the cache. A step costs k n d_model additional products.

    If all states of a model are similar, as GPT-2's are with cosines around 0.9, all tokens get nearly the same penalty. The
    paper trains the model against that (SimCTG); here the model is used as it is. Defaults are those of the authors' examples.
    """

    title = "Contrastive search"
    source = "Su et al. 2022, NeurIPS, arXiv:2202.06417, section 4; yxuansu/SimCTG, simctg/utlisgpt.py"
    caution = "If all states of a model are alike, the penalty hardly distinguishes its candidates."
    needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))
    uses = frozenset({"prompt_compression", "policy", "kv_compression"})
    lossless = False
    changes = "what repeats the text's own states is held back"
    tells: ClassVar[dict[str, Note]] = {
        "likeness": Note(
            "series", "likeness", "", "largest cosine of the taken token's state with one before it"
        ),
        "nearest": Note(
            "set",
            "nearest places",
            "token, position",
            "of each candidate, where a state most like its own is",
        ),
        "cosines": Note("grid", "cosines", "", "of the taken token's state with that at each position"),
    }

    top_k: int = param(
        5,
        low=1,
        high=64,
        unit="tokens",
        help="number of most likely tokens to choose from (k); 1: greedy decoding",
    )
    alpha: float = param(
        0.6,
        low=0.0,
        high=1.0,
        step=0.05,
        help="weight of the similarity penalty (alpha); the probability has weight 1 - alpha",
    )

    def begin(self, s: State) -> None:
        decoder, probe = s.target.decoder, s.target.probe
        kind = torch.promote_types(decoder.dtype, torch.float32)
        text = _Text(torch.empty(2 * len(s.tokens), decoder.spec.d_model, dtype=kind, device=decoder.device))
        if probe is not None:
            text.add(probe.hidden["final"][0])
        assert text.read == len(s.tokens) - 1, "each token before the last one has a state"
        s.scratch = text

    def step(self, s: State) -> Move:
        text: _Text = s.scratch
        lane, n = s.target, len(s.tokens)
        device, started = lane.decoder.device, lane.executor.mark()
        if text.logits is None:
            text.end_with(lane, 0, lane.forward(Feed.causal_chain(s.tokens[-1:], n - 1, device))[0])
        lane.commit([text.row])
        logits = text.logits
        assert logits is not None
        tokens = likeliest_ids(logits, text.best, self.top_k)
        rows = lane.forward(siblings_feed(tokens, n, device))[0]  # [k, V]
        assert lane.probe is not None
        cosines = text.similarity(lane.probe.hidden["final"][0])  # [k, n]
        p = logits.double().softmax(-1)[tokens]
        nearest = cosines.max(-1)
        scores = ((1 - self.alpha) * p - self.alpha * nearest.values.double()).tolist()
        taken = max(range(len(tokens)), key=scores.__getitem__)  # of equal scores the likeliest
        text.end_with(lane, taken, rows)
        verified = lane.executor.mark()
        emitted = [tokens[taken]]
        _, end = s.cut(emitted)
        s.tokens += emitted
        if end is not None:
            lane.rollback()
        choices = notes = None
        if lane.shown:
            order = sorted(range(len(tokens)), key=lambda i: -scores[i])
            terms = {"p": p.tolist(), "max cos": nearest.values.tolist()}
            choices = [self.choice(order, tokens, scores, terms)]
            places = nearest.indices.tolist()
            notes = {
                "likeness": round(terms["max cos"][taken], 4),
                "nearest": [[tokens[i], places[i]] for i in order],
                "cosines": [round(x, 3) for x in cosines[taken].tolist()]
                if cosines.shape[1] <= MAP
                else None,
            }
        return plain_move(
            s, emitted, end, started, verified, logits=logits[None], choices=choices, notes=notes
        )

    def choice(
        self, order: list[int], tokens: list[int], scores: list[float], terms: dict[str, list[float]]
    ) -> Choice:
        """The trace record of the choice among `tokens`: the places of `order`, the best first."""
        ordered = {name: [x[i] for i in order] for name, x in terms.items()}
        weights = {"p": 1 - self.alpha, "max cos": 0.0 - self.alpha}
        return Choice([tokens[i] for i in order], 0, ordered, weights, [scores[i] for i in order])


def likeliest_ids(logits: Tensor, best: int, k: int) -> list[int]:
    """The ids of the k largest of logits [V], the largest first; of equal largest ones, `best` is first."""
    ids = logits.topk(min(k, len(logits))).indices.tolist()
    return [best, *(x for x in ids if x != best)][: len(ids)]


def siblings_feed(tokens: list[int], position: int, device: torch.device) -> Feed:
    """A pass of `tokens`, all at `position`; each sees the committed entries and itself."""
    rows = torch.tensor([tokens], device=device)
    alone = torch.eye(len(tokens), dtype=torch.bool, device=device)[None]
    return Feed(rows, torch.full_like(rows, position), alone, highest=position)
