"""Something said once in a text of 64 to 1,500 tokens and asked for at its end: a pass key, needles, a table of pairs."""

from __future__ import annotations

import re
from random import Random

from ..words import ANIMALS, CITIES, COLOURS, NAMES, PLACES, THINGS
from .task import Task, ask, nonsense_word, pick, split_sentences, story

KIND = "retrieval"

SIZES = (
    128,
    256,
    512,
    1024,
    1500,
)  # the `tokens` tag: the whole prompt is at most so long, and nearly so from 256 on
FORMS = ("passkey", "needle", "needle", "pairs", "pairs", "lines")
LABELS = {
    "passkey": lambda r: r.choice(["pass key", "secret number", "code", "password", "magic word"]),
    "needle": lambda r: r.choice(
        [
            f"number of the {r.choice(COLOURS)} {r.choice(THINGS)}",
            f"code of {r.choice(NAMES)}",
            f"secret word of the {r.choice(ANIMALS)}",
            f"number of the {r.choice(PLACES)} in {r.choice(CITIES)}",
        ]
    ),
    "pairs": lambda r: nonsense_word(r),
    "lines": lambda r: r.choice(NAMES),
}
PAIR = ("{} = {}", "{}: {}", "{} -> {}")
PIECE = re.compile(r"\d| (?=\d)|\W?[^\W\d]{1,6}|[^\w\s]+|\n")
RARE = {"passkey": 1.43, "needle": 1.42, "pairs": 1.26, "lines": 1.09}  # tokens to a piece, measured


def count_pieces(text: str) -> int:
    """How many pieces a text has: words of up to six letters, digits, signs."""
    return len(PIECE.findall(text))


def draw_value(r: Random, label: str) -> str:
    """What is to be remembered: four or five digits, or a word that means nothing."""
    return nonsense_word(r, 3, 3) if "word" in label else str(r.randint(1000, 99999))


def needles(r: Random, form: str, count: int) -> tuple[tuple[str, str], ...]:
    """`count` labels, all different, and what each is worth."""
    labels: list[str] = []
    while len(labels) < count:
        if (label := LABELS[form](r)) not in labels:
            labels.append(label)
    return tuple((label, draw_value(r, label)) for label in labels)


def prose(r: Random, split: str, budget: int) -> list[str]:
    """Sentences of stories, about `budget` pieces."""
    found: list[str] = []
    while budget > 0:
        for sentence in split_sentences(story(r, split)[0].text):
            if (budget := budget - count_pieces(sentence)) < 0:
                break
            found.append(sentence)
    return found


def table(r: Random, form: str, shape: str, found: list[tuple[str, str]], budget: int) -> list[str]:
    """The needles among other lines of the same shape, about `budget` pieces, in any order."""
    lines = [shape.format(*pair) for pair in found]
    taken = {label for label, _ in found}
    budget -= sum(count_pieces(line) + 1 for line in lines)
    while budget > 0:
        label = (
            LABELS[form](r) if len(taken) < 100 or form == "pairs" else f"{r.choice(NAMES)} {r.choice(NAMES)}"
        )
        if label in taken:
            continue
        taken.add(label)
        lines.append(shape.format(label, draw_value(r, label)))
        budget -= count_pieces(lines[-1]) + 1
    r.shuffle(lines)
    return lines


def make(r: Random, split: str, tokens: int = 0) -> Task:
    """A text and a question; `tokens` is one of SIZES, else drawn: nine in ten are short."""
    size = tokens or (r.choice([128, 128, 256]) if r.random() < 0.9 else r.choice(SIZES[2:]))
    form = r.choice(FORMS)
    hidden = 1 if form == "passkey" else r.choice([1, 2, 3, 4])
    found = pick(split, lambda: needles(r, form, hidden))
    asked = r.sample(found, 1 if hidden == 1 or r.random() < 0.7 else 2)
    label = " and the ".join(label for label, _ in asked)
    question = {
        "pairs": f"What is {' and '.join(label for label, _ in asked)}?",
        "lines": f"What is the number of {' and '.join(label for label, _ in asked)}?",
    }.get(form, r.choice([f"What is the {label}?", f"Tell me the {label}."]))
    budget = int((r.randint(64, 128) if size == 128 else size) / RARE[form]) - count_pieces(question) - 4
    if form in ("pairs", "lines"):
        shape = r.choice(PAIR) if form == "pairs" else "The number of {} is {}."
        parts, joint = table(r, form, shape, list(found), budget), "\n" if form == "pairs" else " "
        texts = [shape.format(*pair) for pair in asked]
    else:
        hides = [f"The {label} is {said}." for label, said in found]
        parts, joint = prose(r, split, budget - sum(map(count_pieces, hides))), " "
        for sentence in hides:
            parts.insert(r.randint(0, len(parts)), sentence)
        texts = [f"The {label} is {said}." for label, said in asked]
    depth = round(100 * parts.index(texts[0]) / max(1, len(parts) - 1))
    turn = ask(r, question, joint.join(parts), "\n\n")
    tags = {"tokens": size, "form": form, "needles": hidden, "asked": len(asked), "depth": depth}
    scorer = "exact" if len(asked) == 1 else "list"
    return Task(KIND, (turn,), (", ".join(said for _, said in asked),), scorer, tags, repr(found))
