"""Early exit: the target's first layers draft, and all its layers verify."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.context import Context, DraftedToken
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.records.exits import Exit

from ..shared.watched_depth import WatchedDepth, parse_depth_rule


@dataclass
class _DraftedChain:
    """tokens: the root, then the drafted tokens.

    For each drafted token, in order:

    - laws, us: the distribution and its draw, unless the sampler is greedy
    - states: by layer, the state that entered it;  depths: the layer in front of which the pass exited
    - rows: the logits [V] that it is from
    - sound: how many layers from the first on ran whole;  sure: the largest probability;  exits: the criterion's evidence
    """

    tokens: list[int]
    laws: list[Tensor] = field(default_factory=list)
    us: list[float | None] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    states: list[dict[int, Tensor]] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    sound: list[int] = field(default_factory=list)
    sure: list[float] = field(default_factory=list)


@component
class EarlyExit(DrawnDrafter):
    """LayerSkip's self-speculation, for any exit criterion.

    A drafted token exits the target after its first `layers` layers, through the final norm and the unembedding that the last
    layer uses. With a `criterion`, it exits wherever that rule of the kind adaptive_depth exits. So one setting decides whether
    early exit is lossy (adaptive_depth=confidence_exit) or lossless (drafter=early_exit with the criterion confidence_exit).
    The draft is the text that the rule would have written.

    The layers that a drafted token ran below its exit, or below the first block that a rule skipped for it, are not run again.
    Their keys and values stay pending in the target's cache, and the token enters verification there with its stored state. The
    token never enters above the shallowest of the exits up to its own, because from there on it has read entries made from exit
    states. So verification is ragged: each layer reads the tokens that have entered, the last ones first. If a part needs
    states inside the pass, or chooses what a layer reads, all tokens enter at the shallowest exit. If a part needs attention,
    all enter at the first layer.

    The chain ends after `max_draft_tokens` tokens, or where the schedule ends it. It also ends with the first token with a
    confidence (largest probability before the sampler) below `min_probability`; that token is still verified. A random sampler
    draws from the exit's distribution. Lossless. LayerSkip's targets were trained with layer dropout and a loss at every exit.
    On other targets an early exit is seldom right. The paper's example exits after 8 of 32 layers and drafts 6 tokens.
    """

    title = "Early exit (LayerSkip)"
    source = (
        "Elhoushi et al. 2024, arXiv:2404.16710, section 3.3; facebookresearch/LayerSkip, self_speculation"
    )
    resumes = True
    draw_kind = "iid"
    tells: ClassVar[dict[str, Note]] = {
        "exits": Note("node", "exit", "layers", "that ran for the token"),
        "kept": Note(
            "node", "kept", "layers", "of the pass that wrote the token, which the check need not run again"
        ),
        "sure": Note(
            "node", "sure", what="largest probability at the exit, before the sampler", line="min_probability"
        ),
        "layers": Note("span", "checked by", "layers", "where the check begins and ends"),
    }

    max_draft_tokens: int = param(6, low=1, high=16, unit="tokens", help="maximum length of a draft")
    layers: int = param(
        2,
        low=1,
        high=512,
        unit="layers",
        help="number of first layers that draft a token (E); not used with a criterion",
    )
    criterion: str = param(
        "", help="early-exit rule with its knobs, e.g. 'confidence_exit threshold=0.7'; empty: fixed layers"
    )
    min_probability: float = param(
        0.0,
        low=0.0,
        high=1.0,
        step=0.05,
        help="the draft ends after a token whose largest probability is below this; 0: no limit",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rule()

    @property
    def uses_schedule(self) -> bool:
        return True

    def _rule(self) -> AdaptiveDepth | None:
        """The exit criterion; None: a fixed layer. Raises ParamError if there is no such rule or knob."""
        return (
            parse_depth_rule(self.criterion, "early_exit.criterion") if self.criterion.strip(" ,") else None
        )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not method.adaptive_depth.exact:
            return (
                f"early_exit checks from its exit layer on, {method.adaptive_depth.name} may leave before; "
                "choose adaptive_depth all_layers, "
                f"and {method.adaptive_depth.name} as early_exit's criterion."
            )
        rule = self._rule()
        if rule is not None:
            return rule.refuse(method, spec)
        if self.layers >= spec.n_layers:
            return (
                f"early_exit.layers = {self.layers} leaves nothing to check with, {spec.name} has {spec.n_layers} layers; "
                f"{spec.choose_below('the drafter prompt_lookup')}."
            )
        return None

    def begin(self, ctx: Context) -> None:
        rule = self._rule()
        if rule is not None:
            rule.attach_lane(ctx.target)
            rule.begin(ctx.target.decoder.spec)
        self._exits = None if rule is None else WatchedDepth(rule, ctx.target.decoder.spec.n_layers)

    def propose(self, ctx: Context) -> Draft:
        lane = ctx.target
        lane.rollback()
        chain = self._draft_chain(ctx)
        if not chain.states:
            return Draft()
        layers = lane.decoder.spec.n_layers
        kept = self._reusable_layers(lane, [min(x, layers - 1) for x in chain.sound])
        enter = kept[-1]
        notes = {
            "exits": chain.depths,
            "kept": kept,
            "sure": [round(x, 4) for x in chain.sure],
            "layers": [enter, layers],
        }
        notes |= ctx.schedule.notes()
        draft = Draft.chain(chain.tokens[1:], source="target, early exit", notes=notes)
        draft.exits = chain.exits
        draft.logits = ctx.keep_logits([ROOT, *range(len(draft) - 1)], chain.rows)
        if chain.laws:
            draft.kind = "iid"
            draft.q = torch.stack(chain.laws)
            draft.q_row = list(range(len(chain.laws)))
            draft.u = chain.us
        for i, store in enumerate(lane.cache.layers):
            store.rollback(sum(x > i for x in kept))
        if enter:
            at = ctx.position - 1 + len(chain.states)
            last = lane.states_before(Feed.causal_chain(chain.tokens[-1:], at, lane.decoder.device), enter)
            draft.enter = enter
            draft.states = torch.cat([*(x[at] for x, at in zip(chain.states, kept, strict=True)), last], 1)
            draft.entries = [*kept, enter] if kept[0] > enter else None
        return draft

    def _draft_chain(self, ctx: Context) -> _DraftedChain:
        """Draft token by token, until the limit, the schedule or an unsure exit ends the chain."""
        sampler = ctx.sampler
        state = ctx.state
        chain = _DraftedChain([ctx.tokens[-1]])
        longest = ctx.schedule.draft_limit(ctx, self.max_draft_tokens)
        more = longest > 0
        while more and len(chain.tokens) <= longest:
            depth = len(chain.states)
            feed = Feed.causal_chain(chain.tokens[-1:], ctx.position - 1 + depth, ctx.target.decoder.device)
            logits, entering, left, whole = self._read(ctx, feed, depth)
            chain.states.append(entering)
            chain.rows.append(logits)
            chain.depths.append(left)
            took = None if self._exits is None else self._exits.take_exit()
            chain.exits += [] if took is None else [replace(took, drafted=True)]
            chain.sound.append(whole)
            if sampler.greedy:
                token = int((sampler.warp(logits, state) if sampler.stateful else logits).argmax())
            else:
                chain.laws.append(ctx.law(logits, state))
                token, u, *_ = ctx.chance.draw(chain.laws[-1], ctx.position + depth, "draft")
                chain.us.append(u)
            chain.tokens.append(token)
            drafted = DraftedToken(token, logits)
            chain.sure.append(drafted.confidence)
            more = ctx.schedule.continue_drafting(drafted) and drafted.confidence >= self.min_probability
            state = sampler.update(state, token, logits) if sampler.stateful else state
        return chain

    @staticmethod
    def _reusable_layers(lane: Lane, sound: list[int]) -> list[int]:
        """Layers of each drafting pass that verification need not repeat; sound: the layers that skipped nothing."""
        if lane.needs.attends:
            return [0] * len(sound)
        if lane.needs.hidden or lane.policy.selects or not min(sound):
            return [min(sound)] * len(sound)
        return list(accumulate(sound, min))

    def _read(self, ctx: Context, feed: Feed, depth: int) -> tuple[Tensor, dict[int, Tensor], int, int]:
        """Read one token up to its exit.

        Returns its logits [V], the states [1, 1, d_model] that entered each layer, the layer in front of which it exited, and
        how many layers from the first on ran whole. depth: of the token that the logits decide, 0 for the first drafted.
        """
        lane = ctx.target
        if self._exits is None:
            x = lane.states_before(feed, self.layers, logits=1)
            return lane.decoder.lazy_logits(x)()[0, 0], {self.layers: x}, self.layers, self.layers
        skip = self._exits.plan(len(ctx.tokens) - ctx.prompt + depth, feed)
        logits = lane.forward(feed, "draft", skip=skip, depth=self._exits)[0, 0]
        return logits, self._exits.entered, self._exits.exit_layer, self._exits.sound
