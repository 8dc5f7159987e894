"""What is written is what is read: all kinds of records, other versions, and text made of pieces."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from decodescope.engine.trace import (
    UPLOADED,
    End,
    Trace,
    TraceError,
    TraceWriter,
    check,
    open_trace,
    read_records,
)
from decodescope.engine.trace.encoding.frame import MAGIC, frame_body
from decodescope.engine.trace.encoding.record_decoder import KINDS
from decodescope.engine.trace.file.reader import read_header
from decodescope.engine.trace.file.recover import recover
from decodescope.engine.trace.records.reference import ReferenceRecord


def same(a: Any, b: Any) -> bool:
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or a != a)


def test_every_field_of_every_record_comes_back(toy, tmp_path):
    steps = toy.steps("pde")
    path = toy.write(tmp_path / "all.dstrace", steps)
    trace = open_trace(path)
    assert same(trace.header, toy.header()) and same(trace.prefill, toy.prefill())
    assert all(map(same, trace.steps, steps)) and len(trace.steps) == 3
    assert (trace.end.reason, trace.end.steps, trace.end.records) == ("max_new_tokens", 3, 5)
    kinds = [record.kind for record in read_records(path)]
    assert kinds == ["header", "prefill", "step", "step", "step", "end"]
    assert all(getattr(steps[2], f.name) is not None for f in fields(steps[2])), "the test needs every field"


def test_what_may_be_absent_is_none_when_it_is_read_again():
    """A field that is None is not written, so a reader must set it to None."""
    seen: set[type] = set()

    def walk(hint: Any) -> None:
        for inside in get_args(hint):
            walk(inside)
        if not is_dataclass(hint) or hint in seen:
            return
        seen.add(hint)
        hints = get_type_hints(hint)
        for f in fields(hint):
            optional = get_origin(hints[f.name]) in (Union, UnionType) and type(None) in get_args(
                hints[f.name]
            )
            assert not optional or f.default is None, (hint.__name__, f.name)
            walk(hints[f.name])

    for record in KINDS.values():
        walk(record)
    assert len(seen) > 40


def test_a_reference_that_cut_nothing_comes_back(toy, tmp_path):
    step = toy.plain_step(0, toy.prompt)
    step.cache[0].reference = ReferenceRecord(
        np.zeros((1, 2, 2), "<f4"), np.zeros(1, "<f4"), np.array([3], "<i4"), 64, 1.0
    )
    assert open_trace(toy.write(tmp_path / "x.dstrace", [step])).steps[0].cache[0].reference.cut_mass is None
    step.cache[0].reference = ReferenceRecord(
        np.zeros((1, 0, 0), "<f4"), np.ones(1, "<f4"), np.array([5], "<i4"), 64, 1.0, None, 9
    )
    back = open_trace(toy.write(tmp_path / "y.dstrace", [step])).steps[0].cache[0].reference
    assert back.ids == [5] and back.weight_bytes == 9 and back.lost_mass.shape == (1, 0, 0)


def test_large_arrays_are_deflated_unless_they_would_look_like_a_bomb(toy, tmp_path):
    step = toy.plain_step(0, toy.prompt)
    noisy = np.random.default_rng(1).integers(0, 8, 300_000).astype("|u1")
    step.rule = {"noisy": noisy, "zeros": np.zeros(300_000, "|u1")}
    path = toy.write(tmp_path / "z.dstrace", [step])
    assert 300_000 < path.stat().st_size < 500_000, "one deflated, one not"
    read = open_trace(path, UPLOADED).steps[0].rule
    assert same(read, step.rule)


def test_numbers_that_are_not_finite_are_null_with_a_flag(toy, tmp_path):
    step = toy.plain_step(0, toy.prompt)
    step.sampler = {"mu": math.nan, "deep": [1.0, -math.inf]}
    step.tie = [[0, math.inf]]
    path = toy.write(tmp_path / "nan.dstrace", [step])
    assert b'"mu":null' in path.read_bytes() and b"NaN" not in path.read_bytes()
    read = open_trace(path).steps[0]
    assert (
        math.isnan(read.sampler["mu"])
        and read.sampler["deep"] == [1.0, -math.inf]
        and read.tie == [[0, math.inf]]
    )


def test_numpy_numbers_and_tuples_are_written_as_plain_ones(toy, tmp_path):
    step = toy.plain_step(0, toy.prompt)
    step.rule = {"a": np.float32(0.5), "b": (np.int64(3), np.bool_(True)), "big": np.arange(3, dtype=">i4")}
    read = open_trace(toy.write(tmp_path / "np.dstrace", [step])).steps[0].rule
    assert read["a"] == 0.5 and read["b"] == [3, True] and read["big"].tolist() == [0, 1, 2]


def test_what_a_trace_cannot_hold_is_refused_before_anything_is_written(toy, tmp_path):
    with TraceWriter(tmp_path / "x.dstrace", toy.header()) as writer:
        step = toy.plain_step(0, toy.prompt)
        step.rule = {"x": object()}
        with pytest.raises(TraceError, match="holds a object"):
            writer.write(step)
        writer.write(toy.plain_step(0, toy.prompt))
        assert check(open_trace(writer.seal())).ok


def test_text_joins_bytes_of_one_character(toy, small):
    trace = open_trace(small)
    assert trace.text([1, 2, 3, 4]) == "a\u20ac b"
    assert trace.text([2, 1]) == "\ufffda" and trace.text([1, 49]) == "a<#49>"
    assert (trace.piece(3), trace.piece(1), trace.piece(20)) == ("<82 AC>", "a", "<script>")
    assert trace.tokens == [1, 2, 3, 4, 5, 6, 7, 0, 8, 20, 2, 8, 20] and trace.emitted_ids == trace.tokens[7:]


def test_steps_are_a_sequence(small):
    steps = open_trace(small).steps
    assert [step.step for step in steps] == [0, 1, 2, 3] and steps[-1].step == 3
    assert [step.step for step in steps[1:3]] == [1, 2] and steps[2] is steps[2]
    with pytest.raises(IndexError):
        steps[4]


def test_a_trace_in_memory_is_the_same_as_its_file(toy, small, tmp_path):
    trace = Trace([toy.header()])
    for record in [toy.prefill(), *toy.steps("pdpd")]:
        trace.write(record)
    assert trace.emitted_ids == open_trace(small).emitted_ids, "before it is sealed"
    trace.seal(End("max_new_tokens", trace.emitted_ids[:], 4))
    assert same(trace.end, open_trace(small).end)
    assert trace.save(tmp_path / "saved.dstrace").read_bytes() == small.read_bytes()
    assert check(trace).ok
    with pytest.raises(TraceError, match="sealed"):
        trace.write(toy.plain_step(4, 20))


def test_a_growing_file_is_followed(toy, tmp_path):
    with TraceWriter(tmp_path / "live.dstrace", toy.header()) as writer:
        writer.write(toy.prefill())
        trace = open_trace(writer.partial)
        assert len(trace.steps) == 0 and trace.damage is None and trace.end is None
        for step in toy.steps("pd"):
            writer.write(step)
        assert trace.refresh() == 2 and trace.steps[1].emitted == [8, 20]
        assert trace.emitted_ids == [0, 8, 20]
        writer.write(toy.plain_step(2, 10))
        assert trace.refresh() == 3 and trace.emitted_ids == [0, 8, 20, 2]
        writer.seal()
        assert trace.refresh() == 3 and trace.end.reason == "interrupted" and trace.damage is None


def test_two_runs_do_not_share_a_name(toy, small):
    with pytest.raises(TraceError, match="exists already"):
        TraceWriter(small, toy.header())
    with TraceWriter(small, toy.header(), overwrite=True) as writer:
        assert len(open_trace(small).steps) == 4, "the old file stays until the new one is sealed"
        with pytest.raises(TraceError, match="being written"):
            TraceWriter(small, toy.header(), overwrite=True)
        writer.seal()
    assert len(open_trace(small).steps) == 0
    with pytest.raises(TraceError, match="sealed"):
        writer.write(toy.plain_step(0, 7))


def test_content_hash_leaves_times_out_and_nothing_else(toy, tmp_path):
    def content(name: str, head: Any = None, **changed: Any) -> str:
        steps = toy.steps("pd")
        for key, value in changed.items():
            setattr(steps[1], key, value)
        return open_trace(toy.write(tmp_path / f"{name}.dstrace", steps, head=head)).end.content_hash

    first = content("a")
    later = toy.header(created="2001-01-01", torch="9.9", threads=8, project="decodescope 7")
    later.run = "r2"
    assert content("b", later, t_us=1.0, wall_us=2.0, verify_us=3.0) == first
    assert content("c", source=1) == first, "what is no field is not written"
    assert content("d", emitted=[8, 21]) != first
    assert content("e", toy.header(dtype="float64")) != first


def edited(path: Path, number: int, change: Any) -> Path:
    """Return `path` with the head of one record changed, and its hash and checksum computed again."""
    data, bodies = path.read_bytes(), []
    at = len(MAGIC)
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        bodies.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    (size,) = struct.unpack_from("<I", bodies[number])
    head = json.loads(bodies[number][4 : 4 + size])
    change(head)
    text = json.dumps(head).encode()
    bodies[number] = struct.pack("<I", len(text)) + text + bodies[number][4 + size :]
    made = path.with_name("edited.dstrace.partial")
    made.write_bytes(MAGIC + b"".join(map(frame_body, bodies)))
    return made


@pytest.mark.parametrize("schema", ["1.2", "3.0"])
def test_another_major_version_is_refused_in_one_sentence(small, schema):
    """It is refused before the rest of the header is read, because any field may differ in that version."""
    other = edited(small, 0, lambda head: head.update(schema=schema, prompt="another form"))
    due = f"{other}: its schema is {schema}, and this version of DecodeScope reads 2.x; record the run again."
    for opens in (open_trace, lambda path: open_trace(path, UPLOADED), read_header):
        with pytest.raises(TraceError) as refused:
            opens(other)
        assert str(refused.value) == due
    before = other.read_bytes()
    (left,) = recover(other)
    assert left.made is None and left.message == f"{other} was left as it is: {due}"
    assert other.read_bytes() == before


def test_a_trace_in_memory_of_another_major_version_is_a_problem_of_its_header(small):
    trace = open_trace(small)
    trace.header.schema = "1.2"
    assert any("its schema is 1.2, and" in x for x in check(trace).problems)


def test_a_newer_minor_version_opens(small):
    newer = open_trace(
        edited(small, 0, lambda head: head.update(schema="2.7", colour={"unknown": [1, 2]})), UPLOADED
    )
    assert len(newer.steps) == 4 and newer.header.schema == "2.7"
    newer = open_trace(edited(small, 2, lambda head: head.update(kind="weather")), verify=False)
    assert len(newer.steps) == 3, "a kind of the future is left out"
    newer = open_trace(edited(small, 3, lambda head: head["trials"].update(mood=[1])), UPLOADED)
    assert newer.steps[1].trials.ok == [True, False, False]
