"""MiMo's folders: the trunk is Qwen 2's, and the module in the same files drafts as a plain forward pass of it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from checkpoints import change, made
from drafting import feature_of
from torch import Tensor

from decodescope.engine import Session, load
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.draft_doctor.readers import HeadReader
from decodescope.engine.draft_doctor.texts import DoctorError
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.weights import module_numbers
from decodescope.engine.model.heads.files import load_head
from decodescope.engine.session.load import Model

MIMO: dict[str, Any] = dict(
    model_type="mimo", architectures=["MiMoForCausalLM"], attention_bias=True, tie_word_embeddings=False,
    num_nextn_predict_layers=1, use_mrope=False, use_sliding_window=False, sliding_window=64, max_window_layers=2,
)  # fmt: skip
D, H, G, W, F = 16, 4, 2, 4, 24  # width, query and KV heads, their width, width of the feed-forward block
TEXT = [5, 11, 2, 30, 7, 7, 19]
SHAPES = {
    **{f"{x}_layernorm.weight": (D,) for x in ("token", "hidden", "final", "input", "post_attention")},
    "input_proj.weight": (D, 2 * D),
    **{f"self_attn.{x}_proj.weight": (n * W, D) for x, n in (("q", H), ("k", G), ("v", G))},
    **{f"self_attn.{x}_proj.bias": (n * W,) for x, n in (("q", H), ("k", G), ("v", G))},
    "self_attn.o_proj.weight": (D, H * W),
    **{f"mlp.{x}_proj.weight": (F, D) for x in ("gate", "up")},
    "mlp.down_proj.weight": (D, F),
}


def mimo(folder: Path, modules: int = 1, **changes: Any) -> Path:
    """A folder in MiMo's layout, with random weights."""
    made(folder, **{**MIMO, "num_nextn_predict_layers": modules, **changes})
    g = torch.Generator().manual_seed(2)
    more = {
        f"model.mtp_layers.{i}.{x}": torch.randn(s, generator=g)
        for i in range(modules)
        for x, s in SHAPES.items()
    }
    change(folder, lambda tensors: tensors.update(more))
    return folder


def loaded(folder: Path, **how: Any) -> Model:
    return load(folder, "float64", "cpu", **how)


def reference_logits(model: Model, folder: Path, text: list[int], chain: list[int], normed: bool) -> Tensor:
    """float64 [N + 1, V]: what the module says after a text and each of N drafted tokens, by plain passes over all slots,
    with no cache."""
    from safetensors.torch import load_file

    w = {
        k.removeprefix("model.mtp_layers.0."): x.double()
        for k, x in load_file(folder / "model.safetensors").items()
    }

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * w[f"{name}_layernorm.weight"]

    def pass_of(h: Tensor, e: Tensor) -> Tensor:
        n = len(h)
        x = torch.cat([norm(h, "hidden"), norm(e, "token")], 1) @ w["input_proj.weight"].T
        y = norm(x, "input")
        q, k, v = (
            (y @ w[f"self_attn.{c}_proj.weight"].T + w[f"self_attn.{c}_proj.bias"]).view(n, -1, W)
            for c in "qkv"
        )
        angle = torch.arange(n).double()[:, None] * 10_000.0 ** (
            -torch.arange(0, W, 2).double() / W
        )  # [n, W / 2]
        turn = torch.polar(torch.ones_like(angle), angle)[:, None]

        def rotate(z: Tensor) -> Tensor:
            z = torch.complex(z[..., : W // 2], z[..., W // 2 :]) * turn
            return torch.cat([z.real, z.imag], -1)

        q, k, v = rotate(q), rotate(k).repeat_interleave(H // G, 1), v.repeat_interleave(H // G, 1)
        scores = torch.einsum("ihw,jhw->hij", q, k) / W**0.5
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
        mixed = torch.einsum("hij,jhw->ihw", scores.softmax(-1), v).reshape(n, -1)
        x = x + mixed @ w["self_attn.o_proj.weight"].T
        y = norm(x, "post_attention")
        gate = y @ w["mlp.gate_proj.weight"].T
        x = x + (gate * gate.sigmoid() * (y @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
        return norm(x, "final")

    h = feature_of(text[:-1], ("final" if normed else model.spec.n_layers,), model.decoder)
    e = w["model.embed_tokens.weight"][[*text[1:], *chain]]
    e[0] = 0
    rows = []
    while True:
        h = torch.cat([h, pass_of(h, e[: len(h)])[-1:]])
        rows.append(h[-1] @ w["lm_head.weight"].T)
        if len(h) > len(e):
            return torch.stack(rows)


@pytest.mark.parametrize("normed", [False, True])
def test_chains_of_sixteen_tokens_are_those_of_a_plain_pass(normed: bool, tmp_path: Path) -> None:
    folder = mimo(tmp_path / "m")
    model = loaded(folder, heads={"mtp": Path(f"{folder}@state=after_norm")} if normed else None)
    session = Session(model, toys.method(drafter=("mtp", dict(depth=11))), TEXT, max_new_tokens=40)
    session.start()
    walk, propose = session.drafter._walk, session.drafter.propose
    made_of, rows, steps = list[tuple[list[int], Draft]](), list[Tensor](), 0
    logits = walk.logits
    walk.logits = lambda outputs: rows.append(logits(outputs)) or rows[-1]  # type: ignore[func-returns-value,method-assign]
    session.drafter.propose = lambda ctx: made_of.append((list(ctx.tokens), propose(ctx))) or made_of[-1][1]  # type: ignore[func-returns-value,method-assign]
    while steps < 16:
        rows.clear()
        session.step()
        text, draft = made_of[-1]
        assert len(draft) == len(rows) == 11 and draft.parents == list(range(-1, 10))
        theirs = reference_logits(model, folder, text, draft.tokens[:-1], normed)
        assert theirs.argmax(1).tolist() == draft.tokens
        assert torch.allclose(torch.cat(rows), theirs, rtol=0, atol=1e-5)
        steps += len(rows)


def test_the_trunk_is_qwens_and_the_files_are_the_heads(tmp_path: Path) -> None:
    folder = mimo(tmp_path / "m")
    model = loaded(folder)
    assert model.spec.heads == ("mtp",) and model.decoder.heads["mtp"].layout == "XiaomiMiMo"
    (remark,) = model.decoder.heads["mtp"].remarks
    assert remark in model.remarks
    assert (
        "a module for multi-token prediction (model.mtp_layers.0)" in remark
        and "before the final norm" in remark
    )
    assert module_numbers(model.spec) == sum(x.numel() for x in model.decoder.heads["mtp"].tensors().values())
    made(tmp_path / "q", tie_word_embeddings=False, model_type="qwen2", architectures=["Qwen2ForCausalLM"])
    qwen = loaded(tmp_path / "q")
    assert torch.equal(feature_of(TEXT, decoder=model.decoder), feature_of(TEXT, decoder=qwen.decoder))
    assert toys.decode(
        toys.method(drafter="mtp"), TEXT, 20, pair=(model, model)
    ).end.tokens == toys.greedy_text(qwen.decoder, TEXT, 20)


def test_the_doctor_does_not_take_one_state_for_the_other(tmp_path: Path) -> None:
    model = loaded(mimo(tmp_path / "m"))
    with pytest.raises(DoctorError, match="before the final norm"):
        HeadReader(model.decoder, model.decoder.heads["mtp"])


def test_every_key_is_used_or_named(tmp_path: Path) -> None:
    head = load_head(mimo(tmp_path / "m"), loaded(tmp_path / "m").spec, "mtp")
    uses = {x.key: x.use for x in head.readings}
    assert uses["num_nextn_predict_layers"] == "used" and uses["rms_norm_eps"] == "used"
    assert not [key for key, use in uses.items() if use == "not read"]
    tuned = mimo(tmp_path / "t", num_speculative_steps=3, mtp_loss_step_weights=[0.5, 0.3, 0.2], odd_key=1)
    remarks = loaded(tuned).remarks
    assert any("after the final norm, as in SGLang" in x for x in remarks)
    assert sum("odd_key = 1" in x for x in remarks) == 2, "of the model and of its module"
    assert not any("mtp_loss" in x or "num_speculative" in x for x in remarks)


def test_further_modules_are_named_and_not_used(tmp_path: Path) -> None:
    one, two = loaded(mimo(tmp_path / "1")), loaded(mimo(tmp_path / "2", modules=2))
    assert any("and 1 more that is not used" in x for x in two.remarks)
    pairs = zip(
        one.decoder.heads["mtp"].tensors().values(), two.decoder.heads["mtp"].tensors().values(), strict=True
    )
    assert all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("modules", "changes", "drop", "match"),
    [
        (1, dict(num_nextn_predict_layers=0), "", "also holds model.mtp_layers.0"),
        (1, dict(model_type="qwen2", architectures=None), "", "also holds model.mtp_layers.0"),
        (1, dict(num_nextn_predict_layers=-1), "", "must be a whole number up to 16"),
        (1, {}, "token_layernorm.weight", "token_layernorm.weight is missing"),
        (2, dict(num_nextn_predict_layers=1), "", "mtp_layers.1.*unknown"),
        (1, dict(num_nextn_predict_layers=2), "", "mtp_layers.1.*is missing"),
    ],
)
def test_what_does_not_fit_is_refused(
    modules: int, changes: dict[str, Any], drop: str, match: str, tmp_path: Path
) -> None:
    folder = mimo(tmp_path / "m", modules)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    if drop:
        change(folder, lambda tensors: tensors.pop(f"model.mtp_layers.0.{drop}"))
    with pytest.raises(LoadError, match=match):
        loaded(folder)


def test_a_setting_chooses_the_state_and_no_other_is_known(tmp_path: Path) -> None:
    folder = mimo(tmp_path / "m")
    spec = loaded(folder).spec
    assert load_head(folder, spec, "mtp").shape["before_norm"] == 1
    assert load_head(Path(f"{folder}@state=after_norm"), spec, "mtp").shape["before_norm"] == 0
    with pytest.raises(LoadError, match="must be before_norm or after_norm"):
        load_head(Path(f"{folder}@state=both"), spec, "mtp")
    with pytest.raises(LoadError, match="knows no setting 'layer_ids'"):
        load_head(Path(f"{folder}@layer_ids=inputs"), spec, "mtp")
