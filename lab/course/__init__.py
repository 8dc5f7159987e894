"""Course: the building blocks of a notebook chapter, besides its prose and its runs.

A chapter asks for a guess (`predict`, `choose`), runs, and shows the guess next to the result (`Prediction.beside`). It shows a
formula next to the code that computes it (`as_code`), sets an exercise (`exercises`), and says what a paper measured
(`against_paper`).
"""

from decodescope.engine.core.extras import require

require("notebooks", "decodescope.lab.course", ("ipywidgets",))

from .exercise import Exercise  # noqa: E402 - the sentence of `require` comes before a failing import
from .formula import as_code  # noqa: E402
from .paper import against_paper  # noqa: E402
from .prediction import choose, predict  # noqa: E402

__all__ = ["Exercise", "against_paper", "as_code", "choose", "predict"]
