"""Score: how right an answer is, 0 to 1, against a reference. It accepts any text: every rule has a limit on its work."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

from decodescope.engine.core.arithmetic import evaluate_expression

CHARS = 20_000  # of an answer that are compared; what is behind them counts as wrong
JSON_CHARS = 200_000
LEAVES = 10_000  # values of a JSON text that are compared

_NUMBER = re.compile(r"(?<![\w.])[-\u2212]?(?:\d{1,3}(?:,\d{3})+|\d{1,400})(?:\.\d{1,400})?(?!\d)")
_FENCE = re.compile(r"```[\w-]*\n(.*?)\n?```", re.DOTALL)
_BULLET = re.compile(r"(?:[-*\u2022]|\d{1,4}[.)])\s+")


def score(scorer: str, said: str, reference: str) -> float:
    """The score of the answer `said` by the rule `scorer`, 0 to 1. Raises ValueError for an unknown rule."""
    if scorer not in SCORERS:
        raise ValueError(f"no scorer is called {scorer[:40]!r}; there are {', '.join(SCORERS)}.")
    return SCORERS[scorer](said, reference)


def exact_match(said: str, reference: str) -> float:
    """1 if the texts are equal, but for white space and one full stop at the end."""
    return float(_strip_text(said) == _strip_text(reference))


def _strip_text(text: str) -> str:
    return " ".join(text.split()).removesuffix(".").rstrip()


def span_f1(said: str, reference: str) -> float:
    """F1 of the words that both have, as often as both have them; case, punctuation and articles do not count.

    Source: Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1.
    """
    a, b = _normalized_words(said), _normalized_words(reference)
    if not a or not b:
        return float(a == b)
    both = (Counter(a) & Counter(b)).total()
    return 2 * both / (len(a) + len(b))


def _normalized_words(text: str) -> list[str]:
    words = re.findall(r"\w+(?:['\u2019]\w+)*", text.casefold())
    return [x for x in words if x not in ("a", "an", "the")]


def edit_distance(said: str, reference: str) -> float:
    """1 minus the edits that turn one text into the other, as a share of the longer text's length.

    An edit inserts, deletes or replaces a character. White space at both ends does not count.
    """
    a, b = said.strip(), reference.strip()
    longest = max(len(a), len(b))
    if not longest:
        return 1.0
    edits = levenshtein(a[:CHARS], b[:CHARS]) + max(0, longest - CHARS)
    return max(0.0, 1 - edits / longest)


def levenshtein(a: str, b: str) -> int:
    """Levenshtein distance: a column of the table at a time, as the bits of whole numbers.

    Source: Myers 1999, J. ACM 46(3), 395-415, in the form of Hyyrö 2003, Nordic J. of Computing 10(1), figure 3.
    """
    if not a:
        return len(b)
    all_rows, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
    rows_of: dict[str, int] = {}
    for i, letter in enumerate(a):
        rows_of[letter] = rows_of.get(letter, 0) | 1 << i
    # rows where the column grows by one, or falls by one
    up = all_rows
    down = 0
    count = len(a)
    for letter in b:
        same = rows_of.get(letter, 0)
        free = ((same & up) + up) ^ up | same | down
        right = down | ~(free | up) & all_rows  # rows where the table grows to the right
        left = up & free  # rows where it falls
        count += bool(right & last) - bool(left & last)
        right, left = right << 1 | 1, left << 1
        up, down = (left | ~(same | down | right)) & all_rows, right & (same | down) & all_rows
    return count


def list_correct(said: str, reference: str) -> float:
    """1 if both name the same items in the same order.

    Commas, semicolons or lines separate items, else spaces. Brackets, quotes, bullets and a full stop at the end do not count.
    """
    return float(list_items(said) == list_items(reference))


def shuffle_correct(said: str, reference: str) -> float:
    """1 if the answer has the items of the reference, the list as it was given, in another order."""
    listed, given = list_items(said), list_items(reference)
    return float(listed != given and sorted(listed) == sorted(given))


def list_items(text: str) -> list[str]:
    """The items of a list in words."""
    bare = text.strip().removesuffix(".").strip()
    if bare[:1] + bare[-1:] in ("[]", "()", "{}"):
        bare = bare[1:-1]
    cut = re.split(r"[,;\n]", bare) if re.search(r"[,;\n]", bare) else bare.split()
    entries = [_BULLET.sub("", x.strip(), count=1).strip("\"'` \t") for x in cut]
    return [" ".join(x.split()) for x in entries if x]


def json_f1(said: str, reference: str) -> float:
    """0 if the answer is no JSON; else the share of values that both have at the same place, as F1.

    Without a reference 1 for any JSON.
    """
    value = parse_json(said)
    if value is None:
        return 0.0
    due = parse_json(reference)
    if due is None:
        return 1.0
    a, b = Counter(islice(json_leaves(value[0]), LEAVES)), Counter(islice(json_leaves(due[0]), LEAVES))
    return 2 * (a & b).total() / (a.total() + b.total())


def parse_json(text: str) -> tuple[Any] | None:
    """The value of a JSON text, alone in a tuple, since it may be null; None if the text is no JSON.

    One fence of Markdown around it does not count.
    """
    bare = text.strip()
    fenced = _FENCE.fullmatch(bare) if len(bare) <= JSON_CHARS else None
    if len(bare) > JSON_CHARS:
        return None
    try:
        return (json.loads(fenced[1] if fenced else bare, parse_constant=_reject_constant),)
    except (ValueError, RecursionError):
        return None


def _reject_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def json_leaves(value: Any) -> Iterator[tuple[Any, ...]]:
    """(path, kind, value) of every value that holds no others; empty lists and objects are such values too."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while waiting:
        path, x = waiting.pop()
        if isinstance(x, dict) and x:
            waiting += [((*path, key), inner) for key, inner in x.items()]
        elif isinstance(x, list) and x:
            waiting += [((*path, i), inner) for i, inner in enumerate(x)]
        else:
            kind = "number" if isinstance(x, (int, float)) and not isinstance(x, bool) else type(x).__name__
            yield path, kind, str(x) if isinstance(x, (dict, list)) else x


def expression_correct(said: str, reference: str) -> float:
    """1 if both are arithmetic and have the same value; an answer that is an equation counts by its last side."""
    due = evaluate_expression(reference)
    return float(due is not None and evaluate_expression(said) == due)


def number_correct(said: str, reference: str) -> float:
    """1 if the last number of the answer equals the last number of the reference; 1,234 is one number."""
    due = last_number(reference)
    return float(due is not None and last_number(said) == due)


def last_number(text: str) -> Fraction | None:
    """The last number in the last CHARS characters, or None."""
    numbers = deque(_NUMBER.finditer(text[-CHARS:]), maxlen=1)
    return Fraction(numbers[0][0].replace(",", "").replace("\u2212", "-")) if numbers else None


SCORERS: dict[str, Callable[[str, str], float]] = {
    "exact": exact_match,
    "span_f1": span_f1,
    "edit_distance": edit_distance,
    "list": list_correct,
    "shuffled": shuffle_correct,
    "json": json_f1,
    "expression": expression_correct,
    "number": number_correct,
}
