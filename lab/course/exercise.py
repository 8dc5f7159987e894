"""Exercise: a question with a checker that knows the right answer, and the causes of the usual wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from decodescope.lab.formatting.tokens import escape_html

RIGHT = "Right."
OTHERWISE = "Not yet."


class CheckResult:
    """The result of a checker. `right`: whether the answer was right;  `words`: why, or a hint."""

    def __init__(self, right: bool, words: str):
        self.right, self.words = right, words

    def __bool__(self) -> bool:
        return self.right

    def _repr_html_(self) -> str:
        return f'<p style="font-size:14px"><b>{"✓" if self.right else "✗"}</b> {escape_html(self.words)}</p>'

    def __str__(self) -> str:
        return f"{'✓' if self.right else '✗'} {self.words}"

    __repr__ = __str__


class Exercise:
    """One question.

    right:     a right answer; an answer is right if it is the same
    wrong:     (answer, hint): usual mistakes, at least three, each with a hint
    same:      whether two answers are the same; by default equal to 1 percent for numbers, equal for all else
    because:   one sentence shown after a right answer
    otherwise: the hint for any other answer
    """

    def __init__(
        self,
        question: str,
        right: Any,
        wrong: Sequence[tuple[Any, str]],
        *,
        same: Callable[[Any, Any], bool] | None = None,
        because: str = "",
        otherwise: str = "Look at the last picture again.",
    ):
        if len(wrong) < 3:
            raise ValueError(
                f"{question!r} knows {len(wrong)} wrong answers: give three at least, each with its hint."
            )
        self.question = question
        self.right = right
        self.wrong = tuple(wrong)
        self.same = same or _equal_answers
        self.because, self.otherwise = because, otherwise

    def check(self, answer: Any = ...) -> CheckResult:
        """Whether `answer` is right, and if not, a hint. `...`, the initial content of an exercise's cell, is no answer."""
        if answer is ...:
            return CheckResult(False, f"{self.question} Replace the three dots with your answer.")
        if self._is_same(answer, self.right):
            return CheckResult(True, f"{RIGHT} {self.because}".strip())
        hint = next((hint for mistake, hint in self.wrong if self._is_same(answer, mistake)), self.otherwise)
        return CheckResult(False, f"{OTHERWISE} {hint}")

    def _is_same(self, answer: Any, other: Any) -> bool:
        """Whether they are the same; an answer that cannot be compared is not, whatever the reader wrote."""
        try:
            return bool(self.same(answer, other))
        except (
            Exception
        ):  # the reader's own code may be called here: an exception in it counts as a wrong answer
            return False


def same_function(*cases: Sequence[Any], close: float = 1e-6) -> Callable[[Any, Any], bool]:
    """A comparison for answers that are functions: they agree on every one of `cases`, each a tuple of arguments."""

    def same(answer: Callable[..., Any], other: Callable[..., Any]) -> bool:
        return all(_equal_answers(answer(*case), other(*case), close) for case in cases)

    return same


def _equal_answers(answer: Any, other: Any, close: float = 0.01) -> bool:
    """Equal, numbers within the share `close` of each other; sequences item by item, in their order."""
    if isinstance(answer, str) or isinstance(other, str):
        return (
            isinstance(answer, str)
            and isinstance(other, str)
            and answer.strip().lower() == other.strip().lower()
        )
    if isinstance(answer, bool) or isinstance(other, bool):
        return isinstance(answer, bool) and isinstance(other, bool) and answer == other
    if isinstance(answer, Sequence) or isinstance(other, Sequence):
        return len(answer) == len(other) and all(
            _equal_answers(a, b, close) for a, b in zip(answer, other, strict=True)
        )
    if isinstance(answer, int | float) and isinstance(other, int | float):
        return math.isclose(answer, other, rel_tol=close, abs_tol=1e-9)
    return bool(answer == other)
