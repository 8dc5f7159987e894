"""What passes and draft heads cost on a target and a draft model of random weights."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from replay_steps import UNEMBED

from decodescope.engine.bench.models import apply_transforms, random_decoder, time_passes
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.files import NETS
from decodescope.engine.timing.measure import machine_name

ROWS = (1, 2, 4, 5, 8, 16, 26, 32, 64)
HELD = 256  # entries that a measured pass finds
PART = 4  # one of so many layers runs in the short form of a model
BITS = ("int8", "int4")
# bytes read before every call of heads: behind a pass of the target none of their weights are in a cache
FILL = 64 << 20
WIDE = ("inner", "hidden", "rank", "prefix")  # sizes of heads that grow with the target's width


@dataclass(frozen=True)
class Curve:
    """Microseconds of a model's passes: of its layers and of the rest, by `rows`; `attention`: its share of a layer."""

    rows: Sequence[int]
    layers: Sequence[float]
    rest: Sequence[float]
    attention: float

    def us(self, rows: int, attn: float, ffn: float, unembedded: int) -> float:
        """A pass, as `asked` says it."""
        ran = attn * self.attention + ffn * (1 - self.attention)
        return ran * _between(rows, self.rows, self.layers) + (
            _between(unembedded, self.rows, self.rest) if unembedded else 0
        )


def _between(rows: float, known: Sequence[int], us: Sequence[float]) -> float:
    """Interpolated, and beyond the most rows in proportion to the last two."""
    if rows <= known[-1] or len(known) == 1:
        return float(np.interp(rows, known, us))
    return us[-1] + (us[-1] - us[-2]) * (rows - known[-1]) / (known[-1] - known[-2])


@dataclass(frozen=True)
class Costs:
    """What passes and heads cost.

    passes: "target" and "draft", which is used for every other lane;  heads: call -> us
    bits: transform -> how many times as fast a pass of one row is;  settings: of the measurement
    """

    passes: Mapping[str, Curve]
    heads: Mapping[str, float]
    bits: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def pass_us(self, lane: str, *asked: Any) -> float:
        """A pass, as `asked` says it."""
        return self.passes["target" if lane == "target" else "draft"].us(*asked)

    def head_us(self, call: str) -> float:
        """A call of heads. Raises a Refusal if it was not measured."""
        if call not in self.heads:
            raise Refusal(
                f"The costs do not know {call[:80]}: measure them anew, of the very file of steps that is priced."
            )
        return self.heads[call]


def curve(
    whole: Decoder, part: Decoder, rows: Sequence[int], ms: Sequence[float], short: Sequence[float]
) -> Curve:
    """Of the milliseconds of passes of `whole` and of `part`, which has the first of its layers."""
    spec, n = whole.spec, whole.spec.n_layers
    by_layer = [1e3 * (a - b) / (n - part.spec.n_layers) for a, b in zip(ms, short, strict=True)]
    attention = spec.d_model * spec.head_dim * (2 * spec.n_heads + 2 * spec.n_kv_heads)
    return Curve(
        list(rows),
        [n * x for x in by_layer],
        [max(0.0, 1e3 * a - n * x) for a, x in zip(ms, by_layer, strict=True)],
        attention / (attention + 3 * spec.d_model * spec.d_ff),
    )


def first_layers(decoder: Decoder) -> Decoder:
    """A decoder with the first of the layers, which shares their weights."""
    few = max(1, decoder.spec.n_layers // PART)
    return Decoder(
        replace(decoder.spec, n_layers=few), decoder.embed, decoder.layers[:few], decoder.norm, decoder.embed
    )


def measured(
    steps: Mapping[str, Any], params: int, draft_params: int, rounds: int, say: Callable[[str], None]
) -> Costs:
    """The costs of everything that `steps` call for."""
    say(f"making random weights, {params / 1e6:g} M and {draft_params / 1e6:g} M")
    plain = {
        "target": random_decoder(params, torch.bfloat16),
        "draft": random_decoder(draft_params, torch.bfloat16, seed=1),
    }
    short = {role: first_layers(x) for role, x in plain.items()}
    models = {
        f"{role} {form}": x.pack_weights()
        for form, of in (("whole", plain), ("part", short))
        for role, x in of.items()
    }
    ms = dict(time_passes(models, ROWS, rounds, HELD, say))
    passes = {
        role: curve(plain[role], short[role], ROWS, ms[f"{role} whole"], ms[f"{role} part"]) for role in plain
    }
    few = {
        "dense": models["target whole"],
        **{words: apply_transforms(plain["target"], words) for words in BITS},
    }
    one = {name: each[0] for name, each in time_passes(few, (1,), 2 * rounds, HELD, say)}
    big = {role: models[f"{role} whole"] for role in plain}
    heads = called(steps, big, rounds, say)
    settings = {
        "machine": machine_name(torch.device("cpu")), "threads": torch.get_num_threads(), "torch": torch.__version__,
        "params": {role: x.spec.params for role, x in plain.items()}, "held": HELD, "rounds": rounds,
        "specs": {role: x.spec.record() for role, x in plain.items()}, "ms": ms, "one": one,
    }  # fmt: skip
    return Costs(passes, heads, {words: one["dense"] / one[words] for words in BITS}, settings)


def enlarged(kind: str, shape: Mapping[str, int], big: ModelSpec) -> dict[str, int]:
    """The sizes of heads of that kind on a model like `big`: what grows with the width does; a layer is one of the model's."""
    if kind not in NETS:
        raise Refusal(
            f"The steps call heads of the kind {kind[:40]!r}, which are none of {', '.join(NETS)}: record them anew."
        )
    made = {**shape, "d": big.d_model}
    made |= {name: round(shape[name] * big.d_model / shape["d"]) for name in WIDE if name in shape}
    made |= {
        name: getattr(big, name) for name in ("n_heads", "n_kv_heads", "head_dim", "d_ff") if name in shape
    }
    if shape.get("vocab"):
        made["vocab"] = big.vocab
        made |= {"kept": shape["kept"] * big.vocab // shape["vocab"]} if "kept" in shape else {}
    return made


def called(
    steps: Mapping[str, Any], big: Mapping[str, Decoder], rounds: int, say: Callable[[str], None]
) -> dict[str, float]:
    """Call -> microseconds, the median of some rounds, by random heads in the width of the `big` models."""
    calls = sorted({x for row in steps["rows"] for x in row["parts"]["heads"]})
    us = {}
    nets = {}
    say(f"{len(calls)} different calls of heads")
    for call in calls:
        role, kind, name, given = json.loads(call)
        decoder, told = big[role], steps["settings"]["sizes"][role]
        if kind != UNEMBED and (role, kind) not in nets:
            sizes = enlarged(kind, told["heads"][kind], decoder.spec)
            nets[role, kind] = _random(NETS[kind](**sizes)).copy_to(dtype=decoder.dtype).pack_weights()
        # states of three depths, side by side
        sizes = {3 * told["spec"]["d_model"]: 3 * decoder.spec.d_model}
        sizes |= {told["spec"][x]: getattr(decoder.spec, x) for x in ("vocab", "d_model")}
        if kind != UNEMBED:
            sizes |= {
                told["heads"][kind][x]: nets[role, kind].shape[x] for x in WIDE if x in nets[role, kind].shape
            }
        work = getattr(decoder if kind == UNEMBED else nets[role, kind], name)
        read = [_given(x, sizes, decoder) for x in given]
        many = (
            max((x.numel() // x.shape[-1] for x in read if isinstance(x, torch.Tensor)), default=0) > ROWS[-1]
        )
        us[call] = _median_us(work, read, 2 if many else 3 * rounds)  # many: a prompt, once a run
    return us


def _random(head: Head) -> Head:
    for x in head.parameters():
        torch.nn.init.normal_(x, 0, 0.02)
    return head


def _given(said: Any, sizes: Mapping[int, int], decoder: Decoder) -> Any:
    if said == "vocabulary":
        return decoder
    if isinstance(said, dict):
        return torch.zeros(said["ids"], dtype=torch.int64)
    if not isinstance(said, list):
        return said
    last = sizes[said[-1]] if said[-1] in sizes else said[-1]  # rows and places stay as they are
    return torch.randn(*said[:-1], last).to(decoder.dtype)


@torch.inference_mode()
def _median_us(work: Callable[..., Any], given: Sequence[Any], rounds: int) -> float:
    spent, other = [], torch.ones(FILL // 4)
    for turn in range(rounds + 1):
        other.sum()
        began = time.perf_counter()
        work(*given)
        spent += [1e6 * (time.perf_counter() - began)] if turn else []  # the first warms up
    return statistics.median(spent)
