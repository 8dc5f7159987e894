"""Draft heads in the layouts that people ship: each equals its project's formulas, and no key of a config is passed over."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from drafting import feature_of
from eagle_reference import ReferenceEagle, ReferenceEagle3, greedy_chain
from flipping import flips
from head_folders import (
    COMMON,
    FF,
    IDS,
    LAYER,
    QWEN,
    SPEC,
    WINDOWED,
    D,
    V,
    authors,
    eagle3_shapes,
    head_of,
    layer_shapes,
    speculators,
    target,
    written,
)
from safetensors.torch import load_file, save_file
from sizes import by_turns

from decodescope.engine import MethodError, Session
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.base import Head, RotaryPart
from decodescope.engine.model.heads.describe import describe_heads, is_head_folder
from decodescope.engine.model.heads.drafting.draft_vocabulary import fused_layers
from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer
from decodescope.engine.model.heads.files import head_fingerprint, load_head, write_head
from decodescope.engine.model.heads.published.layer_config import CLASS_DEFAULTS, QWEN_WINDOW
from decodescope.engine.model.heads.published.layout_writer import LAYOUTS, write_published
from decodescope.engine.session.replay.fork import check_same_models

DEEP = toys.toy_spec(n_layers=16, heads=())
# name -> (config, layers of the target by their inputs, further words for `eagle3_folder`)
EAGLE3: dict[str, tuple[dict[str, Any], list[int | str], dict[str, Any]]] = {
    "authors": (authors(), [1, 3, 5], {}),
    "authors: vLLM": (authors(architectures=["LlamaForCausalLM"], eagle_config={IDS: [0, 2, 4]}), [0, 2, 4], {}),
    "authors: window": (authors(layer_types=["sliding_attention"], sliding_window=3), [1, 3, 5], {}),
    "authors: part rotated": (authors(partial_rotary_factor=0.5), [1, 3, 5], {}),
    "authors: scaled": (authors(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}), [1, 3, 5], {}),
    "authors: biases": (authors(attention_bias=True, mlp_bias=True, bias=True), [1, 3, 5], {}),
    "authors: one state": (authors(eagle_config={IDS: [5], "norm_before_fc": True}), [6], {}),
    "authors: two layers": (authors(num_hidden_layers=2), [1, 3, 5], {"first": "layers.0"}),
    "authors: final feature": (authors(eagle_config={"use_aux_hidden_state": False}), ["final"], {"drop": ("fc.weight",)}),
    "authors: target's rows": (authors(), [1, 3, 5], {"drop": ("lm_head.weight", "embed_tokens.weight")}),
    "authors: tied": (authors(tie_word_embeddings=True), [1, 3, 5], {"drop": ("lm_head.weight",)}),
    "speculators": (speculators(), [1, 3, 5], {}),
    "speculators: Qwen": (speculators(layer=QWEN), [1, 3, 5], {}),
    "speculators: five states": (speculators(**{IDS: [0, 1, 3, 5, 6], "fc_norm": True}), [0, 1, 3, 5, 6], {}),
    "speculators: windows": (speculators(layer=WINDOWED), [1, 3, 5], {}),
    "speculators: no t2d": (speculators(), [1, 3, 5], {"lists": ("d2t",)}),
    "speculators: whole": (speculators(draft_vocab_size=V), [1, 3, 5], {"lists": ()}),
    "speculators: norms": (
        speculators(norm_before_residual=True, norm_before_fc=True, norm_output=True), [1, 3, 5], {}
    ),
    "speculators: by type": (
        speculators(layer={**WINDOWED, "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
            "full_attention": {"rope_type": "default", "rope_theta": 9000.0},
        }}), [1, 3, 5], {},
    ),
}  # fmt: skip


def eagle3_folder(folder: Path, name: str, **changes: Any) -> Path:
    """The folder of this variant."""
    config, places, words = EAGLE3[name]
    first = words.get("first", "layers.0" if "transformer_layer_config" in config else "midlayer")
    shapes = eagle3_shapes(config, first, len(places), words.get("drop", ()))
    return written(folder, {**config, **changes}, shapes, words.get("lists", ("d2t", "t2d")))


EAGLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "authors": ({**LAYER, **COMMON, "architectures": ["LlamaForCausalLM"], "bias": True}, "fc", "layers.0"),
    "authors: window": ({**LAYER, "bias": True, "layer_types": ["sliding_attention"], "sliding_window": 3}, "fc", "layers.0"),
    "speculators": (speculators("eagle", fusion_bias=True), "fusion_fc", "transformer"),
    "speculators: part rotated": (
        speculators("eagle", {"partial_rotary_factor": 0.5}, fusion_bias=True), "fusion_fc", "transformer"
    ),
}  # fmt: skip


def eagle_folder(folder: Path, name: str) -> Path:
    config, fuse, place = EAGLE[name]
    shapes = {f"{fuse}.weight": (D, 2 * D), f"{fuse}.bias": (D,), **layer_shapes(place, D, LAYER, False)}
    return written(folder, config, shapes, ())


def chain_logits(
    head: Head, decoder: Decoder, states: list[torch.Tensor], text: list[int], length: int
) -> torch.Tensor:
    """The logits [length, V] of a chain of our net, with its cache: the text in two parts, then one slot after another."""
    layer: Any = head
    store, rows, table = layer.store(), [], layer.embedding(decoder)
    with torch.inference_mode():
        features = layer.enter(torch.cat(states, -1))
        for part in (range(4), range(4, len(features))):
            read = table[text[part.start + 1 : part.stop + 1]]
            made = layer(features[part.start : part.stop][None], read[None], store.n, store)
            store.commit(range(len(part)))
        n = store.n
        for k in range(length):
            rows.append(layer.logits(made[0, -1:], decoder)[0])
            token = int(rows[-1].argmax())
            made = layer(made[:, -1:], table[[token]][None], n + k, store)
    return torch.stack(rows)


CASES = [("eagle3", x) for x in EAGLE3] + [("eagle", x) for x in EAGLE]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{x} {y}" for x, y in CASES])
def test_a_head_computes_what_its_project_computes(kind: str, name: str, tmp_path: Path) -> None:
    """Logits and greedy chains step by step, in a run and alone, as the file written out gives them; packed and written too."""
    decoder = target()
    folder = (eagle3_folder if kind == "eagle3" else eagle_folder)(tmp_path / "head", name)
    places: list[int | str] = EAGLE3[name][1] if kind == "eagle3" else ["final"]
    reference: Any = ReferenceEagle3 if kind == "eagle3" else ReferenceEagle
    known = reference(folder, decoder.embed, decoder.unembed(torch.eye(D, dtype=torch.float64)).T)
    head = head_of(folder, kind, decoder)
    if isinstance(head, Eagle3Layer):
        assert list(head.places(SPEC.n_layers)) == places

    def states(text: list[int]) -> list[torch.Tensor]:
        return [feature_of(text[:-1], (x,), decoder) for x in places]

    text = [3, 5, 1, 7, 2, 2, 9, 4, 11, 0, 6]
    logits = greedy_chain(known, states(text), text, 4)[1]
    write_head(head, tmp_path / "ours")
    again = load_head(tmp_path / "ours", SPEC, kind)
    again.load_state_dict(head.state_dict(), strict=True, assign=True)  # our files keep bfloat16
    for form in (head, head.pack_weights(), again):
        assert torch.allclose(chain_logits(form, decoder, states(text), text, 4), logits, atol=1e-6)
    decoder.heads, decoder.spec = {kind: head}, replace(SPEC, heads=(kind,))
    settings = {"nodes": 4, "depth": 4, "width": 1}
    method = toys.method(drafter=("eagle2" if kind == "eagle" else "eagle3", settings))
    session = Session(toys.model(decoder), method, text, max_new_tokens=7)
    session.start()
    propose, drafts = session.drafter.propose, []
    session.drafter.propose = lambda ctx: drafts.append(propose(ctx)) or drafts[-1]
    while not session.is_done:
        before = list(session.tokens)
        session.step()
        due = greedy_chain(known, states(before), before, len(drafts[-1].tokens))[0]
        assert list(drafts[-1].tokens) == due
    assert session.tokens[len(text) :] == toys.greedy_text(decoder, text, 7)


def test_siblings_of_a_tree_see_what_a_chain_would_within_a_window(tmp_path: Path) -> None:
    """A draft tree on a layer with a window smaller than the draft is deep has the scores of chains."""
    folder = eagle3_folder(tmp_path / "head", "speculators: windows")
    decoder = target()
    head: Any = head_of(folder, "eagle3", decoder)
    text = [3, 5, 1, 7, 2, 2, 9, 4]
    states = [feature_of(text[:-1], (x,), decoder) for x in (1, 3, 5)]
    table = head.embedding(decoder)
    with torch.inference_mode():
        features, store = head.enter(torch.cat(states, -1)), head.store()
        root = head(features[None], table[text[1:]][None], 0, store)[:, -1:]
        store.commit(range(len(features)))
        ways = [[1, 6, 2, 5], [11, 12, 6, 1]]
        made, visible = root.expand(1, 2, D), torch.zeros(2, 0, dtype=torch.bool)
        for level in range(4):
            visible = torch.cat([visible, torch.eye(2, dtype=torch.bool)], 1)
            made = head(made, table[[way[level] for way in ways]][None], store.n, store, level, visible)
        known = ReferenceEagle3(folder, decoder.embed, decoder.embed)
        for way, row in zip(ways, made[0], strict=True):
            f, read = known.enter(states), text[1:]
            for token in [None, *way]:
                read = read if token is None else [*read, token]
                out = known.outputs(f, read)[-1:]
                f = torch.cat([f, out])
            assert torch.allclose(row, out[0], atol=1e-6)


# ---- no key is passed over


MORE = {
    "logit_scale": 1.0,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 28,
    "qkv_bias": False,
}
FLIPPED: dict[str, Callable[[Path], Path]] = {
    **{f"eagle3 {x}": lambda folder, x=x: eagle3_folder(folder, x) for x in EAGLE3},
    **{f"eagle {x}": lambda folder, x=x: eagle_folder(folder, x) for x in EAGLE},
    "eagle3 more": lambda folder: eagle3_folder(folder, "authors", **MORE, num_aux_hidden_states=3, is_causal=True),
    "eagle3 unknown": lambda folder: eagle3_folder(folder, "speculators", residual_multiplier=0.5, sliding_window=9),
}  # fmt: skip


@pytest.mark.parametrize("name", by_turns(2, FLIPPED))
def test_every_key_of_a_config_counts_or_is_named(name: str, tmp_path: Path) -> None:
    """With another value for any one key the head computes something else, or is refused, or the key is named."""
    folder, decoder, kind = FLIPPED[name](tmp_path / "head"), target(), name.split()[0]
    config = json.loads((folder / "config.json").read_text())
    text = [3, 5, 1, 7, 2, 2, 9, 4, 11, 0, 6]
    known_states = {x: feature_of(text[:-1], (x,), decoder) for x in (*range(SPEC.n_layers + 1), "final")}

    def computed() -> tuple[torch.Tensor, Head]:
        head = head_of(folder, kind, decoder)
        places = head.places(SPEC.n_layers) if isinstance(head, Eagle3Layer) else ("final",)
        states = [known_states[x] for x in places]
        return chain_logits(head, decoder, states, text, 2), head

    usual, silent, refused, other = computed()[0], [], 0, 0
    for key, changed in flips(config):
        (folder / "config.json").write_text(json.dumps(changed))
        try:
            logits, head = computed()
        except LoadError as error:
            assert str(error).endswith(".") and "\n" not in str(error)
            refused += 1
            continue
        last = key.rpartition(".")[2]
        uses = {x.key: x.use for x in head.readings}
        named = any(last in x for x in head.remarks) or uses[key].startswith("changes no number")
        other += not torch.equal(logits, usual)
        if torch.equal(logits, usual) and not named:
            silent.append((key, uses[key]))
    assert silent == [] and refused > 5 and other > 1


TENSORS = [
    ("eagle3", "authors"),
    ("eagle3", "speculators: Qwen"),
    ("eagle", "authors"),
    ("eagle", "speculators"),
]


@pytest.mark.parametrize(("kind", "name"), TENSORS, ids=[f"{x} {y}" for x, y in TENSORS])
def test_every_tensor_is_used_or_named(kind: str, name: str, tmp_path: Path) -> None:
    """One tensor less, more or of another shape is refused, but for those that may be left out; what only training reads is
    named."""
    folder = (eagle3_folder if kind == "eagle3" else eagle_folder)(tmp_path / "head", name)
    path = folder / "model.safetensors"
    tensors, spare = load_file(path), {"embed_tokens.weight", "t2d", "lm_head.weight"}

    def refused(changed: dict[str, torch.Tensor], why: str) -> None:
        save_file(changed, path)
        with pytest.raises(LoadError, match=why):
            load_head(folder, SPEC, kind)

    for odd, x in tensors.items():
        refused(tensors | {odd: x[:-1].clone()}, odd.replace(".", r"\."))
        others = {key: y for key, y in tensors.items() if key != odd}
        if odd in spare:
            save_file(others, path)
            load_head(folder, SPEC, kind)
        else:
            refused(others, r"\.$")
    refused(
        tensors | {"layers.9.mlp.up_proj.weight": torch.zeros(FF, D)}, r"up_proj\.weight is missing, unknown"
    )
    if kind == "eagle3":
        save_file(tensors | {"verifier_norm.weight": torch.ones(D)}, path)
        remarks = load_head(folder, SPEC, kind).remarks
        assert any(
            "holds verifier_norm.weight, which no EAGLE-3 head reads when it drafts" in x for x in remarks
        )


# ---- what a reference may say, and what is said of a folder


def test_what_libraries_read_differently_can_be_tried_both_ways(tmp_path: Path) -> None:
    config = speculators()
    del config["norm_before_residual"]
    shapes = eagle3_shapes(config, "layers.0", 3, ())
    folder = written(tmp_path / "e", config, shapes, ("d2t", "t2d"))
    head = load_head(folder, SPEC, "eagle3")
    assert head.shape["norm_before_residual"] == 0
    assert any(f"{folder}@norm_before_residual=true tries" in x for x in head.remarks)
    tried = load_head(Path(f"{folder}@norm_before_residual=true"), SPEC, "eagle3")
    assert tried.shape["norm_before_residual"] == 1 and tried.remarks == []
    both = load_head(Path(f"{folder}@norm_before_residual=true,layer_ids=outputs"), SPEC, "eagle3")
    assert isinstance(both, Eagle3Layer) and both.layer_ids == (2, 4, 6)
    for words, says in {
        "norm_before_residual=yes": "which must be true or false",
        "other=1": "knows no setting 'other'",
        "layer_ids": "must be NAME=VALUE",
    }.items():
        with pytest.raises(LoadError, match=says):
            load_head(Path(f"{folder}@{words}"), SPEC, "eagle3")
    write_head(head, tmp_path / "ours")
    with pytest.raises(LoadError, match="take no settings"):
        load_head(Path(f"{tmp_path / 'ours'}@layer_ids=inputs"), SPEC, "eagle3")


def test_drafts_that_cannot_be_read_say_what_is_missing(tmp_path: Path) -> None:
    for kind, says in {
        "dflash2": "a DFlash-2 draft",
        "xpress": "an XPress draft",
        "mtp": "multi-token prediction",
        "mlp": "an MLP speculator with embeddings",
        "independent": "give it as --draft FOLDER",
        "new": "a draft of the unknown type 'new'",
    }.items():
        folder = eagle3_folder(tmp_path / kind, "speculators", speculators_model_type=kind)
        with pytest.raises(LoadError, match=says):
            load_head(folder, SPEC, "eagle3")
    folder = eagle3_folder(tmp_path / "arch", "authors", architectures=["DFlashDraftModel"])
    with pytest.raises(
        LoadError, match="holds DFlash drafts, not heads of the kind eagle3; give it as dflash="
    ):
        load_head(folder, SPEC, "eagle3")
    folder = eagle3_folder(tmp_path / "bare", "authors", architectures=[], draft_vocab_size=None)
    with pytest.raises(LoadError, match="shape than EAGLE-3 heads"):  # recognised by the name of its layer
        load_head(folder, SPEC, "eagle3")


def test_the_usual_three_layers_need_sixteen(tmp_path: Path) -> None:
    folder = eagle3_folder(tmp_path / "e", "speculators", **{IDS: None})
    head = load_head(folder, DEEP, "eagle3")
    assert isinstance(head, Eagle3Layer) and head.places(16) == fused_layers(16) == (2, 8, 13)
    with pytest.raises(LoadError, match="give an EAGLE-1 layer, or a head that names its layers"):
        load_head(folder, SPEC, "eagle3")


def test_class_defaults_are_those_of_transformers() -> None:
    """speculators keeps of the layer's config what differs from its class; what it leaves out is read as the class has it."""
    from transformers import LlamaConfig, Qwen3Config

    for kind, made in (("llama", LlamaConfig()), ("qwen3", Qwen3Config())):
        assert {key: getattr(made, key) for key in CLASS_DEFAULTS[kind]} == CLASS_DEFAULTS[kind]
        assert made.rms_norm_eps == 1e-6 and made.rope_parameters["rope_theta"] == 10_000
    assert Qwen3Config(use_sliding_window=True).sliding_window == QWEN_WINDOW


def test_a_window_whose_length_is_left_out_is_that_of_its_class(tmp_path: Path) -> None:
    words = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True}
    folder = eagle3_folder(tmp_path / "e", "speculators: Qwen")
    config = json.loads((folder / "config.json").read_text())
    config["transformer_layer_config"] |= words
    (folder / "config.json").write_text(json.dumps(config))
    head = load_head(folder, SPEC, "eagle3")
    assert [x.window for x in head.modules() if isinstance(x, RotaryPart)] == [QWEN_WINDOW, 0]


def test_a_head_that_was_made_for_another_target_says_so(tmp_path: Path) -> None:
    config = speculators()
    verifier = {"name_or_path": "someone/Other-8B", "architectures": ["Qwen3ForCausalLM"]}
    around = {**config["speculators_config"], "verifier": verifier}
    one, two = load_head(
        eagle3_folder(tmp_path / "e", "speculators", speculators_config=around), SPEC, "eagle3"
    ).remarks
    assert "made for someone/Other-8B (verifier.name_or_path), and this target is called toy" in one
    assert (
        "its target is a ['Qwen3ForCausalLM'] (verifier.architectures), and toy is a LlamaForCausalLM" in two
    )


def test_the_name_of_the_target_is_compared_as_people_write_it(tmp_path: Path) -> None:
    folder = eagle3_folder(tmp_path / "e", "authors", base_model_name_or_path="someone/Toy-1B-Instruct")
    for name in ("toy-1b-instruct", "Toy-1B-Instruct.Q4_K_M.gguf", "files/Toy-1B-Instruct@int4"):
        remarks = load_head(folder, replace(SPEC, name=name), "eagle3").remarks
        assert not any("base_model_name_or_path" in x for x in remarks), name
    remarks = load_head(folder, replace(SPEC, name="toy-2b"), "eagle3").remarks
    assert any(
        "made for someone/Toy-1B-Instruct (base_model_name_or_path), and this target is called toy-2b" in x
        for x in remarks
    )
    assert describe_heads(folder)["made_for"] == "someone/Toy-1B-Instruct"
    facts = describe_heads(eagle3_folder(tmp_path / "s", "speculators"))
    assert facts["made_for"] == "someone/toy" and not any("made for" in x for x in facts["remarks"])


# ---- the other way


# why a layout cannot describe a variant; the others are written
WORDLESS = {
    ("authors: final feature", "speculators"): "final feature",
    ("authors: biases", "speculators"): "its fc has a bias",
    ("authors: window", "sglang"): "no window",
    ("authors: vLLM", "sglang"): "the input of the first layer is none",
    ("authors: one state", "sglang"): "norm_before_fc",
    ("authors: two layers", "sglang"): "one layer",
    ("speculators: Qwen", "sglang"): "computes one layer",
    ("speculators: five states", "sglang"): "fc_norm",
    ("speculators: windows", "sglang"): "computes one layer",
    ("speculators: norms", "sglang"): "norm_before_residual",
    ("speculators: by type", "sglang"): "computes one layer",
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", EAGLE3)
def test_a_head_that_is_written_in_a_layout_is_read_back_equal(
    name: str, layout: str, tmp_path: Path
) -> None:
    """The folder is whole, nothing in it is remarked on but how layers are counted, and it drafts as the head did."""
    decoder = target()
    head: Any = head_of(eagle3_folder(tmp_path / "head", name), "eagle3", decoder)
    out = tmp_path / "out"
    if reason := WORDLESS.get((name, layout)):
        with pytest.raises(LoadError, match=f"cannot be written in the layout of {layout}: .*{reason}"):
            write_published(head, out, layout, decoder, SPEC, torch.float64)
        assert not out.exists()
        return
    write_published(head.pack_weights(), out, layout, decoder, SPEC, torch.float64)
    again: Any = head_of(out, "eagle3", decoder)
    assert again.places(SPEC.n_layers) == head.places(SPEC.n_layers)
    assert not [x for x in again.remarks if "layer_ids" not in x] and again.layout.lower() == layout
    parts = [
        [(x.rope, x.window) for x in net.modules() if isinstance(x, RotaryPart)] for net in (head, again)
    ]
    assert parts[0] == parts[1]
    text = [3, 5, 1, 7, 2, 2, 9, 4, 11, 0, 6]
    states = [feature_of(text[:-1], (x,), decoder) for x in head.places(SPEC.n_layers)]
    logits = [chain_logits(net, decoder, states, text, 3) for net in (head, again)]
    assert torch.allclose(*logits, atol=1e-6)


def test_the_header_has_a_hash_of_each_head_that_is_read(tmp_path: Path) -> None:
    marks = []
    for name in ("authors", "authors: vLLM"):
        decoder = target()
        head = head_of(
            eagle3_folder(tmp_path / name.replace(":", ""), name), "eagle3", decoder
        ).pack_weights()
        decoder.heads, decoder.spec = {"eagle3": head, "eagle": head}, replace(SPEC, heads=("eagle3",))
        method = toys.method(drafter=("eagle3", {"nodes": 4}))
        header = Session(toys.model(decoder), method, toys.PROMPT, max_new_tokens=4).header
        assert header.model["head_fingerprints"] == {"eagle3": head_fingerprint(head)}
        plain = Session(toys.model(decoder), toys.method(), toys.PROMPT, max_new_tokens=4).header
        assert "head_fingerprints" not in plain.model
        marks.append(head_fingerprint(head))
        check_same_models(header, {"target": toys.model(decoder)}, [])
        header.model["head_fingerprints"] = {"eagle3": "0" * 16}
        with pytest.raises(MethodError, match=rf"here are others \({marks[-1]}\).*--head eagle3=FOLDER"):
            check_same_models(header, {"target": toys.model(decoder)}, [])
        decoder.heads = {}
        with pytest.raises(MethodError, match="which are not loaded here"):
            check_same_models(header, {"target": toys.model(decoder)}, [])
    assert len(set(marks)) == 2 and all(len(x) == 16 for x in marks)
    (tmp_path / "authors" / "config.json").write_text("{}")
    assert head_fingerprint(head_of(tmp_path / "authors vLLM", "eagle3", decoder)) == marks[1]


def test_a_folder_of_heads_is_described_without_its_target(tmp_path: Path) -> None:
    for kind, name in CASES:
        folder = (eagle3_folder if kind == "eagle3" else eagle_folder)(
            tmp_path / f"{kind}{name}".replace(":", ""), name
        )
        facts = describe_heads(folder)
        assert is_head_folder(folder) and facts["kind"] == kind
        assert len(facts["keys"]) > 10 and {"used"} <= {x["use"] for x in facts["keys"]}
        if kind == "eagle3" and EAGLE3[name][1] != ["final"]:
            assert facts["target_layers"] == EAGLE3[name][1]
