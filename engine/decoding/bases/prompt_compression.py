"""PromptContext: what of a prompt the target reads. Reading: what it may look at before that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.component import Component, param
from decodescope.engine.core.probe import Needs
from decodescope.engine.model.attention.extra_kv import ExtraEmbeds, ExtraState
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.trace.records.events import Cut, Pass, Piece

from .lane import ComputedEmbeds, Lane, temporary_lane

SCORES = 1 << 16  # tokens of a prompt whose scores a trace keeps
LEAST_KEPT = 16  # minimum tokens from a share of a short prompt


@dataclass
class UnreadPrompt:
    """A prompt before it is read.

    tokens:  its ids, as they were given
    open:    a lane of its own for the model of a role, "target" or one of the context's `lanes`, with these needs
    between: called between two chunks that a lane reads, with the number of tokens read and their total; may raise
    decoder: the target's model
    piece:   id -> its piece of text, if there is a tokenizer;  marks: ids of its special tokens
    front:   what the model reads before a text: its own begin mark, or one that ends texts, or nothing
    passes:  of the lanes so far;  held_bytes: the most that the cache of a lane held, measured from its storages
    """

    tokens: list[int]
    open: Callable[[str, Needs], Lane]
    between: Callable[[str], Callable[[int, int], None]]
    decoder: Decoder
    piece: Callable[[int], Piece] | None = None
    marks: frozenset[int] = frozenset()
    front: list[int] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    held_bytes: int = 0

    @contextmanager
    def lane(self, role: str, needs: Needs | None = None) -> Iterator[Lane]:
        """A lane that reads the prompt only to look at it: its cache is gone when this is left, before the target reads."""
        with temporary_lane(self.open(role, needs or Needs())) as lane:
            try:
                yield lane
            finally:
                self.passes += lane.take_passes()
                self.held_bytes = max(self.held_bytes, lane.cache.nbytes)


class PromptCompression(Component):
    """Base of every prompt compression. It sees the prompt before the target reads it, and may leave tokens out. The tokens
    that stay are read at consecutive positions, and the text goes on after them. So drafters that search the text, samplers
    that count in it and policies all see what the model read. The trace's header keeps the prompt as it was given.

    It may also insert something into the text where there is no token: `vectors`, which are read as inputs of the first layer
    and become entries without tokens, or `states`, which replace entries. Positions, scores and counts are those of the text.

    lossless: True if the target's distribution is unchanged;  changes: why not
    """

    kind = "prompt_compression"
    lossless: ClassVar[bool] = False
    changes: ClassVar[str] = "the prompt is shortened"

    def describe(self) -> dict[str, Any]:
        return {} if self.lossless else {"changes": self.changes}

    def extra_entries(self, decoder: Decoder) -> int:
        """Entries without tokens that it puts into a text, at most: so much less of the context is left for the text."""
        return 0

    def begin(self, prompt: int) -> None:
        """Called once before anything is read, with the length of the prompt. A share of it becomes tokens here, in the knobs,
        so that the trace's header records both. A second call with as many tokens changes nothing."""

    @property
    def budget(self) -> int | None:
        """The most tokens of a prompt that are read; None: there is no such number."""
        return None

    def idle_reason(self, did: Activity) -> str:
        if self.lossless or did.left_out or did.added:
            return ""
        why = "its rule left nothing out" if self.budget is None else f"its budget is {self.budget}"
        return f"{self.name} changed nothing: all {did.prompt} tokens of the prompt were read, {why}."

    def cut(self, reading: UnreadPrompt) -> Cut | None:
        """The part of the prompt that the target reads, always with the last token; None: all of it."""
        return None

    def vectors(self, reading: UnreadPrompt) -> Sequence[ExtraEmbeds | ComputedEmbeds]:
        """The vectors inserted into the text that the target reads, in text order; called after `cut`."""
        return ()

    def states(self, decoder: Decoder) -> Sequence[ExtraState]:
        """What every row attends to in addition to all entries, from the prompt's first token on."""
        return ()


def share_knob() -> Any:
    """The knob `share_knob` of a prompt compression with a budget; `tokens_from_share` converts it."""
    meaning = "tokens to read, as a share of the prompt; 0: the fixed number applies"
    return param(0.0, low=0.0, high=1.0, step=0.01, unit="of the prompt", help=meaning)


def tokens_from_share(share: float, prompt: int) -> int:
    """Tokens for `share_knob` of a prompt of `prompt` tokens: rounded down, at least LEAST_KEPT."""
    return max(LEAST_KEPT, int(share * prompt + 1e-9))  # 0.29 * 100 must give 29 despite rounding
