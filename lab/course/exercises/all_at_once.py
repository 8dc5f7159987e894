"""Chapter 10, all at once: the tokens that a pass makes final, and the passes that a block takes."""

from __future__ import annotations

from ..exercise import Exercise, same_function


def _count_final(before: list[int], after: list[int]) -> int:
    """How many leading tokens are final: as many guesses as the pass confirmed, and the one after them."""
    count = 1
    while count < len(before) and before[count - 1] == after[count - 1]:
        count += 1
    return count


def _count_equal(before: list[int], after: list[int]) -> int:
    return sum(a == b for a, b in zip(before, after, strict=True))


def _count_leading(before: list[int], after: list[int]) -> int:
    return next((k for k, (a, b) in enumerate(zip(before, after, strict=True)) if a != b), len(before))


passes = Exercise(
    "How many passes does a block of eight tokens take at most?",
    8,
    [
        (1, "That is what it takes if all guesses are right. What does a pass make final if all are wrong?"),
        (64, "A pass reads the whole block, not one place of it."),
        (9, "The last pass needs no other to confirm it: its last token follows what is final already."),
        (7, "The first pass is needed even if no guess is right, and makes one token final."),
    ],
    because="Every pass makes one token final at least: the first that is not final follows final ones alone.",
    otherwise="Suppose that no guess is ever right, and count how many tokens a pass makes final.",
)
fixed = Exercise(
    "How many leading tokens are final?",
    _count_final,
    [
        (
            _count_leading,
            "Those are the guesses that were confirmed. The token after them follows final text: is it open?",
        ),
        (_count_equal, "A guess that was confirmed behind a wrong one was read behind a wrong text."),
        (lambda before, after: 1, "That is how many it is where the first guess is wrong. Compare on."),
        (
            lambda before, after: len(before),
            "Then one pass would do. A guess behind a wrong one is not final.",
        ),
    ],
    same=same_function(
        ([1, 2, 3, 4], [1, 2, 5, 4]),
        ([7, 7, 7], [1, 7, 7]),
        ([1, 2, 3], [1, 2, 3]),
        ([1, 2, 3], [1, 2, 9]),
        ([5], [6]),
    ),
    because="The confirmed guesses, and the one token after them, which follows nothing but final text.",
    otherwise="Count the leading guesses that the pass repeats, and add the token after them, if there is one.",
)
