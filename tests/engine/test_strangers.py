"""Ten kinds of folders as users bring them, written from what people publish, not from what the readers read.

Each key and tensor in them is read as its makers read it, refused by its name, or named in a remark: silence fails.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from strangers import (
    EAGLE,
    EAGLE3,
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    LLAMA,
    VOCAB,
    WIDTH,
    Tensors,
    eagle1_tensors,
    eagle3_tensors,
    edit_json,
    edit_tensors,
    hydra_tensors,
    llama_tensors,
    medusa_tensors,
    random_tensors,
    save_folder,
    save_llama,
)

from decodescope.app.cli import main
from decodescope.engine import load, run
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model

TEXT = list(range(300, 340))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 16 layers that the heads draft for."""
    return save_llama(tmp_path_factory.mktemp("strangers") / "target", 16)


def answer(folder: Path | str, **heads: Path) -> str:
    """All remarks on a folder, or the sentence that refuses it."""
    try:
        return "\n".join(loaded(folder, **heads).remarks)
    except LoadError as error:
        assert "\n" not in str(error) and str(error).endswith(".")
        return str(error)


def loaded(folder: Path | str, **heads: Path) -> Model:
    return load(folder, dtype="float32", device="cpu", heads=heads or None)


def logits(model: Model) -> torch.Tensor:
    return model.decoder.forward(Feed.causal_chain(TEXT, 0), None)[0]


def their_model(folder: Path) -> Any:
    """The same folder in transformers."""
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()


def their_tokenizer(folder: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(folder)


# 1. A target with keys of other families

NAMED: dict[str, Any] = dict(
    attention_multiplier=0.02,
    residual_multiplier=0.2,
    logits_scaling=8.0,
    final_logit_softcapping=3.0,
    partial_rotary_factor=0.5,
    layer_types=["sliding_attention", "full_attention"],
    num_local_experts=4,
    clip_qkv=1.0,
    scale_emb=12,
    quantization_config={"quant_method": "gptq", "bits": 4},
    compression_config={"format": "pack-quantized"},
    rope_scaling={"type": "dynamic", "factor": 2.0},
    architectures=["LlamaForTokenClassification"],
    rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 50.0}},
    suppress_tokens=[5],
    bad_words_ids=[[5]],
    repetition_penalty=1.3,
)


@pytest.mark.parametrize("key", NAMED)
def test_a_key_of_another_family_in_a_target_is_named(key: str, tmp_path: Path) -> None:
    assert key in answer(save_llama(tmp_path / "m", **{key: NAMED[key]}))


READ: dict[str, dict[str, Any]] = {
    "no causal mask": dict(is_causal=False),
    "one theta in a table against another outside": dict(
        rope_parameters={"rope_type": "default", "rope_theta": 500.0}
    ),
    "a theta inside of rope_scaling": dict(
        rope_scaling={"rope_type": "linear", "factor": 2.0, "rope_theta": 77.0}
    ),
    "a factor of attention": dict(
        rope_scaling={
            "rope_type": "yarn",
            "factor": 4.0,
            "attention_factor": 0.5,
            "original_max_position_embeddings": 64,
        }
    ),
    "bands that are not rounded": dict(
        rope_scaling={
            "rope_type": "yarn",
            "factor": 4.0,
            "truncate": False,
            "original_max_position_embeddings": 64,
        }
    ),
    "an original length outside": dict(
        original_max_position_embeddings=32,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
}


@pytest.mark.parametrize("name", READ)
def test_a_key_that_transformers_follows_is_followed(name: str, tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "m", **READ[name])
    ours = logits(loaded(folder))
    with torch.no_grad():
        theirs = their_model(folder)(torch.tensor([TEXT]), use_cache=False).logits[0]
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)
    assert (ours - logits(loaded(save_llama(tmp_path / "plain")))).abs().max() > 0.1, (
        "the guard: the keys change the numbers"
    )


@pytest.mark.parametrize(
    "name", ["self_attn.k_scale", "self_attn.sinks", "self_attn.q_proj.bias", "self_attn.rotary_emb.inv_freq"]
)
def test_a_tensor_that_a_llama_does_not_have_is_named(name: str, tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "m")
    edit_tensors(folder, **{f"model.layers.1.{name}": torch.full((HEAD_DIM // 2,), 0.3)})
    assert name.rsplit(".", 1)[1] in answer(folder)


def test_the_frequencies_of_the_config_in_a_file_are_passed_over(tmp_path: Path) -> None:
    """Old files hold them: the same numbers that the config gives, rounded or not."""
    folder = save_llama(tmp_path / "m")
    usual = 10000.0 ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    edit_tensors(folder, **{"model.layers.0.self_attn.rotary_emb.inv_freq": usual.half()})
    assert answer(folder) == ""


GENERATION: dict[str, Any] = dict(
    repetition_penalty=1.3,
    suppress_tokens=[5],
    begin_suppress_tokens=[5],
    bad_words_ids=[[5]],
    no_repeat_ngram_size=2,
    num_beams=4,
    stop_strings=["x"],
    forced_bos_token_id=7,
    sequence_bias=[[[5], -9.0]],
    guidance_scale=2.0,
    some_new_key=1,
    temperature=0.6,
)


@pytest.mark.parametrize("key", GENERATION)
def test_a_key_of_generation_config_that_would_change_a_text_is_named(key: str, tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "m")
    edit_json(folder / "generation_config.json", **{key: GENERATION[key]})
    assert key in answer(folder)


def test_a_generation_config_that_changes_no_text_has_no_remark(tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "m")
    edit_json(
        folder / "generation_config.json",
        repetition_penalty=1.0,
        num_beams=1,
        eos_token_id=[0],
        pad_token_id=1,
        transformers_version="4.51.0",
        do_sample=False,
        temperature=1.0,
        top_p=1.0,
        _from_model_config=True,
    )
    assert answer(folder) == ""


# 2. A tokenizer with settings that contradict each other


def added(content: str, **more: bool) -> dict[str, Any]:
    return {
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
        **more,
    }


def edit_tokenizer(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads((folder / "tokenizer.json").read_text())
    edit(data)
    (folder / "tokenizer.json").write_text(json.dumps(data))


def test_added_tokens_that_strip_their_surroundings_are_read_as_in_transformers(tmp_path: Path) -> None:
    texts = ["a  <think>  b", " a<tool> b <tool>", "<tools>c <t>"]
    tensors = {name: torch.cat([x, x[:8]]) if len(x) == VOCAB else x for name, x in llama_tensors().items()}
    folder = save_llama(tmp_path / "m", vocab_size=VOCAB + 8, tensors=tensors)
    new = [
        added("<think>", lstrip=True, rstrip=True),
        added("<tool>", single_word=True, normalized=True),
        added("<t>", lstrip=True),
    ]
    without = loaded(folder).tokenizer
    edit_json(
        folder / "tokenizer_config.json", added_tokens_decoder={str(VOCAB + i): x for i, x in enumerate(new)}
    )
    ours, theirs = loaded(folder).tokenizer, their_tokenizer(folder)
    assert ours is not None and without is not None
    for text in texts:
        assert ours.encode(text) == theirs(text).input_ids
        assert ours.encode(text) != without.encode(text)
        assert ours.decode(ours.encode(text)) == theirs.decode(ours.encode(text))


FILES: dict[str, tuple[str, dict[str, Any], str]] = {
    "an id that is not the next": (
        "tokenizer_config.json",
        {"added_tokens_decoder": {"4099": added("<think>")}},
        "<think>",
    ),
    "an id beyond the matrix": (
        "tokenizer_config.json",
        {"added_tokens_decoder": {"4096": added("<think>")}},
        "<think>",
    ),
    "the same in added_tokens.json": ("added_tokens.json", {"<think>": 4096}, "<think>"),
    "an old token at another id": ("added_tokens.json", {"<|end|>": 17}, "<|end|>"),
    "the same in a table": (
        "tokenizer_config.json",
        {"added_tokens_decoder": {"17": added("<|end|>")}},
        "<|end|>",
    ),
    "a new end": ("tokenizer_config.json", {"eos_token": "<|stop|>"}, "<|stop|>"),
    "another end in the map": ("special_tokens_map.json", {"eos_token": "<|halt|>"}, "<|halt|>"),
    "a further mark": ("tokenizer_config.json", {"additional_special_tokens": ["<|tool|>"]}, "<|tool|>"),
    "an old file that a table overrules": ("added_tokens.json", {"<|end|>": 17}, "<|end|>"),
    "an end that a table overrules": ("special_tokens_map.json", {"eos_token": "<|user|>"}, "<|user|>"),
    "a length": ("tokenizer_config.json", {"model_max_length": 4}, "model_max_length"),
    "lower case": ("tokenizer_config.json", {"do_lower_case": True}, "do_lower_case"),
    "sampling of pieces": (
        "tokenizer_config.json",
        {"sp_model_kwargs": {"enable_sampling": True}},
        "sp_model_kwargs",
    ),
    "a key that nobody knows": ("tokenizer_config.json", {"split_digits": True}, "split_digits"),
    "a space in front": ("tokenizer_config.json", {"add_prefix_space": True}, "add_prefix_space"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_tokenizer_that_contradicts_another_is_named(name: str, tmp_path: Path) -> None:
    file, keys, word = FILES[name]
    folder = save_llama(tmp_path / "m")
    if name.endswith("overrules"):
        edit_json(
            folder / "tokenizer_config.json", added_tokens_decoder={"0": added("<|end|>", special=True)}
        )
    assert answer(folder) == ""
    edit_json(folder / file, **keys)
    assert word in answer(folder)


def test_merges_that_are_left_out_by_chance_are_all_made_with_a_remark(tmp_path: Path) -> None:
    folder, text = save_llama(tmp_path / "m"), "Once upon a time there was a small house behind the hill"
    plain = loaded(folder).tokenizer
    edit_tokenizer(folder, lambda data: data["model"].update(dropout=0.7))
    model = loaded(folder)
    assert plain is not None and model.tokenizer is not None
    assert all(model.tokenizer.encode(text) == plain.encode(text) for _ in range(3))
    assert "dropout" in "\n".join(model.remarks)


def test_lengths_in_tokenizer_json_cut_and_fill_no_prompt(tmp_path: Path) -> None:
    folder, text = save_llama(tmp_path / "m"), "Once upon a time there was a house"
    cut = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    fill = {
        "strategy": {"Fixed": 40},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 1,
        "pad_type_id": 0,
    }
    fill["pad_token"] = "<|pad|>"
    edit_tokenizer(folder, lambda data: data.update(truncation=cut, padding=fill))
    ours = loaded(folder).tokenizer
    assert (
        ours is not None
        and ours.encode(text) == their_tokenizer(folder)(text).input_ids
        and 3 < len(ours.encode(text)) < 40
    )


def test_a_normalizer_in_tokenizer_json_is_followed_as_in_transformers(tmp_path: Path) -> None:
    folder, text = save_llama(tmp_path / "m"), "A TALL \ufb01sh"
    plain = loaded(folder).tokenizer
    steps = [
        {"type": "NFKC"},
        {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "o"},
    ]
    edit_tokenizer(folder, lambda data: data.update(normalizer={"type": "Sequence", "normalizers": steps}))
    ours = loaded(folder).tokenizer
    assert (
        plain is not None
        and ours is not None
        and plain.encode(text) != ours.encode(text) == their_tokenizer(folder)(text).input_ids
    )


# 3. Chat templates of models that call tools

TOOLS = """{%- macro show(m, last=false) -%}
{{- '<|' + m.role + '|>' -}}{{ m.content if m.content is string else '' }}{%- if last %}!{% endif -%}
{%- endmacro -%}
{%- set ns = namespace(n=0) -%}
{%- if tools %}TOOLS {{ tools | tojson }}{% endif %}{%- if documents %}DOCUMENTS{% endif %}
{{ strftime_now('%Y') | length }} digits
{% for m in messages %}
  {%- set ns.n = ns.n + 1 %}
  {%- if loop.previtem is defined and loop.previtem.role != m.role %}{{ '\\n' }}{% endif -%}
  {%- if m.role == 'assistant' %}{% generation %}{{ show(m) }}{% endgeneration %}{% else %}{{ show(m, loop.last) }}{% endif %}
  {%- if loop.nextitem is not defined %} LAST {{ ns.n }}{% endif %}{{ eos_token }}
{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""
NO_SYSTEM = """{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for m in messages %}{{ '<|' + m.role + '|>' }}{{ m.content | trim }}<|end|>{% endfor %}"""
QUESTION = {"role": "user", "content": "  Hello \u00e9 "}
TALK = [QUESTION, {"role": "assistant", "content": "Yes"}, {"role": "user", "content": "Why?"}]


def chat_folder(folder: Path, template: Any) -> Path:
    save_llama(folder)
    edit_json(folder / "tokenizer_config.json", chat_template=template)
    return folder


@pytest.mark.parametrize(
    "template",
    [TOOLS, NO_SYSTEM, [{"name": "tool_use", "template": NO_SYSTEM}, {"name": "default", "template": TOOLS}]],
)
def test_a_chat_template_for_tools_writes_the_ids_of_transformers(template: Any, tmp_path: Path) -> None:
    folder = chat_folder(tmp_path / "m", template)
    ours, theirs = loaded(folder).tokenizer, their_tokenizer(folder)
    assert ours is not None
    due = theirs.apply_chat_template(TALK, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert ours.chat(TALK) == due and len(due) > 8
    text = ours.decode(due)
    assert "DOCUMENTS" not in text and "TOOLS" not in text and (template is NO_SYSTEM or "LAST 3" in text)


def test_a_conversation_that_a_template_refuses_is_refused_in_its_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = loaded(chat_folder(tmp_path / "m", NO_SYSTEM)).tokenizer
    assert ours is not None
    with pytest.raises(ValueError, match="System role not supported"):
        ours.chat([{"role": "system", "content": "Be short."}, *TALK])
    alone = chat_folder(tmp_path / "n", NO_SYSTEM.replace("== 'system'", "== 'user'"))
    assert main(["run", "--model", str(alone), "--chat", "--prompt", "hi", "--max-new-tokens", "2"]) == 2
    assert "System role not supported" in capsys.readouterr().err


def test_templates_by_name_without_a_default_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = chat_folder(
        tmp_path / "m", [{"name": "rag", "template": TOOLS}, {"name": "tool_use", "template": TOOLS}]
    )
    assert main(["run", "--model", str(folder), "--chat", "--prompt", "hi", "--max-new-tokens", "2"]) == 2
    said = capsys.readouterr().err
    assert "rag" in said and "tool_use" in said and "default" in said


# 4. Turns that end in a token that is no end


def test_turns_that_end_in_no_stop_token_are_named_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = chat_folder(tmp_path / "m", TOOLS.replace("eos_token", "'<|reserved_1|>'"))
    assert main(["run", "--model", str(folder), "--chat", "--prompt", "hi", "--max-new-tokens", "2"]) == 0
    assert "<|reserved_1|>" in capsys.readouterr().err
    assert main(["run", "--model", str(folder), "--prompt", "hi", "--max-new-tokens", "2"]) == 0
    assert "<|reserved_1|>" not in capsys.readouterr().err, "without a chat nobody is concerned"


# 5. EAGLE-3


def first_drafts(target: Path, **heads: Path) -> tuple[list[int], list[int], Model]:
    """The tokens before the second draft, that draft's most probable tokens in order, and the model."""
    model = loaded(target, **heads)
    (kind,) = heads
    record = run(model, kind, TEXT, max_new_tokens=8, ignore_eos=True).trace
    before, step = TEXT + list(record.steps[0].emitted), record.steps[1]
    assert step.draft is not None
    return (
        before,
        [x for x, parent in zip(step.draft.tokens, step.draft.parents, strict=True) if parent == -1],
        model,
    )


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + LLAMA["rms_norm_eps"]).sqrt() * weight


def attend(t: Tensors, place: str, x: torch.Tensor) -> torch.Tensor:
    """Causal attention with Llama's rotation over rows x, as its makers write it."""

    def heads(name: str, count: int) -> torch.Tensor:
        return (
            (x @ t[f"{place}.self_attn.{name}_proj.weight"].T).view(len(x), count, HEAD_DIM).transpose(0, 1)
        )

    def rotate(x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(x.shape[1])[:, None] * 10000.0 ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        return x * cos + torch.cat([-x[..., HEAD_DIM // 2 :], x[..., : HEAD_DIM // 2]], -1) * sin

    q, k, v = rotate(heads("q", HEADS)), rotate(heads("k", KV_HEADS)), heads("v", KV_HEADS)
    k, v = (y.repeat_interleave(HEADS // KV_HEADS, 0) for y in (k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out.transpose(0, 1).reshape(len(x), HEADS * HEAD_DIM) @ t[f"{place}.self_attn.o_proj.weight"].T


def eagle3_logits(target: Path, t: Tensors, tokens: list[int], normed: bool) -> torch.Tensor:
    """The logits of a head after `tokens`; `normed`: with norm_before_residual."""
    with torch.no_grad():
        states = their_model(target)(
            torch.tensor([tokens]), output_hidden_states=True, use_cache=False
        ).hidden_states
    embed = t.get("embed_tokens.weight", load_file(target / "model.safetensors")["model.embed_tokens.weight"])
    mixed = torch.cat([states[i][0, :-1] for i in (2, 8, 13)], -1) @ t["fc.weight"].T
    hidden = norm(mixed, t["midlayer.hidden_norm.weight"])
    rows = torch.cat([norm(embed[tokens[1:]], t["midlayer.input_layernorm.weight"]), hidden], -1)
    x = (hidden if normed else mixed) + attend(t, "midlayer", rows)
    mlp = {name: t[f"midlayer.mlp.{name}_proj.weight"].T for name in ("gate", "up", "down")}
    inner = norm(x, t["midlayer.post_attention_layernorm.weight"])
    x = x + (torch.nn.functional.silu(inner @ mlp["gate"]) * (inner @ mlp["up"])) @ mlp["down"]
    return norm(x[-1], t["norm.weight"]) @ t["lm_head.weight"].T


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_an_eagle3_head_drafts_what_its_formulas_say(
    own: bool, normed: bool, target: Path, tmp_path: Path
) -> None:
    t = eagle3_tensors() | (random_tensors({"embed_tokens.weight": (VOCAB, WIDTH)}, 9) if own else {})
    folder = save_folder(tmp_path / "e", {**EAGLE3, "norm_before_residual": normed}, t)
    before, drafts, model = first_drafts(target, eagle3=folder)
    best = eagle3_logits(target, t, before, normed).topk(len(drafts)).indices
    assert drafts == (best + t["d2t"][best]).tolist()
    assert any(
        x != y
        for x, y in zip(
            drafts, eagle3_logits(target, t, before, not normed).topk(len(drafts)).indices * 2, strict=True
        )
    )
    assert ("embedding of its own" in "\n".join(model.remarks)) == own


EAGLE3_KEYS: dict[str, Any] = dict(
    target_hidden_size=64,
    draft_vocab_size=2000,
    vocab_size=5000,
    target_layer_ids=[1, 7, 12],
    quantization_config={"quant_method": "fp8"},
    rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 77.0}},
    sliding_window=64,
    rope_scaling={"rope_type": "dynamic", "factor": 2.0},
    embed_scale=3.0,
    parallel_drafting=True,
    has_lm_head=False,
    fc_norm=True,
    mlp_bias=True,
    final_logit_softcapping=5.0,
    target_model_type="qwen3",
)


@pytest.mark.parametrize("key", EAGLE3_KEYS)
def test_a_key_of_an_eagle3_head_is_named(key: str, target: Path, tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "e", {**EAGLE3, key: EAGLE3_KEYS[key]}, eagle3_tensors())
    said = answer(target, eagle3=folder)
    assert key in said or (key == "draft_vocab_size" and "d2t" in said)


def test_lists_of_a_draft_vocabulary_that_contradict_each_other_are_named(
    target: Path, tmp_path: Path
) -> None:
    for i, edit in enumerate(
        (lambda t: t["t2d"].roll(1), lambda t: t["t2d"] & (torch.arange(VOCAB) > 0), lambda t: ~t["t2d"])
    ):
        t = eagle3_tensors()
        t["t2d"] = edit(t)
        said = answer(target, eagle3=save_folder(tmp_path / str(i), EAGLE3, t))
        assert "t2d" in said and "d2t" in said


# 6. EAGLE-1

EAGLE_KEYS: dict[str, tuple[dict[str, Any], Tensors, str]] = {
    "a bias that is missing": ({"bias": True}, eagle1_tensors(bias=False), "bias"),
    "a bias that should not be": ({"bias": False}, eagle1_tensors(), "bias"),
    "two layers": ({"num_hidden_layers": 2}, eagle1_tensors(2), "num_hidden_layers"),
    "two layers that the config does not know": ({}, eagle1_tensors(2), "layers.1"),
    "two layers that the file does not have": (
        {"num_hidden_layers": 2},
        eagle1_tensors(),
        "num_hidden_layers",
    ),
    "an embedding of integers": (
        {},
        {**eagle1_tensors(), "embed_tokens.weight": torch.ones(VOCAB, WIDTH, dtype=torch.int8)},
        "embed_tokens",
    ),
    "a short embedding": (
        {},
        {**eagle1_tensors(), "embed_tokens.weight": torch.ones(4000, WIDTH)},
        "embed_tokens",
    ),
    "a head of its own": ({}, {**eagle1_tensors(), "lm_head.weight": torch.ones(VOCAB, WIDTH)}, "lm_head"),
    "frequencies of its own": (
        {},
        {**eagle1_tensors(), "layers.0.self_attn.rotary_emb.inv_freq": torch.full((4,), 0.3)},
        "inv_freq",
    ),
    "a truncated vocabulary": ({"truncated_vocab_size": 1000}, eagle1_tensors(), "truncated_vocab_size"),
}


@pytest.mark.parametrize("name", EAGLE_KEYS)
def test_a_key_or_tensor_of_an_eagle_head_is_named(name: str, target: Path, tmp_path: Path) -> None:
    changes, tensors, word = EAGLE_KEYS[name]
    assert word in answer(target, eagle=save_folder(tmp_path / "e", {**EAGLE, **changes}, tensors))


def test_an_embedding_of_another_type_is_drafted_with(target: Path, tmp_path: Path) -> None:
    """In bfloat16, the target's numbers are other numbers: a remark counts them, and the head reads them."""
    embed = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    for name, x in (("same", embed), ("half", embed.bfloat16())):
        said = answer(
            target, eagle=save_folder(tmp_path / name, EAGLE, {**eagle1_tensors(), "embed_tokens.weight": x})
        )
        assert ("embedding of its own" in said) == (name == "half")


# 7. Medusa

MEDUSA = dict(medusa_num_heads=3, medusa_num_layers=1, base_model_name_or_path="base", model_type="medusa")
MEDUSA_FOLDERS: dict[str, tuple[dict[str, Any], Tensors, str]] = {
    "more layers than tensors": ({"medusa_num_layers": 2}, {}, "medusa_num_layers"),
    "no layers": ({"medusa_num_layers": 0}, {}, "medusa_num_layers"),
    "more heads than tensors": ({"medusa_num_heads": 5}, {}, "medusa_num_heads"),
    "half a head": ({}, {"3.0.linear.weight": torch.ones(WIDTH, WIDTH)}, "3.0.linear"),
    "the head of the model": ({}, {"lm_head.weight": torch.ones(VOCAB, WIDTH)}, "lm_head"),
    "another activation": ({"hidden_act": "gelu"}, {}, "hidden_act"),
    "a truncated vocabulary": ({"truncated_vocab_size": 100}, {}, "truncated_vocab_size"),
    "quantised": ({"quantization_config": {"quant_method": "awq"}}, {}, "quantization_config"),
}


@pytest.mark.parametrize("name", MEDUSA_FOLDERS)
def test_a_key_or_tensor_of_a_medusa_head_is_named(name: str, target: Path, tmp_path: Path) -> None:
    changes, more, word = MEDUSA_FOLDERS[name]
    folder = save_folder(
        tmp_path / "m", {**MEDUSA, **changes}, medusa_tensors() | more, "medusa_lm_head.safetensors"
    )
    assert word in answer(target, medusa=folder)


def test_a_medusa_folder_in_the_layout_of_vllm_is_not_taken_for_eagle(target: Path, tmp_path: Path) -> None:
    folder = save_folder(
        tmp_path / "m",
        {**MEDUSA, "hidden_size": WIDTH},
        random_tensors({"blocks.0.layers.0.weight": (WIDTH, WIDTH)}),
    )
    said = answer(target, medusa=folder)
    assert "medusa" in said and "model_type" in said and "EAGLE" not in said


# 8. Hydra

HYDRA = dict(
    hydra_num_heads=2, hydra_num_layers=1, hydra_head_arch="mlp", grounded_heads=True, model_type="hydra"
)
HYDRA_FOLDERS: dict[str, tuple[dict[str, Any], Tensors, str]] = {
    "an unknown form": ({"hydra_head_arch": "moe"}, {}, "hydra_head_arch"),
    "a form without its tensors": ({"hydra_head_arch": "prefix-mlp"}, {}, "hydra_head_arch"),
    "an unused key": ({"dropout_rate": 0.1}, {}, "dropout_rate"),
    "more heads than tensors": ({"hydra_num_heads": 4}, {}, "hydra_num_heads"),
    "heads that are not grounded": ({"grounded_heads": False}, {}, "grounded_heads"),
    "an earlier layer": ({"hidden_state_offset": 1}, {}, "hidden_state_offset"),
    "a prefix layer of another form": (
        {},
        {"prefix_embeding_layer.embed_tokens.weight": torch.ones(VOCAB, WIDTH)},
        "prefix_embeding_layer",
    ),
}


@pytest.mark.parametrize("name", HYDRA_FOLDERS)
def test_a_key_or_tensor_of_a_hydra_head_is_named(name: str, target: Path, tmp_path: Path) -> None:
    changes, more, word = HYDRA_FOLDERS[name]
    folder = save_folder(
        tmp_path / "h", {**HYDRA, **changes}, hydra_tensors() | more, "hydra_lm_head.safetensors"
    )
    assert word in answer(target, hydra=folder)


# 9. Layouts of other libraries

INNER = {**EAGLE, "model_type": "llama"}
WRAPPED = {"model_type": "eagle", "model": INNER, "architectures": ["EAGLEModel"]}
DFLASH = {
    **EAGLE,
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "block_size": 16,
    "num_hidden_layers": 5,
    "dflash_config": {"mask_token_id": 9, "target_layer_ids": [1, 8, 13]},
}


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
@pytest.mark.parametrize(
    ("config", "word"),
    [(WRAPPED, "model_type"), (DFLASH, "DFlash")],
)
def test_a_layout_of_another_library_is_refused_by_its_key(
    config: dict[str, Any],
    word: str,
    kind: str,
    target: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = save_folder(tmp_path / "h", config, eagle3_tensors())
    with pytest.raises(LoadError, match=word):
        loaded(target, **{kind: folder})
    command = [
        "run",
        "--model",
        str(target),
        "--head",
        f"{kind}={folder}",
        "--drafter",
        kind,
        "--prompt",
        "a",
    ]
    assert main(command) == 2 and word in capsys.readouterr().err


# 10. Adapters of PEFT

PEFT = dict(
    peft_type="LORA",
    r=4,
    lora_alpha=8,
    target_modules=["q_proj"],
    use_rslora=True,
    use_dora=True,
    modules_to_save=["lm_head"],
    alpha_pattern={"q_proj": 16},
    base_model_name_or_path="base",
)


@pytest.mark.parametrize("place", ["", "alone", "adapters/mine"])
def test_an_adapter_of_peft_is_refused_by_its_file(place: str, tmp_path: Path) -> None:
    model = tmp_path / "m"
    if place != "alone":
        save_llama(model)
    folder = model / ("" if place == "alone" else place)
    folder.mkdir(parents=True, exist_ok=True)
    names = {
        f"base_model.model.model.layers.0.self_attn.q_proj.lora_{x}.weight": torch.ones(4, 32) for x in "AB"
    }
    (folder / "adapter_config.json").write_text(json.dumps(PEFT))
    save_file(names, folder / "adapter_model.safetensors")
    with pytest.raises(LoadError, match=r"adapter_config\.json.*[Mm]erge"):
        loaded(f"{model}+mine" if place.startswith("adapters") else model)


@pytest.mark.parametrize(
    "key", ["use_rslora", "use_dora", "alpha_pattern", "modules_to_save", "r", "lora_alpha"]
)
def test_a_key_of_peft_in_an_adapter_of_ours_is_named(key: str, tmp_path: Path) -> None:
    model = save_llama(tmp_path / "m")
    name = "model.layers.0.self_attn.q_proj.weight"
    tensors = random_tensors({f"{name}.A": (4, WIDTH), f"{name}.B": (HEADS * HEAD_DIM, 4)})
    config = {"rank": 4, "alpha": 8, "base": loaded(model).fingerprint, "rows": {}, key: PEFT[key]}
    save_folder(model / "adapters" / "mine", config, tensors)
    assert key in answer(f"{model}+mine")
