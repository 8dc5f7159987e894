"""PPD: trained prompt tokens follow the nodes in the verification pass, and there the target guesses for the next draft."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.shared.verify_cost import fastest_row_count
from decodescope.engine.decoding.values.draft import Draft

from ..shared.slot_drafter import SLOTS, SlotDrafter
from ..shared.slot_plan import slot_plan
from ..shared.trees import SHAPED, TemplateGrowth

SIZES = (8, 16, 24, 32, 48)
# How often the guess of rank 0, 1, ... is right, per prompt token, for files that do not record it.
RATES = tuple(
    tuple(x * 0.7**k for x in (0.5, 0.13, 0.07, 0.05, 0.03, 0.025, 0.02, 0.015, 0.01, 0.01))
    for k in range(16)
)


@component
class PPD(SlotDrafter):
    """Parallel prompt decoding.

    One to three prompt tokens follow the root and candidates of the tree. In the row of prompt token k behind a node, the
    target guesses the token k + 2 after that node. The rows of the node at the end of the accepted path make the next draft. So
    there is no net and no further pass: drafting only costs rows of the verification.

    The tree is chosen without chance: lossless under any sampler with the rule `lossless`. The first step of a text has no
    guesses and drafts nothing. The same holds after a path that ended at a node without prompt tokens.

    The state of a step is the number of levels with guesses. `rows` is the number of rows of a verification, including the
    root. For each state, candidates and prompt tokens share the rows so that the long-run expected tokens per step are highest.
    The expectation uses the rank accuracies measured when the prompt tokens were trained (`slot_plan.py`). The authors assign
    prompt tokens greedily, and fix the tree of state 1 at ten candidates. "auto" takes the number of rows with the most tokens
    per microsecond on this device's measured verify-cost curve, the hardware-aware part of the paper.

    Notes: `state`; `slots`, the prompt tokens behind the root and behind each node; `ranks` of the nodes; `expected` tokens of
    the step, and `rows` planned. The drafter uses the guesses behind the last node of the path and drops the others.
    """

    title = "Parallel prompt decoding (PPD)"
    source = "Chen et al. 2024, arXiv:2405.18428; hmarkc/parallel-prompt-decoding, prompt/inference/sparse_tree_builder.py"
    reads = "ppd"
    tells: ClassVar[dict[str, Note]] = {
        "state": Note("series", "state", "levels", "that there are guesses for"),
        "slots": SLOTS,
        **SHAPED,
        "rows": Note("series", "rows", "rows", "planned for a check"),
    }

    rows: str = param(
        "auto",
        choices=("auto", *map(str, SIZES)),
        unit="rows",
        help="size of a verification pass: root, candidates, prompt tokens; auto: fastest on this device",
    )

    @property
    def branches(self) -> bool:
        return True

    def begin(self, ctx: Context) -> None:
        super().begin(ctx)
        shape = self._trained.shape
        rates = (self._trained.rates or RATES)[: shape["heads"]]
        plans = {
            rows: slot_plan(rates, rows, shape["ensemble"])
            for rows in (SIZES if self.rows == "auto" else [int(self.rows)])
        }
        if self.rows == "auto":
            tokens = {rows: plan.tokens for rows, plan in plans.items()}
            self.rows = str(fastest_row_count(ctx.target.decoder, tokens, ctx.target.executor))
        self._plan = plans[int(self.rows)]

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        best = (
            None if self._guessed is None else self._guessed.topk(min(len(RATES[0]), self._guessed.shape[-1]))
        )
        guessed = [] if best is None else best.indices.tolist()
        state = min(len(guessed), ctx.room)
        tree = self._plan.trees[state]
        growth = TemplateGrowth(tree.template, ctx.room)
        kept: dict[int, Tensor] = {}
        for guesses, row in zip(guessed, () if self._guessed is None else self._guessed, strict=True):
            kept |= growth.keep_logits(ctx, [row] * len(growth.open))
            growth.grow([guesses] * len(growth.open))
        draft = Draft(growth.tokens, growth.parents, source="prompt tokens", logits=kept)
        counts = self.attach_slots(
            draft, [tree.slots[0], *(tree.slots[x + 1] for x in growth.nodes)], ctx.room
        )
        expected = round(tree.template.expected, 4)
        draft.notes = {
            "state": state,
            "slots": counts,
            "ranks": growth.ranks,
            "expected": expected,
            "rows": int(self.rows),
        }
        return draft
