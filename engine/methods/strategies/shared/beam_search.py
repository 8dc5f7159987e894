"""Beam search: one or several searches behind one prompt, with one pass for all hypotheses; groups may diverge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.model.stores.branches import branch_cache
from decodescope.engine.model.stores.tree import TreePlan
from decodescope.engine.trace.details.shapes import TreeDetail
from decodescope.engine.trace.records.events import EndReason

from .hypotheses import (
    Extension,
    ExtensionChoice,
    Hypothesis,
    choose_extensions,
    hypotheses_record,
    read_hypotheses,
)


def share_prefixes(s: State, plan: str, block: int) -> None:
    """Let hypotheses share their common entries, as a tree, unless a part evicts, selects or packs cache entries."""
    if not s.target.policy.does and not s.target.kv_compression.does:
        branch_cache(s.target.cache, cast(TreePlan, plan), block)


@dataclass
class BeamSearch:
    """One beam search of `width` hypotheses, ranked by score / length^alpha.

    alive: open hypotheses, best first, and `token_penalties`, the penalty on the rank of each;  finished: the best that have
    ended, and the penalty of each with its tokens;  done: True if no open hypothesis can matter any more
    """

    width: int
    alpha: float
    alive: list[Hypothesis] = field(default_factory=lambda: [([], 0.0)])
    fines: list[float] = field(default_factory=lambda: [0.0])
    finished: list[Hypothesis] = field(default_factory=list)
    done: bool = False

    def rank(self, hypothesis: Hypothesis) -> float:
        """The value to minimise: minus the score per length^alpha."""
        cost: float = -hypothesis[1] / len(hypothesis[0]) ** self.alpha
        return cost

    def is_settled(self, longest: int) -> bool:
        """True if no open hypothesis can beat the worst finished one, even at `longest` tokens with its present score."""
        if len(self.finished) < self.width or not self.alive:
            return not self.alive
        best = max(score for _, score in self.alive)
        settled: bool = self.rank(self.finished[-1]) <= -best / longest**self.alpha
        return settled

    def extend(self, s: State, sure: Tensor, fine: Tensor | None) -> ExtensionChoice:
        """Choose the best extensions by log-probabilities float64 [B, V] behind the hypotheses, and return the choice.

        If penalties apply, `fine` [V] for each token and the earlier penalties are subtracted.
        """
        texts = [text for text, _ in self.alive]
        scores = sure + sure.new_tensor([score for _, score in self.alive])[:, None]
        worth = None if fine is None else scores - fine - sure.new_tensor(self.fines)[:, None]
        choice = choose_extensions(s, texts, scores, self.width, worth)
        ended = [(text, score) for _, text, score in choice.ended]
        self.finished = sorted(self.finished + ended, key=self.rank)[: self.width]
        self.alive = [([*texts[parent], token], score) for parent, token, score in choice.alive]
        if fine is not None:
            self.fines = [self.fines[parent] + float(fine[token]) for parent, token, _ in choice.alive]
        self.done = self.is_settled(s.remaining_tokens)
        return choice


@dataclass
class _SearchRecord:
    """The choices of all searches of a step.

    Each row begins with the number of its search; rows that go on have the penalty of their texts.
    """

    kept: list[tuple[int, Extension, float]] = field(default_factory=list)
    ended: list[tuple[int, Extension]] = field(default_factory=list)
    left: list[tuple[int, Extension]] = field(default_factory=list)

    def add(self, choice: ExtensionChoice, first: int, number: int, paid: Sequence[float]) -> None:
        """Add the choice of a search with hypotheses from row `first` on."""
        for (parent, token, score), fine in zip(choice.alive, paid, strict=True):
            self.kept.append((number, (first + parent, token, score), fine))
        self.ended += [(number, (first + parent, text[-1], score)) for parent, text, score in choice.ended]
        self.left += [(number, (first + parent, token, score)) for parent, token, score in choice.pruned]

    def detail(self, name: str, grouped: bool) -> TreeDetail:
        """The trace record. grouped: whether there may be several searches."""
        kept = [row[1] for row in self.kept]
        ended = [row[1] for row in self.ended]
        left = [row[1] for row in self.left]
        if not grouped:
            return hypotheses_record(name, kept, ended, left)
        groups = [row[0] for row in (*self.kept, *self.ended, *self.left)]
        fines = [row[2] for row in self.kept] + [None] * (len(ended) + len(left))
        return hypotheses_record(name, kept, ended, left, group=groups, fine=fines)


def extend_searches(
    s: State, searches: Sequence[BeamSearch], name: str, strength: float | None = None
) -> Move:
    """Extend every hypothesis of all searches by one token, in one pass; at the end, emit the best text by rank.

    - name: of the recorded detail
    - strength: the penalty on a token's rank, in nats, for every time that an earlier search chose it in this step; None: there
      is only one search. A search that is done leaves the batch with the next step.
    """
    clock, started = s.target.executor, s.target.executor.mark()
    texts = [text for one in searches for text, _ in one.alive]
    written = len(texts[0])
    logits = read_hypotheses(s, texts if written else texts[:1])  # [B, V]; all begin with the same text
    verified = clock.mark()
    s.target.commit([0])
    sure = logits.double().log_softmax(-1)
    taken = Counter[int]()
    at = 0
    record = _SearchRecord()
    for number, one in enumerate(searches):
        first = at if written else 0
        rows = sure[first : first + len(one.alive)]
        at += len(one.alive)
        if one.done:
            one.alive = []
            continue
        choice = one.extend(s, rows, None if strength is None else token_penalties(taken, strength, sure))
        record.add(choice, first, number, one.fines if strength is not None else [0.0] * len(choice.alive))
        taken.update(token for _, token, _ in choice.alive)
        taken.update(text[-1] for _, text, _ in choice.ended)
    if record.kept:
        parents = [parent for _, (parent, _, _), _ in record.kept]
        s.target.cache.reorder(torch.tensor(parents, device=logits.device))
    end: EndReason | None = "stop_token" if all(one.done for one in searches) else None
    end = end or s.limit_reason(written + 1)
    emitted: list[int] = []
    if end is not None:
        emitted = min([x for one in searches for x in one.finished + one.alive], key=searches[0].rank)[0]
        if any(emitted is text for one in searches for text, _ in one.finished):
            end = "stop_token"
        s.tokens += emitted
    details = [record.detail(name, strength is not None)]
    return plain_move(s, emitted, end, started, verified, details=details)


def token_penalties(taken: Counter[int], strength: float, like: Tensor) -> Tensor:
    """float64 [V]: the penalty of each token, from the tokens `taken` so far in this step."""
    fine = like.new_zeros(like.shape[1])
    if taken:
        fine[[*taken]] = strength * like.new_tensor([*taken.values()])
    return fine
