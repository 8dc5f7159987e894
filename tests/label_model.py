"""A model with a tokenizer, for tests of labels: it counts and names what a text mentions of a label."""

from __future__ import annotations

from typing import Any

import bytewise
from torch import Tensor

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.session.load import Model

TOKENIZER = bytewise.letters()
TEXT = "Ann met Bo."
PROMPT = TOKENIZER.encode_plain(TEXT)
IDS = {letter: TOKENIZER.encode_plain(letter)[0] for letter in "0123456789#=x\n"}
LETTERS = {token: letter for letter, token in IDS.items()}
COUNT, MENTION = "\n{label}#", "\nM{index}="
COUNTS = {
    "a": "2",
    "bb": "1",
    "ccc": "0",
    "dddd": "3",
}  # by label; their lengths differ, and so do the places after them


class Counting(Decoder):
    """A model that writes a count after a "#" and a line break after a digit, and otherwise continues freely.

    After a "=", if `likes` is set, it prefers "x" more or less strongly, by the place, and then it ends.
    """

    counts: dict[int, int]
    likes = False

    def forward(self, feed: Any, *rest: Any) -> Tensor:
        logits = super().forward(feed, *rest)
        rows = zip(feed.tokens[0, feed.rows].tolist(), feed.positions[0, feed.rows].tolist(), strict=True)
        for row, (token, place) in enumerate(rows):
            letter, law = LETTERS.get(token, ""), logits[0, row]
            if letter == "#":
                law[self.counts[place]] = 90.0
            elif letter.isdigit():
                law[IDS["\n"]] = 90.0
            elif letter == "=" and self.likes:
                law[IDS["x"]] = float(law.max()) + 0.5 + 0.1 * (place % 7)
            elif letter == "x" and self.likes:
                law[bytewise.END] = 90.0
        return logits


def model(likes: bool = False) -> Model:
    made, decoder = bytewise.lively(), Counting.__new__(Counting)
    decoder.share(made.decoder)
    before = len(PROMPT) - 1
    decoder.counts = {before + len(COUNT.replace("{label}", x)): IDS[n] for x, n in COUNTS.items()}
    decoder.likes = likes
    made.stop_tokens = [bytewise.END] if likes else []
    made.decoder = decoder
    return made
