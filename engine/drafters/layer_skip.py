"""Layer skip: the target drafts for itself, leaving out some of its sub-layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..component import component, param
from ..decoder import Skip
from ..draft import Draft
from ..feed import Feed
from ..spec import ModelSpec
from .base import Context, Drafter, top_tokens

if TYPE_CHECKING:
    from ..method import Method


@component
class LayerSkip(Drafter):
    """SWIFT's drafting with a fixed skip set: attention and feed-forward blocks are left out, never those of the first and
    last layer; the draft reads and extends the target's own cache with pending rows, and drops them before the check.

    The chain ends when the draft is less sure than `stop` of the token it just wrote. With `siblings`, alternatives to
    each chain token ride along, fewer the surer the draft was (3, 5, 8 or 10): SWIFT's caterpillar. Under a sampler that
    draws, the chain is drawn from the skipping model's law and siblings are left out, so that each node has its law.
    Lossless for any skip set. Costs no memory; a draft pass costs the share of sub-layers that it runs.
    """

    title = "Layer skip (SWIFT, fixed set)"
    source = "Xia et al. 2025, arXiv:2410.06916, section 4; hemingkx/SWIFT, model/swift/utils.py"
    proposes = "iid"

    length: int = param(4, low=1, high=25, unit="tokens", help="longest draft")
    ratio: float = param(0.45, low=0.0, high=0.9, step=0.05, help="share of the inner sub-layers left out")
    stop: float = param(0.6, low=0.0, high=1.0, step=0.05, help="probability under which the draft ends")
    skip: str = param("", help="sub-layers to leave out, e.g. 'a2 f3 f5' (attention 2, feed-forward 3, 5); empty: by ratio")
    siblings: bool = param(False, help="let alternatives to each chain token ride along (greedy)")

    @property
    def branches(self) -> bool:
        return self.siblings

    def refuse(self, method: Method, spec: ModelSpec) -> str | None:
        try:
            self.skip_set(spec)
        except ValueError as e:
            return str(e)
        return None

    def skip_set(self, spec: ModelSpec) -> Skip:
        """The sub-layers left out: those named, or spread evenly over the inner ones. Raises ValueError if one is not
        an inner sub-layer."""
        inner = [(kind, i) for i in range(1, spec.n_layers - 1) for kind in "af"]
        if self.skip.strip():
            chosen = [_named(word, inner, spec) for word in self.skip.replace(",", " ").split()]
        else:
            count = round(self.ratio * len(inner))
            chosen = [inner[int((j + 0.5) * len(inner) / count)] for j in range(count)]
        attn = frozenset(i for kind, i in chosen if kind == "a")
        return Skip(attn, frozenset(i for kind, i in chosen if kind == "f"))

    def begin(self, ctx: Context) -> None:
        self._skip = self.skip_set(ctx.target.decoder.spec)

    def propose(self, ctx: Context) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        chain = -1
        laws: list[Tensor] = []
        us: list[float | None] = []
        state, last, greedy = ctx.state, ctx.tokens[-1], ctx.sampler.greedy
        for depth in range(min(self.length, ctx.room)):
            feed = Feed.causal([last], ctx.position - 1 + depth, ctx.target.decoder.device)
            logits = ctx.target.forward(feed, "draft", skip=self._skip)[0, 0]
            if greedy:
                sure = float(logits.softmax(-1).amax())
                width = _siblings(sure) if self.siblings else 1
                chosen = top_tokens(ctx.sampler.warp(logits, state) if ctx.sampler.stateful else logits, width)
                last = chosen[0] if not ctx.sampler.stateful else int(ctx.sampler.warp(logits, state).argmax())
                chosen = [last, *(x for x in chosen if x != last)][:width]
            else:
                law = ctx.law(logits, state)
                drawn = ctx.chance.draw(law, ctx.position + depth, "draft")
                chosen, last, sure = [drawn.token], drawn.token, float(law[drawn.token])
                laws.append(law)
                us.append(drawn.u)
            tokens += chosen
            parents += [chain] * len(chosen)
            chain = len(tokens) - len(chosen)
            if ctx.sampler.stateful:
                state = ctx.sampler.update(state, last, logits)
            if sure < self.stop:
                break
        ctx.target.rollback()
        notes = {"attn": sorted(self._skip.attn), "ffn": sorted(self._skip.ffn)}
        if greedy or not laws:
            return Draft(tokens, parents, source="target, layers skipped", notes=notes)
        rows = list(range(len(tokens)))
        q = torch.stack(laws)
        return Draft.chain(tokens, kind="iid", q=q, q_row=rows, u=us, source="target, layers skipped", notes=notes)


def _siblings(sure: float) -> int:
    """How many nodes a level gets, by the probability of its best token (SWIFT's table for greedy decoding)."""
    return 3 if sure > 0.95 else 5 if sure > 0.8 else 8 if sure > 0.5 else 10


def _named(word: str, inner: list[tuple[str, int]], spec: ModelSpec) -> tuple[str, int]:
    kind, number = word[:1], word[1:]
    if not number.isdigit() or (kind, int(number)) not in inner:
        last = spec.n_layers - 2
        raise ValueError(
            f"layer_skip.skip names {word!r}: write a1 to a{last} for attention blocks and f1 to f{last} for feed-forward "
            f"blocks; the first and the last of the {spec.n_layers} layers always run."
        )
    return kind, int(number)
