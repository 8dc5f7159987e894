"""Methods and transforms on models whose matrices stay as a GGUF file stores them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import toys
from gguf import GGMLQuantizationType as Kind
from gguf_files import pack_decoder, unpack_decoder, write_decoder
from sizes import first_of, first_settings

from decodescope.engine import run
from decodescope.engine.core.component import build
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.decoding.bases.weights import (
    MATRICES,
    CalibrationData,
    WeightTransform,
    format_transform_list,
)
from decodescope.engine.kernels.choice import kernels_set_to
from decodescope.engine.model.checkpoint.gguf import source
from decodescope.engine.model.checkpoint.tokenizer import _byte_letters
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.gguf_matrix import GgufMatrix
from decodescope.engine.session.load import Model, calibration, load
from decodescope.engine.session.session import Session
from decodescope.engine.trace import check

COUNT = 24


@pytest.fixture(scope="module", autouse=True)
def kernels() -> Iterator[None]:
    """The kernels that multiply packed matrices; their rows have the same bits however many are multiplied."""
    with kernels_set_to("rows"), torch.no_grad():
        yield


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    source._derive_folder.cache_clear()


@cache
def packed_models() -> dict[str, Model]:
    """The lively toy and a model in every role, all packed."""
    target, _ = toys.pair(torch.float32)
    models = {"target": target, **toys.helper_models(torch.float32)}
    causal = {role: toys.model(pack_decoder(x.decoder)) for role, x in models.items() if x.spec.causal}
    for role, x in causal.items():
        x.decoder.heads = models[role].decoder.heads
    return {**models, **causal}


@cache
def plain_models() -> dict[str, Model]:
    """The same with the same numbers in plain rows."""
    return {
        role: toys.model(unpack_decoder(x.decoder)) if x.spec.causal else x
        for role, x in packed_models().items()
    }


def finished(models: dict[str, Model], **parts: Any) -> Session:
    """A finished run of a method."""
    method = toys.method(**parts)
    more = {role: x for role, x in models.items() if role != "target"}
    return toys.finish_session(
        Session(models["target"], method, toys.PROMPT, models=more, max_new_tokens=COUNT)
    )


@pytest.mark.parametrize(("name", "settings"), first_settings(toys.variants("drafter")))
def test_every_drafter_writes_the_text_of_a_packed_model(name: str, settings: dict[str, Any]) -> None:
    session = finished(packed_models(), drafter=(name, settings))
    text = session.tokens[len(toys.PROMPT) :]
    assert text == toys.cached_greedy_text(packed_models()["target"], toys.PROMPT, COUNT)
    report = check(toys.session_trace(session))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "kind", first_of("adaptive_depth", "policy", "kv_compression", "acceptance", "guidance")
)
def test_a_part_writes_the_same_on_packed_and_on_plain_rows(kind: str) -> None:
    """Early exits, layers that are left out, caches: the numbers of both models are the same, and so is every choice."""
    texts = []
    for name, settings in toys.representatives(kind):
        packed, plain = (
            finished(x, **{kind: (name, settings)}).tokens for x in (packed_models(), plain_models())
        )
        assert packed == plain, name
        texts.append(tuple(packed))
    assert len(set(texts)) > (kind not in ("acceptance", "kv_compression")), "the guard: some change the text"


def prompt_logits(decoder: Decoder) -> torch.Tensor:
    """float [T, V] of one pass over the toy's prompt."""
    return decoder.forward(Feed.causal_chain(toys.PROMPT, 0), None)[0]


def random_text() -> CalibrationData:
    """Random tokens of the toy's vocabulary."""
    draw = torch.Generator().manual_seed(3)
    return CalibrationData(lambda: torch.randint(toys.SPEC.vocab, (4096,), generator=draw))


@pytest.mark.parametrize(("name", "settings"), first_settings(toys.variants("weights")))
def test_a_transform_takes_packed_rows_as_their_numbers_or_says_why_not(
    name: str, settings: dict[str, Any]
) -> None:
    packed, plain = (x["target"].decoder for x in (packed_models(), plain_models()))
    before = [getattr(layer, x).parts["rows"].clone() for layer in packed.layers for x in MATRICES]
    transform = cast(WeightTransform, build("weights", name, settings))
    with torch.enable_grad():
        due = transform.transform(plain, random_text())
        try:
            after = transform.transform(packed, random_text())
        except Refusal as error:
            assert "name it before what stores them in fewer bits" in str(error) and "\n" not in str(error)
            return
    assert torch.equal(prompt_logits(after), prompt_logits(due))
    rows = [getattr(layer, x).parts["rows"] for layer in packed.layers for x in MATRICES]
    assert all(map(torch.equal, before, rows)), "the model that it was made of stays as it was"


@pytest.mark.parametrize(("name", "settings"), first_settings(toys.variants("weights")))
def test_a_file_is_dequantised_before_every_transform(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """As on the same numbers in plain rows; those that read a text read it with the tokenizer of the file."""
    toy = toys.decoder(toys.toy_spec(vocab=258, heads=()), toys.LIVELY)
    words = {
        "tokenizer__ggml__model": "gpt2",
        "tokenizer__ggml__pre": "gpt-2",
        "tokenizer__ggml__tokens": [*_byte_letters(), "ab", "<end>"],
        "tokenizer__ggml__token_type": [1] * 257 + [3],
        "tokenizer__ggml__merges": ["a b"],
    }
    path = write_decoder(tmp_path / "toy.gguf", toy, Kind.Q8_0, **words)
    plain = load(path, "float32", "cpu")
    assert all(isinstance(getattr(layer, x), GgufMatrix) for layer in plain.decoder.layers for x in MATRICES)
    transform = cast(WeightTransform, build("weights", name, settings))
    dense = load(path, "float32", "cpu", keep_packed=False)
    with torch.enable_grad():
        made = load(f"{path}@{format_transform_list([transform])}", "float32", "cpu")
        due = transform.transform(dense.decoder, CalibrationData(lambda: calibration(dense.path, dense.name)))
    assert torch.equal(prompt_logits(made.decoder), prompt_logits(due)) and made.tokenizer is not None
    assert not torch.equal(prompt_logits(made.decoder), prompt_logits(plain.decoder))
    assert len(run(made, None, toys.PROMPT, max_new_tokens=4).tokens) == 4
