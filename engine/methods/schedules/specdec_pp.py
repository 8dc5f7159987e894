"""SpecDec++: stop when the draft has probably been refused already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Note
from decodescope.engine.core.params import AUTO
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.context import DraftedToken
from decodescope.engine.decoding.bases.schedule import Schedule
from decodescope.engine.model.heads.drafting.specdec import AcceptanceHead

if TYPE_CHECKING:
    from decodescope.engine.decoding.bases.context import Context

USUAL = 0.3  # h of the authors' example


@component
class SpecDecPP(Schedule):
    """A trained head on the draft model's last state after a token says with what probability a_i the target will accept that
    token. Drafting stops when 1 - a_1 a_2 ... a_i, the estimated probability that one of the drafted tokens is rejected, is
    above h. That such a threshold is the best policy is the paper's theorem.

    The pass that reads token i, and gives a_i, also gives the distribution of token i + 1, so that one is drafted before
    the product is looked at, and checked with the others: one token without a score, as in the original, and never fewer
    than two. The root has been checked before and has no score. h = 1 never stops, h = 0 stops at two.

    Lossless: the head sees the drafted prefix alone. It costs three products with a matrix d x d a token.

    Which h is sensible depends on the head. It was trained with rejections weighing more, so its a_i are lower than the
    shares accepted, and by how much follows from that weight and from the two models. h = auto takes the value that the head
    was calibrated for, `threshold` of its config.json, and USUAL, the authors' example, where its file has none. A trace has
    the number.
    """

    title = "SpecDec++ (acceptance head)"
    source = "Huang et al. 2024, arXiv:2405.19715, sections 3.2 and 3.3; Kaffaljidhmah2/SpecDec_pp, specdec_pp/hf_generation.py"
    lanes = ("draft",)
    lane_needs: ClassVar[Needs] = Needs(hidden=frozenset({"final"}))
    looks_at = "judges by the state of"
    tells: ClassVar[dict[str, Note]] = {
        "a": Note(
            "node", "a", what="estimated probability that the target accepts a token; the last one has none"
        ),
        "product": Note("series", "all accepted", what="estimated probability that no token is rejected"),
        "h": Note("series", "h", what="probability of a rejection above which drafting stops"),
        "stop": Note("set", "ended by", what="what ended the draft"),
    }

    threshold: float | str = param(
        AUTO, low=0.0, high=1.0, step=0.05, auto=True,
        help="stop drafting above this probability of a rejection (h); auto: the trained head's value",
    )  # fmt: skip
    max_draft_tokens: int = param(20, low=2, high=64, unit="tokens", help="maximum length of a draft")

    def refuse_model(self, role: str, spec: ModelSpec) -> str | None:
        if "specdec" in spec.heads:
            return None
        return (
            f"specdec_pp needs an acceptance head and {spec.name} has no heads/specdec: train it with python "
            "-m decodescope.training.specdec (shipped models only), or choose the schedule confidence, which needs no training."
        )

    def begin(self, ctx: Context) -> None:
        self._head = cast(AcceptanceHead, ctx.lanes["draft"].decoder.heads["specdec"])
        if self.threshold == AUTO:
            self.threshold = USUAL if self._head.threshold is None else self._head.threshold
        self._bound = float(self.threshold)
        self._a: list[float] = []
        self._product = 1.0
        self._written = 0

    def draft_limit(self, ctx: Context, length: int) -> int:
        self._a = []
        self._product = 1.0
        self._written = 0
        return min(self.max_draft_tokens, ctx.room)

    def continue_drafting(self, drafted: DraftedToken) -> bool:
        self._written += 1
        if self._written == 1:  # its law came from the root, which is no guess
            return True
        assert drafted.hidden is not None
        self._a.append(float(self._head.acceptance_probability(drafted.hidden)))
        self._product *= self._a[-1]
        return 1 - self._product <= self._bound

    def notes(self) -> dict[str, Any]:
        stopped = "rejection likely" if 1 - self._product > self._bound else "length"
        said = {
            "a": [round(x, 4) for x in self._a],
            "product": round(self._product, 4),
            "h": self._bound,
            "stop": stopped,
        }
        return {"schedule": said}
