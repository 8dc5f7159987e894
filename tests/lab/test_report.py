"""The report: exact counts from handmade traces, and its statements about the toy lab's runs."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toys
from toylab import HOSTILE

from decodescope.engine.core.component import registry
from decodescope.engine.session.method import Method
from decodescope.engine.trace import Header, Step, Trace, TraceError, open_trace
from decodescope.engine.trace.query.conditions import Condition
from decodescope.engine.trace.query.summary import summarise
from decodescope.engine.trace.query.tables import frame
from decodescope.engine.trace.records.events import DraftTree, Extra, Pass, Tops, Trials
from decodescope.lab import report
from decodescope.lab.charts import figure
from decodescope.lab.decision import path_places
from decodescope.lab.decision.decision_csv import export_csv
from decodescope.lab.formatting.kinds import KINDS, kind_of
from decodescope.lab.reports import advice, step_clock, tally
from decodescope.lab.reports.acceptance_csv import export_acceptance
from decodescope.lab.reports.changes import change_tables
from decodescope.lab.reports.report import AcceptanceReport, count_apart
from decodescope.lab.reports.tables import headline, tables

from .runs import METHODS, known, run

PIECES = {
    str(i): text
    for i, text in enumerate(["the", " cat", " dog", "s", ".", " 7", "\n    ", " return", "<|end|>"])
}
THE, CAT, DOG, S, DOT, SEVEN, INDENT, RETURN, END = range(9)


def header(rule: str = "lossless", **more: Any) -> Header:
    method = {
        "drafter": {"name": "draft_model", "max_draft_tokens": 2},
        "acceptance": {"name": rule},
        "sampler": {"name": "temperature"},
    }
    names = {kind: part["name"] for kind, part in method.items()}
    said = Method.from_names({**names, "sampler": ["temperature"]}).describe_parts()
    usual = dict(
        model={"name": "toy", "fingerprint": "f"}, method=method, prompt=np.array([THE], np.int32), seed=0,
        parts={kind: said[kind] for kind in method}, tellings={rule: registry("acceptance")[rule].telling},
    )  # fmt: skip
    return Header(
        **{**usual, "levels": ["summary", "decisions"], "pieces": dict(PIECES), "stop_tokens": [END], **more}
    )


def step(  # noqa: PLR0913
    number: int,
    tokens: list[int],
    parents: list[int],
    tried: list[tuple[int, bool]],
    path: list[int],
    came: int | None,
    *,
    q: list[float] | None = None,
    proposal: str = "iid",
    tops: Tops | None = None,
    rule: dict[str, Any] | None = None,
    n: int = 1,
    us: tuple[float, float, float] = (100.0, 300.0, 50.0),
) -> Step:
    """A step. `tried` lists (node, ok) in order; `us` has the times of drafting, of verifying, and of the rest."""
    q = q or [0.5] * len(tokens)
    t = Trials(
        [node for node, _ in tried],
        [0.25] * len(tried),
        [0.25] * len(tried),
        [q[node] for node, _ in tried],
        [0.5] * len(tried),
        [0.5] * len(tried),
        [ok for _, ok in tried],
    )
    emitted = [tokens[node] for node in path] + ([] if came is None else [came])
    return Step(
        number,
        n,
        0.0,
        sum(us),
        emitted,
        ["accepted"] * len(path) + ([] if came is None else ["residual"]),
        len(tokens),
        len(path),
        us[0],
        us[1],
        passes=[Pass("draft", "draft", 1, n, us[0]), Pass("target", "verify", len(tokens) + 1, n, us[1])],
        path=path,
        draft=DraftTree(tokens, parents, q, proposal, None if proposal == "onehot" else [0.5] * len(tokens)),
        trials=t if tried else None,
        extra=None if came is None else Extra(came, "residual", 0.5),
        tops=tops,
        rule=rule,
    )


def trace(*steps: Step, rule: str = "lossless", **more: Any) -> Trace:
    made = Trace([header(rule, **more)])
    for one in steps:
        made.write(one)
    return made


def laws(*rows: tuple[int, list[float], list[float]], entropy: float = 1.0) -> Tops:
    """The complete distributions of both models at places: (place, p, q)."""
    ids = np.array([list(range(len(p))) for _, p, _ in rows], np.int32)
    p, q = (np.array([row[k] for row in rows], np.float32) for k in (1, 2))
    places, rest = np.array([place for place, _, _ in rows], np.int32), np.zeros((len(rows), 3), np.float32)
    return Tops(places, ids, p, q, rest, np.full(len(rows), entropy, np.float32))


def shares(rows: list[Any]) -> dict[str, tuple[int, int]]:
    return {x.label: (x.tested, x.accepted) for x in rows if x.tested}


def chain() -> Trace:
    """Four drafts of two tokens: refused at once, refused at depth 2, accepted, and cut by the end of the text."""
    return trace(
        step(0, [CAT, S], [-1, 0], [(0, False)], [], DOG, q=[0.25, 0.5]),
        step(1, [CAT, S], [-1, 0], [(0, True), (1, False)], [0], DOT, q=[0.75, 0.95], n=2),
        step(2, [SEVEN, DOT], [-1, 0], [(0, True), (1, True)], [0, 1], INDENT, n=4),
        step(3, [CAT, S], [-1, 0], [(0, True), (1, True)], [0], None, n=7),
    )


def test_depths_fates_kinds_and_bins_are_counted_exactly() -> None:
    made = report(chain())
    assert made.fates == {"refused": 2, "whole": 1, "none": 0, "cut": 1}
    assert [(x.offered, x.tested, x.accepted, x.first) for x in made.depths] == [(3, 3, 2, 2), (3, 2, 1, 1)]
    assert shares(made.kinds) == {
        "word start": (2, 1),
        "inside a word": (1, 0),
        "digit": (1, 1),
        "punctuation": (1, 1),
    }
    assert {kind: n for kind, n in made.came.items() if n} == {"word start": 1, "punctuation": 1}
    assert shares(made.bins) == {
        "0.2 to 0.3": (1, 0),
        "0.5 to 0.6": (2, 2),
        "0.7 to 0.8": (1, 1),
        "0.9 to 1.0": (1, 0),
    }
    assert [x.q for x in made.bins] == [0.25, 0.5, 0.75, 0.95] and {x.p for x in made.bins} == {0.25}
    assert (made.tokens, made.steps, made.passes, made.drafted, made.accepted) == (7, 4, 4, 8, 4)
    assert made.tau == 7 / 4 and made.tokens_per_s == pytest.approx(7 / (4 * 450e-6))
    assert made.entropy[0].tested == 0 and made.expected is None, "no laws were recorded"


def test_acceptance_by_position_is_written_as_the_evaluation_of_speculators_writes_it() -> None:
    head, row = (line.strip().split(",") for line in export_acceptance(report(chain()), "qa"))
    names = "subset num_drafts num_draft_tokens num_accepted_tokens acceptance_length acceptance_at_pos_0"
    assert head == [*names.split(), "acceptance_at_pos_1"]
    assert row[:4] == ["qa", "3", "6", "3"], "the draft that the end of the text cut is not counted"
    assert [float(x) for x in row[4:]] == pytest.approx([2, 2 / 3, 1 / 3])


def test_nothing_was_decided_in_a_step_that_the_text_cut() -> None:
    assert [list(path_places.path_places(one, header())) for one in chain().steps][3] == []


def test_confusions_name_the_first_guess_and_what_came_with_the_text_before() -> None:
    again = step(4, [CAT, S], [-1, 0], [(0, False)], [], DOG, n=8)
    same = step(5, [CAT, S], [-1, 0], [(0, False)], [], CAT, n=9)
    made = report(trace(*chain().steps, again, same))
    assert [(x.drafted, x.came, x.count) for x in made.confusions] == [("␣cat", "␣dog", 2), ("s", ".", 1)]
    assert made.again == 1
    assert [(x.before, x.run, x.step) for x in made.confusions] == [("the", 0, 0), ("the dog cat", 0, 1)]


def test_every_rejection_is_listed_with_its_place_and_rows_find_those_that_they_count() -> None:
    same = step(4, [CAT, S], [-1, 0], [(0, False)], [], CAT, n=8)
    made = report([trace(*chain().steps, same), trace(*chain().steps)])
    where = [(x.run, x.step, x.node, x.depth, x.kind, x.drafted, x.came) for x in made.deaths]
    first = [(0, 0, 0, 1, "word start", "␣cat", "␣dog"), (0, 1, 1, 2, "inside a word", "s", ".")]
    assert where == [*first, (0, 4, 0, 1, "word start", "␣cat", "␣cat"), *((1, *x[1:]) for x in first)]
    assert [(x.p, x.q) for x in made.deaths][:2] == [(0.25, 0.25), (0.25, 0.95)] and made.begins == [
        "the",
        "the",
    ]
    assert next((x.drafted_id, x.came_id, x.position, x.draft_rank) for x in made.deaths) == (
        CAT,
        DOG,
        1,
        None,
    )
    assert len(made.deaths) == made.fates["refused"] == len(made.record()["deaths"])
    for table in tables(made):
        for row, fields in zip(table.rows, table.where or [None] * len(table.rows), strict=True):
            due = [
                x
                for x in made.deaths
                if fields is not None and all(str(vars(x)[k]) == v for k, v in fields.items())
            ]
            if table.title == "By depth":
                assert len(due) == int(row[2]) - int(row[3]), "reached and not accepted"
            if table.title == "What the draft believed":
                assert len(due) == int(row[1]) - int(row[4]), "guesses of chains that were not accepted"
            if table.title == "What became of the drafts":
                assert len(due) == int(row[1]) * ("rejected" in row[0]), "all of them, in one row"
            if table.title == "Taken for another":
                assert len(due) == int(row[2]) and (f"{due[0].run + 1}, {due[0].step}") == row[4]
    assert sum(bool(x.where) for x in tables(made)) >= 5


def test_a_rejection_has_the_rank_of_the_token_that_came_among_the_drafts() -> None:
    drawn = toys.method(drafter=("draft_model", {"max_draft_tokens": 3}), sampler="temperature")
    run = toys.decode(drawn, count=60)
    made = report(run.sink)
    text = [*run.sink.header.prompt.tolist(), *run.end.tokens]
    assert len(made.deaths) > 3 and all(x.draft_rank >= 1 for x in made.deaths if x.draft_rank is not None)
    assert any(x.draft_rank is not None and x.draft_rank > 1 for x in made.deaths)
    for x in made.deaths:
        assert text[x.position] == x.came_id


def test_rejections_behind_the_limit_are_counted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "LISTED", 1)
    made = report(chain())
    assert len(made.deaths) == 1 and made.fates["refused"] == 2


def test_time_is_split_and_adds_up() -> None:
    made = report(chain())
    assert made.spent == pytest.approx(
        {"draft": 100 / 450, "verify": 300 / 450, "policy": 0.0, "rest": 50 / 450}
    )


def test_siblings_are_counted_by_their_turn_and_a_place_once() -> None:
    tree = step(
        0, [CAT, DOG, S, DOT], [-1, -1, 1, 1], [(0, False), (1, True), (2, False), (3, False)], [1], SEVEN
    )
    made = report(trace(tree))
    assert [(x.offered, x.tested, x.accepted, x.first) for x in made.depths] == [(1, 1, 1, 0), (1, 1, 0, 0)]
    assert shares(made.ranks) == {"1st": (2, 0), "2nd": (2, 1)}
    assert [(x.drafted, x.came) for x in made.confusions] == [("s", "␣7")], (
        "the first guess of the place where it died"
    )


def test_what_typical_tries_off_the_path_is_left_out() -> None:
    """Both first tokens pass; the second one's branch is longer, so trials under the first one are on no path."""
    tried = [(0, True), (1, True), (2, False), (3, True)]
    one = step(
        0,
        [CAT, DOG, S, DOT],
        [-1, -1, 0, 1],
        tried,
        [1, 3],
        SEVEN,
        tops=laws((0, [1.0], [0.0]), (1, [1.0], [0.0])),
    )
    made = report(trace(one, rule="typical"))
    assert [(x.tested, x.accepted) for x in made.depths] == [(1, 1), (1, 1)] and made.fates["whole"] == 1
    assert shares(made.kinds) == {"word start": (2, 2), "punctuation": (1, 1)}, (
        "the refused s stood off the path"
    )
    assert sum(x.tested for x in made.entropy) == 1, (
        "of the two laws that are recorded one is of a place on the path"
    )


def test_spectr_tries_all_copies_of_a_place() -> None:
    """Chains CAT S, CAT DOT: the first copy of CAT is refused, the second accepted; below it both continuations count."""
    plan = {"alive": [2, 2], "rho": [1.0, 1.0], "b": [0.5, 0.5], "A": [0.5, 0.5]}
    tried = [(0, False), (2, True), (1, False), (3, False)]
    one = step(0, [CAT, S, CAT, DOT], [-1, 0, -1, 2], tried, [2], DOG, rule=plan)
    made = report(trace(one, rule="spectr"))
    assert [(x.tested, x.accepted) for x in made.depths] == [(1, 1), (1, 0)]
    assert shares(made.ranks) == {"1st": (2, 0), "2nd": (2, 1)}
    lossless = report(trace(step(0, [CAT, S, CAT, DOT], [-1, 0, -1, 2], tried, [2], DOG)))
    assert shares(lossless.ranks) == {"1st": (2, 0), "2nd": (1, 1)}, (
        "another rule looks only below the node of the path"
    )


def test_block_counts_what_stays_not_what_passed_a_test() -> None:
    """The tests of the first token failed and that of the second succeeded, so both stay."""
    tried = [(0, False), (1, True), (2, False)]
    made = report(
        trace(step(0, [CAT, S, DOT], [-1, 0, 1], tried, [0, 1], DOG, rule={"h": [], "u": []}), rule="block")
    )
    assert [(x.tested, x.accepted) for x in made.depths] == [(1, 1), (1, 1), (1, 0)]
    assert shares(made.kinds) == {"word start": (1, 1), "inside a word": (1, 1), "punctuation": (1, 0)}


def test_a_passenger_is_no_guess() -> None:
    """Node 1 is in the tree but never tried: the draft was accepted to its end."""
    made = report(trace(step(0, [CAT, S], [-1, 0], [(0, True)], [0], DOG)))
    assert made.fates["whole"] == 1 and [(x.offered, x.tested) for x in made.depths] == [(1, 1), (1, 0)]
    assert not made.confusions


def test_steps_without_a_draft_are_none_and_slow_the_mean_down() -> None:
    bare = Step(
        1,
        2,
        0.0,
        400.0,
        [CAT],
        ["target"],
        passes=[Pass("target", "verify", 1, 2, 300.0)],
        extra=Extra(CAT, "target"),
    )
    made = report(trace(chain().steps[0], bare))
    assert made.fates == {"refused": 1, "whole": 0, "none": 1, "cut": 0}


def test_one_hot_drafts_have_no_q() -> None:
    made = report(trace(step(0, [CAT, S], [-1, 0], [(0, False)], [], DOG, q=[1.0, 1.0], proposal="onehot")))
    assert made.bins == [] and any("one-hot" in x for x in made.notes)
    assert "What the draft believed" not in [x.title for x in tables(made)]


def test_several_traces_are_counted_together_and_the_example_names_its_run() -> None:
    made = report([trace(chain().steps[2]), chain()])
    assert (made.runs, made.steps) == (2, 5) and made.fates["whole"] == 2
    assert {x.run for x in made.confusions} == {1}


@pytest.mark.parametrize(
    ("traces", "says"),
    [
        ([], "There is no trace"),
        ([trace(*chain().steps, levels=["summary"])], "level summary"),
        ([chain(), trace(*chain().steps, rule="block")], "another method"),
        ([chain(), trace(*chain().steps, model={"name": "toy", "fingerprint": "g"})], "another model"),
        ([chain(), trace(*chain().steps, lanes={"draft": {"fingerprint": "g"}})], "another draft model"),
        ([chain(), trace(*chain().steps, device="cuda")], "another type or device"),
        ([trace()], "No step of these traces holds a draft"),
        ([trace(*chain().steps[3:])], "^The only draft of these traces was cut by .*: take longer"),
        (
            [trace(*chain().steps[3:]), trace(*chain().steps[3:])],
            "^All 2 drafts of these traces were cut by the end",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused_in_a_sentence(traces: list[Trace], says: str) -> None:
    with pytest.raises(TraceError, match=says) as refused:
        report(traces)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)


TURN = '[{"role": "user", "content": "a"}]'
TALK = '[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]'
READ = {
    "raw": dict(),
    "first": dict(chat=True, turn="a"),
    "messages": dict(chat=True, turn=TURN, prompt_kind="messages"),
    "later": dict(chat=True, turn=TALK, prompt_kind="messages"),
    "unknown": dict(chat=True, prompt_kind="messages"),
}


@pytest.mark.parametrize(
    ("name", "reading", "said"),
    [("raw", "raw", "raw text, without"), ("first", "first", "Every prompt was put"), ("messages", "first", "Every prompt"),
     ("later", "later", "Every prompt was a later turn"), ("unknown", "unknown", "Every prompt was put through")],
)  # fmt: skip
def test_a_report_says_how_its_prompts_were_put(name: str, reading: str, said: str) -> None:
    made = report(trace(*chain().steps, **READ[name]))
    assert made.reading == made.record()["reading"] == reading and said in headline(made)[2]


def test_runs_whose_prompts_were_put_in_different_ways_are_not_counted_together() -> None:
    raw, first, later = (trace(*chain().steps, **READ[x]) for x in ("raw", "first", "later"))
    assert report([first, trace(*chain().steps, **READ["messages"])]).runs == 2, (
        "one user's turn, however it was given"
    )
    for pair, words in (
        ((raw, first), "a first turn through"),
        ((first, later), "a later turn of a conversation"),
    ):
        with pytest.raises(TraceError, match=words) as refused:
            report(pair)
        assert "--apart" in str(refused.value) and str(refused.value).endswith(".")
    apart = count_apart([raw, later, trace(*chain().steps[:2])])
    assert [(x.reading, x.runs, x.steps) for x in apart] == [("raw", 2, 6), ("later", 1, 4)]
    (only,) = count_apart([raw, trace(chain().steps[3], **READ["later"])])
    assert (
        only.reading == "raw" and "was cut by the end" in only.notes[-1] and "a later turn" in only.notes[-1]
    )
    assert any("so a change may come from that" in x for x in change_tables(apart[0], apart[1])[0].below)


def test_a_draft_inside_which_the_text_ended_is_a_draft_for_every_reader(tmp_path: Path) -> None:
    """A report counts nothing of such a run, and says why; tables, conditions, figures and exports show it."""
    parts, pair = dict(drafter=("draft_model", {"max_draft_tokens": 4})), toys.pair(noise=0.0)
    whole = toys.decode(toys.method(**parts), count=12, pair=pair)
    (first,) = whole.sink.steps[:1]
    assert first.accepted > 1, "the test needs a draft that is accepted"
    cut = toys.decode(toys.method(**parts), count=12, pair=pair, stop_tokens=[first.emitted[0]])
    assert cut.end.tokens == first.emitted[:1] and cut.sink.steps[0].extra is None and cut.end.notes == []
    with pytest.raises(TraceError, match="only draft of these traces was cut by the end of the text"):
        report(cut.sink)
    rows = frame(cut.sink, "decisions")
    assert rows.kept.tolist() == [True, *[False] * (len(rows) - 1)] and len(rows) == first.drafted
    assert Condition("drafted > 0").watch_run(cut.sink.header).see(cut.sink.steps[0], {}).value is True
    assert len(figure(cut.sink, "tree").data) > 1
    path = cut.sink.save(tmp_path / "cut.dstrace")
    table = "".join(export_csv(open_trace(path))).splitlines()
    assert len(table) == 1 + first.drafted and table[1].endswith("accepted,1")


# ---- distributions


def test_of_a_fork_only_what_its_own_method_decided_by_itself_is_counted() -> None:
    def forked(forced: list[Any], rule: str) -> Trace:
        was = header("block")
        base = {"method": was.method, "parts": was.parts, "seed": 0, "max_new_tokens": 16}
        told = {"of": "0" * 16, "step": 1, "name": "", "change": {}, "forced": forced, "base": base}
        tellings = was.tellings | header(rule).tellings
        return trace(*chain().steps, rule=rule, max_new_tokens=16, fork=told, tellings=tellings)

    whole, own, forced = (
        report(chain()),
        report(forked([], "lossless")),
        report(forked([[0, True]], "lossless")),
    )
    assert (whole.steps, own.steps, forced.steps) == (4, 3, 2)
    assert report(forked([], "block")).steps == 4, "another seed alone changes no rule"
    later = report(trace(*chain().steps[1:]))
    assert shares(own.depths) == shares(later.depths) != shares(whole.depths) and own.tokens == later.tokens
    told = [[x for x in made.notes if "is a fork" in x] for made in (whole, own, forced)]
    assert (
        not told[0]
        and "1 of its steps were made by another method or forced" in told[1][0]
        and "2 of" in told[2][0]
    )


def test_overlap_agreement_and_the_second_guess_follow_from_the_laws() -> None:
    p, q = [0.5, 0.3, 0.2], [0.2, 0.7, 0.1]
    law = path_places.distributions_at(laws((-1, p, q)), -1)
    assert law is not None and law.drawn and not law.agree
    assert law.overlap == pytest.approx(0.2 + 0.3 + 0.1)
    owed = np.maximum(np.subtract(p, q), 0) / 0.4  # the residual of p after a refusal: 0.75, 0, 0.25
    again = np.array([0.2, 0.0, 0.1]) / 0.3  # q without token 1
    assert law.second_guess_chance(1) == pytest.approx(np.minimum(owed, again).sum())


def test_tokens_that_are_not_shown_count_in_the_overlap() -> None:
    shown = laws((-1, [0.5, 0.1], [0.3, 0.3]))
    shown.rest[0] = [0.4, 0.4, 0.15]  # p exceeds q by 0.15 on the other tokens
    law = path_places.distributions_at(shown, -1)
    assert law is not None and law.overlap == pytest.approx(1 - 0.2 - 0.15, abs=1e-6)


def test_expected_acceptance_is_the_mean_overlap() -> None:
    sure, wrong = laws((-1, [0.5, 0.5], [0.5, 0.5])), laws((-1, [1.0, 0.0], [0.0, 1.0]), entropy=0.01)
    made = report(
        trace(
            step(0, [CAT], [-1], [(0, True)], [0], DOG, tops=sure),
            step(1, [CAT], [-1], [(0, False)], [], DOG, tops=wrong, n=3),
        )
    )
    assert made.expected == pytest.approx(0.5)
    assert shares(made.entropy) == {"0 to 0.05": (1, 0), "1 to 2": (1, 1)}


# ---- kinds


@pytest.mark.parametrize(
    ("piece", "before", "kind"),
    [
        ("\n    ", "x = 1", "indent"),
        (" ", "a", "indent"),
        (" return", "def f(x):\n   ", "keyword"),
        (" return", "They will", "word start"),
        (" total", "x = 1\n", "name"),
        ("al", "x = tot", "inside a word"),
        ("_x", "def f", "inside a word"),
        (" 42", "It is", "digit"),
        ("4", "x", "digit"),
        (" Conrad", "One day", "name"),
        (" Conrad", "He left. ", "word start"),
        (" Conrad", 'He left." ', "word start"),
        (" I", "when", "word start"),
        ("Once", "", "word start"),
        ("),", "f(x", "punctuation"),
        ("<|end|>", "a", "special"),
        (None, "a", "special"),
        (["e2", "82"], "a", "inside a word"),
        ("ß", "Fu", "inside a word"),
    ],
)
def test_a_token_is_of_one_kind(piece: Any, before: str, kind: str) -> None:
    assert kind_of(piece, before) == kind and kind in KINDS


def test_a_stop_token_is_special_whatever_it_reads() -> None:
    made = report(trace(step(0, [CAT], [-1], [(0, False)], [], DOG), stop_tokens=[CAT]))
    assert shares(made.kinds) == {"special": (1, 0)}


# ---- advice


@cache
def toy(length: int, sampler: str = "greedy") -> Trace:
    return toys.decode(
        toys.method(drafter=("draft_model", {"max_draft_tokens": length}), sampler=sampler), count=300
    ).sink


def test_a_shorter_draft_is_predicted_from_the_longer_one() -> None:
    """Under a greedy sampler both write the same text; only the places at which drafts begin differ."""
    long, short = report(toy(4)), report(toy(2))
    point = long.curve[2]
    assert point.tokens == pytest.approx(short.tokens / short.steps, rel=0.1)
    assert long.curve[4].gain == 1.0 and long.curve[0].tokens == 1.0
    steps = [s for s in toy(4).steps if s.extra is not None]
    assert long.curve[4].tokens == pytest.approx(1 + sum(s.accepted for s in steps) / len(steps))
    assert len(long.depths) == 4 and min(x.tested - x.accepted for x in long.depths[:2]) > 10, (
        "it needs refusals"
    )


def test_prompt_lookup_is_predicted_to_the_step() -> None:
    """The count on the text of plain drafting matches what prompt lookup then does."""
    drafted, looked = toy(4), toys.decode(toys.method(drafter="prompt_lookup"), count=300).sink
    assert drafted.tokens == looked.tokens and any(s.drafted for s in looked.steps)
    steps, tokens, sizes = advice.simulate_prompt_lookup(drafted.tokens, len(drafted.header.prompt), 300)
    assert (steps, tokens) == (len(looked.steps), 300)
    assert sizes == Counter(s.drafted + 1 for s in looked.steps)


def test_a_second_chain_is_predicted_from_the_laws() -> None:
    """The prediction is compared with runs of the tree itself."""
    alone, both = (
        toys.decode(
            toys.method(drafter=("draft_model", dict(max_draft_tokens=2, width=w)), sampler="temperature"),
            count=400,
        ).sink
        for w in (1, 2)
    )
    told = next(x for x in report(alone).advice if x.kind == "tree")
    steps = [s for s in both.steps if s.extra is not None]
    assert told.how == "--set drafter.width=2"
    assert told.tokens == pytest.approx(1 + sum(s.accepted for s in steps) / len(steps), rel=0.1)


def test_the_clock_measures_what_it_saw_and_scales_the_rest() -> None:
    seen = step_clock.AdviceData(cycles=[step_clock.StepCost(2, (1, 1), 1, 3, True, 100.0, 300.0, 50.0)] * 20)
    seen.cycles += [step_clock.StepCost(4, (1, 1, 1, 1), 1, 5, True, 200.0, 500.0, 50.0)] * 20
    seen.cycles += [step_clock.StepCost(1, (1,), 1, 2, True, 50.0, 9000.0, 50.0)] * 19
    clock = step_clock.Clock(header(), seen)
    assert [clock.verify_us(n) for n in (3, 4, 5)] == [300.0, 400.0, 500.0]
    assert clock.verify_us(2) == 300.0, "too few were seen to count as measured"
    assert clock.verify_us(3.5) == 350.0 and clock.verify_us(9) == 500.0, (
        "without a shape nothing is known of other sizes"
    )
    assert clock.step_us(3, 2) == 300 + 50 + 2 * 50
    real = step_clock.Clock(known("chain").header, seen)
    assert real.verify_us(1) < 300.0 < 500.0 < real.verify_us(64), "by the bytes that they move"


TORCH = {
    "target": {"1": 100.0, "2": 180.0, "4": 320.0, "8": 520.0}
}  # rows nearly as dear as passes of their own


def test_the_clock_scales_other_sizes_by_the_measured_curve() -> None:
    seen = step_clock.AdviceData(
        cycles=[step_clock.StepCost(3, (1, 1, 1), 1, 4, True, 100.0, 640.0, 50.0)] * 20
    )
    clock = step_clock.Clock(header(pass_us=TORCH), seen)
    assert [clock.verify_us(n) for n in (1, 2, 4, 8)] == pytest.approx([200.0, 360.0, 640.0, 1040.0])
    assert "measured cost of passes" in clock.source
    assert clock.verify_us(40) == 640.0, "the curve says nothing of so many rows, and there is no shape"


@pytest.mark.parametrize(
    ("path", "draft_us", "said"),
    [
        (1.1, 0.0, "8 rows cost 5.2 of one pass here; 2.1 tokens per pass cannot pay."),
        (1.1, 40.0, "8 rows cost 5.2 of one pass here and the draft 0.4; 2.1 tokens per pass cannot pay."),
        (6, 0.0, "7.0 tokens per pass are at most 1.35 times as fast as plain decoding."),
    ],
)
def test_whether_drafting_pays_is_said_with_both_figures(path: float, draft_us: float, said: str) -> None:
    seen = step_clock.AdviceData(
        cycles=[step_clock.StepCost(7, (1,) * 7, path, 8, False, draft_us, 520.0, 5.0)] * 20  # type: ignore[arg-type]
    )
    assert advice.drafting_payoff(header(pass_us=TORCH), seen).endswith(said)
    for none in ({}, {"target": {"1": 100.0}}, {"target": "?"}, {"target": {"1": 100.0, "2": 180.0}}):
        assert advice.drafting_payoff(header(pass_us=none), seen) == ""


def test_the_report_s_lead_says_whether_drafting_pays() -> None:
    one = step(0, [CAT, CAT], [-1, 0], [(0, False)], [], DOG)
    made = report(trace(one, pass_us={"target": {"1": 100.0, "8": 730.0}}))
    assert (
        "3 rows cost 2.8 of one pass here" in made.payoff and "1.0 tokens per pass cannot pay." in made.payoff
    )
    assert made.payoff in headline(made) and made.record()["payoff"] == made.payoff
    assert report(trace(one)).payoff == ""


def test_without_times_nothing_is_promised() -> None:
    made = report(trace(step(0, [CAT], [-1], [(0, False)], [], DOG, us=(0.0, 0.0, 0.0))))
    assert made.advice == [] and made.curve == [] and made.clock is None
    assert any("no time was recorded" in x for x in made.notes)


# ---- the toy lab


DRAFTING = [name for name, parts in METHODS.items() if "drafter" in parts]


@pytest.mark.parametrize("name", DRAFTING)
def test_counts_of_every_rule_agree_with_the_paths(name: str) -> None:
    it = known(name)
    made, s = report(it), summarise(it)
    whole = [x for x in it.steps if x.draft is not None and x.extra is not None]
    assert sum(x.accepted for x in made.depths) == sum(len(x.path or []) for x in whole)
    assert sum(made.fates.values()) == len(it.steps) == made.steps
    refused = [x for x in whole if x.extra is not None and x.extra.origin in ("residual", "correction")]
    assert made.fates["refused"] == len(refused) == sum(x.tested - x.accepted for x in made.depths)
    assert (
        sum(x.count for x in made.confusions) + made.others + made.again
        == len(refused)
        == sum(made.came.values())
    )
    assert [x.count for x in made.confusions] == sorted((x.count for x in made.confusions), reverse=True)
    assert (made.tokens, made.accepted, made.drafted, made.passes) == (
        s.tokens,
        s.accepted,
        s.drafted,
        s.target_passes,
    )
    assert sum(x.tested for x in made.entropy) == sum(x.tested for x in made.depths), "every place has a law"
    assert (
        sum(x.tested for x in made.kinds)
        == sum(x.tested for x in made.ranks)
        >= sum(x.tested for x in made.depths)
    )
    assert bool(made.bins) == (name not in ("greedy", "copied"))
    assert sum(made.spent.values()) == pytest.approx(1.0, abs=0.05)
    assert made.advice and all(x.gain > 0 for x in made.advice) and headline(made) and len(tables(made)) > 5
    json.dumps(made.record(), allow_nan=False)


@pytest.mark.parametrize("name", ["plain", "jacobi", "beam"])
def test_methods_without_drafts_are_refused(name: str) -> None:
    with pytest.raises(TraceError, match="holds a draft"):
        report(known(name))


def test_a_file_says_what_the_run_in_memory_said(tmp_path: Any) -> None:
    from decodescope.engine.trace import open_trace

    path = known("chain").save(tmp_path / "run.dstrace")
    opened = open_trace(path)
    assert report(opened).record() == report(known("chain")).record()
    opened.close()


def test_hostile_tokens_stay_text() -> None:
    made = report(run("chain", hostile=True, count=200))
    texts = [x for table in tables(made) for row in table.rows for x in row]
    assert made.confusions and not [x for x in texts if set(x) & set("\0\x1b\x7f\u202e\n")]
    assert {x.drafted for x in made.confusions} & {x for x in HOSTILE if x.isprintable() and " " not in x}


def test_the_lab_offers_it() -> None:
    from decodescope import lab

    assert lab.report is report and isinstance(lab.report(known("chain")), AcceptanceReport)
