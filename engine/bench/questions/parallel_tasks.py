"""List tasks and grids that measure how much parallel decoding loses.

After ParallelBench (Kang et al., 2025, arXiv 2510.04767).

A model that draws several tokens of one pass from their marginals ignores how they depend on each other. Here every answer
follows a rule, so the cost of that can be counted. The list has n items of one token each, an answer has a fixed number of
slots, one token each. Our own rules generate the questions; none is the authors' data. In addition to their ten list tasks
there are a Latin square and a sudoku of 4 x 4. Their text tasks are not here.

The closed forms hold for a perfect model: it knows every slot's marginal exactly and draws all slots at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from math import factorial, prod
from random import Random

# each is one token of the shipped tokenizer with the space before it
NAMES = ("Ada", "Ben", "Clara", "David", "Ella", "Finn", "Grace", "Hugo", "Iris", "Leo", "Mara", "Paul")
COLOURS = ("red", "blue", "green", "yellow", "white", "black", "brown", "grey", "golden", "silver")
LETTERS, EMPTY = ("A", "B", "C", "D"), "_"
LENGTHS = (2, 3, 4, 5)  # items of a list
EMPTIES = (4, 5, 6, 7, 8)  # empty cells of a sudoku
SIDE = 4

Answer = tuple[str, ...]


@dataclass(frozen=True)
class ParallelQuestion:
    """One question.

    items: the list; of a Latin square its four symbols; of a sudoku its 16 cells, row by row, `EMPTY` for an empty cell
    word:  the new item, for tasks that insert or replace
    place: of the item that is meant, from 1; 0 where none is named
    """

    task: str
    items: Answer
    word: str = ""
    place: int = 0

    @property
    def prompt(self) -> str:
        """What the model is asked; the answer follows it, every word with a space before it."""
        return f"{PROMPTS[self.task].format(word=self.word, place=self.place)}: {' '.join(self.items)} ->"

    @property
    def slots(self) -> int:
        """How many tokens a right answer has."""
        return len(next(right_answers(self)))

    @property
    def length(self) -> int:
        """The items of the list; of a grid the cells to fill."""
        return SIDE * SIDE if self.task == "latin_square" else self.items.count(EMPTY) or len(self.items)


PROMPTS = {
    "copy": "copy",
    "reverse": "reverse",
    "sort": "sort",
    "insert_index": "insert {word} at {place}",
    "remove_index": "remove at {place}",
    "replace_index": "replace {place} by {word}",
    "insert_random": "insert {word}",
    "remove_random": "remove one",
    "replace_random": "replace one by {word}",
    "shuffle": "shuffle",
    "latin_square": "latin square",
    "sudoku": "sudoku",
}
LISTS = tuple(task for task in PROMPTS if task not in ("latin_square", "sudoku"))
SETTLED = (
    "copy",
    "reverse",
    "sort",
    "insert_index",
    "remove_index",
    "replace_index",
)  # lists with one right answer
TASKS = tuple(PROMPTS)


def make_question(task: str, r: Random, length: int | None = None) -> ParallelQuestion:
    """A question of that task; `length`: items or, for a sudoku, empty cells, drawn if not given.

    A Latin square has one size. ValueError for an unknown task or a length that it cannot have.
    """
    if task not in PROMPTS:
        raise ValueError(f"There is no task {task!r}; choose one of {', '.join(TASKS)}.")
    if task == "latin_square":
        return ParallelQuestion(task, tuple(r.sample(COLOURS, SIDE)))
    lengths = EMPTIES if task == "sudoku" else range(2, len(NAMES))
    if length is not None and length not in lengths:
        raise ValueError(f"{task} cannot have the length {length}; choose {lengths[0]} to {lengths[-1]}.")
    if task == "sudoku":
        return _make_sudoku(r, length or r.choice(EMPTIES))
    *items, word = r.sample(NAMES, (length or r.choice(LENGTHS)) + 1)
    with_word, with_place = "{word}" in PROMPTS[task], "{place}" in PROMPTS[task]
    places = len(items) + (task == "insert_index")
    return ParallelQuestion(
        task, tuple(items), word if with_word else "", r.randint(1, places) if with_place else 0
    )


def make_questions(
    tasks: Iterable[str], count: int, seed: int = 0, lengths: Sequence[int] | None = None
) -> list[ParallelQuestion]:
    """`count` questions of each task, in turn with each of the `lengths` where they are given; the same for the same seed."""
    return [
        make_question(task, Random(f"{seed}/{task}/{i}"), lengths[i % len(lengths)] if lengths else None)
        for task in tasks
        for i in range(count)
    ]


def _make_sudoku(r: Random, empty: int) -> ParallelQuestion:
    """A sudoku with one solution: cells of a full grid are emptied in random order, as long as it stays the only one."""
    while True:
        cells = list(r.choice(sudoku_grids()))
        for at in r.sample(range(SIDE * SIDE), SIDE * SIDE):
            if cells.count(EMPTY) == empty:
                return ParallelQuestion("sudoku", tuple(cells))
            kept, cells[at] = cells[at], EMPTY
            if _matching_grids(cells).bit_count() > 1:
                cells[at] = kept


def _matching_grids(cells: Sequence[str]) -> int:
    """The full grids that agree with the cells that are given: bit i says that grid i does."""
    agreeing = (1 << len(sudoku_grids())) - 1
    for at, symbol in enumerate(cells):
        if symbol != EMPTY:
            agreeing &= _grids_by_cell()[at, symbol]
    return agreeing


@lru_cache(1)
def _grids_by_cell() -> dict[tuple[int, str], int]:
    """(cell, symbol) -> the full grids that hold it there, as bits."""
    return {
        (at, x): sum(1 << i for i, grid in enumerate(sudoku_grids()) if grid[at] == x)
        for at in range(SIDE * SIDE)
        for x in LETTERS
    }


@lru_cache(1)
def latin_squares() -> tuple[tuple[int, ...], ...]:
    """All Latin squares of four symbols, 0 to 3, row by row: 576."""
    grown: list[tuple[int, ...]] = [()]
    for _ in range(SIDE):
        grown = [
            rows + new
            for rows in grown
            for new in permutations(range(SIDE))
            if all(new[i] not in rows[i::SIDE] for i in range(SIDE))
        ]
    return tuple(grown)


@lru_cache(1)
def sudoku_grids() -> tuple[Answer, ...]:
    """All full grids of a 4 x 4 sudoku, in `LETTERS`: the 288 Latin squares with each symbol once in each of the four boxes."""
    boxes = [(at, at + 1, at + SIDE, at + SIDE + 1) for at in (0, 2, 8, 10)]
    return tuple(
        tuple(LETTERS[x] for x in square)
        for square in latin_squares()
        if all(len({square[i] for i in box}) == SIDE for box in boxes)
    )


# ---- right answers and their score


def right_answers(q: ParallelQuestion) -> Iterator[Answer]:
    """All right answers, each once. A shuffled list of n items has n! - 1 of them."""
    x, at = q.items, q.place - 1
    match q.task:
        case "copy":
            yield x
        case "reverse":
            yield x[::-1]
        case "sort":
            yield tuple(sorted(x))
        case "insert_index" | "insert_random":
            yield from ((*x[:i], q.word, *x[i:]) for i in ([at] if q.place else range(len(x) + 1)))
        case "remove_index" | "remove_random":
            yield from ((*x[:i], *x[i + 1 :]) for i in ([at] if q.place else range(len(x))))
        case "replace_index" | "replace_random":
            yield from ((*x[:i], q.word, *x[i + 1 :]) for i in ([at] if q.place else range(len(x))))
        case "shuffle":
            yield from (order for order in permutations(x) if order != x)
        case "latin_square":
            yield from (tuple(x[i] for i in square) for square in latin_squares())
        case "sudoku":
            yield from (grid for i, grid in enumerate(sudoku_grids()) if _matching_grids(x) >> i & 1)


def draw_answer(q: ParallelQuestion, r: Random) -> Answer:
    """A right answer, each as likely as any other."""
    match q.task:
        case "shuffle":
            while (order := tuple(r.sample(q.items, len(q.items)))) == q.items:
                pass
            return order
        case "latin_square":
            return tuple(q.items[i] for i in r.choice(latin_squares()))
    return r.choice(list(right_answers(q)))


def all_orders(q: ParallelQuestion) -> list[Answer]:
    """Every order of the list, its own among them: the closed form of `shuffle` is uniform over these."""
    return list(permutations(q.items))


def is_right(q: ParallelQuestion, answer: Sequence[str]) -> bool:
    """Whether the words are a right answer, by the authors' rules.

    `insert_random`: without the word, the list. `remove_random`: the list without one. `replace_random`: at the first place of
    the new word, and only there, it differs from the list. `shuffle`: the same items, not in the same order. A Latin square:
    every row and column holds each symbol once. A sudoku: in addition every box does, and the given cells are unchanged.
    """
    x, said = list(q.items), list(answer)
    match q.task:
        case "insert_random":
            return len(said) == len(x) + 1 and q.word in said and _remove_at(said, said.index(q.word)) == x
        case "remove_random":
            return len(said) == len(x) - 1 and any(said == _remove_at(x, i) for i in range(len(x)))
        case "replace_random":
            return (
                len(said) == len(x)
                and q.word in said
                and _remove_at(said, at := said.index(q.word)) == _remove_at(x, at)
            )
        case "shuffle":
            return Counter(said) == Counter(x) and said != x
        case "latin_square":
            lines = [said[i * SIDE : (i + 1) * SIDE] for i in range(SIDE)] + [
                said[i::SIDE] for i in range(SIDE)
            ]
            return len(said) == SIDE * SIDE and all(sorted(line) == sorted(x) for line in lines)
        case "sudoku":
            return tuple(said) in sudoku_grids() and all(
                a in (EMPTY, b) for a, b in zip(x, said, strict=True)
            )
    return tuple(said) == next(right_answers(q))


def _remove_at(words: Sequence[str], at: int) -> list[str]:
    """The words but the one at that place, from 0."""
    return [*words[:at], *words[at + 1 :]]


def is_right_text(q: ParallelQuestion, text: str) -> bool:
    """Whether a text, its words separated by spaces, is a right answer and nothing else."""
    return is_right(q, text.split())


# ---- what a perfect model gets


def chance_at_once(task: str, n: int, differs: bool = True) -> Fraction:
    """The chance of a right answer when a perfect model draws all slots of a list of `n` items at once.

    `shuffle` is drawn from all n! orders, and the list's own counts as right where not `differs`. The forms are derived here,
    not taken from the paper. A new word must fall on one slot alone. With a random insertion or removal, the slots switch once
    from one row of items to the next. ValueError for a grid, where it depends on the question: `Oracle.all_at_once`.
    """
    forms: dict[str, Callable[[], Fraction]] = {
        "insert_random": lambda: Fraction(factorial(n) * 2**n, (n + 1) ** (n + 1)),
        "remove_random": lambda: Fraction(factorial(n - 1) * 2 ** (n - 1), n ** (n - 1)),
        "replace_random": lambda: Fraction(n - 1, n) ** (n - 1),
        "shuffle": lambda: Fraction(factorial(n) - differs, n**n),
    }
    if task in SETTLED:
        return Fraction(1)
    if task not in forms:
        raise ValueError(f"{task!r} has no closed form; choose one of {', '.join(LISTS)}.")
    return forms[task]()


class Oracle:
    """A perfect model of a distribution that is uniform over `right_answers`: the exact marginals of what is still open.

    ValueError without answers, or when they differ in length.
    """

    def __init__(self, answers: Iterable[Answer]) -> None:
        self.answers = list(answers)
        if len({len(a) for a in self.answers}) != 1:
            raise ValueError("An oracle needs answers, all of one length.")

    def marginals(self, given: Mapping[int, str] | None = None) -> list[dict[str, Fraction]]:
        """Slot by slot, word -> its chance, given the words at the places `given`. ValueError if no answer agrees."""
        some = [a for a in self.answers if all(a[i] == word for i, word in (given or {}).items())]
        if not some:
            raise ValueError("No answer agrees with the words that are given.")
        return [
            {word: Fraction(count, len(some)) for word, count in Counter(slot).items()}
            for slot in zip(*some, strict=True)
        ]

    def chance_at_once(self, q: ParallelQuestion) -> Fraction:
        """The chance that all slots, drawn at once, are a right answer to the question: the sum over its right answers."""
        slots = self.marginals()
        return sum(
            (
                prod(
                    (slot.get(word, Fraction(0)) for slot, word in zip(slots, a, strict=True)),
                    start=Fraction(1),
                )
                for a in right_answers(q)
            ),
            start=Fraction(0),
        )
