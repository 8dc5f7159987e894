"""EAGLE-3's layers, with or without P-EAGLE's masks, in the layouts of SafeAILab/EAGLE, SGLang, vLLM, NVIDIA, speculators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..drafting.draft_vocabulary import DEEP, fused_layers
from ..drafting.eagle3 import Eagle3Layer
from ..drafting.p_eagle import PEagleLayer
from .layer_config import MOST_LAYERS, class_defaults, decoder_layer, read_sizes, read_windows, set_rotation
from .published_folder import EMBEDDING, LayerMapping, PublishedFolder
from .speculators import read_speculators

WORDS = "lm_head.weight"
# Keys at the top or in the table eagle_config, where NVIDIA's Model-Optimizer writes them -> the values that the net computes.
PLAIN3: dict[str, tuple[Any, ...]] = {
    "has_lm_head": (True,),
    "next_layer_regular": (True,),
    "parallel_draft_heads_num_layers": (0, 1),  # of further heads, which are not there with one step
    "parallel_draft_step": (1,),
    "use_input_layernorm_in_first_layer": (True,),
    "use_last_layernorm": (True,),
    "use_mtp_layernorm": (False,),
}
NORM_OUTPUT = "norm_output"
NORMS = ("norm_before_residual", "norm_before_fc", "fc_norm", NORM_OUTPUT)  # see Eagle3Layer
LAYER_IDS = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", "target_layer_ids")
SGLANG = "LlamaForCausalLMEagle3"  # an architecture; its layers are numbered by their outputs
BY_ID = (
    "words.0.weight",
    "markov.w2.weight",
)  # of our nets: tensors with a row for each id of the draft vocabulary
DRAFT_VOCABULARY = 32_000  # of a config of speculators that gives none
MASK = "mask_hidden"  # of P-EAGLE, the state that stands for the target's
UNUSED = ("verifier_lm_head.weight", "verifier_norm.weight", MASK)  # read in training, or by P-EAGLE
MASK_KEYS = (
    "mask_token_id",
    "pard_token",
    "ptd_token_id",
)  # of P-EAGLE, as vLLM looks for them; all name the mask token


def convert_eagle3(stored: PublishedFolder) -> Eagle3Layer:
    """EAGLE-3 as its authors and servers write it. `fc` joins the states of several layers. `midlayer` (`layers.0` in copies
    for servers) has norms for embedding and feature. `norm` and `lm_head` output the ids of the draft vocabulary; its number i
    is the target's id i + d2t[i]. t2d marks the same ids; both may be left out if the draft vocabulary is the whole. With
    norm_before_fc there is `input_norm`, with fc_norm `fc_norm.0` and so on. The embedding for its tokens may be in the file.

    Names as in SafeAILab/EAGLE, eagle/model/cnets.py and eagle/traineagle3/cnets.py; the further norms as in vLLM,
    vllm/model_executor/models/llama_eagle3.py.
    """
    return _convert_authors(stored, None)


def convert_p_eagle(stored: PublishedFolder) -> PEagleLayer:
    """P-EAGLE as AWS and NVIDIA's NeMo write it for vLLM: EAGLE-3 as above, and `mask_hidden`, the learnt state of masks. The
    mask token's id is in the config, as `ptd_token_id`, `pard_token` or `mask_token_id`.

    Names as in vllm-project/vllm, vllm/model_executor/models/llama_eagle3.py and v1/spec_decode/llm_base_proposer.py.
    """
    stored.expect({"parallel_drafting": (True,)})
    ids = {key: stored.number(key, 0, stored.spec.vocab - 1) for key in named_mask_keys(stored.config)}
    if len(set(ids.values())) > 1:
        named = ", ".join(f"{key} = {x}" for key, x in ids.items())
        raise stored.refusal(f"names different mask tokens ({named}); remove one in config.json.")
    head = _convert_authors(stored, next(iter(ids.values())))
    assert isinstance(head, PEagleLayer)
    return head


def named_mask_keys(config: Mapping[str, Any]) -> list[str]:
    """The keys of a config that name a mask token."""
    return [key for key in MASK_KEYS if config.get(key) is not None]


def _convert_authors(stored: PublishedFolder, mask: int | None) -> Eagle3Layer:
    """The net of a folder in the authors' layout; mask: the mask token, None: there is none."""
    nested = stored.table("eagle_config")
    stored.expect(PLAIN3)
    stored.expect(PLAIN3, nested)
    flags = {key: stored.flag(key, stored.flag(key), nested) for key in _norm_keys(mask)}
    fused = stored.flag("use_aux_hidden_state", stored.flag("use_aux_hidden_state", True), nested)
    kept = stored.number("draft_vocab_size", stored.spec.vocab, stored.spec.vocab)
    ids = _author_layer_ids(stored) if fused else None
    if not fused and any(x for _, x in stored.config.find(LAYER_IDS)):
        raise stored.refusal(
            "names layers and says use_aux_hidden_state = False, of which only one can hold."
        )
    return _read_net(stored, kept, flags, ids, fused, mask)


def convert_speculators_eagle3(stored: PublishedFolder) -> Eagle3Layer:
    """EAGLE-3 in the layout of speculators: the sizes of the layers in the table transformer_layer_config, which keeps only
    what differs from its class; the rest at the top. Layers of the target are numbered by their inputs.

    Names as in vllm-project/speculators, src/speculators/models/eagle3.
    """
    return _convert_speculators(stored, None)


def convert_speculators_p_eagle(stored: PublishedFolder) -> PEagleLayer:
    """P-EAGLE in the layout of speculators: its EAGLE-3, `mask_hidden`, and the id `mask_token_id`.

    Names as in vllm-project/speculators, src/speculators/models/peagle.
    """
    if stored.config.get(MASK_KEYS[0]) is None:
        raise stored.refusal(f"names no mask token ({MASK_KEYS[0]}) in its config.json; download it again.")
    head = _convert_speculators(stored, stored.number(MASK_KEYS[0], 0, stored.spec.vocab - 1))
    assert isinstance(head, PEagleLayer)
    return head


def _convert_speculators(stored: PublishedFolder, mask: int | None) -> Eagle3Layer:
    """The net of a folder of speculators; mask: the mask token, None: there is none."""
    stored.usual_family = "qwen3"
    read_speculators(stored)
    flags = {key: stored.flag(key) for key in _norm_keys(mask)}
    if stored.config.get("norm_before_residual") is None and "norm_before_residual" not in stored.settings:
        stored.remark(
            "does not give norm_before_residual: it is read as false, as speculators does; vLLM reads true, which "
            f"{stored.folder}@norm_before_residual=true tries."
        )
    kept = stored.number("draft_vocab_size", DRAFT_VOCABULARY, stored.spec.vocab)
    ids = stored.config.get(LAYER_IDS[0])
    counted = stored.setting("layer_ids", ("inputs", "outputs")) or "inputs"
    return _read_net(stored, kept, flags, checked_layer_ids(stored, LAYER_IDS[0], ids, counted), True, mask)


def _norm_keys(mask: int | None) -> Sequence[str]:
    """The keys of the further norms. P-EAGLE feeds nothing back, so it reads the same whatever norm_output says."""
    return NORMS if mask is None else [key for key in NORMS if key != NORM_OUTPUT]


def _read_net(
    stored: PublishedFolder,
    kept: int,
    flags: dict[str, bool],
    ids: tuple[int, ...] | None,
    fused: bool,
    mask: int | None,
) -> Eagle3Layer:
    """The net around the tensors. kept: ids of the draft vocabulary;  flags: the further norms;  ids: the layers of the target
    that it reads, None: the usual three;  fused: it reads these, not the final feature;  mask: the mask token of P-EAGLE."""
    chosen = stored.setting("norm_before_residual", ("true", "false"))
    flags |= {} if chosen is None else {"norm_before_residual": chosen == "true"}
    if flags["norm_before_fc"] and flags["fc_norm"]:
        raise stored.refusal(
            "says norm_before_fc and fc_norm, of which only one can be true; download it again."
        )
    if fused and ids is None and stored.spec.n_layers < DEEP:
        raise stored.refusal(
            f"reads layers by a rule for {DEEP} layers and more, and {stored.spec.name} has {stored.spec.n_layers}; give an "
            "EAGLE-1 layer, or a head that names its layers."
        )
    d, vocab = stored.spec.d_model, stored.spec.vocab
    states, layers = len(ids or fused_layers(DEEP)), count_layers(stored)
    stored.expect({"target_hidden_size": (d,), "num_aux_hidden_states": (states,)})
    sizes, windows = read_sizes(stored), read_windows(stored, layers)
    if kept < vocab and "d2t" not in stored.shapes:
        raise stored.refusal(
            "has a draft vocabulary and does not say which ids these are (d2t); download it again."
        )
    names = ["layers.0" if "layers.0.hidden_norm.weight" in stored.shapes else "midlayer"]
    names += [f"layers.{i}" for i in range(1, layers)]
    has = _parts_in_file(stored, names[0])
    shape = sizes.shape | {key: int(x) for key, x in flags.items()}
    shape |= dict(states=states, layers=layers, unfused=int(not fused), vocab=vocab, kept=kept)
    shape |= dict(qkv_bias=has["qkv"], out_bias=has["out"], mlp_bias=has["mlp"], qk_norm=has["norms"])
    shape |= dict(fuse_bias=int("fc.bias" in stored.shapes))
    if any(x.startswith("additional_layers.") for x in stored.shapes):
        raise stored.refusal(
            "names its further layers additional_layers, which SGLang computes without the residual between them; only "
            "layers.1 and so on, as vLLM and speculators compute them, can be read."
        )
    own, tensors = read_draft_tensors(
        stored, map_tensors(shape, names), kept, states if flags["fc_norm"] else 0, mask is not None
    )
    shape |= dict(own=int(own), own_embed=vocab if EMBEDDING in stored.shapes else 0)
    if mask is None:
        head = Eagle3Layer.from_tensors(shape, tensors)
    else:
        tensors[MASK] = _read_mask(stored, (states if fused else 1) * d)
        head = PEagleLayer.from_tensors(shape | {"mask_row": mask + 1}, tensors)
    head.layer_ids = ids
    set_rotation(head, sizes.rope, windows)
    return head


def _read_mask(stored: PublishedFolder, width: int) -> Tensor:
    """float [width]: the learnt state of masks, which files keep with one or two axes of one in front."""
    shape = stored.shapes.get(MASK, ())
    if shape not in ((width,), (1, width), (1, 1, width)):
        raise stored.refusal(
            f"must hold {MASK}, the learnt state of its masks, with {width} numbers, and "
            f"{f'its shape is {list(shape)}' if shape else 'it is missing'}; download it again."
        )
    return stored.take(MASK).flatten()


def read_draft_tensors(
    stored: PublishedFolder,
    mappings: list[LayerMapping],
    kept: int,
    state_norms: int,
    masked: bool = False,
) -> tuple[bool, dict[str, Tensor]]:
    """Whether the net has a vocabulary matrix of its own, and its tensors: those of `mappings` and of the vocabulary.
    masked: the file is P-EAGLE's, and its `mask_hidden` is read."""
    d, vocab = stored.spec.d_model, stored.spec.vocab
    own = WORDS in stored.shapes
    tied = not own and EMBEDDING in stored.shapes and _is_tied(stored)
    mappings = [*mappings, LayerMapping("words.0", "lm_head", (kept, d), False)] if own else mappings
    spare = {**stored.embedding_shape, "d2t": (kept,), "t2d": (vocab,)}
    spare |= {x: stored.shapes[x] for x in UNUSED if x in stored.shapes}
    tensors = stored.linear_tensors(mappings, spare)
    for name in (x for x in UNUSED if x in stored.shapes and not (masked and x == MASK)):
        stored.remark(
            f"holds {name}, which no {stored.title.removesuffix('s')} reads when it drafts: it is not used.",
            "",
        )
    if state_norms:
        tensors["state_norms"] = torch.stack([tensors.pop(f"state_norms.{i}") for i in range(state_norms)])
    ids = _draft_ids(stored, kept)
    if EMBEDDING in stored.shapes:
        tensors["own_embed"] = stored.take(EMBEDDING)
    tensors |= {x: tensors[x][ids.argsort()] for x in BY_ID if x in tensors}  # our rows are sorted by id
    if tied:
        tensors["words.0.weight"] = tensors["own_embed"][ids.sort().values]
    elif not own and _is_tied(stored):
        stored.remark(
            "gives tie_word_embeddings = true, and its file has no embedding: the target's unembedding serves."
        )
    tensors["mask"] = torch.zeros(vocab).index_fill_(0, ids, 1.0)
    return own or tied, tensors


def map_tensors(shape: Mapping[str, int], names: Sequence[str]) -> list[LayerMapping]:
    """The tensors of a net of this shape, without its vocabulary; names: of its layers in the file."""
    d, states = shape["d"], shape["states"]
    has = {"qkv": "qkv_bias", "out": "out_bias", "mlp": "mlp_bias", "norms": "qk_norm"}
    parts = {x: bool(shape[key]) for x, key in has.items()}
    norms = {"first": f"{names[0]}.input_layernorm", "second": f"{names[0]}.hidden_norm", "last": "norm"}
    mappings = [LayerMapping(ours, theirs, (d,), False) for ours, theirs in norms.items()]
    mappings += decoder_layer(names[0], shape, 2 * d, "", **parts)
    for i, name in enumerate(names[1:]):
        mappings += decoder_layer(name, shape, d, f"more.{i}.", **parts)
        mappings.append(LayerMapping(f"more.{i}.first", f"{name}.input_layernorm", (d,), False))
    if not shape["unfused"]:
        mappings.append(LayerMapping("fuse", "fc", (d, states * d), bool(shape["fuse_bias"])))
    if shape["norm_before_fc"]:
        mappings.append(LayerMapping("input_norm", "input_norm", (states * d,), False))
    if shape["fc_norm"]:
        mappings += [LayerMapping(f"state_norms.{i}", f"fc_norm.{i}", (d,), False) for i in range(states)]
    return mappings


def _parts_in_file(stored: PublishedFolder, name: str) -> dict[str, int]:
    """Which biases and norms the layer `name` has, by its tensors, which the config has to agree with."""
    tensors = {"qkv": "self_attn.q_proj.bias", "out": "self_attn.o_proj.bias", "mlp": "mlp.up_proj.bias"}
    has = {x: f"{name}.{tensor}" in stored.shapes for x, tensor in tensors.items()}
    has["norms"] = f"{name}.self_attn.q_norm.weight" in stored.shapes
    fuse, config = "fc.bias" in stored.shapes, stored.layer
    stored.expect({"attention_bias": (has["qkv"] or has["out"],), "qkv_bias": (has["qkv"],)}, config)
    stored.expect({"mlp_bias": (has["mlp"],), "bias": (fuse or has["out"],)}, config)
    if config is not stored.config and has["norms"] != (stored.family == "qwen3"):
        raise stored.refusal(
            f"has layers of the model_type {stored.family}, and its file has {'' if has['norms'] else 'no '}norms of "
            "queries and keys (q_norm), which are Qwen 3's; download it again."
        )
    return {x: int(y) for x, y in has.items()}


def count_layers(stored: PublishedFolder) -> int:
    """How many decoder layers the config gives."""
    usual = class_defaults(stored).get("num_hidden_layers", 1)
    layers = stored.number("num_hidden_layers", usual, 1000, stored.layer)
    if not 1 <= layers <= MOST_LAYERS:
        raise stored.refusal(
            f"has {layers} layers (num_hidden_layers), and 1 to {MOST_LAYERS} can be read; give another."
        )
    return layers


def _is_tied(stored: PublishedFolder) -> bool:
    """Whether the file's embedding is its vocabulary matrix too."""
    return stored.flag("tie_word_embeddings", False, stored.layer)


def _draft_ids(stored: PublishedFolder, kept: int) -> Tensor:
    """int64 [kept]: the target's ids of the draft vocabulary, in the order of its rows."""
    spec, ids = stored.spec, torch.arange(kept)
    if _is_tied(stored) and WORDS in stored.shapes:
        stored.remark(
            "gives tie_word_embeddings = true, its file of weights has lm_head.weight: the file counts."
        )
    if "d2t" in stored.shapes:
        ids = ids + stored.take_integers("d2t")
    if not ((ids >= 0) & (ids < spec.vocab)).all() or len(ids.unique()) < kept:
        raise stored.refusal(
            f"maps its draft vocabulary to ids that {spec.name} does not have, or to one twice (d2t)."
        )
    if "t2d" in stored.shapes:
        marked = stored.take_integers("t2d").nonzero()[:, 0]
        if not torch.equal(marked, ids.sort().values):
            raise stored.refusal(
                "has two lists of its draft vocabulary that differ (d2t, t2d); download it again."
            )
    return ids


def _author_layer_ids(stored: PublishedFolder) -> tuple[int, ...] | None:
    """The layers of the target that it reads, by their inputs, wherever its config names them; None: the usual three.

    vLLM numbers layers by their inputs, SGLang by their outputs, under the same key. A list that is the usual three in one of
    the two ways is read so; otherwise the architecture decides.
    """
    named = [(key, ids) for key, ids in stored.config.find(LAYER_IDS) if ids not in (None, [])]
    if not named:
        stored.setting("layer_ids", ("inputs", "outputs"))
        return None
    if any(ids != named[0][1] for _, ids in named):
        raise stored.refusal(
            f"names different layers in two places ({named[0][0]}, {named[1][0]}); remove one in config.json."
        )
    key, ids = named[0]
    usual = list(fused_layers(stored.spec.n_layers)) if stored.spec.n_layers >= DEEP else []
    listed = ids if isinstance(ids, list) and all(type(x) is int for x in ids) else []
    architectures = stored.config.entries.get("architectures")
    counted = "outputs" if isinstance(architectures, list) and SGLANG in architectures else "inputs"
    if usual and listed == usual:
        counted = "inputs"
    elif usual and [x + 1 for x in listed] == usual:
        counted = "outputs"
    chosen = stored.setting("layer_ids", ("inputs", "outputs"))
    layers = checked_layer_ids(stored, key, ids, chosen or counted)
    if chosen is None and (listed != usual or counted != "inputs"):
        other = "inputs" if counted == "outputs" else "outputs"
        who = (
            "SGLang does; vLLM counts inputs" if counted == "outputs" else "vLLM does; SGLang counts outputs"
        )
        stored.remark(
            f"gives {key} = {listed}, read as the {counted} of layers, as {who}, which {stored.folder}@layer_ids={other} tries."
        )
    return layers


def checked_layer_ids(stored: PublishedFolder, key: str, ids: Any, counted: str) -> tuple[int, ...] | None:
    """The layers by their inputs, of `ids` that count the inputs or the outputs; None: the usual three."""
    if ids is None or ids == []:
        return None
    spec = stored.spec
    known = isinstance(ids, list) and all(type(x) is int for x in ids) and len(ids) <= MOST_LAYERS
    layers = tuple(x + (counted == "outputs") for x in ids) if known else ()
    if not layers or not all(0 <= x <= spec.n_layers for x in layers) or min(ids) < 0:
        raise stored.refusal(
            f"reads the layers {str(ids)[:40]} of its target ({key}, counted by their {counted}); {spec.name} has "
            f"{spec.n_layers} layers, and at most {MOST_LAYERS} can be named; give another."
        )
    return layers
