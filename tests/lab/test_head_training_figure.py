"""The figure of a head's training: a line for each position of a draft, and the loss."""

from __future__ import annotations

import pytest

from decodescope.lab.figures.measured import head_training

METRICS = [
    {
        "step": 5,
        "steps": 10,
        "tokens": 500,
        "loss": 4.5,
        "accepted": [0.2, 0.1],
        "tokens_per_pass": 1.22,
        "seconds": 1.0,
    },
    {
        "step": 10,
        "steps": 10,
        "tokens": 990,
        "loss": 3.5,
        "accepted": [0.5, 0.25],
        "tokens_per_pass": 1.625,
        "seconds": 2.0,
    },
]


def test_every_position_and_the_loss_is_drawn_over_the_tokens_that_were_read() -> None:
    drawing = head_training.figure("eagle3 head for <toy>", METRICS)
    first, second, loss = drawing.data
    assert [list(x.x) for x in drawing.data] == [[500, 990]] * 3
    assert (list(first.y), list(second.y), list(loss.y)) == ([0.2, 0.5], [0.1, 0.25], [4.5, 3.5])
    assert (first.name, second.name) == ("position 1", "position 2") and loss.yaxis == "y2"
    assert drawing.layout.title.text == "eagle3 head for &lt;toy&gt;<br>1.62 tokens a pass after 990 tokens"


def test_the_table_has_the_same_numbers_and_nothing_is_drawn_of_nothing() -> None:
    assert head_training.table(METRICS).to_dict("list") == {
        "tokens": [500, 990],
        "loss": [4.5, 3.5],
        "position 1": [0.2, 0.5],
        "position 2": [0.1, 0.25],
        "tokens a pass": [1.22, 1.625],
    }
    with pytest.raises(ValueError, match="nothing was measured yet"):
        head_training.figure("none", [])
