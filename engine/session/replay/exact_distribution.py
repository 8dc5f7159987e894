"""Enumerate: a method's exact distribution over texts, by taking every outcome of chance instead of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from decodescope.engine.core.progress import Progress
from decodescope.engine.decoding.values.chance import Chance, Draw, Purpose, Remainder

from ..method import Method
from ..run import read_prompt
from ..session import Session

if TYPE_CHECKING:
    from ..load import Model

R = TypeVar("R")
MOST = 100_000  # paths; a distribution with more needs a smaller vocabulary or a shorter text


class EnumeratedChance(Chance):
    """Replays the outcomes of `prefix`, then takes the first untried one at every decision.

    weight: probability of the way so far;  steps: per decision, the outcome taken and how many there are
    A decision with one possible outcome is no fork: outcomes of probability 0 do not exist.
    """

    def __init__(self, prefix: Sequence[int] = ()):
        super().__init__(0)
        self.prefix, self.weight = list(prefix), 1.0
        self.steps: list[tuple[int, int]] = []

    def fork(self, weights: Sequence[float]) -> int:
        """The index of the outcome taken, among outcomes with these positive `weights`, which sum to 1."""
        if len(weights) == 1:
            return 0
        at = len(self.steps)
        choice = self.prefix[at] if at < len(self.prefix) else 0
        self.steps.append((choice, len(weights)))
        self.weight *= weights[choice]
        return choice

    def draw(self, p: Tensor, position: int, purpose: Purpose = "token") -> Draw:
        law = p.double().tolist()
        total = sum(law)
        assert 0 < total < float("inf"), f"a token is drawn from {law}"
        support = [x for x, p_x in enumerate(law) if p_x > 0]
        token = support[self.fork([law[x] / total for x in support])]
        low = sum(law[:token]) / total
        return Draw(token, low, low, low + law[token] / total)

    def draw_rows(self, p: Tensor, positions: Sequence[int], purpose: Purpose = "token") -> list[Draw]:
        return [self.draw(row, at, purpose) for row, at in zip(p, positions, strict=True)]

    def draw_remaining(self, rest: Remainder, position: int, purpose: Purpose = "draft") -> Draw:
        return self.draw(rest.law.new_tensor(rest.probabilities, dtype=torch.float64), position, purpose)

    def accept(self, ratio_num: float, ratio_den: float, position: int) -> tuple[bool, float]:
        chance = min(1.0, ratio_num / ratio_den) if ratio_den > 0 else float(ratio_num > 0)
        if chance in (0.0, 1.0):
            return chance == 1.0, 0.0
        return self.fork([chance, 1 - chance]) == 0, 0.0

    def shuffle(self, k: int, position: int) -> list[int]:
        left, order = list(range(k)), []
        while left:
            order.append(left.pop(self.fork([1 / len(left)] * len(left))))
        return order

    def uniform(self, position: int, purpose: Purpose) -> float:
        raise ValueError("A bare uniform has no finite set of outcomes: ask for a draw, a test or an order.")


E = TypeVar("E", bound=EnumeratedChance)


def outcomes(
    function: Callable[[E], R],
    make: type[E] = EnumeratedChance,  # type: ignore[assignment] # the default of a bound variable
    most: int | None = MOST,
) -> list[tuple[float, R]]:
    """(weight, result) of every way through `function`, depth first. It must start from scratch at each call.

    Raises ValueError when there are more than `most` (None: no limit).
    """
    leaves: list[tuple[float, R]] = []
    prefix: list[int] = []
    while most is None or len(leaves) < most:
        chance = make(prefix)
        result = function(chance)
        leaves.append((chance.weight, result))
        steps = chance.steps
        while steps and steps[-1][0] + 1 == steps[-1][1]:
            steps.pop()
        if not steps:
            return leaves
        prefix = [choice for choice, _ in steps]
        prefix[-1] += 1
    raise ValueError(
        f"There are more than {most} ways: shorten the text, or let the sampler keep fewer tokens."
    )


def exact_distribution(
    model: Model,
    method: Method,
    prompt: Sequence[int],
    length: int,
    models: Mapping[str, Model] | None = None,
) -> dict[tuple[int, ...], float]:
    """Text -> its probability, for every text of `length` tokens that `method` can write after `prompt`.

    The steps are those of any run; only chance is another. With k tokens to choose from there are at least k^length ways,
    so it takes a sampler that keeps few (top-k) or a tiny vocabulary.
    """
    start = Session(
        model, method, prompt, models=models, max_new_tokens=length, stop_tokens=(), level="summary"
    )
    read_prompt(start)
    masses: dict[tuple[int, ...], float] = defaultdict(float)
    with Progress("every outcome of chance", 100, "% of the probability") as progress:

        def write(chance: EnumeratedChance) -> tuple[int, ...]:
            session = start.branch()
            session.chance = chance
            for _ in session.stream():
                pass
            progress.add(100 * chance.weight)
            return tuple(session.tokens[len(prompt) :])

        for weight, text in outcomes(write):
            masses[text] += weight
    return dict(masses)


def sample_texts(
    model: Model,
    method: Method,
    prompt: Sequence[int],
    length: int,
    count: int,
    models: Mapping[str, Model] | None = None,
) -> dict[tuple[int, ...], int]:
    """Text -> how often it occurred in `count` runs of `length` tokens, with the seeds 0, 1, ... The prompt is read once."""
    start = Session(
        model, method, prompt, models=models, max_new_tokens=length, stop_tokens=(), level="summary"
    )
    read_prompt(start)
    counts: dict[tuple[int, ...], int] = defaultdict(int)
    with Progress("sampling", count, "runs") as progress:
        for seed in range(count):
            session = start.branch()
            session.chance = Chance(seed)
            for _ in session.stream():
                pass
            counts[tuple(session.tokens[len(prompt) :])] += 1
            progress.add()
    return dict(counts)
