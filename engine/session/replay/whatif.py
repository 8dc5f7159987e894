"""What if: a verdict of a recorded step derived again, with another draw, rule, temperature or choice at a tie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from decodescope.engine.core.component import build
from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.bases.acceptance import AcceptanceRule, NotRecordedError
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.decoding.record.commit_verdict import emitted_tokens
from decodescope.engine.decoding.values.draft import ROOT, Draft, Trial, Verdict
from decodescope.engine.methods.samplers.chain import chain_samplers
from decodescope.engine.methods.samplers.temperature import set_temperature
from decodescope.engine.trace.encoding.forks import method_at
from decodescope.engine.trace.records.events import Header, Step

from ..method import Method
from .recall import NOBODY, GuardedChance, Recall, ReplayedChance, seed_and_draw_counts

TIES = {"first": "the likeliest, the lowest id among equal ones", "second": "the second of the two best"}
GONE = 1e-9  # a sum of other tokens below it is nothing


class NeedsRunError(ValueError):
    """The question cannot be answered from the record. One sentence: what is missing, and that a fork would answer it."""


@dataclass(frozen=True)
class WhatIfChange:
    """The requested change; None: as recorded.

    u: of the test of the node, or of the draw of the target's token; ties: "second": where the two best logits were closer than
    rounding, the other one is chosen
    """

    u: float | None = None
    rule: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    temperature: float | None = None
    ties: str | None = None


@dataclass
class DerivedVerdict:
    """The derived verdict.

    trials: those that follow from the record, from the first;  path: as far as it is known
    token, origin: of the target's own token; None where it is not known, or where the text ends before it
    missing: the unknown part, as a sentence; empty: nothing
    """

    trials: list[Trial]
    path: list[int]
    token: int | None
    origin: str
    u: float | None
    emitted: list[int]
    origins: list[str]
    lines: list[str]
    missing: str


def derive(
    header: Header,
    before: Sequence[Step],
    step: Step,
    node: int,
    change: WhatIfChange,
    read: int | None = None,
) -> DerivedVerdict:
    """Derive the step `step` with `change`.

    node: a drafted node, or the number of drafted nodes: the target's own token
    before: the steps before it, at least as many as reach its positions;  read: how many tokens of the prompt the target read,
            None: all

    Raises NeedsRunError, ParamError.
    """
    method = Method.from_record(method_at(header, step.step))
    _check_derivable(header, method, step, change)
    count = 0 if step.draft is None else len(step.draft.tokens)
    if not 0 <= node <= count or (node == count and step.extra is None):
        raise ParamError(
            f"node = {node}: the step has {count + (step.extra is not None)} nodes besides the root."
        )
    if change.u is not None and not 0 <= change.u <= 1:
        raise ParamError(f"u = {change.u:g}: must lie in [0, 1].")
    if change.ties not in (None, *TIES):
        raise ParamError(f"ties = {str(change.ties)[:20]!r}: choose one of {', '.join(TIES)}.")
    case = _Case(header, before, step, method, len(header.prompt) if read is None else read)
    case.rederive()
    return case.with_change(node, change)


def _check_derivable(header: Header, method: Method, step: Step, change: WhatIfChange) -> None:
    """Raise NeedsRunError where there is nothing to derive from."""
    if "decisions" not in header.levels:
        raise NeedsRunError(
            "The run was recorded without its decisions, so none can be derived again: record it at “decisions”."
        )
    if not method.strategy.verdicts:
        raise NeedsRunError(
            f"{method.strategy.name} decides in another way than by tests of a draft: run it with another setting."
        )
    if step.forced:
        raise NeedsRunError(
            "Verdicts of this step were forced, so they follow from nothing: choose another step, or fork."
        )
    if step.tops is None or header.parent is not None:
        raise NeedsRunError(
            "The record lacks this step's distributions, or the draws before it: fork to see what would follow."
        )
    if method.sampler.greedy and change.u is not None:
        raise NeedsRunError(
            "Under a greedy sampler nothing is drawn, so there is no u: fork with a temperature to see draws."
        )


class _Case:
    """A step, and the numbers that the run drew in it."""

    def __init__(self, header: Header, before: Sequence[Step], step: Step, method: Method, read: int):
        self.header = header
        self.step = step
        self.method = method
        self.read = read
        self.seed, self.uses = seed_and_draw_counts(header, before, step)
        self.before = before[-1] if before else None

    def rederive(self) -> None:
        """Check that the record follows from itself. Raises NeedsRunError."""
        verdict = self._verdict(self.method.acceptance, self.method.sampler, None, {}, {})
        t, cut = self.step.trials, self.step.extra is None
        due = [] if t is None else list(zip(t.node, t.ok, t.u, strict=True))
        same = [(x.node, x.ok, x.u) for x in verdict.trials] == due
        path = verdict.path[: len(self.step.path or [])] if cut else verdict.path
        token = self.step.extra is None or verdict.token in (self.step.extra.token, NOBODY)
        if not (same and path == (self.step.path or []) and token):
            raise NeedsRunError(
                "The record of this step does not hold enough to derive even what happened again (several rejections, or "
                "a rule that looks at whole distributions): fork to see what would follow, or record the run at the level "
                "“full”."
            )

    def with_change(self, node: int, change: WhatIfChange) -> DerivedVerdict:
        """The verdict with `change`."""
        rule, lines = self.method.acceptance, []
        if change.rule is not None or change.settings:
            rule = _rule(change, rule, self.step)
            lines.append(
                f"Judged by {rule.title}" + "".join(f", {k} = {v}" for k, v in rule.knobs().items()) + "."
            )
        sampler, heat = self._sampler_at(change.temperature)
        if change.temperature is not None:
            lines.append(
                f"The target's distribution is taken at T = {change.temperature:g}; the draft stays as it was drawn."
            )
        other = self._tie_choices(change.ties, lines)
        draws: dict[Any, float] = {}
        u = None if change.u is None else min(change.u, 1 - 2.0**-53)  # the largest that is ever drawn
        count = 0 if self.step.draft is None else len(self.step.draft.tokens)
        if u is not None and node == count:
            draws["token", 0] = u
        verdict = self._verdict(rule, sampler, heat, draws, other)
        if u is not None and node < count:
            tests = [x.node for x in verdict.trials if x.u is not None]
            if node not in tests:
                raise NeedsRunError(
                    f"Node {node + 1} is not tested in this step, so no draw decides about it."
                )
            verdict = self._verdict(rule, sampler, heat, {("accept", tests.index(node)): u}, other)
        elif u is not None and verdict.u is None:
            raise NeedsRunError(
                f"{rule.title} takes the likeliest token after the path, so no draw decides about it."
            )
        same_law = rule is self.method.acceptance and change.temperature is None and not other
        return self._known_verdict(verdict, rule, same_law, lines)

    def _verdict(
        self,
        rule: AcceptanceRule,
        sampler: Sampler,
        heat: float | None,
        draws: dict[Any, float],
        other: dict[int, int],
    ) -> Verdict:
        """The rule's verdict on the recorded values; its trials are those that follow from them. Raises NeedsRunError."""
        recall, exact = Recall(self.step, sampler, heat), rule.telling.rest
        said = (self.step.rule or {}) if rule.name == self.method.acceptance.name else {}
        verdicts: list[Verdict] = []
        for extreme in (0,) if recall.whole else (0, 1):
            draft = recall.draft(extreme, exact)
            kind = ReplayedChance if recall.whole else GuardedChance
            chance = kind(self.seed, self.uses, draws)
            try:
                verdict = rule.rederive(draft, recall.cursor(draft, extreme, exact, other), chance, said)
            except NotRecordedError as missing:
                level = "" if recall.whole else ", or record the run at the level “full”"
                raise NeedsRunError(
                    f"{rule.title} cannot judge by this record, since {missing}: fork with it{level}."
                ) from None
            known, cut = _count_sure_trials(rule, verdict, recall)
            there = recall.row(verdict.path[-1] if verdict.path else ROOT) is not None
            sure = not cut and (recall.whole or there) and verdict.token != NOBODY
            path = verdict.path if not cut or not rule.telling.decides_jointly else []
            token = recall.ids[verdict.token] if sure and verdict.token is not None else NOBODY
            verdicts.append(replace(verdict, trials=verdict.trials[:known], path=path, token=token))
        return _common_verdict(verdicts, rule.telling.decides_jointly)

    def _sampler_at(self, temperature: float | None) -> tuple[Sampler, float | None]:
        """The sampler at another temperature, and the power that turns the shown distributions into its own.

        Raises NeedsRunError, ParamError.
        """
        sampler = self.method.sampler
        if temperature is None:
            return sampler, None
        stages = set_temperature(sampler.in_order, temperature)
        if Recall(self.step, sampler).whole:
            return chain_samplers(stages), None
        assert self.step.tops is not None
        was = next((x.divisor for x in sampler.in_order if x.divisor is not None), 1.0)
        whole = float(self.step.tops.rest[:, 0].max(initial=0.0)) <= GONE
        shown = whole and all(x.by_rank or x.divisor is not None for x in stages)
        if sampler.greedy or temperature == 0 or not shown:
            raise NeedsRunError(
                "Another temperature needs the logits of the step, and the record holds the likeliest tokens and the sum of "
                "the others: fork with this temperature, or record the run at the level “full”."
            )
        return sampler, was / temperature

    def _tie_choices(self, ties: str | None, lines: list[str]) -> dict[int, int]:
        """Place -> the token chosen there, where ties are broken otherwise."""
        tops, others = self.step.tops, {}
        if ties != "second":
            return {}
        assert tops is not None
        if not self.method.sampler.greedy:
            raise NeedsRunError("Ties are broken under a greedy sampler only: this run drew its tokens.")
        for rank, gap in self.step.tie or []:
            place = int(tops.places[int(rank)])
            others[place] = int(tops.ids[int(rank), 1])
            where = "the root" if place == ROOT else f"node {place + 1}"
            lines.append(
                f"After {where} the two best logits are {gap:.3g} nats apart: the second one is taken."
            )
        if not others:
            lines.append(
                "No two logits of this step were closer than rounding, so another way to break ties changes nothing."
            )
        return others

    def _known_verdict(
        self, verdict: Verdict, rule: AcceptanceRule, same_law: bool, lines: list[str]
    ) -> DerivedVerdict:
        """The verdict as far as it is known, with its sums."""
        step, token = self.step, verdict.token
        recall = Recall(step, self.method.sampler)
        origin: str = verdict.origin
        x = step.extra
        same = same_law and verdict.path == (step.path or []) and self._same_refusals(verdict)
        if (
            same and x is not None and (verdict.u is None or x.low <= verdict.u < x.high)
        ):  # the same distribution: its interval is known
            token, origin = x.token, x.origin
        missing = ""
        if token == NOBODY:
            end = verdict.path[-1] if verdict.path else ROOT
            if recall.row(end) is None and not recall.whole:
                missing = f"The path goes on after node {end + 1}; its distribution was not recorded: the run never came there"
            else:
                missing = "What comes next depends on tokens that the record puts together, or on places that it has not"
            missing += ": fork from here to see it."
        emitted, origins = emitted_tokens(
            _draft_tokens(step), replace(verdict, token=None if token == NOBODY else token)
        )
        emitted, origins, ended = self._cut(emitted, origins)
        lines += [self._line(x, rule) for x in verdict.trials]
        if token not in (None, NOBODY) and not ended:
            drawn = "the likeliest one" if verdict.u is None else f"drawn with u = {verdict.u:.4g}"
            lines.append(f"Then the target's own token ({origin}), {drawn}.")
        own = None if token == NOBODY or ended else token
        return DerivedVerdict(
            verdict.trials, verdict.path, own, origin, verdict.u, emitted, origins, lines, missing
        )

    def _same_refusals(self, verdict: Verdict) -> bool:
        """Whether at the end of the path the same guesses were refused as in the record."""
        d, t = self.step.draft, self.step.trials
        if d is None or t is None:
            return True
        end = verdict.path[-1] if verdict.path else ROOT
        due = [node for node, ok in zip(t.node, t.ok, strict=True) if d.parents[node] == end and not ok]
        return [x.node for x in verdict.trials if d.parents[x.node] == end and not x.ok] == due

    def _cut(self, emitted: list[int], origins: list[str]) -> tuple[list[int], list[str], bool]:
        """What is left of the tokens when the text ends at a stop token or at its longest; whether the last token went."""
        written = self.step.n - self.read
        room = max(0, self.header.max_new_tokens - written) if self.header.max_new_tokens else len(emitted)
        stops = [i + 1 for i, x in enumerate(emitted) if x in self.header.stop_tokens]
        end = min([len(emitted), room, *stops])
        return emitted[:end], origins[:end], end < len(emitted)

    def _line(self, x: Trial, rule: AcceptanceRule) -> str:
        """One test in numbers."""
        verdict = "accepted" if x.ok else "rejected"
        if x.u is None and x.den is not None:
            return (
                f"Node {x.node + 1}: p = {x.p:.4g} {'>' if x.ok else '≤'} {x.den:.4g}, the bound: {verdict}."
            )
        if x.u is None:
            return f"Node {x.node + 1}: the target has chosen {'it' if x.ok else 'another token'}: {verdict}."
        name = rule.telling.threshold_text(owed=x.r != x.p)
        sign = "<" if x.u < x.threshold else "≥"
        return f"Node {x.node + 1}: u = {x.u:.4g} {sign} {x.threshold:.4g} = {name}: {verdict}."


def _draft_tokens(step: Step) -> Draft:
    """The tokens of the draft, for what a verdict emits."""
    return Draft() if step.draft is None else Draft(step.draft.tokens, step.draft.parents)


def _rule(change: WhatIfChange, own: AcceptanceRule, step: Step) -> AcceptanceRule:
    """The rule that is asked for. Raises ParamError, NeedsRunError."""
    name = change.rule or own.name
    knobs = {**(own.knobs() if name == own.name else {}), **change.settings}
    rule = cast(AcceptanceRule, build("acceptance", name, knobs))
    if not rule.from_laws and (rule.name != own.name or step.rule is None):
        raise NeedsRunError(
            f"{rule.title} looks at more than distributions, which no other rule's record holds: fork with it."
        )
    proposal, chain = (
        ("onehot", True) if step.draft is None else (step.draft.proposal, _is_chain(step.draft.parents))
    )
    if rule.chain_only and not chain:
        raise ParamError(
            f"{rule.name} reads chains only, and this step drafted a tree: choose another rule, or fork."
        )
    drawn = step.trials is not None and any(u is not None for u in step.trials.u)
    if drawn and proposal not in rule.exact_for:
        raise ParamError(
            f"{rule.name} is exact for drafts that are {', '.join(sorted(rule.exact_for))}, not {proposal}."
        )
    return rule


def _is_chain(parents: Sequence[int]) -> bool:
    return all(parent == i - 1 for i, parent in enumerate(parents))


def _count_sure_trials(rule: AcceptanceRule, verdict: Verdict, recall: Recall) -> tuple[int, bool]:
    """How many trials follow from the record under this rule, and whether what comes after them does not."""
    known = recall.count_known_trials(verdict)
    if not recall.whole and not rule.is_additive and recall.step.tops is not None:
        refused = [i + 1 for i, x in enumerate(verdict.trials) if not x.ok]
        if (
            refused and float(recall.step.tops.rest[:, :2].max(initial=0.0)) > GONE
        ):  # sums of p do not show it
            return min(known, refused[0]), True
    return known, known < len(verdict.trials)


def _common_verdict(verdicts: Sequence[Verdict], whole: bool) -> Verdict:
    """What all verdicts share: trials up to the first that differs, and the path and token where all agree.

    whole: all trials together decide the path
    """
    first, same = verdicts[0], 0
    for rows in zip(*(x.trials for x in verdicts), strict=False):
        if len({(x.node, x.ok, x.u) for x in rows}) > 1:
            break
        same += 1
    alike = all(same == len(x.trials) and x.path == first.path for x in verdicts)
    path = first.path if alike else []
    if not alike and not whole:
        passed = {x.node for x in first.trials[:same] if x.ok}
        for node in first.path:
            if node not in passed:
                break
            path = [*path, node]
    token = first.token if alike and all(x.token == first.token for x in verdicts) else NOBODY
    return replace(first, trials=first.trials[:same], path=path, token=token)
