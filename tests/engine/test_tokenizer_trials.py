"""Tokenizers of others: what native code makes of them is bounded, the page's loop goes on, honest files work as before."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from waiting import error_while_loop_runs

from decodescope.engine.model.checkpoint import text_encoder
from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.text_encoder import SHIPPED_FILES, TextEncoder, TokenizerTrial
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.model.checkpoint.tokenizer_bounds import has_bounded_work
from decodescope.engine.sandbox.answers import hash_texts
from decodescope.engine.session.load import SHIPPED

LETTERS = {chr(97 + i): i for i in range(26)}
Part = dict[str, Any]


def bpe(**parts: Any) -> Part:
    """A tokenizer.json of letters."""
    return {"version": "1.0", "model": {"type": "BPE", "vocab": LETTERS, "merges": []}, **parts}


def mark(content: str) -> Part:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": len(LETTERS), "content": content, "special": True, **flags}


def replaced(old: str, new: str, kind: str = "String") -> Part:
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def steps(*parts: Part) -> Part:
    return {"type": "Sequence", "normalizers": [*parts]}


def split(pattern: str) -> Part:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def word_piece(most: int) -> Part:
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    model |= {"vocab": {"[UNK]": 0, "a": 1, "##a": 2}, "max_input_chars_per_word": most}
    return {"version": "1.0", "model": model}


def unigram(longest: int) -> Part:
    vocab = [["<unk>", 0.0], *([("q" * n), -1.0] for n in range(1, longest))]
    return {"version": "1.0", "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab}}


def charsmap(text: str) -> Part:
    """A map of characters, without its table, that holds this text."""
    data = base64.b64encode((0).to_bytes(4, "little") + text.encode() + b"\0").decode()
    return {"type": "Precompiled", "precompiled_charsmap": data}


def copies(count: int) -> Part:
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    pair = [sequence, {"Sequence": {"id": "B", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": [sequence] * count, "pair": pair, "special_tokens": {}}


def sentencepiece() -> Part:
    """A tokenizer.json in SentencePiece's manner."""
    vocab = {
        x: at
        for at, x in enumerate(["<unk>", "<s>", "</s>", *(f"<0x{x:02X}>" for x in range(256)), "▁", "a", "b"])
    }
    model = {
        "type": "BPE",
        "vocab": vocab,
        "merges": [],
        "unk_token": "<unk>",
        "byte_fallback": True,
        "fuse_unk": True,
    }
    marks = [{**mark(x), "id": vocab[x]} for x in ("<unk>", "<s>", "</s>")]
    front = steps({"type": "Prepend", "prepend": "▁"}, replaced(" ", "▁"))
    return {"version": "1.0", "model": model, "added_tokens": marks, "normalizer": front}


def folder_of(path: Path, spec: Part) -> Path:
    path.mkdir(exist_ok=True)
    (path / "tokenizer.json").write_text(json.dumps(spec))
    return path


HOSTILE = {
    "each letter twice, again and again": bpe(normalizer=steps(*[replaced("a", "aa")] * 34)),
    "a hundred letters of one": bpe(normalizer=steps(*[replaced("a", "a" * 100)] * 6)),
    "letters between letters": bpe(normalizer=steps(*[replaced("", "aa", "Regex")] * 30)),
    "copies of the text": bpe(post_processor=copies(50_000)),
    "pieces of all lengths": unigram(1200),
    "words of any length": word_piece(10**9),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_multiplies_text_is_refused_when_it_is_first_seen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And remembered: the second time no helper tries it."""
    monkeypatch.setattr(text_encoder, "MEMORY_BYTES", 400 << 20)
    monkeypatch.setattr(text_encoder, "TRIAL_SECONDS", 1.0)
    folder = folder_of(tmp_path / "m", HOSTILE[name])
    why = error_while_loop_runs(lambda: Tokenizer.from_folder(folder), LoadError)
    assert str(folder / "tokenizer.json") in why
    assert "more than" in why
    assert "choose another model" in why
    monkeypatch.setattr(text_encoder, "run_job", None)
    with pytest.raises(LoadError) as again:
        Tokenizer.from_folder(folder)
    assert str(again.value) == why


WAITING = {
    "a word that becomes many": (bpe(normalizer=steps(*[replaced("xyzzy", "xyzzy" * 50)] * 7)), "xyzzy"),
    "a pattern that goes back and forth": (bpe(pre_tokenizer=split("(x+)+$")), "x" * 60 + "!"),
    "one that does so at every letter": (
        bpe(pre_tokenizer=split("x{1,40}x{1,40}x{1,40}(?=[wy])")),
        "x" * 9000,
    ),
    "a long prompt": (bpe(normalizer=replaced("x", "a" * 64)), "x" * (300 << 10)),
}


@pytest.mark.parametrize("name", WAITING)
def test_a_rule_that_waits_for_a_word_is_met_in_a_helper(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_encoder, "MEMORY_BYTES", 400 << 20)
    monkeypatch.setattr(text_encoder, "TEXT_COPIES", 0)
    monkeypatch.setattr(text_encoder, "TEXT_SECONDS", 1.0)
    monkeypatch.setattr(text_encoder, "SECONDS_A_KIB", 0.0)
    spec, text = WAITING[name]
    tokenizer = Tokenizer.from_folder(folder_of(tmp_path / "m", spec))
    assert tokenizer.encode("a") == [tokenizer._ids["a"]]
    why = error_while_loop_runs(lambda: tokenizer.encode(text), LoadError)
    assert str(tmp_path / "m" / "tokenizer.json") in why
    assert "gave up on this text" in why
    assert "use another text or model" in why
    assert tokenizer.encode("a") == [tokenizer._ids["a"]], "it works on"


PUBLISHED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BOUNDED = {
    "letters": bpe(),
    "SentencePiece": sentencepiece(),
    "BERT": {
        **word_piece(100),
        "normalizer": {"type": "BertNormalizer"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    },
    "T5": {
        **unigram(16),
        "normalizer": steps(charsmap("fi"), replaced(" {2,}", "▁", "Regex")),
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁"},
    },
    "Llama 3": bpe(
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [
                split(PUBLISHED.replace("DIGITS", r"\p{N}{1,3}")),
                {"type": "ByteLevel", "use_regex": False},
            ],
        },
        post_processor={"type": "Sequence", "processors": [{"type": "ByteLevel"}, copies(1)]},
    ),
    "Qwen": bpe(
        normalizer={"type": "NFC"},
        pre_tokenizer=split(PUBLISHED.replace("DIGITS", r"\p{N}")),
    ),
}
UNBOUNDED = {
    "a long text for a letter": bpe(normalizer=replaced("x", "y" * 100)),
    "growth in steps": bpe(normalizer=steps(*[replaced("x", "xx")] * 7)),
    "an empty text": bpe(normalizer=replaced("", "x")),
    "a long text before each": bpe(normalizer={"type": "Prepend", "prepend": "x" * 100}),
    "a long text in a map": bpe(normalizer=charsmap("x" * 100)),
    "no map": bpe(normalizer={"type": "Precompiled", "precompiled_charsmap": "?"}),
    "a pattern that nobody knows": bpe(pre_tokenizer=split("(a+)+$")),
    "an unknown step": bpe(normalizer={"type": "Later"}),
    "long words": word_piece(10**9),
    "long pieces": unigram(400),
    "copies": bpe(post_processor=copies(3)),
    "an unknown model": {"model": {"type": "Later"}},
    "no table": {"model": None},
}


def test_known_parts_bound_the_work_and_others_do_not() -> None:
    assert {name: has_bounded_work(spec) for name, spec in BOUNDED.items()} == dict.fromkeys(BOUNDED, True)
    assert {name: has_bounded_work(spec) for name, spec in UNBOUNDED.items()} == dict.fromkeys(
        UNBOUNDED, False
    )
    for path in SHIPPED.glob("*/tokenizer.json"):
        assert has_bounded_work(json.loads(path.read_text("utf-8"))), path


@pytest.mark.parametrize("marks_are_text", [True, False])
@pytest.mark.parametrize("name", ["SentencePiece", "shipped"])
def test_a_helper_encodes_as_the_library_does_here(name: str, marks_are_text: bool) -> None:
    spec = (
        json.dumps(sentencepiece())
        if name == "SentencePiece"
        else (SHIPPED / "lab" / "tokenizer.json").read_text("utf-8")
    )
    text = "ab aé <s> </s><|end|>naïve 🙂\n  12,345" * 800
    assert len(text) > text_encoder.LONG_TEXT
    here = TextEncoder(spec, TokenizerTrial(), marks_are_text)
    apart = TextEncoder(spec, TokenizerTrial(trusted=False), marks_are_text)
    assert apart.encode(text, offsets=True) == here.encode(text, offsets=True)
    assert len(here.encode(text).ids) > 10_000


def test_a_bounded_file_encodes_long_texts_alone_in_a_helper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    ask = text_encoder.run_job

    def counted(program: Path, job: Any, limits: Any, **options: Any) -> Any:
        done.append(len(job.get("text", "")))
        return ask(program, job, limits, **options)

    monkeypatch.setattr(text_encoder, "run_job", counted)
    tokenizer = Tokenizer.from_folder(folder_of(tmp_path / "m", bpe(added_tokens=[mark("<this test>")])))
    assert done == [0], "the trial"
    assert len(tokenizer.encode("a" * text_encoder.LONG_TEXT)) == text_encoder.LONG_TEXT
    assert done == [0]
    assert len(tokenizer.encode("a" * (text_encoder.LONG_TEXT + 1))) == text_encoder.LONG_TEXT + 1
    assert max(done) == text_encoder.LONG_TEXT + 1
    Tokenizer.from_folder(tmp_path / "m")
    assert done.count(0) == 1, "it is tried once"


def test_shipped_files_are_known_and_have_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [*SHIPPED.glob("*/tokenizer.json")]
    assert {hash_texts(x.read_text("utf-8")) for x in paths} == SHIPPED_FILES, (
        "SHIPPED_FILES in engine/model/checkpoint/text_encoder.py lists the files in assets/models"
    )
    monkeypatch.setattr(text_encoder, "run_job", None)
    assert len(Tokenizer.from_folder(SHIPPED / "lab").encode("word " * 8000)) > 8000


def test_a_decoder_that_multiplies_is_never_run(tmp_path: Path) -> None:
    """Ids become text by the bytes of their tokens, so the library's decoder has nothing to do."""
    decoder = {"type": "Sequence", "decoders": [replaced("a", "aa")] * 34}
    tokenizer = Tokenizer.from_folder(folder_of(tmp_path / "m", bpe(decoder=decoder)))
    begun = time.process_time()
    assert tokenizer.decode(tokenizer.encode("abba")) == "abba"
    assert time.process_time() - begun < 2


def test_a_machine_that_is_too_busy_for_a_trial_refuses_nothing_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path / "m", bpe(added_tokens=[mark("<busy>")]))
    with monkeypatch.context() as patch:
        patch.setattr(text_encoder, "WAIT_SECONDS", 0.0)
        with pytest.raises(LoadError, match=r"could not be tried: it did not come to an end .*; try again"):
            Tokenizer.from_folder(folder)
    assert Tokenizer.from_folder(folder).vocab == 27
