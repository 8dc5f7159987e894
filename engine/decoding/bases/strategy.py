"""Strategy: the loop body, one decoding step from committed tokens to more committed tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from decodescope.engine.core.component import Component
from decodescope.engine.core.roles import TARGET
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.trace.details.declarations import Form

if TYPE_CHECKING:
    from .state import Move, State


class Strategy(Component):
    """Base of every strategy.

    uses:     the kinds of parts it consults; setting another is refused, not ignored
    lanes:    the further models that it reads itself, by role; parts that it uses ask for their own
    sides:    what a row may see of the text: only its "left", by a causal model, or "both" sides, by a model without a
              causal mask; the method refuses a model of the other sort
    lossless: True if the text keeps the target's distribution;  changes: if not, why the text may differ, in a few words
    verdicts: True if a step drafts, tests the draft by the acceptance rule and adds a token of the target's own. The verdict
              of such a step can be re-derived from the record, and one can be forced
    details:  name -> what the details of that name mean that its moves record (`engine/trace/details`): the trace's header
              carries this, and check, explanation, page, notebook and exported file read it there
    """

    kind = "strategy"
    uses: ClassVar[frozenset[str]] = frozenset()
    sides: ClassVar[Literal["left", "both"]] = "left"
    writes: ClassVar[Literal["text", "rows", "cells", "blocks"]] = "text"
    verdicts: ClassVar[bool] = False
    lossless: ClassVar[bool] = True
    changes: ClassVar[str] = ""
    details: ClassVar[Mapping[str, Form]] = {}

    def describe(self) -> dict[str, Any]:
        return {"uses": sorted(self.uses), "verdicts": self.verdicts}

    @property
    def reads_text(self) -> bool:
        """True if it, as set, holds text that the target's tokenizer has to read (State.encode)."""
        return False

    def decoders(self, heads: Mapping[str, Any], spec: ModelSpec) -> dict[str, ModelSpec]:
        """Lane -> shape of the decoders that it builds from the trained heads of a target of shape `spec`. A trace's header
        records them, and their passes are priced by them."""
        return {}

    def prefill(self, s: State) -> None:
        """Read the prompt, before `begin`. Here the target reads it up to the root; its cache may hold a part of it already.
        Every further lane of a model that reads from left to right reads it as well."""
        if s.prompt - 1 > len(s.target.tokens):
            s.target.read(s.tokens[:-1], "prefill", s.chunk_callback(TARGET), compress=False)
        s.target.read_vectors(s.prompt - 1)
        for role, lane in s.lanes.items():
            if not lane.decoder.spec.causal:  # it reads texts as a whole, when it is asked to
                continue
            text = s.guidance.text(role, s.tokens, s.prompt) if role in s.guidance.lanes else s.tokens
            if text := lane.own_ids(text):
                lane.read(text[:-1] or text, "prefill", s.chunk_callback(role))

    def begin(self, s: State) -> None:
        """Called once, when the prompt has been read."""

    def step(self, s: State) -> Move:
        """Decide on more tokens, commit them, and return what happened."""
        raise NotImplementedError
