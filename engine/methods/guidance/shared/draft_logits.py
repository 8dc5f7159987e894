"""Draft logits: a second model reads a draft, in its own lane."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import Draft


def read_draft_logits(lane: Lane, text: list[int], draft: Draft) -> Tensor:
    """Logits float [N + 1, V] of the root, the last of `text`, and of each node of `draft` behind it.

    They come from one pass of `lane`, with the tree's own attention. Afterwards `lane` has read `text` up to the root, and the
    pass's rows are pending. Nodes that continue the text by the same tokens get the row of the first of them.
    """
    at = len(text) - 1
    lane.read_exactly(text[:at])
    # nodes alone, from its first layer on
    tree = replace(draft, enter=0, states=None, slots=None, entries=None)
    logits = lane.forward(tree.build_feed(text[at], at, lane.decoder.device))[0]
    return logits if draft.first_rows is None else logits[draft.first_rows]
