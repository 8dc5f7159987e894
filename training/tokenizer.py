"""The tokenizer of all our models: byte-level BPE with 4096 entries, made once and then left alone.

    python -m decodescope.training.tokenizer

trains it on the corpus and writes `tokenizer.json` and `tokenizer_config.json` into every folder of `assets/models/`.
Weights, heads, traces and benches hold token ids: a new tokenizer makes all of them worthless. The script therefore
refuses to replace an existing one without `--replace`.

Ids: 0 to 13 the special tokens, 14 to 269 the 256 bytes, then the merges in the order they were learnt.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .corpus import BUILD, ROOT, load

MODELS = ROOT / "assets" / "models"
FILES = ("tokenizer.json", "tokenizer_config.json")
SIZE = 4096
CONTEXT = 2048
END, PAD = "<|end|>", "<|pad|>"
SPECIALS = [
    END,
    PAD,
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
    "<|mask|>",
    *(f"<|reserved_{i}|>" for i in range(8)),
]

# What a token may span. A line break takes the indentation that follows along, so that a word at the start of a line is
# the same token at every depth; elsewhere a word takes the one character before it (" x", ".x", "_x", "(x").
PIECES = "|".join(
    [
        r"'(?:[sdmtSDMT]|ll|ve|re)(?!\p{L})",  # it's, but not 'self'
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}",  # each digit alone
        r" ?[^\s\p{L}\p{N}]+",
        r"\s*[\r\n]+[^\S\r\n]*",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

CHAT = (
    "{%- for message in messages -%}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%}"
)


def texts() -> Iterator[str]:
    """The training documents: prose twice, and one in five of the generated ones, which repeat few words endlessly."""
    for i, document in enumerate(d for d in load() if d["split"] == "train"):
        text, kind = document["text"], document["kind"]
        if kind == "chat":
            for mark in SPECIALS:
                text = text.replace(mark, "")
        if kind in ("code", "docs") or i % 5 == 0:
            yield text
        if kind == "docs":
            yield text


def learn() -> Tokenizer:
    """Learn the merges from the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=32,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the two tokenizer files of a model folder."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "pad_token": PAD,
        "mask_token": "<|mask|>",
        "additional_special_tokens": [s for s in SPECIALS if s not in (END, PAD, "<|mask|>")],
        "chat_template": CHAT,
    }
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    """Learn the tokenizer and write it to all model folders."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--replace", action="store_true", help="replace a tokenizer that models already use")
    args = parser.parse_args()
    if any(MODELS.glob("*/tokenizer.json")) and not args.replace:
        sys.exit(
            "A tokenizer exists and models depend on its ids. Use --replace only if all models are trained anew."
        )
    if not (BUILD / "corpus.jsonl").exists():
        sys.exit("The corpus is missing: run training/corpus.py first.")
    tokenizer = learn()
    for name in ("lab", "lab-draft"):
        (MODELS / name).mkdir(parents=True, exist_ok=True)
        save(tokenizer, MODELS / name)


if __name__ == "__main__":
    main()
