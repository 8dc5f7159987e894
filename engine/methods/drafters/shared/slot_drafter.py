"""SlotDrafter: base of drafters for which the target itself guesses, in slots of the verification pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from torch import Tensor

from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import ROOT, Draft, Slots
from decodescope.engine.model.heads.drafting.slot_tokens import SlotTokens, slot_mask
from decodescope.engine.model.heads.files import missing_reason

from .chain_drawing import draw_in_turn

SLOTS = Note("node", "slots", "rows", "trained tokens behind the root and each node")


class SlotDrafter(Drafter):
    """Base of drafters with trained slot tokens.

    The trained tokens of `reads` follow the root or nodes of the tree. In the row of slot k (from 0) behind a node, the target
    guesses the token k + 2 after that node. The slots of the node at the end of the accepted path make the next draft. So there
    is no net and no further pass.

    A slot sees the text, its node, the node's ancestors, the slots before it behind that node, and the prefix if one was
    trained. No node sees a slot, so the logits of root and nodes are the same as without slots. Slots are never matched and
    never kept.
    """

    reads: ClassVar[str]

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not method.adaptive_depth.exact:
            return (
                f"{self.name} puts trained tokens into the check, "
                f"and {method.adaptive_depth.name} would ask them too before it leaves; "
                "choose adaptive_depth all_layers."
            )
        return self.missing_slots(spec)

    def missing_slots(self, spec: ModelSpec) -> str | None:
        """Why the model has no trained tokens for the slots, and what to do; None if it has them."""
        return missing_reason(self.reads, spec)

    def slot_tokens(self, ctx: Context) -> SlotTokens:
        """The trained tokens for the slots."""
        return cast(SlotTokens, ctx.target.decoder.heads[self.reads])

    def begin(self, ctx: Context) -> None:
        self._trained = self.slot_tokens(ctx)
        self._guessed: Tensor | None = (
            None  # float [k, V], the target's logits of the tokens after the next root
        )

    def attach_slots(self, draft: Draft, counts: Sequence[int], room: int) -> list[int]:
        """Attach the first counts[0] trained tokens to the root and the first counts[i + 1] to node i of `draft`.

        A slot is left out if the token that it would guess can no longer be drafted. Returns how many slots each place got.
        """
        hung = [
            max(0, min(count, room - 1 - depth))
            for count, depth in zip(counts, [0, *draft.depth], strict=True)
        ]
        if any(hung):
            rows = self._trained.rows(hung)
            at, steps = (rows[0] + ROOT).tolist(), (rows[1] + 1).tolist()
            draft.slots = Slots(at, steps, slot_mask(rows), self._trained(rows), self._trained.prefix_kv)
        return hung

    def draw_chain(self, ctx: Context, source: str) -> Draft:
        """The guesses as a chain, drawn one after the other under a random sampler."""
        guessed = iter(() if self._guessed is None else self._guessed[: ctx.room])
        return draw_in_turn(ctx, lambda _: next(guessed, None), source)

    def observe(self, outcome: DraftOutcome) -> None:
        slots, path = outcome.draft.slots, outcome.verdict.path
        self._guessed = None
        if slots is None or outcome.slots is None:
            return
        last = path[-1] if path else ROOT
        mine = [i for i, node in enumerate(slots.at) if node == last]
        if mine:
            self._guessed = self._trained.average_members(outcome.slots[mine])
