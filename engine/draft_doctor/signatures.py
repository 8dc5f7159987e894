"""Signatures: what the places of a pair and the results of experiments say about the cause, the most certain first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from .experiments import ExperimentResult, TemperatureFit
from .pair_checks import PairDifference
from .places import PairPlaces

LEAST_GAIN = 0.04  # of the overlap that names a cause
# the same for causes that the models' shapes speak for as well
LEAST_SHAPED_GAIN = 0.01
SHAPED = ("missing_layers", "window")
LEAST_GAIN_Z = 2.0  # standard errors of that gain, over texts; no reading gains by being wrong
LEAST_Z = 3.0  # standard errors of a difference between classes of places
SURE = 0.9  # probability from which a guess is sure
OFTEN = 0.1  # share of the guesses that must be sure before they speak for a fault
REFUSED = 0.01  # probability of the target below which a sure guess is plainly wrong
HEALTHY = 0.6  # overlap from which a draft without a fault is called healthy
SCALE = (
    1.67  # factor of the logits from which a draft is called too sharp or too flat for its divergence alone
)
LESS_KL = 1 / 3  # share of the divergence that this factor takes away
KNOWN = 0.7  # certainty that a difference of the files is the cause where drafts are bad; half of it where they are good
GAP = 0.3  # of the overlap between a class of tokens and the others
TEMPLATE_GAP = 0.15  # the same between plain prompts and the template, whose answers differ by themselves
DEAF = 0.2  # share of the target's reaction to the chat marks below which they do not reach the draft
LEAST_REACTION = 0.02  # TV: below it, the target does not care for the marks either
WEAKNESS = 0.3  # certainty of a gap that is no fault
LEAST_PLACES = 20  # of a class, or on either side of a cliff

CHECKS: dict[str, tuple[str, str]] = {
    "not_finite": (
        "the draft's logits are no numbers",
        "Run the draft in float32 or bfloat16; float16 overflows where activations are large.",
    ),
    "output_ids": (
        "the ids that the draft writes are moved",
        "Check the draft's output ids: added tokens, padding rows, the offset of a draft vocabulary.",
    ),
    "draft_vocabulary": (
        "the draft vocabulary is moved",
        "Check d2t: it holds target id minus draft id, and one row too many or too few moves all behind it.",
    ),
    "inputs": (
        "the head gets embedding and state in the wrong order",
        "Check the order of the two halves in front of the head's first matrix.",
    ),
    "norms": (
        "the head was trained with another norm",
        "Check norm_before_residual in the head's config: if it is absent, libraries differ in what they take.",
    ),
    "other_target": (
        "the head was trained on other weights of the target",
        "Load the target that the head was trained on, or train the head again on the weights that are served.",
    ),
    "tokenizer": (
        "both tokenizers split texts in different ways",
        "Compare tokenizer.json of both, merges above all; give the draft the target's, and train it with that.",
    ),
    "stale_cache": (
        "the draft's cache keeps what was refused",
        "Check what is dropped from the draft's cache after a refusal, and which positions the next tokens get.",
    ),
    "layers": (
        "the head reads states of the wrong layers",
        "Check the layer ids of the head's config: some count the input of a layer, others its output.",
    ),
    "input_ids": (
        "the ids that the draft reads are moved",
        "Check the embedding table of the draft: a row too many or too few at its front.",
    ),
    "all_ids": (
        "the draft's vocabulary is moved, embedding and head alike",
        "Check that both models use one tokenizer, and that no row was added in front of the draft's tables.",
    ),
    "place_shift": (
        "the draft guesses another place",
        "Check which position the draft's output belongs to: labels shifted twice, a root fed twice, or a missing token.",
    ),
    "temperature": (
        "the draft's distribution is too sharp or too flat",
        "Scale the draft's logits or its temperature as fitted; check a logit scale or cap that one side lacks.",
    ),
    "rope_base": (
        "rotary positions have another base",
        "Check rope_theta in the draft's config.json, and the key under which your server reads it.",
    ),
    "rope_scaling": (
        "rotary positions have another scaling",
        "Check rope_scaling (rope_parameters) in the draft's config.json: its kind and factor.",
    ),
    "window": (
        "the draft does not see far enough back",
        "Check sliding_window and layer_types in the draft's config.json, and the window of its cache.",
    ),
    "context": (
        "the draft breaks behind a position",
        "Check max_position_embeddings and the length of the draft's cache; let it read only the newest tokens.",
    ),
    "missing_layers": (
        "the draft lacks its last layers",
        "Check num_hidden_layers, and that the loader reads every layer of the file.",
    ),
    "first_token": (
        "the draft misses the first token of the text",
        "Check that the draft gets the beginning-of-text token, once, as the target does.",
    ),
    "template": (
        "the chat template does not reach the draft",
        "Compare the ids of the rendered prompt that both models get: marks left out or as text, another template.",
    ),
    "weak_template": (
        "the draft is weaker with the chat template, and nothing is broken",
        "Train it on chats that the target answered, through its template.",
    ),
    "wiring": (
        "the draft is sure and wrong",
        "Check what goes into the draft: weights of the right layer and model, order of inputs, norms.",
    ),
    "tokens": (
        "the draft is bad at one class of tokens only",
        "Compare both tokenizers on such pieces; if they agree, the draft's training texts lack them.",
    ),
    "weak": (
        "the draft is weak everywhere, and nothing is broken",
        "Train it on the target's own answers, or choose a larger draft; no setting repairs this.",
    ),
    "healthy": (
        "nothing is wrong",
        "Choose draft length and tree by the report: where drafts are refused, the models differ.",
    ),
}


@dataclass(frozen=True)
class DraftFinding:
    """A cause. certainty: in [0, 1];  evidence: one sentence with its figures;  check: what to look at;  figures: the same"""

    cause: str
    title: str
    certainty: float
    evidence: str
    check: str
    figures: Mapping[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def make_finding(cause: str, certainty: float, evidence: str, **figures: float) -> DraftFinding:
    """A finding with the title and the advice of its cause."""
    title, check = CHECKS[cause]
    return DraftFinding(cause, title, round(min(1.0, max(0.0, certainty)), 3), evidence, check, figures)


def name_causes(
    places: PairPlaces,
    experiments: Sequence[ExperimentResult],
    classes: Mapping[str, np.ndarray],
    fresh: Callable[[int], tuple[float, float] | None] = lambda position: None,
    fit: TemperatureFit | None = None,
    differences: Sequence[PairDifference] = (),
    reactions: Sequence[float] | None = None,
) -> list[DraftFinding]:
    """The causes that the evidence speaks for, the most certain first; at least one, which may be "weak" or "healthy".

    classes: name -> bool [N], the places whose token is in that class
    fresh: of a position, the mean overlap behind it of the draft as it stands, and of one that begins to read shortly before
    differences: what the files of both say
    reactions: how much the chat marks change what target and draft say, as TV; None: not known
    """
    answers = places.select(places.answer)
    findings = [*_find_overflow(answers), *_find_repairs(experiments)]
    if not any(x.certainty > 0.5 for x in findings):
        findings += _find_cliff(places, fresh)
        findings += _find_template(answers, reactions)
        findings += _find_classes(answers, {name: x[places.answer] for name, x in classes.items()})
    if fit is not None and not any(x.cause == "temperature" for x in findings):
        findings += _find_scale(fit)
    findings += _find_wiring(answers)
    findings += _judge_differences(differences, answers)
    findings.sort(key=lambda x: -x.certainty)
    return findings or [_judge_strength(answers)]


def certainty_of(z: float, share: float) -> float:
    """How sure a difference of z standard errors makes that it explains a `share` of the loss."""
    return float((1 - math.exp(-(z**2) / 8)) * math.sqrt(min(1.0, max(0.0, share))))


def _find_overflow(places: PairPlaces) -> Iterator[DraftFinding]:
    bad = float((~places.finite).mean())
    if bad:
        yield make_finding(
            "not_finite", 1.0, f"{bad:.0%} of the places have logits that are no numbers.", share=bad
        )


def _find_repairs(experiments: Sequence[ExperimentResult]) -> Iterator[DraftFinding]:
    """One finding for each cause: that of the best experiment that would repair it."""
    best: dict[str, ExperimentResult] = {}
    for x in experiments:
        if x.cause not in best or x.after > best[x.cause].after:
            best[x.cause] = x
    for x in best.values():
        z = x.gain / max(x.error, 1e-9)
        least = LEAST_SHAPED_GAIN if x.cause in SHAPED else LEAST_GAIN
        if x.gain >= least and z >= LEAST_GAIN_Z:
            yield make_finding(
                x.cause,
                certainty_of(z, x.recovered),
                f"With {x.how} the overlap is {x.after:.0%}; as it stands it is {x.before:.0%}.",
                before=x.before,
                after=x.after,
                z=z,
            )


def _find_scale(fit: TemperatureFit) -> Iterator[DraftFinding]:
    """A temperature that hardly changes the overlap here, because the target is sure, but the divergence."""
    less = 1 - fit.kl_after / max(fit.kl_before, 1e-9)
    if fit.result.before >= HEALTHY and max(fit.scale, 1 / fit.scale) >= SCALE and less >= LESS_KL:
        yield make_finding(
            "temperature",
            0.5 * less,
            f"With {fit.result.how} the divergence is {fit.kl_after:.2f} nats; as it stands it is {fit.kl_before:.2f}. "
            f"The overlap goes from {fit.result.before:.0%} to {fit.result.after:.0%}.",
            scale=fit.scale,
            kl_before=fit.kl_before,
            kl_after=fit.kl_after,
        )


def find_change(values: np.ndarray, index: np.ndarray) -> tuple[int, float, float, float] | None:
    """The position at which mean values drop most clearly: it, the mean before, the mean behind, and the drop's z.

    values, index: float and int [N]. The position with the largest z; None where too few places lie on one side of all.
    """
    order = np.argsort(index, kind="stable")
    x, at = values[order].astype(np.float64), index[order]
    n = np.arange(1, len(x))
    sums, squares = np.cumsum(x), np.cumsum(x**2)
    before, behind = sums[:-1] / n, (sums[-1] - sums[:-1]) / (len(x) - n)
    spread = squares[-1] - n * before**2 - (len(x) - n) * behind**2
    error = np.sqrt(np.maximum(spread, 1e-12) / max(1, len(x) - 2) * (1 / n + 1 / (len(x) - n)))
    z = (before - behind) / np.maximum(error, 1e-9)
    z[(n < LEAST_PLACES) | (len(x) - n < LEAST_PLACES) | (at[1:] == at[:-1])] = -np.inf
    if not len(z) or not np.isfinite(z.max()):
        return None
    k = int(z.argmax())
    return int(at[k + 1]), float(before[k]), float(behind[k]), float(z[k])


def _find_cliff(
    places: PairPlaces, fresh: Callable[[int], tuple[float, float] | None]
) -> Iterator[DraftFinding]:
    change = find_change(places.overlap, places.index)
    if change is None:
        return
    position, before, behind, z = change
    if before - behind < GAP or z < 2 * LEAST_Z or before < HEALTHY:
        return
    words = f"The overlap falls from {before:.0%} to {behind:.0%} at position {position} of the texts"
    pair = fresh(position)
    cause, tail = "window", ""
    if pair is not None:
        stands, again = pair
        cause = "context" if again - stands >= LEAST_GAIN else "window"
        tail = f"; behind it, a draft that begins to read shortly before has {again:.0%}, not {stands:.0%}"
    yield make_finding(
        cause,
        certainty_of(z / 2, (before - behind) / max(before, 1e-9)),
        f"{words}{tail}.",
        position=position,
        before=before,
        behind=behind,
        z=z,
    )


def _find_template(places: PairPlaces, reactions: Sequence[float] | None) -> Iterator[DraftFinding]:
    """Marks that change what the target says and not what the draft says; else a gap, which is a matter of training."""
    if reactions is not None and reactions[0] >= LEAST_REACTION and reactions[1] < DEAF * reactions[0]:
        target, draft = reactions
        yield make_finding(
            "template",
            0.9 * (1 - draft / target),
            f"Without the marks of the chat template the target's distributions change by {target:.0%} (TV), and the draft's "
            f"by {draft:.0%}.",
            target=target,
            draft=draft,
        )
        return
    chat, raw = places.overlap[places.chat], places.overlap[~places.chat]
    if min(len(chat), len(raw)) < LEAST_PLACES:
        return
    gap = float(raw.mean() - chat.mean())
    z = gap / max(float(np.sqrt(chat.var() / len(chat) + raw.var() / len(raw))), 1e-9)
    if gap >= TEMPLATE_GAP and z >= LEAST_Z:
        yield make_finding(
            "weak_template",
            WEAKNESS,
            f"The overlap is {raw.mean():.0%} on plain prompts and {chat.mean():.0%} on the same through the template.",
            raw=float(raw.mean()),
            chat=float(chat.mean()),
            z=z,
        )


def _find_classes(places: PairPlaces, classes: Mapping[str, np.ndarray]) -> Iterator[DraftFinding]:
    for name, rows in classes.items():
        inside, outside = places.overlap[rows], places.overlap[~rows]
        if min(len(inside), len(outside)) < LEAST_PLACES or outside.mean() < HEALTHY:
            continue
        gap = float(outside.mean() - inside.mean())
        z = gap / max(float(np.sqrt(inside.var() / len(inside) + outside.var() / len(outside))), 1e-9)
        if gap >= GAP and z >= LEAST_Z:
            yield make_finding(
                "tokens",
                min(0.6, certainty_of(z, gap)),
                f"The overlap is {inside.mean():.0%} at {name} and {outside.mean():.0%} elsewhere.",
                inside=float(inside.mean()),
                outside=float(outside.mean()),
                z=z,
            )


def _judge_differences(differences: Sequence[PairDifference], places: PairPlaces) -> Iterator[DraftFinding]:
    """A difference of the files is a fact; whether it explains the loss is not known, and the less so the smaller that is."""
    mean = float(places.overlap.mean())
    for x in differences:
        yield make_finding(x.cause, KNOWN if mean < HEALTHY else KNOWN / 2, x.evidence, overlap=mean)


def _find_wiring(places: PairPlaces) -> Iterator[DraftFinding]:
    sure = places.q_guess >= SURE
    wrong = sure & (places.p_guess < REFUSED)
    count, share = int(sure.sum()), float(wrong.sum() / max(1, sure.sum()))
    if count >= max(LEAST_PLACES / 2, OFTEN * len(sure)) and share >= 0.5:
        yield make_finding(
            "wiring",
            0.5 * share,
            f"Of {count} guesses with at least {SURE:.0%}, {share:.0%} get less than {REFUSED:.0%} from the target.",
            sure=count,
            share=share,
        )


def _judge_strength(places: PairPlaces) -> DraftFinding:
    mean = float(places.overlap.mean())
    cause = "healthy" if mean >= HEALTHY else "weak"
    words = f"The overlap is {mean:.0%}, and no other reading of the draft brings {LEAST_GAIN:.0%} more."
    return make_finding(cause, 0.5, words, overlap=mean)
