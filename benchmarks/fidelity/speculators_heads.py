"""EAGLE-3 heads of the library speculators beside ours: random heads of every form, written by the library's own classes.

    python benchmarks/fidelity/speculators_heads.py CHECKOUT [--record FILE]

CHECKOUT is a checkout of vllm-project/speculators or a folder of installed packages that has `speculators`. For each form the
library's class writes a folder, and our reader reads it. Both get the same random states and text. The library's net drafts 64
tokens greedily; ours must give the same logits at each step and so the same tokens. The library's forward for training, which
unrolls drafts of all places at once, is compared too, where no window makes it see other tokens than a server. Last, our writer
writes each head in the library's layout, and the library's class reads that folder and drafts again.

Weights and states are made by a formula out of their names (`numbers`). So a file that --record writes needs configs, shapes,
tokens and a few logits only, and `tests/engine/test_speculators_heads.py` compares ours with it without the library.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from official import Code, main, told
from safetensors.torch import save_file
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer
from decodescope.engine.model.heads.files import load_head
from decodescope.engine.model.heads.published.layout_writer import write_published

PLACES = ("src/speculators/models/eagle3/core.py", "speculators/models/eagle3/core.py")
LAYERS = 16
D = 32
VOCAB = 40
KEPT = [0, 3, 4, 7, 9, 10, 15, 16, 18, 22, 25, 26, 30, 31, 36, 39]
TEXT = [3, 17, 5, 38, 1, 22, 7, 7, 29, 14, 0, 33]
STEPS = 64
IDS = "eagle_aux_hidden_state_layer_ids"
SIZES = dict(
    hidden_size=D, intermediate_size=20, num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_hidden_layers=1,
    vocab_size=VOCAB, max_position_embeddings=512, rms_norm_eps=1e-6,
)  # fmt: skip
SLIDING = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 5,
    "num_hidden_layers": 2,
}


def scaled(kind: str, **more: Any) -> dict[str, Any]:
    """The layer's keys for a rotation of this kind."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 700.0, **more}}


LLAMA3 = dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
# form -> (family of the layers, their keys, keys at the top)
FORMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "plain": ("llama", {}, {}),
    "plain, Qwen 3": ("qwen3", {}, {}),
    "whole vocabulary": ("llama", {}, {"draft_vocab_size": VOCAB}),
    "norm_before_residual": ("llama", {}, {"norm_before_residual": True}),
    "norm_before_fc": ("llama", {}, {"norm_before_fc": True}),
    "fc_norm": ("llama", {}, {"fc_norm": True}),
    "norm_output": ("llama", {}, {"norm_output": True}),
    "all norms": ("qwen3", {}, {"norm_before_residual": True, "fc_norm": True, "norm_output": True}),
    "two layers": ("llama", {"num_hidden_layers": 2}, {}),
    "three layers, Qwen 3": ("qwen3", {"num_hidden_layers": 3}, {"norm_before_residual": True}),
    "the usual layers": ("llama", {}, {IDS: None}),
    "one state": ("llama", {}, {IDS: [7]}),
    "five states, first and last": ("llama", {}, {IDS: [0, 3, 8, 15, 16], "fc_norm": True}),
    "states in another order": ("qwen3", {}, {IDS: [12, 1, 6]}),
    "window, then none": ("llama", SLIDING, {}),
    "window, Qwen 3": ("qwen3", {**SLIDING, "use_sliding_window": True}, {}),
    "window off, Qwen 3": ("qwen3", {**SLIDING, "use_sliding_window": False}, {}),
    "windows from a layer on": (
        "qwen3",
        {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
        {},
    ),
    "base of the rotation": ("llama", scaled("default"), {}),
    "linear rotation": ("llama", scaled("linear", factor=3.0), {}),
    "rotation llama3": ("llama", scaled("llama3", **LLAMA3), {}),
    "rotation yarn": ("qwen3", scaled("yarn", factor=4.0, original_max_position_embeddings=64), {}),
    "rotation by type of layer": (
        "llama",
        {
            **SLIDING,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
                "full_attention": {"rope_type": "default", "rope_theta": 9000.0},
            },
        },
        {},
    ),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}, {}),
    "biases, Qwen 3": ("qwen3", {"attention_bias": True}, {}),
    "a KV head each": ("llama", {"num_key_value_heads": 4}, {}),
    "wide heads": ("llama", {"head_dim": 16, "num_key_value_heads": 1}, {}),
    "other epsilon": ("qwen3", {"rms_norm_eps": 1e-5}, {}),
}


@dataclass(frozen=True)
class Chain:
    """A greedy draft. tokens: ids of the target;  logits: float [steps, kept], of the draft vocabulary in its order"""

    tokens: list[int]
    logits: Tensor


def numbers(name: str, shape: Sequence[int]) -> Tensor:
    """float32 of this shape, by its name: evenly spread, of unit variance. Whole-number arithmetic, the same everywhere."""
    start = np.uint64(zlib.crc32(name.encode())) << np.uint64(32)
    z = np.arange(math.prod(shape), dtype=np.uint64) + start
    with np.errstate(over="ignore"):  # splitmix64 (Steele et al. 2014)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    even = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return torch.from_numpy((even * 2 - 1) * 3**0.5).float().view(*shape)


def weight(name: str, shape: Sequence[int]) -> Tensor:
    """The tensor `name` of a head: near 1 for a norm, small for a bias, and of a scale that keeps variances for a matrix."""
    x = numbers(name, shape)
    if len(shape) == 1:
        return 1 + 0.2 * x if "norm" in name else 0.2 * x
    return x * (1.0 if "embed" in name else 1.6 * shape[-1] ** -0.5)


def vocabulary_lists() -> dict[str, Tensor]:
    """d2t and t2d of the draft vocabulary."""
    ids = torch.tensor(KEPT)
    return {"d2t": ids - torch.arange(len(KEPT)), "t2d": torch.isin(torch.arange(VOCAB), ids)}


def write_folder(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> Path:
    """The folder of a head with this config and the tensors of these names, as the library writes it."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    lists = vocabulary_lists()
    tensors = {x: lists[x] if x in lists else weight(x, shape) for x, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def target_spec() -> ModelSpec:
    """The shape of the target that the heads are made for."""
    return ModelSpec("toy", LAYERS, 4, 2, 8, D, 20, VOCAB, max_positions=512)


def read_states(places: Sequence[int | str]) -> Tensor:
    """float32 [T - 1, places * d]: the target's states of the text's tokens but the last one, at these places."""
    return torch.cat([numbers(f"state {x}", (len(TEXT) - 1, D)) for x in places], -1)


def read_ours(folder: Path) -> tuple[Eagle3Layer, Any]:
    """Our net around the head in `folder`, and its target, of which it needs the number of ids: it brings its vocabulary."""
    head = load_head(folder, target_spec(), "eagle3")
    assert isinstance(head, Eagle3Layer) and head.own_embed is not None
    return head, SimpleNamespace(vocab=VOCAB, embed=head.own_embed, head=None)


@torch.inference_mode()
def our_chain(folder: Path, steps: int = STEPS) -> Chain:
    """Our greedy draft of the head in `folder`, with its cache: the text in two passes, then one slot after another."""
    head, target = read_ours(folder)
    head = head.pack_weights()
    features, store, table = (
        head.enter(read_states(head.places(LAYERS))),
        head.store(),
        head.embedding(target),
    )
    out, n = torch.empty(0), len(TEXT) - 1
    for part in (range(5), range(5, n)):
        read = table[torch.tensor(TEXT)[part.start + 1 : part.stop + 1]]
        out = head(features[part.start : part.stop][None], read[None], store.n, store)
        store.commit(range(len(part)))
    tokens, rows = list[int](), []
    for k in range(steps):
        logits = head.logits(out[0, -1:], target)[0]
        rows.append(logits[head.ids])
        tokens.append(int(logits.argmax()))
        out = head(out[:, -1:], table[tokens[-1:]][None], n + k, store)
    return Chain(tokens, torch.stack(rows))


def library_modules(source: Path) -> None:
    """Make the library importable out of `source`, a folder that holds the package `speculators`."""
    sys.path.insert(0, str(source))
    # what reads training data asks for further packages; the nets take one type's name from it
    data = ModuleType("speculators.train.data")
    data.BatchType = dict  # type: ignore[attr-defined]
    sys.modules.setdefault(data.__name__, data)


class Library:
    """The library's classes, out of `source`, a folder that holds the package `speculators`."""

    def __init__(self, source: Path) -> None:
        library_modules(source)
        from speculators.config import SpeculatorsConfig, VerifierConfig
        from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
        from speculators.proposals.greedy import GreedyTokenProposalConfig
        from transformers import LlamaConfig, Qwen3Config

        self.layers = {"llama": LlamaConfig, "qwen3": Qwen3Config}
        self.net, self.config = Eagle3DraftModel, Eagle3SpeculatorConfig
        self.around = SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=3)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path="toy", architectures=["LlamaForCausalLM"]),
        )

    def build(self, family: str, layer: Mapping[str, Any], top: Mapping[str, Any]) -> Any:
        """The library's net of this form, with our numbers."""
        words = self.layers[family](**{**SIZES, **layer})
        words._attn_implementation = "eager"
        own = {"draft_vocab_size": len(KEPT), IDS: [2, 8, 13], **top}
        net = self.net(
            self.config(transformer_layer_config=words, speculators_config=self.around, **own)
        ).eval()
        lists = vocabulary_lists() if net.use_draft_vocab else {}
        with torch.no_grad():
            for name, x in net.named_parameters():
                x.copy_(weight(name, x.shape))
        net.load_vocab_mappings(lists.get("t2d"), lists.get("d2t"))
        net._create_mask_fn = dense_mask
        return net

    def write_verifier(self, folder: Path) -> None:
        """A random target, which the library asks for the number of its layers, and for what a head's folder lacks."""
        from transformers import LlamaForCausalLM

        LlamaForCausalLM(self.layers["llama"](**{**SIZES, "num_hidden_layers": LAYERS})).save_pretrained(
            folder
        )

    def read(self, folder: Path, verifier: Path) -> Any:
        """The library's net around the files of a folder, with the target in `verifier`."""
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config["speculators_config"]["verifier"]["name_or_path"] = str(verifier)
        path.write_text(json.dumps(config))
        words = self.config.from_pretrained(folder)
        words.transformer_layer_config._attn_implementation = "eager"
        net = self.net.from_pretrained(folder, config=words).eval()
        net._create_mask_fn = dense_mask
        return net


def dense_mask(mask_mod: Any, *, Q_LEN: int, KV_LEN: int, **_: Any) -> Tensor:
    """The library's mask for its eager attention, [1, 1, Q_LEN, KV_LEN], by one call of its rule."""
    zero = torch.tensor(0)
    seen = mask_mod(zero, zero, torch.arange(Q_LEN)[:, None], torch.arange(KV_LEN)[None])
    return torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)[None, None]


@contextmanager
def given_features(net: Any, features: Tensor) -> Iterator[None]:
    """In here the net takes `features` [n, d] instead of what it makes of the states."""
    hook = net.fc.register_forward_hook(lambda *_: features[None])
    try:
        yield
    finally:
        hook.remove()


def run_net(net: Any, states: Tensor, tokens: Sequence[int], steps: int, place: int) -> tuple[Tensor, Tensor]:
    """Logits [steps, kept] of a draft that begins at `place`, by the library's forward, and what is fed back last, [d]."""
    seen: dict[str, list[Tensor]] = {"lm_head": [], "norm": []}
    hooks = [
        net.lm_head.register_forward_hook(lambda _, __, out: seen["lm_head"].append(out[0, place])),
        net.norm.register_forward_hook(
            lambda _, inputs, out: seen["norm"].append(
                (out if net.config.norm_output else inputs[0])[0, place]
            )
        ),
    ]
    ids = torch.tensor([tokens])
    net(states[None], ids, torch.zeros_like(ids), ttt_steps=steps)
    for hook in hooks:
        hook.remove()
    return torch.stack(seen["lm_head"]), seen["norm"][-1]


@torch.inference_mode()
def library_chain(net: Any, steps: int = STEPS) -> Chain:
    """The library's greedy draft as a server makes it: each output is fed back as the feature of the next slot."""
    states = library_states(net)
    features, tokens, rows = net.fc(_normed(net, states)), list(TEXT[1:]), []
    ids = KEPT if net.use_draft_vocab else list(range(VOCAB))
    wide = states.new_zeros(1, states.shape[1])
    for _ in range(steps):
        with given_features(net, features):
            logits, out = run_net(net, wide.expand(len(features), -1), tokens, 1, len(features) - 1)
        rows.append(logits[0])
        tokens.append(ids[int(logits[0].argmax())])
        features = torch.cat([features, out[None]])
    return Chain(tokens[len(TEXT) - 1 :], torch.stack(rows))


@torch.inference_mode()
def unrolled_logits(net: Any, chain: Sequence[int]) -> Tensor:
    """float [len(chain), kept]: the logits of the draft `chain` at the text's end by the library's forward for training."""
    states = library_states(net)
    spare = states.new_zeros(len(chain), states.shape[1])
    return run_net(net, torch.cat([states, spare]), [*TEXT[1:], *chain], len(chain), len(states) - 1)[0]


def library_states(net: Any) -> Tensor:
    """The states that the net reads. Its ids count the inputs of layers; without any it reads 2, M / 2 and M - 3."""
    return read_states(net.config.eagle_aux_hidden_state_layer_ids or [2, LAYERS // 2, LAYERS - 3])


def _normed(net: Any, states: Tensor) -> Tensor:
    """The states as `fc` reads them, by the net's own norms."""
    if net.input_norm is not None:
        return net.input_norm(states)
    if net.fc_norm is None:
        return states
    parts = zip(net.fc_norm, states.chunk(len(net.fc_norm), -1), strict=True)
    return torch.cat([norm(x) for norm, x in parts], -1)


def record_form(folder: Path, net: Any, chain: Chain) -> dict[str, Any]:
    """What the tests read: config and shapes as the library wrote them, its tokens, and of each step's logits the largest and
    the log of the sum of exponentials."""
    from safetensors.torch import load_file

    shapes = {x: list(y.shape) for x, y in sorted(load_file(folder / "model.safetensors").items())}
    config = json.loads((folder / "config.json").read_text())
    facts = {"config": config, "shapes": shapes, "tokens": chain.tokens}
    largest, total = chain.logits.max(-1).values.tolist(), chain.logits.logsumexp(-1).tolist()
    return facts | {"largest": [round(x, 5) for x in largest], "total": [round(x, 5) for x in total]}


def compare(args: argparse.Namespace) -> None:
    """Write, read, draft with both, and print."""
    code = Code(args.checkout, *PLACES)
    library = Library(args.checkout / code.place.partition("speculators/")[0])
    rows, recorded = [], {}
    with tempfile.TemporaryDirectory() as home:
        verifier = Path(home) / "verifier"
        library.write_verifier(verifier)
        for i, (form, (family, layer, top)) in enumerate(FORMS.items()):
            net, folder = library.build(family, layer, top), Path(home) / str(i)
            net.save_pretrained(folder)
            theirs, ours = library_chain(net), our_chain(folder)
            same = sum(x == y for x, y in zip(theirs.tokens, ours.tokens, strict=True))
            apart = float((theirs.logits - ours.logits).abs().max())
            unrolled = ""
            if not net.uses_sliding_window_attn or net.sliding_window is None:
                unrolled = f"{float((unrolled_logits(net, theirs.tokens) - ours.logits).abs().max()):.1e}"
            written = Path(home) / f"{i} ours"
            head, target = read_ours(folder)
            write_published(head, written, "speculators", target, target_spec(), torch.float32)
            again = library_chain(library.read(written, verifier))
            back = float((theirs.logits - again.logits).abs().max())
            row = [form, len(set(theirs.tokens)), same, f"{apart:.1e}", unrolled]
            rows.append([*row, f"{back:.1e}"])
            recorded[form] = record_form(folder, net, theirs)
    told(
        code,
        ("form", "different tokens", f"same of {STEPS}", "logits apart", "unrolled", "written by us"),
        rows,
    )
    if args.record:
        args.record.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")


def arguments(about: str | None = __doc__) -> argparse.ArgumentParser:
    """The arguments of a comparison with this library."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "checkout", type=Path, metavar="CHECKOUT", help="folder that holds src/speculators or speculators"
    )
    made.add_argument("--record", type=Path, metavar="FILE", help="write what the tests compare ours with")
    return made


if __name__ == "__main__":
    sys.exit(main(compare, arguments()))
