"""Added tokens, from files next to tokenizer.json: each is read as in transformers 5, refused, or named in a remark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from checkpoints import made as checkpoint
from tokenizers import AddedToken, models, pre_tokenizers, processors

from decodescope.engine.model.checkpoint.added_tokens import add_missing_tokens, named_tokens
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.session.load import SHIPPED, load

MARK: dict[str, Any] = {
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "single_word": False,
    "special": True,
}


def token(content: str, **flags: Any) -> dict[str, Any]:
    """A token as it is in `added_tokens_decoder`."""
    return {"content": content, **MARK, **flags}


def typed(content: str, **flags: Any) -> dict[str, Any]:
    """The same token as a value in its own right."""
    return {"__type": "AddedToken", **token(content, **flags)}


def base(*added: AddedToken) -> tokenizers.Tokenizer:
    """A tokenizer with five pieces and these added tokens."""
    made = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2, "<s>": 3, "Ġ": 4}, [("a", "b")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_tokens(list(added))
    return made


Files = dict[str, Any]


def write(path: Path, made: tokenizers.Tokenizer, config: Files | None, files: Files | None = None) -> Path:
    """Write a folder with these files."""
    path.mkdir(exist_ok=True)
    (path / "tokenizer.json").write_text(made.to_str())
    if config is not None:
        (path / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config})
        )
    for name, value in (files or {}).items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


X, Y = AddedToken("<x>", special=True), AddedToken("<x>", special=False)
Case = tuple[tuple[AddedToken, ...], Files | None, Files]
CASES: dict[str, Case] = {
    "nothing": ((X,), None, {}),
    "what tokenizer.json has": ((X,), {"added_tokens_decoder": {"5": token("<x>", normalized=False)}}, {}),
    "two more, with flags": (
        (), {"added_tokens_decoder": {"5": token("<x>"), "6": token("<y>", special=False, lstrip=True)}}, {}),
    "in the order of their ids": ((), {"added_tokens_decoder": {"6": token("<x>"), "5": token("<y>")}}, {}),
    "other flags": ((Y,), {"added_tokens_decoder": {"5": token("<x>", lstrip=True)}}, {}),
    "a piece of the model": ((), {"added_tokens_decoder": {"3": token("<s>", rstrip=True)}}, {}),
    "an end that is no special token": ((Y,), {"eos_token": "<x>"}, {}),
    "an end by its flags": ((Y,), {"eos_token": typed("<x>", lstrip=True)}, {}),
    "an end that is a piece": ((), {"eos_token": "<s>"}, {}),
    "ends that no file has": ((), {"eos_token": "<e>", "pad_token": typed("<p>", rstrip=True), "unk_token": None}, {}),
    "an end that is added": ((), {"eos_token": "<x>", "added_tokens_decoder": {"5": token("<x>", special=False)}}, {}),
    "more special tokens": ((X,), {"additional_special_tokens": ["<m>", typed("<n>", lstrip=True), "<x>"]}, {}),
    "extra special tokens": ((), {"extra_special_tokens": ["<m>"], "additional_special_tokens": ["<n>"]}, {}),
    "extra tokens by name": ((), {"extra_special_tokens": {"image_token": "<m>"}}, {}),
    "a name of its own": ((), {"image_token": "<m>", "add_bos_token": False}, {}),
    "added_tokens.json": ((), {}, {"added_tokens": {"<y>": 6, "<x>": 5}}),
    "added_tokens.json with an end": ((X,), {"eos_token": "<y>"}, {"added_tokens": {"<x>": 5, "<y>": 6}}),
    "added_tokens.json with more": ((), {"additional_special_tokens": ["<y>"]}, {"added_tokens": {"<x>": 5, "<y>": 6}}),
    "a table before added_tokens.json": ((), {"added_tokens_decoder": {"5": token("<z>")}}, {"added_tokens": {"<x>": 5}}),
    "a map": ((), {}, {"special_tokens_map": {
        "eos_token": "<e>", "additional_special_tokens": ["<m>"], "pad_token": token("<p>", lstrip=True), "cls_token": None}}),
    "a map before the settings": ((), {"eos_token": "<c>"}, {"special_tokens_map": {"eos_token": "<e>"}}),
    "a table before the map": (
        (), {"eos_token": "<c>", "added_tokens_decoder": {}}, {"special_tokens_map": {"eos_token": "<e>"}}),
    "lists that are joined": (
        (), {"extra_special_tokens": ["<m>"]}, {"special_tokens_map": {"extra_special_tokens": ["<n>", "<m>"]}}),
    "a list of the settings": (
        (), {"additional_special_tokens": ["<m>"]}, {"special_tokens_map": {"additional_special_tokens": ["<n>"]}}),
}  # fmt: skip


def flags(added: dict[int, AddedToken]) -> dict[int, tuple[Any, ...]]:
    """Map each id to its text and flags."""
    return {
        at: (x.content, x.special, x.lstrip, x.rstrip, x.normalized, x.single_word) for at, x in added.items()
    }


@pytest.mark.parametrize("case", CASES)
def test_added_tokens_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    added, config, files = CASES[case]
    folder = write(tmp_path, base(*added), config, files)
    theirs = AutoTokenizer.from_pretrained(folder)
    table = json.loads((folder / "tokenizer.json").read_text())
    more = add_missing_tokens(folder, table, config or {})
    completed = tokenizers.Tokenizer.from_str(json.dumps(table))
    assert flags(completed.get_added_tokens_decoder()) == flags(theirs.added_tokens_decoder)
    assert named_tokens(more.config) == theirs.special_tokens_map
    ours = Tokenizer.from_folder(folder)
    assert ours.vocab == len(theirs) and ours.marks == {
        at for at, x in theirs.added_tokens_decoder.items() if x.special
    }
    assert ours.stop_ids == ([] if theirs.eos_token is None else [theirs.eos_token_id])
    marks = [x.content for x in theirs.added_tokens_decoder.values()]
    assert ours.decode([theirs.convert_tokens_to_ids(x) for x in marks]) == "".join(marks)


def test_a_token_that_no_file_has_is_added_with_a_remark(tmp_path: Path) -> None:
    ours = Tokenizer.from_folder(write(tmp_path, base(), {"eos_token": "<e>", "pad_token": "<s>"}))
    assert ours.remarks == ["eos_token '<e>' is in no vocabulary of its folder: it becomes a new one."]
    assert ours.stop_ids == [5]


@pytest.mark.parametrize(
    ("config", "files"),
    [
        ({"added_tokens_decoder": {"7": token("<x>")}}, {}),
        ({}, {"added_tokens": {"<x>": 7}}),
    ],
    ids=["tokenizer_config", "added_tokens"],
)
def test_an_id_that_cannot_be_given_is_refused(
    config: dict[str, Any], files: dict[str, Any], tmp_path: Path
) -> None:
    """transformers gives such a token the next free id; the model would then read the row of another token."""
    with pytest.raises(
        LoadError, match=r"\.json gives the added token '<x>' the id 7, and the next free one is 5; save"
    ):
        Tokenizer.from_folder(write(tmp_path, base(), config, files))


def test_an_id_that_files_disagree_on_is_named(tmp_path: Path) -> None:
    ours = Tokenizer.from_folder(write(tmp_path, base(X), {"added_tokens_decoder": {"9": token("<x>")}}))
    assert ours.remarks == [
        "'<x>' has the id 9 in its tokenizer_config.json and 5 in its tokenizer.json: 5 holds."
    ]
    spec = json.loads(base(X).to_str())
    spec["added_tokens"][0]["id"] = 8
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    (tmp_path / "tokenizer_config.json").unlink()
    remark = "'<x>' has the id 8 in its tokenizer.json, and 5 is the next free one: 5 holds."
    assert Tokenizer.from_folder(tmp_path).remarks == [remark]


@pytest.mark.parametrize(
    ("config", "files", "match"),
    [
        ({"added_tokens_decoder": []}, {}, "added_tokens_decoder is no table of ids and tokens"),
        ({"added_tokens_decoder": {"5": "<x>"}}, {}, "added_tokens_decoder is no table of ids and tokens"),
        (
            {"added_tokens_decoder": {"x": token("<x>")}},
            {},
            "added_tokens_decoder is no table of ids and tokens",
        ),
        (
            {"added_tokens_decoder": {"5": token("<x>", lstrip=1)}},
            {},
            "added_tokens_decoder is no table of ids and tokens",
        ),
        ({"additional_special_tokens": "<x>"}, {}, "the extra special tokens are no list of tokens"),
        ({"extra_special_tokens": [5]}, {}, "the extra special tokens are no list of tokens"),
        ({}, {"added_tokens": {"<x>": "5"}}, r"added_tokens\.json is no table of tokens and ids"),
        ({}, {"added_tokens": {"<x>": -1}}, r"added_tokens\.json is no table of tokens and ids"),
        ({}, {"special_tokens_map": []}, r"special_tokens_map\.json holds no JSON object"),
    ],
)
def test_what_is_no_token_is_refused(
    config: dict[str, Any], files: dict[str, Any], match: str, tmp_path: Path
) -> None:
    with pytest.raises(LoadError, match=match) as error:
        Tokenizer.from_folder(write(tmp_path, base(), config, files))
    assert str(error.value).startswith(str(tmp_path)) and str(error.value).endswith(".")


# ---- settings that are not followed


def test_settings_that_would_change_a_text_are_named(tmp_path: Path) -> None:
    spaced = base()
    spaced.post_processor = processors.TemplateProcessing(single="$A <s>", special_tokens=[("<s>", 3)])
    config = {
        "add_prefix_space": True,
        "clean_up_tokenization_spaces": True,
        "split_special_tokens": True,
        "chat_control_tokens": "a",
        "fast_tokenizer_files": ["tokenizer.4.json"],
        "auto_map": {"AutoTokenizer": ["x.X", None]},
        "bos_token": 5,
    }
    ours = Tokenizer.from_folder(write(tmp_path, spaced, config))
    words = ("bos_token 5 in", "puts an end token behind every text", "add_prefix_space is True", "split_special_tokens is",
             "chat_control_tokens in", "fast_tokenizer_files is", "a program of its own (auto_map)")  # fmt: skip
    assert len(ours.remarks) == len(words), ours.remarks
    assert all(word in remark for word, remark in zip(words, ours.remarks, strict=True)), ours.remarks
    assert ours.encode("a") == [0], "nothing behind it"
    (tmp_path / "tokenizer.json").write_text(base().to_str())
    remarks = Tokenizer.from_folder(
        write(tmp_path, base(), {"add_eos_token": True, "add_prefix_space": False})
    ).remarks
    assert remarks == [
        "add_eos_token puts an end token behind every text; it is left out, because a prompt goes on."
    ]


def test_spaces_that_would_be_cleaned_up_are_named_where_transformers_does_it(tmp_path: Path) -> None:
    """For BPE, transformers leaves the text unchanged."""
    words = tokenizers.Tokenizer(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    remarks = Tokenizer.from_folder(write(tmp_path, words, {"clean_up_tokenization_spaces": True})).remarks
    assert len(remarks) == 1 and "clean_up_tokenization_spaces is not followed" in remarks[0]


def test_what_the_model_has_no_room_for_is_named(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", vocab_size=6, eos_token_id=[3, 9])
    write(folder, base(X), {"eos_token": "<e>", "model_max_length": 5})
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, -4, "x\x1b"]}))
    model = load(folder, device="cpu")
    assert model.stop_tokens == [0, 3]
    assert all(x.startswith("m: ") and x.isprintable() for x in model.remarks)
    assert [x.removeprefix("m: ") for x in model.remarks] == [
        "eos_token '<e>' is in no vocabulary of its folder: it becomes a new one.",
        "eos_token_id -4 in its generation_config.json is no id of a token, so it ends no text.",
        'eos_token_id "x\\u001b" in its generation_config.json is no id of a token, so it ends no text.',
        "no text can end with the id 6, 9: the model's ids end at 5.",
        "its added tokens '<e>' cannot be read or written: the model's ids end at 5.",
        "model_max_length in its tokenizer_config.json is 5: "
        f"a text may have {model.spec.max_positions} tokens, as in config.json.",
    ]


@pytest.mark.parametrize("name", sorted(x.parent.name for x in SHIPPED.glob("*/tokenizer.json")))
def test_nothing_is_to_be_said_of_a_shipped_tokenizer(name: str) -> None:
    assert Tokenizer.from_folder(SHIPPED / name).remarks == []
