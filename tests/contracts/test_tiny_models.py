"""Every part runs with the smallest models, or is refused in a sentence: one or two tokens, one layer or head, narrow heads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
import toys
from acting import ONE_EACH, PARTS, Part, method_with, opened
from sizes import by_turns, thinned

from decodescope.engine.core.spec import ModelSpec, PictureSpec, Rope
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.session.load import Model
from decodescope.engine.trace import check

TINY: dict[str, dict[str, Any]] = {
    "one token": dict(vocab=1, pad_token=0),
    "two tokens": dict(vocab=2, pad_token=0),
    "one layer": dict(n_layers=1),
    "one head": dict(n_heads=1, n_kv_heads=1),
    "one KV head": dict(n_kv_heads=1),
    "narrow heads": dict(head_dim=2, rope=Rope(dim=2)),
}


@pytest.fixture(autouse=True)
def fitting_heads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draft heads made for another vocabulary or another layer are refused when they are read."""
    shapes = toys.SHAPES
    monkeypatch.setattr(toys, "SHAPES", {kind: dict(shape) for kind, shape in shapes.items()})
    yield


def shaped(name: str, **more: Any) -> ModelSpec:
    """The toy's shape with the sizes of this name; the shapes of its heads follow."""
    spec = toys.toy_spec(**{**TINY[name], **more})
    for shape in toys.SHAPES.values():
        shape.update(
            {
                size: n
                for size, n in (("vocab", spec.vocab), ("kept", max(1, spec.vocab - 2)))
                if size in shape
            }
        )
        if spec.n_layers == 1 and "layer" in shape:
            shape["layer"] = 0
    return spec


def made(spec: ModelSpec) -> Model:
    return toys.model(toys.decoder(spec, toys.LIVELY, torch.float64))


def target_of(name: str, strategy: Any) -> Model:
    """A model of these sizes that fits a strategy."""
    vocab = shaped(name).vocab
    if strategy.sides == "both":
        return made(shaped(name, causal=False, heads=("learn2pd", "edit"), mask_token=vocab - 1))
    levels = tuple(x for x in toys.LEVELS if x < vocab)
    if strategy.writes == "rows":
        return made(shaped(name, heads=(), picture=PictureSpec(8, 8, levels)))
    if strategy.writes == "cells":
        cells = tuple(range(vocab, vocab + 64))
        return made(shaped(name, heads=(), vocab=vocab + 64, picture=PictureSpec(8, 8, levels, cells)))
    if strategy.writes == "blocks":
        return made(shaped(name, heads=("block_transformer",), block_length=4))
    return made(shaped(name))


def helpers(name: str) -> dict[str, Model]:
    """A model of these sizes in every role."""
    target = made(shaped(name))
    small, *more = (toys.model(toys.noisy_decoder(target.decoder, 0.08, seed=n)) for n in (1, 2, 3))
    infill = made(shaped(name, causal=False, heads=(), mask_token=target.spec.vocab - 1))
    return {
        "draft": small,
        "amateur": small,
        "short": small,
        "infill": infill,
        "draft2": more[0],
        "draft3": more[1],
    }


@cache
def prompt_of(vocab: int) -> tuple[int, ...]:
    return tuple(x % vocab for x in toys.PROMPT)


def works_or_is_refused(part: Part, name: str) -> None:
    """Both greedily and sampled."""
    for warm in (True, False):
        method = method_with(part, warm)
        target, models = target_of(name, method.strategy), helpers(name)
        if method.sampler.reads_text:
            target, models = (
                toys.add_tokenizer(target),
                {role: toys.add_tokenizer(x) for role, x in models.items()},
            )
        session = opened(method, target, models, [*prompt_of(target.spec.vocab)], max_new_tokens=6)
        if session is None:
            continue
        try:
            toys.finish_session(session)
        except EngineFault as fault:
            assert fault.reason == "bad_input" and str(fault).endswith("."), fault
        report = check(session.sink)
        assert report.ok, str(report)


@pytest.mark.parametrize(("part", "name"), by_turns(2, thinned(8, ONE_EACH, TINY)))
def test_a_part_works_with_a_tiny_model_or_is_refused_by_a_sentence(part: Part, name: str) -> None:
    works_or_is_refused(part, name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_works_with_a_tiny_model_in_every_setting(part: Part, name: str) -> None:
    works_or_is_refused(part, name)
