"""LANTERN: tokens with similar meanings share their probability, so more of a draft is accepted. Lossy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.acceptance import (
    AcceptanceRule,
    Cursor,
    NotRecordedError,
    match_greedy,
    verify_tokenwise,
)
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import Draft, Verdict
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.trace.records.evidence import (
    DRAFT,
    DRAW,
    TARGET,
    Column,
    Quantity,
    Relation,
    Telling,
    make_line,
)


@component
class Lantern(AcceptanceRule):
    """Accept child x with probability min(1, (r(x) + m) / q(x)). r is the rest of the target's distribution. m is the mass of
    x's neighbours in r: of the k = `neighbours` tokens around x, nearest first, as many as together hold at most delta. On
    rejection r becomes norm(max(r' - q, 0)), where r' has r(x) + m at x and 0 at these neighbours. m is the total variation
    between r' and r, hence the paper's bound delta.

    If the model writes pictures, the neighbours of a grey level are the nearest grey levels; of two equally near ones, the
    darker comes first. No other token of such a model has neighbours. In other models the neighbours are the tokens with the
    nearest input embeddings (Euclidean). The authors measure the distance between the image codes of a codebook, which a text
    model lacks. The effect on text has not been measured.

    delta = 0 or neighbours = 0 is the lossless rule. A token chosen without chance, as in EAGLE-2's trees, and without siblings
    moves the distribution of its place by m, at most delta. With drawn tokens, r' depends on what was drawn. With siblings,
    each test adds its own m. So the distance may be larger, and there is no bound on the text.

    On rejection, the official code sets all k neighbours to 0. This code sets only those that lent mass to 0, as in the paper's
    distribution, because the bound holds for no more. Under a greedy distribution this code matches exactly; the authors take
    the argmax of r'. Their delta above 1, relative to p(x), is left out. In the trace, `rule` holds m and the number of lenders
    of every trial, and the neighbours of every drafted token. A trial's num is r + m.
    """

    title = "LANTERN"
    source = "Jang et al. 2025, arXiv:2410.03355, section 4; jadohu/LANTERN, models/ea_model_llamagen.py"
    caution = "Made for pictures, where one grey is as good as the next; among words a neighbour may mean something else."
    lossless = False
    keeps_law = False
    from_laws = False
    changes = "neighbouring tokens lend each other their probability"
    telling = Telling(
        num="(p + m)",
        left="what the neighbourhood left of",
        columns=[Column("mass", "trial"), Column("near", "trial")],
        relations=[
            Relation("num == r + mass", 1e-6),
            Relation("mass <= delta"),
            Relation("near <= neighbours", 0.0),
        ],
        counted=Column("relaxed trials", "trial"),
        numbers=[
            TARGET,
            Quantity("neighbours", "m", "mass"),
            Quantity("together", "p + m", "num"),
            DRAFT,
            Quantity("threshold", "(p + m) / q", "num / den"),
            DRAW,
        ],
        card=[
            "{near:g} neighbours lend this token {mass:of}, so it stays more often. This rule changes the text."
        ],
        lines=[
            make_line(
                "Tokens near this one lend it their probability, nearest first, together at most {delta:g}.",
                "p + m = {r} + {mass} = {num}    lenders: {near:g}",
            )
        ],
        close="This rule changes the text: a token stays for its neighbours' sake.",
    )

    neighbours: int = param(
        4,
        low=0,
        high=64,
        unit="tokens",
        help="how many neighbours may lend probability (k); 0: lossless; the authors use 1,000",
    )
    delta: float = param(
        0.1,
        low=0.0,
        high=1.0,
        step=0.05,
        help="maximum probability that the neighbours of a token lend it together; 0: lossless",
    )

    @property
    def is_additive(self) -> bool:
        return False

    def begin(self, decoder: Decoder) -> None:
        picture, self._around = decoder.spec.picture, {}
        self._find = _by_embedding(decoder.embed[: decoder.vocab], self.neighbours)
        if picture is not None:
            self._find, levels = lambda x: [], picture.levels
            for i, x in enumerate(levels):
                order = sorted((abs(i - j), j) for j in range(len(levels)) if j != i)
                self._around[x] = [levels[j] for _, j in order[: self.neighbours]]

    def verify(self, draft: Draft, at: Cursor, chance: Chance) -> Verdict:
        verdict = self.decide(draft, at, chance, self.nearest_tokens)
        if verdict.rule is not None:
            verdict.rule["k"] = self.neighbours
            verdict.rule["around"] = [[x, *self.nearest_tokens(x)] for x in dict.fromkeys(draft.tokens)]
        return verdict

    def rederive(self, draft: Draft, at: Cursor, chance: Chance, said: Mapping[str, Any]) -> Verdict:
        """As `verify`, with the neighbours that the record names."""
        rows = said.get("around")
        recorded: dict[int, list[int]] = (
            {row[0]: row[1 : 1 + self.neighbours] for row in rows} if isinstance(rows, list) else {}
        )
        if recorded and self.neighbours > said.get("k", 0):
            raise NotRecordedError(f"{said.get('k', 0)} neighbours of each token are there")
        if not at.whole and not at.greedy:
            raise NotRecordedError("the tokens that lend are put together with others")

        def around(x: int) -> list[int]:
            if x not in recorded:
                raise NotRecordedError(f"the neighbours of the token {x} are not there")
            return recorded[x]

        return self.decide(draft, at, chance, around)

    def nearest_tokens(self, x: int) -> list[int]:
        """The k neighbours of token `x`, nearest first."""
        if x not in self._around:
            self._around[x] = self._find(x)
        return self._around[x]

    def decide(self, draft: Draft, at: Cursor, chance: Chance, around: Callable[[int], list[int]]) -> Verdict:
        """The verdict, from the distributions, the uniforms and the neighbours `around` each token."""
        if at.greedy:
            return match_greedy(draft, at)
        mass: list[float] = []
        near: list[int] = []

        def lent(r: Tensor, child: int) -> Tensor:
            x = draft.tokens[child]
            law, m, count = add_neighbour_mass(r, x, around(x), self.delta)
            mass.append(m)
            near.append(count)
            return law

        verdict = verify_tokenwise(draft, at, chance, lent)
        return replace(verdict, rule={"mass": mass, "near": near} if mass else None)


def add_neighbour_mass(r: Tensor, x: int, around: list[int], delta: float) -> tuple[Tensor, float, int]:
    """Return (r' [V], lent mass, number of lenders): the nearest of `around` give x their shares of r [V], together at most
    delta.
    """
    ids = torch.tensor(around, dtype=torch.long, device=r.device)
    sums = r[ids].double().cumsum(0)
    count = int((sums <= delta).sum())
    if not count:
        return r, 0.0, 0
    m = float(sums[count - 1])
    law = r.index_fill(0, ids[:count], 0.0)
    law[x] += m
    return law, m, count


def _by_embedding(embed: Tensor, k: int) -> Callable[[int], list[int]]:
    """Token -> the k tokens nearest to it among the rows of `embed` [V, d]."""

    def find(x: int) -> list[int]:
        far = (embed.float() - embed[x].float()).norm(dim=1)
        far[x] = torch.inf
        nearest: list[int] = far.topk(min(k, len(far) - 1), largest=False).indices.tolist()
        return nearest

    return find
