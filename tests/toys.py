"""Toy models: seeded, tiny, with a vocabulary so small that everything can be counted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from entries import entry

from decodescope.engine import Method, Session
from decodescope.engine.core.component import registry
from decodescope.engine.core.spec import ModelSpec, Picture, Rope
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.weights import Calibration, transforms
from decodescope.engine.model.forward.decoder import Decoder, Layer
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.files import GATES, NETS
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.batch.together import Figures, together
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace
from decodescope.engine.trace.details.pictured import begins

T = TypeVar("T")

torch.set_num_threads(1)  # a toy's products are too small to share

SPEC = ModelSpec(
    "toy", n_layers=3, n_heads=4, n_kv_heads=2, head_dim=8, d_model=32, d_ff=64, vocab=13, max_positions=512, rope=Rope(dim=8),
    heads=tuple(NETS), pad_token=7,
)  # fmt: skip
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 3, 1, 4]


def decoder(
    spec: ModelSpec = SPEC, seed: int = 0, dtype: torch.dtype = torch.float32, sharp: float = 4.0
) -> Decoder:
    """A random decoder; `sharp` scales the unembedding, so that its laws are neither flat nor certain."""
    g = torch.Generator().manual_seed(seed)

    def w(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=g, dtype=torch.float64) * shape[-1] ** -0.5).to(dtype)

    d, width = spec.d_model, spec.n_heads * spec.head_dim
    layers = [
        Layer(
            torch.ones(d, dtype=dtype),
            w((spec.n_heads + 2 * spec.n_kv_heads) * spec.head_dim, d) * 2,
            w(d, width),
            torch.ones(d, dtype=dtype),
            w(2 * spec.d_ff, d),
            w(d, spec.d_ff),
        )
        for _ in range(spec.n_layers)
    ]
    embed = w(spec.vocab, d) * d**0.5
    made = Decoder(spec, embed, layers, torch.ones(d, dtype=dtype), w(spec.vocab, d) * sharp)
    sizes = {kind: {name: getattr(spec, name) for name in NETS[kind].of_target} for kind in spec.heads}
    made.heads = Heads(spec.heads, lambda kind: heads(kind, d, seed, **sizes[kind]).moved(dtype=dtype))
    return made


class Heads(MutableMapping[str, Head]):
    """The heads of a decoder by kind, each made when it is first asked for: a test wants few, and all take 40 ms."""

    def __init__(self, kinds: Iterable[str], make: Callable[[str], Head]) -> None:
        self.made: dict[str, Head | None] = dict.fromkeys(kinds)
        self.make = make

    def __getitem__(self, kind: str) -> Head:
        if (head := self.made[kind]) is None:
            with torch.inference_mode(False):  # a run may be the first to ask, and a training the next
                head = self.made[kind] = self.make(kind)
        return head

    def __setitem__(self, kind: str, head: Head) -> None:
        self.made[kind] = head

    def __delitem__(self, kind: str) -> None:
        del self.made[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self.made)

    def __len__(self) -> int:
        return len(self.made)


# sizes of the toy's draft heads, but for the width
SHAPES = {
    "medusa": dict(heads=3),
    "hydra": dict(heads=3, rank=8),
    "eagle": dict(n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16),
    "eagle3": dict(vocab=13, kept=11, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16),
    "kangaroo": dict(layer=1, n_heads=4, n_kv_heads=2, head_dim=8),
    "blockwise": dict(heads=3, hidden=8),
    "mlp_speculator": dict(heads=3, inner=16),
    "redrafter": dict(heads=3, inner=16, blocks=2),
    "fspad": dict(n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16, rank=5),
    "parallelspec": dict(masks=3, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16),
    "cerberus": dict(),
    "clover": dict(heads=3, gates=2, gate_dim=4, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16, rank=6),
    "ppd": dict(heads=3, ensemble=2),
    "look_ahead_tokens": dict(heads=3),
    "bita": dict(heads=3, tokens=4),
    "judge": dict(),
    "specdec": dict(blocks=3),
    "correctness": dict(inner=4),
    "duo_attention": dict(),
    "cot_influx": dict(rank=4),
    "color": dict(rank=4),
    "learn2pd": dict(block=6, hidden=5),
    "exits": dict(rank=4),
    "skip_layer": dict(),
    "edit": dict(layer=1, width=8, hidden=6),
    "trigrams": dict(layer=1, rank=4),
    "past_future": dict(rank=3),
    "ntk_attention": dict(),
    "compress_then_prompt": dict(tokens=3),
    "block_transformer": dict(vocab=13, block_length=4, layers=2, n_heads=4, head_dim=8, d_ff=16),
}


def heads(kind: str, d: int, seed: int = 0, **changes: int) -> Head:
    """Random draft heads: nobody trained them, so they are right by chance alone."""
    g = torch.Generator().manual_seed(seed)
    made = NETS[kind](d=d, **{**SHAPES[kind], **changes})
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(
                torch.randn(p.shape, generator=g) * (p.shape[-1] ** -0.5 if p.ndim > 1 else 0.3)
                + (p.ndim == 1)
            )
    return made


def noisy(base: Decoder, noise: float, seed: int = 1) -> Decoder:
    """A decoder whose weights are those of `base` and some noise: a draft model that is right now and then."""
    g = torch.Generator().manual_seed(seed)

    def blur(x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(x.shape, generator=g, dtype=torch.float64).to(x.dtype) * noise * x.abs().mean()

    layers = [
        Layer(a.attn_norm, blur(a.qkv), blur(a.out), a.mlp_norm, blur(a.gate_up), blur(a.down))
        for a in base.layers
    ]
    made = Decoder(base.spec, blur(base.embed), layers, base.norm, blur(base.head))
    made.heads = Heads((kind for kind in base.heads if kind in GATES), lambda kind: base.heads[kind])
    return made


def made_by(weights: str, base: Decoder) -> Decoder:
    """The model that transforms, joined with +, make of another; those that look at text see random tokens."""
    text = Calibration(
        lambda: torch.randint(base.spec.vocab, (4096,), generator=torch.Generator().manual_seed(3))
    )
    for one in transforms(weights):
        base = one.made(base, text)
    return base


def model(made: Decoder) -> Model:
    """A loaded model without a tokenizer."""
    return Model(made.spec.name, None, made.spec, made, None, "0" * 16, [])


def target(dtype: torch.dtype = torch.float32, seed: int = 0) -> Model:
    """The toy target."""
    return model(decoder(seed=seed, dtype=dtype))


def draft(dtype: torch.dtype = torch.float32, noise: float = 0.4, seed: int = 0) -> Model:
    """Its draft model."""
    return model(noisy(decoder(seed=seed, dtype=dtype), noise))


def by_type(make: Callable[..., T]) -> Callable[..., T]:
    """Keeps what `make` gives for each type of numbers; without one it is double precision, and the same object."""
    kept = cache(make)
    return lambda dtype=torch.float64, *rest, **more: kept(dtype, *rest, **more)


LIVELY = 3  # the seed of a target whose greedy text does not run into a loop


@by_type
def pair(dtype: torch.dtype, noise: float = 0.08) -> tuple[Model, Model]:
    """A target with lively greedy text, and a draft model that is right about every second time."""
    return target(dtype, LIVELY), draft(dtype, noise, LIVELY)


@by_type
def both(dtype: torch.dtype) -> Model:
    """A lively target without a causal mask, whose last id is its mask token."""
    spec = shaped(causal=False, heads=("learn2pd", "edit"), mask_token=SPEC.vocab - 1)
    return model(decoder(spec, LIVELY, dtype))


@cache
def tagging(seed: int = 3) -> Model:
    """The same with a head that wants all four tags."""
    tags = model(copy.copy(both().decoder))
    head = heads("edit", tags.spec.d_model, seed)
    with torch.no_grad():
        head.tags.weight.mul_(6)
        head.tags.bias.zero_()
        head.replace.weight.mul_(4)
        head.insert.weight.mul_(4)
    tags.decoder.heads = {"edit": head.moved(dtype=torch.float64)}
    return tags


LEVELS = (0, 2, 6, 7, 8, 10, 11, 12)  # the last token of PROMPT is none: pictures begin behind it


@by_type
def raster(dtype: torch.dtype) -> Model:
    """A lively target that writes pictures of 8 x 8 cells in raster order."""
    return model(decoder(shaped(heads=(), picture=Picture(8, 8, LEVELS)), LIVELY, dtype))


@by_type
def told(dtype: torch.dtype) -> Model:
    """A lively target that writes the cells of such pictures in any order, each behind an instruction."""
    instructions = tuple(range(SPEC.vocab, SPEC.vocab + 64))
    spec = shaped(heads=(), vocab=SPEC.vocab + 64, picture=Picture(8, 8, LEVELS, instructions))
    return model(decoder(spec, LIVELY, dtype))


@by_type
def blocks(dtype: torch.dtype) -> Model:
    """A lively token decoder of a Block Transformer, whose blocks have 4 tokens."""
    return model(decoder(shaped(heads=("block_transformer",), block_length=4), LIVELY, dtype))


def fitting(strategy: Any, dtype: torch.dtype = torch.float64) -> Model:
    """The lively target that a strategy writes with."""
    if strategy.sides == "both":
        return both(dtype)
    kinds = {"text": lambda _: pair(dtype)[0], "rows": raster, "cells": told, "blocks": blocks}
    return kinds[strategy.writes](dtype)


@by_type
def helpers(dtype: torch.dtype) -> dict[str, Model]:
    """A model in every role: the lively pair's draft model, who is an amateur too, two more that err elsewhere, and one that
    fills gaps."""
    target, small = pair(dtype)
    more = {f"draft{n}": model(noisy(target.decoder, 0.08, seed=n)) for n in (2, 3)}
    return {"draft": small, "amateur": small, "short": small, "infill": both(dtype), **more}


@torch.inference_mode()
def fed(lane: Lane, *tokens: int) -> torch.Tensor:
    """Logits [T, V] of a chain of tokens behind what a lane has read, which is committed."""
    logits = lane.forward(Feed.causal(list(tokens), len(lane.tokens)))
    lane.commit(list(range(len(tokens))))
    return logits[0]


def prompts(count: int, length: int = 12, seed: int = 0, vocab: int = SPEC.vocab) -> list[list[int]]:
    """Random prompts."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab, (count, length), generator=g).tolist()


@torch.inference_mode()
def greedy(made: Decoder, prompt: list[int], count: int) -> list[int]:
    """The greedy text, by reading everything anew for every token: no cache, no session. A model that reads both sides fills
    masked places from left to right, one that is told which cell comes next writes all in raster order."""
    if made.spec.picture is not None and made.spec.picture.cells:
        return in_raster(made, prompt, count)
    if made.spec.block_length:
        return in_blocks(made, prompt, count)
    text, mask = list(prompt), made.spec.mask_token
    for left in range(count, 0, -1):
        behind = [] if mask is None else [mask] * left
        row = made.forward(Feed.causal(text + behind, 0), None)[0, len(text) - (mask is None)]
        text.append(
            int((row if mask is None else row.index_fill(0, torch.tensor(mask), -torch.inf)).argmax())
        )
    return text[len(prompt) :]


@cache
def _read(made: Decoder, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    return tuple(greedy(made, list(prompt), count))


def due(made: Model, prompt: list[int], count: int = 40) -> list[int]:
    """The greedy text of one of the models above, which no test changes: it is read once, whoever asks."""
    return [*_read(made.decoder, tuple(prompt), count)]


@torch.inference_mode()
def in_blocks(made: Decoder, prompt: list[int], count: int) -> list[int]:
    """The greedy text of a Block Transformer: all blocks anew for every token, and the last one's tokens behind its prefix."""
    size, head = made.spec.block_length, made.heads["block_transformer"]
    text = [made.spec.pad_token] * (-len(prompt) % size) + prompt
    for _ in range(count):
        whole = len(text) // size * size
        feed = Feed.causal([0] * (whole // size), 0)
        feed.embed_rows = torch.ones(whole // size, dtype=torch.bool)
        feed.embeds = head.embedded(torch.tensor([text[:whole]]))
        own = Feed.causal([0, *text[whole:]], 0)
        own.embeds = head.decoder(made.spec).forward(feed, None)[:, -1:].expand(-1, own.length, -1)
        own.embed_rows = torch.arange(own.length) == 0
        text.append(int(made.forward(own, None)[0, -1].argmax()))
    return text[-count:]


@torch.inference_mode()
def in_raster(made: Decoder, prompt: list[int], count: int) -> list[int]:
    """The greedy levels of a picture's cells, asked for in raster order, behind those that the prompt ends with."""
    picture = made.spec.picture
    begin = begins(prompt, picture.levels)
    levels = prompt[begin:]
    while len(levels) < len(prompt) - begin + count:
        told = [x for pair in zip(picture.cells, levels, strict=False) for x in pair]
        asked = [*prompt[:begin], *told, picture.cells[len(levels)]]
        levels.append(int(made.forward(Feed.causal(asked, 0), None)[0, -1].argmax()))
    return levels[len(prompt) - begin :]


TIMES = str(Path(__file__).resolve().parent / "methods" / "times.json")  # of blocks of the toy, made up
# ids: what the lively target wrote, and noise
DATASTORE = str(Path(__file__).resolve().parent / "methods" / "datastore.txt")

# Settings under which a component does something on a toy; [{}]: as it comes. One without knobs needs no entry.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "aggressive": [{}],
    "anpd": [{}],
    "blockwise": [{}],
    "chains": [{}],
    "llma": [{}],
    "draft_model": [dict(length=3), dict(length=8), dict(length=3, width=3)],
    "layer_skip": [
        dict(ratio=0.5, stop=0.0),
        dict(ratio=0.9, stop=0.3, length=6),
        dict(skip="a1", siblings=True),
    ],
    "medusa": [dict(nodes=8), dict(nodes=1)],
    "hydra": [dict(nodes=8), dict(nodes=20)],
    "mlp_speculator": [dict(kept=4), dict(branching="3,2", kept=1), dict(branching="2,2,2", kept=8)],
    "redrafter": [dict(width=4), dict(width=1, length=4), dict(width=5, length=2, top=2)],
    "ppd": [dict(rows="16"), dict(rows="8"), dict(rows="32")],
    "bita": [dict(), dict(nodes=1), dict(nodes=8)],
    "look_ahead_tokens": [dict(), dict(where="everywhere"), dict(length=2, where="everywhere")],
    "eagle": [dict(nodes=8), dict(nodes=1), dict(nodes=25, depth=2)],
    "eagle2": [
        dict(nodes=8, width=3),
        dict(nodes=1),
        dict(nodes=12, depth=2),
        dict(nodes=6, width=1, depth=6),
    ],
    "eagle3": [dict(nodes=8, width=3), dict(nodes=1), dict(nodes=20, depth=3)],
    "fspad": [dict(nodes=8, width=3), dict(nodes=1), dict(nodes=12, depth=2)],
    "parallelspec": [
        dict(nodes=8, width=3),
        dict(nodes=1, k=1),
        dict(nodes=12, depth=5, k=2),
        dict(nodes=9, width=1, k=4),
    ],
    "clover": [dict(nodes=8), dict(nodes=20)],
    "kangaroo": [dict(length=4, stop=0.0), dict(length=5, stop=0.5)],
    "s2d": [dict(length=4, thresholds=[0.5]), dict(length=3, exits=[1, 2], thresholds=[0.4], heads="exits")],
    "early_exit": [
        dict(length=4, layers=1),
        dict(criterion="confidence_exit threshold=0.5 first=1", stop=0.2),
    ],
    "swift": [
        dict(window=3, ratio=0.5, length=4, stop=0.2),
        dict(window=2, ratio=0.5, stop=0, bayes=2, siblings=False),
    ],
    "prompt_lookup": [dict(length=4, ngram=2), dict(length=12, ngram=1, match="first")],
    "lookahead": [
        dict(window=4, ngram=3, guesses=6, from_prompt=True),
        dict(window=5, ngram=4),
        dict(window=3, ngram=2, guesses=3),
    ],
    "sjd": [dict(window=4), dict(window=3, refill="repeat"), dict(window=1)],
    "rest": [dict(datastore=DATASTORE, nodes=12, shortest=1), dict(datastore=DATASTORE, nodes=1, longest=3)],
    "aded": [dict(datastore=DATASTORE, iterations=40, kept=6), dict(iterations=9, depth=2)],
    "trie": [dict(nodes=12, length=4), dict(nodes=40, query=3, most=8, weight=0.5), dict(nodes=1)],
    "token_recycling": [dict(nodes="16"), dict(nodes="80", from_prompt=False)],
    "sequoia": [dict(nodes=8, depth=4), dict(nodes=12, depth=3, rates="measured")],
    "dyspec": [dict(nodes=8), dict(nodes=12, length=3)],
    "rsd_c": [dict(branching="3,2,1"), dict(branching="1,1,1")],
    "specinfer": [
        dict(models=2, branching="2,1,1"),
        dict(branching="1,2,1"),
        dict(models=3, branching="1,1"),
    ],
    "rasd": [
        dict(datastore=DATASTORE, shortest=1, nodes=6, depth=3, first=5),
        dict(width=1, nodes=2, shortest=1, retrieved=4),
    ],
    "propd": [
        dict(tree="token_recycling nodes=16", layers=1, top=4),
        dict(tree="trie nodes=40, most=8", layers=2, top=6),
    ],
    "online": [dict(length=3, every=1, rate=0.01), dict(length=6, every=3, keep=4, window=16, loss="jsd")],
    "staged": [
        dict(length=5, guess=3),
        dict(length=4, guess=2, table="lookup", ngram=2),
        dict(length=3, guess=0),
    ],
    "rsd_s": [dict(width=3, length=3), dict(width=1, length=4)],
    "leniency": [{}],
    "typical": [{}],
    "lantern": [{}, dict(nearest=8, delta=0.3)],
    "judge": [dict(threshold=0.7), dict(threshold=0.5), dict(threshold=1.0)],
    "heuristic": [dict(), dict(grow=4, shrink=2, most=6)],
    "confidence": [dict(threshold=0.6, most=6), dict(threshold=0.3, tune=False)],
    "specdec_pp": [dict(h=0.7, most=6), dict(h=0.4)],
    "cerberus": [dict(least=0.4), dict(least=0.85)],
    "goodput": [dict(probe=1), dict(batch=64, most=4, probe=2)],
    "adakv": [dict(chosen=5, window=3, reach=1)],
    "fastgen": [
        dict(recover=0.6, sinks=2, frequent=0.2, near=0.1),
        dict(recover=0.3, sinks=1, frequent=0.1, near=0.1),
    ],
    "d2o": [dict(heavy=5, recent=4, sinks=2), dict(heavy=5, recent=4, sinks=0, merge_norm="code", floor=0.2)],
    "duo_attention": [dict(streaming=0.5, sinks=2, recent=6), dict(retrieval="0.0 2.0", sinks=0, recent=4)],
    "ems": [
        dict(centres=5, recent=3, window=4, reach=1),
        dict(centres=4, recent=2, similarity=0.2, covered=0.8),
    ],
    "expected_attention": [dict(sinks=2, chosen=6, future=8)],
    "h2o": [dict(heavy=4, recent=4), dict(heavy=0, recent=3), dict(heavy=3, recent=4, oracle=True)],
    "kvzip": [dict(sinks=2, chosen=5, window=3, chunk=15, lead=2)],
    "speckv": [
        dict(chosen=4, window=3, lookahead=6),
        dict(chosen=3, window=5, lookahead=3, reduce="mean", reach=0),
    ],
    "key_norm": [dict(short=5, recent=3)],
    "pyramidkv": [dict(chosen=5, window=3)],
    "snapkv": [dict(chosen=4, window=3), dict(chosen=3, window=5, reach=0, pool="max")],
    "quest": [dict(entries=48, dense=1)],
    "scissorhands": [dict(pivotal=6, recent=3, window=9), dict(pivotal=5, recent=2, window=6, drop=0.0)],
    "lm_infinite": [
        dict(start=2, window=6),
        dict(start=0, window=4),
        dict(start=2, window=6, middle=2, away=4, above=1),
    ],
    "streaming_llm": [dict(sinks=2, recent=6), dict(sinks=0, recent=4)],
    "tidal_decode": [dict(k=6, start=0, again=0), dict(k=9, start=0, again=1), dict(k=6, start=1, again=0)],
    "tova": [dict(size=6)],
    "window": [dict(size=6)],
    "specpc": [dict(keep=8, window=3, kernel=3, neighbours=3), dict(keep=6, window=2, lookahead=3, layer=0)],
    "selective_context": [dict(ratio=0.4), dict(ratio=0.5, scorer="target", reads="prompt", unit="token")],
    "llmlingua": [dict(rate=0.6), dict(rate=0.4, segment=8, scorer="target", coarse=False)],
    "color": [dict(), dict(rate=0.3, unit="phrase", question="none")],
    "cot_influx": [dict(), dict(rate=0.3, instruction=True, all_tokens=True)],
    "gemfilter": [dict(keep=6, kernel=3), dict(keep=10, layer=2)],
    "compress_then_prompt": [dict(), dict(use=False)],
    "ntk_attention": [dict(), dict(strength=0.0)],
    "gear": [
        dict(group=4, buffer=4, sparsity=0.1, rank=2, later=2),
        dict(group=4, buffer=8, bits="4", sparsity=0.0, rank=1, later=0, outliers="first"),
    ],
    "head_svd": [
        dict(first=8, buffer=4),
        dict(first=12, buffer=5, directions=0.4),
        dict(first=4, buffer=4, together=1),
    ],
    "minicache": [dict(buffer=4), dict(buffer=5, start=0, t=0.3, retention=0.3)],
    "kivi": [dict(group=4, residual=4), dict(bits="4", group=4, residual=8)],
    "entropy_exit": [dict(threshold=1.0, first=1), dict(thresholds="0.5,2.0", over="top", first=1)],
    "normalized_entropy_exit": [dict(threshold=0.5, first=1)],
    "patience": [dict(patience=1, first=1)],
    "past_future": [dict(threshold=0.5, first=1)],
    "free": [dict(threshold=0.05, first=1, max_pending=2), dict(threshold=0.05, first=1, max_pending=8)],
    "saturation": [dict(threshold=0.8, first=1)],
    "vote": [dict(votes=1.2, power=0.4, first=1)],
    "hash_exit": [dict(first=1, buckets=3), dict(first=1, buckets=2, by="random", seed=5)],
    "row_pruning": [dict(keep=0.5, at=[1]), dict(keep=0.7, at=[1, 2])],
    "magic_pyramid": [dict(keep=0.5, at=[1], threshold=0.5, first=1)],
    "layer_plan": [dict(skip=["l1"]), dict(skip=["a2", "f0"])],
    "trigrams": [dict(), dict(layers=2, kilobytes=1), dict(heads="trigrams", kilobytes=0)],
    "skip_layer": [dict(threshold=0.4), dict(threshold=0.2, gap="absent")],
    "skipdecode": [dict(least=1, horizon=12), dict(least=2, horizon=5, warmup=0)],
    "ffn_skip": [
        dict(threshold=0.3, warmup=0, cold_start=0, cold_end=0),
        dict(threshold=-1.0, warmup=3, cold_start=0, cold_end=1),
    ],
    "confidence_exit": [
        dict(threshold=0.6, first=1),
        dict(criterion="state", threshold=0.5, first=1),
        dict(criterion="meta", threshold=0.55, first=1, heads="exits"),
        dict(criterion="oracle", first=1),
    ],
    "beam": [dict(width=3), dict(width=3, plan="flatten", block=16)],
    "contrastive_search": [dict(k=4), dict(k=13, alpha=0.9)],
    "diverse_beam": [dict(width=4, groups=2), dict(width=6, groups=3, strength=1.5, plan="node")],
    "encode_once": [{}],
    "planned": [dict(tests="271\n1", rollouts=10), dict(tests="324108695620314696\n1", k=5, rollouts=8)],
    "exact_extract": [dict(end="7"), dict(end="2", longest=5, chunk=3, normal=True)],
    "apar": [dict(fork="4", child="7"), dict(fork="9", child="0", most=3)],
    "jump_coder": [dict(newline="2", tau=0.0, masks=1, like=1.0)],
    "edit_tags": [dict(block=8), dict(block=5, rounds=9, sure=0.3, draft="3 9 2 4")],
    "skeleton": [dict(ask="3 5 7")],
    "label_parallel": [dict(labels="3\n5", count="3 {label} 7")],
    "lexical_units": [dict(beta=0.3, rows=3), dict(beta=0.0, rows=2, repeats=True, placeholder="5")],
    "superposed": [
        dict(alpha=0.3, temperature=1.0, datastore=DATASTORE),
        dict(drafts=2, alpha=0.0, temperature=0.5),
    ],
    "joint_tokens": [dict(threshold=0.1, datastore=DATASTORE), dict(threshold=0.2, tokens=2, weight=0.0)],
    "pearl": [dict(), dict(machine="a100-80g"), dict(overlap=True)],
    "predictive": [dict(), dict(layers=2, branches=1, heads="exits")],
    "speed": [dict(layers=1), dict(layers=1, heads="exits")],
    "samples": [dict(samples=3), dict(samples=3, plan="node")],
    "aligned": [dict(samples=3)],
    "consensus": [dict(samples=3), dict(samples=4, measure="edit"), dict(samples=5, measure="exact")],
    "jacobi": [
        dict(block=4),
        dict(block=7, guess="random"),
        dict(block=0, guess="prompt"),
        dict(block=5, guess="pad", length=20),
    ],
    "switch": [{}],
    "cascade": [{}],
    "answer_confidence": [dict(tau=0.2), dict(tau=0.9)],
    "trained_confidence": [dict(tau=0.2), dict(tau=0.9)],
    "expected_cost": [dict(tau=0.0), dict(tau=1e6, length=4)],
    "agreement": [dict(tau=0.4, samples=2), dict(tau=1.1, samples=2, second="")],
    "references": [
        dict(tau=0.4, pairs='{"question": "3 1", "answer": "4 1", "right": true}'),
        dict(tau=0.9, pairs='{"question": "3 1", "answer": "4 1", "right": false}'),
    ],
    "entropy": [dict(tau=1.0, window=2, stay=2), dict(tau=1.2, stay=1, start="small", reset=True, shift=0.2)],
    "fallback": [dict(tau=0.5, rollback=1.0, length=4), dict(tau=0.0, rollback=0.0, length=3)],
    "masked": [
        *(dict(block=8), dict(block=5, cache="prefix"), dict(block=8, cache="dual")),
        dict(block=8, grammar='start: ("3" | "4" "6"? | "5" start "8" | "9")+'),
    ],
    "zipar": [dict(window=2), dict(window=5)],
    "randar": [dict(steps=9), dict(steps=12, order="raster")],
    "low_confidence": [dict(steps=3)],
    "random": [dict(steps=3)],
    "mask_predict": [dict(steps=3)],
    "threshold": [dict(tau=0.5), dict(factor=1.0)],
    "explore": [dict(tau=0.6, beyond=0.0), dict(tau=0.6, span=3, tries=3, least=4)],
    "learn2pd": [dict(steps=8, accept=0.55), dict(steps=3, cut=False)],
    "local_leap": [dict(tau=0.7, relaxed=0.4, radius=2)],
    "contrastive": [dict(alpha=0.05, strength=0.5), dict(alpha=0.3, temperature=1.0)],
    "rapid": [
        dict(budget=8, window=3, query=3, strength=20.0),
        dict(budget=9, window=4, query=2, strength=8.0, alpha=0.4),
    ],
    "nest": [
        dict(datastore=DATASTORE, neighbours=100, window=9, temperature=0.2, alpha=0.85),
        dict(datastore=DATASTORE, neighbours=40),
    ],
    "grammar": [dict(text="[a-l]{40}"), dict(text='start: "a" start "b" | /[c-l]+/', dialect="lark")],
    "int8": [dict(head=True), {}],
    "int4": [dict(group=32), dict(group=32, head=True)],
    "codes": [dict(bits=3), dict(bits=2, group=16, head=True)],
    "finequant": [{}, dict(shrink=1.0, head=True)],
    "head_sensitivity": [dict(cut=0.3, tokens=128, rounds=2)],
    "head_subset": [dict(keep=7, steps=2)],
    "head_gates": [dict(price=20.0, steps=4, rate=1.0, start=0.5)],
    "cut_layers": [dict(skip=["a1", "f0"]), dict(skip=["l2"])],
    "evopress": [
        dict(offspring=2, generations=1, first=32, last=32),
        dict(whole=True, generations=1, staged=False, last=32),
    ],
    "width_gates": [dict(cut=0.4, columns=8, steps=2), dict(cut=0.2, columns=16, rank=2, steps=2, start=0.0)],
    "latency_fit": [dict(faster=1.6, times=TIMES, tokens=256, trials=1, judged=64)],
    "sparse_nm": [{}, dict(keep=1, head=True)],
    "pv_tuning": [dict(steps=1), dict(bits=4, group=16, steps=1)],
    "temperature": [dict(temperature=0.8)],
    "top_k": [dict(k=4)],
    "top_p": [dict(p=0.7)],
    "min_p": [dict(share=0.2)],
    "mirostat": [dict(target=1.5, rate=0.3)],
    "mirostat1": [dict(target=1.5, ranks=10)],
    "locally_typical": [dict(tau=0.5)],
    "momentum": [dict(), dict(k=13, alpha=0.0, forbid=3)],
    "repetition_penalty": [{}],
}


def settings_of(kind: str, name: str) -> list[dict[str, Any]]:
    """The settings above of one component; without knobs there is only one."""
    return entry(SETTINGS, name, "SETTINGS of tests/toys.py") if registry(kind)[name].params() else [{}]


def variants(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, settings) of every registered component of `kind`, in every setting above."""
    return [(name, settings) for name in registry(kind) for settings in settings_of(kind, name)]


def representatives(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, settings) of every registered component of `kind`, in the first setting above."""
    return [(name, settings_of(kind, name)[0]) for name in registry(kind)]


LONG = dict(text="[a-l]{60}")  # a grammar of texts that no test writes to their end


def method(**parts: str | tuple[str, dict[str, Any]]) -> Method:
    """A method from names, or from names with settings: method(drafter=("prompt_lookup", {"length": 4})). A strategy that is
    nothing without a grammar gets one."""
    named = {kind: part if isinstance(part, str) else part[0] for kind, part in parts.items()}
    if named.get("strategy") == "aligned" and "sampler" not in parts:
        parts, named["sampler"] = {**parts, "sampler": ("grammar", LONG)}, "grammar"
    return Method.named(named, {kind: part[1] for kind, part in parts.items() if not isinstance(part, str)})


def routed(router: str) -> str:
    """A strategy whose turns or answers this router decides about."""
    return "switch" if "token" in registry("router")[router].of else "cascade"  # type: ignore[attr-defined] # a Router's


class Letters:
    """A tokenizer of a toy: the first ids are letters, the last of SPEC's ends a text."""

    end = SPEC.vocab - 1
    marks = frozenset({end})
    stop_ids = (end,)

    def bytes_of(self, token: int) -> bytes:
        return b"<end>" if token == self.end else chr(97 + token).encode()

    def piece(self, token: int) -> str:
        return self.bytes_of(token).decode()

    def decode(self, ids: list[int]) -> str:
        return "".join(map(self.piece, ids))

    def __deepcopy__(self, memo: object) -> Letters:
        return self


LETTERS = Letters()


def spoken(silent: Model) -> Model:
    """The same model, whose ids are letters."""
    return replace(silent, tokenizer=LETTERS, stop_tokens=[LETTERS.end])  # type: ignore[arg-type] # stands in for one


def company(made: Method, dtype: torch.dtype = torch.float64) -> tuple[Model, dict[str, Model]]:
    """The target that a method fits, and a model in every role; with a tokenizer where its sampler reads text."""
    big, others = fitting(made.strategy, dtype), helpers(dtype)
    return (
        (spoken(big), {role: spoken(x) for role, x in others.items()})
        if made.sampler.reads_text
        else (big, others)
    )


def decode(
    made: Method | None = None, prompt: list[int] | None = None, count: int = 40, **more: Any
) -> Session:
    """A finished session of the lively pair, or of the model that reads both sides, its trace in `sink`."""
    made = made or Method()
    given, (big, models) = more.pop("pair", None), company(made)
    if given is not None and fitting(made.strategy) is pair()[0]:
        big, models = given[0], {**models, "draft": given[1]}
    return finished(Session(big, made, prompt or PROMPT, models=models, max_new_tokens=count, **more))


def finished(session: Session) -> Session:
    """The session at its end, its trace in `sink`."""
    session.sink = Trace()
    for _ in session.stream():
        pass
    return session


def in_step(sessions: list[Session]) -> Figures:
    """Decode sessions that go together to their ends; raises what was raised in one of them."""

    def over(session: Session, error: Exception | None) -> None:
        if error is not None:
            raise error

    return together(sessions, len(sessions), over=over)


@torch.inference_mode()
def same_as_fresh(lane: Lane, atol: float = 1e-9) -> bool:
    """Whether a lane that keeps everything holds what a new reading of its tokens would leave, and nothing pending."""
    cache = KVCache(lane.decoder.spec, dtype=lane.decoder.dtype)
    lane.decoder.forward(Feed.causal(lane.tokens, 0), cache)
    cache.commit(range(len(lane.tokens)))
    pairs = list(zip(lane.cache.layers, cache.layers, strict=True))
    return all(
        a.m == 0
        and a.n == b.n
        and torch.allclose(a.k, b.k, atol=atol)
        and torch.allclose(a.v, b.v, atol=atol)
        for a, b in pairs
    )


def shaped(**changes: Any) -> ModelSpec:
    """The toy's shape with some changes."""
    return replace(SPEC, **changes)


def rough(smooth: Model, size: float = 0.05) -> Model:
    """The same model, but no two rows of its passes round alike: to each logit comes noise of up to `size`. In half types a row
    differs so from an equal row, and from itself in another pass."""
    made, noise = copy.copy(smooth.decoder), torch.Generator().manual_seed(5)

    def unembed(feature: torch.Tensor) -> torch.Tensor:
        logits = Decoder.unembed(made, feature)
        return logits + (torch.rand(logits.shape, generator=noise) * 2 - 1).to(logits.dtype) * size

    made.unembed = unembed  # type: ignore[method-assign] # of this decoder alone
    return replace(smooth, decoder=made)
