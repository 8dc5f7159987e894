"""Train `lab-blocks`, the Block Transformer, from nothing or further.

    python -m decodescope.training.block_transformer --within 15

Three nets learn as one (Ho et al. 2024, arXiv:2406.02657; the authors' `lookup` embedder, `prefix` decoder and
`conf/trainer/block_main_b4_*.yaml`). The first is a table: its rows for the tokens of a block, one after another, are that
block's embedding. The second is a block decoder, causal over blocks; its output is mapped to the prefix of the block to come.
The third is a token decoder that sees this prefix and the tokens of its own block before the one it predicts.

The loss is that of the tokens of all blocks but the first, which has nothing before it. Some padding in front of it moves where
blocks begin (the authors' `random_pad_first_block`).

The vocabulary is the first 512 entries of the other models': their bytes and first merges, so that half a megabyte has room for
layers. The text is the stories and talks of the corpus. The token decoder becomes the folder's model, the other two its
heads/block_transformer.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from decodescope.engine.model.heads import files
from decodescope.engine.model.heads.block_transformer import BlockDecoder
from decodescope.engine.session.load import fingerprint

from . import data, train
from .net import Net, NetLayer, NetShape, Norm

NAME = "lab-blocks"
BLOCK = 4
LAYERS = 2
VOCABULARY = 512
SHAPE = NetShape(
    layers=2, width=64, heads=4, kv_heads=4, head_width=16, inner=144, vocabulary=VOCABULARY, context=1024
)
RATES = (0.006, 0.008)  # Muon's, AdamW's
KINDS = {"story": 0.8, "talk": 0.2}
WINDOW, PAD = 256, 1
PLAN = train.TrainingPlan(8192, {WINDOW: 1.0}, {WINDOW: 1.0}, warmup=40, check=2.0)


def shorten_tokenizer(file: Path = data.TOKENIZER, size: int = VOCABULARY) -> str:
    """A tokenizer.json of the first `size` entries of another, with the merges that make them."""
    said = json.loads(file.read_text())
    kept = {token: at for token, at in said["model"]["vocab"].items() if at < size}
    pairs = [pair if isinstance(pair, list) else pair.split(" ") for pair in said["model"]["merges"]]
    said["model"]["vocab"] = kept
    said["model"]["merges"] = [pair for pair in pairs if all(x in kept for x in (*pair, "".join(pair)))]
    return json.dumps(said, ensure_ascii=False)


def texts(split: str, corpus: Path = data.CORPUS) -> dict[str, data.CorpusText]:
    """Kind -> text of a split of the corpus, in the ids of the short vocabulary."""
    with open(corpus, encoding="utf-8") as lines:
        wanted = [d for d in map(json.loads, lines) if d["kind"] in KINDS and d["split"] == split]
    return {kind: text for (_, kind), text in data.encode_documents(wanted, shorten_tokenizer()).items()}


class BlockNet(nn.Module):
    """Embedder, block decoder and token decoder."""

    def __init__(self, shape: NetShape = SHAPE, block: int = BLOCK, layers: int = LAYERS) -> None:
        super().__init__()
        self.shape, self.block = shape, block
        self.tokens = Net(shape)
        self.embed_blocks = nn.Embedding(shape.vocabulary, shape.width // block)
        self.layers = nn.ModuleList(NetLayer(shape) for _ in range(layers))
        self.norm = Norm(shape.width, shape.epsilon)
        self.prefix = nn.Linear(shape.width, shape.width, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2 and not name.startswith("tokens."):
                small = (2 * layers) ** -0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                nn.init.normal_(weight, std=0.02 * small)

    def contexts(self, ids: Tensor) -> Tensor:
        """float [B, N, D]: behind each of the N blocks of ids int64 [B, N * block] the prefix of the next."""
        x = self.embed_blocks(ids).view(len(ids), -1, self.shape.width)
        turn = self.tokens.cosine[: x.shape[1]], self.tokens.sine[: x.shape[1]]
        for i, layer in enumerate(self.layers):
            x = layer(x, turn, None, i, None)
        return self.prefix(self.norm(x))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [B, N - 1, block, V] of the tokens of all blocks but the first, for ids int64 [B, N * block]."""
        before = self.contexts(ids)[:, :-1].flatten(0, 1)[:, None]  # [B (N - 1), 1, D]
        own = ids.view(len(ids), -1, self.block)[:, 1:, :-1].flatten(0, 1)  # [B (N - 1), block - 1]
        x = torch.cat((before, self.tokens.model.embed_tokens(own).to(before.dtype)), 1)
        turn = self.tokens.cosine[: self.block], self.tokens.sine[: self.block]
        for i, layer in enumerate(self.tokens.layers):
            x = layer(x, turn, None, i, None)
        return self.tokens.head(x).view(len(ids), -1, self.block, self.shape.vocabulary)

    def parts(self) -> dict[str, Tensor]:
        """The tensors of heads/block_transformer: embedder and block decoder."""

        def stacked(*names: str) -> Tensor:
            return torch.stack(
                [torch.cat([layer.get_parameter(f"{x}.weight") for x in names]) for layer in self.layers]
            )

        return {
            "table": self.embed_blocks.weight,
            "attn_norm": stacked("input_layernorm"),
            "qkv": stacked(*(f"self_attn.{x}_proj" for x in "qkv")),
            "out": stacked("self_attn.o_proj"),
            "mlp_norm": stacked("post_attention_layernorm"),
            "gate_up": stacked("mlp.gate_proj", "mlp.up_proj"),
            "down": stacked("mlp.down_proj"),
            "norm": self.norm.weight,
            "prefix": self.prefix.weight,
        }


@dataclass
class PaddedWindows:
    """Windows int64 [B, T], the same padding in front of all."""

    ids: Tensor

    def to(self, device: torch.device) -> PaddedWindows:
        """The same elsewhere."""
        return PaddedWindows(self.ids.to(device))


def pad_windows(rows: Tensor, pad: int) -> Tensor:
    """The windows int64 [B, T] behind so much padding, the last tokens left out."""
    return torch.cat((rows.new_full((len(rows), pad), PAD), rows[:, : rows.shape[1] - pad]), 1)


class BlockTrainer(train.Trainer[BlockNet]):
    """The training on windows in which blocks begin anywhere."""

    def __init__(
        self,
        net: BlockNet,
        some: dict[str, data.CorpusText],
        plan: train.TrainingPlan,
        rates: tuple[float, float],
        seed: int = 0,
    ) -> None:
        super().__init__(net, plan, rates, seed)
        self.mixer = data.Mixer(some, KINDS, [WINDOW], seed)
        self.place = self.mixer.state()

    def load_state(self, state: dict) -> None:
        """Go on from `state`."""
        super().load_state(state)
        self.mixer.load_state(self.place)

    def batch(self, step: int, cooling: bool) -> tuple[PaddedWindows, dict]:
        """The windows of a step, and the place in the text after them."""
        pad = Random(f"{self.seed}/{step}").randrange(BLOCK)
        rows = self.mixer.rows(WINDOW, self.plan.batch // WINDOW)[:, :WINDOW]
        return PaddedWindows(pad_windows(rows, pad)), self.mixer.state()

    def loss(self, rows: PaddedWindows) -> tuple[Tensor, Tensor, int]:
        """The loss of windows, and the tokens that were predicted."""
        # attention written out: on a processor the fused one is slow backwards through windows this short
        with sdpa_kernel(SDPBackend.MATH):
            loss = nats(self.net, rows.ids).mean()
        return loss, loss.detach()[None], rows.ids.numel()

    def measure(self, check: dict[str, Tensor]) -> dict[str, float]:
        """Nats a token of held-out windows by kind."""
        with torch.no_grad():
            return {kind: float(nats(self.net, rows).mean()) for kind, rows in check.items()}

    def describe(self) -> dict:
        """Objective and text."""
        return {"objective": {"next token": True, "block": BLOCK}, "mixture": KINDS}


def nats(net: BlockNet, ids: Tensor) -> Tensor:
    """float [B, N - 1, block]: nats of the tokens of all blocks but the first of ids int64 [B, N * block]."""
    logits, due = net(ids), ids.view(len(ids), -1, net.block)[:, 1:]
    return F.cross_entropy(logits.float().flatten(0, 2), due.flatten(), reduction="none").view(due.shape)


def card(training: BlockTrainer, valid: dict[str, data.CorpusText]) -> dict:
    """The record of a training in the head's config: its size, and nats a byte of the held-out text by kind."""
    a_byte = {}
    for kind, text in valid.items():
        rows = data.windows({kind: text}, WINDOW, len(text.ids))
        a_byte[kind] = round(training.measure({kind: rows})[kind] * len(text.ids) / text.size, 4)
    return {
        "steps": training.step,
        "tokens": training.tokens,
        "minutes": round(training.minutes, 1),
        "nats_a_byte": a_byte,
    }


def write(net: BlockNet, folder: Path, notes: dict | None = None) -> None:
    """Write the model folder: the token decoder, its tokenizer, and the head around it; the head's config gets `notes`."""
    net.tokens.to_folder(folder, {"block_length": net.block})
    (folder / "tokenizer.json").write_text(shorten_tokenizer(), encoding="utf-8")
    said = json.loads(data.TOKENIZER.with_name("tokenizer_config.json").read_text())
    said["model_max_length"] = net.shape.context
    (folder / "tokenizer_config.json").write_text(json.dumps(said, indent=2) + "\n")
    s = net.shape
    sizes = dict(
        d=s.width,
        vocab=s.vocabulary,
        block_length=net.block,
        layers=len(net.layers),
        n_heads=s.heads,
        head_dim=s.head_width,
        d_ff=s.inner,
    )
    head = BlockDecoder.from_tensors(
        sizes, {name: x.detach().float().contiguous() for name, x in net.parts().items()}
    )
    head.made_for = fingerprint(folder)
    files.write_head(head, folder / "heads" / head.kind, notes)


def main() -> None:
    """Train, write the folder, and note how it was made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=float, help="millions at which the constant rate ends")
    parser.add_argument("--minutes", type=float, help="stop after so many; the same command goes on")
    parser.add_argument("--within", type=float, help="minutes for all of it, the fall of the rate included")
    parser.add_argument("--corpus", type=Path, default=data.CORPUS, help="the corpus of corpus.py")
    parser.add_argument(
        "--out", metavar="FOLDER", help=f"model folder to write; assets/models/{NAME} without it"
    )
    parser.add_argument("--as", dest="as_name", default=NAME, help="name of the checkpoints")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="forget the checkpoints")
    parser.add_argument("--trial", action="store_true", help="read and write no checkpoint and no folder")
    args = parser.parse_args()
    args.source = args.cooldown = None
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    training = BlockTrainer(BlockNet(), texts("train", args.corpus), PLAN, RATES, args.seed)
    file = train.open_checkpoint(training, args)
    valid = texts("valid", args.corpus)
    check = {kind: data.windows({kind: text}, WINDOW, 16) for kind, text in valid.items()}
    if train.run(training, args, None if args.trial else file, check) and not args.trial:
        write(training.net, Path(args.out or train.MODELS / NAME), card(training, valid))
        train.note(training, args)


if __name__ == "__main__":
    main()
