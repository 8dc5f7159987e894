"""Long runs: writing a step takes a small part of the time of decoding it, and a long trace opens at once."""

from __future__ import annotations

import time

from decodescope.engine.trace import End, TraceWriter, open_trace
from decodescope.engine.trace.encoding.frame import MAGIC, encode, frame_body


def test_two_hundred_thousand_steps_open_by_range(toy, tmp_path):
    count = 200_000
    step = toy.plain_step(0, toy.prompt)
    body = encode(step, 1)
    path = tmp_path / "long.dstrace.partial"
    with open(path, "wb") as file:
        file.write(MAGIC + frame_body(encode(toy.header(), 0)))
        for k in range(count):
            one = body.replace(
                b'"seq":1,"step":0,"n":7,', b'"seq":%6d,"step":%6d,"n":%6d,' % (k + 1, k, k + 7), 1
            )
            size = len(one) - len(body) + int.from_bytes(body[:4], "little")
            file.write(frame_body(size.to_bytes(4, "little") + one[4:]))
    began = time.monotonic()
    trace = open_trace(path)
    took = time.monotonic() - began
    assert len(trace.steps) == count and trace.steps[123_456].step == 123_456 and trace.damage is None
    assert sum(1 for step in trace.steps[:1000] if step.emitted) == 1000
    assert len(trace.steps._kept) < 300, "steps that were looked at are let go of"
    assert took < 10, f"{took:.1f} s: the index is one walk over the frames"


def test_writing_a_step_costs_little(toy, tmp_path):
    def median_us(kind: str) -> float:
        steps = toy.steps(kind * 300)
        took = []
        with TraceWriter(tmp_path / f"{kind}.dstrace", toy.header()) as writer:
            for step in steps:
                began = time.perf_counter()
                writer.write(step)
                took.append(time.perf_counter() - began)
            writer.seal(End("max_new_tokens", [], 300))
        return sorted(took)[150] * 1e6

    # several times the time on an idle machine: this catches a change of kind, not of degree
    assert median_us("p") < 200 and median_us("d") < 500
