"""Token recycling: draft from candidate tokens that earlier passes computed but did not use."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.shared.verify_cost import fastest_row_count
from decodescope.engine.decoding.values.draft import Draft

from ..shared.trees import Template, best_tree

SIZES = (8, 16, 24, 80)
# Probability that the child of rank r continues the text, used to shape the templates; top-8 successors of a token.
RATES = (0.42, 0.13, 0.08, 0.055, 0.04, 0.03, 0.024, 0.02)


@component
class TokenRecycling(Drafter):
    """For every token, keep the eight most likely successors from the last time the target read it, also in rejected branches.

    Follow them to grow the next tree: A[parent token, rank], level by level along a static template.

    Templates of 8, 16, 24 and 80 nodes are the best trees of their size under fixed rates by rank. The official repository
    lists its 80 nodes without the rule that made them; that list is not used here. "auto" takes the template with the most
    expected tokens per microsecond on this device's measured verify-cost curve. With `table_from_prompt` the successors within
    the prompt fill the table at the start; the original starts from zeros, or from the last prompt's table.

    `unseen_token` decides what follows a token that was never read. `zero` is the id 0, once per place, as in the original's
    table of zeros; its row is read as well, and the table fills sooner. `stop` ends the branch: fewer tokens per step, but
    smaller passes, which was faster on a CPU (docs/fidelity.md). If one pass reads a token at several places, the accepted row
    is written last; the original keeps the row that comes last in the pass. The difference is between -3 and +2 % of the tokens
    per step, depending on the text.

    The draft is chosen without chance: lossless under any sampler. Costs no pass of any model.
    """

    title = "Token recycling"
    source = "Luo et al. 2025, arXiv:2408.08696, section 3; Luowaterbi/TokenRecycling, evaluation/inference_recycling.py"
    tells: ClassVar[dict[str, Note]] = {
        "template": Note("series", "template", "nodes", "of the tree, were the table full"),
    }

    nodes: str = param(
        "auto",
        choices=("auto", "8", "16", "24", "80"),
        unit="nodes",
        help="size of the draft tree; auto: the fastest on this device",
    )
    table_from_prompt: bool = param(True, help="fill the table with the successors found in the prompt")
    unseen_token: str = param(
        "stop",
        choices=("stop", "zero"),
        help="after a token that the target has not read yet: end the branch (stop), or draft id 0",
    )

    @property
    def branches(self) -> bool:
        return True

    def begin(self, ctx: Context) -> None:
        self._table: dict[int, list[int]] = {}
        if self.table_from_prompt:
            for token, successor in zip(ctx.tokens, ctx.tokens[1:], strict=False):
                row = self._table.setdefault(token, [])
                self._table[token] = [successor, *(x for x in row if x != successor)][: len(RATES)]
        if self.nodes == "auto":
            self.nodes = str(self.best_size(ctx))
        self._template: Template = best_tree(RATES, int(self.nodes))

    def best_size(self, ctx: Context) -> int:
        """The template size with the most expected tokens per microsecond of the target's pass."""
        tokens = {n + 1: best_tree(RATES, n).expected for n in SIZES}
        return fastest_row_count(ctx.target.decoder, tokens, ctx.target.executor) - 1

    def propose(self, ctx: Context) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        unread = [0] if self.unseen_token == "zero" else []
        place: dict[int, int] = {-1: -1}  # node of the template -> node of the draft
        for i, (parent, rank) in enumerate(zip(self._template.parents, self._template.ranks, strict=True)):
            if parent not in place:
                continue
            above = place[parent]
            depth = 1 if above < 0 else depths[above] + 1
            successors = self._table.get(ctx.tokens[-1] if above < 0 else tokens[above], unread)
            if rank < len(successors) and depth <= ctx.room:
                place[i] = len(tokens)
                tokens.append(successors[rank])
                parents.append(above)
                depths.append(depth)
        return Draft(tokens, parents, source="recycled candidates", notes={"template": len(self._template)})

    def observe(self, outcome: DraftOutcome) -> None:
        best = outcome.logits.topk(min(len(RATES), outcome.logits.shape[-1]), -1).indices.tolist()
        read = [outcome.root, *outcome.draft.tokens]
        accepted = {0, *(node + 1 for node in outcome.verdict.path)}
        for row, token in enumerate(read):
            if row not in accepted:
                self._table[token] = best[row]
        for row in sorted(accepted):  # the accepted row has the better context, so it is written last
            self._table[read[row]] = best[row]
