"""Exit rules: each tests what its paper tests, and a laxer bound never leaves later."""

from __future__ import annotations

import math

import pytest
import torch
import toys
from leaving import DEEP, asked, reader

from decodescope.engine.core.component import build, registry
from decodescope.engine.decoding.bases.exit_rule import ExitRule
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check

RULES = [name for name, part in registry("adaptive_depth").items() if not part.exact]
# for each rule the knob that controls when it leaves, from never to at once
LAXER = {
    "confidence_exit": [dict(threshold=x / 20) for x in range(20, -1, -1)],
    "entropy_exit": [dict(threshold=x / 10) for x in range(30)],
    "free": [dict(threshold=x / 20) for x in range(20, -1, -1)],
    "magic_pyramid": [dict(threshold=x / 20) for x in range(21)],
    "normalized_entropy_exit": [dict(threshold=x / 20) for x in range(21)],
    "past_future": [dict(threshold=x / 50) for x in range(50, -1, -1)],
    "patience": [dict(patience=x) for x in (0, 4, 3, 2, 1)],
    "saturation": [dict(threshold=x / 10) for x in range(20)],
    "vote": [dict(min_votes=x / 4, power=0.5) for x in range(12, -1, -1)],
}


@pytest.fixture(scope="module")
def lane() -> Lane:
    return reader()


def answers(lane: Lane, token: int) -> list[torch.Tensor]:
    """The distributions [V] at which layers 0 to 5 would answer, and that of the whole model, read without any rule."""
    feed, states = Feed.causal_chain([token], len(lane.tokens)), []
    with torch.inference_mode():
        for layer in range(7):
            x = lane.decoder.states_before(feed, lane.cache, layer)
            states.append(lane.decoder.unembed(lane.decoder.apply_norm(x))[0, 0].softmax(-1))
            lane.cache.rollback()
    return states


def test_every_exit_rule_stands_in_the_tables_of_this_file() -> None:
    assert {name for name in RULES if issubclass(registry("adaptive_depth")[name], ExitRule)} == set(LAXER)


@pytest.mark.parametrize("name", LAXER)
def test_a_laxer_bound_never_leaves_later(lane: Lane, name: str) -> None:
    """On a fixed text, with keys and values of all layers."""
    seen = set()
    for token in range(13):
        depths = [asked(lane, name, {"min_layers": 1, **settings}, [token]).depth for settings in LAXER[name]]
        assert depths[0] == 6 and depths == sorted(depths, reverse=True), (token, depths)
        seen |= set(depths)
    assert len(seen) > (1 if name == "free" else 2), (
        "the test needs exits at several depths, of free at its one"
    )


@pytest.mark.parametrize("over", ["vocabulary", "top"])
def test_entropies_are_those_of_what_each_layer_would_answer(lane: Lane, over: str) -> None:
    for name, of in (("entropy_exit", 1.0), ("normalized_entropy_exit", math.log(13))):
        laws = answers(lane, 7)
        tests = asked(lane, name, dict(min_layers=1, threshold=0.0, entropy_over=over), [7]).tests
        due = [float(-(p * p.log()).sum()) / of for p in laws[1:6]]
        assert [round(score, 9) for _, score, _ in tests] == [round(x, 9) for x in due], (
            "all 13 tokens are among the 16 best"
        )
    bounds = asked(lane, "entropy_exit", dict(min_layers=1, thresholds="0.01,0.02"), [7]).tests
    assert [bound for *_, bound in bounds][:3] == [0.01, 0.02, 0.02], "the last stands for all further exits"


def test_patience_counts_agreements_from_the_second_exit_on(lane: Lane) -> None:
    for token in range(13):
        best = [int(law.argmax()) for law in answers(lane, token)]
        left = asked(lane, "patience", dict(min_layers=1, patience=60), [token])
        count, due = 0, []
        for layer in range(2, 6):
            count = count + 1 if best[layer] == best[layer - 1] else 0
            due.append([layer, count, 60])
        assert left.tests == due


def test_votes_of_the_leading_token_are_divided_by_a_power_of_their_number(lane: Lane) -> None:
    for token in range(6):
        best = [int(law.argmax()) for law in answers(lane, token)][1:6]
        tests = asked(lane, "vote", dict(min_layers=1, min_votes=64.0, power=0.5), [token]).tests
        due = [max(map(best[: n + 1].count, best[: n + 1])) / math.sqrt(n + 1) for n in range(5)]
        assert [score for _, score, _ in tests] == pytest.approx(due)


def test_the_least_sure_row_decides_for_all(lane: Lane) -> None:
    alone = [asked(lane, "entropy_exit", dict(min_layers=1, threshold=1.0), [token]).depth for token in (3,)]
    both = asked(lane, "entropy_exit", dict(min_layers=1, threshold=1.0), [3, 9])
    assert both.depth >= alone[0]


def test_a_hash_exit_is_a_function_of_the_token_alone(lane: Lane) -> None:
    for settings in (
        dict(min_layers=1, buckets=3),
        dict(min_layers=2, buckets=4, bucket_assignment="random", seed=3),
    ):
        depths = [asked(lane, "hash_exit", settings, [token]).depth for token in range(13)]
        with torch.inference_mode():
            longer = Lane("target", DEEP.decoder, build("policy", "keep_all"))
            longer.read([*toys.PROMPT, 4, 4, 1])
        assert depths == [asked(longer, "hash_exit", settings, [token]).depth for token in range(13)]
        assert asked(lane, "hash_exit", settings, [2, 5, 11]).depth == max(depths[2], depths[5], depths[11])
        assert (
            len(set(depths)) == settings["buckets"]
            and min(depths) == settings["min_layers"]
            and max(depths) == 6
        )
        if settings.get("bucket_assignment") is None:
            assert depths == sorted(depths)


def test_ffn_skip_leaves_out_as_many_blocks_as_it_says_and_attention_runs_everywhere(lane: Lane) -> None:
    spec = DEEP.spec
    for settings in (
        dict(max_skipped_blocks=2),
        dict(max_skipped_blocks=5),
        dict(max_skipped_blocks=3, retest_interval=1),
        dict(max_skipped_blocks=4, cold_end=2),
    ):
        full = {"threshold": -1.0, "warmup_tokens": 0, "cold_start": 1, "cold_end": 1, **settings}
        lane.take_passes()
        left = asked(lane, "ffn_skip", full, [7])
        (one,) = lane.take_passes()
        room = list(range(full["cold_start"], spec.n_layers - full["cold_end"]))
        due = (
            room[: full["max_skipped_blocks"]]
            if not full.get("retest_interval")
            else room[::2][: full["max_skipped_blocks"]]
        )
        assert left.closed == due and one.attn is None and one.ffn == [i for i in range(6) if i not in due]
        assert one.propagated is None and left.depth == 6
    shares = []
    for threshold in [x / 20 for x in range(-20, 21)] + [1.01]:
        settings = dict(threshold=threshold, warmup_tokens=0, cold_start=0, cold_end=0, max_skipped_blocks=5)
        shares.append(sum(len(asked(lane, "ffn_skip", settings, [token]).closed) for token in range(13)))
    assert shares == sorted(shares, reverse=True) and shares[0] == 13 * 5 and shares[-1] == 0


def test_ffn_skip_runs_its_first_tokens_whole_and_its_trace_agrees_with_itself() -> None:
    settings = dict(threshold=-1.0, warmup_tokens=4, cold_start=0, cold_end=1, max_skipped_blocks=2)
    trace = toys.decode(toys.method(adaptive_depth=("ffn_skip", settings)), count=12, pair=(DEEP, DEEP)).sink
    assert [step.exits[0].closed for step in trace.steps] == [[]] * 4 + [[1, 2]] * 8
    assert check(trace).ok and check(trace).counts["exits"] == 12
    trace.steps[6].exits[0].closed = [1, 3]
    assert any("no test says so" in problem for problem in check(trace).problems)
