"""Exits: the base of every rule that leaves a pass early once the target seems sure enough."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, cast

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.exits import ExitHeads
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.layers.partial_pass import NOTHING, LazyLogits, Skip
from decodescope.engine.trace.records.events import Exit
from decodescope.engine.trace.records.exits import Price

from .adaptive_depth import AdaptiveDepth, DepthLane

LACKING = ("monotone", "absent")  # skipped_kv values under which a layer never gets an entry of some tokens
FILLS = ("propagate", "copy", "absent")  # skipped_kv values of rules that leave early
FILLED = "keys and values of skipped layers: from the exit state, copied from below, or none"
CAUTION = (
    "Leaving early changes the text; how much depends on how well the layers below were trained to answer."
)


def gap_conflict(rule: AdaptiveDepth, method: MethodView) -> str | None:
    """Why a rule under which layers lack entries does not fit the other parts of the method; None: it does."""
    if rule.skipped_kv not in LACKING:
        return None
    what = f"under the gap {rule.skipped_kv} of {rule.name} layers lack entries, and"
    chosen = "adaptive_depth all_layers" if method.adaptive_depth is rule else "a rule without this gap"
    way = (
        f"{rule.name} with skipped_kv = propagate"
        if any(p.name == "skipped_kv" for p in rule.params())
        else chosen
    )
    if method.kv_compression.does:
        return f"{what} {method.kv_compression.name} packs them as they follow; choose kv_compression unpacked, or {way}."
    if "select" in method.policy.does:
        return (
            f"{what} {method.policy.name} looks for pages of the text; choose the policy keep_all, or {way}."
        )
    return None


def routing_conflict(rule: AdaptiveDepth, method: MethodView) -> str | None:
    """Why a rule that lets rows choose what they run does not go with its neighbours; None: it does."""
    policy = method.policy
    if "select" in policy.does:
        what = f"under {rule.name} the rows of a pass run different layers, and {policy.name} chooses what all of them read;"
        return f"{what} choose the policy keep_all."
    if (
        rule.reads
        and method.adaptive_depth is rule
        and (policy.needs.queries or policy.needs.moments is not None)
    ):
        what = f"{policy.name} looks at the queries of the prompt in every layer, and under {rule.name} some tokens make none;"
        return f"{what} choose a policy that looks at none, such as h2o."
    return gap_conflict(rule, method)


@component
class ExitRule(AdaptiveDepth):
    """A rule that tests how confident the target is before layer `first` and before every `interval`-th layer above it. It
    leaves at the first layer with a score that reaches the bound.

    `skipped_kv` defines what skipped layers hold of the token. "propagate": keys and values from the exit state (CALM's state
    propagation), so later tokens find no hole, only an approximation. "copy": those of the last layer that ran (the naive
    baseline), which cost no product. "absent": nothing, so later tokens read fewer there; a model has to be trained for it.

    With several rows in one pass (a draft being verified) the least confident row decides for all. A model with no more
    layers than `first` is refused: nothing could be left out. With `heads` = "exits" a state is read through the trained exit
    of its layer (`heads/exits`), in tests and in the answer.

    A subclass defines `score`; if `below` is set, a small score means confident, and the pass leaves under the bound.
    """

    below: ClassVar[bool] = False
    caution = CAUTION
    tells: ClassVar[dict[str, Note]] = {
        "depth": Note("series", "left after", "layers", "that ran for this pass"),
        "sure": Note("series", "sure", what="score at the last test", line="threshold"),
        "threshold": Note("series", "bar", what="score at which the pass leaves"),
        "tests": Note("grid", "tests by layer", what="score in front of each layer that was asked"),
    }

    min_layers: int = param(2, low=1, high=512, unit="layers", help="number of first layers that always run")
    interval: int = param(
        1, low=1, high=64, unit="layers", help="number of layers from one exit test to the next"
    )
    heads: str = param(
        "none",
        choices=("none", "exits"),
        help="how an exit reads its state: with the final norm alone, or with trained exit heads",
    )
    skipped_kv: str = param("propagate", choices=FILLS, help=FILLED)

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.heads != "none" and (no := missing_reason("exits", spec, f"{self.name}.heads = none")):
            return no
        if self.min_layers < spec.n_layers:
            return gap_conflict(self, method)
        way = (
            f"choose at most {spec.n_layers - 1}" if spec.n_layers > 1 else "choose adaptive_depth all_layers"
        )
        return (
            f"{self.name}.min_layers = {self.min_layers}: {spec.name} has {spec.n_layers} layers, "
            f"so none could be left out; {way}."
        )

    def attach_lane(self, lane: DepthLane) -> None:
        self._lane = lane

    def begin(self, spec: ModelSpec) -> None:
        self._layers = spec.n_layers
        self._heads = None if self.heads == "none" else cast(ExitHeads, self._lane.decoder.heads["exits"])
        self._begin_pass()

    def plan(self, position: int, feed: Feed) -> Skip:
        self._begin_pass()
        return NOTHING

    def _begin_pass(self) -> None:
        self._left: int | None = None
        self._tests: list[list[float]] = []
        self._best: list[Tensor] = []  # likeliest token of the row that decided, by test
        self._sure: Tensor | None = None  # bool [B, T], rows that were sure by themselves at a test so far
        self._rows: Tensor | None = None  # int64 [B, T], the layer of the first of these

    def bound(self, layer: int) -> float:
        """The score at which a pass leaves before `layer`."""
        raise NotImplementedError

    def exit_bound(self, layer: int, bounds: tuple[float, ...], usual: float) -> float:
        """The bound before `layer` from `bounds` (one per exit; the last serves all further exits); `usual` if there are
        none."""
        place = (layer - self.min_layers) // self.interval
        return bounds[min(place, len(bounds) - 1)] if bounds else usual

    def score(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> Tensor | None:
        """The confidence of each row of x [B, T, d_model] before `layer`, float [B, T]; None: there is nothing to compare."""
        raise NotImplementedError

    def leave(self, layer: int, x: Tensor, read: Callable[[], Tensor]) -> bool:
        if layer < self.min_layers or (layer - self.min_layers) % self.interval:
            return False
        if self._heads is not None:
            cast(LazyLogits, read).use_norm(partial(self._heads, layer=layer))
        rows = self.score(layer, x, read)
        if rows is None:
            return False
        score, bound = float(rows.max() if self.below else rows.min()), self.bound(layer)
        if self.shown:
            self._record_test(layer, rows, bound, read)
        self._tests.append([layer, score, bound])
        if score < bound if self.below else score >= bound:
            self._left = layer
            return True
        return False

    def _record_test(self, layer: int, rows: Tensor, bound: float, read: Callable[[], Tensor]) -> None:
        """Keep what a trace records of a test: the best token, if its logits are there, and which rows were confident."""
        if self.test_price == "head":
            least = rows.flatten().argmax() if self.below else rows.flatten().argmin()
            self._best.append(read().flatten(0, 1).argmax(-1)[least])
        if rows.numel() > 1:
            sure = rows < bound if self.below else rows >= bound
            if self._sure is None or self._rows is None:
                self._sure = torch.zeros_like(sure)
                self._rows = torch.full_like(sure, self._layers, dtype=torch.long)
            self._rows = torch.where(sure & ~self._sure, layer, self._rows)
            self._sure |= sure

    def take_exit(self) -> Exit | None:
        depth = self._layers if self._left is None else self._left
        best = torch.stack(self._best).tolist() if self._best else None
        rows = None if self._rows is None else self._rows.flatten().clamp_max(depth).tolist()
        rank = 0 if self._heads is None else self._heads.shape["rank"]
        return Exit(
            depth,
            self.measure_name,
            self._tests,
            below=self.below,
            asks=self.test_price,
            best=best,
            rows=rows,
            rank=rank,
        )

    @property
    def measure_name(self) -> str:
        """Name of the measure, as a trace writes it."""
        return self.name

    @property
    def test_price(self) -> Price:
        """The cost of a test."""
        return "head"


def cosine_similarity(x: Tensor, y: Tensor) -> Tensor:
    """Of the rows of x and y [B, T, d_model], float32 [B, T]."""
    x, y = x.float(), y.float()
    cosine: Tensor = (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))
    return cosine
