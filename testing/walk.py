"""A method's exact distribution over texts: every path of the shipped step, from every prefix."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from decodescope.engine.model.forward.executor import Executor
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method
from decodescope.engine.session.replay.exact_distribution import EnumeratedChance
from decodescope.engine.session.session import Session

from .chances import outcomes
from .tables import PROMPT

Text = tuple[int, ...]


class StepOutcome(NamedTuple):
    """The result of one path of a step."""

    emitted: Text
    ended: bool
    state: Any
    draft: Any
    verdict: Any

    @property
    def accepted_count(self) -> int:
        """Number of drafted tokens that were kept."""
        return len(self.verdict.path)


class TooManyWays(ValueError):
    """A walk takes longer than allowed."""


class Walk:
    """Takes the step of one session again and again, along every random path.

    until: when a walk of whole runs gives up, as time.monotonic() has it; None: never
    paths: how many were walked;  kept, refused: steps that accepted a drafted token, and steps that rejected one
    """

    def __init__(
        self,
        method: Method,
        models: Mapping[str, Model],
        length: int,
        stop: tuple[int, ...] = (),
        prompt: list[int] = PROMPT,
        chance: type[EnumeratedChance] = EnumeratedChance,
        executor: Executor | None = None,
    ):
        others = {role: x for role, x in models.items() if role != "target"}
        self.s = Session(
            models["target"],
            method,
            prompt,
            models=others,
            max_new_tokens=length,
            stop_tokens=stop,
            executor=executor,
        )
        self.s.start()
        self.prompt = prompt
        self.first = self.s.sampler_state
        self.chance = chance
        self.paths = 0
        self.kept = self.refused = 0
        self.until: float | None = None

    def go_to(self, tokens: list[int], state: Any) -> None:
        """Bring the session to the point where `tokens` have been written."""
        s, read = self.s, tokens[:-1]
        same = s.target.common_prefix_length(read)
        s.target.truncate(same)
        if same < len(read):
            s.target.read(read)
        s.tokens, s.sampler_state = list(tokens), state
        s.target.passes.clear()

    @torch.inference_mode()
    def step_outcomes(self, text: Text = (), state: Any = None) -> list[tuple[float, StepOutcome]]:
        """(weight, round) of every path of the step after `text`; for drafters that remember nothing."""
        start = self.first if not text else state

        def step(chance: EnumeratedChance) -> StepOutcome:
            self.go_to([*self.prompt, *text], start)
            return self._step(chance)

        ways = outcomes(step, self.chance)
        self.paths += len(ways)
        return ways

    def _step(self, chance: EnumeratedChance) -> StepOutcome:
        s = self.s
        s.chance = chance
        before = len(s.tokens)
        move = s.method.strategy.step(s)
        assert s.target.tokens == s.tokens[:-1], "the target's cache holds another text than the one emitted"
        assert s.tokens[before:] == move.emitted
        assert move.verdict is not None, "the walk is of strategies that verify"
        self.kept += bool(move.verdict.path)
        self.refused += any(not trial.ok for trial in move.verdict.trials)
        return StepOutcome(
            tuple(move.emitted), move.end is not None, s.sampler_state, move.draft, move.verdict
        )

    def text_distribution(self) -> dict[Text, float]:
        """P(text), the rounds after each prefix walked once."""
        law: dict[Text, float] = defaultdict(float)
        seen: dict[Text, Any] = {}
        ahead: dict[Text, float] = {(): 1.0}
        while ahead:  # shortest first: by then every way to a prefix has been counted
            text = min(ahead, key=len)
            mass = ahead.pop(text)
            after: dict[tuple[Text, bool], float] = defaultdict(float)
            for weight, move in self.step_outcomes(text, seen.get(text)):
                whole = (*text, *move.emitted)
                assert seen.setdefault(whole, move.state) == move.state, (
                    "the sampler's state depends on the way"
                )
                after[whole, move.ended] += weight
            for (whole, ended), weight in after.items():
                (law if ended else ahead)[whole] = (law if ended else ahead).get(whole, 0.0) + mass * weight
        return dict(law)

    @torch.inference_mode()
    def full_run_distribution(self, most: int | None = None) -> dict[Text, float]:
        """P(text), whole runs walked: for drafters that remember what they saw.

        Raises TooManyWays if there are more than `most` paths, or behind `until`.
        """

        def run(chance: EnumeratedChance) -> Text:
            if self.until is not None and time.monotonic() > self.until:
                raise TooManyWays("The time for this walk is over.")
            if self.s.target.needs:
                self.s.target.truncate(0)  # the drafter must see the states of the whole prompt
            self.go_to(self.prompt, self.first)
            self.s.method.strategy.begin(self.s)
            while not self._step(chance).ended:
                pass
            return tuple(self.s.tokens[len(self.prompt) :])

        try:
            ways = outcomes(run, self.chance, most)
        except ValueError as error:
            if "more than" not in str(error) and not isinstance(error, TooManyWays):
                raise
            raise TooManyWays(str(error)) from None
        self.paths += len(ways)
        law: dict[Text, float] = defaultdict(float)
        for weight, text in ways:
            law[text] += weight
        return dict(law)


def distribution_distance(law: Mapping[Text, float], true: Mapping[Text, float]) -> float:
    """The largest difference of a text's probability, and of the sum from 1; infinite if an impossible text came."""
    if any(p > 0 and not true.get(text, 0.0) > 0 for text, p in law.items()):
        return float("inf")
    worst = max(abs(law.get(text, 0.0) - p) for text, p in true.items())
    return max(worst, abs(sum(law.values()) - 1))
