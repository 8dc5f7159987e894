"""The requirements for every cache policy: exact while there is room, bounded, no return of entries, equal treatment."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
import toys
from entries import entry
from sizes import by_turns, first_settings, nightly
from toys import feed_tokens

from decodescope.engine import Session
from decodescope.engine.core.component import build, registry
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.policy import CachePolicy
from decodescope.engine.model.attention.per_head import HEAD_PAGE
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.column import expand_index
from decodescope.engine.model.stores.cache import PAGE
from decodescope.engine.trace.records.parts import zone_entries

SHARES = [
    (name, dict(settings, budget_share=0.6))
    for name, settings in toys.representatives("policy")
    if "budget_share" in {p.name for p in registry("policy")[name].params()}
]
assert len(SHARES) > 7, "without shares their tests would be skipped"
POLICIES = [*toys.variants("policy"), *SHARES]
# a commit takes one in seven of the shares
BOUNDED = [
    *toys.variants("policy"),
    *nightly(
        pytest.param(*case, marks=() if i % 7 == 1 else pytest.mark.nightly) for i, case in enumerate(SHARES)
    ),
]
# settings with room for 60 tokens
ROOMY: dict[str, dict[str, Any]] = {
    "adakv": dict(prompt_budget=50, window=16),
    "cam": dict(target_entries=100),
    "fastgen": dict(min_recovery=1.0),
    "d2o": dict(heavy=100, recent=100),
    "duo_attention": dict(sink_tokens=4, recent=100),
    "ems": dict(centres=100, recent=100),
    "expected_attention": dict(sink_tokens=4, prompt_budget=60),
    "h2o": dict(heavy=100, recent=100),
    "interval_eviction": dict(target_entries=100),
    "keep_all": {},
    "key_diff": dict(distinct_entries=100),
    "key_rerotation": dict(prompt_budget=60),
    "kvzip": dict(prompt_budget=50, window=16),
    "key_norm": dict(low_norm_entries=60, recent=40),
    "lag_kv": dict(lag=32),
    "lm_infinite": dict(sink_tokens=4, window=100),
    "quest": dict(token_budget=64, dense_layers=0),
    "scissorhands": dict(pivotal_entries=80, recent=20, window=16),
    "pyramidkv": dict(prompt_budget=50, window=16),
    "snapkv": dict(prompt_budget=50, window=16),
    "speckv": dict(prompt_budget=50, window=16),
    "streaming_llm": dict(sink_tokens=4, recent=100),
    "tidal_decode": dict(top_k=60, selection_layer=0),
    "tova": dict(cache_size=100),
    "window": dict(window=100),
}
# The knobs whose sum no layer and head ever exceeds; for a policy that cuts once, their mean after the prompt stays below it.
# None: everything is kept. (): layers or heads have bounds of their own, below the number of tokens read.
BOUND: dict[str, tuple[str, ...] | None] = {
    "cam": ("target_entries", "interval"),
    "d2o": (),
    "duo_attention": None,  # some heads keep everything
    "fastgen": (),
    "adakv": ("prompt_budget", "window"),
    "ems": ("centres", "recent"),
    "expected_attention": ("sink_tokens", "prompt_budget"),
    "h2o": ("heavy", "recent"),
    "interval_eviction": ("target_entries", "interval"),
    "keep_all": None,
    "key_diff": ("distinct_entries", "recent"),
    "key_rerotation": ("sink_tokens", "prompt_budget"),
    "kvzip": ("sink_tokens", "prompt_budget", "window"),
    "key_norm": ("low_norm_entries", "recent"),
    "lag_kv": (),
    "lm_infinite": ("sink_tokens", "window"),
    "quest": None,
    "scissorhands": ("pivotal_entries", "recent"),
    "pyramidkv": ("prompt_budget", "window"),
    "snapkv": ("prompt_budget", "window"),
    "speckv": ("prompt_budget", "window"),
    "streaming_llm": ("sink_tokens", "recent"),
    "tidal_decode": None,
    "tova": ("cache_size",),
    "window": ("window",),
}
READ = toys.PROMPT * 3


def lane(name: str, settings: dict, decoder: Decoder | None = None, read: int = len(READ), **more) -> Lane:
    made = Lane("target", decoder or toys.pair()[0].decoder, build("policy", name, settings), **more)
    made.policy.attach_heads(made.decoder.heads)
    # the lane's own decoder as its draft model
    made.open = lambda role, needs: Lane(role, made.decoder, build("policy", "keep_all"), needs=needs)
    made.policy.begin(made.decoder.spec, read)
    return made


def bound(policy: CachePolicy) -> int | None:
    """The most entries of a layer and head.

    If the policy cuts once, the mean without the written entries; None: all are kept.
    """
    knobs = entry(BOUND, policy.name, "BOUND of tests/contracts/test_policies.py")
    if knobs == ():
        assert policy.budget is None
        return len(READ) - 1
    if knobs is None or policy.does == {"select"}:  # a knob of the policy may decide this
        assert policy.budget is None and (knobs is None or not policy.zones)
        return None
    found = sum(getattr(policy, knob) for knob in knobs)
    said = sum(zone.entries for zone in policy.zones) if policy.zones else None
    assert said == found and policy.budget == (None if policy.once else found), (
        "what the policy says of itself"
    )
    return found


def positions(made: Lane, layer: int) -> list[list[list[int]]]:
    store = made.cache.layers[layer]
    rows = store.positions().expand(-1, made.decoder.spec.n_kv_heads, -1).tolist()
    # -1: another head holds more entries
    return [[sorted(p for p in row if p >= 0) for row in heads] for heads in rows]


@pytest.mark.parametrize("name", registry("policy"))
@torch.inference_mode()
def test_with_room_for_everything_logits_are_those_of_the_full_cache(name: str) -> None:
    """Bit for bit, compared with the full cache read by the same kind of pass."""
    made = lane(name, entry(ROOMY, name, "ROOMY of tests/contracts/test_policies.py"))
    plain = Lane("plain", made.decoder, build("policy", "keep_all"), needs=made.needs)
    text = toys.prompts(1, 60, seed=5)[0]
    pairs = [(made.read(text[:20]), plain.read(text[:20]))] + [
        (feed_tokens(made, t), feed_tokens(plain, t)) for t in text[20:]
    ]
    for a, b in pairs:
        assert torch.equal(a, b)
    assert made.cache.fullest_length == 60


@pytest.mark.parametrize(("name", "settings"), by_turns(3, BOUNDED))
def test_policy_keeps_its_bound_and_what_left_never_returns(name: str, settings: dict) -> None:
    made = lane(name, settings)
    most = bound(made.policy)
    made.read(READ)
    stays = not made.policy.does or zone_entries(made.policy.zones, "newest")
    gone: list[set[tuple[int, int]]] = [set() for _ in made.cache.layers]
    widest = 0
    for written, token in enumerate(toys.prompts(1, 100, seed=6)[0], 1):
        feed_tokens(made, token)
        rows = [len(row) for layer in range(3) for row in positions(made, layer)[0]]
        held = sum(rows) / len(rows) - written if made.policy.once else max(rows)
        assert held <= (len(made.tokens) if most is None else most)
        widest = max(widest, made.cache.nbytes)
        for layer, left in enumerate(gone):
            here = {(h, p) for h, row in enumerate(positions(made, layer)[0]) for p in row}
            assert not here & left
            left |= {(h, p) for h in range(2) for p in range(len(made.tokens))} - here
            assert not stays or all((h, len(made.tokens) - 1) in here for h in range(2)), (
                "the newest entry is there"
            )
    assert made.cache.length == len(READ) + 100
    if most is None:
        assert made.cache.fullest_length == made.cache.length and any(gone) is ("evict" in made.policy.does)
    else:
        assert most < len(READ) and any(gone), (
            f"the settings of {name} in tests/toys.py leave room for everything"
        )
        assert made.policy.budget is None or widest < 2 * made.cache.nbytes, (
            "that of the bound, and room that growth makes"
        )


@pytest.mark.parametrize(("name", "settings"), SHARES)
def test_a_share_of_the_prompt_is_what_its_end_leaves(name: str, settings: dict) -> None:
    """In the mean of all layers and KV heads; some policies give each of them its own part, rounded down."""
    one_by_one = {knob.name: 0.0 for knob in registry("policy")[name].params() if knob.name == "drop_share"}
    made = lane(name, settings | one_by_one)
    made.read(READ)
    rows = [len(row) for layer in range(3) for row in positions(made, layer)[0]]
    assert 26 < sum(rows) / len(rows) <= 27 == int(0.6 * len(READ))


@pytest.mark.parametrize(("name", "settings"), first_settings(POLICIES))
def test_a_policy_does_what_it_says_of_itself(name: str, settings: dict) -> None:
    """A policy matches its own description.

    Only one that evicts loses entries. The first and the newest entries that it names are held everywhere. The column that it
    shows is one of its own.
    """
    made = lane(name, settings)
    policy = made.policy
    first, newest = (zone_entries(policy.zones, place) or 0 for place in ("first", "newest"))
    assert policy.lossless is (not policy.does) and (policy.column in policy.columns) is bool(policy.column)
    assert bool(policy.weighs) is bool(policy.column)
    made.read(READ)
    for token in toys.prompts(1, 60, seed=8)[0]:
        feed_tokens(made, token)
        n = made.cache.length
        due = {*range(min(first, n)), *range(max(0, n - newest), n)}
        assert all(due <= set(row) for layer in range(3) for row in positions(made, layer)[0])
    assert any(n < made.cache.length for store in made.cache.layers for n in store.lengths) is (
        "evict" in policy.does
    )


@pytest.mark.parametrize(("name", "settings"), first_settings(POLICIES))
def test_prompt_read_in_chunks_leaves_the_same_entries(
    name: str, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    for chunk in (512, 7):
        monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", chunk)
        made = lane(name, settings)
        logits = made.read(READ)
        kept.append(([positions(made, layer) for layer in range(3)], logits))
    assert kept[0][0] == kept[1][0]
    assert torch.allclose(kept[0][1], kept[1][1], atol=1e-9)


SHARING = {"one head a group": dict(n_heads=2, n_kv_heads=2), "one KV head": dict(n_heads=4, n_kv_heads=1)}


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize(("name", "settings"), by_turns(2, toys.representatives("policy")))
def test_any_sharing_of_keys_among_heads_will_do(
    name: str, settings: dict, sharing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in chunks or at once, then token by token: the same entries, and the same logits."""
    decoder = toys.decoder(toys.toy_spec(**SHARING[sharing]), toys.LIVELY, torch.float64)
    lanes = []
    for chunk in (512, 7):
        monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", chunk)
        lanes.append(lane(name, settings, decoder))
        lanes[-1].read(READ)
    for token in toys.prompts(1, 12, seed=9)[0]:
        logits = [feed_tokens(one, token) for one in lanes]
        assert torch.allclose(*logits, atol=1e-9)
        assert all(positions(lanes[0], layer) == positions(lanes[1], layer) for layer in range(3))
    left = min(len(x) for layer in range(3) for x in positions(lanes[0], layer)[0]) < len(READ)
    assert left is ("evict" in lanes[0].policy.does)


@pytest.mark.parametrize(("name", "settings"), first_settings(POLICIES))
def test_bytes_follow_the_entries(name: str, settings: dict) -> None:
    """Memory follows the entries after a long prompt and after every token.

    The storages take what the entries need and some free pages, and evicted entries have released their memory.
    """
    made, prompt = lane(name, settings, read=300), toys.prompts(1, 300, seed=3)[0]
    made.read(prompt)
    spec, read = made.decoder.spec, made.cache.nbytes
    widest = max(x.n for x in made.cache.layers)
    for token in toys.prompts(1, 12, seed=4)[0]:
        feed_tokens(made, token)
        due = 0
        for layer, store in enumerate(made.cache.layers):
            rows = [len(row) for row in positions(made, layer)[0]]
            note = sum(x[0, 0, 0].nbytes for x in store.columns.values()) + (0 if store.in_order else 4)
            # a page, and room for growth or for a pass
            wide = max(3 * max(rows) // 2, max(rows) + PAGE) + PAGE
            own = rows if store.heads is None else [n + 2 * HEAD_PAGE for n in rows]
            slots = wide * len(rows) if store.heads is None else sum(own)
            bounds = 0 if store._bounds is None else slots // PAGE
            due += 2 * spec.head_dim * 8 * (slots + bounds) + note * wide * len(rows)
        held = [
            y for x in made.cache.layers for y in (x.kv, *x.columns.values(), x._pos, x.heads and x.heads.kv)
        ]
        held += [x._bounds and x._bounds.table for x in made.cache.layers]
        assert made.cache.nbytes == sum(x.untyped_storage().nbytes() for x in held if x is not None) <= due
    assert made.cache.memory.peak >= read
    assert made.cache.fullest_length > widest / 2 or made.cache.nbytes < made.cache.memory.peak / 2, (
        "memory was given back"
    )


@cache
def half_and_single() -> tuple[Decoder, Decoder]:
    """One toy in bfloat16, and in float32 with the same weights."""
    half = toys.decoder(toys.toy_spec(vocab=997), toys.LIVELY, torch.bfloat16)
    return half, half.to(torch.float32)


HALF = 0.95  # share of the entries that the first cut keeps


@pytest.mark.parametrize(("name", "settings"), toys.representatives("policy"))
def test_half_types_decide_alike(name: str, settings: dict) -> None:
    """In bfloat16 the first cut keeps nearly the entries that it keeps with the same weights in float32.

    A policy's counts are in no half type. No token occurs twice: otherwise rounding alone would separate entries of equal
    worth.
    """
    same = of = 0
    for seed in range(4):
        lanes = [lane(name, settings, x) for x in half_and_single()]
        for one in lanes:
            one.read(list(dict.fromkeys(toys.prompts(1, 60, seed=seed, vocab=997)[0]))[:45])
            columns = [x for store in one.cache.layers for x in store.columns.values()]
            assert not any(x.dtype in (torch.bfloat16, torch.float16) for x in columns)
        for layer in range(3):
            for mine, theirs in zip(*(positions(one, layer)[0] for one in lanes), strict=True):
                same, of = same + len({*mine} & {*theirs}), of + len(theirs)
    assert same / of >= HALF


@pytest.mark.parametrize(("name", "settings"), by_turns(2, first_settings(POLICIES)))
@torch.inference_mode()
def test_two_sequences_in_one_lane_are_two_single_ones(name: str, settings: dict) -> None:
    texts = toys.prompts(2, 30, seed=7)
    both = lane(name, settings, batch=2)
    single = [lane(name, settings) for _ in texts]
    for i, column in enumerate(zip(*texts, strict=True)):
        logits = both.forward(Feed(torch.tensor(column)[:, None], torch.full((2, 1), i)))
        both.commit([0])
        for b, token in enumerate(column):
            assert torch.allclose(logits[b], feed_tokens(single[b], token), atol=1e-9)
            for layer in range(3):
                assert positions(both, layer)[b] == positions(single[b], layer)[0]


@pytest.mark.parametrize(("name", "settings"), by_turns(2, toys.representatives("policy")))
def test_two_texts_of_different_lengths_that_are_written_in_turns_are_two_single_ones(
    name: str, settings: dict
) -> None:
    """A lane reads one text, or several of one length. Two texts have two lanes, which share a decoder and nothing else."""
    method, prompts = toys.method(policy=(name, settings)), (READ, toys.prompts(1, 17, seed=12)[0])
    both = [
        Session(toys.pair()[0], method, prompt, models=toys.helper_models(), max_new_tokens=8)
        for prompt in prompts
    ]
    for session in both:
        session.start()
    for _ in range(8):
        for session in both:
            session.step()
    for session, prompt in zip(both, prompts, strict=True):
        alone = toys.decode(method, prompt, count=8)
        assert session.tokens == alone.tokens and len(session.tokens) == len(prompt) + 8
        assert all(positions(session.target, i) == positions(alone.target, i) for i in range(3))


LEVEL = {
    "pool_radius": 0,
    "chunk": 64,
}  # no entry has fewer neighbours than others, and the same rows score all of them


@pytest.mark.parametrize(("name", "settings"), first_settings(POLICIES))
def test_of_what_is_worth_as_much_the_lower_position_stays(name: str, settings: dict) -> None:
    """With all keys and values zero, each row gives equal attention to everything that it sees.

    Then evicted entries have higher positions than all entries that stay, except for those kept for their place. This holds in
    every layer and head, for any order of slots.
    """
    decoder = toys.decoder(toys.SPEC, toys.LIVELY, torch.float64)
    for weights in decoder.layers:
        weights.qkv = torch.zeros_like(weights.qkv)
    even = {knob.name: LEVEL[knob.name] for knob in registry("policy")[name].params() if knob.name in LEVEL}
    made, text = lane(name, settings | even, decoder, read=24), toys.prompts(1, 34, seed=3)[0]
    newest, compared = zone_entries(made.policy.zones, "newest"), 0
    before = [[list(range(24))] * 2] * 3
    made.read(text[:24])
    for token in text[24:]:
        for old, now in (
            (x, y) for i in range(3) for x, y in zip(before[i], positions(made, i)[0], strict=True)
        ):
            end = len(made.tokens) - (newest or 0)
            while newest is None and end - 1 in now:
                end -= 1
            left, chosen = set(old) - set(now), [p for p in now if p < end]
            assert not left or not chosen or min(left) > max(chosen)
            compared += bool(left and chosen)
        if newest is None:
            break
        before = [[[*row, len(made.tokens)] for row in positions(made, i)[0]] for i in range(3)]
        feed_tokens(made, token)
    assert compared or not any(zone.place == "chosen" and zone.entries for zone in made.policy.zones), (
        "the test needs choices"
    )


@pytest.mark.parametrize(("name", "settings"), by_turns(2, first_settings(POLICIES)))
def test_policy_is_deterministic_and_told_in_the_trace(name: str, settings: dict) -> None:
    """The cache no longer holds the entries that the trace records as evicted."""
    parts = dict(policy=(name, settings), drafter=("prompt_lookup", {"max_draft_tokens": 4, "ngram": 1}))
    runs = [toys.decode(toys.method(**parts), READ, count=40) for _ in range(2)]
    assert runs[0].end.content_hash == runs[1].end.content_hash
    trace, read = runs[0].sink, len(runs[0].tokens) - 1
    for layer in range(3):
        for head in range(2):
            left = set()
            for change in [trace.prefill.cache[0], *(step.cache[0] for step in trace.steps)]:
                left |= set([] if change.evicted_all is None else change.evicted_all.tolist())
                rows = [] if change.evicted is None else change.evicted.tolist()
                left |= {p for i, h, p in rows if (i, h) == (layer, head)}
            assert positions(runs[0].target, layer)[0][head] == sorted(set(range(read)) - left)
    assert trace.steps[-1].cache[0].held == runs[0].target.cache.fullest_length


@pytest.mark.parametrize(("name", "settings"), by_turns(2, first_settings(POLICIES)))
def test_refused_nodes_leave_no_trace(name: str, settings: dict) -> None:
    """Block semantics: equal to reading the same rows without the refused ones, evicting at the same commits."""
    target, _ = toys.pair()
    method = toys.method(policy=(name, settings), drafter=("token_recycling", {"nodes": "16"}))
    session = Session(target, method, READ, models={"draft": target}, max_new_tokens=40)
    session.start()
    alone = lane(name, settings)
    alone.read(READ[:-1], compress=False)
    refused = 0
    while not session.is_done:
        before = len(session.target.tokens)
        step = session.step()
        refused += step.drafted - step.accepted
        with torch.inference_mode():
            new = session.target.tokens[before:]
            alone.forward(Feed.causal_chain(new, before))
            alone.commit(list(range(len(new))))
        for a, b in zip(session.target.cache.layers, alone.cache.layers, strict=True):
            order, other = (x.positions().expand(1, 2, -1).argsort(2) for x in (a, b))
            assert torch.equal(
                a.positions().expand(1, 2, -1).gather(2, order),
                b.positions().expand(1, 2, -1).gather(2, other),
            )
            for column in a.columns:
                mine, theirs = (
                    y.gather(2, expand_index(x, y, 2))
                    for x, y in ((order, a.column(column)), (other, b.column(column)))
                )
                assert torch.allclose(mine, theirs, atol=1e-5)
            wide = [x[..., None].expand(-1, -1, -1, 8) for x in (order, other)]
            assert torch.allclose(a.k.gather(2, wide[0]), b.k.gather(2, wide[1]), atol=1e-9)
    assert refused > 30


PARTS = registry("policy")
ALIKE = [
    (name, settings)
    for name, settings in toys.representatives("policy")
    if PARTS[name].once or PARTS[name].strict
]
AHEAD = {
    "chain": dict(drafter=("prompt_lookup", {"max_draft_tokens": 4, "ngram": 1})),
    "tree": dict(drafter=("token_recycling", {"nodes": "16"})),
    "own layers": dict(drafter=("early_exit", {"max_draft_tokens": 4, "layers": 2})),
    "jacobi": dict(strategy=("jacobi", {"block": 4})),
    "pearl": dict(strategy="pearl", drafter=("draft_model", {"max_draft_tokens": 3})),
}


@cache
def without_drafts(policy: str) -> Session:
    """The run of a policy of ALIKE, one token per step."""
    return toys.decode(toys.method(policy=(policy, dict(ALIKE)[policy])), READ, count=40)


@pytest.mark.parametrize(
    ("ahead", "name", "settings"), by_turns(3, [(ahead, *case) for case in ALIKE for ahead in AHEAD])
)
def test_a_policy_that_says_so_writes_alike_with_and_without_drafts(
    ahead: str, name: str, settings: dict
) -> None:
    """The texts with and without drafts are equal.

    A policy that cuts once evicts nothing while text is written, and the prompt's last token is read alone. With a strict
    policy each row of a draft sees what it would see in single-token decoding.
    """
    fast = toys.decode(toys.method(policy=(name, settings), **AHEAD[ahead]), READ, count=40)
    plain = without_drafts(name)
    assert fast.tokens == plain.tokens
    assert len(fast.sink.steps[0].emitted) == 1 or not plain.method.policy.once
    right = sum(step.accepted for step in fast.sink.steps) + 40 - len(fast.sink.steps)
    assert right > 0, "the test needs guesses that are right"
    for layer in range(3):
        assert positions(fast.target, layer) == positions(plain.target, layer)
    assert plain.tokens != [*READ, *toys.cached_greedy_text(toys.pair()[0], READ)], (
        "the test needs a cut that shows"
    )
