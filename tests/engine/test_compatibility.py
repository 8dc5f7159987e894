"""Target and draft: same ids, or a refusal that names the first different id; padding is masked on both sides."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sizes import thinned

from decodescope.engine import Method, Session, run
from decodescope.engine.core.component import build, registry
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.model.checkpoint.config import spec_from_config
from decodescope.engine.model.checkpoint.weights import tensor_shapes
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.compatibility import vocabulary_remarks
from decodescope.engine.session.load import SHIPPED, Model, load
from decodescope.engine.session.method import MethodError
from decodescope.engine.trace import Trace, check

IDS = 4096  # number of ids of the shipped tokenizer
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pard_token": 6,  # for the drafters that ask for a draft model with one
    "tie_word_embeddings": False,
}
PROMPT = [300, 301, 302, 50, 60, 300, 301]
TRANSLATING = [name for name, part in registry("drafter").items() if "draft" in part.own_tokens]
DRAFTING = [
    name for name, part in registry("drafter").items() if "draft" in part().lanes and name not in TRANSLATING
]


def made(
    folder: Path,
    vocab: int,
    seed: int = 0,
    edit: Callable[[dict[str, Any]], None] | None = None,
    **changes: Any,
) -> Model:
    """A loaded random model with the shipped tokenizer, changed by `edit`. Rows without a token have the largest logits."""
    folder.mkdir()
    config = {**CONFIG, "vocab_size": vocab, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    g = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(shape, generator=g)
        for name, shape in tensor_shapes(spec_from_config(config, "m")).items()
    }
    tensors["lm_head.weight"][:IDS] *= 2
    tensors["lm_head.weight"][IDS:] *= 50
    save_file(tensors, folder / "model.safetensors")
    table = json.loads((SHIPPED / "lab-draft" / "tokenizer.json").read_text())
    if edit is not None:
        edit(table)
    (folder / "tokenizer.json").write_text(json.dumps(table))
    shutil.copy(SHIPPED / "lab-draft" / "tokenizer_config.json", folder)
    return load(folder, dtype="float64", device="cpu")


def swapped(table: dict[str, Any]) -> None:
    """Exchange the tokens of the ids 300 and 301."""
    vocab = table["model"]["vocab"]
    first, second = (next(k for k, v in vocab.items() if v == x) for x in (300, 301))
    vocab[first], vocab[second] = 301, 300


def added(table: dict[str, Any]) -> None:
    """Add one mark after the last id."""
    table["added_tokens"].append({**table["added_tokens"][0], "id": IDS, "content": "<|more|>"})


def renamed(table: dict[str, Any]) -> None:
    """Give the mark with id 5 another text."""
    mark = next(x for x in table["added_tokens"] if x["id"] == 5)
    vocab = table["model"]["vocab"]
    if mark["content"] in vocab:
        vocab["<|other|>"] = vocab.pop(mark["content"])
    mark["content"] = "<|other|>"


def session(target: Model, draft: Model, drafter: str, **more: Any) -> Session:
    """A session that drafts with `draft`."""
    made = Session(target, Method.from_names({"drafter": drafter, **more.pop("names", {})}, more.pop("settings", {})), PROMPT,
                   models={"draft": draft}, max_new_tokens=24, **more)  # fmt: skip
    made.sink = Trace()
    return made


def finished(made: Session) -> list[int]:
    """Run a session to its end and check its trace; return its tokens."""
    for _ in made.stream():
        pass
    report = check(made.sink)
    assert report.ok, str(report)
    return made.end.tokens


def test_there_is_a_method_that_pairs() -> None:
    assert "draft_model" in DRAFTING
    assert all(issubclass(registry("drafter")[x], Drafter) and build("drafter", x) for x in DRAFTING)


def exchanged_and_renamed(table: dict[str, Any]) -> None:
    """Both: other words and another mark."""
    swapped(table)
    renamed(table)


CASES: dict[str, tuple[Any, Any, str]] = {
    "two ids exchanged": (None, swapped, r"differ at id 300 \('.+' against '.+'\)"),
    "one more in the target": (added, None, r"differ at id 4096 \('<\|more\|>' against None\)"),
    "a mark and two ids": (None, exchanged_and_renamed, r"differ at id 5 \('.+' against '<\|other\|>'\)"),
}
MARKS: dict[str, tuple[Any, Any, str]] = {
    "one more in the draft": (None, added, r"ids 4096"),
    "another mark": (None, renamed, r"ids 5"),
}


@pytest.mark.parametrize("case", MARKS)
def test_models_that_differ_in_special_tokens_alone_go_together_with_a_remark(
    tmp_path: Path, case: str
) -> None:
    ours, theirs, named = MARKS[case]
    target, draft = (
        made(tmp_path / "big", IDS + 1, edit=ours),
        made(tmp_path / "small", IDS + 1, 1, edit=theirs),
    )
    drafted = session(target, draft, "draft_model")
    assert finished(drafted) == run(target, None, PROMPT, max_new_tokens=24).tokens
    (remark,) = vocabulary_remarks(drafted.method, {"target": target, "draft": draft})
    assert f"small has other special tokens than big ({named}" in remark


@pytest.fixture(scope="module", params=CASES)
def strangers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Model, Model, str]:
    """A target and a draft model with different tokenizers, and the message about them."""
    (ours, theirs, match), folder = CASES[request.param], tmp_path_factory.mktemp("strangers")
    return made(folder / "big", IDS + 1, edit=ours), made(folder / "small", IDS + 1, 1, edit=theirs), match


@pytest.mark.parametrize("drafter", DRAFTING)
def test_different_tokenizers_are_refused_with_the_first_id_that_differs(
    strangers: Any, drafter: str
) -> None:
    target, draft, match = strangers
    with pytest.raises(
        MethodError, match=r"small cannot be the draft model of big: their tokenizers " + match
    ) as error:
        session(target, draft, drafter)
    assert str(error.value).endswith(
        f"Use a model with the same tokenizer, the drafter {' or '.join(TRANSLATING)}, which translates, or a method that "
        "needs no draft model."
    )


@pytest.mark.parametrize("drafter", TRANSLATING)
def test_different_tokenizers_are_taken_by_drafters_that_translate(strangers: Any, drafter: str) -> None:
    """Nearly all tokens are shared, so the models need no text to agree on; padding ids are in no pair."""
    target, draft, _ = strangers
    pair = session(target, draft, drafter)
    assert finished(pair) == run(target, None, PROMPT, max_new_tokens=24).tokens
    assert IDS - 3 <= pair.header.lanes["draft"]["shared_tokens"] <= IDS and pair.header.lossless


def test_a_mark_without_a_row_in_either_model_is_no_difference(tmp_path: Path) -> None:
    """Neither model can read or write such a mark, for example a padding mark of tokenizer_config.json.

    If a model has a row for it, the mark is a difference.
    """
    target, draft = made(tmp_path / "big", IDS, edit=added), made(tmp_path / "small", IDS, 1)
    assert target.tokenizer.same_ids(draft.tokenizer) == (IDS, "<|more|>", None)
    assert (
        finished(session(target, draft, "draft_model")) == run(target, None, PROMPT, max_new_tokens=24).tokens
    )
    with pytest.raises(MethodError, match="differ at id 4096"):
        session(target, made(tmp_path / "more", IDS + 1, 1), "draft_model")


@pytest.fixture(
    scope="module", params=[(IDS, IDS + 128), (IDS + 128, IDS), (IDS + 64, IDS + 128), (IDS, IDS)], ids=str
)
def padded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Model, Model, list[int]]:
    """A target and a draft model with these numbers of rows, padding among them, and the target's greedy text."""
    (big, small), folder = request.param, tmp_path_factory.mktemp("padded")
    target, draft = made(folder / "big", big, 3), made(folder / "small", small, 3 if big == small else 4)
    for model in (target, draft):
        if model.spec.vocab > IDS:
            bare = load(model.path, dtype="float64", device="cpu").decoder
            bare.usable = None
            assert int(bare.forward(Feed.causal_chain(PROMPT, 0), None)[0, -1].argmax()) >= IDS, (
                "the guard: padding would win"
            )
    return target, draft, run(target, None, PROMPT, max_new_tokens=24).tokens


@pytest.mark.parametrize("drafter", thinned(4, DRAFTING))
def test_padding_is_accepted_and_never_chosen(padded: tuple[Model, Model, list[int]], drafter: str) -> None:
    """Greedy and sampled: the padded rows would win every time if they were not masked before the softmax."""
    target, draft, plain = padded
    assert finished(session(target, draft, drafter)) == plain
    warm = session(
        target, draft, drafter, names={"sampler": "temperature"}, settings={"sampler": {"temperature": 2.0}}
    )
    told = finished(warm)
    assert len(set(told)) > 10, "the guard: it must be sampled"
    assert max(told) < IDS
    assert all(token < IDS for step in warm.sink.steps for token in (step.draft.tokens if step.draft else ()))


def test_a_draft_with_fewer_usable_ids_bounds_both_sides(tmp_path: Path) -> None:
    """Ids that a model has no row for cannot be drafted; the run samples the target's distribution over the ids of both."""
    target, draft = made(tmp_path / "big", IDS), made(tmp_path / "small", IDS - 96, 1)
    sampled = session(target, draft, "draft_model", names={"sampler": "temperature"})
    told = finished(sampled)
    assert not sampled.header.lossless and session(target, target, "draft_model").header.lossless
    assert max(told) < IDS - 96
    cut = Model(
        "cut", None, target.spec, target.decoder.limit_vocab(IDS - 96), target.tokenizer, "0" * 16, []
    )
    assert finished(session(target, draft, "draft_model")) == run(cut, None, PROMPT, max_new_tokens=24).tokens


def test_a_pair_of_which_one_has_no_tokenizer_is_refused(tmp_path: Path) -> None:
    target, draft = made(tmp_path / "big", IDS), made(tmp_path / "small", IDS, 1)
    draft.tokenizer = None
    with pytest.raises(
        MethodError,
        match=r"cannot be compared, since one of them has no tokenizer; add its tokenizer.json\.$",
    ):
        session(target, draft, "draft_model")


def test_ends_are_those_of_the_target(tmp_path: Path) -> None:
    """A draft with no end token, or another one, neither ends a text nor keeps it going."""
    target, draft = made(tmp_path / "big", IDS, 3), made(tmp_path / "small", IDS, 3)
    plain = run(target, None, PROMPT, max_new_tokens=24).tokens
    late = next(x for i, x in enumerate(plain) if i >= 4 and x not in plain[:i])
    target.stop_tokens, draft.stop_tokens = [late], []
    ended = session(target, draft, "draft_model")
    assert finished(ended) == plain[: plain.index(late) + 1]
    assert ended.end.reason == "stop_token"
    target.stop_tokens, draft.stop_tokens = [], [late]
    going = session(target, draft, "draft_model")
    assert finished(going) == plain
    assert going.end.reason == "max_new_tokens"


def test_the_shorter_context_counts(tmp_path: Path) -> None:
    target, draft = (
        made(tmp_path / "big", IDS),
        made(tmp_path / "small", IDS, 1, max_position_embeddings=len(PROMPT) + 5),
    )
    ended = session(target, draft, "draft_model")
    assert len(finished(ended)) == 5
    assert ended.end.reason == "context_full"
    short = made(tmp_path / "short", IDS, 1, max_position_embeddings=len(PROMPT))
    with pytest.raises(
        MethodError, match=f"has {len(PROMPT)} tokens, and the draft model short reads at most {len(PROMPT)}"
    ):
        session(target, short, "draft_model")


@pytest.mark.parametrize("family", ["qwen2", "gemma3_text"])
def test_the_draft_may_be_of_another_family(family: str, tmp_path: Path) -> None:
    """Only the tokenizer matters: the text is the target's, whatever drafts it."""
    target = made(tmp_path / "big", IDS, 3)
    draft = made(tmp_path / "small", IDS + 64, 5, architectures=None, model_type=family, head_dim=8)
    assert draft.spec.family == family
    assert (
        finished(session(target, draft, "draft_model")) == run(target, None, PROMPT, max_new_tokens=24).tokens
    )


def test_a_weight_file_of_the_other_model_is_not_taken_for_its_own(tmp_path: Path) -> None:
    """Two folders with swapped weights have the same shapes, but their fingerprints differ."""
    one, two = made(tmp_path / "one", IDS), made(tmp_path / "two", IDS, 1)
    assert one.fingerprint != two.fingerprint
    save_file(load_file(two.path / "model.safetensors"), one.path / "model.safetensors")
    assert load(one.path, dtype="float64", device="cpu").fingerprint == two.fingerprint
