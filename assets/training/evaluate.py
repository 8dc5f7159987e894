"""Measure the shipped models on held-out text and write the model card `assets/models/README.md`.

    python assets/training/evaluate.py

Losses are over windows of 1024 tokens of documents that no training saw. Bits a byte divide by the mean bytes a token
of such text, so they compare across tokenizers. Agreement is what speculative decoding lives on: at how many positions
of held-out text draft and target rank the same token first, and how much of their two laws overlaps, the sum over
tokens of min(p, q), which is the chance that a drafted token is accepted.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from corpus import BUILD, ROOT
from data import held_out, held_out_windows
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

MODELS = ROOT / "assets" / "models"
KINDS = {"all": None, "code": "code", "docs": "docs", "stories": "story", "chats": "chat", "JSON": "json"}

CODE_PROMPT = '''class Stack:
    """A stack of items."""

    def __init__(self):
        self.items = []

    def push'''  # not "push(": the tokenizer has "(self" in one piece
STORY_PROMPT = "Once upon a time there was a small fox named Hugo."
CHAT_PROMPT = [{"role": "user", "content": "Write a function that tests whether a number is prime."}]


@torch.no_grad()
def logits(model: PreTrainedModel, windows: Tensor) -> Tensor:
    """float32 [N, T, V]: the model's logits at every position of int64 [N, T] windows."""
    return torch.cat([model(part, use_cache=False).logits.float() for part in windows.split(2)])


def losses(model: PreTrainedModel, windows: Tensor) -> float:
    """Mean loss in nats a token."""
    each = [F.cross_entropy(logits(model, part)[:, :-1].transpose(1, 2), part[:, 1:], reduction="sum").item()
            for part in windows.split(2)]
    return sum(each) / windows[:, 1:].numel()


def bytes_a_token(kind: str | None) -> float:
    """Bytes of held-out text per token of it; the mark at a document's end counts as a token of no byte."""
    chosen = [d for d in held_out() if kind in (None, d["kind"])]
    return sum(len(d["text"].encode()) for d in chosen) / sum(len(d["ids"]) for d in chosen)


def agreement(target: PreTrainedModel, draft: PreTrainedModel, windows: Tensor) -> tuple[float, float]:
    """Share of positions with the same first choice, and mean overlap of the two laws."""
    same, overlap, count = 0, 0.0, 0
    for part in windows.split(1):
        p, q = logits(target, part).softmax(2), logits(draft, part).softmax(2)  # [1, T, V]
        same += int((p.argmax(2) == q.argmax(2)).sum())
        overlap += float(torch.minimum(p, q).sum())
        count += part.numel()
    return same / count, overlap / count


def by_length(model: PreTrainedModel, length: int = 2048) -> list[tuple[str, float]]:
    """Loss on long windows by position: a model that uses its context gets better along it."""
    windows = held_out_windows(length, 12)
    loss = torch.cat([F.cross_entropy(logits(model, w)[:, :-1].transpose(1, 2), w[:, 1:], reduction="none")
                      for w in windows.split(2)]).mean(0)  # [T - 1]
    cuts = [0, 128, 512, 1024, length - 1]
    return [(f"{a} to {b}", float(loss[a:b].mean())) for a, b in pairwise(cuts)]


def sample(model: PreTrainedModel, tokenizer, prompt: str, count: int = 120) -> str:
    """Greedy continuation of a prompt, the prompt included, up to <|end|>."""
    ids = torch.tensor([tokenizer(prompt)["input_ids"]])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_length=ids.shape[1] + count, do_sample=False)
    return tokenizer.decode(out[0]).removesuffix("<|end|>")


def samples(model: PreTrainedModel, tokenizer) -> list[tuple[str, str]]:
    """One greedy text each from a code prompt, a story prompt and a chat prompt: the first ones, not the best."""
    chat = tokenizer.apply_chat_template(CHAT_PROMPT, tokenize=False, add_generation_prompt=True)
    return [(name, sample(model, tokenizer, prompt))
            for name, prompt in [("Code", CODE_PROMPT), ("Story", STORY_PROMPT), ("Chat", chat)]]


def measure() -> dict:
    """All numbers and samples of the card."""
    tokenizer = AutoTokenizer.from_pretrained(MODELS / "lab")
    names = ["lab", "lab-draft"]
    models = {n: AutoModelForCausalLM.from_pretrained(MODELS / n, dtype=torch.float32).eval() for n in names}
    found: dict = {"loss": {}, "agreement": {}, "position": {}, "samples": {}, "size": {}}
    for n, model in models.items():
        found["size"][n] = sum(p.numel() for p in model.parameters())
        found["position"][n] = by_length(model)
        found["samples"][n] = samples(model, tokenizer)
        for title, kind in KINDS.items():
            loss = losses(model, held_out_windows(1024, 12 if kind else 36, kind))
            found["loss"][n, title] = (loss, loss / math.log(2) / bytes_a_token(kind))
    for title, kind in KINDS.items():
        windows = held_out_windows(1024, 8 if kind else 24, kind)
        found["agreement"][title] = agreement(models["lab"], models["lab-draft"], windows)
    return found


def card(found: dict) -> str:
    """The model card as Markdown."""
    record = {n: json.loads((BUILD / f"{n}.json").read_text()) for n in ("lab", "lab-draft")}
    sources = json.loads((BUILD / "sources.json").read_text())
    title = {"lab": "`lab`, the target", "lab-draft": "`lab-draft`, its draft"}
    out = [INTRODUCTION]
    out.append("| | parameters | training tokens | steps | minutes | held-out loss | bits a byte |")
    out.append("|---" * 7 + "|")
    for n, r in record.items():
        loss, bits = found["loss"][n, "all"]
        size, tokens = found["size"][n], r["tokens"] / 1e6
        out.append(f"| `{n}` | {size:,} | {tokens:.2f} M | {r['steps']:,} | {r['minutes']:.0f} | {loss:.3f} | "
                   f"{bits:.3f} |")
    out.append(MAKING + "```")
    for n, r in record.items():
        s = r["settings"]
        options = ["tokens", "lr", "embed_lr", *(["teacher", "distil", "share"] if s["teacher"] else [])]
        out.append(f"python assets/training/train.py {n} "
                   + " ".join(f"--{o.replace('_', '-')} {s[o]}" for o in options))
    out.append("```\n\n## Held-out loss by kind of text\n\nNats a token (bits a byte), windows of 1024 tokens.\n")
    out.append("| | " + " | ".join(KINDS) + " |\n|---|" + "---|" * len(KINDS))
    for n in record:
        cells = [f"{found['loss'][n, k][0]:.3f} ({found['loss'][n, k][1]:.3f})" for k in KINDS]
        out.append(f"| `{n}` | " + " | ".join(cells) + " |")
    out.append("\nBy position in windows of 2048 tokens:\n")
    out.append("| | " + " | ".join(where for where, _ in found["position"]["lab"]) + " |\n|---|" + "---|" * 4)
    out += [f"| `{n}` | " + " | ".join(f"{loss:.3f}" for _, loss in found["position"][n]) + " |" for n in record]
    out.append(AGREEMENT)
    out.append("| | " + " | ".join(KINDS) + " |\n|---|" + "---|" * len(KINDS))
    out.append("| same first choice | " + " | ".join(f"{found['agreement'][k][0]:.1%}" for k in KINDS) + " |")
    out.append("| overlap | " + " | ".join(f"{found['agreement'][k][1]:.3f}" for k in KINDS) + " |")
    out.append("\n## Samples\n\nGreedy, 120 tokens, the first ones drawn. The prompt is part of the text.\n")
    for n in record:
        out += [f"{name}, {title[n]}:\n\n~~~~text\n{text}\n~~~~\n" for name, text in found["samples"][n]]
    out.append(WEAKNESSES)
    size = sum(s["bytes"] for s in sources) / 1e6
    out.append(f"## Training text\n\n{size:.1f} MB. One document in a hundred is held out.\n")
    out.append("| source | version | licence as stated | files | bytes |\n|---|---|---|---|---|")
    out += [f"| {s['name']} | {s['version']} | {s['licence']} | {s['files']:,} | {s['bytes']:,} |" for s in sources]
    return "\n".join(out) + "\n"


INTRODUCTION = """\
# The models that come with DecodeScope

Two small Llama-shaped models that were trained here, from nothing, on text that every machine with the project has
installed. They are for watching decoding methods at work without a network. They are no assistants.

Both share one tokenizer: byte-level BPE, 4096 entries, each digit a token of its own, no token added at the start. It
is final; ids 0 to 13 are `<|end|> <|pad|> <|user|> <|assistant|> <|system|> <|mask|>` and eight reserved ones, ids 14
to 269 the 256 bytes. The weights are stored in bfloat16, the tied embedding once.
"""

MAKING = """
Minutes are those spent in steps, on two CPU cores in bfloat16 autocast that other programs used at the same time; with
the cores to itself the target took 2,000 tokens a second. Its run was stopped and resumed several times, its budget
lowered while the rate was constant, its first 0.2 M tokens came in another order, and a few steps had 8192 tokens, not
4096: a new run gives the like, not the same.
Commands:

"""

AGREEMENT = """
## Agreement of draft and target

On held-out text, windows of 1024 tokens, at temperature 1: the share of positions at which both rank the same token
first, and the mean of the sum over tokens of min(p, q), the chance that one drafted token is accepted.
"""

WEAKNESSES = """\
## Known weaknesses

- Both are undertrained: each read about a tenth of the corpus, once. Their Python has the looks of Python only for a
  few lines; names, calls and logic are wrong, and greedy code falls into loops, as the samples show.
- Greedy text of `lab` swaps names in its own stories: it has learnt the plots, but looks back unreliably.
- The stories, chats, lists and sums come from a small grammar. The models know its few plots and names and hardly any
  other English; outside of it a chat answer is a guess at the form, not at the matter.
- Arithmetic beyond what the grammar draws is wrong. Facts are not to be trusted anywhere.
- Most training windows were 256 and 512 tokens long, the last fifth 1024 and 2048. The table by position shows what the
  long context is worth.
- The agreement is that of a draft which learnt from its target's logits on the same kind of text. On stories and chats
  it is far higher than on code, since the small grammar leaves little to guess.
- Python is the only programming language, English the only tongue. Other scripts come out as bytes without sense.
"""


def main() -> None:
    """Measure and write the card."""
    (MODELS / "README.md").write_text(card(measure()))


if __name__ == "__main__":
    main()
