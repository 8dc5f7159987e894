"""Every family decodes as transformers does: logits of prefill, chunks, single tokens and trees, and greedy text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from decodescope.engine.core.spec import Rope
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.checkpoint.config import FAMILIES, key_remarks
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import Model, load

TINY = dict(
    vocab_size=101,
    hidden_size=32,
    intermediate_size=56,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=1000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
LENGTH = 48  # of the compared text


@dataclass
class Case:
    """One checkpoint to compare. told: attributes of our spec that prove the purpose of the case."""

    family: str
    config: dict[str, Any]
    told: dict[str, Any] = field(default_factory=dict)


CASES = {
    "llama-mha": Case("Llama", dict(num_key_value_heads=4, rope_theta=500.0), dict(group=1, tied=False)),
    "llama-mqa-tied": Case(
        "Llama", dict(num_key_value_heads=1, tie_word_embeddings=True), dict(group=4, tied=True)
    ),
    "llama-bias": Case(
        "Llama",
        dict(attention_bias=True, mlp_bias=True, head_dim=16),
        dict(qkv_bias=True, out_bias=True, mlp_bias=True, head_dim=16),
    ),
    "llama-3.1": Case("Llama", dict(rope_parameters=LLAMA3), dict(group=2)),
    "llama-yarn": Case(
        "Llama",
        dict(
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=50.0,
                factor=4.0,
                original_max_position_embeddings=64,
                beta_fast=4.0,
            ),
            head_dim=16,
        ),
    ),
    "qwen3-yarn": Case(
        "Qwen3",
        dict(
            head_dim=16,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1e4,
                factor=8.0,
                original_max_position_embeddings=128,
                attention_factor=1.4,
                truncate=False,
            ),
        ),
    ),
    "llama-longrope": Case(
        "Llama",
        dict(
            rope_parameters=dict(
                rope_type="longrope",
                rope_theta=500.0,
                factor=4.0,
                original_max_position_embeddings=128,
                short_factor=[1.0, 1.5, 2.0, 7.0],
                long_factor=[2.0, 3.0, 5.0, 9.0],
            ),
        ),
        dict(max_positions=128),
    ),
    "phi3-longrope": Case(
        "Phi3",
        dict(
            rope_parameters=dict(
                rope_type="longrope",
                rope_theta=500.0,
                partial_rotary_factor=0.5,
                short_factor=[1.0, 1.5],
                long_factor=[2.0, 3.0],
                attention_factor=1.3,
            ),
            original_max_position_embeddings=100,
        ),
        dict(max_positions=100),
    ),
    "llama-linear": Case(
        "Llama", dict(rope_parameters=dict(rope_type="linear", rope_theta=500.0, factor=4.0))
    ),
    "smollm3": Case(
        "SmolLM3",
        dict(num_hidden_layers=4, no_rope_layers=[1, 0, 1, 0], attention_bias=True),
        dict(no_rope=frozenset({1, 3}), tied=True, out_bias=True),
    ),
    "smollm3-window": Case(
        "SmolLM3",
        dict(no_rope_layer_interval=2, use_sliding_window=True, sliding_window=9),
        dict(no_rope=frozenset({1}), windows=(None, 9, None)),
    ),
    "mistral-window": Case("Mistral", dict(sliding_window=7), dict(windows=(7, 7, 7))),
    "mistral-full": Case("Mistral", dict(sliding_window=None, head_dim=16), dict(windows=(), head_dim=16)),
    "qwen2": Case("Qwen2", dict(tie_word_embeddings=True), dict(qkv_bias=True, out_bias=False, windows=())),
    "qwen2-mixed": Case(
        "Qwen2",
        dict(
            use_sliding_window=True,
            sliding_window=11,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
        dict(windows=(11, None, 11)),
    ),
    "qwen2-upper-layers": Case(
        "Qwen2",
        dict(use_sliding_window=True, sliding_window=11, max_window_layers=1),
        dict(windows=(None, 11, 11)),
    ),
    "qwen3": Case(
        "Qwen3", dict(head_dim=16, num_key_value_heads=1), dict(qk_norm=True, head_dim=16, group=4)
    ),
    "phi3": Case(
        "Phi3", dict(rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5))
    ),
    "gemma2": Case(
        "Gemma2",
        dict(
            num_hidden_layers=4,
            head_dim=16,
            sliding_window=9,
            query_pre_attn_scalar=24,
            final_logit_softcapping=4.0,
            attn_logit_softcapping=3.0,
            tie_word_embeddings=False,
        ),
        dict(windows=(9, None, 9, None), query_dim=24.0, attn_cap=3.0, logit_cap=4.0, act="gelu", tied=False),
    ),
    "gemma2-plain": Case(
        "Gemma2",
        dict(
            final_logit_softcapping=None,
            attn_logit_softcapping=None,
            attention_bias=True,
            tie_word_embeddings=False,
            layer_types=["full_attention"] * 3,
            query_pre_attn_scalar=60,
        ),
        dict(windows=(), attn_cap=None, logit_cap=None, out_bias=True, head_dim=256, tied=False),
    ),
    "gemma3": Case(
        "Gemma3Text",
        dict(
            num_hidden_layers=4,
            head_dim=16,
            sliding_window=9,
            query_pre_attn_scalar=5,
            sliding_window_pattern=3,
            attn_logit_softcapping=3.0,
        ),
        dict(windows=(9, 9, None, 9), qk_norm=True, attn_cap=None, logit_cap=None),
    ),
    "gemma3-scaled": Case(
        "Gemma3Text",
        dict(
            head_dim=8,
            sliding_window=11,
            final_logit_softcapping=5.0,
            layer_types=["full_attention", "sliding_attention", "full_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=500.0, factor=4.0),
                sliding_attention=dict(rope_type="default", rope_theta=100.0),
            ),
        ),
        dict(
            windows=(None, 11, None),
            rope=Rope(500.0, 8, "linear", 4.0),
            local_rope=Rope(100.0, 8),
            logit_cap=5.0,
        ),
    ),
    "phi3-window": Case("Phi3", dict(sliding_window=10), dict(windows=(10, 10, 10))),
}


@dataclass
class Pair:
    """The same weights in transformers (`theirs`) and in ours."""

    theirs: Any
    ours: Model
    text: list[int]
    logits: Tensor  # theirs, [LENGTH, V], of one causal pass over the text

    @torch.no_grad()
    def reference(self, tokens: list[int]) -> Tensor:
        """Their logits [T, V] of one causal pass."""
        return self.theirs(torch.tensor([tokens]), use_cache=False).logits[0]

    def lane(self, tokens: list[int] | None = None) -> Lane:
        """A lane that has read `tokens`."""
        lane = Lane("target", self.ours.decoder, KeepAll())
        if tokens:
            lane.read(tokens)
        return lane


def checkpoint(case: Case, folder: Path) -> Any:
    """Save a seeded random checkpoint in `folder`; return its model. Weights are large enough for uneven attention."""
    import transformers

    torch.manual_seed(7)
    config = getattr(transformers, f"{case.family}Config")(
        **{**TINY, "initializer_range": 0.25, **case.config}
    )
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if (
                name.endswith("bias") or "norm" in name
            ):  # they start at 0 and 1, where a mistake would not show
                weight.add_(torch.randn_like(weight) * 0.2)
        if config.model_type.startswith(
            "gemma"
        ):  # they scale embeddings up: a random model would repeat what it reads
            model.get_input_embeddings().weight.mul_(0.3)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small lose more time waiting for a second thread than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=CASES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """One case, loaded by both sides."""
    case = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    theirs = checkpoint(case, folder)
    ours = load(folder, dtype="float32", device="cpu")
    for name, value in case.told.items():
        assert getattr(ours.spec, name) == value, name
    text = torch.randint(0, 101, (LENGTH,), generator=torch.Generator().manual_seed(3)).tolist()
    made = Pair(theirs, ours, text, torch.empty(0))
    made.logits = made.reference(text)
    assert made.logits.std(0).mean() > 0.1, (
        "the guard: places must differ for the comparison to mean anything"
    )
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_that_transformers_writes_is_known(family: str) -> None:
    """Each key that transformers writes for a family is used, or known to change no number.

    The test covers all keys with their defaults, and the few that transformers saves.
    """
    import transformers

    # MiMo's class stands in its own repository: Qwen 2's, with one key more
    called = {"smollm3": "SmolLM3", "gemma3_text": "Gemma3Text", "mimo": "Qwen2"}.get(
        family, family.capitalize()
    )
    own = {"model_type": family, "num_nextn_predict_layers": 1} if family == "mimo" else {}
    config = getattr(transformers, f"{called}Config")(**TINY)
    for few in (False, True):
        keys = json.loads(config.to_json_string(use_diff=few))
        assert len(keys) > (10 if few else 30)
        assert key_remarks({**keys, **own, "num_key_value_heads": 2}, "m") == []


def close(ours: Tensor, theirs: Tensor) -> None:
    """Check equality within 1e-4."""
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_what_a_case_is_for_changes_the_text(pair: Pair) -> None:
    """The guard: without its window, its scaling or its layers without rotation, a model answers differently."""
    spec, plain = pair.ours.spec, Rope(pair.ours.spec.rope.theta, pair.ours.spec.head_dim)
    without_each = (
        replace(spec, rope=plain),
        replace(spec, local_rope=None),
        replace(spec, windows=()),
        replace(spec, no_rope=frozenset()),
        replace(spec, query_dim=None),
        replace(spec, attn_cap=None),
        replace(spec, logit_cap=None),
        replace(spec, act="silu"),
        replace(spec, embed_scale=1.0),
    )
    for without in without_each:
        if without != spec:
            ours = pair.ours.decoder
            other = Decoder(without, ours.embed, ours.layers, ours.norm, ours.head)
            assert (other.forward(Feed.causal_chain(pair.text, 0), None)[0] - pair.logits).abs().max() > 0.05


def test_one_prefill(pair: Pair) -> None:
    lane = pair.lane()
    close(lane.forward(Feed.causal_chain(pair.text, 0))[0], pair.logits)
    close(pair.ours.decoder.forward(Feed.causal_chain(pair.text, 0), None)[0], pair.logits)
    close(pair.lane().forward(Feed.causal_chain(pair.text, 0, logits="last"))[0], pair.logits[-1:])


def test_prefill_in_chunks(pair: Pair) -> None:
    lane, rows, at = pair.lane(), [], 0
    for size in (1, 5, 17, 2, LENGTH - 25):
        rows.append(lane.forward(Feed.causal_chain(pair.text[at : at + size], at))[0])
        lane.commit(list(range(size)))
        at += size
    assert at == LENGTH
    close(torch.cat(rows), pair.logits)


def test_token_by_token(pair: Pair) -> None:
    lane, rows = pair.lane(), []
    for at, token in enumerate(pair.text):
        rows.append(lane.forward(Feed.causal_chain([token], at))[0])
        lane.commit([0])
    close(torch.cat(rows), pair.logits)


def test_tree_equals_its_branches_read_one_after_the_other(pair: Pair) -> None:
    """The tree has four levels, beyond every window of the cases; its deepest branch is then committed and read on."""
    draft = Draft([3, 5, 8, 13, 21, 34, 55, 89], [ROOT, ROOT, 0, 0, 1, 2, 5, 4])
    start = LENGTH - 1
    lane = pair.lane(pair.text[:-1])
    logits = lane.forward(draft.build_feed(pair.text[-1], start))[0]
    close(logits[0], pair.logits[-1])
    for node in range(len(draft)):
        path, at = [], node
        while at != ROOT:
            path.insert(0, draft.tokens[at])
            at = draft.parents[at]
        close(logits[node + 1], pair.reference(pair.text + path)[-1])
    lane.commit([0, 1, 3, 6, 7])  # the root and nodes 0, 2, 5, 6
    whole = [*pair.text, 3, 8, 34, 55]
    assert lane.tokens == whole
    close(lane.forward(Feed.causal_chain([2, 4], len(whole)))[0], pair.reference([*whole, 2, 4])[-2:])


def test_greedy_text(pair: Pair) -> None:
    prompt = pair.text[:9]
    lane, ours = pair.lane(), list(prompt)
    logits = lane.read(ours)
    while len(ours) < 9 + 64:
        ours.append(int(logits.argmax()))
        logits = lane.forward(Feed.causal_chain(ours[-1:], len(ours) - 1))[0, -1]
        lane.commit([0])
    theirs = pair.reference(ours).argmax(-1)[len(prompt) - 1 : -1].tolist()
    assert ours[len(prompt) :] == theirs
    assert len(set(theirs)) > 3, "the guard: a text of one token proves nothing"
