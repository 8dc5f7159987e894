"""Typed marks: a special token's text in a message stays text and changes no other token, for every kind of tokenizer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from decodescope.engine.model.checkpoint.chat_template import TemplateError
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer

TEMPLATE = "{{ bos_token }}{% for m in messages %}<|u|> {{ m.content }} <|e|>\n{% endfor %}U<|e|>a"
MESSAGES = (
    "a MARK b",
    "MARK",
    " MARK",
    "MARK\n",
    "aMARK",
    "MARKb",
    "MARKMARK",
    "aMARKa MARK",
    "a\nMARK b",
    "plain a b",
)
LETTERS = [*"abefqsuU<|>\n", " "]
MARKS = ("<|s|>", "<|u|>", "<|e|>")


def special(content: str, **flags: bool) -> AddedToken:
    """A special token that no normalizer touches, unless `flags` say otherwise."""
    return AddedToken(content, **{"special": True, "normalized": False, **flags})


def pieces(space: str, *more: str) -> dict[str, int]:
    """Map each piece to its id: one per letter, and some that begin with a space."""
    letters = [x.replace(" ", space).replace("\n", "Ċ" if space == "Ġ" else "\n") for x in LETTERS]
    return {x: i for i, x in enumerate(["<unk>", *letters, f"{space}a", f"{space}<", *more])}


def bpe(space: str, *more: str, **how: Any) -> tokenizers.Tokenizer:
    """It merges a space with what follows, so one space more or less gives another token."""
    return tokenizers.Tokenizer(
        models.BPE(pieces(space, *more), [(space, "a"), (space, "<")], unk_token="<unk>", **how)
    )


def byte_level() -> tokenizers.Tokenizer:
    made = bpe("Ġ")
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_tokens([special(x) for x in MARKS])
    return made


def byte_level_with_space() -> tokenizers.Tokenizer:
    made = bpe("Ġ")
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.add_tokens([special("<|s|>"), special("<|u|>", rstrip=True), special("<|e|>", lstrip=True)])
    return made


def prepended() -> tokenizers.Tokenizer:
    made = bpe("▁", *MARKS)
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.add_tokens([special(x) for x in MARKS])
    return made


def metaspace(scheme: str) -> tokenizers.Tokenizer:
    made = bpe("▁", *MARKS)
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
    made.add_tokens([special("<|s|>"), special("<|u|>"), special("<|e|>", rstrip=True)])
    return made


def unigram() -> tokenizers.Tokenizer:
    """The marks are its likeliest pieces: it would make them from plain text."""
    scores = [(x, 0.0 if x in MARKS else -2.0) for x in pieces("▁", *MARKS)]
    made = tokenizers.Tokenizer(models.Unigram(scores, 0, False))
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    made.add_tokens([special(x) for x in MARKS])
    return made


def normalized() -> tokenizers.Tokenizer:
    """It looks for its marks in the normalized text, ignoring case."""
    made = bpe("▁")
    made.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(" ", "▁")]
    )
    made.add_tokens(
        [
            special("<|s|>", normalized=True),
            special("<|u|>", normalized=True),
            special("<|e|>", normalized=True),
        ]
    )
    return made


def words() -> tokenizers.Tokenizer:
    vocab = {x: i for i, x in enumerate(["[UNK]", *LETTERS[:-2], *(f"##{x}" for x in LETTERS[:-2]), *MARKS])}
    made = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.add_tokens([special("<|s|>"), special("<|u|>"), special("<|e|>", single_word=True)])
    return made


KINDS = {
    "byte-level": byte_level,
    "byte-level with a space in front, marks that strip": byte_level_with_space,
    "a space by the normalizer": prepended,
    "a space in front of the first": lambda: metaspace("first"),
    "a space in front of each": lambda: metaspace("always"),
    "unigram with its marks as pieces": unigram,
    "marks that are normalized": normalized,
    "word pieces, a mark that is a word": words,
}


def chats(made: tokenizers.Tokenizer) -> Tokenizer:
    """The tokenizer with the template."""
    return Tokenizer(made.to_str(), {"bos_token": "<|s|>", "unk_token": "<unk>"}, TEMPLATE)


def asked(typed: str) -> list[dict[str, str]]:
    """A message for each place where something may be typed."""
    return [{"role": "user", "content": x.replace("MARK", typed)} for x in MESSAGES]


@pytest.mark.parametrize("kind", KINDS)
def test_a_typed_mark_changes_no_token_but_its_own(kind: str) -> None:
    """Compared with a text of the same form that is no mark: the ids differ only in the one different letter."""
    tokenizer = chats(KINDS[kind]())
    inert = tokenizer.chat(asked("<|q|>"))
    marks = Counter(x for x in inert if x in tokenizer.marks and tokenizer.piece(x) in MARKS)
    assert marks.total() > 2, "the template writes marks"
    for mark in MARKS:
        ids = tokenizer.chat(asked(mark))
        apart = [(tokenizer.piece(a), tokenizer.piece(b)) for a, b in zip(inert, ids, strict=True) if a != b]
        assert len(apart) == sum(x.count("MARK") for x in MESSAGES) == 11
        assert {tuple(str(x)[-1] for x in pair) for pair in apart} == {("q", mark[2])}
        assert Counter(x for x in ids if x in tokenizer.marks and tokenizer.piece(x) in MARKS) == marks


def test_another_spelling_that_the_normalizer_makes_a_mark_is_text_too() -> None:
    tokenizer = chats(normalized())
    inert, ids = tokenizer.chat(asked("<|Q|>")), tokenizer.chat(asked("<|E|>"))
    assert len(ids) == len(inert) and sum(a != b for a, b in zip(inert, ids, strict=True)) == 11
    assert tokenizer.typed_marks("a<|E|>", chat=True) == ["<|E|>"]


@pytest.mark.parametrize(
    "listed", [None, ["<|q|>"], []], ids=["by the template", "by a list", "by an empty list"]
)
def test_added_tokens_that_the_template_writes_stay_text_too(listed: list[str] | None) -> None:
    """As in transformers with sanitize_control_tokens: the list says which ones, otherwise the template does."""
    made = byte_level()
    made.add_tokens([AddedToken(x, special=False, normalized=False) for x in ("<|q|>", "<|f|>", "\n")])
    tokenizer = Tokenizer(
        made.to_str(), {"chat_control_tokens": listed}, "<|u|>{{ messages[0].content }}<|q|>\na"
    )
    q, f, line = (made.token_to_id(x) for x in ("<|q|>", "<|f|>", "\n"))
    ids = tokenizer.chat([{"role": "user", "content": "a<|q|>b<|f|>\n"}])
    assert tokenizer.decode(ids) == "<|u|>a<|q|>b<|f|>\n<|q|>\na"
    assert (ids.count(q), ids.count(f), ids.count(line)) == (2 if listed == [] else 1, 1, 2)
    assert tokenizer.encode_plain("<|q|>") == [q], "in a plain prompt it is a token"


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_in_a_plain_prompt_is_text(kind: str) -> None:
    tokenizer = chats(KINDS[kind]())
    for mark in MARKS:
        ids = tokenizer.encode(f"a {mark}b")
        assert not {tokenizer.piece(x) for x in ids} & {*MARKS}
        assert "".join(str(tokenizer.piece(x)) for x in ids).replace("▁", " ").replace(" ", "") == f"a{mark}b"
    assert (
        tokenizer.typed_marks("a<|e|> <|u|><|e|>") == ["<|e|>", "<|u|>"]
        and tokenizer.typed_marks("<|q|>") == []
    )


@pytest.mark.parametrize(
    ("source", "content", "due"),
    [
        ("<|u|>{{ messages[0].content | trim }}", "  <|e|> ", "<|u|>[<|e|>]"),
        ("<|u|>{{ messages[0].content.split('|>')[-1] }}<|e|>", "a<|e|>b", "<|u|>b<|e|>"),
        ("<|u|>{{ messages[0].content.split('e|')[0] }}a", "a<|e|>b", "<|u|>a<|a"),
        ("<|u|>{{ messages[0].content.replace('s', 'e') }}<|e|>", "<|q|><|e|>", "<|u|><|q|>[<|e|>]<|e|>"),
        (
            "{% for x in messages[0].content %}{{ x.text }}<|u|>{% endfor %}",
            [{"text": "<|e|>"}],
            "[<|e|>]<|u|>",
        ),
        ("{{ messages[0] | tojson }}<|e|>", "<|u|>", '{"role": "user", "content": "[<|u|>]"}<|e|>'),
        ("{{ messages[0].name }}<|e|>", "a", "[<|u|>]<|e|>"),
    ],
    ids=[
        "trimmed",
        "split behind it",
        "split inside it",
        "replaced elsewhere",
        "parts",
        "as JSON",
        "another key",
    ],
)
def test_what_a_template_does_with_a_message_leaves_its_marks_text(
    source: str, content: Any, due: str
) -> None:
    """In `due`, a typed mark is in brackets."""
    made = byte_level()
    made.add_tokens([AddedToken(x, special=False) for x in '{}":,[]rolcnt'])
    tokenizer = Tokenizer(made.to_str(), {}, source)
    ids = tokenizer.chat(
        [{"role": "user", "content": content, **({"name": "<|u|>"} if "name" in source else {})}]
    )
    text, typed = due, []
    for mark in MARKS:
        typed += [mark] * text.count(f"[{mark}]")
        text = text.replace(f"[{mark}]", mark)
    assert tokenizer.decode(ids) == text
    marks = [str(tokenizer.piece(x)) for x in ids if tokenizer.piece(x) in MARKS]
    assert Counter([*marks, *typed]) == Counter(x for mark in MARKS for x in [mark] * text.count(mark))


def test_a_template_that_writes_something_else_for_a_typed_mark_is_refused() -> None:
    tokenizer = Tokenizer(byte_level().to_str(), {}, "{{ messages[0].content | length }}<|e|>")
    assert tokenizer.chat([{"role": "user", "content": "a"}])
    why = r"^The chat template changes what it writes when a message holds '<\|u\|>'; leave that out\.$"
    with pytest.raises(TemplateError, match=why):
        tokenizer.chat([{"role": "user", "content": "<|u|>"}])
