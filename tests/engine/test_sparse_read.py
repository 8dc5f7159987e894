"""Selection by scores: the requested number, the first on ties, and never an entry that a row does not see."""

from __future__ import annotations

import pytest
import torch

from decodescope.engine.model.stores.sparse_read import top_mask

NOT = -torch.inf


@pytest.mark.parametrize(
    ("scores", "count", "chosen"),
    [
        ([2.0, 2.0, 2.0, 2.0], 2, [0, 1]),
        ([1.0, 3.0, 2.0, 3.0, 2.0, 2.0], 4, [1, 2, 3, 4]),
        ([NOT, 1.0, NOT, 1.0], 3, [1, 3]),
        ([NOT, NOT, NOT], 1, []),
        ([0.0, -0.0, 0.0], 1, [0]),
        ([1.0, NOT, 0.0], 7, [0, 2]),
        ([5.0, 4.0], 2, [0, 1]),
    ],
)
def test_of_equal_scores_the_first_are_chosen_and_of_hidden_ones_none(
    scores: list[float], count: int, chosen: list[int]
) -> None:
    assert top_mask(torch.tensor(scores), count).nonzero().flatten().tolist() == chosen


def test_every_row_is_chosen_as_a_sort_that_keeps_the_order_of_equals_would() -> None:
    draws = torch.Generator().manual_seed(3)
    scores = (
        torch.randint(4, (200, 17), generator=draws)
        .float()
        .masked_fill(torch.rand(200, 17, generator=draws) < 0.2, NOT)
    )
    tied = 0
    for count in (1, 4, 9, 16, 17):
        for row, mine in zip(scores.tolist(), top_mask(scores, count).tolist(), strict=True):
            order = sorted((i for i, x in enumerate(row) if x > NOT), key=lambda i: -row[i])
            assert [i for i, x in enumerate(mine) if x] == sorted(order[:count])
            tied += count < len(order) and row[order[count - 1]] == row[order[count]]
    assert tied > 300, "the test needs equal scores at the edge"
