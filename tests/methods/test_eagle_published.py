"""EAGLE's layers as their authors write them: tiny files in these layouts become nets that compute what the formulas say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toys
from safetensors.torch import save_file

from decodescope.engine import Session
from decodescope.engine.checkpoint.folder import LoadError
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.heads.files import read_heads
from decodescope.engine.heads.published import recognised

Tensors = dict[str, torch.Tensor]
CPU = torch.device("cpu")
SPEC = toys.shaped(n_layers=16, heads=())  # EAGLE-3's layers are those of its authors from 16 on
D, V, H, G, W, F = 32, 13, 4, 2, 8, 20  # width, ids, query heads, KV heads, width of a head, of the feed-forward block
KEPT = [1, 2, 5, 6, 11, 12]
CONFIG = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=D, intermediate_size=F, num_attention_heads=H,
    num_key_value_heads=G, num_hidden_layers=1, vocab_size=V, rms_norm_eps=1e-6, rope_theta=500000.0, hidden_act="silu",
)  # fmt: skip


def drawn(**shapes: tuple[int, ...]) -> Tensors:
    g = torch.Generator().manual_seed(4)
    made = {name: torch.randn(shape, generator=g) * shape[-1] ** -0.5 for name, shape in shapes.items()}
    return {name: x + 1 if name.endswith("norm.weight") else x for name, x in made.items()}


def layer(place: str, width: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the Llama layer without the norms before its attention."""
    attention = {"q": (H * W, width), "k": (G * W, width), "v": (G * W, width), "o": (D, H * W)}
    mlp = {"gate": (F, D), "up": (F, D), "down": (D, F)}
    names = {f"{place}.self_attn.{x}_proj.weight": shape for x, shape in attention.items()}
    names |= {f"{place}.mlp.{x}_proj.weight": shape for x, shape in mlp.items()}
    return names | {f"{place}.post_attention_layernorm.weight": (D,)}


def eagle1(fc_bias: bool = True, qkv: bool = False) -> Tensors:
    shapes = {"fc.weight": (D, 2 * D), **layer("layers.0", D), "embed_tokens.weight": (V, D)}
    shapes |= {"fc.bias": (D,)} if fc_bias else {}
    if qkv:
        shapes |= {f"layers.0.self_attn.{x}_proj.bias": (n * W,) for x, n in (("q", H), ("k", G), ("v", G))}
    return drawn(**shapes)


def eagle3(kept: list[int] | None = KEPT) -> Tensors:
    words = len(kept or range(V))
    shapes = {"fc.weight": (D, 3 * D), **layer("midlayer", 2 * D), "norm.weight": (D,), "lm_head.weight": (words, D)}
    made = drawn(**shapes, **{f"midlayer.{x}.weight": (D,) for x in ("hidden_norm", "input_layernorm")})
    if kept is not None:
        ids = torch.tensor(kept)
        made |= {"d2t": ids - torch.arange(len(kept)), "t2d": torch.isin(torch.arange(V), ids)}
    return made


def written(folder: Path, tensors: Tensors, pickled: bool = False, **changes: object) -> Path:
    """A folder as the authors publish it."""
    folder.mkdir(exist_ok=True)
    more = {"draft_vocab_size": len(tensors["lm_head.weight"])} if "lm_head.weight" in tensors else {}
    (folder / "config.json").write_text(json.dumps({**CONFIG, **more, **changes}))
    if pickled:
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file({name: x.contiguous() for name, x in tensors.items()}, folder / "model.safetensors")
    return folder


def held(kind: str, folder: Path, spec: ModelSpec = SPEC, pickle: bool = False):
    return read_heads(folder.parent / "model", spec, torch.float64, CPU, {kind: folder}, pickle)[kind]


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def turned(x: torch.Tensor, theta: float) -> torch.Tensor:
    """Rows [T, heads, W] turned by their positions 0, 1, ..., the halves of a head being the pairs."""
    angle = torch.arange(len(x))[:, None] * theta ** -(torch.arange(W // 2).double() * 2 / W)  # [T, W / 2]
    a, b = x[..., : W // 2], x[..., W // 2 :]
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attended(t: Tensors, place: str, x: torch.Tensor, theta: float = 500000.0) -> torch.Tensor:
    """The attention block [T, D] over rows x, head by head."""

    def rows(name: str, heads: int) -> torch.Tensor:
        made = x @ t[f"{place}.self_attn.{name}_proj.weight"].T + t.get(f"{place}.self_attn.{name}_proj.bias", 0.0)
        return made.view(len(x), heads, W)

    q, k, v = turned(rows("q", H), theta), turned(rows("k", G), theta), rows("v", G)
    made = []
    for h in range(H):
        scores = q[:, h] @ k[:, h * G // H].T / W**0.5
        scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
        made.append(scores.softmax(-1) @ v[:, h * G // H])
    return torch.cat(made, -1) @ t[f"{place}.self_attn.o_proj.weight"].T


def fed(t: Tensors, place: str, x: torch.Tensor) -> torch.Tensor:
    """x and the feed-forward block's output for it."""
    y = norm(x, t[f"{place}.post_attention_layernorm.weight"])
    gate = torch.nn.functional.silu(y @ t[f"{place}.mlp.gate_proj.weight"].T)
    return x + (gate * (y @ t[f"{place}.mlp.up_proj.weight"].T)) @ t[f"{place}.mlp.down_proj.weight"].T


def doubles(tensors: Tensors) -> Tensors:
    return {name: x.double() if x.is_floating_point() else x for name, x in tensors.items()}


@pytest.mark.parametrize(("fc_bias", "qkv"), [(True, False), (False, True)])
@pytest.mark.parametrize("pickled", [False, True])
def test_an_eagle_layer_computes_what_its_file_says(tmp_path: Path, fc_bias: bool, qkv: bool, pickled: bool) -> None:
    tensors = eagle1(fc_bias, qkv)
    net = held("eagle", written(tmp_path / "e", tensors, pickled, bias=fc_bias), pickle=pickled)
    t, (f, e) = doubles(tensors), torch.randn(2, 7, D, dtype=torch.float64)
    x = torch.cat([e, f], -1) @ t["fc.weight"].T + t.get("fc.bias", 0.0)
    due = fed(t, "layers.0", x + attended(t, "layers.0", x))
    assert torch.allclose(net(net.enter(f)[None], e[None])[0], due, atol=1e-6)
    assert (due - f).abs().mean() > 0.1


@pytest.mark.parametrize("kept", [KEPT, [11, 1, 12, 6, 2, 5], None], ids=["some", "out of order", "all"])
@pytest.mark.parametrize("pickled", [False, True])
def test_an_eagle_3_layer_computes_what_its_file_says(tmp_path: Path, kept: list[int] | None, pickled: bool) -> None:
    tensors = eagle3(kept)
    net = held("eagle3", written(tmp_path / "e", tensors, pickled), pickle=pickled)
    decoder = toys.decoder(SPEC, dtype=torch.float64)
    t, (low, middle, high, e) = doubles(tensors), torch.randn(4, 7, D, dtype=torch.float64)
    f = torch.cat([low, middle, high], -1) @ t["fc.weight"].T
    x = torch.cat([norm(e, t["midlayer.input_layernorm.weight"]), norm(f, t["midlayer.hidden_norm.weight"])], -1)
    due = fed(t, "midlayer", f + attended(t, "midlayer", x))
    made = net(net.enter(torch.cat([low, middle, high], -1))[None], e[None])[0]
    assert torch.allclose(made, due, atol=1e-6)
    logits = torch.full((7, V), -torch.inf, dtype=torch.float64)
    for i, row in enumerate(t["lm_head.weight"]):
        logits[:, i + (int(t["d2t"][i]) if kept else 0)] = norm(due, t["norm.weight"]) @ row
    assert torch.allclose(net.logits(made, decoder), logits, atol=1e-6)
    assert net.ids.tolist() == (sorted(kept) if kept else list(range(V)))


def test_a_copy_for_servers_names_the_layer_otherwise(tmp_path: Path) -> None:
    tensors = eagle3()
    renamed = {name.replace("midlayer", "layers.0"): x for name, x in tensors.items()}
    one, other = (held("eagle3", written(tmp_path / name, x)) for name, x in (("a", tensors), ("b", renamed)))
    assert all(torch.equal(x, other.tensors()[name]) for name, x in one.tensors().items())


@pytest.mark.parametrize("drafter", ["eagle", "eagle2", "eagle3"])
def test_the_text_stays_the_targets(tmp_path: Path, drafter: str) -> None:
    kind = "eagle3" if drafter == "eagle3" else "eagle"
    made = toys.decoder(replace(SPEC, heads=(kind,)), 3, torch.float64)
    made.heads = {kind: held(kind, written(tmp_path / "e", eagle3() if kind == "eagle3" else eagle1()))}
    session = Session(toys.model(made), toys.method(drafter=(drafter, {"nodes": 12})), toys.PROMPT, max_new_tokens=30)
    drafted = sum(step.drafted for step in session.stream())
    assert session.end.tokens == toys.greedy(made, toys.PROMPT, 30) and drafted > 100


def test_what_a_folder_holds_is_seen_from_its_files(tmp_path: Path) -> None:
    one, three = written(tmp_path / "one", eagle1()), written(tmp_path / "three", eagle3())
    assert (recognised(one), recognised(three)) == ("eagle", "eagle3")
    refused("eagle", three, "holds EAGLE-3 heads, not heads of the kind eagle; give it as eagle3=")
    refused("eagle", written(tmp_path / "bin", eagle1(), pickled=True), "is a pickle file, .* allow_pickle=True")


def refused(kind: str, folder: Path, says: str, spec: ModelSpec = SPEC) -> None:
    with pytest.raises(LoadError, match=says) as found:
        held(kind, folder, spec)
    assert str(found.value).endswith(".") and "\n" not in str(found.value)


def without(tensors: Tensors, *names: str) -> Tensors:
    return {name: x for name, x in tensors.items() if name not in names}


def test_what_does_not_fit_is_refused_in_one_sentence(tmp_path: Path) -> None:
    wrong = {
        "lack": (without(eagle1(), "fc.weight"), {}, "fc.weight is missing"),
        "more": (eagle1() | {"layers.1.mlp.up_proj.weight": torch.zeros(F, D)}, {}, "up_proj.weight is missing, unknown"),
        "wide": (eagle1(), dict(hidden_size=64), "reads states of width 64, those of toy have 32"),
        "heads": (eagle1(), dict(num_key_value_heads=3), "do not go into each other"),
        "odd": (eagle1(), dict(num_attention_heads="4"), "num_attention_heads is 4 and must be a whole number"),
        "rope": (eagle1(), dict(rope_scaling={"type": "linear", "factor": 2.0}), "a scaled rotation"),
        "act": (eagle1(), dict(hidden_act="gelu"), "an activation other than silu"),
        "theta": (eagle1(), dict(rope_theta=-1), "rope_theta = -1, which must be a number above 0"),
        "whole": (eagle1() | {"fc.bias": torch.zeros(D, dtype=torch.int64)}, {}, "stores fc.bias as I64"),
    }
    for name, (tensors, changes, says) in wrong.items():
        refused("eagle", written(tmp_path / name, tensors, **changes), says)
    ids = eagle3()["d2t"]
    wrong3 = {
        "far": (eagle3() | {"d2t": ids + 10}, {}, "ids that toy does not have"),
        "twice": (eagle3() | {"d2t": -torch.arange(6)}, {}, "or to one twice"),
        "marks": (eagle3() | {"t2d": torch.ones(V, dtype=torch.bool)}, {}, "two lists of its draft vocabulary"),
        "unsaid": (without(eagle3(), "d2t"), {}, "does not say which ids these are"),
        "layers": (eagle3(), dict(eagle_aux_hidden_state_layer_ids=[1, 2, 3]), r"reads the layers \[1, 2, 3\]"),
    }
    for name, (tensors, changes, says) in wrong3.items():
        refused("eagle3", written(tmp_path / name, tensors, **changes), says)
    refused("eagle3", written(tmp_path / "small", eagle3()), "toy has 3; give an EAGLE-1 layer", toys.SPEC)
