"""The tokenizer of a GGUF file: words and ids as in llama.cpp, types, ends and templates of its metadata, refusals."""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from all_scripts import generate_texts
from tokenizers import Regex, models, pre_tokenizers, trainers

from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.gguf.tokenizer import PRE, end_ids, tokenizer_files
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer, _byte_letters

Metadata = dict[str, Any]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
LETTERS = _byte_letters()


def read_tokenizer(metadata: Metadata) -> Tokenizer:
    """The tokenizer of these metadata."""
    files = tokenizer_files(metadata)
    config = files["tokenizer_config.json"]
    template = config.get("chat_template")
    return Tokenizer(json.dumps(files["tokenizer.json"]), config, template, set(end_ids(metadata)))


def ggml(**values: Any) -> Metadata:
    """Metadata under the names of a GGUF file."""
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


def bytewise(pre: str = "gpt-2", *extra: tuple[str, int], merges: tuple[str, ...] = ()) -> Metadata:
    """A byte-level vocabulary: all bytes, what the merges make, and more tokens with their types."""
    tokens = [*LETTERS, *(x.replace(" ", "") for x in merges), *(x for x, _ in extra)]
    types = [NORMAL] * (256 + len(merges)) + [x for _, x in extra]
    return ggml(model="gpt2", pre=pre, tokens=tokens, token_type=types, merges=list(merges))


def scored(*pieces: str, extra: tuple[tuple[str, int], ...] = (), **values: Any) -> Metadata:
    """A SentencePiece vocabulary: the unknown token, both ends, all bytes, and pieces of falling scores."""
    first = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    listed = [*first, *((f"<0x{x:02X}>", BYTE) for x in range(256)), *((x, NORMAL) for x in pieces), *extra]
    scores = [0.0] * 259 + [-float(x) for x in range(len(pieces))] + [-1000.0] * len(extra)
    tokens, types = ([x[part] for x in listed] for part in (0, 1))
    return ggml(model="llama", tokens=tokens, token_type=types, scores=scores, **values)


def split_words(pre: str, text: str) -> list[str]:
    """The words of a text."""
    steps = [pre_tokenizers.Split(Regex(x), "isolated") for x in PRE[pre].patterns]
    return [x for x, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


def write_gguf(path: Path, metadata: Metadata) -> Path:
    """Write a file of metadata, without weights."""

    def pack(value: Any) -> tuple[int, bytes]:
        if isinstance(value, list):
            packed = [pack(x) for x in value]
            kind = packed[0][0] if packed else 8
            return 9, struct.pack("<IQ", 5 if kind == 4 else kind, len(value)) + b"".join(
                x for _, x in packed
            )
        if isinstance(value, str):
            return 8, struct.pack("<Q", len(value.encode())) + value.encode()
        kind, form = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}[type(value)]
        return kind, struct.pack(form, value)

    data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata))
    for key, value in metadata.items():
        kind, packed = pack(value)
        data += pack(key)[1] + struct.pack("<I", kind) + packed
    path.write_bytes(data)
    return path


def trained_bytewise(pre: str, size: int = 2000) -> Metadata:
    """A vocabulary trained on words that are cut as `pre` says, and words that no merges make."""
    words, texts = PRE[pre], generate_texts(600, seed=10)
    raw = bytewise(pre)
    raw["tokenizer.ggml.tokens"][:] = [f"<0x{x:02X}>" for x in range(256)] if words.raw else LETTERS
    parts = tokenizer_files(raw)["tokenizer.json"]
    learner = tokenizers.Tokenizer.from_str(
        json.dumps({**parts, "model": {"type": "BPE", "vocab": {}, "merges": []}})
    )
    alphabet = [] if words.raw else pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, show_progress=False, max_token_length=12
    )
    learner.train_from_iterator(texts, trainer)
    model = json.loads(learner.to_str())["model"]
    merges = [x for x in model["merges"] if "\n" not in "".join(x)]
    tokens = dict.fromkeys([*raw["tokenizer.ggml.tokens"], *model["vocab"]])
    whole = ["".join(LETTERS[b] for b in x.encode()) for text in texts[:150] for x in split_words(pre, text)]
    tokens |= {} if words.raw else dict.fromkeys(x for x in whole[::7] if len(x) < 30)
    extra = {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL, "<tool>": USER_DEFINED, "[unused]": UNUSED}
    listed = [*(x for x in tokens if x not in extra), *extra]
    metadata = ggml(model="gpt2", pre=pre, tokens=listed, merges=[" ".join(x) for x in merges])
    return metadata | ggml(token_type=[extra.get(x, NORMAL) for x in listed], bos_token_id=len(listed) - 4)


def trained_scored(prefix: bool, size: int = 2000) -> Metadata:
    """A SentencePiece vocabulary: the tokens have scores in the order of their merges, runs of spaces too."""
    learner = tokenizers.Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, max_token_length=12)
    learner.train_from_iterator(generate_texts(600, seed=10), trainer)
    pieces = sorted(learner.get_vocab().items(), key=lambda x: (len(x[0]) == 1, x[1]))
    names = [*("▁" * x for x in (2, 4, 8, 3)), *(x for x, _ in pieces if x != "▁" * len(x)), "▁"]
    return scored(*names, extra=(("<tool>", USER_DEFINED),), add_space_prefix=prefix)


def llama_ids(path: Path) -> Callable[[str, bool], list[int]]:
    """How llama.cpp reads a text with the tokenizer of this file: its ids, with those before it or without."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    return lambda text, front: model.tokenize(text.encode(), add_bos=front, special=False)


VOCABULARIES: dict[str, Callable[[], Metadata]] = {
    **{x: lambda pre=x: trained_bytewise(pre) for x in PRE},
    "scores": lambda: trained_scored(False),
    "scores, a space before": lambda: trained_scored(True),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_equal_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    metadata = VOCABULARIES[name]() | {"general.architecture": "llama"}
    encode, tokenizer = (
        llama_ids(write_gguf(tmp_path / "vocabulary.gguf", metadata)),
        read_tokenizer(metadata),
    )
    texts = generate_texts(2000)
    ids = [encode(x, False) for x in texts]
    assert sum(len(set(x)) > 20 for x in ids) > 500, "the texts need many tokens"
    assert [tokenizer.encode_plain(x) for x in texts] == ids
    assert tokenizer.encode("a") == encode("a", True)
