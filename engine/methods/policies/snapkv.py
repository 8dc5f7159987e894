"""SnapKV: keep what the end of the prompt looks at."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.policy import share_knob

from .shared.observation_window import ObservationWindow


@component
class SnapKV(ObservationWindow):
    """Cut the prompt once, when it has been read: of each KV head the `window` last entries stay, and `chosen` of those before.

    The last tokens of a prompt are often its question, so what they look at is what the answer needs. Each of them has a row of
    attention over the prompt; the rows are added up, an entry gets the mean (or largest) vote among its neighbours, the mean
    over the query heads of the group is taken, and the best stay, of equal ones the lower position. A prompt of at most
    `chosen + window` tokens is kept whole. What is written comes on top. The prompt's own logits are those of the full cache.

    The authors repeat keys and values for every query head before they choose, so that each head has a set of its own and a
    grouped model loses its saving; here a KV head has one set, as in NVIDIA's kvpress. Their defaults are 32 + 2016 entries
    and a kernel of 5, `reach` = 2; ours fit a context of 2,048.
    """

    title = "SnapKV"
    source = "Li et al. 2024, arXiv:2404.14469, section 4; FasterDecoding/SnapKV, snapkv/monkeypatch/snapkv_utils.py"

    budget_share: float = share_knob()
