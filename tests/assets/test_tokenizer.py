"""The shipped tokenizer: every text round-trips unchanged, and the ids never change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, seed, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
FOLDERS = ["lab", "lab-draft", "lab-draft-plain", "lab-mdm", "lab-recall"]
NAMED = ["<|end|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|system|>", "<|mask|>"]
SPECIALS = [*NAMED, *(f"<|reserved_{i}|>" for i in range(8))]
PIECES = ["def ", "self", "\n", "    ", "\t", "\r\n", "x_1", "(", "):", " ", "  ", "'s", '"', "42", "é", "🎉"]


@pytest.fixture(scope="module")
def plain() -> Tokenizer:
    return Tokenizer.from_file(str(MODELS / "lab" / "tokenizer.json"))


@pytest.fixture(scope="module")
def auto():
    return AutoTokenizer.from_pretrained(MODELS / "lab")


def byte_symbols() -> list[str]:
    """The character that byte-level BPE writes for each of the 256 bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(b) if b in shown else chr(next(hidden)) for b in range(256)]


@seed(0)
@settings(max_examples=500, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=200))
@example("def f(x):\r\n\treturn x\r\n")
@example("  two  spaces , and ' quotes' it's don 't\n\n\n    deep\n\t\ttabs \n")
@example("\x00\x01\x07\x1b[0m\x7f\u200b\ufeff\u2028")
@example("👩‍👩‍👧‍👦 café cafe\u0301 ÅΩ 数字 ٣٤ ½")
@example("<|user|> <|end|>x<|not_special|>")
def test_every_text_round_trips(plain, auto, text):
    ids = plain.encode(text).ids
    assert plain.decode(ids, skip_special_tokens=False) == text
    assert auto(text)["input_ids"] == ids, "transformers and tokenizers must agree"
    assert auto.decode(ids) == text


@seed(0)
@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES)))
def test_code_like_text_round_trips(plain, pieces):
    text = "".join(pieces)
    assert plain.decode(plain.encode(text).ids, skip_special_tokens=False) == text


def test_the_ids_are_specials_then_bytes_then_merges(plain):
    assert plain.get_vocab_size() == 4096
    assert [plain.token_to_id(s) for s in SPECIALS] == list(range(14))
    assert sorted(plain.token_to_id(c) for c in byte_symbols()) == list(range(14, 270))
    assert sorted(plain.get_vocab().values()) == list(range(4096))


def test_each_digit_is_a_token(plain):
    assert plain.encode("x = 20483").tokens[-5:] == list("20483")
    assert not [
        t for t in plain.get_vocab() if t not in SPECIALS and len(t) > 1 and any(c.isdigit() for c in t)
    ]


def test_indentation_is_one_token(plain):
    for depth in range(1, 8):
        coded = plain.encode("x:\n" + "    " * depth + "return")
        assert coded.tokens[-2:] == ["Ċ" + "Ġ" * 4 * depth, "return"]


def test_nothing_is_added(auto):
    assert auto("x")["input_ids"] == auto("x", add_special_tokens=False)["input_ids"]
    assert (auto.eos_token_id, auto.pad_token_id, auto.mask_token_id, auto.bos_token_id) == (0, 1, 5, None)
    assert auto.clean_up_tokenization_spaces is False


def test_the_chat_template_writes_the_marks(auto):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi 5"}]
    text = auto.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == "<|system|>\nBe brief.<|end|>\n<|user|>\nHi 5<|end|>\n<|assistant|>\n"
    assert auto.apply_chat_template(turns, add_generation_prompt=True)["input_ids"] == auto(text)["input_ids"]
    full = auto.apply_chat_template([*turns, {"role": "assistant", "content": "Yes."}], tokenize=False)
    assert full == text + "Yes.<|end|>\n"
    assert [i for i in auto(full)["input_ids"] if i < 14] == [4, 0, 2, 0, 3, 0]


def test_the_models_share_the_tokenizer_and_its_context():
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert len({(MODELS / folder / file).read_bytes() for folder in FOLDERS}) == 1
    assert json.loads((MODELS / "lab" / "tokenizer_config.json").read_text())["model_max_length"] == 2048
