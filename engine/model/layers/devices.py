"""Devices: what people name as one, or a refusal where it is not here."""

from __future__ import annotations

import torch

from decodescope.engine.core.refusal import Refusal

KINDS = ("cpu", "cuda", "mps")


class DeviceRefusal(Refusal):
    """The device that was asked for is not here, or is none. One sentence."""


def device_named(name: str | None) -> torch.device:
    """The device of this name; None: the first CUDA device, else the CPU. Raises DeviceRefusal."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DeviceRefusal(
            f"There is no device {name[:40]!r}; use 'cpu', or 'cuda' where there is one."
        ) from None
    if device.type not in KINDS:
        raise DeviceRefusal(f"The device {name[:40]!r} is not supported; use one of {', '.join(KINDS)}.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceRefusal(
            f"{name} was asked for and {torch.cuda.device_count()} CUDA devices are here; use 'cpu'."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceRefusal(
            f"{name} was asked for and this machine, or this torch, has no Metal device; use 'cpu'."
        )
    return device
