"""Layer skip: the target drafts for itself and leaves out some of its sub-layers."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftLength
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.model.layers.partial_pass import Skip

from ..shared.layer_skipping import (
    SKIPPED,
    SubLayer,
    inner_sub_layers,
    skip_of,
    skipping_draft,
    spaced_sub_layers,
)


@component
class LayerSkip(DrawnDrafter):
    """SWIFT's drafting with a fixed skip set.

    The draft skips attention and feed-forward blocks, never those of the first and last layer. It reads the target's own cache,
    extends it with pending rows, and drops these before verification.

    The chain ends when the probability of the drafted token is below `min_probability`, or where the schedule ends it. As in
    the official code, this is the probability before the sampler, so temperature and truncation do not change it. With
    `siblings`, the draft adds alternatives to each chain token: 3, 5, 8 or 10, fewer when the draft is more confident (SWIFT's
    caterpillar). Under a random sampler, the chain is drawn from the skipping model's distribution without siblings, so each
    node has its distribution. Lossless for any skip set. Costs no memory; a draft pass costs the share of sub-layers that it
    runs. `swift` searches the set during decoding.
    """

    title = "Layer skip (SWIFT, fixed set)"
    source = "Xia et al. 2025, arXiv:2410.06916, section 4; hemingkx/SWIFT, model/swift/utils.py"
    draw_kind = "iid"
    tells: ClassVar[dict[str, Note]] = SKIPPED

    max_draft_tokens: int = param(4, low=1, high=25, unit="tokens", help="maximum length of a draft")
    skip_ratio: float = param(
        0.45,
        low=0.0,
        high=0.9,
        step=0.05,
        help="share of attention and feed-forward blocks to skip; first and last layer always run",
    )
    min_probability: float = param(
        0.6,
        low=0.0,
        high=1.0,
        step=0.05,
        help="the draft ends after a token with a probability below this; 0: no limit",
    )
    skip_sublayers: tuple[str, ...] = param(
        (),
        least=0,
        help="blocks to skip, e.g. a2,f3 (attention of layer 2, feed-forward of 3); empty: skip_ratio",
    )
    siblings: bool = param(False, help="also draft alternatives to each token; greedy sampling only")

    @property
    def branches(self) -> bool:
        return self.siblings

    @property
    def uses_schedule(self) -> bool:
        return not self.siblings

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        try:
            self.skip_set(spec)
        except ValueError as e:
            return str(e)
        return None

    def skip_set(self, spec: ModelSpec) -> Skip:
        """The skipped sub-layers: those named, or spread evenly over the inner ones.

        Raises ValueError if one is not an inner sub-layer.
        """
        among = inner_sub_layers(spec)
        if not self.skip_sublayers:
            return skip_of(spaced_sub_layers(among, self.skip_ratio))
        return skip_of([_parse_sub_layer(word, among, spec) for word in self.skip_sublayers])

    def begin(self, ctx: Context) -> None:
        self._skip = self.skip_set(ctx.target.decoder.spec)

    def propose(self, ctx: Context) -> Draft:
        schedule = ctx.schedule if self.uses_schedule else DraftLength()
        longest = schedule.draft_limit(ctx, self.max_draft_tokens)
        return skipping_draft(
            ctx, self._skip, longest, self.min_probability, self.siblings, schedule=schedule
        )


def _parse_sub_layer(word: str, among: list[SubLayer], spec: ModelSpec) -> SubLayer:
    kind, number = word[:1], word[1:]
    if not number.isdigit() or (kind, int(number)) not in among:
        last = spec.n_layers - 2
        if last < 1:
            raise ValueError(
                f"layer_skip.skip_sublayers names {word!r}: the first and the last layer always run, "
                f"and {spec.name} has {spec.n_layers} "
                "in all; choose the drafter prompt_lookup."
            )
        raise ValueError(
            f"layer_skip.skip_sublayers names {word!r}: write a1 to a{last} for attention blocks "
            f"and f1 to f{last} for feed-forward "
            f"blocks; the first and the last of the {spec.n_layers} layers always run."
        )
    return kind, int(number)
