"""What a device gives large models of random weights: passes beside its bandwidth, steps beside their passes, and `generate`.

    python benchmarks/large.py passes --shape 1b --device cuda    # rows of a pass, and the share of the bandwidth
    python benchmarks/large.py steps  --shape 1b --device cuda    # what drafting, deciding and recording add
    python benchmarks/large.py beside --shape 1b --device cuda    # beside transformers' generate, static cache, compiled

Shapes are those of Llama 3.2 1B and Llama 3.1 8B; the draft model of `steps` is the shape `draft`. Weights are random and
made on the device: what is measured depends on sizes alone, and nobody's drafts are right, so a step of `steps` is all that
it costs and nothing that it gains. Medians, in bfloat16. On a CPU it runs too, with `--shape tiny` in seconds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from operators import STEPS, steps

from decodescope.app.commands.shared.output import table
from decodescope.engine import Method
from decodescope.engine.bench.models import random_decoder_of
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.spec import ModelSpec, Rope
from decodescope.engine.cost.cost import PassShape, pass_cost
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model
from decodescope.engine.session.session import Session
from decodescope.engine.timing.measure import measure

LLAMA = dict(vocab=128_256, max_positions=132_096)  # 128 k, and room to go on
SHAPES = {
    "1b": ModelSpec("random 1 B", 16, 32, 8, 64, 2048, 8192, rope=Rope(500_000.0, 64), tied=True, **LLAMA),
    "8b": ModelSpec("random 8 B", 32, 32, 8, 128, 4096, 14_336, rope=Rope(500_000.0, 128), **LLAMA),
    "draft": ModelSpec("random draft", 4, 8, 2, 64, 512, 2048, rope=Rope(500_000.0, 64), tied=True, **LLAMA),
    "tiny": ModelSpec("random tiny", 2, 4, 2, 8, 32, 64, vocab=256, rope=Rope(dim=8), tied=True),
}
ROWS = (1, 5, 16, 64)
HELD = 256  # entries before a measured pass
NEW = 64  # tokens that `beside` writes


def model(name: str, device: torch.device, seed: int = 0) -> Model:
    """A model of that shape, without a tokenizer."""
    made = random_decoder_of(SHAPES[name], torch.bfloat16, seed, device)
    decoder = made if device.type == "cuda" else made.pack_weights()
    return Model(decoder.spec.name, None, decoder.spec, decoder, None, "0" * 16, [])


def prompt(spec: ModelSpec) -> list[int]:
    """HELD tokens, none of them special."""
    return [3 + i % (spec.vocab - 3) for i in range(HELD)]


@torch.inference_mode()
def passes(name: str, device: torch.device, rounds: int) -> str:
    """Rows of a pass: milliseconds, times one row, GB/s by the cost model's bytes, share of the measured bandwidth."""
    lane, bandwidth = (
        Lane("target", model(name, device).decoder, CachePolicy()),
        measure("bfloat16", device).bandwidth,
    )
    lane.read(prompt(SHAPES[name]))
    ms: dict[int, float] = {}
    for rows in ROWS:
        feed, taken = Feed.causal_chain([7] * rows, HELD, device), []
        for _ in range(rounds + 2):
            lane.take_passes()
            lane.forward(feed)
            lane.rollback()
            taken.append(lane.take_passes()[0].wall_us / 1e3)
        ms[rows] = statistics.median(taken[2:])
    cells = []
    for rows, took in ms.items():
        rate = pass_cost(SHAPES[name], PassShape(rows, HELD, logits=rows)).bytes / took * 1e3
        cells.append(
            [str(rows), f"{took:.2f}", f"{took / ms[1]:.2f}", f"{rate / 1e9:.0f}", f"{rate / bandwidth:.0%}"]
        )
    said = f"the device reads {bandwidth / 1e9:.0f} GB/s"
    return f"{table(('rows', 'ms', 'times one row', 'GB/s', 'of the bandwidth'), cells)}\n\n{said}"


def drafted(name: str, device: torch.device) -> str:
    """Steps of plain decoding and of a draft model's, without and with a record of decisions."""
    target, draft = model(name, device), model(name if name == "tiny" else "draft", device, seed=1)
    asked = prompt(target.spec)
    cells = [
        steps(target, draft, asked, method, level)
        for method in ("none", "draft_model")
        for level in ("summary", "decisions")
    ]
    return table(STEPS, cells)


def beside(name: str, device: torch.device, rounds: int) -> str:
    """Tokens a second of plain decoding and of transformers' `generate` on a model of the same shape, in turns."""
    from transformers import LlamaConfig, LlamaForCausalLM

    spec, ours = SHAPES[name], model(name, device)
    config = LlamaConfig(
        vocab_size=spec.vocab, hidden_size=spec.d_model, intermediate_size=spec.d_ff, num_hidden_layers=spec.n_layers,
        num_attention_heads=spec.n_heads, num_key_value_heads=spec.n_kv_heads, head_dim=spec.head_dim,
        max_position_embeddings=spec.max_positions, tie_word_embeddings=spec.tied, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    with torch.device(device):
        theirs = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    ids = torch.tensor([prompt(spec)], device=device)
    more = dict(
        do_sample=False,
        max_new_tokens=NEW,
        min_new_tokens=NEW,
        pad_token_id=0,
        attention_mask=torch.ones_like(ids),
    )
    if device.type == "cuda":
        more["cache_implementation"] = "static"  # which transformers then compiles

    def plain() -> None:
        session = Session(ours, Method(), prompt(spec), max_new_tokens=NEW, stop_tokens=[], level="summary")
        assert len(list(session.stream())) == NEW

    ways = {"decodescope": plain, "generate": lambda: theirs.generate(ids, **more)}
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds + 2):  # the first two compile, and warm up
        for way, work in ways.items():
            began = time.perf_counter()
            work()
            took[way].append(time.perf_counter() - began)
    rates = {way: NEW / statistics.median(x[2:]) for way, x in took.items()}
    ratio = rates["decodescope"] / rates["generate"]
    return table(("", "tokens/s", "times generate"), [
        ["decodescope", f"{rates['decodescope']:.1f}", f"{ratio:.2f}"], ["generate", f"{rates['generate']:.1f}", "1.00"]
    ])  # fmt: skip


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("passes", "steps", "beside"))
    parser.add_argument("--shape", choices=[x for x in SHAPES if x != "draft"], default="1b")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.exit(2, "No CUDA device is here: take --device cpu, with --shape tiny to see that it runs.\n")
    torch.set_num_threads(args.threads or torch.get_num_threads())
    try:
        if args.what == "steps":
            made = drafted(args.shape, device)
        else:
            made = (passes if args.what == "passes" else beside)(args.shape, device, args.rounds)
    except Refusal as error:
        parser.exit(2, f"{error}\n")
    where = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"cpu, {torch.get_num_threads()} threads"
    )
    print(
        f"{SHAPES[args.shape].name}, bfloat16, {HELD} entries, {where}, torch {torch.__version__}\n\n{made}"
    )


if __name__ == "__main__":
    main()
