"""Slots and their prefix: their content changes no bit of the tree's rows and no cache; a slot sees the tree and the prefix."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toys

from decodescope.engine import Session
from decodescope.engine.decoding.values.draft import ROOT, Draft, Slots
from decodescope.engine.model.layers.rope import rotate_

SPEC = toys.SPEC
TEXT = toys.prompts(1, 21, 4)[0]
PARENTS = [ROOT, ROOT, 0, 0, 1, 4]
TOKENS = [5, 2, 9, 3, 3, 7]
AT = [ROOT, ROOT, 0, 2, 3, 5, 5]
STEPS = [1, 2, 1, 1, 1, 1, 2]
SEES = torch.eye(7, dtype=torch.bool)
SEES[1, 0] = SEES[6, 5] = True


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slots(seed: int, prefix: int = 0) -> Slots:
    """Slots with random inputs, and a prefix of `prefix` entries."""
    kv = (
        random(SPEC.n_layers, 2, SPEC.n_kv_heads, prefix, SPEC.head_dim, seed=seed + 1) * 2
        if prefix
        else None
    )
    return Slots(AT, STEPS, SEES, random(len(AT), SPEC.d_model, seed=seed) * 3, kv)


def passed(draft: Draft, method: Any = None, path: list[int] | None = None):
    """The logits, float64 [rows, V], of a pass with this draft after TEXT, and the cache after a commit of `path`."""
    session = Session(toys.pair()[0], method or toys.method(), TEXT)
    session.start()
    lane = session.target
    with torch.inference_mode():
        logits = lane.forward(draft.build_feed(TEXT[-1], len(TEXT) - 1))[0]
        lane.commit(path or [0])
    return logits, lane.cache


def tree(own: Slots | None = None) -> Draft:
    return Draft(list(TOKENS), list(PARENTS), slots=own)


def passengers() -> Draft:
    """The same tree in a pass of as many rows without slots: auxiliary nodes that no row sees replace the slots."""
    whole = [True] * len(TOKENS) + [False] * len(AT)
    return Draft([*TOKENS, *[4] * len(AT)], [*PARENTS, *AT], acceptable=whole)


METHODS = {
    "plain": {},
    "windows": dict(policy=("streaming_llm", {"sink_tokens": 2, "recent": 6})),
    "two rotations": dict(policy=("lm_infinite", {"sink_tokens": 2, "window": 6})),
    "packed": dict(kv_compression=("kivi", {"group": 4, "buffer": 4})),
    "heads apart": dict(policy=("adakv", {"prompt_budget": 5, "window": 3, "pool_radius": 1})),
}
GATHERED = {
    "quest": dict(policy=("quest", {"token_budget": 16, "dense_layers": 0})),
    "lm_infinite": dict(
        policy=(
            "lm_infinite",
            {"sink_tokens": 2, "window": 6, "middle_top_k": 2, "middle_distance": 4, "first_middle_layer": 1},
        )
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_what_slots_and_prefix_hold_reaches_no_row_of_the_tree(name: str) -> None:
    """The difference is 0 between passes with other slot inputs, another prefix, or none."""
    made = [
        passed(tree(x), toys.method(**METHODS[name]))[0]
        for x in (slots(1), slots(5), slots(1, 4), slots(9, 2))
    ]
    n = len(TOKENS) + 1
    assert all(torch.equal(x[:n], made[0][:n]) for x in made[1:])
    assert all(float((x[n:] - made[0][n:]).abs().min(0).values.max()) > 0.1 for x in made[1:]), (
        "the slots do differ"
    )


@pytest.mark.parametrize("name", GATHERED)
def test_slots_that_choose_what_they_read_leave_the_tree_its_own_choice(name: str) -> None:
    """The choices of all rows are gathered at once, so a sum may run over more places that a row does not see."""
    n, method = len(TOKENS) + 1, toys.method(**GATHERED[name])
    plain = passed(tree(), method)[0]
    for own in (slots(1), slots(5, 4)):
        assert torch.allclose(passed(tree(own), method)[0][:n], plain, atol=1e-12)


@pytest.mark.parametrize("prefix", [0, 4])
def test_the_tree_has_the_logits_of_a_pass_without_slots(prefix: int) -> None:
    """The difference is 0 to a pass with as many rows and no slots.

    To a pass with fewer rows, only the rounding of a product of fewer rows differs.
    """
    n, mine = len(TOKENS) + 1, passed(tree(slots(1, prefix)))[0]
    assert torch.equal(mine[:n], passed(passengers())[0][:n])
    assert torch.allclose(mine[:n], passed(tree())[0], atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_of_slots_or_prefix_stays_in_a_cache(name: str) -> None:
    """After the commit of a path, the cache is, bit by bit, that of a pass with other slots and without a prefix."""
    path = [0, 2, 5]
    _, mine = passed(tree(slots(1, 4)), toys.method(**METHODS[name]), path)
    _, due = passed(tree(slots(5)), toys.method(**METHODS[name]), path)
    assert not mine.outside and mine.extra_entries == 0 and mine.length == due.length == len(TEXT) + 2
    assert mine.lengths() == due.lengths() and mine.nbytes == due.nbytes and all(not x.m for x in mine.layers)
    for a, b in zip(mine.layers, due.layers, strict=True):
        assert torch.equal(a.k[:, :, : a.n], b.k[:, :, : b.n]) and torch.equal(
            a.v[:, :, : a.n], b.v[:, :, : b.n]
        )
        assert torch.equal(a.positions(), b.positions())


@torch.inference_mode()
def alone(own: Slots, row: int) -> torch.Tensor:
    """float64 [V]: the output of slot `row`, written out.

    It reads a causal text: the tokens before it, and the slots of its line. Only these slots also see the prefix, with queries
    that are not rotated.
    """
    decoder, node, path = toys.pair()[0].decoder, AT[row], []
    while node != ROOT:
        path.append(TOKENS[node])
        node = PARENTS[node]
    ids, line = [*TEXT, *reversed(path)], [i for i in range(len(AT)) if SEES[row, i]]
    x = torch.cat([decoder.embed[ids], own.embeds[line]])[None]
    first, T, H, G = len(ids), len(ids) + len(line), SPEC.n_heads, SPEC.n_kv_heads
    for i, layer in enumerate(decoder.layers):
        qkv = layer.queries_keys_values(x, SPEC, i)
        bare = qkv[0, :, :H].clone()
        rotate_(qkv[:, :, : H + G], *decoder.rope.at(torch.arange(T)[None], T))
        y = torch.zeros(T, H, SPEC.head_dim, dtype=torch.float64)
        for h in range(H):
            g = h // (H // G)
            k, v = qkv[0, :, H + g], qkv[0, :, H + G + g]
            scores = (qkv[0, :, h] @ k.T).masked_fill(~torch.ones(T, T).bool().tril(), -torch.inf)
            if own.prefix is not None:
                extra = bare[:, h] @ own.prefix[i, 0, g].T
                extra[:first] = -torch.inf
                scores, v = torch.cat([scores, extra], 1), torch.cat([v, own.prefix[i, 1, g]])
            y[:, h] = (scores * SPEC.head_dim**-0.5).softmax(-1) @ v
        x = decoder.stack.ffn(i, x + y.flatten(1)[None] @ layer.out.T)
    return decoder.unembed(decoder.apply_norm(x))[0, -1]


@pytest.mark.parametrize("prefix", [0, 4])
def test_a_slot_sees_its_branch_its_line_and_the_prefix(prefix: int) -> None:
    own = slots(1, prefix)
    rows = passed(tree(own))[0][len(TOKENS) + 1 :]
    for row in range(len(AT)):
        assert torch.allclose(rows[row], alone(own, row), atol=1e-9)
