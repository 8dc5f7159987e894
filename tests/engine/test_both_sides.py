"""A model without a causal mask: every row of a pass sees the whole pass, however attention is computed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toys
from brute import brute

from decodescope.engine import MethodError
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.batch.decode import check_prompts

TEXT = [*toys.PROMPT, 7, 0, 11, 2]
BOTH = toys.toy_spec(causal=False, heads=())
DECODER = toys.decoder(BOTH, toys.LIVELY, torch.float64)
CAUSAL = toys.decoder(toys.toy_spec(heads=()), toys.LIVELY, torch.float64)
ATOL = 1e-9


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, atol=ATOL, rtol=1e-9)


def lane() -> Lane:
    return Lane("target", DECODER, KeepAll())


@torch.inference_mode()
def test_every_row_sees_every_row() -> None:
    wanted = brute(DECODER, TEXT, list(range(len(TEXT))), lambda *_: True)
    close(DECODER.forward(Feed.causal_chain(TEXT, 0), None)[0], wanted)
    close(DECODER.forward(Feed.causal_chain(TEXT, 0), KVCache(BOTH, dtype=torch.float64))[0], wanted)
    probe = Probe(Needs(attention="rows"))
    close(DECODER.forward(Feed.causal_chain(TEXT, 0), None, probe)[0], wanted)
    assert all(bool((rows > 0).all()) for rows in probe.rows.values()), "each row looks at each entry"
    assert (CAUSAL.forward(Feed.causal_chain(TEXT, 0), None)[0] - wanted).abs().max() > 0.1, (
        "the guard: the mask matters"
    )


@torch.inference_mode()
def test_rows_behind_a_cache_see_it_and_each_other() -> None:
    """The cached entries do not change: the first rows were read without the later ones, as in brute force."""
    n = 7
    cache = KVCache(BOTH, dtype=torch.float64)
    DECODER.forward(Feed.causal_chain(TEXT[:n], 0), cache)
    cache.commit(range(n))
    wanted = brute(DECODER, TEXT, list(range(len(TEXT))), lambda layer, head, t, s: t >= n or s < n)
    close(DECODER.forward(Feed.causal_chain(TEXT[n:], n), cache)[0], wanted[n:])


@torch.inference_mode()
def test_a_lane_reads_a_text_in_one_piece_and_anew_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", 4)
    whole = DECODER.forward(Feed.causal_chain(TEXT, 0), None)[0, -1]
    one, calls = lane(), list[Any]()
    close(one.read(TEXT, between=lambda *x: calls.append(x)), whole)
    assert calls == [(0, len(TEXT))] and len(one.passes) == 1
    other = [*TEXT[:-1], (TEXT[-1] + 1) % BOTH.vocab]
    close(one.read(other), DECODER.forward(Feed.causal_chain(other, 0), None)[0, -1])
    assert one.tokens == other and [x.tokens for x in one.passes] == [len(TEXT)] * 2


def test_a_batch_is_written_from_left_to_right() -> None:
    check_prompts(toys.model(CAUSAL), [TEXT])
    with pytest.raises(
        MethodError, match=r"^draft_verify writes from left to right, and toy reads its text in both "
    ):
        check_prompts(toys.model(DECODER), [TEXT])
