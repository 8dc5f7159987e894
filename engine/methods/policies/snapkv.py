"""SnapKV: keep the prompt entries that the end of the prompt attends to."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.policy import share_knob

from .shared.observation_window import ObservationWindow


@component
class SnapKV(ObservationWindow):
    """Cut the prompt once, after it has been read.

    Each KV head keeps the `window` last entries, and `prompt_budget` of those before.

    The last tokens of a prompt are often its question, so the answer needs the entries that they attend to. Each of them has a
    row of attention over the prompt, and the rows are summed. An entry gets the mean (or largest) vote among its neighbours,
    averaged over the query heads of the group. The best entries stay, of equal ones the lower position. A prompt of at most
    `prompt_budget` + `window` tokens is kept whole. Generated tokens are kept in addition. The prompt's own logits are those of
    the full cache.

    The authors repeat keys and values for every query head before they choose. So each head has its own set, and a grouped
    model loses its saving. Here a KV head has one set, as in NVIDIA's kvpress. Their defaults are 32 + 2016 entries and a
    kernel of 5, `pool_radius` = 2; the defaults here fit a context of 2,048.
    """

    title = "SnapKV"
    source = "Li et al. 2024, arXiv:2404.14469, section 4; FasterDecoding/SnapKV, snapkv/monkeypatch/snapkv_utils.py"

    budget_share: float = share_knob()
