"""ProPD: in the verification pass the first layers prune the tree, and the other layers read the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import ROOT, Draft

from ..shared.inner_drafter import parse_drafter, refuse_files

SHOWN = 8  # dropped nodes in the trace


@component
class ProPD(Drafter):
    """Early pruning of the draft tree, for any drafter that chooses without chance.

    The target's first `layers` layers read root and tree. From their output, the final norm and the unembedding give each place
    an early ranking of its next token. A node stays if its token is among the first `top_k` at its parent, and if its parent
    stays. The rows of the other nodes are removed from the pending keys and values and from the states. Verification continues
    from layer `layers` with the remaining rows.

    Pruning only loses candidates, and none by a random draw, so the text keeps the target's distribution under any sampler. The
    remaining nodes have the same logits as in the whole tree, because no node sees a sibling. If k of n nodes stay, the cost is
    `layers` layers of n + 1 rows, a small unembedding, and the other layers of k + 1 rows. If a part needs attention,
    verification starts again at the first layer, with the pruned tree.

    The paper trains an early head (recalled) and sizes the tree by fitted step times. Here the head is the model's own, which
    predicts poorly after the first layers, and the size is that of the proposed tree. Notes: `proposed` nodes; `nodes` that
    stay, as numbers of the proposed tree; and `dropped`: how many, at which `layer`, and the `first` dropped nodes with a
    remaining parent, as [node of the draft or -1, token].
    """

    title = "ProPD (early pruning)"
    source = "Zhong et al. 2024, arXiv:2402.13485, early pruning"
    resumes = True
    tells: ClassVar[dict[str, Note]] = {
        "proposed": Note("series", "proposed", "nodes", "of the whole tree"),
        "nodes": Note("node", "was", "node", "its number in the whole tree"),
        "dropped.reason": Note("set", "dropped by"),
        "dropped.layer": Note("series", "pruned after", "layers"),
        "dropped.nodes": Note("series", "dropped", "nodes"),
        "dropped.first": Note(
            "set", "the first dropped", "node, token", "each behind the node that it hung on"
        ),
    }

    tree_drafter: str = param(
        "token_recycling nodes=24",
        help="drafter that builds the tree, with its knobs, e.g. 'medusa nodes=24'",
    )
    layers: int = param(
        2, low=1, high=512, unit="layers", help="number of layers that run before the tree is pruned"
    )
    top_k: int = param(
        64,
        low=1,
        high=4096,
        unit="tokens",
        help="keep a node only if its token is among this many likeliest ones after its parent",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._tree_drafter()

    def _tree_drafter(self) -> Drafter:
        """A new drafter for the tree; raises ParamError if there is no such drafter or knob."""
        return parse_drafter(self.tree_drafter, "propd.tree_drafter")

    @property
    def branches(self) -> bool:
        return True

    @property
    def reads_text(self) -> bool:
        return self._tree_drafter().reads_text

    def pass_needs(self, spec: ModelSpec, heads: Mapping[str, Any]) -> Needs:
        return self._tree_drafter().pass_needs(spec, heads)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        tree = self._tree_drafter()
        if tree.proposes != "onehot" or tree.lanes or not tree.branches or tree.name == self.name:
            return (
                f"propd.tree_drafter = {self.tree_drafter!r}: {tree.name}, as set, makes no tree that is "
                "chosen without chance and without a "
                "draft model; choose token_recycling, trie, rest, medusa or hydra."
            )
        if reason := refuse_files(tree, self.tree_drafter, "propd.tree_drafter"):
            return reason
        if not method.adaptive_depth.exact:
            return (
                f"propd checks from layer {self.layers} on, {method.adaptive_depth.name} may leave before; "
                "choose adaptive_depth all_layers."
            )
        if self.layers >= spec.n_layers:
            return (
                f"propd.layers = {self.layers} leaves nothing to check with, {spec.name} has {spec.n_layers} layers; "
                f"{spec.choose_below('the drafter of its tree')}."
            )
        return tree.refuse(method, spec)

    def begin(self, ctx: Context) -> None:
        self._drafter = self._tree_drafter()
        self._drafter.begin(ctx)

    def propose(self, ctx: Context) -> Draft:
        lane = ctx.target
        lane.rollback()
        whole = self._drafter.propose(ctx)
        if not whole.tokens:
            return whole
        states = lane.states_before(
            whole.build_feed(ctx.tokens[-1], ctx.position - 1, lane.decoder.device), self.layers
        )
        stay = self._likely_nodes(ctx, whole, states)
        at = {ROOT: ROOT, **{node: i for i, node in enumerate(stay)}}
        gone = [x for x in range(len(whole)) if x not in at]
        rim = [[at[whole.parents[x]], whole.tokens[x]] for x in gone if whole.parents[x] in at][:SHOWN]
        dropped = {"reason": "early-prune", "layer": self.layers, "nodes": len(gone), "first": rim}
        notes = {"proposed": len(whole), "nodes": stay, "dropped": dropped}
        tokens, parents = [whole.tokens[x] for x in stay], [at[whole.parents[x]] for x in stay]
        draft = Draft(tokens, parents, source=f"{whole.source or self._drafter.title}, pruned", notes=notes)
        draft.logits = {at[place]: row for place, row in whole.logits.items() if place in at}
        if lane.needs.attends:
            lane.rollback()
            return draft
        rows = torch.tensor([0, *(node + 1 for node in stay)], device=states.device)
        for store in lane.cache.layers[: self.layers]:
            store.prune_pending(rows)
        draft.enter, draft.states = self.layers, states[:, rows]
        return draft

    def _likely_nodes(self, ctx: Context, whole: Draft, states: torch.Tensor) -> list[int]:
        """The nodes of the tree, ascending, that the early ranking keeps; states [1, N + 1, d_model] enter the next layer."""
        decoder, inner = ctx.target.decoder, sorted(set(whole.parents))  # places with children
        logits = decoder.lazy_logits(states[:, [place + 1 for place in inner]])()[0]  # [P, V]
        ctx.target.passes[-1].logits = len(inner)
        best = logits.topk(min(self.top_k, logits.shape[-1])).indices.tolist()
        likely, stay = {place: set(tokens) for place, tokens in zip(inner, best, strict=True)}, {ROOT}
        for node, (token, parent) in enumerate(zip(whole.tokens, whole.parents, strict=True)):
            if parent in stay and token in likely[parent]:
                stay.add(node)
        return sorted(stay - {ROOT})

    def observe(self, outcome: DraftOutcome) -> None:
        self._drafter.observe(outcome)
