"""A schedule may forbid any drafter to draft in a step: it then drafts nothing, runs nothing, and the text stays the same."""

from __future__ import annotations

from typing import ClassVar

import pytest
import toys

from decodescope.engine import Method, MethodError
from decodescope.engine.core.component import build, component
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.schedule import Schedule
from decodescope.engine.trace import check
from decodescope.engine.trace.records.phases import is_deciding_pass

# `drafts` is an attribute of Drafter
DRAFTERS = [x for x in toys.representatives("drafter") if build("drafter", *x).drafts]  # type: ignore[attr-defined]


@component
class EveryThird(Schedule):
    """Draft in the first of three steps, then skip two."""

    title = "Every third"
    source = "made up for a test"
    adapts: ClassVar[bool] = False
    gates: ClassVar[bool] = True

    def begin(self, ctx: Context) -> None:
        self._asked = 0

    def draft_room(self, ctx: Context) -> int:
        self._asked += 1
        return ctx.room if self._asked % 3 == 1 else 0


@pytest.mark.parametrize(("name", "settings"), DRAFTERS)
def test_a_drafter_that_is_told_not_now_drafts_and_runs_nothing(name: str, settings: dict) -> None:
    method = Method(drafter=build("drafter", name, settings), schedule=EveryThird())  # type: ignore[arg-type] # of that kind
    run = toys.decode(method, count=18)
    assert run.end.tokens == toys.cached_greedy_text(toys.pair()[0], toys.PROMPT, 18)
    off = [step for i, step in enumerate(run.sink.steps) if i % 3]
    assert len(off) > 5 and not any(step.drafted for step in off)
    for step in off:
        ran = [x for x in step.passes if not is_deciding_pass(x) and x.phase not in ("prefill", "flush")]
        assert not ran, f"{name} ran {ran[0].lane}, {ran[0].phase}"
        assert sum(map(is_deciding_pass, step.passes)) == 1
    assert check(run.sink).ok


@pytest.mark.parametrize("name", ["draft_model", "prompt_lookup", "token_recycling", "medusa", "sjd"])
def test_it_drafts_in_the_other_steps(name: str) -> None:
    settings = toys.settings_of("drafter", name)[0]
    method = Method(drafter=build("drafter", name, settings), schedule=EveryThird())  # type: ignore[arg-type] # of that kind
    assert any(step.drafted for step in toys.decode(method, count=18).sink.steps)


def test_where_nothing_drafts_it_would_be_ignored() -> None:
    with pytest.raises(
        MethodError, match=r"^none drafts nothing, so the schedule test_gates would be ignored; choose "
    ):
        toys.decode(Method(schedule=EveryThird()))
