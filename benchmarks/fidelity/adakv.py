"""SnapKV and Ada-KV beside ours: the same keys and queries of a prompt; which entries does each KV head keep?

    python benchmarks/fidelity/adakv.py CHECKOUT        # of FFY0/AdaKV

Their `SnapKVCluster` and `AdaptiveSnapKVCluster` get the rotated queries and keys that the model makes of a prompt, one layer
at a time, in the mode that keeps one set for each KV head (the mean over its query heads), and positions in the place of
values. We read the prompt under `snapkv` and `adakv`. Theirs takes any of several entries with equal votes, ours the lower one.
Theirs takes the mean over the query heads before it pools, ours behind it: the same for mean pooling, and not for the largest.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from official import Code, Texts, main, parser, told
from torch import Tensor, nn

from decodescope.engine import Method
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.decoding.values.prompt_attention import PromptAttention
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache, LayerStore

WINDOW = 8
SETTINGS = [
    (policy, chosen, reach, pool)
    for policy in ("snapkv", "adakv")
    for chosen, reach, pool in ((8, 2, "mean"), (24, 3, "mean"), (24, 3, "max"))
]


def theirs(code: Code) -> dict[str, Any]:
    """Policy -> the class of theirs."""
    (repeat,) = code.take("repeat_kv", torch=torch)
    names = ("SnapKVCluster", "AdaptiveSnapKVCluster")
    return dict(
        zip(
            ("snapkv", "adakv"),
            code.take(*names, torch=torch, F=F, nn=nn, math=math, repeat_kv=repeat),
            strict=True,
        )
    )


def kept(cluster: Any, adaptive: bool, q: Tensor, k: Tensor) -> list[list[int]]:
    """The positions that each KV head of theirs keeps; q [1, H_kv, g, n, D], k [1, H_kv, n, D]."""
    places = torch.arange(k.shape[2], dtype=k.dtype)[:, None].expand(k.shape)
    left = cluster.update_kv(k, q.flatten(1, 2), places)[1][..., 0]
    heads = left.split(cluster.head_lens.tolist()) if adaptive else left[0]
    return [sorted(int(x) for x in head) for head in heads]


def watched(policy: Any) -> list[Tensor]:
    """What the entries of each layer get of votes, float [1, H_kv, n], once the prompt has been read."""
    seen: list[Tensor] = []
    worth = policy.worth

    def watch(layer: int, store: LayerStore, prompt: PromptAttention) -> Tensor:
        seen.append(worth(layer, store, prompt))
        return seen[-1]

    policy.worth = watch
    return seen


def tied(votes: Tensor, mine: set[int], other: set[int]) -> bool:
    """Whether the entries that two sets of one head do not share got the same votes, to a millionth of its largest."""
    more, less = (votes[sorted(x)].sort().values for x in (mine - other, other - mine))
    return len(more) == len(less) and bool(((more - less).abs() <= 1e-6 * votes.max()).all())


def counted(
    texts: Texts, i: int, setting: tuple[str, int, int, str], cluster: Any, probe: Probe, cache: KVCache
) -> Counter[str]:
    """Both on the i-th prompt; cluster(layer) is theirs."""
    policy, chosen, reach, pool = setting
    knobs, count = dict(prompt_budget=chosen, window=WINDOW, pool_radius=reach, pool=pool), Counter[str]()
    session = texts.session(Method.from_names({"policy": policy}, {"policy": knobs}), i)
    votes = watched(session.target.policy)
    session.step()
    for layer, store in enumerate(session.target.cache.layers):
        due = kept(cluster(layer), policy == "adakv", probe.queries[layer], cache.layers[layer].k)
        ours = store.positions()[0].expand(len(due), -1).tolist()
        for seen, a, b in zip(votes[layer][0], ours, map(set, due), strict=True):
            mine = {x for x in a if x >= 0}
            count.update(
                sets=1, same=mine == b, tied=mine != b and tied(seen, mine, b), sizes=len(mine) != len(b)
            )
    return count


@torch.inference_mode()
def compare(args: argparse.Namespace) -> None:
    """Read, cut with both, and print."""
    code = Code(args.checkout, "adaptive_snapkv/monkeypatch/snapkv_utils.py")
    classes, texts = theirs(code), Texts(args)
    spec, counts = texts.model.spec, {setting: Counter[str]() for setting in SETTINGS}
    for i, prompt in enumerate(texts.prompts):
        probe, cache = Probe(Needs(queries=len(prompt))), KVCache(spec, dtype=texts.model.decoder.dtype)
        texts.model.decoder.forward(Feed.causal_chain(prompt, 0, logits="last"), cache, probe)
        for setting in SETTINGS:
            policy, chosen, reach, pool = setting
            if len(prompt) <= chosen + WINDOW:
                continue
            given: dict[str, Any] = dict(gqa_support=True, num_key_value_groups=spec.group, gqa_func="mean")
            given |= dict(
                window_size=WINDOW,
                kernel_size=2 * reach + 1,
                pooling={"mean": "avgpool", "max": "maxpool"}[pool],
            )
            adaptive = dict(base_capacity=chosen + WINDOW, floor_alpha=0.5, skip=0, normalize=False)
            given |= adaptive if policy == "adakv" else dict(max_capacity_prompt=chosen + WINDOW)
            cluster = partial(classes[policy], **given, num_hidden_layers=spec.n_layers)
            counts[setting] += counted(
                texts, i, setting, lambda layer, new=cluster: new(layer_idx=layer), probe, cache
            )
    rows = [
        [*setting, *(counts[setting][x] for x in ("sets", "same", "tied", "sizes"))] for setting in SETTINGS
    ]
    told(
        code,
        ("policy", "chosen", "reach", "pool", "sets of a head", "same set", "differ by a tie", "not as many"),
        rows,
    )


if __name__ == "__main__":
    sys.exit(main(compare, parser(__doc__)))
