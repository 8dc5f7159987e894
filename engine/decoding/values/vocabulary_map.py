"""Vocabulary map: between the ids of the target and those of a model with another tokenizer."""

from __future__ import annotations

import codecs
from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from decodescope.engine.core.prefix import common_prefix

if TYPE_CHECKING:
    from decodescope.engine.model.checkpoint.tokenizer import Tokenizer

WINDOW = 64  # bytes at the end of a text that are encoded again when it grows
BEHIND = 8  # tokens of the text that a continuation is encoded with, at most


class VocabularyMap:
    """Two tokenizers, the target's and a model's own, and the tokens that both have (`Tokenizer.shared_ids`).

    vocab:  V, how many ids of the target count;  own_vocab: how many own ones
    size:   how many tokens both have
    """

    def __init__(self, target: Tokenizer, own: Tokenizer, vocab: int, own_vocab: int):
        self.target = target
        self.own = own
        self.vocab = vocab
        self.own_vocab = own_vocab
        pairs = [(x, y) for x, y in target.shared_ids(own) if x < vocab and y < own_vocab]
        self.size = len(pairs)
        self._own_id = dict(pairs)
        self._target_id = {y: x for x, y in pairs}
        self._places = (
            torch.tensor(pairs, dtype=torch.long, device="cpu").reshape(-1, 2).T
        )  # [2, size]: the target's ids, the own ones

    def __deepcopy__(self, memo: object) -> VocabularyMap:
        return self

    def own_id(self, token: int) -> int | None:
        """The own id of the target's `token`; None: the model has no such token."""
        return self._own_id.get(token)

    def target_id(self, own: int) -> int | None:
        """The target's id of an own one; None: the target has no such token."""
        return self._target_id.get(own)

    def to_target_logits(self, logits: Tensor) -> Tensor:
        """float [..., V]: own logits [..., own_vocab] at the target's ids; -inf where the model has no such token."""
        if self._places.device != logits.device:
            self._places = self._places.to(logits.device)
        ids, own = self._places
        return logits.new_full((*logits.shape[:-1], self.vocab), -torch.inf).index_copy_(
            -1, ids, logits[..., own]
        )

    def to_target_tokens(self, tokens: list[int], own: list[int]) -> list[int]:
        """The target's ids of what the model wrote after a text with the target's `tokens`, in own ids, up to its first mark.

        That mark is the last one, if the target has it too.
        """
        marks = self.own.marks
        cut = next((i for i, x in enumerate(own) if x in marks), len(own))
        ids = self.encode_continuation(tokens, b"".join(map(self.own.bytes_of, own[:cut])))
        mark = self.target_id(own[cut]) if cut < len(own) else None
        return ids if mark is None else [*ids, mark]

    def encode_continuation(self, tokens: list[int], data: bytes) -> list[int]:
        """The target's ids of `data`, the bytes that follow its `tokens`.

        They are encoded together with the last of these, so that both are cut where the target's tokenizer cuts them. If it
        would then cut the tokens themselves in another way, fewer of them are taken, in the end none. Half a character at the
        end for which the target has no tokens is left out.
        """
        target = self.target
        for count in range(min(BEHIND, len(tokens)), -1, -1):
            tail = tokens[len(tokens) - count :]
            if not target.marks.isdisjoint(tail):
                continue
            try:
                ids = target.encode_bytes(b"".join(map(target.bytes_of, tail)) + data)
            except ValueError:
                break
            if ids[:count] == tail:
                return list(takewhile(lambda x: x < self.vocab, ids[count:]))
        whole = whole_characters(data)
        return self.encode_continuation(tokens, whole) if len(whole) < len(data) else []


def whole_characters(data: bytes) -> bytes:
    """`data` without the half character at its end, if there is one."""
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    reader.decode(data)
    half = len(reader.getstate()[0])
    return data[: len(data) - half]


class TranslatedText:
    """A growing text of the target, in the ids of a model with another tokenizer.

    The model reads what its own tokenizer makes of the text, after the ids that it puts before every text. A mark of the target
    is the same mark where the model has one, and else left out. Half a character at the end becomes byte tokens. When the text
    grows, its last WINDOW bytes are encoded again from a space on, since a token may merge with what follows; so the model's
    cache stays good up to there.
    """

    def __init__(self, vocabulary: VocabularyMap):
        self.vocabulary = vocabulary
        self._restart()

    def _restart(self) -> None:
        self._tokens: list[int] = []
        self._ids: list[int] = list(self.vocabulary.own.front)
        self._run = b""  # the text after the last mark
        self._run_ids: list[int] = []
        self._readable = True  # the model has tokens for what the run ends with

    def encode(self, tokens: list[int]) -> list[int]:
        """The own ids of a text of the target; none if it ends with half a character that the model has no tokens for."""
        if common_prefix(self._tokens, tokens) < len(self._tokens):
            self._restart()
        target = self.vocabulary.target
        fresh: list[bytes] = []
        for token in tokens[len(self._tokens) :]:
            if token in target.marks:
                self._grow(b"".join(fresh))
                self._close(token)
                fresh = []
            else:
                fresh.append(target.bytes_of(token))
        self._tokens = list(tokens)
        return [*self._ids, *self._run_ids] if self._grow(b"".join(fresh)) else []

    def _close(self, mark: int) -> None:
        """End the run with a mark."""
        own = self.vocabulary.own_id(mark)
        self._ids += self._run_ids
        if own is not None and [own] != self._ids:  # the model's tokenizer has put it there already
            self._ids.append(own)
        self._run, self._run_ids = b"", []
        self._readable = True

    def _grow(self, more: bytes) -> bool:
        """Add bytes to the run and encode its end again; False if they end with half a character without tokens."""
        if not more:
            return self._readable
        own, run = self.vocabulary.own, self._run + more
        whole = whole_characters(run)
        kept, size = self._stable()
        ids, half = self._run_ids[:kept] + self._encode(whole[size:], first=not kept), list[int]()
        self._readable = True
        try:
            half = own.encode_bytes(run[len(whole) :])
        except ValueError:
            self._readable = False
        self._run, self._run_ids = run, [*ids, *half]
        return self._readable

    def _encode(self, data: bytes, first: bool) -> list[int]:
        """Own ids of the whole characters of a run or of its end; bytes that are none become byte tokens if there are any."""
        own = self.vocabulary.own
        try:
            if first:
                return own.encode_plain(data.decode("utf-8"))
        except UnicodeDecodeError:
            pass
        try:
            return own.encode_bytes(data)
        except ValueError:
            return own.encode_plain(data.decode("utf-8", "replace"))

    def _stable(self) -> tuple[int, int]:
        """How many of the run's ids stay when it grows, and the bytes of the run that they cover."""
        own, size = self.vocabulary.own, 0
        texts: list[bytes] = []
        for back, token in enumerate(reversed(self._run_ids), 1):
            texts.append(own.bytes_of(token))
            size += len(texts[-1])
            if size >= WINDOW and texts[-1][:1].isspace():
                exact = self._run.endswith(b"".join(reversed(texts)))
                return (len(self._run_ids) - back, len(self._run) - size) if exact else (0, 0)
        return 0, 0
