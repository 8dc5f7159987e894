"""Depths on the wire: letters of the layers that ran, exits with their tests, and the saved layers net of their cost."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import toys

from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.trace.records.passes import Pass
from decodescope.lab.decision.exits import explain_exit
from decodescope.lab.wire.depths import count_resumed_rows, layer_letters
from decodescope.lab.wire.messages import messages
from decodescope.lab.wire.wire import encode

DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=6), 3, torch.float64))


def told(**parts):
    trace = toys.decode(toys.method(**parts), count=16, pair=(DEEP, DEEP)).sink
    return trace, [x for x in json.loads(encode(list(messages(trace)))) if x["kind"] == "step"]


@pytest.mark.parametrize(
    ("ran", "due"),
    [
        (dict(), "rrrrrr"),
        (dict(attn=3, ffn=3, propagated=3), "rrrppp"),
        (dict(ffn=[0, 1, 5]), "rraaar"),
        (dict(attn=[2, 3, 4, 5], ffn=[2, 3, 4, 5]), "--rrrr"),
        (dict(attn=3, ffn=3, copied=3, gap="copy"), "rrrccc"),
        (dict(attn=3, ffn=3, gap="defer"), "rrrwww"),
        (dict(attn=3, ffn=3, gap="absent"), "rrr---"),
        (dict(attn=[0, 2, 5], ffn=[0, 1, 2, 5]), "rfr--r"),
        (
            dict(attn=[0, 1], ffn=[0, 2], propagated=[2, 3, 4, 5], gap="propagate", routed=[*"raf---"]),
            "rafppp",
        ),
        (dict(attn=[0, 1], ffn=[0, 2], gap="absent", routed=[*"raf---"]), "raf---"),
    ],
)
def test_each_layer_has_the_letter_of_what_ran(ran: dict, due: str) -> None:
    assert layer_letters(Pass("target", "verify", 1, 4, 1.0, **ran), 6) == due


def test_a_pass_whose_rows_chose_says_where_they_differed() -> None:
    one = Pass(
        "target", "verify", 3, 4, 1.0, ffn=[0, 1, 3], routed=["rrr", "rar", "aaa", "frf"], gap="absent"
    )
    assert layer_letters(one, 4) == "rsas"
    trace, steps = told(adaptive_depth=("skip_layer", {"threshold": 0.4}), drafter="prompt_lookup")
    assert any("s" in row[0] for step in steps for row in step["depth"]["ran"])
    for record, step in zip(trace.steps, steps, strict=True):
        (row,), (shown,) = step["depth"]["ran"], step["depth"]["exits"]
        assert row[3:] == [1] * (record.passes[-1].routed is not None)
        assert (
            shown["open"] == pytest.approx(record.exits[0].open_share, abs=1e-3) and shown["asks"] == "router"
        )
        assert (shown.get("scores") is not None) == (row[1] == 1)


def test_a_lossy_exit_reaches_the_wire_with_every_test() -> None:
    trace, steps = told(adaptive_depth=("confidence_exit", {"threshold": 0.9, "min_layers": 1}))
    early = 0
    for record, step in zip(trace.steps, steps, strict=True):
        left, (shown,) = record.exits[0], step["depth"]["exits"]
        assert step["depth"]["ran"] == [["r" * left.depth + "p" * (6 - left.depth), 1, 0]]
        assert shown["depth"] == left.depth and shown["of"] == 0 and not shown["below"]
        assert [[*x[:3]] for x in shown["tests"]] == left.tests and [
            x[3] for x in shown["tests"]
        ] == left.best
        early += left.depth < 6
    assert 0 < early < len(steps), "the test needs passes that left and passes that did not"


def test_drafting_passes_stand_before_the_check_and_name_their_own_exit() -> None:
    criterion = {"criterion": "confidence_exit threshold=0.6 min_layers=1", "max_draft_tokens": 3}
    trace, steps = told(drafter=("early_exit", criterion))
    drafted = [(x, y) for x, y in zip(trace.steps, steps, strict=True) if x.draft]
    assert drafted
    for record, step in drafted:
        ran = step["depth"]["ran"]
        # then the last token also ran through the layers below the check
        entered = ran[-1][0].startswith("-")
        assert [row[2] for row in ran] == [1] * (len(record.draft.tokens) + entered) + [0]
        last = step["depth"]["exits"][-1]
        assert last["of"] == len(record.draft.tokens) - 1 and ran[last["of"]][0].count("r") == last["depth"]
        assert step.get("few", False) or len(step["depth"]["exits"]) == len(record.exits)


def test_plain_decoding_says_nothing_of_depth() -> None:
    assert not any("depth" in step for step in told()[1])


def test_tokens_that_waited_are_counted_where_they_went_on_and_their_flush_is_paid() -> None:
    trace, _ = told()
    shallow = Pass("target", "verify", 1, 9, 1.0, attn=2, ffn=2, gap="defer")
    taken = Pass("target", "verify", 1, 9, 1.0, joined=[[2, 2], [4, 1]])
    flush = Pass("target", "flush", 3, 9, 1.0, attn=[2, 3, 4, 5], ffn=[2, 3, 4, 5], joined=[[3, 1]], logits=0)
    one = trace.steps[0]
    counted = [
        count_resumed_rows(replace(one, passes=list(x)), 6) for x in ([shallow], [taken], [flush, taken])
    ]
    assert counted == [[0] * 6, [0, 0, 2, 2, 3, 3], [0, 0, 5, 6, 7, 7]]
    passes = PassPricer(trace.header)
    assert passes.saved_layers([shallow], 1) > 3 > 0 > passes.saved_layers([shallow, flush], 1)


def test_layers_saved_are_net_of_tests_and_of_what_was_propagated() -> None:
    trace, _ = told()
    passes, plain = PassPricer(trace.header), Pass("target", "verify", 1, 9, 1.0)
    assert passes.saved_layers([plain], 1) == pytest.approx(0) and passes.saved_layers([], 1) is None
    free = Pass("target", "verify", 1, 9, 1.0, attn=3, ffn=3)
    filled = Pass("target", "verify", 1, 9, 1.0, attn=3, ffn=3, propagated=3)
    asked = Pass("target", "verify", 1, 9, 1.0, attn=3, ffn=3, propagated=3, tests=[1, 2, 3], asks="head")
    saved = [passes.saved_layers([x], 1) for x in (free, filled, asked)]
    assert saved[0] == pytest.approx(3) and saved[0] > saved[1] > saved[2]


def test_states_that_were_looked_up_reach_the_wire_and_are_explained() -> None:
    trace, steps = told(adaptive_depth=("trigrams", {"layers": 2}), drafter="prompt_lookup")
    for record, step in zip(trace.steps, steps, strict=True):
        left, (shown,) = record.exits[0], step["depth"]["exits"]
        assert shown["known"] == [sum(left.known), len(left.known), left.table] and shown["by"] == "trigrams"
        assert step["depth"]["ran"] == [["--rrrr", len(left.known), 0]]
        assert (
            explain_exit(trace, record).title
            == f"{sum(left.known)} of {len(left.known)} states found in the table"
        )
    worked = [[x for x in record.passes if x.phase == "lookup"] for record in trace.steps]
    assert any(worked) and not all(worked)
    for record, step, some in zip(trace.steps, steps, worked, strict=True):
        if record.exits[0].known == [True]:
            assert step["depth"]["saved"] == pytest.approx(2, abs=0.1)
        elif len(record.exits[0].known) == 1:  # three rows, which read nothing else, ran two layers
            assert some and step["depth"]["saved"] == pytest.approx(2 - 3 * 2, abs=0.8)
