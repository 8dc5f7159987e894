"""SpecInfer: several draft models grow a tree each, and the target reads all trees in one pass."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.roles import DRAFTS
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import DrawnDrafter
from decodescope.engine.decoding.values.draft import ROOT, Draft, Proposal

from ..shared.model_tree import MOST, ModelTree, tree_size_conflict
from ..shared.union import merge_trees


@component
class SpecInfer(DrawnDrafter):
    """Expand one tree per draft model, for `models` draft models, and verify all trees in one pass of the target.

    The trees share the root and one list of branching numbers: a node of level d has b_d children in the tree of its model.

    Under a greedy sampler the children are the b_d most likely tokens, and the trees are merged: a path that several models
    propose is one node. Under a random sampler the children are b_d independent draws, with replacement, and none is merged. A
    token drawn twice gives verification two chances, each with the distribution of its own model. One merged node would hide
    the second chance and bias the distribution of the text. So equal tokens stay siblings, and each continues in its own tree.

    Verification is multi-step: a rejected child's distribution, from whichever model, is subtracted from the rest of the
    target's (rule `lossless`). The paper tries children in random order; here the order is that of the models, then of the
    draws. Verification stays exact because no token decides the order. The models are used as they are. The paper trains the
    second on what the first gets wrong (boosting). It branches by 1,1,3,1,1,1,1,1 (section 6.1); the default here is smaller.

    Costs one pass of every model per level. Notes, nodes in the draft's order: `models`, the numbers of the models that propose
    the path to a node; `drawn_by`, the model that drew this very node, if nodes were drawn; `merged`, the proposals that repeat
    the path of another one.
    """

    title = "SpecInfer (several draft models)"
    source = "Miao et al. 2024, arXiv:2305.09781, expansion and merge of token trees, multi-step speculative sampling"
    tells: ClassVar[dict[str, Note]] = {
        "models": Note("node", "models", what="numbers of the draft models that propose the path"),
        "drawn_by": Note("node", "drawn by", what="number of the draft model that drew this very node"),
        "merged": Note("series", "merged", "nodes", "proposals that repeat the path of another one"),
    }

    models: int = param(
        1, low=1, high=3, help="number of draft models (m); further ones have the roles draft2 and draft3"
    )
    branching: tuple[int, ...] = param(
        (1, 1, 2, 1),
        low=1,
        high=MOST,
        most=MOST,
        unit="children",
        help="children of each node in one model's tree, one number per level, e.g. 3,2,1",
    )

    @classmethod
    def roles(cls) -> tuple[str, ...]:
        return DRAFTS

    @property
    def lanes(self) -> tuple[str, ...]:  # type: ignore[override] # depends on a knob
        """One role per model."""
        return DRAFTS[: self.models]

    @property
    def draw_kind(self) -> Proposal:
        """Siblings come from one distribution, or each from that of its model."""
        return "iid" if self.models == 1 else "mixed"

    @property
    def branches(self) -> bool:
        return self.models > 1 or any(x > 1 for x in self.branching)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return tree_size_conflict(self.branching, "specinfer.branching", self.models)

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        trees = [self._expand(ctx, role) for role in self.lanes]
        tokens, parents, places = merge_trees((tree.tokens, tree.parents) for tree in trees)
        who: list[list[int]] = [[] for _ in tokens]
        for number, at in enumerate(places, 1):
            for node in dict.fromkeys(at):
                who[node].append(number)
        notes: dict[str, Any] = {"models": who, "merged": sum(map(len, places)) - len(tokens)}
        source = " and ".join(tree.lane.decoder.spec.name for tree in trees)
        if ctx.sampler.greedy:
            # a place that several models reach keeps the distribution of the first
            draft = Draft(tokens, parents, source=source, notes=notes)
            for tree, at in reversed([*zip(trees, places, strict=True)]):
                draft.logits |= {ROOT if x == ROOT else at[x]: row for x, row in tree.logits.items()}
            return draft
        drafts = [tree.to_draft(self.proposes) for tree in trees]
        notes["models"] = [who[node] for at in places for node in at]
        notes["drawn_by"] = [number for number, draft in enumerate(drafts, 1) for _ in draft.tokens]
        return _concat_drafts(drafts, self.proposes, source, notes)

    def _expand(self, ctx: Context, role: str) -> ModelTree:
        """The tree of one model."""
        tree, frontier = ModelTree(ctx, role), [ROOT]
        for level, width in enumerate(self.branching[: ctx.room]):
            rows = tree.read(frontier) if level else tree.read_root()
            grown = tree.add_children(frontier, rows, [width] * len(frontier), again=True)
            frontier = [child for children in grown for child in children]
        tree.close()
        return tree


def _concat_drafts(drafts: list[Draft], kind: Proposal, source: str, notes: dict[str, Any]) -> Draft:
    """Drawn drafts under one root, one after the other, nothing merged."""
    tokens: list[int] = []
    parents: list[int] = []
    logits: dict[int, Tensor] = {}
    for x in drafts:
        first = len(tokens)
        logits |= {first + at: row for at, row in x.logits.items() if at != ROOT}
        parents += [ROOT if parent == ROOT else len(tokens) + parent for parent in x.parents]
        tokens += x.tokens
    q, u = torch.cat([x.q for x in drafts if x.q is not None]), [u for x in drafts for u in x.u or ()]
    draft = Draft(tokens, parents, kind, q, list(range(len(tokens))), u, source=source, notes=notes)
    draft.logits = {x: row for x, row in drafts[0].logits.items() if x == ROOT} | logits
    return draft
