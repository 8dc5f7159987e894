"""Tokenizer: text to token ids and back, exact to the byte."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from decodescope.engine.core.conversation import Conversation
from decodescope.engine.trace.records.events import Piece

from .added_tokens import AGAIN, Additions, add_missing_tokens, named_tokens
from .chat_template import ChatTemplates, TemplateError, read_templates, render, render_each
from .folder import TOKENIZER_BYTES, LoadError, read_ends, read_json, read_text
from .message_forms import fit_messages
from .text_encoder import TextEncoder, TokenizerTrial, is_panic
from .tokenizer_settings import disable_dropout, settings_remarks
from .typed_marks import (
    Fence,
    Span,
    map_strings,
    mask_spans,
    merge_spans,
    pattern_of,
    rename_marks,
    replace_spans,
    strings,
)

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_HALF = re.compile("[\ud800-\udfff]")  # half of a surrogate pair is no text
_BAD = re.compile("([\udc80-\udcff]+)")  # how bytes that are no UTF-8 come out of "surrogateescape"
RENDERED = 64  # conversations that one run of a template renders
_MOST_IDS = 1 << 22  # the largest vocabularies stay below 2^19
FENCED = ("tools", "documents")  # what a template is given, in addition to messages, whose marks stay text
_ASKED, _ANSWERED = "question-one", "answer-two"  # turns of a conversation that only looks at the template


class Tokenizer:
    """A folder's tokenizer.json, with the added tokens, ends and chat templates of its other files.

    vocab:     the largest id plus one
    stop_ids:  ids that end a text, ascending
    front:     ids before every text (a BOS, for some models)
    added:     id -> text of the added tokens, special or not
    marks:     ids of special tokens
    templates: the folder's chat templates
    remarks:   sentences on settings of the folder that are not followed
    """

    def __init__(
        self,
        spec: str,
        config: dict[str, Any],
        template: str | ChatTemplates | None = None,
        stops: set[int] | None = None,
        table: dict[str, Any] | None = None,
        trial: TokenizerTrial | None = None,
    ):
        self._spec = spec
        self._config = config
        self._named = named_tokens(config)
        self.templates = template if isinstance(template, ChatTemplates) else ChatTemplates(template)
        self._trial = trial or TokenizerTrial()
        self._plain = TextEncoder(spec, self._trial, marks_are_text=True)  # a mark typed by a user is text
        content: dict[str, Any] = json.loads(spec) if table is None else table
        native = self._plain.native
        added = native.get_added_tokens_decoder()
        self.added: dict[int, str] = {at: x.content for at, x in added.items()}
        self._special: dict[str, int] = {x.content: at for at, x in added.items() if x.special}
        self._normalized = any(x.normalized for x in added.values())
        self.marks = frozenset(self._special.values())
        self._byte_level = _has_component(content.get("decoder"), "ByteLevel") or _has_component(
            content.get("pre_tokenizer"), "ByteLevel"
        )
        self._spaced = _has_component(content, "Metaspace") or "▁" in json.dumps(
            content.get("decoder"), ensure_ascii=False
        )
        self._ids = native.get_vocab(with_added_tokens=True)
        self.vocab = max(self._ids.values(), default=-1) + 1
        if self.vocab > _MOST_IDS:
            raise ValueError(f"its largest id is {self.vocab - 1}, more than the limit of {_MOST_IDS - 1}")
        model = content["model"]
        # any text may become it
        self._unknown = {self._ids.get(model.get("unk_token")), model.get("unk_id")} - {None}
        self._fakes = self.marks - self._unknown  # those that no plain text may become
        self._tokens: list[str | None] = [None] * self.vocab
        for token, at in self._ids.items():
            self._tokens[at] = token
        self._pieces: dict[int, Piece] = {}  # of the ids that were asked for
        self._shared: WeakKeyDictionary[Tokenizer, list[tuple[int, int]]] = WeakKeyDictionary()
        self.front, behind = self._surrounding_ids()
        end = self._named.get("eos_token", "")
        self.stop_ids: list[int] = sorted({*(stops or ()), *([self._ids[end]] if end in self._ids else [])})
        self.remarks = settings_remarks(content, config, behind)

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """The tokenizer of a model folder; LoadError if it has none that can be read."""
        folder = Path(path)
        spec = read_text(folder, "tokenizer.json", TOKENIZER_BYTES)
        if spec is None:
            raise LoadError(f"{folder} has no tokenizer.json; save the tokenizer in its fast form first.")
        config = read_json(folder, "tokenizer_config.json") or {}
        templates, ends = read_templates(folder, config), read_ends(folder)
        try:
            table = json.loads(spec)
            more = add_missing_tokens(folder, table, config)
            chance = disable_dropout(table)
            spec = json.dumps(table, ensure_ascii=False) if more.changed or chance else spec
            trial = TokenizerTrial.of_file(folder / "tokenizer.json", spec, table)
            tokenizer = cls(spec, more.config, templates, ends.ids, table, trial)
        except LoadError:
            raise
        except BaseException as error:  # the library raises bare Exception, and lets its panics through
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            why = str(error).split(". ")[0][:80]
            raise LoadError(
                f"{folder / 'tokenizer.json'} cannot be read ({why}); download it again."
            ) from None
        tokenizer.remarks = [
            *more.remarks,
            *chance,
            *tokenizer._moved_id_remarks(folder, more),
            *tokenizer.remarks,
            *ends.remarks,
        ]
        return tokenizer

    def _moved_id_remarks(self, folder: Path, more: Additions) -> list[str]:
        """Remarks on tokens of tokenizer.json that have another id than it says. Raises LoadError for those of other files."""
        remarks = []
        for token, (at, file) in more.declared.items():
            if (ours := self._ids.get(token)) in (at, None):
                continue
            if file != "tokenizer.json":
                what = f"{folder / file} gives the added token {token!r} the id {at}, and the next free one is {ours}"
                raise LoadError(f"{what}; {AGAIN}.")
            remarks.append(
                f"{token!r} has the id {at} in its tokenizer.json, and {ours} is the next free one: {ours} holds."
            )
        return remarks

    def _surrounding_ids(self) -> tuple[list[int], bool]:
        """Ids that are before every text, and whether tokenizer.json also puts some after it."""
        bare = self._plain.native.encode("a", add_special_tokens=False).ids
        full = self._plain.native.encode("a", add_special_tokens=True).ids
        at = next((i for i in range(len(full)) if full[i : i + len(bare)] == bare), None)
        front, behind = ([], False) if at is None else (full[:at], len(full) > at + len(bare))
        wanted = self._config.get("add_bos_token")
        if wanted is False:
            return [], behind
        bos = self._ids.get(self._named.get("bos_token", ""))
        return [bos] if wanted is True and not front and bos is not None else front, behind

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, after the ids that this model adds at the beginning. Marks like <|end|> in it are read as plain
        text."""
        return self.front + self._encode_text(text)

    def encode_marks(self, text: str) -> list[int]:
        """Ids of `text` that a template has made already: marks in it are read as marks, and nothing is put before it."""
        return self._marks_tokenizer.encode(_HALF.sub("\ufffd", text)).ids

    def encode_plain(self, text: str) -> list[int]:
        """Ids of `text` alone, without a prefix; marks in it are read as plain text."""
        return self._encode_text(text)

    def _encode_text(self, text: str) -> list[int]:
        """Ids of `text`, in which marks are text."""
        text = _HALF.sub("\ufffd", text)
        ids = self._plain.encode(text).ids
        if self._fakes.isdisjoint(ids):
            return ids
        # a model that has a mark among its pieces made one of plain text
        return self._inert_tokenizer[0].encode(text).ids

    def encode_bytes(self, data: bytes) -> list[int]:
        """Ids that encode exactly `data`, whatever the bytes, without a prefix.

        Raises ValueError if the model has no token for one of the bytes.
        """
        ids: list[int] = []
        for run in _BAD.split(data.decode("utf-8", "surrogateescape")):
            raw = run.encode("utf-8", "surrogateescape")
            # a tokenizer may change what it reads: one adds a leading space, another composes accents
            tries = [] if _BAD.match(run) else [run, run.removeprefix(" ")]
            exact = (
                tried for tried in map(self._encode_text, tries) if b"".join(map(self.bytes_of, tried)) == raw
            )
            whole = next(exact, None)
            ids += [self._byte_id(x) for x in raw] if whole is None else whole
        return ids

    def _byte_id(self, byte: int) -> int:
        token = _byte_letters()[byte] if self._byte_level else f"<0x{byte:02X}>"
        if token not in self._ids and byte < 128:
            token = chr(byte)
        if token not in self._ids:
            raise ValueError(
                f"The tokenizer has no token for the byte {byte:02x}; give text in UTF-8 instead."
            )
        return self._ids[token]

    def bytes_of(self, token: int) -> bytes:
        """Exactly the bytes of a token; for a mark, its text; for an id without a token, "<#id>"."""
        text = self._tokens[token] if 0 <= token < self.vocab else None
        if text is None:
            return f"<#{token}>".encode()
        if token in self.added:
            mark = self.added[token]
            # Gemma adds runs of spaces and newlines as tokens
            spaces = self._spaced and mark not in self._special
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
        """True if the folder brought a chat template."""
        return self.templates.source is not None

    def typed_marks(self, text: str, *, chat: bool = False) -> list[str]:
        """The marks in `text`, a prompt or a message of a chat, which are read as text there; in their order."""
        marks = (text[a:b] for a, b in self._marks_in(text)) if chat else self._pattern.findall(text)
        return list(dict.fromkeys(marks))

    def chat(self, messages: Conversation | list[dict[str, Any]]) -> list[int]:
        """Ids of a conversation ({"role": ..., "content": ...}) up to where the model answers, by the folder's template.

        The template's marks become marks; the same strings inside a message, a tool or a document stay text. Raises ValueError
        without template.
        """
        talk = Conversation(messages) if isinstance(messages, list) else messages
        source = self.templates.select(talk.template, talk.tools is not None)
        if not talk.messages:
            raise ValueError("A conversation without a message has no answer; give one.")
        words = self.template_words(talk)
        words["messages"] = fit_messages(source, words)
        fence = Fence.of(self._marks_in, "\0".join([source, *strings(words)]))
        fenced = {**words, **{name: fence.put(words[name]) for name in ("messages", *FENCED, *talk.options)}}
        if not fence.marks:
            return self._marks_tokenizer.encode(render(source, words)).ids
        texts = render_each(source, [words, fenced])
        if isinstance(texts[0], TemplateError):
            raise texts[0]
        text, spans = ("", []) if isinstance(texts[1], TemplateError) else fence.take(texts[1])
        if text != texts[0]:
            shown = ", ".join(map(repr, sorted(fence.marks)[:3]))
            raise TemplateError(
                f"The chat template changes what it writes when a message holds {shown}; leave that out."
            )
        return self._with_typed(text, spans, fence.begin)

    def chat_each(self, turns: Sequence[str]) -> list[list[int]]:
        """The ids of `chat` for each of these turns of a user alone: the template runs once for many of them."""
        conversations = [Conversation.of_turn(turn) for turn in turns]
        source, ids = self.templates.source, dict[int, list[int]]()
        plain = [i for i, x in enumerate(turns) if source is not None and not self._marks_in(x)]
        for at in range(0, len(plain), RENDERED):
            some = plain[at : at + RENDERED]
            texts = render_each(source or "", [self.template_words(conversations[i]) for i in some])
            for i, text in zip(some, texts, strict=True):
                if isinstance(text, TemplateError):
                    raise text
                ids[i] = self._marks_tokenizer.encode(text).ids
        return [ids[i] if i in ids else self.chat(x) for i, x in enumerate(conversations)]

    def _with_typed(self, text: str, spans: list[Span], free: str) -> list[int]:
        """Ids of a rendered chat. The marks at `spans` are text, all others are marks. `free` is not in the text."""
        inert, names = self._inert_tokenizer
        cuts = [(a, b, names[mark]) for a, b, mark in self._read_as_marks(mask_spans(text, spans, free))]
        return inert.encode(replace_spans(text, cuts)).ids

    def _marks_in(self, text: str) -> list[Span]:
        """Where a message holds what would be read as a mark of the template."""
        spans = [x.span() for x in pattern_of(self._controls).finditer(text)]
        # other spellings, which the normalizer makes alike
        read = self._read_as_marks(text) if self._normalized else []
        return merge_spans(spans, ((a, b) for a, b, _ in read))

    def _read_as_marks(self, text: str) -> list[tuple[int, int, str]]:
        """Begin and end of each mark that the library finds in `text`, and the mark, without the spaces that it strips."""
        whole, marks = self._marks_tokenizer.encode(text, offsets=True), []
        for at, (begin, end) in zip(whole.ids, whole.offsets, strict=True):
            mark, part = self.added.get(at, ""), text[begin:end]
            if mark in self._controls and (at not in self._unknown or mark in part):
                inner = part.find(mark)
                first, length = (
                    (inner, len(mark)) if inner >= 0 else (len(part) - len(part.lstrip()), len(part.strip()))
                )
                marks.append((begin + first, begin + first + length, mark))
        return marks

    def template_words(self, talk: Conversation) -> dict[str, Any]:
        """The variables of a template: the names of `apply_chat_template`, and the special tokens by theirs."""

        def clean(value: Any) -> Any:
            return map_strings(value, lambda text: _HALF.sub("\ufffd", text))

        messages = [{k: v for k, v in x.items() if v is not None} for x in clean([*talk.messages])]
        given = {
            "messages": [_with_reasoning(x) for x in messages],
            "tools": clean(talk.tools),
            "documents": clean(talk.documents),
            "add_generation_prompt": talk.asks,
        }
        return {**given, **self._named, **clean(dict(talk.options))}

    @cached_property
    def turn_ends(self) -> list[int]:
        """Added tokens that the chat template writes between an answer and the next question; none if it cannot be seen."""
        asked, answer = ({"role": "user", "content": x} for x in (_ASKED, _ANSWERED))
        turns = [{**asked, "content": "x"}, {**answer, "role": "assistant"}, asked]
        try:
            source, words = self.templates.source, self.template_words(Conversation(turns, asks=False))
            text = "" if source is None else render(source, words)
        except TemplateError:
            return []
        between = (
            text[text.rfind(_ANSWERED) + len(_ANSWERED) : max(0, text.rfind(_ASKED))]
            if _ANSWERED in text
            else ""
        )
        ids = self._marks_tokenizer.encode(between).ids
        return [x for x in ids if self.added.get(x, "").strip("▁ \n\t")]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Finds special tokens by their text."""
        return pattern_of(self._special)

    @cached_property
    def _controls(self) -> frozenset[str]:
        """Added tokens that stay text in a message: the special ones, and those that the template writes, as in transformers
        with sanitize_control_tokens; chat_control_tokens names these."""
        source, listed = self.templates.source or "", self._config.get("chat_control_tokens")
        plain = {*self.added.values()} - {*self._special}
        if isinstance(listed, list):
            return frozenset(self._special) | {x for x in plain if x in listed}
        return frozenset(self._special) | {x for x in plain if x in source and not x.isspace()}

    @cached_property
    def _marks_tokenizer(self) -> TextEncoder:
        """The same tokenizer, reading marks as marks."""
        return TextEncoder(self._spec, self._trial)

    @cached_property
    def _inert_tokenizer(self) -> tuple[TextEncoder, dict[str, str]]:
        """The same tokenizer with secret names for its marks, and these names by mark."""
        spec, names = rename_marks(self._spec, sorted(self._controls))
        return TextEncoder(spec, self._trial), names

    def same_ids(self, other: Tokenizer, rows: int = _MOST_IDS) -> tuple[int, str | None, str | None] | None:
        """The first id that has another token in `other`, with both tokens; None if there is none.

        rows: of the larger model: ids from there on are never read or written
        """
        if not (ids := self.differing_ids(other, rows)):
            return None
        ours, theirs = ((x._tokens[ids[0]] if ids[0] < x.vocab else None) for x in (self, other))
        return ids[0], ours, theirs

    def differing_ids(self, other: Tokenizer, rows: int = _MOST_IDS) -> list[int]:
        """The ids that have another token in `other`, ascending. rows: as in `same_ids`"""
        if self._tokens[:rows] == other._tokens[:rows]:
            return []
        length = min(max(self.vocab, other.vocab), rows)
        ours, theirs = (x._tokens[:length] + [None] * (length - x.vocab) for x in (self, other))
        return [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]

    def is_mark_or_free(self, token: int) -> bool:
        """Whether an id is that of a special token, or of none."""
        return token in self.marks or token >= self.vocab or self._tokens[token] is None

    def shared_ids(self, other: Tokenizer) -> list[tuple[int, int]]:
        """(id here, id in `other`) of every token that both have, ascending: the same bytes, and a mark in both or in neither.

        No id is in two pairs. If several ids of one tokenizer have the same bytes, as "A" and the byte token <0x41> have, the
        byte token comes last.
        """
        if other not in self._shared:
            theirs = other._ids_by_text
            pairs = (
                zip(ids, theirs[key], strict=False) for key, ids in self._ids_by_text.items() if key in theirs
            )
            self._shared[other] = sorted(pair for some in pairs for pair in some)
        return self._shared[other]

    @cached_property
    def _ids_by_text(self) -> dict[tuple[bytes, bool], list[int]]:
        """(bytes, whether it is a mark) -> the ids of such tokens, byte tokens last."""
        ids: dict[tuple[bytes, bool], list[int]] = {}
        spelled = [i for i, text in enumerate(self._tokens) if text is not None and _BYTE.fullmatch(text)]
        last = frozenset(() if self._byte_level else spelled)
        order = [*(i for i in range(self.vocab) if i not in last), *sorted(last)]
        for token in order:
            if self._tokens[token]:
                ids.setdefault((self.bytes_of(token), token in self.marks), []).append(token)
        return ids


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its reasoning under the names that templates read."""
    names = ("reasoning_content", "thinking", "reasoning")
    reasoning = next((message[x] for x in names if x in message), None)
    return (
        message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}
    )


def _has_component(part: Any, kind: str) -> bool:
    """True if a component of tokenizer.json is of this type, or holds one that is."""
    if isinstance(part, dict):
        if part.get("type") == kind:
            return True
        return any(_has_component(x, kind) for name, x in part.items() if name != "vocab")
    return isinstance(part, list) and any(_has_component(x, kind) for x in part if isinstance(x, dict))


@lru_cache(maxsize=1)
def _byte_letters() -> list[str]:
    """Byte -> its character in byte-level BPE: itself if it prints in Latin-1, else one from 256 on."""
    prints = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = [x for x in range(256) if x not in prints]
    return [chr(x) if x in prints else chr(256 + rest.index(x)) for x in range(256)]


@lru_cache(maxsize=1)
def _byte_of() -> dict[str, bytes]:
    return {letter: bytes([x]) for x, letter in enumerate(_byte_letters())}
