"""benchmarks/replayed.py: what it keeps of steps, and that a price is the sum of its parts."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import toys
from bytewise import RULES, question, scripted

from decodescope.engine.bench.clock.contest import engine_contestant
from decodescope.engine.bench.clock.head_clock import attach_clock
from decodescope.engine.bench.figures.labbench import BASELINE
from decodescope.engine.bench.models import random_decoder
from decodescope.engine.bench.speculation import measure_speculation
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.trace.records.events import Pass

SCRIPTS = Path(__file__).resolve().parents[2] / "benchmarks"
DRAFTED = {"drafted": toys.method(drafter=("draft_model", {"max_draft_tokens": 4}))}


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        yield importlib.import_module("replayed")


@pytest.fixture(scope="module")
def keeps(script: ModuleType) -> ModuleType:
    return importlib.import_module("replay_steps")


@pytest.fixture(scope="module")
def measures(script: ModuleType) -> ModuleType:
    return importlib.import_module("replay_costs")


@pytest.fixture(scope="module")
def steps(script: ModuleType) -> dict[str, Any]:
    """Steps of scripted models that write BCABCA..., without the time of their bookkeeping."""
    bench = script.Recording(
        scripted(RULES), {"draft": scripted(RULES)}, DRAFTED, new_tokens=12, repeats=1, temperature=0
    )
    found: dict[str, Any] = json.loads(
        json.dumps(measure_speculation(bench, [question(1, "go A", kind="code")]).record())
    )
    assert all(row["parts"]["own_us"] > 0 for row in found["rows"])
    for row in found["rows"]:
        row["parts"]["own_us"] = 0.0
    return found


@pytest.fixture(scope="module")
def larger() -> Decoder:
    """A target of random weights."""
    return random_decoder(1_000_000, toys.target().decoder.dtype)


def costs(script: ModuleType, target: float, draft: float, heads: dict[str, float] | None = None) -> Any:
    """Passes with a cost that does not depend on what they read; a tenth of it is the unembedding."""
    curves = {
        role: script.Curve([1], [0.9 * us], [0.1 * us], 0.25)
        for role, us in (("target", target), ("draft", draft))
    }
    return script.Costs(curves, heads or {})


def test_steps_are_kept_by_the_passes_that_they_ran(steps: dict[str, Any]) -> None:
    plain, drafted = (x["parts"]["passes"] for x in steps["rows"])
    assert plain == {'["target", 1, 1.0, 1.0, 1]': 12} and steps["methods"][BASELINE]["target_passes"] == 12
    verified = {name: n for name, n in drafted.items() if name.startswith('["target"')}
    assert sum(verified.values()) == steps["methods"]["drafted"]["target_passes"] == 3
    assert sum(drafted.values()) - 3 >= 9, "a pass of the draft model for each drafted token"


def test_plain_decoding_is_once_itself_and_free_drafts_gain_their_tokens_per_pass(
    script: ModuleType, steps: dict[str, Any]
) -> None:
    free = script.replayed(steps, costs(script, 1000.0, 0.0))["methods"]
    assert free[BASELINE]["ratio"]["median"] == 1 and free[BASELINE]["passes"] == 1
    assert free["drafted"]["ratio"]["median"] == pytest.approx(4) and free["drafted"]["tau"] == 4
    dear = script.replayed(steps, costs(script, 1000.0, 3000.0))["methods"]["drafted"]
    drafts = sum(steps["rows"][1]["parts"]["passes"].values()) - 3
    assert drafts >= 9 and dear["ratio"]["median"] == pytest.approx(12 / (3 + 3 * drafts)), (
        "of a dear draft model a loss"
    )


def test_a_price_is_the_sum_of_passes_heads_and_books(script: ModuleType) -> None:
    parts = {
        "passes": {'["target", 3, 0.5, 1.0, 3]': 2, '["draft", 1, 1.0, 1.0, 0]': 5},
        "heads": {"h": 4},
        "own_us": 7.0,
    }
    row = script.priced(
        script.ReplayRow(1, "code", "x", tokens=6, steps=2, parts=parts), costs(script, 100, 10, {"h": 2.0})
    )
    passes = 2 * (90 * (0.25 * 0.5 + 0.75) + 10) + 5 * 9
    assert row.decode_s == [pytest.approx((passes + 4 * 2.0 + 7.0) / 1e6)]
    assert (row.pass_us, row.head_us, row.own_us) == (pytest.approx(passes / 2), 4.0, 3.5)
    assert row.step_us == pytest.approx(row.pass_us + row.head_us + row.own_us)
    with pytest.raises(Refusal, match="do not know h: measure them anew"):
        script.priced(row, costs(script, 100, 10))


def test_times_between_measured_rows_are_interpolated_and_beyond_them_go_on(script: ModuleType) -> None:
    curve = script.Curve([1, 4, 8], [10.0, 16.0, 40.0], [1.0, 1.0, 3.0], 0.25)
    assert [curve.us(n, 1.0, 1.0, 0) for n in (1, 2, 8, 10)] == [10, 12, 40, 52]
    assert curve.us(4, 0.5, 0.5, 8) == 8 + 3 and curve.us(4, 1.0, 0.0, 1) == 4 + 1


@pytest.mark.parametrize(
    ("one", "kept"),
    [
        (dict(), ["target", 3, 1.0, 1.0, 3]),
        (dict(attn=2, ffn=1, gap="propagate"), ["target", 3, 0.5, 0.25, 3]),
        (dict(attn=[0, 3], ffn=[0, 3], logits=1), ["target", 3, 0.5, 0.5, 0]),
        (dict(rows=[3, 3, 0, 0], gap="absent"), ["target", 3, 0.5, 0.5, 3]),
        (dict(joined=[[2, 3]], logits=2), ["target", 3, 1.5, 1.5, 2]),
        (dict(batch=2), ["target", 6, 1.0, 1.0, 6]),
    ],
    ids=["whole", "skips", "states alone", "a chain", "joined", "two texts"],
)
def test_a_pass_is_priced_by_its_rows_and_its_share_of_the_layers(
    keeps: ModuleType, one: dict[str, Any], kept: list[Any]
) -> None:
    assert keeps.asked(Pass("target", "verify", 3, 10, 1.0, **one), 4) == kept


@pytest.mark.parametrize(
    "kind", ["medusa", "hydra", "eagle", "eagle3", "mlp_speculator", "redrafter", "kangaroo", "blockwise"]
)
def test_heads_are_heard_and_called_again_in_the_width_of_another_target(
    keeps: ModuleType, measures: ModuleType, larger: Decoder, kind: str
) -> None:
    target = toys.target()
    with attach_clock(keeps.Heard(target)) as clock:
        engine_contestant(kind, clock.model, toys.method(drafter=kind), 8, heads=clock).write(toys.PROMPT)
    calls: Counter[str] = sum(clock.calls[1:], Counter())
    of = {json.loads(call)[1] for call in calls}
    assert kind in of and of <= {kind, keeps.UNEMBED}
    sizes = {
        "spec": target.spec.record(),
        "heads": {name: head.shape for name, head in target.decoder.heads.items()},
    }
    said = {"rows": [{"parts": {"heads": calls}}], "settings": {"sizes": {"target": sizes}}}
    us = measures.called(said, {"target": larger}, 1, lambda text: None)
    assert us.keys() == calls.keys() and min(us.values()) > 0


@pytest.mark.parametrize("text", ["", "[]", '{"replayed": 99, "rows": []}', '{"replayed": 1, "rows": []}'])
def test_what_holds_no_steps_is_refused_in_one_sentence(
    script: ModuleType, tmp_path: Path, text: str
) -> None:
    (tmp_path / "steps.json").write_text(text)
    with pytest.raises(SystemExit, match=r"give the file of replayed\.py record --out\.$"):
        script.read(tmp_path / "steps.json")
    with pytest.raises(SystemExit, match=r"give the file of replayed\.py measure --out\.$"):
        script.read(tmp_path / "steps.json", "costs")


def test_an_unknown_method_is_refused_in_one_sentence(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["replayed.py", "record", "--method", "nosuch", "--out", str(tmp_path / "steps.json")]
    )
    with pytest.raises(SystemExit, match=r"^--method nosuch: there is no 'nosuch'; take .*\.$"):
        script.main()


def test_the_page_says_what_is_measured_and_what_is_replayed(
    script: ModuleType, steps: dict[str, Any]
) -> None:
    ms = {f"{role} whole": [1.0] * len(script.ROWS) for role in ("target", "draft")}
    settings = dict(
        machine="m",
        threads=1,
        torch="2",
        params={"target": 3e8, "draft": 25e6},
        held=256,
        rounds=5,
        ms=ms,
        one={"dense": 3.0, "int8": 2.0},
    )
    given = script.costs_of(json.loads(json.dumps(script.as_plain(costs(script, 1000.0, 100.0)))))
    text = script.page(steps, script.Costs(given.passes, given.heads, {"int8": 1.5}, settings))
    assert "takes 3.0 ms in bfloat16, 2.0 ms in int8." in text
    assert "costs are measured on random weights, acceptance is that of the shipped models" in text
    assert "| `autoregressive`, int8 weights | 1.00 | - | 1.50 |" in text and "| code | `drafted` |" in text
    assert "| best method on code | 2.50 | " in text and "--draft2" not in text
