"""DSpark's drafter: DFlash's block, a bias by the token before each place, and the chance that a place is accepted."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ...layers.faults import require_finite
from ...layers.matrix import linear
from ...layers.vocabulary import Vocabulary
from ..base import HeadLinear
from .dflash import DFlashNet

MARKOV = ("vanilla", "gated", "rnn")  # the forms of the bias, by the number in a net's shape
CONFIDENCE = ("none", "output", "output and token before")  # what the confidence reads, alike


class MarkovHead(nn.Module):
    """z [rank] of the token before a place and of the place's output h, from which W2 makes a bias of the logits.

    With e = W1[token]: "vanilla" z = e;  "gated" z = sigmoid(G [h; e]) * e;  "rnn" [g; c; o] = J [s; e; h], the state becomes
    s = sigmoid(g) s + (1 - sigmoid(g)) tanh(c), and z = tanh(o). The state is 0 in front of place 0.
    """

    def __init__(self, d: int, vocab: int, kept: int, rank: int, form: str) -> None:
        super().__init__()
        self.form = form
        self.w1 = nn.Embedding(vocab, rank)
        self.w2 = HeadLinear(rank, kept, bias=False)
        self.gate = HeadLinear(d + rank, rank) if form == "gated" else None
        self.joint = HeadLinear(2 * rank + d, 3 * rank) if form == "rnn" else None

    def step(self, outputs: Tensor, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """z [..., rank] of outputs [..., d] and the tokens before them (int64 [...]), and the state that follows on `state`."""
        e = self.w1(tokens)
        if self.gate is not None:
            return torch.sigmoid(self.gate(torch.cat([outputs, e], -1))) * e, state
        if self.joint is None:
            return e, state
        gate, candidate, out = self.joint(torch.cat([state, e, outputs], -1)).chunk(3, -1)
        share = torch.sigmoid(gate)
        return torch.tanh(out), share * state + (1 - share) * torch.tanh(candidate)

    def unroll(self, outputs: Tensor, tokens: Tensor) -> Tensor:
        """z [..., K, rank] of all places of blocks: outputs [..., K, d], and the tokens before them (int64 [..., K])."""
        state = outputs.new_zeros(*tokens.shape[:-1], self.w1.embedding_dim)
        if self.joint is None:
            return self.step(outputs, tokens, state)[0]
        latents = list[Tensor]()
        for k in range(tokens.shape[-1]):
            z, state = self.step(outputs[..., k, :], tokens[..., k], state)
            latents.append(z)
        return torch.stack(latents, -2)


class DSparkNet(DFlashNet):
    """DFlash's block, of which the logits of a place get a bias W2 z of rank `rank`: z is made of the token before the place,
    the root or a drafted one (`MarkovHead`, markov: 0 vanilla, 1 gated, 2 rnn). So a place knows its neighbour, and the block
    still takes one pass. rank = 0: no bias, which is DFlash to the bit.

    confidence: a linear map of h (1), or of [h; W1[token before]] (2), whose sigmoid is the chance that the target accepts the
    place's token, if all before it were; 0: there is none.
    """

    kind = "dspark"

    known_sizes: ClassVar[dict[str, int | None]] = {
        **DFlashNet.known_sizes,
        "rank": 0,
        "markov": 0,
        "confidence": 0,
    }

    def __init__(self, **shape: int) -> None:
        super().__init__(**shape)
        size, d = self.shape, self.shape["d"]
        rank, reads = size["rank"], CONFIDENCE[size["confidence"]]
        form = MARKOV[size["markov"]]
        self.markov = MarkovHead(d, size["vocab"], size["kept"], rank, form) if rank else None
        width = d + (rank if reads == "output and token before" else 0)
        self.confidence = None if reads == "none" else HeadLinear(width, 1)

    def acceptance(self, outputs: Tensor, tokens: Tensor) -> Tensor | None:
        """The logit [...] of the chance of acceptance of places with outputs [..., d] behind tokens int64 [...]; None without a
        confidence."""
        if self.confidence is None:
            return None
        if self.markov is not None and CONFIDENCE[self.shape["confidence"]] == "output and token before":
            outputs = torch.cat([outputs, self.markov.w1(tokens)], -1)
        return self.confidence(outputs)[..., 0]

    def with_bias(self, outputs: Tensor, tokens: Tensor) -> Tensor:
        """[h; z] [..., K, d + rank] of outputs h [..., K, d] of whole blocks and the tokens before each place (int64 [..., K]);
        `choices` and `logits` add the bias of z."""
        return (
            outputs if self.markov is None else torch.cat([outputs, self.markov.unroll(outputs, tokens)], -1)
        )

    def choices(self, features: Tensor, words: Tensor) -> Tensor:
        """Logits [..., K] of outputs [..., d], or of [h; z], words being rows [K, d] of the unembedding: of the first K ids."""
        h, z = self._apart(features)
        logits = linear(h, words)
        if self.markov is None or z is None:
            return logits
        return logits + self.markov.w2(z)[..., : logits.shape[-1]]

    def bias(self, z: Tensor, decoder: Vocabulary) -> Tensor:
        """The bias [..., V] that z [..., rank] makes; 0 for what is not in the draft vocabulary."""
        assert self.markov is not None
        bias = self.markov.w2(z)
        if self.shape["kept"] == self.shape["vocab"]:
            return bias[..., : decoder.vocab]
        ids = self.rows(decoder)[0]
        return bias.new_zeros(*bias.shape[:-1], decoder.vocab).index_copy_(-1, ids, bias[..., : len(ids)])

    def _apart(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """h [..., d], and z [..., rank] if features are [h; z]."""
        d = self.shape["d"]
        return features[..., :d], features[..., d:] if features.shape[-1] > d else None

    def _logits(self, features: Tensor, decoder: Vocabulary, first: int) -> Tensor:
        h, z = self._apart(features)
        logits = super()._logits(h, decoder, first)
        return logits if z is None else logits + self.bias(z, decoder)


class BlockChain:
    """The places of one block that guess, one after the other: each is told the token in front of it.

    outputs: float [K, d], of the whole block;  root: the token in front of the draft;  confidence: logits of the chance of
    acceptance of the places so far, if the net has them
    """

    def __init__(self, net: DSparkNet, outputs: Tensor, root: int, decoder: Vocabulary) -> None:
        self.net, self.decoder = net, decoder
        self.confidence = list[Tensor]()
        self._outputs = net.guessing(outputs)
        self._base = net.logits(self._outputs, decoder)  # [guesses, V], once for all
        self._at = 0
        if net.markov is not None:
            self._state = outputs.new_zeros(net.markov.w1.embedding_dim)
            if len(self._outputs) < len(outputs):  # place 0 guesses nothing, but an "rnn" has read it
                self._state = net.markov.step(outputs[0], self._id(root), self._state)[1]

    def next_logits(self, token: int) -> Tensor:
        """float [V]: the logits of the next place, behind `token`."""
        h, before = self._outputs[self._at], self._id(token)
        logits = self._base[self._at]
        self._at += 1
        acceptance = self.net.acceptance(h, before)
        if acceptance is not None:
            self.confidence.append(acceptance)
        if self.net.markov is None:
            return logits
        z, self._state = self.net.markov.step(h, before, self._state)
        return require_finite(logits + self.net.bias(z, self.decoder), f"the heads {self.net.kind}")

    def _id(self, token: int) -> Tensor:
        return torch.tensor(token, device=self._outputs.device)
