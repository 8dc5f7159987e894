"""DFlash and DSpark drafts in the layouts that people ship: each equals its project's formulas, no key is passed over."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from block_reference import ReferenceBlock
from drafting import feature_of
from flipping import flips
from head_folders import COMMON, KEPT, LAYER, SPEC, D, V, head_of, layer_shapes, target, written
from safetensors.torch import load_file, save_file
from sizes import thinned

from decodescope.engine import Session
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.describe import describe_heads, is_head_folder
from decodescope.engine.model.heads.drafting.dspark import BlockChain, DSparkNet
from decodescope.engine.model.heads.files import load_head, write_head
from decodescope.engine.model.heads.published.dflash import usual_layer_outputs

TEXT = [3, 5, 1, 7, 2, 2, 9, 4, 11, 0, 6]
R = 5  # rank of the bias
WINDOW = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 3,
    "use_sliding_window": True,
}
LAYERS = {**LAYER, "model_type": "qwen3", "num_hidden_layers": 2}


def speculators(kind: str, layer: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A config as speculators writes it."""
    around = {
        "algorithm": kind, "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"name_or_path": "someone/toy", "architectures": ["LlamaForCausalLM"]},
    }  # fmt: skip
    own = {
        "architectures": ["Speculator"], "speculators_config": around, "speculators_model_type": kind,
        "speculators_version": "0.9.0", "tie_word_embeddings": False, "auto_map": {"": "config.Kind"},
        "draft_vocab_size": len(KEPT), "block_size": 4, "mask_token_id": 8, "aux_hidden_state_layer_ids": [1, 3, 5],
        "sliding_window_non_causal": False, "sample_from_anchor": kind == "dspark", "target_hidden_size": None,
    }  # fmt: skip
    if kind == "dspark":
        own |= {"markov_rank": R, "markov_head_type": "vanilla"}
        own |= {"enable_confidence_head": True, "confidence_head_with_markov": True}
    return {**own, "transformer_layer_config": {**LAYERS, **COMMON, **(layer or {})}, **changes}


def authors(layer: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A config as z-lab writes it."""
    own = {"architectures": ["DFlashDraftModel"], "auto_map": {"AutoModel": "dflash.DFlashDraftModel"}}
    own |= {"block_size": 4, "num_target_layers": SPEC.n_layers, "tie_word_embeddings": False}
    own |= {"dflash_config": {"mask_token_id": 8, "target_layer_ids": [0, 2, 4]}}
    return {**LAYERS, **COMMON, **own, **(layer or {}), **changes}


def deepspec(**changes: Any) -> dict[str, Any]:
    """A config as DeepSpec writes it."""
    own = {
        "architectures": ["Qwen3DSparkModel"], "block_size": 3, "num_target_layers": SPEC.n_layers, "num_anchors": 512,
        "mask_token_id": 8, "target_layer_ids": [0, 2, 4], "markov_rank": R, "markov_head_type": "gated",
        "enable_confidence_head": True, "confidence_head_with_markov": False, "tie_word_embeddings": False,
        "layer_types": ["full_attention"] * 2,
    }  # fmt: skip
    return {**LAYERS, **COMMON, **own, **changes}


# name -> config; the first word is the kind
CASES: dict[str, dict[str, Any]] = {
    "dflash speculators": speculators("dflash"),
    "dflash speculators, windows": speculators("dflash", WINDOW),
    "dflash speculators, windows, both ways": speculators("dflash", WINDOW, sliding_window_non_causal=True),
    "dflash speculators, anchor, whole": speculators("dflash", sample_from_anchor=True, draft_vocab_size=V),
    "dflash speculators, biases, Llama": speculators("dflash", {"attention_bias": True, "model_type": "llama"}),
    "dflash z-lab": authors(),
    "dflash z-lab, causal, usual layers": authors(
        block_size=None, dflash_config={"mask_token_id": 8, "causal": True, "block_size": 3}
    ),
    "dspark speculators": speculators("dspark"),
    "dspark speculators, gated, alone": speculators("dspark", markov_head_type="gated", confidence_head_with_markov=False),
    "dspark speculators, rnn, no anchor": speculators(
        "dspark", markov_head_type="rnn", sample_from_anchor=False, enable_confidence_head=False
    ),
    "dspark speculators, rank 0": speculators("dspark", markov_rank=0, confidence_head_with_markov=False),
    "dspark DeepSpec": deepspec(),
}  # fmt: skip


def block_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a draft with this config."""
    layer, shapes = config.get("transformer_layer_config", config), dict[str, tuple[int, ...]]()
    states = len(config.get("dflash_config", config).get("target_layer_ids", [1, 2]))
    states = len(config.get("aux_hidden_state_layer_ids", [0] * states))
    for i in range(layer["num_hidden_layers"]):
        shapes |= layer_shapes(f"layers.{i}", D, layer, True) | {f"layers.{i}.input_layernorm.weight": (D,)}
    shapes |= {"fc.weight": (D, states * D), "hidden_norm.weight": (D,), "norm.weight": (D,)}
    kept, rank = config.get("draft_vocab_size", V), config.get("markov_rank", 0)
    if "dflash_config" not in config:
        shapes |= {"embed_tokens.weight": (V, D), "lm_head.weight": (kept, D)}
    if rank:
        shapes |= {"markov_head.markov_w1.weight": (V, rank), "markov_head.markov_w2.weight": (kept, rank)}
        form = {"gated": ("gate_proj", rank, D + rank), "rnn": ("joint_proj", 3 * rank, 2 * rank + D)}
        if config["markov_head_type"] in form:
            name, out, width = form[config["markov_head_type"]]
            shapes |= {f"markov_head.{name}.weight": (out, width), f"markov_head.{name}.bias": (out,)}
    if config.get("enable_confidence_head"):
        width = D + rank * config["confidence_head_with_markov"]
        shapes |= {"confidence_head.proj.weight": (1, width), "confidence_head.proj.bias": (1,)}
    return shapes


def block_folder(folder: Path, name: str, **changes: Any) -> Path:
    """The folder of this variant."""
    config = CASES[name]
    lists = ("d2t", "t2d") if config.get("draft_vocab_size", V) < V else ()
    return written(folder, {**config, **changes}, block_shapes(config), lists)


def places_of(net: Any) -> list[int | str]:
    return list(net.places(SPEC.n_layers))


@torch.inference_mode()
def our_block(
    net: Any, decoder: Decoder, features: torch.Tensor, root: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [guesses, V] of our net's greedy draft, with its cache, and its confidence; the text comes in two parts."""
    store, table = net.store(), net.embedding(decoder)
    for part in (features[:4], features[4:]):
        net.add_text(part, store)
    outputs = net.read_block(net.fill_block(table[root], net.mask_vector(table)), store)
    store.rollback()
    if not isinstance(net, DSparkNet):
        return net.logits(net.guessing(outputs), decoder), outputs[:0, 0]
    chain, rows, token = BlockChain(net, outputs, root, decoder), list[torch.Tensor](), root
    for _ in range(net.guesses):
        rows.append(chain.next_logits(token))
        token = int(rows[-1].argmax())
    return torch.stack(rows), torch.stack(chain.confidence or [outputs[0, 0]])[
        : len(chain.confidence)
    ].sigmoid()


@pytest.mark.parametrize("name", CASES)
def test_a_draft_computes_what_its_project_computes(name: str, tmp_path: Path) -> None:
    """Logits, confidence and tokens are those of the file written out: as read, packed and written by us, and in a run."""
    decoder, kind = target(), name.split()[0]
    folder = block_folder(tmp_path / "head", name)
    known = ReferenceBlock(folder, decoder.embed, decoder.unembed(torch.eye(D, dtype=torch.float64)).T)
    head: Any = head_of(folder, kind, decoder)
    assert head.kind == kind and is_head_folder(folder)
    states = [feature_of(TEXT[:-1], (x,), decoder) for x in places_of(head)]
    due = known.greedy(known.enter(states), TEXT[-1])
    write_head(head, tmp_path / "ours")
    again = load_head(tmp_path / "ours", SPEC, kind)
    again.load_state_dict(head.state_dict(), strict=True, assign=True)  # our files keep bfloat16
    for form in (head, head.pack_weights(), again):
        logits, confidence = our_block(form, decoder, form.enter(torch.cat(states, -1)), TEXT[-1])
        assert torch.allclose(logits, due.logits, atol=1e-6)
        assert torch.allclose(confidence, due.confidence.to(confidence), atol=1e-6)
    decoder.heads, decoder.spec = {kind: head}, replace(SPEC, heads=(kind,))
    session = Session(toys.model(decoder), toys.method(drafter=kind), TEXT, max_new_tokens=5)
    session.start()
    propose, drafts = session.drafter.propose, []
    session.drafter.propose = lambda ctx: drafts.append(propose(ctx)) or drafts[-1]  # type: ignore[method-assign]
    while not session.is_done:
        text = list(session.tokens)
        session.step()
        features = known.enter([feature_of(text[:-1], (x,), decoder) for x in places_of(head)])
        assert drafts[-1].tokens == known.greedy(features, text[-1]).tokens[: len(drafts[-1])]
    assert session.tokens[len(TEXT) :] == toys.greedy_text(decoder, TEXT, 5)


@pytest.mark.parametrize("name", thinned(3, CASES))
def test_every_key_of_a_config_counts_or_is_named(name: str, tmp_path: Path) -> None:
    """With another value for any one key the draft differs, or is refused, or the key is named."""
    folder, decoder, kind = block_folder(tmp_path / "head", name), target(), name.split()[0]
    config = json.loads((folder / "config.json").read_text())
    known = {x: feature_of(TEXT[:-1], (x,), decoder) for x in range(SPEC.n_layers + 1)}

    def computed() -> tuple[list[torch.Tensor], Any]:
        head: Any = head_of(folder, kind, decoder)
        features = head.enter(torch.cat([known[x] for x in places_of(head)], -1))
        return list(our_block(head, decoder, features, TEXT[-1])), head

    usual, silent, refused, other = computed()[0], [], 0, 0
    for key, changed in flips(config):
        (folder / "config.json").write_text(json.dumps(changed))
        try:
            made, head = computed()
        except LoadError as error:
            assert str(error).endswith(".") and "\n" not in str(error)
            refused += 1
            continue
        last, uses = key.rpartition(".")[2], {x.key: x.use for x in head.readings}
        named = any(last in x for x in head.remarks) or uses[key].startswith("changes no number")
        same = all(map(torch.equal, made, usual))
        other += not same
        if same and not named:
            silent.append((key, uses[key]))
    assert silent == [] and refused > 5 and other > 1


TENSORS = ("dflash speculators", "dflash z-lab", "dspark speculators, rnn, no anchor", "dspark DeepSpec")


@pytest.mark.parametrize("name", TENSORS)
def test_every_tensor_is_used_or_named(name: str, tmp_path: Path) -> None:
    folder, kind = block_folder(tmp_path / "head", name), name.split()[0]
    path = folder / "model.safetensors"
    tensors, spare = load_file(path), {"embed_tokens.weight", "t2d", "lm_head.weight"}

    def refused(changed: dict[str, torch.Tensor], why: str) -> None:
        save_file(changed, path)
        with pytest.raises(LoadError, match=why):
            load_head(folder, SPEC, kind)

    for odd, x in tensors.items():
        longer = torch.cat([x, x[:1]])
        refused(tensors | {odd: longer}, odd.replace(".", r"\."))
        others = {key: y for key, y in tensors.items() if key != odd}
        if odd in spare:
            save_file(others, path)
            load_head(folder, SPEC, kind)
        else:
            refused(others, r"\.$")
    refused(tensors | {"mask_embedding": torch.zeros(D)}, "mask_embedding is missing, unknown")
    save_file(tensors | {"verifier_norm.weight": torch.ones(D)}, path)
    title = {"dflash": "DFlash", "dspark": "DSpark"}[kind]
    assert any(
        f"holds verifier_norm.weight, which no {title} draft reads when it drafts" in x
        for x in load_head(folder, SPEC, kind).remarks
    )


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("dflash speculators", {"mask_token_id": None}, "says mask_token_id = None, which must be an id of toy, from 0 to 12"),
        ("dflash speculators", {"mask_token_id": V}, "says mask_token_id = 13"),
        ("dflash speculators", {"block_size": 1}, "a block of 1 places .* in which nothing is guessed"),
        ("dflash speculators", {"aux_hidden_state_layer_ids": None}, "does not say which layers of its target it reads"),
        ("dflash speculators", {"aux_hidden_state_layer_ids": [1, 3, 9]}, "toy has 6 layers"),
        ("dflash z-lab", {"num_target_layers": 36}, "says num_target_layers = 36"),
        ("dflash z-lab", {"dflash_config": {"use_swa": True, "mask_token_id": 8}}, "says use_swa = True"),
        ("dflash z-lab", {"architectures": ["DFlash2DraftModel"]}, "holds a DFlash-2 draft"),
        ("dspark speculators", {"markov_head_type": "other"}, "must be vanilla, gated, rnn"),
        ("dspark speculators", {"markov_rank": 0}, "of which only one can hold"),
        ("dspark DeepSpec", {"model_type": "gemma4_text"}, "says model_type = gemma4_text"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_what_and_what_to_do(
    name: str, changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(LoadError, match=says):
        load_head(block_folder(tmp_path / "head", name, **changes), SPEC, name.split()[0])


def test_the_usual_layers_are_z_labs() -> None:
    """build_target_layer_ids of dflash/model.py, at a few sizes worked out by hand."""
    assert usual_layer_outputs(36, 5) == [1, 9, 17, 25, 33] and usual_layer_outputs(36, 1) == [18]
    assert usual_layer_outputs(28, 3) == [1, 13, 25] and usual_layer_outputs(6, 2) == [1, 3]


def test_a_folder_is_described_without_its_target(tmp_path: Path) -> None:
    for name, layout in (
        ("dflash speculators", "speculators"),
        ("dflash z-lab", "z-lab"),
        ("dspark DeepSpec", "DeepSpec"),
    ):
        folder = block_folder(tmp_path / layout, name, num_target_layers=None)
        facts = describe_heads(folder)
        assert (facts["kind"], facts["layout"]) == (name.split()[0], layout) and facts["target_layers"] == [
            1,
            3,
            5,
        ]
