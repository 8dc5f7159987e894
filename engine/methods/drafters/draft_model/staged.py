"""Staged speculation: the draft model itself is sped up by speculation; a table drafts for it."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.acceptance import Cursor, match_greedy, verify_tokenwise
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.chance import Chance, Draw, Purpose
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.forward.feed import Feed

from ..shared.ngrams import NgramCounts, SuffixIndex


@component
class Staged(DrawnDrafter):
    """Speculation in two stages.

    A table guesses the next tokens. The draft model verifies them in one pass by the rule `lossless`, and adds a token of its
    own. This repeats until there are `max_draft_tokens` tokens. The target then verifies them as a chain that the draft model
    has drawn alone. The first verification guarantees this, so the text keeps the target's distribution.

    The table is built from the text itself. It gives the most frequent follower of the `ngram`-grams seen so far, backing off
    to shorter ones, or what followed the same tokens the last time (`lookup`). Only committed tokens are entered. The paper's
    table is a Katz back-off model counted on a corpus beforehand. Its draft is a tree; here it is a chain.

    Costs at most `max_draft_tokens` passes of the draft model, and one fewer for every accepted guess. Notes: `stage` of each
    token, 0 guessed by the table and accepted, 1 written by the draft model; `passes` of the draft model; `guessed`, tokens
    that it read from the table.
    """

    title = "Staged speculation"
    source = "Spector and Re 2023, arXiv:2308.04623, staged drafting"
    lanes = ("draft",)
    draw_kind = "iid"
    tells: ClassVar[dict[str, Note]] = {
        "stage": Note(
            "node", "stage", what="0: guessed by the table and kept; 1: written by the draft model"
        ),
        "passes": Note("series", "passes", what="of the draft model"),
        "guessed": Note("series", "guessed", "tokens", "that the draft model read from the table"),
    }

    max_draft_tokens: int = param(
        8, low=1, high=32, unit="tokens", help="length of the draft that the target verifies"
    )
    max_table_tokens: int = param(
        4,
        low=0,
        high=16,
        unit="tokens",
        help="maximum length of a guess from the table for the draft model; 0: no guesses",
    )
    table: str = param(
        "ngram",
        choices=("ngram", "lookup"),
        help="what the table guesses: most frequent follower (ngram), or latest occurrence (lookup)",
    )
    ngram: int = param(
        3, low=2, high=8, unit="tokens", help="longest n-gram of the table, including the guessed token"
    )

    def begin(self, ctx: Context) -> None:
        self._counts, self._index = NgramCounts(self.ngram), SuffixIndex(self.ngram - 1)

    def propose(self, ctx: Context) -> Draft:
        (self._counts if self.table == "ngram" else self._index).extend(ctx.tokens)
        chain = _DraftChain(ctx)
        length = min(self.max_draft_tokens, ctx.room)
        while len(chain.tokens) < length:
            chain.step(self._guess(chain.text, min(self.max_table_tokens, length - len(chain.tokens) - 1)))
        return chain.to_draft()

    def _guess(self, text: list[int], count: int) -> list[int]:
        """Up to `count` tokens that may follow `text`, the last of which may be drafted."""
        if self.table == "lookup":
            for n in range(min(self.ngram - 1, len(text) - 1), 0, -1):
                # a text ends with itself
                before = [end for end in self._index.ends(text[-n:])[-2:] if end < len(text)]
                if before:
                    return text[before[-1] : before[-1] + count]
            return []
        guesses: list[int] = []
        context = text[-(self.ngram - 1) :]
        while len(guesses) < count and (follower := self._counts.top_follower(context)) is not None:
            guesses.append(follower.token)
            context = [*context, follower.token][-(self.ngram - 1) :]
        return guesses


class _DraftChain:
    """The tokens that the draft model has written since the root, step by step.

    text: committed and drafted tokens;  state: the sampler's, after them;  laws: the distribution float [V] of each drafted
    token
    """

    def __init__(self, ctx: Context):
        self.ctx = ctx
        self.lane = ctx.lanes["draft"]
        self.chance = _DraftChance(ctx.chance)
        self.text, self.state = list(ctx.tokens), ctx.state
        self.laws: list[Tensor] = []
        self.u: list[float | None] = []
        self.stage: list[int] = []
        self.rows: list[Tensor] = []  # the logits [V] that each drafted token is from
        self.passes = self.guessed = 0

    @property
    def tokens(self) -> list[int]:
        """The drafted tokens."""
        return self.text[len(self.ctx.tokens) :]

    def step(self, guess: list[int]) -> None:
        """Run the draft model once over the unread text and the guess; append the accepted guesses and one token more."""
        lane, sampler = self.lane, self.ctx.sampler
        read = min(lane.common_prefix_length(self.text), len(self.text) - 1)
        lane.truncate(read)
        fed, rows = [*self.text[read:], *guess], len(guess) + 1
        logits = lane.forward(Feed.causal_chain(fed, read, lane.decoder.device), "draft")[0, -rows:]
        at = Cursor(Draft.chain(guess), logits, lane.best[-rows:], sampler, self.state, len(self.text))
        # the rule `lossless`
        verdict = match_greedy(at.draft, at) if at.greedy else verify_tokenwise(at.draft, at, self.chance)
        assert verdict.token is not None
        lane.commit(list(range(len(fed) - len(guess) + len(verdict.path))), compress=False)
        for place, token in enumerate([*guess[: len(verdict.path)], verdict.token]):
            kept, law = place < len(verdict.path), verdict.places[place][1]
            self.state = at.state_after(token)
            at = at.descend(place) if kept else at
            self.text.append(token)
            self.stage.append(0 if kept else 1)
            self.rows.append(logits[place])
            if law is not None:
                self.laws.append(law)
                self.u.append(None if kept else verdict.u)
        self.passes, self.guessed = self.passes + 1, self.guessed + len(guess)

    def to_draft(self) -> Draft:
        """The chain; each token was drawn from the draft model's distribution at its position."""
        tokens, source = self.tokens, self.lane.decoder.spec.name
        notes = {"stage": self.stage, "passes": self.passes, "guessed": self.guessed} if tokens else None
        read = self.ctx.keep_logits([ROOT, *range(len(tokens) - 1)], self.rows)
        if not self.laws:
            return Draft.chain(tokens, source=source, notes=notes, logits=read)
        rows = list(range(len(tokens)))
        draft = Draft.chain(
            tokens, kind="iid", q=torch.stack(self.laws), q_row=rows, source=source, notes=notes
        )
        draft.u, draft.logits = self.u, read
        return draft


class _DraftChance(Chance):
    """Random draws for a verification within a draft; the first `token` draw at a position stays reserved for the text."""

    def __init__(self, chance: Chance):
        self._chance = chance

    def draw(self, p: Tensor, position: int, purpose: Purpose = "draft") -> Draw:
        """A drafted token."""
        return self._chance.draw(p, position, "draft")

    def accept(self, ratio_num: float, ratio_den: float, position: int) -> tuple[bool, float]:
        """The outer chance's test."""
        return self._chance.accept(ratio_num, ratio_den, position)
