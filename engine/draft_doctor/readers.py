"""Readers: a draft that reads a whole text at once, as it stands or with one thing changed."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec, Rope
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.heads.base import Head, RotaryPart
from decodescope.engine.model.heads.drafting.dflash import DFlashNet
from decodescope.engine.model.heads.drafting.draft_vocabulary import DraftVocabularyHead, fused_layers
from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer
from decodescope.engine.model.heads.drafting.shift import head_shifts
from decodescope.engine.model.heads.drafting.slot_tokens import SlotTokens
from decodescope.engine.model.layers.rope import shared_rope_table
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.training.guesses import head_guesses, head_logits
from decodescope.engine.training.target import DecoderTarget, ModelStates

from .texts import DoctorError


class TextReader(Protocol):
    """Reads a text teacher-forced."""

    def read(self, ids: Sequence[int]) -> tuple[int, Tensor]:
        """The index of the first token that is guessed, and float32 logits [rows, V] of it and of those after it."""
        ...


class ModelReader:
    """A draft model as it stands. shift_in: is added to the ids that it reads;  again: it reads the first token twice"""

    def __init__(self, decoder: Decoder, shift_in: int = 0, again: bool = False) -> None:
        self.decoder = decoder
        self.shift_in, self.again = shift_in, again

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> tuple[int, Tensor]:
        """Logits of the tokens 1 to T, the last of which the text does not hold."""
        top = self.decoder.vocab - 1
        tokens = [*ids[:1], *ids] if self.again else list(ids)
        tokens = [min(max(x + self.shift_in, 0), top) for x in tokens]
        logits = self.decoder.forward(Feed.causal_chain(tokens, 0, self.decoder.device), None)[0].float()
        return 1, logits[1:] if self.again else logits


class HeadReader:
    """A draft head's first guess: every row gets the text, and the target's states, up to where it guesses.

    layer_shift: how many layers further on the states are taken that a head reads from inside the target
    """

    def __init__(self, decoder: Decoder, head: Head, layer_shift: int = 0) -> None:
        try:
            head_shifts(head.kind)
        except ValueError as error:
            raise DoctorError(f"The doctor cannot read this head: {error}") from None
        if isinstance(head, SlotTokens):
            raise DoctorError(
                f"The doctor cannot read a head of the kind {head.kind}, whose tokens the target reads: give another."
            )
        if isinstance(head, DFlashNet) and head.mask_embedding is None:
            raise DoctorError(
                f"The doctor cannot read {head.kind} nets that take their masks from the target's embedding: give one of ours."
            )
        if head.shape.get("before_norm"):
            raise DoctorError(
                "The doctor cannot read a module that takes the target's state before the final norm: give another head."
            )
        self.decoder, self.head = decoder, head
        self.target = DecoderTarget(decoder)
        self.layer_shift = layer_shift

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> tuple[int, Tensor]:
        """Logits of the tokens that it guesses first; ids outside a draft vocabulary get minus infinity."""
        head, states = self.head, self._states(ids)
        if isinstance(
            head, Eagle3Layer
        ):  # published ones may have several layers, which training does not unroll
            shift = head_shifts(head.kind)[0]
            features = head(
                head.enter(shift.align(states.fused, 0)), shift.align(states.embedded, shift.reads[0])
            )
        else:
            shift, features = head_guesses(head, states)[0]
        return shift.says, head_logits(self.target, head, features)[0].float()

    def _states(self, ids: Sequence[int]) -> ModelStates:
        """The target's values for a text, as this head is given them."""
        head, target = self.head, self.target
        tokens = torch.tensor([list(ids)], device=target.device)
        fused = (
            head.places(target.n_layers)
            if isinstance(head, DraftVocabularyHead)
            else fused_layers(target.n_layers)
        )
        early = head.shape.get("layer", 0)
        inner = {x: self._moved(x) for x in (early, *fused) if x != "final"}
        states, feature = target.read(tokens, list(inner.values()))
        at: dict[int | Literal["final"], Tensor] = dict(zip(inner, states, strict=True))
        at["final"] = feature
        embedded, feature = target.embed(tokens).float(), feature.float()
        if head.own_embed is not None:
            embedded = F.embedding(tokens, head.own_embed).float()
        return ModelStates(
            tokens, embedded, at[early].float(), feature, torch.cat([at[x] for x in fused], -1).float()
        )

    def _moved(self, layer: int) -> int:
        return min(max(layer + self.layer_shift, 0), self.target.n_layers - 1)


class RolledReader:
    """Another reader whose output ids are all moved by `shift`."""

    def __init__(self, inner: TextReader, shift: int) -> None:
        self.inner, self.shift = inner, shift

    def read(self, ids: Sequence[int]) -> tuple[int, Tensor]:
        """Its logits; what it says of id x counts for id x + shift."""
        first, logits = self.inner.read(ids)
        return first, logits.roll(self.shift, -1)


class ListRolledReader:
    """A head whose draft vocabulary is read `shift` entries further on."""

    def __init__(self, inner: TextReader, kept: Tensor, shift: int) -> None:
        self.inner = inner
        self.kept, self.shift = kept, shift

    def read(self, ids: Sequence[int]) -> tuple[int, Tensor]:
        """Its logits; what it says of entry k of the draft vocabulary counts for entry k + shift."""
        first, logits = self.inner.read(ids)
        moved = logits.new_full(logits.shape, float("-inf"))
        moved[:, self.kept.roll(-self.shift)] = logits[:, self.kept]
        return first, moved


def with_rope(decoder: Decoder, rope: Rope) -> Decoder:
    """The same model, with shared weights, whose positions are rotated by `rope`."""
    other = copy.copy(decoder)
    other.spec = replace(decoder.spec, rope=rope)
    other.rope = shared_rope_table(rope, decoder.spec.max_positions, decoder.dtype, decoder.device)
    other.local_rope = other.rope if decoder.spec.local_rope is None else decoder.local_rope
    return other


def with_windows(decoder: Decoder, windows: tuple[int | None, ...]) -> Decoder:
    """The same model, with shared weights, whose layers see that far back; none: everything."""
    other = copy.copy(decoder)
    other.spec = replace(decoder.spec, windows=windows)
    return other


def with_last_layers(decoder: Decoder, target: Decoder) -> Decoder:
    """The draft with the target's last layers behind its own, as many as it lacks, in the draft's type."""
    other = copy.copy(decoder)
    last = [x.to(dtype=decoder.dtype, device=decoder.device) for x in target.layers[len(decoder.layers) :]]
    other.layers = [*decoder.layers, *last]
    other.spec = replace(decoder.spec, n_layers=len(other.layers))
    return other


def with_head_flag(head: Eagle3Layer, key: str) -> Eagle3Layer:
    """The same head, with shared weights, whose `key` (0 or 1 in its shape, without tensors of its own) is the other one."""
    other = copy.copy(head)
    other.shape = {**head.shape, key: 1 - head.shape[key]}
    return other


def with_swapped_inputs(head: Head) -> Head | None:
    """A copy of a head whose first matrices have the columns of embedding and state in the other order; None if it has none."""
    tensors = dict(head.tensors())
    names = [f"attention.{x}.weight" for x in "qkv"] if isinstance(head, Eagle3Layer) else ["fuse.weight"]
    width = 2 * head.shape["d"] if "d" in head.shape else 0
    names = [x for x in names if x in tensors and tensors[x].shape[1] == width]
    for name in names:
        tensors[name] = tensors[name].roll(width // 2, 1)
    return head.with_tensors(tensors) if names else None


def with_head_base(head: Head, theta: float) -> Head:
    """A copy of a head whose positions are rotated with the base `theta`, unscaled."""
    other = head.copy_to(dtype=head.dtype)
    for part in other.modules():
        if isinstance(part, RotaryPart):
            part.rope = Rope(theta, part.rope.dim)
    return other


class StepReader:
    """A draft model that reads a text from token `start` on in steps, as it drafts: each step brings the next token and one
    guess behind it, which is refused and dropped from the cache. steps: how many, at most"""

    def __init__(self, decoder: Decoder, start: int, steps: int) -> None:
        self.decoder = decoder
        self.start, self.steps = start, steps

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> tuple[int, Tensor]:
        """Logits of the tokens behind `start`."""
        decoder = self.decoder
        cache = KVCache(decoder.spec, dtype=decoder.dtype, device=decoder.device)
        decoder.forward(Feed.causal_chain(list(ids[: self.start]), 0, decoder.device), cache)
        cache.commit(range(self.start))
        rows = []
        for at in range(self.start, min(self.start + self.steps, len(ids) - 1)):
            refused = (ids[at + 1] + 1) % decoder.vocab
            logits = decoder.forward(Feed.causal_chain([ids[at], refused], at, decoder.device), cache)
            cache.commit([0])
            rows.append(logits[0, 0].float())
        return self.start + 1, torch.stack(rows)


def rope_choices(own: ModelSpec, target: ModelSpec) -> list[Rope]:
    """Other rotations that a draft may have been trained with: the target's, other bases, other scalings, no scaling."""
    rope, plain = own.rope, Rope(own.rope.theta, own.rope.dim)
    if rope.kind == "longrope":
        return []
    theirs = replace(target.rope, dim=rope.dim) if target.rope.kind != "longrope" else plain
    bases = [1e4, 1e5, 5e5, 1e6, rope.theta / 10, rope.theta / 4, rope.theta * 4, rope.theta * 10]
    choices = [theirs, plain, *(replace(rope, theta=x) for x in bases)]
    for factor in (2.0, 4.0, 8.0):
        choices.append(replace(plain, kind="linear", factor=factor))
        long = own.max_positions / factor if own.max_positions / factor >= 64 else own.max_positions
        amplitude = 0.1 * math.log(factor) + 1
        choices.append(
            replace(plain, kind="yarn", factor=factor, original_positions=int(long), amplitude=amplitude)
        )
    return [x for x in dict.fromkeys(choices) if x != rope]


def describe_rope(rope: Rope) -> str:
    """A rotation in a few words."""
    scaling = "no scaling" if rope.kind == "default" else f"{rope.kind} scaling by {rope.factor:g}"
    return f"base {rope.theta:g}, {scaling}"


def align_vocabulary(logits: Tensor, vocabulary: int) -> Tensor:
    """Log-probabilities [rows, vocabulary] of logits [rows, V]: ids that are lacking get minus infinity."""
    logp = logits.log_softmax(-1)
    lacking = vocabulary - logp.shape[-1]
    return F.pad(logp, (0, lacking), value=float("-inf")) if lacking > 0 else logp[:, :vocabulary]
