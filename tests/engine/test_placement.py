"""The type in which a model is loaded, the memory that it takes, its speed and what would fit, before it is loaded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from decodescope.engine.core.component import registry
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.cost.hardware import HardwareProfile, save_profile
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.session import load as loading
from decodescope.engine.session import placement
from decodescope.engine.session.load import describe, load
from decodescope.engine.session.placement import (
    DTYPES,
    SHIPPED,
    Room,
    default_dtype,
    fitting_choices,
    most_tokens_per_second,
    weight_bytes,
)
from decodescope.engine.timing.measure import profile_key

CPU = torch.device("cpu")
SMALL = SHIPPED / "lab-draft"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of a shipped model, which is no shipped one."""
    return Path(shutil.copytree(SMALL, tmp_path / "mine"))


def stored_as(folder: Path, dtype: torch.dtype) -> Path:
    """The model of a folder, with its numbers stored in this type, but for one small tensor."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    least = min(tensors, key=lambda x: tensors[x].numel())
    save_file(
        {x: y.to(torch.float32 if x == least else dtype).contiguous() for x, y in tensors.items()}, path
    )
    return folder


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_a_folder_is_loaded_in_the_type_of_most_of_its_numbers(copied: Path, name: str) -> None:
    folder = stored_as(copied, DTYPES[name])
    assert default_dtype(folder) == load(folder, device="cpu").decoder.dtype == DTYPES[name]
    assert load(folder, "float64", "cpu").decoder.dtype == torch.float64, "who asks for a type gets it"


def test_shipped_models_are_loaded_in_float32_although_they_are_stored_in_fewer_bits(copied: Path) -> None:
    assert default_dtype(copied) == torch.bfloat16, "the guard: its file stores another type"
    for name in ("lab-draft", SMALL):
        assert load(name, device="cpu").decoder.dtype == torch.float32


def test_what_cannot_be_read_has_a_type_and_is_refused_by_loading(tmp_path: Path) -> None:
    assert default_dtype(tmp_path) == torch.float32


def profile(monkeypatch: pytest.MonkeyPatch, home: Path, **more: Any) -> HardwareProfile:
    """A measured machine in a data folder of the test's own: it reads 1 GB/s and computes without end."""
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    one = HardwareProfile("a machine", {"float32": 1e18}, 1e9, 0.0, **more)
    save_profile(one, profile_key("float32", CPU))
    return one


def test_a_speed_follows_from_the_bytes_that_a_pass_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = describe(SMALL, "lab-draft")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nothing"))
    assert most_tokens_per_second(SMALL, spec, torch.float32, CPU) is None, "nothing was measured"
    profile(monkeypatch, tmp_path)
    speeds = {x: most_tokens_per_second(SMALL, spec, DTYPES[x], CPU) for x in ("float32", "bfloat16")}
    whole, half = speeds["float32"], speeds["bfloat16"]
    assert whole is not None and half is not None and half == pytest.approx(2 * whole, rel=0.02)
    read = 4 * spec.params + spec.kv_bytes(placement.HELD, 4)
    assert 0.5 < whole * read / 1e9 < 1, "activations and scores are moved too"


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_the_bits_that_a_transform_announces_are_those_of_its_result(name: str) -> None:
    for dtype in ("float32", "bfloat16"):
        model = load("lab-draft", dtype, "cpu", weights=name)
        due = registry("weights")[name]().stored_bits(8 * DTYPES[dtype].itemsize)  # type: ignore[attr-defined] # a transform's
        bits = [x for row in model.spec.bits[:-1] for x in row]
        assert bits and max(abs(x - due) for x in bits) < 0.7, "a scale for each row comes to some of a bit"


def choices(spec: ModelSpec, dtype: torch.dtype, room: Room) -> list[str]:
    """The ways that fit, each of them checked against the room."""
    found = fitting_choices(SMALL, spec, dtype, CPU, room)
    assert all(x.size <= room.weights or "compression" in x.words for x in found)
    return [x.words for x in found]


def test_what_would_fit_is_named_with_the_least_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = describe(SMALL, "lab-draft")
    sizes = {x: weight_bytes(SMALL, spec, y, CPU) for x, y in DTYPES.items()}
    enough = Room(sizes["float32"], sizes["float32"])
    assert choices(spec, torch.float64, enough)[0] == "the type float32", "the one that keeps most"
    half = Room(sizes["bfloat16"], sizes["bfloat16"])
    assert choices(spec, torch.float32, half)[0] == "the type bfloat16"
    assert choices(spec, torch.bfloat16, Room(1000, 1000)) == []
    whole = Room(sizes["float32"], int(0.85 * sizes["float32"]), 1)
    assert "the weight compression int8" in choices(spec, torch.float32, whole), "it is loaded whole at first"
    assert not [x for x in choices(spec, torch.float32, half) if "compression" in x]


def test_loading_what_does_not_fit_is_refused_with_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    size = weight_bytes(SMALL, describe(SMALL, "lab-draft"), torch.float32, CPU)
    monkeypatch.setattr(loading, "free_bytes", lambda device: size)
    with pytest.raises(LoadError, match=r"or a smaller model: the type float32 \(0\.0 GiB\).* would fit\.$"):
        load("lab-draft", "float64", "cpu")
    assert load("lab-draft", "float32", "cpu").decoder.dtype == torch.float32


def test_a_file_of_fewer_bits_is_named_where_kernels_multiply_it_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = describe(SMALL, "lab-draft")
    most = (
        4 * spec.vocab * spec.d_model + int(spec.params * 34 / 32) + 1
    )  # a block of 32 numbers takes 34 bytes
    room = Room(most, most)
    for kernels, due in (("rows", ["a GGUF file of it in Q8_0 or fewer bits"]), ("torch", [])):
        monkeypatch.setattr(placement, "expected_kernels", lambda dtype, device, name=kernels: name)
        assert [x for x in choices(spec, torch.float32, room) if "GGUF" in x] == due
