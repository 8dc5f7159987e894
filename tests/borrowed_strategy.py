"""Thrift: a strategy that no file of the package knows. It looks two tokens ahead and keeps the second where it is likely."""

from __future__ import annotations

from typing import Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    Figure,
    NodeOutcome,
    Outcome,
    Relation,
    Sentence,
    TallyForm,
    TreeForm,
)
from decodescope.engine.trace.details.shapes import TallyDetail, TreeDetail

PURSE = TallyForm(
    title="A purse of tokens",
    number="p",
    bar="price",
    value="p",
    says=[
        Sentence("{bought} tokens bought", where="bought >= 2"),
        Sentence("one token bought", given={"bought": 1}),
    ],
    row=[Sentence("{token}")],
    outcomes={
        "gift": Outcome(True, "", [Sentence("a gift")]),
        "bought": Outcome(True, "price", [Sentence("bought for {price:2}")]),
        "dear": Outcome(False, "price", [Sentence("too dear"), Sentence("by {price - p:3}")]),
        "end": Outcome(False, "", [Sentence("behind the end")]),
    },
    lines=[Sentence("A token is bought where its probability reaches {price:2}.")],
    columns=[DetailColumn("token", "token"), DetailColumn("p", "number"), DetailColumn("outcome", "text")],
    values=[DetailColumn("bought", "number")],
    order=["gift", "bought|dear|end?"],
    relations=[Relation("p <= 1")],
    totals=[Relation("bought == emitted")],
    emits="token",
    counted="purses",
)

LADDER = TreeForm(
    title="A ladder of tokens",
    noun="rung",
    nouns="rungs",
    columns=[DetailColumn("token", "token"), DetailColumn("p", "number"), DetailColumn("outcome", "text")],
    outcomes={
        "climbed": NodeOutcome("open", [Sentence("climbed")]),
        "missed": NodeOutcome("left", [Sentence("missed")], heading="Missed beside them:"),
    },
    number="p",
    worth=[Sentence("{p:2} firm")],
    figures=[
        Figure("rung {k}", "how firm", [Sentence("{p:3}")]),
        Figure(
            "", "and from below", [Sentence("the first", where="depth <= 1"), Sentence("{p * before(p):3}")]
        ),
    ],
    about=[Sentence("Rung {k} of {steps}")],
    card=[Sentence("A rung is climbed where it is the firmest.")],
    lines=[Sentence("{open} of {nodes} rungs were climbed.")],
    values=[DetailColumn("steps", "number")],
    relations=[Relation("p <= 1")],
    totals=[Relation("steps == nodes")],
    counted="ladders",
)


@component
class BorrowedStrategy(Strategy):
    """One pass gives the next token, which is a gift; a second pass behind it gives one more, bought at `price`."""

    title = "Thrift"
    source = "made up for a test"
    lossless = False
    changes = "the second token is taken only where it is likely"
    details: ClassVar = {"purse": PURSE, "ladder": LADDER}

    price: float = param(
        0.3, low=0.0, high=1.0, step=0.05, help="probability that the second token has to reach"
    )

    def step(self, s: State) -> Move:
        clock = s.target.executor
        started = clock.mark()
        tokens: list[int] = []
        p: list[float] = []
        beside: list[tuple[int, float]] = []  # the second-best token of each place
        read = len(s.target.tokens)
        for fresh in (s.tokens[read:], tokens):
            if len(tokens) == s.remaining_tokens:
                break
            feed = Feed.causal_chain(fresh, len(s.target.tokens), s.target.decoder.device, logits="last")
            logits = s.target.forward(feed)[0][-1]
            # what the first pass read stays; the next step reads the gift again, as part of its text
            s.target.commit([] if tokens else list(range(len(fresh))))
            chances = logits.double().softmax(-1)
            best = chances.topk(2)
            tokens.append(int(best.indices[0]))
            p.append(float(best.values[0]))
            beside.append((int(best.indices[1]), float(best.values[1])))
        verified = clock.mark()
        outcomes = ["gift", *("bought" if x >= self.price else "dear" for x in p[1:])]
        wanted = sum(PURSE.outcomes[word].holds for word in outcomes)
        count, end = s.cut(tokens[:wanted])
        outcomes = [
            *outcomes[:count],
            *("end" if i < wanted else outcomes[i] for i in range(count, len(tokens))),
        ]
        s.tokens += tokens[:count]
        purse = TallyDetail("purse", {"token": tokens, "p": p, "outcome": outcomes}, {"bought": count})
        parents = [*range(-1, len(tokens) - 1)]
        columns: dict[str, list[Any]] = {
            "token": [*tokens, *(token for token, _ in beside)],
            "p": [*p, *(x for _, x in beside)],
            "outcome": ["climbed"] * len(tokens) + ["missed"] * len(tokens),
        }
        ladder = TreeDetail("ladder", parents * 2, columns, {"steps": 2 * len(tokens)})
        return plain_move(s, tokens[:count], end, started, verified, details=[purse, ladder])
