"""Train PPD's prompt tokens on a frozen model, and write them into its folder, `assets/models/<model>/heads/ppd/`.

    python -m decodescope.training.ppd
    python -m decodescope.training.ppd --ensemble 2 --steps 1000

Chen et al. 2024, arXiv:2405.18428; hmarkc/parallel-prompt-decoding, prompt/train/train.py. Prompt tokens follow random places
of the text. Each is to have the distribution that the model itself has of the later token when it has read all before it:
Kullback-Leibler divergence, weight 0.8^k for prompt token k, mean over them. Adam, 1e-2, cosine.

The model reads the text once without gradients, and its keys and values serve all prompt tokens of the step; only the
embeddings of these learn. The text is what the model writes, with some of the training text, as for the draft heads (heads.py).

At the end it prints how often each prompt token's guess is the model's likeliest token of held-out text, compared with a table
of trigrams that gets the same tokens: prompt tokens that do not beat it are broken.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.heads.drafting.ppd import PromptTokens
from decodescope.engine.model.heads.files import write_head
from decodescope.engine.training.measures import trigram_floor

from .heads import MODELS, UNSEEN, fit, load_texts, load_weights, mix_text
from .net import Net
from .slot_tokens import measure, read_context, slot_logits, target_logits

WINDOWS, PLACES = 4, 24  # windows a step, and places in each behind which prompt tokens hang
HEADS = 3


def loss_of(net: Net, head: PromptTokens, ids: Tensor, places: Tensor) -> Tensor:
    """Mean over prompt tokens of 0.8^k times the divergence of guess k from the model's distribution, in nats."""
    past, features = read_context(net, ids)
    made = slot_logits(net, head, past, places).float().log_softmax(-1)
    law = target_logits(net, features, places, made.shape[2]).log_softmax(-1)
    each = F.kl_div(made, law, reduction="none", log_target=True).sum(-1).mean((0, 1))  # [K]
    return (each * 0.8 ** torch.arange(len(each), device=each.device)).mean()


def new_head(net: Net, ensemble: int, seed: int = 0, heads: int = HEADS) -> PromptTokens:
    """Fresh prompt tokens: embeddings of random ids."""
    head = PromptTokens(d=net.shape.width, heads=heads, ensemble=ensemble)
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(net.shape.vocabulary, (heads, ensemble), generator=draw)
    with torch.no_grad():
        head.embeds.copy_(net.model.embed_tokens.weight[ids])
    return head


def train(  # noqa: PLR0913
    net: Net,
    head: PromptTokens,
    batches: Iterator[Tensor],
    steps: int,
    lr: float = 1e-2,
    seed: int = 0,
    places: int = PLACES,
    half: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Adam over `steps` batches of ids int64 [B, T]; the model stays as it is. half: products in bfloat16."""
    net.requires_grad_(False)
    optimizer = torch.optim.Adam(head.requires_grad_(True).parameters(), lr=lr)
    draw = torch.Generator().manual_seed(seed)

    def loss() -> Tensor:
        ids = next(batches)
        room = ids.shape[1] - 1 - head.shape["heads"]  # places behind which all guesses have a distribution
        at = torch.randperm(room, generator=draw)[:places].to(ids.device)
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=half):
            return loss_of(net, head, ids, at)

    fit(head, optimizer, loss, steps, lr, say)


def shuffle_batches(rows: Tensor, windows: int, seed: int, device: str) -> Iterator[Tensor]:
    """Batches of so many random rows of int64 [N, T], without end."""
    r = np.random.default_rng(seed)
    while True:
        for some in torch.from_numpy(r.permutation(len(rows))).split(windows):
            yield rows[some].to(device)


def main(words: Sequence[str] | None = None) -> None:
    """Write text, train, measure, and keep the prompt tokens."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="lab", help="a folder of assets/models")
    parser.add_argument(
        "--from", dest="source", type=Path, help="folder of ppd/: go on with these embeddings"
    )
    parser.add_argument("--ensemble", type=int, default=1, help="embeddings of a prompt token")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument(
        "--text", type=float, default=1.0, help="of the model's own text, in millions of tokens"
    )
    parser.add_argument(
        "--corpus", type=float, default=0.25, help="share of windows that come from the training text"
    )
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--unseen", type=int, default=UNSEEN, help="windows of held-out text to measure on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as torch finds it")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--into", type=Path, help="folder in which ppd/ is written; by default the model's heads/"
    )
    args = parser.parse_args(words)
    if args.threads:
        torch.set_num_threads(args.threads)

    from decodescope.engine.session.load import fingerprint

    folder = MODELS / args.model
    made_for = fingerprint(folder)
    net = Net.from_folder(folder).to(args.device).requires_grad_(False)
    corpus, own, held_out = load_texts(net, made_for, args.text, args.seed, args.unseen)
    head = new_head(net, args.ensemble, args.seed).to(args.device)
    earlier = {"from": load_weights(head, args.source)} if args.source else {}
    print(
        f"{sum(p.numel() for p in head.parameters()):,} parameters; {args.steps} steps of {WINDOWS} windows",
        flush=True,
    )
    batches = shuffle_batches(mix_text(own, corpus, args.corpus), WINDOWS, args.seed + 4, args.device)
    train(
        net,
        head,
        batches,
        args.steps,
        args.lr,
        args.seed + 5,
        half=True,
        say=lambda text: print(text, flush=True),
    )
    ranks = measure(net, head, held_out)
    trigrams = trigram_floor(net, head.kind, len(ranks), own, held_out)
    for k, (row, usual) in enumerate(zip(ranks, trigrams, strict=True)):
        print(
            f"ppd {k}: the model's likeliest token at {row[0]:.1%} of held-out places; trigrams {usual:.1%}"
        )
    head.rates, head.made_for = tuple(tuple(round(x, 5) for x in row) for row in ranks), made_for
    settings = {k: vars(args)[k] for k in ("steps", "text", "corpus", "lr", "seed")} | earlier
    notes = {"trigrams": [round(x, 5) for x in trigrams], "made_with": settings}
    write_head(head, (args.into or folder / "heads") / head.kind, notes)


if __name__ == "__main__":
    main()
