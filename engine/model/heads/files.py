"""The folder of draft heads, heads/NAME in the target's: config.json and model.safetensors. Written and read here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec, Rope

from ..checkpoint.config import count_modules, read_rope, rope_table
from ..checkpoint.folder import LoadError, escape_unprintable, hash_file, read_json
from ..checkpoint.folder_writer import write_folder
from ..checkpoint.keys import Config, key_readings, unread_key_remarks
from ..checkpoint.weights import CheckpointTensors
from .base import Head, RotaryPart
from .block_transformer import BlockDecoder
from .color import SentenceScorer
from .coprocessor import Coprocessor
from .correctness import CorrectnessHead
from .cot_influx import ShotPolicies
from .drafting.attention import THETA
from .drafting.bita import MaskTokens
from .drafting.blockwise import BlockwiseHeads
from .drafting.cerberus import CerberusGate
from .drafting.clover import CloverHeads
from .drafting.dflash import DFlashNet
from .drafting.draft_vocabulary import DraftVocabularyHead
from .drafting.dspark import DSparkNet
from .drafting.eagle import EagleLayer
from .drafting.eagle3 import Eagle3Layer
from .drafting.fspad import FspadLayer
from .drafting.hydra import HydraHeads
from .drafting.kangaroo import KangarooAdapter
from .drafting.look_ahead_tokens import LookAheadTokensNet
from .drafting.medusa import MedusaHeads
from .drafting.mlp_speculator import MLPSpeculatorNet
from .drafting.mtp import MtpModule
from .drafting.p_eagle import PEagleLayer
from .drafting.parallelspec import ParallelSpecLayer
from .drafting.ppd import PromptTokens
from .drafting.redrafter import ReDrafterNet
from .drafting.specdec import AcceptanceHead
from .duo_attention import DuoAttentionGates
from .edit import EditTagger
from .exits import ExitHeads
from .judge import JudgeHead
from .learn2pd import ParallelFilter
from .past_future import PastFutureHeads
from .prefix_state import PrefixState
from .published.families import read_published
from .skip_layer import SkipRouters
from .soft_prompt import SoftPrompt
from .trigrams import TrigramLayers

DRAFTING: tuple[type[Head], ...] = (
    MedusaHeads, HydraHeads, EagleLayer, Eagle3Layer, KangarooAdapter, BlockwiseHeads, MLPSpeculatorNet,
    ReDrafterNet, FspadLayer, ParallelSpecLayer, CloverHeads, DFlashNet, DSparkNet, PEagleLayer,
    MtpModule,
)  # fmt: skip
HEADS: dict[str, type[Head]] = {x.kind: x for x in DRAFTING}
# on a draft model: they judge tokens, queries or answers and draft none
GATES: dict[str, type[Head]] = {x.kind: x for x in (AcceptanceHead, CorrectnessHead)}
# trained by scripts of their own
OTHERS: dict[str, type[Head]] = {
    x.kind: x
    for x in (
        PromptTokens, JudgeHead, ParallelFilter, EditTagger, ExitHeads, PastFutureHeads, SkipRouters, TrigramLayers,
        BlockDecoder, CerberusGate, ShotPolicies, SentenceScorer,
    )
}  # fmt: skip
# rows of the target's own pass, by slot_tokens.py
SLOTTED: dict[str, type[Head]] = {x.kind: x for x in (LookAheadTokensNet, MaskTokens)}
# of the KV cache, by cacheparts.py
CACHE: dict[str, type[Head]] = {x.kind: x for x in (PrefixState, SoftPrompt, DuoAttentionGates, Coprocessor)}
NETS = HEADS | OTHERS | SLOTTED | GATES | CACHE
LARGEST = 1 << 16  # of any size in a config
MOST_HEADS = 16
MOST = {
    **dict.fromkeys(("heads", "masks", "gates", "blocks", "layers", "states", "ensemble"), MOST_HEADS),
    **dict.fromkeys(("vocab", "own_embed", "mask_token", "mask_row"), 1 << 24),
    **dict.fromkeys(("causal", "markov", "confidence"), 2),
    "block": 64,
    "theta": 1 << 31,
}
# what the training scripts write into config.json for people, and no net is made of
NOTES = (
    "answers",
    "auc",
    "brier",
    "calibration",
    "constant",
    "draft",
    "fixed",
    "held_out",
    "judged",
    "large",
    "loss",
    "made_with",
    "measured",
    "minutes",
    "nats_a_byte",
    "read_by",
    "right",
    "steps",
    "thresholds",
    "tokens",
    "trigrams",
    "trigrams_with_root",
    "unseen",
)


def find_head_folders(model: Path, given: Mapping[str, Path] | None = None) -> dict[str, Path]:
    """Name -> folder of the heads in the model's folder; heads of unknown kinds are ignored. `given` ones, from elsewhere,
    take their place. A model whose own files hold modules for multi-token prediction is a folder of such a head itself.
    Raises LoadError for a name that is not a kind of heads."""
    homes = {kind: model / "heads" / kind for kind in NETS}
    odd = next((kind for kind in given or {} if kind not in NETS), None)
    if odd is not None:
        raise LoadError(f"There are no heads called {odd[:40]!r}; the kinds are {', '.join(NETS)}.")
    folders = {kind: path for kind, path in homes.items() if (path / "config.json").exists()} | dict(
        given or {}
    )
    if "mtp" not in folders and model.is_dir() and count_modules(read_json(model, "config.json") or {}):
        folders["mtp"] = model
    return folders


def head_fingerprint(head: Head) -> str:
    """16 hex digits over the config and the weights that a head was read from; empty if it was made in memory, or if its files
    were changed since."""
    parts = []
    for path, size, changed in head.source:
        now = path.stat() if path.exists() else None
        if now is None or (now.st_size, now.st_mtime_ns) != (size, changed):
            return ""
        parts.append(f"{path.name} {hash_file(path.resolve(), size, changed)}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16] if parts else ""


def _note_source(head: Head, paths: Sequence[Path]) -> Head:
    """The head, which remembers the files that it was read from."""
    stats = [(path, path.stat()) for path in paths]
    head.source = tuple((path, x.st_size, x.st_mtime_ns) for path, x in stats)
    return head


def split_settings(reference: Path) -> tuple[Path, dict[str, str]]:
    """The folder that a reference to heads names, and the settings behind its @: `DIR@norm_before_residual=true,...`.
    A folder whose name holds an @ is itself. Raises LoadError for settings that are none."""
    base, sign, words = str(reference).rpartition("@")
    if not sign or not base or reference.exists() or "/" in words:
        return reference, {}
    pairs = [x.partition("=") for x in words.split(",")]
    if not all(name.strip() and equals and value.strip() for name, equals, value in pairs):
        raise LoadError(
            f"{escape_unprintable(str(reference))}: what is behind the @ must be NAME=VALUE, such as norm_before_residual=true."
        )
    return Path(base), {name.strip(): value.strip() for name, _, value in pairs}


def unknown_head_remarks(model: Path) -> list[str]:
    """A remark on the heads of unknown kinds in the model's folder; none if there are no such heads."""
    home = model / "heads"
    names = sorted(x.name for x in home.iterdir() if (x / "config.json").exists()) if home.is_dir() else []
    odd = [x[:40] for x in names if x not in NETS]
    return (
        [escape_unprintable(f"{home} holds heads of no known kind, which are not read: {', '.join(odd)}.")]
        if odd
        else []
    )


def missing_reason(
    kind: str, spec: ModelSpec, instead: str = "a drafter that needs no training, such as prompt_lookup"
) -> str | None:
    """Why heads of this kind cannot be read from the model, and what to choose `instead`; None if they can."""
    if kind in spec.heads:
        return None
    if kind in HEADS:
        return (
            f"{spec.name} has no heads/{kind}: train them with decodescope train head {kind} --model {spec.name} "
            f"--prompts FILE, or choose {instead}."
        )
    script = kind
    if kind in CACHE or kind in SLOTTED:
        script = (
            f"{'cacheparts' if kind in CACHE else 'slot_tokens'} {kind} --within {10 if kind in CACHE else 6}"
        )
    return (
        f"{spec.name} has no heads/{kind}: train them with python -m decodescope.training.{script} "
        "(shipped models only), or choose "
        f"{instead}."
    )


def read_heads(
    model: Path,
    spec: ModelSpec,
    dtype: torch.dtype,
    device: torch.device,
    given: Mapping[str, Path] | None = None,
    allow_pickle: bool = False,
    embed: Tensor | None = None,
) -> dict[str, Head]:
    """All heads of the model's folder, and the `given` ones. Raises LoadError for those that are damaged or made for another
    shape of model. allow_pickle: of published heads, see `stored.opened`;  embed: the model's embedding [V, d], which heads
    read that bring the same numbers; None: they keep what they bring."""
    heads = {}
    for kind, path in find_head_folders(model, given).items():
        if kind not in (given or {}) and not path.resolve().is_relative_to(model.resolve()):
            raise LoadError(
                f"{path} is a link that leads out of the model's folder; copy the heads into it instead."
            )
        heads[kind] = read_head(path, spec, kind, dtype, device, allow_pickle, embed)
    return heads


def read_head(
    path: Path,
    spec: ModelSpec,
    kind: str,
    dtype: torch.dtype,
    device: torch.device,
    allow_pickle: bool = False,
    embed: Tensor | None = None,
) -> Head:
    """The net of one heads folder, ready to decode; the arguments as for `read_heads`. Raises LoadError."""
    head = load_head(path, spec, kind, allow_pickle).copy_to(dtype=dtype, device=device)
    return (head if embed is None else head.share_embedding(embed, str(path))).pack_weights()


def load_head(folder: Path, spec: ModelSpec, wished: str, allow_pickle: bool = False) -> Head:
    """The net of one heads folder, ours or a published one, of the kind `wished`, in float32 on the CPU."""
    folder, settings = split_settings(folder)
    keys = read_json(folder, "config.json")
    if keys is None:
        raise LoadError(f"{folder} has no config.json; give the folder of trained heads.")
    if "kind" not in keys:
        head, paths = read_published(folder, keys, spec, wished, allow_pickle, settings)
        return _note_source(head, [folder / "config.json", *paths])
    if settings:
        raise LoadError(
            f"{folder} holds heads of ours, which take no settings; leave out what is behind the @."
        )
    config = Config(keys)
    kind = config["kind"]
    if kind != wished:
        raise LoadError(f"{folder} holds heads of the kind {str(kind)[:40]!r}, not {wished}.")
    if kind not in NETS:
        raise LoadError(
            f"{folder} holds heads of the kind {kind[:40]!r}, which is none of {', '.join(sorted(NETS))}; give the folder of "
            "trained heads."
        )
    shape = _shape(config, folder, spec)
    with torch.device("meta"):
        wanted = {name: tuple(x.shape) for name, x in NETS[kind](**shape).state_dict().items()}
    with CheckpointTensors(folder) as weights:
        if weights.shapes != wanted:
            odd = sorted({*wanted.items()} ^ {*weights.shapes.items()})[0][0]
            raise LoadError(
                f"{folder}: {odd[:80]} is missing, unknown, or of another shape than config.json says; train the heads again."
            )
        cpu = torch.device("cpu")
        head = NETS[kind].from_tensors(
            shape, {name: weights.read([name], torch.float32, cpu) for name in wanted}
        )
    head.rates, head.made_for = _rates(config, folder), config.get("target") or ""
    if not isinstance(head.made_for, str):
        raise LoadError(
            f"{folder}: target = {str(head.made_for)[:40]} must be a model's fingerprint; train the heads again."
        )
    head.threshold = _threshold(config, folder)
    _set_rotations(head, config, folder, spec)
    _set_windows(head, config, folder)
    _set_layer_ids(head, config, folder, spec)
    head.remarks = unread_key_remarks(config, str(folder), "the heads are read all the same", NOTES)
    head.readings = key_readings(config, NOTES)
    return _note_source(head, [folder / "config.json", folder / "model.safetensors"])


def _set_rotations(head: Head, config: Config, folder: Path, spec: ModelSpec) -> None:
    """Set the rotations that a config gives next to the shape, by the part of the net."""
    given = config.get("rotations", Config({}))
    parts = {name: part for name, part in head.named_modules() if isinstance(part, RotaryPart)}
    if not isinstance(given, Config) or not set(given) <= set(parts):
        raise LoadError(
            f"{folder}: rotations must be tables for {', '.join(parts) or 'no part'}; train the heads again."
        )
    for name in given:
        table = Config({"rope_parameters": given[name]}, f"rotations.{name}.")
        config.join(table)
        parts[name].rope = read_rope(
            table, str(folder), parts[name].rope.theta, parts[name].rope.dim, spec.max_positions, partial=True
        )


def _set_windows(head: Head, config: Config, folder: Path) -> None:
    """Set the windows that a config gives next to the shape, by the part of the net."""
    given = config.get("windows", Config({}))
    parts = {name: part for name, part in head.named_modules() if isinstance(part, RotaryPart)}
    if not isinstance(given, Config) or not set(given) <= set(parts):
        raise LoadError(
            f"{folder}: windows must be whole numbers for {', '.join(parts) or 'no part'}; train the heads again."
        )
    for name, window in given.items():
        if type(window) is not int or not 0 < window <= 1 << 24:
            raise LoadError(
                f"{folder}: windows.{name} = {str(window)[:40]} must be a whole number above 0; train the heads again."
            )
        parts[name].window = window


def _set_layer_ids(head: Head, config: Config, folder: Path, spec: ModelSpec) -> None:
    """Set the layers of the target that a head reads, where its config names them."""
    ids = config.get("layer_ids")
    if ids is None:
        return
    good = isinstance(ids, list) and all(type(x) is int and 0 <= x <= spec.n_layers for x in ids)
    if not isinstance(head, DraftVocabularyHead) or not good or len(ids) != head.shape["states"]:
        raise LoadError(
            f"{folder}: layer_ids = {str(ids)[:40]} must name as many layers of {spec.name} as the head reads states; train "
            "the heads again."
        )
    head.layer_ids = tuple(ids)


def _shape(config: Config, folder: Path, spec: ModelSpec) -> dict[str, int]:
    """The sizes in a config, checked: whole, within bounds, and the target's."""
    said, kind = config.get("shape"), str(config["kind"])
    sizes = NETS[kind].sizes()
    needed = {name for name, usual in sizes.items() if usual is None}
    if not isinstance(said, Config) or not needed <= said.keys() <= sizes.keys():
        raise LoadError(
            f"{folder}: the shape of {kind} heads says {', '.join(sorted(sizes))}; train the heads again."
        )
    said = dict(said)
    for name, x in said.items():
        most = MOST.get(name, LARGEST)
        if type(x) is not int or not (0 if sizes[name] == 0 else 1) <= x <= most:
            raise LoadError(
                f"{folder}: {name} = {str(x)[:40]} must be a whole number up to {most}; train the heads again."
            )
    if said["d"] != spec.d_model:
        raise LoadError(
            f"{folder} reads states of width {said['d']}, those of {spec.name} have {spec.d_model}; train it again."
        )
    for name in NETS[kind].of_target:
        if said[name] != getattr(spec, name):
            raise LoadError(
                f"{folder} has {name} = {said[name]}, {spec.name} has {getattr(spec, name)}; train it again."
            )
    for name, does in (("vocab", "writes"), ("own_embed", "reads")):
        if said.get(name, 0) not in (0, spec.vocab):
            raise LoadError(
                f"{folder} {does} {said[name]} ids, {spec.name} knows {spec.vocab}; train it again."
            )
    mask = max(said.get("mask_token", 0), said.get("mask_row", 0) - 1)
    if mask >= spec.vocab:
        raise LoadError(
            f"{folder} has masks of the id {mask}, {spec.name} knows {spec.vocab} ids; train it again."
        )
    if not said.get("layer", 1) < spec.n_layers:
        raise LoadError(
            f"{folder} leaves after layer {said['layer']} of the {spec.n_layers} of {spec.name}; train it again."
        )
    if (
        said.get("n_heads", said.get("n_kv_heads", 1)) % said.get("n_kv_heads", 1)
        or said.get("head_dim", 2) % 2
    ):
        raise LoadError(
            f"{folder}: n_heads must be a multiple of n_kv_heads, and head_dim even; train the heads again."
        )
    return said


def _rates(config: Mapping[str, Any], folder: Path) -> tuple[tuple[float, ...], ...]:
    said = config.get("rates", [])
    good = (
        isinstance(said, list)
        and len(said) <= MOST_HEADS
        and all(isinstance(row, list) and row for row in said)
    )
    if not good or not all(isinstance(x, int | float) and 0 <= x <= 1 for row in said for x in row):
        raise LoadError(
            f"{folder}: rates must be lists of numbers from 0 to 1, one list a level; train the heads again."
        )
    return tuple(tuple(map(float, row)) for row in said)


def _threshold(config: Mapping[str, Any], folder: Path) -> float | None:
    """The value that a head was calibrated for, from 0 to 1; None if its file has none."""
    chosen = config.get("threshold")
    if chosen is None:
        return None
    if type(chosen) not in (int, float) or not 0 <= chosen <= 1:
        raise LoadError(
            f"{folder}: threshold = {str(chosen)[:40]} must be a number from 0 to 1; train the head again."
        )
    return float(chosen)


def write_head(head: Head, folder: Path, notes: Mapping[str, Any] | None = None) -> None:
    """Write the heads to `folder` (.../heads/KIND), each file whole under another name first; `notes` join the config."""
    config: dict[str, Any] = {"kind": head.kind, "shape": head.shape, "target": head.made_for}
    config |= {"rates": [list(x) for x in head.rates]}
    config |= {} if head.threshold is None else {"threshold": head.threshold}
    parts = {name: part for name, part in head.named_modules() if isinstance(part, RotaryPart)}
    plain = Rope(head.shape.get("theta", THETA))
    widths = {name: part.sizes[2] for name, part in parts.items()}
    turned = {
        name: part.rope for name, part in parts.items() if part.rope != replace(plain, dim=widths[name])
    }
    if turned:
        config["rotations"] = {name: rope_table(x, widths[name]) for name, x in turned.items()}
    if windows := {name: part.window for name, part in parts.items() if part.window}:
        config["windows"] = windows
    if isinstance(head, DraftVocabularyHead) and head.layer_ids is not None:
        config["layer_ids"] = list(head.layer_ids)
    tensors = {name: x.detach().to("cpu", torch.bfloat16).contiguous() for name, x in head.tensors().items()}
    write_folder(folder, tensors, {**config, **(notes or {})})
