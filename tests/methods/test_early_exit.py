"""Early exit: the draft is what the exits would have written, first layers run once, one word makes a criterion lossless."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
import torch
import toys
from sizes import by_turns

from decodescope.engine import MethodError, ParamError
from decodescope.engine.core.component import build, registry
from decodescope.engine.cost.cost import ops_of
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.drafters.own_layers.early_exit import EarlyExit
from decodescope.engine.methods.drafters.shared.watched_depth import WatchedDepth
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import check
from decodescope.engine.trace.records.passes import Pass

DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=6), 3, torch.float64))
CRITERIA = {
    "sure": {"threshold": 0.3, "min_layers": 1},
    "difference": {"criterion": "softmax_diff", "threshold": 0.2, "min_layers": 2},
    "state": {"criterion": "state", "threshold": 0.6, "min_layers": 1, "interval": 2},
    "relaxing": {"threshold": 0.5, "min_layers": 1, "threshold_decay": 4.0, "decay_horizon": 8},
    "at once": {"threshold": 0.0, "min_layers": 3},
    "never": {"threshold": 1.01},
}


def words(knobs: dict) -> str:
    return " ".join(["confidence_exit", *(f"{name}={value}" for name, value in knobs.items())])


def exiting(count: int = 40, sampler: str = "greedy", model=DEEP, prompt=toys.PROMPT, **settings):
    method = toys.method(drafter=("early_exit", settings), sampler=sampler)
    return toys.decode(method, prompt, count, pair=(model, model))


@pytest.mark.parametrize("knobs", CRITERIA.values(), ids=CRITERIA)
def test_one_word_turns_a_lossy_exit_into_a_lossless_one(knobs: dict) -> None:
    """The same rule used as depth writes what it drafts as criterion, token by token, leaving at the same layers.

    As criterion, however, the text is the target's own.
    """
    differ = False
    for prompt in [toys.PROMPT, *toys.prompts(3)]:
        lossy = toys.decode(
            toys.method(adaptive_depth=("confidence_exit", knobs)), prompt, 7, pair=(DEEP, DEEP)
        )
        lossless = exiting(7, prompt=prompt, criterion=words(knobs), max_draft_tokens=6)
        first = lossless.sink.steps[0].draft
        assert first.tokens == lossy.end.tokens[:6]
        assert first.notes["exits"] == [step.exits[0].depth for step in lossy.sink.steps[:6]]
        assert lossless.end.tokens == toys.greedy_text(DEEP.decoder, prompt, 7)
        assert lossless.header.lossless and not lossy.header.lossless
        differ |= lossless.end.tokens != lossy.end.tokens
    assert differ == (knobs != CRITERIA["never"]), "the test needs exits that were wrong"


@pytest.mark.parametrize(("rule", "settings"), by_turns(2, toys.representatives("adaptive_depth")))
def test_every_depth_rule_drafts_losslessly(rule: str, settings: dict) -> None:
    knobs = {knob.name: knob for knob in registry("adaptive_depth")[rule].params()}
    session = exiting(
        criterion=" ".join([rule, *(f"{name}={knobs[name].spell(x)}" for name, x in settings.items())])
    )
    assert session.end.tokens == toys.greedy_text(
        DEEP.decoder, toys.PROMPT, 40
    ) and toys.matches_fresh_reading(session.target)
    assert check(session.sink).ok


@pytest.mark.parametrize("layers", [1, 3, 5])
def test_draft_is_the_text_of_the_first_layers_under_the_last_norm(layers: int) -> None:
    whole = DEEP.decoder
    short = Decoder(
        replace(whole.spec, n_layers=layers), whole.embed, whole.layers[:layers], whole.norm, whole.head
    )
    text = list(toys.PROMPT)
    for step in exiting(layers=layers, max_draft_tokens=5).sink.steps[:-3]:
        assert step.draft.tokens == toys.greedy_text(short, text, step.drafted)
        assert (
            step.draft.notes["layers"] == [layers, 6] and step.draft.notes["exits"] == [layers] * step.drafted
        )
        text += step.emitted
    fixed, asked = (
        exiting(layers=layers),
        exiting(criterion=f"confidence_exit threshold=0 min_layers={layers}"),
    )
    assert [s.draft.tokens for s in fixed.sink.steps[:-1]] == [s.draft.tokens for s in asked.sink.steps[:-1]]


def test_first_layers_run_once_per_token() -> None:
    for step in exiting(layers=2, max_draft_tokens=4).sink.steps[:-1]:
        passes = [(p.phase, p.tokens, p.attn, p.ffn) for p in step.passes]
        assert passes == [("draft", 1, 2, 2)] * (step.drafted + 1) + [
            ("verify", step.drafted + 1, [2, 3, 4, 5], [2, 3, 4, 5])
        ]


def test_with_a_criterion_the_check_begins_at_the_shallowest_exit() -> None:
    entered, mixed = set(), 0
    for step in exiting(
        60, criterion="confidence_exit threshold=0.8 min_layers=1", max_draft_tokens=2
    ).sink.steps[:-1]:
        exits, (enter, layers) = step.draft.notes["exits"], step.draft.notes["layers"]
        assert enter == min(*exits, layers - 1)
        *drafts, last, verify = step.passes
        assert [p.attn or layers for p in drafts] == exits
        assert [p.propagated or 0 for p in drafts] == [layers - x for x in exits]
        assert (last.attn, verify.attn) == (enter, list(range(enter, layers)))
        entered.add(enter)
        mixed += len(set(exits)) > 1
    assert len(entered) > 1 and mixed > 3, "the test needs drafts whose tokens left at several layers"


def test_each_token_enters_the_check_at_the_shallowest_exit_up_to_its_own_and_each_layer_is_priced_by_its_rows() -> (
    None
):
    ragged = 0
    for step in exiting(
        60, criterion="confidence_exit threshold=0.8 min_layers=1", max_draft_tokens=4
    ).sink.steps[:-1]:
        verify, kept = step.passes[-1], step.draft.notes["kept"]
        assert kept == [*accumulate((min(x, 5) for x in step.draft.notes["exits"]), min)]
        enter, rows = kept[-1], len(kept) + 1
        entered = [0] * enter + [1 + sum(x <= layer for x in kept) for layer in range(enter, 6)]
        assert verify.rows == (None if kept[0] == enter else entered) and step.draft.notes["layers"] == [
            enter,
            6,
        ]
        ops = ops_of(DEEP.spec, verify, draft=step.draft, bits=64)
        for layer in range(enter, 6):
            n = entered[layer]
            alone = Pass("target", "verify", n, verify.held + rows - n, 0.0, attn=[layer], ffn=[layer])
            due = [x for x in ops_of(DEEP.spec, alone, bits=64) if x.layer == layer]
            assert [x for x in ops if x.layer == layer] == due
        assert {x.layer for x in ops} == {*range(enter, 6), None}
        ragged += kept[0] > enter
    assert ragged > 5, "the test needs checks that tokens enter at several layers"


def test_above_an_earlier_exit_a_deeper_token_has_read_what_that_left_there() -> None:
    """The states of two drafted tokens, compared with those of one whole pass.

    The second token left after the first, but its states can be reused only as far as the first token's.
    """
    lane, entered = Lane("target", DEEP.decoder, build("policy", "keep_all")), []
    feeds = [Feed.causal_chain([token], 18 + i) for i, token in enumerate((5, 7))]
    with torch.inference_mode():
        lane.read([i % 13 for i in range(18)])
        for feed, depth in zip(feeds, (2, 5), strict=True):
            asked = build("adaptive_depth", "confidence_exit", dict(threshold=0.0, min_layers=depth))
            asked.begin(DEEP.spec)
            rule = WatchedDepth(asked, 6)
            lane.forward(feed, "draft", skip=rule.plan(0, feed), depth=rule)
            entered.append(rule.entered)
        lane.rollback()
        whole = []
        for i in range(6):
            whole.append(DEEP.decoder.states_before(Feed.causal_chain([5, 7], 18), lane.cache, i)[0])
            lane.rollback()
    apart = [
        [float((x[i][0] - whole[i][row]).abs().max()) for i in sorted(x)] for row, x in enumerate(entered)
    ]
    assert max(apart[0] + apart[1][:3]) < 1e-12, (
        "its own layers, and those below the first exit and right above"
    )
    assert min(apart[1][4:]) > 1e-3 and sorted(entered[1]) == [*range(6)]


@pytest.mark.parametrize("policy", ["streaming_llm", "key_norm", "quest", "window"])
def test_a_ragged_check_says_what_one_says_that_all_enter_together(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over caches that lose entries. If a policy selects what is read, all tokens enter together."""
    drafter = "early_exit", dict(criterion="confidence_exit threshold=0.5 min_layers=1")
    method = toys.method(drafter=drafter, policy=(policy, toys.SETTINGS[policy][0]))
    ragged = toys.decode(method, count=40, pair=(DEEP, DEEP)).sink
    monkeypatch.setattr(
        EarlyExit, "_reusable_layers", staticmethod(lambda lane, sound: [min(sound)] * len(sound))
    )
    together = toys.decode(method, count=40, pair=(DEEP, DEEP)).sink
    assert [(s.emitted, s.accepted) for s in ragged.steps] == [
        (s.emitted, s.accepted) for s in together.steps
    ]
    assert (
        any(p.rows for step in ragged.steps for p in step.passes) == (policy != "quest") and check(ragged).ok
    )


def test_check_begins_at_the_first_layer_where_a_policy_asks_for_attention() -> None:
    for drafter in ({"layers": 2}, {"criterion": words(CRITERIA["sure"])}):
        parts = dict(drafter=("early_exit", drafter), policy=("h2o", {"heavy": 60, "recent": 60}))
        session = toys.decode(toys.method(**parts), count=30, pair=(DEEP, DEEP))
        assert all(p.attn is None for step in session.sink.steps for p in step.passes if p.phase == "verify")
        assert session.end.tokens == toys.greedy_text(DEEP.decoder, toys.PROMPT, 30)


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
@pytest.mark.parametrize(
    "settings", [dict(layers=2), dict(criterion="confidence_exit threshold=0 min_layers=2")], ids=str
)
def test_all_is_accepted_where_the_later_layers_add_nothing(settings: dict, sampler: str) -> None:
    decoder = toys.decoder(toys.toy_spec(n_layers=4), 3, torch.float64)
    for layer in decoder.layers[2:]:
        layer.out, layer.down = layer.out * 0, layer.down * 0
    session = exiting(50, sampler, toys.model(decoder), max_draft_tokens=4, **settings)
    assert [step.accepted for step in session.sink.steps] == [4] * 10


def test_draft_ends_with_the_first_token_that_is_unsure() -> None:
    steps = exiting(layers=3, min_probability=0.5, max_draft_tokens=6).sink.steps[:-6]
    for step in steps:
        sure = step.draft.notes["sure"]
        assert all(x >= 0.5 for x in sure[:-1]) and (sure[-1] < 0.5 or step.drafted == 6)
    assert len({step.drafted for step in steps}) > 2
    assert {step.drafted for step in exiting(layers=3, min_probability=1.0).sink.steps[:-1]} == {1}


def test_what_cannot_work_is_refused_where_it_is_written() -> None:
    with pytest.raises(ParamError, match="no adaptive_depth is called 'confidence_exi'"):
        EarlyExit(criterion="confidence_exi")
    with pytest.raises(ParamError, match="confidence_exit has no knob 'treshold'"):
        EarlyExit(criterion="confidence_exit treshold=0.4")
    with pytest.raises(ParamError, match=r"confidence_exit\.threshold = 2\.0: must lie in"):
        EarlyExit(criterion="confidence_exit, threshold=2")
    assert EarlyExit(criterion=" , ")._rule() is None
    with pytest.raises(ParamError, match=r"write '0\.4' as knob=value"):
        EarlyExit(criterion="confidence_exit 0.4")
    with pytest.raises(ParamError, match=r"confidence_exit\.threshold = '0\.4,0\.5'"):
        EarlyExit(criterion="confidence_exit threshold=0.4, 0.5")
    with pytest.raises(
        MethodError,
        match=r"early_exit\.layers = 6 leaves nothing to check with, toy has 6 layers; choose 1 to 5\.",
    ):
        exiting(layers=6)
    with pytest.raises(
        MethodError, match="choose adaptive_depth all_layers, and confidence_exit as early_exit's criterion"
    ):
        toys.decode(toys.method(drafter="early_exit", adaptive_depth="confidence_exit"), pair=(DEEP, DEEP))
