"""The shipped models are complete, small, loadable, and trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
FILES = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}
PARAMETERS = {
    "lab": (10e6, 12e6),
    "lab-draft": (0.8e6, 1.2e6),
    "lab-draft-plain": (0.8e6, 1.2e6),
    "lab-mdm": (1.1e6, 1.2e6),
    "lab-recall": (1.4e6, 2.5e6),
    "lab-digits": (0.2e6, 0.22e6),
    "lab-digits-any": (0.2e6, 0.22e6),
    "lab-blocks": (0.12e6, 0.13e6),
}

SNIPPET = '''
class Counter:
    """Count how often each item was seen."""

    def __init__(self, items=None):
        self.counts = {}
        if items is not None:
            for item in items:
                self.add(item)

    def add(self, item):
        """Add one item and return its new count."""
        if item not in self.counts:
            self.counts[item] = 0
        self.counts[item] += 1
        return self.counts[item]

    def total(self):
        """Return the number of all items seen."""
        return sum(self.counts.values())
'''


def load(name: str):
    return AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32).eval()


@torch.no_grad()
def snippet_loss(model) -> float:
    ids = torch.tensor([AutoTokenizer.from_pretrained(MODELS / "lab")(SNIPPET)["input_ids"]])
    return F.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:]).item()


@pytest.mark.parametrize("name", PARAMETERS)
def test_folder_is_complete_and_holds_nothing_else(name):
    assert {f.name for f in (MODELS / name).iterdir()} - {"heads", "adapters"} == FILES


@pytest.mark.parametrize("name", PARAMETERS)
def test_weights_are_bfloat16_with_the_embedding_stored_once(name):
    with safe_open(MODELS / name / "model.safetensors", "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    assert {t.dtype for t in tensors.values()} == {torch.bfloat16}
    assert all(t.isfinite().all() for t in tensors.values())
    assert "lm_head.weight" not in tensors
    low, high = PARAMETERS[name]
    assert low <= sum(t.numel() for t in tensors.values()) <= high


def test_config_says_what_the_engine_needs():
    lab, *drafts = (
        AutoConfig.from_pretrained(MODELS / name) for name in ("lab", "lab-draft", "lab-draft-plain")
    )
    assert lab.num_hidden_layers >= 8
    assert lab.num_key_value_heads < lab.num_attention_heads
    for config in (lab, *drafts):
        assert config.architectures == ["LlamaForCausalLM"]
        assert (config.vocab_size, config.max_position_embeddings, config.tie_word_embeddings) == (
            4096,
            2048,
            True,
        )
        assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (None, 0, 1)
        assert config.dtype == torch.bfloat16


def test_all_shipped_assets_stay_below_52_mib():
    assert sum(f.stat().st_size for f in MODELS.parent.rglob("*") if f.is_file()) < 52 * 2**20


@pytest.mark.parametrize(("name", "limit"), [("lab", 4.0), ("lab-draft", 5.0), ("lab-draft-plain", 5.0)])
def test_model_is_trained(name, limit):
    model = load(name)
    torch.manual_seed(0)
    blank = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32).eval()
    assert snippet_loss(blank) > 7, "the guard must fail on a model that learnt nothing"
    assert snippet_loss(model) < limit


def test_generate_runs_and_the_chat_format_is_known():
    model, tokenizer = load("lab"), AutoTokenizer.from_pretrained(MODELS / "lab")
    turns = [{"role": "user", "content": "Hello!"}]
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt")
    out = model.generate(**ids, max_length=ids["input_ids"].shape[1] + 40, do_sample=False)
    assert 0 in out[0, ids["input_ids"].shape[1] :], "an answer ends with <|end|>"
