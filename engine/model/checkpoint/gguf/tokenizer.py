"""The tokenizer of a GGUF file: the contents of tokenizer.json and tokenizer_config.json, made from its metadata.

Ids of a text equal those of llama.cpp. The file names its way of cutting a text into words by `tokenizer.ggml.pre`; what each
name means is written in llama.cpp alone (github.com/ggml-org/llama.cpp, src/llama-vocab.cpp and src/unicode.cpp). `PRE` has
the same regular expressions in the syntax of the tokenizers library.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..added_tokens import FLAGS
from ..folder import LoadError

MOST_TOKENS = 1 << 20
MOST_MERGES = 1 << 21
MOST_CHARACTERS = 1 << 24  # of all tokens together
LONGEST_TOKEN = 1 << 10  # characters
_GGML = "tokenizer.ggml."
_TEMPLATE = "tokenizer.chat_template"
_WAY_OUT = "convert the model again"
_KINDS = ("gpt2", "llama", "t5", "gemma4")

# token types of a GGUF file; 1 is a plain token, 5 one that is not used, 6 a byte
_UNKNOWN = 2
_CONTROL = 3
_USER_DEFINED = 4
# those of tokens that are found before a text is cut into words
_MARKED_TYPES = (_UNKNOWN, _CONTROL, _USER_DEFINED)
# the name in tokenizer_config.json -> the key of the id; a GGUF file spells the separator with three e
_NAMED = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
    "sep_token": "seperator_token_id",
    "mask_token": "mask_token_id",
}
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
# kind -> ids of files that do not name them, as in llama.cpp
_DEFAULT_IDS = {
    "llama": {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0},
    "t5": {"eos_token_id": 1, "unknown_token_id": 2, "padding_token_id": 0},
}
# tokens that llama.cpp takes for control tokens, whatever their type
_MARKS = frozenset(
    {
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>"),
        *("<|call|>", "<|flush|>", "<|calls|>"),
        *("<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>"),
        *("<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|tool_response>", "<\uff5cend▁of▁sentence\uff5c>", "[e~["),
    }
)


@dataclass(frozen=True)
class WordPattern:
    """How a text is cut into words: by each pattern in turn, every match and every text between two matches is a word.

    whole:  a word that is a token becomes it, whatever the merges say
    bos:    the beginning token comes before every text, unless the file says otherwise
    raw:    tokens are plain text with "▁" for a space; else each character of a token stands for a byte
    """

    patterns: tuple[str, ...]
    whole: bool = False
    bos: bool = False
    raw: bool = False


_ENGLISH = "'s|'t|'re|'ve|'m|'ll|'d"
_ENDING = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"  # the same in any case
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"  # with one sign before them
_MARKED = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"  # with their combining marks
_SIGNS = r" ?[^\s\p{L}\p{N}]+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_HAN_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
# without the spaces among them, as in llama.cpp
_ASIAN_WIDE = r"[[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]&&\S]+"
_CODE = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
# runs of digits, cut into threes from the right; the first of them takes with it all that is before, as in llama.cpp
# it begins at the text's beginning or behind a digit, so that a long text without digits is read once
_THREES = r"(?<!\P{N})\P{N}*+\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
# scripts with letter case
_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_HAN = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ebef\U0002f800-\U0002fa1f"
)
_ASIAN = (
    "\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
    "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff"
)

_GPT2 = _ENGLISH + r"| ?\p{L}+| ?\p{N}+|" + _SIGNS + r"|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENDING}|{_LETTERS}|\p{{N}}{{1,3}}|{_SIGNS}[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_ENDING}|{_LETTERS}|\p{{N}}|{_SIGNS}[\r\n]*|{_SPACES}"
_QWEN35 = rf"{_ENDING}|{_MARKED}|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_DEEPSEEK3 = rf"{_CODE}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"


def _cased_words(letters: str, ending: str, digits: str) -> str:
    """Words that change from small to capital letters are cut there. Only A to Z have case in llama.cpp.

    letters: what words are made of;  ending: what may follow a word;  digits: the pattern of numbers
    """
    first, last = f"[[{letters}]&&[^a-z]]", f"[[{letters}]&&[^A-Z]]"
    sign = r"[^\r\n\p{L}\p{N}]?"
    words = f"{sign}{first}*{last}+{ending}|{sign}{first}+{last}*{ending}"
    return rf"{words}|{digits}|{_SIGNS}[\r\n/]*|{_SPACES}"


_ONE = r"\p{N}"
_TO_THREE = r"\p{N}{1,3}"
_ANY = r"\p{N}+"
_LAST_SPACES = "|".join(rf"\s{{{x}}}(?!\S)" for x in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")) + r"|\s{1}"
_HANGUL_FIRST = (
    "[\uac00-\ud7a3\u3131-\u318e]+|"
    "[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|"
    + _HAN_KANA
)
_KIMI = (
    rf"[{_HAN}]+|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}&&[^{_HAN}]]+{_ENDING}?|{_TO_THREE}|{_SIGNS}[\r\n]*|{_SPACES}"
)
_NEWLINES = r"[^\n]+|[\n]+"

# names that share a pattern -> the pattern
_SHARED: dict[str, WordPattern] = {
    "default": WordPattern((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, _ANY, "[0-9][0-9][0-9]")),
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": WordPattern(
        (_LLAMA3,), whole=True, bos=True
    ),
    "dbrx smaug-bpe chatglm-bpe": WordPattern((_LLAMA3,)),
    "glm4 glm5": WordPattern((_LLAMA3,), whole=True),
    "jais-2": WordPattern((rf"{_ENDING}|{_LETTERS}|{_TO_THREE}|{_SIGNS}[\r\n]*|\s*[\r\n]+|{_LAST_SPACES}",)),
    "minicpm5": WordPattern(
        (_TO_THREE, rf"{_ENDING}|{_LETTERS}|{_ANY}|{_SIGNS}[\r\n]*|{_SPACES}"), whole=True
    ),
    "deepseek-llm": WordPattern(
        (
            "[\r\n]",
            rf"\s?[{_CASED}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+",
            r"\s+\z",
            _ASIAN_WIDE,
            _ANY,
        )
    ),
    "deepseek-coder": WordPattern(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _ASIAN_WIDE, _ONE)),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": WordPattern((_TO_THREE, _HAN_KANA, _DEEPSEEK3)),
    "spark2_5": WordPattern(
        (_TO_THREE, _HAN_KANA, rf"{_CODE}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+", _ONE)
    ),
    # llama.cpp knows no case of letters here, where the model's own tokenizer does; so does tiny_aya
    "youtu": WordPattern(
        (_HANGUL_FIRST, rf"{_MARKED}{_ENDING}?|{_ONE}|{_SIGNS}[\r\n/]*|{_SPACES}"), whole=True
    ),
    "tiny_aya cohere2moe": WordPattern(
        (_THREES, rf"{_MARKED}{_ENDING}?|{_TO_THREE}|{_SIGNS}[\r\n/]*|{_SPACES}")
    ),
    "falcon": WordPattern((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2": WordPattern((_ONE, _GPT2)),
    "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jina-v1-en jina-v2-code "
    "roberta-bpe exaone4 mpt olmo jais trillion granite-docling": WordPattern((_GPT2,)),
    "stablelm2 qwen2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan solar-open grok-2": WordPattern((_QWEN2,)),
    "qwen35": WordPattern((_QWEN35,)),
    "poro-chat bloom gpt3-finnish": WordPattern((_BLOOM,)),
    "viking": WordPattern((_BLOOM, _ONE)),
    "tekken": WordPattern((_cased_words(r"\p{L}", "", _ONE),), whole=True, bos=True),
    "gpt-4o llama4 kanana2 talkie minimax-m2": WordPattern(
        (_cased_words(r"\p{L}", _ENDING + "?", _TO_THREE),)
    ),
    "granite-embed-multi-97m": WordPattern(
        (_cased_words(r"\p{L}\p{M}", _ENDING + "?", _TO_THREE),), whole=True
    ),
    "chameleon": WordPattern(
        (
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            "([\\t\\n]|    |  )",
            _ONE,
            r"[\p{P}!-/:-@\[-`{-~]",
            _GPT2,
        ),
        bos=True,
    ),
    "kimi-k2": WordPattern((_KIMI,)),
    "superbpe": WordPattern((_ANY, "(?=([0-9]{3})+(?![0-9]))")),
    "bailingmoe bailingmoe2 llada-moe": WordPattern(
        (
            "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|"
            rf"{_LETTERS}|{_ONE}|{_SIGNS}[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    "seed-coder": WordPattern((rf"{_ENDING}|{_LETTERS}|{_ONE}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)),
    "ufakzeka": WordPattern((rf"{_LETTERS}|{_ONE}|{_SIGNS}[\r\n]*|{_SPACES}",)),
    "afmoe": WordPattern((_THREES, f"[{_ASIAN}]+", _DEEPSEEK3)),
    "laguna": WordPattern((_NEWLINES, _QWEN2)),
    "exaone-moe": WordPattern(
        (
            rf"{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|"
            rf"{_ONE}|{_SIGNS}[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    "gemma4 granite-embed-multi-311m": WordPattern((_NEWLINES,), bos=True, raw=True),
    "sarvam-moe": WordPattern((_NEWLINES,), raw=True),
}
# `tokenizer.ggml.pre` -> how a text is cut
PRE: dict[str, WordPattern] = {name: x for names, x in _SHARED.items() for name in names.split()}


@dataclass(frozen=True)
class GgufVocabulary:
    """The tokens of a GGUF file: a text and a type for each id, and the ids of the texts."""

    tokens: list[str]
    types: list[int]
    ids: dict[str, int]

    def added(self, *, strip: bool) -> list[dict[str, Any]]:
        """Control, unknown and user defined tokens as `added_tokens` has them. strip: control tokens take the spaces behind
        them."""
        entries = []
        for at, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True)):
            if kind in _MARKED_TYPES:
                flags = {**dict.fromkeys(FLAGS, False), "special": kind != _USER_DEFINED}
                flags["rstrip"] = strip and token not in ("<unk>", "<s>", "<|endoftext|>")
                entries.append({"id": at, "content": token, **flags})
        return entries


def tokenizer_files(metadata: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The contents of tokenizer.json and tokenizer_config.json for a GGUF's metadata. Raises LoadError in one sentence."""
    kind = _read(metadata, _GGML + "model", str)
    if kind not in _KINDS:
        shown = "no" if kind is None else f"the {kind[:40]!r}"
        raise LoadError(
            f"The GGUF file has {shown} tokenizer, and those that can be read are {', '.join(_KINDS)}; use another model."
        )
    words = _word_pattern(metadata, kind) if kind in ("gpt2", "gemma4") else None
    vocabulary = _read_vocabulary(metadata)
    ids = _special_ids(metadata, len(vocabulary.tokens), kind)
    prefix = _read(metadata, _GGML + "add_space_prefix", bool, True) if words is None else None
    if words is not None:
        parts = _merged_parts(metadata, vocabulary, words)
    elif kind == "llama":
        parts = _scored_parts(metadata, vocabulary, ids, bool(prefix))
    else:
        parts = _unigram_parts(metadata, vocabulary, ids)
    name = (_read(metadata, "general.name", str) or "").lower()
    strip = "phi-3" in name or "phi3" in name  # as in llama.cpp, and in Phi-3's own tokenizer.json
    table = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocabulary.added(strip=strip),
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        **parts,
    }
    front = kind == "llama" or (words is not None and words.bos)
    config: dict[str, Any] = {
        "add_bos_token": _read(metadata, _GGML + "add_bos_token", bool, front),
        "add_eos_token": _read(metadata, _GGML + "add_eos_token", bool, kind == "t5"),
    }
    if prefix is not None:
        config["add_prefix_space"] = prefix
    for key, source in _NAMED.items():
        at = ids.get(source)
        # a plain token that only fills up batches stays a plain token
        if at is not None and (key in ("bos_token", "eos_token") or vocabulary.types[at] in _MARKED_TYPES):
            config[key] = vocabulary.tokens[at]
    if template := _read_templates(metadata):
        config["chat_template"] = template
    return {"tokenizer.json": table, "tokenizer_config.json": config}


def end_ids(metadata: Mapping[str, Any]) -> list[int]:
    """The ids that end a text, ascending: those of the end of a text, of a turn and of a message."""
    tokens = _read_list(metadata, "tokens", (str,)) or []
    ids = _special_ids(metadata, len(tokens), _read(metadata, _GGML + "model", str) or "")
    return sorted({ids[x] for x in _ENDS if x in ids})


def _read(metadata: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """The value of a key, which must be of this type."""
    value = metadata.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        name = {str: "text", bool: "truth value", int: "whole number"}[kind]
        raise LoadError(f"The GGUF file's {key} is no {name} but {str(value)[:40]!r}; {_WAY_OUT}.")
    return value


def _read_list(metadata: Mapping[str, Any], key: str, kinds: tuple[type, ...]) -> list[Any] | None:
    """A list whose values are all of these types."""
    values = metadata.get(_GGML + key)
    if values is None:
        return None
    if not isinstance(values, list) or not all(type(x) in kinds for x in values):
        names = " or ".join({str: "texts", int: "whole numbers", float: "numbers"}[x] for x in kinds)
        raise LoadError(f"The GGUF file's {_GGML}{key} is no list of {names}; {_WAY_OUT}.")
    return values


def _read_vocabulary(metadata: Mapping[str, Any]) -> GgufVocabulary:
    """Tokens and their types. A token without text gets the name that llama.cpp gives it."""
    listed = _read_list(metadata, "tokens", (str,))
    if not listed or len(listed) > MOST_TOKENS:
        count = len(listed or ())
        raise LoadError(f"The GGUF file has {count} tokens, and 1 to {MOST_TOKENS} can be read; {_WAY_OUT}.")
    tokens = [x or f"[EMPTY_{at}]" for at, x in enumerate(listed)]
    if max(map(len, tokens)) > LONGEST_TOKEN or sum(map(len, tokens)) > MOST_CHARACTERS:
        limits = f"{LONGEST_TOKEN} characters each and {MOST_CHARACTERS} in all"
        raise LoadError(f"The tokens of the GGUF file are longer than the limit of {limits}; {_WAY_OUT}.")
    try:
        "".join(tokens).encode()
    except UnicodeEncodeError:
        raise LoadError(f"The GGUF file has tokens that are no text in UTF-8; {_WAY_OUT}.") from None
    ids = {x: at for at, x in enumerate(tokens)}
    if len(ids) != len(tokens):
        twice = next(x for at, x in enumerate(tokens) if ids[x] != at)
        raise LoadError(f"The GGUF file has the token {twice[:40]!r} more than once; {_WAY_OUT}.")
    given = _read_list(metadata, "token_type", (int,))
    types = [1] * len(tokens) if given is None else given
    _require_length("token_type", types, tokens)
    return GgufVocabulary(
        tokens, [_CONTROL if x in _MARKS else y for x, y in zip(tokens, types, strict=True)], ids
    )


def _require_length(key: str, values: list[Any], tokens: list[str]) -> None:
    if len(values) != len(tokens):
        raise LoadError(
            f"The GGUF file has {len(tokens)} tokens and {len(values)} values in {_GGML}{key}; {_WAY_OUT}."
        )


def _special_ids(metadata: Mapping[str, Any], count: int, kind: str) -> dict[str, int]:
    """Key -> id of the tokens that the file names; refused if there is no such token."""
    ids = {x: at for x, at in _DEFAULT_IDS.get(kind, {}).items() if at < count}
    for key in dict.fromkeys([*_NAMED.values(), *_ENDS]):
        at = _read(metadata, _GGML + key, int)
        if at is None:
            continue
        if not 0 <= at < count:
            raise LoadError(
                f"The GGUF file's {_GGML}{key} is {at}, and its ids end at {count - 1}; {_WAY_OUT}."
            )
        ids[key] = at
    return ids


def _word_pattern(metadata: Mapping[str, Any], kind: str) -> WordPattern:
    """How this file's texts are cut into words. Old files do not say it."""
    name = "gemma4" if kind == "gemma4" else _read(metadata, _GGML + "pre", str) or "default"
    if name not in PRE:
        what = f"The GGUF file cuts texts into words as {name[:60]!r} ({_GGML}pre)"
        raise LoadError(f"{what}, which is not known here; use another model, or its safetensors files.")
    return PRE[name]


def _merged_parts(
    metadata: Mapping[str, Any], vocabulary: GgufVocabulary, words: WordPattern
) -> dict[str, Any]:
    """The parts of tokenizer.json for byte-pair encoding by a list of merges."""
    splits = [
        {"type": "Split", "pattern": {"Regex": x}, "behavior": "Isolated", "invert": False}
        for x in words.patterns
    ]
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    parts = {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, *([] if words.raw else [bytewise])]},
        "decoder": _space_decoder(prefix=False) if words.raw else {**bytewise, "add_prefix_space": True},
        "model": {
            **_pair_model(vocabulary, _read_merges(metadata, vocabulary)),
            "ignore_merges": words.whole,
            "byte_fallback": words.raw,
        },
    }
    return {**parts, "normalizer": _space_normalizer(prefix=False)} if words.raw else parts


def _pair_model(vocabulary: GgufVocabulary, merges: list[tuple[str, str]]) -> dict[str, Any]:
    """The model of byte-pair encoding, without its flags."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "vocab": vocabulary.ids,
        "merges": merges,
    }


def _read_merges(metadata: Mapping[str, Any], vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    """The pairs of tokens that become one, in their order. Of equal ones the first holds."""
    lines = _read_list(metadata, "merges", (str,))
    if lines is None or len(lines) > MOST_MERGES:
        count = "no" if lines is None else str(len(lines))
        raise LoadError(f"The GGUF file has {count} merges, and up to {MOST_MERGES} can be read; {_WAY_OUT}.")
    pairs, ids = dict[tuple[str, str], None](), vocabulary.ids
    for line in lines:
        cut = line.find(" ", 1)
        left, right = line[:cut], line[cut + 1 :]
        if cut < 0 or left not in ids or right not in ids or left + right not in ids:
            raise LoadError(
                f"The merge {line[:60]!r} of the GGUF file is no pair of tokens that make a third; {_WAY_OUT}."
            )
        pairs[left, right] = None
    return list(pairs)


def _scored_parts(
    metadata: Mapping[str, Any], vocabulary: GgufVocabulary, ids: dict[str, int], prefix: bool
) -> dict[str, Any]:
    """The parts of tokenizer.json for SentencePiece's byte-pair encoding, whose tokens have scores and no merges."""
    model = _pair_model(vocabulary, _scored_merges(vocabulary, _read_scores(metadata, vocabulary)))
    unknown = ids.get("unknown_token_id")
    model["unk_token"] = None if unknown is None else vocabulary.tokens[unknown]
    return {
        "normalizer": _space_normalizer(prefix=prefix),
        "decoder": _space_decoder(prefix=prefix),
        "model": {**model, "ignore_merges": False, "byte_fallback": True},
    }


def _read_scores(metadata: Mapping[str, Any], vocabulary: GgufVocabulary) -> list[float]:
    scores = _read_list(metadata, "scores", (float, int))
    _require_length("scores", scores or [], vocabulary.tokens)
    if scores is None or not all(map(math.isfinite, scores)):
        raise LoadError(f"The GGUF file's {_GGML}scores are no finite numbers; {_WAY_OUT}.")
    return scores


def _scored_merges(vocabulary: GgufVocabulary, scores: list[float]) -> list[tuple[str, str]]:
    """Every pair of tokens that make a third: by its score, of equal scores the one with the longest left part first."""
    ids, merges = vocabulary.ids, []
    for token, score in zip(vocabulary.tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                merges.append((-score, -cut, left, right))
    merges.sort(key=lambda x: x[:2])
    if len(merges) > MOST_MERGES:
        raise LoadError(
            f"The tokens of the GGUF file make {len(merges)} merges, more than the limit of {MOST_MERGES}; {_WAY_OUT}."
        )
    return [(left, right) for _, _, left, right in merges]


def _space_normalizer(*, prefix: bool) -> dict[str, Any]:
    """Writes spaces as "▁", and one before the text if asked for."""
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    if not prefix:
        return replace
    return {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}


def _space_decoder(*, prefix: bool) -> dict[str, Any]:
    """Undoes `_space_normalizer` and puts the bytes of tokens such as <0x0A> together."""
    parts: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return {"type": "Sequence", "decoders": [*parts, strip] if prefix else parts}


def _unigram_parts(
    metadata: Mapping[str, Any], vocabulary: GgufVocabulary, ids: dict[str, int]
) -> dict[str, Any]:
    """The parts of tokenizer.json for SentencePiece's unigram model, the kind "t5". The tokenizers library reads its map of
    characters letter by letter and llama.cpp byte by byte: letters with several marks may get other ids."""
    if not _read(metadata, _GGML + "remove_extra_whitespaces", bool, False):
        raise LoadError(
            f"The GGUF file keeps repeated spaces ({_GGML}remove_extra_whitespaces), which is not known of a t5 tokenizer; "
            "use another model."
        )
    if "unknown_token_id" not in ids:
        raise LoadError(f"The GGUF file has no token for unknown characters; {_WAY_OUT}.")
    steps: list[dict[str, Any]] = []
    if charsmap := _read_list(metadata, "precompiled_charsmap", (int,)):
        data = base64.b64encode(bytes(x & 255 for x in charsmap)).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": data})
    steps += [
        {"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""},
        {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "},
    ]
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    scores = _read_scores(metadata, vocabulary)
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": spaces,
        "decoder": spaces,
        "model": {
            "type": "Unigram",
            "unk_id": ids["unknown_token_id"],
            "vocab": [[x, y] for x, y in zip(vocabulary.tokens, scores, strict=True)],
            "byte_fallback": False,
        },
    }


def _read_templates(metadata: Mapping[str, Any]) -> str | list[dict[str, str]] | None:
    """The chat template, or several by name as tokenizer_config.json lists them."""
    default = _read(metadata, _TEMPLATE, str)
    others = {
        key.removeprefix(_TEMPLATE + "."): _read(metadata, key, str)
        for key in metadata
        if key.startswith(_TEMPLATE + ".")
    }
    if not others:
        return default  # type: ignore[no-any-return]  # it is a text or nothing
    named = others if default is None else {"default": default, **others}
    return [{"name": name, "template": source} for name, source in named.items()]
