"""Every registered drafter, in every toy setting, under every registered lossless rule that accepts it.

All paths of chance of whole runs are walked, on a transformer with draft heads. A new file is covered before its author writes
a line.
"""

from __future__ import annotations

import os
from functools import cache

import pytest
import torch
import toys
from sizes import by_turns, first_settings

from decodescope.engine import Method, MethodError
from decodescope.engine.core.component import build, registry
from decodescope.engine.methods.samplers.chain import Chain
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.methods.samplers.top_k import TopK
from decodescope.engine.session.load import Model
from decodescope.testing.chances import FixedNoiseChance
from decodescope.testing.reference import Warp, temperature, text_distribution, top_k
from decodescope.testing.transformer import logits_by_prefix
from decodescope.testing.walk import Walk, distribution_distance

V = 4
MOST = 120  # paths; a drafter with more paths is walked over shorter texts
PROMPT = [1, 2, 0, 1, 2, 3, 1, 0, 1, 2]  # it repeats itself, so that drafters with a lookup find matches
HEAT = 1.3
DRAFTERS = [x for x in toys.variants("drafter") if x[0] != "none"]
FIRST = toys.representatives("drafter")
RULES = [name for name, cls in registry("acceptance").items() if cls.lossless]
# transforms that make the target, joined with +; empty: none
WEIGHTS = os.environ.get("DECODESCOPE_WEIGHTS", "")
MADE = (
    "int8 include_lm_head=true",
    "head_sensitivity cut_share=0.3 calibration_tokens=128 rounds=2 + int8",
    "cut_layers skip=a1,f2",
)
FREE = {
    "fly": {"threshold": 0.0, "window": 1},
    "judge": {"threshold": 0.05},
    "lantern": {"delta": 1.0, "neighbours": 3},
}  # settings that keep more tokens than the defaults
LOSSY = [*({name: {} for name, cls in registry("acceptance").items() if not cls.lossless} | FREE).items()]
WAYS: list[tuple[str, dict]] = [
    ("draft_model", {"max_draft_tokens": 2}),
    ("layer_skip", {"max_draft_tokens": 2, "skip_ratio": 0.5}),
    ("medusa", {}),
]


@cache
def target(weights: str = WEIGHTS) -> Model:
    """A transformer over four ids, or the same model after transforms."""
    return toys.model(
        toys.transformed_decoder(weights, toys.decoder(toys.toy_spec(vocab=V), 6, torch.float64, sharp=2.0))
    )


@cache
def due(length: int, weights: str = WEIGHTS) -> dict[tuple[int, ...], float]:
    """The target's distribution under a sampler that keeps two tokens: 8 texts of 3 tokens."""
    warp = Warp([lambda z, text: temperature(z, text, HEAT), lambda z, text: top_k(z, text, 2)])
    return text_distribution(logits_by_prefix(target(weights).decoder), warp, PROMPT, length, V)


@cache
def helper(role: str) -> Model:
    """A model for a further role, similar to the target."""
    return toys.model(toys.noisy_decoder(target("").decoder, 0.3, seed=1 + sum(map(ord, role))))


def method(drafter: tuple[str, dict], rule: str = "lossless", **more) -> Method:
    sampler = Chain(stages=[Temperature(temperature=HEAT), TopK(k=2)])
    return Method(
        drafter=build("drafter", *drafter), acceptance=build("acceptance", rule), sampler=sampler, **more
    )  # type: ignore[arg-type] # parts, by kind


def walked(made: Method, noise: int = 0, weights: str = WEIGHTS) -> tuple[float, Walk]:
    """(distance of the method's distribution from the target's, the walk); raises MethodError if the parts do not fit."""
    models = {"target": target(weights), **{role: helper(role) for role in made.drafter.lanes}}
    for length in (3, 2):
        walk = Walk(
            made, models, length, prompt=PROMPT, chance=type("Noise", (FixedNoiseChance,), {"noise": noise})
        )
        try:
            return distribution_distance(
                walk.full_run_distribution(MOST if length > 2 else None), due(length, weights)
            ), walk
        except ValueError as e:
            if "ways" not in str(e):
                raise
    raise AssertionError


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("name", "settings"), by_turns(2, first_settings(DRAFTERS)))
def test_drafter_has_the_targets_law_under_every_rule_that_takes_it(
    name: str, settings: dict, rule: str
) -> None:
    made = method((name, settings), rule)
    assert made.lossless
    try:
        off, walk = walked(made)
    except MethodError:
        assert rule != "lossless", "the lossless rule takes every drafter"
        return
    assert off <= 1e-12
    assert walk.kept + walk.refused > 0 or (name, settings) not in FIRST, "the test needs drafts"


@pytest.mark.parametrize(("rule", "settings"), LOSSY)
def test_a_rule_that_is_called_lossy_changes_the_distribution(rule: str, settings: dict) -> None:
    made = method(("draft_model", {"max_draft_tokens": 2}))
    made.acceptance = build("acceptance", rule, settings)  # type: ignore[assignment] # a rule, by its kind
    assert made.exactness == "lossy"
    off, walk = walked(made)
    assert off > 1e-3 and walk.kept


@pytest.mark.parametrize("drafter", WAYS, ids=[name for name, _ in WAYS])
@pytest.mark.parametrize("weights", MADE)
def test_law_is_that_of_the_model_that_transforms_made(weights: str, drafter: tuple[str, dict]) -> None:
    off, walk = walked(method(drafter), weights=weights)
    assert off <= 1e-12
    assert walk.kept and walk.refused, "the test needs drafts"
    assert distribution_distance(due(2, weights), due(2, "")) > 1e-3, "it is another model"


@pytest.mark.parametrize("noise", [1, 2, 3])
def test_noise_of_the_scores_does_not_matter(noise: int) -> None:
    """Scores decide how many children there are, never which: the distribution is exact for each number."""
    off, _ = walked(method(("rsd_s", {"width": 2, "depth": 2})), noise)
    assert off <= 1e-12


@pytest.mark.parametrize("rule", ["lossless", "block"])
@pytest.mark.parametrize(("name", "settings"), toys.variants("schedule"))
def test_length_of_the_draft_by_any_schedule_leaves_the_law(name: str, settings: dict, rule: str) -> None:
    off, walk = walked(
        method(("draft_model", {"max_draft_tokens": 3}), rule, schedule=build("schedule", name, settings))
    )
    assert off <= 1e-12
    assert (walk.kept and walk.refused) or (name, settings) not in toys.representatives("schedule"), (
        "the test needs drafts"
    )
