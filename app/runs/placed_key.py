"""Placed key: the key of a model in a type or on a device that is not the usual one: `lab as bfloat16 on cpu`.

A key without them means the type and device that the model has if nobody chooses.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from decodescope.app.basis.arguments import DTYPES
from decodescope.app.basis.refusal import RequestRefusal

_PLACED = re.compile(rf"(.+) as ({'|'.join(DTYPES)}) on (cpu|mps|cuda:\d+)", re.DOTALL)


class Placement(NamedTuple):
    """A type and a device, by their names; empty: the usual one."""

    dtype: str = ""
    device: str = ""

    @property
    def words(self) -> str:
        """Both, as a page says them."""
        return " on ".join(filter(None, self))


USUAL = Placement()


def split_key(key: str) -> tuple[str, Placement]:
    """A key without type and device, and these; empty if it names none."""
    match = _PLACED.fullmatch(key)
    return (key, Placement()) if match is None else (match[1], Placement(match[2], match[3]))


def join_key(key: str, place: Placement) -> str:
    """The key of a model, which names no type and device, with both of these; itself if they are the usual ones."""
    return f"{key} as {place.dtype} on {place.device}" if all(place) else key


def known_devices() -> list[str]:
    """The devices of this machine on which models can be loaded, by name."""
    import torch

    graphics = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return ["cpu", *graphics, *(["mps"] if torch.backends.mps.is_available() else [])]


def check_placement(place: Placement) -> Placement:
    """The same, with the full name of the device. Raises RequestRefusal for a type or device that is not here."""
    if place.dtype not in ("", *DTYPES):
        raise RequestRefusal(
            f"The type {place.dtype[:40]!r} is not supported: choose one of {', '.join(DTYPES)}."
        )
    device = {"cuda": "cuda:0"}.get(place.device, place.device)
    if device not in ("", *(known := known_devices())):
        raise RequestRefusal(f"There is no device {device[:40]!r} here: choose one of {', '.join(known)}.")
    return Placement(place.dtype, device)


def usual_device() -> str:
    """The device on which models are loaded if nobody chooses: the first CUDA device, else the CPU."""
    from decodescope.engine.model.layers.devices import device_named

    name = str(device_named(None))
    return {"cuda": "cuda:0"}.get(name, name)
