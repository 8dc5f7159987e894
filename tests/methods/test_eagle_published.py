"""EAGLE's layers as their authors publish them: tiny files in these layouts become nets that compute the formulas."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toys
from safetensors.torch import save_file

from decodescope.engine import Session
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.model.checkpoint.config import spec_from_config
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.keys import Config
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.files import read_heads, write_head
from decodescope.engine.model.heads.published.families import FAMILIES, published_kind
from decodescope.engine.model.heads.published.published_folder import PublishedFolder, open_tensors

Tensors = dict[str, torch.Tensor]
CPU = torch.device("cpu")
SPEC = toys.toy_spec(
    n_layers=16, heads=()
)  # from 16 layers on, EAGLE-3 reads the layers that its authors read
D, V, H, G, W, F = (
    32,
    13,
    4,
    2,
    8,
    20,
)  # width, ids, query heads, KV heads, width of a head, of the feed-forward block
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
    shapes = {
        "fc.weight": (D, 3 * D),
        **layer("midlayer", 2 * D),
        "norm.weight": (D,),
        "lm_head.weight": (words, D),
    }
    made = drawn(**shapes, **{f"midlayer.{x}.weight": (D,) for x in ("hidden_norm", "input_layernorm")})
    if kept is not None:
        ids = torch.tensor(kept)
        made |= {"d2t": ids - torch.arange(len(kept)), "t2d": torch.isin(torch.arange(V), ids)}
    return made


def written(folder: Path, tensors: Tensors, pickled: bool = False, **changes: object) -> Path:
    """A folder in the layout that the authors publish."""
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


def turned(x: torch.Tensor, theta: float, by: float = 1.0) -> torch.Tensor:
    """Rows [T, heads, W] rotated by their positions 0, 1, ... divided by `by`; pairs are formed of the two halves of a head."""
    # [T, W / 2]
    angle = torch.arange(len(x))[:, None] / by * theta ** -(torch.arange(W // 2).double() * 2 / W)
    a, b = x[..., : W // 2], x[..., W // 2 :]
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attended(
    t: Tensors, place: str, x: torch.Tensor, theta: float = 500000.0, by: float = 1.0
) -> torch.Tensor:
    """The attention block [T, D] over rows x, head by head."""

    def rows(name: str, heads: int) -> torch.Tensor:
        made = x @ t[f"{place}.self_attn.{name}_proj.weight"].T + t.get(
            f"{place}.self_attn.{name}_proj.bias", 0.0
        )
        return made.view(len(x), heads, W)

    q, k, v = turned(rows("q", H), theta, by), turned(rows("k", G), theta, by), rows("v", G)
    made = []
    for h in range(H):
        scores = q[:, h] @ k[:, h * G // H].T / W**0.5
        scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
        made.append(scores.softmax(-1) @ v[:, h * G // H])
    return torch.cat(made, -1) @ t[f"{place}.self_attn.o_proj.weight"].T


def fed(t: Tensors, place: str, x: torch.Tensor) -> torch.Tensor:
    """x plus the feed-forward block's output for it."""
    y = norm(x, t[f"{place}.post_attention_layernorm.weight"])
    gate = torch.nn.functional.silu(y @ t[f"{place}.mlp.gate_proj.weight"].T)
    return x + (gate * (y @ t[f"{place}.mlp.up_proj.weight"].T)) @ t[f"{place}.mlp.down_proj.weight"].T


def doubles(tensors: Tensors) -> Tensors:
    return {name: x.double() if x.is_floating_point() else x for name, x in tensors.items()}


@pytest.mark.parametrize(("fc_bias", "qkv"), [(True, False), (False, True)])
@pytest.mark.parametrize("pickled", [False, True])
def test_an_eagle_layer_computes_what_its_file_says(
    tmp_path: Path, fc_bias: bool, qkv: bool, pickled: bool
) -> None:
    tensors = eagle1(fc_bias, qkv)
    net = held("eagle", written(tmp_path / "e", tensors, pickled, bias=fc_bias), pickle=pickled)
    t, (f, e) = doubles(tensors), torch.randn(2, 7, D, dtype=torch.float64)
    x = torch.cat([e, f], -1) @ t["fc.weight"].T + t.get("fc.bias", 0.0)
    due = fed(t, "layers.0", x + attended(t, "layers.0", x))
    assert torch.allclose(net(net.enter(f)[None], e[None])[0], due, atol=1e-6)
    assert (due - f).abs().mean() > 0.1


@pytest.mark.parametrize("kept", [KEPT, [11, 1, 12, 6, 2, 5], None], ids=["some", "out of order", "all"])
@pytest.mark.parametrize("pickled", [False, True])
def test_an_eagle_3_layer_computes_what_its_file_says(
    tmp_path: Path, kept: list[int] | None, pickled: bool
) -> None:
    tensors = eagle3(kept)
    net = held("eagle3", written(tmp_path / "e", tensors, pickled), pickle=pickled)
    decoder = toys.decoder(SPEC, dtype=torch.float64)
    t, (low, middle, high, e) = doubles(tensors), torch.randn(4, 7, D, dtype=torch.float64)
    f = torch.cat([low, middle, high], -1) @ t["fc.weight"].T
    x = torch.cat(
        [norm(e, t["midlayer.input_layernorm.weight"]), norm(f, t["midlayer.hidden_norm.weight"])], -1
    )
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
    session = Session(
        toys.model(made), toys.method(drafter=(drafter, {"nodes": 12})), toys.PROMPT, max_new_tokens=30
    )
    drafted = sum(step.drafted for step in session.stream())
    assert session.end.tokens == toys.greedy_text(made, toys.PROMPT, 30) and drafted > 100


def test_what_a_folder_holds_is_seen_from_its_files(tmp_path: Path) -> None:
    one, three = written(tmp_path / "one", eagle1()), written(tmp_path / "three", eagle3())
    assert (published_kind(one), published_kind(three)) == ("eagle", "eagle3")
    refused("eagle", three, "holds EAGLE-3 heads, not heads of the kind eagle; give it as eagle3=")
    refused(
        "eagle", written(tmp_path / "bin", eagle1(), pickled=True), "is a pickle file, .* allow_pickle=True"
    )


def refused(kind: str, folder: Path, says: str, spec: ModelSpec = SPEC) -> None:
    with pytest.raises(LoadError, match=says) as found:
        held(kind, folder, spec)
    assert str(found.value).endswith(".") and "\n" not in str(found.value)


def without(tensors: Tensors, *names: str) -> Tensors:
    return {name: x for name, x in tensors.items() if name not in names}


def test_what_does_not_fit_is_refused_in_one_sentence(tmp_path: Path) -> None:
    wrong = {
        "lack": (without(eagle1(), "fc.weight"), {}, "fc.weight is missing"),
        "more": (
            eagle1() | {"layers.1.mlp.up_proj.weight": torch.zeros(F, D)},
            {},
            "up_proj.weight is missing, unknown",
        ),
        "wide": (
            eagle1(),
            dict(hidden_size=64),
            r"reads states of width 64 \(hidden_size\), those of toy have 32",
        ),
        "heads": (eagle1(), dict(num_key_value_heads=3), "do not go into each other"),
        "odd": (
            eagle1(),
            dict(num_attention_heads="4"),
            "num_attention_heads is 4 and must be a whole number",
        ),
        # linear scaling is supported now; the reader of models checks the rule and the base, in its own words
        "rope": (
            eagle1(),
            dict(rope_scaling={"type": "dynamic", "factor": 2.0}),
            "the rule 'dynamic', which is not supported",
        ),
        "act": (
            eagle1(),
            dict(hidden_act="gelu"),
            "says hidden_act = gelu in its config.json, and only silu can be read",
        ),
        "theta": (eagle1(), dict(rope_theta=-1), "gives rope_theta as -1; it must be a positive number"),
        "whole": (eagle1() | {"fc.bias": torch.zeros(D, dtype=torch.int64)}, {}, "stores fc.bias as I64"),
    }
    for name, (tensors, changes, says) in wrong.items():
        refused("eagle", written(tmp_path / name, tensors, **changes), says)
    ids = eagle3()["d2t"]
    wrong3 = {
        "far": (eagle3() | {"d2t": ids + 10}, {}, "ids that toy does not have"),
        "twice": (eagle3() | {"d2t": -torch.arange(6)}, {}, "or to one twice"),
        "marks": (
            eagle3() | {"t2d": torch.ones(V, dtype=torch.bool)},
            {},
            "two lists of its draft vocabulary",
        ),
        "unsaid": (without(eagle3(), "d2t"), {}, "does not say which ids these are"),
        "layers": (
            eagle3(),
            dict(eagle_aux_hidden_state_layer_ids=[1, 2, 17]),
            r"reads the layers \[1, 2, 17\]",
        ),
        "halves": (eagle3() | {"d2t": ids + 0.5}, {}, "numbers in d2t that are not whole"),
    }
    for name, (tensors, changes, says) in wrong3.items():
        refused("eagle3", written(tmp_path / name, tensors, **changes), says)
    small = "toy has 3; give an EAGLE-1 layer, or a head that names its layers"
    refused("eagle3", written(tmp_path / "small", eagle3()), small, toys.SPEC)


# ---- every key and every tensor is used, refused or named

IDS = "eagle_aux_hidden_state_layer_ids"
NVIDIA = {  # as NVIDIA's Model-Optimizer writes an EAGLE-3 head
    "use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True,
    "use_mtp_layernorm": False, "next_layer_regular": True, "parallel_draft_step": 1, IDS: [],
}  # fmt: skip


def target() -> Decoder:
    return toys.decoder(SPEC, 3, torch.float64)


def states(decoder: Decoder, tokens: list[int], places: list[int | str]) -> torch.Tensor:
    """The target's states [n, W] of the tokens at these places, side by side."""
    probe = Probe(Needs(hidden=frozenset(places)))
    decoder.forward(Feed.causal_chain(tokens, 0), None, probe)
    return torch.cat([probe.hidden[x][0] for x in places], -1)


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_a_layer_drafts_with_the_embedding_of_its_file(tmp_path: Path, kind: str) -> None:
    """The first level of a draft follows the formulas with the file's rows, not with the target's."""
    made = target()
    t = doubles(eagle1() if kind == "eagle" else eagle3())
    t["embed_tokens.weight"] = 4 * made.embed.roll(5, 0)
    folder = written(
        tmp_path / "e", {name: x.float() if x.is_floating_point() else x for name, x in t.items()}
    )
    made.heads = read_heads(tmp_path, SPEC, torch.float64, CPU, {kind: folder}, embed=made.embed)
    made.spec = replace(SPEC, heads=(kind,))
    session = Session(
        toys.model(made), toys.method(drafter=(kind, {"nodes": 9})), toys.PROMPT, max_new_tokens=24
    )
    session.start()
    drafts: list[Draft] = []
    propose = session.drafter.propose
    session.drafter.propose = lambda ctx: drafts.append(propose(ctx)) or drafts[-1]

    def first(f: torch.Tensor, e: torch.Tensor) -> list[int]:
        if kind == "eagle":
            x = torch.cat([e, f], -1) @ t["fc.weight"].T + t["fc.bias"]
            logits = made.unembed(fed(t, "layers.0", x + attended(t, "layers.0", x)))[-1]
        else:
            f = f @ t["fc.weight"].T
            x = torch.cat(
                [norm(e, t["midlayer.input_layernorm.weight"]), norm(f, t["midlayer.hidden_norm.weight"])], -1
            )
            g = fed(t, "midlayer", f + attended(t, "midlayer", x))
            logits = torch.full((V,), -torch.inf, dtype=torch.float64)
            logits[KEPT] = (norm(g, t["norm.weight"]) @ t["lm_head.weight"].T)[-1]
        return logits.topk(V).indices.tolist()

    others = 0
    while not session.is_done:
        text = list(session.tokens)  # the root is its last token
        session.step()
        level = [
            token
            for token, parent in zip(drafts[-1].tokens, drafts[-1].parents, strict=True)
            if parent == ROOT
        ]
        read = states(made, text[:-1], ["final"] if kind == "eagle" else [2, 8, 13])
        assert level == first(read, t["embed_tokens.weight"][text[1:]])[: len(level)]
        others += level != first(read, made.embed[text[1:]])[: len(level)]
    assert others > 2, "the guard: the tables must matter"
    (remark,) = made.heads[kind].remarks
    assert remark == (
        f"{folder} has an embedding of its own (13 of 13 rows differ from the target's): it drafts with that."
    )
    assert session.tokens[len(toys.PROMPT) :] == toys.greedy_text(made, toys.PROMPT, 24)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_an_embedding_that_repeats_the_targets_is_neither_kept_nor_remarked_on(
    tmp_path: Path, stored: torch.dtype
) -> None:
    made = toys.decoder(SPEC, 3, torch.float32).to(dtype=stored)
    rows = {"embed_tokens.weight": made.embed.to(stored).clone()}
    for kind, tensors in (("eagle", eagle1()), ("eagle3", eagle3())):
        folder = written(tmp_path / kind, tensors | rows)
        net = read_heads(tmp_path, SPEC, stored, CPU, {kind: folder}, embed=made.embed)[kind]
        assert net.own_embed is None and net.shape["own_embed"] == 0 and net.remarks == []
        assert net.embedding(made) is made.embed
        kept = read_heads(tmp_path, SPEC, stored, CPU, {kind: folder})[kind]
        assert torch.equal(kept.own_embed, made.embed), "without a target to compare with it stays"


def test_an_embedding_of_its_own_is_written_and_read_back(tmp_path: Path) -> None:
    net = held("eagle", written(tmp_path / "e", eagle1()))
    write_head(net, tmp_path / "ours")
    again = held("eagle", tmp_path / "ours")
    assert again.shape["own_embed"] == V and torch.equal(again.own_embed, net.own_embed.bfloat16().double())
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    (tmp_path / "ours" / "config.json").write_text(
        json.dumps(config | {"shape": config["shape"] | {"own_embed": V + 1}})
    )
    refused("eagle", tmp_path / "ours", "reads 14 ids, toy knows 13")


SCALED = {
    "default": {},
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64, "truncate": False},
}


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
@pytest.mark.parametrize("rule", SCALED)
def test_the_rotation_is_read_as_a_models_is(tmp_path: Path, kind: str, rule: str) -> None:
    """In the newer notation and in the older ones, by the reader of models; the layer rotates by the same rule."""
    tensors, table = eagle1() if kind == "eagle" else eagle3(), SCALED[rule]
    plain = {name: x for name, x in CONFIG.items() if name != "rope_theta"}
    due = spec_from_config(
        plain | {"head_dim": W, "rope_parameters": {"rope_type": rule, "rope_theta": 3e4, **table}}, "m"
    ).rope
    ways = {
        "new": {"rope_theta": None, "rope_parameters": {"rope_type": rule, "rope_theta": 3e4, **table}},
        "old": {"rope_theta": 3e4, **({"rope_scaling": {"type": rule, **table}} if table else {})},
    }
    for name, words in ways.items():
        net = held(kind, written(tmp_path / name, tensors, head_dim=W, **words))
        assert net.attention.rope == due and net.shape["theta"] == 30_000 and net.remarks == [], name
    for form in (net.pack_weights(), net.copy_to(dtype=torch.float32)):
        assert form.attention.rope == due
    write_head(net, tmp_path / "ours")
    again = held(kind, tmp_path / "ours")
    assert again.attention.rope == due and again.remarks == []
    assert ("rotations" in json.loads((tmp_path / "ours" / "config.json").read_text())) == (rule != "default")


def test_a_linear_rotation_divides_positions(tmp_path: Path) -> None:
    tensors = eagle1()
    net = held(
        "eagle",
        written(
            tmp_path / "e",
            tensors,
            rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
        ),
    )
    t, (f, e) = doubles(tensors), torch.randn(2, 7, D, dtype=torch.float64)
    x = torch.cat([e, f], -1) @ t["fc.weight"].T + t["fc.bias"]
    due, plain = (fed(t, "layers.0", x + attended(t, "layers.0", x, 500.0, by)) for by in (4.0, 1.0))
    assert (
        torch.allclose(net(net.enter(f)[None], e[None])[0], due, atol=1e-6)
        and (due - plain).abs().max() > 0.01
    )


@pytest.mark.parametrize("where", ["top", "nested"])
@pytest.mark.parametrize(
    "norms", [["norm_before_residual"], ["norm_before_fc"], ["fc_norm"], ["norm_output"], None]
)
def test_the_further_norms_of_an_eagle_3_layer_are_computed(
    tmp_path: Path, norms: list[str] | None, where: str
) -> None:
    """norm_before_residual, norm_before_fc, fc_norm and norm_output of vLLM and speculators, written out."""
    asked = ["norm_before_residual", "norm_before_fc", "norm_output"] if norms is None else norms
    shapes: dict[str, tuple[int, ...]] = {"input_norm.weight": (3 * D,)} if "norm_before_fc" in asked else {}
    shapes |= {f"fc_norm.{i}.weight": (D,) for i in range(3)} if "fc_norm" in asked else {}
    tensors, flags = eagle3() | drawn(**shapes), dict.fromkeys(asked, True)
    folder = written(tmp_path / "e", tensors, **(flags if where == "top" else {"eagle_config": flags}))
    net, decoder = held("eagle3", folder), toys.decoder(SPEC, dtype=torch.float64)
    t, (low, middle, high, e) = doubles(tensors), torch.randn(4, 7, D, dtype=torch.float64)
    assert net.remarks == []

    def computed(on: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """The state that is fed back, and the logits of the draft vocabulary."""
        parts = [low, middle, high]
        if "fc_norm" in on:
            parts = [norm(x, t[f"fc_norm.{i}.weight"]) for i, x in enumerate(parts)]
        s = torch.cat(parts, -1)
        f = (norm(s, t["input_norm.weight"]) if "norm_before_fc" in on else s) @ t["fc.weight"].T
        n = norm(f, t["midlayer.hidden_norm.weight"])
        x = torch.cat([norm(e, t["midlayer.input_layernorm.weight"]), n], -1)
        g = fed(t, "midlayer", (n if "norm_before_residual" in on else f) + attended(t, "midlayer", x))
        last = norm(g, t["norm.weight"])
        return last if "norm_output" in on else g, last @ t["lm_head.weight"].T

    made = net(net.enter(torch.cat([low, middle, high], -1))[None], e[None])[0]
    (due, logits), (plain, _) = computed(asked), computed([])
    assert torch.allclose(made, due, atol=1e-6) and (due - plain).abs().max() > 0.05, (
        "the guard: the norm must matter"
    )
    assert torch.allclose(net.logits(made, decoder)[:, KEPT], logits, atol=1e-6)
    (whole,) = net.unroll(net.enter(torch.cat([low, middle, high], -1))[None], [e[None]])
    assert torch.allclose(whole[0], due, atol=1e-6), "training sees the same layer"
    write_head(net, tmp_path / "ours")
    assert held("eagle3", tmp_path / "ours").shape == net.shape


def test_norms_that_do_not_go_together_or_lack_their_tensor_are_refused(tmp_path: Path) -> None:
    refused(
        "eagle3",
        written(tmp_path / "both", eagle3(), norm_before_fc=True, fc_norm=True),
        "of which only one can be true",
    )
    refused(
        "eagle3", written(tmp_path / "lack", eagle3(), norm_before_fc=True), "input_norm.weight is missing"
    )
    more = eagle3() | {"input_norm.weight": torch.ones(3 * D)}
    refused("eagle3", written(tmp_path / "more", more), "input_norm.weight is missing, unknown")
    refused(
        "eagle3",
        written(tmp_path / "type", eagle3(), norm_before_residual="yes"),
        "which must be true or false",
    )


@pytest.mark.parametrize("key", [IDS, "aux_hidden_state_layer_ids", "target_layer_ids"])
@pytest.mark.parametrize(
    "table", ["", "eagle_config", "draft_config"]
)  # a dflash_config is refused: it belongs to another net
def test_layer_ids_are_looked_at_wherever_they_are_named(tmp_path: Path, key: str, table: str) -> None:
    def named(name: str, ids: object) -> Path:
        more = {key: ids} if not table else {table: {key: ids}}
        beside = {"eagle_config": {"use_aux_hidden_state": True}} if not table else {}
        return written(tmp_path / name, eagle3(), **beside, **more)

    def layers(name: str, ids: object, setting: str = "") -> tuple[tuple[int, ...], str]:
        net = held("eagle3", Path(f"{named(name, ids)}{setting}"))
        return net.places(SPEC.n_layers), " ".join(net.remarks)

    for name, ids in (("same", [2, 8, 13]), ("none", []), ("null", None)):
        assert layers(name, ids) == ((2, 8, 13), "")
    read, remark = layers("other", [1, 7, 11])
    assert read == (1, 7, 11) and "read as the inputs of layers, as vLLM does" in remark
    assert layers("tried", [1, 7, 11], "@layer_ids=outputs") == ((2, 8, 12), "")
    read, remark = layers("less", [1, 7, 12])
    assert read == (2, 8, 13) and "read as the outputs of layers, as SGLang does" in remark
    refused("eagle3", named("word", "2, 8, 13"), "reads the layers 2, 8, 13 of its target")
    refused(
        "eagle3",
        named("far", [2, 8, 17]),
        r"reads the layers \[2, 8, 17\] of its target .* toy has 16 layers",
    )


OTHERWISE = {  # for both kinds: values that would mean another net
    "vocab_size": (V + 1, r"was made for a vocabulary of 14 ids \(vocab_size\), toy has 13"),
    "num_hidden_layers": (2, "says num_hidden_layers = 2|layers.1.input_layernorm.weight is missing"),
    "mlp_bias": (True, "says mlp_bias = True"),
    "attention_bias": (True, "says attention_bias = True"),
    "model_type": ("gemma2", "says model_type = gemma2"),
    "logit_scale": (0.5, "says logit_scale = 0.5"),
    "is_causal": (False, "says is_causal = False"),
    "layer_types": (
        ["linear_attention"],
        "which must name full_attention or sliding_attention for each of its 1 layers",
    ),
    "quantization_config": ({"bits": 4}, "is quantised"),
    "partial_rotary_factor": (0.1, "rotates 0 of the 8 features of a head"),
    "rms_norm_eps": (1.5e-10, "must be a multiple of 1e-9"),
    "speculators_model_type": (
        "dflash2",
        "holds a DFlash-2 draft, which fills a block of masks in one pass",
    ),
    "transformer_layer_config": (
        {},
        "gives transformer_layer_config in its config.json and no speculators_model_type",
    ),
    "dflash_config": ({}, "holds DFlash drafts, not heads of the kind eagle"),
}
OTHERWISE3 = {
    "target_hidden_size": (64, "says target_hidden_size = 64"),
    "eagle_config": ({"use_aux_hidden_state": False}, "fc.weight is missing, unknown"),
    "parallel_draft_step": (2, "says parallel_draft_step = 2"),
    "use_mtp_layernorm": (True, "says use_mtp_layernorm = True"),
    "draft_vocab_size": (V + 1, "draft_vocab_size is 14 and must be a whole number up to 13"),
}


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_a_key_that_asks_for_another_net_is_refused(tmp_path: Path, kind: str) -> None:
    tensors = eagle1() if kind == "eagle" else eagle3()
    for key, (value, says) in {**OTHERWISE, **(OTHERWISE3 if kind == "eagle3" else {})}.items():
        refused(kind, written(tmp_path / key, tensors, **{key: value}), says)
    if kind == "eagle":
        refused(
            kind,
            written(tmp_path / "bias", tensors, bias=False),
            "says bias = False in its config.json, and only True",
        )
        refused(kind, written(tmp_path / "qkv", tensors, qkv_bias=True), "says qkv_bias = True")


def test_a_key_that_nobody_knows_is_named_in_a_remark(tmp_path: Path) -> None:
    odd = {
        "residual_multiplier": 0.5,
        "eagle_config": {**NVIDIA, "new\x1bword": [1]},
        "rope_parameters": {"attention_factor": 2},
    }
    for kind, tensors in (("eagle", eagle1()), ("eagle3", eagle3())):
        folder = written(tmp_path / kind, tensors, **odd)
        (remark,) = held(kind, folder).remarks
        assert (
            remark.startswith(f"The config.json of {folder} gives residual_multiplier = 0.5")
            and remark.isprintable()
        )
        assert "rope_parameters.attention_factor = 2" in remark
        assert remark.endswith(
            "which are not read: if they change the net, it drafts worse than its authors say."
        )
        assert (r"eagle_config.new\x1bword = [1]" in remark) == (kind == "eagle3")
        assert "use_aux" not in remark or kind == "eagle", "what is known of that table is not named again"


def test_what_says_nothing_of_the_net_is_not_remarked_on(tmp_path: Path) -> None:
    """Published configs: of SafeAILab for EAGLE and EAGLE-3, of NVIDIA, and of SGLang's SpecForge."""
    common = dict(
        bos_token_id=1, eos_token_id=[2, 3], initializer_range=0.02, pad_token_id=0, tie_word_embeddings=False,
        torch_dtype="float16", transformers_version="4.28.1", use_cache=True, max_position_embeddings=2048,
    )  # fmt: skip
    for name, words in {
        "llama2": {},
        "llama3": dict(bias=True),
        "qwen": dict(qkv_bias=False, model_type="qwen2"),
    }.items():
        assert held("eagle", written(tmp_path / name, eagle1(), **common, **words)).remarks == []
    common |= dict(
        architectures=["LlamaForCausalLMEagle3"], attention_bias=False, attention_dropout=0.0, mlp_bias=False,
        pretraining_tp=1, head_dim=W, rope_scaling=None, sliding_window=None,
    )  # fmt: skip
    for name, words in {
        "own3": {},
        "nvidia": {"eagle_config": NVIDIA},
        "specforge": {"max_window_layers": 36},
    }.items():
        assert held("eagle3", written(tmp_path / name, eagle3(), **common, **words)).remarks == []


def test_a_layer_for_fewer_positions_than_the_target_reads_says_so(tmp_path: Path) -> None:
    (remark,) = held("eagle", written(tmp_path / "e", eagle1(), max_position_embeddings=64)).remarks
    assert remark.endswith(
        f"for 64 positions (max_position_embeddings), toy reads {SPEC.max_positions}: beyond 64 its guesses may be worse."
    )
    (remark,) = held("eagle3", written(tmp_path / "t", eagle3(), tie_word_embeddings=True)).remarks
    assert remark.endswith(
        "gives tie_word_embeddings = true, its file of weights has lm_head.weight: the file counts."
    )


def test_a_value_of_a_wrong_type_is_one_sentence(tmp_path: Path) -> None:
    """For every key that is read, at the top and in eagle_config, the config gives a head or a refusal of one sentence."""
    known = [
        *OTHERWISE,
        *OTHERWISE3,
        *NVIDIA,
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    ]
    known += [
        "rope_theta",
        "intermediate_size",
        "hidden_act",
        "max_position_embeddings",
        "rope_scaling",
        "rope_parameters",
    ]
    known += [
        "use_sliding_window",
        "norm_before_residual",
        "fc_norm",
        "bias",
        "qkv_bias",
        "tie_word_embeddings",
    ]
    refusals = 0
    for kind, tensors in (("eagle", eagle1()), ("eagle3", eagle3())):
        folder = written(tmp_path / kind, tensors)
        config = json.loads((folder / "config.json").read_text())
        changes = [{key: value} for key in known for value in ("x", {"a": {"b": 1}}, -1, True)]
        changes += [
            {"eagle_config": {key: value}} for key in (*NVIDIA, "fc_norm") for value in ("x", [{}], 7)
        ]
        changes += [{"hidden_size": 1 << 80}, {"rms_norm_eps": float("nan")}, {"num_attention_heads": None}]
        with open_tensors(folder / "model.safetensors") as file:
            for change in changes:
                try:
                    FAMILIES[kind].convert(
                        PublishedFolder(folder, "heads", Config(config | change), SPEC, file)
                    )
                except LoadError as error:
                    refusals += 1
                    assert str(error).endswith(".") and str(error).isprintable()
    assert refusals > 150
