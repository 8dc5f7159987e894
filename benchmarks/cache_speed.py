"""What a small cache is worth in time: a random model of 100 M parameters, 2,048 to 16,384 entries, and a tenth of them.

    python benchmarks/cache_speed.py
    python benchmarks/cache_speed.py --quick
    python benchmarks/cache_speed.py --shape 1b --device cuda --entries 32768 131072   # of large.py, bfloat16

Two shapes, 12 KV heads and 4 (GQA), float32. Weights and entries are random numbers: what is measured depends on sizes alone.
A cache is filled without a prompt being read; each policy then cuts it to a tenth as it always does, and passes over one token
follow, the full cache's and those of all policies in turns, so that what slows the machine slows all of them. Medians. The
cost model's ratio is that of its times on the roofs that are measured first. Leave the machine alone meanwhile: some minutes,
and 6 GB of memory. With --quick a tiny model says that everything runs, and its figures nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from large import SHAPES

from decodescope.app.commands.shared.output import print_note, table
from decodescope.engine.bench.models import random_decoder_of
from decodescope.engine.core.component import build
from decodescope.engine.core.probe import Needs
from decodescope.engine.core.spec import ModelSpec, Rope
from decodescope.engine.cost.cost import PassShape, pass_cost
from decodescope.engine.cost.roofline import HardwareProfile
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.attention.per_head import HEAD_PAGE
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.timing.measure import measure

SPEC = ModelSpec(
    "random-100m", n_layers=12, n_heads=12, n_kv_heads=12, head_dim=64, d_model=768, d_ff=2048, vocab=16_384,
    max_positions=32_768, rope=Rope(dim=64),
)  # fmt: skip
TINY = replace(
    SPEC, name="random-tiny", n_layers=2, d_model=64, head_dim=8, d_ff=128, vocab=64, rope=Rope(dim=8)
)
HEADS = {"12 KV heads": 12, "4 KV heads": 4}
SHARE = 0.1
# knobs for so many entries
POLICIES = {
    "streaming_llm": lambda entries: dict(sink_tokens=4, recent=entries - 4),
    "key_norm": lambda entries: dict(low_norm_entries=entries - entries // 2, recent=entries // 2),
    "h2o": lambda entries: dict(heavy=entries - entries // 2, recent=entries // 2),
}
HEAD = (
    "shape",
    "entries",
    "policy",
    "ms a pass",
    "full / this",
    "of the cost model's",
    "bytes of full",
    "policy of a pass",
)


def decoder(spec: ModelSpec, dtype: torch.dtype, device: torch.device) -> Decoder:
    """A model of random weights; on a processor its matrices are as a loaded one has them."""
    made = random_decoder_of(spec, dtype, device=device)
    return made.pack_weights() if device.type == "cpu" else made


def filled(
    model: Decoder, entries: int, name: str, knobs: dict[str, int], needs: Needs | None = None
) -> Lane:
    """A lane whose cache holds what the policy keeps of so many random entries, as behind a prompt of that length."""
    lane = Lane("target", model, build("policy", name, knobs), needs=needs)
    lane.policy.begin(model.spec, entries)
    spec, piece = model.spec, min(entries, 1024)
    kv = torch.randn(
        2, 1, spec.n_kv_heads, piece, spec.head_dim, generator=torch.Generator().manual_seed(1)
    ).to(model.embed)
    for start in range(0, entries, piece):
        positions = torch.arange(start, start + piece, device=model.device)[None]
        for store in lane.cache.layers:
            store.append(kv, positions)
            store.commit(range(piece))
    lane.cache.length, lane.tokens = entries, [0] * entries
    lane.prompt, lane.needs = None, lane.needs.decode_needs
    for store in lane.cache.layers:
        for column in lane.policy.columns:
            store.column(column).uniform_(generator=torch.Generator(model.device).manual_seed(store.layer))
    lane.policy.compress(lane.cache)
    lane.cache.shrink()
    return lane


@torch.inference_mode()
def timed(lanes: Sequence[Lane], rounds: int) -> list[tuple[float, float]]:
    """For each lane the medians of (microseconds of a pass over one token, of the policy behind it), measured in turns."""
    took: list[list[tuple[float, float]]] = [[] for _ in lanes]
    for _ in range(rounds + 2):
        for lane, times in zip(lanes, took, strict=True):
            lane.policy_us = 0.0
            lane.forward(Feed.causal_chain([1], len(lane.tokens), lane.decoder.device))
            lane.commit([0])
            times.append((lane.take_passes()[0].wall_us, lane.policy_us))
    return [tuple(statistics.median(x) for x in zip(*times[2:], strict=True)) for times in took]  # type: ignore[misc] # two each


def rows(
    model: Decoder, shape: str, sizes: Sequence[int], rounds: int, machine: HardwareProfile
) -> Iterator[list[str]]:
    """The table's rows of one shape; the last row of each size is a pass with attention rows, compared with the fused one."""
    spec, bits = model.spec, 8 * model.dtype.itemsize
    for entries in sizes:
        print_note(f"{shape}: {entries:,} entries")
        kept = int(entries * SHARE)
        full = filled(model, entries, "keep_all", {})
        small = [filled(model, entries, name, knobs(kept)) for name, knobs in POLICIES.items()]
        seen = filled(model, entries, "keep_all", {}, Needs("decode"))
        times = timed([full, *small, seen], rounds)
        us, nbytes = times[0][0], full.cache.nbytes

        def modelled(held: int) -> float:
            cost = pass_cost(spec, PassShape(1, held, weight_bits=bits, act_bits=bits, kv_bits=bits))
            return machine.time_us(cost, str(model.dtype).removeprefix("torch.")).us

        page = 2 * spec.n_layers * spec.n_kv_heads * HEAD_PAGE * spec.head_dim * model.dtype.itemsize
        yield [shape, f"{entries:,}", "full cache", f"{us / 1e3:.2f}", "1", "", "1", ""]
        for lane, (pass_us, policy_us) in zip(small, times[1:-1], strict=True):
            ratio, due = us / pass_us, modelled(entries) / modelled(kept)
            part = f"{(lane.cache.nbytes - page) / nbytes:.1%} and a page a head"
            yield [
                shape, f"{entries:,}", f"{lane.policy.name}, {kept:,}", f"{pass_us / 1e3:.2f}", f"{ratio:.2f}",
                f"{ratio / due:.0%} of {due:.2f}", part, f"{policy_us / pass_us:.1%}",
            ]  # fmt: skip
        yield [
            shape,
            f"{entries:,}",
            "full, with rows",
            f"{times[-1][0] / 1e3:.2f}",
            f"{us / times[-1][0]:.2f}",
            "",
            "",
            "",
        ]


@torch.inference_mode()
def prefill(model: Decoder, tokens: int, rounds: int) -> float:
    """How many times as long H2O reads a prompt as the full cache does."""
    spec = model.spec
    took: tuple[list[float], list[float]] = ([], [])
    text = torch.randint(0, spec.vocab, (tokens,), generator=torch.Generator().manual_seed(2)).tolist()
    for _ in range(rounds):
        for times, name in zip(took, ("keep_all", "h2o"), strict=True):
            lane = Lane("target", model, build("policy", name))
            lane.policy.begin(spec, tokens)
            start = time.perf_counter()
            lane.read(text)
            times.append(time.perf_counter() - start)
    return min(took[1]) / min(took[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tiny model, to see that it runs")
    parser.add_argument(
        "--rounds", type=int, default=15, help="passes of each cache, of which the median counts"
    )
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument(
        "--shape", choices=[x for x in SHAPES if x != "draft"], help="one of benchmarks/large.py, in bfloat16"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--entries", type=int, nargs="+", help="that a cache holds")
    words = parser.parse_args()
    if words.threads:
        torch.set_num_threads(words.threads)
    base, sizes = (TINY, (128, 256)) if words.quick else (SPEC, (2048, 4096, 8192, 16_384))
    rounds, tokens = (2, 64) if words.quick else (words.rounds, 2048)
    dtype, device = torch.bfloat16 if words.shape else torch.float32, torch.device(words.device)
    begun, machine = time.perf_counter(), measure(dtype, device)
    shapes = {shape: replace(base, n_kv_heads=heads) for shape, heads in HEADS.items()}
    if words.shape:
        shapes = {SHAPES[words.shape].name: SHAPES[words.shape]}
    lines, slower = list[list[str]](), dict[str, float]()
    for shape, spec in shapes.items():
        model = decoder(spec, dtype, device)
        lines += rows(model, shape, words.entries or sizes, rounds, machine)
        print_note(f"{shape}: a prompt of {tokens:,} tokens")
        slower[shape] = prefill(model, tokens, 1 if words.quick else 2)
    print(table(HEAD, lines))
    for shape, times in slower.items():
        print(f"\n{shape}: H2O reads {tokens:,} tokens in {times:.2f} times the time.")
    print(
        "\nWanted: at 16,384 entries full / this >= 2 and >= 80 % of the cost model's; bytes <= 11 % of full and a page a head;"
        "\nthe policy <= 10 % of a pass; a pass with rows <= 1.15 times the fused one (full / this >= 0.87); a prompt under H2O"
        f"\n<= 1.5 times.\n\n{machine.name}; torch {torch.__version__}; {time.perf_counter() - begun:.0f} s"
    )


if __name__ == "__main__":
    main()
