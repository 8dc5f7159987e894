"""The tensors of published heads: safetensors, or a pickle file where that was allowed; checked before they are read."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec

from ...checkpoint.folder import LoadError, escape_unprintable, member_file
from ...checkpoint.keys import Config
from ...checkpoint.weights import FREQUENCIES, HEADER_BYTES, TENSORS, CheckpointTensors, Shape

LARGEST = 1 << 24  # of a number in a config
SUFFIXES = (".safetensors", ".pt", ".bin", ".pth")  # in this order
EMBEDDING = "embed_tokens.weight"  # of a head that has one of its own
UNKNOWN_TARGET = "its target"  # the name of a target that is not there, when a folder is described alone
CPU = torch.device("cpu")
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WHOLE = (
    "d2t",
    "t2d",
)  # tensors that may hold whole numbers or marks: EAGLE-3's lists of its draft vocabulary


class TensorReader(Protocol):
    """Reads tensors by name; `Weights` does it for safetensors."""

    shapes: dict[str, Shape]
    frequencies: dict[str, Tensor]

    def read(self, names: list[str], dtype: torch.dtype, device: torch.device) -> Tensor:
        """The tensors `names`, stacked along their first axis, every number finite."""
        ...


class LayerMapping(NamedTuple):
    """A linear layer: its name in our net and in the file, the shape [out, in] of its matrix, and whether it has a bias. Or a
    norm, of shape [d], which is a plain parameter of ours."""

    ours: str
    theirs: str
    shape: Shape
    bias: bool = True


@dataclass
class PublishedFolder:
    """A folder of published heads, opened. config: its config.json;  spec: the target's;  remarks: sentences about its
    contents and how they were read;  layer: the table of `config` with the words of a model's config, or `config` itself
    settings: what the reference asks for behind an @, by name;  usual_family: the model_type of a `layer` that gives none"""

    folder: Path
    title: str
    config: Config
    spec: ModelSpec
    tensors: TensorReader
    remarks: list[str] = field(default_factory=list)
    layer: Config = field(default=None)  # type: ignore[assignment] # set below
    settings: dict[str, str] = field(default_factory=dict)
    usual_family: str = "llama"

    def __post_init__(self) -> None:
        self.layer = self.config if self.layer is None else self.layer
        self._open_settings = set(self.settings)

    @property
    def family(self) -> str:
        """The model_type of the layer."""
        return str(self.layer.get("model_type") or self.usual_family)

    @property
    def embedding_shape(self) -> dict[str, Shape]:
        """The tensor of an own embedding, which may be in the file."""
        return {EMBEDDING: (self.spec.vocab, self.spec.d_model)}

    @property
    def unread_settings(self) -> list[str]:
        """The settings that nothing has asked for, in order."""
        return sorted(self._open_settings)

    def setting(self, name: str, values: Sequence[str]) -> str | None:
        """The setting `name` of the reference, one of `values`; None if it is not given."""
        self._open_settings.discard(name)
        value = self.settings.get(name)
        if value is not None and value not in values:
            raise self.refusal(f"is given {name}={value[:40]}, which must be {' or '.join(values)}.")
        return value

    def remark(self, what: str, whose: str = "The config.json of ") -> None:
        """Add a remark: the folder, and `what` is said about it."""
        self.remarks.append(escape_unprintable(f"{whose}{self.folder} {what}"))

    def remark_target(self, made_for: object, key: str) -> None:
        """A remark where the config's `key` names another target than the given one."""
        name = self.spec.name
        if not isinstance(made_for, str) or not made_for or name == UNKNOWN_TARGET:
            return
        if _last_name(made_for) != _last_name(name):
            self.remark(
                f"says that it was made for {made_for[:60]} ({key}), and this target is called {name[:60]}: if that is "
                "another model, its guesses are worse."
            )

    @property
    def shapes(self) -> dict[str, Shape]:
        """Every tensor's shape, by name."""
        return self.tensors.shapes

    def check(self, wanted: Mapping[str, Shape], spare: Mapping[str, Shape] | None = None) -> None:
        """LoadError unless the tensors are those `wanted`, and `spare` ones, which may be there or not."""
        known = {**(spare or {}), **wanted}
        odd = [x for x in {**self.shapes, **wanted} if self.shapes.get(x) != known.get(x)]
        if odd:
            raise LoadError(
                f"{self.folder}: {min(odd)[:80]} is missing, unknown, or of another shape than {self.title} for "
                f"{self.spec.name} have; give heads of this very model, or download them again."
            )

    def linear_tensors(
        self, layers: Sequence[LayerMapping], spare: Mapping[str, Shape] | None = None
    ) -> dict[str, Tensor]:
        """The weights and biases of layers by our names, which must be, with `spare` ones, all that the file holds."""
        parts = [(x, "weight", x.shape) for x in layers] + [
            (x, "bias", x.shape[:1]) for x in layers if x.bias
        ]
        self.check({f"{x.theirs}.{part}": shape for x, part, shape in parts}, spare)
        ours = [x.ours if len(x.shape) == 1 else f"{x.ours}.{part}" for x, part, _ in parts]
        return {name: self.take(f"{x.theirs}.{part}") for name, (x, part, _) in zip(ours, parts, strict=True)}

    def repeated_names(self, names: list[str]) -> list[str]:
        """The file's names of one block that the authors repeat: all share its weights, so a file may hold the first alone."""
        return [x if f"{x}.weight" in self.shapes else names[0] for x in names]

    def take(self, name: str) -> Tensor:
        """The tensor `name` in float32 on the CPU; LoadError where a number is not finite."""
        return self.tensors.read([name], torch.float32, CPU)

    def take_integers(self, name: str) -> Tensor:
        """The tensor `name`, one of WHOLE, as int64 on the CPU; LoadError where a number is not whole."""
        numbers = self.tensors.read([name], torch.float64, CPU)
        if not torch.equal(numbers, numbers.round()):
            raise self.refusal(f"holds numbers in {name} that are not whole; download it again.")
        return numbers.to(torch.int64)

    def number(self, name: str, usual: int, most: int, config: Config | None = None) -> int:
        """A whole number of the config from 0 to `most`; `usual` if it is missing or null."""
        x = (self.config if config is None else config).get(name)
        x = usual if x is None else x
        if type(x) is not int or not 0 <= x <= most:
            raise LoadError(
                f"{self.folder}: {name} is {str(x)[:40]} and must be a whole number up to {most}."
            )
        return x

    def positive_number(self, name: str, usual: float, most: float, config: Config | None = None) -> float:
        """A number of the config above 0 and up to `most`; `usual` if it is missing or null."""
        x = (self.config if config is None else config).get(name)
        x = usual if x is None else x
        if isinstance(x, bool) or not isinstance(x, int | float) or not 0 < x <= most:
            raise self.refusal(
                f"says {name} = {str(x)[:40]}, which must be a number above 0 and up to {most:g}."
            )
        return float(x)

    def flag(self, name: str, usual: bool = False, config: Config | None = None) -> bool:
        """A boolean of the config; `usual` if it is missing or null."""
        x = (self.config if config is None else config).get(name)
        if x is not None and not isinstance(x, bool):
            raise self.refusal(f"says {name} = {str(x)[:40]}, which must be true or false.")
        return usual if x is None else x

    def table(self, name: str, config: Config | None = None) -> Config:
        """A table of the config; empty where there is none."""
        x = (self.config if config is None else config).get(name)
        if x is not None and not isinstance(x, Config):
            raise self.refusal(f"says {name} = {str(x)[:40]}, which must be a table.")
        return Config({}) if x is None else x

    def expect(self, values: Mapping[str, Sequence[Any]], config: Config | None = None) -> None:
        """LoadError if the config gives a key of `values` another value than those; null and silence ask for nothing."""
        for key, known in values.items():
            x = (self.config if config is None else config).get(key)
            if x is not None and not any(type(x) is type(value) and x == value for value in known):
                which = " or ".join(map(str, known))
                raise self.refusal(
                    f"says {key} = {str(x)[:40]} in its config.json, and only {which} can be read; give others."
                )

    def remark_mismatch(self, key: str, value: int) -> None:
        """A remark where the config gives for `key` another whole number than the file of weights has."""
        x = self.number(key, value, LARGEST)
        if x != value:
            what = f"The config.json of {self.folder} gives {key} = {x}, its file of weights has {value}"
            self.remarks.append(escape_unprintable(f"{what}: the file counts."))

    def refusal(self, what: str) -> LoadError:
        """The error with the message `what` about this folder."""
        return LoadError(f"{self.folder} {what}")


def _last_name(path: str) -> str:
    """The last part of a name or path, without transforms, adapters and what a GGUF file adds, as names are compared."""
    path = path.partition("@")[0].partition("+")[0].rstrip("/\\").replace("\\", "/").rpartition("/")[2]
    return re.sub(r"[-.](I?Q\d\w*|B?F16|F32)$", "", path.removesuffix(".gguf"), flags=re.IGNORECASE).lower()


def file_of(folder: Path, stems: tuple[str, ...]) -> Path | None:
    """The first file of that name that the folder holds, safetensors before others."""
    candidates = (member_file(folder, stem + suffix) for suffix in SUFFIXES for stem in stems)
    return next((x for x in candidates if x is not None), None)


@contextmanager
def open_tensors(path: Path, *more: Path, allow_pickle: bool = False) -> Iterator[TensorReader]:
    """The tensors of a file, and those of `more` safetensors files. Raises LoadError for a pickle file that was not allowed,
    and for whatever is damaged."""
    if path.suffix == ".safetensors":
        with CheckpointTensors(path.parent, [path, *more], WHOLE) as weights:
            yield weights
        return
    if not allow_pickle:
        raise LoadError(
            f"{path} is a pickle file, which may be made to run code, and is not opened unasked; save its tensors as "
            f"{path.stem}.safetensors, or say --allow-pickle (in Python allow_pickle=True) if you trust where it is from."
        )
    yield PickledTensors(path)


class PickledTensors:
    """The tensors of a file that torch.save wrote. It is mapped, not read, by torch's restricted unpickler, which knows
    tensors and plain containers and calls nothing else; anything but a dictionary of whole float tensors is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                parts = archive.infolist()
            packed = any(x.compress_type != zipfile.ZIP_STORED for x in parts)
            large = any(x.file_size > HEADER_BYTES for x in parts if x.filename.endswith(".pkl"))
            loaded = None if packed or large else torch.load(str(path), CPU, weights_only=True, mmap=True)
        except Exception as error:  # a foreign file can make torch raise anything; all of it means the same
            raise LoadError(
                f"{path} cannot be read as tensors alone ({type(error).__name__}); download it again."
            ) from None
        if (
            not isinstance(loaded, Mapping)
            or len(loaded) > TENSORS
            or not all(map(_is_plain, loaded, loaded.values()))
        ):
            raise LoadError(
                f"{path} is no dictionary of whole float tensors; save its tensors as safetensors."
            )
        self._tensors: dict[str, Tensor] = {k: x for k, x in loaded.items() if not k.endswith(FREQUENCIES)}
        self.frequencies: dict[str, Tensor] = {
            k: x.clone() for k, x in loaded.items() if k.endswith(FREQUENCIES)
        }
        self.shapes: dict[str, Shape] = {name: tuple(x.shape) for name, x in self._tensors.items()}

    def read(self, names: list[str], dtype: torch.dtype, device: torch.device) -> Tensor:
        """The tensors `names`, stacked along their first axis into memory of our own, cast once."""
        tensor = torch.cat([self._tensors[x].detach() for x in names]).to(device, dtype, copy=True)
        if not torch.stack(tensor.aminmax()).isfinite().all():
            raise LoadError(
                f"{self.path}: {names[0][:80]} holds numbers that are not finite; download it again."
            )
        return tensor


def _is_plain(name: object, x: object) -> bool:
    """True if x is a whole tensor in memory, not a view of fewer numbers than it shows: of floats, except the WHOLE ones."""
    if not isinstance(name, str) or type(x) not in (Tensor, torch.nn.Parameter):
        return False
    assert isinstance(x, Tensor)
    dtypes = (*FLOATS, torch.int64, torch.int32, torch.bool) if name in WHOLE else FLOATS
    return (
        x.layout == torch.strided
        and x.device == CPU
        and x.dtype in dtypes
        and x.is_contiguous()
        and x.numel() > 0
    )
