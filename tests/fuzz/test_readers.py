"""What comes from outside is read, or refused in one sentence, within seconds: trace, model file, head, grammar, condition,
settings and link.

`pytest -m soak tests/fuzz` runs each fuzzer for DECODESCOPE_FUZZ_MINUTES, 20 without it. What one of them found is a file of
`corpus`, which every commit reads.
"""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import mutating
import pytest
import torch
from gguf_files import write_metadata
from hypothesis import strategies as st
from safetensors.torch import save
from trace_bytes import head_of, record_bodies, sealed_file, trace_file, with_head

from decodescope.app.runs.catalogue.examples import shipped_examples
from decodescope.app.runs.library import upload_limits
from decodescope.app.runs.recipe import WAYS, as_json, from_json, initial_choice, recipe
from decodescope.app.runs.upload_check import CheckBudget, check_upload
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.decoding.shared.recogniser import compile_grammar
from decodescope.engine.model.checkpoint.gguf.header import read_header
from decodescope.engine.model.checkpoint.gguf.source import read_gguf_shape
from decodescope.engine.model.checkpoint.gguf.tokenizer import tokenizer_files
from decodescope.engine.model.heads.describe import describe_heads
from decodescope.engine.session.load import requested_changes
from decodescope.engine.session.method import Method
from decodescope.engine.trace import open_trace
from decodescope.engine.trace.query.conditions import Condition

CORPUS = Path(__file__).parent / "corpus"
LONGEST = 20.0  # seconds for one input: the limit of a check of an upload is of that size
SENTENCE = 2000  # characters of a refusal at most: none repeats a long input


def read_within_limits(read: Callable[[], object]) -> None:
    """Read something; it may be refused, in one short sentence that can be printed, and soon. Any other error goes on."""
    began = time.monotonic()
    try:
        read()
    except Refusal as refusal:
        text = str(refusal)
        assert text.strip() and len(text) <= SENTENCE, "a refusal is a sentence"
        assert "\n" not in text and text.isprintable() == text.replace("\xa0", " ").isprintable()
        text.encode()
    assert time.monotonic() - began < LONGEST


@dataclass(frozen=True)
class Reader:
    """One thing that is read.

    inputs: gives what Hypothesis draws from;  read: reads one input, in a folder of its own
    """

    inputs: Callable[[], st.SearchStrategy[Any]]
    read: Callable[[bytes, Path], object]


# ---- traces


def traces() -> st.SearchStrategy[bytes]:
    """Small shipped traces: one record's head is changed and all sums are right again, or bytes are changed."""
    paths = sorted((x.path for x in shipped_examples()), key=lambda path: path.stat().st_size)[:24]
    sources = [path.read_bytes() for path in paths]

    @st.composite
    def with_changed_head(draw: st.DrawFn) -> bytes:
        bodies = record_bodies(draw(st.sampled_from(sources)))
        for _ in range(draw(st.integers(1, 2))):
            at = draw(st.integers(0, len(bodies) - 1))
            head = draw(mutating.documents([head_of(bodies[at])]))
            try:
                bodies[at] = with_head(bodies[at], head)
            except (TypeError, ValueError):  # a lone surrogate, or no JSON
                continue
        try:
            return sealed_file(bodies)
        except (ValueError, LookupError, TypeError, AttributeError):  # the sums need records that can be read
            return trace_file(bodies)

    return st.one_of(with_changed_head(), with_changed_head(), mutating.files(sources))


def read_trace(data: bytes, folder: Path) -> None:
    """Read it as an upload."""
    path = folder / "sent.dstrace"
    path.write_bytes(data)
    check_upload(path, upload_limits(64), CheckBudget())


# ---- model files


def model_file(folder: Path, pieces: str) -> bytes:
    """A GGUF file of two layers with a tokenizer."""
    path = folder / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    kinds = {"gpt2": ["a", "b", "Ġ", "ab"], "llama": ["<unk>", "▁", "a", "b", "<0x41>"]}
    entries: dict[str, Any] = {
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": 16,
        "llama.feed_forward_length": 32,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": 8,
        "tokenizer.ggml.model": pieces,
        "tokenizer.ggml.tokens": kinds[pieces],
        "tokenizer.ggml.token_type": [1] * len(kinds[pieces]),
        "tokenizer.chat_template": "{{ messages }}",
        "tokenizer.ggml.eos_token_id": 1,
    }
    if pieces == "gpt2":
        entries |= {"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.merges": ["a b"]}
    else:
        entries |= {"tokenizer.ggml.scores": [0.0] * len(kinds[pieces])}
    write_metadata(writer, entries)
    shapes = {"token_embd": (4, 16), "output_norm": (16,), "output": (4, 16)}
    shapes |= {f"blk.0.{x}": (16, 16) for x in ("attn_q", "attn_output")}
    shapes |= {f"blk.0.{x}": (8, 16) for x in ("attn_k", "attn_v")}
    shapes |= {f"blk.0.{x}": (32, 16) for x in ("ffn_gate", "ffn_up")}
    shapes |= {"blk.0.ffn_down": (16, 32), "blk.0.attn_norm": (16,), "blk.0.ffn_norm": (16,)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", torch.zeros(shape).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def model_files() -> st.SearchStrategy[bytes]:
    """Two GGUF files with changes in their headers."""
    with tempfile.TemporaryDirectory() as folder:
        sources = [model_file(Path(folder), pieces) for pieces in ("gpt2", "llama")]
    return mutating.files(sources, first=2500)


def read_model_file(data: bytes, folder: Path) -> None:
    """Read shape and tokenizer, as a list of models and a load do."""
    path = folder / "tiny.gguf"
    path.write_bytes(data)
    read_gguf_shape(path)
    tokenizer_files(read_header(path).metadata)


# ---- heads

LAYER = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 32,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 64,
    "hidden_act": "silu",
}
HEADS: list[dict[str, Any]] = [
    {**LAYER, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32, "target_hidden_size": 16},
    {
        "speculators_model_type": "eagle3",
        "speculators_version": "0.5.0",
        "draft_vocab_size": 32,
        "transformer_layer_config": LAYER,
        "norm_before_residual": True,
        "speculators_config": {
            "algorithm": "eagle3",
            "verifier": {"name_or_path": "tiny", "architectures": ["LlamaForCausalLM"]},
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        },
    },
    {**LAYER, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32, "ptd_token_id": 31},
    {**LAYER, "dflash_config": {"target_layer_ids": [1, 2], "mask_token_id": 31}, "block_size": 4},
    {**LAYER, "architectures": ["LlamaForCausalLM"], "bias": True},
    {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "tiny"},
    {"kind": "eagle", "hidden": 16},
]


def heads() -> st.SearchStrategy[bytes]:
    """Configs of heads of all layouts, with changes."""
    return mutating.documents(HEADS).map(lambda value: json.dumps(value).encode())


def read_head(data: bytes, folder: Path) -> None:
    """Describe a head's folder, as `models show` does."""
    (folder / "config.json").write_bytes(data)
    sizes = {"fc.weight": (16, 48), "midlayer.mlp.up_proj.weight": (32, 16), "lm_head.weight": (32, 16)}
    tensors = {name: torch.zeros(shape) for name, shape in sizes.items()}
    (folder / "model.safetensors").write_bytes(save(tensors))
    describe_heads(folder)


# ---- grammars, conditions, settings, links

GRAMMARS = [
    ("regex", r"(a|b)*[0-9]{1,3}\d+\w?(x{2,}|[^y]){0,4}"),
    ("lark", 'start: word (" " word)*\nword: /[a-z]+/ | "(" word ")"\n%ignore / /'),
    (
        "json",
        '{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":9}},"required":["a"]}',
    ),
    (
        "json",
        '{"anyOf":[{"type":"string","pattern":"^[a-z]+$"},{"$ref":"#/$defs/b"}],"$defs":{"b":{"enum":[1,null]}}}',
    ),
    ("json", '{"type":"array","items":{"type":"number","multipleOf":0.5},"minItems":1,"maxItems":3}'),
]
GRAMMAR_WORDS = [
    "{0,99999}",
    "(",
    ")*",
    "|",
    "[",
    "$ref",
    "%json",
    "start",
    "1e999",
    "\\u",
    "^",
    "{9}{9}{9}",
    "(?!a)",
]
CONDITIONS = [
    "first reject and depth == 2",
    "any(p/q < 0.3) and not all(q > 0.1) or count(p < 0.3) == 3",
    'verdict == "rejected" and max(p) >= 0.5',
    "1 <= step < 3 and accepted + drafted * 2 > 0",
    "evicts 5",
]
CONDITION_WORDS = [
    "(",
    ")",
    "not ",
    "**",
    "==",
    "<",
    '"',
    "1e999",
    "any(",
    "\x00",
    "\ud800",
    "9" * 400,
    "(" * 300,
]


def grammars() -> st.SearchStrategy[bytes]:
    """Grammars of the three dialects, the dialect before the first line."""
    choices = [
        mutating.texts([text], GRAMMAR_WORDS).map(lambda text, kind=kind: f"{kind}\n{text}")
        for kind, text in GRAMMARS
    ]
    return st.one_of(choices).map(lambda text: text.encode("utf-8", "surrogatepass"))


def read_grammar(data: bytes, folder: Path) -> None:
    dialect, _, text = data.decode("utf-8", "surrogatepass").partition("\n")
    compile_grammar(text, dialect)


def conditions() -> st.SearchStrategy[bytes]:
    """Conditions, with changes."""
    return mutating.texts(CONDITIONS, CONDITION_WORDS).map(lambda text: text.encode("utf-8", "surrogatepass"))


def read_condition(data: bytes, folder: Path) -> None:
    Condition(data.decode("utf-8", "surrogatepass"))


def methods() -> st.SearchStrategy[bytes]:
    """What traces write of methods, with changes."""
    records = [open_trace(x.path).header.method for x in shipped_examples()]
    return mutating.documents(records).map(lambda value: json.dumps(value).encode())


def read_method(data: bytes, folder: Path) -> None:
    said = json.loads(data)
    if isinstance(said, dict):
        Method.from_record(said)


def references() -> st.SearchStrategy[bytes]:
    """Names of models with settings behind @."""
    sources = ["lab@int8", "lab@int4:group=32", "lab@nf4@cut_layers:layers=1,2", "a/b:c.gguf@finequant"]
    words = ["@", ":", "=", ",", "..", "/", "int8", "\x00", "9" * 30, "nan", "\ud800"]
    return mutating.texts(sources, words).map(lambda text: text.encode("utf-8", "surrogatepass"))


def read_reference(data: bytes, folder: Path) -> None:
    requested_changes(data.decode("utf-8", "surrogatepass"))


def links() -> st.SearchStrategy[bytes]:
    """Settings of a link, with changes, in both of its forms."""
    first = json.loads(as_json(initial_choice()))

    def encoded(pair: tuple[Any, bool]) -> bytes:
        text = json.dumps(pair[0]).encode()
        return base64.urlsafe_b64encode(text).rstrip(b"=") if pair[1] else text

    changed = st.tuples(mutating.documents([first]), st.booleans()).map(encoded)
    return st.one_of(changed, changed, mutating.files([encoded((first, True)), encoded((first, False))]))


def read_link(data: bytes, folder: Path) -> None:
    """Read it, and write the program that repeats it."""
    choice = from_json(data.decode("utf-8", "replace"))
    for way in WAYS:
        recipe(choice, {"target": "lab"}, way)


READERS = {
    "trace": Reader(traces, read_trace),
    "gguf": Reader(model_files, read_model_file),
    "head": Reader(heads, read_head),
    "grammar": Reader(grammars, read_grammar),
    "condition": Reader(conditions, read_condition),
    "method": Reader(methods, read_method),
    "reference": Reader(references, read_reference),
    "link": Reader(links, read_link),
}


@pytest.mark.soak
@pytest.mark.parametrize("name", READERS)
def test_a_changed_input_is_read_or_refused_in_a_sentence(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    reader = READERS[name]

    def test(data: bytes) -> None:
        try:
            read_within_limits(lambda: reader.read(data, tmp_path))
        except BaseException:
            (CORPUS.parent / f"failed-{name}").write_bytes(data)
            raise

    given = mutating.run_for_minutes(reader.inputs(), test, tmp_path / "kept")
    record_property("largest", (f"inputs of the fuzzer {name}", given))
    assert given


FOUND = [pytest.param(x.name.partition("-")[0], x, id=x.name) for x in sorted(CORPUS.iterdir())]


@pytest.mark.parametrize(("name", "path"), FOUND)
def test_what_a_fuzzer_found_is_read_or_refused_in_a_sentence(name: str, path: Path, tmp_path: Path) -> None:
    read_within_limits(lambda: READERS[name].read(path.read_bytes(), tmp_path))
