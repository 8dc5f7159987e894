"""What adapter trainings share: passes under a mask, beginnings of texts, the model's own texts, and a loss to stay the model.

Each adapter is a class like that of cllm.py, which defines its further training data and its measurements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decodescope.engine.trace.query.repeats import GRAM, find_repeats, repeated_share

from .data import ASSISTANT, END, CorpusText, held_out_windows, load, training_stream
from .lowrank import adapter_tensors, add_low_rank, enable_deltas
from .net import Net, apply_rotary

ALPHA = 16.0
SAME = 10  # equal tokens in a row that end a text's use (the CLLM authors' cleaning)
CHATS = 0.6  # share of texts that answer
# openings of plain text, their tokens, and the greedy text behind each
OPENINGS = 48
OPENING = 32
WRITTEN = 256

KV = list[tuple[Tensor, Tensor]]


def masked_states(
    net: Net, ids: Tensor, places: Tensor, seen: Tensor, past: KV | None = None
) -> tuple[Tensor, KV]:
    """Final features [B, T, D] of ids int64 [B, T] at `places` int64 [T], and their keys and values by layer.

    seen: bool [T, S + T], what each row sees of `past` (S entries a layer) and of these rows.
    """
    x = net.model.embed_tokens(ids)
    s = net.shape
    kv = KV()
    turn = net.cosine[places], net.sine[places]
    for i, layer in enumerate(net.layers):
        y, a = layer.input_layernorm(x), layer.self_attn
        q, k, v = (
            p(y).unflatten(2, (n, s.head_width)).transpose(1, 2)
            for p, n in ((a.q_proj, s.heads), (a.k_proj, s.kv_heads), (a.v_proj, s.kv_heads))
        )
        q, k = apply_rotary(q, turn), apply_rotary(k, turn)
        kv.append((k, v))
        if past is not None:
            k, v = (torch.cat(both, 2) for both in zip(past[i], (k, v), strict=True))
        y = F.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype), attn_mask=seen, enable_gqa=True)
        x = x + a.o_proj(y.transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return net.model.norm(x), kv


def logits_of(net: Net, features: Tensor) -> Tensor:
    """float32 [B, T, V] of final features [B, T, D]."""
    return F.linear(features, net.model.embed_tokens.weight).float()


def sample_beginnings(texts: dict[str, CorpusText], count: int, size: int, seed: int) -> Tensor:
    """int64 [count, size]: the tokens before an answer, for a share of CHATS; else before any place of a plain text.

    Kinds take turns.
    """
    r, rows = np.random.default_rng(seed), []
    kinds = {
        chat: sorted(k for k, t in texts.items() if t.chat == chat and len(t.ids) > 4 * size)
        for chat in (True, False)
    }
    for i in range(count):
        chat = i < count * CHATS
        text = texts[kinds[chat][i % len(kinds[chat])]]
        if chat:  # the line break after the mark belongs to the prompt
            ends = np.flatnonzero(text.ids == ASSISTANT) + 2
            ends = ends[(ends >= size) & (ends < len(text.ids))]
            end = int(r.choice(ends))
        else:
            end = int(r.integers(size, len(text.ids)))
        rows.append(text.ids[end - size : end].astype(np.int64))
    return torch.from_numpy(np.stack(rows))


def counted_lengths(written: Tensor) -> Tensor:
    """int64 [N]: how many tokens of each text [N, G] count: to the first <|end|>, and before a run of SAME equal ones."""
    n, new = written.shape
    place = torch.arange(new)
    ends = torch.where(written == END, place + 1, new).amin(1)
    same = torch.ones(n, new, dtype=torch.long)
    for i in range(1, new):
        same[:, i] = torch.where(written[:, i] == written[:, i - 1], same[:, i - 1] + 1, 1)
    runs = torch.where(same >= SAME, place + 1 - SAME, new).amin(1)
    return torch.minimum(ends, runs)


@torch.no_grad()
def write_greedily(net: Net, seed: int) -> list[list[int]]:
    """The net's texts, at temperature 0, behind openings of plain documents of unseen text; up to <|end|>."""
    texts = [x for x in load("valid").values() if not x.chat]
    begun = [
        x.ids[start : start + OPENING] for x in texts for start, end in x.bounds if end - start > OPENING
    ]
    order = np.random.default_rng(seed).permutation(len(begun))[:OPENINGS]
    prompts = torch.from_numpy(np.stack([begun[i] for i in order]).astype(np.int64))
    rows = net.write(prompts, WRITTEN, 0.0)[:, OPENING:].tolist()
    return [row[: row.index(END)] if END in row else row for row in rows]


def repetition_figures(texts: list[list[int]]) -> dict[str, float]:
    """Repetition figures of texts of more than a few tokens.

    These are the mean share of 4-grams that occur earlier in the text, how many texts end in a loop, and the kinds of token per
    token.
    """
    long = [text for text in texts if len(text) >= 2 * GRAM]
    stretches = [list(find_repeats(text)) for text in long]
    return {
        "tokens": round(float(np.mean([len(text) for text in texts])), 1),
        "said again": round(float(np.mean([repeated_share(text) for text in long])), 4),
        "end in a loop": sum(bool(x) and x[-1].loop and x[-1].ending for x in stretches),
        "kinds per token": round(float(np.mean([len(set(text)) / len(text) for text in long])), 4),
    }


class AdapterTraining:
    """An adapter as adapters.py trains it: low-rank deltas of a frozen net's matrices, and rows of its embedding.

    rank, only, rows: of the deltas, the names of the matrices that have one (none: all), and ids whose embeddings learn
    lr: the highest rate;  length, corpus_windows: tokens of a window of the training text, and windows a step
    """

    rank = 4
    only: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    lr = 2e-3
    length = 192
    corpus_windows = 6

    def __init__(self, net: Net, seed: int, texts: int) -> None:
        self.net = net
        self.seed = seed
        self.texts = texts
        self.head: nn.ModuleDict = add_low_rank(net, self.rank, ALPHA, seed, self.only, self.rows)
        self.draw = torch.Generator().manual_seed(seed)
        self.corpus: np.ndarray | None = None
        self.read, self.steps = 0, 0  # tokens trained on; steps
        self.recent: list[dict[str, float]] = []  # the losses of the last steps, by name

    def gather(self) -> str:
        """Make the training data other than the training text; return a line that describes them."""
        raise NotImplementedError

    def learn(self) -> str:
        """Gather all training data."""
        self.corpus = training_stream(self.seed)
        return self.gather()

    def loss(self) -> Tensor:
        """The loss of the next batch."""
        raise NotImplementedError

    def count(self, tokens: int, **losses: Tensor) -> None:
        """A step with so many tokens, and its losses."""
        self.read, self.steps = self.read + tokens, self.steps + 1
        self.recent = [*self.recent[-24:], {name: float(x.detach()) for name, x in losses.items()}]

    def loss_summary(self) -> str:
        """The losses, a mean over the last steps."""
        return ", ".join(
            f"{n} {sum(x[n] for x in self.recent) / len(self.recent):.4f}" for n in self.recent[-1]
        )

    def base_logits(self, texts: Tensor) -> Tensor:
        """Logits [B, T, V] of the frozen model on texts int64 [B, T], without gradient."""
        enable_deltas(self.head, False)
        with torch.no_grad():
            logits = self.net(texts).float()
        enable_deltas(self.head, True)
        return logits

    def window(self, count: int) -> Tensor:
        """int64 [count, length]: windows of the training text, drawn."""
        assert self.corpus is not None
        at = torch.randint(len(self.corpus) - self.length, (count,), generator=self.draw).tolist()
        return torch.from_numpy(np.stack([self.corpus[i : i + self.length] for i in at]).astype(np.int64))

    def retention_loss(self) -> Tensor:
        """Nats of the distributions on windows of the training text against the frozen model's.

        It is zero before the windows are gathered.
        """
        if self.corpus is None:
            return torch.zeros(())
        texts = self.window(self.corpus_windows)
        return -(self.base_logits(texts).softmax(2) * self.net(texts).float().log_softmax(2)).sum(2).mean()

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on with these tensors."""
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])

    def tensors(self) -> dict[str, Tensor]:
        """What the adapter's file holds."""
        return adapter_tensors(self.head)

    def measure(self) -> dict[str, Any]:
        """Figures on unseen text, with the adapter and without, as plain data for its card."""
        raise NotImplementedError

    @torch.no_grad()
    def nats(self) -> dict[str, float]:
        """Nats a token of 64 windows of unseen text, without the adapter and with it."""
        windows, figures = held_out_windows(257, 64), dict[str, float]()
        for name, on in (("base", False), ("adapted", True)):
            enable_deltas(self.head, on)
            total = 0.0
            for ids in windows.split(16):
                logits = self.net(ids[:, :-1]).float()
                total += float(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())) * len(ids)
            figures[name] = round(total / len(windows), 4)
        return figures
