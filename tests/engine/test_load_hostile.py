"""Malicious or damaged folders: refused before memory is taken; no code runs, no download starts, no outside file is read."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import tokenizers
import torch
from checkpoints import CONFIG, change, made
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sizes import sizes, thinned
from tokenizers import models, pre_tokenizers

from decodescope.engine import run
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.checkpoint import tokenizer as tokenizing
from decodescope.engine.model.checkpoint import weights as reading
from decodescope.engine.model.checkpoint.chat_template import TemplateError, render
from decodescope.engine.model.checkpoint.config import FAMILIES, spec_from_config
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.matrix import can_pack
from decodescope.engine.model.layers.rope import rope_frequencies
from decodescope.engine.session.load import SHIPPED, load
from decodescope.engine.session.method import MethodError

# as an attribute of the engine, `load` is the function
loading = importlib.import_module("decodescope.engine.session.load")


def in_shards(folder: Path) -> list[Path]:
    """Spread a checkpoint over two files and their index; return the files."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    paths = [folder / f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    home = {name: paths[i % 2] for i, name in enumerate(sorted(tensors))}
    for path in paths:
        save_file({n: x for n, x in tensors.items() if home[n] == path}, path)
    index = {"metadata": {}, "weight_map": {n: path.name for n, path in home.items()}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return paths


def refused(folder: Path, match: str, **how: Any) -> str:
    """Check that `load` refuses with one printable sentence."""
    with pytest.raises(LoadError, match=match) as error:
        load(folder, device="cpu", **how)
    text = str(error.value)
    assert text.isprintable()
    assert text.endswith(".")
    assert ". " not in text.replace(str(folder), ""), "one sentence"
    return text


# ---- code, links and networks

WATCHED = """
import json, sys
sys.path.insert(0, sys.argv[2])
import torch
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import load
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
import decodescope.engine.model.forward.executor, jinja2.sandbox
load("lab-draft", device="cpu")  # whatever is imported late is imported now
events = []
def watch(event, args):
    if event.startswith(("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "pickle.", "ctypes.dlopen")):
        events.append([event, str(args)[:300]])
    if event == "open" and isinstance(args[0], (str, bytes)):
        events.append(["open", args[0] if isinstance(args[0], str) else args[0].decode()])
sys.addaudithook(watch)
model = load(sys.argv[1], device="cpu")
said = model.tokenizer.chat([{"role": "user", "content": "hi"}])
model.decoder.forward(Feed.causal_chain(said[:4], 0), None)
seen = [name for name in sys.modules if name in ("evil", "generate", "transformers", "kernels")]
print(json.dumps({"events": events, "modules": seen}))
"""


def test_a_folder_full_of_code_is_loaded_without_running_fetching_or_reading_elsewhere(
    tmp_path: Path,
) -> None:
    """Remote code, a custom generate, a kernel from the hub, pickles: an audit hook sees every file and socket."""
    folder = made(
        tmp_path / "m",
        vocab_size=4096,
        auto_map={"AutoModelForCausalLM": "evil.Model", "AutoConfig": "someone/else--evil.Config"},
        attn_implementation="someone/kernels",
        _attn_implementation="someone/kernels",
        use_kernels=True,
        _name_or_path="someone/else",
        transformers_version="99.0",
    )
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / "lab-draft" / name, folder / name)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"auto_map": {"AutoTokenizer": ["evil.Tokens", None]}, "tokenizer_file": "/etc/passwd"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w').close()\n"
    (folder / "evil.py").write_text(code)
    (folder / "__init__.py").write_text(code)
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(code)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cposix\nsystem\n")
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(folder), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["modules"] == []
    assert not ran.exists()
    kinds = {event for event, _ in told["events"]} - {"open"}
    assert kinds <= {"subprocess.Popen", "os.posix_spawn"}, told
    assert all("template.py" in what for event, what in told["events"] if event == "subprocess.Popen")
    opened = [
        Path(what) for event, what in told["events"] if event == "open" and not what.startswith("/proc")
    ]
    assert folder / "config.json" in opened, "the guard: the hook sees files"
    # bytecode and sources that Python itself imports late are no files of the model
    elsewhere = [
        x
        for x in opened
        if x.parent != folder and not str(x).startswith((sys.prefix, sys.base_prefix, "/dev"))
    ]
    assert not [x for x in elsewhere if x.suffix not in (".py", ".pyc")], elsewhere
    assert folder / "pytorch_model.bin" not in opened


@pytest.mark.parametrize("suffix", reading.PICKLES)
def test_pickles_alone_are_refused_by_name_and_never_opened(suffix: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / f"model{suffix}")  # opening it would wait for ever
    refused(folder, "pickle files, which can run code and are never opened; save the model as safetensors")


def test_an_adapter_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/else"}')
    refused(folder, r"holds an adapter, which would be left out \(adapter_config\.json, .*; merge it")


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "tokenizer.json").mkdir()
    refused(folder, "is no file")
    shutil.rmtree(folder / "tokenizer.json")
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")  # reading it would wait for ever
    refused(folder, "is no file")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("config.json")
    refused(folder, r"no config\.json")


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: Any) -> bytes:
        raise PermissionError(13, "Permission denied")

    folder = made(tmp_path / "m")
    monkeypatch.setattr(Path, "read_bytes", closed)
    refused(folder, r"config\.json cannot be read \(Permission denied\)")


def test_a_gated_model_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    def gated(*_: Any, **__: Any) -> str:
        answer = httpx.Response(403, request=httpx.Request("GET", "https://hub"))
        raise huggingface_hub.errors.GatedRepoError("403 Client Error", response=answer)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", gated)
    with pytest.raises(LoadError, match=r"accepted its licence.*hf auth login"):
        load("someone/gated", device="cpu")


# ---- weight files


def crafted(path: Path, header: dict[str, Any] | str, data: int) -> None:
    """A safetensors file with any header, followed by `data` bytes."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(data))


def entry(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    """The header entry of one tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HEADERS: dict[str, tuple[dict[str, Any] | str, int]] = {
    "overlapping": ({"a": entry([4], 0, 16), "b": entry([4], 8, 24)}, 24),
    "hole": ({"a": entry([4], 0, 16), "b": entry([4], 20, 36)}, 36),
    "backwards": ({"a": entry([4], 16, 0)}, 16),
    "beyond the end": ({"a": entry([4], 0, 16)}, 8),
    "more behind": ({"a": entry([4], 0, 16)}, 32),
    "shape of another length": ({"a": entry([5], 0, 16)}, 16),
    "shape that overflows": ({"a": entry([1 << 62, 8], 0, 16)}, 16),
    "negative shape": ({"a": entry([-4], 0, 16)}, 16),
    "unknown type": ({"a": entry([4], 0, 16, "PICKLE")}, 16),
    "no JSON": ("{" * 40, 0),
    "deep JSON": ("[" * 200_000, 0),
    "no object": ("[1, 2]", 0),
}


@pytest.mark.parametrize(("header", "data"), HEADERS.values(), ids=HEADERS)
def test_a_forged_header_is_refused(header: dict[str, Any] | str, data: int, tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    crafted(folder / "model.safetensors", header, data)
    refused(folder, "is no whole safetensors file")


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I8", "U8", "I32", "BOOL"])
def test_packed_numbers_are_refused_by_name(dtype: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    size = {"I32": 4}.get(dtype, 1) * 16
    crafted(folder / "model.safetensors", {"model.norm.weight": entry([16], 0, size, dtype)}, size)
    refused(folder, f"stores model.norm.weight as {dtype}; only F64, F32, F16, BF16 can be read")


def test_a_shard_that_is_cut_off_missing_or_said_twice_is_refused(tmp_path: Path) -> None:
    cut, lost, twice, other = (made(tmp_path / x) for x in ("cut", "lost", "twice", "other"))
    path = in_shards(cut)[1]
    path.write_bytes(path.read_bytes()[:-7])
    refused(cut, r"model-00002-of-00002\.safetensors is no whole safetensors file .*download it again")
    in_shards(lost)[0].unlink()
    refused(lost, "lacks the weight file 'model-00001-of-00002.safetensors' that its index names")
    paths = in_shards(twice)
    save_file(load_file(paths[0]) | load_file(paths[1]), paths[1])
    refused(twice, "a second time")
    index = {"weight_map": {"model.norm.weight": "pytorch_model.bin"}}
    (other / "model.safetensors").rename(other / "pytorch_model.bin")
    (other / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(other, "lacks the weight file 'pytorch_model.bin'")


@pytest.mark.parametrize(
    "index", [b"{}", b'{"weight_map": []}', b'{"weight_map": {"a": 3}}', b"[]", b"{", b'{"weight_map": {}}']
)
def test_a_damaged_index_is_refused(index: bytes, tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_bytes(index)
    refused(folder, r"model\.safetensors\.index\.json|lacks")


@pytest.mark.parametrize(
    ("value", "dtype"), [(torch.nan, "float32"), (torch.inf, "float32"), (1e30, "float16")]
)
@pytest.mark.parametrize(
    "name", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight", "model.embed_tokens.weight"]
)
def test_weights_that_are_not_finite_are_refused(name: str, value: float, dtype: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    load(folder, device="cpu", dtype=dtype)  # the guard: it is sound before the change
    change(folder, lambda t: t[name].view(-1)[-1:].fill_(value))
    refused(
        folder, f"{name} holds numbers that are not finite as {dtype}; use a type of wider range", dtype=dtype
    )


def test_a_tied_head_with_numbers_of_its_own_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    change(folder, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] * 2}))
    refused(folder, "ties the head to the embedding, and lm_head.weight holds other numbers")
    (folder / "config.json").write_text(json.dumps({**CONFIG, "tie_word_embeddings": False}))
    decoder = load(folder, device="cpu").decoder
    assert decoder.head is not decoder.embed


def test_an_untied_head_must_be_there(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps({**CONFIG, "tie_word_embeddings": False}))
    refused(folder, r"lacks lm_head\.weight")


# ---- sizes and memory


def test_a_config_of_enormous_sizes_is_refused_before_any_weight_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "CheckpointTensors", None)
    folder = made(tmp_path / "m")
    huge = {
        "hidden_size": 1 << 20,
        "intermediate_size": 1 << 22,
        "vocab_size": 1 << 24,
        "num_hidden_layers": 1000,
    }
    for changes, match in (
        (huge, r"needs [\d.]+ GiB as float32 and [\d.]+ GiB are free on cpu; use a smaller"),
        ({"vocab_size": 10**9}, "vocab_size as 1000000000; it must be a whole number from 1 to 16777216"),
        ({"max_position_embeddings": 10**12}, "max_position_embeddings as 1000000000000"),
    ):
        (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
        begun = time.perf_counter()
        refused(folder, match)
        assert time.perf_counter() - begun < 2


def test_the_memory_asked_for_counts_the_second_copy_of_a_tied_embedding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path / "m", vocab_size=4000)
    spec = spec_from_config({**CONFIG, "vocab_size": 4000}, "m")
    twice = spec.vocab * spec.d_model if can_pack(torch.float32, torch.device("cpu")) else 0
    needed = 4 * (spec.params + twice)
    monkeypatch.setattr(loading, "free_bytes", lambda device: needed - 1)
    refused(folder, "GiB are free on cpu")
    monkeypatch.setattr(loading, "free_bytes", lambda device: needed)
    load(folder, device="cpu")


def test_memory_that_runs_out_on_the_way_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(*_: Any, **__: Any) -> torch.Tensor:
        raise RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes"
        )

    folder = made(tmp_path / "m")
    monkeypatch.setattr(torch, "empty", empty)
    refused(folder, "could not be read: memory ran out on cpu; use a smaller type")


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 1 << 40)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["default", "linear", "llama3", "yarn"]),
    lambda x: (
        st.lists(x, max_size=3)
        | st.dictionaries(st.sampled_from(["rope_type", "factor", "full_attention", "a"]), x)
    ),
    max_leaves=6,
)
ROTATIONS = st.fixed_dictionaries(
    {"rope_type": st.sampled_from(["default", "linear", "llama3", "yarn", "longrope"]), "factor": st.floats(0.1, 100)},
    optional={
        word: st.floats(0, 100) | st.integers(0, 1 << 20)
        for word in ("rope_theta", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor",
                     "original_max_position_embeddings", "partial_rotary_factor")
    },
)  # fmt: skip
WORDS = [
    *CONFIG,
    *(
        "head_dim",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "sliding_window",
        "layer_types",
        "max_window_layers",
    ),
    *(
        "use_sliding_window",
        "no_rope_layers",
        "no_rope_layer_interval",
        "attention_bias",
        "mlp_bias",
        "partial_rotary_factor",
    ),
    *(
        "query_pre_attn_scalar",
        "final_logit_softcapping",
        "attn_logit_softcapping",
        "sliding_window_pattern",
        "hidden_act",
    ),
    *(
        "rope_local_base_freq",
        "rms_norm_eps",
        "quantization_config",
        "hidden_activation",
        "use_bidirectional_attention",
    ),
    *("original_max_position_embeddings",),
]


@pytest.mark.parametrize("family", FAMILIES)
@sizes("examples", usual=80, full=200)
def test_any_config_is_a_model_or_one_sentence(family: str, examples: int) -> None:
    accepted = 0

    @given(st.dictionaries(st.sampled_from(WORDS), ANY | ROTATIONS, max_size=4))
    @settings(deadline=None, max_examples=examples, derandomize=True)
    def check(changes: dict[str, Any]) -> None:
        nonlocal accepted
        config = {**CONFIG, "model_type": family, "architectures": None, **changes}
        try:
            spec = spec_from_config(config, "it")
        except LoadError as error:
            assert str(error).isprintable()
            assert str(error).endswith(".")
            return
        accepted += 1
        assert isinstance(spec, ModelSpec)
        assert spec.params > 0
        json.dumps(spec.record(), allow_nan=False)
        for rope in (spec.rope, spec.local_rope):
            if rope is not None and rope.dim <= 4096:
                assert rope_frequencies(rope).isfinite().all()

    check()
    # which ones occur depends on the loaded modules
    assert accepted > 5, "the guard: some configs must describe a model"


def test_what_does_not_print_stands_in_a_refusal_as_its_escape(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": "a\n\u202e\x1b[31m\ud800"}))
    assert r"hidden_size as a\n\u202e\x1b[31m\ud800;" in refused(folder, "hidden_size as a")
    folder = made(tmp_path / "n")
    change(folder, lambda t: t.update({"evil\n\x1b[2J": torch.ones(1)}))
    assert r"evil\n\x1b[2J" in refused(folder, "also holds evil")


# ---- tokenizers


def with_tokenizer(folder: Path, spec: str) -> Path:
    """Add a tokenizer.json."""
    (folder / "tokenizer.json").write_text(spec)
    return folder


def small(vocab: dict[str, int], **more: Any) -> str:
    """A BPE of single letters."""
    return json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": vocab, "merges": []}, **more})


def test_a_tokenizer_with_enormous_ids_is_refused(tmp_path: Path) -> None:
    """A table up to the largest id would take 34 GB for two tokens."""
    folder = with_tokenizer(made(tmp_path / "m"), small({"a": 0, "b": (1 << 32) - 1}))
    refused(folder, "its largest id is 4294967295, more than the limit of 4194303")


@pytest.mark.parametrize(
    "content", ["{}", "[]", "null", '{"model": {"type": "Evil"}}', "{" * 1000, small({"a": 0})[:-9]]
)
def test_a_damaged_tokenizer_is_refused(content: str, tmp_path: Path) -> None:
    refused(
        with_tokenizer(made(tmp_path / "m"), content), r"tokenizer\.json cannot be read .*download it again"
    )


@pytest.mark.parametrize("name", ["generation_config.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_damaged_file_beside_the_tokenizer_is_refused_by_its_own_name(name: str, tmp_path: Path) -> None:
    folder = with_tokenizer(made(tmp_path / "m"), small({"a": 0}))
    (folder / name).write_bytes(b"\xff{")
    assert "tokenizer.json" not in refused(folder, f"{name} is not UTF-8 text; download the file again")


def test_any_settings_of_a_tokenizer_are_read_or_refused_with_one_sentence(tmp_path: Path) -> None:
    """As in transformers, a special token that no file has is added, so the named ones may enlarge the vocabulary."""
    folder, outcomes = with_tokenizer(made(tmp_path / "m"), small({"a": 0, "b": 1})), Counter[str]()
    words = [
        "bos_token",
        "eos_token",
        "add_bos_token",
        "chat_template",
        "added_tokens_decoder",
        "model_max_length",
        "pad_token",
    ]

    @given(st.dictionaries(st.sampled_from(words), ANY | st.sampled_from(["a", "b"]), max_size=4))
    @settings(deadline=None, max_examples=100, derandomize=True)
    def check(said: dict[str, Any]) -> None:
        (folder / "tokenizer_config.json").write_text(json.dumps(said))
        try:
            tokenizer = Tokenizer.from_folder(folder)
        except LoadError as error:
            outcomes["refused"] += 1
            assert (
                str(error).isprintable()
                and "tokenizer_config.json" in str(error)
                and str(error).endswith(".")
            )
            return
        outcomes["read"] += 1
        named = {said[x] for x in words if x.endswith("_token") and isinstance(said.get(x), str)}
        assert tokenizer.vocab == len({"a", "b", *named} - {""})
        assert set(tokenizer.front) <= {*range(tokenizer.vocab)}
        assert tokenizer.encode("ab")[-2:] == [0, 1]

    check()
    assert min(outcomes["read"], outcomes["refused"]) > 5, outcomes


def test_a_tokenizer_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    with (folder / "tokenizer.json").open("wb") as file:
        file.truncate((64 << 20) + 1)  # a sparse file: it takes no space on the disk
    begun = time.perf_counter()
    refused(folder, "has 67108865 bytes, more than the limit of 67108864")
    assert time.perf_counter() - begun < 2


def test_marks_have_the_ids_that_the_tokenizer_gives_them_whatever_its_file_says(tmp_path: Path) -> None:
    mark = {
        "content": "<x>",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    folder = with_tokenizer(
        made(tmp_path / "m"), small({"a": 0, "b": 1}, added_tokens=[{"id": 10**9, **mark}])
    )
    tokenizer = load(folder, device="cpu").tokenizer
    assert tokenizer is not None
    assert tokenizer.vocab == 3
    assert tokenizer.piece(2) == "<x>"
    assert tokenizer.decode([0, 2], specials=False) == "a"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_a_pattern_that_goes_back_and_forth_without_end_is_one_refusal(pattern: str, tmp_path: Path) -> None:
    """Where the processor is slow, the trial of the file finds it already."""
    made_ = tokenizers.Tokenizer(models.BPE({"a": 0, "!": 1}, []))
    made_.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    folder = with_tokenizer(made(tmp_path / "m"), made_.to_str())
    try:
        tokenizer = load(folder, device="cpu").tokenizer
    except LoadError as refused:
        assert "in a trial it took" in str(refused) and str(refused).endswith(".")
        return
    assert tokenizer is not None
    begun = time.perf_counter()
    with pytest.raises(LoadError, match=r"gave up on this text .*retry-limit") as error:
        tokenizer.encode("a" * 60 + "!")
    assert time.perf_counter() - begun < 5
    assert str(error.value).endswith(".")
    assert tokenizer.encode("!") == [1], "it works on"


def test_an_interrupt_is_no_fault_of_the_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    folder = with_tokenizer(made(tmp_path / "m"), small({"a": 0}))
    monkeypatch.setattr(tokenizing, "_has_component", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(folder, device="cpu")


def test_without_a_tokenizer_ids_are_read_and_text_is_refused(tmp_path: Path) -> None:
    model = load(made(tmp_path / "m"), device="cpu")
    assert model.tokenizer is None
    assert len(run(model, None, [1, 2, 3], max_new_tokens=4).tokens) == 4
    with pytest.raises(MethodError, match="has no tokenizer: give the prompt as token ids"):
        run(model, None, "text")


def test_a_tokenizer_with_more_ids_than_the_model_has_rows_is_used_for_those_it_has(tmp_path: Path) -> None:
    """Some checkpoints contain marks for pictures that have no row in the text model."""
    letters = {chr(97 + i): i for i in range(26)}
    folder = with_tokenizer(made(tmp_path / "m", vocab_size=20, eos_token_id=[3, 25]), small(letters))
    model = load(folder, device="cpu")
    assert model.decoder.vocab == 20
    assert model.stop_tokens == [3]
    assert len(run(model, None, "abc", max_new_tokens=3).prompt) == 3
    with pytest.raises(MethodError, match=r"token id 25; the ids of m are 0 to 19"):
        run(model, None, "az")


def test_ids_without_a_token_are_shown_by_their_number(tmp_path: Path) -> None:
    folder = with_tokenizer(made(tmp_path / "m"), small({"a": 0, "b": 7}))
    model = load(folder, device="cpu")
    assert model.tokenizer is not None
    assert model.decoder.vocab == 8, "ids behind the last token pad the matrix"
    assert [model.tokenizer.piece(x) for x in (0, 3, 7)] == ["a", "<#3>", "b"]
    assert model.decoder.forward(Feed.causal_chain([0], 0), None).shape[-1] == 8


@pytest.mark.parametrize(
    ("generation", "stops"),
    [
        ({"eos_token_id": [5, 6]}, [3, 5, 6]),
        ({"eos_token_id": None}, [3]),
        ({"eos_token_id": [True, -4, "x", 2.5, 10**30]}, [3]),
        ({}, [3]),
    ],
)
def test_ends_that_are_no_ids_are_passed_over(
    generation: dict[str, Any], stops: list[int], tmp_path: Path
) -> None:
    folder = made(tmp_path / "m", eos_token_id=3)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    assert load(folder, device="cpu").stop_tokens == stops


# ---- templates

ESCAPES = [
    "{{ messages|attr('__class__') }}",
    "{{ self.__init__.__globals__ }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ joiner.__init__ }}",
    "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "{{ '{x.__class__}'.format_map({'x': messages}) }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__code__ }}",
    "{{ ().__class__.__base__.__subclasses__() }}",
    "{{ messages[0].content.__class__ }}",
    "{% import 'os' as os %}{{ os }}",
    "{% include '/etc/passwd' %}",
    "{% extends '/etc/passwd' %}",
    "{% set x = messages.__setitem__(0, 1) %}{{ x }}",
    "{{ messages.clear() }}",
    "{{ messages[0].update({'content': 'y'}) }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_a_template_that_reaches_out_gets_nothing(source: str) -> None:
    """The result is a refusal, or an undefined name that prints as nothing."""
    try:
        text = render(source, {"messages": [{"role": "user", "content": "x"}]})
    except TemplateError as error:
        assert str(error).endswith(".")
        return
    assert text == ""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no module resource")
@pytest.mark.parametrize(
    "source",
    thinned(
        2,
        [
            "{{ range(10**9)|list|length }}",
            "{{ 'a'.ljust(10**10) }}",
            "{{ ('x' * 10**6)|list|join('y' * 10**6) }}",
            "{{ 10**(10**8) }}",
            "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
            "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = 1 %}{% endfor %}{% endfor %}",
        ],
    ),
)
def test_a_template_that_takes_too_much_is_ended_by_its_own_limits(source: str) -> None:
    import resource

    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    with pytest.raises(TemplateError, match="use plain text instead"):
        render(source, {"messages": []})
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert used.ru_utime - begun.ru_utime < 6, "two seconds of its own, and the start of a process"


def test_a_folder_whose_template_is_hostile_still_answers_plain_text(tmp_path: Path) -> None:
    folder = made(tmp_path / "m", vocab_size=4096)
    shutil.copy(SHIPPED / "lab-draft" / "tokenizer.json", folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text("{{ messages.clear() }}")
    model = load(folder, device="cpu")
    with pytest.raises(TemplateError):
        run(model, None, "hi", chat=True)
    assert len(run(model, None, "hi", max_new_tokens=2).tokens) == 2
    assert isinstance(model.tokenizer, Tokenizer)
