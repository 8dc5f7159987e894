"""What is crossed with what: samplers with their second definition, and proposals with the rules that judge them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

from decodescope.engine.acceptance.base import AcceptanceRule
from decodescope.engine.acceptance.block import Block
from decodescope.engine.acceptance.lossless import Lossless
from decodescope.engine.acceptance.spectr import SpecTr
from decodescope.engine.drafters.base import Drafter
from decodescope.engine.drafters.chains import Chains
from decodescope.engine.drafters.draft_model import DraftModel
from decodescope.engine.drafters.layer_skip import LayerSkip
from decodescope.engine.drafters.none import NoDraft
from decodescope.engine.drafters.prompt_lookup import PromptLookup
from decodescope.engine.drafters.token_recycling import TokenRecycling
from decodescope.engine.load import Model
from decodescope.engine.method import Method
from decodescope.engine.samplers.base import Sampler
from decodescope.engine.samplers.chain import Chain
from decodescope.engine.samplers.greedy import Greedy
from decodescope.engine.samplers.mirostat import Mirostat
from decodescope.engine.samplers.repetition_penalty import RepetitionPenalty
from decodescope.engine.samplers.temperature import Temperature
from decodescope.engine.samplers.top_k import TopK
from decodescope.engine.samplers.top_p import TopP

from . import reference
from .proposals import Chosen, Independent, Mixed
from .reference import Warp, text_law
from .tables import KINDS, PROMPT, Logits, draft_table, model, table
from .walk import Walk, distance


def _heat(T: float) -> tuple[Sampler, Warp]:
    return Temperature(temperature=T), Warp([partial(reference.temperature, T=T)])


_PENALTY = partial(reference.repetition_penalty, penalty=1.5)

# name -> the shipped sampler, and its definition written again
SAMPLERS: dict[str, tuple[Sampler, Warp]] = {
    "T=0.25": _heat(0.25),
    "T=0.7": _heat(0.7),
    "T=1": _heat(1.0),
    "T=1.5": _heat(1.5),
    "top-k 3": (TopK(k=3), Warp([partial(reference.top_k, k=3)])),
    "top-p 0.8": (TopP(p=0.8), Warp([partial(reference.top_p, p=0.8)])),
    "T=1.5, top-p 0.8": (
        Chain(stages=[Temperature(temperature=1.5), TopP(p=0.8)]),
        Warp([partial(reference.temperature, T=1.5), partial(reference.top_p, p=0.8)]),
    ),
    "greedy": (Greedy(), Warp([reference.greedy])),
    "penalty": (RepetitionPenalty(penalty=1.5), Warp([_PENALTY])),
    "mirostat": (Mirostat(target=1.7, rate=1.0), Warp(mirostat=(1.7, 1.0))),
    "penalty, mirostat": (
        Chain(stages=[RepetitionPenalty(penalty=1.5), Mirostat(target=1.7, rate=1.0)]),
        Warp([_PENALTY], mirostat=(1.7, 1.0)),
    ),
}


@dataclass(frozen=True)
class Proposal:
    """How drafts come, and the rule that judges them.

    make:  length -> drafter;  chain: whether the length is free;  remembers: the drafter learns from what it saw, so that
    whole runs are walked;  vocab: ids at which the walk stays short
    """

    rule: type[AcceptanceRule]
    make: Callable[[int], Drafter]
    chain: bool = False
    remembers: bool = False
    vocab: int = 4


PROPOSALS: dict[str, Proposal] = {
    "no draft": Proposal(Lossless, lambda n: NoDraft()),
    "chain": Proposal(Lossless, lambda n: DraftModel(length=n), chain=True),
    "chain, block": Proposal(Block, lambda n: DraftModel(length=n), chain=True),
    "layer skip": Proposal(Lossless, lambda n: LayerSkip(length=n, ratio=0.9, stop=0.3), chain=True),
    "layer skip, block": Proposal(Block, lambda n: LayerSkip(length=n, ratio=0.9, stop=0.3), chain=True),
    "3 chains, k-SEQ": Proposal(SpecTr, lambda n: Chains(length=1, count=3)),
    "2 chains, 2 deep, k-SEQ": Proposal(SpecTr, lambda n: Chains(length=2, count=2), vocab=3),
    "2 chains, 2 deep": Proposal(Lossless, lambda n: Chains(length=2, count=2), vocab=3),
    "one-hot chain": Proposal(Lossless, lambda n: Chosen(length=n), chain=True),
    "prompt lookup": Proposal(Lossless, lambda n: PromptLookup(length=n, ngram=2), chain=True, remembers=True),
    "2 without replacement": Proposal(Lossless, lambda n: DraftModel(length=1, width=2)),
    "3 without replacement": Proposal(Lossless, lambda n: DraftModel(length=1, width=3)),
    "2 without replacement, 2 deep": Proposal(Lossless, lambda n: DraftModel(length=2, width=2), vocab=3),
    "2 with replacement": Proposal(Lossless, lambda n: Independent(length=1, width=2)),
    "one-hot tree": Proposal(Lossless, lambda n: Chosen(length=2, width=2)),
    "one-hot tree, passengers": Proposal(Lossless, lambda n: Chosen(length=2, width=1, passenger=True)),
    "token recycling": Proposal(Lossless, lambda n: TokenRecycling(nodes="8"), remembers=True, vocab=3),
    "mixed": Proposal(Lossless, lambda n: Mixed(length=1)),
    "mixed, 2 deep": Proposal(Lossless, lambda n: Mixed(length=2), vocab=3),
}


@cache
def worlds(vocab: int, kind: str) -> tuple[Logits, Logits]:
    """The target's table and the draft's."""
    target = table(vocab, seed=1)
    return target, draft_table(kind, target, vocab)


def models(vocab: int, kind: str, drafter: Drafter) -> Mapping[str, Model]:
    """The models in the roles that `drafter` needs."""
    target, draft = worlds(vocab, kind)
    skipped = draft if isinstance(drafter, LayerSkip) else None
    return {"target": model(target, vocab, skipped), **{role: model(draft, vocab) for role in drafter.lanes}}


@cache
def true_law(vocab: int, sampler: str, length: int, stop: tuple[int, ...] = ()) -> dict[tuple[int, ...], float]:
    """P(text) of the target alone."""
    return text_law(worlds(vocab, "equal")[0], SAMPLERS[sampler][1], PROMPT, length, vocab, frozenset(stop))


def off(
    name: str,
    kind: str,
    sampler: str,
    *,
    draft: int,
    length: int,
    vocab: int | None = None,
    stop: tuple[int, ...] = (),
    whole: bool = False,
) -> float:
    """The largest difference between the method's law and the target's. whole: walk whole runs, not rounds."""
    proposal = PROPOSALS[name]
    vocab = vocab or proposal.vocab
    drafter = proposal.make(draft)
    method = Method(drafter=drafter, acceptance=proposal.rule(), sampler=SAMPLERS[sampler][0])
    walk = Walk(method, models(vocab, kind, drafter), length, stop)
    law = walk.whole() if whole or proposal.remembers else walk.law()
    return distance(law, true_law(vocab, sampler, length, stop))


__all__ = ["KINDS", "PROPOSALS", "SAMPLERS", "models", "off", "true_law", "worlds"]
