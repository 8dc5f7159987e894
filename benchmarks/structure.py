"""How far a model that was cut is from the whole one: heads by each way to choose them, and all plans of 2 attention and 2
feed-forward blocks beside what the search ends with.

    python benchmarks/structure.py heads --model lab --tokens 4096
    python benchmarks/structure.py plans --model lab --tokens 512

KL(whole | cut) in nats a token, on the last tokens of the calibration text, which no transform has looked at: they are given
the rest. Loss is that of the next token.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch import Tensor

from decodescope.engine.decoding.bases.weights import CalibrationData, parse_transform_list
from decodescope.engine.methods.weights.evopress import EvoPress
from decodescope.engine.methods.weights.shared.evolution import BlockPlan, all_plans
from decodescope.engine.methods.weights.shared.texts import LENGTH, kl_divergence, text_logits, text_loss
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.session.load import calibration, find_model, load

HEADS = (
    *(f"head_sensitivity cut_share={x}" for x in (0.125, 0.25, 0.5)),
    *(f"head_subset kept_heads={x}" for x in (42, 36, 24)),
    *(f"head_gates l0_penalty={x}" for x in (1, 3)),
    "sparse_nm",
)


def main() -> None:
    """Print what was asked for, a JSON object a line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("heads", "plans"))
    parser.add_argument("--model", default="lab")
    parser.add_argument("--tokens", type=int, default=4096, help="that it is judged on")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    place = find_model(args.model)
    text = calibration(place.folder, place.name)
    held = max(LENGTH, args.tokens // LENGTH * LENGTH)
    model, seen = load(args.model).decoder, CalibrationData(lambda: text[:-held])
    rows = text[-held:].view(-1, LENGTH)
    (heads if args.what == "heads" else plans)(model, seen, rows)


def heads(model: Decoder, seen: CalibrationData, rows: Tensor) -> None:
    """Each way to cut, by what it leaves."""
    with torch.inference_mode():
        dense = text_logits(model, rows)
        print(
            json.dumps(
                {"weights": "", "loss": round(float(text_loss(model, rows)), 4), "params": model.spec.params}
            ),
            flush=True,
        )
    for words in HEADS:
        start, cut = time.perf_counter(), model
        for one in parse_transform_list(words):
            cut = one.transform(cut, seen)
        took, layers = time.perf_counter() - start, range(cut.spec.n_layers)
        with torch.inference_mode():
            far, own = kl_divergence(dense, text_logits(cut, rows)), float(text_loss(cut, rows))
        kept = {"heads": sum(map(cut.spec.heads_at, layers)), "kv_heads": sum(map(cut.spec.kv_at, layers))}
        print(
            json.dumps(
                {"weights": words, "kl": round(far, 4), "loss": round(own, 4), **kept, "s": round(took, 1)}
            ),
            flush=True,
        )


def plans(model: Decoder, seen: CalibrationData, rows: Tensor) -> None:
    """All plans: each with the sum of its blocks' own divergences next to its own, and where the search ends."""
    blocks = range(model.spec.n_layers)
    with torch.inference_mode():
        dense = text_logits(model, rows)

        def far(plan: BlockPlan) -> float:
            return kl_divergence(dense, text_logits(model, rows, plan.skip))

        alone = {plan: far(plan) for counts in ((1, 0), (0, 1)) for plan in all_plans(blocks, blocks, counts)}
        table = {plan: far(plan) for plan in all_plans(blocks, blocks, (2, 2))}
    total = {
        plan: sum(alone[BlockPlan((i,), ())] for i in plan.attn)
        + sum(alone[BlockPlan((), (i,))] for i in plan.ffn)
        for plan in table
    }
    order, by_sum = sorted(table, key=table.__getitem__), min(total, key=total.__getitem__)
    pair = (
        torch.tensor([[total[plan] for plan in order], [table[plan] for plan in order]])
        .argsort(1)
        .argsort(1)
        .double()
    )
    print(json.dumps({"alone": {plan.words: round(x, 3) for plan, x in alone.items()}}))
    for name, plan in (("best", order[0]), ("by the sum of errors", by_sum), ("worst", order[-1])):
        print(
            json.dumps(
                {"plan": name, "skip": plan.words, "kl": round(table[plan], 4), "rank": order.index(plan) + 1}
            )
        )
    print(
        json.dumps(
            {
                "plans": len(table),
                "rank correlation of sum and KL": round(float(torch.corrcoef(pair)[0, 1]), 3),
            }
        ),
        flush=True,
    )
    for seed in range(3):
        start = time.perf_counter()
        with torch.inference_mode():
            last = EvoPress(attention_blocks=2, ffn_blocks=2, seed=seed).history(model, seen)[-1].best
        took = round(time.perf_counter() - start, 1)
        rank = order.index(last) + 1
        print(
            json.dumps(
                {"search": seed, "skip": last.words, "kl": round(table[last], 4), "rank": rank, "s": took}
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
