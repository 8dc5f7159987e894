"""Canvas: masked places after a text, filled block by block by a model that reads both sides, and what its passes read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace.details.declarations import CanvasForm, DetailColumn, Sentence
from decodescope.engine.trace.details.exploration import Explored, entropy_bits
from decodescope.engine.trace.details.veto import Veto, commit_order

from ..bases.sampler import softmax
from ..bases.state import State
from ..bases.unmasking import CanvasView, SelectorChoice
from .candidates import draw_candidates
from .canvas_grammar import CanvasGrammar
from .canvas_variants import CanvasVariants
from .ordered_emission import OPEN, OrderedEmission

CANVAS = CanvasForm(
    title="Places settled",
    says=[
        Sentence(
            f"{{settled}} of {{open}} open place{s} settled{again}, text up to place {{upto}}",
            given=given,
            where=where,
        )
        for again, given in ((", {again} masked again", {}), ("", {"again": None}))
        for s, where in (("", "open <= 1"), ("s", ""))
    ],
    where=[Sentence("{settled} of {open} open places")],
    how="canvas",
    lines=[
        Sentence(
            "One pass gives every open place of the block a candidate; the first in rank stay, and those that reach their bar."
        )
    ],
    row=[Sentence("{candidate}, confidence {confidence:3}, {rule}", given={"stands": True})],
    closing=[
        Sentence("It read entries beside its rows that were made {stale} passes before.", where="stale >= 1"),
        Sentence("{emitted} tokens stand by now with all before them that did not before."),
    ],
    stays=[
        Sentence(
            "It stays open: it is number {rank} of the places in an order drawn by chance", where="order >= 0"
        ),
        Sentence(
            "It stays open: it is number {rank} of the places with the highest confidence",
            given={"order": None},
        ),
        Sentence(", and below its bar", where="bars >= 0"),
        Sentence("; 1 place is settled by rank.", given={"count": 1}),
        Sentence("; {count} places are settled by rank.", where="count != 1"),
    ],
    unread={
        "none": "Nothing is kept: every pass reads the prompt and the whole canvas anew. Choose strategy.cache = prefix for "
        "lives.",
        "dual": "Both sides of a block are read anew for each block: no entry lives on. Choose strategy.cache = prefix for "
        "lives.",
    },
    rank=["order", "-confidence"],
    settles=["rank <= count", "confidence >= bars"],
    columns=[DetailColumn(name, "number") for name in ("bars", "order", "entropy", "final")],
    check="fills",
    part="unmasking",
)


@dataclass
class Canvas:
    """Places in blocks of `size`; the last block is shorter where the length is no multiple.

    cache:   "none": each pass feeds prompt and canvas. "prefix": the first pass of a block does so and leaves the entries of
             everything left of the block; the later passes feed the block and everything right of it. "dual": the first pass
             leaves the entries of both sides; the later passes feed the block alone
    blocks:  the number of blocks that are filled side by side: the first that is not full, and those after it
    first, edge, behind: positions of that first block, of the place after it, and of the one after all that are being filled
    passes:  made in this block
    written: position -> token and confidence in it, of the block's places, if their tokens may be masked again
    tries:   what the next pass tries at a place, if it does
    grammar: the texts that are still possible; None: all
    """

    text: OrderedEmission
    size: int
    cache: str
    blocks: int = 1
    first: int = 0
    edge: int = 0
    behind: int = 0
    passes: int = 0
    written: dict[int, tuple[int, float]] = field(default_factory=dict)
    tries: CanvasVariants | None = None
    grammar: CanvasGrammar | None = None

    @classmethod
    def create(cls, s: State, size: int, cache: str, grammar: str = "") -> Canvas:
        """One of as many places as tokens may still be written; the target's cache is empty. grammar: as
        engine/trace/values/grammar.py
        reads it"""
        s.target.truncate(0)
        if cache == "dual":
            s.target.cache.track_positions()
        canvas = cls(OrderedEmission.create(s), size, cache, s.unmasking.blocks, edge=len(s.tokens))
        if grammar:
            canvas.grammar = CanvasGrammar.create(s, grammar, len(canvas.text.tokens))
        canvas.begin_next_block()
        return canvas

    @property
    def is_full(self) -> bool:
        """True if no place is open."""
        return self.first == self.text.end

    def begin_next_block(self) -> None:
        """Begin the next block that is not full."""
        self.first = self.edge
        while self.first < self.text.end and not self.text.open_positions(
            self.first, min(self.first + self.size, self.text.end)
        ):
            self.first = min(self.first + self.size, self.text.end)
        self.edge, self.behind = (min(self.first + x * self.size, self.text.end) for x in (1, self.blocks))
        self.written, self.passes = {}, 0

    @property
    def stale_passes(self) -> int:
        """Passes that were made since the entries were that the next one reads of others; 0: it feeds all rows."""
        return 0 if self.cache == "none" else self.passes

    @property
    def fed_positions(self) -> range:
        """The positions that the next pass feeds."""
        if self.stale_passes == 0:
            return range(self.text.end)
        return range(self.first, self.text.end if self.cache == "prefix" else self.behind)

    def read(self, s: State) -> tuple[list[int], Tensor]:
        """One pass: the open positions among those that are being filled, ascending, and logits float [K, O, V] of the token at
        each, minus infinity for the mask token; K: of each canvas that is tried, without the place where they differ, else 1.
        Of the rows fed those stay that the next passes of the block read."""
        mask = s.target.decoder.spec.mask_token
        device = s.target.decoder.device
        fed = self.fed_positions
        assert mask is not None, "a model without a mask token was refused"
        if self.stale_passes == 0:
            s.target.truncate(0)
        text = s.tokens[: self.text.start] + [mask if token == OPEN else token for token in self.text.tokens]
        for place, (token, _) in self.written.items():
            text[place] = token
        tried, tries = (-1, 1) if self.tries is None else (self.tries.place, len(self.tries.tokens))
        places = [
            x
            for x in self.text.open_positions(self.first, self.behind)
            if x not in self.written and x != tried
        ]
        if self.tries is not None:
            feed = self.tries.build_feed(text, fed, device)
        else:
            rows, positions = (
                torch.tensor([list(x)], device=device) for x in (text[fed.start : fed.stop], fed)
            )
            feed = Feed(rows, positions, highest=fed.stop - 1)
        feed.logits = [i * len(fed) + place - fed.start for i in range(tries) for place in places]
        logits = s.target.forward(feed, "canvas")[0].view(tries, len(places), -1)
        if mask < logits.shape[-1]:
            logits[:, :, mask] = -torch.inf
        if self.cache == "none" or self.passes:
            s.target.rollback()
        else:
            right = range(self.behind, self.text.end) if self.cache == "dual" else ()
            s.target.commit([*range(self.first), *right])
        return places, logits

    def view_for_selector(self, s: State, places: list[int], logits: Tensor) -> CanvasView:
        """What a selector chooses from: the sampler's candidate for each of the open `places`, and the model's probability of
        it. logits: float [K, O, V], of each canvas that was tried. The selector chooses from the best canvas, with its token.
        """
        explored = None
        if self.tries is not None:
            explored = self.tries.judge_canvases(s.unmasking, logits, places, self.edge, s.stop.tokens)
            self.tries = None
        logits = logits[0 if explored is None else explored.won]
        candidate, confidence = draw_candidates(s, places, logits)
        if self.grammar is not None:
            candidate = self._apply_grammar(s, logits, places, candidate, explored)
            confidence = softmax(logits).gather(-1, candidate[:, None])[:, 0]
        numbers = [
            np.array(places, np.int32),
            candidate.to(torch.int32).cpu().numpy(),
            confidence.float().cpu().numpy(),
        ]
        if s.unmasking.explores:
            numbers.append(entropy_bits(softmax(logits).double().cpu().numpy()))
        if explored is not None:
            at, won = int(np.searchsorted(numbers[0], explored.place)), explored.won
            new = explored.place, explored.tokens[won], explored.chance[won], 0
            numbers = [np.insert(column, at, x) for column, x in zip(numbers, new, strict=True)]
        written = {place: confidence for place, (_, confidence) in self.written.items()}
        return CanvasView(
            (self.first, self.behind),
            self.passes,
            places=numbers[0],
            candidate=numbers[1],
            confidence=numbers[2],
            written=written,
            edge=self.edge,
            entropy=numbers[3] if s.unmasking.explores else None,
            explored=explored,
            ends=s.stop.tokens,
        )

    def _apply_grammar(
        self, s: State, logits: Tensor, places: list[int], candidate: Tensor, explored: Explored | None
    ) -> Tensor:
        """The candidates, and for those that the grammar refuses others, which it leaves."""
        assert self.grammar is not None
        canvas = [*self.text.tokens]
        if explored is not None:
            canvas[explored.place - self.text.start] = explored.tokens[explored.won]
        may = self.grammar.allowed_tokens(canvas, places, logits.shape[-1], logits.device)
        bad = (~may.gather(-1, candidate[:, None])[:, 0]).nonzero()[:, 0]
        self.grammar.vetoes = [Veto(places[i], int(candidate[i])) for i in bad.tolist()]
        if len(bad):
            left = logits[bad].masked_fill(~may[bad], -torch.inf)
            again, _ = draw_candidates(s, [places[i] for i in bad.tolist()], left)
            candidate = candidate.index_copy(0, bad, again)
        return candidate

    def commit(self, view: CanvasView, choice: SelectorChoice) -> list[int]:
        """Settle the candidates that were chosen, or write them for now where some places are masked again; a block that is
        done is followed by the next. The indices of the open places that were committed, ascending."""
        taken = choice.committed_indices(view)
        if self.grammar is not None:
            explored = (
                None if view.explored is None else int(np.searchsorted(view.places, view.explored.place))
            )
            order = commit_order(taken, view.confidence, choice.order, explored)
            pairs = [(int(view.places[i]), int(view.candidate[i])) for i in order]
            refused = self.grammar.refuse(self.text.tokens, pairs)
            taken = sorted({*order} - {order[k] for k in refused})
        self.passes += 1
        if choice.reopened is None:
            for i in taken:
                self.text.settle(int(view.places[i]), int(view.candidate[i]))
        else:
            for i in taken:
                self.written[int(view.places[i])] = int(view.candidate[i]), float(view.confidence[i])
            for place in choice.reopened:
                del self.written[place]
        if choice.reopened == []:
            for place, (token, _) in self.written.items():
                self.text.settle(place, token)
        if choice.cut is not None:
            self.text.drop(choice.cut)
            self.edge, self.behind = min(self.edge, choice.cut), min(self.behind, choice.cut)
        if not self.text.open_positions(self.first, self.edge):
            self.begin_next_block()
        return taken

    def explore(self, s: State, view: CanvasView, choice: SelectorChoice, logits: Tensor) -> None:
        """Let the next pass try tokens at a place, if the selector asks for it. logits: float [K, O, V] of the present pass."""
        asked = s.unmasking.explore(view, choice) if s.unmasking.explores else None
        if asked is None:
            return
        place, count = asked
        won, at = 0, [*view.places.tolist()].index(place)
        if view.explored is not None:
            won, at = view.explored.won, at - (view.explored.place < place)
        left = logits[won, at]
        if self.grammar is not None:
            may = self.grammar.allowed_tokens(self.text.tokens, [place], left.shape[-1], left.device)[0]
            left = left.masked_fill(~may, -torch.inf)
        self.tries = CanvasVariants.from_top_logits(place, left, softmax(logits[won, at]), count)
