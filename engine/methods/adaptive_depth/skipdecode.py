"""SkipDecode: later tokens run fewer layers, by a schedule that is known before the first."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.exit_rule import gap_conflict
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial_pass import Skip
from decodescope.engine.trace.records.events import Exit

from .shared.layer_schedule import executed_layers, layer_count_at


@component
class SkipDecode(AdaptiveDepth):
    """The number of layers falls linearly from `max_layers` at the first token of the answer to `min_layers` after
    `decay_horizon` tokens.

    It then stays at `min_layers`. Every token runs the first `warmup_layers` layers and the last of the others, so it skips the
    lower to middle layers. A token's layers are a subset of those of every earlier token. So no layer lacks an entry that it
    looks for (skipped_kv "monotone"), and a skipped layer never costs anything later. The work of an answer is known before it
    begins. Several rows of one pass (a draft being verified) run the layers of the first row, which has the most.

    `min_layers` = `max_layers` = all layers is the whole model, bit for bit. Deviations: the paper counts positions from the
    beginning of the text, and fine-tunes a model for each task under its schedule. Here positions count from the end of the
    prompt, which is read whole whatever `max_layers` is. A model without such training is allowed. The adapter `lab+skipdecode`
    was trained under schedules of all sorts. One layer of warmup is [recalled], as is the rounding of the decay. Lossy.
    """

    title = "SkipDecode"
    source = "Del Corro et al. 2023, arXiv:2307.02628, section 3"
    caution = (
        "Fewer layers change the text, more so the later the token; without training it soon falls apart."
    )
    tells: ClassVar[dict[str, Note]] = {
        "depth": Note("series", "layers", "layers", "that the schedule gives the token")
    }
    skipped_kv = "monotone"

    min_layers: int = param(
        0,
        low=0,
        high=512,
        unit="layers",
        help="number of layers for the last tokens of the answer (A_min); 0: half of the model's",
    )
    max_layers: int = param(
        0,
        low=0,
        high=512,
        unit="layers",
        help="number of layers for the first token of the answer (A_max); 0: all",
    )
    decay_horizon: int = param(
        128,
        low=1,
        high=65_536,
        unit="tokens",
        help="length of the answer over which the number of layers falls",
    )
    warmup_layers: int = param(1, low=0, high=512, unit="layers", help="first layers, which always run")

    def bounds(self, spec: ModelSpec) -> tuple[int, int]:
        """The fewest layers and the most that a token runs."""
        return self.min_layers or -(-spec.n_layers // 2), self.max_layers or spec.n_layers

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        least, most = self.bounds(spec)
        if not self.warmup_layers <= least <= most <= spec.n_layers:
            return (
                f"{self.name}: warmup_layers {self.warmup_layers}, min_layers {least} and max_layers {most} must not fall, "
                f"and {spec.name} has "
                f"{spec.n_layers}; choose warmup_layers <= min_layers <= max_layers <= {spec.n_layers}."
            )
        return gap_conflict(self, method) if least < spec.n_layers else None

    def begin(self, spec: ModelSpec) -> None:
        self._layers = spec.n_layers
        self._count = spec.n_layers
        self._least, self._most = self.bounds(spec)

    def plan(self, position: int, feed: Feed) -> Skip:
        self._count = layer_count_at(position, self._most, self._least, self.decay_horizon)
        out = frozenset(range(self._layers)).difference(
            executed_layers(self._count, self.warmup_layers, self._layers)
        )
        return Skip(out, out, self.skipped_kv)

    def take_exit(self) -> Exit | None:
        return Exit(self._count, "position")
