"""Text that is dense with things to look up or to compute, generated while a model reads it: no document comes twice.

A question asked at the end of a text teaches one lookup in a hundred tokens. Several questions about the same text teach one in
twenty. Rows said again in another order teach one in ten, with the key right before what is looked up. A model of two million
numbers learns to look things up from these within a few million tokens, and from single questions hardly ever. Sums and lists
come several in a row, and scenes with several questions about each.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .drills import DRILLS
from .stories import Story
from .tasks import Task, lists, math, qa, render, retrieval, scenes
from .tasks.task import ask, pick, story

# window -> how long the texts with one question are; the prompt fills them nearly
ASKED = {128: (128,), 256: (128,), 512: (256,), 1024: (512,), 2048: (1024, 1500)}
WINDOWS = tuple(ASKED)
FORMS = ("pairs", "pairs", "lines", "lines", "needle")
TURN = 14  # pieces of a further question and its answer, about
SHARES = (0.12, 0.55)  # of a window, the text that is asked about
ROOM = 50  # of a window, tokens for each question about a scene or a story, its text included
LINE = 12  # pieces of a sum that is written out
TOPS = (3, 9, 20, 99, 99)  # one of the numbers is at most that
ORDER = 45  # pieces of an order about a list and of its answer, about
FULL = (0.6, 1.8)  # characters of tasks in a row for each token of a window: a token has about two characters


def lookup_question(r: Random, form: str, label: str) -> str:
    """How `label` is asked for in a text of a form of `retrieval`."""
    return {"pairs": f"What is {label}?", "lines": f"What is the number of {label}?"}.get(
        form, r.choice([f"What is the {label}?", f"Tell me the {label}."])
    )


def make_haystack(
    r: Random, split: str, form: str, budget: int, most: int
) -> tuple[str, list[tuple[str, str]], str]:
    """A text of about `budget` pieces, what of it can be asked (at most `most` things), and the shape of its rows."""
    shape = {"pairs": r.choice(retrieval.PAIR), "lines": "The number of {} is {}."}.get(form, "The {} is {}.")
    few = max(1, min(most, budget // (24 if form == "needle" else 14)))
    facts = list(pick(split, lambda: retrieval.needles(r, form, r.randint(-(-2 * few // 3), few))))
    if form != "needle":
        return (
            ("\n" if form == "pairs" else " ").join(retrieval.table(r, form, shape, facts, budget)),
            facts,
            shape,
        )
    rows = [shape.format(*fact) for fact in facts]
    parts = retrieval.prose(r, split, budget - sum(map(retrieval.count_pieces, rows)))
    for row in rows:
        parts.insert(r.randint(0, len(parts)), row)
    return " ".join(parts), facts, shape


def budget(r: Random, form: str, window: int) -> int:
    """Pieces of a text that leaves room for questions in a window."""
    return int(window * r.uniform(*SHARES) / retrieval.RARE[form])


def single_question(r: Random, split: str, window: int) -> str:
    """A text and one question, as `tasks.retrieval` and LabBench have them."""
    return render(retrieval.make(r, split, r.choice(ASKED[window])))


def many_questions(r: Random, split: str, window: int) -> str:
    """A text and questions about it, one after the other."""
    form = r.choice(FORMS)
    size = budget(r, form, window)
    text, facts, _ = make_haystack(
        r, split, form, size, max(2, (int(window / retrieval.RARE[form]) - size) // TURN)
    )
    r.shuffle(facts)
    first, *others = (lookup_question(r, form, label) for label, _ in facts)
    turns = (ask(r, first, text, "\n\n"), *others)
    return render(Task("many", turns, tuple(value for _, value in facts), "exact", {}, repr(facts)))


def repeat_rows(r: Random, split: str, window: int) -> str:
    """Rows, and some of them said again in the order in which their keys are named."""
    form = r.choice(("pairs", "lines"))
    size = min(budget(r, form, window), 300)
    text, facts, shape = make_haystack(r, split, form, size, max(2, size // 14))
    r.shuffle(facts)
    order = f"Say again: {', '.join(label for label, _ in facts)}."
    return render(
        Task(
            "again",
            (ask(r, order, text, "\n\n"),),
            ("\n".join(shape.format(*fact) for fact in facts),),
            "exact",
            {},
            repr(facts),
        )
    )


def fill_with_tasks(r: Random, window: int, draw: Callable[[], Task]) -> str:
    """As many of the tasks that are drawn as nearly fill a part of a window, at least one, each a conversation of its own."""
    text, most = render(draw()), window * r.uniform(*FULL)
    while len(more := text + render(draw())) < most:
        text = more
    return text


def sum_lines(r: Random, split: str, window: int) -> str:
    """Sums below 100, a line each, as `math.steps` writes them out: twice as many in as many tokens.

    In most documents one number is small. The last digit of a sum depends on two digits at once. Where both are drawn evenly,
    neither alone says anything about it: a model has nothing to begin with.
    """
    lines, top = [], r.choice(TOPS)
    for _ in range(int(window * r.uniform(*SHARES) / LINE)):
        signs = r.choice(("+", "-"))
        while min(numbers := math.numbers_of(r, split, signs)) > top:
            pass
        lines += math.steps(signs, numbers)
    return "\n".join(lines) + "\n"


def list_orders(r: Random, split: str, window: int) -> str:
    """A list, and orders about it: each is about the list as it was given, so that only the order decides the answer."""
    given = list(pick(split, lambda: lists.items(r)))
    forms = r.sample(list(lists.ASK), min(len(lists.ASK), window // ORDER))
    (first, answer), *more = [lists.operation_text(r, form, given) for form in forms]
    turns = (ask(r, first, ", ".join(given)), *(words for words, _ in more))
    return render(
        Task(
            "ordered",
            turns,
            tuple(", ".join(x) for x in (answer, *(result for _, result in more))),
            "list",
            {},
            repr(given),
        )
    )


def ask_about(r: Random, text: Story, window: int) -> str:
    """A text and some questions about it, in a drawn order."""
    facts = r.sample(text.facts, min(len(text.facts), window // ROOM))
    turns = (
        ask(r, r.choice(qa.ASK).format(facts[0].question), text.text.strip(), "\n\n"),
        *(f.question for f in facts[1:]),
    )
    return render(Task("told", turns, tuple(f.answer for f in facts), "exact", {}, repr(facts)))


def scene_questions(r: Random, split: str, window: int) -> str:
    """A scene, or a story where a window has room for one, and some questions about it."""
    return ask_about(
        r, (scenes.make_scene(r, split) if window < 512 or r.random() < 0.5 else story(r, split))[0], window
    )


LEAST = {"read": 1024}  # the shortest window of a kind, where only long ones have room for it
# kind -> (make(r, split, window), whether it is a chat): documents for a window of so many tokens; most of them fit it
LOOKUPS: dict[str, tuple[Callable[[Random, str, int], str], bool]] = {
    "asked": (single_question, True),
    "many": (many_questions, True),
    "again": (repeat_rows, True),
    "told": (scene_questions, True),
    "read": (lambda r, split, window: ask_about(r, story(r, split)[0], window), True),
    "reckoned": (lambda r, split, window: fill_with_tasks(r, window, lambda: math.make(r, split)), True),
    "listed": (lambda r, split, window: fill_with_tasks(r, window, lambda: lists.make(r, split)), True),
    "ordered": (list_orders, True),
    "steps": (sum_lines, False),
    "facts": (lambda r, split, window: DRILLS["recall"][0](r), False),
    "rows": (lambda r, split, window: DRILLS["copies"][0](r), False),
}
