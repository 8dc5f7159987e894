"""Tokenizer: text to token ids and back, exact to the byte."""

from __future__ import annotations

import json
import re
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import tokenizers

from decodescope.engine.trace.events import Piece

from .chat_template import render
from .folder import TOKENIZER_BYTES, LoadError, eos_ids, read_json, read_text

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_HALF = re.compile("[\ud800-\udfff]")  # half of a surrogate pair is no text
_BAD = re.compile("([\udc80-\udcff]+)")  # how bytes that are no UTF-8 come out of "surrogateescape"
_MOST_IDS = 1 << 22  # the largest vocabularies stay below 2^19
_MARKS = range(0xE000, 0xF8FF)  # private characters


class Tokenizer:
    """A folder's tokenizer.json, with what its neighbours say about marks, ends and chats.

    vocab:     the largest id plus one
    stop_ids:  ids that end a text, ascending
    front:     ids that stand before every text (a BOS, for some models)
    marks:     ids of special tokens
    """

    def __init__(self, spec: str, config: dict[str, Any], template: str | None = None, stops: set[int] | None = None):
        self._spec, self._config, self._template = spec, config, template
        self._plain = tokenizers.Tokenizer.from_str(spec)
        self._plain.no_padding()
        self._plain.no_truncation()
        self._plain.encode_special_tokens = True  # a mark typed by a user is text
        table = json.loads(spec)
        added = self._plain.get_added_tokens_decoder()
        self._added: dict[int, str] = {at: x.content for at, x in added.items()}
        self._special: dict[str, int] = {x.content: at for at, x in added.items() if x.special}
        self.marks = frozenset(self._special.values())
        self._byte_level = _uses(table.get("decoder"), "ByteLevel") or _uses(table.get("pre_tokenizer"), "ByteLevel")
        self._spaced = _uses(table, "Metaspace") or "▁" in json.dumps(table.get("decoder"), ensure_ascii=False)
        self._ids = self._plain.get_vocab(with_added_tokens=True)
        self.vocab = max(self._ids.values(), default=-1) + 1
        if self.vocab > _MOST_IDS:
            raise ValueError(f"its largest id is {self.vocab - 1}, more than the limit of {_MOST_IDS - 1}")
        self._tokens: list[str | None] = [None] * self.vocab
        for token, at in self._ids.items():
            self._tokens[at] = token
        self._pieces: dict[int, Piece] = {}  # of the ids that were asked for
        self.front = self._front()
        end = self._mark("eos_token")
        self.stop_ids = sorted({*(stops or ()), *([self._ids[end]] if end in self._ids else [])})

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a model folder; LoadError if it has none that can be read."""
        folder = Path(path)
        spec = read_text(folder, "tokenizer.json", TOKENIZER_BYTES)
        if spec is None:
            raise LoadError(f"{folder} has no tokenizer.json; save the tokenizer in its fast form first.")
        config = read_json(folder, "tokenizer_config.json") or {}
        template = read_text(folder, "chat_template.jinja") or config.get("chat_template")
        if isinstance(template, list):  # several by name
            named = {x.get("name"): x.get("template") for x in template if isinstance(x, dict)}
            template = named.get("default")
        stops = eos_ids(folder)
        try:
            return cls(spec, config, template if isinstance(template, str) else None, stops)
        except BaseException as error:  # the library raises bare Exception, and lets its panics through
            if not isinstance(error, Exception) and not _panic(error):
                raise
            why = str(error).split(". ")[0][:80]
            raise LoadError(f"{folder / 'tokenizer.json'} cannot be read ({why}); download it again.") from None

    def _mark(self, name: str) -> str:
        said = self._config.get(name)
        said = said.get("content") if isinstance(said, dict) else said
        return said if isinstance(said, str) else ""

    def _front(self) -> list[int]:
        bare = self._plain.encode("a", add_special_tokens=False).ids
        full = self._plain.encode("a", add_special_tokens=True).ids
        front = next((full[:i] for i in range(len(full)) if full[i : i + len(bare)] == bare), [])
        wanted = self._config.get("add_bos_token")
        if wanted is False:
            return []
        bos = self._ids.get(self._mark("bos_token"))
        return [bos] if wanted is True and not front and bos is not None else front

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, after those that this model puts in front. Marks like <|end|> in it are read as plain text."""
        return self.front + self._run(text)

    def plain(self, text: str) -> list[int]:
        """Ids of `text` alone, nothing put in front; marks in it are read as plain text."""
        return self._run(text)

    def _run(self, text: str, *, marks: bool = False) -> list[int]:
        by = self._marked if marks else self._plain
        try:
            return by.encode(_HALF.sub("\ufffd", text), add_special_tokens=False).ids
        except BaseException as error:
            if not _panic(error):
                raise
            raise LoadError(f"The tokenizer gave up on this text ({str(error)[:80]}); use another text or model.") from None

    def encode_bytes(self, data: bytes) -> list[int]:
        """Ids that stand for exactly `data`, whatever the bytes, with nothing in front.

        Raises ValueError if the model has no token for one of the bytes.
        """
        ids: list[int] = []
        for run in _BAD.split(data.decode("utf-8", "surrogateescape")):
            raw = run.encode("utf-8", "surrogateescape")
            # a tokenizer may change what it reads: one adds a leading space, another composes accents
            tries = [] if _BAD.match(run) else [run, run.removeprefix(" ")]
            exact = (tried for tried in map(self._run, tries) if b"".join(map(self.bytes_of, tried)) == raw)
            whole = next(exact, None)
            ids += [self._byte_id(x) for x in raw] if whole is None else whole
        return ids

    def _byte_id(self, byte: int) -> int:
        token = _letters()[byte] if self._byte_level else f"<0x{byte:02X}>"
        if token not in self._ids and byte < 128:
            token = chr(byte)
        if token not in self._ids:
            raise ValueError(f"The tokenizer has no token for the byte {byte:02x}; give text in UTF-8 instead.")
        return self._ids[token]

    def bytes_of(self, token: int) -> bytes:
        """Exactly the bytes that a token stands for; of a mark, its text; of an id without a token, "<#id>"."""
        text = self._tokens[token] if 0 <= token < self.vocab else None
        if text is None:
            return f"<#{token}>".encode()
        if token in self._added:
            mark = self._added[token]
            spaces = self._spaced and mark not in self._special  # Gemma adds runs of spaces and newlines as tokens
            return (mark.replace("▁", " ") if spaces else mark).encode()
        if self._byte_level:
            table = _byte_of()
            return b"".join(table.get(x) or x.encode() for x in text)
        if byte := _BYTE.fullmatch(text):
            return bytes.fromhex(byte[1])
        return (text.replace("▁", " ") if self._spaced else text).encode()

    def decode(self, ids: list[int], *, specials: bool = True) -> str:
        """The text of `ids`, their bytes put together; what makes no character shows as U+FFFD."""
        marks = frozenset[int]() if specials else self.marks
        return b"".join(self.bytes_of(x) for x in ids if x not in marks).decode("utf-8", "replace")

    def piece(self, token: int) -> Piece:
        """The token's text, or the hex codes of its bytes where they are no text alone."""
        if token not in self._pieces:
            raw = self.bytes_of(token)
            try:
                self._pieces[token] = raw.decode("utf-8")
            except UnicodeDecodeError:
                self._pieces[token] = [f"{x:02x}" for x in raw]
        return self._pieces[token]

    @property
    def has_chat(self) -> bool:
        """Whether the folder brought a chat template."""
        return self._template is not None

    def chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids of a conversation ({"role": ..., "content": ...}) up to where the model answers, by the folder's template.

        The template's marks become marks; the same strings inside a message stay text. Raises ValueError without template.
        """
        if self._template is None:
            raise ValueError("The model has no chat template; give the prompt as plain text.")
        said = "\0".join(x for message in messages for x in message.values())
        inside = [mark for mark in self._special if mark in said]
        if not inside:
            return self._run(self._render(messages), marks=True)
        # hide the marks that were typed until the template's own are known
        free = next(chr(c) for c in _MARKS if chr(c) not in said)
        hidden = {mark: f"{free}{i}{free}" for i, mark in enumerate(sorted(inside, key=len, reverse=True))}
        safe = [{k: _replace(v, hidden) for k, v in message.items()} for message in messages]
        shown = {v: k for k, v in hidden.items()}
        ids: list[int] = []
        for part in _split(self._render(safe), list(self._special)):
            ids += [self._special[part]] if part in self._special else self._run(_replace(part, shown))
        return ids

    def _render(self, messages: list[dict[str, str]]) -> str:
        assert self._template is not None
        names = ("bos_token", "eos_token", "pad_token", "unk_token")
        marks = {name: self._mark(name) for name in names if self._mark(name)}
        clean = [{k: _HALF.sub("\ufffd", v) for k, v in message.items()} for message in messages]
        return render(self._template, {"messages": clean, "add_generation_prompt": True, **marks})

    @cached_property
    def _marked(self) -> tokenizers.Tokenizer:
        """The same tokenizer, reading marks as marks."""
        tokenizer = tokenizers.Tokenizer.from_str(self._spec)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def same_ids(self, other: Tokenizer) -> tuple[int, str | None, str | None] | None:
        """The first id that stands for something else in `other`, with both tokens; None if there is none."""
        if self._tokens == other._tokens:
            return None
        ours, theirs = (x._tokens + [None] * (max(self.vocab, other.vocab) - x.vocab) for x in (self, other))
        return next((i, a, b) for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)


def _panic(error: BaseException) -> bool:
    """Whether the tokenizers library broke down, as it does where a pattern goes back and forth without end. Such an error
    is no Exception, so that nothing catches it by chance; the library itself is sound afterwards."""
    return type(error).__name__ == "PanicException"


def _uses(part: Any, kind: str) -> bool:
    """Whether a component of tokenizer.json is of this type, or holds one that is."""
    if isinstance(part, dict):
        if part.get("type") == kind:
            return True
        return any(_uses(x, kind) for name, x in part.items() if name != "vocab")
    return isinstance(part, list) and any(_uses(x, kind) for x in part if isinstance(x, dict))


@lru_cache(maxsize=1)
def _letters() -> list[str]:
    """Byte -> the character that stands for it in byte-level BPE: itself if it prints in Latin-1, else one from 256 on."""
    prints = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = [x for x in range(256) if x not in prints]
    return [chr(x) if x in prints else chr(256 + rest.index(x)) for x in range(256)]


@lru_cache(maxsize=1)
def _byte_of() -> dict[str, bytes]:
    return {letter: bytes([x]) for x, letter in enumerate(_letters())}


def _replace(text: str, table: dict[str, str]) -> str:
    """`text` with every key of `table` replaced at once."""
    return re.sub("|".join(map(re.escape, table)), lambda match: table[match[0]], text)


def _split(text: str, marks: list[str]) -> list[str]:
    """`text` cut before and after every mark, longer marks first; empty parts left out."""
    longest = sorted(marks, key=len, reverse=True)
    return [x for x in re.split(f"({'|'.join(map(re.escape, longest))})", text) if x]
