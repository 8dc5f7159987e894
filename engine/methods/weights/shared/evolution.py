"""Evolution: the search of EvoPress over lists of blocks that a model may do without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import NamedTuple

from decodescope.engine.model.layers.partial_pass import Skip

# Asked when a stage begins, by its number: what says how far a plan is from the whole model, the less the better.
Judge = Callable[[int], Callable[["BlockPlan"], float]]


class BlockPlan(NamedTuple):
    """Blocks that are left out, ascending."""

    attn: tuple[int, ...]
    ffn: tuple[int, ...]

    @property
    def skip(self) -> Skip:
        """For a pass."""
        return Skip(frozenset(self.attn), frozenset(self.ffn))

    @property
    def words(self) -> str:
        """As a layer plan is written: a2,f3."""
        return ",".join([*(f"a{i}" for i in self.attn), *(f"f{i}" for i in self.ffn)])


@dataclass(frozen=True)
class SearchGeneration:
    """The best plan after a generation, how far it is from the whole model, and whether it is a new one."""

    best: BlockPlan
    fitness: float
    changed: bool


@dataclass(frozen=True)
class EvolutionSearch:
    """attn, ffn: blocks that may go;  counts: how many of each do go;  whole: both blocks of a layer go together
    stages: how many stay after each stage of a selection, the last 1;  start: random plans at the beginning
    """

    attn: tuple[int, ...]
    ffn: tuple[int, ...]
    counts: tuple[int, int]
    offspring: int
    generations: int
    stages: tuple[int, ...] = (2, 1)
    start: int = 64
    whole: bool = False

    def run(
        self, judge: Judge, chance: Random, done: Callable[[SearchGeneration], None] = lambda _: None
    ) -> list[SearchGeneration]:
        """Generation by generation, from the best of the random plans on. The parent takes part in the last stage: it stays
        unless an offspring is better there."""
        judged = judge(0)
        fitness, parent = min(
            (judged(plan), plan) for plan in {self._draw_plan(chance) for _ in range(self.start)}
        )
        history = [SearchGeneration(parent, fitness, True)]
        for _ in range(self.generations):
            left = self._offspring(parent, chance)
            if not left:  # there is no other plan
                break
            for stage, stays in enumerate(self.stages):
                if stage == len(self.stages) - 1:
                    left = [parent, *left]
                judged = judge(stage)
                scored = sorted((judged(plan), plan != parent, plan) for plan in left)
                left, fitness = [plan for _, _, plan in scored[:stays]], scored[0][0]
            history.append(SearchGeneration(left[0], fitness, left[0] != parent))
            parent = left[0]
            done(history[-1])
        return history

    def _draw_plan(self, chance: Random) -> BlockPlan:
        attn = tuple(sorted(chance.sample(self.attn, self.counts[0])))
        return BlockPlan(attn, attn if self.whole else tuple(sorted(chance.sample(self.ffn, self.counts[1]))))

    def _offspring(self, parent: BlockPlan, chance: Random) -> list[BlockPlan]:
        """Plans, none twice, each some exchanges away: min(U{1..3}, U{1..3}) of them. So the budget stays."""
        plans = list[BlockPlan]()
        for _ in range(20 * self.offspring):  # there may be fewer plans than were asked for
            if len(plans) == self.offspring:
                break
            plan = parent
            for _ in range(min(chance.randint(1, 3), chance.randint(1, 3))):
                plan = self._exchange_block(plan, chance)
            if plan != parent and plan not in plans:
                plans.append(plan)
        return plans

    def _exchange_block(self, plan: BlockPlan, chance: Random) -> BlockPlan:
        """One block that is out comes back, another of its kind goes."""
        which = 0 if self.whole else chance.randrange(2)
        out, rest = plan[which], [i for i in (self.attn, self.ffn)[which] if i not in plan[which]]
        if not out or not rest:
            return plan
        back, goes = chance.choice(out), chance.choice(rest)
        swapped = tuple(sorted([*(i for i in out if i != back), goes]))
        return (
            BlockPlan(swapped, swapped)
            if self.whole
            else BlockPlan(*(swapped if k == which else plan[k] for k in range(2)))
        )


def all_plans(attn: Sequence[int], ffn: Sequence[int], counts: tuple[int, int]) -> list[BlockPlan]:
    """All plans of a budget."""
    return [BlockPlan(a, f) for a in combinations(attn, counts[0]) for f in combinations(ffn, counts[1])]
