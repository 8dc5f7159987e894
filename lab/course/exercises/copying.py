"""Chapter 4, copying: the source of a copied draft, and the text of a step without repetition."""

from __future__ import annotations

from collections.abc import Sequence

from ..exercise import Exercise, same_function

_CASES = (
    ([1, 2, 3, 9, 8, 1, 2, 4, 7, 5, 1, 2], 2, 2),
    ([1, 2, 3, 9, 8, 1, 2, 4, 7, 5, 1, 2], 1, 3),
    ([1, 2, 3, 4], 2, 5),
    ([6, 6, 6], 1, 4),
)


def _match_ends(text: Sequence[int], n: int) -> list[int]:
    """Where the last n tokens end in the text, except at the end of the text itself."""
    return [end for end in range(n, len(text)) if list(text[end - n : end]) == list(text[-n:])]


def _copy_latest(text: Sequence[int], n: int, length: int) -> list[int]:
    return next(([*text[end : end + length]] for end in reversed(_match_ends(text, n))), [])


def _copy_earliest(text: Sequence[int], n: int, length: int) -> list[int]:
    return next(([*text[end : end + length]] for end in _match_ends(text, n)), [])


def _copy_own_end(text: Sequence[int], n: int, length: int) -> list[int]:
    return [*text[len(text) :]][:length]


def _copy_match(text: Sequence[int], n: int, length: int) -> list[int]:
    return next(([*text[end - n : end - n + length]] for end in reversed(_match_ends(text, n))), [])


def _copy_unbounded(text: Sequence[int], n: int, length: int) -> list[int]:
    return next(([*text[end:]] for end in reversed(_match_ends(text, n))), [])


lookup = Exercise(
    "Which tokens does lookup(text, n, length) copy?",
    _copy_latest,
    [
        (
            _copy_earliest,
            "That is the first place where they stood. Look for the latest one: go through the text from its end.",
        ),
        (
            _copy_own_end,
            "The end of the text matches itself, and nothing follows it. Look for places before it.",
        ),
        (_copy_match, "That repeats the tokens that matched. The draft begins behind them."),
        (_copy_unbounded, "That copies all the rest of the text; a draft has `length` tokens at most."),
    ],
    same=same_function(*_CASES),
    because="It copies what followed the latest earlier place, `length` tokens at most, and nothing where there is no place.",
    otherwise="Try it on [1, 2, 3, 9, 1, 2] with n = 2 and length = 2: it should give [3, 9]. Without a place it gives [].",
)
average = Exercise(
    "How many tokens does a step write on average?",
    0.5 * (1 + 7) + 0.5 * 1,
    [
        (0.5 * 7, "That is what is kept of the guesses. The target adds a token of its own in every step."),
        (1 + 7, "That is a step with a draft. What does a step without one write?"),
        (0.5 * 7 + 0.5 * 1, "The target adds its own token in a step with a draft as well."),
        (0.5 * (1 + 10) + 0.5 * 1, "Ten are guessed, but only seven of them are kept."),
    ],
    because="Eight tokens in one half of the steps, one in the other.",
    otherwise="A step writes what is kept of its guesses, and one more. Take the mean over both kinds of steps.",
)
