"""AcceptanceRule: how much of a draft the target keeps; and Cursor, a place in the draft."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from decodescope.engine.core.activity import Activity, count_noun
from decodescope.engine.core.component import Component, param
from decodescope.engine.core.lazy import lazy
from decodescope.engine.trace.records.evidence import Telling

from ..values.chance import Chance
from ..values.draft import ROOT, Draft, Origin, Proposal, Trial, Verdict, as_array
from .sampler import Sampler, softmax

if TYPE_CHECKING:
    from decodescope.engine.model.forward.decoder import Decoder


class Cursor:
    """A place in the draft: the target's distribution of the next token there, and the way down.

    position: of the token that is decided here;  greedy: True if that distribution always has one token
    hidden: float [N + 1, d], the target's final features of the root and of every node, if the rule asks for them
    whole:  True if a distribution has an entry for every token of the vocabulary; False: it has only what a record shows
    """

    whole: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913
        self,
        draft: Draft,
        logits: Tensor,
        best: list[int],
        sampler: Sampler,
        state: Any,
        position: int,
        node: int = ROOT,
        hidden: Tensor | None = None,
        laws: list[Tensor] | None = None,
    ):
        self.draft = draft
        self.sampler = sampler
        self.state = state
        self.position = position
        self.node = node
        self.hidden = hidden
        self._logits, self._best = logits, best  # float [N + 1, V], and its argmax by row
        self.greedy = sampler.greedy
        self._laws = [] if laws is None else laws  # of all rows, once they are made, for all places of a walk

    @property
    def logits(self) -> Tensor:
        """float [V]: the target's logits for the token after this place, before the sampler."""
        return self._logits[self.node + 1]

    @lazy
    def probs(self) -> Tensor:
        """float [V]: the distribution here, under the sampler's state along this path. For a chain, all are computed at once
        if the sampler is stateless."""
        if self.sampler.stateful or not self.draft.is_chain:
            return softmax(self.sampler.warp(self.logits, self.state))
        if not self._laws:
            self._laws.append(softmax(self.sampler.warp(self._logits, self.state)))
        return self._laws[0][self.node + 1]

    @lazy
    def model_probs(self) -> Tensor:
        """float [V]: `probs`; under a greedy sampler, which leaves one token, the softmax of the target's logits instead."""
        return softmax(self.logits) if self.greedy else self.probs

    @lazy
    def choice(self) -> int:
        """The only token of a greedy distribution."""
        if self.sampler.stateful:
            return int(self.sampler.warp(self.logits, self.state).argmax())
        return self._best[self.node + 1]

    @property
    def top_token(self) -> int:
        """The most probable token of the distribution here. It may differ from the target's own best token."""
        return int(self.probs.argmax())

    @lazy
    def entropy(self) -> float:
        """Entropy of the distribution here, in nats."""
        return float(torch.special.entr(self.probs).sum())

    def state_after(self, token: int) -> Any:
        """The sampler's state once `token` follows here."""
        return self.sampler.update(self.state, token, self.logits) if self.sampler.stateful else self.state

    def descend(self, child: int) -> Cursor:
        """The place at node `child`, which continues this one."""
        state = self.state_after(self.draft.tokens[child])
        return Cursor(
            self.draft,
            self._logits,
            self._best,
            self.sampler,
            state,
            self.position + 1,
            child,
            self.hidden,
            self._laws,
        )

    def reroot(self, draft: Draft, nodes: Sequence[int], gone: Mapping[int, Sequence[int]]) -> Cursor:
        """This place as the root of `draft`, which consists of these `nodes` of ours. gone: node of ours -> tokens that are
        removed from the target's distribution there."""
        rows = [self.node + 1, *(node + 1 for node in nodes)]
        logits, best = self._logits[rows], [self._best[row] for row in rows]
        for i, row in enumerate(rows):
            if row - 1 in gone:
                logits[i, list(gone[row - 1])] = -torch.inf
                best[i] = int(logits[i].argmax())
        hidden = None if self.hidden is None else self.hidden[rows]
        return Cursor(draft, logits, best, self.sampler, self.state, self.position, hidden=hidden)


class NotRecordedError(ValueError):
    """A rule looks at what is not there, or not as it was in the run: possible in a draft that was put together from a
    record, or that the rule is not exact for. What is missing and who needs it, as the part of a sentence."""


class AcceptanceRule(Component):
    """Base of every rule.

    `lossless`: the text keeps the target's distribution; `changes`: if not, why the text may differ, in a few words.
    `matches`: under a greedy distribution the rule is exact matching.
    `exact_for`: the kinds of proposal for which the rule is correct; a method with another kind is refused.
    `keeps_law`: it accepts no token to which the target's distribution gives probability 0. `chain_only`: it reads no tree.
    `from_laws`: it reads distributions and uniforms only, so it can judge what another rule's run recorded.
    `telling`: describes its test to whatever checks, explains or draws it; no other code knows the rule."""

    kind = "acceptance"
    lossless: ClassVar[bool] = True
    changes: ClassVar[str] = ""
    matches: ClassVar[bool] = True
    exact_for: ClassVar[frozenset[Proposal]] = frozenset({"onehot", "iid", "without_replacement", "mixed"})
    keeps_law: ClassVar[bool] = True
    chain_only: ClassVar[bool] = False
    from_laws: ClassVar[bool] = True
    telling: ClassVar[Telling] = Telling()

    @property
    def draws_next_token(self) -> bool:
        """True if the token after the path is drawn where the sampler draws. A text without drafts is then the target's."""
        return True

    def idle_reason(self, did: Activity) -> str:
        judged = self.lossless or did.drafted_count or not did.steps
        return (
            ""
            if judged
            else f"{self.name} judged nothing: in {count_noun(did.steps, 'step')} nothing was drafted."
        )

    def begin(self, decoder: Decoder) -> None:
        """Called once, with the target, before the first verdict."""

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        """Walk down from `at`, the root, and decide."""
        raise NotImplementedError

    def rederive(self, draft: Draft, at: Cursor, chance: Chance, said: Mapping[str, Any]) -> Verdict:
        """Re-derive the verdict from a record. said: what the rule added to it (`Verdict.rule`). Raises NotRecordedError."""
        return self.verify(draft, at, chance)

    @property
    def is_additive(self) -> bool:
        """True if a rule that accepts none of several tokens gives the same verdict from the sum of their shares."""
        return True


def origin_behind(draft: Draft) -> Origin:
    """The origin of the token behind a path whose end no drafted token continues: a bonus if something was drafted."""
    return "bonus" if draft.drafted_count else "target"


def match_greedy(draft: Draft, at: Cursor) -> Verdict:
    """Exact matching under a greedy distribution: go to the child that is the target's choice, as long as there is one."""
    path: list[int] = []
    trials: list[Trial] = []
    places: list[tuple[int, Tensor | None]] = []
    while True:
        places.append((at.node, None))
        children = draft.children(at.node)
        for child in children:
            ok = draft.tokens[child] == at.choice
            p = 1.0 if ok else 0.0
            trials.append(Trial(child, p, p, 1.0, None, 1.0, ok))
            if ok:
                path.append(child)
                at = at.descend(child)
                break
        else:
            origin: Origin = "correction" if children else origin_behind(draft)
            return Verdict(path, at.choice, origin, trials, places=places)


def residual_distribution(r: Tensor, q: Tensor | None, x: int) -> Tensor:
    """norm(max(r - q, 0)) [V]; q None: the distribution of one token, x. If rounding leaves nothing, norm(r)."""
    if q is None:
        rest = r.clone()
        as_array(rest)[x] = 0.0
    else:
        rest = (r - q).clamp_min_(0)
    total = rest.sum()
    return rest.div_(total) if float(total) > 0 else r / r.sum()


def next_token_knob() -> Any:
    """The knob `next_token` of a rule that may take the likeliest token instead of drawing one."""
    meaning = "how to choose the token after the accepted path: the likeliest, or a draw"
    return param("likeliest", choices=("likeliest", "drawn"), help=meaning)


def verify_tokenwise(
    draft: Draft, at: Cursor, chance: Chance, eased: Callable[[Tensor, int], Tensor] | None = None
) -> Verdict:
    """Try the children of each place in draw order against r, the target's remaining distribution.

    Accept x with probability min(1, f(x) / q(x)). On refusal, subtract q from f. At the end, draw the token from the rest.
    f is r, or `eased` of r and the child; then f(x) is each trial's num."""
    path: list[int] = []
    trials: list[Trial] = []
    places: list[tuple[int, Tensor | None]] = []
    while True:
        p = r = at.probs
        places.append((at.node, p))
        children = draft.children(at.node)
        of_p = of_r = as_array(p)
        for child in children:
            x, q_x = draft.tokens[child], draft.draw_probability(child)
            r_x = float(of_r[x])
            f = r if eased is None else eased(r, child)
            f_x = r_x if eased is None else float(as_array(f)[x])
            ok, u = chance.accept(f_x, q_x, at.position)
            num = None if eased is None else f_x
            trials.append(Trial(child, float(of_p[x]), r_x, q_x, u, f_x / q_x if q_x > 0 else 0.0, ok, num))
            if ok:
                path.append(child)
                at = at.descend(child)
                break
            r = residual_distribution(f, draft.law(child), x)
            of_r = as_array(r)
        else:
            drawn = chance.draw(r, at.position)
            origin: Origin = "residual" if children else origin_behind(draft)
            return Verdict(path, drawn.token, origin, trials, drawn.u, drawn.low, drawn.high, places=places)
