"""BlockDrafter: base of drafters that fill a block in one pass, over keys of the text made from the target's states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.bases.policy import CHUNK
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.heads.drafting.dflash import DFlashNet
from decodescope.engine.model.heads.drafting.draft_vocabulary import fused_layers
from decodescope.engine.model.heads.files import missing_reason

from .chain_drawing import SURE
from .feature_walk import accepted_rows, join_states


class BlockWalk:
    """The keys and values of the text in every layer of a net, and the passes over a block behind it.

    They are made from the target's states, which are final once a token is accepted: each token's are computed once, when the
    drafter is asked for the first time after it, and stay. The rows of a block are pending during its pass, and dropped after.
    places: the target's layers with states that make a feature
    """

    def __init__(self, ctx: Context, net: DFlashNet, places: Sequence[int | str]) -> None:
        self.net, self.places = net, tuple(places)
        self.decoder = ctx.target.decoder
        self.store = net.store()
        self.due: Tensor | None = None  # float [k, W]: states of accepted tokens that have no keys yet
        self._table = net.embedding(self.decoder)  # [V, d]
        self._mask = net.mask_vector(self._table)
        if ctx.target.probe is not None:
            self.due = join_states(ctx.target.probe.hidden, self.places)

    def note_accepted(self, outcome: DraftOutcome) -> None:
        """Remember the states of the tokens that are text now; the next `read_text` makes keys of them."""
        self.due = join_states(outcome.hidden, self.places)[accepted_rows(outcome)[0]]

    def read_text(self) -> None:
        """Make keys and values of the accepted tokens that have none yet."""
        if self.due is not None:
            for states in self.due.split(CHUNK):
                self.net.add_text(self.net.enter(states), self.store)
            self.due = None

    def read_block(self, root: int) -> Tensor:
        """float [K, d]: the outputs of the block that begins with the root. Nothing of it is kept."""
        outputs = self.net.read_block(self.net.fill_block(self._table[root], self._mask), self.store)
        self.store.rollback()
        return outputs


@component
class BlockDrafter(DrawnDrafter):
    """One pass of the net `reads` over a block of places, from whose outputs `draw` makes a chain.

    If a depth rule exits the pass early, the states of later layers are missing; such methods are refused.
    """

    needs: ClassVar[Needs] = Needs()
    draw_kind = "iid"
    reads: ClassVar[str]
    tells: ClassVar[dict[str, Note]] = {
        "sure": SURE,
        "places": Note(
            "series", "places", "places", "read in the one pass of the net: the root and the masks"
        ),
    }

    max_draft_tokens: int = param(
        16,
        low=1,
        high=64,
        unit="tokens",
        help="maximum length of a draft; the block of the trained net, which is read whole, also limits it",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not method.adaptive_depth.exact:
            rule = method.adaptive_depth.name
            return f"{self.name} reads states of all depths, {rule} may leave before; choose adaptive_depth all_layers."
        return missing_reason(self.reads, spec)

    def pass_needs(self, spec: ModelSpec, heads: Mapping[str, Any]) -> Needs:
        net = heads.get(self.reads)
        places = net.places(spec.n_layers) if isinstance(net, DFlashNet) else fused_layers(spec.n_layers)
        return Needs(hidden=frozenset(places))

    def begin(self, ctx: Context) -> None:
        decoder = ctx.target.decoder
        self._net = cast(DFlashNet, decoder.heads[self.reads])
        self._walk = BlockWalk(ctx, self._net, self._net.places(decoder.spec.n_layers))

    def propose(self, ctx: Context) -> Draft:
        self._walk.read_text()
        count = min(self.max_draft_tokens, ctx.room, self._net.guesses)
        if count == 0:
            return Draft()
        outputs = self._walk.read_block(ctx.tokens[-1])
        draft = self.draw(ctx, outputs, count)
        draft.notes = {**(draft.notes or {}), "places": len(outputs)}
        return draft

    def draw(self, ctx: Context, outputs: Tensor, count: int) -> Draft:
        """A chain of at most `count` tokens from the outputs float [K, d] of the block."""
        raise NotImplementedError

    def observe(self, outcome: DraftOutcome) -> None:
        self._walk.note_accepted(outcome)
