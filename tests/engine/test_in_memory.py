"""Models that transformers holds in memory: they decode as their saved folder does, and what cannot be read is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from decodescope.engine import load, run
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.session.load import SHIPPED, ensure_loaded, load_original

FOLDER = SHIPPED / "lab-draft"


@pytest.fixture(scope="module")
def theirs() -> tuple[Any, Any]:
    """The shipped model and tokenizer as transformers has them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)


def test_a_model_in_memory_decodes_as_its_folder_does(theirs: Any) -> None:
    model, tokenizer = theirs
    kind = str(model.dtype).removeprefix("torch.")
    due = run(load(FOLDER, kind, "cpu"), "prompt_lookup", "Once upon a time", chat=True, max_new_tokens=12)
    done = run(model, "prompt_lookup", "Once upon a time", chat=True, max_new_tokens=12, tokenizer=tokenizer)
    assert done.tokens == due.tokens and done.prompt == due.prompt and done.text == due.text
    header = done.trace.header
    assert header.model["name"] == "lab-draft" and header.dtype == kind
    own = load(model, tokenizer=tokenizer)
    assert own.stop_tokens == load(FOLDER, kind, "cpu").stop_tokens
    assert own.tokenizer is not None and own.tokenizer.has_chat and own.name == "lab-draft"


def test_only_the_embedding_is_shared_and_that_is_said(theirs: Any) -> None:
    model, tokenizer = theirs
    own, other = load(model, tokenizer=tokenizer), load(model, torch.float64, tokenizer=tokenizer)
    place = model.get_input_embeddings().weight.data_ptr()
    assert own.decoder.embed.data_ptr() == place != other.decoder.embed.data_ptr()
    held = {x.data_ptr() for x in model.state_dict().values()}
    assert all(layer.attn_norm.data_ptr() not in held for layer in own.decoder.layers)
    said = [x for x in own.remarks if "was given as a model in memory: its weights are held twice" in x]
    assert len(said) == 1 and said[0].endswith("only the embedding is shared.")
    assert any(x.endswith("nothing is shared.") for x in other.remarks)


def test_equal_models_have_equal_fingerprints_and_changed_ones_have_others() -> None:
    from transformers import AutoModelForCausalLM

    one, two = (AutoModelForCausalLM.from_pretrained(FOLDER) for _ in range(2))
    mark = load(one).fingerprint
    assert load(two).fingerprint == mark
    with torch.no_grad():
        two.model.layers[-1].mlp.down_proj.weight[0, 0] += 1
    assert load(two).fingerprint != mark


def test_a_model_in_memory_can_be_changed_and_compared_with_what_it_was(theirs: Any) -> None:
    model, tokenizer = theirs
    before = model.get_input_embeddings().weight.detach().clone()
    int8 = load(model, tokenizer=tokenizer, weights="int8")
    assert (
        int8.spec.weights == "int8"
        and int8.decoder.embed.data_ptr() != model.get_input_embeddings().weight.data_ptr()
    )
    assert torch.equal(model.get_input_embeddings().weight, before)
    assert (
        load_original(int8).spec.weights == "" and load_original(int8).fingerprint == load(model).fingerprint
    )


def test_a_tokenizer_of_the_tokenizers_library_is_taken(theirs: Any) -> None:
    model, tokenizer = theirs
    own = load(model, tokenizer=tokenizer.backend_tokenizer)
    assert own.tokenizer is not None and own.tokenizer.encode("a b") == tokenizer.encode("a b")
    assert load(model).tokenizer is None
    with pytest.raises(ValueError, match="has no tokenizer: give the prompt as token ids"):
        run(model, None, "a")
    assert len(run(model, None, [5, 6], max_new_tokens=2).tokens) == 2


def test_what_cannot_be_decoded_is_refused_in_one_sentence(theirs: Any) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model, tokenizer = theirs
    tiny = GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8)
    with torch.device("meta"):
        absent = type(model)(model.config)
    for given, more, why in [
        (GPT2LMHeadModel(tiny), {}, "GPT2LMHeadModel without model.embed_tokens.weight"),
        (absent, {}, "in memory; load it without offloading"),
        (model, {"tokenizer": object()}, "The tokenizer 'object' has no fast form"),
        (str(FOLDER), {"tokenizer": tokenizer}, "A tokenizer is given beside a model of transformers"),
        (torch.nn.Linear(2, 2), {}, "A model is "),
    ]:
        with pytest.raises(LoadError, match=why):
            load(given, **more)
    with pytest.raises(LoadError, match="A tokenizer is given beside a loaded model"):
        ensure_loaded(load(FOLDER, device="cpu"), tokenizer=tokenizer)
    assert ensure_loaded(model).name == "lab-draft"


def test_weights_of_another_type_than_floats_are_refused(theirs: Any) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(FOLDER)
    weight = model.model.layers[0].mlp.down_proj
    weight.weight = torch.nn.Parameter(torch.zeros_like(weight.weight, dtype=torch.int8), requires_grad=False)
    with pytest.raises(
        LoadError, match=r"mlp\.down_proj\.weight as int8, which cannot be read; load it without quantisation"
    ):
        load(model)
