"""NVIDIA's kvpress on the prompts that `against_kvpress.py` hands over. Runs in its environment, knows nothing of ours.

    PYTHON kvpress_peer.py JOB.json FOUND.npz

JOB: {"model": folder, "threads": n, "new": tokens, "prompts": [[id, ...], ...], "presses": [[class, arguments, wrapper], ...]},
a wrapper being null or [class, arguments]. FOUND: for press p and prompt i `kept.p.i` bool [L, H_kv, n], which entries a head
keeps behind the prompt, by `score.p.i` float [L, H_kv, n]; `read.p.i` and `step.p.i`, seconds of reading and of a further
token; `bytes.p.i` of the cache.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import kvpress
import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache


def press_of(name: str, arguments: dict[str, Any], wrapper: list[Any] | None) -> Any:
    """The press of that class, in a wrapper's if there is one."""
    press = getattr(kvpress, name)(**arguments)
    return press if wrapper is None else getattr(kvpress, wrapper[0])(press=press, **wrapper[1])


def watched(press: Any, seen: list[np.ndarray], scores: list[np.ndarray]) -> None:
    """From now on add to `seen`, layer by layer, which entries each head keeps, bool [H_kv, n], and to `scores` what they were
    worth, float [H_kv, n]."""
    compress, turned = press.compress, list[torch.Tensor]()
    if isinstance(
        press, kvpress.KeyRerotationPress
    ):  # no key is left as it was, so note which ones are turned
        turn = press.rerotate_keys

        def noted(module: Any, indices: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            turned.append(indices)
            return turn(module, indices, keys)

        press.rerotate_keys = noted
    scorer = getattr(press, "press", press)
    score = scorer.score

    def scored(*args: Any, **more: Any) -> Any:
        found = score(*args, **more)
        scores.append(found[0].numpy().copy())
        return found

    scorer.score = scored

    def both(module: Any, hidden: Any, keys: Any, values: Any, attentions: Any, kwargs: Any) -> Any:
        module.masked_key_indices = None
        left = compress(module, hidden, keys, values, attentions, kwargs)
        if turned:
            kept = torch.zeros(keys.shape[1:3], dtype=torch.bool).scatter(1, turned.pop()[0], True)
        else:
            kept = torch.stack(
                [(left[0][0, h, :, None] == keys[0, h, None]).all(-1).any(0) for h in range(keys.shape[1])]
            )
        if module.masked_key_indices is not None:  # what it only masks is gone too
            _, heads, places = module.masked_key_indices
            kept[heads, places] = False
        seen.append(kept.numpy())
        return left

    press.compress = both


def read(model: Any, ids: torch.Tensor, press: Any) -> tuple[DynamicCache, torch.Tensor, float]:
    """Read a prompt under a press: the cache, the next token [1, 1], seconds."""
    cache, start = DynamicCache(), time.perf_counter()
    with press(model):
        logits = model(ids, past_key_values=cache, logits_to_keep=1).logits
    return cache, logits[:, -1:].argmax(-1), time.perf_counter() - start


def steps(model: Any, cache: DynamicCache, token: torch.Tensor, start: int, new: int) -> float:
    """Write `new` tokens greedily; the median second of one."""
    seconds = []
    for i in range(new):
        begun = time.perf_counter()
        position = torch.tensor([[start + i]])
        token = model(token, past_key_values=cache, position_ids=position).logits[:, -1:].argmax(-1)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


@torch.inference_mode()
def main(job: dict[str, Any], found: Path) -> None:
    """Run every press on every prompt and write what was found."""
    torch.set_num_threads(job["threads"])
    model = AutoModelForCausalLM.from_pretrained(
        job["model"], dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    rows: dict[str, Any] = {"version": kvpress.__file__}
    for p, (name, arguments, wrapper) in enumerate(job["presses"]):
        for i, prompt in enumerate(job["prompts"]):
            ids = torch.tensor([prompt])
            seen = []
            scores = []
            press = press_of(name, arguments, wrapper)
            watched(press, seen, scores)
            read(model, ids, press)
            rows[f"kept.{p}.{i}"], rows[f"score.{p}.{i}"] = np.stack(seen), np.stack(scores)
            cache, token, seconds = read(model, ids, press_of(name, arguments, wrapper))
            tables = [x for layer in cache.layers for x in (layer.keys, layer.values)]
            rows[f"read.{p}.{i}"], rows[f"bytes.{p}.{i}"] = (
                seconds,
                sum(x.untyped_storage().nbytes() for x in tables),
            )
            rows[f"step.{p}.{i}"] = steps(model, cache, token, len(prompt), job["new"])
    np.savez(found, **rows)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
