"""Segments: however attention is cut into pieces, the joined pieces are one attention."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.model.attention import segments as module
from decodescope.engine.model.attention.attention import AttentionRequest, eager_attention
from decodescope.engine.model.attention.segments import (
    DenseSegment,
    PartialAttention,
    Segment,
    attend_segments,
    eager_partial_attention,
    merge_partial_attention,
)

B, H, G, D = 2, 2, 3, 8
CLOSE = {
    torch.float64: 1e-10,
    torch.float32: 1e-5,
    torch.bfloat16: 6e-2,
}  # in bfloat16 a value of 5 has steps of 0.03


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers, wide enough that some weights are near 0 and some near 1."""
    return 2 * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(
        dtype
    )


def case(seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q [B, H, G, T, D], k and v [B, H, S, D], mask [B, H, T, S] in which every row sees something."""
    draw = random.Random(seed)
    T, S = draw.choice([1, 1, 3, 9]), draw.randint(1, 40)
    q, k, v = numbers(seed, B, H, G, T, D, dtype=dtype), *numbers(seed + 1, 2, B, H, S, D, dtype=dtype)
    mask = torch.rand(B, H, T, S, generator=torch.Generator().manual_seed(seed)) < draw.choice(
        [0.1, 0.5, 1.0]
    )
    mask[..., draw.randrange(S)] = True
    return q, k, v, mask


def cut(seed: int, k: Tensor, v: Tensor, mask: Tensor) -> list[DenseSegment]:
    """The entries in random segments, in random order; some are empty, some show nothing to any row."""
    draw = random.Random(seed)
    order = torch.tensor(draw.sample(range(k.shape[2]), k.shape[2]))
    # equal ends give an empty segment
    ends = sorted(draw.choices(range(k.shape[2] + 1), k=draw.randint(0, 5)))
    pieces = [order[a:b] for a, b in zip([0, *ends], [*ends, len(order)], strict=True)]
    segments = [DenseSegment(k[:, :, at], v[:, :, at], mask=mask[:, :, :, at]) for at in pieces]
    segments.append(DenseSegment(k, 100 * v, mask=torch.zeros_like(mask)))
    draw.shuffle(segments)
    return segments


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "plain"])
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@torch.inference_mode()
def test_any_cut_in_any_order_is_one_attention(
    dtype: torch.dtype, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel:
        monkeypatch.setattr(module, "_FLASH", None)
    empty = unseen = 0
    for seed in range(120):
        q, k, v, mask = case(seed, dtype)
        segments = cut(seed, k, v, mask)
        empty += sum(s.k.shape[2] == 0 for s in segments)
        unseen += sum(not s.mask.any(-1).all() for s in segments[:-1] if s.mask is not None)
        wanted = eager_attention(q, k, v, mask, 0.3)
        torch.testing.assert_close(
            attend_segments(segments, {"original": q}, 0.3), wanted, atol=CLOSE[dtype], rtol=0
        )
    assert empty > 50 and unseen > 100, "the test needs empty segments and rows that see nothing of one"


@torch.inference_mode()
def test_joined_parts_may_be_joined_again() -> None:
    for seed in range(40):
        q, k, v, mask = case(seed, torch.float64)
        parts = [s.attend(q, s.mask, 0.3) for s in cut(seed, k, v, mask)]
        nested = parts[0]
        for part in parts[1:]:
            nested = merge_partial_attention([nested, part])
        torch.testing.assert_close(
            nested.output(), merge_partial_attention(parts[::-1]).output(), atol=1e-12, rtol=0
        )


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "plain"])
@torch.inference_mode()
def test_a_row_that_sees_nothing_gets_zeros(kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel:
        monkeypatch.setattr(module, "_FLASH", None)
    q, k, v, _ = case(1, torch.float64)
    hidden = torch.zeros(1, 1, q.shape[3], k.shape[2], dtype=torch.bool)
    total = merge_partial_attention(
        [
            DenseSegment(k, v).attend(q, hidden, 0.3),
            DenseSegment(k[:, :, :0], v[:, :, :0]).attend(q, None, 0.3),
        ]
    )
    assert not total.output().any() and (total.maximum == -torch.inf).all()


@torch.inference_mode()
def test_scores_as_large_as_they_come_do_not_overflow() -> None:
    q, k, v, mask = case(3, torch.float32)
    for size in (1e4, -1e4):
        wanted = eager_attention(q, k, v, mask, size)
        got = attend_segments(cut(3, k, v, mask), {"original": q}, size)
        torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("tile", [2, 100])
@pytest.mark.parametrize("cap", [None, 4.0])
@torch.inference_mode()
def test_weights_stand_at_the_slots_of_their_store(
    cap: float | None, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two segments share the first five slots: one row sees each entry in one of them."""
    monkeypatch.setattr(module, "TILE", tile)
    q, k, v = numbers(5, B, H, G, 7, D), *numbers(6, 2, B, H, 20, D)
    mask = torch.rand(B, H, 7, 20, generator=torch.Generator().manual_seed(7)) < 0.6
    mask[..., -1] = True
    one = torch.rand(1, 1, 7, 5, generator=torch.Generator().manual_seed(8)) < 0.5
    segments = [
        DenseSegment(k[:, :, 5:], v[:, :, 5:], mask=mask[..., 5:], first=5),
        DenseSegment(k[:, :, :5], v[:, :, :5], mask=mask[..., :5] & one),
        DenseSegment(k[:, :, :5], v[:, :, :5], mask=mask[..., :5] & ~one),
    ]
    for columns in (False, True):
        wanted, probe = Probe(Needs("rows")), Probe(Needs("rows"))
        y = eager_attention(q, k, v, mask, 0.3, cap, AttentionRequest(wanted, 4, columns))
        got = attend_segments(
            segments, {"original": q}, 0.3, cap, slots=20, wanted=AttentionRequest(probe, 4, columns)
        )
        torch.testing.assert_close(got, y, atol=1e-10, rtol=0)
        pairs = (wanted.columns, probe.columns) if columns else (wanted.rows, probe.rows)
        torch.testing.assert_close(pairs[1][4], pairs[0][4], atol=1e-6, rtol=0)
    torch.testing.assert_close(attend_segments(segments, {"original": q}, 0.3, cap), y, atol=1e-10, rtol=0)


@dataclass(frozen=True)
class Linear(Segment):
    """An NTK-Attention term (github.com/ChristianYang37/chiwun): phi(q) Z and phi(q) |z| replace a prefix without entries."""

    Z: Tensor
    z: Tensor

    def attend(
        self, q: Tensor, mask: Tensor | None, scale: float, cap: float | None = None, *, weights: bool = False
    ) -> PartialAttention:
        phi = F.elu(q * scale**0.5) + 1
        return PartialAttention(
            phi @ self.Z, phi @ self.z.abs(), q.new_zeros(q.shape[:-1]), q[..., :0] if weights else None
        )


@torch.inference_mode()
def test_a_term_without_entries_adds_to_both_sums() -> None:
    q, k, v, mask = case(2, torch.float64)
    Z, z = numbers(9, D, D), numbers(10, D)
    probe = Probe(Needs("rows"))
    segments = [DenseSegment(k, v, mask=mask), Linear(Z, z)]
    got = attend_segments(segments, {"original": q}, 0.3, slots=k.shape[2], wanted=AttentionRequest(probe, 0))
    terms = (torch.einsum("bhgtd,bhsd->bhgts", q, k) * 0.3).exp() * mask[:, :, None]
    phi = F.elu(q * 0.3**0.5) + 1
    below = terms.sum(-1) + phi @ z.abs()
    torch.testing.assert_close(got, (terms @ v[:, :, None] + phi @ Z) / below[..., None], atol=1e-10, rtol=0)
    torch.testing.assert_close(probe.rows[0], (terms / below[..., None]).float(), atol=1e-6, rtol=0)
    off = attend_segments([DenseSegment(k, v, mask=mask), Linear(0 * Z, 0 * z)], {"original": q}, 0.3)
    torch.testing.assert_close(off, eager_attention(q, k, v, mask, 0.3), atol=1e-12, rtol=0)


def test_a_gradient_goes_through_the_cut_as_through_the_whole() -> None:
    q, k, v, mask = case(8, torch.float64)
    towards = numbers(11, *q.shape)
    grads = []
    for way in (
        lambda: eager_attention(q, k, v, mask, 0.3),
        lambda: attend_segments(cut(8, k, v, mask), {"original": q}, 0.3),
    ):
        leaves = [x.requires_grad_() for x in (q, k, v)]
        grads.append(torch.autograd.grad((way() * towards).sum(), leaves))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


@torch.inference_mode()
def test_one_segment_is_what_the_kernel_says_and_what_is_written_out() -> None:
    q, k, v, mask = case(4, torch.float64)
    a, b = DenseSegment(k, v).attend(q, mask, 0.3), eager_partial_attention(q, k, v, mask, 0.3)
    torch.testing.assert_close(a.output(), b.output(), atol=1e-12, rtol=0)
    torch.testing.assert_close(
        a.maximum + a.denominator.log(), b.maximum + b.denominator.log(), atol=1e-12, rtol=0
    )
