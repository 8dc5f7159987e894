"""Canvas: masked places behind a text, filled block by block by a model that reads both sides, and what its passes read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.model.feed import Feed

from .inorder import OPEN, InOrder
from .sampler import softmax
from .selector import Choice, Open
from .state import State


@dataclass
class Canvas:
    """Places in blocks of `size`; the last block is shorter where the length is no multiple.

    cache:   "none": each pass feeds prompt and canvas. "prefix": the first pass of a block does, and leaves the entries of all
             left of the block, beside which those behind it feed the block and what stands right of it. "dual": it leaves
             those of both sides, beside which they feed the block alone
    first, behind: positions of the block that is being filled and of the place behind it
    passes:  made in this block
    written: position -> token and confidence in it, of the block's places whose tokens may be masked again
    """

    text: InOrder
    size: int
    cache: str
    first: int = 0
    behind: int = 0
    passes: int = 0
    written: dict[int, tuple[int, float]] = field(default_factory=dict)

    @classmethod
    def opened(cls, s: State, size: int, cache: str) -> Canvas:
        """One of as many places as tokens may still be written; the target's cache is empty."""
        s.target.truncate(0)
        if cache == "dual":
            s.target.cache.unordered()
        canvas = cls(InOrder.behind(s), size, cache, behind=len(s.tokens))
        canvas.turn()
        return canvas

    @property
    def full(self) -> bool:
        """Whether no place is open."""
        return self.first == self.text.end

    def turn(self) -> None:
        """Begin the next block."""
        self.first, self.behind, self.passes = self.behind, min(self.behind + self.size, self.text.end), 0
        self.written = {}

    @property
    def stale(self) -> int:
        """Passes that were made since the entries were that the next one reads of others; 0: it feeds all rows."""
        return 0 if self.cache == "none" else self.passes

    @property
    def fed(self) -> range:
        """The positions that the next pass feeds."""
        if self.stale == 0:
            return range(self.text.end)
        return range(self.first, self.text.end if self.cache == "prefix" else self.behind)

    def read(self, s: State) -> tuple[list[int], Tensor]:
        """One pass: the open positions of the block, ascending, and logits float [O, V] of the token at each, minus infinity
        for the mask token. Of the rows fed those stay that the next passes of the block read."""
        mask, device, fed = s.target.decoder.spec.mask_token, s.target.decoder.device, self.fed
        assert mask is not None, "a model without a mask token was refused"
        if self.stale == 0:
            s.target.truncate(0)
        text = s.tokens[: self.text.start] + [mask if token == OPEN else token for token in self.text.tokens]
        for place, (token, _) in self.written.items():
            text[place] = token
        rows, positions = (torch.tensor([list(x)], device=device) for x in (text[fed.start : fed.stop], fed))
        logits = s.target.forward(Feed(rows, positions, highest=fed.stop - 1), "canvas")[0]
        places = [place for place in self.text.open(self.first, self.behind) if place not in self.written]
        logits = logits[torch.tensor(places, device=device) - fed.start]
        if mask < logits.shape[-1]:
            logits[:, mask] = -torch.inf
        if self.cache == "none" or self.passes:
            s.target.rollback()
        else:
            right = range(self.behind, self.text.end) if self.cache == "dual" else ()
            s.target.commit([*range(self.first), *right])
        return places, logits

    def offered(self, s: State, places: list[int], logits: Tensor) -> Open:
        """What a selector chooses from: the sampler's candidate for each of the open `places`, and the model's probability of
        it. logits: float [O, V]."""
        if s.sampler.greedy:
            candidate = s.sampler.warp(logits, s.sampler_state).argmax(-1)
        else:
            laws = softmax(s.sampler.warp(logits, s.sampler_state))
            candidate = torch.tensor([x.token for x in s.chance.draws(laws, places)], device=logits.device)
        confidence = softmax(logits).gather(-1, candidate[:, None])[:, 0]
        numbers = np.array(places, np.int32), candidate.to(torch.int32).cpu().numpy(), confidence.float().cpu().numpy()
        written = {place: confidence for place, (_, confidence) in self.written.items()}
        return Open((self.first, self.behind), self.passes, *numbers, written)

    def commit(self, view: Open, choice: Choice) -> list[int]:
        """Settle the candidates that were chosen, or write them for now where some places are masked again; a block that is
        done is followed by the next. The indices of the open places that were committed, ascending."""
        taken = choice.taken(view)
        self.passes += 1
        if choice.reopened is None:
            for i in taken:
                self.text.settle(int(view.places[i]), int(view.candidate[i]))
        else:
            for i in taken:
                self.written[int(view.places[i])] = int(view.candidate[i]), float(view.confidence[i])
            for place in choice.reopened:
                del self.written[place]
        if len(taken) == len(view.places) and not choice.reopened:
            for place, (token, _) in self.written.items():
                self.text.settle(place, token)
            self.turn()
        return taken
