"""The tagger of parallel iterative edits: what becomes of each token of a draft, by a pass of a model that reads both sides."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..forward.feed import Feed
from .base import Head, HeadLinear, unit_rms_norm

HEADS = 4
LEAST, UNIT = -12.0, 4.0  # of the log-probabilities that are read, in nats


class EditRows(NamedTuple):
    """The rows of a pass over drafts of one length: prompt, draft, perhaps the token that ends it, then mask tokens. One mask
    replaces each token and does not see that token; one mask comes after each token and after the prompt.

    before: tokens of the prompt, at least one;  size: of the draft;  ended: True if an end token follows it
    """

    before: int
    size: int
    ended: bool

    @property
    def text(self) -> int:
        """Rows that hold tokens."""
        return self.before + self.size + self.ended

    @property
    def masks(self) -> list[int]:
        """The rows of mask tokens: first those in place of a token, then those after one, the prompt's first."""
        return list(range(self.text, self.text + 2 * self.size + 1))

    def feed(self, tokens: Tensor, mask: int) -> Feed:
        """The pass over tokens int64 [B, text], each window by itself. No row of a token sees a mask, a mask no other one."""
        B, device = len(tokens), tokens.device
        rows = torch.cat([tokens, tokens.new_full((B, 2 * self.size + 1), mask)], 1)
        first, behind = self.before, self.before + self.size
        spans = (0, self.text), (first, behind), (first, behind + 1)
        positions = torch.cat([torch.arange(*span, device=device) for span in spans])
        own = torch.eye(rows.shape[1], dtype=torch.bool, device=device)
        visible = own.clone()
        visible[:, : self.text] = True
        visible[self.text : self.text + self.size, first:behind] = ~own[: self.size, : self.size]
        return Feed(
            rows, positions.expand(B, -1), visible[None], self.masks, highest=max(behind, self.text - 1)
        )

    def gather_rows(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From x [B, T, c], float: the rows of the tokens, the masks in their places and the masks after them, [B, size + 1, c]
        each. The first token is the prompt's last one, which has no mask in its place; its row is zeros."""
        tokens = x[:, self.before - 1 :]
        there = x[:, self.text :]
        behind = x[:, self.text + self.size :]
        there = torch.cat([torch.zeros_like(tokens[:, :1]), there[:, : self.size]], 1)
        return tokens[:, : self.size + 1], there, behind

    def scores(self, tokens: Tensor, logits: Tensor) -> Tensor:
        """float [B, size + 1, 6]: what the mask in a token's place, and the mask after it, would write: the log-probabilities
        of the token, of the one that follows it, and of the best. tokens: int64 [B, T];  logits: float [B, 2 size + 1, V] of
        the masks."""
        laws = logits.log_softmax(-1)
        there = torch.cat([torch.zeros_like(laws[:, :1]), laws[:, : self.size]], 1)
        here, after = (tokens[:, x : x + self.size + 1, None] for x in (self.before - 1, self.before))
        sides = [
            (x.gather(2, here), x.gather(2, after), x.amax(2, True)) for x in (there, laws[:, self.size :])
        ]
        return torch.cat([x for side in sides for x in side], 2).clamp(min=LEAST) / UNIT


class EditTagger(Head):
    """One layer of attention over the rows of a pass, and one hidden layer over the rows of each place. Outputs: the logits of
    the place's four tags, and what is added to the features of the masks, from which the target's unembedding makes words.

    layer: its input is read, with the embedding and the last features;  width: of the attention;  hidden: of that layer
    The rows, and words by the unembedding of rows of masks, are those of Awasthi et al. 2019, arXiv:1910.02893, section 3.2.
    They train the whole model, so a matrix is enough for the tags; here the model stays as it is and the head is larger.
    """

    kind = "edit"

    def __init__(self, d: int, layer: int, width: int, hidden: int) -> None:
        super().__init__(d=d, layer=layer, width=width, hidden=hidden)
        self.embed = HeadLinear(d, width)
        self.middle = HeadLinear(d, width)
        self.last = HeadLinear(d, width)
        self.qkv, self.mix = HeadLinear(width, 3 * width), HeadLinear(width, width)
        self.inner, self.tags = HeadLinear(3 * width + 6, hidden), HeadLinear(hidden, 4)
        self.replace, self.insert = HeadLinear(hidden, d), HeadLinear(hidden, d)

    def forward(
        self, embedded: Tensor, middle: Tensor, last: Tensor, scores: Tensor, at: EditRows
    ) -> tuple[Tensor, Tensor]:
        """Logits of keep, delete, replace, insert, float [B, size + 1, 4], after the prompt and of each token; and features
        [2, B, size + 1, d] of the words that would replace it and follow it.

        embedded, middle, last: float [B, T, d], of the rows of the pass: embeddings, what enters `layer`, last features;
        scores: as `Places.scores` gives them
        """
        x = self.embed(embedded) + self.middle(unit_rms_norm(middle)) + self.last(unit_rms_norm(last))
        q, k, v = (
            y.unflatten(2, (HEADS, -1)).transpose(1, 2) for y in self.qkv(unit_rms_norm(x)).chunk(3, 2)
        )
        x = x + self.mix(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        hidden = F.relu(self.inner(torch.cat([*at.gather_rows(x), scores.to(x.dtype)], 2)))
        tags = self.tags(hidden).float()
        tags[:, 0, 1:3] = -torch.inf  # the prompt stays
        _, there, behind = at.gather_rows(last)
        return tags, torch.stack([there + self.replace(hidden), behind + self.insert(hidden)])
