"""EvoPress: an evolutionary search for the blocks that a model can best do without; they are cut out."""

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
from decodescope.engine.decoding.bases.cutting import Cutting
from decodescope.engine.decoding.bases.weights import Calibration
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.layers.gates import Gates

from .shared.evolution import Generation, Judge, Plan, Search
from .shared.texts import divergence, logits, texts


@component
class EvoPress(Cutting):
    """An individual is a list of `attn` attention and `ffn` feed-forward blocks that are left out. The best of 64 random ones
    is the first parent. Each generation has `offspring` children, some exchanges away from it: a block comes back and another
    of its kind goes, so the budget stays. They are judged on few tokens (`first`), the best two and their parent on more
    (`last`), and the best of these is the next parent. Judged by the KL divergence of the whole model's law from that without
    the blocks, on text that is drawn anew for each stage of each generation.

    How bad a list is does not follow from how bad its blocks are alone: that is why it is searched. What the search ends with
    is cut out, as any list may be; it is also one that a draft may leave out. Lossy; without training. Cost: about generations
    (offspring first + 3 last) tokens read, with fewer blocks than the model has. `staged` off: all tokens for all, always the
    same, and the best never gets worse.
    """

    title = "EvoPress"
    source = "Sieberling et al. 2025, arXiv:2410.14649; IST-DASLab/EvoPress, evo_drop_search.py"
    reads = True
    finds: ClassVar[dict[str, Finding]] = {
        **Cutting.finds,
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

    attn: int = param(1, low=0, high=200, unit="blocks", help="attention blocks that are cut")
    ffn: int = param(1, low=0, high=200, unit="blocks", help="feed-forward blocks that are cut")
    whole: bool = param(False, help="both blocks of a layer go together, attn of them")
    offspring: int = param(16, low=1, high=256, unit="plans", help="children of a generation")
    generations: int = param(
        0, low=0, high=1000, unit="rounds", help="0: k (n - k) / 1.5 of each kind, k of n"
    )
    first: int = param(256, low=16, high=32_768, unit="tokens", help="on which all children are judged")
    last: int = param(
        1024, low=16, high=32_768, unit="tokens", help="on which the best two are held against their parent"
    )
    staged: bool = param(True, help="judge in two stages, on text drawn anew; off: all on the same text")
    seed: int = param(0, low=0, high=2**31 - 1, help="of what is drawn")

    def gates(self, model: Decoder, calibration: Calibration) -> Gates:
        history = self.history(model, calibration)
        plan, sub = history[-1].best, torch.ones(model.spec.n_layers, 2)
        calibration.tell(self, "divergence", [x.fitness for x in history])
        calibration.tell(self, "plan", [x.best.words for x in history])
        calibration.tell(
            self, "since", [[since(history, k, i) for k in range(2)] for i in range(model.spec.n_layers)]
        )
        for column, blocks in enumerate(plan):
            sub[list(blocks), column] = 0
        return Gates(sub=sub)

    def history(self, model: Decoder, calibration: Calibration) -> list[Generation]:
        """The search, generation by generation."""
        search = self.search(model.spec)
        chance = Random(self.seed)
        with Progress("searching blocks", search.generations, "generations") as progress:
            return search.run(self._judge(model, calibration, chance), chance, lambda _: progress.add())

    def search(self, spec: ModelSpec) -> Search:
        """What is searched in a model of this shape. Raises ParamError where it has not so many blocks."""
        attn = tuple(i for i in range(spec.n_layers) if spec.kv_at(i))
        ffn = tuple(i for i in range(spec.n_layers) if spec.ff_at(i))
        if self.whole:
            attn = ffn = tuple(i for i in attn if i in ffn)
        counts = self.attn, self.attn if self.whole else self.ffn
        for name, count, there in (("attn", counts[0], attn), ("ffn", counts[1], ffn)):
            if count > len(there):
                raise ParamError(
                    f"{self.name}.{name} = {count}: {spec.name} has {len(there)} such blocks; cut fewer."
                )
        kinds = [(counts[0], attn)] if self.whole else [*zip(counts, (attn, ffn), strict=True)]
        generations = self.generations or math.ceil(sum(k * (len(there) - k) for k, there in kinds) / 1.5)
        stages = (2, 1) if self.staged else (1,)
        return Search(attn, ffn, counts, self.offspring, generations, stages, whole=self.whole)

    def _judge(self, model: Decoder, calibration: Calibration, chance: Random) -> Judge:
        rows = texts(calibration, len(calibration.tokens) if self.staged else self.last)
        sizes = [max(1, n // rows.shape[1]) for n in (self.first, self.last)]

        def stage(number: int) -> Callable[[Plan], float]:
            drawn = (
                chance.sample(range(len(rows)), min(sizes[number], len(rows)))
                if self.staged
                else range(len(rows))
            )
            read = rows[list(drawn)]
            dense = logits(model, read)
            return lambda plan: divergence(dense, logits(model, read, plan.skip))

        return stage


def since(history: list[Generation], kind: int, layer: int) -> int | None:
    """The generation from which on a block, attention (0) or feed-forward (1), was out to the end; None: it stays."""
    first = None
    for k in range(len(history) - 1, -1, -1):
        if layer not in history[k].best[kind]:
            break
        first = k
    return first
