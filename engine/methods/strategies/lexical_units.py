"""Lexical unit decoding: placeholders after the text predict its next tokens, and the confident predictions are taken."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.decoding.shared.token_draw import draw_token
from decodescope.engine.decoding.values.tops import token_probabilities
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    Outcome,
    Relation,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import TallyDetail

from .shared.strategy_text import token_of

UNIT = TallyForm(
    title="A lexical unit",
    number="p",
    bar="min_probability",
    value="p",
    says=[Sentence("{taken} of {rows} foreseen taken")],
    row=[Sentence("{token}")],
    outcomes={
        "first": Outcome(True, "", [Sentence("taken")]),
        "taken": Outcome(
            True,
            "min_probability",
            [Sentence("taken")],
            [Relation("token != before(token)", given={"allow_repeats": False})],
        ),
        "bar": Outcome(False, "min_probability", [Sentence("below the bar")]),
        "repeat": Outcome(
            False,
            "",
            [Sentence("repeats the one before it")],
            [Relation(x) for x in ("token == before(token)", "allow_repeats == 0", "p >= min_probability")],
        ),
        "end": Outcome(False, "", [Sentence("behind the end of the text")]),
        "behind": Outcome(False, "", [Sentence("behind it")]),
    },
    lines=[
        Sentence(
            "The first token comes from the text's last row and always stands, the others from placeholders."
        ),
        Sentence("The longest run is taken in which each has at least beta."),
    ],
    columns=[DetailColumn("token", "token"), DetailColumn("p", "number"), DetailColumn("outcome", "text")],
    values=[DetailColumn("taken", "number")],
    order=["first", "taken*", "bar|repeat|end?", "behind*"],
    relations=[Relation("p >= 0"), Relation("p <= 1")],
    totals=[Relation("taken == emitted")],
    emits="token",
    counted="lexical units",
)


@component
class LexicalUnits(Strategy):
    """Write several tokens per pass, as long as the model is confident of them.

    A pass reads the text and `placeholders` placeholders behind it. The text's last row gives the next token, which is always
    taken. Each placeholder gives the token after that of the row before it. Behind the first token, the longest run of tokens
    with a probability of at least `min_probability` is taken: the lexical unit. The next pass reads the taken tokens again, as
    text. Entries of placeholders are never kept, so no later token reads one.

    Tokens behind the first are never verified, so the text changes, except for `min_probability` > 1, which is plain decoding.
    It works with any model, and makes sense with one that was trained on placeholders, as the adapter `lab+lud` was. A random
    sampler draws only the first token. The others are the likeliest tokens of rows that do not know the drawn token.

    The authors' repository holds no code. The rule that a token must differ from the one before it (`allow_repeats`), and the
    sizes of `min_probability` and `placeholders`, are [recalled]. `p` is the model's probability, before the sampler.
    """

    title = "Lexical unit decoding"
    source = "Sun et al. 2024, LREC-COLING, arXiv:2405.15208, section 3; tjunlp-lab/Lexical-Unit-Decoding-LUD- (readme alone)"
    uses = frozenset({"prompt_compression", "policy", "kv_compression", "sampler"})
    lossless = False
    changes = "tokens that the model is sure of are taken unread"
    details: ClassVar = {"lexical_unit": UNIT}

    placeholders: int = param(
        4, low=1, high=16, unit="tokens", help="number of placeholder tokens read after the text in each pass"
    )
    min_probability: float = param(
        0.9,
        low=0.0,
        high=1.01,
        step=0.01,
        help="minimum probability of each token after the first (beta); above 1: plain decoding",
    )
    allow_repeats: bool = param(False, help="allow tokens after the first to repeat the token before them")
    placeholder_token: str = param(
        "", help="placeholder token, as text or id; empty: the model's padding token"
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not self.placeholder_token and spec.pad_token is None:
            return (
                f"{spec.name} names no padding token: name another token as lexical_units.placeholder_token."
            )
        if method.sampler.constrains:
            unseen = f"a unit's further tokens are the model's own, whatever {method.sampler.name} refuses"
            return f"lexical_units takes tokens that no sampler sees, and {unseen}: choose the strategy draft_verify."
        return None

    def begin(self, s: State) -> None:
        pad = s.target.decoder.spec.pad_token
        s.scratch = (
            token_of(s, self.placeholder_token, "lexical_units.placeholder_token")
            if self.placeholder_token
            else pad
        )

    def step(self, s: State) -> Move:
        clock, read = s.target.executor, len(s.target.tokens)
        started = clock.mark()
        unread = s.tokens[read:]
        held_back = [s.scratch] * min(self.placeholders, s.room)
        feed = Feed.causal_chain([*unread, *held_back], read, s.target.decoder.device)
        first = len(unread) - 1
        logits = s.target.forward(feed)[0][first:]  # [1 + placeholders, V]
        verified = clock.mark()
        tokens, states = self.unit(s, logits, s.target.best[first:])
        p = token_probabilities(logits, tokens)
        outcomes = self.outcomes(tokens, p)
        taken = sum(UNIT.outcomes[word].holds for word in outcomes)
        count, end = s.cut(tokens[:taken])
        if count < taken:
            outcomes[count:] = ["end", *["behind"] * (len(tokens) - count - 1)]
        emitted, before = tokens[:count], s.sampler_state
        columns: dict[str, list[Any]] = {"token": tokens, "p": p, "outcome": outcomes}
        unit = TallyDetail("lexical_unit", columns, {"taken": count})
        s.target.commit(list(range(len(unread))))
        s.tokens += emitted
        s.sampler_state = states[count - 1]
        return plain_move(
            s, emitted, end, started, verified, logits=logits, details=[unit], sampler_state=before
        )

    def unit(self, s: State, logits: torch.Tensor, best: list[int]) -> tuple[list[int], list[object]]:
        """The token of each row of logits [R, V], and the sampler's state behind each of them."""
        first, state = draw_token(logits[:1], best[0], s.sampler, s.sampler_state, s.chance, len(s.tokens))
        tokens, states = [first, *best[1:]], [state]
        for row, token in zip(logits[1:], best[1:], strict=True):
            states.append(s.sampler.update(states[-1], token, row) if s.sampler.stateful else states[-1])
        return tokens, states

    def outcomes(self, tokens: list[int], p: list[float]) -> list[str]:
        """The outcome of each token: taken up to the first that is below the threshold, or repeats the one before it."""
        words = ["first"]
        for before, token, chance in zip(tokens, tokens[1:], p[1:], strict=False):
            if words[-1] not in ("first", "taken"):
                words.append("behind")
            elif chance < self.min_probability:
                words.append("bar")
            elif not self.allow_repeats and token == before:
                words.append("repeat")
            else:
                words.append("taken")
        return words
