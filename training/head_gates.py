"""Which KV heads look things up far away: DuoAttention's gates, trained while the model is frozen.

A window of 512 tokens says something, goes on with a story, and says the same again: a passage, or ten sentences with a number
each. Each KV head's output is alpha * full + (1 - alpha) * streaming attention, where streaming sees the first `SINKS` entries
and the last `RECENT`. Two readings are compared where something is said again, with all gates at 1 and as they are: the loss
is the mean squared distance of the final states, and `PRICE` times the mean gate. So a gate closes unless its head is missed.

As in the authors' code: Adam without decay at 0.02, gates from 1 on and held between 0 and 1, a price of 0.05, a window a step.
Theirs: 2,000 steps on ten pass keys in 1,000 to 32,000 tokens of novels, and a rate that rises for a fifth of the steps and
falls in the last fifth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.heads.duo_attention import DuoAttentionGates

from .cachenet import Attend, features
from .data import load_tokenizer
from .net import Net
from .tasks import copy, retrieval
from .tasks.task import story

LENGTH = 512  # tokens of a window
PASSAGE, PRIMED = 96, 8  # tokens of what is said again, and of its beginning, which nothing is asked of
KEYS = 10  # sentences with a number
SINKS, RECENT = 4, 60  # entries that a streaming head sees
PRICE = 0.05  # of an open gate
UNSEEN = 16  # windows on which maps are compared
STREAMING = (0.25, 0.5, 0.75)  # shares of the heads at which maps are compared
MAPS = 4  # random maps that each is compared with


def filler(r: Random, split: str, words: Callable[[str], list[int]], count: int) -> list[int]:
    """`count` tokens of stories."""
    ids: list[int] = []
    while len(ids) < count:
        ids += words(story(r, split)[0].text + "\n\n")
    return ids[:count]


def passage(r: Random, split: str, words: Callable[[str], list[int]]) -> tuple[list[int], list[int]]:
    """(ids, places): a passage, stories, and the passage again."""
    draw = r.choice(
        [copy.words, copy.nonsense_words, copy.code, copy.record, lambda r: story(r, split)[0].text]
    )
    said: list[int] = []
    while len(said) < PASSAGE:
        said += words(draw(r) + "\n")
    said = said[:PASSAGE]
    ids = said + filler(r, split, words, LENGTH - 2 * PASSAGE) + said
    return ids, list(range(LENGTH - PASSAGE + PRIMED, LENGTH - 1))


def pass_keys(r: Random, split: str, words: Callable[[str], list[int]]) -> tuple[list[int], list[int]]:
    """(ids, places): stories in which `KEYS` sentences say a number each, and those sentences again, in another order."""
    keys = [(f"\nThe {label} is", f" {said}.\n") for label, said in retrieval.needles(r, "needle", KEYS)]
    again = r.sample(keys, KEYS)
    tail, places = list[int](), list[int]()
    for label, said in again:
        tail += words(label)
        answer = words(said)
        places += range(len(tail) - 1, len(tail) + len(answer) - 2)  # the sentence's end is no secret
        tail += answer
    spoken = [words(label) + words(said) for label, said in keys]
    room = LENGTH - len(tail) - sum(map(len, spoken))
    text = filler(r, split, words, room)
    cuts = sorted(r.randrange(room * 3 // 4) for _ in keys)
    ids = [
        token
        for a, b, key in zip([0, *cuts], [*cuts, room], [*spoken, []], strict=True)
        for token in text[a:b] + key
    ]
    return ids + tail, [len(ids) + x for x in places]


def windows(seed: int, split: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless (ids, marks), both kinds by turns: int64 [LENGTH], and bool [LENGTH].

    The marks are the places whose next token occurred before, far away.
    """
    plain, r = load_tokenizer(chat=False), Random(seed)
    for draw in cycle((passage, pass_keys)):
        ids, places = draw(r, split, lambda text: plain.encode(text).ids)
        marks = torch.zeros(LENGTH, dtype=torch.bool)
        marks[places] = True
        yield torch.tensor(ids), marks


def streaming_mask(length: int, sinks: int, recent: int) -> Tensor:
    """bool [T, T]: what a streaming head sees of a text; the row itself too."""
    at = torch.arange(length)
    near = (at[None] >= at[:, None] - recent) & (at[None] <= at[:, None])
    return near | ((at[None] < sinks) & (at[None] <= at[:, None]))


def attend(alpha: Tensor, seen: Tensor) -> Attend:
    """Attention under the gates alpha float [L, G]; seen: as of `streaming_mask`."""

    def blended(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        full = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        near = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
        share = alpha[i].repeat_interleave(q.shape[1] // k.shape[1])[:, None, None]
        return share * full + (1 - share) * near

    return blended


class GatesPart:
    """The part as cacheparts.py trains it, in float32: the loss is small compared with the rounding of a half type."""

    lr = 0.02

    def __init__(self, net: Net, seed: int) -> None:
        s = net.shape
        self.net, self.head = net, DuoAttentionGates(s.width, s.layers, s.kv_heads)
        self.seen = streaming_mask(LENGTH, SINKS, RECENT)
        self.windows = windows(seed, "train")
        self.seed = seed

    def loss(self) -> Tensor:
        """The loss of the next window."""
        ids, marks = (x[None] for x in next(self.windows))
        with torch.no_grad():
            self.head.alpha.clamp_(0, 1)
            whole = self.net.model.norm(self.net.states(ids)[-1])[marks]
        alpha = self.head.alpha
        with torch.autocast("cpu", enabled=False):
            gated = features(self.net, self.net.model.embed_tokens(ids), attend(alpha, self.seen))[marks]
        return (gated - whole).square().mean() + PRICE * alpha.abs().mean()

    @torch.no_grad()
    def cost(
        self, texts: list[tuple[Tensor, Tensor]], streams: Sequence[int], recent: int = RECENT
    ) -> list[float]:
        """[nats, share] of the tokens that occurred before, where the heads `streams` (by number) stream.

        nats: -ln p, a mean; share: how often the token is the likeliest.
        """
        alpha = torch.ones(self.head.alpha.numel())
        alpha[list(streams)] = 0
        answer = attend(alpha.view_as(self.head.alpha), streaming_mask(LENGTH, SINKS, recent))
        nats = []
        hits = []
        for ids, marks in texts:
            x = features(self.net, self.net.model.embed_tokens(ids[None]), answer)[0, marks]
            logits, due = F.linear(x, self.net.model.embed_tokens.weight), ids.roll(-1)[marks]
            nats.append(F.cross_entropy(logits, due, reduction="none"))
            hits.append(logits.argmax(-1) == due)
        return [round(float(torch.cat(x).float().mean()), 4) for x in (nats, hits)]

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Figures on unseen windows, with full attention and at each share of streaming heads.

        At each share they are the heads of the lowest gates, the mean of random maps, and all heads streaming with as many
        entries in all.
        """
        self.head.alpha.clamp_(0, 1)
        texts = list(islice(windows(self.seed + 1, "held_out"), UNSEEN))
        order, r = self.head.alpha.flatten().argsort(stable=True).tolist(), Random(self.seed + 2)
        figures: dict[str, Any] = {"full": self.cost(texts, [])}
        for share in STREAMING:
            some = math.ceil(share * len(order))
            drawn = [self.cost(texts, r.sample(order, some)) for _ in range(MAPS)]
            entries = int((1 - share) * LENGTH + share * (SINKS + RECENT))
            figures[f"{share:.0%} stream"] = {
                "trained": self.cost(texts, order[:some]),
                "random": [round(sum(x) / MAPS, 4) for x in zip(*drawn, strict=True)],
                "all stream": self.cost(texts, order, entries - SINKS),
            }
        return {
            "of": ["nats", "likeliest"],
            "windows": len(texts),
            "sinks": SINKS,
            "recent": RECENT,
            **figures,
        }
