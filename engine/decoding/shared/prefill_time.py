"""Estimate the time to read a prompt before its first new token, so that it can be shown in advance."""

from __future__ import annotations

from decodescope.engine.cost.cost import PassShape, pass_cost
from decodescope.engine.cost.hardware import load_profile
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.timing.measure import profile_key

from ..bases.policy import CHUNK


def describe_prefill_time(decoder: Decoder, tokens: int, entries: int) -> str:
    """Describe the passes that read `tokens` tokens of a prompt and the cache that they fill, with `entries` entries kept in
    between. If this machine was measured before, the text includes the minimum time in seconds."""
    spec, size = decoder.spec, decoder.dtype.itemsize
    passes = [(min(CHUNK, tokens - at), min(at, entries)) for at in range(0, tokens, CHUNK)]
    bytes_held = spec.kv_bytes(max(map(sum, passes)), size)
    many = f"{len(passes)} pass{'es' if len(passes) > 1 else ''} over a cache of {bytes_held / 2**20:.1f} MiB"
    machine = load_profile(profile_key(decoder.dtype, decoder.device))
    if machine is None:
        return many
    bits = 8.0 * size
    costs = [
        pass_cost(spec, PassShape(rows, held, weight_bits=bits, act_bits=bits, kv_bits=bits))
        for rows, held in passes
    ]
    return f"{many}, {sum(machine.time_us(cost).us for cost in costs) / 1e6:.1f} s here at best"
