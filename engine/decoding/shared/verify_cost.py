"""The verify-cost curve: how long a pass over n rows takes on this device, for drafters that size their trees by it.

A curve is measured through real passes of the decoder, with the kernels in use. It is kept on the decoder. For a model that was
loaded, what was measured undisturbed is also kept in the user's data folder (`engine/cost/pass_curve.py`), so later processes
need not measure it again.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from decodescope.engine.cost.pass_curve import ROWS, Key, PassCurve, load_curve, save_curve
from decodescope.engine.kernels.choice import OneThreadForTorch, kernels_in_use, pass_threads
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import Executor
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.timing.instructions import LIMITS
from decodescope.engine.timing.measure import profile_key

from ..bases.lane import Lane
from ..bases.policy import CachePolicy

HELD = 128  # entries in the cache while measuring
FEW = 16  # entries if reading so many already takes a good part of the budget
SHARE = 0.1  # of the budget, that reading the first FEW tokens may take
ROUNDS = 9  # passes of each size at most
BUDGET_S = 0.25  # after which no size is timed once more
FIRST_S = 2.0  # after which no size is timed for the first time
TOO_LONG_S = 0.5  # a pass expected to take longer is not timed when the curve has other points already

STEADY = 1.25  # times as long as the fastest pass: if the third fastest took longer, other programs disturbed
STEADY_OF = 3  # passes that must agree
LARGE = 2**28  # bytes of weights, from which there is time for too few passes to tell

Time = Callable[[Lane, int], float]


def verify_costs(
    decoder: Decoder, rows: Sequence[int], executor: Executor | None = None, repeats: int = 3
) -> list[float]:
    """Microseconds of a pass over each number of rows behind 128 cache entries: the fastest of up to `repeats`.

    Numbers that the curve of this decoder lacks are measured, each at least once, and added to it.
    """
    curve = known_curve(decoder)
    missing = sorted({n for n in rows if curve is None or n not in curve.us})
    if missing:
        lane = _filled_lane(decoder, math.inf, executor)
        curve = _keep_curve(decoder, _time_rounds(lane, missing, repeats, BUDGET_S, math.inf), curve)
    assert curve is not None, "rows were asked for"
    return [curve.time_us(n) for n in rows]


def measure_curve(
    decoder: Decoder,
    rows: Sequence[int] = ROWS,
    data_dir: str | Path | None = None,
    refresh: bool = False,
) -> PassCurve:
    """The curve of this decoder for `rows`; what is missing is measured and kept, in 0.3 s if the model is small.

    A large model has time for few passes of each size, and after two seconds for no larger size. refresh: measure again.
    """
    known = None if refresh else known_curve(decoder, data_dir=data_dir)
    longest = max(1, decoder.spec.max_positions // 4)
    wanted = [n for n in rows if n <= longest]
    if known is not None:
        limit = TOO_LONG_S * 1e6
        wanted = [n for n in wanted if n not in known.us and known.time_us(n) <= limit]
        if not wanted:
            return known
    us = _time_rounds(_filled_lane(decoder, BUDGET_S), wanted, ROUNDS, BUDGET_S, FIRST_S)
    return _keep_curve(decoder, us, known, data_dir)


def known_curve(
    decoder: Decoder,
    threads: int | None = None,
    data_dir: str | Path | None = None,
    undisturbed: bool = False,
) -> PassCurve | None:
    """The curve of this decoder with the kernels in use, if it was measured before, here or in an earlier process.

    threads: of a pass; None: as many as a pass has now. undisturbed: only times that were good enough to be kept in the data
    folder. Nothing is measured.
    """
    threads = threads or pass_threads()
    us = decoder.costs.get(_conditions(decoder, threads))
    if us is not None and data_dir is None and not undisturbed:
        return PassCurve(us)
    if not decoder.fingerprint:
        return None
    curve = load_curve(curve_key(decoder, threads), data_dir)
    if curve is not None and us is None:
        decoder.costs[_conditions(decoder, threads)] = dict(curve.us)
    return curve


def curve_key(decoder: Decoder, threads: int) -> Key:
    """What a kept curve is valid for: machine, instruction set, torch, kernels, threads, type and model."""
    key = profile_key(decoder.dtype, decoder.device, threads)
    limits = [f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name)]
    return {
        "machine": key["machine"],
        "instructions": " ".join([str(key.get("kernels", "")), *limits]).strip(),
        "torch": key["torch"],
        "kernels": kernels_in_use(decoder.dtype, decoder.device),
        "threads": key["threads"],
        "dtype": key["dtype"],
        "model": decoder.fingerprint,
    }


def pass_us(lane: Lane, rows: int) -> float:
    """Microseconds of one pass over `rows` rows after the lane's entries; nothing of the pass is kept."""
    lane.forward(Feed.causal_chain([0] * rows, len(lane.tokens), lane.decoder.device))
    lane.rollback()
    return lane.take_passes()[-1].wall_us


def fastest_row_count(decoder: Decoder, tokens: Mapping[int, float], executor: Executor | None = None) -> int:
    """The number of rows with the most expected tokens per microsecond on this device; of equal ones the first. tokens: rows
    -> the tokens that a pass with that many rows is expected to yield."""
    costs = dict(zip(tokens, verify_costs(decoder, list(tokens), executor), strict=True))
    return max(tokens, key=lambda rows: tokens[rows] / costs[rows])


def _conditions(decoder: Decoder, threads: int) -> tuple[int, str]:
    return threads, kernels_in_use(decoder.dtype, decoder.device)


@torch.inference_mode()
def _filled_lane(decoder: Decoder, budget_s: float, executor: Executor | None = None) -> Lane:
    """A lane with 128 entries, or with 16 if the model is so slow that reading more would take most of the budget."""
    lane = Lane("measured", decoder, CachePolicy(), executor=executor)
    if decoder.spec.causal:
        held = min(HELD, decoder.spec.max_positions // 2)
        with OneThreadForTorch(decoder.dtype, decoder.device):
            began = time.perf_counter()
            lane.read([0] * min(FEW, held))
            if held > FEW and time.perf_counter() - began < SHARE * budget_s:
                lane.read([0] * (held - FEW))
    return lane


@torch.inference_mode()
def _time_rounds(
    lane: Lane,
    rows: Sequence[int],
    rounds: int,
    budget_s: float,
    first_s: float,
    timed: Time = pass_us,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, list[float]]:
    """Rows -> microseconds of each pass, in rounds over all numbers, since other programs come and go.

    The first round ends after `first_s` seconds at the latest, and then lacks the numbers that it had no time for. The others
    end when `budget_s` seconds are over.
    """
    times: dict[int, list[float]] = {}
    with OneThreadForTorch(lane.decoder.dtype, lane.decoder.device):
        began = clock()
        timed(lane, rows[0])  # first touch: memory, kernels, threads
        for k in range(rounds):
            for n in rows:
                if times and clock() - began > (budget_s if k else first_s):
                    return times
                times.setdefault(n, []).append(timed(lane, n))
    return times


def is_steady(times: Sequence[float], weight_bytes: int = 0) -> bool:
    """Whether passes of one size, in microseconds, agree so well that other programs did not disturb the fastest ones.

    Few passes of a model with many `weight_bytes` count as steady.
    """
    order = sorted(times)
    return order[STEADY_OF - 1] <= STEADY * order[0] if len(order) >= STEADY_OF else weight_bytes >= LARGE


def _keep_curve(
    decoder: Decoder,
    times: Mapping[int, Sequence[float]],
    known: PassCurve | None,
    data_dir: str | Path | None = None,
) -> PassCurve:
    """The known curve with the fastest of these passes, kept on the decoder; what is steady is kept in the data folder, if the
    model was loaded."""
    us = {n: min(each) for n, each in times.items()}
    curve = PassCurve(us) if known is None else known.merge(us)
    threads = pass_threads()
    decoder.costs[_conditions(decoder, threads)] = dict(curve.us)
    weight_bytes = decoder.spec.weight_bytes(decoder.dtype.itemsize)
    steady = {n: us[n] for n, each in times.items() if is_steady(each, weight_bytes)}
    if decoder.fingerprint and steady:
        key = curve_key(decoder, threads)
        before = load_curve(key, data_dir)
        # a read-only or full disk: the figures are good, the next process measures them again
        with contextlib.suppress(OSError):
            save_curve(PassCurve(steady) if before is None else before.merge(steady), key, data_dir)
    return curve
