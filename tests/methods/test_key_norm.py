"""Key norm: the kept set equals a brute-force choice by the keys of the full cache."""

from __future__ import annotations

import pytest
import torch
import toys

from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.method import MethodError


def lane(short: int, recent: int) -> Lane:
    return Lane(
        "target",
        toys.pair()[0].decoder,
        build("policy", "key_norm", dict(low_norm_entries=short, recent=recent)),
    )


def chosen(norms: torch.Tensor, held: list[int], short: int, recent: int) -> list[int]:
    """norms [n] by position, held: positions, ascending."""
    if len(held) <= short + recent:
        return held
    old = sorted((p for p in held if p < len(norms) - recent), key=lambda p: (float(norms[p]), p))
    return sorted(old[:short] + [p for p in held if p >= len(norms) - recent])


@pytest.mark.parametrize(("short", "recent"), [(5, 3), (6, 0), (0, 4)])
@torch.inference_mode()
def test_the_kept_set_is_a_brute_force_choice(short: int, recent: int) -> None:
    """First-layer keys do not depend on evictions. So a full cache with the same tokens shows which keys are short."""
    made, full = lane(short, recent), Lane("plain", toys.pair()[0].decoder, build("policy", "keep_all"))
    text = toys.prompts(1, 40, seed=3)[0]
    kept = [list(range(12))] * 2
    for x in (made, full):
        x.read(text[:12], compress=False)
    newest_left = differ = False
    for at, token in enumerate(text[12:], 12):
        for x in (made, full):
            x.forward(Feed.causal_chain([token], at))
            x.commit([0])
        norms = full.cache.layers[0].k[0].float().norm(dim=-1)  # [H_kv, n]
        kept = [chosen(norms[h], [*held, at], short, recent) for h, held in enumerate(kept)]
        store = made.cache.layers[0]
        assert store.positions().expand(1, 2, -1)[0].sort(1).values.tolist() == kept
        newest_left |= any(at not in held for held in kept)
        differ |= kept[0] != kept[1]
    assert differ is (short > 0), "the test needs heads that differ"
    assert newest_left is (recent == 0)


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(MethodError, match="keeps nothing"):
        toys.decode(toys.method(policy=("key_norm", dict(low_norm_entries=0, recent=0))), count=1)


@torch.inference_mode()
def test_the_norms_of_heads_that_hold_different_numbers_stay_with_their_keys() -> None:
    made, text = lane(50, 3), toys.prompts(1, 20, seed=4)[0]
    made.read(text)
    for store in made.cache.layers:
        keep = torch.ones(1, 2, store.n, dtype=torch.bool)
        keep[:, 1, :7] = False
        store.keep_where(keep)
    made.forward(Feed.causal_chain(text[:2], 20))
    made.commit([0, 1])
    for store in made.cache.layers:
        there = store.positions() >= 0
        assert store.heads is not None and there.sum(2).tolist() == [[22, 15]]
        assert torch.equal(store.column("norm")[there], store.k[there].float().norm(dim=-1))


def test_a_key_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the budget is full a commit measures the keys that came with it, and none of the older ones."""
    measured: list[int] = []
    norm = torch.Tensor.norm

    def counted(x: torch.Tensor, *args: object, **named: object) -> torch.Tensor:
        measured.append(x.shape[:-1].numel())
        return norm(x, *args, **named)  # type: ignore[arg-type] # passed on unchanged

    made, text = lane(5, 3), toys.prompts(1, 20, seed=4)[0]
    with torch.inference_mode():
        made.read(text)
        monkeypatch.setattr(torch.Tensor, "norm", counted)
        for at, rows in ((20, 1), (21, 2)):
            made.forward(Feed.causal_chain(text[:rows], at))
            made.commit(list(range(rows)))
    spec = made.decoder.spec
    assert made.cache.fullest_length == 8 and sum(measured) == 3 * spec.n_layers * spec.n_kv_heads
