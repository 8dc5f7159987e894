"""EAGLE-3: EAGLE-2's tree, on a layer that reads three depths of the target and predicts tokens, not features."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component

from ..shared.fused_tree import FusedTree


@component
class Eagle3(FusedTree):
    """The tree of `eagle2`, with another layer.

    Its feature of a token is a linear map of the states that enter a low, a middle and a high layer of the target (see
    `engine/model/heads/drafting/eagle3.py`). EAGLE guesses features and is trained to approximate the true ones. This layer is
    trained on the tokens alone, on its own outputs of several levels. So the output that it feeds back need not be a feature.
    The layer has a draft vocabulary, the most frequent ids, and gives all others the probability 0. Nodes are chosen without
    chance: lossless with any draft vocabulary.
    """

    title = "EAGLE-3"
    source = "Li et al. 2025, arXiv:2503.01840, section 3; SafeAILab/EAGLE, eagle/model/cnets.py, eagle/traineagle3"
    reads: ClassVar[str] = "eagle3"
