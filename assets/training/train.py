"""Train one of the shipped models from nothing, on any machine, with one command.

    python assets/training/train.py lab
    python assets/training/train.py lab-draft --teacher lab

builds corpus and token ids where they are missing, trains, and writes `assets/models/<name>/`. An interrupted training
goes on from its last checkpoint in `build/training/` when the same command is given again. The schedule counts tokens,
not time: a busy machine takes longer and learns the same. While the learning rate is still constant `--tokens` may be
changed on the way; that is the same as having asked for it from the start.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import corpus
import torch
import torch.nn.functional as F
from data import Windows, held_out_windows, training_stream
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, LlamaForCausalLM

BUILD, MODELS = corpus.BUILD, corpus.ROOT / "assets" / "models"
VOCABULARY, CONTEXT = 4096, 2048

SHAPES = {
    "lab": dict(num_hidden_layers=8, hidden_size=384, num_attention_heads=6, num_key_value_heads=2, head_dim=64,
                intermediate_size=768),
    "lab-draft": dict(num_hidden_layers=2, hidden_size=128, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                      intermediate_size=384),
}
TOKENS = {"lab": 2.4, "lab-draft": 2.0}  # millions

# share of all tokens, window, tokens a step: attention is cheap on short windows, the last tokens teach the long ones
STAGES = [(0.50, 256, 4096), (0.30, 512, 4096), (0.12, 1024, 4096), (0.08, 2048, 8192)]
WARMUP = 60_000  # tokens over which the learning rates rise
HOLD = 0.5  # share of all tokens up to which they are constant; then straight down to nothing


def config(name: str) -> LlamaConfig:
    """The Llama configuration of a model of ours."""
    return LlamaConfig(
        **SHAPES[name], vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
        rms_norm_eps=1e-5, rope_theta=10000.0, attention_bias=False, mlp_bias=False, bos_token_id=None, eos_token_id=0,
        pad_token_id=1, dtype="bfloat16",
    )


def new_model(name: str, seed: int) -> LlamaForCausalLM:
    """A model with fresh float32 weights; what writes into the residual stream starts small."""
    torch.manual_seed(seed)
    shape = config(name)
    model = LlamaForCausalLM(shape).float()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if key.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_((2 * shape.num_hidden_layers) ** -0.5)
    return model


def rate(tokens: int, total: int) -> float:
    """The factor on the learning rates after `tokens` of `total`."""
    return min(1.0, (tokens + 1) / WARMUP, max(0.0, (1 - tokens / total) / (1 - HOLD)))


def optimizers(model: LlamaForCausalLM, lr: float, embed_lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for embeddings and norms."""
    matrices = [p for key, p in model.named_parameters() if p.ndim == 2 and "embed" not in key]
    rest = [p for key, p in model.named_parameters() if p.ndim == 1 or "embed" in key]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=embed_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def logits_of(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    """float32 [B, T, V] for ids int64 [B, T], computed in bfloat16."""
    with torch.autocast("cpu", torch.bfloat16):
        return model(ids, use_cache=False).logits.float()


def loss_of(model: LlamaForCausalLM, rows: Tensor, teacher: LlamaForCausalLM | None, share: float) -> Tensor:
    """Cross-entropy of the next token, mixed with KL(teacher || model) by `share` where there is a teacher."""
    logits = logits_of(model, rows[:, :-1]).flatten(0, 1)  # [B * T, V]
    loss = F.cross_entropy(logits, rows[:, 1:].flatten())
    if teacher is None:
        return loss
    with torch.no_grad():
        wanted = logits_of(teacher, rows[:, :-1]).flatten(0, 1).log_softmax(1)
    distance = F.kl_div(logits.log_softmax(1), wanted, log_target=True, reduction="batchmean")
    return (1 - share) * loss + share * distance


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, windows: Tensor, rows: int = 8) -> float:
    """Mean loss in nats a token over int64 [N, T] windows."""
    model.eval()
    losses = [F.cross_entropy(logits_of(model, part[:, :-1]).flatten(0, 1), part[:, 1:].flatten(), reduction="sum")
              for part in windows.split(rows)]
    model.train()
    return float(sum(losses)) / windows[:, 1:].numel()


def export(model: LlamaForCausalLM, name: str) -> None:
    """Write the model folder: each file whole under another name first, then in one move."""
    folder = MODELS / name
    folder.mkdir(parents=True, exist_ok=True)
    kept = LlamaForCausalLM(config(name)).to(torch.bfloat16)
    kept.load_state_dict(model.state_dict())
    kept.generation_config = GenerationConfig(eos_token_id=0, pad_token_id=1)
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        kept.save_pretrained(scratch)
        file = Path(scratch) / "config.json"
        said = json.loads(file.read_text()) | {"rope_theta": 10000.0}  # readers differ in where they look for it
        file.write_text(json.dumps(dict(sorted(said.items())), indent=2) + "\n")
        for part in ("config.json", "generation_config.json", "model.safetensors"):
            os.replace(Path(scratch) / part, folder / part)


class Run:
    """A training that can stop and go on: model, optimizers, tokens and minutes so far."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.name, self.total = args.name, int(args.tokens * 1e6)
        self.model = new_model(args.name, args.seed)
        self.optimizers = optimizers(self.model, args.lr, args.embed_lr)
        self.base = [args.lr, args.embed_lr]
        self.step, self.tokens, self.minutes, self.history = 0, 0, 0.0, []
        self.settings = {k: v for k, v in vars(args).items() if k not in ("fresh", "trial", "threads", "compile")}
        self.file = BUILD / f"{args.name}.pt"
        if self.file.exists() and not args.fresh and not args.trial:
            self.resume()

    def resume(self) -> None:
        """Go on from the checkpoint if it has the same settings, or another budget and is still at full rate."""
        saved = torch.load(self.file)
        same = saved["settings"] | {"tokens": 0} == self.settings | {"tokens": 0}
        early = saved["tokens"] <= HOLD * 1e6 * min(saved["settings"]["tokens"], self.settings["tokens"])
        if not same or not (early or saved["settings"]["tokens"] == self.settings["tokens"]):
            return
        self.model.load_state_dict(saved["model"])
        for optimizer, state in zip(self.optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        for key in ("step", "tokens", "minutes", "history"):
            setattr(self, key, saved[key])

    def save(self) -> None:
        """Write the checkpoint."""
        part = self.file.with_suffix(".partial")
        torch.save({"settings": self.settings, "model": self.model.state_dict(), "step": self.step,
                    "optimizers": [o.state_dict() for o in self.optimizers], "tokens": self.tokens,
                    "minutes": self.minutes, "history": self.history}, part)
        part.rename(self.file)

    def update(self, loss: Tensor) -> None:
        """One step of both optimizers at the rate of the schedule."""
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, base in zip(self.optimizers, self.base, strict=True):
            optimizer.param_groups[0]["lr"] = base * rate(self.tokens, self.total)
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1


def stages(total: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, start, stop, window and tokens a step of every stage, in tokens."""
    at = 0.0
    for number, (share, length, batch) in enumerate(STAGES):
        yield number, round(at * total), round((at + share) * total), length, batch
        at += share


def train(run: Run, args: argparse.Namespace) -> None:
    """Train to the end of the token budget, reporting every twenty steps."""
    stream = training_stream()
    check = held_out_windows(512, 32)
    teacher = None
    if args.teacher:
        teacher = AutoModelForCausalLM.from_pretrained(MODELS / args.teacher, dtype=torch.float32).eval()
    loss_now = torch.compile(loss_of, dynamic=False) if args.compile else loss_of
    durations, recent, saved, checked = [], [], time.time(), run.tokens
    for number, start, stop, length, batch in stages(run.total):
        # every stage has its own quarter of the text, so that little is read twice
        part = (len(stream) - 1) // len(STAGES)
        windows = Windows(stream[number * part : (number + 1) * part + 1], length, seed=args.seed + number)
        while run.tokens < stop:
            began = time.time()
            rows = windows.rows((run.tokens - start) // length, batch // length)
            late = run.tokens >= (1 - args.distil) * run.total
            loss = loss_now(run.model, rows, teacher if late else None, args.share)
            run.update(loss)
            run.tokens += batch
            durations = [*durations[-50:], time.time() - began]
            run.minutes += min(durations[-1], 3 * statistics.median(durations)) / 60  # a pause from outside is no work
            recent.append(loss.item())
            if run.step % 20 == 0:
                speed = batch / statistics.median(durations)
                print(f"step {run.step} tokens {run.tokens / 1e6:.2f}M loss {statistics.mean(recent):.3f} "
                      f"rate {rate(run.tokens, run.total):.2f} window {length} {speed:.0f} tokens/s", flush=True)
                recent = []
            if args.trial and run.minutes > args.trial:
                return
            if run.tokens - checked > run.total / 8:
                checked = run.tokens
                run.history.append((run.tokens, round(held_out_loss(run.model, check), 4)))
                print(f"held-out loss {run.history[-1][1]:.3f} after {run.minutes:.1f} minutes", flush=True)
            if time.time() - saved > 180 and not args.trial:
                run.save()
                saved = time.time()
    run.history.append((run.tokens, round(held_out_loss(run.model, check), 4)))
    run.save()


def main() -> None:
    """Train, write the folder, and note how it was made."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument("--tokens", type=float, help="training tokens in millions")
    parser.add_argument("--lr", type=float, default=0.006, help="of the matrices (Muon)")
    parser.add_argument("--embed-lr", type=float, default=0.004, help="of embeddings and norms (AdamW)")
    parser.add_argument("--teacher", choices=SHAPES, help="distil from this model's logits")
    parser.add_argument("--distil", type=float, default=0.5, help="the last share of the tokens has the teacher")
    parser.add_argument("--share", type=float, default=0.9, help="of the teacher's divergence in the loss then")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="a fifth faster; needs a C++ compiler")
    parser.add_argument("--fresh", action="store_true", help="ignore a checkpoint")
    parser.add_argument("--trial", type=float, default=0, help="stop after so many minutes and write nothing")
    args = parser.parse_args()
    args.tokens = args.tokens or TOKENS[args.name]
    torch.set_num_threads(args.threads)
    if not (BUILD / "corpus.jsonl").exists():
        corpus.write(*corpus.build(scale=1.0, seed=0))
    run = Run(args)
    train(run, args)
    if not args.trial:
        export(run.model, args.name)
        record = {"settings": run.settings, "steps": run.step, "tokens": run.tokens, "minutes": round(run.minutes, 1),
                  "held_out": run.history}
        (BUILD / f"{args.name}.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
