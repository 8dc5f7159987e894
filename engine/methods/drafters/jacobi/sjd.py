"""Speculative Jacobi decoding: each pass verifies a window of drafts, each by its own distribution, and redraws the rest."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import ROOT, Draft, Proposal


@component
class SJD(Drafter):
    """A chain of W drafted tokens that improves from pass to pass.

    The target reads the chain, and the rule accepts each token with min(1, p / q), up to the first rejection. The tokens behind
    the rejection are drawn again from the target's distributions at these places, which are conditioned on guesses. They are
    drafted again with those distributions as q: Jacobi's iteration with random draws. So a draft improves before its turn
    comes.

    q is the distribution, after the sampler, that a token was drawn from in the pass before. A new place at the window's end
    starts as `random` or `repeat`. `random` draws it from the uniform distribution over the vocabulary, which is then its q.
    `repeat` copies the left neighbour, without chance. The draw for a place depends on no later token, and on no random number
    that decides earlier tokens: lossless (the usual argument of speculative sampling). Under a greedy sampler every place takes
    the target's choice, and the passes are those of Jacobi decoding on a moving window.

    Differences: the authors treat a random token as chosen for certain (a one-hot q). A uniform q accepts it at least as often,
    and is just as exact. Under a sampler with memory, a place is warped as if the drafted tokens before it were the text. The
    authors decode images, with guidance.
    """

    title = "Speculative Jacobi decoding"
    source = (
        "Teng et al. 2025, arXiv:2410.01699, algorithm 1; tyshiwo1/Accelerating-T2I-AR-with-SJD, scheduler/"
    )
    proposes: ClassVar[Proposal] = "mixed"
    tells: ClassVar[dict[str, Note]] = {
        "passes": Note(
            "node", "draws", "passes", "in which the target has drawn this place; 0: an initial guess"
        ),
    }

    window: int = param(8, low=1, high=64, unit="tokens", help="length of the draft (W); the authors use 16")
    initial_guess: str = param(
        "random",
        choices=("random", "repeat"),
        help="first guess for a new place: a random token, or a repeat of the left neighbour",
    )

    def begin(self, ctx: Context) -> None:
        decoder = ctx.target.decoder
        # the type of logits and of their distributions
        wide = torch.promote_types(decoder.dtype, torch.float32)
        self._uniform = torch.full((decoder.vocab,), 1 / decoder.vocab, dtype=wide, device=decoder.device)
        # [R, V], the target's logits at the first R places
        self._rows = self._uniform.new_empty(0, decoder.vocab)
        self._passes: list[int] = []  # of these places

    def propose(self, ctx: Context) -> Draft:
        count = min(self.window, ctx.room)
        sampler = ctx.sampler
        state = ctx.state
        if count == 0:
            return Draft()
        rows = self._rows[:count]
        laws = None if sampler.stateful else ctx.law(rows, state)
        tokens, q_row = list(ctx.tokens[-1:]), []
        q: list[Tensor] = []
        u: list[float | None] = []
        for i in range(count):
            anew = i < len(rows)
            if not anew and self.initial_guess == "repeat":
                token = tokens[-1]
                drawn_by = -1
                by = None
            else:
                if not anew:
                    law = self._uniform
                elif laws is None:
                    law = ctx.law(rows[i], state)
                else:
                    law = laws[i]
                if anew and sampler.greedy:
                    token, by = int(law.argmax()), None
                else:
                    token, by, _, _ = ctx.chance.draw(law, ctx.position + i, "draft")
                drawn_by = len(q)
                q.append(law)
            tokens.append(token)
            q_row.append(drawn_by)
            u.append(by)
            if anew and sampler.stateful:
                state = sampler.update(state, token, rows[i])
        notes = {"passes": (self._passes + [0] * count)[:count]}
        chain = Draft.chain(tokens[1:], source="drawn anew", notes=notes)
        chain.logits = ctx.keep_logits([ROOT, *range(count - 1)], rows)
        if not sampler.greedy:
            chain.kind = self.proposes
            chain.q_row = q_row
            chain.u = u
            chain.q = torch.stack(q) if q else self._uniform.new_empty(0, len(self._uniform))
        return chain

    def observe(self, outcome: DraftOutcome) -> None:
        settled = len(outcome.verdict.path) + 1
        self._rows = outcome.logits[settled:]
        self._passes = [x + 1 for x in [*(outcome.draft.notes or {}).get("passes", []), 0][settled:]]
