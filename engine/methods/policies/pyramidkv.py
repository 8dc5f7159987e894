"""PyramidKV: SnapKV with more entries for the lower layers and fewer for the upper ones."""

from __future__ import annotations

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.policy import share_knob

from .shared.observation_window import ObservationWindow


@component
class PyramidKV(ObservationWindow):
    """Choose as SnapKV does, but keep more entries in lower layers and fewer in upper ones.

    Attention spreads over the text in the lower layers and concentrates on few entries in the upper ones.

    `prompt_budget` is the mean of all layers. The last layer keeps `prompt_budget` / beta of the entries before the window; the
    first layer is above the mean by the same amount that the last is below it. Between them the number falls linearly. If the
    first layer would keep more than there are, the line is less steep. A prompt of less than 2 * `prompt_budget` tokens is cut
    alike in all layers, and one that fits is kept whole. With beta = 1 it is SnapKV.

    The authors' code rounds the step of that line down. So with 32 layers, the upper ones keep up to 30 entries too many, and
    the sum is off by as much. Here each layer's own number is rounded, and the sum is exact. Their defaults are a window of 64
    and a mean of 256 more entries, beta = 20; the defaults here fit a context of 2,048.
    """

    title = "PyramidKV"
    source = "Cai et al. 2024, arXiv:2406.02069; Zefan-Cai/KVCache-Factory, pyramidkv/pyramidkv_utils.py"
    goes = (
        "When the prompt has been read each KV head gives up the entries that got the fewest votes, upper layers more of them. "
        "What is written stays."
    )

    beta: int = param(
        20,
        low=1,
        high=100,
        help="steepness: the last layer keeps the mean budget divided by beta; 1: all the same",
    )
    budget_share: float = share_knob()

    def idle_reason(self, did: Activity) -> str:
        """Also explains a run that evicted the same number of entries in every layer: then there is no pyramid."""
        if (whole := super().idle_reason(did)) or did.layers == 1:
            return whole
        prompt = did.prompt - did.left_out
        budgets = set(self.plan(did.layers, prompt))
        short = f"the prompt has {prompt} tokens, and the budgets differ from {2 * self.prompt_budget} on"
        why = "beta is 1" if self.beta == 1 else short
        return (
            f"pyramidkv gave all {did.layers} layers the same budget of {min(budgets)}: {why}."
            if len(budgets) == 1
            else ""
        )

    def plan(self, layers: int, prompt: int) -> list[int]:
        mean, before = self.prompt_budget, prompt - self.window
        if prompt <= self.capacity or prompt < 2 * mean or layers == 1:
            return super().plan(layers, prompt)
        most = min(2 * mean - mean // self.beta, before)
        fall = 2 * (most - mean)  # from the first layer to the last
        return [most - round(layer * fall / (layers - 1)) + self.window for layer in range(layers)]
