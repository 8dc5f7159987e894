"""The requirements for every weight transform: the source model stays, bytes are real, reading order changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toys
from sizes import by_turns, first_settings

from decodescope.engine.core.component import KINDS, OF_MODEL, build, registry
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.weights import (
    MATRICES,
    bits_of,
    format_transform_list,
    parse_transform_list,
)
from decodescope.engine.model.layers.matrix import Matrix, unpack
from decodescope.testing.contracts import weights

EVERY = toys.variants("weights")


def test_kinds_of_a_model_are_none_of_a_method() -> None:
    assert set(OF_MODEL) == {"weights"} and not set(OF_MODEL) & set(KINDS)


@pytest.mark.parametrize(("name", "settings"), first_settings(EVERY))
def test_the_model_that_it_was_made_of_stays_as_it_was(name: str, settings: dict[str, Any]) -> None:
    before, after = weights.transformed_toy(name, settings)
    weights.check_untouched(before)
    logits = [weights.prompt_logits(x) for x in (before, after)]
    assert not torch.equal(*logits), "it is another model"
    assert before.embed is after.embed or after.embed.shape != before.embed.shape


@pytest.mark.parametrize(
    ("name", "settings", "dtype"),
    by_turns(2, first_settings(EVERY, [torch.float32, torch.bfloat16, torch.float64])),
)
def test_a_text_has_one_distribution_however_it_is_read(
    name: str, settings: dict[str, Any], dtype: torch.dtype
) -> None:
    weights.text_has_one_distribution(name, settings, dtype, 0.3 if dtype == torch.bfloat16 else 1e-4)


@pytest.mark.parametrize(("name", "settings"), first_settings(EVERY))
def test_bits_are_counted_from_storages(name: str, settings: dict[str, Any]) -> None:
    _, after = weights.transformed_toy(name, settings)
    said = bits_of(after)
    if not said:  # its matrices are plain
        assert not any(isinstance(getattr(layer, x), Matrix) for layer in after.layers for x in MATRICES)
        return
    for row, layer in zip(said, after.layers, strict=False):
        for bits, weight in zip(row, (getattr(layer, x) for x in MATRICES), strict=True):
            held = (
                sum(x.numel() * x.element_size() for x in weight.parts.values())
                if isinstance(weight, Matrix)
                else None
            )
            assert held is None or bits == pytest.approx(8 * held / weight.numel())
    assert len(said) == len(after.layers) + 1


@pytest.mark.parametrize(("name", "settings"), first_settings(EVERY))
def test_what_it_tells_has_the_shape_of_the_model_that_it_was_given(
    name: str, settings: dict[str, Any]
) -> None:
    text = weights.random_text()
    before, after = weights.transformed_toy(name, settings, calibration=text)
    findings, spec = text.take_findings(), before.spec
    weights.check_findings(name, findings, spec)
    if "stays" in findings:
        assert [sum(row) for row in findings["stays"].values] == [
            after.spec.heads_at(i) for i in range(spec.n_layers)
        ]
    if "error" in findings:
        for i, row in enumerate(findings["error"].values[:-1]):
            for error, x in zip(row, MATRICES, strict=True):
                was, now = (unpack(getattr(y.layers[i], x)).double() for y in (before, after))
                assert error == pytest.approx(float((was - now).norm() / was.norm()), rel=1e-5)


@pytest.mark.parametrize(("name", "settings"), first_settings(EVERY))
def test_its_words_are_read_back(name: str, settings: dict[str, Any]) -> None:
    one = build("weights", name, settings)
    text = format_transform_list([one, one])  # type: ignore[list-item] # a WeightTransform
    assert [x.record() for x in parse_transform_list(text)] == [one.record(), one.record()]


def test_words_that_name_none_are_refused() -> None:
    for text in ("int5", "int4 group=65", "int4 size=3", "int4 64", "int4++int8"):
        with pytest.raises(ParamError):
            parse_transform_list(text)
    assert parse_transform_list("  ") == [] and len(registry("weights")) >= 2
