"""Heads as their authors publish them: read into our nets, equal to what their files say, and refused if unreadable."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import toys
from drafting import feature_of
from flipping import flips
from safetensors.torch import save_file

from decodescope.engine import Session
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.core.spec import ModelSpec, Rope
from decodescope.engine.decoding.values.draft import ROOT
from decodescope.engine.model.checkpoint.config import spec_from_config
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.weights import CheckpointTensors, tensor_shapes
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.files import read_heads, write_head
from decodescope.engine.model.heads.published.families import FAMILIES, published_kind
from decodescope.engine.session.load import load

D, V = toys.SPEC.d_model, toys.SPEC.vocab
HEADS = 3


def drawn(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random numbers for every name; a block that its authors repeat has the same numbers each time."""
    g = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=g) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.3)
        for name, shape in shapes.items()
    }


def medusa(layers: int = 1, d: int = D, vocab: int = V) -> dict[str, torch.Tensor]:
    """The tensors of FasterDecoding/Medusa's medusa_head: blocks `k.j.linear`, then the vocabulary matrix `k.L`."""
    shapes: dict[str, tuple[int, ...]] = {}
    for k in range(HEADS):
        shapes |= {
            f"{k}.0.linear.weight": (d, d),
            f"{k}.0.linear.bias": (d,),
            f"{k}.{layers}.weight": (vocab, d),
        }
    tensors = drawn(shapes)
    for k in range(HEADS):
        for part in ("weight", "bias"):  # [ResBlock(d)] * layers is one block, named `layers` times
            tensors |= {f"{k}.{j}.linear.{part}": tensors[f"{k}.0.linear.{part}"] for j in range(1, layers)}
    return tensors


def hydra(
    layers: int = 1, d: int = D, vocab: int = V, own: bool = True, bias: bool = True
) -> dict[str, torch.Tensor]:
    """The tensors of zankner/Hydra's HydraMLP."""
    shapes: dict[str, tuple[int, ...]] = {"input_embed_fn.weight": (vocab, d)}
    for k in range(HEADS):
        for name in ("linear", "res_connection"):
            shapes |= {
                f"hydra_mlp.{k}.0.{name}.weight": (d, (k + 2) * d),
                f"hydra_mlp.{k}.0.{name}.bias": (d,),
            }
        if layers > 1:
            shapes |= {f"hydra_mlp.{k}.1.linear.weight": (d, d), f"hydra_mlp.{k}.1.linear.bias": (d,)}
        if own:
            shapes |= {f"hydra_lm_head.{k}.weight": (vocab, d)} | (
                {f"hydra_lm_head.{k}.bias": (vocab,)} if bias else {}
            )
    tensors = drawn(shapes)
    for k in range(HEADS):
        for part in ("weight", "bias"):
            tensors |= {
                f"hydra_mlp.{k}.{j}.linear.{part}": tensors[f"hydra_mlp.{k}.1.linear.{part}"]
                for j in range(2, layers)
            }
    return tensors


def hydra_plus(layers: int = 2, spec: ModelSpec = toys.SPEC) -> dict[str, torch.Tensor]:
    """The tensors of zankner/Hydra's HydraPrefixMLP.

    A dropout before each layer shifts the names, and a Llama model of one layer comes before the heads.
    """
    made = {}
    for name, x in hydra(layers, spec.d_model, spec.vocab).items():
        parts = name.split(".")
        if parts[0] == "hydra_mlp":
            parts[2] = str(2 * int(parts[2]) + 1)
        if parts[0] == "hydra_lm_head":
            parts.insert(2, "1")
        made[".".join(parts)] = x
    one = {
        name: shape
        for name, shape in tensor_shapes(replace(spec, n_layers=1)).items()
        if not name.startswith("lm_head")
    }
    named = {"prefix_embeding_layer." + name.removeprefix("model."): x for name, x in drawn(one, 1).items()}
    return made | {name: x + 1 if x.ndim == 1 else x for name, x in named.items()}


MAKE: dict[str, Callable[..., dict[str, torch.Tensor]]] = {"medusa": medusa, "hydra": hydra}
CONFIG: dict[str, dict[str, Any]] = {
    "medusa": {
        "medusa_num_heads": 2,
        "medusa_num_layers": 1,
        "base_model_name_or_path": "someone/toy",
    },  # 2 as uploaded
    "hydra": {
        "hydra_num_heads": HEADS,
        "hydra_num_layers": 1,
        "hydra_head_arch": "mlp",
        "grounded_heads": True,
    },
}


def checkpoint(folder: Path) -> Path:
    """A model of random weights, 16 wide, with the toys' ids."""
    folder.mkdir()
    config = {
        "model_type": "llama",
        "hidden_size": 16,
        "intermediate_size": 24,
        "max_position_embeddings": 256,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "vocab_size": V,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name: 2 * x for name, x in drawn(tensor_shapes(spec_from_config(config, "m")), 3).items()},
        folder / "model.safetensors",
    )
    return folder


def folder_of(
    kind: str, folder: Path, tensors: dict[str, torch.Tensor], suffix: str = ".safetensors", **config: Any
) -> Path:
    """A folder of published heads."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG[kind], **config}))
    path = folder / (FAMILIES[kind].stems[0] + suffix)
    if suffix == ".safetensors":
        save_file({name: x.clone() for name, x in tensors.items()}, path)
    else:
        torch.save(tensors, path)
    return folder


def held(kind: str, folder: Path, allow_pickle: bool = False) -> Head:
    """The heads of a folder, read for a model of the toys' shape."""
    model = folder.parent / "model"
    return read_heads(model, toys.SPEC, torch.float32, torch.device("cpu"), {kind: folder}, allow_pickle)[
        kind
    ]


def block(t: dict[str, torch.Tensor], name: str, x: torch.Tensor) -> torch.Tensor:
    return F.silu(F.linear(x, t[f"{name}.weight"], t[f"{name}.bias"]))


# ---- what the files say


@pytest.mark.parametrize("layers", [1, 3])
def test_medusa_says_what_its_file_says(layers: int, tmp_path: Path) -> None:
    t = medusa(layers)
    head, decoder = (
        held("medusa", folder_of("medusa", tmp_path / "m", t, medusa_num_layers=layers)),
        toys.decoder(),
    )
    assert head.shape == dict(d=D, heads=HEADS, layers=layers, vocab=V) and head.rates == ()
    h = torch.randn(5, D)
    said = head.logits(head(h), decoder)  # [K, 5, V]
    for k in range(HEADS):
        x = h
        for j in range(layers):
            x = x + block(t, f"{k}.{j}.linear", x)
        assert torch.allclose(said[k], x @ t[f"{k}.{layers}.weight"].T, atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "own", "bias"), [(1, True, True), (4, True, True), (2, True, False), (1, False, False)]
)
def test_hydra_says_what_its_file_says(layers: int, own: bool, bias: bool, tmp_path: Path) -> None:
    t = hydra(layers, own=own, bias=bias)
    head, decoder = (
        held("hydra", folder_of("hydra", tmp_path / "h", t, hydra_num_layers=layers)),
        toys.decoder(),
    )
    h, embedded = torch.randn(5, D), torch.randn(5, HEADS, D) * 0.1
    for k in range(HEADS):
        x = torch.cat([h, *embedded[:, : k + 1].unbind(1)], -1)
        skip = F.linear(
            x, t[f"hydra_mlp.{k}.0.res_connection.weight"], t[f"hydra_mlp.{k}.0.res_connection.bias"]
        )
        y = skip + block(t, f"hydra_mlp.{k}.0.linear", x)
        for j in range(1, layers):
            y = y + block(t, f"hydra_mlp.{k}.{j}.linear", y)
        due = (
            y @ t[f"hydra_lm_head.{k}.weight"].T + t.get(f"hydra_lm_head.{k}.bias", 0)
            if own
            else decoder.unembed(y)
        )
        found = head(k, h, embedded[:, : k + 1])
        assert torch.allclose(head.logits(found[None], decoder, k)[0], due, atol=1e-4)


def test_hydra_plus_reads_the_features_through_a_layer_of_its_own(tmp_path: Path) -> None:
    """The layer and its norm are those of a model of one layer that reads features instead of embeddings."""
    spec = replace(toys.SPEC, rope=Rope(theta=500_000.0, dim=8), norm_eps=1e-6)
    t, config = hydra_plus(3), {"hydra_head_arch": "prefix-mlp", "hydra_num_layers": 3}
    folder = folder_of("hydra", tmp_path / "h", t, **config)
    head = read_heads(tmp_path, spec, torch.float64, torch.device("cpu"), {"hydra": folder})["hydra"]
    features = torch.randn(9, D, dtype=torch.float64)

    named = {
        "model." + x.removeprefix("prefix_embeding_layer."): y for x, y in t.items() if x.startswith("prefix")
    }
    save_file(
        named | {"model.embed_tokens.weight": features.float(), "lm_head.weight": torch.eye(9, D)},
        tmp_path / "one.safetensors",
    )
    with CheckpointTensors(tmp_path, [tmp_path / "one.safetensors"]) as weights:
        one = weights.decoder(replace(spec, n_layers=1, vocab=9), torch.float64, torch.device("cpu"))
    one.embed = features  # token i is feature i
    probe = Probe(Needs(hidden=frozenset({"final"})))
    one.forward(Feed.causal_chain(list(range(9)), 0), None, probe)
    due = probe.hidden["final"][0]
    assert torch.allclose(head.prefix(features[None])[0], due, atol=1e-9)

    store = head.prefix.attention.store()  # in two parts, with a cache
    parts = []
    for rows in features.split(5):
        parts.append(head.prefix(rows[None], store.n, store)[0])
        store.commit(range(len(rows)))
    assert torch.allclose(torch.cat(parts), due, atol=1e-9)
    assert torch.equal(head.tensors()["more.0.weight"], t["hydra_mlp.0.3.linear.weight"].double())
    write_head(head, tmp_path / "ours")
    again = read_heads(tmp_path, spec, torch.float64, torch.device("cpu"), {"hydra": tmp_path / "ours"})[
        "hydra"
    ]
    assert again.shape == head.shape and again.shape["theta"] == 500_000 and again.shape["eps"] == 1000


def test_hydra_plus_drafts_on_what_was_accepted_alone(tmp_path: Path) -> None:
    """In every step the heads' state is that of the layer over the features of the whole text, read from scratch."""
    heads = folder_of("hydra", tmp_path / "h", hydra_plus(), hydra_head_arch="prefix-mlp", hydra_num_layers=2)
    target = toys.pair()[0]
    head = read_heads(tmp_path, target.spec, torch.float64, torch.device("cpu"), {"hydra": heads})["hydra"]
    decoder = toys.decoder(target.spec, toys.LIVELY, torch.float64)
    decoder.heads = {"hydra": head}
    model, accepted = toys.model(decoder), 0
    for prompt in (toys.PROMPT, [5]):
        session = Session(model, toys.method(drafter=("hydra", {"nodes": 13})), prompt, max_new_tokens=100)
        session.start()
        while not session.is_done:
            text = list(session.tokens)
            propose, made = session.drafter.propose, []
            session.drafter.propose = lambda ctx, propose=propose, made=made: (
                made.append(propose(ctx)) or made[0]
            )
            accepted += session.step().accepted
            session.drafter.propose = propose
            if len(text) == 1 or not made[0].tokens:
                continue
            with torch.inference_mode():
                h = head.prefix(feature_of(text[:-1])[None])[0, -1]
                # its own embedding: the file has other numbers than the toy
                embedded = head.embedding(decoder)[text[-1]][None]
                best = head.logits(head(0, h, embedded)[None], decoder)[0].argsort(descending=True)
            first = [
                token for token, parent in zip(made[0].tokens, made[0].parents, strict=True) if parent == ROOT
            ]
            assert first == best[: len(first)].tolist()
        assert session.tokens[len(prompt) :] == toys.greedy_text(decoder, prompt, 100)
    assert accepted > 5, "the test needs steps that keep more than one row"


def test_hydra_plus_needs_a_plain_llama(tmp_path: Path) -> None:
    folder = folder_of("hydra", tmp_path / "h", hydra_plus(), hydra_head_arch="prefix-mlp")
    for other in (
        dict(family="qwen2"),
        dict(qkv_bias=True),
        dict(rope=Rope(dim=8, kind="linear", factor=2.0)),
    ):
        with pytest.raises(LoadError, match="as in plain Llama models before its heads, and toy is none"):
            read_heads(
                tmp_path, replace(toys.SPEC, **other), torch.float32, torch.device("cpu"), {"hydra": folder}
            )


@pytest.mark.parametrize("kind", MAKE)
def test_blocks_that_were_trained_apart_stay_apart(kind: str, tmp_path: Path) -> None:
    """If a file has other numbers in each block, each block is its own, and the net must not repeat the first one."""
    t, name = MAKE[kind](3), {"medusa": "0.2.linear.weight", "hydra": "hydra_mlp.0.2.linear.weight"}[kind]
    t[name] = t[name] * -3
    ours = {"medusa": "blocks.2.weight", "hydra": "more.1.weight"}[kind]
    head = held(kind, folder_of(kind, tmp_path / "apart", t))
    assert torch.equal(head.tensors()[ours], t[name])
    first = {"medusa": "blocks.1.weight", "hydra": "more.0.weight"}[kind]
    assert not torch.equal(head.tensors()[first], head.tensors()[ours])
    with torch.no_grad():
        dict(head.named_parameters())[ours].zero_()
    assert head.tensors()[first].abs().sum() > 0, "weights of two blocks are no one tensor"


@pytest.mark.parametrize("kind", MAKE)
def test_a_file_that_kept_only_the_first_of_the_repeated_blocks_means_the_same(
    kind: str, tmp_path: Path
) -> None:
    whole = MAKE[kind](3)
    lacks = {"medusa": (".1.linear", ".2.linear"), "hydra": (".2.linear",)}[kind]
    alone = {name: x for name, x in whole.items() if not any(part in name for part in lacks)}
    assert len(alone) < len(whole)
    layers = {f"{kind}_num_layers": 3}
    found = [
        held(kind, folder_of(kind, tmp_path / name, t, **layers)) for name, t in (("a", whole), ("b", alone))
    ]
    assert found[0].shape == found[1].shape
    assert all(torch.equal(x, found[1].tensors()[name]) for name, x in found[0].tensors().items())


def test_rows_beyond_the_tokenizers_ids_are_never_said(tmp_path: Path) -> None:
    head, decoder = held("medusa", folder_of("medusa", tmp_path / "m", medusa())), toys.decoder()
    decoder.usable = V - 2
    assert head.logits(head(torch.randn(D)), decoder).shape == (HEADS, V - 2)


# ---- what else the files say


def test_hydra_reads_tokens_by_the_embedding_of_its_file(tmp_path: Path) -> None:
    """In every step the first level is what head 0 gives for the file's row of the root, not for the target's."""
    t, decoder = hydra(), toys.decoder(toys.SPEC, toys.LIVELY, torch.float64)
    t["input_embed_fn.weight"] = 4 * decoder.embed.roll(5, 0).float()
    folder = folder_of("hydra", tmp_path / "h", t)
    nets = read_heads(
        tmp_path, toys.SPEC, torch.float64, torch.device("cpu"), {"hydra": folder}, embed=decoder.embed
    )
    (remark,) = nets["hydra"].remarks
    assert (
        remark
        == f"{folder} has an embedding of its own (13 of 13 rows differ from the target's): it drafts with that."
    )
    decoder.heads, others = nets, 0
    session = Session(
        toys.model(decoder), toys.method(drafter=("hydra", {"nodes": 13})), toys.PROMPT, max_new_tokens=12
    )
    session.start()
    propose, drafts = session.drafter.propose, []
    session.drafter.propose = lambda ctx: drafts.append(propose(ctx)) or drafts[-1]
    while not session.is_done:
        text = list(session.tokens)
        session.step()
        level = [
            token
            for token, parent in zip(drafts[-1].tokens, drafts[-1].parents, strict=True)
            if parent == ROOT
        ]
        h, says = feature_of(text[:-1])[-1], {}
        for name, table in (("own", t["input_embed_fn.weight"].double()), ("target", decoder.embed)):
            x = torch.cat([h, table[text[-1]]])
            w = {part: y.double() for part, y in t.items()}
            y = F.linear(x, w["hydra_mlp.0.0.res_connection.weight"], w["hydra_mlp.0.0.res_connection.bias"])
            logits = F.linear(
                y + block(w, "hydra_mlp.0.0.linear", x),
                w["hydra_lm_head.0.weight"],
                w["hydra_lm_head.0.bias"],
            )
            says[name] = logits.argsort(descending=True)[: len(level)].tolist()
        assert level == says["own"]
        others += level != says["target"]
    assert others > 2, "the guard: the tables must matter"

    t["input_embed_fn.weight"] = decoder.embed.float()
    same = folder_of("hydra", tmp_path / "same", t)
    net = read_heads(
        tmp_path, toys.SPEC, torch.float32, torch.device("cpu"), {"hydra": same}, embed=decoder.embed.float()
    )
    assert net["hydra"].own_embed is None and net["hydra"].remarks == []


def test_a_number_that_the_file_of_weights_contradicts_is_named(tmp_path: Path) -> None:
    """The file counts: published configs of Medusa give two heads, and the files have five."""
    folder = folder_of("medusa", tmp_path / "m", medusa(2), medusa_num_layers=1)
    assert held("medusa", folder).remarks == [
        f"The config.json of {folder} gives medusa_num_heads = 2, its file of weights has 3: the file counts.",
        f"The config.json of {folder} gives medusa_num_layers = 1, its file of weights has 2: the file counts.",
    ]
    assert held("medusa", folder_of("medusa", tmp_path / "same", medusa(), medusa_num_heads=3)).remarks == []
    (remark,) = held("hydra", folder_of("hydra", tmp_path / "h", hydra(), hydra_num_heads=4)).remarks
    assert "gives hydra_num_heads = 4, its file of weights has 3" in remark


@pytest.mark.parametrize("kind", MAKE)
def test_a_key_that_nobody_knows_is_named_in_a_remark(kind: str, tmp_path: Path) -> None:
    common = {"medusa_num_heads": 3} if kind == "medusa" else {}
    folder = folder_of(
        kind, tmp_path / "x", MAKE[kind](), **common, medusa_fc_bias=True, hidden_act="silu", hidden_size=D
    )
    (remark,) = held(kind, folder).remarks
    then = "if they change the net, it drafts worse than its authors say"
    assert remark == f"The config.json of {folder} gives medusa_fc_bias = True, which is not read: {then}."
    refused(
        kind,
        folder_of(kind, tmp_path / "wide", MAKE[kind](), hidden_size=D + 1),
        f"hidden_size = {D + 1} in its config",
    )
    refused(
        kind,
        folder_of(kind, tmp_path / "words", MAKE[kind](), vocab_size="x"),
        "says vocab_size = x in its config.json",
    )
    refused(
        kind,
        folder_of(kind, tmp_path / "heads", MAKE[kind](), **{f"{kind}_num_heads": [3]}),
        r"is \[3\] and must be",
    )
    layout = folder_of(kind, tmp_path / "layout", MAKE[kind](), speculators_config={})
    refused(kind, layout, "gives speculators_config in its config.json and no speculators_model_type")


WORDS = dict(
    hidden_size=D, vocab_size=V, architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", rms_norm_eps=1e-6,
    base_model_name_or_path="someone/toy", transformers_version="4.30.0", torch_dtype="float16", num_attention_heads=4,
    rope_theta=10000.0, rope_scaling=None, use_cache=True, pad_token_id=0, odd_one={"in_it": [1]},
)  # fmt: skip


@pytest.mark.parametrize("kind", MAKE)
def test_every_key_of_a_config_counts_or_is_named(kind: str, tmp_path: Path) -> None:
    """With another value for any one key the net is another one, or is refused, or the key is named."""
    folder = folder_of(kind, tmp_path / "x", MAKE[kind](), **WORDS)
    config, usual = json.loads((folder / "config.json").read_text()), held(kind, folder)
    silent, refusals = [], 0
    for key, changed in flips(config):
        (folder / "config.json").write_text(json.dumps(changed))
        try:
            net = held(kind, folder)
        except LoadError as error:
            assert str(error).endswith(".") and "\n" not in str(error)
            refusals += 1
            continue
        uses = {x.key: x.use for x in net.readings}
        named = any(key.rpartition(".")[2] in x for x in net.remarks) or uses[key].startswith(
            "changes no number"
        )
        if net.shape == usual.shape and not named:
            silent.append((key, uses[key]))
    assert silent == [] and refusals >= 2


def test_what_a_model_is_made_of_says_what_of_its_heads_is_not_read(tmp_path: Path) -> None:
    """A model keeps the remarks on its heads, so the command line and the page can show them."""
    folder = checkpoint(tmp_path / "model")
    heads = folder_of("medusa", tmp_path / "heads", medusa(d=16), medusa_num_heads=3, temperature_of_heads=2)
    model = load(folder, "float32", "cpu", {"medusa": heads})
    assert (
        model.remarks == model.decoder.heads["medusa"].remarks
        and "temperature_of_heads = 2" in model.remarks[1]
        and "made for someone/toy (base_model_name_or_path), and this target is called model"
        in model.remarks[0]
    )


# ---- decoding with them


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("kind", MAKE)
def test_greedy_text_is_the_targets_own_with_published_heads(kind: str, suffix: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    heads = folder_of(kind, tmp_path / "heads", MAKE[kind](2, d=16), suffix, **{f"{kind}_num_layers": 2})
    model = load(folder, "float64", "cpu", {kind: heads}, allow_pickle=suffix == ".pt")
    assert model.decoder.heads[kind].dtype == torch.float64
    session = toys.decode(toys.method(drafter=(kind, {"nodes": 12})), pair=(model, model), count=40)
    assert session.end.tokens == toys.greedy_text(model.decoder, toys.PROMPT, 40)
    assert sum(step.drafted for step in session.sink.steps) > 100


def test_published_heads_may_lie_in_the_models_own_folder(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    folder_of("medusa", folder / "heads" / "medusa", medusa(d=16))
    model = load(folder, "float32", "cpu")
    assert model.spec.heads == ("medusa",) and model.decoder.heads["medusa"].words is not None


def test_heads_read_from_a_published_folder_are_written_and_read_as_ours(tmp_path: Path) -> None:
    head = held("hydra", folder_of("hydra", tmp_path / "h", hydra(3), hydra_num_layers=3))
    write_head(head, tmp_path / "ours")
    again = held("hydra", tmp_path / "ours")
    assert again.shape == head.shape
    assert all(torch.equal(x.bfloat16().float(), again.tensors()[name]) for name, x in head.tensors().items())


# ---- refusals


def refused(kind: str, folder: Path, match: str, allow_pickle: bool = False) -> None:
    with pytest.raises(LoadError, match=match) as error:
        held(kind, folder, allow_pickle)
    text = str(error.value)
    assert text.isprintable() and text.endswith(".") and ". " not in text.replace(str(folder), ""), text


@pytest.mark.parametrize("suffix", [".pt", ".bin", ".pth"])
@pytest.mark.parametrize("kind", MAKE)
def test_a_pickle_file_is_not_opened_unasked(kind: str, suffix: str, tmp_path: Path) -> None:
    folder = folder_of(kind, tmp_path / "x", MAKE[kind]())
    path = folder / (FAMILIES[kind].stems[0] + ".safetensors")
    path.unlink()
    os.mkfifo(folder / (FAMILIES[kind].stems[0] + suffix))  # opening it would wait for ever
    refused(kind, folder, "is no file")
    (folder / (FAMILIES[kind].stems[0] + suffix)).unlink()
    torch.save(MAKE[kind](), folder / (FAMILIES[kind].stems[0] + suffix))
    refused(kind, folder, f"{path.stem}{suffix} is a pickle file, .* say --allow-pickle .*allow_pickle=True")
    assert held(kind, folder, allow_pickle=True).kind == kind


class Runs:
    """Holds what a pickle can carry: a call that runs while the pickle is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_an_allowed_pickle_still_runs_nothing(tmp_path: Path) -> None:
    folder = folder_of("medusa", tmp_path / "x", medusa(), ".pt")
    torch.save({**medusa(), "more": Runs(tmp_path / "ran")}, folder / "medusa_lm_head.pt")
    refused("medusa", folder, "cannot be read as tensors alone", allow_pickle=True)
    assert not (tmp_path / "ran").exists()
    torch.load(folder / "medusa_lm_head.pt", weights_only=False)
    assert (tmp_path / "ran").exists(), "the guard: the file does harm where it may"


def pickled(tmp_path: Path, what: Any) -> Path:
    folder = folder_of("medusa", tmp_path / "x", medusa(), ".pt")
    torch.save(what, folder / "medusa_lm_head.pt")
    return folder


@pytest.mark.parametrize(
    "what",
    [
        [torch.zeros(2)],
        {0: torch.zeros(2)},
        {"0.0.linear.weight": [1.0]},
        {"0.0.linear.weight": torch.zeros(4, dtype=torch.int64)},
        {"0.0.linear.weight": torch.zeros(4, 4).to_sparse()},
        {"0.0.linear.weight": torch.zeros(1).expand(1 << 40)},
        {"0.0.linear.weight": torch.zeros(0)},
    ],
    ids=["list", "names", "no tensor", "integers", "sparse", "one number shown as many", "empty"],
)
def test_a_pickle_of_anything_but_whole_float_tensors_is_refused(what: Any, tmp_path: Path) -> None:
    refused("medusa", pickled(tmp_path, what), "is no dictionary of whole float tensors", allow_pickle=True)


def test_a_damaged_or_packed_pickle_file_is_refused(tmp_path: Path) -> None:
    folder = folder_of("medusa", tmp_path / "x", medusa(), ".pt")
    path = folder / "medusa_lm_head.pt"
    whole = path.read_bytes()
    for damaged in (b"", b"\x80\x04cposix\nsystem\n", whole[: len(whole) // 2], whole[:-40], b"x" * 1000):
        path.write_bytes(damaged)
        refused("medusa", folder, "cannot be read as tensors alone", allow_pickle=True)
    path.write_bytes(whole)
    packed = tmp_path / "packed"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.infolist():
            new.writestr(part.filename, old.read(part))
    path.write_bytes(packed.read_bytes())
    refused("medusa", folder, "is no dictionary of whole float tensors", allow_pickle=True)


def test_numbers_that_are_not_finite_are_refused_from_either_file(tmp_path: Path) -> None:
    for suffix in (".safetensors", ".pt"):
        t = medusa()
        t["1.0.linear.weight"][3, 4] = torch.nan
        folder = folder_of("medusa", tmp_path / suffix, t, suffix)
        refused(
            "medusa", folder, r"1\.0\.linear\.weight holds numbers that are not finite", allow_pickle=True
        )


def without(name: str) -> Callable[[dict[str, torch.Tensor]], Any]:
    return lambda t: t.pop(name)


@pytest.mark.parametrize(
    ("kind", "edit", "config", "says"),
    [
        (
            "medusa",
            without("1.0.linear.bias"),
            {},
            "1.0.linear.bias is missing, unknown, or of another shape than Medusa heads",
        ),
        ("medusa", without("1.0.linear.weight"), {}, "is missing, unknown, or of another shape"),
        ("medusa", without("0.0.linear.weight"), {}, "names no Medusa heads"),
        ("medusa", without("0.1.weight"), {}, "names no Medusa heads"),
        ("medusa", lambda t: t.update({"more": torch.zeros(2)}), {}, "more is missing, unknown"),
        (
            "medusa",
            lambda t: t.update({"2.1.weight": torch.zeros(V + 1, D)}),
            {},
            "2.1.weight is missing, unknown, or of another",
        ),
        (
            "medusa",
            lambda t: t.update({"0.0.linear.weight": torch.zeros(4)}),
            {},
            "0.0.linear.weight is missing, unknown, or",
        ),
        (
            "medusa",
            lambda t: t.update({"16.0.linear.weight": torch.zeros(D, D)}),
            {},
            "16.0.linear.weight is missing, unknown",
        ),
        (
            "hydra",
            without("hydra_mlp.2.0.linear.bias"),
            {},
            "hydra_mlp.2.0.linear.bias is missing, unknown, or of another shape",
        ),
        ("hydra", without("hydra_mlp.0.0.linear.weight"), {}, "names no Hydra heads"),
        ("hydra", without("hydra_mlp.0.0.res_connection.weight"), {}, "grounded_heads is false"),
        (
            "hydra",
            lambda t: t.update({"input_embed_fn.weight": torch.zeros(2, 2)}),
            {},
            "input_embed_fn.weight is missing, unknown",
        ),
        ("hydra", lambda t: None, {"hydra_head_arch": "cross-attn"}, "of the form 'cross-attn'"),
        ("hydra", lambda t: None, {"hydra_head_arch": ["x" * 99]}, "of the form"),
        ("hydra", lambda t: None, {"hidden_state_offset": 2}, "read an earlier layer"),
        (
            "hydra",
            lambda t: None,
            {"hidden_state_offset": "x"},
            "hidden_state_offset is x and must be a whole number",
        ),
        (
            "hydra",
            lambda t: t.update(hydra(2)),
            {"hydra_num_layers": 1 << 40},
            "hydra_num_layers is 1099511627776 and must be",
        ),
    ],
)
def test_damaged_published_heads_are_refused(
    kind: str,
    edit: Callable[[dict[str, torch.Tensor]], Any],
    config: dict[str, Any],
    says: str,
    tmp_path: Path,
) -> None:
    t = MAKE[kind]()
    assert held(kind, folder_of(kind, tmp_path / "good", t)).kind == kind, (
        "the heads are good before they are damaged"
    )
    edit(t)
    refused(kind, folder_of(kind, tmp_path / "bad", t, **config), says)


def test_heads_of_another_model_are_refused(tmp_path: Path) -> None:
    refused(
        "medusa",
        folder_of("medusa", tmp_path / "wide", medusa(d=2 * D)),
        "for toy have; give heads of this very model",
    )
    refused("medusa", folder_of("medusa", tmp_path / "words", medusa(vocab=V + 3)), "for toy have")


def test_folder_of_another_family_is_named(tmp_path: Path) -> None:
    folder = folder_of("medusa", tmp_path / "m", medusa())
    refused("hydra", folder, f"holds Medusa heads, not heads of the kind hydra; give it as medusa={folder}")
    (folder / "medusa_lm_head.safetensors").unlink()
    assert published_kind(folder) is None
    refused(
        "medusa",
        folder,
        r"holds neither heads of ours .* nor published ones: Medusa heads \(medusa_lm_head.safetensors\)",
    )


def test_links_that_lead_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    folder = folder_of("medusa", tmp_path / "m", medusa())
    away = tmp_path / "away.safetensors"
    (folder / "medusa_lm_head.safetensors").rename(away)
    (folder / "medusa_lm_head.safetensors").symlink_to(away)
    refused("medusa", folder, "is a link that leads out of its folder")
