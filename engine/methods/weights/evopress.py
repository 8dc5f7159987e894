"""EvoPress: an evolutionary search finds the blocks that matter least to a model, and they are cut."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import ClassVar

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.note import Finding
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.progress import Progress
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.pruning import StructuredPruning
from decodescope.engine.decoding.bases.weights import CalibrationData
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.gates import Gates

from .shared.evolution import BlockPlan, EvolutionSearch, Judge, SearchGeneration
from .shared.texts import calibration_texts, kl_divergence, text_logits


@component
class EvoPress(StructuredPruning):
    """Search by evolution for the blocks to remove.

    An individual is a list of `attention_blocks` attention and `ffn_blocks` feed-forward blocks that are left out. The best of
    64 random ones is the first parent. Each generation has `offspring` children, a few exchanges away from the parent. An
    exchange restores one block and removes another of its kind, so the budget stays. Children are judged on few tokens
    (`first_stage_tokens`), and the best two and their parent on more (`last_stage_tokens`). The best of these is the next
    parent. The criterion is the KL divergence of the whole model's distribution from that without the blocks. Each stage of
    each generation uses newly drawn text.

    The harm of a list does not follow from the harm of its single blocks; this is the reason for a search. The resulting list
    is cut out, as any list may be. A draft can skip the same list. Lossy, without training. Cost: about generations (offspring
    first + 3 last) tokens read, with fewer blocks than the model has. With `staged` off, all individuals are judged on all
    tokens, always the same ones, and the best never gets worse.
    """

    title = "EvoPress"
    source = "Sieberling et al. 2025, arXiv:2410.14649; IST-DASLab/EvoPress, evo_drop_search.py"
    reads = True
    finds: ClassVar[dict[str, Finding]] = {
        **StructuredPruning.finds,
        "divergence": Finding(
            "series", "Divergence", unit="nats", what="KL of the best list of a generation", over="round"
        ),
        "plan": Finding("set", "Best list", what="the blocks that it leaves out", over="round"),
        "since": Finding(
            "grid",
            "Out since",
            unit="generations",
            what="the first from which on a block is out",
            over="sublayer",
        ),
    }

    attention_blocks: int = param(1, low=0, high=200, unit="blocks", help="attention blocks that are cut")
    ffn_blocks: int = param(1, low=0, high=200, unit="blocks", help="feed-forward blocks that are cut")
    whole_layers: bool = param(
        False, help="cut whole layers, both blocks of a layer together; attention_blocks says how many"
    )
    offspring: int = param(16, low=1, high=256, unit="plans", help="number of children in each generation")
    generations: int = param(
        0,
        low=0,
        high=1000,
        unit="rounds",
        help="number of generations; 0: k (n - k) / 1.5 for k of n blocks of each kind",
    )
    first_stage_tokens: int = param(
        256,
        low=16,
        high=32_768,
        unit="tokens",
        help="size of the text on which all children of a generation are judged",
    )
    last_stage_tokens: int = param(
        1024,
        low=16,
        high=32_768,
        unit="tokens",
        help="size of the text on which the best two children are compared with their parent",
    )
    two_stages: bool = param(
        True, help="judge in two stages, on newly drawn text; off: all children on the same text"
    )
    seed: int = param(0, low=0, high=2**31 - 1, help="seed of the random draws")

    def gates(self, model: Decoder, calibration: CalibrationData) -> Gates:
        history = self.history(model, calibration)
        plan, sub = history[-1].best, torch.ones(model.spec.n_layers, 2)
        calibration.add_finding(self, "divergence", [x.fitness for x in history])
        calibration.add_finding(self, "plan", [x.best.words for x in history])
        calibration.add_finding(
            self,
            "since",
            [[first_generation(history, k, i) for k in range(2)] for i in range(model.spec.n_layers)],
        )
        for column, blocks in enumerate(plan):
            sub[list(blocks), column] = 0
        return Gates(sub=sub)

    def history(self, model: Decoder, calibration: CalibrationData) -> list[SearchGeneration]:
        """Run the search; return its generations."""
        search = self.build_search(model.spec)
        chance = Random(self.seed)
        with Progress("searching blocks", search.generations, "generations") as progress:
            return search.run(self._judge(model, calibration, chance), chance, lambda _: progress.add())

    def build_search(self, spec: ModelSpec) -> EvolutionSearch:
        """The search for a model of this shape. Raises ParamError if the model does not have enough blocks."""
        attn = tuple(i for i in range(spec.n_layers) if spec.kv_at(i))
        ffn = tuple(i for i in range(spec.n_layers) if spec.ff_at(i))
        if self.whole_layers:
            attn = ffn = tuple(i for i in attn if i in ffn)
        counts = self.attention_blocks, self.attention_blocks if self.whole_layers else self.ffn_blocks
        for name, count, there in (("attention_blocks", counts[0], attn), ("ffn_blocks", counts[1], ffn)):
            if count > len(there):
                raise ParamError(
                    f"{self.name}.{name} = {count}: {spec.name} has {len(there)} such blocks; cut fewer."
                )
        kinds = [(counts[0], attn)] if self.whole_layers else [*zip(counts, (attn, ffn), strict=True)]
        generations = self.generations or math.ceil(sum(k * (len(there) - k) for k, there in kinds) / 1.5)
        stages = (2, 1) if self.two_stages else (1,)
        return EvolutionSearch(
            attn, ffn, counts, self.offspring, generations, stages, whole=self.whole_layers
        )

    def _judge(self, model: Decoder, calibration: CalibrationData, chance: Random) -> Judge:
        rows = calibration_texts(
            calibration, len(calibration.tokens) if self.two_stages else self.last_stage_tokens
        )
        sizes = [max(1, n // rows.shape[1]) for n in (self.first_stage_tokens, self.last_stage_tokens)]

        def stage(number: int) -> Callable[[BlockPlan], float]:
            drawn = (
                chance.sample(range(len(rows)), min(sizes[number], len(rows)))
                if self.two_stages
                else range(len(rows))
            )
            read = rows[list(drawn)]
            dense = text_logits(model, read)
            return lambda plan: kl_divergence(dense, text_logits(model, read, plan.skip))

        return stage


def first_generation(history: list[SearchGeneration], kind: int, layer: int) -> int | None:
    """The generation from which on a block, attention (0) or feed-forward (1), stayed removed to the end; None: it stays."""
    first = None
    for k in range(len(history) - 1, -1, -1):
        if layer not in history[k].best[kind]:
            break
        first = k
    return first
