"""Exact distribution: a lossless drafter or acceptance rule leaves every text its probability, over all random outcomes."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any, cast

import torch

from decodescope.engine.core.component import build
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.acceptance import AcceptanceRule
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.bases.sampler import Sampler
from decodescope.engine.session.method import Method, MethodError
from decodescope.testing import reference, toys
from decodescope.testing.chances import FixedNoiseChance
from decodescope.testing.reference import Warp, text_distribution
from decodescope.testing.tables import PROMPT, Logits, draft_table, logit_table, table_model
from decodescope.testing.transformer import logits_by_prefix
from decodescope.testing.walk import Text, TooManyWays, Walk, distribution_distance

EXACT = 1e-12  # tolerance of a text's probability
VOCAB = 3
LENGTHS = 3, 2  # of texts, in tokens
MOST_WAYS = 1_500  # of chance
SECONDS = 15  # seconds that all walks of a part may take
Settings = dict[str, Any]
# name of a sampler, its knobs, and its definition in plain Python
SAMPLERS: tuple[tuple[str, Settings, Warp], ...] = (
    ("temperature", {"temperature": 0.7}, Warp([partial(reference.temperature, T=0.7)])),
    ("top_k", {"k": 2}, Warp([partial(reference.top_k, k=2)])),
)


class NotCounted(Exception):
    """The exact distribution of a part could not be computed. One sentence with the reason."""


def texts_keep_their_probability(kind: str, name: str, settings: Settings) -> None:
    """Every text of three tokens has the target's probability, to 1e-12, summed over all random draws.

    It is counted under two samplers, with two sorts of drafts, as far as that takes 15 seconds; where there are too many ways,
    over texts of two tokens. Raises NotCounted where nothing could be counted.
    """
    chosen: dict[str, tuple[str, Settings]] = {
        "drafter": ("draft_model", {"max_draft_tokens": 2}),
        "acceptance": ("lossless", {}),
        kind: (name, settings),
    }
    drafter = cast(Drafter, build("drafter", *chosen["drafter"]))
    rule = cast(AcceptanceRule, build("acceptance", *chosen["acceptance"]))
    if not rule.lossless:
        raise NotCounted(f"{name} does not call itself lossless.")
    until, counted = time.monotonic() + SECONDS, 0
    for draft, (sampler, knobs, warp) in product(("mixed", "independent"), SAMPLERS):
        own = cast(Sampler, build("sampler", sampler, knobs))
        off = _difference(Method(drafter=drafter, acceptance=rule, sampler=own), draft, warp, until)
        if off is None:
            continue
        counted += 1
        assert off <= EXACT, (
            f"under {sampler}, with a draft of the sort {draft!r}, a text's probability is off by {off:.3g}"
        )
    if not counted:
        raise NotCounted(
            f"More than {MOST_WAYS:,} ways of chance, or than {SECONDS} seconds: choose a smaller draft."
        )


def _difference(method: Method, draft: str, warp: Warp, until: float) -> float | None:
    """The largest difference between a text's probability by the method and by the target; None: there are too many ways."""
    for length in LENGTHS:
        try:
            law, logits = _text_distribution(method, draft, length, until)
        except MethodError as error:
            raise NotCounted(str(error)) from None
        except TooManyWays:
            continue
        return distribution_distance(law, text_distribution(logits, warp, list(PROMPT), length, VOCAB))
    return None


def _text_distribution(
    method: Method, draft: str, length: int, until: float
) -> tuple[dict[Text, float], Logits]:
    """The probabilities of a method's texts, and the target's logits by prefix. Raises MethodError and TooManyWays.

    The target is a table, or a transformer where the drafter reads states, heads or layers.
    """
    target, lanes = logit_table(VOCAB, seed=1), method.drafter.lanes
    tables = {
        role: table_model(draft_table(draft, target, VOCAB, seed=77 + n), VOCAB)
        for n, role in enumerate(lanes)
    }
    worlds = (
        [({"target": table_model(target, VOCAB), **tables}, target)]
        if method.drafter.needs == Needs()
        else []
    )
    decoder = toys.decoder(toys.toy_spec(vocab=VOCAB), 4, torch.float64, sharp=2.0)
    noisy = {role: toys.model(toys.noisy_decoder(decoder, 0.2, seed=n)) for n, role in enumerate(lanes)}
    worlds.append(({"target": toys.model(decoder), **noisy}, logits_by_prefix(decoder)))
    for models, logits in worlds:
        with suppress(*_LACKING if logits is target else ()):
            walk = Walk(method, models, length, (), list(PROMPT), FixedNoiseChance)
            walk.until = until
            return walk.full_run_distribution(MOST_WAYS), logits  # a drafter may remember what it saw
    raise NotCounted("No toy model fits this part.")


_LACKING = (MethodError, IndexError, KeyError)  # raised by a part that looks for layers or heads in a table
