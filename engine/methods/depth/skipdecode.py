"""SkipDecode: later tokens run fewer layers, by a schedule that is known before the first."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.depth import Depth
from decodescope.engine.decoding.bases.exits import unfit
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.partial import Skip
from decodescope.engine.trace.records.events import Exit

from .shared.staircase import active, executed


@component
class SkipDecode(Depth):
    """The number of layers falls linearly from `most` at the first token of the answer to `least` after `horizon` tokens, and
    stays there. The first `warmup` layers run for every token, and of the others the last ones: what falls away are the lower
    to middle layers. As the layers of a token are among those of every token before it, no layer ever lacks an entry that it
    looks for (gap "monotone"): what is left out costs nothing, neither now nor later. The work of an answer is known before it
    begins.
    Several rows of one pass, those of a draft that is verified, run the layers of the first of them, which has most.

    `least` = `most` = all layers is the whole model, bit for bit. Deviations: the paper counts places from the beginning of the
    text and fine-tunes a model for each task under its schedule; here places are counted from the end of the prompt, which is
    read whole whatever `most` says, and a model that was not trained for it may be taken. The adapter `lab+skipdecode` was
    trained under schedules of all sorts. One layer of warmup is [recalled], as is the rounding of the decay. Lossy.
    """

    title = "SkipDecode"
    source = "Del Corro et al. 2023, arXiv:2307.02628, section 3"
    caution = (
        "Fewer layers change the text, more so the later the token; without training it soon falls apart."
    )
    tells: ClassVar[dict[str, Note]] = {
        "depth": Note("series", "layers", "layers", "that the schedule gives the token")
    }
    gap = "monotone"

    least: int = param(
        0, low=0, high=512, unit="layers", help="A_min, of the last tokens; 0: half of the model's"
    )
    most: int = param(
        0, low=0, high=512, unit="layers", help="A_max, of the first token of the answer; 0: all"
    )
    horizon: int = param(
        128, low=1, high=65_536, unit="tokens", help="of the answer, over which the layers fall"
    )
    warmup: int = param(1, low=0, high=512, unit="layers", help="first layers, which always run")

    def bounds(self, spec: ModelSpec) -> tuple[int, int]:
        """The fewest layers and the most that a token runs."""
        return self.least or -(-spec.n_layers // 2), self.most or spec.n_layers

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        least, most = self.bounds(spec)
        if not self.warmup <= least <= most <= spec.n_layers:
            return (
                f"{self.name}: warmup {self.warmup}, least {least} and most {most} layers must not fall, and {spec.name} has "
                f"{spec.n_layers}; choose warmup <= least <= most <= {spec.n_layers}."
            )
        return unfit(self, method) if least < spec.n_layers else None

    def begin(self, spec: ModelSpec) -> None:
        self._layers, self._count, (self._least, self._most) = spec.n_layers, spec.n_layers, self.bounds(spec)

    def plan(self, position: int, feed: Feed) -> Skip:
        self._count = active(position, self._most, self._least, self.horizon)
        out = frozenset(range(self._layers)).difference(executed(self._count, self.warmup, self._layers))
        return Skip(out, out, self.gap)

    def took(self) -> Exit | None:
        return Exit(self._count, "position")
