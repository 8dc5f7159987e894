"""Signatures: what the places of a pair and the results of experiments say about the cause, the most certain first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from decodescope.engine.trace.query.draft_findings import (
    GAP,
    HEALTHY,
    LEAST_GAIN,
    LEAST_Z,
    LESS_KL,
    SCALE,
    WEAKNESS,
    DraftFinding,
    certainty_of,
    compare_means,
    find_change,
    find_wiring,
    make_finding,
)

from .experiments import ExperimentResult, TemperatureFit
from .pair_checks import PairDifference
from .places import PairPlaces

# the same for causes that the models' shapes speak for as well
LEAST_SHAPED_GAIN = 0.01
SHAPED = ("missing_layers", "window")
LEAST_GAIN_Z = 2.0  # standard errors of that gain, over texts; no reading gains by being wrong
KNOWN = 0.7  # certainty that a difference of the files is the cause where drafts are bad; half of it where they are good
TEMPLATE_GAP = 0.15  # the same between plain prompts and the template, whose answers differ by themselves
DEAF = 0.2  # share of the target's reaction to the chat marks below which they do not reach the draft
LEAST_REACTION = 0.02  # TV: below it, the target does not care for the marks either


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
    findings += find_wiring(answers.q_guess, answers.p_guess)
    findings += _judge_differences(differences, answers)
    findings.sort(key=lambda x: -x.certainty)
    return findings or [_judge_strength(answers)]


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
    gap = compare_means(places.overlap[~places.chat], places.overlap[places.chat])
    if gap is not None and gap.difference >= TEMPLATE_GAP and gap.z >= LEAST_Z:
        yield make_finding(
            "weak_template",
            WEAKNESS,
            f"The overlap is {gap.first:.0%} on plain prompts and {gap.second:.0%} on the same through the template.",
            raw=gap.first,
            chat=gap.second,
            z=gap.z,
        )


def _find_classes(places: PairPlaces, classes: Mapping[str, np.ndarray]) -> Iterator[DraftFinding]:
    for name, rows in classes.items():
        gap = compare_means(places.overlap[~rows], places.overlap[rows])
        if gap is None or gap.first < HEALTHY:
            continue
        if gap.difference >= GAP and gap.z >= LEAST_Z:
            yield make_finding(
                "tokens",
                min(0.6, certainty_of(gap.z, gap.difference)),
                f"The overlap is {gap.second:.0%} at {name} and {gap.first:.0%} elsewhere.",
                inside=gap.second,
                outside=gap.first,
                z=gap.z,
            )


def _judge_differences(differences: Sequence[PairDifference], places: PairPlaces) -> Iterator[DraftFinding]:
    """A difference of the files is a fact; whether it explains the loss is not known, and the less so the smaller that is."""
    mean = float(places.overlap.mean())
    for x in differences:
        yield make_finding(x.cause, KNOWN if mean < HEALTHY else KNOWN / 2, x.evidence, overlap=mean)


def _judge_strength(places: PairPlaces) -> DraftFinding:
    mean = float(places.overlap.mean())
    cause = "healthy" if mean >= HEALTHY else "weak"
    words = f"The overlap is {mean:.0%}, and no other reading of the draft brings {LEAST_GAIN:.0%} more."
    return make_finding(cause, 0.5, words, overlap=mean)
