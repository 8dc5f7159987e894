"""Samples: several texts of one prompt are drawn independently; the prompt is read and stored once."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.state import Move, State
from decodescope.engine.decoding.bases.strategy import Strategy
from decodescope.engine.decoding.record.plain_move import plain_move
from decodescope.engine.model.stores.tree import PLANS
from decodescope.engine.trace.records.events import EndReason

from .shared.sample_batch import SAMPLED_TEXTS, SampleBatch


@component
class Samples(Strategy):
    """Draw `samples` texts in one run.

    Sample i uses the random numbers of a run with the seed s + i, so it is that run's text. Sample 0 is the text of plain
    decoding; the run emits it at its end.

    Keys and values of the prompt are held once. In a pass, one product multiplies the queries of all samples with the prompt's
    entries. Separate products multiply each sample's queries with its own entries, and both results are joined. This is the
    same attention as over everything, in float32 to 1e-5. So a pass reads the prompt once and not once per sample, and memory
    is the prompt and the sum of the samples' own entries. A sample that has ended leaves the batch, and its entries are freed.

    Differences from the authors' code: the samples' own entries are allocated on demand, and there is one level of sharing.
    `attention_plan` chooses how a pass reads. "prefix" is the method above. "dense", "node" and "flatten" read prompt and
    samples as a tree of texts (DeFT, arXiv:2404.00242): in one masked product, node by node, or in even blocks of all nodes.
    """

    title = "Independent samples"
    source = "Hydragen: Juravsky et al. 2024, arXiv:2402.05099; ScalingIntelligence/hydragen, hydragen/attention.py"
    uses = frozenset({"prompt_compression", "sampler"})
    details: ClassVar = {"sampled_texts": SAMPLED_TEXTS}

    samples: int = param(4, low=1, high=64, unit="texts", help="number of texts drawn at the same time (n)")
    attention_plan: str = param(
        "prefix",
        choices=("prefix", *PLANS),
        help="how attention reads prompt and texts: shared prefix, masked product, nodes or blocks",
    )
    block: int = param(
        128,
        low=16,
        high=4096,
        unit="entries",
        help="size of each block of shared entries when the attention plan is flatten",
    )

    def begin(self, s: State) -> None:
        s.scratch = SampleBatch.start(s, self.samples, self.attention_plan, self.block)

    def step(self, s: State) -> Move:
        drawing: SampleBatch = s.scratch
        first, written = drawing.every[0], drawing.token_count
        started, before = s.target.executor.mark(), first.state
        record, verified = drawing.draw_round(s)
        end: EndReason | None = s.limit_reason(written + 1)
        if end is not None or not drawing.alive:
            end = "stop_token" if first.stopped else end
        emitted = first.tokens if end is not None else []
        s.tokens += emitted
        return plain_move(s, emitted, end, started, verified, details=[record], sampler_state=before)
