"""If a model breaks, the run ends as `non_finite_logits` with every part, and its record is consistent."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import toys
from acting import ONE_EACH, PARTS, Part, method_with
from sizes import by_turns, sizes, thinned

from decodescope.engine import Session
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.heads.base import Head
from decodescope.engine.session.load import Model
from decodescope.engine.trace import check

WRONG = {"-inf": -torch.inf, "nan": torch.nan, "inf": torch.inf}  # all logits of a row


def changed(model: Model, change: Callable[[torch.Tensor], torch.Tensor]) -> Model:
    """The same model with `change` applied to its logits, including those of its exits and of its draft heads."""
    made = copy.copy(model.decoder)
    made.unembed = lambda feature: change(Decoder.unembed(made, feature))  # type: ignore[method-assign] # of this one alone
    return replace(model, decoder=made)


class Planted:
    """Put a value into the last row of the requested logits, only once, at the `call`-th request."""

    def __init__(self, call: int, value: float):
        self.call, self.value, self.calls = call, value, 0

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == self.call:
            logits = logits.clone()
            logits.view(-1, logits.shape[-1])[-1] = self.value
        return logits


def ends_by_a_fault(part: Part, plant: Planted, who: str, warm: bool) -> bool:
    """True if a run in which `who` breaks ended by the fault; False if it made fewer requests. Fails on any other end."""
    made = method_with(part, warm)
    target, models = toys.method_models(made)
    if who == "target":
        target = changed(target, plant)
    else:
        models = {role: changed(x, plant) for role, x in models.items()}
    session = Session(target, made, toys.PROMPT, models=models, max_new_tokens=12)
    try:
        toys.finish_session(session)
    except EngineFault as fault:
        assert (
            fault.reason == "non_finite_logits"
            and session.end is not None
            and session.end.reason == fault.reason
        )
        assert "has no finite logits" in str(fault) and "\n" not in str(fault)
    else:
        assert plant.calls < plant.call, "logits that are not finite were read, and the run went on"
        return False
    assert check(session.sink).ok
    return True


@pytest.mark.parametrize(
    "part", by_turns(2, [pytest.param(x, id="-".join(map(str, x[:2]))) for x in ONE_EACH])
)
@sizes("calls", usual=(2, 4), full=(1, 3, 5, 7))
def test_a_target_that_breaks_ends_the_run_by_its_reason(part: Part, calls: tuple[int, ...]) -> None:
    some = [
        ends_by_a_fault(part, Planted(call, WRONG[name]), "target", warm)
        for call, name, warm in zip(
            calls, ("nan", "-inf", "inf", "nan"), (True, False, True, False), strict=False
        )
    ]
    assert any(some) or part[0] in ("router", "unmasking"), "the test needs a run in which the target breaks"


@pytest.mark.parametrize("part", [x for x in PARTS if method_with(x).lanes])
@pytest.mark.parametrize("call", [1, 3])
def test_a_second_model_that_breaks_ends_the_run_by_its_reason(part: Part, call: int) -> None:
    ends_by_a_fault(part, Planted(call, torch.nan), "others", call == 1)


READ_HEADS = (
    "medusa",
    "hydra",
    "eagle",
    "eagle3",
    "p_eagle",
    "mtp",
    "clover",
    "mlp_speculator",
    "redrafter",
    "kangaroo",
    "blockwise",
    "dflash",
    "dspark",
)


@pytest.mark.parametrize("kind", READ_HEADS)
def test_a_draft_head_that_breaks_ends_the_run_by_its_reason(kind: str) -> None:
    """The target is sound: its own passes find nothing to report about the head."""
    settings = toys.settings_of("drafter", kind)[0]
    for warm in (True, False):
        made = method_with(("drafter", kind, settings), warm)
        target, models = toys.method_models(made)
        head: Head = target.decoder.heads[kind]
        parts = [x for x in head.modules() if x is not head]
        hooks = [x.register_forward_hook(lambda *seen: torch.full_like(seen[2], torch.nan)) for x in parts]
        try:
            session = Session(target, made, toys.PROMPT, models=models, max_new_tokens=4)
            with pytest.raises(EngineFault, match=f"{kind}.* has no finite logits"):
                toys.finish_session(session)
        finally:
            for hook in hooks:
                hook.remove()
        assert check(session.sink).ok


@pytest.mark.parametrize(("part", "who"), by_turns(2, thinned(3, ONE_EACH, ["target", "others"])))
def test_tokens_that_a_model_gives_nothing_to_are_no_fault(part: Part, who: str) -> None:
    """A logit of -inf removes one token. A model may do so, and half types do it to numbers that are too small for them."""

    def cut(logits: torch.Tensor) -> torch.Tensor:
        return logits.index_fill(-1, torch.tensor([2, 11]), -torch.inf)

    made = method_with(part)
    target, models = toys.method_models(made)
    if who == "target":
        target = changed(target, cut)
    else:
        models = {role: changed(x, cut) for role, x in models.items()}
    assert check(
        toys.finish_session(Session(target, made, toys.PROMPT, models=models, max_new_tokens=8)).sink
    ).ok
