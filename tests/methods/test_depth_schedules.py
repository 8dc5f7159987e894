"""Depth known beforehand: a fixed list skips the blocks that it names, and SkipDecode's layers shrink to a closed form."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import toys

from decodescope.engine import MethodError
from decodescope.engine.core.component import build
from decodescope.engine.cost.cost import PassShape, cost_of, pass_cost
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.adaptive_depth.shared.layer_schedule import (
    executed_layers,
    layer_count_at,
    total_layer_runs,
)
from decodescope.engine.methods.adaptive_depth.skipdecode import SkipDecode
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import load
from decodescope.engine.trace import check
from decodescope.engine.trace.records.passes import Pass

LAYERS = 6
DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=LAYERS), 3, torch.float64))
STAIRS = [
    dict(min_layers=2, decay_horizon=10),
    dict(min_layers=1, max_layers=5, decay_horizon=7),
    dict(min_layers=3, warmup_layers=3, decay_horizon=25),
]
STAIRS += [dict(min_layers=4, decay_horizon=1)]


def decoded(name: str, settings: dict, count: int = 30, prompt: list[int] = toys.PROMPT, **parts):
    return toys.decode(
        toys.method(adaptive_depth=(name, settings), **parts), prompt, count, pair=(DEEP, DEEP)
    )


def layers_of(one: Pass, kind: str = "attn") -> list[int]:
    ran = getattr(one, kind)
    return list(range(LAYERS if ran is None else ran)) if ran is None or isinstance(ran, int) else ran


@pytest.mark.parametrize("settings", STAIRS, ids=str)
def test_layers_shrink_and_their_sum_is_the_closed_form(settings: dict) -> None:
    session = decoded("skipdecode", settings)
    verify = [step.passes[-1] for step in session.sink.steps]
    ran = [layers_of(one) for one in verify]
    least, most, horizon = (
        settings["min_layers"],
        settings.get("max_layers", LAYERS),
        settings["decay_horizon"],
    )
    for t, (one, layers) in enumerate(zip(verify, ran, strict=True)):
        due = round(most - (most - least) * min(t, horizon) / horizon + 1e-9)
        assert (
            len(layers)
            == due
            == layer_count_at(t, most, least, horizon)
            == session.sink.steps[t].exits[0].depth
        )
        warm = settings.get("warmup_layers", 1)
        assert layers == [*range(warm), *range(LAYERS - due + warm, LAYERS)] == layers_of(one, "ffn")
        assert one.gap == "monotone" or layers == [*range(LAYERS)]
        assert (
            cost_of(DEEP.spec, one, bits=64).flops
            == pass_cost(
                DEEP.spec,
                PassShape(1, len(toys.PROMPT) + t - 1, logits=1, attn_layers=layers, ffn_layers=layers),
            ).flops
        )
    assert all(set(late) <= set(early) for early, late in pairwise(ran))
    for n in range(len(ran) + 1):
        assert sum(map(len, ran[:n])) == total_layer_runs(n, most, least, horizon)
    held = [store.n for store in session.target.cache.layers]
    assert held == [len(toys.PROMPT) - 1 + sum(layer in layers for layers in ran) for layer in range(LAYERS)]
    assert {held[layer] for layer in ran[-1]} == {len(session.tokens) - 1}, (
        "what still runs has read all of the text"
    )
    assert check(session.sink).ok and not session.header.lossless


def test_the_budget_is_the_sum_of_the_schedule_whatever_its_bounds() -> None:
    for most, least, horizon in [(8, 3, 64), (8, 8, 5), (8, 1, 3), (5, 4, 1), (32, 11, 100), (7, 2, 2)]:
        runs = [layer_count_at(t, most, least, horizon) for t in range(2 * horizon + 3)]
        assert runs[0] == most and runs[horizon] == runs[-1] == least and runs == sorted(runs, reverse=True)
        assert [total_layer_runs(n, most, least, horizon) for n in range(len(runs))] == [
            sum(runs[:n]) for n in range(len(runs))
        ]
        assert all(len(executed_layers(n, 1, most)) == n for n in runs)


def test_two_prompts_of_one_length_run_the_same_layers_and_a_draft_those_of_its_first_row() -> None:
    one, other = (decoded("skipdecode", STAIRS[0], prompt=list(p)) for p in (toys.PROMPT, toys.PROMPT[::-1]))
    assert [layers_of(s.passes[-1]) for s in one.sink.steps] == [
        layers_of(s.passes[-1]) for s in other.sink.steps
    ]
    drafted = decoded("skipdecode", STAIRS[0], drafter=("draft_model", {"max_draft_tokens": 3}))
    written = 0
    for step in drafted.sink.steps:
        assert len(layers_of(step.passes[-1])) == layer_count_at(written, LAYERS, 2, 10)
        written += len(step.emitted)
    assert check(drafted.sink).ok and any(step.accepted for step in drafted.sink.steps)


@pytest.mark.parametrize("out", [("l2",), ("a1", "f3", "l4"), ("f0", "f1"), ()], ids=str)
def test_a_plan_is_the_model_without_the_blocks_that_it_names(out: tuple[str, ...]) -> None:
    """Compared with a model in which these blocks add nothing, after a prompt of one token, which every pass reads."""
    attn = {int(x[1:]) for x in out if x[0] in "al"}
    ffn = {int(x[1:]) for x in out if x[0] in "fl"}
    session = decoded("layer_plan", {"skip": out}, prompt=[4])
    silent = [
        replace(layer, out=layer.out * (i not in attn), down=layer.down * (i not in ffn))
        for i, layer in enumerate(DEEP.decoder.layers)
    ]
    whole = DEEP.decoder
    short = Decoder(whole.spec, whole.embed, silent, whole.norm, whole.head)
    assert session.end.tokens == toys.greedy_text(short, [4], 30)
    assert (session.end.tokens != toys.greedy_text(whole, [4], 30)) == bool(out)
    for step in session.sink.steps:
        assert layers_of(step.passes[-1]) == [i for i in range(LAYERS) if i not in attn]
        assert layers_of(step.passes[-1], "ffn") == [i for i in range(LAYERS) if i not in ffn]
    assert [store.n for store in session.target.cache.layers] == [
        0 if i in attn else 30 for i in range(LAYERS)
    ]
    assert check(session.sink).ok


@pytest.mark.parametrize(
    "criterion",
    [
        "layer_plan skip=l3,a4",
        "skipdecode min_layers=2 decay_horizon=5",
        "skipdecode min_layers=1 decay_horizon=2 warmup_layers=0",
    ],
)
@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_as_a_criterion_it_drafts_what_it_writes_as_depth_and_the_text_stays(
    criterion: str, sampler: str
) -> None:
    drafter = "early_exit", dict(criterion=criterion, max_draft_tokens=4)
    session = toys.decode(toys.method(drafter=drafter, sampler=sampler), count=30, pair=(DEEP, DEEP))
    assert session.header.lossless and check(session.sink).ok and toys.matches_fresh_reading(session.target)
    if sampler == "temperature":
        return
    name, *words = criterion.split()
    knobs = {k: v.split(",") if k == "skip" else int(v) for k, v in (x.split("=") for x in words)}
    lossy = decoded(name, knobs, 4)
    assert session.sink.steps[0].draft.tokens == lossy.end.tokens
    assert (
        session.end.tokens
        == toys.greedy_text(DEEP.decoder, toys.PROMPT, 30)
        != decoded(name, knobs).end.tokens
    )
    if name == "layer_plan":
        assert all(step.draft.notes["layers"] == [3, 6] for step in session.sink.steps[:-1]), (
            "below the first block left out"
        )


def test_what_cannot_work_is_refused() -> None:
    for word in ("a6", "x1", "l", "f-1", "3"):
        with pytest.raises(
            MethodError, match=rf"layer_plan\.skip names '{word}': write a0 to a5 .* toy has 6 layers\."
        ):
            decoded("layer_plan", {"skip": (word,)})
    for knobs in (dict(min_layers=7), dict(min_layers=3, max_layers=2), dict(min_layers=2, warmup_layers=3)):
        with pytest.raises(
            MethodError, match=r"skipdecode: warmup_layers \d, min_layers \d and max_layers \d must not fall"
        ):
            decoded("skipdecode", knobs)
    with pytest.raises(MethodError, match="under the gap monotone of skipdecode layers lack entries"):
        decoded("skipdecode", STAIRS[0], kv_compression=("kivi", {"group": 4, "buffer": 4}))


@pytest.mark.nightly
def test_under_a_schedule_the_shipped_adapter_is_nearer_to_the_whole_model_than_its_base() -> None:
    """How often a model's likeliest token after each beginning of the full model's own text is the token of that text."""
    models = {name: load(name, "float32", "cpu") for name in ("lab", "lab+skipdecode")}
    whole, rule, same = models["lab"], SkipDecode(min_layers=4, decay_horizon=8), dict.fromkeys(models, 0)
    rule.begin(whole.spec)
    for text in (
        "Once upon a time there was a little fox",
        "One day, a girl named Lily went to the park",
        "The capital of",
    ):
        prompt = whole.tokenizer.encode(text)
        read = [*prompt, *toys.greedy_text(whole.decoder, prompt, 40)]
        for name, model in models.items():
            lane = Lane("target", model.decoder, build("policy", "keep_all"))
            with torch.inference_mode():
                lane.read(read[: len(prompt) - 1])
                for at in range(len(prompt) - 1, len(read) - 1):
                    feed = Feed.causal_chain([read[at]], at)
                    lane.forward(feed, skip=rule.plan(at + 1 - len(prompt), feed))
                    lane.commit([0])
                    same[name] += lane.best == [read[at + 1]]
    assert same["lab+skipdecode"] > same["lab"] > 40
