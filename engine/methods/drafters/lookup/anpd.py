"""ANPD: draft token by token from n-gram counts that adapt to every committed token."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import Draft

from ..shared.ngrams import Follower, NgramCounts


@component
class ANPD(Drafter):
    """Count the n-grams of orders 2 to `ngram` in the prompt, and continue with every committed token.

    A draft grows token by token. The longest suffix of text and draft that has a known follower gives its most frequent one.

    Only committed tokens are counted, never guesses. Of equally frequent followers the one counted last is taken; the official
    code leaves that to the order of a sort. If even the last token has no known follower, the draft ends. The official code
    continues with a default token, which costs the target a row for nothing. The draft is chosen without chance: lossless under
    any sampler. Costs O(ngram) table look-ups per token counted and per token drafted, and no pass of any model. The defaults 5
    and 6 are recalled from the paper, not verified.
    """

    title = "Adaptive n-gram (ANPD)"
    source = "Ou et al. 2024, arXiv:2404.08698; github.com/oujieww/ANPD, base_ngram.py"
    looks_up = True
    tells: ClassVar[dict[str, Note]] = {
        "orders": Note(
            "node",
            "order",
            "tokens",
            "length of the n-gram that gave the token, itself included",
            line="ngram",
        ),
        "counts": Note("node", "count", "times", "how often that n-gram was counted"),
    }

    max_draft_tokens: int = param(6, low=1, high=64, unit="tokens", help="maximum length of a draft")
    ngram: int = param(
        5, low=2, high=8, unit="tokens", help="longest n-gram to count, including the predicted token"
    )

    def begin(self, ctx: Context) -> None:
        self._counts = NgramCounts(self.ngram)

    def propose(self, ctx: Context) -> Draft:
        self._counts.extend(ctx.tokens)
        followers: list[Follower] = []
        context = ctx.tokens[-(self.ngram - 1) :]
        while len(followers) < min(self.max_draft_tokens, ctx.room):
            follower = self._counts.top_follower(context)
            if follower is None:
                break
            followers.append(follower)
            context = [*context, follower.token][-(self.ngram - 1) :]
        notes = {"orders": [x.order for x in followers], "counts": [x.times for x in followers]}
        return Draft.chain(
            [x.token for x in followers], source="most frequent n-gram", notes=notes if followers else None
        )
