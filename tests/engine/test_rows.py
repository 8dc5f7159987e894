"""Rows that each decide which sub-layers they run: gathered, they compute what a mask would leave of the whole."""

from __future__ import annotations

import pytest
import torch
import toys
from choosing import Choosing, masked
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from decodescope.engine import Method
from decodescope.engine.core.component import build, registry
from decodescope.engine.core.probe import Needs, Probe
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.model.forward.attention_block import AttentionBlock
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.column import COMPUTED, ORIGIN, PROPAGATED
from decodescope.engine.model.layers.partial_pass import Block, ExecutedLayers
from decodescope.engine.session.session import Session
from decodescope.engine.trace import check

LAYERS = 5
DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=LAYERS), 3, torch.float64))
GAPS = ("propagate", "absent")
TEXT = [*toys.PROMPT, 3, 9, 1, 12, 6, 2, 11, 5, 8, 10]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry("adaptive_depth"), "choosing", Choosing)
    monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", 4)


def under(decoder: Decoder, gap: str, **knobs) -> tuple[Lane, Choosing]:
    lane, rule = Lane("target", decoder, build("policy", "keep_all")), Choosing(skipped_kv=gap, **knobs)
    lane.set_depth_rule(rule)
    return lane, rule


def forward(lane: Lane, feed: Feed) -> Tensor:
    assert lane.rule is not None
    return lane.forward(feed, skip=lane.rule.plan(0, feed), depth=lane.rule)


def holds(lane: Lane, pairs: list[Tensor], left: list[Tensor], rows: list[int] | None = None) -> None:
    """Check that the lane holds what the masked model left of `rows` (None: all), by layer, in text order."""
    for store, kv, entry in zip(lane.cache.layers, pairs, left, strict=True):
        due = [row for row in (range(len(entry)) if rows is None else rows) if entry[row]]
        order = store.positions()[0, 0].argsort()
        assert store.m == 0 and store.n == len(due)
        for mine, its in ((store.k, kv[0]), (store.v, kv[1])):
            assert torch.allclose(mine[0][:, order], its[:, due], atol=1e-9, rtol=0)


@pytest.mark.parametrize("spec", [dict(), dict(windows=(None, 4, None, 4, 6))], ids=["plain", "windows"])
@pytest.mark.parametrize("gap", GAPS)
@torch.inference_mode()
def test_a_text_read_in_chunks_and_written_on_is_what_a_mask_leaves_of_the_model(
    gap: str, spec: dict
) -> None:
    decoder = toys.decoder(toys.toy_spec(n_layers=LAYERS, **spec), 3, torch.float64)
    (lane, rule), n = under(decoder, gap), len(toys.PROMPT)
    logits, pairs, left = masked(decoder, Feed.causal_chain(TEXT, 0), rule.share, gap)
    assert torch.allclose(lane.read(TEXT[:n]), logits[n - 1], atol=1e-9, rtol=0)
    for at in range(n, len(TEXT)):
        assert torch.allclose(
            forward(lane, Feed.causal_chain([TEXT[at]], at))[0, 0], logits[at], atol=1e-9, rtol=0
        )
        lane.commit([0])
    holds(lane, pairs, left)
    lane.read([*TEXT[: n + 3], 7, 7])  # another continuation: what followed the common beginning is forgotten
    holds(lane, *masked(decoder, Feed.causal_chain([*TEXT[: n + 3], 7, 7], 0), rule.share, gap)[1:])
    fresh, _ = under(decoder, gap, numbers=True)
    fresh.repeat(TEXT, [1, 3, 2])
    holds(fresh, pairs, left)
    plain = masked(decoder, Feed.causal_chain(TEXT, 0), 7, gap)[0]
    assert not torch.allclose(plain, logits, atol=1e-3), "the rule has to do something"


@pytest.mark.parametrize("gap", GAPS)
@torch.inference_mode()
def test_of_a_tree_each_row_goes_its_own_way_and_the_accepted_ones_stay(gap: str) -> None:
    """Root 7 with the children 3 and 5, and 9 below 5: the path 7, 5, 9 is kept."""
    (lane, rule), n = under(DEEP.decoder, gap), len(toys.PROMPT)
    lane.read(toys.PROMPT)
    tokens, positions = torch.tensor([[7, 3, 5, 9]]), torch.tensor([[n, n + 1, n + 1, n + 2]])
    visible = torch.tensor([[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]], dtype=torch.bool)
    whole = torch.ones(1, n + 4, n + 4, dtype=torch.bool).tril()
    whole[:, n:, n:] = visible
    text = Feed(
        torch.cat([torch.tensor([toys.PROMPT]), tokens], 1),
        torch.cat([torch.arange(n)[None], positions], 1),
        whole,
    )
    logits, pairs, left = masked(DEEP.decoder, text, rule.share, gap)
    assert torch.allclose(forward(lane, Feed(tokens, positions, visible))[0], logits[n:], atol=1e-9, rtol=0)
    lane.commit([0, 2, 3])
    holds(lane, pairs, left, [*range(n), n, n + 2, n + 3])


@torch.inference_mode()
def test_a_rule_that_keeps_all_rows_changes_no_bit() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        decoder = toys.decoder(toys.toy_spec(n_layers=LAYERS), 3, dtype).pack_weights()
        plain = Lane("target", decoder, build("policy", "keep_all"))
        read = plain.read(TEXT[:9])
        for gap in GAPS:
            lane, _ = under(decoder, gap, share=7)
            assert torch.equal(lane.read(TEXT[:9]), read)
            for feed in (Feed.causal_chain([4], 9), Feed.causal_chain([4, 5, 6], 9)):
                assert torch.equal(forward(lane, feed), plain.forward(feed))
                assert lane.passes[-1].routed is None and lane.passes[-1].gap == ""
                lane.rollback(), plain.rollback()


@pytest.mark.parametrize("gap", GAPS)
@torch.inference_mode()
def test_products_are_made_of_the_rows_that_run_alone_and_priced_so(gap: str) -> None:
    """The products that the library counted are those that the record is charged with."""
    lane, _ = under(DEEP.decoder, gap, share=3)
    lane.read(toys.PROMPT)
    for tokens in ([4], [9], [4, 7, 3, 1, 2, 6]):
        with FlopCounterMode(display=False) as counted:
            forward(lane, Feed.causal_chain(tokens, len(lane.tokens)))
        products = sum(
            n
            for op, n in counted.get_flop_counts()["Global"].items()
            if "mm" in str(op) and "bmm" not in str(op)
        )
        ops = ops_of(DEEP.spec, lane.passes[-1], bits=64)
        assert products == sum(x.flops for x in ops if x.name.endswith(("_proj", "_head")))
        scored = sum(x.flops for x in ops if x.name == "attention") / (
            (4 * DEEP.spec.head_dim + 5) * DEEP.spec.n_heads
        )
        seen = 0
        for i, store in enumerate(lane.cache.layers):
            running, before = lane.passes[-1].running_rows(i, "attn"), store.n
            entries = range(len(tokens)) if gap == "propagate" else running
            seen += sum(before + sum(x <= row for x in entries) for row in running)
        assert scored == seen
        lane.commit(list(range(len(tokens))))
    assert any("-" in signs for one in lane.passes for signs in one.routed)


@torch.inference_mode()
def test_entries_of_rows_that_passed_by_say_so() -> None:
    class Tagged(KeepAll):
        @property
        def columns(self):
            return {"origin": ORIGIN}

    lane, rule = Lane("target", DEEP.decoder, Tagged()), Choosing()
    lane.set_depth_rule(rule)
    lane.read(TEXT)
    for i, store in enumerate(lane.cache.layers):
        ran = [row for one in lane.passes for row in (x + one.held for x in one.running_rows(i, "attn"))]
        due = [COMPUTED if at in ran else PROPAGATED for at in range(len(TEXT))]
        assert store.column("origin")[0, 0].tolist() == due and {*due} == {COMPUTED, PROPAGATED}


def decoded(gap: str, share: int = 5, **parts):
    return toys.decode(
        toys.method(adaptive_depth=("choosing", dict(skipped_kv=gap, share=share)), **parts),
        count=30,
        pair=(DEEP, DEEP),
    )


@pytest.mark.parametrize("drafter", ["prompt_lookup", "token_recycling", "draft_model"])
@pytest.mark.parametrize("gap", GAPS)
def test_drafts_change_nothing_since_each_row_decides_alone(gap: str, drafter: str) -> None:
    alone, drafted = decoded(gap), decoded(gap, drafter=drafter)
    assert alone.end.tokens == drafted.end.tokens != toys.greedy_text(DEEP.decoder, toys.PROMPT, 30)
    holds(drafted.target, *masked(DEEP.decoder, Feed.causal_chain(drafted.target.tokens, 0), 5, gap)[1:])
    for session in (alone, drafted):
        report = check(session.sink)
        assert report.ok, report.problems
        assert not session.header.lossless and session.sink.prefill.passes[0].routed


@pytest.mark.parametrize("policy", ["h2o", "streaming_llm", "tova", "key_norm"])
@pytest.mark.parametrize("gap", GAPS)
def test_policies_evict_what_is_there(gap: str, policy: str) -> None:
    session = decoded(gap, policy=(policy, toys.SETTINGS[policy][0]))
    report = check(session.sink)
    assert report.ok and report.counts["cache changes"] > 20, report.problems
    assert any(x.evicted_count for step in session.sink.steps for x in step.cache)


@pytest.mark.parametrize("gap", GAPS)
def test_as_a_criterion_it_drafts_what_it_writes_and_the_text_stays(gap: str) -> None:
    drafter = "early_exit", dict(criterion=f"choosing skipped_kv={gap} share=6", max_draft_tokens=2)
    session = toys.decode(toys.method(drafter=drafter), count=30, pair=(DEEP, DEEP))
    assert session.header.lossless and check(session.sink).ok and toys.matches_fresh_reading(session.target)
    assert session.end.tokens == toys.greedy_text(DEEP.decoder, toys.PROMPT, 30)
    drafts = [step.draft for step in session.sink.steps if step.draft]
    assert any(step.accepted for step in session.sink.steps) and any(
        max(x.notes["kept"]) > 0 for x in drafts if x.notes
    )


@pytest.mark.parametrize("gap", GAPS)
def test_a_branch_goes_on_by_itself(gap: str) -> None:
    run = Session(DEEP, Method(adaptive_depth=Choosing(skipped_kv=gap)), toys.PROMPT, max_new_tokens=30)
    for _ in range(4):
        run.step()
    branch = run.branch()
    ends = [toys.finish_session(x).end.tokens for x in (branch, run)]
    assert ends[1] == decoded(gap).end.tokens and ends[0] == ends[1][4:]


def test_check_finds_what_rows_did_not_run() -> None:
    trace = decoded("absent").sink
    one = trace.steps[3].passes[-1]
    layer = next(i for i, signs in enumerate(one.routed) if signs == "f")
    for what, sign in ((layer, "r"), (0, "-")):
        before, one.routed = one.routed, [sign if i == what else signs for i, signs in enumerate(one.routed)]
        assert any("rows of a pass ran the attn of the layers" in x for x in check(trace).problems)
        one.routed = before
    one.gap = "copy"
    assert any("left rows out of attention, and its gap is copy" in x for x in check(trace).problems)
    one.gap, trace.prefill.cache[0].lacks = "absent", None
    assert any("rows did not run their attention" in x for x in check(trace).problems)


class Leaving(AdaptiveDepth):
    """Between layers, the `many` rows that received the least attention leave for good; the model reads both sides."""

    routes = True
    skipped_kv = "absent"
    needs = Needs("columns")

    def __init__(self, many: int):
        self.many, self.here = many, list[int]()

    def rows(self, layer: int, block: Block, x: Tensor, probe: Probe | None) -> Tensor | None:
        if block == "attn":
            self.here = [*range(x.shape[1])] if layer == 0 else self.here
            if layer and probe is not None and (got := probe.attention_by_entry(layer - 1)) is not None:
                least = got.sum(1)[0].argsort()[: self.many].tolist()
                self.here = [row for k, row in enumerate(self.here) if k not in least]
        return torch.tensor(self.here)


@torch.inference_mode()
def test_rows_leave_by_the_attention_that_they_got_and_nobody_sees_them_above() -> None:
    decoder, rule, ran = (
        toys.decoder(toys.toy_spec(n_layers=4, causal=False), 5, torch.float64),
        Leaving(2),
        ExecutedLayers(),
    )
    feed, probe = Feed.causal_chain(TEXT[:11], 0), Probe(rule.needs)
    logits = decoder.forward(feed, None, probe, depth=rule, ran=ran)[0]
    here, x, job = torch.arange(11), decoder.embed_rows(feed), decoder
    for layer in range(4):
        some = Feed(feed.tokens[:, here], feed.positions[:, here])
        seen = Probe(Needs("rows"))
        y = job.stack.ffn(layer, AttentionBlock(job.stack, some, None, seen).attend(layer, x[:, here]))
        x = x.index_copy(1, here, y)
        stays = seen.rows[layer].sum((0, 1, 2, 3)).argsort()[2:].sort().values
        assert ran.row_routes(4)[layer] == "".join("r" if k in here else "-" for k in range(11)) or layer == 0
        here = here[stays]
    assert (
        torch.allclose(logits, decoder.unembed(decoder.apply_norm(x))[0], atol=1e-9, rtol=0)
        and len(rule.here) == 5
    )
    assert ran.pending[3] == rule.here
