"""Our policies that cut while text is written, beside kvpress's presses: the same random model and text, key by key.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install kvpress==0.5.5 "transformers<5.3" torch
    python benchmarks/kvpress_decoding.py --peer /tmp/peer/bin/python

The peer makes a Llama of three layers with random weights, reads a text without a repeated token (so that no two keys are
worth the same), writes on token by token under a press, and saves its cache. Ours then reads the same model and text. Two
heads agree if every key that one holds has its like in the other, with the same value. CaM's coin is replaced by its
probability on both sides. kvpress leaves its entries in the order of their scores, so a score by place is compared after
one cut only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

LENGTH, PROMPT, TARGET = 120, 60, 24
BASE: dict[str, Any] = dict(target_entries=TARGET, compress_prompt=False, sink_tokens=0)
# name, press, its scorer, its arguments, our policy, our knobs
CASES: list[tuple[str, str, str, dict[str, Any], str, dict[str, Any]]] = [
    ("norm, every 8", "DecodingPress", "KnormPress", dict(compression_interval=8), "interval_eviction",
     BASE | dict(scorer="norm", interval=8)),
    ("difference, every 7", "DecodingPress", "KeyDiffPress", dict(compression_interval=7), "interval_eviction",
     BASE | dict(scorer="difference", interval=7)),
    ("place, once", "DecodingPress", "StreamingLLMPress", dict(compression_interval=60), "interval_eviction",
     BASE | dict(scorer="place", interval=60, sink_tokens=4)),
    ("place, every token", "CAMPress", "StreamingLLMPress", dict(compression_interval=1, merge_budget=6), "cam",
     BASE | dict(scorer="place", interval=1, sink_tokens=4, merge="expected", merge_window=6)),
    ("norm, every 5", "CAMPress", "KnormPress", dict(compression_interval=5, merge_budget=6), "cam",
     BASE | dict(scorer="norm", interval=5, merge="expected", merge_window=6)),
    ("difference, every 5", "CAMPress", "KeyDiffPress", dict(compression_interval=5, merge_budget=40), "cam",
     BASE | dict(scorer="difference", interval=5, merge="expected", merge_window=40)),
]  # fmt: skip


def run_peer(folder: Path) -> None:
    """Make the model and the text in `folder`, run every press, and save the caches: theirs.npz."""
    import kvpress
    from kvpress.presses.cam_press import CAMPress
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=997, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=512, initializer_range=0.3,
        tie_word_embeddings=False, attn_implementation="sdpa",
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().float()
    model.save_pretrained(folder / "model")
    text = torch.randperm(997)[None, :LENGTH]
    torch.bernoulli = lambda p: p  # type: ignore[assignment] # the expected merge instead of a drawn one
    found = {"text": text[0].numpy()}
    for i, (_, press, scorer, more, _, _) in enumerate(CASES):
        sinks = {"n_sink": 4} if scorer == "StreamingLLMPress" else {}
        made = CAMPress if press == "CAMPress" else getattr(kvpress, press)
        cache = DynamicCache()
        with (
            torch.inference_mode(),
            made(getattr(kvpress, scorer)(**sinks), target_size=TARGET, **more)(model),
        ):
            model(text[:, :PROMPT], past_key_values=cache)
            for at in range(PROMPT, LENGTH):
                place = torch.tensor([at])
                model(
                    text[:, at : at + 1],
                    past_key_values=cache,
                    position_ids=place[None],
                    cache_position=place,
                )
        for j, layer in enumerate(cache.layers):
            found[f"{i}.{j}.k"], found[f"{i}.{j}.v"] = layer.keys[0].numpy(), layer.values[0].numpy()
    np.savez(folder / "theirs.npz", **found)


def count_alike(folder: Path) -> list[list[str]]:
    """A row for each case: how many heads agree of how many, and the largest difference of a key or value in those."""
    from decodescope.engine import load
    from decodescope.engine.core.component import build
    from decodescope.engine.decoding.bases.lane import Lane
    from decodescope.testing import toys

    model, theirs, rows = load(str(folder / "model"), "float32"), np.load(folder / "theirs.npz"), []
    text = theirs["text"].tolist()
    for i, (name, press, _, _, policy, knobs) in enumerate(CASES):
        lane = Lane("target", model.decoder, build("policy", policy, knobs))
        lane.policy.begin(model.spec, PROMPT)
        with torch.inference_mode():
            lane.read(text[:PROMPT])
            for token in text[PROMPT:]:
                toys.feed_tokens(lane, token)
        errors = []
        for j, store in enumerate(lane.cache.layers):
            k, v = (torch.tensor(theirs[f"{i}.{j}.{x}"]) for x in "kv")
            for h in range(len(store.lengths)):
                apart = (store.k[0, h][:, None] - k[h]).abs().amax(-1)
                near = apart.argmin(1)
                both = torch.cat(
                    [apart.gather(1, near[:, None])[:, 0], (store.v[0, h] - v[h][near]).abs().amax(-1)]
                )
                same = len(k[h]) == store.n == len(set(near.tolist()))
                errors.append(float(both.max()) if same else float("inf"))
        good = [x for x in errors if x < 1e-3]
        rows.append(
            [f"{policy} / {press}", name, str(len(errors)), str(len(good)), f"{max(good, default=0):.0e}"]
        )
    return rows


def main() -> int:
    """Read the command line, run both sides and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", metavar="PYTHON", help="the Python of an environment with kvpress")
    parser.add_argument("--inside", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        run_peer(args.inside)
        return 0
    if not args.peer:
        parser.error("give --peer, the Python of an environment with kvpress")
    from decodescope.app.commands.shared.output import table

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([args.peer, __file__, "--inside", folder], check=True)
        rows = count_alike(Path(folder))
    print(table(("ours / theirs", "cuts", "heads", "the same", "largest difference"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
