"""What every transform of weights keeps: the model that it was made of, real bytes, one law for every way to read a text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toys
from sizes import first_settings

from decodescope.engine.core.component import KINDS, OF_MODEL, build, registry
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.weights import (
    MATRICES,
    CalibrationData,
    WeightTransform,
    bits_of,
    format_transform_list,
    parse_transform_list,
)
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.matrix import Matrix, unpack
from decodescope.engine.model.stores.cache import KVCache

EVERY = toys.variants("weights")
TEXT = CalibrationData(
    lambda: torch.randint(toys.SPEC.vocab, (4096,), generator=torch.Generator().manual_seed(3))
)


def transformed(
    name: str, settings: dict[str, Any], dtype: torch.dtype = torch.float32
) -> tuple[Decoder, Decoder]:
    """The toy, and what the transform makes of it."""
    before = toys.decoder(dtype=dtype).pack_weights()
    one = build("weights", name, settings)
    assert isinstance(one, WeightTransform)
    return before, one.transform(before, TEXT)


def logits(decoder: Decoder, tokens: list[int]) -> torch.Tensor:
    """Of one pass over a text without a cache."""
    return decoder.forward(Feed.causal_chain(tokens, 0), None)


def test_kinds_of_a_model_are_none_of_a_method() -> None:
    assert set(OF_MODEL) == {"weights"} and not set(OF_MODEL) & set(KINDS)


@pytest.mark.parametrize(("name", "settings"), first_settings(EVERY))
def test_the_model_that_it_was_made_of_stays_as_it_was(name: str, settings: dict[str, Any]) -> None:
    fresh = toys.decoder().pack_weights()
    before, after = transformed(name, settings)
    for one, other in zip(before.layers, fresh.layers, strict=True):
        assert all(torch.equal(unpack(getattr(one, x)), unpack(getattr(other, x))) for x in MATRICES)
    assert torch.equal(logits(before, toys.PROMPT), logits(fresh, toys.PROMPT))
    assert not torch.equal(logits(after, toys.PROMPT), logits(before, toys.PROMPT)), "it is another model"
    assert before.embed is after.embed or after.embed.shape != before.embed.shape


@pytest.mark.parametrize(
    ("name", "settings", "dtype"), first_settings(EVERY, [torch.float32, torch.bfloat16, torch.float64])
)
def test_a_text_has_one_law_however_it_is_read(
    name: str, settings: dict[str, Any], dtype: torch.dtype
) -> None:
    """At once, token by token behind a cache, and by the same weights as plain tensors."""
    _, after = transformed(name, settings, dtype)
    once = logits(after, toys.PROMPT)[0]
    cache = KVCache(after.spec, dtype=dtype)
    rows = []
    for i, token in enumerate(toys.PROMPT):
        rows.append(after.forward(Feed.causal_chain([token], i), cache)[0])
        cache.commit([0])
    slack = 0.3 if dtype == torch.bfloat16 else 1e-4
    assert torch.allclose(torch.cat(rows), once, atol=slack)
    assert after.to(dtype).spec == after.spec
    assert torch.allclose(logits(after.to(dtype), toys.PROMPT)[0], once, atol=slack), "moved"


@pytest.mark.parametrize(("name", "settings"), first_settings(EVERY))
def test_bits_are_counted_from_storages(name: str, settings: dict[str, Any]) -> None:
    _, after = transformed(name, settings)
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
    TEXT.take_findings()
    before, after = transformed(name, settings)
    findings, spec = TEXT.take_findings(), before.spec
    assert findings.keys() == registry("weights")[name].finds.keys(), "it tells what it declares"  # type: ignore[attr-defined] # as above
    for finding in findings.values():
        assert finding.word and finding.what and finding.shape_problem(spec.n_layers, spec.n_heads) is None
        assert finding.values and not finding.what.endswith(".")
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
