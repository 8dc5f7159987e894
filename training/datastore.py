"""The text that retrieving drafters (REST, ADED, RASD) look things up in where no file is given.

    python -m decodescope.training.datastore

writes `assets/datastore.txt`: of every kind of the training text that is made by rule (`corpus.py`) the first two hundredth,
without the marks of a chat, and with a form feed between documents. So it is the kind of text that the shipped models
write, none of it was written by a model, and no question of the bench is in it. The same on every machine.
"""

from __future__ import annotations

import re
from pathlib import Path

from .corpus import generate_all_documents

STORE = Path(__file__).resolve().parents[1] / "assets" / "datastore.txt"
SHARE, SEED = 0.005, 0  # of the training text, and its seed
MARK = re.compile(r"<\|\w+\|>\n?")


def documents() -> list[str]:
    """The texts, in the order of the corpus before it is shuffled."""
    return [
        MARK.sub("", x["text"]).strip("\n")
        for x in generate_all_documents(SHARE, SEED)
        if x["split"] == "train"
    ]


if __name__ == "__main__":
    STORE.write_text("\n\f\n".join(documents()) + "\n", encoding="utf-8", newline="\n")
