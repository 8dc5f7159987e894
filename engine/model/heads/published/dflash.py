"""DFlash and DSpark drafts in the layouts of their authors, z-lab and DeepSpec, and of the library speculators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..drafting.dflash import CAUSAL, DFlashNet
from ..drafting.dspark import CONFIDENCE, MARKOV, DSparkNet
from .eagle3 import DRAFT_VOCABULARY, checked_layer_ids, count_layers, read_draft_tensors
from .layer_config import PLAIN, decoder_layer, read_sizes, read_windows, set_rotation
from .published_folder import EMBEDDING, LayerMapping, PublishedFolder
from .speculators import read_speculators

MOST_PLACES = 64  # of a block
MOST_RANK = 1 << 14
BLOCK, RANK = 8, 256  # of a config of speculators that gives none
# Keys of a layer -> the values that the net computes; whether places see those behind them is read apart.
PLAIN_BLOCK = {key: values for key, values in PLAIN.items() if key != "is_causal"} | {"mlp_bias": (False,)}
# Keys of the table dflash_config, with which servers read other nets -> the values that the net computes.
PLAIN_TABLE: dict[str, tuple[Any, ...]] = {
    "attention_sink_bias": (False,),
    "use_aux_hidden_state": (True,),
    "use_swa": (False,),
}


@dataclass(frozen=True)
class BlockSettings:
    """What a config says of the block. kept: ids of the draft vocabulary;  ids: the layers of the target, by their inputs;
    causal: which layers are causal inside a block, by the number in a net's shape"""

    block: int
    mask_token: int
    ids: tuple[int, ...]
    kept: int
    anchor: bool
    causal: int


def convert_dflash(stored: PublishedFolder) -> DFlashNet:
    """DFlash as z-lab writes it: a Qwen 3 config with the table dflash_config. Layers are numbered by their outputs. The
    target's embedding and unembedding serve. Names as in z-lab/dflash, dflash/model.py; further keys as in vLLM,
    vllm/model_executor/models/qwen3_dflash.py."""
    table = stored.table("dflash_config")
    stored.expect(PLAIN_TABLE, table)
    stored.expect({"num_target_layers": (stored.spec.n_layers,)})
    block = stored.number("block_size", stored.number("block_size", 0, MOST_PLACES, table), MOST_PLACES)
    mask = table.get("mask_token_id")
    ids = table.get("target_layer_ids")
    if ids is None:
        ids = usual_layer_outputs(stored.spec.n_layers, count_layers(stored))
    causal = CAUSAL.index("windowed")
    for config in (table, stored.config):  # the later one counts, as in vLLM
        key = "causal" if config is table else "is_causal"
        if config.get(key) is not None:
            causal = CAUSAL.index("all" if stored.flag(key, False, config) else "none")
    layers = _layer_ids(stored, "target_layer_ids", ids, "outputs")
    return _read_block_net(stored, _settings(stored, block, mask, layers, stored.spec.vocab, False, causal))


def convert_dspark(stored: PublishedFolder) -> DSparkNet:
    """DSpark as DeepSpec writes it: a Qwen 3 config with all keys at the top. Layers are numbered by their outputs. Names as in
    deepseek-ai/DeepSpec, deepspec/modeling/dspark."""
    stored.expect({"num_target_layers": (stored.spec.n_layers,)})
    block = stored.number("block_size", 0, MOST_PLACES)
    layers = _layer_ids(stored, "target_layer_ids", stored.config.get("target_layer_ids"), "outputs")
    mask = stored.config.get("mask_token_id")
    settings = _settings(stored, block, mask, layers, stored.spec.vocab, True, CAUSAL.index("none"))
    net = _read_block_net(stored, settings, _read_dspark(stored, 0, False))
    assert isinstance(net, DSparkNet)
    return net


def convert_speculators_dflash(stored: PublishedFolder) -> DFlashNet:
    """DFlash in the layout of speculators. Layers are numbered by their inputs. Names as in vllm-project/speculators,
    src/speculators/models/dflash."""
    stored.usual_family = "qwen3"
    read_speculators(stored)
    return _read_block_net(stored, _speculators_settings(stored, False))


def convert_speculators_dspark(stored: PublishedFolder) -> DSparkNet:
    """DSpark in the layout of speculators. Names as in vllm-project/speculators, src/speculators/models/dspark."""
    stored.usual_family = "qwen3"
    read_speculators(stored)
    net = _read_block_net(stored, _speculators_settings(stored, True), _read_dspark(stored, RANK, True))
    assert isinstance(net, DSparkNet)
    return net


def usual_layer_outputs(n_layers: int, layers: int) -> list[int]:
    """The layers of a target of `n_layers` that a draft of `layers` reads, by their outputs, if z-lab's config names none."""
    if layers == 1:
        return [n_layers // 2]
    return [round(1 + i * (n_layers - 4) / (layers - 1)) for i in range(layers)]


def _speculators_settings(stored: PublishedFolder, anchor: bool) -> BlockSettings:
    """What a config of speculators says of the block. anchor: whether place 0 guesses where it is silent."""
    apart = stored.flag("sliding_window_non_causal")
    key = "aux_hidden_state_layer_ids"
    return _settings(
        stored,
        stored.number("block_size", BLOCK, MOST_PLACES),
        stored.config.get("mask_token_id"),
        _layer_ids(stored, key, stored.config.get(key), "inputs"),
        stored.number("draft_vocab_size", DRAFT_VOCABULARY, stored.spec.vocab),
        stored.flag("sample_from_anchor", anchor),
        CAUSAL.index("none" if apart else "windowed"),
    )


def _layer_ids(stored: PublishedFolder, key: str, ids: Any, counted: str) -> tuple[int, ...]:
    """The layers of the target by their inputs, of `ids`, the config's `key`, that count inputs or outputs."""
    chosen = stored.setting("layer_ids", ("inputs", "outputs")) or counted
    layers = checked_layer_ids(stored, key, ids, chosen)
    if layers is None:
        raise stored.refusal(f"does not say which layers of its target it reads ({key}); download it again.")
    return layers


def _settings(
    stored: PublishedFolder, block: int, mask: Any, ids: tuple[int, ...], kept: int, anchor: bool, causal: int
) -> BlockSettings:
    """The settings, checked."""
    vocab, name = stored.spec.vocab, stored.spec.name
    if block < 2 - anchor:
        raise stored.refusal(
            f"has a block of {block} places (block_size), in which nothing is guessed; download it again."
        )
    if type(mask) is not int or not 0 <= mask < vocab:
        raise stored.refusal(
            f"says mask_token_id = {str(mask)[:40]}, which must be an id of {name}, from 0 to {vocab - 1}; give another."
        )
    if kept < vocab and "d2t" not in stored.shapes:
        raise stored.refusal(
            "has a draft vocabulary and does not say which ids these are (d2t); download it again."
        )
    return BlockSettings(block, mask, ids, kept, anchor, causal)


def _read_dspark(stored: PublishedFolder, rank: int, confident: bool) -> dict[str, int]:
    """DSpark's further sizes. rank, confident: of a config that is silent."""
    rank = stored.number("markov_rank", rank, MOST_RANK)
    form = stored.config.get("markov_head_type") or MARKOV[0]
    if form not in MARKOV:
        raise stored.refusal(
            f"says markov_head_type = {str(form)[:40]}, which must be {', '.join(MARKOV)}; give another."
        )
    confident = stored.flag("enable_confidence_head", confident)
    reads_token = stored.flag("confidence_head_with_markov", confident)
    if not rank:
        stored.config.skip("markov_head_type")
    if not confident:
        stored.config.skip("confidence_head_with_markov")
    elif reads_token and not rank:
        raise stored.refusal(
            "says confidence_head_with_markov = True and markov_rank = 0, of which only one can hold; download it again."
        )
    reads = CONFIDENCE[(1 + reads_token) if confident else 0]
    return dict(rank=rank, markov=MARKOV.index(form) if rank else 0, confidence=CONFIDENCE.index(reads))


def _read_block_net(
    stored: PublishedFolder, settings: BlockSettings, further: Mapping[str, int] | None = None
) -> DFlashNet:
    """The net around the tensors. further: DSpark's sizes; None: it is DFlash."""
    vocab, layers = stored.spec.vocab, count_layers(stored)
    stored.expect({"target_hidden_size": (stored.spec.d_model,)})
    sizes, windows = read_sizes(stored, PLAIN_BLOCK), read_windows(stored, layers)
    if not any(windows):
        stored.config.skip("sliding_window_non_causal")
    bias = "layers.0.self_attn.q_proj.bias" in stored.shapes
    stored.expect({"attention_bias": (bias,)}, stored.layer)
    shape = sizes.shape | dict(
        block=settings.block, layers=layers, states=len(settings.ids), anchor=int(settings.anchor), kept=settings.kept,
        mask_token=settings.mask_token, bias=int(bias), causal=settings.causal, vocab=vocab, **(further or {}),
    )  # fmt: skip
    own, tensors = read_draft_tensors(stored, _map_tensors(shape, bias), settings.kept, 0)
    shape |= dict(own=int(own), own_embed=vocab if EMBEDDING in stored.shapes else 0)
    net = (DFlashNet if further is None else DSparkNet).from_tensors(shape, tensors)
    net.layer_ids = settings.ids
    set_rotation(net, sizes.rope, windows)
    return net


def _map_tensors(shape: Mapping[str, int], bias: bool) -> list[LayerMapping]:
    """The tensors of a net of this shape, without its vocabulary."""
    d = shape["d"]
    mappings = [LayerMapping("fuse", "fc", (d, shape["states"] * d), False)]
    mappings += [
        LayerMapping(ours, theirs, (d,), False)
        for ours, theirs in (("second", "hidden_norm"), ("last", "norm"))
    ]
    for i in range(shape["layers"]):
        mappings += decoder_layer(f"layers.{i}", shape, d, f"layers.{i}.", qkv=bias, out=bias, norms=True)
        mappings.append(LayerMapping(f"layers.{i}.first", f"layers.{i}.input_layernorm", (d,), False))
    rank = shape.get("rank", 0)
    if rank:
        mappings.append(LayerMapping("markov.w1", "markov_head.markov_w1", (shape["vocab"], rank), False))
        mappings.append(LayerMapping("markov.w2", "markov_head.markov_w2", (shape["kept"], rank), False))
        if MARKOV[shape["markov"]] == "gated":
            mappings.append(LayerMapping("markov.gate", "markov_head.gate_proj", (rank, d + rank)))
        if MARKOV[shape["markov"]] == "rnn":
            mappings.append(LayerMapping("markov.joint", "markov_head.joint_proj", (3 * rank, 2 * rank + d)))
    if reads := shape.get("confidence", 0):
        width = d + rank * (CONFIDENCE[reads] == "output and token before")
        mappings.append(LayerMapping("confidence", "confidence_head.proj", (1, width)))
    return mappings
