"""Fallback: the small model writes until it is unsure; the large one then rolls back tokens that it finds too unlikely."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.decoding.bases.router import JudgedBlock, Router
from decodescope.engine.trace.details.declarations import (
    DetailColumn,
    LookForm,
    Outcome,
    Relation,
    Sentence,
    TallyForm,
)
from decodescope.engine.trace.details.shapes import Detail, TallyDetail
from decodescope.engine.trace.details.turns import WRITER_LANES

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec

_SURE = [Relation("sure >= 0"), Relation("sure <= 1", 1e-6)]
_UNTIL = "The small model writes until its largest probability is below tau, {tau:g}"
BLOCK = TallyForm(
    title="A block judged",
    number="ln p, large model",
    bar="at least",
    value="-loss",
    says=[
        Sentence("{kept} of {written} tokens of the small model stay", where="written >= 1"),
        Sentence("the large model wrote, nothing was there to judge"),
    ],
    row=[Sentence("{token}")],
    outcomes={
        "stays": Outcome(
            True,
            "-rollback_threshold",
            [Sentence("stays")],
            [*_SURE, Relation("k <= kept"), Relation("token != choice")],
        ),
        "own choice": Outcome(
            True,
            "",
            [Sentence("stays, the large model's choice too")],
            [*_SURE, Relation("k <= kept"), Relation("token == choice")],
        ),
        "taken back": Outcome(
            False,
            "-rollback_threshold",
            [Sentence("taken back")],
            [*_SURE, Relation("k == kept + 1"), Relation("token != choice")],
        ),
        "behind it": Outcome(False, "", [Sentence("behind it")], [*_SURE, Relation("k >= kept + 2")]),
        "large": Outcome(True, "", [], [Relation("k == written + 1"), Relation("kept <= emitted - 1")]),
    },
    lines=[
        Sentence(_UNTIL + ": it gave a place up at {gave_up:3}."),
        Sentence(_UNTIL + ".", given={"gave_up": None}),
        Sentence(
            "The large one reads the block in one pass, and takes back from the first token that is too unlikely."
        ),
        Sentence(
            "Before that the small model read {caught} tokens that it had not seen: that is paid too.",
            where="caught >= 1",
        ),
    ],
    columns=[
        DetailColumn("token", "token"),
        DetailColumn("lane", "text"),
        DetailColumn("sure", "number"),
        DetailColumn("loss", "number"),
        DetailColumn("choice", "token"),
        DetailColumn("outcome", "text"),
    ],
    values=[DetailColumn(name, "number") for name in ("kept", "written", "asked", "gave_up", "caught")],
    order=["stays|own choice*", "taken back?", "behind it*", "large?"],
    emits="token",
    listed="k <= written",
    check="blocks",
    part="router",
    lanes=replace(
        WRITER_LANES,
        number="sure",
        what="the small model's largest probability",
        head="p",
        bar="tau",
        most=1.0,
        # kept tokens past the end of the text are left out
        drawn="min(k - emitted, kept + 1 - k) <= 0",
        back="taken back",
    ),
    looks=[LookForm("law", "draft", "asked"), LookForm("law", "target", "written")],
)


@component
class Fallback(Router):
    """Big Little Decoder: both models decode greedily.

    The small model writes until its largest probability falls below tau, or it has written `max_draft_tokens` tokens; the token
    below tau is discarded. Then the large model reads all of them in one pass. It looks for the first token with -ln p above
    `rollback_threshold` that is not its own likeliest. From there the rest is taken back, the large model's choice replaces the
    token, and the large model continues alone for one token, as in the authors' code. Otherwise its next token follows the
    block. A step is a block and the pass that judges it, so a token that is taken back was never emitted.

    The authors test only the earliest token above the threshold, and cancel the rollback if that token is the likeliest anyway.
    So it hides a later one. Here each token must meet both conditions, and with rollback = 0 the text is the large model's. The
    authors accept an end of text by the small model unread; here the large model reads it, too.
    """

    title = "Fallback and rollback (BiLD)"
    source = "Kim et al. 2023, arXiv:2302.07863; kssteven418/BigLittleDecoder, src/transformers/models/t5/modeling_t5.py"
    of = frozenset({"token"})
    judges = True
    details: ClassVar = {"judged_block": BLOCK}

    tau: float = param(
        0.6,
        low=0.0,
        high=1.0,
        help="the small model hands over when its largest probability falls below this",
    )
    rollback_threshold: float = param(
        5.0,
        low=0.0,
        high=1000.0,
        unit="nats",
        help="take a token back if the large model gives it a -ln p above this and prefers another",
    )
    max_draft_tokens: int = param(
        10,
        low=1,
        high=64,
        unit="tokens",
        help="maximum length that the small model writes before the large model checks it",
    )

    @property
    def reach(self) -> int:
        return self.max_draft_tokens

    @property
    def bar(self) -> float:
        return self.rollback_threshold

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if method.router.name != self.name or (method.sampler.greedy and not method.sampler.stateful):
            return None
        return "fallback hands over greedy choices and cannot draw: choose the sampler greedy alone, or the router entropy."

    def block_details(self, block: JudgedBlock, emitted: int) -> list[Detail]:
        n = len(block.tokens)
        gave_up = block.sure[n] if len(block.sure) > n else None
        outcomes = [
            "own choice" if token == choice else "stays"
            for token, choice in zip(block.tokens[: block.kept], block.choice, strict=False)
        ]
        if block.kept < n:
            outcomes += ["taken back", *["behind it"] * (n - block.kept - 1)]
        columns: dict[str, list[Any]] = {
            "token": [*block.tokens],
            "lane": ["small"] * n,
            "sure": block.sure[:n],
            "loss": [*block.loss],
            "choice": [*block.choice],
            "outcome": outcomes,
        }
        if block.kept < emitted:
            # it takes the place of the discarded token
            here = gave_up if block.kept == n else None
            own = block.own, "large", here, None, None, "large"
            for column, entry in zip(columns.values(), own, strict=True):
                column.append(entry)
        values = {
            "kept": block.kept,
            "written": n,
            "asked": len(block.sure),
            "gave_up": gave_up,
            "caught": block.caught,
        }
        return [TallyDetail("judged_block", columns, values)]
