"""Trace signatures: why drafts were refused, from recorded runs alone, the most certain cause first.

The draft doctor (`engine/draft_doctor`) can read a draft again with one thing changed. Here the models are not at hand. So a
cause is named only if what was recorded looks like it and like nothing else that is known, and what a trace lacks is named.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.engine.core.roles import DRAFTS
from decodescope.engine.trace import Header
from decodescope.engine.trace.query.draft_findings import (
    GAP,
    HEALTHY,
    LEAST_GAIN,
    LEAST_PLACES,
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

from .trace_places import CLASSES, TINY, PlaceDistributions, PlaceLog, TriedPlace, raise_distribution

BAD = HEALTHY / 2  # share of kept places below which drafts are bad there
BAD_PLACE = HEALTHY / 4  # the same of the first or the later places, where the others are good
SHARE = 0.3  # of the wrong guesses that must have one distance of ids, or be the token of one other place
OFTENER = 3.0  # how many times as often as at the places further away
LEAST_TOKENS = 5  # different tokens that must show a distance: one that is often repeated does not count
NEAR = 8  # ranks that count as near
SCALES = np.exp(np.linspace(np.log(0.2), np.log(5.0), 81))
LEAST_SCALE = 1.25  # factor from which a scale is named
LEAST_DIVERGENCE = 0.02  # nats, below which a scale is not fitted


@dataclass(frozen=True)
class TraceDiagnosis:
    """What recorded runs say. findings: the most certain first;  lacking: sentences on what was not recorded"""

    findings: list[DraftFinding]
    lacking: list[str]


@dataclass(frozen=True)
class ScaleFit:
    """scale: s that minimises KL(p || q^s);  before, after: that divergence at s = 1 and there, in nats

    kept, scaled: about how often a guess drawn from q, or from q^s, is accepted
    agree: share of the places at which both have the same likeliest token, which no scale changes
    """

    scale: float
    before: float
    after: float
    kept: float
    scaled: float
    agree: float


def diagnose(log: PlaceLog) -> TraceDiagnosis:
    """Name the causes that the tried places of some runs speak for; at least one, which may be "weak" or "healthy"."""
    rows = log.rows
    if len(rows) < LEAST_PLACES:
        few = f"Only {len(rows)} places were tried, and {LEAST_PLACES} are needed to name a cause: record longer runs."
        return TraceDiagnosis([], [few])
    passed = np.array([x.passed for x in rows], float)
    findings = [*_find_id_distance(log), *_find_place_shift(log)]
    if not findings:
        findings += [*_find_cliff(log, passed), *_find_depth(log, passed), *_find_classes(log, passed)]
    findings += [*_find_temperature(log), *_find_independence(log, passed)]
    if not any(x.cause in ("output_ids", "draft_vocabulary", "place_shift") for x in findings):
        findings += _find_wiring(log)
    findings.sort(key=lambda x: -x.certainty)
    findings = findings or [_judge_strength(log, passed)]
    return TraceDiagnosis(findings, _list_lacking(log, findings))


def _find_id_distance(log: PlaceLog) -> Iterator[DraftFinding]:
    """A constant distance between a token that came and one of the draft's best, where the guess was wrong.

    Where the draft's best are recorded, the token that it meant is among them more often than first. A draft without a fault
    has the token itself there (distance 0), so another distance must be seen much more often than this one.
    """
    wrong = [x for x in log.rows if x.came != x.guess]
    if len(wrong) < LEAST_PLACES:
        return
    for words, guesses in (
        ("", [(x.guess,) for x in wrong]),
        (" one of the draft's best", [(x.guess, *x.best) for x in wrong]),
    ):
        counts = Counter(
            y for x, ids in zip(wrong, guesses, strict=True) for y in {x.came - id for id in ids}
        )
        distance = max(counts, key=lambda y: (counts[y] if y else 0, -abs(y)))
        share = counts[distance] / len(wrong)
        usual = max((n for y, n in counts.items() if y != distance), default=0) / len(wrong)
        hits = {x.came for x, ids in zip(wrong, guesses, strict=True) if x.came - distance in ids}
        if share >= SHARE and share >= OFTENER * usual and len(hits) >= LEAST_TOKENS:
            have = f"have{words} with an id" if words else "have an id"
            yield make_finding(
                "output_ids",
                float(min(0.9, share + 0.2)),
                f"Of {len(wrong)} wrong guesses, {share:.0%} {have} that is {abs(distance)} too "
                f"{'small' if distance > 0 else 'large'}. A wrong map of a draft vocabulary (d2t) looks the same.",
                distance=float(distance),
                share=float(share),
            )
            return
    yield from _find_row_distance(log, wrong)


def _find_row_distance(log: PlaceLog, wrong: Sequence[TriedPlace]) -> Iterator[DraftFinding]:
    """A map of a head's draft vocabulary that is moved by one row: the draft writes the next id that it can write.

    Its ids have gaps, so the distance is not constant. But between the token that came and the guess, there is no id that the
    draft ever writes.
    """
    if not log.heads:
        return
    known = np.array(sorted({y for x in log.rows for y in (x.guess, *x.best)}))
    came, guess = np.array([(x.came, x.guess) for x in wrong]).T
    above, below = np.searchsorted(known, came, "right"), np.searchsorted(known, came, "left")
    hits: dict[int, np.ndarray] = {}
    for rows, at in ((-2, below - 2), (-1, below - 1), (1, above), (2, above + 1)):
        inside = (at >= 0) & (at < len(known))
        hits[rows] = inside & (known[at.clip(0, len(known) - 1)] == guess)
    shares = {rows: float(hit.mean()) for rows, hit in hits.items()}
    best = max((-1, 1), key=lambda x: shares[x])
    own = float(np.mean([x.came in x.best for x in wrong]))  # a draft without a fault has the token there
    usual = max(own, *(share for rows, share in shares.items() if rows != best))
    different = len({*came[hits[best]].tolist()})
    if shares[best] >= SHARE and shares[best] >= OFTENER * usual and different >= LEAST_TOKENS:
        yield make_finding(
            "draft_vocabulary",
            float(min(0.9, shares[best] + 0.2)),
            f"Of {len(wrong)} wrong guesses, {shares[best]:.0%} are the next id that the draft can write "
            f"{'below' if best < 0 else 'above'} the token that came, at varying distances.",
            rows=float(best),
            share=shares[best],
        )


def _find_place_shift(log: PlaceLog) -> Iterator[DraftFinding]:
    """Wrong guesses that are the token of the place before or after."""
    wrong = [x for x in log.rows if x.came != x.guess]
    hits: dict[int, float] = {}
    for offset in (-2, -1, 1, 2):
        there = [
            log.texts[x.run].ids[x.position + offset] == x.guess
            for x in wrong
            if 0 <= x.position + offset < len(log.texts[x.run].ids)
        ]
        if len(there) < LEAST_PLACES:
            return
        hits[offset] = float(np.mean(there))
    best = max((-1, 1), key=lambda x: hits[x])
    usual = max(value for offset, value in hits.items() if offset != best)
    if hits[best] >= SHARE and hits[best] >= OFTENER * usual:
        where = "before" if best < 0 else "after"
        yield make_finding(
            "place_shift",
            min(0.9, hits[best] + 0.2),
            f"Of {len(wrong)} wrong guesses, {hits[best]:.0%} are the token of the place {where}; {usual:.0%} are that of "
            "another place near.",
            offset=float(best),
            share=hits[best],
        )


def _find_cliff(log: PlaceLog, passed: np.ndarray) -> Iterator[DraftFinding]:
    """A position of the text, or a length of the prompt, from which on guesses are refused."""
    for cause, index, words in (
        ("context", np.array([x.position for x in log.rows]), "at position {} of the texts"),
        (
            "long_prompts",
            np.array([log.texts[x.run].start for x in log.rows]),
            "from prompts of {} tokens on",
        ),
    ):
        change = find_change(passed, index)
        if change is None:
            continue
        at, before, behind, z = change
        if before - behind >= GAP and z >= 2 * LEAST_Z and before >= HEALTHY:
            yield make_finding(
                cause,
                certainty_of(z / 2, (before - behind) / before),
                f"Kept places fall from {before:.0%} to {behind:.0%} {words.format(at)}. A short window looks the same.",
                position=float(at),
                before=before,
                behind=behind,
                z=z,
            )
            return


def _find_depth(log: PlaceLog, passed: np.ndarray) -> Iterator[DraftFinding]:
    """The first place of the drafts differs from the later ones."""
    first = np.array([x.depth == 1 for x in log.rows])
    gap = compare_means(passed[~first], passed[first])
    if gap is None:
        return
    difference, z, later, early = gap
    # later places are reached only after kept ones, in easier text: a gap alone says nothing
    if abs(z) >= LEAST_Z and min(early, later) < BAD_PLACE and max(early, later) >= HEALTHY:
        yield make_finding(
            "first_place" if difference > 0 else "later_places",
            WEAKNESS if difference < 0 else min(0.6, certainty_of(z, difference)),
            f"Of first places {early:.0%} are kept, of later ones that were reached {later:.0%}.",
            first=early,
            later=later,
            z=z,
        )


def _find_classes(log: PlaceLog, passed: np.ndarray) -> Iterator[DraftFinding]:
    members = np.array(log.classes, bool)
    for k, name in enumerate(CLASSES):
        gap = compare_means(passed[~members[:, k]], passed[members[:, k]])
        if gap is None:
            continue
        difference, z, outside, inside = gap
        if difference >= GAP and z >= LEAST_Z and outside >= HEALTHY:
            yield make_finding(
                "tokens",
                min(0.6, certainty_of(z, difference)),
                f"Of {name}, {inside:.0%} are kept, and of other tokens {outside:.0%}.",
                inside=inside,
                outside=outside,
                z=z,
            )


def _find_temperature(log: PlaceLog) -> Iterator[DraftFinding]:
    fit = fit_scale(log.fits)
    if fit is None:
        return
    less = 1 - fit.after / max(fit.before, 1e-9)
    apart, gain = max(fit.scale, 1 / fit.scale), fit.scaled - fit.kept
    # noise looks like sharpness to the divergence alone; a scale that is the cause brings tokens back
    repairs = gain >= LEAST_GAIN and apart >= LEAST_SCALE
    stands_out = gain >= 0 and fit.kept >= HEALTHY and apart >= SCALE and less >= LESS_KL
    if fit.before < LEAST_DIVERGENCE or fit.agree < HEALTHY or not (repairs or stands_out):
        return
    word = "hot (flat)" if fit.scale > 1 else "cold (sharp)"
    if log.proposals <= {"onehot"}:
        effect = (
            f"A drawn draft would be kept in about {fit.scaled:.0%} instead of {fit.kept:.0%}; a greedy one chooses the same "
            "tokens at every temperature."
        )
    else:
        effect = (
            f"Drafting at T/{fit.scale:.1f} would have kept about {fit.scaled:.0%} instead of {fit.kept:.0%}."
        )
    yield make_finding(
        "temperature",
        0.3 + 0.5 * less,
        f"The draft is too {word}: with s = {fit.scale:.2f} in q^s the divergence is {fit.after:.2f} nats; as it stands it is "
        f"{fit.before:.2f}. {effect}",
        scale=fit.scale,
        kl_before=fit.before,
        kl_after=fit.after,
    )


def fit_scale(places: Sequence[PlaceDistributions]) -> ScaleFit | None:
    """The s with the least KL(p || q^s), over the tokens that both distributions show and the rest; None: too few places.

    What the draft's other tokens have is an estimate (`raise_distribution`). So the scale and how much would be kept are too.
    """
    of_use = [x for x in places if len(x.p) >= 2 and x.p.sum() > 0.5]
    if len(of_use) < LEAST_PLACES:
        return None
    divergence, kept = np.zeros(len(SCALES)), np.zeros(len(SCALES))
    for place in of_use:
        q, q_rest = (
            np.maximum(x, TINY) for x in raise_distribution(place.logq, place.rest, SCALES / place.heat)
        )
        p_rest = max(1 - float(place.p.sum()), TINY)
        p = np.maximum(place.p, TINY)
        divergence += (p * np.log(p / q)).sum(1) + p_rest * np.log(p_rest / q_rest)
        kept += np.minimum(place.p, q).sum(1)
    agree = float(np.mean([x.p.argmax() == x.logq.argmax() for x in of_use]))
    divergence, kept = divergence / len(of_use), kept / len(of_use)
    best, one = int(divergence.argmin()), len(SCALES) // 2  # the middle one is 1
    return ScaleFit(
        scale=float(SCALES[best]),
        before=float(divergence[one]),
        after=float(divergence[best]),
        kept=float(kept[one]),
        scaled=float(kept[best]),
        agree=agree,
    )


def _find_independence(log: PlaceLog, passed: np.ndarray) -> Iterator[DraftFinding]:
    """Distributions that agree, and guesses that are refused as if they had been drawn without regard to each other."""
    known = np.array([x.overlap is not None for x in log.rows])
    if known.sum() < LEAST_PLACES:
        return
    overlap = float(np.mean([x.overlap for x in log.rows if x.overlap is not None]))
    kept = float(passed[known].mean())
    if overlap >= HEALTHY and kept < overlap - GAP:
        yield make_finding(
            "independent",
            0.7,
            f"The distributions overlap by {overlap:.0%}, so lossless verification would keep as many; {kept:.0%} were kept.",
            overlap=overlap,
            kept=kept,
        )


def _find_wiring(log: PlaceLog) -> Iterator[DraftFinding]:
    known = [(x.q, x.p) for x in log.rows if x.p is not None and x.q is not None]
    return find_wiring(*np.array(known, float).reshape(-1, 2).T)


def _judge_strength(log: PlaceLog, passed: np.ndarray) -> DraftFinding:
    """No fault was named: the draft is healthy, weak, or so far from the target that a fault must be looked for."""
    kept = float(passed.mean())
    ranks = np.array([x.rank for x in log.rows if x.rank is not None and not x.passed])
    near = float((ranks <= NEAR).mean()) if len(ranks) >= LEAST_PLACES else None
    words = f"{kept:.0%} of {len(passed)} tried places were kept."
    if near is not None:
        words += f" Where a draft was refused, the token that came was among its {NEAR} best in {near:.0%}."
    if kept < BAD and near is not None and near < 0.5:
        return make_finding("unrelated", 0.5, words, kept=kept, near=near)
    return make_finding(
        "healthy" if kept >= HEALTHY else "weak", 0.4, f"{words} Nothing looks like a known fault.", kept=kept
    )


def _list_lacking(log: PlaceLog, findings: Sequence[DraftFinding]) -> list[str]:
    """What these traces cannot show, each in a sentence, and how to record it where that is possible."""
    lacking = []
    count, seen = len(log.rows), log.with_draft_tops
    if seen < count:
        where = f" at {count - seen} of {count} places" if seen else ""
        lacking.append(
            f"Not recorded{where}: the draft's own distribution; so its temperature, ranks and how sure it was are unknown. "
            "Copied drafts have none, and traces before schema 2.1 keep none of one-hot drafts: record those runs again."
        )
    if log.hidden:
        lacking.append(
            f"Not recorded at {log.hidden} of {count} places: the target's own distribution, since a sampler that follows the "
            "text, or guidance, changed it; so the draft's temperature is not fitted there. Record a greedy run."
        )
    if log.heads and any(x.cause == "unrelated" for x in findings):
        lacking.append(
            "Not recorded: the map of the head's draft vocabulary (d2t). If it is moved by several rows, the ids have no "
            "constant distance, and no trace can show it: run the doctor with both models."
        )
    if all(x.overlap is None for x in log.rows):
        lacking.append("Not recorded: both distributions after the sampler, which only drawn drafts have.")
    if len({x.start for x in log.texts}) < 2:
        lacking.append(
            "Not recorded: prompts of different lengths; so an effect of long prompts cannot be seen."
        )
    if len({x.chat for x in log.texts}) < 2:
        lacking.append("Not recorded: runs with and without the chat template; so its effect cannot be seen.")
    return lacking


@dataclass(frozen=True)
class DraftSource:
    """What drafted in a run. role: of the draft model;  head: kind of the head, if no model drafted"""

    role: str = ""
    head: str = ""


def find_draft_source(header: Header) -> DraftSource | None:
    """The draft model of a run, the first of several, or the draft head; None if neither drafted."""
    role = next((x for x in header.lanes if x in DRAFTS), "")
    heads = header.model.get("head_fingerprints")
    if role:
        return DraftSource(role)
    return DraftSource(head=str(next(iter(heads)))) if isinstance(heads, dict) and heads else None


def doctor_command(header: Header) -> str:
    """The command line of the draft doctor for the models of a run, which needs both at hand; "" if nothing drafts."""
    source = find_draft_source(header)
    if source is None:
        return ""
    if source.role:
        draft = f"--draft {shlex.quote(str(header.lanes[source.role].get('name', '')))}"
    else:
        draft = f"--head {shlex.quote(source.head)}=HEAD"
    model = shlex.quote(str(header.model.get("name", "MODEL")))
    return f"decodescope doctor draft --model {model} {draft} --prompts FILE"
