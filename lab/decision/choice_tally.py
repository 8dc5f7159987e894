"""Choice tally: the candidates for an emitted token, each with its score terms and their sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from decodescope.engine.trace.records.choices import Choice
from decodescope.engine.trace.records.events import Step

from .step_tally import StepTally, TallyRow

Text = Callable[[Sequence[int]], str]
NUMBERS = "sum of the terms", "floor"  # the meaning of a row's two numbers


def choice_tally(step: Step, text: Text) -> StepTally | None:
    """How each token of a step was chosen, by guidance or by its strategy; None: from the target's own distribution.
    text: ids -> text"""
    if not step.choices:
        return None
    formula, own = choice_formula(step.choices), is_chosen_by_strategy(step)
    card = StepTally(
        *("Chosen by a score", formula)
        if own
        else ("Chosen from another distribution", f"from the distribution {formula}"),
        *NUMBERS,
    )
    for k, choice in enumerate(step.choices):
        place = f"token {k + 1}: " if len(step.choices) > 1 else ""
        card.rows += [_choice_row(choice, i, place, text) for i in range(len(choice.candidates))]
    seen = "these scores" if step.choices[0].joined == "log" else "the logarithms of these scores"
    then = "the best is taken." if own else f"the sampler sees {seen} instead of the target's logits."
    card.lines.append(f"The score of a token is {formula}; {then}")
    for name in step.choices[0].floors:
        card.lines.append(f"A token whose {name} lies below its floor is left out, whatever its score.")
    return card


def is_chosen_by_strategy(step: Step) -> bool:
    """Whether a step's tokens were chosen by its strategy itself, without a rule that judged them."""
    return bool(step.choices) and step.path is None


def _choice_row(choice: Choice, i: int, place: str, text: Text) -> TallyRow:
    low = next((name for name, floor in choice.floors.items() if choice.terms[name][i] < floor), None)
    token = text([choice.candidates[i]])
    if choice.scores[i] is None and low is not None:
        return TallyRow(
            token, choice.terms[low][i], choice.floors[low], False, f"{place}left out by its {low}"
        )
    word = f"{place}{'chosen, ' if i == choice.chosen else ''}{format_weighted_terms(choice, i)}"
    return TallyRow(token, choice.sum_terms(i), None, i == choice.chosen, word)


def choice_formula(choices: Sequence[Choice]) -> str:
    """The sum in words; for a mixture with shares that differ from token to token, without the shares."""
    first = choices[0]
    if all(x.weights == first.weights for x in choices):
        return format_weighted_sum(first)
    return (
        f"a mixture of {' and '.join(first.weights)}"
        if first.joined == "mixture"
        else " + ".join(first.weights)
    )


def format_weighted_sum(choice: Choice) -> str:
    """The sum in words, such as log p - 0.5 log q."""
    parts = [
        f"{'-' if x < 0 else '+'} {'' if abs(x) == 1 else f'{abs(x):.3g} '}{name}"
        for name, x in choice.weights.items()
    ]
    return " ".join(parts).removeprefix("+ ")


def format_weighted_terms(choice: Choice, i: int) -> str:
    """The same with the numbers of a candidate."""
    parts = [f"{x:.3g} x {choice.terms[name][i]:.3f}" for name, x in choice.weights.items()]
    return " + ".join(parts)
