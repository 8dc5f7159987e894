"""State: everything that one decoding step reads and changes; Move: what a step did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from decodescope.engine.core.activity import Activity
from decodescope.engine.trace.details.looks import Look
from decodescope.engine.trace.details.shapes import Detail
from decodescope.engine.trace.records.choices import Choice
from decodescope.engine.trace.records.events import EndReason, Piece

from ..values.alphabet import Alphabet
from ..values.chance import Chance
from ..values.draft import Draft, Verdict
from .acceptance import AcceptanceRule
from .adaptive_depth import AdaptiveDepth
from .context import Context
from .drafter import Drafter
from .guidance import Guidance
from .lane import Lane
from .router import Router
from .sampler import Sampler
from .schedule import Schedule
from .unmasking import Unmasking


@dataclass
class StoppingCriteria:
    """Where a text ends: at one of `tokens` (ids), or when it contains one of `texts`.

    pieces: id -> bytes, needed for texts
    """

    tokens: frozenset[int] = frozenset()
    texts: tuple[bytes, ...] = ()
    pieces: Any = None

    def find_stop(self, before: list[int], new: list[int]) -> int | None:
        """The number of `new` tokens that remain when the text ends with one of them; None if it goes on."""
        for i, token in enumerate(new):
            if token in self.tokens:
                return i + 1
            if self.texts:
                longest = max(map(len, self.texts))
                tail = b"".join(self.pieces(t) for t in [*before[-longest:], *new[: i + 1]])
                fresh = len(self.pieces(token))
                if any(text in tail[-(longest + fresh - 1) :] for text in self.texts):
                    return i + 1
        return None


@dataclass
class State:
    """tokens: prompt and text, the last being the root, which the target has not read; prompt: how many were given.

    limit: length of text and prompt at which the context is full;  limited_by: the model and the key that set it, in words
    scratch: what the strategy keeps between its steps
    encode: text -> its ids, without a prefix;  piece: id -> its text, or bytes of one; None without a tokenizer
    alphabet: the text of ids, as samplers get it; None without a tokenizer
    did: what the parts did so far
    """

    tokens: list[int]
    prompt: int
    max_new: int
    limit: int
    stop: StoppingCriteria
    target: Lane
    lanes: dict[str, Lane]
    drafter: Drafter
    acceptance: AcceptanceRule
    adaptive_depth: AdaptiveDepth
    sampler: Sampler
    sampler_state: Any
    chance: Chance
    scratch: Any = None
    encode: Callable[[str], list[int]] | None = None
    schedule: Schedule = field(default_factory=Schedule)
    unmasking: Unmasking = field(default_factory=Unmasking)
    router: Router = field(default_factory=Router)
    guidance: Guidance = field(default_factory=Guidance)
    piece: Callable[[int], Piece] | None = None
    alphabet: Alphabet | None = None
    limited_by: str = ""
    did: Activity = field(default_factory=Activity)

    @property
    def remaining_tokens(self) -> int:
        """Tokens that may still be emitted."""
        return min(self.max_new - (len(self.tokens) - self.prompt), self.limit - len(self.tokens))

    @property
    def room(self) -> int:
        """Tokens that may be guessed in this step. None may if a policy will cut after the prompt's last token: that token is
        read alone, so that everything written reads the cut cache."""
        return (
            0
            if self.target.policy.once and self.target.prompt is not None
            else max(0, self.remaining_tokens - 1)
        )

    @property
    def context(self) -> Context:
        """The drafter's view of this state."""
        return Context(
            self.tokens,
            self.target,
            self.lanes,
            self.drafter.draft_sampler(self.sampler),
            self.sampler_state,
            self.chance,
            self.room,
            self.prompt,
            self.encode,
            self.schedule,
            self.target.shown,
        )

    def chunk_callback(self, role: str) -> Callable[[int, int], None]:
        """The function to call before each chunk of the prompt that the lane of `role` reads, with the number of tokens read
        and their total. What it raises ends the reading."""
        return lambda read, of: None

    def limit_reason(self, written: int) -> EndReason | None:
        """Why a text with `written` more tokens than now would end; None: it may go on."""
        if written < self.remaining_tokens:
            return None
        return (
            "max_new_tokens" if len(self.tokens) - self.prompt + written >= self.max_new else "context_full"
        )

    def cut(self, emitted: list[int]) -> tuple[int, EndReason | None]:
        """The number of `emitted` tokens that remain, and why the text ends there, if it does."""
        count = min(len(emitted), self.remaining_tokens)
        reason = self.limit_reason(count)
        stop = self.stop.find_stop(self.tokens[self.prompt :] if self.stop.texts else [], emitted[:count])
        return (stop, "stop_token") if stop is not None else (count, reason)


@dataclass
class Move:
    """What one step of a strategy did, before it becomes a record.

    emitted, origins: tokens added to the text, and where each came from
    logits: float [N + 1, V] of the step's target pass, for records that show distributions
    end:    why the text is complete, if it is
    notes:  what the strategy records of the step, if it drafts nothing (`tells`)
    looks:  distributions or states computed in addition to the passes, to decide
    """

    emitted: list[int]
    origins: list[str]
    end: EndReason | None = None
    draft: Draft | None = None
    verdict: Verdict | None = None
    logits: Tensor | None = None
    draft_us: float = 0.0
    verify_us: float = 0.0
    commit_us: float = 0.0
    details: list[Detail] | None = None
    looks: list[Look] | None = None
    choices: list[Choice] | None = None
    notes: dict[str, Any] | None = None
    sampler_state: Any = field(default=None)
