"""Pass keys: some digits hidden once in a long text of stories, and asked for behind it.

Source: Mohtashami and Jaggi 2023, arXiv:2305.16300, section 4.2. Here the text is no repeated sentence, and the words are those
of LabBench's retrieval questions.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import chain, cycle, islice
from random import Random

from .questions import BenchQuestion

KIND = "passkey"
ENOUGH = 8  # sentences without a digit that make a paragraph a story
LENGTH = 200  # sentences that a key may be hidden among; how many are read depends on the tokenizer
ASKED = ("What is the pass key?", "Tell me the pass key.")
_END = re.compile(r"(?<=[.!?]) |(?<=[.!?][\"']) |\n+")
_HIDDEN = re.compile(r"The [\w ]+ is \w+\.")  # how a key, a code, a password is said


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, in order."""
    return [x for x in _END.split(text) if x]


def story_sentences(questions: Sequence[BenchQuestion]) -> list[str]:
    """Sentences of all stories in the first turns of the questions, without those that say a key of their own."""
    paragraphs = chain.from_iterable(x.turns[0].split("\n\n") for x in questions)
    prose = [split_sentences(x) for x in paragraphs if not re.search(r"\d", x)]
    return [x for story in prose if len(story) >= ENOUGH for x in story if not _HIDDEN.fullmatch(x)]


def make_passkeys(questions: Sequence[BenchQuestion], count: int) -> list[BenchQuestion]:
    """`count` keys of four or five digits, at depths spread evenly over the text, among stories from the questions.

    The stories of each begin elsewhere. The turn holds the stories, `tags` how deep in them the key is, in percent.
    """
    whole = story_sentences(questions)
    chosen = []
    for i in range(count):
        text = (
            " ".join(islice(cycle(whole), i * len(whole) // count, i * len(whole) // count + LENGTH))
            if whole
            else ""
        )
        key = str(Random(f"pass key {i}").randint(1000, 99999))
        tags = {"depth": round(100 * (i + 0.5) / count), "number": i}
        chosen.append(BenchQuestion(f"pass key {i + 1}", KIND, (text,), (key,), "number", tags))
    return chosen


def hide_key(question: BenchQuestion, count: int) -> str:
    """What the user says: the first `count` sentences of the stories with the key among them, and then the question."""
    parts = split_sentences(question.turns[0])[:count]
    depth, number = int(question.tags["depth"]), int(question.tags["number"])
    parts.insert(round(depth * len(parts) / 100), f"The pass key is {question.references[0]}.")
    return f"{' '.join(parts)}\n\n{ASKED[number % len(ASKED)]}"


def longest_prompt(question: BenchQuestion, length: Callable[[str], int], most: int) -> str | None:
    """The longest `hide_key` text of at most `most` tokens, by `length`; None if the stories end before."""
    whole = len(split_sentences(question.turns[0]))
    fitting = bisect_right(range(whole + 1), most, key=lambda count: length(hide_key(question, count))) - 1
    return hide_key(question, fitting) if 0 <= fitting < whole else None
