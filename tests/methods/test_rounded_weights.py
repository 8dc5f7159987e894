"""int8, int4, codes, finequant: the largest error of a weight, the bytes of a matrix, and what is left of the model."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from decodescope.engine import load
from decodescope.engine.core.component import build
from decodescope.engine.core.params import ParamError
from decodescope.engine.cost.cost import PassShape, pass_ops
from decodescope.engine.decoding.bases.weights import MATRICES, MatrixPlace, MatrixTransform
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.matrix import bits_per_number, unpack
from decodescope.engine.session.load import CALIBRATION, Model, calibration

AT = MatrixPlace(0, "qkv")


@cache
def lab(weights: str = "") -> Model:
    return load("lab", "float32", "cpu", weights=weights)


def rounding(name: str, **settings: Any) -> MatrixTransform:
    one = build("weights", name, settings)
    assert isinstance(one, MatrixTransform)
    return one


def gaussian(out: int = 32, inner: int = 256, outliers: float = 0.0) -> Tensor:
    g = torch.Generator().manual_seed(1)
    w = torch.randn(out, inner, generator=g)
    return torch.where(torch.rand(w.shape, generator=g) < outliers, w * 20, w)


CASES = [
    ("int8", {}),
    *(("int4", dict(group=g)) for g in (32, 64)),
    ("codes", dict(bits=3)),
    ("codes", dict(bits=2, group=64)),
]


@pytest.mark.parametrize(("name", "settings"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_weight_is_off_by_half_a_step_at_most(
    name: str, settings: dict[str, Any], dtype: torch.dtype
) -> None:
    w = gaussian(outliers=0.01).to(dtype)
    w[3] = 0.25  # a row without a range
    if name == "int8":
        step = w.double().abs().amax(1, keepdim=True) / 127
    else:
        k, group = settings.get("bits", 4), settings.get("group", 32)
        low, high = w.double().unflatten(1, (-1, group)).aminmax(dim=2)
        step = ((high - low) / (2**k - 1)).repeat_interleave(group, 1)
    off = (unpack(rounding(name, **settings).compress_matrix(AT, w)).double() - w.double()).abs()
    # scale and offset are numbers of the type
    rounded = torch.finfo(dtype).eps * (step * 256 + w.double().abs() * 4)
    assert (off <= step / 2 + rounded).all() and off.max() > 0


def test_bits_are_as_the_formula_has_them() -> None:
    for dtype, b in ((torch.float32, 32), (torch.bfloat16, 16)):
        w = gaussian().to(dtype)
        assert bits_per_number(rounding("int8").compress_matrix(AT, w)) == 8 + b / 256
        assert bits_per_number(rounding("int4", group=128).compress_matrix(AT, w)) == 4 + 2 * b / 128
        assert bits_per_number(rounding("codes", bits=3, group=16).compress_matrix(AT, w)) == 3 + 2 * b / 16


@pytest.mark.parametrize("name", ["int4", "codes"])
def test_a_group_that_does_not_divide_a_matrix_is_refused(name: str) -> None:
    with pytest.raises(ParamError, match="must divide the 48 inputs of qkv of layer 0"):
        rounding(name, group=32).compress_matrix(AT, torch.ones(4, 48))


def kl(weights: str) -> float:
    """Mean KL divergence over the text, from lab to the model made of it."""
    tokens = torch.from_numpy(np.load(CALIBRATION).astype(np.int64))[:512].tolist()
    p, q = (
        lab(x).decoder.forward(Feed.causal_chain(tokens, 0), None)[0].log_softmax(-1) for x in ("", weights)
    )
    return (p.exp() * (p - q)).sum(-1).mean().item()


@pytest.mark.nightly
def test_what_is_left_of_the_model_falls_with_the_bits() -> None:
    """Half a thousandth of a nat at 8 bits; each step down costs more than the one before."""
    each = [kl(x) for x in ("int8", "int4 group=32", "codes bits=3", "codes bits=2")]
    assert each[0] < 1e-3 and each == sorted(each) and each[3] > 10 * each[1] > 0


@pytest.mark.parametrize("weights", ["int8", "int4 include_lm_head=true", "finequant", "codes"])
def test_a_pass_is_priced_by_the_bytes_of_its_storages(weights: str) -> None:
    model = lab(weights)
    ops = pass_ops(model.spec, PassShape(1, 100, weight_bits=32, act_bits=32, kv_bits=32))
    held = [[getattr(layer, x).nbytes for x in MATRICES] for layer in model.decoder.layers]
    assert sum(op.weight_bytes for op in ops if op.layer is None) == model.decoder.unembedding.nbytes
    for i, row in enumerate(held):
        read = sum(op.weight_bytes for op in ops if op.layer == i)
        assert abs(read - sum(row)) <= len(ops), "each product is rounded up to whole bytes"
    assert (
        sum(map(sum, held))
        < sum(op.weight_bytes for op in pass_ops(lab().spec, PassShape(1, 100, weight_bits=32))) / 3
    )


def test_finequant_takes_small_groups_where_outliers_are() -> None:
    one = rounding("finequant")
    group = one.group_of  # type: ignore[attr-defined] # defined by FineQuant
    assert group(gaussian()) == 256 and group(gaussian(outliers=0.001)) < 256
    assert {rounding("finequant", min_group=128).group_of(gaussian(outliers=0.01))} == {128}  # type: ignore[attr-defined]
    assert group(torch.randn(4, 48)) == 48, "the row, where no group divides it"


def test_finequant_is_never_further_off_than_its_coarsest_groups() -> None:
    for outliers in (0.0, 0.001, 0.003, 0.01, 0.05):
        w = gaussian(outliers=outliers)
        coarse, chosen = (
            unpack(x.compress_matrix(AT, w)) for x in (rounding("int4", group=256), rounding("finequant"))
        )
        assert (chosen - w).square().mean() <= (coarse - w).square().mean()


def test_the_text_to_look_at_is_shipped_and_stands_in_a_models_own_ids() -> None:
    ids = np.load(CALIBRATION)
    assert ids.dtype == np.uint16 and ids.shape == (32768,) and CALIBRATION.stat().st_size < 66_000
    assert torch.equal(calibration(lab().path, "lab"), torch.from_numpy(ids.astype(np.int64)))
    text = lab().tokenizer
    assert text is not None and "\n" in text.decode(ids[:200].tolist())
