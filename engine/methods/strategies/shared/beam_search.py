"""Search: beam searches side by side behind one prompt, whose hypotheses one pass reads; alone, or in groups that part."""

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
    """Let hypotheses share what they have in common, as a tree, where nothing takes entries out of the cache, chooses among
    them or packs them."""
    if not s.target.policy.does and not s.target.kv_compression.does:
        branch_cache(s.target.cache, cast(TreePlan, plan), block)


@dataclass
class BeamSearch:
    """One beam search of `width` hypotheses, ranked by score / length^alpha.

    alive: hypotheses that go on, best first, and `token_penalties`, what was taken off the rank of each;  finished: the
    best that have ended, and the fine of each with its tokens;  done: whether nothing that goes on can count any more
    """

    width: int
    alpha: float
    alive: list[Hypothesis] = field(default_factory=lambda: [([], 0.0)])
    fines: list[float] = field(default_factory=lambda: [0.0])
    finished: list[Hypothesis] = field(default_factory=list)
    done: bool = False

    def rank(self, hypothesis: Hypothesis) -> float:
        """What is minimised: minus the score per length^alpha."""
        cost: float = -hypothesis[1] / len(hypothesis[0]) ** self.alpha
        return cost

    def is_settled(self, longest: int) -> bool:
        """Whether no hypothesis that goes on can beat the worst finished one, were it to reach `longest` tokens at its
        present score."""
        if len(self.finished) < self.width or not self.alive:
            return not self.alive
        best = max(score for _, score in self.alive)
        settled: bool = self.rank(self.finished[-1]) <= -best / longest**self.alpha
        return settled

    def extend(self, s: State, sure: Tensor, fine: Tensor | None) -> ExtensionChoice:
        """Let the best extensions go on, by log-probabilities float64 [B, V] behind the hypotheses, less `fine` [V] for each
        token, where one is taken, and what was taken before; what was chosen."""
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
    """What the searches of a step chose. Each row has the number of its search in front, and of those that go on, what their
    texts were fined."""

    kept: list[tuple[int, Extension, float]] = field(default_factory=list)
    ended: list[tuple[int, Extension]] = field(default_factory=list)
    left: list[tuple[int, Extension]] = field(default_factory=list)

    def add(self, choice: ExtensionChoice, first: int, number: int, paid: Sequence[float]) -> None:
        """Take in what a search chose whose hypotheses stand from row `first` on."""
        for (parent, token, score), fine in zip(choice.alive, paid, strict=True):
            self.kept.append((number, (first + parent, token, score), fine))
        self.ended += [(number, (first + parent, text[-1], score)) for parent, text, score in choice.ended]
        self.left += [(number, (first + parent, token, score)) for parent, token, score in choice.pruned]

    def detail(self, name: str, grouped: bool) -> TreeDetail:
        """As a trace keeps it. grouped: whether there may be several searches."""
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
    """One token more for every hypothesis of all searches, by one pass. The text is emitted at the end, the best by rank.

    name: of the detail that is recorded
    strength: what each search takes off the rank of a token for every time that a search before it chose it in this step, in
    nats; None: there is one search alone. A search that is done leaves the batch with the next step.
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
    """float64 [V]: what is taken off each token, which was chosen `taken` times in this step."""
    fine = like.new_zeros(like.shape[1])
    if taken:
        fine[[*taken]] = strength * like.new_tensor([*taken.values()])
    return fine
