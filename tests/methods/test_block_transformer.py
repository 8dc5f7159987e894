"""Block Transformer: the token decoder's cache is one block, and the block decoder's grows by one entry per block.

Together they give the same result as a computation of everything at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import toys
from torch.utils.flop_counter import FlopCounterMode

from decodescope.engine import MethodError, Session
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.cost.hardware import HardwareProfile
from decodescope.engine.cost.passes import PassPricer
from decodescope.engine.model.forward.executor import EngineFault
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.engine.trace.records.events import Pass
from decodescope.lab.cost.pricer import PricedRun, Pricer

BLOCK = 4
METHOD = toys.method(strategy="block_transformer")
# some prompts end with a block, the others are padded to one
PROMPTS = [toys.PROMPT[:n] for n in (1, 2, 4, 5, 8, 15)]


@torch.inference_mode()
def laws(prompt: list[int], text: list[int]) -> torch.Tensor:
    """float64 [n, V]: the logits of each token of `text` by one pass over all blocks, and one over all tokens.

    In the second pass a row sees only its own block.
    """
    made = toys.block_target().decoder
    head = made.heads["block_transformer"]
    ids = torch.tensor([[7] * (-len(prompt) % BLOCK) + prompt + text])
    ids = torch.cat((ids, ids.new_zeros(1, -ids.shape[1] % BLOCK)), 1)
    count = ids.shape[1] // BLOCK
    upper = Feed.causal_chain([0] * count, 0)
    upper.embeds, upper.embed_rows = head.embed_blocks(ids), torch.ones(count, dtype=torch.bool)
    contexts = head.decoder(made.spec).forward(upper, None)[0]  # [N, d]
    first = (len(prompt) + 3) // BLOCK
    rows = made.embed[
        ids.view(count, BLOCK)
    ].clone()  # one row per place: the prefix, then the tokens without the last one
    rows[1:, 1:], rows[1:, 0] = rows[1:, :-1].clone(), contexts[:-1]
    lower = Feed.causal_chain([0] * (BLOCK * (count - first)), 0)
    lower.embeds, lower.embed_rows = (
        rows[first:].view(1, -1, made.spec.d_model),
        torch.ones(lower.length, dtype=torch.bool),
    )
    which = torch.arange(lower.length) // BLOCK
    lower.visible = (
        (which[:, None] == which) & torch.ones(lower.length, lower.length, dtype=torch.bool).tril()
    )[None]
    return made.forward(lower, None)[0, : len(text)]


def stepped(prompt: list[int], count: int) -> Iterator[tuple[Session, torch.Tensor]]:
    """The session after each of its steps, and the logits of its pass."""
    session = Session(toys.block_target(), METHOD, prompt, max_new_tokens=count)
    session.start()
    forward, seen = session.target.forward, []
    session.target.forward = lambda feed: seen.append(forward(feed)) or seen[-1]  # type: ignore[method-assign] # records
    for _ in session.stream():
        yield session, seen[-1][0, -1]


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_it_says_what_all_at_once_says(prompt: list[int]) -> None:
    passes = [(session, row) for session, row in stepped(prompt, 23)]
    text = passes[-1][0].end.tokens
    whole = laws(prompt, text)
    assert len(passes) == len(text) == 23
    assert torch.allclose(torch.stack([row for _, row in passes]), whole, rtol=0, atol=1e-9)
    assert text == whole.argmax(1).tolist() and len(set(text)) > 3, "the test needs a lively text"


@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_the_token_decoder_holds_one_block_and_the_block_decoder_one_entry_a_block(prompt: list[int]) -> None:
    first, most = -(-len(prompt) // BLOCK), 0
    for done, (session, _) in enumerate(stepped(prompt, 18), 1):
        lower, upper = session.target.cache, session.lanes["block_transformer"].cache
        assert [store.n for store in lower.layers] == [1 + (done - 1) % BLOCK] * 3
        assert [store.n for store in upper.layers] == [first + (done - 1) // BLOCK] * 2
        # the prefix has the position at which the block before it ends
        begins = len(prompt) - 1 + (done - 1) // BLOCK * BLOCK
        assert lower.layers[0].positions()[0, 0].sort().values.tolist() == list(
            range(begins, len(prompt) + done - 1)
        )
        assert lower.layers[0].capacity == 16, "memory for one page, however long the text"
        most = max(most, lower.fullest_length)
    assert most == BLOCK


def test_a_trace_has_every_pass_and_the_bytes_that_were_held() -> None:
    session = toys.decode(METHOD, count=17)
    trace, prompt = session.sink, len(toys.PROMPT)
    assert check(trace).ok
    read = [(x.lane, x.phase, x.tokens) for x in trace.prefill.passes]
    assert read == [("block_transformer", "prefill", 3)], (
        "the prompt is read as blocks, and by no pass of the token decoder"
    )
    for i, step in enumerate(trace.steps):
        begins = i % BLOCK == 0
        due = [("block_transformer", "blocks", 1)] * begins + [("target", "verify", 1)]
        assert [(x.lane, x.phase, x.tokens) for x in step.passes] == due
        lower, upper = step.cache
        assert (lower.held, upper.held) == (1 + i % BLOCK, 4 + i // BLOCK)
        assert lower.full_bytes == session.target.decoder.spec.kv_bytes(prompt + i, 8)
        gone = [] if lower.evicted_all is None else lower.evicted_all.tolist()
        assert gone == (list(range(prompt + i - 5, prompt + i - 1)) if begins and i else [])
    assert lower.held_bytes < lower.full_bytes / 1.5


def test_passes_of_both_decoders_are_priced_as_torch_counts_them() -> None:
    session = Session(toys.block_target(), METHOD, toys.PROMPT, max_new_tokens=9)
    prices, weights = (
        PassPricer(session.header),
        ("proj", "head"),
    )  # attention runs fused, and torch does not count it

    def priced(passes: list[Pass]) -> int:
        assert {one.lane for one in passes} <= prices.specs.keys()
        ops = [op for one in passes for op in ops_of(prices.specs[one.lane], one, bits=64)]
        return sum(op.flops for op in ops if op.name.endswith(weights))

    with FlopCounterMode(display=False) as counted:
        session.start()
    assert priced(session.prefilled.passes) == counted.get_total_flops() > 0
    for i in range(9):
        with FlopCounterMode(display=False) as counted:
            passes = session.step().passes
        assert priced(passes) == counted.get_total_flops() and len(passes) == 1 + (i % BLOCK == 0)


def test_a_pass_of_the_block_decoder_costs_what_a_hand_counts() -> None:
    session = toys.decode(METHOD, count=5)
    upper = [one for step in session.sink.steps for one in step.passes if one.lane == "block_transformer"]
    d, f, width, seen = 32, 16, 4 * 8, 5  # its second pass: a row that sees itself and four blocks
    linear = 2 * (2 * (3 * d * width + width * d + 3 * d * f)) + 2 * d * d  # two layers, and the prefix
    attention, rest = 2 * (4 * 8 + 5) * 4 * seen, 2 * (2 * 7 * d + 2 * d + 5 * f)  # norms, sums and SwiGLU
    cost = PassPricer(session.header).cost(upper[1])
    assert cost.flops == linear + attention + rest
    assert cost.weight_bytes == 8 * (2 * (4 * d * width + 3 * d * f) + d * d)
    assert (cost.kv_read_bytes, cost.kv_write_bytes) == (2 * 2 * seen * width * 8, 2 * 2 * width * 8)


def test_a_run_is_priced_with_both_decoders_and_against_no_other_decoding() -> None:
    trace = toys.decode(METHOD, count=9).sink
    made = Pricer(
        PricedRun(trace.header, trace.prefill, trace.steps), HardwareProfile("some", 1e11, 1e10)
    ).record()
    lanes = {(row["lane"], row["phase"]): row["n"] for row in made["rows"]}
    assert lanes == {
        ("block_transformer", "prefill"): 1,
        ("block_transformer", "blocks"): 3,
        ("target", "verify"): 9,
    }
    written = sum(row["model"] for row in made["rows"] if row["phase"] != "prefill")
    assert made["token"] == pytest.approx(written / 9) and made["plain"] is made["speedup"] is None


def test_a_draw_repeats_itself_and_a_branch_goes_on_alike() -> None:
    drawn = toys.method(strategy="block_transformer", sampler=("temperature", {"temperature": 1.5}))
    one, two = (toys.decode(drawn, count=30, seed=5) for _ in range(2))
    assert one.end.tokens == two.end.tokens != toys.decode(drawn, count=30, seed=6).end.tokens
    session = Session(toys.block_target(), drawn, toys.PROMPT, max_new_tokens=30, seed=5)
    for _ in range(6):
        session.step()
    twin = session.branch()
    for one in (twin, session):
        for _ in one.stream():
            pass
    assert session.end.tokens == two.end.tokens and twin.tokens == session.tokens


def test_other_strategies_and_models_are_refused() -> None:
    with pytest.raises(
        MethodError, match=r"^draft_verify reads all of the text, and toy sees blocks of 4 tokens: choose"
    ):
        Session(toys.block_target(), None, toys.PROMPT)
    with pytest.raises(
        MethodError, match=r"^block_transformer writes with a Block Transformer, and toy is none: choose"
    ):
        Session(toys.pair()[0], METHOD, toys.PROMPT)
    with pytest.raises(MethodError, match=r"^toy sees blocks of 4 tokens, so it cannot be the draft model"):
        Session(
            toys.pair()[0],
            toys.method(drafter="draft_model"),
            toys.PROMPT,
            models={"draft": toys.block_target()},
        )
    other = Session(
        toys.model(toys.decoder(toys.toy_spec(block_length=5, heads=("block_transformer",)))),
        METHOD,
        toys.PROMPT,
    )
    with pytest.raises(
        EngineFault, match=r"^heads/block_transformer reads blocks of 4 tokens and toy writes blocks of 5"
    ):
        other.start()
    bare = replace(toys.block_target(), spec=toys.toy_spec(block_length=BLOCK, heads=()))
    with pytest.raises(MethodError, match=r"^toy has no heads/block_transformer: train them with"):
        Session(bare, METHOD, toys.PROMPT)
