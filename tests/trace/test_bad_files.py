"""Files made to do harm: each is refused with one sentence, quickly, in little memory; no other exception is raised."""

from __future__ import annotations

import json
import math
import random
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_bytes import head_of, trace_file, with_head

from decodescope.engine.trace import UPLOADED, TraceError, check, open_trace, read_records, recover
from decodescope.engine.trace.encoding.frame import MAGIC, encode, split
from decodescope.engine.trace.records.events import Fields, Pass


class Forge:
    """Writes traces from given record heads, with valid checksums."""

    def __init__(self, folder: Path, toy: Any):
        self.path = folder / "bad.dstrace.partial"
        self.header = encode(toy.header(), 0)
        self.step = encode(toy.drafted_step(0, toy.prompt), 1)

    def bodies(self, *bodies: bytes) -> Path:
        self.path.write_bytes(trace_file(bodies))
        return self.path

    def raw(self, head: bytes, arrays: bytes = b"") -> Path:
        """Write a header, then a step with this head."""
        return self.bodies(self.header, struct.pack("<I", len(head)) + head + arrays)

    def changed(self, change: Callable[[dict[str, Any]], Any], body: bytes | None = None) -> Path:
        """Write a header and a good step, with one of them changed."""
        which = body or self.step
        head = head_of(which)
        change(head)
        made = with_head(which, head)
        return self.bodies(made) if body else self.bodies(self.header, made)


@pytest.fixture
def forge(tmp_path: Path, toy: Any) -> Forge:
    return Forge(tmp_path, toy)


def refusal(path: Path) -> str:
    """Return the sentence that refuses `path`, opened by range and read in one sweep, within limits of time and memory."""
    tracemalloc.start()
    began = time.monotonic()
    with pytest.raises(TraceError) as caught:
        trace = open_trace(path, UPLOADED)
        raise TraceError(trace.damage)  # found while looking for the records: the header can be shown
    took, (_, peak) = time.monotonic() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 10 and peak < 128 << 20, (took, peak)
    with pytest.raises(TraceError):
        list(read_records(path, UPLOADED))
    message = str(caught.value)
    assert str(path) in message and "\n" not in message and len(message) < 400 + len(str(path))
    return message


START = b'{"kind":"step","seq":1,"step":0,"n":7,"t_us":0,"wall_us":1,"emitted":[1],"origins":["target"]'


def test_the_plain_step_that_the_bad_ones_are_made_of_is_good(forge):
    assert len(open_trace(forge.raw(START + b"}"), UPLOADED).steps) == 1
    assert len(open_trace(forge.changed(lambda step: None), UPLOADED).steps) == 1


def brief(value: object) -> bytes | None:
    """Name a text of megabytes in a test id by the first bytes after START; every process passes the id on."""
    return value.removeprefix(START)[:60] if isinstance(value, bytes) else None


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (b',"rule":' + b"[" * 1_000_000 + b"]" * 1_000_000, "deeper than the limit of 64"),
        (b',"rule":' + b'{"a":' * 500_000, "deeper than the limit of 64"),
        (b',"rule":{"x":' + b"[" * 63 + b"]" * 63 + b"}", "deeper than the limit of 64"),
        (b',"rule":{"x":NaN}', "no number of JSON"),
        (b',"rule":{"x":-Infinity}', "no number of JSON"),
        (b',"rule":{"x":1e400}', "not finite"),
        (b',"rule":{"x":' + b"9" * 400 + b".5}", "not finite"),
        (b',"rule":{"x":' + b"9" * 5000 + b"}", "not JSON"),
        (b',"rule":{"x":9007199254740993}', "whole number"),
        (b',"draft_us":9007199254740993', "draft_us must be a whole number"),
        (b',"n":8', "'n' is given twice"),
        (b',"rule":{"a":1,"b":2,"a":1}', "'a' is given twice"),
        (b',"rule":{"x":"\\ud800"}', "surrogate"),
        (b',"rule":{"x":"\xed\xa0\x80"}', "UTF-8"),
        (b',"rule":{"x":"\xff"}', "UTF-8"),
        (b',"rule":{"x":"' + b"a" * (1 << 20) + b'b"}', "above the limit of 1,048,576"),
        (b',"pieces":{"1":"' + b"a" * 4097 + b'"}', "pieces.1 has 4,097 bytes"),
        (b',"pieces":{"1":["zz"]}', "two hex digits"),
        (b',"pieces":{"../x":"a"}', "no id of the vocabulary"),
        (b',"pieces":{"50":"a"}', "no id of the vocabulary"),
        (b',"drafted":true', "drafted must be a whole number"),
        (b',"drafted":1.0', "drafted must be a whole number"),
        (b',"accepted":1', "above drafted"),
        (b',"drafted":-1', "negative count"),
        (b',"path":[0]', "of a tree of 0"),
        (b',"passes":[[]]', "passes.0 must be an object"),
        (
            b',"passes":[{"lane":"target","phase":"x","tokens":-1,"held":0,"wall_us":1}]',
            "passes.0 holds the negative",
        ),
        (b',"passes":[{"lane":"target"}]', "passes.0 lacks the field 'phase'"),
        (b',"nonfinite":[["n","nan"]]', "nonfinite"),
        (b',"nonfinite":5', "nonfinite"),
        (b',"nonfinite":[[]]', "nonfinite"),
        (b',"rule":' + b'"' + b'\\"' * 400_000, "not JSON"),
        (b',"rule":' + b'"' + b'\\"' * 400_000 + b"\\" + b"[" * 65, "not JSON"),
        (b'} {"a":1', "not JSON"),
    ],
    ids=brief,
)
def test_bad_json_is_refused(forge, more, says):
    assert says in refusal(forge.raw(START + more + b"}"))


def array(*reference: Any, **more: Any) -> bytes:
    return START + b',"rule":{"x":' + json.dumps({"$array": list(reference), **more}).encode() + b"}}"


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (array("<f8", [2], 0, 24), "claims bytes 0 to 0 + 24 of 16"),
        (array("<f8", [2], 8, 16), "claims bytes 8"),
        (array("<f8", [2], -8, 16), "claims bytes"),
        (array("<f8", [2], 2**60, 16), "claims bytes"),
        (array("<f8", [2], 0, True), "claims bytes"),
        (array("<f8", [3], 0, 16), "needs 24 bytes"),
        (array("<f8", [2**40], 0, 16), "above the limit of 10,000,000"),
        (array("<f8", [2**40, 0], 0, 0), ""),
        (array("<f8", [-1, -2], 0, 16), "list of sizes"),
        (array("<f8", [1] * 9, 0, 8), "list of sizes"),
        (array("<f8", 2, 0, 16), "list of sizes"),
        (array("|O", [2], 0, 16), "dtype"),
        (array(">f8", [2], 0, 16), "dtype"),
        (array("<c16", [1], 0, 16), "dtype"),
        (array(["<f8"], [2], 0, 16), "dtype"),
        (array("<f8", [2]), "is not written as"),
        (array("<f8", [2], 0, 16, z=2), "is not written as"),
        (array("<f8", [2], 0, 16, path="/etc/passwd"), "is not written as"),
        (array("<i8", [2], 0, 16), "beyond 9,007"),
        (array("|b1", [16], 0, 16), "true and false"),
        (array("<f8", [2], 0, 16, z=1), "damaged"),
        (START + b',"tops":{"$array":["<f8",[2],0,16]}}', "tops lacks the field 'places'"),
        (START + b',"tops":5}', "tops must be an object"),
    ],
    ids=brief,
)
def test_bad_arrays_are_refused(forge, head, says):
    path = forge.raw(head, b"\x7f" * 16)
    if says:
        assert says in refusal(path)
    else:
        assert open_trace(path, UPLOADED).steps[0].rule["x"].size == 0


def test_deflate_bombs_are_refused_before_they_grow(forge):
    bomb = zlib.compress(bytes(9_000_000), 9)
    assert "expands more than 200 times" in refusal(
        forge.raw(array("|u1", [9_000_000], 0, len(bomb), z=1), bomb)
    )
    assert "needs 1,000,000 bytes" in refusal(forge.raw(array("|u1", [1_000_000], 0, len(bomb), z=1), bomb))


def test_many_expanding_records_are_refused_together(forge):
    raw = np.random.default_rng(0).integers(0, 2, 200_000).astype("|u1").repeat(40).tobytes()
    small = zlib.compress(raw, 9)
    assert len(raw) < 200 * len(small) < 300 * len(raw) and len(raw) > 20 * len(small), (
        "the test needs a mild bomb"
    )
    bodies = [forge.header]
    for i in range(40):
        head = array("|u1", [len(raw)], 0, len(small), z=1)
        head = head.replace(b'"seq":1,"step":0', b'"seq":%d,"step":%d' % (i + 1, i))
        bodies.append(struct.pack("<I", len(head)) + head + small)
    assert "expands to more than the limit of 268,435,456" in refusal(forge.bodies(*bodies))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s["draft"].update(parents=[1, 0, 0]), "draft.parents.0 is 1"),
        (lambda s: s["draft"].update(parents=[-1, 1, 0]), "draft.parents.1 is 1"),
        (lambda s: s["draft"].update(parents=[-2, 0, 0]), "draft.parents.0 is -2"),
        (lambda s: s["draft"].update(parents=[-1, 0]), "draft.parents has 2 entries"),
        (lambda s: s["draft"].update(tokens=[8, 9, 50]), "outside the vocabulary of 50"),
        (lambda s: s["draft"].update(q=[0.5, 0.5, 1.5]), "draft.q.2 is 1.5"),
        (lambda s: s.update(path=[0, 1, 2]), "not its child"),
        (lambda s: s.update(path=[3]), "names the node 3"),
        (lambda s: s.update(step=4), "step is 4, where 0 is due"),
        (lambda s: s.update(seq=7), "it says that it is record 7"),
        (lambda s: s.update(accepted=4), "above drafted"),
        (lambda s: s.update(n=-1), "negative count"),
        (lambda s: s.update(emitted=[8]), "origins has 2 entries"),
        (lambda s: s.update(emitted=[8, -1]), "outside the vocabulary"),
        (lambda s: s.update(emitted=["8", "20"]), "emitted.0 must be a whole number"),
        (lambda s: s.update(emitted=None), "emitted must be a list"),
        (lambda s: s.update(t_us="soon"), "t_us must be a number"),
        (lambda s: s.pop("n"), "lacks the field 'n'"),
        (lambda s: s.pop("seq"), "lacks 'kind' or 'seq'"),
        (lambda s: s.update(kind="header"), "no place here"),
        (lambda s: s.update(kind=[]), "lacks 'kind' or 'seq'"),
        (lambda s: s["trials"].update(p=[0.5, 2.0, 0.1]), "trials.p.1 is 2.0"),
        (lambda s: s["trials"].update(p=[0.5]), "trials.p has 1 entries"),
        (lambda s: s["trials"].update(node=[0, 1, 9]), "outside the tree"),
        (lambda s: s["trials"].update(ok=[1, 0, 0]), "trials.ok.0 must be true or false"),
        (lambda s: s["tops"].update(p=s["tops"]["entropy"]), "tops.p"),
        (lambda s: s["tops"].update(places=s["tops"]["p"]), "tops.places"),
        (lambda s: s["cache"][0].update(evicted=s["tops"]["places"]), "cache.0.evicted"),
        (lambda s: s["extra"].update(u=1.5), "extra.2 is 1.5"),
        (lambda s: s["extra"].update(token=99), "extra.token"),
    ],
)
def test_what_contradicts_itself_inside_a_step_is_refused(forge, change, says):
    assert says in refusal(forge.changed(change))


NODES = np.array([[-1, 0, 5, 2], [0, 5, 8, 1], [0, 5, 8, 1]], "<i4")
MORE = np.array([[-1, 0, 5, 2], [0, 5, 8, 1], [0, 5, 8, 2]], "<i4")
CHOSEN = dict(read=[[4, 4], [4, 4]], bounds=[1, 1])


@pytest.mark.parametrize(
    ("cache", "one", "says"),
    [
        (dict(shared=NODES, shared_bytes=64), CHOSEN, ""),
        (dict(shared=NODES, shared_bytes=1 << 50), {}, "shared_bytes is 1125899906842624, above full_bytes"),
        (
            dict(shared=np.array([[-1, 0, 5, 1 << 30]], "<i4"), shared_bytes=0),
            {},
            "at most 4096 texts are read",
        ),
        (dict(shared=NODES[[0, 1, 1, 1]], shared_bytes=0), {}, "has 4 nodes of 2 texts"),
        (dict(shared=MORE, shared_bytes=0), {}, "read by more texts than itself"),
        (dict(read=np.zeros((2, 2, 8), "|u1")), dict(read=[]), "passes.0.read has no layers or KV heads"),
        ({}, dict(read=[[], []]), "passes.0.read has no layers or KV heads"),
        ({}, CHOSEN | dict(bounds=[1, 1, 1]), "passes.0.bounds has 3 layers, and read 2"),
        ({}, dict(logits=2), "passes.0.logits is 2, more than the rows that were fed"),
    ],
)
def test_entries_that_no_cache_has_are_refused(forge, toy, cache, one, says):
    step = toy.plain_step(0, toy.prompt)
    step.cache = [toy.change(1, 8, **cache)]
    step.passes = [Pass("target", "verify", 1, toy.prompt, 1.0, **one)]
    path = forge.bodies(forge.header, encode(step, 1))
    if says:
        assert says in refusal(path)
    else:
        assert len(open_trace(path, UPLOADED).steps) == 1


WHOLE = dict(
    logits=np.zeros((4, 50), "<f4"), laws=np.full((1, 50), 0.02, "<f4"), law_of=np.array([0, -1, -1], "<i4")
)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, ""),
        (dict(logits=np.where(np.arange(200).reshape(4, 50) % 50, -np.inf, 0).astype("<f4")), ""),
        (dict(logits=np.zeros((3, 50), "<f4")), "fields.logits has 3 rows for 3 drafted nodes and the root"),
        (
            dict(logits=np.full((4, 50), np.nan, "<f4")),
            "fields.logits has a row without a largest finite number",
        ),
        (
            dict(logits=np.full((4, 50), -np.inf, "<f4")),
            "fields.logits has a row without a largest finite number",
        ),
        (dict(logits=np.zeros((4, 9), "<f4")), "holds an id outside the vocabulary of 9"),
        (dict(laws=np.full((1, 49), 0.02, "<f4")), "fields.laws is over 49 tokens and fields.logits over 50"),
        (dict(laws=np.full((1, 50), np.nan, "<f4")), "fields.laws leaves the interval"),
        (dict(law_of=np.array([1, 0, 0], "<i4")), "fields.law_of leaves the interval"),
    ],
)
def test_whole_distributions_that_are_none_are_refused(forge, toy, change, says):
    step = toy.drafted_step(0, toy.prompt)
    step.fields = Fields(**{**WHOLE, **change})
    path = forge.bodies(forge.header, encode(step, 1))
    if says:
        assert says in refusal(path)
    else:
        assert len(open_trace(path, UPLOADED).steps) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda h: h.update(schema="1.2"), "reads 2.x"),
        (lambda h: h.update(schema="3.0"), "reads 2.x"),
        (lambda h: h.update(schema="2"), "no version"),
        (lambda h: h.update(schema="2.0\u0660" * 5), "no version"),
        (lambda h: h["model"].update(vocab=3), "outside the vocabulary of 3"),
        (lambda h: h.update(kind="weather"), "not the header"),
        (lambda h: h.update(prompt=[1, 2]), "prompt must be an array"),
        (lambda h: h.update(pieces=[]), "pieces must be an object"),
        (lambda h: h.update(stop_tokens=[[]]), "stop_tokens.0"),
    ],
)
def test_bad_headers_are_refused(forge, change, says):
    assert says in refusal(forge.changed(change, forge.header))


@pytest.mark.parametrize("method", [{"acceptance": 5}, {"acceptance": {"name": []}}, {"acceptance": None}])
def test_a_method_of_the_wrong_shape_is_no_rule(forge, method):
    forge.changed(lambda h: h.update(method=method), forge.header)
    assert check(open_trace(forge.path, UPLOADED)).ok


def test_a_time_that_is_not_finite_is_read_and_summed_up(forge):
    odd = forge.changed(lambda s: s.update(t_us=None, nonfinite=[["t_us", "nan"]]))
    assert math.isnan(open_trace(odd, UPLOADED).steps[0].t_us)
    (one,) = recover(odd)
    assert one.made is not None and check(open_trace(one.made, UPLOADED)).counts["records"] == 2


def test_a_flood_of_evictions_is_counted_in_little_memory(forge):
    noise = np.random.default_rng(0).integers(0, 2, 1_500_000).astype("<i4").repeat(6).tobytes()
    packed = zlib.compress(noise, 6)
    reference = {"$array": ["<i4", [len(noise) // 12, 3], 0, len(packed)], "z": 1}
    change = {
        "lane": "target",
        "appended": 0,
        "held": 0,
        "held_bytes": 0,
        "full_bytes": 0,
        "evicted": reference,
    }
    trace = open_trace(
        forge.raw(START + b',"cache":' + json.dumps([change]).encode() + b"}", packed), UPLOADED
    )
    tracemalloc.start()
    check(trace)
    assert tracemalloc.get_traced_memory()[1] < 256 << 20
    tracemalloc.stop()


def test_forged_sizes_are_refused(forge):
    good = forge.bodies(forge.header, forge.step).read_bytes()
    at = len(MAGIC) + 8 + len(forge.header)
    forge.path.write_bytes(good[:at] + struct.pack("<II", 5 << 20, 0) + good[at + 8 :])
    assert "above the limit of 4,194,304" in refusal(forge.path)
    assert "claims 4,294,967,295 bytes" in refusal(forge.bodies(forge.header[:0] + b"\xff\xff\xff\xff{}"))
    assert "too short" in refusal(forge.bodies(b"ab"))
    forge.path.write_bytes(b"GIF89a" * 100)
    assert "is not a DecodeScope trace" in refusal(forge.path)
    forge.path.write_bytes(b"")
    assert "is not a DecodeScope trace" in refusal(forge.path)
    with pytest.raises(TraceError, match="cannot be opened"):
        open_trace(forge.path.with_name("missing.dstrace"))
    with pytest.raises(TraceError, match="cannot be opened"):
        open_trace(forge.path.parent)


def test_a_file_above_the_limit_is_refused_unread(forge):
    with open(forge.path, "wb") as file:
        file.write(MAGIC)
        file.truncate((64 << 20) + 1)
    assert "has 67,108,865 bytes, above the limit of 67,108,864 for uploaded traces" in refusal(forge.path)


def test_random_nonsense_never_raises_anything_else(forge):
    chance = random.Random(2026)
    words = [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\\",
        b",",
        b":",
        b"null",
        b"true",
        b"-1",
        b"1e999",
        b"9" * 30,
        b"\xff",
    ]
    words += [
        b'"step"',
        b'"n"',
        b'"draft"',
        b'"$array"',
        b'"tokens"',
        b'"<f4"',
        b"0.5",
        b'"z"',
        b" ",
        b"\x00",
        b"\\u",
    ]
    refused = 0
    for _ in range(100):
        head = bytearray(split(forge.step)[0])
        for _ in range(chance.randint(1, 6)):
            a = chance.randrange(len(head))
            b = min(len(head), a + chance.choice([0, 1, 3, 20]))
            head[a:b] = b"".join(chance.choices(words, k=chance.randint(0, 4)))
        path = forge.raw(bytes(head), chance.randbytes(chance.choice([0, 8, 500])))
        try:
            check(open_trace(path, UPLOADED))
        except TraceError as error:
            refused += 1
            assert str(path) in str(error)
    assert refused > 60
