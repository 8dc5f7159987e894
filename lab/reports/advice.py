"""Advice: the effect of another length, tree, temperature or drafter on recorded drafts, by the cost model."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from decodescope.engine.core.roles import TARGET
from decodescope.engine.cost.cost import expected_tree_tokens
from decodescope.engine.cost.pass_curve import PassCurve, recorded_curve
from decodescope.engine.trace import Header
from decodescope.engine.trace.checks.decisions import telling_at
from decodescope.engine.trace.records.parts import part_description

from .deployed_clock import DeployedClock, Deployment
from .speed_curve import SpeedCurves, SpeedPoint, best_length, measure_speed
from .step_clock import AdviceData, Clock

LOOKUP = {"length": 10, "ngram": 3}  # prompt lookup with default knobs


@dataclass(frozen=True)
class Advice:
    """A suggestion. kind: length, tree, temperature, drafter, or limit (an upper bound for its kind)

    tokens: per step;  step_us: of a step;  gain: speed relative to the present one, both by the same model
    how: the command-line option, if one suffices;  why: the assumption
    """

    kind: str
    name: str
    tokens: float
    step_us: float
    gain: float
    how: str
    why: str


def drafting_payoff(header: Header, seen: AdviceData) -> str:
    """What the recorded drafts can gain over plain decoding at most, by the measured cost of a pass, in a sentence.

    Empty if the header keeps no measured curve, or no draft or no time was recorded.
    """
    curve, drafts = recorded_curve(header.pass_us, TARGET), [x for x in seen.cycles if x.depth]
    try:
        clock = Clock(header, seen)
    except ValueError:
        return ""
    rows = round(statistics.fmean(x.rows for x in drafts)) if drafts else 0
    if curve is None or not rows or not curve.covers(rows):
        return ""
    tokens = 1 + statistics.fmean(x.path for x in drafts)
    draft = clock.draft_us(statistics.fmean(x.depth for x in drafts)) / clock.verify_us(1)
    return payoff_sentence(curve, rows, tokens, draft)


def payoff_sentence(curve: PassCurve, rows: int, tokens: float, draft: float) -> str:
    """Whether passes over `rows` rows pay that yield so many tokens; draft: the time of a draft, in passes over one row."""
    cost = curve.ratio(rows) + draft
    more = f" and the draft {draft:.1f}" if draft >= 0.05 else ""
    said = f"{rows} rows cost {curve.ratio(rows):.1f} of one pass here{more}; {tokens:.1f} tokens per pass "
    if tokens <= cost:
        return said + "cannot pay."
    return said + f"are at most {tokens / cost:.2f} times as fast as plain decoding."


def advice(
    header: Header, seen: AdviceData, deployment: Deployment | None = None
) -> tuple[list[Advice], SpeedCurves, list[str]]:
    """Suggestions, the best first and limits last; speed by length and width; and sentences on what the record does not show.

    deployment: where the method shall run; None: where it was recorded
    """
    plain, telling = bool(part_description(header, "drafter").get("speaks")), telling_at(header)
    chance = "sampler" in header.method and not part_description(header, "sampler").get("greedy")
    # the residual after a rejection is what a further guess is tried against
    rest = telling is not None and telling.rest
    try:
        clock = Clock(header, seen) if deployment is None else DeployedClock(header, seen, deployment)
    except ValueError as error:
        return [], SpeedCurves(), [f"Nothing can be said about gains: {error}."]
    speed = measure_speed(seen, clock, "walk" if telling is None else telling.path)
    curve = speed.lengths
    deep = max(x.depth for x in seen.cycles)
    now = curve[deep]
    chain = all(max(x.nodes, default=0) <= 1 for x in seen.cycles)
    ways = [_best_length(curve, deep, plain)]
    notes: list[str] = []
    # where the times of the curves come from is said under them, or as a note that holds for all of the report
    (speed.sentences if deployment is None else notes).append(
        f"Times: {clock.source}." if deployment is None else clock.source
    )
    if chain:
        ways += _second_chain(seen, clock, now, plain, notes) if rest else []
        ways += _greedy_advice(seen, now) if rest and chance else []
    else:
        ways += _chain_advice(seen, clock, now, plain)
    if not part_description(header, "drafter").get("copies"):
        ways += _lookup_advice(seen, clock, now)
    ways.sort(key=lambda x: -x.gain)
    return [*ways, *_limit_advice(seen, clock, now)], speed, notes


def _best_length(curve: Sequence[SpeedPoint], deep: int, plain: bool) -> Advice:
    """plain: the drafter is a model that drafts by itself; the knobs are its own"""
    best = best_length(curve)
    why = "a guess at some depth is accepted as often, however deep the draft is"
    if best.length > deep:
        why += f"; behind depth {deep}, the deepest seen, as often as at the last ones seen"
    if best.length == 0:
        return Advice(
            "length",
            "no draft at all",
            best.tokens,
            best.step_us,
            best.gain,
            "--drafter none",
            "the same passes",
        )
    name = f"drafts up to {best.length} deep" if best.length != deep else f"the present depth, {deep}"
    how = f"--set drafter.max_draft_tokens={best.length}" if plain and best.length != deep else ""
    return Advice("length", name, best.tokens, best.step_us, best.gain, how, why)


def _second_chain(
    seen: AdviceData, clock: Clock, now: SpeedPoint, plain: bool, notes: list[str]
) -> list[Advice]:
    """A second chain in addition to the present one, from a second guess at the root."""
    if not seen.rescue:
        notes.append(
            "What a second branch would gain is unknown: no distribution is recorded where first guesses fell."
        )
        return []
    shares = _acceptance_by_depth(seen, [x.accepted for x in seen.rates])
    deep = len(seen.rates)
    levels = _mean_depth(seen)
    refused = (seen.rates[0].tested - seen.rates[0].accepted) / len(seen.cycles)
    rescue = statistics.fmean(seen.rescue)
    both = [*range(-1, deep - 1), -1, *range(deep, 2 * deep - 1)]
    tokens = expected_tree_tokens(both, [*shares, refused * rescue, *shares[1:]])
    us = clock.step_us(1 + 2 * levels, levels)
    why = (
        f"where the first guess at the root was rejected a second one would be accepted in {100 * rescue:.0f} %, by the "
        "distributions recorded there; below it things go on as below the first; both chains grow in the passes of one"
    )
    how = "--set drafter.width=2" if plain else ""
    return [
        Advice("tree", "a second chain at the root", tokens, us, _relative_speed(tokens, us, now), how, why)
    ]


def _chain_advice(seen: AdviceData, clock: Clock, now: SpeedPoint, plain: bool) -> list[Advice]:
    """Use only the first guess at each place of the tree."""
    levels = _mean_depth(seen)
    tokens = expected_tree_tokens(
        range(-1, len(seen.rates) - 1), _acceptance_by_depth(seen, [x.first for x in seen.rates])
    )
    us = clock.step_us(1 + levels, levels)
    why = "the first guess at a place is right as often as it was in the tree; a level of one node costs as much to draft"
    how = "--set drafter.width=1" if plain else ""
    return [
        Advice("tree", "a chain of the first guesses", tokens, us, _relative_speed(tokens, us, now), how, why)
    ]


def _greedy_advice(seen: AdviceData, now: SpeedPoint) -> list[Advice]:
    if not seen.agree:
        return []
    drawn, sure = statistics.fmean(seen.overlap), statistics.fmean(seen.agree)
    line = range(-1, len(seen.rates) - 1)
    then, before = (
        expected_tree_tokens(line, _acceptance_by_depth(seen, [share * x.tested for x in seen.rates]))
        for share in (sure, drawn)
    )
    gain = then / before if before > 0 else 1.0
    why = (
        f"both distributions have the same favourite at {100 * sure:.0f} % of the places; as drawn a guess is accepted in "
        f"{100 * drawn:.0f} %. The text is another one then: always the likeliest token"
    )
    return [
        Advice(
            "temperature",
            "temperature 0 (greedy)",
            gain * now.tokens,
            now.step_us,
            gain,
            "--sampler greedy",
            why,
        )
    ]


def _acceptance_by_depth(seen: AdviceData, accepted: Sequence[float]) -> list[float]:
    """P(a guess at a depth is accepted | the one above it was), by depth; a place without a guess counts as rejected.
    accepted: places at each depth where the guess in question would stay."""
    before = [len(seen.cycles), *(x.accepted for x in seen.rates)]
    return [x / n if n else 0.0 for x, n in zip(accepted, before, strict=False)]


def _mean_depth(seen: AdviceData) -> float:
    return statistics.fmean(x.depth for x in seen.cycles)


def _relative_speed(tokens: float, us: float, now: SpeedPoint) -> float:
    return tokens / us / (now.tokens / now.step_us)


def _lookup_advice(seen: AdviceData, clock: Clock, now: SpeedPoint) -> list[Advice]:
    steps, tokens, sizes = seen.looked_up
    if not steps:
        return []
    us = sum(clock.step_us(rows, 0) * count for rows, count in sizes.items()) / steps
    why = "counted on the very texts of these runs, as under exact matching; looking up takes no time"
    each = tokens / steps
    return [
        Advice(
            "drafter",
            "prompt lookup",
            each,
            us,
            _relative_speed(each, us, now),
            "--drafter prompt_lookup",
            why,
        )
    ]


def _limit_advice(seen: AdviceData, clock: Clock, now: SpeedPoint) -> list[Advice]:
    """The maximum gain of a faster drafter, and of one that is always right."""
    levels = _mean_depth(seen)
    free, right = now.step_us - clock.draft_us(levels), levels + 1
    return [
        Advice(
            "limit",
            "the same guesses in no time",
            now.tokens,
            free,
            now.step_us / free,
            "",
            "the target's side stays as it is",
        ),
        Advice(
            "limit",
            "the same drafts, always right",
            right,
            now.step_us,
            right / now.tokens,
            "",
            "the times stay",
        ),
    ]


def simulate_prompt_lookup(text: Sequence[int], prompt: int, room: int) -> tuple[int, int, Counter[int]]:
    """(steps, tokens, rows of a pass -> how many) that prompt lookup would need to write text[prompt:], matching exactly.

    It proposes up to 10 tokens that followed the latest earlier occurrence of the last 3, 2 or 1. room: the longest possible
    text of the run after the prompt.
    """
    ends: dict[tuple[int, ...], int] = {}
    entered = 0
    at = prompt
    steps = 0
    sizes: Counter[int] = Counter()
    while at < len(text):
        while entered < at - 1:
            entered += 1
            for n in range(1, min(LOOKUP["ngram"], entered) + 1):
                ends[tuple(text[entered - n : entered])] = entered
        end = next(
            (
                e
                for n in range(min(LOOKUP["ngram"], at - 1), 0, -1)
                if (e := ends.get(tuple(text[at - n : at])))
            ),
            None,
        )
        most = min(LOOKUP["length"], prompt + room - at - 1)
        copied = [] if end is None else list(text[end : min(end + most, at)])
        right = 0
        while right < len(copied) and at + right < len(text) and copied[right] == text[at + right]:
            right += 1
        steps += 1
        sizes[1 + len(copied)] += 1
        at += right + 1
    return steps, len(text) - prompt, sizes
