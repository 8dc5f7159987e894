"""The requirements for every drafter: the text is the target's, drafts are well-formed trees, and guesses leave no trace."""

from __future__ import annotations

import pytest
import toys
from sizes import by_turns, first_settings, sizes

from decodescope.testing.contracts import drafters as contract

DRAFTERS = toys.variants("drafter")
DRAWN = [x for x in DRAFTERS if contract.proposes_by_draft_model(*x)]


@pytest.mark.parametrize(("name", "settings"), by_turns(3, DRAFTERS))
@sizes("count, more", usual=(20, 0), full=(40, 3))
def test_greedy_text_is_the_targets_own(name: str, settings: dict, count: int, more: int) -> None:
    contract.text_is_the_targets_own(name, settings, count, more)


@pytest.mark.parametrize(
    ("name", "settings", "sampler"), by_turns(3, first_settings(DRAFTERS, ["greedy", "temperature"]))
)
@sizes("count", usual=20, full=40)
def test_draft_is_a_tree_that_fits(name: str, settings: dict, sampler: str, count: int) -> None:
    contract.draft_is_a_tree_that_fits(name, settings, sampler, count)


@pytest.mark.parametrize(
    ("name", "settings", "sampler"), by_turns(3, first_settings(DRAFTERS, ["greedy", "temperature"]))
)
def test_one_pass_over_a_draft_equals_reading_every_branch_alone(
    name: str, settings: dict, sampler: str
) -> None:
    contract.one_pass_equals_reading_each_branch(name, settings, sampler)


@pytest.mark.parametrize(("name", "settings"), DRAWN)
def test_recorded_law_is_that_of_the_draft_model_reading_the_branch_alone(name: str, settings: dict) -> None:
    contract.draws_from_draft_model(name, settings)


@pytest.mark.parametrize(
    ("name", "settings", "sampler"), by_turns(3, first_settings(DRAFTERS, ["greedy", "temperature"]))
)
@sizes("count, wrong", usual=(20, 4), full=(40, 10))
def test_guesses_leave_no_trace(name: str, settings: dict, sampler: str, count: int, wrong: int) -> None:
    contract.guesses_leave_no_trace(name, settings, sampler, count, wrong)


@pytest.mark.parametrize(("name", "settings"), first_settings(DRAFTERS))
def test_drafter_makes_progress_and_keeps_its_books(name: str, settings: dict) -> None:
    contract.progress_is_counted(name, settings)


@pytest.mark.parametrize(("name", "settings", "count"), first_settings(DRAFTERS, [1, 2, 3]))
def test_short_answer_has_its_exact_length(name: str, settings: dict, count: int) -> None:
    contract.short_answer_has_its_length(name, settings, count)


@pytest.mark.parametrize(("name", "settings"), first_settings(DRAFTERS))
def test_drafter_lists_the_models_it_needs(name: str, settings: dict) -> None:
    contract.models_it_needs_are_named(name, settings)
