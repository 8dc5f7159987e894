"""Fallback: the small model writes until it is unsure, and the large one takes back what it finds too unlikely."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.decoding.bases.router import Router

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec


@component
class Fallback(Router):
    """Big Little Decoder: both models decode greedily. The small one writes until its largest probability falls below tau,
    whose token is discarded, or it has written `length` tokens; then the large one reads all of them in one pass. Of the
    first token with -ln p above `rollback` and another one likelier the rest is taken back, the large model's choice stands
    there instead, and the large model goes on alone for a token, as in the authors' code; else its next token follows the
    block. A step is a block and the pass that judges it, so that what is taken back was never emitted.

    The authors look at the earliest token above the bar alone and cancel the rollback where that one is the likeliest
    anyway, so that it hides a later one; here both conditions are asked of each token, and with rollback = 0 the text is the
    large model's. They let an end of text by the small model stand unread; here the large model reads that, too.
    """

    title = "Fallback and rollback (BiLD)"
    source = "Kim et al. 2023, arXiv:2302.07863; kssteven418/BigLittleDecoder, src/transformers/models/t5/modeling_t5.py"
    of = frozenset({"token"})
    judges = True

    tau: float = param(
        0.6, low=0.0, high=1.0, help="largest probability below which the small model gives up"
    )
    rollback: float = param(
        5.0, low=0.0, high=1000.0, unit="nats", help="-ln p by the large model above which a token goes"
    )
    length: int = param(
        10, low=1, high=64, unit="tokens", help="that the small model writes in a row at most"
    )

    @property
    def reach(self) -> int:
        return self.length

    @property
    def bar(self) -> float:
        return self.rollback

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if method.router.name != self.name or (method.sampler.greedy and not method.sampler.stateful):
            return None
        return "fallback hands over greedy choices and cannot draw: choose the sampler greedy alone, or the router entropy."
