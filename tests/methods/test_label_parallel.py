"""Label-parallel decoding: counts, then mentions, side by side; passes are those of the longest branch, in any order."""

from __future__ import annotations

import copy
import math
from typing import Any

import bytewise
import pytest
import toys
from torch import Tensor

from decodescope.engine import MethodError, Session
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.session.load import Model
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.details.labels import Mention, count_in, mention_in, settle
from decodescope.engine.trace.details.threads import schedule

TOKENIZER = bytewise.letters()
TEXT = "Ann met Bo."
PROMPT = TOKENIZER.plain(TEXT)
IDS = {letter: TOKENIZER.plain(letter)[0] for letter in "0123456789#=x\n"}
LETTERS = {token: letter for letter, token in IDS.items()}
COUNT, MENTION = "\n{label}#", "\nM{index}="
COUNTS = {
    "a": "2",
    "bb": "1",
    "ccc": "0",
    "dddd": "3",
}  # by label; their lengths differ, and so do the places behind them


class Counting(Decoder):
    """A model that counts what it is told behind a "#", goes on with a line break behind a digit, and else writes what it
    likes; behind a "=" it likes "x" more or less, by the place, where `likes` says so, and then it ends."""

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


def run(names: list[str], likes: bool = False, total: int = 80, **knobs: Any) -> Session:
    settings = {"labels": "\n".join(names), "count": COUNT, "mention": MENTION, "length": 6, **knobs}
    session = Session(
        model(likes), toys.method(strategy=("label_parallel", settings)), PROMPT, max_new_tokens=total
    )
    session.sink = Trace()
    for _ in session.stream():
        pass
    assert check(session.sink).ok, str(check(session.sink))
    return session


def grid(session: Session) -> dict[tuple[str, int], tuple[str, list[float], str]]:
    """(label, index) -> text, probabilities, why it was dropped."""
    labels = session.sink.steps[-1].labels
    return {(labels.names[x.label], x.index): (x.text, x.p, x.dropped) for x in labels.mentions}


def alone(prompt: str, count: int, likes: bool = False) -> list[int]:
    """What plain decoding writes behind it."""
    session = Session(model(likes), toys.method(), TOKENIZER.plain(prompt), max_new_tokens=count)
    for _ in session.stream():
        pass
    return session.end.tokens


def test_each_mention_is_that_of_a_run_of_its_own_behind_its_count() -> None:
    session = run(list(COUNTS))
    labels = session.sink.steps[-1].labels
    assert labels.counts == [2, 1, 0, 3] and len(labels.mentions) == 6
    by_thread: dict[int, list[int]] = {}
    for step in session.sink.steps:
        for number, token in zip(step.detail("threads").alive, step.detail("threads").tokens, strict=True):
            by_thread.setdefault(number, []).append(token)
    for one in labels.mentions:
        name = labels.names[one.label]
        before = (
            TEXT + COUNT.replace("{label}", name) + COUNTS[name] + MENTION.replace("{index}", str(one.index))
        )
        due = alone(before, 6)
        assert by_thread[one.thread] == due
        assert one.text == mention_in(b"".join(map(TOKENIZER.bytes_of, due)).decode("utf-8", "replace"))
        assert one.logp == pytest.approx(sum(map(math.log, one.p)))
    assert all(step.labels is None for step in session.sink.steps[:-1])


def test_passes_are_those_of_the_longest_branch_not_of_the_sum() -> None:
    for names in (["a"], ["a", "bb"], list(COUNTS)):
        session = run(names)
        taken = schedule(step.detail("threads") for step in session.sink.steps)
        counted = 2  # a digit, and the line break by which it is known to be one
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
    found = grid(run(list(COUNTS), likes=True))
    assert {text for text, _, _ in found.values()} == {"x"}, "the test needs duplicates"
    best = max(found, key=lambda k: math.prod(found[k][1]))
    for (name, _), (_, _, dropped) in found.items():
        assert dropped == ("" if name == best[0] else "duplicate")
    assert len({math.prod(p) for _, p, _ in found.values()}) > 2, "the test needs probabilities that differ"


def test_mentions_of_one_label_may_be_alike_and_of_equal_ones_the_first_label_keeps_its_own() -> None:
    rows = [Mention(0, 1, 0, "x", [], -2.0), Mention(0, 2, 1, "x", [], -9.0), Mention(1, 1, 2, "x", [], -2.0)]
    settle(rows)
    assert [x.dropped for x in rows] == ["", "", "duplicate"]
    rows[2].logp = -1.0
    settle(rows)
    assert [x.dropped for x in rows] == ["duplicate", "duplicate", ""]
    assert (count_in(" 12\n"), count_in("2a"), count_in("no"), count_in("")) == (12, 2, None, None)
    assert (mention_in(" Rome \nand more"), mention_in("\n")) == ("Rome", "")


def test_a_count_is_bounded_and_entries_go_with_their_threads() -> None:
    session = run(["dddd"], most=2)
    labels = session.sink.steps[-1].labels
    assert labels.counts == [3] and len(labels.mentions) == 2
    full = run(list(COUNTS))
    held = [step.cache[0].held for step in full.sink.steps]
    assert max(held) < len(PROMPT) + sum(
        len(x.given) + 8 for s in full.sink.steps for x in s.detail("threads").begun
    )
    assert full.target.cache.layers[0].n <= max(held)


def test_what_counts_nothing_writes_no_mentions() -> None:
    session = run(["ccc"])
    assert (
        grid(session) == {} and len(session.sink.steps) == 2 and session.end.tokens == TOKENIZER.plain("0\n")
    )


def test_check_finds_labels_that_do_not_follow() -> None:
    session = run(list(COUNTS), likes=True)
    last = len(session.sink.steps) - 1
    lies = (
        lambda x: x.counts.__setitem__(0, 3),
        lambda x: x.mentions.pop(),
        lambda x: setattr(x.mentions[0], "text", "y"),
        lambda x: setattr(x.mentions[0], "logp", -0.5),
        lambda x: x.mentions[1].p.append(1.0),
        lambda x: setattr(x.mentions[0], "dropped", "" if x.mentions[0].dropped else "duplicate"),
        lambda x: x.threads.__setitem__(0, 99),
        lambda x: x.names.pop(),
    )
    assert check(session.sink).counts["labels"] == 4
    for lie in lies:
        wrong = copy.deepcopy(session.sink)
        lie(wrong.steps[last].labels)
        assert not check(wrong).ok


def test_forms_that_are_the_same_for_all_are_refused() -> None:
    with pytest.raises(
        MethodError, match=r"count and mention are the same for all: put \{label\} into the one"
    ):
        run(["a"], count="How many:")
