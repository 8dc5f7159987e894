"""Causes from recordings alone: planted faults are named, healthy and weak drafts are not called broken, gaps are named."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import toys

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.trace import Trace
from decodescope.lab.reports.report import AcceptanceReport, count_report
from decodescope.lab.reports.tables import tables
from decodescope.lab.reports.trace_places import PlaceLog, RunText, TriedPlace
from decodescope.lab.reports.trace_signatures import diagnose

COUNT = 200


def rebuild(draft: Decoder, **parts: Any) -> Decoder:
    names = ("spec", "embed", "layers", "norm", "head")
    return Decoder(**{x: parts.get(x, getattr(draft, x)) for x in names})


@cache
def decoded(fault: str, sampler: str = "greedy", noise: float = 0.02) -> Trace:
    target, draft = toys.pair(noise=noise)
    faults: dict[str, Callable[[Decoder], Decoder]] = {
        "": lambda x: x,
        "ids": lambda x: rebuild(x, head=x.head.roll(1, 0)),
        "flat": lambda x: rebuild(x, norm=x.norm * 0.4),
    }
    pair = (target, toys.model(faults[fault](draft.decoder)))
    method = toys.method(drafter=("draft_model", {"max_draft_tokens": 3}), sampler=sampler)
    trace: Trace = toys.decode(method, count=60, pair=pair).sink
    return trace


def report(*given: Any, **more: Any) -> AcceptanceReport:
    return count_report(decoded(*given, **more))


def test_ids_that_are_off_by_one_are_named_with_their_distance() -> None:
    first = report("ids").findings[0]
    assert first.cause == "output_ids" and abs(first.figures["distance"]) == 1
    assert "1 too large" in first.evidence and "d2t" in first.evidence


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_a_flat_draft_is_named_with_its_scale(sampler: str) -> None:
    """The norm's weights times 0.4 divide the logits by 2.5, which a scale of about 2.5 undoes."""
    (first,) = [x for x in report("flat", sampler).findings if x.cause == "temperature"]
    assert 1.9 < first.figures["scale"] < 3.2 and "hot" in first.evidence
    assert first.figures["kl_after"] < 0.5 * first.figures["kl_before"]


def decode_greedy_draft(draft: Decoder, sampler: Any) -> AcceptanceReport:
    """A report on drafts that were chosen without chance, for a target that draws its tokens."""
    method = toys.method(
        drafter=("draft_model", {"max_draft_tokens": 3, "draft_temperature": 0.0}), sampler=sampler
    )
    pair = (toys.pair()[0], toys.model(draft))
    return count_report(toys.decode(method, count=40, pair=pair).sink)


@pytest.mark.parametrize("sampler", [("temperature", {"temperature": 0.6}), ("top_p", {"p": 0.95})])
def test_a_flat_draft_without_chance_is_named_where_the_target_draws(sampler: Any) -> None:
    """Each token has probability 1 in such a draft, so what it thought itself is held against the target's distribution."""
    draft = toys.pair(noise=0.002)[1].decoder
    flat = decode_greedy_draft(rebuild(draft, norm=draft.norm * 0.4), sampler)
    (first,) = [x for x in flat.findings if x.cause == "temperature"]
    assert 2.3 < first.figures["scale"] < 2.7 and "A drawn draft would be kept" in first.evidence
    seen = decode_greedy_draft(draft, sampler)
    assert [x.cause for x in seen.findings] == ["healthy"], seen.findings
    assert not any("own distribution, since" in x for x in seen.lacking)


def test_a_sampler_that_follows_the_text_leaves_the_temperature_open_and_says_so() -> None:
    draft = toys.pair(noise=0.02)[1].decoder
    seen = decode_greedy_draft(rebuild(draft, norm=draft.norm * 0.4), "repetition_penalty")
    assert not any(x.cause == "temperature" for x in seen.findings)
    (said,) = [x for x in seen.lacking if "the target's own distribution" in x]
    assert "Record a greedy run" in said


@pytest.mark.parametrize(("noise", "causes"), [(0.02, {"healthy"}), (0.08, {"healthy", "weak"})])
def test_a_draft_without_a_fault_is_not_called_broken(noise: float, causes: set[str]) -> None:
    for sampler in ("greedy", "temperature"):
        seen = report("", sampler, noise=noise)
        assert {x.cause for x in seen.findings} <= causes, seen.findings


def test_an_older_trace_names_what_it_lacks_and_guesses_nothing() -> None:
    trace = decoded("flat")
    older = Trace([trace.header, trace.prefill, *trace.steps])
    kept = [x.draft_tops for x in older.steps]
    try:
        for step in older.steps:
            step.draft_tops = None
        seen = count_report(older)
    finally:
        for step, tops in zip(older.steps, kept, strict=True):
            step.draft_tops = tops
    assert any(x.startswith("Not recorded: the draft's own distribution") for x in seen.lacking)
    assert all(x.cause != "temperature" for x in seen.findings)


def test_the_report_shows_causes_and_the_command_of_the_doctor_first() -> None:
    seen = report("ids")
    first = tables(seen)[0]
    assert first.title == "Why drafts were refused" and first.rows[0][0] == seen.findings[0].title
    assert first.below[-1].endswith("decodescope doctor draft --model toy --draft toy --prompts FILE")
    assert seen.record()["findings"][0]["cause"] == "output_ids"


# ---- handmade places


def handmade(change: Callable[[int, dict[str, Any]], None], start: int = 10) -> PlaceLog:
    """Places whose guesses are right three times in four, changed one by one."""
    random = np.random.default_rng(0)
    ids = random.integers(0, 50, COUNT + start + 4).tolist()
    log = PlaceLog()
    log.texts = [RunText(ids, start, False)]
    log.proposals = {"onehot"}
    for i in range(COUNT):
        came = ids[start + i]
        right = i % 4 != 0
        row: dict[str, Any] = {
            **{"run": 0, "position": start + i, "depth": 1 + i % 2, "guess": came, "came": came},
            **{"passed": True, "overlap": None, "p": 0.5, "q": 0.5, "rank": 1, "classes": (False,) * 3},
        }
        row |= {} if right else {"guess": (came + 1 + int(random.integers(48))) % 50}
        change(i, row)
        row["passed"] = row.pop("kept", row["guess"] == row["came"])
        log.classes.append(row.pop("classes"))
        log.rows.append(TriedPlace(**row))
    return log


def shift(offset: int) -> Callable[[int, dict[str, Any]], None]:
    ids = np.random.default_rng(0).integers(0, 50, COUNT + 14).tolist()
    return lambda i, row: row.update(guess=ids[row["position"] + offset]) if i % 5 else None


def meant(i: int, row: dict[str, Any]) -> None:
    """Ids are 64 too large, and the token that was meant is third among the draft's best in half of the places."""
    other = row["came"] + 100 + 37 * i
    row.update(guess=other, best=(other, other + 3, row["came"] + (64 if i % 2 else 5 * i + 1)))


def next_row(i: int, row: dict[str, Any]) -> None:
    """The map of the draft vocabulary is one row too short: ids with gaps, each guess the next one that can be written."""
    writable = [x * x for x in range(60)]
    row.update(came=writable[row["came"]], guess=writable[row["came"] + (i % 3 > 0)])
    row["best"] = (row["guess"],)


def one_word(i: int, row: dict[str, Any]) -> None:
    """One word is guessed for another one again and again, by a draft that is bad at nothing else."""
    row.update(came=7, guess=9, best=(9, 30 + i)) if i % 3 == 0 else None


PLANTED: list[tuple[str, Callable[[int, dict[str, Any]], None], str]] = [
    ("place_shift", shift(-1), "the place before"),
    ("place_shift", shift(1), "the place after"),
    ("context", lambda i, row: row.update(kept=i < 120), "at position 130"),
    ("first_place", lambda i, row: row.update(kept=bool(i % 2)), "Of first places 0%"),
    ("later_places", lambda i, row: row.update(kept=not i % 2), "of later ones that were reached 0%"),
    (
        "tokens",
        lambda i, row: row.update(kept=i % 4 > 0, classes=(i % 4 == 0, False, False)),
        "Of digits, 0%",
    ),
    ("independent", lambda i, row: row.update(overlap=0.9, kept=i % 2 == (i // 2) % 2), "overlap by 90%"),
    ("wiring", lambda i, row: row.update(q=0.97, p=0.001, kept=i % 3 == 0, depth=1), "less than 1%"),
    ("healthy", lambda i, row: None, "75%"),
    ("weak", lambda i, row: row.update(kept=i % 3 == 0, depth=1), "Nothing looks like a known fault"),
    ("unrelated", lambda i, row: row.update(kept=i % 9 == 0, rank=40, depth=1), "8 best in 0%"),
]


@pytest.mark.parametrize(("cause", "change", "says"), PLANTED)
def test_a_planted_fault_comes_first(
    cause: str, change: Callable[[int, dict[str, Any]], None], says: str
) -> None:
    first = diagnose(handmade(change)).findings[0]
    assert (first.cause, says in first.evidence) == (cause, True), first


def test_ids_that_the_draft_meant_are_sought_among_its_best() -> None:
    first = diagnose(handmade(meant)).findings[0]
    assert first.cause == "output_ids" and first.figures["distance"] == -64
    assert "have one of the draft's best with an id that is 64 too large" in first.evidence


def test_a_draft_vocabulary_that_is_moved_by_a_row_is_named_for_heads() -> None:
    log = handmade(next_row)
    assert all(x.cause != "draft_vocabulary" for x in diagnose(log).findings), "a model writes every id"
    log.heads = {"eagle3"}
    first = diagnose(log).findings[0]
    assert first.cause == "draft_vocabulary" and first.figures["rows"] == 1
    assert "the next id that the draft can write above" in first.evidence


def test_one_word_that_is_taken_for_another_is_no_distance_of_ids() -> None:
    log = handmade(one_word)
    log.heads = {"eagle3"}
    assert not {x.cause for x in diagnose(log).findings} & {"output_ids", "draft_vocabulary"}


def test_long_prompts_are_named_by_the_length_from_which_drafts_fail() -> None:
    log = handmade(lambda i, row: row.update(run=0 if i < 100 else 1, kept=i < 100, position=20 + i % 100))
    log.texts = [log.texts[0], RunText(log.texts[0].ids, 500, True)]
    first = diagnose(log).findings[0]
    assert first.cause == "long_prompts" and "from prompts of 500 tokens on" in first.evidence
    assert len(diagnose(log).lacking) == 2, "only the distributions are lacking"


def test_too_few_places_name_nothing() -> None:
    log = handmade(lambda i, row: None)
    log.rows = log.rows[:19]
    seen = diagnose(log)
    assert not seen.findings and "Only 19 places" in seen.lacking[0]
