"""Branches: one store and one pass for several texts; each text is as if alone, and each entry is held once."""

from __future__ import annotations

import pytest
import torch
import toys
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.shared.branches import TextBranch, TextBranches
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.feed import Feed

DOC = toys.prompts(1, 21, seed=4)[0]
SPECS = {"full": toys.toy_spec(heads=()), "windowed": toys.toy_spec(heads=(), windows=(3, None, 4))}
# bytes of one entry in a layer: by KV head, the key and value in float64 and the position
ENTRY = 2 * (2 * 8 * 8 + 4)


def begun(spec: ModelSpec, tokens: list[int]) -> TextBranches:
    lane = Lane("target", toys.decoder(spec, toys.LIVELY, torch.float64), KeepAll())
    if len(tokens) > 1:
        lane.read(tokens[:-1], "prefill")
    return TextBranches(lane, tokens)


def alone(branches: TextBranches, tokens: list[int]) -> Tensor:
    """The logits after a text that is read by itself, without a cache."""
    return branches.lane.decoder.forward(Feed.causal_chain(tokens, 0), None)[0, -1]


def follow(branches: TextBranches, due: int) -> None:
    """Run a pass and continue each text with its likeliest token; check that each text is as if alone."""
    logits = branches.step()
    assert len(logits) == len(branches.alive) == due
    for branch, law in zip(branches.alive, logits, strict=True):
        torch.testing.assert_close(law, alone(branches, branch.tokens), atol=1e-9, rtol=1e-9)
        branch.tokens.append(int(law.argmax()))


def distinct(branches: TextBranches) -> int:
    """The entries of the live texts, each counted once: two texts share what they have read of the same beginning."""
    return len({tuple(x.tokens[: i + 1]) for x in branches.alive for i in range(x.held)})


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("prompt", [DOC, DOC[:1]], ids=["several", "one token"])
@torch.inference_mode()
def test_texts_that_fork_and_end_apart_are_what_they_are_by_themselves(
    spec: ModelSpec, prompt: list[int]
) -> None:
    branches = begun(spec, prompt)
    root = branches.alive[0]
    follow(branches, 1)
    assert branches._sees is None, "one text is alone, as in plain decoding"
    child = branches.fork(root, len(root.tokens), [5])  # the last token of its parent is not read yet
    follow(branches, 2)
    follow(branches, 2)
    grandchild = branches.fork(child, len(child.tokens) - 2, [7, 2, 9])  # from the middle of another text
    late = branches.fork(root, len(prompt), [1, 1])
    follow(branches, 4)
    branches.end(child)  # a parent goes before its child
    follow(branches, 3)
    twins = [branches.fork(grandchild, len(grandchild.tokens), [x]) for x in (3, 4)]
    branches.end(grandchild)  # what its children wait for has not been read
    follow(branches, 4)
    branches.end(root)
    follow(branches, 3)
    store = branches.lane.cache.layers[0]
    assert store.n == distinct(branches) and {x.n for x in branches.lane.cache.layers} == {store.n}
    for branch in [late, *twins]:
        assert branch.held == len(branch.tokens) - 1
    branches.end(late)
    branches.end(twins[0])
    follow(branches, 1)
    assert branches._sees is None and store.n == twins[1].held, "alone again"
    again = branches.fork(twins[1], len(twins[1].tokens), [6])
    follow(branches, 2)
    assert again.held == len(again.tokens) - 1


@torch.inference_mode()
def test_what_stands_behind_several_texts_is_read_in_chunks_of_all_of_them() -> None:
    branches = begun(SPECS["full"], DOC)
    root = branches.alive[0]
    tails = [toys.prompts(1, length, seed=length)[0] for length in (1, 300, 7, 280)]
    for tail in tails:
        branches.fork(root, len(root.tokens), tail)
    branches.lane.take_passes()
    branches.read(whole=[root])
    rows = [(x.phase, x.tokens) for x in branches.lane.take_passes()]
    assert rows == [("prefill", 512), ("prefill", 1 + sum(map(len, tails)) - len(tails) - 512)], (
        "the document's last, once"
    )
    branches.end(root)
    follow(branches, 4)
    assert branches.lane.cache.layers[0].n == len(DOC) + sum(map(len, tails))


@torch.inference_mode()
def test_a_text_that_ends_gives_its_bytes_back() -> None:
    branches = begun(SPECS["full"], DOC)
    root = branches.alive[0]

    def sides(count: int) -> list[TextBranch]:
        return [branches.fork(root, len(DOC), toys.prompts(1, 200, seed=i)[0]) for i in range(count)]

    one, two = sides(2)
    branches.read(whole=[root])
    branches.end(root)
    branches.step()
    cache, full = branches.lane.cache, branches.lane.cache.nbytes
    assert cache.layers[0].n == len(DOC) + 400, "the prompt is there once"
    branches.end(one)
    assert cache.layers[0].n == len(DOC) + 200
    assert full - cache.nbytes >= 3 * (200 - 3 * 16) * ENTRY, (
        "pages go back, but for those that are kept to grow"
    )
    assert cache.nbytes == cache.memory.held
    two.tokens.append(1)
    torch.testing.assert_close(branches.step()[0], alone(branches, two.tokens), atol=1e-9, rtol=1e-9)
