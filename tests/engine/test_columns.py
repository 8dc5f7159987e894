"""The six columns: bytes counted from storages, sums by hand, and n/a where a figure cannot be known."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import toys

from decodescope.app.commands.shared.bench import SIX, six_columns
from decodescope.engine import Session
from decodescope.engine.bench.questions import columns as six
from decodescope.engine.bench.questions.columns import Meter, columns, count_weight_bytes, sum_costs
from decodescope.engine.cost.cost import cost_of
from decodescope.engine.timing.energy import joules_between, read_joules


@dataclass(frozen=True)
class Row:
    method: str
    spent: dict[str, float | None] = field(default_factory=dict)


def spent(
    tokens: int, seconds: float, decode_s: float, flops: int, kv: int, energy: float | None = None
) -> six.Spent:
    return dict(tokens=tokens, seconds=seconds, decode_s=decode_s, flops=flops, kv_bytes=kv, joules=energy)


def test_the_figures_are_those_of_the_sums() -> None:
    answers = spent(10, 3.0, 2.0, 400, 50, 5.0), spent(30, 5.0, 3.0, 600, 70, 15.0), spent(0, 9, 0, 0, 9, 0)
    rows = [
        *(Row("plain", x) for x in answers),
        Row("small", spent(10, 1.0, 0.5, 100, 20)),
        Row("broken"),
    ]
    figures = columns({"weights": {"plain": 930, "small": 480}, "peak": 1000.0}, rows)
    assert [*figures] == ["plain", "small"], "what never came to its end has no figures"
    plain, small = figures["plain"], figures["small"]
    assert tuple(plain) == six.SIX and plain["memory"] == 930 + 70 and plain["throughput"] == 40 / 5
    assert (
        plain["compute use"] == pytest.approx(1000 / 5 / 1000)
        and plain["latency"] == 5.0
        and plain["energy"] == 20 / 40
    )
    assert plain["compression"] == 1 and small["compression"] == 1000 / 500 and small["energy"] is None
    unknown = columns({}, rows)["plain"]
    assert unknown["memory"] is unknown["compute use"] is unknown["compression"] is None


def test_what_is_not_known_is_said_so_and_an_old_record_has_no_table() -> None:
    figures = columns({"weights": {"plain": 1 << 20}}, [Row("plain", spent(10, 3.0, 2.0, 400, 0))])
    (text,) = six_columns({"columns": figures, "settings": {"peak": None}})
    assert all(name in text for name in SIX) and text.count("n/a") == 3 and "decodescope hardware" in text
    assert "1.0 MiB" in text and six_columns({"settings": {}}) == []


def test_a_meter_counts_what_the_passes_did() -> None:
    session = Session(toys.target(), toys.method(), toys.PROMPT, max_new_tokens=6)
    meter, steps = Meter(session.header), []
    meter.add_prompt(session.start())
    for step in session.stream():
        meter.add(step)
        steps.append(step)
    took = meter.totals(6)
    spec, bits = toys.target().spec, 64
    assert (
        took["flops"] == sum(cost_of(spec, one, bits=bits).flops for step in steps for one in step.passes) > 0
    )
    assert took["decode_s"] == pytest.approx(sum(step.wall_us for step in steps) / 1e6)
    assert took["decode_s"] < took["seconds"]
    assert took["kv_bytes"] == max(x.held_bytes for step in steps for x in step.cache) > 0
    both = sum_costs([took, {**took, "joules": None, "kv_bytes": 1}])
    assert (
        both["tokens"] == 12
        and both["kv_bytes"] == took["kv_bytes"]
        and both["joules"] is None
        and sum_costs([]) == {}
    )


def test_weights_count_each_storage_once() -> None:
    model = toys.target()
    spec, itemsize = model.spec, model.decoder.embed.element_size()
    assert count_weight_bytes([model]) == count_weight_bytes([model, model]) == spec.params * itemsize
    assert count_weight_bytes([model, toys.draft()]) > count_weight_bytes([model])


def test_energy_is_that_of_whole_packages_or_is_not_known(tmp_path: Path) -> None:
    for name, value in (
        ("intel-rapl:0", 3_000_000),
        ("intel-rapl:1", 500_000),
        ("intel-rapl:0:0", 9_000_000),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{value}\n")
    assert read_joules(tmp_path) == 3.5 and read_joules(tmp_path / "none") is None
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("locked")
    assert (
        read_joules(tmp_path) is None
        and joules_between(1.0, 3.5) == 2.5
        and joules_between(3.0, 1.0) is joules_between(None, 1.0) is None
    )
