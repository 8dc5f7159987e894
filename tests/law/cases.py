"""The combinations under test: samplers with their second definition, and proposals with the rules that judge them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal

import torch
import toys

from decodescope.engine.decoding.bases.acceptance import AcceptanceRule
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.methods.acceptance.block import Block
from decodescope.engine.methods.acceptance.lossless import Lossless
from decodescope.engine.methods.acceptance.spectr import SpecTr
from decodescope.engine.methods.drafters.draft_model.chains import Chains
from decodescope.engine.methods.drafters.draft_model.draft_model import DraftModel
from decodescope.engine.methods.drafters.draft_model.dyspec import DySpec
from decodescope.engine.methods.drafters.draft_model.pard import Pard
from decodescope.engine.methods.drafters.draft_model.rasd import RASD
from decodescope.engine.methods.drafters.draft_model.rsd_c import RSDC
from decodescope.engine.methods.drafters.draft_model.rsd_s import RSDS
from decodescope.engine.methods.drafters.draft_model.sequoia import Sequoia
from decodescope.engine.methods.drafters.draft_model.specinfer import SpecInfer
from decodescope.engine.methods.drafters.draft_model.staged import Staged
from decodescope.engine.methods.drafters.heads.eagle import Eagle
from decodescope.engine.methods.drafters.heads.eagle2 import Eagle2
from decodescope.engine.methods.drafters.heads.eagle3 import Eagle3
from decodescope.engine.methods.drafters.heads.hydra import Hydra
from decodescope.engine.methods.drafters.heads.medusa import Medusa
from decodescope.engine.methods.drafters.heads.mtp import MTP
from decodescope.engine.methods.drafters.heads.p_eagle import PEagle
from decodescope.engine.methods.drafters.jacobi.lookahead import Lookahead
from decodescope.engine.methods.drafters.jacobi.sjd import SJD
from decodescope.engine.methods.drafters.lookup.aggressive import Aggressive
from decodescope.engine.methods.drafters.lookup.anpd import ANPD
from decodescope.engine.methods.drafters.lookup.llma import LLMA
from decodescope.engine.methods.drafters.lookup.prompt_lookup import PromptLookup
from decodescope.engine.methods.drafters.lookup.rest import Rest
from decodescope.engine.methods.drafters.lookup.token_recycling import TokenRecycling
from decodescope.engine.methods.drafters.lookup.trie import Trie
from decodescope.engine.methods.drafters.none import NoDraft
from decodescope.engine.methods.drafters.own_layers.early_exit import EarlyExit
from decodescope.engine.methods.drafters.own_layers.kangaroo import Kangaroo
from decodescope.engine.methods.drafters.own_layers.layer_skip import LayerSkip
from decodescope.engine.methods.drafters.own_layers.propd import ProPD
from decodescope.engine.methods.drafters.own_layers.s2d import S2D
from decodescope.engine.methods.drafters.own_layers.swift import Swift
from decodescope.engine.methods.samplers.chain import Chain
from decodescope.engine.methods.samplers.greedy import Greedy
from decodescope.engine.methods.samplers.mirostat import Mirostat
from decodescope.engine.methods.samplers.repetition_penalty import RepetitionPenalty
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.methods.samplers.top_k import TopK
from decodescope.engine.methods.samplers.top_p import TopP
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method
from decodescope.engine.session.replay.exact_distribution import EnumeratedChance
from decodescope.testing import reference
from decodescope.testing.chances import FixedNoiseChance
from decodescope.testing.reference import Warp, text_distribution
from decodescope.testing.tables import KINDS, PROMPT, Logits, draft_table, logit_table, table_model
from decodescope.testing.transformer import logits_by_prefix
from decodescope.testing.walk import Walk, distribution_distance

from .proposals import Chosen, Independent, Mixed, Taught

PLACES = str(Path(__file__).with_name("places.txt"))  # ids for a datastore


def _heat(T: float) -> tuple[Sampler, Warp]:
    return Temperature(temperature=T), Warp([partial(reference.temperature, T=T)])


_PENALTY = partial(reference.repetition_penalty, penalty=1.5)

# name -> the shipped sampler, and an independent definition of it
SAMPLERS: dict[str, tuple[Sampler, Warp]] = {
    "T=0.25": _heat(0.25),
    "T=0.7": _heat(0.7),
    "T=1": _heat(1.0),
    "T=1.5": _heat(1.5),
    "top-k 3": (TopK(k=3), Warp([partial(reference.top_k, k=3)])),
    "top-k 2": (TopK(k=2), Warp([partial(reference.top_k, k=2)])),
    "top-p 0.8": (TopP(p=0.8), Warp([partial(reference.top_p, p=0.8)])),
    "T=1.5, top-p 0.8": (
        Chain(stages=[Temperature(temperature=1.5), TopP(p=0.8)]),
        Warp([partial(reference.temperature, T=1.5), partial(reference.top_p, p=0.8)]),
    ),
    "greedy": (Greedy(), Warp([reference.greedy_logits])),
    "penalty": (RepetitionPenalty(penalty=1.5), Warp([_PENALTY])),
    "mirostat": (Mirostat(target_surprise=1.7, learning_rate=1.0), Warp(mirostat=(1.7, 1.0))),
    "penalty, mirostat": (
        Chain(stages=[RepetitionPenalty(penalty=1.5), Mirostat(target_surprise=1.7, learning_rate=1.0)]),
        Warp([_PENALTY], mirostat=(1.7, 1.0)),
    ),
}


@dataclass(frozen=True)
class Proposal:
    """How drafts are made, and the rule that judges them.

    make:  length -> drafter;  chain: whether the length is free;  remembers: whether the drafter learns from what it saw, so
    that whole runs are walked;  vocab: a number of ids that keeps the walk short
    on:    the kind of target. "tables", or "layers": a transformer, for drafters that read its states
    prompt, length: of the texts that are walked;  chance: the Chance class, for drafters that take bare uniforms
    """

    rule: type[AcceptanceRule]
    make: Callable[[int], Drafter]
    chain: bool = False
    remembers: bool = False
    vocab: int = 4
    on: Literal["tables", "layers"] = "tables"
    prompt: tuple[int, ...] = tuple(PROMPT)
    length: int = 3
    chance: type[EnumeratedChance] = EnumeratedChance

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of draft distributions that make a difference."""
        drafter = self.make(1)
        if self.on == "layers":
            return (
                ("equal", "independent")
                if isinstance(drafter, (EarlyExit, S2D, Swift, Kangaroo))
                else ("independent",)
            )
        return KINDS if drafter.lanes or isinstance(drafter, LayerSkip) else ("mixed",)


PROPOSALS: dict[str, Proposal] = {
    "no draft": Proposal(Lossless, lambda n: NoDraft()),
    "chain": Proposal(Lossless, lambda n: DraftModel(max_draft_tokens=n), chain=True),
    "chain, block": Proposal(Block, lambda n: DraftModel(max_draft_tokens=n), chain=True),
    "layer skip": Proposal(
        Lossless, lambda n: LayerSkip(max_draft_tokens=n, skip_ratio=0.9, min_probability=0.3), chain=True
    ),
    "layer skip, block": Proposal(
        Block, lambda n: LayerSkip(max_draft_tokens=n, skip_ratio=0.9, min_probability=0.3), chain=True
    ),
    "3 chains, k-SEQ": Proposal(SpecTr, lambda n: Chains(max_draft_tokens=1, chains=3)),
    "2 chains, 2 deep, k-SEQ": Proposal(SpecTr, lambda n: Chains(max_draft_tokens=2, chains=2), vocab=3),
    "2 chains, 2 deep": Proposal(Lossless, lambda n: Chains(max_draft_tokens=2, chains=2), vocab=3),
    "one-hot chain": Proposal(Lossless, lambda n: Chosen(length=n), chain=True),
    "prompt lookup": Proposal(
        Lossless, lambda n: PromptLookup(max_draft_tokens=n, ngram=2), chain=True, remembers=True
    ),
    "2 without replacement": Proposal(Lossless, lambda n: DraftModel(max_draft_tokens=1, width=2)),
    "3 without replacement": Proposal(Lossless, lambda n: DraftModel(max_draft_tokens=1, width=3)),
    "2 without replacement, 2 deep": Proposal(
        Lossless, lambda n: DraftModel(max_draft_tokens=2, width=2), vocab=3
    ),
    "2 draft models": Proposal(Lossless, lambda n: SpecInfer(models=2, branching="1")),
    "2 draft models, 2 deep": Proposal(Lossless, lambda n: SpecInfer(models=2, branching="1,1"), vocab=3),
    "2 with replacement": Proposal(Lossless, lambda n: Independent(length=1, width=2)),
    "one-hot tree": Proposal(Lossless, lambda n: Chosen(length=2, width=2)),
    "one-hot tree, passengers": Proposal(Lossless, lambda n: Chosen(length=2, width=1, passenger=True)),
    "token recycling": Proposal(Lossless, lambda n: TokenRecycling(nodes="8"), remembers=True, vocab=3),
    "mixed": Proposal(Lossless, lambda n: Mixed(length=1)),
    "mixed, 2 deep": Proposal(Lossless, lambda n: Mixed(length=2), vocab=3),
    "drafter that is taught": Proposal(Lossless, lambda n: Taught(length=n), remembers=True, vocab=3),
    "sequoia": Proposal(Lossless, lambda n: Sequoia(nodes=3, depth=2), vocab=3),
    "dyspec": Proposal(Lossless, lambda n: DySpec(nodes=3), vocab=3),
    "rsd_c 2, 1": Proposal(Lossless, lambda n: RSDC(branching="2,1"), vocab=3),
    "rsd_c 1, 2": Proposal(Lossless, lambda n: RSDC(branching="1,2"), vocab=3),
    "rsd_s": Proposal(Lossless, lambda n: RSDS(width=2, depth=2), vocab=3, chance=FixedNoiseChance),
    "lookahead": Proposal(
        Lossless,
        lambda n: Lookahead(window=3, ngram=3, guesses=2),
        remembers=True,
        vocab=3,
        chance=FixedNoiseChance,
        length=4,
    ),
    "sjd": Proposal(Lossless, lambda n: SJD(window=2), remembers=True, vocab=3),
    "sjd, 1 place": Proposal(Lossless, lambda n: SJD(window=1), remembers=True, vocab=3, length=4),
    "sjd, copies": Proposal(
        Lossless, lambda n: SJD(window=2, initial_guess="repeat"), remembers=True, vocab=3
    ),
    "lookahead, bigrams": Proposal(
        Lossless,
        lambda n: Lookahead(window=2, ngram=2, guesses=3),
        remembers=True,
        vocab=3,
        chance=FixedNoiseChance,
        length=4,
    ),
    "staged": Proposal(
        Lossless, lambda n: Staged(max_draft_tokens=2, max_table_tokens=1, ngram=2), remembers=True, vocab=3
    ),
    "staged, block": Proposal(
        Block, lambda n: Staged(max_draft_tokens=2, max_table_tokens=1, ngram=2), remembers=True, vocab=3
    ),
    "pard": Proposal(Lossless, lambda n: Pard(max_draft_tokens=n), vocab=3),
    "pard, block": Proposal(Block, lambda n: Pard(max_draft_tokens=n), vocab=3),
    "rasd": Proposal(
        Lossless,
        lambda n: RASD(nodes=3, depth=2, width=2, retrieved_nodes=3, min_suffix=1, retrieved_depth=2),
        remembers=True,
        vocab=3,
    ),
    "propd": Proposal(
        Lossless,
        lambda n: ProPD(tree_drafter="token_recycling nodes=8", layers=1, top_k=2),
        remembers=True,
        vocab=3,
        on="layers",
    ),
    "llma": Proposal(Lossless, lambda n: LLMA(max_draft_tokens=n), remembers=True, length=4),
    "anpd": Proposal(Lossless, lambda n: ANPD(max_draft_tokens=n, ngram=3), remembers=True),
    "aggressive": Proposal(Lossless, lambda n: Aggressive(max_draft_tokens=n), remembers=True, length=4),
    "trie": Proposal(
        Lossless,
        lambda n: Trie(nodes=4, depth=2, max_suffix=1, output_weight=0.5, max_output_nodes=1),
        remembers=True,
        vocab=3,
        length=4,
        prompt=(1, 2, 0, 1, 0, 2, 1, 2, 0, 1),
    ),
    "rest": Proposal(
        Lossless,
        lambda n: Rest(datastore=PLACES, nodes=5, depth=2, max_suffix=1, min_suffix=1),
        vocab=3,
        length=4,
    ),
    "early exit": Proposal(
        Lossless, lambda n: EarlyExit(max_draft_tokens=n, layers=1), remembers=True, vocab=3, on="layers"
    ),
    "early exit, block": Proposal(
        Block, lambda n: EarlyExit(max_draft_tokens=n, layers=1), remembers=True, vocab=3, on="layers"
    ),
    "early exit, by criterion": Proposal(
        Lossless,
        lambda n: EarlyExit(max_draft_tokens=n, criterion="confidence_exit threshold=0.5 min_layers=1"),
        remembers=True,
        vocab=3,
        on="layers",
    ),
    "early exit, by token": Proposal(
        Lossless,
        lambda n: EarlyExit(max_draft_tokens=n, criterion="hash_exit min_layers=1 buckets=3"),
        remembers=True,
        vocab=3,
        on="layers",
    ),
    "early exit, by place": Proposal(
        Lossless,
        lambda n: EarlyExit(max_draft_tokens=n, criterion="skipdecode min_layers=1 decay_horizon=1"),
        remembers=True,
        vocab=3,
        on="layers",
    ),
    "early exit, blocks left out": Proposal(
        Lossless,
        lambda n: EarlyExit(
            max_draft_tokens=n,
            criterion="ffn_skip threshold=-1 warmup_tokens=0 cold_start=0 cold_end=0 max_skipped_blocks=1",
        ),
        remembers=True,
        vocab=3,
        on="layers",
    ),
    "sorted drafts": Proposal(
        Lossless,
        lambda n: S2D(max_draft_tokens=n, exits=[1, 2], thresholds=[0.5]),
        remembers=True,
        vocab=3,
        on="layers",
    ),
    "swift": Proposal(
        Lossless,
        lambda n: Swift(window=2, skip_ratio=0.5, max_draft_tokens=1, siblings=False, target_matchness=1.0),
        remembers=True,
        vocab=3,
        on="layers",
        length=4,
    ),
    "medusa": Proposal(Lossless, lambda n: Medusa(nodes=5), remembers=True, vocab=3, on="layers"),
    "hydra": Proposal(Lossless, lambda n: Hydra(nodes=5), remembers=True, vocab=3, on="layers"),
    "eagle": Proposal(Lossless, lambda n: Eagle(nodes=3, depth=2), remembers=True, vocab=3, on="layers"),
    "eagle2": Proposal(
        Lossless, lambda n: Eagle2(nodes=3, depth=2, width=2), remembers=True, vocab=3, on="layers"
    ),
    "eagle3": Proposal(
        Lossless, lambda n: Eagle3(nodes=3, depth=2, width=2), remembers=True, vocab=3, on="layers"
    ),
    "p_eagle": Proposal(
        Lossless, lambda n: PEagle(nodes=3, depth=2, width=2), remembers=True, vocab=3, on="layers"
    ),
    "mtp": Proposal(Lossless, lambda n: MTP(nodes=3, depth=2, width=2), remembers=True, vocab=3, on="layers"),
    "kangaroo": Proposal(
        Lossless,
        lambda n: Kangaroo(max_draft_tokens=n, min_probability=0.0),
        remembers=True,
        vocab=3,
        on="layers",
    ),
    "kangaroo, block": Proposal(
        Block,
        lambda n: Kangaroo(max_draft_tokens=n, min_probability=0.0),
        remembers=True,
        vocab=3,
        on="layers",
    ),
    "chain, greedy draft": Proposal(
        Lossless, lambda n: DraftModel(max_draft_tokens=n, draft_temperature=0.0), chain=True
    ),
    "chain, draft at 0.5": Proposal(
        Lossless, lambda n: DraftModel(max_draft_tokens=n, draft_temperature=0.5)
    ),
    "2 without replacement, draft at 2": Proposal(
        Lossless, lambda n: DraftModel(max_draft_tokens=1, width=2, draft_temperature=2.0)
    ),
}


@cache
def worlds(vocab: int, kind: str) -> tuple[Logits, Logits]:
    """The target's table and the draft's."""
    target = logit_table(vocab, seed=1)
    return target, draft_table(kind, target, vocab)


def models(vocab: int, kind: str, drafter: Drafter) -> Mapping[str, Model]:
    """The models in the roles that `drafter` needs."""
    target, draft = worlds(vocab, kind)
    skipped = draft if isinstance(drafter, LayerSkip) else None
    tables = {"draft": draft, **{f"draft{n}": draft_table(kind, target, vocab, seed=n) for n in (2, 3)}}
    return {
        "target": table_model(target, vocab, skipped),
        **{role: table_model(tables[role], vocab) for role in drafter.lanes},
    }


@cache
def layered(vocab: int, kind: str) -> tuple[Model, Logits]:
    """A transformer with draft heads, and its logits by prefix.

    equal: its adapter, and its layers after the first one, add nothing. A draft from an early layer is then right.
    """
    decoder = toys.decoder(toys.toy_spec(vocab=vocab), 4, torch.float64, sharp=2.0)
    if kind == "equal":
        for layer in decoder.layers[1:]:
            layer.out, layer.down = layer.out * 0, layer.down * 0
        adapter = decoder.heads["kangaroo"]
        with torch.no_grad():
            adapter.attention.out.weight.zero_()
            adapter.last.fill_(1.0)
    return toys.model(decoder), logits_by_prefix(decoder)


@cache
def true_law(
    vocab: int,
    sampler: str,
    length: int,
    stop: tuple[int, ...] = (),
    prompt: tuple[int, ...] = tuple(PROMPT),
    layers: str | None = None,
) -> dict[tuple[int, ...], float]:
    """P(text) of the target alone. layers: the kind of transformer for the target, or None for the table."""
    logits = worlds(vocab, "equal")[0] if layers is None else layered(vocab, layers)[1]
    return text_distribution(logits, SAMPLERS[sampler][1], list(prompt), length, vocab, frozenset(stop))


def walked(
    name: str,
    kind: str,
    sampler: str,
    *,
    draft: int,
    length: int | None = None,
    vocab: int | None = None,
    stop: tuple[int, ...] = (),
    whole: bool = False,
) -> tuple[float, Walk]:
    """The largest difference between the method's distribution and the target's, and the walk.

    whole: walk whole runs, not rounds;  length, vocab: override the proposal's own.
    """
    proposal = PROPOSALS[name]
    length, vocab = length or proposal.length, vocab or proposal.vocab
    drafter, layers = proposal.make(draft), kind if proposal.on == "layers" else None
    method = Method(drafter=drafter, acceptance=proposal.rule(), sampler=SAMPLERS[sampler][0])
    given = models(vocab, kind, drafter) if layers is None else {"target": layered(vocab, layers)[0]}
    walk = Walk(method, given, length, stop, list(proposal.prompt), proposal.chance)
    law = walk.full_run_distribution() if whole or proposal.remembers else walk.text_distribution()
    return distribution_distance(law, true_law(vocab, sampler, length, stop, proposal.prompt, layers)), walk


__all__ = ["KINDS", "PROPOSALS", "SAMPLERS", "layered", "models", "true_law", "walked", "worlds"]
