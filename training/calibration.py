"""The text that transforms of weights look at (`reads`, docs/model.md).

    python -m decodescope.training.calibration

writes `assets/calibration.npy`: uint16 [32768], ids of `lab`. They are documents of the training split that are made by rule
(`corpus.py`), in random order, each closed by <|end|>: of every kind as large a share as in the corpus without its sources. No
file of a package is in it, so it may be shipped, and no question of the bench. The same on every machine.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np

from .corpus import generate_all_documents
from .data import encode_documents

FILE = Path(__file__).resolve().parents[1] / "assets" / "calibration.npy"
IDS = 32768
SHARE, SEED = 0.004, 0  # of the training text that documents are drawn from, and its seed


def ids() -> np.ndarray:
    """uint16 [IDS]."""
    documents = [x for x in generate_all_documents(SHARE, SEED) if x["split"] == "train"]
    texts = encode_documents(documents).values()
    parts = [text.ids[start:end] for text in texts for start, end in text.bounds]
    Random(SEED).shuffle(parts)
    return np.concatenate(parts)[:IDS]


if __name__ == "__main__":
    np.save(FILE, ids())
