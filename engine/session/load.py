"""load: a model by name, folder or hub id, ready to decode."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from decodescope.engine.core.arguments import format_value
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.paths import PathRefusal, expand_path, is_model_path
from decodescope.engine.core.paths import shorten_path as path_shown
from decodescope.engine.core.progress import Progress
from decodescope.engine.core.reference import with_weights, without_weights
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.weights import (
    CalibrationData,
    WeightTransform,
    bits_of,
    format_transform_list,
    parse_transform_list,
)
from decodescope.engine.decoding.values.alphabet import Alphabet
from decodescope.engine.decoding.values.transform_result import TransformCache, default_folder
from decodescope.engine.kernels.choice import KernelError, require_kernels
from decodescope.engine.model.checkpoint import adapter as adapters
from decodescope.engine.model.checkpoint.config import (
    count_modules,
    key_remarks,
    length_remarks,
    spec_from_config,
)
from decodescope.engine.model.checkpoint.folder import (
    LoadError,
    escape_unprintable,
    hash_file,
    read_ends,
    read_json,
)
from decodescope.engine.model.checkpoint.generation import generation_remarks
from decodescope.engine.model.checkpoint.gguf.header import model_name
from decodescope.engine.model.checkpoint.gguf.source import (
    derived_folder,
    find_gguf,
    models_among,
    parts_of,
    read_gguf_shape,
    source_record,
)
from decodescope.engine.model.checkpoint.gguf.tensors import GgufTensors
from decodescope.engine.model.checkpoint.in_memory import (
    InMemoryModel,
    InMemoryTensors,
    hold_model,
    is_transformers_model,
    stored_digest,
)
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.model.checkpoint.tokenizer_settings import out_of_range_remarks
from decodescope.engine.model.checkpoint.weights import (
    CheckpointTensors,
    TensorSource,
    frequency_remarks,
    module_numbers,
    read_adapter,
    weight_files,
)
from decodescope.engine.model.fetched.catalogue import (
    fetchable_models,
    find_fetchable,
    is_fetched,
    model_path,
)
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import EngineFault, catch_device_faults
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.files import (
    GATES,
    find_head_folders,
    read_head,
    read_heads,
    split_settings,
    unknown_head_remarks,
)
from decodescope.engine.model.layers.devices import DeviceRefusal, device_named
from decodescope.engine.trace.records.events import Made, Piece

from .placement import DTYPES, Room, default_dtype, dense_bytes, fitting_choices, type_name
from .placement import SHIPPED as SHIPPED
from .placement import free_bytes as free_bytes

CALIBRATION = SHIPPED.parent / "calibration.npy"  # ids of SHIPPED_TEXT's tokenizer
SHIPPED_TEXT = SHIPPED / "lab"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
HUB_FILE = re.compile(
    r"([\w-][\w.-]*/[\w-][\w.-]*):((?:[\w-][\w.-]*/){0,3}[\w-][\w.-]*\.gguf)"
)  # of a hub's repository

# what is fetched of a repository of the hub
TEXT_FILES = ("*.json", "chat_template.jinja")
WEIGHT_FILES = "model*.safetensors"
HEAD_FILES = ("config.json", "*.safetensors", "*_lm_head.pt", "pytorch_model.bin")  # the same of draft heads


@dataclass
class Model:
    """A decoder and what belongs to it.

    path: its folder; of a GGUF file the one derived from it
    spec.adapter: the adapter of that folder that is merged into the weights;  spec.weights: the transforms of the weights
    fingerprint: 16 hex digits over config and weights, the adapter's and the transforms' too; equal ones mean equal models
    stop_tokens: ids that end a text, ascending
    reports: what each of the transforms found
    remarks: sentences about how its files were read: keys of a config.json that are not read (of the model, its adapter and its
             heads), contradictions in it, and which results of transforms were written to the cache or taken from it
    held:    the model of transformers that it was made from, if any
    """

    name: str
    path: Path
    spec: ModelSpec
    decoder: Decoder
    tokenizer: Tokenizer | None
    fingerprint: str
    stop_tokens: list[int]
    reports: list[Made] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    held: InMemoryModel | None = None

    @property
    def reference(self) -> str:
        """Folder or GGUF file, adapter and transforms, as `load` takes them."""
        record = source_record(self.path)
        path = self.path if record is None else record.path
        return str(with_weights(adapters.join_reference(path, self.spec.adapter), self.spec.weights))

    @cached_property
    def pieces(self) -> list[bytes]:
        """id -> the bytes that it encodes; built on first use. Requires a tokenizer."""
        assert self.tokenizer is not None, "ids without a tokenizer have no text"
        return [self.tokenizer.bytes_of(x) for x in range(self.decoder.vocab)]

    @property
    def words(self) -> tuple[Callable[[int], Piece] | None, frozenset[int], list[int]]:
        """What a prompt compression may ask about words: pieces, marks, and the ids at the beginning of a text.

        These ids are the tokenizer's own beginning, else the token that ends texts. A stand-in for a tokenizer may only name
        ids.
        """
        front = getattr(self.tokenizer, "front", []) or self.stop_tokens[:1]
        return (
            getattr(self.tokenizer, "piece", None),
            getattr(self.tokenizer, "marks", frozenset()),
            list(front),
        )

    def alphabet(self, vocab: int, stops: frozenset[int]) -> Alphabet | None:
        """The alphabet of the first `vocab` ids for a sampler, in a run that ends at `stops`; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        marks: frozenset[int] = getattr(self.tokenizer, "marks", frozenset())
        # a second model may know fewer ids
        stops, marks = (frozenset(x for x in ids if x < vocab) for ids in (stops, marks))
        return Alphabet(vocab, stops, marks, lambda: self.pieces)


class ModelSource(NamedTuple):
    """A model's name, its folder, and the adapter and the transforms that were asked for with it; empty: none."""

    name: str
    folder: Path
    adapter: str = ""
    weights: str = ""


def load(
    name_or_path: str | Path | torch.nn.Module,
    dtype: str | torch.dtype | None = None,
    device: str | None = None,
    heads: Mapping[str, Path] | None = None,
    allow_pickle: bool = False,
    weights: str = "",
    keep_packed: bool = True,
    tokenizer: Any = None,
) -> Model:
    """Load a model by name: one of the shipped models, a folder (written with a path separator), a GGUF file, or a hub id.

    With +NAME behind it, the adapter in adapters/NAME of its folder is merged into the weights. `weights`: transforms that make
    another model of it, in their order, "int4 group=64"; several are joined with +. They may also follow the name and an @.

    Without `device` the first CUDA device is taken, else the CPU. Without `dtype` a shipped model is loaded in float32, a GGUF
    file in bfloat16, and any other model in the type in which its file stores most numbers. `heads`: folders or hub ids of
    draft heads by kind, ours or published ones, in addition to those in the model's own folder; `allow_pickle`: published
    heads may be read from a pickle file, tensors only. `keep_packed`: matrices of a GGUF file stay as it stores them where the
    kernels multiply them so and there are no transforms; else all are dequantised.

    A model of transformers is taken as it is, in its own type and on its own device, with its `tokenizer`. Its weights are then
    held twice, by transformers and here; only the embedding is shared. Raises LoadError, in one sentence.
    """
    heads = {kind: find_head(x) for kind, x in (heads or {}).items()}
    held = _held_model(name_or_path, tokenizer)
    if held is not None:
        dtype, device = dtype or held.embedding.dtype, device or str(held.embedding.device)
    place = _device(device)
    given = None if dtype is None else named_dtype(dtype)
    asked = _find_source(name_or_path, weights, held)
    name, folder, adapter, made_by = asked
    kind = default_dtype(folder) if given is None else given
    try:
        require_kernels(kind, place)
    except KernelError as error:
        raise LoadError(str(error)) from None
    spec, parts = describe(folder, name, heads, adapter, made_by), parse_transform_list(made_by)
    decoder, reading_remarks = _read_weights(asked, spec, kind, place, keep_packed and not parts, held)
    spec, config = decoder.spec, read_json(folder, "config.json") or {}
    reports, remarks = list[Made](), key_remarks(config, name) + length_remarks(config, spec)
    remarks += generation_remarks(folder, name) + reading_remarks
    if parts:
        decoder, reports, more = _apply_transforms(decoder, parts, asked)
        spec, remarks = decoder.spec, remarks + more
    nets = read_heads(folder, spec, kind, place, heads, allow_pickle, decoder.embed)
    decoder.heads = nets
    remarks += (
        [x for net in nets.values() for x in net.remarks]
        + _foreign_head_remarks(nets, folder, name)
        + unknown_head_remarks(folder)
    )
    reader = Tokenizer.from_folder(folder) if (folder / "tokenizer.json").exists() else None
    stops, odd = read_ends(folder) if reader is None else (set(reader.stop_ids), reader.remarks)
    added = {} if reader is None else reader.added
    odd = [*odd, *out_of_range_remarks(spec, added, stops, read_json(folder, "tokenizer_config.json") or {})]
    remarks = [*(f"{name}: {x}" for x in odd), *remarks]
    if reader is not None and reader.vocab < spec.vocab:
        decoder.usable = reader.vocab  # the rows above pad the matrix to a round size
    decoder.fingerprint = mark = fingerprint(folder, adapter, parts)
    return Model(
        name,
        folder,
        spec,
        decoder,
        reader,
        mark,
        sorted(x for x in stops if x < spec.vocab),
        reports,
        remarks,
        held,
    )


def exchange_heads(model: Model, heads: Mapping[str, Path], allow_pickle: bool = False) -> Model:
    """The same model, with shared weights, and the draft heads in these folders, by kind, for its own of that kind.

    Raises LoadError for heads that are damaged or made for another model.
    """
    old = model.decoder
    nets = {
        kind: read_head(find_head(x), model.spec, kind, old.dtype, old.device, allow_pickle, old.embed)
        for kind, x in heads.items()
    }
    spec = replace(model.spec, heads=tuple(dict.fromkeys((*model.spec.heads, *nets))))
    decoder = old.with_heads(nets)
    decoder.spec = spec
    remarks = [x for net in nets.values() for x in net.remarks]
    remarks += _foreign_head_remarks(nets, model.path, model.name)
    return replace(model, spec=spec, decoder=decoder, remarks=remarks)


def _held_model(model: Any, tokenizer: Any) -> InMemoryModel | None:
    """A model that transformers holds in memory, with its tokenizer; None if a model is named. Raises LoadError."""
    if is_transformers_model(model):
        return hold_model(model, tokenizer)
    if tokenizer is not None:
        raise LoadError(
            "A tokenizer is given beside a model of transformers; a model that is named brings its own, so leave it out."
        )
    return None


def _find_source(model: Any, weights: str, held: InMemoryModel | None) -> ModelSource:
    """Name and folder of a model, and its transforms. Raises LoadError."""
    if held is None:
        return find_model(with_weights(model, weights) if isinstance(model, str | Path) else model)
    listed = _transform_list(weights, held.name)
    return ModelSource(str(with_weights(held.name, listed)), held.folder, "", listed)


def _read_weights(
    asked: ModelSource,
    spec: ModelSpec,
    dtype: torch.dtype,
    device: torch.device,
    keep_packed: bool,
    held: InMemoryModel | None = None,
) -> tuple[Decoder, list[str]]:
    """The decoder with the weights of a model's files, before transforms, and remarks on how they were read."""
    name, folder, *_ = asked
    with Progress(f"loading {name}", spec.n_layers, "layers") as progress, contextlib.ExitStack() as opened:
        stored: TensorSource
        if held is not None:
            stored = in_memory = InMemoryTensors(held, share=not asked.weights)
            stored.check(spec)
            needed = dense_bytes(spec, dtype, device) - in_memory.shared_bytes(spec, dtype, device)
            _check_memory(asked, spec, needed, dtype, device)
        elif source_record(folder) is None:
            needed = dense_bytes(spec, dtype, device)
            if count_modules(read_json(folder, "config.json") or {}):  # one of them is read
                needed += module_numbers(spec) * dtype.itemsize
            _check_memory(asked, spec, needed, dtype, device)
            stored = opened.enter_context(CheckpointTensors(folder))
            stored.check(spec)
        else:
            stored = packed = opened.enter_context(GgufTensors(folder, keep_packed))
            stored.check(spec)
            _check_memory(asked, spec, packed.needed_bytes(spec, dtype, device), dtype, device)
        stored.adapter = read_adapter(folder, spec, fingerprint(folder))
        try:
            decoder = catch_device_faults(lambda: stored.decoder(spec, dtype, device, progress.add), device)
        except EngineFault as error:
            what = "memory ran out" if error.reason == "out_of_memory" else "the device failed"
            raise LoadError(
                f"{name} could not be read: {what} on {device}; use a smaller type or a smaller model."
            ) from None
        decoder.spec = replace(spec, bits=bits_of(decoder))
        remarks = frequency_remarks(stored.frequencies, [spec.rope, spec.local_rope], name)
        remarks += [] if stored.adapter is None else stored.adapter.remarks
        return decoder, remarks + stored.remarks(name, dtype)


def _foreign_head_remarks(nets: Mapping[str, Head], folder: Path, name: str) -> list[str]:
    """Remarks on heads that were trained on another model than the one in `folder`, or an adapter of it.

    Heads that judge the drafts of this model were trained on its target.
    """
    others = {kind: net.made_for for kind, net in nets.items() if net.made_for and kind not in GATES}
    known = {fingerprint(folder)} if others else set()
    if set(others.values()) - known:
        known |= {fingerprint(folder, adapter) for adapter in adapters.adapter_names(folder)}
    here = f"and {name} has {fingerprint(folder)}: their guesses may be worse."
    return [
        escape_unprintable(
            f"The heads {kind} were trained on a model with the fingerprint {mark[:40]}, {here}"
        )
        for kind, mark in others.items()
        if mark not in known
    ]


def _apply_transforms(
    decoder: Decoder, parts: Sequence[WeightTransform], asked: ModelSource
) -> tuple[Decoder, list[Made], list[str]]:
    """Apply the transforms to the model, one after another.

    Returns the model, what the transforms found, and remarks on results that were kept; its shape records the bits of its
    matrices.
    """
    text = CalibrationData(lambda: calibration(asked.folder, asked.name))
    reports = list[Made]()
    remarks = list[str]()
    with Progress(f"making {asked.name}", len(parts), "transforms") as progress:
        for k, one in enumerate(parts):
            text.shelf = shelf = _transform_cache(decoder, parts[: k + 1], asked, text) if one.reads else None
            decoder = one.transform(decoder, text)
            reports.append(
                Made(format_transform_list([one]), shelf is not None and shelf.taken, text.take_findings())
            )
            remarks += [] if shelf is None else shelf.remarks
            progress.add()
    changed = copy.copy(decoder)
    changed.spec = replace(decoder.spec, bits=bits_of(decoder))
    return changed, reports, remarks


def _transform_cache(
    decoder: Decoder, parts: Sequence[WeightTransform], asked: ModelSource, text: CalibrationData
) -> TransformCache:
    """The cache for the result of these transforms.

    Its key is the model, the transforms, the dtype, and the text that they read.
    """
    mark = fingerprint(asked.folder, asked.adapter, parts)
    return TransformCache(
        default_folder(), mark, str(decoder.dtype), hashlib.sha256(text.tokens.numpy().tobytes()).hexdigest()
    )


def calibration(folder: Path, name: str) -> torch.Tensor:
    """The shipped text that transforms look at, int64 [n], in the ids of the model in `folder`.

    Raises LoadError where that has no tokenizer.
    """
    ids = torch.from_numpy(np.load(CALIBRATION).astype(np.int64))
    own = folder / "tokenizer.json"
    if not own.is_file():
        raise LoadError(
            f"{name} has no tokenizer.json, so no text can be read to calibrate it: add the file to its folder."
        )
    if own.read_bytes() == (SHIPPED_TEXT / own.name).read_bytes():
        return ids
    text = Tokenizer.from_folder(SHIPPED_TEXT).decode(ids.tolist())
    return torch.tensor(Tokenizer.from_folder(folder).encode(text))


def ensure_loaded(
    model: Model | str | Path | torch.nn.Module, name: str = "model", tokenizer: Any = None
) -> Model:
    """The model itself, or the one that a name or a folder names, or that transformers holds; `name` of the argument.

    Raises LoadError.
    """
    if isinstance(model, Model):
        if tokenizer is not None:
            raise LoadError("A tokenizer is given beside a loaded model; give it to load instead.")
        return model
    if not isinstance(model, str | Path) and not is_transformers_model(model):
        raise LoadError(
            f"{name} is {format_value(model)}: give a model that was loaded, or what load takes; {_model_advice()}"
        )
    return load(model, tokenizer=tokenizer)


def load_original(model: Model) -> Model:
    """The model that this one was made from by transforms, loaded in its type and onto its device; itself, if there were none.

    Raises LoadError.
    """
    if not model.spec.weights:
        return model
    if model.held is not None:
        kind, place = model.decoder.dtype, str(model.decoder.device)
        return load(model.held.model, kind, place, tokenizer=model.held.tokenizer)
    return load(without_weights(model.reference)[0], model.decoder.dtype, str(model.decoder.device))


def models_by_role(models: Mapping[str, Model | str | Path] | None) -> dict[str, Model | str | Path]:
    """Role -> the model for it, not loaded. Raises LoadError for anything that is no mapping."""
    if models is not None and not isinstance(models, Mapping):
        raise LoadError(
            f"models is {format_value(models)}: give the model of each role, such as {{'draft': 'lab-draft'}}."
        )
    return dict(models or {})


def shipped_models() -> list[dict[str, Any]]:
    """The shipped models, largest first, each followed by its adapters: name, path, adapter, params, context.

    No weights are read.
    """
    rows = []
    for folder in _shipped_folders():
        if (folder / "config.json").is_file() and (folder / "model.safetensors").is_file():
            spec = describe(folder, folder.name)
            row = {"path": folder, "params": spec.params, "context": spec.max_positions}
            added = ["", *adapters.adapter_names(folder)]
            rows += [{"name": adapters.join_reference(folder.name, x), "adapter": x, **row} for x in added]
    return sorted(rows, key=lambda x: -x["params"])


def _shipped_folders() -> list[Path]:
    """The folders of the models in the package."""
    return sorted(x for x in SHIPPED.iterdir() if x.is_dir()) if SHIPPED.is_dir() else []


def find_model(name_or_path: str | Path) -> ModelSource:
    """Find a model: its name, its folder, the adapter after its + and the transforms after its @.

    It is fetched from the hub if it is neither shipped, nor one that `models get` fetched, nor a folder. Raises LoadError.
    """
    if not isinstance(name_or_path, str | Path):
        raise LoadError(f"A model is {format_value(name_or_path)}; {_model_advice()}")
    rest, weights = without_weights(name_or_path)
    base, adapter = adapters.split_reference(rest)
    name, folder = _find_folder(base)
    if adapter:
        adapters.adapter_folder(folder, name, adapter)
    weights = _transform_list(weights, name)
    return ModelSource(
        str(with_weights(adapters.join_reference(name, adapter), weights)), folder, adapter, weights
    )


def _transform_list(weights: str, name: str) -> str:
    """The transforms of the model called `name`, in their usual spelling. Raises LoadError."""
    try:
        return format_transform_list(parse_transform_list(weights))
    except ParamError as error:
        raise LoadError(f"{name} cannot be made so: {error}") from None


def requested_changes(reference: str | Path) -> dict[str, str]:
    """The changed `weights` and the `adapter` that a model's reference asks for, as a header has them; nothing is looked up."""
    rest, weights = without_weights(reference)
    asked = {"weights": weights, "adapter": adapters.split_reference(rest)[1]}
    return {name: value for name, value in asked.items() if value}


def _find_folder(name_or_path: str | Path) -> tuple[str, Path]:
    """Name and folder of a model without an adapter."""
    name = str(name_or_path)
    try:
        folder = expand_path(name)
    except PathRefusal as error:
        raise LoadError(
            f"{path_shown(name)!r} is no name of a model: {error.why}; {_model_advice()}"
        ) from None
    if isinstance(name_or_path, str) and re.fullmatch(r"[\w-]+", name) and (SHIPPED / name).is_dir():
        return name, SHIPPED / name
    if isinstance(name_or_path, str) and (known := find_fetchable(name)) is not None:
        if not is_fetched(known):
            raise LoadError(
                f"{name} is not on this machine yet: `decodescope models get {known.name}` fetches it "
                f"({known.download_bytes / 1e6:.0f} MB, {known.licence})."
            )
        return known.name, derived_folder(model_path(known))
    if is_model_path(folder) and (folder.is_file() or _is_path(name_or_path)):
        if (file := find_gguf(folder)) is not None:
            return model_name(file), derived_folder(file)
        record = source_record(folder)
        return folder.resolve().name if record is None else record.name, folder
    if isinstance(name_or_path, str) and (inside := HUB_FILE.fullmatch(name)):
        file = fetch_gguf(inside[1], inside[2])
        return model_name(file), derived_folder(file)
    if _is_path(name_or_path):
        hub = isinstance(name_or_path, str) and HUB_ID.fullmatch(name)
        if not hub:
            raise LoadError(f"There is no folder {path_shown(name)}; {_model_advice()}")
    else:  # perhaps the name of somebody's folder, which is nobody's business: the hub's ids have an owner
        if re.fullmatch(r"[\w-][\w.-]*", name):
            raise LoadError(f"There is no model {path_shown(name)!r} here; {_model_advice()}")
        raise LoadError(f"{path_shown(name)!r} is no name of a model; {_model_advice()}")
    path = fetch(name)
    return (name, path) if path.is_dir() else (model_name(path), derived_folder(path))


def _is_path(name_or_path: str | Path) -> bool:
    """Whether a model's name is written as a path, or perhaps as the id of a hub model."""
    name = str(name_or_path)
    return (
        isinstance(name_or_path, Path) or expand_path(name).is_absolute() or bool(re.search(r"[/\\]", name))
    )


def fetch(name: str) -> Path:
    """The hub's snapshot of `name`, from the local cache if it is there; its GGUF file if it has one and no other weights.

    Its config is judged before its weights are downloaded; only safetensors and the text files next to them are downloaded.
    """
    from huggingface_hub import snapshot_download

    texts = list(TEXT_FILES)
    with hub_refusals(name):
        folder = Path(snapshot_download(name, allow_patterns=texts, ignore_patterns=["*/*"]))
        try:
            describe(folder, name)
        except LoadError:
            # a repository of GGUF files has no config.json, or one of few words
            bare = "num_hidden_layers" not in (read_json(folder, "config.json") or {})
            if bare and (file := _only_gguf(name, folder)):
                return fetch_gguf(name, file)
            raise
        folder = Path(snapshot_download(name, allow_patterns=[*texts, WEIGHT_FILES], ignore_patterns=["*/*"]))
        if not any(folder.glob(WEIGHT_FILES)) and (file := _only_gguf(name, folder)):
            return fetch_gguf(name, file)
        return folder


def find_head(reference: str | Path) -> Path:
    """The folder of draft heads that a reference names, with its settings: a folder, or an id of the hub. Raises LoadError."""
    folder, settings = split_settings(Path(reference))
    name = folder.as_posix()
    if folder.exists() or not HUB_ID.fullmatch(name):
        return Path(reference)
    from huggingface_hub import snapshot_download

    with hub_refusals(name, "give a folder of heads, or the id of a repository of the hub that holds them"):
        place = Path(snapshot_download(name, allow_patterns=[*HEAD_FILES], ignore_patterns=["*/*"]))
    return Path(f"{place}@{','.join(f'{x}={y}' for x, y in settings.items())}") if settings else place


def fetch_gguf(name: str, file: str) -> Path:
    """The GGUF file `file` of the hub's repository `name`, all its parts, from the local cache if they are there."""
    from huggingface_hub import hf_hub_download

    inner, _, last = file.rpartition("/")
    with hub_refusals(f"{name}:{file}"):
        paths = [Path(hf_hub_download(name, f"{inner}/{x}".lstrip("/"))) for x in parts_of(last)]
    return paths[0]


def _only_gguf(name: str, folder: Path) -> str:
    """The one GGUF file of the hub's repository `name`, whose snapshot is `folder`; empty if it has none.

    Raises LoadError where it has several.
    """
    from huggingface_hub import HfApi

    try:
        files = HfApi().list_repo_files(name)
    except Exception:  # whatever it is, without a network the files that are here count
        files = [x.name for x in folder.iterdir()]
    models = models_among([x for x in files if "/" not in x])
    if len(models) > 1:
        some = " or ".join(f"{name}:{x}" for x in models[:3])
        raise LoadError(f"{name} holds {len(models)} GGUF models; name one of them, such as {some}.")
    return models[0] if models else ""


@contextlib.contextmanager
def hub_refusals(name: str, advice: str = "") -> Iterator[None]:
    """Turns what the hub answers into a LoadError that names what was asked for, and what to do instead."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError

    try:
        yield
    except LoadError:
        raise
    except GatedRepoError:
        raise LoadError(
            f"{name} is given only to those who accepted its licence; do so on its page of the hub, then log in there with "
            "'hf auth login'."
        ) from None
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        what = type(error).__name__
        raise LoadError(
            f"{name} could not be fetched from the hub ({what}); {f'{advice}.' if advice else _model_advice()}"
        ) from None


def _model_advice() -> str:
    names = ", ".join(x.name for x in _shipped_folders()) or "none"
    fetched = ", ".join(x.name for x in fetchable_models())
    return (
        f"use a shipped model ({names}), one that `models get` fetches ({fetched}), a folder (with a path separator: "
        "./model), a GGUF file, or the id of a hub model."
    )


def describe(
    folder: Path, name: str, heads: Mapping[str, Path] | None = None, adapter: str = "", weights: str = ""
) -> ModelSpec:
    """The spec of the model in `folder`, or in a GGUF file, with this adapter, and the names of the draft heads in it or given.

    How `weights` change its shape is known only after they have run.
    """
    config: dict[str, Any] | None
    if folder.is_file():
        config, stored_as, _ = read_gguf_shape(folder)
    else:
        record = source_record(folder)
        config, stored_as = read_json(folder, "config.json"), "" if record is None else record.types
    if config is None:
        adapters.refuse_peft(folder)
        raise LoadError(f"{folder} has no config.json; give the folder of a complete checkpoint.")
    return replace(
        spec_from_config(config, name),
        heads=tuple(find_head_folders(folder, heads)),
        adapter=adapter,
        weights=weights,
        stored_as=stored_as,
    )


def _device(device: str | None) -> torch.device:
    try:
        return device_named(device)
    except DeviceRefusal as error:
        raise LoadError(str(error)) from None


def named_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """The type of this name. Raises LoadError for one that no model can be loaded in."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise LoadError(f"The type {name[:40]!r} is not supported; use one of {', '.join(DTYPES)}.")
    return DTYPES[name]


def _check_memory(
    asked: ModelSource, spec: ModelSpec, needed: int, dtype: torch.dtype, device: torch.device
) -> None:
    """LoadError if the weights alone, `needed` bytes, do not fit into the memory that is free."""
    free = free_bytes(device)
    if free is not None and needed > free:
        ways = fitting_choices(asked.folder, spec, dtype, device, Room(free, free))
        fits = " or ".join(f"{x.words} ({x.size / 2**30:.1f} GiB)" for x in ways)
        more = f": {fits} would fit" if fits else ""
        raise LoadError(
            f"{spec.name} needs {needed / 2**30:.1f} GiB as {type_name(dtype)} and {free / 2**30:.1f} GiB are "
            f"free on {device}; use a smaller type or a smaller model{more}."
        )


def fingerprint(folder: Path, adapter: str = "", weights: Sequence[WeightTransform] = ()) -> str:
    """16 hex digits over the config and the weight files, an adapter's weight files, and the transforms.

    Of a GGUF file they cover the list of its tensors and samples of their numbers.

    For the transforms they cover names and knobs, and the text that they look at.
    """
    record, in_memory = source_record(folder), stored_digest(folder)
    files = weight_files(folder) if record is None and not in_memory else []
    parts, read = [], [folder / "config.json", *files]
    parts += [] if record is None else [f"gguf {record.digest}"]
    parts += [f"in memory {in_memory}"] if in_memory else []
    if adapter:
        read += [folder / adapters.FOLDER / adapter / x for x in ("config.json", "model.safetensors")]
    for path in read:
        stat = path.stat()
        parts.append(f"{path.name} {hash_file(path.resolve(), stat.st_size, stat.st_mtime_ns)}")
    parts += [f"weights {json.dumps(x.record(), sort_keys=True)}" for x in weights]
    if any(x.reads for x in weights):
        parts.append(f"calibration {hashlib.sha256(CALIBRATION.read_bytes()).hexdigest()}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
