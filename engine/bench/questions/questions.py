"""Questions of a benchmark, from a file of Spec-Bench's format: one JSON object a line."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from decodescope.engine.core.paths import expand_path
from decodescope.engine.core.refusal import Refusal

from .score import SCORERS

FILE_BYTES = 64 << 20
TURNS = 16
TOLD = 4  # bad lines that a message names
# Spec-Bench's kinds with references that a scorer can read, where a line names none
USUAL = {"math_reasoning": "number"}


class LabBenchError(Refusal):
    """The questions, a file or settings do not allow a measurement. The message is for people."""


@dataclass(frozen=True)
class BenchQuestion:
    """turns: what the user says, one after the other;  references: one answer per turn, none without a scorer."""

    id: int | str
    kind: str
    turns: tuple[str, ...]
    references: tuple[str, ...] = ()
    scorer: str | None = None
    tags: Mapping[str, int | str] = field(default_factory=dict)


def read_questions(path: str | Path) -> tuple[list[BenchQuestion], dict[str, Any]]:
    """The questions of a file, and its name, SHA-256 and number of questions.

    A line is {"question_id", "category", "turns", "reference", "scorer", "tags"}, the last three optional: what has no
    scorer is timed, not judged. Raises LabBenchError with one sentence for each bad line.
    """
    try:
        with expand_path(path).open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise LabBenchError(
            f"The questions {path} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from None
    if len(data) > FILE_BYTES:
        raise LabBenchError(
            f"The questions {path} are more than {FILE_BYTES >> 20} MiB, the limit: give a shorter file."
        )
    questions: list[BenchQuestion] = []
    bad: list[str] = []
    seen: dict[int | str, int] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            question = parse_question(line)
            first = seen.setdefault(question.id, number)
            if first != number:
                raise LabBenchError(
                    f"question_id {question.id!r} is in line {first} already: give each its own."
                )
            questions.append(question)
        except LabBenchError as error:
            bad.append(f"Line {number} of {path}: {error}")
    if bad:
        more = [f"{len(bad) - TOLD} further lines are bad too."] if len(bad) > TOLD else []
        raise LabBenchError("\n".join([*bad[:TOLD], *more]))
    if not questions:
        raise LabBenchError(f"The questions {path} are none: give one JSON object a line.")
    return questions, {"file": Path(path).name, "file_sha256": hashlib.sha256(data).hexdigest()}


def parse_question(line: bytes) -> BenchQuestion:
    """The question of one line; LabBenchError says in one sentence what is wrong with it."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LabBenchError(f"it is no JSON ({str(error)[:80]}).") from None
    if not isinstance(said, dict):
        raise LabBenchError('it is no object: write {"question_id": 1, "category": "qa", "turns": ["..."]}.')

    def get(key: str) -> Any:
        return said.get(key)

    name = get("question_id")
    kind = get("category")
    turns = get("turns")
    _require(
        isinstance(name, (int, str)) and not isinstance(name, bool),
        "question_id",
        name,
        "a whole number or a name",
    )
    _require(
        isinstance(kind, str) and 0 < len(kind) <= 64 and kind.isprintable(),
        "category",
        kind,
        "a name of 1 to 64 letters",
    )
    _require(_is_text_list(turns) and 0 < len(turns) <= TURNS and all(x.strip() for x in turns), "turns", turns,
           f"a list of 1 to {TURNS} texts that are not empty")  # fmt: skip
    scorer = get("scorer")
    references = get("reference")
    tags = said.get("tags", {})
    _require(
        scorer is None or (isinstance(scorer, str) and scorer in SCORERS),
        "scorer",
        scorer,
        f"one of {', '.join(SCORERS)}",
    )
    plain = isinstance(tags, dict) and all(
        isinstance(x, (int, str)) and not isinstance(x, bool) for x in tags.values()
    )
    _require(plain, "tags", tags, "an object of whole numbers and texts")
    whole = _is_text_list(references) and len(references) == len(turns)
    if scorer is None and whole:
        scorer = USUAL.get(kind)
    _require(
        scorer is None or whole, "reference", references, f"a list of {len(turns)} text(s), one for each turn"
    )
    return BenchQuestion(name, kind, tuple(turns), tuple(references) if scorer else (), scorer, tags)


def _require(good: bool, what: str, value: Any, wanted: str) -> None:
    if not good:
        plain = (
            json.dumps(value)[:60]
            if isinstance(value, (str, int, float))
            else f"an unfitting {_WORDS[type(value)]}"
        )
        raise LabBenchError(
            f"{what} {'is missing' if value is None else f'is {plain}'}; it must be {wanted}."
        )


_WORDS = {list: "list", dict: "object", type(None): "null"}


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(x, str) for x in value)


class HasKind(Protocol):
    """A question, or what else has a kind."""

    @property
    def kind(self) -> str:
        """What the benchmark calls questions like it."""
        ...


Asked = TypeVar("Asked", bound=HasKind)


def count_kinds(questions: Iterable[HasKind]) -> dict[str, int]:
    """kind -> number of questions, in the order in which kinds first come."""
    return dict(Counter(x.kind for x in questions))


def first_of_each_kind(questions: Iterable[Asked], count: int) -> list[Asked]:
    """The first `count` questions of every kind, in their order."""
    taken: Counter[str] = Counter()
    chosen = []
    for x in questions:
        taken[x.kind] += 1
        if taken[x.kind] <= count:
            chosen.append(x)
    return chosen


def alternate_kinds(questions: Iterable[Asked]) -> list[Asked]:
    """The same questions with the kinds in turns: the first of each, the second of each, and so on."""
    seen: Counter[str] = Counter()
    turns = []
    for x in questions:
        seen[x.kind] += 1
        turns.append((seen[x.kind], x))
    return [x for _, x in sorted(turns, key=lambda turn: turn[0])]


def spread_over_kinds(
    questions: Iterable[BenchQuestion], count: int, kind_of: Callable[[BenchQuestion], str] = lambda x: x.kind
) -> list[BenchQuestion]:
    """`count` questions of every kind (all, if there are fewer), spread evenly over those of the kind, in their order."""
    whole = list(questions)
    sizes = Counter(map(kind_of, whole))
    seen = Counter[str]()
    chosen = []
    for x in whole:
        kind = kind_of(x)
        size, at = sizes[kind], seen[kind]
        seen[kind] += 1
        if size <= count or at in {(2 * i + 1) * size // (2 * count) for i in range(count)}:
            chosen.append(x)
    return chosen
