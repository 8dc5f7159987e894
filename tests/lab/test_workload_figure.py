"""The figure of an answer cache: each request once by each rule, and the numbers that decided each answer."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from decodescope.engine.core.params import ParamError
from decodescope.engine.session.answer_cache import (
    AnswerCache,
    CachedAnswer,
    serve_requests,
    workload_totals,
    zipf_requests,
)
from decodescope.engine.trace.records.lookups import EVICTS, Evicts, Lookup, replay_lookups
from decodescope.lab.figures.measured import workload

CAPACITY, REQUESTS = 60, 120
COST = {q: (1 + q % 3) * 0.4e9 for q in range(16)}
SIZE = {q: 6 + 5 * q % 17 for q in range(16)}


def lookups(evicts: Evicts) -> list[Lookup]:
    answers: AnswerCache[int] = AnswerCache(CAPACITY, evicts)
    for _ in serve_requests(
        answers, zipf_requests(16, REQUESTS, 0.9, 2), lambda q: CachedAnswer(q, COST[q], SIZE[q])
    ):
        pass
    return answers.lookups


@pytest.mark.parametrize("evicts", EVICTS)
def test_every_request_stands_once_in_the_row_of_each_rule(evicts: Evicts) -> None:
    made = lookups(evicts)
    drawn = {one.name: one for one in workload.figure(made, CAPACITY, evicts).data}
    every = {x: made if x == evicts else replay_lookups(made, x, CAPACITY) for x in EVICTS}
    for rule, word in workload.WORDS.items():
        rows = {kind: zip(drawn[kind].x, drawn[kind].y, strict=True) for kind in workload.MARKS}
        shown = {kind: [x for x, y in row if y.startswith(word)] for kind, row in rows.items()}
        assert sorted(x for xs in shown.values() for x in xs) == list(range(REQUESTS))
        assert shown["hit"] == [x.number for x in every[rule] if x.hit]
        gone = shown["answered, others went"] + shown["answered, not kept"]
        assert sorted(gone) == [x.number for x in every[rule] if x.victims] and len(gone) > 10
        assert drawn[f"saved, {word}"].y[-1] * 1e9 == pytest.approx(workload_totals(every[rule]).saved)


@pytest.mark.parametrize("evicts", EVICTS)
def test_a_victim_s_numbers_make_its_recorded_score(evicts: Evicts) -> None:
    made, looked = lookups(evicts), 0
    for one, words in zip(
        made, workload.describe_requests(made, evicts, {q: f"p{q}" for q in range(16)}), strict=True
    ):
        lines = [x for x in words.split("<br>") if " went: " in x or "not kept: " in x]
        assert len(lines) == len(one.victims)
        for gone, line in zip(one.victims, lines, strict=True):
            score = dict(zip(one.held, one.scores, strict=True))[gone]
            numbers = [float(x) for x in re.findall(r"[\d.]+", line.split(": ", 1)[1])]
            looked += 1
            if evicts == "lru":
                assert numbers == [score]
            elif evicts == "lec":
                n, total, cost, product = numbers
                assert total == one.number + 1 and n * cost / total == pytest.approx(product, abs=6e-4)
                assert product == pytest.approx(score / 1e9, abs=6e-5)
            else:
                clock, n, cost, size, product = numbers
                assert clock + n * cost / size == pytest.approx(product, abs=6e-4)
                assert product == pytest.approx(score / 1e9, abs=6e-5) and clock <= one.clock / 1e9 + 1e-4
    assert looked > 20, "the test needs victims"


def test_the_file_of_the_command_is_read_and_another_one_is_refused(tmp_path: Path) -> None:
    made, file = lookups("lec"), tmp_path / "requests.jsonl"
    file.write_text(
        "".join(json.dumps({**asdict(x), "name": f"<b>{x.query}"}) + "\n" for x in made), encoding="utf-8"
    )
    drawing = workload.figure(file, CAPACITY)
    assert [len(x.x) for x in drawing.data] == [len(x.x) for x in workload.figure(made, CAPACITY).data]
    assert not re.search(r"<b>\d", drawing.to_json().encode().decode("unicode_escape")), "names are no markup"
    for text in ("", "{}\n", "no JSON"):
        (tmp_path / "odd").write_text(text, encoding="utf-8")
        with pytest.raises(ParamError, match="odd"):
            workload.figure(tmp_path / "odd", CAPACITY)
    with pytest.raises(ParamError, match="cannot be read"):
        workload.figure(tmp_path / "none", CAPACITY)
