"""P-EAGLE heads as speculators and AWS write them: each equals its project's formulas, and no key or tensor is passed over."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from drafting import feature_of
from eagle_reference import ReferencePEagle
from flipping import flips
from head_folders import (
    IDS,
    KEPT,
    QWEN,
    SPEC,
    WINDOWED,
    D,
    authors,
    eagle3_shapes,
    head_of,
    speculators,
    target,
    written,
)
from safetensors.torch import load_file, save_file

from decodescope.engine import Session
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.describe import describe_heads, is_head_folder
from decodescope.engine.model.heads.drafting.p_eagle import PEagleLayer
from decodescope.engine.model.heads.files import load_head, write_head

TEXT = [3, 5, 1, 7, 2, 2, 9, 4, 11, 0, 6]
SIX = {"num_hidden_layers": 4, **{k: x for k, x in WINDOWED.items() if k != "num_hidden_layers"}}
SIX["layer_types"] = ["full_attention", "sliding_attention"] * 2


def library(layer: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A config of a P-EAGLE head as speculators writes it: that of an EAGLE-3 head, and the mask token."""
    config = speculators("eagle3", layer, mask_token_id=8, embed_requires_grad=True)
    config["speculators_config"]["algorithm"] = "peagle"
    return {**config, "speculators_model_type": "peagle", "architectures": ["PEagleSpeculator"], **changes}


# name -> (config, how many states, the axes of `mask_hidden`, tensors that are left out)
FORMS: dict[str, tuple[dict[str, Any], int, int, tuple[str, ...]]] = {
    "speculators": (library(), 3, 3, ()),
    "speculators: Qwen": (library(QWEN), 3, 3, ()),
    "speculators: four layers": (library(SIX), 3, 3, ()),
    "speculators: norms": (library(norm_before_residual=True, norm_before_fc=True, norm_output=True), 3, 3, ()),
    "speculators: five states": (library(**{IDS: [0, 1, 3, 5, 6], "fc_norm": True}), 5, 3, ()),
    "AWS": (authors(ptd_token_id=8), 3, 2, ()),
    "AWS: target's embedding": (authors(ptd_token_id=8), 3, 1, ("embed_tokens.weight", "lm_head.weight")),
    "NeMo": (authors(mask_token_id=8, pard_token=8, parallel_drafting=True), 3, 2, ()),
    "final feature": (authors(pard_token=8, eagle_config={"use_aux_hidden_state": False}), 1, 2, ("fc.weight",)),
}  # fmt: skip


def p_eagle_folder(folder: Path, name: str, **changes: Any) -> Path:
    """The folder of this form."""
    config, states, axes, drop = FORMS[name]
    first = "layers.0" if "transformer_layer_config" in config else "midlayer"
    shapes = eagle3_shapes(config, first, states, drop)
    shapes["mask_hidden"] = (1,) * (axes - 1) + (states * D,)
    return written(folder, {**config, **changes}, shapes, ("d2t", "t2d"))


def group_logits(head: Head, decoder: Decoder, known: dict[Any, torch.Tensor], k: int) -> torch.Tensor:
    """The logits [k, V] of our net after the text, which it reads in two parts, with masks after both."""
    assert isinstance(head, PEagleLayer)
    store, table = head.store(), head.embedding(decoder)
    with torch.inference_mode():
        features = head.enter(torch.cat([known[x] for x in head.places(SPEC.n_layers)], -1))
        read, mask = table[TEXT[1:]], head.mask_pair(table)
        for part in (slice(0, 4), slice(4, None)):
            made = head.group(features[part], read[part], mask, store, k)
            store.commit(range(len(features[part])))
        return head.logits(made, decoder)


def known_states(decoder: Decoder) -> dict[Any, torch.Tensor]:
    return {x: feature_of(TEXT[:-1], (x,), decoder) for x in (*range(SPEC.n_layers + 1), "final")}


@pytest.mark.parametrize("name", FORMS)
def test_a_head_guesses_what_its_project_guesses(name: str, tmp_path: Path) -> None:
    """The logits of all places of a group, as the file written out gives them; packed and written too, and in a run."""
    decoder = target()
    folder, known = p_eagle_folder(tmp_path / "head", name), known_states(decoder)
    reference = ReferencePEagle(folder, decoder.embed, decoder.unembed(torch.eye(D, dtype=torch.float64)).T)
    head: Any = head_of(folder, "p_eagle", decoder)
    places = head.places(SPEC.n_layers)
    due = reference.guesses([known[x] for x in places], TEXT, 5)
    write_head(head, tmp_path / "ours")
    again = load_head(tmp_path / "ours", SPEC, "p_eagle")
    again.load_state_dict(head.state_dict(), strict=True, assign=True)  # our files keep bfloat16
    for form in (head, head.pack_weights(), again):
        assert torch.allclose(group_logits(form, decoder, known, 5), due, atol=1e-6)
    decoder.heads, decoder.spec = {"p_eagle": head}, replace(SPEC, heads=("p_eagle",))
    session = Session(
        toys.model(decoder), toys.method(drafter=("p_eagle", {"depth": 4})), TEXT, max_new_tokens=6
    )
    session.start()
    propose, drafts = session.drafter.propose, []
    session.drafter.propose = lambda ctx: drafts.append(propose(ctx)) or drafts[-1]  # type: ignore[method-assign]
    while not session.is_done:
        before = list(session.tokens)
        session.step()
        states = [feature_of(before[:-1], (x,), decoder) for x in places]
        chain = reference.guesses(states, before, 4).argmax(-1).tolist()
        assert list(drafts[-1].tokens) == chain[: len(drafts[-1].tokens)]
    assert session.tokens[len(TEXT) :] == toys.greedy_text(decoder, TEXT, 6)


@pytest.mark.parametrize("name", ["speculators", "NeMo", "final feature"])
def test_every_key_of_a_config_counts_or_is_named(name: str, tmp_path: Path) -> None:
    """With another value for any one key the head guesses something else, or is refused, or the key is named."""
    decoder, folder = target(), p_eagle_folder(tmp_path / "head", name)
    config, known = json.loads((folder / "config.json").read_text()), known_states(decoder)
    usual, silent, counts = group_logits(head_of(folder, "p_eagle", decoder), decoder, known, 3), [], set()
    for key, changed in flips(config):
        (folder / "config.json").write_text(json.dumps(changed))
        try:
            head = head_of(folder, "p_eagle", decoder)
        except LoadError as error:
            assert str(error).endswith(".") and "\n" not in str(error)
            counts.add(key)
            continue
        uses = {x.key: x.use for x in head.readings}
        named = any(key.rpartition(".")[2] in x for x in head.remarks)
        if not torch.equal(group_logits(head, decoder, known, 3), usual):
            counts.add(key)
        elif not named and not uses[key].startswith("changes no number"):
            silent.append((key, uses[key]))
    assert silent == [] and len(counts) > 7
    assert {
        x for x in ("mask_token_id", "pard_token", "ptd_token_id", "parallel_drafting") if x in config
    } <= counts


@pytest.mark.parametrize("name", ["speculators", "AWS"])
def test_every_tensor_is_used_or_named(name: str, tmp_path: Path) -> None:
    """One tensor less, more or of another shape is refused, but for those that may be left out."""
    folder = p_eagle_folder(tmp_path / "head", name)
    path = folder / "model.safetensors"
    tensors, spare = load_file(path), {"embed_tokens.weight", "t2d", "lm_head.weight"}
    changes = {f"cut {x}": tensors | {x: y[..., :-1].clone()} for x, y in tensors.items()}
    changes |= {f"no {x}": {k: y for k, y in tensors.items() if k != x} for x in tensors.keys() - spare}
    changes["more"] = tensors | {"layers.9.mlp.up_proj.weight": torch.zeros(20, D)}
    for what, changed in changes.items():
        save_file(changed, path)
        with pytest.raises(LoadError, match=r"\.$") as error:
            load_head(folder, SPEC, "p_eagle")
        assert "mask_hidden" not in what or "must hold mask_hidden, the learnt state of its masks" in str(
            error.value
        )
    save_file(tensors | {"verifier_norm.weight": torch.ones(D)}, path)
    (remark,) = [x for x in load_head(folder, SPEC, "p_eagle").remarks if "verifier_norm" in x]
    assert "which no P-EAGLE head reads when it drafts" in remark


def test_what_is_no_p_eagle_head_says_so(tmp_path: Path) -> None:
    def refused(name: str, form: str, kind: str, says: str, **changes: Any) -> None:
        with pytest.raises(LoadError, match=says):
            load_head(p_eagle_folder(tmp_path / name, form, **changes), SPEC, kind)

    refused("none", "speculators", "p_eagle", r"names no mask token \(mask_token_id\)", mask_token_id=None)
    refused(
        "far",
        "speculators",
        "p_eagle",
        "mask_token_id is 13 and must be a whole number up to 12",
        mask_token_id=13,
    )
    refused(
        "two", "NeMo", "p_eagle", r"different mask tokens \(mask_token_id = 8, pard_token = 7\)", pard_token=7
    )
    refused("off", "NeMo", "p_eagle", "says parallel_drafting = False", parallel_drafting=False)
    refused("kind", "AWS", "eagle3", "holds P-EAGLE heads, not heads of the kind eagle3; give it as p_eagle=")
    refused("bare", "AWS", "p_eagle", "holds EAGLE-3 heads, not heads of the kind p_eagle", ptd_token_id=None)
    plain = load_head(tmp_path / "bare", SPEC, "eagle3")
    assert any("holds mask_hidden, which no EAGLE-3 head reads" in x for x in plain.remarks)
    write_head(head_of(p_eagle_folder(tmp_path / "good", "AWS"), "p_eagle", target()), tmp_path / "ours")
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    config["shape"]["mask_row"] = 14
    (tmp_path / "ours" / "config.json").write_text(json.dumps(config))
    with pytest.raises(LoadError, match="has masks of the id 13, toy knows 13 ids"):
        load_head(tmp_path / "ours", SPEC, "p_eagle")


def test_a_folder_is_described_without_its_target(tmp_path: Path) -> None:
    for i, name in enumerate(FORMS):
        folder = p_eagle_folder(tmp_path / str(i), name)
        facts = describe_heads(folder)
        assert is_head_folder(folder) and facts["kind"] == "p_eagle" and facts["shape"]["mask_row"] == 9
        assert facts["shape"]["kept"] == len(KEPT)
