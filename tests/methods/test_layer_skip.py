"""Layer skip: no skip set changes the text; with nothing skipped the draft is the target."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
import torch
import toys
from sizes import sizes

from decodescope.engine import Method, MethodError
from decodescope.engine.core.component import build
from decodescope.engine.methods.drafters.own_layers.layer_skip import LayerSkip
from decodescope.engine.methods.drafters.shared.layer_skipping import level_width
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.trace import check

DEEP = toys.model(toys.decoder(toys.toy_spec(n_layers=4), 5, torch.float64))
INNER = ["a1", "f1", "a2", "f2"]
SETS = list(chain.from_iterable(combinations(INNER, n) for n in range(1, 5)))


def skipping(count: int = 40, sampler: str = "greedy", **settings):
    return toys.decode(
        toys.method(drafter=("layer_skip", settings), sampler=sampler), count=count, pair=(DEEP, DEEP)
    )


@pytest.mark.parametrize("skip", SETS, ids=" ".join)
@sizes("count", usual=15, full=40)
def test_any_skip_set_leaves_the_text_and_the_cache_alone(skip: tuple[str, ...], count: int) -> None:
    due = toys.greedy_text(DEEP.decoder, toys.PROMPT, count)
    for siblings in (False, True):
        session = skipping(count, skip_sublayers=", ".join(skip), min_probability=0.0, siblings=siblings)
        assert session.end.tokens == due and toys.matches_fresh_reading(session.target)
        draft = next(p for p in session.sink.steps[0].passes if p.phase == "draft")
        for kind, ran in (("a", draft.attn), ("f", draft.ffn)):
            left = [i for i in range(4) if f"{kind}{i}" not in skip]
            assert (
                list(range(4)) if ran is None else ran if isinstance(ran, list) else list(range(ran))
            ) == left


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
def test_with_nothing_skipped_everything_is_accepted(sampler: str) -> None:
    session = skipping(50, sampler, skip_ratio=0.0, min_probability=0.0, max_draft_tokens=4)
    assert [step.accepted for step in session.sink.steps] == [4] * 10


def test_ratio_spreads_over_inner_sub_layers() -> None:
    for layers in (3, 4, 8, 12):
        spec = toys.toy_spec(n_layers=layers)
        for ratio in (0.0, 0.25, 0.45, 0.9):
            skip = build("drafter", "layer_skip", {"skip_ratio": ratio}).skip_set(spec)
            assert len(skip.attn) + len(skip.ffn) == round(ratio * 2 * (layers - 2))
            assert (skip.attn | skip.ffn) <= set(range(1, layers - 1))


@pytest.mark.parametrize("word", ["a0", "f3", "x1", "a", "1", "a1.5", "a-1"])
def test_sub_layers_that_always_run_are_refused(word: str) -> None:
    with pytest.raises(
        MethodError, match=rf"layer_skip\.skip_sublayers names '{word}': write a1 to a2 .*\.$"
    ):
        skipping(skip_sublayers=f"a1 {word}")


def test_siblings_are_fewer_the_surer_the_draft_is_and_only_the_chain_goes_on() -> None:
    session = skipping(skip_ratio=0.5, min_probability=0.0, siblings=True)
    assert [level_width(x) for x in (0.99, 0.9, 0.6, 0.3)] == [3, 5, 8, 10]
    sizes = set()
    for step in session.sink.steps[:-4]:
        tree = step.draft
        for parent in set(tree.parents):
            level = [i for i, p in enumerate(tree.parents) if p == parent]
            sizes.add(len(level))
            assert all(not any(p == i for p in tree.parents) for i in level[1:]), (
                "an alternative has no children"
            )
    assert sizes <= {3, 5, 8, 10} and len(sizes) > 1 and check(session.sink).ok


@torch.inference_mode()
def raw_laws(text: list[int], drafted: list[int], drafter: LayerSkip) -> torch.Tensor:
    """float [N, V]: the skipping model's output before each drafted token, after text read by all layers."""
    cache = KVCache(DEEP.spec, dtype=DEEP.decoder.dtype)
    DEEP.decoder.forward(Feed.causal_chain(text[:-1], 0), cache)
    cache.commit(range(len(text) - 1))
    feed = Feed.causal_chain([text[-1], *drafted[:-1]], len(text) - 1)
    return DEEP.decoder.forward(feed, cache, skip=drafter.skip_set(DEEP.spec))[0].softmax(-1)


@pytest.mark.parametrize(("k", "temperature"), [(3, 0.5), (13, 3.0)], ids=["truncated and cold", "hot"])
def test_chain_ends_by_the_token_s_probability_before_the_sampler(k: int, temperature: float) -> None:
    names = {"drafter": "layer_skip", "sampler": ["top_k", "temperature"]}
    knobs = {
        "drafter": dict(skip_sublayers="f1", min_probability=0.4, max_draft_tokens=6),
        "top_k": {"k": k},
        "temperature": {"temperature": temperature},
    }
    session = toys.decode(Method.from_names(names, knobs), count=100, pair=(DEEP, DEEP))
    text, otherwise, ended = list(toys.PROMPT), 0, 0
    for step in session.sink.steps[:-1]:
        if step.draft is not None and len(text) + 7 < len(session.tokens):
            tokens = step.draft.tokens
            raw = raw_laws(text, tokens, session.drafter)[range(len(tokens)), tokens].tolist()
            unsure = [x < 0.4 for x in raw]
            assert not any(unsure[:-1]) and (unsure[-1] or len(tokens) == 6), (
                "the first unsure one is the last"
            )
            ended += unsure[-1]
            drawn = [x < 0.4 for x in step.draft.q]  # by the distributions that they were drawn from
            otherwise += drawn != unsure
        text += step.emitted
    assert ended > 5 and otherwise > 5, "the test needs chains that the drawn law would end elsewhere"


def test_chain_ends_where_the_draft_is_unsure() -> None:
    sure, unsure = (skipping(skip_ratio=0.5, min_probability=stop, max_draft_tokens=8) for stop in (0.0, 1.0))
    assert {step.drafted for step in unsure.sink.steps[:-1]} == {1}
    assert max(step.drafted for step in sure.sink.steps) == 8
