"""P-EAGLE: EAGLE-3's layer guesses all tokens of a draft in one pass, from masks behind the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.heads.drafting.p_eagle import PEagleLayer

from ..shared.feature_walk import FeatureWalk
from ..shared.fused_tree import FusedTree

GUESSED = ("predicted", "passes")  # notes on features that a layer guesses, which there are none of


class _MaskWalk(FeatureWalk):
    """A FeatureWalk whose one pass, over the text's last pair and masks behind it, guesses all levels of a draft."""

    def __init__(self, ctx: Context, layer: PEagleLayer, places: Sequence[int | str], k: int):
        self._net, self._k = layer, k
        self._group: Tensor | None = None  # [k, d]: the output of the pass
        self._guesses: Tensor | None = None  # [k, V]: its logits
        super().__init__(ctx, layer, places)
        self._mask = layer.mask_pair(self._table)

    def _output_after(self, features: Tensor, embedded: Tensor) -> Tensor:
        self._group = self._net.group(features, embedded, self._mask, self.store, self._k)
        self._guesses = None
        return self._group[:1]

    def next_level(self, outputs: Tensor, above: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """The outputs [R, d] one level further, which are the same after all tokens."""
        assert self._group is not None, "the text was read"
        self.level += 1
        return self._group[self.level].expand(len(tokens), -1)

    def logits(self, outputs: Tensor) -> Tensor:
        """float [R, V]: the logits of the level; those of all levels are made at once."""
        if self._guesses is None:
            assert self._group is not None, "the text was read"
            self._guesses = super().logits(self._group)
        return self._guesses[self.level].expand(len(outputs), -1)


@component
class PEagle(FusedTree):
    """`eagle3` with one pass of the layer a draft, however long the draft is.

    EAGLE-3 reads its own output and the drafted token for each further level. Here masks follow the text's last pair: a learnt
    state instead of the target's states, a mask token instead of the drafted one (`engine/model/heads/drafting/p_eagle.py`).
    The pair guesses the first level, mask j the level j + 1. A mask knows the text and its distance, not the tokens between, so
    a level has one list of guesses for all paths. The first level is EAGLE-3's with the same weights. Masks leave nothing in
    the layer's cache.

    Costs a pass of `depth` rows beside those of the new tokens, and one unembedding of as many rows. vLLM drafts a chain, the
    default here; `width` above 1 makes a tree of the levels' lists, as Medusa's heads do, and is ours. Nodes are chosen without
    chance: lossless with any draft vocabulary.
    """

    title = "P-EAGLE"
    source = (
        "Hui et al. 2026, arXiv:2602.01469, section 3; vllm-project/speculators, models/peagle; vllm-project/vllm, "
        "v1/spec_decode, parallel drafting"
    )
    reads: ClassVar[str] = "p_eagle"
    tells: ClassVar[dict[str, Note]] = {
        **{name: note for name, note in FusedTree.tells.items() if name not in GUESSED},
        "mask": Note("node", "mask", what="that guessed it, counted from 1; 0: the text's last pair"),
    }

    depth: int = param(
        5,
        low=1,
        high=16,
        unit="levels",
        help="tokens guessed in the one pass of the draft layer; heads of AWS were trained for up to 10",
    )
    width: int = param(
        1,
        low=1,
        high=16,
        unit="nodes",
        help="nodes expanded per level, and guesses taken of each level; 1: a chain",
    )

    def begin(self, ctx: Context) -> None:
        layer = cast(PEagleLayer, ctx.target.decoder.heads[self.reads])
        places = self.feature_places(ctx.target.decoder.spec, layer)
        self._walk = _MaskWalk(ctx, layer, places, self.depth)

    def propose(self, ctx: Context) -> Draft:
        draft = super().propose(ctx)
        if draft.notes is not None:
            for name in GUESSED:
                draft.notes.pop(name)
            draft.notes["mask"] = [level - 1 for level in draft.depth]
        return draft
