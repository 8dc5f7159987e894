"""Compiled: compiled short passes give the text of the plain ones; a sentence says why a pass is not compiled."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
import toys

from decodescope.engine.model.forward import compiled as compiling
from decodescope.engine.model.forward.compiled import (
    CompiledPackage,
    CompileError,
    UncompilableModel,
    compile_passes,
    compiler,
)
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.method import Method
from decodescope.engine.session.session import Session

# compiling takes a quarter of a minute: do it once, not in every process
pytestmark = pytest.mark.xdist_group("compiled")
METHODS = {  # name -> method, and whether its passes are plain: only plain passes run compiled
    "plain": (Method(), True),
    "a tree": (Method.from_names({"drafter": "token_recycling"}), True),
    "evicting": (
        Method.from_names(
            {"drafter": "prompt_lookup", "policy": "key_norm"},
            {"policy": {"low_norm_entries": 6, "recent": 6}},
        ),
        True,
    ),
    "in a window": (
        Method.from_names({"policy": "streaming_llm"}, {"policy": {"sink_tokens": 2, "recent": 8}}),
        False,
    ),
    "leaving early": (Method.from_names({"adaptive_depth": "confidence_exit"}), False),
}


def whole() -> Decoder:
    """A lively toy with one matrix of each layer packed as those of larger models are."""
    made = toys.decoder(seed=toys.LIVELY)
    if hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        for layer in made.layers:
            layer.gate_up = torch.ops.mkldnn._reorder_linear_weight(layer.gate_up, None)
    return made


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Decoder, CompiledPackage]:
    """The toy and its package, made once."""
    try:
        compiler("toy")
    except CompileError:
        pytest.skip("there is no C++ compiler on this machine")
    made = whole()
    return made, compile_passes(made.spec, made.layers, tmp_path_factory.mktemp("packages"))


def text_of(decoder: Decoder, method: Method) -> list[int]:
    session = Session(toys.model(decoder), method, toys.PROMPT, max_new_tokens=40, stop_tokens=[])
    session.start()
    return [x for step in session.stream() for x in step.emitted]


@pytest.mark.nightly
@pytest.mark.parametrize("rows", [1, 2, 5, 16, 64])
def test_a_compiled_pass_gives_the_same_numbers_for_any_number_of_rows(
    package: tuple[Decoder, CompiledPackage], rows: int
) -> None:
    decoder, calls = package[0], []

    def counted(some: list[torch.Tensor]) -> list[torch.Tensor]:
        calls.append(some[0].shape[1])
        return package[1].call(some)

    caches = [KVCache(decoder.spec), KVCache(decoder.spec)]
    logits = []
    for cache, used in zip(caches, (None, dataclasses.replace(package[1], call=counted)), strict=True):
        decoder.compiled = used
        with torch.inference_mode():
            decoder.forward(Feed.causal_chain(toys.PROMPT, 0), cache)
            cache.commit(range(len(toys.PROMPT)))
            logits.append(
                decoder.forward(Feed.causal_chain([k % 13 for k in range(rows)], len(toys.PROMPT)), cache)
            )
    decoder.compiled = None
    torch.testing.assert_close(logits[0], logits[1], atol=2e-4, rtol=1e-4)
    assert calls == [rows] * (decoder.spec.n_layers - 1), "the test needs the package to be called"
    for a, b in zip(*(x.layers for x in caches), strict=True):
        torch.testing.assert_close(a.kv[..., : a.n + a.m, :], b.kv[..., : b.n + b.m, :], atol=1e-4, rtol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize(("method", "is_plain"), METHODS.values(), ids=METHODS)
def test_greedy_text_is_the_same_compiled(
    package: tuple[Decoder, CompiledPackage], method: Method, is_plain: bool
) -> None:
    decoder, one = package
    decoder.compiled, calls = None, []
    plain = text_of(decoder, method)
    decoder.compiled = dataclasses.replace(one, call=lambda some: calls.append(1) or one.call(some))
    assert text_of(decoder, method) == plain
    decoder.compiled = None
    assert (len(calls) > 10) == is_plain, "the test needs both sorts of passes"


def test_a_package_is_made_once_and_opened_without_a_compiler(
    package: tuple[Decoder, CompiledPackage], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = package[1], toys.decoder(seed=1)
    assert not one.kept and [*one.path.parent.iterdir()] == [one.path], "nothing else is left there"
    for layer in other.layers:
        layer.gate_up = torch.ops.mkldnn._reorder_linear_weight(layer.gate_up, None)
    monkeypatch.setattr(compiling, "_make_package", lambda *_: pytest.fail("it was compiled anew"))
    again = compile_passes(other.spec, other.layers, one.path.parent)
    assert again.kept and again.path == one.path, "models of one shape share a package"
    assert again.seconds < one.seconds
    assert "was opened" in again.remark("toy") and "once for this machine" in one.remark("toy")


def test_other_layers_than_those_it_was_made_for_go_plain(package: tuple[Decoder, CompiledPackage]) -> None:
    other = toys.decoder(seed=1)
    other.compiled = dataclasses.replace(package[1], call=lambda _: pytest.fail("these are other weights"))
    assert text_of(other, Method())


def test_without_a_compiler_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toys.decoder()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompileError, match=r"CXX names .no-such-compiler.*install it, or leave --compile"):
        compile_passes(made.spec, made.layers, tmp_path)
    monkeypatch.setattr(compiling.sys, "platform", "win32")
    with pytest.raises(CompileError, match="on Windows: leave --compile out"):
        compiler("toy")


def test_a_compiler_that_fails_and_a_package_that_is_none_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toys.decoder()

    def broken(*_: object) -> None:
        raise RuntimeError("cc1plus: out of luck\n  a trace of a stack")

    monkeypatch.setattr(compiling, "compiler", lambda _: "g++")
    monkeypatch.setattr(compiling, "_compile", broken)
    with pytest.raises(
        CompileError,
        match=r"failed on the passes of toy \(RuntimeError: cc1plus: out of luck\): leave --compile",
    ):
        compile_passes(made.spec, made.layers, tmp_path)
    assert not [*tmp_path.iterdir()]
    monkeypatch.setattr(compiling, "_compile", lambda module, weights, path: path.write_bytes(b"no package"))
    with pytest.raises(CompileError, match=r"cannot be opened .*: remove it, or leave --compile out"):
        compile_passes(made.spec, made.layers, tmp_path)


def test_what_is_not_compiled_says_why() -> None:
    made = toys.transformed_decoder("int8", toys.decoder())
    with pytest.raises(
        UncompilableModel, match="stored in few bits, which is not compiled: it runs as without --compile"
    ):
        compiling.weights_of(made.spec, made.layers)
    with pytest.raises(UncompilableModel, match="has one layer"):
        compiling.weights_of(made.spec, made.layers[:1])
