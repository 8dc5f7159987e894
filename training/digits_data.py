"""Pictures of digits as tokens: 8 x 8 cells of 16 grey levels, scikit-learn's `load_digits` (1,797 pictures).

A picture of `lab-digits` is its class, a digit, and 64 levels in raster order. One of `lab-digits-any` is its class and 64
pairs in any order: the instruction `@r,c` of a cell, row and column from 0, and the level of that cell. `<|end|>` follows both.

scikit-learn is needed here alone, to read the pictures once; they are kept in build/training/digits.npz.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from .data import BUILD

SIDE = 8
LEVELS = 16
CLASSES = 10
CELLS = SIDE * SIDE
END = "<|end|>"
PAD = "<|pad|>"
UNKNOWN = "<|unknown|>"
GLYPHS = ".,-~:;!+=*o%&#MW"  # of the levels, from the background on
FIRST_CLASS, FIRST_LEVEL = 3, 3 + CLASSES
FIRST_CELL = FIRST_LEVEL + LEVELS
HELD_OUT = 6  # of so many pictures one is held out
FILE = BUILD / "digits.npz"


@dataclass(frozen=True)
class Pictures:
    """Levels int64 [N, 8, 8] from 0 to 15, and classes int64 [N]."""

    levels: Tensor
    classes: Tensor

    def select(self, which: Tensor) -> Pictures:
        """Those of an index or mask [N]."""
        return Pictures(self.levels[which], self.classes[which])


@dataclass(frozen=True)
class PictureWindows:
    """Windows: ids int64 [B, T], and the weight of each as a prediction, float [B, T]; no row predicts the first."""

    ids: Tensor
    weight: Tensor

    @property
    def levels(self) -> Tensor:
        """bool [B, T]: which tokens are grey levels."""
        return (self.ids >= FIRST_LEVEL) & (self.ids < FIRST_CELL)

    def to(self, device: torch.device) -> PictureWindows:
        """The same on that device."""
        return PictureWindows(self.ids.to(device), self.weight.to(device))


def load_pictures(file: Path = FILE) -> tuple[Pictures, Pictures]:
    """Those that are trained on and those that are held out, every sixth. Values of 0 to 16 become levels, 16 the last."""
    if not file.exists():
        try:
            from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]
        except ImportError:
            said = f"The pictures come with scikit-learn, which is not installed: install it for this once, or bring {file}."
            raise SystemExit(said) from None
        digits = load_digits()
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, images=digits.images.astype(np.uint8), target=digits.target.astype(np.uint8))
    stored = np.load(file)
    levels = torch.from_numpy(stored["images"].astype(np.int64)).clamp_max(LEVELS - 1)
    both = Pictures(levels, torch.from_numpy(stored["target"].astype(np.int64)))
    out = torch.arange(len(levels)) % HELD_OUT == HELD_OUT - 1
    return both.select(~out), both.select(out)


def shift_pictures(levels: Tensor, chance: torch.Generator, share: float = 0.5) -> Tensor:
    """Move about `share` of the pictures int64 [B, 8, 8] by a cell; a picture that would lose ink stays."""
    out = levels.clone()
    ways = torch.randint(4, (len(levels),), generator=chance)
    moved = torch.rand(len(levels), generator=chance) < share
    for way, (dim, by) in enumerate(((1, 1), (1, -1), (2, 1), (2, -1))):
        edge = levels.select(dim, -1 if by > 0 else 0).amax(1)  # [B], what would leave the picture
        some = moved & (ways == way) & (edge == 0)
        out[some] = levels[some].roll(by, dim)
    return out


def raster_windows(some: Pictures) -> PictureWindows:
    """[B, 66]: class, levels in raster order, end."""
    B = len(some.classes)
    ids = torch.cat(
        (FIRST_CLASS + some.classes[:, None], FIRST_LEVEL + some.levels.flatten(1), torch.zeros(B, 1).long()),
        1,
    )
    weight = torch.ones(ids.shape)
    weight[:, 0] = 0
    return PictureWindows(ids, weight)


def any_order_windows(some: Pictures, chance: torch.Generator, instructions: float) -> PictureWindows:
    """[B, 130]: class, (instruction, level) pairs in an order of each picture's own, end. instructions: the weight of one as a
    prediction, and of the end."""
    B = len(some.classes)
    order = torch.rand(B, CELLS, generator=chance).argsort(1)
    pairs = torch.stack(
        (FIRST_CELL + order, FIRST_LEVEL + some.levels.flatten(1).gather(1, order)), 2
    ).flatten(1)
    ids = torch.cat((FIRST_CLASS + some.classes[:, None], pairs, torch.zeros(B, 1).long()), 1)
    weight = torch.full(ids.shape, instructions)
    weight[:, 0], weight[:, 2:-1:2] = 0, 1
    return PictureWindows(ids, weight)


def blur_levels(rows: PictureWindows, share: float) -> Tensor:
    """ids [B, T] of windows; in them about `share` of the levels are replaced by the next one up or down."""
    ids, device = rows.ids, rows.ids.device
    by = torch.randint(2, ids.shape, device=device) * 2 - 1
    some = rows.levels & (torch.rand(ids.shape, device=device) < share)
    return torch.where(some, (ids + by).clamp(FIRST_LEVEL, FIRST_CELL - 1), ids)


def vocabulary_size(cells: bool) -> int:
    """Ids of the vocabulary."""
    return FIRST_CELL + cells * CELLS


def picture_config(cells: bool) -> dict:
    """What the config says of the pictures."""
    said = {"height": SIDE, "width": SIDE, "levels": list(range(FIRST_LEVEL, FIRST_CELL))}
    return said | ({"cells": list(range(FIRST_CELL, FIRST_CELL + CELLS))} if cells else {})


def make_tokenizer(cells: bool) -> Tokenizer:
    """A digit is a class, a glyph a level, `@r,c` an instruction where there are `cells`; white space is passed over."""
    words = [END, PAD, UNKNOWN, *map(str, range(CLASSES)), *GLYPHS]
    words += [f"@{r},{c}" for r in range(SIDE) for c in range(SIDE)] if cells else []
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, UNKNOWN))
    made.normalizer = normalizers.Replace(Regex(r"\s+"), "")
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"@[0-7],[0-7]|[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()
    made.add_special_tokens([END, PAD, UNKNOWN])
    return made


def save_tokenizer(folder: Path, cells: bool, context: int) -> None:
    """Write the two files of the tokenizer."""
    make_tokenizer(cells).save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "pad_token": PAD,
        "unk_token": UNKNOWN,
    }
    (folder / "tokenizer_config.json.partial").write_text(json.dumps(config, indent=2) + "\n")
    os.replace(folder / "tokenizer_config.json.partial", folder / "tokenizer_config.json")


def counted_baselines(train: Pictures, held_out: Pictures) -> dict[str, float]:
    """Nats a cell of the held-out pictures by counted distributions, with one added to the count of each level.

    levels: how often each occurs;  place: by class and cell;  neighbours: by the level to the left and the one above
    """

    def keys(some: Pictures, by: str) -> Tensor:
        x = some.levels
        if by == "levels":
            return torch.zeros_like(x)
        if by == "place":
            return some.classes[:, None, None] * CELLS + torch.arange(CELLS).view(SIDE, SIDE)
        left = torch.full_like(x, LEVELS)  # beyond the edge: a level of its own
        above = torch.full_like(x, LEVELS)
        left[:, :, 1:], above[:, 1:] = x[:, :, :-1], x[:, :-1]
        return left * (LEVELS + 1) + above

    found = {}
    for by in ("levels", "place", "neighbours"):
        counts = torch.ones(CLASSES * CELLS, LEVELS, dtype=torch.float64)
        counts.index_put_(
            (keys(train, by), train.levels), torch.ones((), dtype=torch.float64), accumulate=True
        )
        law = (counts / counts.sum(1, keepdim=True)).log()
        found[by] = -float(law[keys(held_out, by), held_out.levels].mean())
    return found
