"""NTK-Attention: an infinitely long trained prefix; each head stores it as one matrix and one vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.prompt_compression import PromptCompression
from decodescope.engine.model.attention.extra_kv import ExtraState
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.files import missing_reason
from decodescope.engine.model.heads.prefix_state import PrefixState


@component
class NTKAttention(PromptCompression):
    """Let every query q attend to the text's entries and, in addition, to a state Z [D, D], k [D] of its head:

        o = (sum_j exp(s_j) v_j + phi(q) Z) / (sum_j exp(s_j) + phi(q) |k|),   phi(x) = ELU(x / D^(1/4)) + 1

    This is the result of m prefix entries, for any m, if phi(q) . phi(k_i) replaces their exponentials, with Z = sum phi(k_i)
    v_i^T and k = sum phi(k_i). It costs D^2 + D numbers and as many operations per query head, for a prefix of any length.
    There are no entries: nothing is evicted or scored, and the text's positions stay. Queries are rotated before they meet the
    state, as in the authors' code. Numbers are float32. The two sums are joined like those of any segment; the authors divide
    by the exponential of the largest score. Z and k are scaled by `strength`.

    The paper trains one state per task. The shipped one was trained on one style of text (docs/heads.md describes its effect).
    """

    title = "NTK-Attention (infinitely long prefix)"
    source = "Liang et al. 2024, arXiv:2406.14036, algorithm 1; ChristianYang37/chiwun, src/NTK-Attention"
    caution = "The shipped state was trained on documentation; on chats and stories the model is a little worse with it."
    changes = "a trained prefix is attended to"

    strength: float = param(
        1.0,
        low=0.0,
        high=2.0,
        step=0.05,
        help="factor on the trained prefix state (Z, k); 0: the plain model",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return (
            missing_reason("ntk_attention", spec, "prompt_compression whole_prompt")
            if self.strength
            else None
        )

    def states(self, decoder: Decoder) -> Sequence[ExtraState]:
        if not self.strength:
            return ()
        trained, spec = cast(PrefixState, decoder.heads["ntk_attention"]), decoder.spec
        parts = [trained.segment(i, spec.n_kv_heads) for i in range(spec.n_layers)]
        parts = [replace(x, z=x.z.detach(), k=x.k.detach()) for x in parts]
        if self.strength == 1:  # as it is in the model
            return [ExtraState(tuple(parts), origin="trained")]
        parts = [replace(x, z=x.z * self.strength, k=x.k * self.strength) for x in parts]
        return [ExtraState(tuple(parts), "trained", tensors=tuple(y for x in parts for y in (x.z, x.k)))]
