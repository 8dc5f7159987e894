"""The requirements for strategies and depth rules: progress, exact lengths, an end reason, and all layers without exits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys
from entries import entry
from sizes import by_turns, first_settings, nightly, sizes

from decodescope.engine import Method, MethodError
from decodescope.engine.core.component import KINDS, build, registry
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.methods.policies.keep_all import KeepAll
from decodescope.engine.trace import check

STRATEGIES = toys.variants("strategy")
PROMPTS = [toys.PROMPT, *toys.prompts(4, seed=3)]
AT_LEAST = sizes("prompts", usual=1, full=len(PROMPTS))  # the number of prompts that are read
COUNTS = [1, 7, *(pytest.param(count, marks=pytest.mark.nightly) for count in (2, 30))]
# settings with which a strategy that may change the text keeps it, and a depth rule runs all layers
PLAIN = {
    "aligned": dict(samples=1),
    "apar": dict(fork_token=""),
    "beam": dict(width=1),
    "cascade": {},
    "consensus": dict(samples=1),
    "contrastive_search": dict(alpha=0.0),
    "diverse_beam": dict(width=1, groups=1),
    "edit_tags": dict(block=1, min_probability=1.01),
    "exact_extract": {},
    "planned": dict(rollouts=1),
    "jump_coder": dict(infill_places=0),
    "joint_tokens": dict(threshold=1.01),
    "label_parallel": dict(labels=""),
    "lexical_units": dict(min_probability=1.01),
    "masked": dict(block=1),
    "randar": dict(steps=64, order="raster"),
    "skeleton": dict(outline_prompt=""),
    "switch": {},
    "superposed": dict(drafts=1, alpha=0.0),
    "zipar": dict(window=8),
}
DRAWN = ("consensus",)  # strategies that change nothing under a greedy sampler
ONE_AFTER_ANOTHER = ("aligned",)  # strategies that draw several texts, one per step
NEVER = {
    "all_layers": {},
    "confidence_exit": dict(threshold=1.01),
    "entropy_exit": dict(threshold=0.0),
    "ffn_skip": dict(threshold=1.01, warmup_tokens=0, cold_start=0),
    "free": dict(threshold=1.01),
    "hash_exit": dict(min_layers=3, buckets=2),
    "layer_plan": {},
    "magic_pyramid": dict(threshold=0.0, keep_share=1.0),
    "normalized_entropy_exit": dict(threshold=0.0),
    "past_future": dict(threshold=1.01),
    "patience": dict(patience=0),
    "row_pruning": dict(keep_share=1.0),
    "saturation": dict(threshold=0.0),
    "skip_layer": dict(threshold=-100.0),
    "skipdecode": dict(min_layers=3, max_layers=3),
    "trigrams": dict(layers=0),
    "vote": dict(min_votes=64.0),
}


BOTH = pytest.mark.parametrize("prompt", [[4], toys.PROMPT], ids=["one token", "several"])


@pytest.mark.parametrize(("name", "settings"), STRATEGIES)
@pytest.mark.parametrize("count", [*nightly(COUNTS)])
@BOTH
def test_strategy_emits_within_its_limit_and_says_so(
    name: str, settings: dict, count: int, prompt: list[int]
) -> None:
    session = toys.decode(toys.method(strategy=(name, settings)), prompt, count)
    assert len(session.end.tokens) == count and session.end.reason == "max_new_tokens"
    texts = settings["samples"] if name in ONE_AFTER_ANOTHER else 1
    assert 1 <= len(session.sink.steps) <= count * texts, "every step brings a text forward"


@pytest.mark.parametrize(("name", "settings"), first_settings(STRATEGIES))
@BOTH
def test_strategy_ends_with_a_stop_token_and_says_so(name: str, settings: dict, prompt: list[int]) -> None:
    stop = toys.decode(toys.method(strategy=(name, settings)), prompt, 2).end.tokens[0]
    ended = toys.decode(toys.method(strategy=(name, settings)), prompt, 60, stop_tokens=[stop])
    assert (ended.end.reason, ended.end.tokens[-1]) == ("stop_token", stop) or stop not in ended.end.tokens
    assert len(ended.end.tokens) <= 60


@pytest.mark.parametrize(("name", "settings"), [x for x in STRATEGIES if registry("strategy")[x[0]].lossless])
@AT_LEAST
def test_strategy_that_promises_the_targets_text_keeps_it(name: str, settings: dict, prompts: int) -> None:
    target = toys.strategy_target(registry("strategy")[name])
    for prompt in PROMPTS[:prompts]:
        session = toys.decode(toys.method(strategy=(name, settings)), prompt)
        assert session.header.lossless and check(session.sink).ok
        assert session.end.tokens == toys.cached_greedy_text(target, prompt)
        # a model that sees only a block holds no more than the block
        assert target.spec.block_length or toys.matches_fresh_reading(session.target)


@pytest.mark.parametrize(
    ("name", "settings"),
    by_turns(2, first_settings(x for x in STRATEGIES if not registry("strategy")[x[0]].lossless)),
)
@AT_LEAST
def test_strategy_that_promises_nothing_says_so_repeats_itself_and_has_a_setting_that_keeps_the_text(
    name: str, settings: dict, prompts: int
) -> None:
    target = toys.strategy_target(registry("strategy")[name])
    beside = {"router": ("entropy", dict(tau=-1.0))} if "router" in registry("strategy")[name].uses else {}
    plain = toys.method(
        strategy=(name, entry(PLAIN, name, "PLAIN of tests/contracts/test_strategies.py")), **beside
    )
    if plain.sampler.constrains:  # a grammar draws: the coldest distribution over any text, which may end
        knobs = {"grammar": {"definition": "(?s:.*)"}, "temperature": {"temperature": 0.01}}
        plain = replace(
            plain, sampler=Method.from_names({"sampler": ["grammar", "temperature"]}, knobs).sampler
        )
    warm, other = dict(sampler="temperature") if name in DRAWN else {}, 0
    for number, prompt in enumerate(PROMPTS):
        if number >= prompts and other:
            break
        runs = [toys.decode(toys.method(strategy=(name, settings), **warm), prompt) for _ in range(2)]
        due = toys.cached_greedy_text(target, prompt)
        assert not runs[0].header.lossless and check(runs[0].sink).ok
        assert runs[0].end.content_hash == runs[1].end.content_hash
        kept = toys.decode(plain, prompt).end
        assert kept.tokens == (due[: len(kept.tokens)] if kept.reason == "stop_token" else due)
        assert sum(len(step.emitted) for step in runs[0].sink.steps) == len(runs[0].end.tokens) == 40
        other += runs[0].end.tokens != due
    assert other, "a strategy that never changes a text promises too little, or these settings do nothing"


@pytest.mark.parametrize("name", registry("strategy"))
def test_part_that_a_strategy_does_not_use_is_refused(name: str) -> None:
    uses = registry("strategy")[name].uses
    assert uses <= set(KINDS)
    for kind in set(KINDS) - uses - {"strategy"}:
        usual = (Method().parts()[kind].name, "chain")  # a chain of samplers has no name of its own
        other = next(x for x in registry(kind) if x not in usual)
        with pytest.raises(
            MethodError, match=rf"^{name} uses no {kind}, so {other} would be ignored; .*\.\)$"
        ):
            toys.decode(toys.method(strategy=name, **{kind: other}))


@pytest.mark.parametrize("name", registry("adaptive_depth"))
@torch.inference_mode()
def test_depth_that_never_leaves_is_all_layers_bit_for_bit(name: str) -> None:
    never = entry(NEVER, name, "NEVER of tests/contracts/test_strategies.py")
    plain, session = (
        toys.decode(toys.method(adaptive_depth=d), count=30) for d in ("all_layers", (name, never))
    )
    assert session.end.tokens == plain.end.tokens
    assert all(
        torch.equal(a.k, b.k) and torch.equal(a.v, b.v)
        for a, b in zip(session.target.cache.layers, plain.target.cache.layers, strict=True)
    )


@pytest.mark.parametrize(("name", "settings"), first_settings(toys.variants("adaptive_depth")))
def test_depth_leaves_in_each_layer_what_its_gap_says(name: str, settings: dict) -> None:
    knob = next((x for x in registry("adaptive_depth")[name].params() if x.name == "skipped_kv"), None)
    for gap in (
        (build("adaptive_depth", name, settings).skipped_kv,)
        if knob is None or "skipped_kv" in settings
        else knob.choices
    ):
        chosen = settings if knob is None else {**settings, "skipped_kv": gap}
        _leaves(name, chosen, gap)


def _leaves(name: str, settings: dict, gap: str) -> None:
    """Each layer has as many entries as there are tokens, minus the skipped ones that its `skipped_kv` setting leaves without
    entries.

    Skipped are the passes that did not run the layer, or the rows, if rows are routed one by one.
    """
    session = toys.decode(toys.method(adaptive_depth=(name, settings), drafter="prompt_lookup"), count=30)
    n, layers = len(session.tokens) - 1, len(session.target.cache.layers)
    lacks, before = [0] * layers, set(range(layers))
    for one in session.sink.prefill.passes if gap == "absent" else ():
        lacks = [
            x + (one.routed[i].count("f") + one.routed[i].count("-") if one.routed else 0)
            for i, x in enumerate(lacks)
        ]
    for step in session.sink.steps if gap in ("absent", "monotone") else ():
        one, told = step.passes[-1], step.passes[-1].attn
        if one.routed:
            kept = [0, *(node + 1 for node in step.path)][: step.cache[0].appended]
            lacks = [x + len(set(kept) - set(one.running_rows(i, "attn"))) for i, x in enumerate(lacks)]
            continue
        ran = set(range(layers if told is None else told) if told is None or isinstance(told, int) else told)
        assert gap == "absent" or ran <= before, "under monotone a layer that stopped runs no more"
        lacks, before = [x + (i not in ran) * step.cache[0].appended for i, x in enumerate(lacks)], ran
    assert [n - store.n for store in session.target.cache.layers] == lacks and check(session.sink).ok
    assert session.header.lossless == registry("adaptive_depth")[name].exact
    assert isinstance(session.target, Lane) and isinstance(session.target.policy, KeepAll)
