"""Experiments: the draft read again with one thing changed, and how much of the overlap that brings back."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.heads.drafting.eagle3 import Eagle3Layer

from .places import LogitSample, PairPlaces, finite_logits, overlap_of, read_overlaps
from .readers import (
    HeadReader,
    ListRolledReader,
    ModelReader,
    RolledReader,
    StepReader,
    TextReader,
    align_vocabulary,
    describe_rope,
    rope_choices,
    with_head_base,
    with_head_flag,
    with_last_layers,
    with_rope,
    with_swapped_inputs,
    with_windows,
)
from .texts import DoctorText

SHIFTS = 3  # the most frequent distances between ids that are tried
SCREENED = 2  # texts on which every reading is tried first
CONFIRMED = 4  # best readings that are tried on all texts
SCALES = (0.2, 5.0)  # range of the fitted temperature
ROUNDS = 24  # of the golden section, which leaves 1e-5 of the range
EARLY = 8  # tokens at the beginning of a text, where a first token that is missing shows most
STEPS = 24  # of a text that is read in steps
BASES = (1e4, 1e5, 5e5, 1e6)  # of rotary positions, as models have them
FLAGS = {  # of EAGLE-3 heads, without tensors of their own
    "norm_before_residual": "the attention's output added to the state {not}normed",
    "norm_output": "the output fed back {not}normed",
}


@dataclass(frozen=True)
class ChangedReading:
    """A draft that is read with one thing changed. cause: key of the fault that this would repair;  how: in words"""

    cause: str
    how: str
    reader: TextReader


@dataclass(frozen=True)
class ExperimentResult:
    """What a changed reading did: mean overlap on the same answers before and after.

    error: standard error of the difference of the texts' means, wider for few texts
    reader: the draft that was read so, if it can draft
    """

    cause: str
    how: str
    before: float
    after: float
    error: float
    reader: TextReader | None = field(default=None, compare=False, repr=False)

    @property
    def gain(self) -> float:
        """How much the overlap grew."""
        return self.after - self.before

    @property
    def recovered(self) -> float:
        """The share of the lost overlap that came back, in [0, 1]."""
        return max(0.0, self.gain) / max(1 - self.before, 1e-9)


@dataclass(frozen=True)
class TemperatureFit:
    """scale: s that minimises KL(p || q^s);  kl_before, kl_after: nats at s = 1 and there;  result: of the overlap"""

    scale: float
    kl_before: float
    kl_after: float
    result: ExperimentResult


def frequent_shifts(places: PairPlaces) -> list[int]:
    """The most frequent distances from the draft's guess to the target's likeliest id, among the wrong guesses."""
    wrong = ~places.right
    shifts, counts = np.unique(places.wanted[wrong] - places.guess[wrong], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:SHIFTS]
    return [int(x) for x in shifts[order]]


def list_head_readings(reader: HeadReader, places: PairPlaces) -> list[ChangedReading]:
    """What can be changed of a head: its output ids, the states that it reads, and where its draft vocabulary begins."""
    decoder, head = reader.decoder, reader.head
    rows = _moved_outputs(reader, places)
    if (exchanged := with_swapped_inputs(head)) is not None:
        how = "embedding and state in the other order"
        rows.append(ChangedReading("inputs", how, HeadReader(decoder, exchanged)))
    if isinstance(head, Eagle3Layer) or "layer" in head.shape:
        for shift in (-1, 1):
            moved = HeadReader(decoder, head, layer_shift=shift)
            how = f"states taken {abs(shift)} layer {'later' if shift > 0 else 'earlier'}"
            rows.append(ChangedReading("layers", how, moved))
    if theta := head.shape.get("theta"):
        for base in dict.fromkeys((decoder.spec.rope.theta, *BASES)):
            if base != theta:
                other = HeadReader(decoder, with_head_base(head, base))
                rows.append(ChangedReading("rope_base", f"rotary positions with base {base:g}", other))
    if isinstance(head, Eagle3Layer):
        for key, words in FLAGS.items():
            how = words.replace("{not}", "not " if head.shape[key] else "")
            flipped = HeadReader(decoder, with_head_flag(head, key))
            rows.append(ChangedReading("norms", f"{key} = {1 - head.shape[key]}, {how}", flipped))
        for shift in (-1, 1):
            how = f"the draft vocabulary (d2t) moved by {shift:+d}"
            rows.append(ChangedReading("draft_vocabulary", how, ListRolledReader(reader, head.ids, shift)))
    return rows


def list_model_readings(draft: Decoder, target: Decoder, places: PairPlaces) -> list[ChangedReading]:
    """What can be changed of a draft model: ids read and written, rotation, windows, missing layers."""
    rows = _moved_outputs(ModelReader(draft), places)
    for shift in (-1, 1):
        reads = ModelReader(draft, shift_in=shift)
        rows.append(ChangedReading("input_ids", f"ids that it reads moved by {shift:+d}", reads))
        rows.append(
            ChangedReading(
                "all_ids",
                f"ids that it reads moved by {shift:+d}, and back in what it writes",
                RolledReader(reads, -shift),
            )
        )
    for rope in rope_choices(draft.spec, target.spec):
        cause = "rope_base" if rope == replace(draft.spec.rope, theta=rope.theta) else "rope_scaling"
        rows.append(
            ChangedReading(
                cause, f"rotary positions with {describe_rope(rope)}", ModelReader(with_rope(draft, rope))
            )
        )
    if any(draft.spec.windows):
        rows.append(
            ChangedReading(
                "window", "no sliding window", ModelReader(with_windows(draft, target.spec.windows))
            )
        )
    lacking = target.spec.n_layers - draft.spec.n_layers
    shape = ("d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff")
    if lacking > 0 and all(getattr(draft.spec, x) == getattr(target.spec, x) for x in shape):
        rows.append(
            ChangedReading(
                "missing_layers",
                f"the target's last {lacking} of {target.spec.n_layers} layers put behind its own",
                ModelReader(with_last_layers(draft, target)),
            )
        )
    return rows


def _moved_outputs(reader: TextReader, places: PairPlaces) -> list[ChangedReading]:
    return [
        ChangedReading("output_ids", f"ids that it writes moved by {x:+d}", RolledReader(reader, x))
        for x in frequent_shifts(places)
    ]


def try_readings(
    target: TextReader,
    draft: TextReader,
    changed: Sequence[ChangedReading],
    texts: Sequence[DoctorText],
    say: Callable[[str], None] = lambda text: None,
) -> list[ExperimentResult]:
    """The results of the readings that help most, on all texts, the best first.

    Every reading is tried on a few texts of different prompts first; the best go on to all.
    """
    say(f"reading the draft in {len(changed)} other ways")
    few = sorted(texts, key=lambda x: -len(x.ids))[:SCREENED]
    screened = np.nanmean(read_overlaps(target, [x.reader for x in changed], few), 1)
    best = [changed[i] for i in np.argsort(-screened, kind="stable")[:CONFIRMED]]
    say(f"trying the best {len(best)} on all {len(texts)} texts")
    before, *after = read_overlaps(target, [draft, *(x.reader for x in best)], texts)
    results = [
        replace(compare_overlaps(x.cause, x.how, before, row), reader=x.reader)
        for x, row in zip(best, after, strict=True)
    ]
    return sorted(results, key=lambda x: -x.after)


def try_first_token(
    target: TextReader, draft: ModelReader, texts: Sequence[DoctorText]
) -> ExperimentResult | None:
    """The first token read twice, judged by the first few tokens of the texts; None where all texts are shorter."""
    short = [DoctorText(x.ids[: EARLY + 1], 1, x.chat) for x in texts if len(x.ids) > EARLY]
    if not short:
        return None
    rows = read_overlaps(target, [draft, ModelReader(draft.decoder, again=True)], short)
    return compare_overlaps(
        "first_token", f"the first token read twice, at the first {EARLY} places of a text", *rows
    )


def try_steps(target: TextReader, draft: ModelReader, texts: Sequence[DoctorText]) -> ExperimentResult:
    """One pass over a text compared with steps in which a guess is refused, by place, on a few texts."""
    before, after = list[np.ndarray](), list[np.ndarray]()
    for text in sorted(texts, key=lambda x: x.start - len(x.ids))[:SCREENED]:
        _, rows = target.read(text.ids)
        first, steps = StepReader(draft.decoder, text.start, STEPS).read(text.ids)
        _, whole = draft.read(text.ids)
        known = rows[first - 1 : first - 1 + len(steps)].log_softmax(-1)
        for logits, means in ((steps, before), (whole[first - 1 : first - 1 + len(steps)], after)):
            q, _ = finite_logits(logits)
            means.append(overlap_of(known, align_vocabulary(q, known.shape[-1])).cpu().numpy())
    how = "one pass over the text instead of steps with a refused token in each"
    return compare_overlaps("stale_cache", how, np.concatenate(before), np.concatenate(after))


def mark_reactions(
    readers: Sequence[TextReader], texts: Sequence[DoctorText], marks: Container[int]
) -> list[float] | None:
    """How much the special marks of chat prompts matter to each reader: mean TV, on the answers, of what it says with and
    without them. None where no text has a prompt with marks.
    """
    sums, count = [0.0 for _ in readers], 0
    for text in (x for x in texts if x.chat):
        kept = [i for i, x in enumerate(text.ids) if i >= text.start or x not in marks]
        gone = len(text.ids) - len(kept)
        if not gone or gone >= text.start:
            continue
        bare = [text.ids[i] for i in kept]
        for k, reader in enumerate(readers):
            first, whole = reader.read(text.ids)
            _, less = reader.read(bare)
            rows = len(text.ids) - text.start
            p = finite_logits(whole[text.start - first :][:rows])[0].log_softmax(-1)
            q = finite_logits(less[text.start - gone - first :][:rows])[0].log_softmax(-1)
            sums[k] += float((1 - overlap_of(p, q)).sum())
        count += len(text.ids) - text.start
    return [max(0.0, x / count) for x in sums] if count else None


def widen_for_few(n: int, z: float = 2.0) -> float:
    """How much wider than z standard errors the interval of the same level is for n values, by Student's t.

    The quantile by Fisher's expansion (Abramowitz and Stegun 1964, 26.7.5): within 1 % from 4 values on, too small below.
    """
    v = n - 1
    terms = (
        (z**3 + z) / (4 * v),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3),
    )
    return 1 + sum(terms) / z


def compare_overlaps(cause: str, how: str, before: np.ndarray, after: np.ndarray) -> ExperimentResult:
    """The result of paired means or places, float [n] each; NaN where there is none."""
    both = np.isfinite(before) & np.isfinite(after)
    difference = after[both] - before[both]
    n = len(difference)
    error = float(difference.std(ddof=1) / np.sqrt(n)) * widen_for_few(n) if n > 1 else float("inf")
    return ExperimentResult(cause, how, float(before[both].mean()), float(after[both].mean()), error)


def try_offsets(places: PairPlaces, offsets: Sequence[int]) -> list[ExperimentResult]:
    """The draft's distributions compared with the target's a place or two away, from the reading as it stands."""
    rows, centre = places.select(places.answer), offsets.index(0)
    return [
        compare_overlaps(
            "place_shift",
            f"each distribution held against the target's {abs(o)} place{'s' * (abs(o) > 1)} "
            f"{'later' if o > 0 else 'earlier'}",
            rows.shifted[:, centre],
            rows.shifted[:, k],
        )
        for k, o in enumerate(offsets)
        if o
    ]


def fit_temperature(sample: LogitSample) -> TemperatureFit:
    """Fit the scale s that minimises KL(p || q^s), and compare the overlap; q^s has its logits multiplied by s.

    s below 1: the draft is too sharp, and its temperature 1/s is too low by that factor. The divergence is convex in s, so a
    golden section finds its minimum.
    """
    usable = (sample.q > float("-inf")).all(-1)
    p, q = (sample.p[usable], sample.q[usable]) if usable.any() else (sample.p, sample.q.clamp(min=-30.0))
    low, high = SCALES
    weights = p.exp()
    fixed = (weights * q).sum(-1)  # cross entropy is -s * fixed + log of the sum of exp(s q)

    def divergence(s: float) -> float:
        return float(((q * s).logsumexp(-1) - s * fixed).mean())

    golden = (5**0.5 - 1) / 2
    for _ in range(ROUNDS):
        left = high - golden * (high - low)
        right = low + golden * (high - low)
        if divergence(left) < divergence(right):
            high = right
        else:
            low = left
    s = (low + high) / 2
    before = overlap_of(p, q).cpu().numpy()
    after = overlap_of(p, (q * s).log_softmax(-1)).cpu().numpy()
    result = compare_overlaps("temperature", f"its logits multiplied by {s:.2f}", before, after)
    entropy = -float(torch.where(weights > 0, weights * p, torch.zeros_like(p)).sum(-1).mean())
    return TemperatureFit(s, divergence(1.0) - entropy, divergence(s) - entropy, result)
