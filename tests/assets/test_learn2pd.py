"""Training of the filter: an oracle that knows the text rewrites it in fewer passes, and its commits are the labels."""

from __future__ import annotations

import torch

from decodescope.training import learn2pd
from decodescope.training.infill import SHAPE
from decodescope.training.net import MASK, Net


def test_an_oracle_writes_the_reference_in_fewer_passes_and_labels_its_candidates() -> None:
    torch.manual_seed(0)
    net = Net(SHAPE).eval().requires_grad_(False)
    ids = torch.cat([torch.randint(6, 200, (6, 4)), torch.full((6, 9), MASK)], 1)
    wanted = learn2pd.reference_texts(net, ids)
    assert not (wanted == MASK).any() and torch.equal(wanted[:, :4], ids[:, :4])
    text, passes = learn2pd.oracle(net, ids, wanted)
    assert torch.equal(text, wanted) and len(passes) < 9
    canvas = ids
    for sure, open, right in passes:
        token, confidence = learn2pd.candidates(net, canvas)
        assert torch.equal(open, canvas == MASK) and torch.equal(right, open & (token == wanted))
        assert torch.equal(sure, torch.where(open, confidence, 1.0))
        before, canvas = canvas, torch.where(right, wanted, canvas)
        for row in range(6):
            if open[row].any() and not right[row].any():
                at = int(confidence[row].masked_fill(~open[row], -1).argmax())
                assert before[row, at] == MASK
                canvas[row, at] = wanted[row, at]
    assert torch.equal(canvas, wanted)


def test_a_fitted_filter_finds_what_its_examples_call_final() -> None:
    chance = torch.Generator().manual_seed(0)

    def drawn(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        sure = torch.rand(n, learn2pd.BLOCK, generator=chance)
        return sure, torch.ones_like(sure, dtype=torch.bool), sure > 0.6

    head = learn2pd.fit_filter(8, drawn(400), drawn(100), 400, 0)
    said = learn2pd.filter_shares(head, drawn(200))
    assert said["wrong"] < 0.05 and said["of the right"] > 0.3
