"""MTP: the module for multi-token prediction that a model ships drafts for it, with no second folder."""

from __future__ import annotations

from typing import ClassVar

from decodescope.engine.core.component import component, param

from ..shared.fused_tree import FusedTree


@component
class MTP(FusedTree):
    """A multi-token-prediction module of the model's own.

    Such a model was trained with a further decoder layer behind its trunk, which predicts the token after the next one. The
    layer reads the trunk's last state and the embedding of the next token (`engine/model/heads/drafting/mtp.py`). It shares the
    embedding and the unembedding of the model, and has a cache of its own. Published models ship one module. For drafts of more
    than one token it reads its own output in place of the trunk's state, as vLLM, SGLang and FastMTP do.

    Costs a pass of the layer and the unembedding per level. vLLM drafts a chain, the default here; `width` above 1 makes the
    tree of `eagle2`, which is ours. Nodes are chosen without chance: lossless.

    A module can also be trained on a frozen model (`decodescope train head mtp`): on one level, as in pretraining, but the
    trunk learns nothing from it. What the paper finds about the trunk does not hold for that.
    """

    title = "MTP"
    source = (
        "Gloeckle et al. 2024, arXiv:2404.19737, section 2; DeepSeek-AI 2024, arXiv:2412.19437, section 2.2; "
        "vllm-project/vllm, model_executor/models/mimo_mtp.py, commit 0bb55d60cb66"
    )
    reads: ClassVar[str] = "mtp"

    depth: int = param(
        3,
        low=1,
        high=11,
        unit="levels",
        help="tokens of a draft; those behind the first rest on the module's own output",
    )
    width: int = param(
        1,
        low=1,
        high=16,
        unit="nodes",
        help="nodes expanded per level, and continuations of each (k); 1: a chain",
    )
