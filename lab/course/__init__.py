"""Course: what a chapter of the notebooks is made of, besides its prose and its runs.

A chapter asks for a guess (`predict`, `choose`), runs, shows the guess beside what came (`Prediction.beside`), holds a formula
beside the code that is it (`as_code`), sets an exercise (`exercises`), and says what a paper measured (`against_paper`).
"""

from .exercise import Exercise
from .formula import as_code
from .paper import against_paper
from .prediction import choose, predict

__all__ = ["Exercise", "against_paper", "as_code", "choose", "predict"]
