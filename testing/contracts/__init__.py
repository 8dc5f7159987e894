"""Contracts: what every part of a kind has to keep. Each is a function that raises AssertionError with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from decodescope.engine.core.component import OF_MODEL

from . import any_part, drafters, exact_law, memory, policies, weights


class Contract(NamedTuple):
    """One contract of a part.

    title: what is kept, as the first sentence of the function says it;  run: raises AssertionError where it is not
    """

    title: str
    run: Callable[[], None]


def contracts(kind: str, name: str, settings: dict[str, Any] | None = None) -> list[Contract]:
    """The contracts of the part `name` of a kind with these knobs, those that need no run first.

    Raises ParamError for a part or knob that there is not.
    """
    own = dict(settings or {})
    general = [(one, (kind, name, own)) for one in (*_ANY, *(() if kind in OF_MODEL else _OF_METHOD))]
    if kind in ("policy", "kv_compression"):
        general.append((memory.cache_reports_what_it_holds, (kind, name, own)))
    special = [(one, (name, own)) for one in _OF_KIND.get(kind, ())]
    if kind == "drafter" and drafters.proposes_by_draft_model(name, own):
        special.append((drafters.draws_from_draft_model, (name, own)))
    law = (
        [(exact_law.texts_keep_their_probability, (kind, name, own))]
        if kind in ("drafter", "acceptance")
        else []
    )
    return [Contract(_title(one), _bind_arguments(one, given)) for one, given in (*general, *special, *law)]


_ANY: tuple[Callable[..., None], ...] = (
    any_part.says_what_it_is,
    any_part.knobs_have_help_and_bounds,
)
_OF_METHOD: tuple[Callable[..., None], ...] = (
    any_part.runs_agree_at_every_level,
    any_part.same_seed_gives_the_same_trace,
    any_part.text_agrees_with_its_exactness,
    any_part.details_are_recorded_as_declared,
)
_OF_KIND: dict[str, tuple[Callable[..., None], ...]] = {
    "drafter": (
        drafters.text_is_the_targets_own,
        drafters.draft_is_a_tree_that_fits,
        drafters.one_pass_equals_reading_each_branch,
        drafters.guesses_leave_no_trace,
        drafters.progress_is_counted,
        drafters.short_answer_has_its_length,
        drafters.models_it_needs_are_named,
    ),
    "policy": (
        policies.evicted_entries_free_their_memory,
        policies.zones_bound_what_is_held,
        policies.newest_entry_stays,
    ),
    "weights": (
        weights.given_model_stays_as_it_was,
        weights.same_model_comes_out_twice,
        weights.run_agrees_with_itself,
        weights.text_has_one_distribution,
        weights.findings_are_those_declared,
    ),
}


def _title(contract: Callable[..., None]) -> str:
    """The first sentence of its docstring."""
    words = " ".join((contract.__doc__ or contract.__name__).split())
    return words.split(". ")[0].rstrip(".")


def _bind_arguments(contract: Callable[..., None], given: tuple[Any, ...]) -> Callable[[], None]:
    return lambda: contract(*given)
