"""Drafter: guesses the tokens after the root."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from decodescope.engine.core.activity import Activity, count_noun
from decodescope.engine.core.component import Component, component, param
from decodescope.engine.core.params import AUTO
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec

from ..values.draft import Draft, Proposal
from .context import Context, DraftOutcome
from .draft_sampler import DraftSampler
from .sampler import Sampler


class Drafter(Component):
    """Base of every drafter.

    proposes: the kind of draft it makes when the sampler draws, and when the sampler is greedy
    drafts:   whether it ever proposes anything
    speaks:   the role of the model, if the draft consists of that model's own tokens in order; a page may then show that
              model instead; empty: something else makes the draft, or a model that has been changed
    looks_up: True if a draft, as set, is a chain of tokens from texts, which no pass and no head computes
    copies:   True if a draft is exactly what followed the last tokens at their last occurrence in the text; a report then
              need not show what such a copy would give
    independent: True if the draft model guesses each token without those drafted before it
    resumes:  whether its drafts run the first layers of the target, and the pass that verifies them begins after those
    """

    kind = "drafter"
    proposes: ClassVar[Proposal] = "onehot"
    drafts: ClassVar[bool] = True
    speaks: ClassVar[str] = ""
    looks_up: ClassVar[bool] = False
    copies: ClassVar[bool] = False
    independent: ClassVar[bool] = False
    resumes: ClassVar[bool] = False

    @property
    def branches(self) -> bool:
        """True if a draft, as set, may be a tree rather than a chain."""
        return False

    @property
    def largest_draft(self) -> tuple[int, int] | None:
        """(nodes, levels) of its largest draft, as set; None if its knobs do not say. Its knobs are those of most drafters: the
        length of a chain, or nodes and depth of a tree."""
        length, nodes, depth = (getattr(self, knob, None) for knob in ("max_draft_tokens", "nodes", "depth"))
        if isinstance(length, int) and not self.branches:
            return length, length
        return (nodes, min(nodes, depth)) if isinstance(nodes, int) and isinstance(depth, int) else None

    @property
    def uses_schedule(self) -> bool:
        """True if it, as set, asks the method's schedule for the draft length, token by token: from a model, as a chain."""
        return False

    @property
    def reads_text(self) -> bool:
        """True if it, as set, holds text that the target's tokenizer has to read (Context.encode)."""
        return False

    def describe(self) -> dict[str, Any]:
        return {"drafts": self.drafts, "speaks": self.speaks, **({"copies": True} if self.copies else {})}

    def pass_needs(self, spec: ModelSpec, heads: Mapping[str, Any]) -> Needs:
        """What it needs from every pass of a target of this shape with these draft heads, by kind: `needs`, unless that depends
        on them."""
        return self.needs

    @property
    def no_guess_reason(self) -> str:
        """Why it may have no guess, in a few words."""
        return "it had no guess"

    def idle_reason(self, did: Activity) -> str:
        if not self.drafts or did.drafted_count or not did.steps:
            return ""
        if not did.draftable_steps:
            return f"{self.name} drafted nothing: no step had room for a draft."
        held = (
            "the schedule held every draft back"
            if did.held_back == did.draftable_steps
            else self.no_guess_reason
        )
        return f"{self.name} drafted nothing in {count_noun(did.draftable_steps, 'step')}: {held}."

    def begin(self, ctx: Context) -> None:
        """Called once, when the prompt has been read up to the root."""

    def propose(self, ctx: Context) -> Draft:
        """A draft of at most ctx.room levels; empty to let the target go on alone."""
        raise NotImplementedError

    def observe(self, outcome: DraftOutcome) -> None:
        """Called after the commit: learn, recycle, adapt."""

    def draft_sampler(self, sampler: Sampler) -> Sampler:
        """The sampler under which it drafts, where the target samples with `sampler`."""
        return sampler


@component
class DrawnDrafter(Drafter):
    """Base of drafters that draw their nodes from the distribution of a model, of heads or of some layers.

    `draft_temperature` sets the temperature of these draws; the target's does not change. The acceptance rule gets the
    distribution that really drew each node, so a text keeps the target's distribution at every value. At 0 a node is the
    drafting model's most likely token, chosen without chance: the rule judges it as one-hot, q = 1. So most servers draft.
    vLLM's draft_sample_method is "greedy" by default, and "probabilistic" is `auto` here (vllm/config/speculative.py, commit
    002e77c1). Under a greedy sampler a draft is greedy at every value.
    """

    draft_temperature: float | str = param(
        AUTO, low=0.0, high=5.0, step=0.05, auto=True,
        help="temperature of the draft's draws; 0: greedy drafts, as most servers make; auto: the sampler's own",
    )  # fmt: skip

    @property
    def draw_kind(self) -> Proposal:
        """How nodes are drawn: each sibling from what the earlier siblings left, unless a drafter says otherwise."""
        return "without_replacement" if self.branches else "iid"

    @property
    def proposes(self) -> Proposal:  # type: ignore[override] # depends on a knob
        """How nodes are chosen when the sampler draws."""
        return "onehot" if self.draft_temperature == 0 else self.draw_kind

    def draft_sampler(self, sampler: Sampler) -> Sampler:
        if sampler.greedy or self.draft_temperature == AUTO:
            return sampler
        return DraftSampler(sampler, float(self.draft_temperature))


def top_tokens(logits: Tensor, k: int) -> list[int]:
    """The k most likely ids of logits [V] (all, if V is smaller), best first."""
    return logits.topk(min(k, logits.shape[0])).indices.tolist()
