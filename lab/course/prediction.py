"""Prediction: the reader's guess, asked before a run and shown next to the result."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets

from decodescope.engine.core.params import ParamError

from .table import NotebookTable

UNASKED = "no guess: answer above, then run this cell again"
_WIDE = ipywidgets.Layout(width="100%", max_width="720px")


class Prediction(ipywidgets.VBox):
    """A question with a slider or a choice below it.

    guess: the reader's choice, None until then;  unit: shown after numbers
    """

    def __init__(self, question: str, asked: ipywidgets.ValueWidget, unit: str = ""):
        self.unit, self._asked = unit, asked
        self._moved = False
        super().__init__([ipywidgets.Label(question, layout=_WIDE), asked])
        asked.observe(self._mark_answered, "value")

    @property
    def guess(self) -> float | str | None:
        """The reader's answer, None if there is none yet."""
        return self._asked.value if self._moved else None

    @guess.setter
    def guess(self, value: float | str) -> None:
        self._asked.value = value
        self._moved = True

    def compare_with(
        self, here: float | str, paper: float | str | None = None, source: str = ""
    ) -> NotebookTable:
        """The guess next to the value measured `here` and, if there is one, the figure of a paper with its `source`."""
        rows: list[tuple[str, object]] = [
            ("your guess", self._read_answer(self.guess) if self._moved else UNASKED)
        ]
        rows.append(("here", self._read_answer(here)))
        if paper is not None:
            rows.append((f"paper ({source})" if source else "paper", self._read_answer(paper)))
        return NotebookTable(["", self.unit or "answer"], rows, self._distance_sentence(here))

    def _mark_answered(self, _: object) -> None:
        self._moved = True

    def _read_answer(self, value: float | str | None) -> object:
        return float(value) if isinstance(value, int | float) else value

    def _distance_sentence(self, here: float | str) -> str:
        """One sentence on how far the guess was off."""
        guess = self.guess
        if guess is None:
            return ""
        if isinstance(guess, str) or isinstance(here, str):
            return "As you said." if guess == here else "Not what you said. Why? Read on."
        if guess == 0 or here == 0:
            return ""
        ratio = max(guess / here, here / guess)
        if ratio < 1.1:
            return "Within ten percent."
        return f"Off by a factor of {ratio:.2g}: you guessed too {'much' if guess > here else 'little'}."


def predict(question: str, low: float, high: float, step: float | None = None, unit: str = "") -> Prediction:
    """Ask for a number from `low` to `high`; the slider begins in the middle and counts once it was moved.

    Raises ParamError if `low` is not below `high`.
    """
    if not low < high:
        raise ParamError(f"A guess from {low} to {high} has no room: give low below high.")
    step = step or (high - low) / 20
    middle = low + round((high - low) / 2 / step) * step
    slider = ipywidgets.FloatSlider(
        value=middle,
        min=low,
        max=high,
        step=step,
        description=unit,
        layout=_WIDE,
        style={"description_width": "initial"},
    )
    return Prediction(question, slider, unit)


def choose(question: str, options: Sequence[str]) -> Prediction:
    """Ask for one of `options`; none is chosen at first. Raises ParamError for fewer than two."""
    if len(options) < 2:
        raise ParamError(f"A choice needs two options at least, not {len(options)}.")
    radios = ipywidgets.RadioButtons(
        options=list(options), value=None, layout=ipywidgets.Layout(width="max-content")
    )
    return Prediction(question, radios)
