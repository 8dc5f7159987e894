"""Pass: one forward call, and how much of the model it ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .exits import Exit, Price

Layers = int | list[int] | None  # a number: that many, from the first on
SIGNS = "raf-"  # what a row ran of a layer: both sub-layers, its attention alone, its feed-forward block alone, neither


@dataclass
class Pass:
    """One forward call.

    lane:    "target", "draft", ...;  phase: "prefill", "draft", "verify", "catch_up", "search" (a skip set is scored, an oracle
             looks ahead), "score" (prompt compression or a policy reads the prompt), "canvas" (places among the text are
             filled), "flush" (tokens that had waited go on), "lookup" (three tokens alone, for a table of states)
    tokens:  rows fed per sequence; batch: sequences
    held:    committed entries per KV head before the pass; by layer if layers differ, by layer and KV head if heads do
    attn, ffn: layers whose attention and whose feed-forward block ran: a number: that many from the first on; a list: these;
             None: all
    propagated: layers that got keys and values from the state at an exit, without running: a number: that many of the first
             ones without attention; a list: these
    gap:     what the cache of a layer without attention gets: keys and values of a state ("propagate", `propagated`), those of
             the layer below ("copy", `copied`, as `propagated`), or nothing, because no later pass runs the layer ("monotone"),
             later ones read fewer ("absent") or the rows go on later ("defer"); "": all layers ran
    rows:    by layer, how many of the fed rows ran it, the last ones if a chain enters layer by layer; 0: it did not run. None:
             all of them
    routed:  by layer, what each fed row ran of it, a letter for each: "r" both sub-layers, "a" its attention alone, "f" its
             feed-forward block alone, "-" neither. For a row without attention the layer got what `gap` says, as if no row ran
             it. None: all rows ran what the pass ran
    joined:  [[layer, tokens], ...] that had waited in front of a layer and ran the rest with the rows; `tokens` does not count
             them
    tests:   layers in front of which an exit was tested;  asks, inner: what each cost, as in `Exit`
    slots:   the last rows, which are no tokens of the text: trained prompt tokens, never kept, or vectors that prompt
             compression put into the text;  aside: entries without tokens that the rows also read, per KV head; `held` does not
             count them
    pending: entries of rows of an earlier pass that are not decided yet; these rows read them in addition to `held`: a number,
             or by layer; None: none
    shared:  how many of `held` exist once for all sequences;  distinct: those read, if they have more in common
    read:    how many of `held` were read, by layer and KV head; None: all;  bounds: by layer, pages whose bounds were read
    rank:    of the map of trained exits that read the tested states, and the state that the pass left with
    logits:  how many of the rows were unembedded; None: the last one if a prompt is read, all otherwise
    together: how many runs were in the pass, including this one, each with its own rows and cache, recorded in its own trace;
             `wall_us` is that of the whole pass. None: this run alone
    """

    lane: str
    phase: str
    tokens: int
    held: int | list[int] | list[list[int]]
    wall_us: float
    batch: int = 1
    attn: int | list[int] | None = None
    ffn: int | list[int] | None = None
    propagated: int | list[int] | None = None
    instrumented: bool | None = None
    slots: int | None = None
    shared: int | None = None
    read: list[list[int]] | None = None
    bounds: list[int] | None = None
    distinct: int | None = None
    aside: int | None = None
    tests: list[int] | None = None
    asks: Price = ""
    gap: str = ""
    copied: int | list[int] | None = None
    joined: list[list[int]] | None = None
    logits: int | None = None
    rows: list[int] | None = None
    rank: int | None = None
    routed: list[str] | None = None
    inner: int | None = None
    pending: int | list[int] | None = None
    together: int | None = None

    @property
    def entries(self) -> float:
        """Entries per KV head that were held, on average over layers and heads."""
        return (
            float(np.mean([np.mean(layer) for layer in self.held]))
            if isinstance(self.held, list)
            else self.held
        )

    @property
    def max_entries(self) -> int:
        """Entries of the KV head that held most."""
        return int(max(np.max(layer) for layer in self.held)) if isinstance(self.held, list) else self.held

    def record_layers_run(
        self, attn: list[int], ffn: list[int], filled: list[int], copied: list[int], layers: int
    ) -> None:
        """Record what ran, of a model with `layers` layers."""
        everything = range(layers)
        self.attn, self.ffn = _compact_layers(attn, everything), _compact_layers(ffn, everything)
        self.propagated, self.copied = (
            _compact_filled(x, [i for i in everything if i not in attn]) for x in (filled, copied)
        )

    def record_exit_tests(self, left: Exit) -> None:
        """Enter the tests by which the pass was to leave."""
        self.tests, self.asks = [int(test[0]) for test in left.tests], left.asks
        self.rank, self.inner = left.rank or None, left.inner

    def running_rows(self, layer: int, block: str) -> list[int]:
        """The rows that ran the attention ("attn") or feed-forward block ("ffn") of `layer`, of a pass that is `routed`."""
        assert self.routed is not None
        signs = "ra" if block == "attn" else "rf"
        return [row for row, sign in enumerate(self.routed[layer]) if sign in signs]

    @property
    def misses(self) -> bool:
        """True if a layer has no entry of a row that did not run its attention."""
        return self.routed is not None and self.gap == "absent"

    def joined_tokens(self, layer: int) -> int:
        """How many tokens that had waited ran `layer` with the rows."""
        return sum(n for first, n in self.joined or [] if first <= layer)

    @property
    def layers(self) -> tuple[int | None, int | None, int | None]:
        """How many layers ran their attention and their feed-forward block, None: all, and how many were filled."""
        return _layer_count(self.attn), _layer_count(self.ffn), _layer_count(self.propagated)


def resolve_layers(said: Layers, among: Sequence[int]) -> set[int]:
    """The layers that a pass names of `among`."""
    if isinstance(said, list):
        return set(said)
    return set(among if said is None else list(among)[:said])


def _compact_layers(which: list[int], among: Sequence[int]) -> Layers:
    """`which` of `among` as a pass records it: None for all, a number where they are the first."""
    if len(which) == len(among):
        return None
    return len(which) if which == list(among[: len(which)]) else which


def _compact_filled(which: list[int], among: Sequence[int]) -> Layers:
    """As `_compact_layers`, of layers that got something else; None: of none."""
    said = _compact_layers(which, among) if which else None
    return len(which) if which and said is None else said


def _layer_count(layers: Layers) -> int | None:
    return len(layers) if isinstance(layers, list) else layers
