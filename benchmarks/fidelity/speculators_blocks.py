"""DFlash and DSpark drafts of the library speculators beside ours: random nets of every form, written by the library's classes.

    python benchmarks/fidelity/speculators_blocks.py CHECKOUT [--record FILE]

CHECKOUT is as for speculators_heads.py, from which weights and states come too. For each form the library writes a folder, and
our reader reads it. Both draft greedily behind the same text and states, 64 tokens in all: each block goes on behind the one
before it, as if all of that had been accepted. Logits of each place, tokens, and the confidence must be the same.

The library's classes have a forward for training alone, over blocks at random places of a text. One place is allowed, and what
stands behind it no block sees. DSpark's heads are called place by place, with the tokens so far.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from official import Code, main, told
from speculators_heads import (
    KEPT,
    LAYERS,
    SIZES,
    TEXT,
    VOCAB,
    D,
    arguments,
    dense_mask,
    library_modules,
    numbers,
    scaled,
    target_spec,
    vocabulary_lists,
    weight,
)  # fmt: skip
from torch import Tensor

from decodescope.engine.model.heads.drafting.dspark import BlockChain, DSparkNet
from decodescope.engine.model.heads.files import load_head

PLACES = ("src/speculators/models/dspark/core.py", "speculators/models/dspark/core.py")
STEPS = 64
LENGTH = len(TEXT) + STEPS + 16
IDS = "aux_hidden_state_layer_ids"
TWO = {"num_hidden_layers": 2}
WINDOWS = {
    **TWO, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5, "use_sliding_window": True,
}  # fmt: skip
YARN = scaled("yarn", factor=4.0, original_max_position_embeddings=64)
# form -> (kind, keys of the layers, keys at the top)
FORMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "dflash": ("dflash", {}, {}),
    "dflash, three layers": ("dflash", {"num_hidden_layers": 3}, {}),
    "dflash, windows": ("dflash", WINDOWS, {}),
    "dflash, windows both ways": ("dflash", WINDOWS, {"sliding_window_non_causal": True}),
    "dflash, place 0 guesses": ("dflash", TWO, {"sample_from_anchor": True}),
    "dflash, block of 8, whole vocabulary": ("dflash", TWO, {"block_size": 8, "draft_vocab_size": VOCAB}),
    "dflash, biases": ("dflash", {"attention_bias": True}, {}),
    "dflash, wide heads, yarn": ("dflash", {"head_dim": 16, "num_key_value_heads": 1, **YARN}, {}),
    "dflash, five states, first and last": ("dflash", {}, {IDS: [0, 3, 8, 15, 16]}),
    "dspark": ("dspark", TWO, {}),
    "dspark, gated": ("dspark", {}, {"markov_head_type": "gated"}),
    "dspark, rnn": ("dspark", {}, {"markov_head_type": "rnn"}),
    "dspark, rnn, place 0 does not guess": (
        "dspark",
        {},
        {"markov_head_type": "rnn", "sample_from_anchor": False},
    ),
    "dspark, confidence by the output": ("dspark", {}, {"confidence_head_with_markov": False}),
    "dspark, no confidence": ("dspark", WINDOWS, {"enable_confidence_head": False}),
    "dspark, rank 0": ("dspark", {}, {"markov_rank": 0, "confidence_head_with_markov": False}),
}


@dataclass
class Blocks:
    """Greedy drafts one behind the other. tokens: ids of the target;  logits: float [steps, kept], of the draft vocabulary in
    its order;  confidence: logits of the chance of acceptance, [steps], or empty"""

    tokens: list[int]
    logits: Tensor
    confidence: Tensor


def read_states(ids: Sequence[int]) -> Tensor:
    """float32 [LENGTH, states * d]: the target's states at layers `ids`, counted by their inputs."""
    return torch.cat([numbers(f"state {x}", (LENGTH, D)) for x in ids], -1)


@torch.inference_mode()
def our_blocks(folder: Path, steps: int = STEPS) -> Blocks:
    """Our greedy drafts of the net in `folder`, with its cache: keys of text are made once."""
    kind = json.loads((folder / "config.json").read_text())["speculators_model_type"]
    net: Any = load_head(folder, target_spec(), kind).pack_weights()
    # the target's, which the library does not save; it saves the unembedding of a draft vocabulary
    table, words = weight("embed_tokens.weight", (VOCAB, D)), weight("lm_head.weight", (VOCAB, D))
    target = SimpleNamespace(vocab=VOCAB, embed=table, head=None, unembed=lambda x: x @ words.T)
    features, store = net.enter(read_states(net.places(LAYERS))), net.store()
    text, rows, confidence = list(TEXT), list[Tensor](), list[Tensor]()
    while len(rows) < steps:
        root = text[-1]
        net.add_text(features[store.n : len(text) - 1], store)
        outputs = net.read_block(net.fill_block(table[root], net.mask_vector(table)), store)
        store.rollback()
        if isinstance(net, DSparkNet):
            chain: Any = BlockChain(net, outputs, root, target)
            for _ in range(net.guesses):
                rows.append(chain.next_logits(text[-1]))
                text.append(int(rows[-1].argmax()))
            confidence += chain.confidence
        else:
            rows += net.logits(net.guessing(outputs), target)
            text += [int(x.argmax()) for x in rows[len(text) - len(TEXT) :]]
    shares = torch.stack(confidence)[:steps] if confidence else torch.empty(0)
    return Blocks(text[len(TEXT) :][:steps], torch.stack(rows)[:steps, net.ids], shares)


class Library:
    """The library's classes, out of `source`, a folder that holds the package `speculators`."""

    def __init__(self, source: Path) -> None:
        library_modules(source)
        from speculators.config import SpeculatorsConfig, VerifierConfig
        from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig
        from speculators.models.dspark import DSparkDraftModel, DSparkSpeculatorConfig
        from speculators.proposals.greedy import GreedyTokenProposalConfig
        from transformers import Qwen3Config

        self.layers = Qwen3Config
        self.nets = {
            "dflash": (DFlashDraftModel, DFlashSpeculatorConfig),
            "dspark": (DSparkDraftModel, DSparkSpeculatorConfig),
        }
        self.around = {
            kind: SpeculatorsConfig(
                algorithm=kind, proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=3)],
                default_proposal_method="greedy",
                verifier=VerifierConfig(name_or_path="toy", architectures=["LlamaForCausalLM"]),
            )
            for kind in self.nets
        }  # fmt: skip

    def build(self, kind: str, layer: Mapping[str, Any], top: Mapping[str, Any]) -> Any:
        """The library's net of this form, with our numbers."""
        words = self.layers(**{**SIZES, **layer})
        words._attn_implementation = "eager"
        own = {"draft_vocab_size": len(KEPT), IDS: [2, 8, 13], "block_size": 4, "mask_token_id": 21}
        own |= {"markov_rank": 6} if kind == "dspark" else {}
        net_class, config_class = self.nets[kind]
        config = config_class(
            transformer_layer_config=words, speculators_config=self.around[kind], **{**own, **top}
        )
        net = net_class(config).eval()
        with torch.no_grad():
            for name, x in net.named_parameters():
                x.copy_(weight(name, x.shape))
        lists = vocabulary_lists() if net.use_draft_vocab else {}
        net.load_vocab_mappings(lists.get("t2d"), lists.get("d2t"))
        net._create_mask_fn = dense_mask
        return net


@torch.inference_mode()
def library_blocks(net: Any, steps: int = STEPS) -> Blocks:
    """The library's greedy drafts."""
    states, block = read_states(net.config.aux_hidden_state_layer_ids), net.config.block_size
    ids = KEPT if net.use_draft_vocab else list(range(VOCAB))
    text, rows, confidence = list(TEXT), list[Tensor](), list[Tensor]()
    first = 0 if net.config.sample_from_anchor else 1
    while len(rows) < steps:
        root, anchor = text[-1], len(text) - 1
        told_ids = torch.tensor([[*text, *[0] * block]])
        allowed = torch.zeros_like(told_ids)
        allowed[0, anchor] = 1
        hidden, logits, *_ = net._backbone_forward(
            states[None, : told_ids.shape[1]], told_ids, allowed, torch.zeros(1, told_ids.shape[1], D),
            torch.zeros_like(told_ids), max_anchors=1,
        )  # fmt: skip
        before = [root] * (1 + first)
        for place in range(first, block):
            row, told_so_far = logits[0, place], torch.tensor([before])
            head = getattr(net, "markov_head", None)
            if head is not None:
                seen = hidden[:, : len(before)]
                row = row + head.block_bias(prev_token_ids=told_so_far, hidden_states=seen)[0, -1]
            if getattr(net, "confidence_head", None) is not None:
                parts = [hidden[0, place]]
                if net.config.confidence_head_with_markov:
                    parts.append(head.prev_embeddings(told_so_far)[0, -1])
                confidence.append(net.confidence_head(torch.cat(parts)))
            rows.append(row)
            text.append(ids[int(row.argmax())])
            before.append(text[-1])
    shares = torch.stack(confidence)[:steps] if confidence else torch.empty(0)
    return Blocks(text[len(TEXT) :][:steps], torch.stack(rows)[:steps], shares)


def record_form(folder: Path, blocks: Blocks) -> dict[str, Any]:
    """What the tests read: config and shapes as the library wrote them, its tokens, of each place the log of the sum of
    exponentials of its logits, and the confidence."""
    from safetensors.torch import load_file

    shapes = {x: list(y.shape) for x, y in sorted(load_file(folder / "model.safetensors").items())}
    config = json.loads((folder / "config.json").read_text())
    facts = {"config": config, "shapes": shapes, "tokens": blocks.tokens}
    facts["total"] = [round(x, 5) for x in blocks.logits.logsumexp(-1).tolist()]
    return facts | {"confidence": [round(x, 5) for x in blocks.confidence.tolist()]}


def compare(args: argparse.Namespace) -> None:
    """Write, read, draft with both, and print."""
    code = Code(args.checkout, *PLACES)
    library = Library(args.checkout / code.place.partition("speculators/")[0])
    rows, recorded = [], {}
    with tempfile.TemporaryDirectory() as home:
        for i, (form, (kind, layer, top)) in enumerate(FORMS.items()):
            net, folder = library.build(kind, layer, top), Path(home) / str(i)
            net.save_pretrained(folder)
            theirs, ours = library_blocks(net), our_blocks(folder)
            same = sum(x == y for x, y in zip(theirs.tokens, ours.tokens, strict=True))
            apart = f"{float((theirs.logits - ours.logits).abs().max()):.1e}"
            sure = (
                f"{float((theirs.confidence - ours.confidence).abs().max()):.1e}"
                if len(ours.confidence)
                else ""
            )
            rows.append([form, len(set(theirs.tokens)), same, apart, sure])
            recorded[form] = record_form(folder, theirs)
    told(code, ("form", "different tokens", f"same of {STEPS}", "logits apart", "confidence apart"), rows)
    if args.record:
        args.record.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    sys.exit(main(compare, arguments(__doc__)))
