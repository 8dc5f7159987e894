"""Block times: the time of a model's blocks at every width, and the widths that meet a time with the least error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from decodescope.engine.core.files import locate_file
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.progress import Progress
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.shared.verify_cost import verify_costs
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.slicing import slice_by_gates
from decodescope.engine.model.layers.gates import Gates

LARGEST = 1 << 20  # bytes of a stored table
FALL = 0.9
LEAST = 16
REPEATS = 9
CELLS = 4000


@dataclass(frozen=True)
class BlockTimes:
    """Microseconds in a pass.

    rest: everything outside blocks;  attn: an attention block with 0, 1, 2, ... query heads;  ffn: (columns, microseconds) of a
    feed-forward block, ascending
    """

    rest: float
    attn: tuple[float, ...]
    ffn: tuple[tuple[int, float], ...]

    def time_of(self, block: int, width: int) -> float:
        """The time of a block (0: attention, 1: feed-forward) of that width; linear between two measured widths."""
        if not block:
            return self.attn[width]
        below = max((x for x in self.ffn if x[0] <= width), default=(0, 0.0))
        above = min((x for x in self.ffn if x[0] >= width), default=below)
        share = (width - below[0]) / (above[0] - below[0]) if above[0] > below[0] else 0.0
        return below[1] + share * (above[1] - below[1])

    def fits(self, spec: ModelSpec) -> bool:
        """Whether the table has every width of that model."""
        return len(self.attn) == spec.n_heads + 1 and bool(self.ffn) and self.ffn[-1][0] == spec.d_ff

    def record(self) -> str:
        """The text that `load_times` reads."""
        return json.dumps(asdict(self))


def load_times(path: str, spec: ModelSpec, knob: str) -> BlockTimes:
    """Load a stored table, a file of text of at most LARGEST bytes. Raises ParamError."""
    try:
        times = _parse_times(json.loads(locate_file(path, LARGEST).read_text("utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise ParamError(
            f"{knob} = {path}: no table of block times ({error}); benchmarks/blocks.py prints one."
        ) from None
    if not times.fits(spec):
        raise ParamError(
            f"{knob} = {path}: a table of another shape than {spec.n_heads} heads and {spec.d_ff} columns; measure {spec.name}."
        )
    return times


def _parse_times(kept: Any) -> BlockTimes:
    """Parse the content of a file. Raises ValueError."""
    if isinstance(kept, dict) and {"rest", "attn", "ffn"} <= {*kept} and isinstance(kept["attn"], list):
        pairs: list[Any] = kept["ffn"] if isinstance(kept["ffn"], list) else [None]
        if all(isinstance(x, list) and len(x) == 2 for x in pairs):
            numbers = [kept["rest"], *kept["attn"], *(n for x in pairs for n in x)]
            if all(isinstance(x, int | float) for x in numbers):
                attn, ffn = tuple(map(float, kept["attn"])), tuple((int(n), float(us)) for n, us in pairs)
                return BlockTimes(float(kept["rest"]), attn, ffn)
    raise ValueError("rest, attn and ffn must be there, in microseconds")


def measured_widths(whole: int) -> list[int]:
    """Numbers of columns at which a feed-forward block is measured and cut: each nine tenths of the last, to a sixteenth; and
    0.
    """
    steps, now = [whole], whole * FALL
    while now > whole / LEAST and round(now) < steps[-1]:
        steps.append(round(now))
        now *= FALL
    return [0, *reversed(steps)] if whole else [0]


def measure_times(model: Decoder, rows: int) -> BlockTimes:
    """Measure passes over `rows` rows on this machine.

    The measured models have blocks of only one kind, all with one width. The time of a model without any blocks is subtracted.
    """
    spec = model.spec
    shape, every = (spec.n_layers, 2), measured_widths(spec.d_ff)[1:]

    def us(block: int, width: int) -> float:
        sub = torch.zeros(shape)
        head = torch.ones(spec.n_layers, spec.n_heads)
        ffn = torch.ones(spec.n_layers, spec.d_ff)
        sub[:, block] = float(width > 0)
        (head, ffn)[block][:, width:] = 0
        return verify_costs(
            slice_by_gates(model, Gates(head, ffn, sub)).pack_weights(), [rows], repeats=REPEATS
        )[0]

    with Progress("timing blocks", spec.n_heads + len(every), "widths") as progress:
        rest, came = us(0, 0), dict[tuple[int, int], float]()
        for block, wanted in ((0, range(1, spec.n_heads + 1)), (1, every)):
            for width in wanted:
                came[block, width] = max(0.0, us(block, width) - rest) / spec.n_layers
                progress.add()
    attn = (0.0, *(came[0, h] for h in range(1, spec.n_heads + 1)))
    return BlockTimes(rest, attn, ((0, 0.0), *((f, came[1, f]) for f in every)))


def choose_within_budget(options: Sequence[Sequence[tuple[float, float]]], budget: float) -> list[int]:
    """Choose one option (time, error) per block, so that the times sum to at most `budget` with the least sum of errors.

    A dynamic programme over the time, in 4,000 cells; each time is rounded up to cells. Empty if no choice fits.
    """
    least = torch.full((CELLS + 1,), torch.inf, dtype=torch.float64)
    least[0] = 0
    steps = list[torch.Tensor]()
    for block in options:
        ways = torch.full((len(block), CELLS + 1), torch.inf, dtype=torch.float64)
        for i, (time, error) in enumerate(block):
            cells = -int(-time * CELLS // budget)
            if cells <= CELLS:
                ways[i, cells:] = least[: CELLS + 1 - cells] + error
        least, which = ways.min(0)
        steps.append(which)
    at = int(least.argmin())
    if torch.isinf(least[at]):
        return []
    chosen = list[int]()
    for block, which in zip(reversed(options), reversed(steps), strict=True):
        chosen.append(int(which[at]))
        at -= -int(-block[chosen[-1]][0] * CELLS // budget)
    return chosen[::-1]
