"""Toy models: seeded, tiny, with a vocabulary so small that everything can be counted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from decodescope.engine.core.component import registry
from decodescope.engine.core.spec import ModelSpec, PictureSpec, Rope
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.weights import CalibrationData, parse_transform_list
from decodescope.engine.model.forward.decoder import Decoder, Layer
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.files import GATES, NETS
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.batch.shared_passes import SharedPassStats, decode_together
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method
from decodescope.engine.session.session import Session
from decodescope.engine.trace import Trace
from decodescope.engine.trace.details.picture_passes import picture_start

T = TypeVar("T")

torch.set_num_threads(1)  # a toy's products are too small to share between threads

SPEC = ModelSpec(
    "toy", n_layers=3, n_heads=4, n_kv_heads=2, head_dim=8, d_model=32, d_ff=64, vocab=13, max_positions=512, rope=Rope(dim=8),
    heads=tuple(NETS), pad_token=7,
)  # fmt: skip
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 3, 1, 4]


def decoder(
    spec: ModelSpec = SPEC, seed: int = 0, dtype: torch.dtype = torch.float32, sharp: float = 4.0
) -> Decoder:
    """A random decoder; `sharp` scales the unembedding, so that its distributions are neither flat nor certain."""
    g = torch.Generator().manual_seed(seed)

    def w(*shape: int) -> torch.Tensor:
        weights: torch.Tensor = (
            torch.randn(*shape, generator=g, dtype=torch.float64) * shape[-1] ** -0.5
        ).to(dtype)
        return weights

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
    toy = Decoder(spec, embed, layers, torch.ones(d, dtype=dtype), w(spec.vocab, d) * sharp)
    sizes = {kind: {name: getattr(spec, name) for name in NETS[kind].of_target} for kind in spec.heads}
    toy.heads = Heads(spec.heads, lambda kind: heads(kind, d, seed, **sizes[kind]).copy_to(dtype=dtype))
    return toy


class Heads(MutableMapping[str, Head]):
    """The heads of a decoder by kind, each created on first use: a test needs few, and all take 40 ms."""

    def __init__(self, kinds: Iterable[str], make: Callable[[str], Head]) -> None:
        self.nets: dict[str, Head | None] = dict.fromkeys(kinds)
        self.make = make

    def __getitem__(self, kind: str) -> Head:
        if (head := self.nets[kind]) is None:
            with torch.inference_mode(False):  # a run may be the first to use it, and a training the next
                head = self.nets[kind] = self.make(kind)
        return head

    def __setitem__(self, kind: str, head: Head) -> None:
        self.nets[kind] = head

    def __delitem__(self, kind: str) -> None:
        del self.nets[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self.nets)

    def __len__(self) -> int:
        return len(self.nets)


# sizes of the toy's draft heads, except for the width
SHAPES = {
    "medusa": dict(heads=3),
    "hydra": dict(heads=3, rank=8),
    "eagle": dict(n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16),
    "eagle3": dict(vocab=13, kept=11, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16),
    "p_eagle": dict(vocab=13, kept=11, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16),
    "mtp": dict(n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16),
    "kangaroo": dict(layer=1, n_heads=4, n_kv_heads=2, head_dim=8),
    "blockwise": dict(heads=3, hidden=8),
    "mlp_speculator": dict(heads=3, inner=16),
    "redrafter": dict(heads=3, inner=16, blocks=2),
    "fspad": dict(n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16, rank=5),
    "parallelspec": dict(masks=3, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16),
    "dflash": dict(
        vocab=13, kept=11, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=16, block=4, layers=2, own_mask=1
    ),
    "dspark": dict(
        vocab=13,
        kept=11,
        n_heads=4,
        n_kv_heads=2,
        head_dim=8,
        d_ff=16,
        block=3,
        layers=2,
        anchor=1,
        own_mask=1,
        rank=5,
        markov=1,
        confidence=2,
    ),
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
    "coprocessor": dict(tokens=4, rank=2),
    "block_transformer": dict(vocab=13, block_length=4, layers=2, n_heads=4, head_dim=8, d_ff=16),
}


def heads(kind: str, d: int, seed: int = 0, **changes: int) -> Head:
    """Random, untrained draft heads; they are right by chance alone."""
    g = torch.Generator().manual_seed(seed)
    net = NETS[kind](d=d, **{**SHAPES[kind], **changes})
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(
                torch.randn(p.shape, generator=g) * (p.shape[-1] ** -0.5 if p.ndim > 1 else 0.3)
                + (p.ndim == 1)
            )
    return net


def noisy_decoder(base: Decoder, noise: float, seed: int = 1) -> Decoder:
    """A decoder with the weights of `base` and some noise: a draft model that is right now and then. It has a mask token."""
    spec = replace(base.spec, mask_token=max(0, base.spec.vocab - 2))
    g = torch.Generator().manual_seed(seed)

    def blur(x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(x.shape, generator=g, dtype=torch.float64).to(x.dtype) * noise * x.abs().mean()

    layers = [
        Layer(a.attn_norm, blur(a.qkv), blur(a.out), a.mlp_norm, blur(a.gate_up), blur(a.down))
        for a in base.layers
    ]
    toy = Decoder(spec, blur(base.embed), layers, base.norm, blur(base.head))
    toy.heads = Heads(
        (kind for kind in base.heads if kind in GATES), lambda kind: cast(Head, base.heads[kind])
    )
    return toy


def transformed_decoder(weights: str, base: Decoder) -> Decoder:
    """The model that transforms, joined with +, make from another; transforms that read text get random tokens."""
    text = CalibrationData(
        lambda: torch.randint(base.spec.vocab, (4096,), generator=torch.Generator().manual_seed(3))
    )
    for one in parse_transform_list(weights):
        base = one.transform(base, text)
    return base


def model(toy: Decoder) -> Model:
    """A loaded model without a tokenizer."""
    return Model(toy.spec.name, cast(Path, None), toy.spec, toy, None, "0" * 16, [])


def target(dtype: torch.dtype = torch.float32, seed: int = 0) -> Model:
    """The toy target."""
    return model(decoder(seed=seed, dtype=dtype))


def draft(dtype: torch.dtype = torch.float32, noise: float = 0.4, seed: int = 0) -> Model:
    """Its draft model."""
    return model(noisy_decoder(decoder(seed=seed, dtype=dtype), noise))


def cache_by_dtype(make: Callable[..., T]) -> Callable[..., T]:
    """Cache the result of `make` for each type of numbers; the default is double precision, always the same object."""
    kept = cache(make)
    return lambda dtype=torch.float64, *rest, **more: kept(dtype, *rest, **more)


LIVELY = 3  # the seed of a target with a greedy text that does not loop


@cache_by_dtype
def pair(dtype: torch.dtype, noise: float = 0.08) -> tuple[Model, Model]:
    """A target with lively greedy text, and a draft model that is right about every second time."""
    return target(dtype, LIVELY), draft(dtype, noise, LIVELY)


@cache_by_dtype
def bidirectional_target(dtype: torch.dtype) -> Model:
    """A lively target without a causal mask; its last id is its mask token."""
    spec = toy_spec(causal=False, heads=("learn2pd", "edit"), mask_token=SPEC.vocab - 1)
    return model(decoder(spec, LIVELY, dtype))


@cache
def tagging_target(seed: int = 3) -> Model:
    """The same with a head that needs all four tags."""
    tags = model(copy.copy(bidirectional_target().decoder))
    head: Any = heads("edit", tags.spec.d_model, seed)
    with torch.no_grad():
        head.tags.weight.mul_(6)
        head.tags.bias.zero_()
        head.replace.weight.mul_(4)
        head.insert.weight.mul_(4)
    tags.decoder.heads = {"edit": head.copy_to(dtype=torch.float64)}
    return tags


LEVELS = (0, 2, 6, 7, 8, 10, 11, 12)  # the last token of PROMPT is none: pictures begin after it


@cache_by_dtype
def raster_target(dtype: torch.dtype) -> Model:
    """A lively target that writes pictures of 8 x 8 cells in raster order."""
    return model(decoder(toy_spec(heads=(), picture=PictureSpec(8, 8, LEVELS)), LIVELY, dtype))


@cache_by_dtype
def any_order_target(dtype: torch.dtype) -> Model:
    """A lively target that writes the cells of such pictures in any order, each after an instruction."""
    instructions = tuple(range(SPEC.vocab, SPEC.vocab + 64))
    spec = toy_spec(heads=(), vocab=SPEC.vocab + 64, picture=PictureSpec(8, 8, LEVELS, instructions))
    return model(decoder(spec, LIVELY, dtype))


@cache_by_dtype
def block_target(dtype: torch.dtype) -> Model:
    """A lively token decoder of a Block Transformer with blocks of 4 tokens."""
    return model(decoder(toy_spec(heads=("block_transformer",), block_length=4), LIVELY, dtype))


def strategy_target(strategy: Any, dtype: torch.dtype = torch.float64) -> Model:
    """The lively target for a strategy."""
    if strategy.sides == "both":
        return bidirectional_target(dtype)
    kinds = {
        "text": lambda _: pair(dtype)[0],
        "rows": raster_target,
        "cells": any_order_target,
        "blocks": block_target,
    }
    return kinds[strategy.writes](dtype)


@cache_by_dtype
def helper_models(dtype: torch.dtype) -> dict[str, Model]:
    """A model in every role.
    The roles are the lively pair's draft model, which is also the amateur, two more that make other errors, and one that
    fills masked places."""
    target, small = pair(dtype)
    more = {f"draft{n}": model(noisy_decoder(target.decoder, 0.08, seed=n)) for n in (2, 3)}
    return {"draft": small, "amateur": small, "short": small, "infill": bidirectional_target(dtype), **more}


@torch.inference_mode()
def feed_tokens(lane: Lane, *tokens: int) -> torch.Tensor:
    """Logits [T, V] of a chain of tokens after what a lane has read; the chain is committed."""
    logits = lane.forward(Feed.causal_chain(list(tokens), len(lane.tokens)))
    lane.commit(list(range(len(tokens))))
    return logits[0]


def prompts(count: int, length: int = 12, seed: int = 0, vocab: int = SPEC.vocab) -> list[list[int]]:
    """Random prompts."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocab, (count, length), generator=g).tolist()


@torch.inference_mode()
def greedy_text(toy: Decoder, prompt: list[int], count: int) -> list[int]:
    """The greedy text, computed by reading the whole text again for every token: no cache, no session.
    A model without a causal mask fills masked places from left to right. A model that is given the next cell to write writes
    all cells in raster order."""
    if toy.spec.picture is not None and toy.spec.picture.cells:
        return greedy_picture_levels(toy, prompt, count)
    if toy.spec.block_length:
        return greedy_block_text(toy, prompt, count)
    text, mask = list(prompt), None if toy.spec.causal else toy.spec.mask_token
    for left in range(count, 0, -1):
        behind = [] if mask is None else [mask] * left
        row = toy.forward(Feed.causal_chain(text + behind, 0), None)[0, len(text) - (mask is None)]
        text.append(
            int((row if mask is None else row.index_fill(0, torch.tensor(mask), -torch.inf)).argmax())
        )
    return text[len(prompt) :]


@cache
def _cached_greedy_text(toy: Decoder, prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    return tuple(greedy_text(toy, list(prompt), count))


def cached_greedy_text(toy: Model, prompt: list[int], count: int = 40) -> list[int]:
    """The greedy text of one of the models above, which no test changes: it is computed once for all callers."""
    return [*_cached_greedy_text(toy.decoder, tuple(prompt), count)]


@torch.inference_mode()
def greedy_block_text(toy: Decoder, prompt: list[int], count: int) -> list[int]:
    """The greedy text of a Block Transformer: for every token it reads all blocks again.
    Then it reads the last block's tokens after its prefix."""
    size, head = toy.spec.block_length, cast(Any, toy.heads["block_transformer"])
    text = [cast(int, toy.spec.pad_token)] * (-len(prompt) % size) + prompt
    for _ in range(count):
        whole = len(text) // size * size
        feed = Feed.causal_chain([0] * (whole // size), 0)
        feed.embed_rows = torch.ones(whole // size, dtype=torch.bool)
        feed.embeds = head.embed_blocks(torch.tensor([text[:whole]]))
        own = Feed.causal_chain([0, *text[whole:]], 0)
        own.embeds = head.decoder(toy.spec).forward(feed, None)[:, -1:].expand(-1, own.length, -1)
        own.embed_rows = torch.arange(own.length) == 0
        text.append(int(toy.forward(own, None)[0, -1].argmax()))
    return text[-count:]


@torch.inference_mode()
def greedy_picture_levels(toy: Decoder, prompt: list[int], count: int) -> list[int]:
    """The greedy levels of a picture's cells, written in raster order, after those that the prompt ends with."""
    picture = toy.spec.picture
    assert picture is not None
    begin = picture_start(prompt, picture.levels)
    levels = prompt[begin:]
    while len(levels) < len(prompt) - begin + count:
        asked_before = [x for pair in zip(picture.cells, levels, strict=False) for x in pair]
        asked = [*prompt[:begin], *asked_before, picture.cells[len(levels)]]
        levels.append(int(toy.forward(Feed.causal_chain(asked, 0), None)[0, -1].argmax()))
    return levels[len(prompt) - begin :]


LONG = dict(definition="[a-l]{60}")  # a grammar of texts that no test writes to their end


def method(**parts: str | tuple[str, dict[str, Any]]) -> Method:
    """A method from names, or from names with settings: method(drafter=("prompt_lookup", {"length": 4})).
    A strategy that requires a grammar gets one."""
    named = {kind: part if isinstance(part, str) else part[0] for kind, part in parts.items()}
    if named.get("strategy") == "aligned" and "sampler" not in parts:
        parts, named["sampler"] = {**parts, "sampler": ("grammar", LONG)}, "grammar"
    return Method.from_names(
        named, {kind: part[1] for kind, part in parts.items() if not isinstance(part, str)}
    )


def router_strategy(router: str) -> str:
    """A strategy with turns or answers that this router decides about."""
    return "switch" if "token" in registry("router")[router].of else "cascade"  # type: ignore[attr-defined] # a Router's


class LetterTokenizer:
    """A tokenizer of a toy: the first ids are letters, the last of SPEC's ends a text."""

    end = SPEC.vocab - 1
    marks = frozenset({end})
    stop_ids = (end,)

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token represents."""
        return b"<end>" if token == self.end else chr(97 + token).encode()

    def piece(self, token: int) -> str:
        """The text that a token represents."""
        return self.bytes_of(token).decode()

    def decode(self, ids: list[int]) -> str:
        """The text of some ids."""
        return "".join(map(self.piece, ids))

    def __deepcopy__(self, memo: object) -> LetterTokenizer:
        return self


LETTERS = LetterTokenizer()


def add_tokenizer(silent: Model) -> Model:
    """The same model with letters as token ids."""
    return replace(silent, tokenizer=LETTERS, stop_tokens=[LETTERS.end])  # type: ignore[arg-type] # stands in for one


def method_models(chosen: Method, dtype: torch.dtype = torch.float64) -> tuple[Model, dict[str, Model]]:
    """The target that a method fits, and a model in every role; with a tokenizer where its sampler reads text."""
    big, others = strategy_target(chosen.strategy, dtype), helper_models(dtype)
    return (
        (add_tokenizer(big), {role: add_tokenizer(x) for role, x in others.items()})
        if chosen.sampler.reads_text
        else (big, others)
    )


def decode(
    toy: Method | None = None, prompt: list[int] | None = None, count: int = 40, **more: Any
) -> Session:
    """A finished session of the lively pair, or of the model that reads both sides, its trace in `sink`."""
    return finish_session(open_session(toy, prompt, count, **more))


def open_session(
    toy: Method | None = None, prompt: list[int] | None = None, count: int = 40, **more: Any
) -> Session:
    """The same session before its first step."""
    toy = toy or Method()
    given, (big, models) = more.pop("pair", None), method_models(toy)
    if given is not None and strategy_target(toy.strategy) is pair()[0]:
        big, models = given[0], {**models, "draft": given[1]}
    return Session(big, toy, prompt or PROMPT, models=models, max_new_tokens=count, **more)


def session_trace(session: Session) -> Trace:
    """The trace of a session that writes to it."""
    assert isinstance(session.sink, Trace)
    return session.sink


def finish_session(session: Session) -> Session:
    """The session at its end, its trace in `sink`."""
    session.sink = Trace()
    for _ in session.stream():
        pass
    return session


def decode_in_lockstep(sessions: list[Session]) -> SharedPassStats:
    """Decode sessions that run together to their ends; raises what was raised in one of them."""

    def over(session: Session, error: Exception | None) -> None:
        if error is not None:
            raise error

    return decode_together(sessions, len(sessions), over=over)


@torch.inference_mode()
def matches_fresh_reading(lane: Lane, atol: float = 1e-9) -> bool:
    """Whether a lane that keeps everything holds what a new reading of its tokens would leave, and nothing pending."""
    cache = KVCache(lane.decoder.spec, dtype=lane.decoder.dtype)
    lane.decoder.forward(Feed.causal_chain(lane.tokens, 0), cache)
    cache.commit(range(len(lane.tokens)))
    pairs = list(zip(lane.cache.layers, cache.layers, strict=True))
    return all(
        a.m == 0
        and a.n == b.n
        and torch.allclose(a.k, b.k, atol=atol)
        and torch.allclose(a.v, b.v, atol=atol)
        for a, b in pairs
    )


def toy_spec(**changes: Any) -> ModelSpec:
    """The toy's shape with some changes."""
    return replace(SPEC, **changes)


def add_row_noise(smooth: Model, size: float = 0.05) -> Model:
    """The same model, but no two rows of its passes round alike: to each logit comes noise of up to `size`. In half types a row
    differs so from an equal row, and from itself in another pass."""
    toy, noise = copy.copy(smooth.decoder), torch.Generator().manual_seed(5)

    def unembed(feature: torch.Tensor) -> torch.Tensor:
        logits = Decoder.unembed(toy, feature)
        return logits + (torch.rand(logits.shape, generator=noise) * 2 - 1).to(logits.dtype) * size

    toy.unembed = unembed  # type: ignore[method-assign] # of this decoder alone
    return replace(smooth, decoder=toy)
