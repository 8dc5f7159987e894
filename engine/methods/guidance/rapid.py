"""RAPID: moves the target towards a model that reads only the parts of a long context that a retrieval found."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.guidance import Guidance
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.drafters.shared.retrieval import retrieve_positions
from decodescope.engine.trace.records.choices import Choice

from .shared.draft_logits import read_draft_logits

SHOWN = 5  # recorded candidates of each kind: the likeliest of p', of the target and of the other model


@component
class Rapid(Guidance):
    """p' is the softmax of z - m (p - q) at tokens with q(v) >= alpha max q, and of z elsewhere. z are the target's logits
    behind the whole prompt, and p is their softmax. q is the distribution of a second model, in the role `short`, behind a
    short prompt. The short prompt is the question at the end of the long one and the windows that match it best. A long prompt
    may bury what a short one makes plain. So the gradient of their divergence moves the target towards q, with step m. At m = 0
    p' is p, to the bit. If the prompt has at most `budget` tokens, both models read the same; if the second is the target's own
    model, q = p.

    The second model reads the root and the draft's tree in its own lane, with the tree's own attention, behind the short prompt
    and the text. It commits what the target commits. Costs a pass of it for each of the target, over `budget` tokens instead of
    the prompt's. It works best with the same model in both roles.

    The paper lets the second model draft, keeps a guess with min(1, p'/q) and draws the rest from max(p - q, p - p', 0). Its
    text then has neither the distribution p nor p'. Here any drafter drafts for p', exactly. The notes record two distances: of
    q from p, which shows how often the second model's guesses would fail, and of p' from p. Retrieval in the paper uses an
    embedding model and BM25. Here it is BM25 alone, over token ids, in windows of `window` tokens, and the prompt's first token
    stays. The paper's prompts mark context and question; here the question is the last `question_tokens` tokens. m is a choice
    of this project; the paper's depends on model and task.
    """

    title = "RAPID"
    source = "Chen et al. 2025, arXiv:2502.20330; John-AI-Lab/RAPID, src/utils.py and src/rag.py"
    caution = "It helps if the answer is in a few windows of the prompt; it harms a question about all of it."
    lanes = ("short",)
    tells: ClassVar[dict[str, Note]] = {
        "second_gap": Note(
            "node", "gap of the second model", "", "total variation of q, behind the short prompt, from p"
        ),
        "law_gap": Note("node", "gap of the law", "", "total variation of p' from p"),
        "windows": Note(
            "set", "retrieved", "position", "where the pieces of the short prompt begin in the long one"
        ),
    }

    budget: int = param(
        512,
        low=2,
        high=1 << 20,
        unit="tokens",
        help="maximum length of the short prompt, including the question",
    )
    window: int = param(64, low=1, high=4096, unit="tokens", help="length of each retrieved window")
    question_tokens: int = param(
        64, low=1, high=4096, unit="tokens", help="length of the question at the end of the prompt"
    )
    strength: float = param(
        5.0,
        low=0.0,
        high=100.0,
        step=0.5,
        help="how far the target moves towards the second model (m); 0: not at all",
    )
    alpha: float = param(
        0.1,
        low=0.0,
        high=1.0,
        step=0.05,
        help="change only tokens with at least this share of the second model's top probability",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.question_tokens >= self.budget:
            return f"rapid.question_tokens = {self.question_tokens}: must be below rapid.budget, which is {self.budget}."
        return None

    def lane_tokens(self, prompt: int, new: int) -> int:
        return min(prompt, self.budget) + new

    def text(self, role: str, tokens: list[int], prompt: int) -> list[int]:
        return [*(tokens[x] for x in self._retrieved_positions(tokens, prompt)), *tokens[prompt:]]

    def _retrieved_positions(self, tokens: list[int], prompt: int) -> list[int]:
        return retrieve_positions(tokens[:prompt], self.budget, self.window, self.question_tokens)

    def rows(self, logits: Tensor, hidden: dict[int | str, Tensor], draft: Draft, ctx: Context) -> Tensor:
        self._lane, kept = ctx.lanes["short"], self._retrieved_positions(ctx.tokens, ctx.prompt)
        q = (
            read_draft_logits(self._lane, self.text("short", ctx.tokens, ctx.prompt), draft)
            .to(logits.dtype)
            .softmax(-1)
        )
        p = logits.softmax(-1)
        shift = (q - p).masked_fill_(q < self.alpha * q.amax(-1, keepdim=True), 0)
        law = logits + self.strength * shift if self.strength else logits
        self._terms = (logits.log_softmax(-1), q, shift)
        self._gaps = [((x - p).abs().sum(-1) / 2).tolist() for x in (q, law.softmax(-1))]
        self._begins = [x for i, x in enumerate(kept) if i == 0 or kept[i - 1] + 1 < x]
        return law

    def observe(self, outcome: DraftOutcome) -> None:
        self._lane.commit(outcome.verdict.rows)

    def notes(self) -> dict[str, Any]:
        return {"second_gap": self._gaps[0], "law_gap": self._gaps[1], "windows": self._begins}

    def choices(self, rows: list[int], tokens: list[int]) -> list[Choice]:
        return [self._choice(row, token) for row, token in zip(rows, tokens, strict=True)]

    def _choice(self, row: int, token: int) -> Choice:
        """The record of the place of one row, where `token` was written. A token below alpha max q has a q - p of 0."""
        p, q, shift = (x[row] for x in self._terms)
        score = p + self.strength * shift
        likely = [x.topk(min(SHOWN, len(x))).indices.tolist() for x in (score, p, q)]
        ids = sorted({token, *likely[0], *likely[1], *likely[2]}, key=lambda x: -float(score[x]))
        terms = {"log p": p[ids].tolist(), "(q - p)": shift[ids].tolist()}
        return Choice(
            ids, ids.index(token), terms, {"log p": 1.0, "(q - p)": self.strength}, [*score[ids].tolist()]
        )
