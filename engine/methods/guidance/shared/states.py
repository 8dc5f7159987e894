"""States: a text as a model saw it, each of its states beside the token that came next."""

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
# of each model the last text
_LAST: WeakKeyDictionary[Decoder, dict[tuple[bytes, int], States]] = WeakKeyDictionary()


def states_of(decoder: Decoder, ids: np.ndarray, window: int) -> States:
    """Of the text `ids` (int32 [n], a negative one ends a document): what entered the model's last layer at each token that has
    one behind it, float [M, d]; that next token, int64 [M]; and its place in the text, int64 [M].

    The text is read in windows of `window` tokens, each a text of its own, none past a document's end. Kept as long as the
    model, or until another text is asked for.
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
