"""Temperature: divide the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.sampler import Sampler, one_token

LEAST = 1e-30  # below it logits leave the range of single precision


@component
class Temperature(Sampler):
    """p(x) proportional to exp(z(x) / T). T below 1 sharpens, above 1 flattens; T = 0 is the greedy choice."""

    title = "Temperature"
    source = "Ackley, Hinton, Sejnowski 1985"
    cuts = False

    temperature: float = param(
        1.0,
        low=0.0,
        high=5.0,
        step=0.05,
        help="sampling temperature; 0: greedy, below 1 sharpens, above 1 flattens",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.temperature < LEAST:
            where = f"{self.name}.temperature = {self.temperature:g}"
            raise ParamError(f"{where}: must be 0, which is greedy, or at least {LEAST:g}.")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def divisor(self) -> float:
        return self.temperature

    def warp(self, logits: Tensor, state: Any) -> Tensor:
        return one_token(logits) if self.greedy else logits / self.temperature


def set_temperature(stages: Sequence[Sampler], temperature: float) -> list[Sampler]:
    """The same stages at another temperature, which replaces the first temperature stage or comes last.

    Greedy stages are removed.
    """
    first = next((i for i, x in enumerate(stages) if x.divisor is not None), len(stages))
    before, after = (
        [x for x in part if x.divisor is None and not x.greedy] for part in (stages[:first], stages[first:])
    )
    return [*before, Temperature(temperature=temperature), *after]
