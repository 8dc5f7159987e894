"""Trigrams: a token's first layers see only its nearest tokens, so that their output can be looked up in a table."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth, DepthLane
from decodescope.engine.decoding.bases.exit_rule import gap_conflict
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.heads.trigrams import TrigramLayers
from decodescope.engine.model.layers.partial_pass import NOTHING, Skip
from decodescope.engine.trace.records.events import Exit

from .shared.state_table import StateTable

TOGETHER = 8  # trigrams computed in one pass, in a model that reads both sides
Trigram = tuple[int, int, int]


@component
class Trigrams(AdaptiveDepth):
    """The first `layers` layers see only three tokens of the text, so their output is a function of these three tokens at any
    position. It is computed once, in a pass over the three, and kept in a table of at most `table_size` kB. The least recently
    used trigram leaves the table. A pass enters at the layer above, with looked-up states. The layers below do not run for
    text. Their weights are read only for trigrams missing from the table, and they get no entries of the answer (skipped_kv
    "monotone"). Trigrams are computed in passes of one shape; the last pass is padded. So a state does not depend on what else
    was missing: a looked-up state equals a computed one, bit for bit.

    In a model that reads both sides, as in SkipBERT, the three are the token and its two neighbours. At an end of the text, the
    token itself replaces the missing neighbour. With `heads` = "trigrams" the layers use matrices that were trained to give the
    states of the frozen model. The decoder form is ours: the first layers of a causal model read the last three tokens. Prompts
    are read whole, and nothing was trained. Lossy.

    Deviations: SkipBERT keeps the states of all three tokens, adds up what overlapping trigrams give for a token, and then adds
    positions. Here a token has its own trigram's state, and the layers above rotate. SkipBERT builds its table from a corpus
    beforehand, and adds nothing when the table is full. If a trigram of a text is missing, it computes all, or falls back to
    pairs and single tokens.
    """

    title = "Trigram table (SkipBERT)"
    source = (
        "Wang et al. 2022, SkipBERT, 2022.acl-long.503; LorrinWWW/SkipBERT, skipbert/modeling.py, plot.py; the form for "
        "decoders is ours"
    )
    caution = "The first layers see three tokens alone; without training for it the text changes a lot."
    skipped_kv = "monotone"
    tells: ClassVar[dict[str, Note]] = {
        "known": Note(
            "node", "found", what="whether the state that enters the layers above was in the table"
        ),
        "hits": Note("series", "hits", "rows", "of the pass whose trigram was in the table"),
        "misses": Note("series", "misses", "rows", "of the pass whose trigram had to be worked out"),
        "table": Note("series", "table", "bytes", "taken by the states that are kept"),
    }

    layers: int = param(
        1,
        low=0,
        high=512,
        unit="layers",
        help="number of first layers that are looked up; 0: none; trained heads set their own",
    )
    table_size: int = param(
        1024, low=0, high=1 << 20, unit="kB", help="maximum size of the table of states; 0: it keeps none"
    )
    heads: str = param(
        "none",
        choices=("none", "trigrams"),
        help="matrices of the looked-up layers: the model's own (none), or trained ones",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.heads != "none" and (no := missing_reason("trigrams", spec, f"{self.name}.heads = none")):
            return no
        if self.layers < spec.n_layers:
            return gap_conflict(self, method) if self.layers else None
        return (
            f"{self.name}.layers = {self.layers}: {spec.name} has {spec.n_layers} layers, so none would read the text; choose "
            "fewer, or adaptive_depth all_layers."
        )

    def attach_lane(self, lane: DepthLane) -> None:
        self._lane = lane

    def begin(self, spec: ModelSpec) -> None:
        self._decoder, self._until = self._lane.decoder, self.layers
        if self.layers and self.heads != "none":
            head = cast(TrigramLayers, self._decoder.heads["trigrams"])
            self._decoder, self._until = head.apply_to(self._decoder), head.shape["layer"]
        self._at, self._together = (2, 1) if spec.causal else (1, TOGETHER)
        self._table: StateTable[Trigram] = StateTable(self.table_size * 1000, self._decoder.embed[0])
        self._fed: dict[int, int] = {}  # tokens of passes that may not be committed yet, by position
        self._layers, self._known = spec.n_layers, list[bool]()

    def plan(self, position: int, feed: Feed) -> Skip:
        if not self._until:
            return NOTHING
        states, self._known = self._table.states(self._trigrams(feed), self._compute_states)
        feed.states, below = states[None], frozenset(range(self._until))
        return Skip(below, below, self.skipped_kv)

    def _trigrams(self, feed: Feed) -> list[Trigram]:
        """For each row of the pass, the three tokens that its first layers see, in the order of the text."""
        own: list[int] = feed.tokens[0].tolist()
        if self._at == 1:
            return list(zip([own[0], *own[:-1]], own, [*own[1:], own[-1]], strict=True))
        places, before = feed.positions[0].tolist(), self._parents(feed)
        known = {**self._fed, **dict(enumerate(self._lane.tokens[-2:], max(len(self._lane.tokens) - 2, 0)))}
        self._fed = {k: v for k, v in known.items() if k >= places[0] - 2} | {places[0]: own[0]}
        chains: list[Trigram] = []
        for token, place, parent in zip(own, places, before, strict=True):
            last = known.get(place - 1, own[0]) if parent is None else own[parent]
            first = known.get(place - 2, own[0]) if parent is None else chains[parent][1]
            chains.append((first, last, token))
        return chains

    @staticmethod
    def _parents(feed: Feed) -> list[int | None]:
        """For each row, the fed row directly before it in its text; None: that token was read in an earlier pass."""
        if feed.length == 1:
            return [None]
        places = feed.positions[0]
        right = places[None] == places[:, None] - 1  # [T, T]
        if feed.visible is not None:
            right = right & feed.visible[0, :, -feed.length :]
        return [row.index(True) if True in row else None for row in right.tril(-1).tolist()]

    def _compute_states(self, missing: list[Trigram]) -> Tensor:
        """The states [n, d] of n trigrams, from passes that see nothing else."""
        rest = -len(missing) % self._together
        ids = torch.tensor([*missing, *missing[:1] * rest], device=self._decoder.device)
        places = torch.arange(3, device=ids.device).expand(self._together, 3)
        parts = []
        for some in ids.split(self._together):
            feed = Feed(some, places, highest=2)
            parts.append(
                self._lane.states_before(feed, self._until, "lookup", alone=True, by=self._decoder)[
                    :, self._at
                ]
            )
        return torch.cat(parts)[: len(missing)]

    def take_exit(self) -> Exit | None:
        if not self._until:
            return Exit(self._layers, "trigrams")
        return Exit(self._layers - self._until, "trigrams", known=self._known, table=self._table.nbytes)
