"""Contrastive search: of the likeliest tokens the one whose state is least like those of the text before it."""

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

MAP = 128  # tokens of a text up to which a record has the cosines with all of them


@dataclass
class _Text:
    """states: float [room, d_model], the last states of the text's tokens, each of length one, in the first `read` rows;
    row: of the last pass that of the text's last token, still pending;  logits, best: float [V] behind it, and its argmax;
    None: it has not been read"""

    states: Tensor
    read: int = 0
    row: int = 0
    logits: Tensor | None = None
    best: int = 0

    def add(self, states: Tensor) -> None:
        """Take up the states float [R, d_model] of further tokens."""
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
        """The text now ends with the token in this row of the lane's last pass, whose logits are float [R, V]."""
        assert lane.probe is not None
        self.row = row
        self.logits = logits[row]
        self.best = lane.best[row]
        self.add(lane.probe.hidden["final"][0, row : row + 1])


@component
class ContrastiveSearch(Strategy):
    """Of the `k` likeliest tokens v the one with the largest

        (1 - alpha) p(v) - alpha max_j cos(h_v, h_j),

    h_v being the last state, behind the final norm, that v would have, and h_j that of each token of the text so far, with
    the prompt: a token whose state repeats one of the text's is held back. The score lies between -alpha and 1. alpha = 0 or
    k = 1 is greedy decoding. Nothing is drawn, and p is the target's own.

    One pass a token reads all k candidates, siblings behind the text with the attention of a tree over the one cache, where
    the authors copy it k times. The row of the one that is taken stays pending, the next step commits it, and its logits and
    its state are used again, so it is read once. The first step reads the prompt's last token before. States of the text
    stand in one tensor [n, d_model], whatever a policy takes out of the cache; a step costs k n d_model products more.

    Models whose states are all alike, as GPT-2's are with cosines around 0.9, hold everything back by much the same. The paper
    trains the model against that (SimCTG); here it is taken as it is. Defaults are those of the authors' examples.
    """

    title = "Contrastive search"
    source = "Su et al. 2022, NeurIPS, arXiv:2202.06417, section 4; yxuansu/SimCTG, simctg/utlisgpt.py"
    caution = "Where all states of a model are alike the penalty tells its candidates hardly apart."
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
        taken = max(range(len(tokens)), key=scores.__getitem__)  # of equal ones the likeliest
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
        """How one of `tokens` was chosen, as a trace keeps it: the places of `order`, the best first."""
        ordered = {name: [x[i] for i in order] for name, x in terms.items()}
        weights = {"p": 1 - self.alpha, "max cos": 0.0 - self.alpha}
        return Choice([tokens[i] for i in order], 0, ordered, weights, [scores[i] for i in order])


def likeliest_ids(logits: Tensor, best: int, k: int) -> list[int]:
    """The ids of the `k` largest of logits [V], the largest first: `best`, where several are equal."""
    ids = logits.topk(min(k, len(logits))).indices.tolist()
    return [best, *(x for x in ids if x != best)][: len(ids)]


def siblings_feed(tokens: list[int], position: int, device: torch.device) -> Feed:
    """A pass of `tokens`, all at `position`, each of which sees what is committed and itself."""
    rows = torch.tensor([tokens], device=device)
    alone = torch.eye(len(tokens), dtype=torch.bool, device=device)[None]
    return Feed(rows, torch.full_like(rows, position), alone, highest=position)
