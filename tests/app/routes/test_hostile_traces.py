"""A small trace file costs little: bad fields are refused in a sentence, and a check ends with its budget."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sizes import by_turns, first_of, sizes
from starlette.testclient import TestClient
from trace_bytes import head_of, record_bodies, sealed_file, trace_file, with_head

from decodescope.app.basis.storage import UNCHECKED
from decodescope.app.runs import library as shelves
from decodescope.app.runs import record_stream
from decodescope.app.runs.catalogue.examples import shipped_examples
from decodescope.app.runs.library import Library, upload_limits
from decodescope.app.runs.record_stream import RecordStream
from decodescope.app.runs.run_service import RunService
from decodescope.app.runs.upload_check import CheckBudget, UploadVerdict, check_upload
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.trace import Step, TraceWriter, check, open_trace
from decodescope.engine.trace.encoding.frame import MAGIC

VALUES = (1 << 24, (1 << 53) - 1, 1 << 53, -1, 0, None, "x", [1], {}, float("nan"))
SIZES = ("n_layers", "n_heads", "n_kv_heads", "head_dim", "d_model", "d_ff", "vocab")
MANY = 300 << 20  # bytes that no check may take
LARGE = (
    {"n_layers": 1024, "n_heads": 64, "n_kv_heads": 64},
    {"n_layers": 64, "n_heads": 1024, "n_kv_heads": 1024},
)
Change = Callable[[dict[str, Any]], Any]


def example(name: str) -> Path:
    """The trace of a shipped example."""
    return shipped_examples()[0].path.parent / f"{name}.dstrace"


def bodies(name: str) -> list[bytes]:
    """The bodies of the records of a shipped example."""
    return record_bodies(example(name).read_bytes())


def changed(body: bytes, change: Change) -> bytes:
    """A record with another head."""
    head = head_of(body)
    change(head)
    return with_head(body, head)


def kind_of(body: bytes) -> str:
    return str(head_of(body)["kind"])


def sealed(records: list[bytes]) -> bytes:
    """A file of these records, numbered; the hashes of a last end record are right."""
    return sealed_file(
        [changed(body, lambda head, i=i: head.update(seq=i)) for i, body in enumerate(records)]
    )


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of each field of a head; of a list only its first entry, of an array none."""
    if before:
        yield before
    if isinstance(value, dict) and "$array" not in value:
        for key, inner in list(value.items())[: 1 if before[-1:] == ("pieces",) else None]:
            yield from places(inner, (*before, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*before, 0))


def put(head: dict[str, Any], place: tuple[Any, ...], value: Any) -> None:
    """Set one field of a head."""
    held: Any = head
    for key in place[:-1]:
        held = held[key]
    if value != value:
        head["nonfinite"] = [*head.get("nonfinite", []), [*place, "nan"]]
        value = None
    held[place[-1]] = value


def checked(path: Path) -> str:
    """The sentence that refuses the file, or nothing. Any other error fails the test."""
    try:
        check_upload(path, upload_limits(64), CheckBudget(seconds=1e9, bytes=1 << 50))
    except Refusal as error:
        return str(error)
    return ""


@pytest.fixture
def frugal() -> Iterator[None]:
    """Fail a test that takes MANY bytes at once."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MANY


@pytest.mark.parametrize("name", SIZES)
def test_no_size_of_a_model_in_a_header_costs_memory(tmp_path: Path, frugal: None, name: str) -> None:
    path, records = tmp_path / "bad.dstrace", bodies("wall")
    for role in ("model", "lanes"):
        for value in VALUES:

            def change(head: dict[str, Any], role: str = role, value: Any = value) -> None:
                head["lanes"] = {"draft": dict(head["model"])}
                put(head, ("model", name) if role == "model" else ("lanes", "draft", name), value)

            path.write_bytes(sealed([changed(records[0], change), *records[1:]]))
            said = checked(path)
            where = f"model.{name}" if role == "model" else f"lanes.draft.{name}"
            assert where in said or (name != "n_layers" and value == 1 << 24 and not said), (value, said)


@pytest.mark.parametrize("model", first_of(*LARGE), ids=str)
def test_the_largest_model_of_a_header_costs_little(
    tmp_path: Path, frugal: None, model: dict[str, int]
) -> None:
    path, records = tmp_path / "large.dstrace", bodies("h2o")
    path.write_bytes(
        sealed([changed(records[0], lambda head: head["model"].update(model)), *records[1:4], records[-1]])
    )
    assert checked(path) == ""
    more = {name: n * 2 for name, n in model.items() if n < 1024}
    path.write_bytes(
        sealed([changed(records[0], lambda head: head["model"].update(model | more)), *records[1:]])
    )
    assert "65,536 heads in all" in checked(path)


FUZZED = [("wall", "header"), ("canvas", "prefill"), ("canvas", "end"), ("edits", "step"), ("vote", "step")]


@sizes("every", usual=10, full=1)
@pytest.mark.parametrize(("name", "kind"), FUZZED)
def test_every_field_of_a_record_is_refused_in_a_sentence_or_costs_little(
    tmp_path: Path, name: str, kind: str, every: int
) -> None:
    path, records = tmp_path / "bad.dstrace", bodies(name)
    at = next(i for i, body in enumerate(records) if kind_of(body) == kind)
    few = records[: max(2, at + 1)]
    refused = tried = 0
    fields = [x for x in places(head_of(records[at])) if x[0] not in ("kind", "seq")]
    for place in fields:
        for value in VALUES[tried % every :: every]:
            few[at:] = [changed(records[at], lambda head, p=place, v=value: put(head, p, v))]
            path.write_bytes(sealed(few) if kind != "end" else trace_file(few))
            said = checked(path)
            tried, refused = tried + 1, refused + bool(said)
            assert "\n" not in said and len(said) < 500 + len(str(path)), (place, value)
            if not said:
                check(open_trace(path))
                shelves._trace_row(path)
    assert tried >= len(fields) and refused > tried // 10


def odd_files(name: str) -> dict[str, bytes]:
    """Files of well-formed records that no run writes in this way."""
    records = bodies(name)
    head, prefill, end = records[0], records[1], records[-1]
    assert (kind_of(prefill), kind_of(end)) == ("prefill", "end")
    no_prompt = changed(head, lambda plain: plain.update(prompt={"$array": ["<i4", [0], 0, 0]}))
    lacking = changed(head, lambda plain: plain.pop("prompt"))
    weather = changed(end, lambda plain: plain.update(kind="weather"))
    return {
        "no prompt record": sealed([head, *records[2:]]),
        "a prompt of no tokens": sealed([no_prompt, *records[1:]]),
        "no tokens and no record": sealed([no_prompt, *records[2:]]),
        "a header without a prompt": sealed([lacking, *records[1:]]),
        "two headers": sealed([head, *records]),
        "two prompt records": sealed([head, prefill, *records[1:]]),
        "a prompt record behind a step": sealed([head, records[2], prefill, *records[3:]]),
        "an end before the steps": sealed([head, prefill, end, *records[2:-1]]),
        "only an end": sealed([head, end]),
        "only a header": sealed([head]),
        "unknown kinds": sealed([head, weather, *records[1:]]),
        "no header": sealed(records[1:]),
    }


ROUTES = (
    "",
    "/range?from=0&to=40",
    "/report",
    "/export.html",
    "/perfetto.json",
    "/decisions.csv",
    "/recipe",
    "/cache",
)


@pytest.mark.parametrize("odd", by_turns(3, list(odd_files("wall"))))
def test_records_in_an_order_that_no_run_writes_end_in_no_error(client: TestClient, odd: str) -> None:
    def own_run(head: dict[str, Any]) -> None:
        if head["kind"] == "header":
            head["run"] = "ab" * 8

    data = odd_files("vote")[odd]
    (size,) = struct.unpack_from("<I", data, len(MAGIC))
    at = len(MAGIC) + 8
    first = changed(data[at : at + size], own_run)
    answer = client.post("/ds/library", content=trace_file([first]) + data[at + size :])
    assert answer.status_code in (200, 422), answer.text
    if answer.status_code == 422:
        told = answer.json()["error"]
        assert told.startswith("The file was not taken: ") and "This did not work" not in told, told
        return
    assert client.get("/ds/library").status_code == 200
    for route in ROUTES:
        assert client.get(f"/ds/run/{'ab' * 8}{route}").status_code < 500, route


class Clock:
    """A clock that goes on by a second each time that it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_a_check_ends_with_its_time_or_memory_and_says_so() -> None:
    path = example("dragon")
    total = check_upload(path, upload_limits(64), CheckBudget(seconds=1e9)).total
    short = check_upload(path, upload_limits(64), CheckBudget(seconds=20, clock=Clock()))
    assert total > 60 and (short.steps, short.total) == (20, total)
    assert short.remark == (
        f"The first 20 of {total} steps were checked in 20 s; decodescope trace check FILE checks all of them."
    )
    grown = iter(range(0, 1 << 40, 1 << 29))
    full = check_upload(
        path, upload_limits(64), CheckBudget(bytes=1 << 29, memory=lambda: next(grown), clock=lambda: 0.0)
    )
    assert full.steps == 33 and "checked in 512 MiB of memory" in full.remark
    assert UploadVerdict("r", 5, 5).remark == ""


def test_the_page_says_which_part_of_a_trace_was_checked(play: RunService, tmp_path: Path) -> None:
    records = bodies("dragon")
    records[0] = changed(records[0], lambda head: head.update(run="cd" * 8))
    library = Library(play, lambda: CheckBudget(seconds=20, clock=Clock()))
    upload = tmp_path / "sent"
    upload.write_bytes(sealed(records))
    added = library.take(upload, "mine")
    (row,) = [x for x in library.listing()["rows"] if not x.get("example")]
    assert added["unchecked"] == row["unchecked"] and row["unchecked"].startswith("The first 20 of ")
    library.delete("cd" * 8)
    library.restore("cd" * 8)
    (row,) = [x for x in library.listing()["rows"] if not x.get("example")]
    assert row["unchecked"] and (play.folder / f"{'cd' * 8}.dstrace{UNCHECKED}").exists()


def long_trace(path: Path, steps: int, emitted: int) -> None:
    """A trace whose steps each emit the same token of a long text so many times."""
    source = open_trace(example("wall"))
    header = replace(
        source.header, run="ef" * 8, details={}, tells={}, pieces={**source.header.pieces, "1": "x" * 4000}
    )
    n = len(header.prompt)
    with TraceWriter(path, header) as writer:
        writer.write(source.prefill)
        for i in range(steps):
            many = emitted if i == steps - 1 else 1
            writer.write(Step(i, n, i * 10.0, 1.0, [1] * many, ["target"] * many))
            n += many
        writer.seal()
    source.close()


def test_a_part_that_was_not_checked_is_checked_when_it_is_read(play: RunService, tmp_path: Path) -> None:
    long_trace(tmp_path / "sent", 40, 1000)
    with pytest.raises(Refusal, match="step 39 would be shown with 4,000,000 characters"):
        Library(play).take(tmp_path / "sent", "mine")
    Library(play, lambda: CheckBudget(seconds=20, clock=Clock())).take(tmp_path / "sent", "mine")
    stream = play.find("ef" * 8)
    assert isinstance(stream, RecordStream) and stream.count == 39 and stream.end is not None
    assert stream.end.message.startswith("step 39 would be shown with 4,000,000 characters")
    assert len(stream.steps(0, 40)) == 39 and stream.over


def test_a_long_trace_is_read_for_its_row_while_the_list_is_shown(
    play: RunService, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, run in (("wall", "12" * 8), ("edits", "34" * 8)):
        records = bodies(name)
        records[0] = changed(records[0], lambda head, run=run: head.update(run=run))
        assert client.post("/ds/library", content=sealed(records)).status_code == 200
    monkeypatch.setattr(shelves, "LONG", 0)
    monkeypatch.setattr(shelves, "examples", tuple)
    monkeypatch.setattr(shelves, "AT_ONCE_S", 60.0)
    library = Library(play)
    while (found := library.listing())["more"]:
        pass
    rows = [x for x in found["rows"] if not x.get("example")]
    assert len(rows) == 2 and all(x["steps"] for x in rows)


def test_each_step_is_decoded_once_by_a_check_and_by_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    path = example("dragon")
    total = len(open_trace(path).steps)
    assert total > 60

    def count(
        self: Any, number: int, decode: Any = shelves.open_trace.__globals__["TraceFile"]._decode
    ) -> Any:
        decoded.append(number)
        return decode(self, number)

    monkeypatch.setattr(shelves.open_trace.__globals__["TraceFile"], "_decode", count)
    monkeypatch.setattr("decodescope.engine.trace.file.trace._KEPT", 4)
    for read in (
        lambda: check_upload(path, upload_limits(64), CheckBudget(seconds=1e9)),
        lambda: shelves._trace_row(path),
        lambda: check(open_trace(path)),
    ):
        decoded.clear()
        read()
        assert total <= len(decoded) <= total + 8
    assert record_stream.STEP_TEXT == 1 << 20


def test_a_refused_or_closed_file_is_let_go_of(tmp_path: Path, play: RunService) -> None:
    """Neither the open file nor what was read of it stays behind a refusal."""
    import psutil

    path = tmp_path / "bad"
    path.write_bytes(sealed([changed(bodies("wall")[0], lambda head: head["model"].update(n_layers=0))]))
    before = len(psutil.Process().open_files())
    for _ in range(3):
        with pytest.raises(Refusal, match=r"model\.n_layers is 0"):
            Library(play).take(path, "bad")
    assert len(psutil.Process().open_files()) == before
