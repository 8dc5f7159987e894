"""The modules for multi-token prediction that a model's own files hold: MiMo's."""

from __future__ import annotations

import torch
from torch import Tensor

from ...checkpoint.config import MODULE_COUNT, MODULE_FAMILY, MOST_MODULES
from ...checkpoint.weights import MTP
from ..drafting.mtp import MtpModule
from .layer_config import PLAIN, decoder_layer, read_sizes, read_windows, set_rotation
from .published_folder import LayerMapping, PublishedFolder, TensorReader

STEPS = "num_speculative_steps"  # how far FastMTP trained its module on its own output
# keys that say what the trunk is, and no module
TRUNK = ("attention_bias", "num_hidden_layers", "tie_word_embeddings", "layer_types", "pard_token")


class ModuleTensors:
    """The tensors of a model's files whose names begin with `place`."""

    def __init__(self, whole: TensorReader, place: str) -> None:
        self._whole = whole
        self.shapes = {name: x for name, x in whole.shapes.items() if name.startswith(place)}
        self.frequencies = {name: x for name, x in whole.frequencies.items() if name.startswith(place)}

    def read(self, names: list[str], dtype: torch.dtype, device: torch.device) -> Tensor:
        """The tensors `names`, stacked along their first axis, every number finite."""
        return self._whole.read(names, dtype, device)


def convert_mimo(stored: PublishedFolder) -> MtpModule:
    """The first module of a MiMo model. vLLM and SGLang read that one too, and use it again for each further token.

    Names as in vllm-project/vllm, model_executor/models/mimo_mtp.py. Which state it reads stands in no file. vLLM hands it the
    output of the last layer, before the final norm; SGLang and FastMTP the one after it. A config with `num_speculative_steps`
    is FastMTP's and is read its way, any other as in vLLM; `@state=before_norm|after_norm` chooses.
    """
    count = stored.number(MODULE_COUNT, 0, MOST_MODULES)
    place, whole = f"{MTP}0", stored.tensors
    first = ModuleTensors(whole, f"{place}.")
    stored.tensors = ModuleTensors(whole, MTP)
    each = {name.removeprefix(place): shape for name, shape in first.shapes.items()}
    stored.check({f"{MTP}{i}{name}": shape for i in range(count) for name, shape in each.items()})
    stored.tensors = first
    tuned = stored.number(STEPS, 0, 1 << 10) > 0
    usual = "after_norm" if tuned else "before_norm"
    state = stored.setting("state", ("before_norm", "after_norm")) or usual
    sizes = read_sizes(stored, {**PLAIN, "model_type": (MODULE_FAMILY,)})
    d = sizes.shape["d"]
    norms = {
        "hidden": "hidden_layernorm",
        "token": "token_layernorm",
        "first": "input_layernorm",
        "last": "final_layernorm",
    }
    layers = [LayerMapping(ours, f"{place}.{theirs}", (d,), False) for ours, theirs in norms.items()]
    layers += [LayerMapping("fuse", f"{place}.input_proj", (d, 2 * d), False)]
    layers += decoder_layer(place, sizes.shape, d, qkv=True)
    tensors = stored.linear_tensors(layers)
    head = MtpModule.from_tensors(
        sizes.shape | dict(qkv_bias=1, before_norm=int(state == "before_norm")), tensors
    )
    set_rotation(head, sizes.rope, read_windows(stored, 1))
    where = (
        "before the final norm, as in vLLM"
        if state == "before_norm"
        else "after the final norm, as in SGLang"
    )
    module = f"a module for multi-token prediction ({place})"
    others = "" if count == 1 else f", and {count - 1} more that {'is' if count == 2 else 'are'} not used"
    stored.remark(f"holds {module}{others}: the drafter mtp reads it, on the state {where}.", "")
    return head
