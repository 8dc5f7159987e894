"""Models that write the text that a test asks for, with a token for every byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
import toys
from tokenizers import decoders, models, pre_tokenizers

from decodescope.engine.bench.questions.questions import BenchQuestion
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.model.forward.decoder import Decoder, Layer
from decodescope.engine.session.load import Model

END = 256
LAST = "{{ messages[-1]['content'] }}"
WHOLE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
SPEC = ModelSpec(
    "script", n_layers=3, n_heads=2, n_kv_heads=1, head_dim=4, d_model=257, d_ff=8, vocab=257, max_positions=96,
    rope=replace(toys.SPEC.rope, dim=4), heads=(),
)  # fmt: skip
# "?" is answered by 42, "!" by "no", "A" by BCABCA... without end
RULES = {"?": "4", "4": "2", "2": "", "!": "n", "n": "o", "o": "", "A": "B", "B": "C", "C": "A"}


def letters(template: str | None = LAST) -> Tokenizer:
    """A tokenizer with a token for every byte, and one that ends a text."""
    vocab = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = tokenizers.Tokenizer(models.BPE(vocab, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens(["<|end|>"])
    return Tokenizer(made.to_str(), {"eos_token": "<|end|>"}, template)


def scripted(rules: dict[str, str], template: str | None = LAST, **shape: Any) -> Model:
    """A model whose layers do nothing: `rules` name the letter that follows each letter.

    Where they name several, all tie. After other letters, and for "", comes the end.
    """
    spec, tokenizer = replace(SPEC, **shape), letters(template)
    embed, d = torch.eye(257), spec.d_model
    head = torch.zeros(257, 257)
    after = {tokenizer.encode(a)[0]: tokenizer.encode(b) or [END] for a, b in rules.items()}
    for i in range(257):
        head[after.get(i, [END]), i] = 1.0
    ones, width = torch.ones(d), (spec.n_heads + 2 * spec.n_kv_heads) * spec.head_dim
    none = dict(out=torch.zeros(d, spec.n_heads * spec.head_dim), down=torch.zeros(d, spec.d_ff))
    layer = Layer(ones, torch.zeros(width, d), none["out"], ones, torch.zeros(2 * spec.d_ff, d), none["down"])
    decoder = Decoder(spec, embed, [layer] * spec.n_layers, ones, head)
    return Model("script", Path("script"), spec, decoder, tokenizer, "1" * 16, [END])


def lively(seed: int = 5) -> Model:
    """A random, lively model with the same tokens, which never ends."""
    spec = toys.toy_spec(vocab=257, heads=(), name="random")
    return Model("random", Path("random"), spec, toys.decoder(spec, seed), letters(), "2" * 16, [])


def question(
    name: int | str, turns: str | tuple[str, ...], due: str | tuple[str, ...] = (), **more: Any
) -> BenchQuestion:
    turns, due = (turns,) if isinstance(turns, str) else turns, (due,) if isinstance(due, str) else due
    scorer = more.pop("scorer", "exact" if due else None)
    return BenchQuestion(name, more.pop("kind", "qa"), turns, due, scorer, more)
