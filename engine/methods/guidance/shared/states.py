"""States: a model's states over a text, each with the token that came next."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.core.progress import Progress
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import catch_device_faults
from decodescope.engine.model.forward.feed import Feed

States = tuple[Tensor, Tensor, Tensor]
# the last text of each model
_LAST: WeakKeyDictionary[Decoder, dict[tuple[bytes, int], States]] = WeakKeyDictionary()


def states_of(decoder: Decoder, ids: np.ndarray, window: int) -> States:
    """The model's states over the text `ids` (int32 [n], a negative one ends a document).

    Returns, for each token with a next token: the input of the model's last layer, float [M, d]; the next token, int64 [M]; and
    the next token's place in the text, int64 [M].

    The text is read in windows of `window` tokens, each as a separate text, none past a document's end. The result is cached as
    long as the model, or until another text is requested.
    """
    key, known = (ids.tobytes(), window), _LAST.setdefault(decoder, {})
    if key not in known:
        known.clear()
        known[key] = _read_states(decoder, ids, window)
    return known[key]


def _read_states(decoder: Decoder, ids: np.ndarray, window: int) -> States:
    layer, device = decoder.spec.n_layers - 1, decoder.device
    edges = np.flatnonzero(np.diff(np.concatenate([[False], ids >= 0, [False]]).astype(np.int8))).reshape(
        -1, 2
    )
    spans = [
        (at, min(at + window, end - 1))
        for begin, end in edges.tolist()
        for at in range(begin, end - 1, window)
    ]
    exact = torch.promote_types(decoder.dtype, torch.float32)
    states = [torch.zeros(0, decoder.spec.d_model, dtype=exact, device=device)]
    with (
        Progress("states of the datastore", sum(b - a for a, b in spans), "tokens") as progress,
        torch.inference_mode(),
    ):
        for at, stop in spans:
            feed = Feed.causal_chain(ids[at:stop].tolist(), 0, device)
            read = catch_device_faults(
                lambda: decoder.states_before(feed, None, layer),  # noqa: B023 # called at once
                device,
            )
            states.append(read[0].to(exact))
            progress.add(stop - at)
    next_to = torch.tensor([x + 1 for span in spans for x in range(*span)], dtype=torch.int64)
    return torch.cat(states), torch.from_numpy(ids.astype(np.int64))[next_to].to(device), next_to.to(device)
