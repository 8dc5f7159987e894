"""The real model of the tests: SmolLM2-135M-Instruct in a GGUF file, and what transformers makes of the same file.

Each model is loaded once in a process. So that this happens in one process only, tests that use one carry `GROUP`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

GROUP = pytest.mark.xdist_group("real")
# transforms that make a draft model of the real one
INT4, CUT = "int4 group=64", "cut_layers skip=a14,a16,a18,a20"
# what people ask
PROMPTS = (
    "What is the capital of France?",
    "Rewrite this sentence in plain English: The aforementioned party shall henceforth desist.",
    "Write a Python function that returns the sum of the even numbers in a list, then add type hints.",
    "Repeat this list, with a dash before each line:\napples\npears\nplums\napples and pears",
    "Summarise in one sentence: The bridge was closed on Monday. Engineers found a crack in a beam. It opens on Friday.",
    "Answer as JSON with the keys name and age: My name is Ada and I am 36 years old.",
    "Tell me a short story about a lighthouse.",
    "Count from one to twelve in words.",
)


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The file of the real model; skips the test where there is none."""
    from decodescope.lab.lessons import real_model_path

    path = real_model_path()
    if not path.is_file():
        pytest.skip("the real model is not here: decodescope models get smollm2-135m-instruct")
    return path


@pytest.fixture(scope="session")
def real_models(real_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """load(dtype, weights): the real model as its file stores it, or made by transforms; each is loaded once.

    Its config and tokenizer are written into a folder of the tests, not into the user's data.
    """
    from decodescope.engine.model.checkpoint.gguf import source
    from decodescope.engine.session.load import load

    home = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "data_folder", lambda: home)
        yield cache(lambda dtype="float32", weights="": load(real_model, dtype, "cpu", weights=weights))


@dataclass
class Answer:
    """A prompt, what transformers writes behind it, and its logits. logits: float32 [tokens, V]"""

    prompt: list[int]
    tokens: list[int]
    logits: Any

    def begin(self, tokens: int) -> Answer:
        """Its first tokens."""
        return Answer(self.prompt, self.tokens[:tokens], self.logits[:tokens])

    def differs(self, text: Sequence[int], tie: float) -> str:
        """Why `text` is not this answer, as a sentence; empty: it is, up to a first token that ties with theirs."""
        for k, (ours, theirs) in enumerate(zip(text, self.tokens, strict=True)):
            if ours != theirs:
                gap = float(self.logits[k, theirs] - self.logits[k, ours])
                where = f"token {k} is {ours}, transformers writes {theirs}"
                return "" if gap <= tie else f"{where}, whose logit is {gap:.2g} higher"
        return ""


@pytest.fixture(scope="session")
def real_answers(real_model: Path, real_models: Callable[..., Any]) -> Callable[[int, int], list[Answer]]:
    """answers(count, tokens): what transformers writes behind the first prompts, greedily, in one batch."""

    @cache
    def answers(count: int, tokens: int) -> list[Answer]:
        prompts = [chat_ids(real_models(), text) for text in PROMPTS[:count]]
        return generated(transformers_model(real_model, real_models().path), prompts, tokens)

    return answers


def chat_ids(model: Any, text: str) -> list[int]:
    """The ids of a question in the model's chat template."""
    return model.tokenizer.chat([{"role": "user", "content": text}])


def transformers_model(path: Path, folder: Path) -> Any:
    """A model of transformers in float32, with its own reading of the file; its config must be the one in `folder`."""
    import torch
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.inference_mode(False), torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    for name, value in read["config"].items():
        if name not in ("_model_name_or_path", "unk_token_id", "pad_token_id", "rope_theta"):
            assert getattr(config, name) == pytest.approx(value), f"{name} of the config"
    assert config.rope_parameters["rope_theta"] == read["config"]["rope_theta"]
    left = model.load_state_dict(read["tensors"], strict=False, assign=True)
    assert not left.unexpected_keys and left.missing_keys == ["lm_head.weight"]
    model.tie_weights()
    rotation = model.model.rotary_emb
    model.model.rotary_emb = type(rotation)(config)  # its frequencies are computed, not loaded
    return model


def generated(model: Any, prompts: Sequence[Sequence[int]], tokens: int) -> list[Answer]:
    """What `generate` writes behind the prompts, greedily, read as one batch with padding in front."""
    import torch

    wide = max(map(len, prompts))
    rows = torch.tensor([[0] * (wide - len(x)) + list(x) for x in prompts])
    seen = torch.tensor([[0] * (wide - len(x)) + [1] * len(x) for x in prompts])
    with torch.inference_mode():
        made = model.generate(
            input_ids=rows,
            attention_mask=seen,
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
    logits = torch.stack(made.logits, 1)  # [prompts, tokens, V]
    texts = made.sequences[:, wide:].tolist()
    return [Answer(list(x), text, row) for x, text, row in zip(prompts, texts, logits, strict=True)]
