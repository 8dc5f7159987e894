"""Measure the models of pictures and write their card, `assets/models/DIGITS.md`.

    python -m decodescope.training.digits_card

The held-out pictures are every sixth of scikit-learn's, so most of their writers were trained on, too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor

from . import digits_data as pictures
from .digits import SHAPES, losses, nats, picture_windows
from .digits_data import Pictures
from .infill_card import table
from .net import Net, count_weights
from .train import MODELS, RECORDS

SEED = 11


def class_accuracy(net: Net, held_out: Pictures, cells: bool) -> float:
    """The share of the held-out pictures that are likeliest under their own class."""
    scores = [
        -picture_nats(net, Pictures(held_out.levels, torch.full_like(held_out.classes, k)), cells)
        for k in range(10)
    ]
    return float((torch.stack(scores).argmax(0) == held_out.classes).float().mean())


@torch.no_grad()
def picture_nats(net: Net, some: Pictures, cells: bool) -> Tensor:
    """float [N]: nats of each picture's levels; of cells in any order in one order, the same for every class."""
    rows = picture_windows(some, cells, torch.Generator().manual_seed(0))
    return (losses(net, rows) * rows.levels[:, 1:]).sum(1)


@torch.no_grad()
def draw_pictures(net: Net, cells: bool) -> Tensor:
    """int64 [10, 8, 8]: levels of one picture of each class, drawn; cells in any order are asked for in one."""
    chance = torch.Generator().manual_seed(SEED)
    ids = pictures.FIRST_CLASS + torch.arange(10)[:, None]
    order = torch.randperm(pictures.CELLS, generator=chance) if cells else torch.arange(pictures.CELLS)
    found = torch.zeros(10, pictures.CELLS, dtype=torch.long)
    for cell in order.tolist():
        if cells:
            ids = torch.cat((ids, torch.full((10, 1), pictures.FIRST_CELL + cell)), 1)
        law = net(ids)[:, -1, pictures.FIRST_LEVEL : pictures.FIRST_CELL].softmax(1)
        found[:, cell] = torch.multinomial(law, 1, generator=chance)[:, 0]
        ids = torch.cat((ids, pictures.FIRST_LEVEL + found[:, cell : cell + 1]), 1)
    return found.view(10, pictures.SIDE, pictures.SIDE)


def format_pictures(levels: Tensor) -> str:
    """Pictures [N, 8, 8] side by side, five in a row, as glyphs in an indented block."""
    lines = []
    for some in levels.split(5):
        lines += [
            "    " + "   ".join("".join(pictures.GLYPHS[x] for x in row) for row in rows)
            for rows in some.transpose(0, 1).tolist()
        ] + [""]
    return "\n".join(lines)


def card(folder: Path, train: Pictures, held_out: Pictures) -> str:
    """The card as Markdown, for the models in `folder`."""
    names = [name for name in SHAPES if (folder / name / "model.safetensors").exists()]
    nets = {name: Net.from_folder(folder / name).eval() for name in names}
    counts = pictures.counted_baselines(train, held_out)
    rows = [[words, f"{counts[by]:.3f}", "-"] for by, words in COUNTED.items()]
    for name, net in nets.items():
        cells = name.endswith("any")
        rows.append(
            [
                f"`{name}`",
                f"**{nats(net, held_out, cells):.3f}**",
                f"{class_accuracy(net, held_out, cells):.0%}",
            ]
        )
    made = [
        [f"`{name}`", f"{r['tokens'] / 1e6:.2f} M", f"{r['minutes']:.0f}", f"`{r['command']}`"]
        for name in names
        for r in json.loads((RECORDS / f"{name}.json").read_text())
    ]
    parts = [
        HEAD.format(
            sizes=" and ".join(f"{count_weights(net):,}" for net in nets.values()),
            train=len(train.classes),
            glyphs=pictures.GLYPHS,
            held_out=len(held_out.classes),
        )
    ]
    parts += [ANY] * ("lab-digits-any" in names)
    parts += [
        MEASURED.format(held_out=len(held_out.classes)),
        table(["law", "nats a cell", "classes told apart"], rows),
        READ,
        table(["model", "tokens", "minutes", "arguments"], made),
        "## What they draw\n",
        "One picture of each class, drawn at temperature 1, none chosen.\n",
    ]
    for name, net in nets.items():
        parts += [f"`{name}`:\n", format_pictures(draw_pictures(net, name.endswith("any")))]
    return "\n".join([*parts, WEAK]).rstrip() + "\n"


COUNTED = {
    "levels": "how often each level occurs",
    "neighbours": "by the level to the left and the one above",
    "place": "by class and cell",
}
HEAD = """\
# lab-digits and lab-digits-any

Pictures of digits: 8 x 8 cells of 16 grey levels, one token a level. Llamas of 4 layers of width 64 with {sizes} numbers,
trained here on {train:,} pictures of scikit-learn's `load_digits` (the test set of Alpaydin and Kaynak's "Optical
Recognition of Handwritten Digits", UCI, CC BY 4.0); {held_out} more were held out. scikit-learn is needed to train them,
not to use them.

The prompt is a class, a digit: `7`. The levels are written as glyphs, from the background on: `{glyphs}`. White space
in a prompt is passed over, so the beginning of a picture may be given in rows. `<|end|>` follows the picture. `config.json`
says under `picture` what shape it has and which ids are levels ([models](../../docs/models.md#models-of-pictures)).

`lab-digits` writes its 64 cells in raster order.
"""
ANY = """\
`lab-digits-any` writes them in any order, as RandAR does (arXiv 2412.01827): behind the class come 64 pairs of an
instruction, `@r,c` with row and column from 0, and a level: `7@3,4W@0,0.` and so on. **The output at the row of an
instruction is the law of that cell's level**, given all pairs before it; the output at a level's row tells which cell might
come next, evenly over those that are left, and at the last one `<|end|>`. The mask is causal and positions are those of
arrival. To draw several cells in one pass, append their instructions, draw from each one's output, and put each level behind
its instruction in the next pass: that is what the strategy `randar` does, which asks for the cells. Strategies that write one
token behind another refuse the model.

Where it differs from the authors': they turn one learnt vector by two-dimensional rotary embeddings of its cell, and image
tokens too; here each cell's instruction is a learnt vector of its own, which only begins as theirs, since then instructions are
tokens, and loader, trace and page need to know nothing new; at 64 cells that costs 4,096 numbers. They do not train the outputs
at levels. Ours count a tenth.
"""
MEASURED = """\
## What was measured

Nats a cell on the {held_out} held-out pictures, the class given, beside laws that are counted on the training pictures.
*Classes told apart*: pictures whose own class makes them likeliest. Cells in any order: the mean of four random orders; one
for the classes. `python -m decodescope.training.digits_card` measures it and writes this page.
"""
READ = """\
## How they were made

`python -m decodescope.training.digits` with these arguments, on one busy core.
"""
WEAK = """\
## Known weaknesses

Fifteen hundred pictures are few: without dropped parts and blurred levels the held-out loss rises again after ten times through
them. Each class has some hundred and fifty examples, and drawn digits are as uneven as those. Other things than digits are
unknown to them, and what comes after a wrong beginning is not worth much.
"""


def main() -> None:
    """Write the card."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--models", type=Path, default=MODELS, metavar="FOLDER", help="where the models' folders lie"
    )
    parser.add_argument("--pictures", type=Path, default=pictures.FILE)
    parser.add_argument("--out", type=Path, default=MODELS / "DIGITS.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.write_text(card(args.models, *pictures.load_pictures(args.pictures)), encoding="utf-8")


if __name__ == "__main__":
    main()
