"""Train `lab-digits` or `lab-digits-any`, the models of grey pictures of digits, from nothing or further.

    python -m decodescope.training.digits lab-digits --within 6
    python -m decodescope.training.digits lab-digits-any --within 10

Both predict the next token of pictures as digits_data.py writes them. For the second the order of the cells is drawn again for
every picture and step (RandAR, 2412.01827, section 3). So the output at an instruction learns the level of its cell after any
other cells. The loss of the instructions counts a tenth: they only say which cells are left.

Fifteen hundred pictures are soon known by heart. So a picture is moved by a cell where it loses nothing by it, a share of what
each part of a layer adds is dropped, and some levels are read wrong by one.

In any order a level is of use only to rows that know its cell, which is one token before it. A loss on the first layer's output
at levels asks for that cell, and instructions begin as the authors' (`init_instructions`). Without these two, for five million
tokens the model knew no more than class and cell alone give; with the first alone, for two million. Checkpoints and the fall of
the rate are train.py's.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import digits_data as pictures
from . import train
from .digits_data import Pictures, PictureWindows
from .net import Net, NetShape

SIZES: dict[str, Any] = dict(layers=4, width=64, heads=4, kv_heads=4, head_width=16, inner=192)
SHAPES = {
    "lab-digits": NetShape(**SIZES, vocabulary=pictures.vocabulary_size(False), context=128),
    "lab-digits-any": NetShape(**SIZES, vocabulary=pictures.vocabulary_size(True), context=256, theta=1e6),
}
RATES = (0.004, 0.006)  # Muon's, AdamW's
DROPPED = {
    False: 0.2,
    True: 0.05,
}  # of what a part adds to the residual stream; less where the order is another every time
BLURRED = 0.1  # of the levels that are read
INSTRUCTIONS = 0.1  # the weight of an instruction as a prediction
ORDERS = 4  # in which a held-out picture is read
BOUND = 0.3  # the weight of the cell that a level is asked for
PLANS = {
    cells: train.TrainingPlan(batch, {}, {}, warmup=40, check=0.5)
    for cells, batch in ((False, 4096), (True, 2048))
}


def init_instructions(net: Net) -> None:
    """Begin with the authors' instructions: one vector, turned by the cell's row in one half of its pairs and by its column in
    the other, so that two of them are as alike as their cells are near. From there each is learnt by itself."""
    D = net.shape.width
    cell = torch.arange(pictures.CELLS)
    speeds = torch.logspace(0, -1, D // 4)  # radians a cell
    angle = torch.cat(
        (torch.outer(cell // pictures.SIDE, speeds), torch.outer(cell % pictures.SIDE, speeds)), 1
    )  # [64, D / 2]
    x, y = (torch.randn(2, D // 2) * 0.1).unbind()
    turned = torch.cat((x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()), 1)
    net.model.embed_tokens.weight.data[pictures.FIRST_CELL :] = turned


def picture_windows(some: Pictures, cells: bool, chance: torch.Generator) -> PictureWindows:
    """The windows of pictures, with instructions for cells in any order or without."""
    return pictures.any_order_windows(some, chance, INSTRUCTIONS) if cells else pictures.raster_windows(some)


def losses(net: Net, rows: PictureWindows) -> Tensor:
    """float [B, T - 1]: nats of each token after the first."""
    return logit_losses(net(rows.ids[:, :-1]), rows)


def logit_losses(logits: Tensor, rows: PictureWindows) -> Tensor:
    """float [B, T - 1]: nats of each token after the first under logits [B, T - 1, V]."""
    flat = F.cross_entropy(logits.float().flatten(0, 1), rows.ids[:, 1:].flatten(), reduction="none")
    return flat.view(len(rows.ids), -1)


def binding_loss(net: Net, state: Tensor, rows: PictureWindows) -> Tensor:
    """The mean nats of each level's cell, predicted from `state` [B, T - 1, D] at its row with the embeddings of the cells."""
    at = rows.levels[:, :-1]
    cells = net.model.embed_tokens.weight[pictures.FIRST_CELL :]
    wanted = rows.ids[:, :-1].roll(1, 1)[at] - pictures.FIRST_CELL
    return F.cross_entropy(F.linear(F.rms_norm(state[at], state.shape[2:]), cells).float(), wanted)


@torch.no_grad()
def nats(net: Net, held_out: Pictures, cells: bool, orders: int = ORDERS) -> float:
    """Nats a cell; of cells in any order the mean over so many orders of each picture, the same at every call."""
    chance, total = torch.Generator().manual_seed(0), 0.0
    for _ in range(orders if cells else 1):
        rows = picture_windows(held_out, cells, chance).to(next(net.parameters()).device)
        total += float(losses(net, rows)[rows.levels[:, 1:]].mean())
    return total / (orders if cells else 1)


class DigitsTrainer(train.Trainer[Net]):
    """A training on pictures that are drawn by seed and step."""

    FIGURES = ("loss", "cell", "bound")

    def __init__(
        self,
        net: Net,
        some: Pictures,
        cells: bool,
        plan: train.TrainingPlan,
        rates: tuple[float, float],
        seed: int = 0,
    ) -> None:
        super().__init__(net, plan, rates, seed)
        self.pictures, self.cells = some, cells

        for layer in net.layers:
            for part in (layer.self_attn, layer.mlp):
                part.register_forward_hook(self.drop)

    def drop(self, part: nn.Module, _: object, added: Tensor) -> Tensor:
        """What a part adds, less the share that is dropped; all of it where nothing is learnt."""
        return F.dropout(added, DROPPED[self.cells], training=torch.is_grad_enabled())

    def batch(self, step: int, cooling: bool) -> tuple[PictureWindows, None]:
        """The windows of a step."""
        chance = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        B = self.plan.batch // (2 * pictures.CELLS if self.cells else pictures.CELLS)
        some = self.pictures.select(torch.randint(len(self.pictures.classes), (B,), generator=chance))
        some = Pictures(pictures.shift_pictures(some.levels, chance), some.classes)
        return picture_windows(some, self.cells, chance), None

    def loss(self, rows: PictureWindows) -> tuple[Tensor, Tensor, int]:
        """The loss of windows, float [3]: it, nats a cell and of a level's cell, and the tokens that were predicted."""
        # attention written out: on a processor the fused one is slow backwards through windows this short
        with (
            torch.autocast(rows.ids.device.type, torch.bfloat16, enabled=rows.ids.is_cuda),
            sdpa_kernel(SDPBackend.MATH),
        ):
            states = self.net.states(pictures.blur_levels(rows, BLURRED)[:, :-1])
            each, weight = logit_losses(self.net.head(states[-1]), rows), rows.weight[:, 1:]
            bound = binding_loss(self.net, states[1], rows) if self.cells else each.new_zeros(())
        loss = (each * weight).sum() / weight.sum() + BOUND * bound
        return loss, torch.stack((loss, each[rows.levels[:, 1:]].mean(), bound)).detach(), each.numel()

    def measure(self, check: dict) -> dict[str, float]:
        """Nats a cell of the held-out pictures."""
        return {"cell": nats(self.net, check["held out"], self.cells)}

    def describe(self) -> dict:
        """Objective and text."""
        weights = {"instructions": INSTRUCTIONS, "bound": BOUND} if self.cells else {}
        return {"objective": {"next token": True, **weights}, "mixture": {"scikit-learn's digits": 1.0}}


def write(net: Net, folder: Path, cells: bool) -> None:
    """Write the model folder."""
    net.to_folder(folder, {"picture": pictures.picture_config(cells)})
    pictures.save_tokenizer(folder, cells, net.shape.context)


def main() -> None:
    """Train, write the folder, and note how it was made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument(
        "--from", dest="source", metavar="FOLDER", help="begin with these weights, not from nothing"
    )
    parser.add_argument("--tokens", type=float, help="millions at which the constant rate ends")
    parser.add_argument("--minutes", type=float, help="stop after so many; the same command goes on")
    parser.add_argument("--within", type=float, help="minutes for all of it, the fall of the rate included")
    parser.add_argument(
        "--pictures", type=Path, default=pictures.FILE, help="where they are kept once they were read"
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="model folder to write; assets/models/NAME without it"
    )
    parser.add_argument("--as", dest="as_name", help="name of the checkpoints; NAME without it")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="forget the checkpoints")
    parser.add_argument("--trial", action="store_true", help="read and write no checkpoint and no folder")
    args = parser.parse_args()
    args.as_name = args.as_name or args.name
    args.cooldown = None
    cells = args.name.endswith("any")
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    some, held_out = pictures.load_pictures(args.pictures)
    net = Net.from_folder(args.source) if args.source else Net(SHAPES[args.name])
    if cells and not args.source:
        init_instructions(net)
    training = DigitsTrainer(net.to(args.device), some, cells, PLANS[cells], RATES, args.seed)
    file = train.open_checkpoint(training, args)
    if train.run(training, args, None if args.trial else file, {"held out": held_out}) and not args.trial:
        write(training.net, Path(args.out or train.MODELS / args.name), cells)
        train.note(training, args)


if __name__ == "__main__":
    main()
