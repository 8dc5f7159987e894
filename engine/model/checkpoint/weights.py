"""Weights: the tensors of a model, checked against the spec and stacked into a Decoder; those of safetensors files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec, Rope

from ..forward.decoder import Decoder, Layer
from ..layers.rope import rope_frequencies
from .adapter import CPU, Adapter, adapter_folder, expected_shapes, key_remarks, read_settings, refuse_peft
from .config import count_modules
from .folder import LoadError, escape_unprintable, member_file, read_json

HEADER_BYTES = 16 << 20
TENSORS = 10_000
FLOATS = ("F64", "F32", "F16", "BF16")
WHOLE = ("I64", "I32", "BOOL")
FREQUENCIES = "rotary_emb.inv_freq"  # how names of tensors end that follow from the config
ZERO_NORMS = ("gemma2", "gemma3_text")  # families that store norm weights minus one
MTP = "model.mtp_layers."  # how names of tensors begin that are a head of the model's own, for multi-token prediction
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")

Shape = tuple[int, ...]


def weight_files(folder: Path) -> list[Path]:
    """The weight files of a folder; LoadError when it has none that we may open."""
    refuse_peft(folder)
    single = member_file(folder, "model.safetensors")
    if single is not None:
        return [single]
    index = read_json(folder, "model.safetensors.index.json", HEADER_BYTES)
    if index is None:
        if any(path.suffix in PICKLES for path in folder.iterdir()):
            raise LoadError(
                f"{folder} holds its weights as pickle files, which can run code and are never opened; save the model as "
                "safetensors first."
            )
        raise LoadError(f"{folder} has no model.safetensors; give the folder of a complete checkpoint.")
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(x, str) for x in shards.values()):
        raise LoadError(
            f"{folder / 'model.safetensors.index.json'} has no weight_map; download the file again."
        )
    paths = []
    for shard in sorted(set(shards.values())):
        path = member_file(folder, shard)
        if path is None or path.suffix != ".safetensors":
            raise LoadError(
                f"{folder} lacks the weight file {shard[:80]!r} that its index names; download it again."
            )
        paths.append(path)
    return paths


class TensorSource:
    """The tensors of a model by the names of a checkpoint. Shapes are known at once, contents are read when asked for.

    adapter: merged into what is read;  frequencies: of old checkpoints, which are compared and not used
    """

    described_by: ClassVar[str] = "its config.json"

    def __init__(self, folder: Path):
        self.folder = folder
        self.adapter: Adapter | None = None
        self.shapes: dict[str, Shape] = {}
        self.frequencies: dict[str, Tensor] = {}

    def tensor(self, name: str) -> Tensor:
        """The numbers of a tensor."""
        raise NotImplementedError

    def check(self, spec: ModelSpec) -> None:
        """LoadError unless the tensors are exactly those that `spec` describes, and those of its modules."""
        wanted = tensor_shapes(spec)
        shapes = self.shapes
        if count_modules(read_json(self.folder, "config.json") or {}):  # who reads the head checks them
            shapes = {name: x for name, x in shapes.items() if not name.startswith(MTP)}
        if spec.tied:
            wanted.setdefault("lm_head.weight", wanted["model.embed_tokens.weight"])
        elements = sum(
            _element_count(x) for name, x in shapes.items() if not (spec.tied and name == "lm_head.weight")
        )
        missing = sorted(wanted.keys() - shapes.keys() - ({"lm_head.weight"} if spec.tied else set()))
        unexpected = sorted(shapes.keys() - wanted.keys())
        if missing:
            raise LoadError(
                f"{self.folder} lacks {_shorten_list(missing)}; {self.described_by} and its weights do not belong together."
            )
        if unexpected:
            raise LoadError(
                f"{self.folder} also holds {_shorten_list(unexpected)}, which a {spec.family} model does not have."
            )
        if abs(elements - spec.params) > 0.01 * spec.params:
            raise LoadError(
                f"{self.folder}: config.json describes {spec.params:,} parameters, the weights hold {elements:,}; they may "
                "differ by 1 % at most, so get the config.json of these weights."
            )
        for name, shape in shapes.items():
            if shape != wanted[name]:
                raise LoadError(
                    f"{self.folder}: {name} has the shape {list(shape)} and should have {list(wanted[name])}; get the "
                    "config.json of these weights."
                )
        if (
            spec.tied
            and "lm_head.weight" in shapes
            and not self.tensors_equal("lm_head.weight", "model.embed_tokens.weight")
        ):
            raise LoadError(
                f"{self.folder}: config.json ties the head to the embedding, and lm_head.weight holds other numbers; set "
                "tie_word_embeddings to false in config.json."
            )

    def copy_tensor(self, name: str, target: Tensor, add: float = 0.0) -> None:
        """Write the numbers of a tensor to `target`, with its adapter's change and `add` to each."""
        stored = self.tensor(name)
        if self.adapter is not None:
            stored = self.adapter.merge(name, stored)
        target.copy_(stored.double() + add if add else stored)

    def read(self, names: list[str], dtype: torch.dtype, device: torch.device, add: float = 0.0) -> Tensor:
        """The tensors `names`, stacked along their first axis into memory of our own, cast once; `add` to each number.

        LoadError where a number is not finite in `dtype`.
        """
        parts = [self.shapes[name] for name in names]
        stacked = torch.empty(sum(x[0] for x in parts), *parts[0][1:], dtype=dtype, device=device)
        for name, part in zip(names, stacked.split([x[0] for x in parts]), strict=True):
            self.copy_tensor(name, part, add)
            if not torch.stack(part.aminmax()).isfinite().all():
                raise LoadError(
                    f"{self.folder}: {name} holds numbers that are not finite as {str(dtype).removeprefix('torch.')}; use a "
                    "type of wider range (bfloat16, float32), or download the weights again."
                )
        return stacked

    def matrix(self, names: Sequence[str], dtype: torch.dtype, device: torch.device) -> Tensor:
        """The matrices `names`, one above the other, as a weight of a layer."""
        return self.read(list(names), dtype, device)

    def head(self, spec: ModelSpec, embed: Tensor) -> Tensor:
        """The unembedding; `embed` itself where they are tied."""
        return embed if spec.tied else self.matrix(["lm_head.weight"], embed.dtype, embed.device)

    def norm_offset(self, spec: ModelSpec) -> float:
        """What is added to the weights of norms."""
        return 1.0 if spec.family in ZERO_NORMS else 0.0

    def remarks(self, name: str, dtype: torch.dtype) -> list[str]:
        """Sentences about how the tensors of the model called `name` were read, once they are."""
        return []

    def tensors_equal(self, one: str, other: str) -> bool:
        """True if two tensors hold the same numbers."""
        return torch.equal(self.tensor(one), self.tensor(other))

    def decoder(
        self,
        spec: ModelSpec,
        dtype: torch.dtype,
        device: torch.device,
        each: Callable[[], object] = lambda: None,
    ) -> Decoder:
        """Read everything, and lay the matrices out for the processor; `each` is called after each layer."""
        plan = layer_plan(spec)
        extra = self.norm_offset(spec)

        def take(i: int, place: str) -> Tensor:
            names = [f"model.layers.{i}.{name}" for name in plan[place]]
            if len(next(iter(plan[place].values()))) == 2:
                return self.matrix(names, dtype, device)
            return self.read(names, dtype, device, extra if names[0].endswith("norm.weight") else 0.0)

        layers = []
        for i in range(spec.n_layers):
            layers.append(Layer(**{place: take(i, place) for place in plan}).pack_weights())
            each()
        embed = self.read(["model.embed_tokens.weight"], dtype, device)
        norm = self.read(["model.norm.weight"], dtype, device, extra)
        return Decoder(spec, embed, layers, norm, self.head(spec, embed)).pack_weights()


class CheckpointTensors(TensorSource):
    """The tensors of safetensors files; use with `with`.
    paths: the files; None: those of a model's folder;  whole: names of tensors that may hold whole numbers."""

    def __init__(self, folder: Path, paths: list[Path] | None = None, whole: tuple[str, ...] = ()):
        super().__init__(folder)
        self._paths = paths
        self._whole = whole
        self._open: dict[str, Any] = {}  # tensor -> the open file that holds it
        self._files = ExitStack()

    def __enter__(self) -> CheckpointTensors:
        try:
            for path in weight_files(self.folder) if self._paths is None else self._paths:
                self._add(path)
        except BaseException:
            self._files.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._open.clear()
        self._files.close()

    def _add(self, path: Path) -> None:
        check_header(path)
        try:
            file = self._files.enter_context(safe_open(path, "pt"))
        except (SafetensorError, OSError) as error:
            raise LoadError(
                f"{path} is no whole safetensors file ({str(error)[:80]}); download it again."
            ) from None
        names = list(file.keys())
        if len(self.shapes) + len(names) > TENSORS:
            raise LoadError(
                f"{self.folder} holds more than {TENSORS} tensors; this is no checkpoint of a known model."
            )
        for name in names:
            if name.endswith(FREQUENCIES):  # old checkpoints carry them; they follow from the config
                self.frequencies[name] = file.get_tensor(name)
                continue
            if name in self.shapes:
                raise LoadError(
                    f"{path} holds {name} a second time; keep one of the two files and download the index again."
                )
            part = file.get_slice(name)
            if part.get_dtype() not in (*FLOATS, *(WHOLE if name in self._whole else ())):
                raise LoadError(
                    f"{path} stores {name} as {part.get_dtype()}; only {', '.join(FLOATS)} can be read."
                )
            self._open[name], self.shapes[name] = file, tuple(part.get_shape())

    def tensor(self, name: str) -> Tensor:
        stored: Tensor = self._open[name].get_tensor(name)
        return stored


def check_header(path: Path) -> None:
    """LoadError for a safetensors file whose header is too long: the library reads it whole, and cannot be interrupted."""
    try:
        with path.open("rb") as raw:
            header = int.from_bytes(raw.read(8), "little")
    except OSError as error:
        raise LoadError(f"{path} cannot be read ({error.strerror}); see who may read it.") from None
    if header > HEADER_BYTES:
        raise LoadError(
            f"{path} has a header of {header} bytes, more than the limit of {HEADER_BYTES}; it is damaged."
        )


def read_adapter(model: Path, spec: ModelSpec, base: str) -> Adapter | None:
    """The adapter that `spec` names, from the model's folder; None if it names none. base: fingerprint of the model without
    the adapter. Raises LoadError for an adapter that is damaged, of another model, or of another shape."""
    if not spec.adapter:
        return None
    path = adapter_folder(model, spec.name, spec.adapter)
    config = read_settings(path)
    if config["base"] != base:
        raise LoadError(
            f"{path} was trained on a model with the fingerprint {config['base'][:40]}, and the one here has {base}; train "
            "it on these weights."
        )
    file = member_file(path, "model.safetensors")
    if file is None:
        raise LoadError(f"{path} has no model.safetensors; give the folder of a trained adapter.")
    with CheckpointTensors(path, [file]) as weights:
        expected = expected_shapes(path, config, weights.shapes, tensor_shapes(spec))
        odd = sorted({*expected.items()} ^ {*weights.shapes.items()})
        if odd or not expected:
            what = odd[0][0][:80] if odd else "every change"
            raise LoadError(
                f"{path}: {what} is missing, or of another shape than its rank and this model say; train it again."
            )
        tensors = {name: weights.read([name], torch.float64, CPU) for name in expected}
    deltas = {
        x.removesuffix(".A"): (a, tensors[x[:-1] + "B"]) for x, a in tensors.items() if x.endswith(".A")
    }
    rows = {
        m: (torch.tensor(ids), tensors[f"{m}.rows"])
        for m, ids in config["rows"].items()
        if f"{m}.rows" in tensors
    }
    if len(rows) < len(config["rows"]):
        raise LoadError(
            f"{path}: config.json names rows that model.safetensors does not hold; train the adapter again."
        )
    return Adapter(config["alpha"] / config["rank"], deltas, rows, key_remarks(path, config))


def frequency_remarks(stored: Mapping[str, Tensor], ropes: Sequence[Rope | None], where: str) -> list[str]:
    """A remark on frequencies in a file that are those of none of these rotations, scaled or not; none where all agree."""
    known = [
        rope_frequencies(x) for rope in ropes if rope is not None for x in (rope, Rope(rope.theta, rope.dim))
    ]

    def agrees(x: Tensor) -> bool:
        return any(x.shape == y.shape and torch.allclose(x.double(), y, rtol=0.01, atol=1e-6) for y in known)

    odd = sorted(name for name, x in stored.items() if not agrees(x))
    if not odd:
        return []
    what = f"{where} holds other frequencies than its config.json gives ({_shorten_list(odd)})"
    return [escape_unprintable(f"{what}: those of config.json are used.")]


def layer_plan(spec: ModelSpec) -> dict[str, dict[str, Shape]]:
    """Field of `Layer` -> the checkpoint's tensors stacked into it, in order, with their shapes."""
    d = spec.d_model
    f = spec.d_ff
    h = spec.n_heads * spec.head_dim
    k = spec.n_kv_heads * spec.head_dim
    qkv, gate_up = {"q": h, "k": k, "v": k}, {"gate": f, "up": f}
    plan: dict[str, dict[str, Shape]] = {
        "attn_norm": {"input_layernorm.weight": (d,)},
        "qkv": {f"self_attn.{x}_proj.weight": (n, d) for x, n in qkv.items()},
        "out": {"self_attn.o_proj.weight": (d, h)},
        "mlp_norm": {"post_attention_layernorm.weight": (d,)},
        "gate_up": {f"mlp.{x}_proj.weight": (n, d) for x, n in gate_up.items()},
        "down": {"mlp.down_proj.weight": (d, f)},
    }
    if spec.family == "phi3":  # stored as we stack them
        plan["qkv"] = {"self_attn.qkv_proj.weight": (h + 2 * k, d)}
        plan["gate_up"] = {"mlp.gate_up_proj.weight": (2 * f, d)}
    if spec.post_norms:
        plan["attn_post"] = {"post_attention_layernorm.weight": (d,)}
        plan["mlp_norm"] = {"pre_feedforward_layernorm.weight": (d,)}
        plan["mlp_post"] = {"post_feedforward_layernorm.weight": (d,)}
    if spec.qkv_bias:
        plan["qkv_bias"] = {f"self_attn.{x}_proj.bias": (n,) for x, n in qkv.items()}
    if spec.out_bias:
        plan["out_bias"] = {"self_attn.o_proj.bias": (d,)}
    if spec.mlp_bias:
        plan["gate_up_bias"] = {f"mlp.{x}_proj.bias": (n,) for x, n in gate_up.items()}
        plan["down_bias"] = {"mlp.down_proj.bias": (d,)}
    if spec.qk_norm:
        plan["q_norm"] = {"self_attn.q_norm.weight": (spec.head_dim,)}
        plan["k_norm"] = {"self_attn.k_norm.weight": (spec.head_dim,)}
    return plan


def module_numbers(spec: ModelSpec) -> int:
    """How many numbers a module for multi-token prediction has: a layer, a projection and the norms around them."""
    layer = sum(_element_count(shape) for parts in layer_plan(spec).values() for shape in parts.values())
    return layer + (2 * spec.d_model + 3) * spec.d_model


def tensor_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """Every tensor that a checkpoint of `spec` holds, with its shape; a tied head is not stored."""
    expected: dict[str, Shape] = {
        "model.embed_tokens.weight": (spec.vocab, spec.d_model),
        "model.norm.weight": (spec.d_model,),
    }
    if not spec.tied:
        expected["lm_head.weight"] = (spec.vocab, spec.d_model)
    for i in range(spec.n_layers):
        for parts in layer_plan(spec).values():
            expected.update({f"model.layers.{i}.{name}": shape for name, shape in parts.items()})
    return expected


def _element_count(shape: Shape) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _shorten_list(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(x[:80] for x in names[:3]) + more
