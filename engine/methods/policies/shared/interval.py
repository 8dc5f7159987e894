"""Interval cuts: base of policies that let tokens come for a while and then cut back to a target at once."""

from __future__ import annotations

from collections.abc import Callable, Container

from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.policy import MOST, ScoredPolicy, share_knob
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.trace.records.events import Piece
from decodescope.engine.trace.records.parts import Zone

from .key_scores import SCORER_HELP, SCORERS, score_entries


@component
class IntervalCuts(ScoredPolicy):
    """Every `interval` committed tokens each KV head is cut down to `target_entries`, by one of the scores that ask for no
    attention. Between two cuts nothing leaves.

    since: tokens of the text at the last cut, or at the prompt's end
    """

    scorer: str = param("norm", choices=SCORERS, help=SCORER_HELP)
    target_entries: int = param(
        96, low=1, high=MOST, unit="entries", help="entries that each KV head keeps at a cut"
    )
    interval: int = param(
        32, low=1, high=MOST, unit="tokens", help="number of written tokens between two cuts"
    )
    sink_tokens: int = param(4, low=0, high=64, unit="entries", help="first entries, never evicted")
    compress_prompt: bool = param(
        True,
        help="also cut when the prompt has ended; off: the prompt stays whole until the first interval is over",
    )
    budget_share: float = share_knob()

    @property
    def zones(self) -> tuple[Zone, ...]:
        chosen = Zone("chosen", "chosen", self.target_entries - self.sink_tokens)
        return (
            Zone("sinks", "first", self.sink_tokens),
            chosen,
            Zone("since the cut", "chosen", self.interval),
        )

    @property
    def budget(self) -> int | None:
        """None where the prompt stays whole at first."""
        return super().budget if self.compress_prompt else None

    def set_budget(self, budget: int) -> None:
        self.target_entries = budget

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if self.sink_tokens <= self.target_entries:
            return None
        return (
            f"{self.name} protects {self.sink_tokens} first entries and keeps {self.target_entries}: raise target_entries or "
            f"lower sink_tokens."
        )

    def max_entries(self, prompt: int, new: int) -> int:
        after = self.target_entries if self.compress_prompt else max(prompt, self.target_entries)
        return max(prompt, min(prompt + new, after + self.interval))

    def begin(
        self,
        spec: ModelSpec,
        prompt: int,
        pieces: Callable[[int], Piece] | None = None,
        marks: Container[int] = (),
    ) -> None:
        super().begin(spec, prompt, pieces, marks)
        self.since: int | None = None

    def compress(self, cache: KVCache) -> None:
        at_prompt_end = self.since is None
        if self.since is None:
            self.since = cache.length
        if cache.length - self.since >= self.interval or (at_prompt_end and self.compress_prompt):
            super().compress(cache)
            self.since = cache.length

    def surplus(self, store: LayerStore) -> int:
        return store.n - self.target_entries

    def score(self, store: LayerStore) -> Tensor:
        return score_entries(store, self.scorer)
