"""Partial: which sub-layers a pass leaves out, what decides so inside it, and which it ran."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from torch import Tensor

from decodescope.engine.core.probe import Probe
from decodescope.engine.core.spec import ModelSpec

from .deferred import DeferredTokens
from .faults import require_finite

Block = Literal["attn", "ffn"]

# What a layer's cache holds for a row whose attention does not run there: keys and values of the state that passes by
# ("propagate"), or those of the layer below once more ("copy"); nothing, and no later row runs that layer ("monotone"), or
# later rows read fewer ("absent"); nothing until the row goes on from where it stopped ("defer").
GAPS = ("propagate", "copy", "monotone", "absent", "defer")


@dataclass(frozen=True)
class Skip:
    """Sub-layers that a pass leaves out: attention and feed-forward blocks by layer number. gap: what the cache of a layer
    gets if its attention is left out; rows of a draft, which are dropped, need nothing there."""

    attn: frozenset[int] = frozenset()
    ffn: frozenset[int] = frozenset()
    gap: str = "absent"


NOTHING = Skip()
# whether a row ran the attention and the feed-forward block of a layer -> its letter
ROUTES = {(True, True): "r", (True, False): "a", (False, True): "f", (False, False): "-"}
WORDS = {"a": "a", "f": "f", "l": "af"}  # what a word of a plan begins with -> the blocks that it names


def parse_skip(words: Collection[str], spec: ModelSpec, where: str, gap: str = "absent") -> Skip:
    """Parse a list such as a2, f3, l5 (attention 2, feed-forward 3, both of layer 5) into the blocks that a pass leaves out;
    where: its place. Raises ValueError if a word of it names no block."""
    out: dict[str, set[int]] = {"a": set(), "f": set()}
    for word in words:
        kinds, number = WORDS[word[0]] if word[:1] in WORDS else "", word[1:]
        if not kinds or not (number.isascii() and number.isdigit()) or int(number) >= spec.n_layers:
            last = spec.n_layers - 1
            raise ValueError(
                f"{where} names {word!r}: write a0 to a{last} for attention blocks, f0 to f{last} for feed-forward "
                f"blocks and l0 to l{last} for both; {spec.name} has {spec.n_layers} layers."
            )
        for kind in kinds:
            out[kind].add(int(number))
    return Skip(frozenset(out["a"]), frozenset(out["f"]), gap)


class DepthRule(Protocol):
    """Decides, inside a pass, how much of it runs.

    whole: True if the layers above an exit still run, only to write their entries: the answer is that of the exit
    skipped_kv: what the cache holds for the layers above the exit, and for a row whose attention the rule
           leaves out
    routes: True if it is asked for the `rows` of each sub-layer
    """

    @property
    def whole(self) -> bool:
        """See above."""
        ...

    routes: ClassVar[bool]

    def rows(self, layer: int, block: Block, x: Tensor, probe: Probe | None) -> Tensor | None:
        """Called before a sub-layer, x float [B, T, d_model] entering it: the rows that run it, bool [T] or their numbers,
        int64 [R], ascending; None: all. probe: what the layers below have left, if requested."""
        ...

    @property
    def skipped_kv(self) -> str:
        """One of GAPS."""
        ...

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        """Asked before `layer` runs, x float [B, T, d_model] entering it; read() gives logits [B, T, V] from x."""
        ...

    def gate(self, layer: int, before: Tensor, after: Tensor) -> Collection[int]:
        """Called after the feed-forward block of `layer`, which turned `before` into `after`, both float [B, T, d_model]: the
        feed-forward blocks further up that this pass leaves out."""
        ...


@dataclass
class ExecutedLayers:
    """The sub-layers that a pass ran, entered where they run.

    filled:  layers that got keys and values of a state, without attention;  copied: those of the layer below
    pending: layer -> which rows of the pass are pending there, ascending, if it is not all of them alone; -1: one that had
             waited
    fed:     rows that were fed;  joined: layer -> tokens that had waited before it and went along from there
    left:    the rows, and what had joined them, where they wait now
    rows:    how many ran in a layer, if not all fed rows did
    some:    (layer, sub-layer) -> the rows that ran it, if a rule left some out
    gap:     how layers without attention were filled; "": there were none
    """

    attn: list[int] = field(default_factory=list)
    ffn: list[int] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)
    copied: list[int] = field(default_factory=list)
    pending: dict[int, list[int]] = field(default_factory=dict)
    gap: str = ""
    fed: int = 0
    joined: dict[int, int] = field(default_factory=dict)
    left: DeferredTokens | None = None
    rows: dict[int, int] = field(default_factory=dict)
    some: dict[tuple[int, Block], list[int]] = field(default_factory=dict)

    def enter_all(self, fed: int, layers: range) -> None:
        """All `fed` rows of a pass ran both blocks of these layers."""
        self.fed = fed
        self.attn = [*layers]
        self.ffn = [*layers]

    def enter_rows(self, layer: int, block: Block, rows: Tensor) -> None:
        """Of a sub-layer that a rule was asked about `rows` (int64 [R]) run alone."""
        self.some[layer, block] = rows.tolist()
        if len(rows):
            (self.attn if block == "attn" else self.ffn).append(layer)

    def row_routes(self, layers: int) -> list[str] | None:
        """By layer what each row ran of it, a letter each, as a pass records it; None: no row was left out."""
        if not self.some:
            return None
        every, signs = [*range(self.fed)], list[str]()
        for i in range(layers):
            attn, ffn = (set(self.some.get((i, x), every if i in ran else [])) for x, ran in self._blocks)
            signs.append("".join(ROUTES[k in attn, k in ffn] for k in every))
        return signs

    @property
    def _blocks(self) -> tuple[tuple[Block, list[int]], ...]:
        return ("attn", self.attn), ("ffn", self.ffn)

    def by_layer(self, fed: int, layers: int) -> list[int] | None:
        """How many of the `fed` rows ran each layer; None: all of them, in each layer that ran."""
        if not self.rows:
            return None
        whole = {*self.attn, *self.ffn}
        return [self.rows.get(i, fed if i in whole else 0) for i in range(layers)]

    def kept_rows(self, layer: int, rows: Sequence[int]) -> list[int]:
        """Which of the rows pending in `layer` stay when `rows` of the pass do, by number among the pending ones."""
        if layer not in self.pending:
            return list(rows)
        stays = {-1, *rows}
        return [at for at, row in enumerate(self.pending[layer]) if row in stays]


class LazyLogits:
    """The logits [B, T, V] of the states x [B, T, d_model], computed once, on the first request. model: its name. Inside a
    pass they are finite, or an EngineFault is raised."""

    def __init__(
        self, x: Tensor, normed: Callable[[Tensor], Tensor], unembed: Callable[[Tensor], Tensor], model: str
    ):
        self._x = x
        self._normed = normed
        self._unembed = unembed
        self._model = model
        self._feature: Tensor | None = None
        self._logits: Tensor | None = None

    def use_norm(self, normed: Callable[[Tensor], Tensor]) -> None:
        """From now on `normed` makes the feature, instead of the model's last norm. Call it before anything else."""
        self._normed = normed

    @property
    def feature(self) -> Tensor:
        """The input of the unembedding, float [B, T, d_model]."""
        if self._feature is None:
            self._feature = self._normed(self._x)
        return self._feature

    def __call__(self) -> Tensor:
        if self._logits is None:
            self._logits = require_finite(self._unembed(self.feature), f"an exit of {self._model}")
        return self._logits

    def logits(self, rows: slice | list[int]) -> Tensor:
        """The logits of `rows` at the end of a pass; the rest is not computed. The caller checks that they are finite."""
        return self._unembed(self.feature[:, rows]) if self._logits is None else self._logits[:, rows]
