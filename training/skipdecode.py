"""SkipDecode: an adapter under which later tokens of an answer do with fewer layers, for the depth rule `skipdecode`.

Del Corro et al. 2023, arXiv:2307.02628, fine-tune all weights of a model for a task under their schedule; here low-rank deltas
learn on the training text. A batch draws where its prompt ends, where the decay ends, and the least number of layers: one
adapter for all of these.

Every row runs the layers that its place runs when decoding. Since the schedule never rises with the place, a layer reads the
first rows alone, and they see what they would see. The adapter learns the frozen model's distribution at the same place with
all layers. A text has one token where many would do, so distributions teach more.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.methods.adaptive_depth.shared.layer_schedule import executed_layers, layer_count_at

from .adapter_training import AdapterTraining
from .data import held_out_windows
from .lowrank import enable_deltas
from .net import Net

LEAST = 3  # fewest layers that a batch draws
PROMPTS = (16, 96)  # first and last end of a prompt
SHORTEST = 32  # tokens over which the layers fall, at least
WARMUP = 1
MEASURED = 64, 64  # tokens of prompt and of decay by which it is measured


def rows_of(layers: int, length: int, prompt: int, least: int, horizon: int) -> list[int]:
    """By layer, how many of the first rows of a text of `length` tokens run it.

    The row in front of place `prompt` decides the first token of the answer, and belongs to it.
    """
    runs = [layers] * (prompt - 1) + [
        layer_count_at(i, layers, least, horizon) for i in range(length - prompt + 1)
    ]
    return [sum(layer in executed_layers(n, WARMUP, layers) for n in runs) for layer in range(layers)]


def forward_staggered(net: Net, ids: Tensor, rows: list[int]) -> Tensor:
    """Logits float32 [B, T, V] of ids int64 [B, T]; only the first rows[l] rows run layer l."""
    x, turn = net.model.embed_tokens(ids), (net.cosine[: ids.shape[1]], net.sine[: ids.shape[1]])
    for i, (layer, n) in enumerate(zip(net.layers, rows, strict=True)):
        y = layer(x[:, :n], tuple(t[:n] for t in turn), None, i, None)
        x = torch.cat((y, x[:, n:].to(y.dtype)), 1)
    return net.head(x).float()


class SkipDecodeAdapter(AdapterTraining):
    """The adapter as adapters.py trains it."""

    only = ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")
    lr = 3e-3
    corpus_windows = 8

    def gather(self) -> str:
        """The training text is all there is to learn from."""
        return "the training text is read"

    def draw_number(self, low: int, high: int) -> int:
        """A number from `low` to `high`."""
        return int(torch.randint(low, high + 1, (), generator=self.draw))

    def loss(self) -> Tensor:
        """The loss of a batch under one schedule."""
        texts, layers = self.window(self.corpus_windows), self.net.shape.layers
        prompt = self.draw_number(*PROMPTS)
        horizon, least = self.draw_number(SHORTEST, self.length - prompt), self.draw_number(LEAST, layers - 1)
        logits = forward_staggered(self.net, texts, rows_of(layers, self.length, prompt, least, horizon))
        nats = -(self.base_logits(texts).softmax(2) * logits.log_softmax(2)).sum(2)
        self.count(texts.numel(), prompts=nats[:, : prompt - 1].mean(), answers=nats[:, prompt - 1 :].mean())
        return nats.mean()

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Nats of unseen text behind its first tokens under several schedules, with the adapter and without.

        The second figure is how often the likeliest token is that of the frozen model with all layers.
        """
        (prompt, horizon), layers = MEASURED, self.net.shape.layers
        figures: dict[str, Any] = {"windows": 64, "prompt": prompt, "horizon": horizon}
        windows = held_out_windows(self.length + 1, 64).split(16)
        best = [self.base_logits(ids[:, :-1]).argmax(2)[:, prompt - 1 :] for ids in windows]
        for least in range(LEAST, layers + 1):
            rows = rows_of(layers, self.length, prompt, least, horizon)
            for name, on in (("base", False), ("adapted", True)):
                enable_deltas(self.head, on)
                nats = same = 0.0
                for ids, due in zip(windows, best, strict=True):
                    logits = forward_staggered(self.net, ids[:, :-1], rows)[:, prompt - 1 :]
                    nats += float(F.cross_entropy(logits.flatten(0, 1), ids[:, prompt:].flatten()))
                    same += float((logits.argmax(2) == due).float().mean())
                figures.setdefault(f"least {least}", {})[name] = {
                    "nats": round(nats / len(windows), 4),
                    "same": round(same / len(windows), 4),
                }
        return figures | {"nats": self.nats()}
