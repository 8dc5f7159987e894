"""Evolution: EvoPress's search over lists of removable blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import NamedTuple

from decodescope.engine.model.layers.partial_pass import Skip

# Called with the number of a stage when it begins; returns the function that measures a plan's distance from the whole model
# (smaller is better).
Judge = Callable[[int], Callable[["BlockPlan"], float]]


class BlockPlan(NamedTuple):
    """The blocks that are left out, ascending."""

    attn: tuple[int, ...]
    ffn: tuple[int, ...]

    @property
    def skip(self) -> Skip:
        """The plan as the sub-layers that a pass skips."""
        return Skip(frozenset(self.attn), frozenset(self.ffn))

    @property
    def words(self) -> str:
        """The plan in the form of a layer plan: a2,f3."""
        return ",".join([*(f"a{i}" for i in self.attn), *(f"f{i}" for i in self.ffn)])


@dataclass(frozen=True)
class SearchGeneration:
    """The best plan after a generation, its distance from the whole model, and whether it is a new one."""

    best: BlockPlan
    fitness: float
    changed: bool


@dataclass(frozen=True)
class EvolutionSearch:
    """- attn, ffn: removable blocks;  counts: how many of each are removed;  whole: both blocks of a layer are removed together
    - stages: how many plans stay after each stage of a selection, the last 1;  start: number of random plans at the beginning
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
        """Run all generations, from the best of the random plans on.

        The parent takes part in the last stage: it stays unless an offspring is better there.
        """
        judged = judge(0)
        fitness, parent = min(
            (judged(plan), plan) for plan in {self._draw_plan(chance) for _ in range(self.start)}
        )
        history = [SearchGeneration(parent, fitness, True)]
        for _ in range(self.generations):
            left = self._offspring(parent, chance)
            if not left:  # no other plan exists
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
        """Different plans, each min(U{1..3}, U{1..3}) exchanges away. Exchanges keep the budget."""
        plans = list[BlockPlan]()
        for _ in range(20 * self.offspring):  # there may be fewer plans than requested
            if len(plans) == self.offspring:
                break
            plan = parent
            for _ in range(min(chance.randint(1, 3), chance.randint(1, 3))):
                plan = self._exchange_block(plan, chance)
            if plan != parent and plan not in plans:
                plans.append(plan)
        return plans

    def _exchange_block(self, plan: BlockPlan, chance: Random) -> BlockPlan:
        """Restore one removed block, and remove another of its kind."""
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
