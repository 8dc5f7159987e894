"""SpecDec++: stop when the draft is likely to contain a token that will be rejected."""

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
    """A trained head predicts acceptance, and drafting stops when a rejection is likely.

    From the draft model's last state after a token, the head estimates the probability a_i that the target will accept that
    token. Drafting stops when 1 - a_1 a_2 ... a_i, the estimated probability that one of the drafted tokens is rejected, is
    above h. The paper proves that such a threshold is the best policy.

    The pass that reads token i and gives a_i also gives the distribution of token i + 1. So token i + 1 is drafted before the
    test of the product, and verified with the others. A draft has one token without a score, as in the original, and at least
    two tokens. The root was verified before and has no score. h = 1 never stops; h = 0 stops at two.

    Lossless: the head sees the drafted prefix alone. It costs three products with a d x d matrix per token.

    A sensible h depends on the head. It was trained with a higher weight on rejections, so its a_i are lower than the accepted
    shares. The difference depends on that weight and on the two models. h = auto takes the value that the head was calibrated
    for, `threshold` of its config.json. If the file has none, it takes USUAL, the authors' example. A trace records the number.
    """

    title = "SpecDec++ (acceptance head)"
    source = "Huang et al. 2024, arXiv:2405.19715, sections 3.2 and 3.3; Kaffaljidhmah2/SpecDec_pp, specdec_pp/hf_generation.py"
    lanes = ("draft",)
    own_tokens = ("draft",)  # it reads states
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
        if self._written == 1:  # its distribution came from the root, which is not a guess
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
