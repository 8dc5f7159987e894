"""Single precision: numbers in single precision on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np


def single_precision(x: Any) -> float:
    """A number in single precision, with enough digits to distinguish it from its neighbours."""
    return float(str(np.float32(x)))
