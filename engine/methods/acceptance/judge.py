"""Judge decoding: also accepts tokens that a trained judge finds correct, although the target would choose others. Lossy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.acceptance import (
    AcceptanceRule,
    Cursor,
    NotRecordedError,
    residual_distribution,
)
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft, Origin, Trial, Verdict
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.heads.judge import JudgeHead
from decodescope.engine.trace.records.evidence import Also, Column, Telling


@component
class Judge(AcceptanceRule):
    """Walk down the chain and keep token x if the lossless rule or the judge accepts it.

    The lossless rule accepts with probability min(1, p(x) / q(x)); the judge accepts if its score j exceeds `threshold`. Stop
    at the first token that both reject. There, the next token is drawn from the residual distribution, norm(max(p - q, 0)).
    Under a greedy distribution the lossless rule is exact matching. The judge still accepts other tokens, so this rule changes
    greedy text as well.

    j = sigmoid(w h + b), where h is the target's final feature of the token itself. The verification pass already computes h,
    so the judge costs one product of N x d numbers. At threshold 1 the judge accepts nothing, and verdicts, uniforms and text
    are those of the rule `lossless`. With the same chain and uniforms, a lower threshold keeps more of the chain. The rule
    accepts chains only: in a tree, the branch that the judge accepts may be the shorter one.

    There is no bound on how far the text departs from the target's distribution. A judge works on the kind of text that it was
    trained on, and helps where drafts are good. The threshold of 0.5 is recalled, not verified. Summaries of the paper state
    that the judge is one linear map, and that "or" joins it with the usual test. In the trace, `rule` holds j of every trial,
    and t.
    """

    title = "Judge decoding"
    source = "Bachmann et al. 2025, arXiv:2501.19309"
    caution = "The judge knows short tasks like those it was trained on; elsewhere it may keep what is wrong."
    needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))
    lossless = False
    keeps_law = False
    changes = "a trained judge keeps rejected tokens"
    matches = False
    chain_only = True
    from_laws = False
    telling = Telling(
        also=Also(
            word="judge",
            value="j",
            bound="t",
            asked="The judge finds it right in {j:of}.",
            spared="So it stays, though the target would not have written it: this rule changes the text.",
        ),
        columns=[Column("j", "trial"), Column("t", "step")],
        counted=Column("judged trials", "trial"),
        card=["Where this test fails the judge is asked: j = {j:2}; above {t:g} it stays."],
    )

    threshold: float = param(
        0.5,
        low=0.0,
        high=1.0,
        step=0.05,
        help="also accept tokens that the judge scores above this (t); 1: no extra tokens",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return missing_reason("judge", spec, "the acceptance lossless")

    def begin(self, decoder: Decoder) -> None:
        self._head = cast(JudgeHead, decoder.heads["judge"])

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        j: list[float] = []
        if draft.tokens:
            assert at.hidden is not None, "the pass leaves the final features behind"
            j = self._head.right_probability(at.hidden[1 : len(draft) + 1]).tolist()
        return self.decide(draft, at, chance, j)

    def rederive(self, draft: Draft, at: Cursor, chance: Chance, said: Mapping[str, Any]) -> Verdict:
        """As `verify`. The record lacks j of the nodes behind the last test."""
        j = said.get("j")
        recorded = j if isinstance(j, list) and all(type(x) in (int, float) for x in j) else []
        return self.decide(draft, at, chance, [*recorded, *[None] * (len(draft) - len(recorded))])

    def decide(self, draft: Draft, at: Cursor, chance: Chance, j: Sequence[float | None]) -> Verdict:
        """The verdict, from the distributions p and q, the drafted tokens, the uniforms, and j of every node alone.

        An unknown j is None. Raises NotRecordedError where an unknown j decides.
        """
        path: list[int] = []
        trials: list[Trial] = []
        places: list[tuple[int, Tensor | None]] = []
        origin: Origin = "bonus" if draft.drafted_count else "target"
        while True:
            p = None if at.greedy else at.probs
            places.append((at.node, p))
            child = next(iter(draft.children(at.node)), None)
            if child is None:
                break
            x, q = draft.tokens[child], draft.law(child)
            if p is None:
                p_x = float(x == at.choice)
                q_x = 1.0
                u = None
                bound = 1.0
                ok = p_x > 0
            else:
                p_x, q_x = float(p[x]), 1.0 if q is None else float(q[x])
                ok, u = chance.accept(p_x, q_x, at.position)
                bound = p_x / q_x if q_x > 0 else 0.0
            kept = ok or self._judge_accepts(j[child], child)
            trials.append(Trial(child, p_x, p_x, q_x, u, bound, kept))
            if not kept:
                origin = "correction" if p is None else "residual"
                p = None if p is None else residual_distribution(p, q, x)
                break
            path.append(child)
            at = at.descend(child)
        rule = {"j": [j[trial.node] for trial in trials], "t": self.threshold} if trials else None
        if p is None:
            return Verdict(path, at.choice, origin, trials, rule=rule, places=places)
        drawn = chance.draw(p, at.position)
        return Verdict(path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, rule, places)

    def _judge_accepts(self, j: float | None, node: int) -> bool:
        if j is None:
            raise NotRecordedError(f"the judge was not asked about node {node + 1}")
        return j > self.threshold
