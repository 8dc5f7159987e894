"""Label-parallel decoding: counts, then mentions, side by side; passes are those of the longest branch, in any order."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import toys
from label_model import COUNT, COUNTS, MENTION, PROMPT, TEXT, TOKENIZER, model

from decodescope.engine import MethodError, Session
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.shapes import TallyDetail
from decodescope.engine.trace.details.threads import thread_schedule
from decodescope.engine.trace.values.mentions import STAND, mention_outcomes, parse_count, parse_mention
from decodescope.lab.decision.explain import explain
from decodescope.lab.decision.tally import find_tally


def run(names: list[str], likes: bool = False, total: int = 80, **knobs: Any) -> Session:
    settings = {
        "labels": "\n".join(names),
        "count_template": COUNT,
        "mention_template": MENTION,
        "max_mention_tokens": 6,
        **knobs,
    }
    session = Session(
        model(likes), toys.method(strategy=("label_parallel", settings)), PROMPT, max_new_tokens=total
    )
    session.sink = Trace()
    for _ in session.stream():
        pass
    assert check(session.sink).ok, str(check(session.sink))
    return session


def found(session: Session) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
    """The columns of the labels, and the mentions row by row."""
    labels, mentions = (session.sink.steps[-1].detail(name) for name in ("labels", "mentions"))
    return labels.columns, [mentions.row(k) for k in range(len(mentions))]


def grid(session: Session) -> dict[tuple[str, int], tuple[str, list[float], bool]]:
    """(label, index) -> text, probabilities, whether the mention is kept."""
    return {(x["name"], x["index"]): (x["text"], x["p"], x["outcome"] in STAND) for x in found(session)[1]}


def alone(prompt: str, count: int, likes: bool = False) -> list[int]:
    """The tokens that plain decoding writes after it."""
    session = Session(model(likes), toys.method(), TOKENIZER.encode_plain(prompt), max_new_tokens=count)
    for _ in session.stream():
        pass
    return session.end.tokens


def test_each_mention_is_that_of_a_run_of_its_own_behind_its_count() -> None:
    session = run(list(COUNTS))
    labels, mentions = found(session)
    assert labels["count"] == [2, 1, 0, 3] and len(mentions) == 6
    by_thread: dict[int, list[int]] = {}
    for step in session.sink.steps:
        for number, token in zip(step.detail("threads").alive, step.detail("threads").tokens, strict=True):
            by_thread.setdefault(number, []).append(token)
    for one in mentions:
        name = labels["name"][one["label"]]
        index = MENTION.replace("{index}", str(one["index"]))
        due = alone(TEXT + COUNT.replace("{label}", name) + COUNTS[name] + index, 6)
        assert by_thread[one["thread"]] == due and one["name"] == name
        assert one["text"] == parse_mention(b"".join(map(TOKENIZER.bytes_of, due)).decode("utf-8", "replace"))
        assert one["logp"] == pytest.approx(sum(map(math.log, one["p"])))
    assert all(step.detail("labels") is None for step in session.sink.steps[:-1])


def test_passes_are_those_of_the_longest_branch_not_of_the_sum() -> None:
    for names in (["a"], ["a", "bb"], list(COUNTS)):
        session = run(names)
        taken = thread_schedule(step.detail("threads") for step in session.sink.steps)
        counted = 2  # a digit, and the line break that ends it
        longest = counted + max(len(p) for _, p, _ in grid(session).values())
        assert taken.rounds == longest and (taken.tokens > 2 * longest or names == ["a"])
        passes = [one for step in session.sink.steps for one in step.passes if one.phase == "verify"]
        assert len(passes) == longest


def test_the_order_of_the_labels_changes_nothing() -> None:
    due = grid(run(list(COUNTS), likes=True))
    for names in (["dddd", "a", "ccc", "bb"], list(reversed(COUNTS))):
        again = grid(run(names, likes=True))
        assert {k: (x[0], x[2]) for k, x in again.items()} == {k: (x[0], x[2]) for k, x in due.items()}
        assert all(again[k][1] == pytest.approx(due[k][1], abs=1e-5) for k in due)


def test_of_labels_with_the_same_mention_the_likelier_keeps_it() -> None:
    every = grid(run(list(COUNTS), likes=True))
    assert {text for text, _, _ in every.values()} == {"x"}, "the test needs duplicates"
    best = max(every, key=lambda k: math.prod(every[k][1]))
    for (name, _), (_, _, stands) in every.items():
        assert stands == (name == best[0])
    assert len({math.prod(p) for _, p, _ in every.values()}) > 2, "the test needs probabilities that differ"


def test_mentions_of_one_label_may_be_alike_and_of_equal_ones_the_first_label_keeps_its_own() -> None:
    rows = [0, 0, 1], ["x", "x", "x"]
    assert mention_outcomes(*rows, [-2.0, -9.0, -2.0])[0] == ["first", "first", "later"]
    outcomes, own, other = mention_outcomes(*rows, [-2.0, -9.0, -1.0])
    assert outcomes == ["unlikelier", "unlikelier", "likelier"]
    assert own == [-2.0, -2.0, -1.0] and other == [-1.0, -1.0, -2.0]
    assert mention_outcomes([0, 1], ["x", "y"], [-2.0, -9.0]) == (
        ["only", "only"],
        [-2.0, -9.0],
        [None, None],
    )
    assert (parse_count(" 12\n"), parse_count("2a"), parse_count("no"), parse_count("")) == (
        12,
        2,
        None,
        None,
    )
    assert (parse_mention(" Rome \nand more"), parse_mention("\n")) == ("Rome", "")


def test_a_count_is_bounded_and_entries_go_with_their_threads() -> None:
    session = run(["dddd"], max_mentions=2)
    labels, mentions = found(session)
    assert labels["count"] == [3] and len(mentions) == 2
    full = run(list(COUNTS))
    held = [step.cache[0].held for step in full.sink.steps]
    assert max(held) < len(PROMPT) + sum(
        len(x.given) + 8 for s in full.sink.steps for x in s.detail("threads").begun
    )
    assert full.target.cache.layers[0].n <= max(held)


def test_what_counts_nothing_writes_no_mentions() -> None:
    session = run(["ccc"])
    assert (
        grid(session) == {}
        and len(session.sink.steps) == 2
        and session.end.tokens == TOKENIZER.encode_plain("0\n")
    )


def test_check_finds_labels_that_do_not_follow() -> None:
    session = run(list(COUNTS), likes=True)
    last = len(session.sink.steps) - 1
    assert check(session.sink).counts["labels"] == 4

    def entry(name: str, place: int, value: Any) -> Callable[[TallyDetail, TallyDetail], Any]:
        return lambda labels, mentions: mentions.columns[name].__setitem__(place, value)

    outcome = session.sink.steps[last].detail("mentions").columns["outcome"][0]
    lies = [
        ("it read the count 3", lambda x, y: x.columns["count"].__setitem__(0, 3)),
        ("more mentions were written than", lambda x, y: x.columns["count"].__setitem__(0, 1)),
        ("are not those whose threads began", lambda x, y: [column.pop() for column in y.columns.values()]),
        ("is called 'y', but its thread wrote", entry("text", 0, "y")),
        ("which is not that of its tokens", entry("logp", 0, -0.5)),
        ("not one probability for each", lambda x, y: y.columns["p"][1].append(1.0)),
        ("not one probability for each", entry("p", 1, [])),
        ("and by the probabilities it is", entry("outcome", 0, "only")),
        ("and by the probabilities it is", entry("own", 0, -0.25)),
        ("and by the probabilities it is", entry("other", 0, None)),
        ("name a thread that there is not", lambda x, y: x.columns["thread"].__setitem__(0, 99)),
        ("name a thread that there is not", entry("thread", 0, -1)),
        ("entries, where 4 are due", lambda x, y: x.columns["name"].pop()),
        ("which is another label", entry("name", 0, "bb")),
        ("lack a p", lambda x, y: y.columns.pop("p")),
        ("lack a label", entry("label", 0, None)),
        ("have a number that is not whole", entry("index", 0, 1.0)),
        ("mentions of 6 that are kept, and", lambda x, y: x.values.__setitem__("kept", 9)),
        ("lacks the numbers that decide it", lambda x, y: y.columns.pop("other")),
        ("must hold entries of the type text", entry("text", 0, 3)),
        ("without an outcome", entry("outcome", 0, "duplicate")),
    ]
    assert outcome != "only", "the test needs a mention that another label has"
    for said, lie in lies:
        wrong = copy.deepcopy(session.sink)
        lie(*wrong.steps[last].details[1:])
        assert any(said in x for x in check(wrong).problems), (said, str(check(wrong)))
    for change in (lambda x: x.pop(), lambda x: x.pop(0), lambda x: x.reverse(), lambda x: x.append(x[0])):
        wrong = copy.deepcopy(session.sink)
        details = wrong.steps[last].details
        details[1:], rest = [], details[1:]  # after the threads
        change(rest)
        details += rest
        assert any("labels and then mentions, once" in x for x in check(wrong).problems)


def test_labels_are_kept_at_every_level_and_stand_below_the_threads() -> None:
    session = run(list(COUNTS), likes=True)
    last = session.sink.steps[-1]
    assert last.detail("threads") is not None, "the step has three records"
    brief = Session(
        model(True),
        session.method,
        PROMPT,
        max_new_tokens=80,
        level="summary",
    )
    brief.sink = Trace()
    for _ in brief.stream():
        pass
    assert brief.sink.steps[-1].details == last.details and check(brief.sink).ok
    card = find_tally(session.sink.header, last, str)
    kept = sum(stands for _, _, stands in grid(session).values())
    assert card.says == f"{kept} of 6 mentions stand" and len(card.rows) == 10 and len(card.lines) == 2
    assert [row.word for row in card.rows[:4]] == [f"counted {n}" for n in COUNTS.values()]
    assert {row.word for row in card.rows[4:]} >= {"mention 1", "mention 1, dropped"}
    explained = explain(session.sink, last.step, what="step")
    assert explained.agrees and "Of labels with the same mention" in str(explained)


def test_forms_that_are_the_same_for_all_are_refused() -> None:
    with pytest.raises(
        MethodError,
        match=r"count_template and mention_template are the same for all: put \{label\} into the one",
    ):
        run(["a"], count_template="How many:")
