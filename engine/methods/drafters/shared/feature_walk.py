"""FeatureWalk: shared by drafters with a layer that guesses the target's features and drafts on its own guesses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.decoding.bases.context import Context, DraftOutcome
from decodescope.engine.decoding.bases.policy import CHUNK
from decodescope.engine.decoding.values.draft import unpack_bit_rows
from decodescope.engine.model.heads.drafting.pairs import PairHead


def join_states(hidden: dict[int | str, Tensor], places: Sequence[int | str]) -> Tensor:
    """float [n, W]: the states of a probe's rows at these places, concatenated along the width."""
    states = [hidden[place][0] for place in places]
    return states[0] if len(states) == 1 else torch.cat(states, -1)


def accepted_rows(outcome: DraftOutcome) -> tuple[list[int], list[int]]:
    """The rows of the target's pass whose tokens are text now, the root's first, and the token after each of them."""
    path, token = outcome.verdict.path, outcome.verdict.token
    emitted = [outcome.draft.tokens[node] for node in path] + ([] if token is None else [token])
    return [0, *(node + 1 for node in path)][: len(emitted)], emitted


class FeatureWalk:
    """A layer that reads the text with the target, and looks ahead level by level.

    Slot t of the layer reads the pair (f_t, e(t+1)). Its cache keeps the pairs of the text, with true features. The pairs of a
    look ahead, with features that the layer guessed itself, are pending until `close`. places: the target's layers with states
    that make a feature, concatenated along the width
    """

    def __init__(self, ctx: Context, layer: PairHead, places: Sequence[int | str]):
        self.layer = layer
        self.decoder = ctx.target.decoder
        self.places = tuple(places)
        self._table = layer.embedding(self.decoder)  # [V, d]
        self.store = layer.store()
        self.due: tuple[Tensor, list[int]] | None = (
            None  # states [k, W] and next tokens that the layer has not read
        )
        self._next: Tensor | None = None  # [1, d], the layer's output after the last pair
        self._sees = [0]  # the pending slots that each row of the last level sees, as bits
        self._pending = self.level = 0
        if ctx.target.probe is not None:
            self.due = self._states(ctx.target.probe.hidden), ctx.tokens[1:]
            assert len(self.due[0]) == len(self.due[1]), "the lane hands over the states of the whole prompt"

    def _states(self, hidden: dict[int | str, Tensor]) -> Tensor:
        return join_states(hidden, self.places)

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """float [n, d]: the embeddings of tokens that the layer reads."""
        return F.embedding(torch.tensor(tokens, device=self.decoder.device), self._table)

    def note_accepted(self, outcome: DraftOutcome) -> None:
        """Store the true states of the tokens that the target has accepted; the next `read_root` reads them."""
        rows, emitted = accepted_rows(outcome)
        self.due = self._states(outcome.hidden)[rows], emitted

    def read_root(self) -> Tensor | None:
        """Read the pending pairs in one pass, and keep them.

        Returns the layer's output [1, d] after the root; None if nothing was read yet (a prompt of one token).
        """
        self.store.rollback()
        if self.due is not None:
            states, tokens = self.due
            for at in range(0, len(tokens), CHUNK):
                part = tokens[at : at + CHUNK]
                self._next = self._output_after(self.layer.enter(states[at : at + CHUNK]), self.embed(part))
                self.store.commit(range(len(part)))
            self.due = None
        self._sees = [0]
        self._pending = 0
        self.level = 0
        return self._next

    def _output_after(self, features: Tensor, embedded: Tensor) -> Tensor:
        """The output [1, d] after the last of the pairs float [T, d]; their rows are the first pending ones."""
        return self.layer(features[None], embedded[None], self.store.n, self.store)[0, -1:]

    def next_level(self, outputs: Tensor, above: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """The outputs [R, d] after `tokens`, one level further.

        Token i follows row above[i] of the level before. The `outputs` [.., d] of that level replace true features. Each token
        sees the text, its ancestors and itself.
        """
        device, n = self.decoder.device, self.store.n
        fed, at = torch.tensor([tokens, above], device=device)  # one copy up for both
        pairs = outputs.index_select(0, at)[None], self._table.index_select(0, fed)[None]
        self._sees = [self._sees[row] | 1 << slot for slot, row in enumerate(above, self._pending)]
        self._pending += len(tokens)
        if self._pending == self.level + 1:  # a chain so far
            state = self.layer(*pairs, n + self.level, self.store)
        else:
            visible = unpack_bit_rows(tuple(self._sees), self._pending).to(device)
            state = self.layer(*pairs, n, self.store, self.level, visible)
        self.level += 1
        return state[0]

    def logits(self, outputs: Tensor) -> Tensor:
        """float [R, V]: the logits of the token after each row of outputs [R, d]."""
        return self.layer.logits(outputs, self.decoder)

    @property
    def passes(self) -> int:
        """Passes of the layer on guessed features since `read_root`."""
        return self.level

    def close(self) -> None:
        """Drop what is pending."""
        self.store.rollback()
