"""PPD: trained prompt tokens ride the check behind its nodes, and there the target itself guesses for the next draft."""

from __future__ import annotations

from typing import ClassVar, cast

from decodescope.engine.core.company import Company
from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.context import Context, Outcome
from decodescope.engine.decoding.draft import ROOT, Draft, Slots
from decodescope.engine.decoding.drafter import Drafter
from decodescope.engine.heads.files import missing
from decodescope.engine.heads.ppd import PromptTokens, visible
from decodescope.engine.timing.verify_cost import fastest

from ..shared.slot_plan import slot_plan
from ..shared.trees import SHAPED, Growth

SIZES = (8, 16, 24, 32, 48)
# How often the guess of rank 0, 1, ... is right, by prompt token, for heads whose file does not say.
RATES = tuple(tuple(x * 0.7**k for x in (0.5, 0.13, 0.07, 0.05, 0.03, 0.025, 0.02, 0.015, 0.01, 0.01)) for k in range(16))


@component
class PPD(Drafter):
    """Parallel prompt decoding. Behind the root and behind candidates of the tree hang prompt tokens, one to three; number k
    behind a node is a row of the check in which the target guesses the token k + 2 after that node. The rows of the node where
    the accepted path ends make the next draft, so there is no net and no further pass: drafting costs rows of the check.

    A prompt token sees the text, its node, the node's ancestors and the prompt tokens before it behind that node. Nothing sees
    a prompt token, so the logits of root and candidates are those of the check without them; they are never matched, never
    kept. The tree is chosen without chance: lossless under any sampler with the rule `lossless`. The first step of a text, and
    one after a path that ended where no prompt token hung, has no guesses and drafts nothing.

    The state of a step is the number of levels that there are guesses for. `rows` is the number of rows of a check, the root
    among them; for each state candidates and prompt tokens share them so that the most tokens a step are expected in the long
    run, under the rank accuracies measured when the prompt tokens were trained (`slot_plan.py`; the authors deal out
    prompt tokens greedily and fix the tree of state 1 at ten candidates). "auto" takes the number of rows with the most tokens
    a microsecond on this device's measured verify-cost curve, the hardware-aware part of the paper.

    Notes: `state`; `slots`, the prompt tokens behind the root and behind each node; `ranks` of the nodes; `expected` tokens of
    the step, and `rows` planned. The guesses that are used are those behind the last node of the path, the others are dropped.
    """

    title = "Parallel prompt decoding (PPD)"
    source = "Chen et al. 2024, arXiv:2405.18428; hmarkc/parallel-prompt-decoding, prompt/inference/sparse_tree_builder.py"
    tells: ClassVar[dict[str, Note]] = {
        "state": Note("series", "state", "levels", "that there are guesses for"),
        "slots": Note("node", "slots", "rows", "prompt tokens behind the root and each node"),
        **SHAPED,
        "rows": Note("series", "rows", "rows", "planned for a check"),
    }

    rows: str = param("auto", choices=("auto", *map(str, SIZES)), unit="rows", help="of a check: candidates and prompt tokens")

    @property
    def branches(self) -> bool:
        return True

    def refuse(self, method: Company, spec: ModelSpec) -> str | None:
        if not method.depth.exact:
            return (
                f"ppd puts prompt tokens into the check, and {method.depth.name} would ask them too before it leaves; choose "
                "the depth all_layers."
            )
        return missing("ppd", spec)

    def begin(self, ctx: Context) -> None:
        self._prompts = cast(PromptTokens, ctx.target.decoder.heads["ppd"])
        shape = self._prompts.shape
        rates = (self._prompts.rates or RATES)[: shape["heads"]]
        plans = {
            rows: slot_plan(rates, rows, shape["ensemble"]) for rows in (SIZES if self.rows == "auto" else [int(self.rows)])
        }
        if self.rows == "auto":
            tokens = {rows: plan.tokens for rows, plan in plans.items()}
            self.rows = str(fastest(ctx.target.decoder, tokens, ctx.target.executor))
        self._plan = plans[int(self.rows)]
        self._guesses: list[list[int]] = []  # by level, best first

    def propose(self, ctx: Context) -> Draft:
        if ctx.room == 0:
            return Draft()
        state = min(len(self._guesses), ctx.room)
        tree = self._plan.trees[state]
        growth = Growth(tree.template, ctx.room)
        for guesses in self._guesses:
            growth.grow([guesses] * len(growth.open))
        draft = Draft(growth.tokens, growth.parents, source="prompt tokens")
        # a prompt token whose guess would be of a token that can no longer be drafted is left out
        counts = [min(tree.slots[0], ctx.room - 1)]
        counts += [max(0, min(tree.slots[x + 1], ctx.room - 1 - d)) for x, d in zip(growth.nodes, draft.depth, strict=True)]
        if any(counts):
            rows = self._prompts.rows(counts)
            at, steps = (rows[0] + ROOT).tolist(), (rows[1] + 1).tolist()
            draft.slots = Slots(at, steps, visible(rows), self._prompts(rows))
        expected = round(tree.template.expected, 4)
        draft.notes = {"state": state, "slots": counts, "ranks": growth.ranks, "expected": expected, "rows": int(self.rows)}
        return draft

    def observe(self, outcome: Outcome) -> None:
        slots, path = outcome.draft.slots, outcome.verdict.path
        self._guesses = []
        if slots is None or outcome.slots is None:
            return
        last = path[-1] if path else ROOT
        mine = [i for i, node in enumerate(slots.at) if node == last]
        if mine:
            logits = self._prompts.averaged(outcome.slots[mine])
            self._guesses = logits.topk(min(len(RATES[0]), logits.shape[-1])).indices.tolist()
