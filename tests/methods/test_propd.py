"""ProPD: pruning removes rows of the pass and nothing else; the remaining rows are read as in the whole tree."""

from __future__ import annotations

import copy

import pytest
import torch
import toys
from drafting import path_of
from law.cases import SAMPLERS, layered, true_law

from decodescope.engine import MethodError, ParamError, Session
from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.drafters.own_layers.propd import ProPD
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.method import Method
from decodescope.testing.walk import Walk, distribution_distance

RECYCLED = dict(tree_drafter="token_recycling nodes=16", layers=1, top_k=4)


def opened(settings: dict, sampler: str = "greedy", **more) -> Session:
    method = toys.method(drafter=("propd", settings), sampler=sampler)
    session = Session(toys.pair()[0], method, toys.PROMPT, max_new_tokens=200, seed=3, **more)
    session.start()
    return session


def early(decoder: Decoder, text: list[int], layers: int, top: int) -> list[int]:
    """The first `top` tokens of the early ranking after a text, computed without a cache."""
    states = decoder.states_before(Feed.causal_chain(text, 0), None, layers)[0, -1]
    return decoder.unembed(decoder.apply_norm(states)).topk(top).indices.tolist()


def both(session: Session) -> tuple[Draft, Draft]:
    """The whole tree that the next step would draft, and the pruned one; the session stays unchanged."""
    twin = session.branch()
    whole = twin.drafter._drafter.propose(twin.context)
    twin = session.branch()
    return whole, twin.drafter.propose(twin.context)


@torch.inference_mode()
@pytest.mark.parametrize(
    "settings",
    [RECYCLED, dict(tree_drafter="trie nodes=40", layers=2, top_k=6), {**RECYCLED, "layers": 2, "top_k": 1}],
)
def test_a_node_stays_if_the_early_ranking_has_it_and_its_parent_stays(settings: dict) -> None:
    session, decoder = opened(settings), toys.pair()[0].decoder
    stayed = fell = with_parent = 0
    for _ in range(12):
        whole, pruned = both(session)
        stays: dict[int, bool] = {-1: True}
        for node, parent in enumerate(whole.parents):
            ranking = early(
                decoder, [*session.tokens, *path_of(whole, parent)], settings["layers"], settings["top_k"]
            )
            stays[node] = stays[parent] and whole.tokens[node] in ranking
            with_parent += not stays[parent]
        due = [node for node in range(len(whole)) if stays[node]]
        assert [path_of(pruned, x) for x in range(len(pruned))] == [path_of(whole, x) for x in due]
        if len(whole):
            assert pruned.notes["nodes"] == due and pruned.notes["proposed"] == len(whole)
            dropped = pruned.notes["dropped"]
            assert dropped["nodes"] == len(whole) - len(due) and dropped["layer"] == settings["layers"]
            at = {-1: -1, **{node: i for i, node in enumerate(due)}}
            rim = [
                [at[parent], whole.tokens[x]]
                for x, parent in enumerate(whole.parents)
                if not stays[x] and stays[parent]
            ]
            assert dropped["first"] == rim[:8]
        stayed, fell = stayed + len(due), fell + len(whole) - len(due)
        session.step()
    assert stayed > 5 and fell > 20 and with_parent > 3


@torch.inference_mode()
def test_what_stays_has_the_logits_that_the_whole_tree_would_give_it() -> None:
    session, compared, less = opened(RECYCLED), 0, 0
    for _ in range(12):
        whole, _ = both(session)
        twin = session.branch()
        root, at = session.tokens[-1], len(session.tokens) - 1
        due = twin.target.forward(whole.build_feed(root, at))[0]
        move = session.method.strategy.step(session)
        rows = [0, *(node + 1 for node in (move.draft.notes["nodes"] if len(whole) else []))]
        assert torch.allclose(move.logits, due[rows], atol=1e-9)
        compared, less = compared + len(rows), less + len(whole) + 1 - len(rows)
    assert compared > 20 and less > 20


@torch.inference_mode()
def test_only_the_first_layers_read_what_is_pruned_and_no_cache_keeps_it() -> None:
    session = opened(RECYCLED)
    for _ in range(12):
        whole, _ = both(session)
        step = session.step()
        passes = [(x.phase, x.tokens, x.attn) for x in step.passes]
        pruned = [
            ("draft", len(whole) + 1, 1),
            ("verify", step.drafted + 1, list(range(1, toys.SPEC.n_layers))),
        ]
        assert passes == (pruned if len(whole) else [("verify", 1, None)])
        assert toys.matches_fresh_reading(session.target) and session.target.tokens == session.tokens[:-1]


@pytest.mark.parametrize("sampler", ["T=1", "top-p 0.8", "penalty, mirostat"])
def test_the_text_has_the_targets_law(sampler: str) -> None:
    """On a transformer, since a table has no layers; the walk meets trees with pruned nodes."""
    drafter = ProPD(tree_drafter="token_recycling nodes=8", layers=1, top_k=1)
    method, (target, _) = Method(drafter=drafter, sampler=SAMPLERS[sampler][0]), layered(3, "independent")
    walk = Walk(method, {"target": target}, 3)
    pruned = 0
    propose = ProPD.propose

    def seen(ctx: Context) -> Draft:
        nonlocal pruned
        draft = propose(walk.s.drafter, ctx)
        pruned += (draft.notes or {}).get("dropped", {"nodes": 0})["nodes"]
        return draft

    walk.s.drafter.propose = seen  # type: ignore[method-assign]
    assert (
        distribution_distance(walk.full_run_distribution(), true_law(3, sampler, 3, layers="independent"))
        <= 1e-12
    )
    assert pruned > 10


def test_with_room_for_every_token_nothing_is_pruned() -> None:
    texts, drafted = [], []
    for drafter in (("propd", {**RECYCLED, "top_k": toys.SPEC.vocab}), ("token_recycling", {"nodes": "16"})):
        made = toys.decode(toys.method(drafter=drafter, sampler="temperature"), count=60, seed=2)
        texts.append(made.end.tokens)
        drafted.append([(x.drafted, x.accepted) for x in made.sink.steps])
    assert texts[0] == texts[1] and drafted[0] == drafted[1]


def test_a_tree_of_which_nothing_stays_leaves_the_target_alone() -> None:
    """Only the root's row, which the first layers have read, continues."""
    session = opened(RECYCLED)
    decoder = session.target.decoder = copy.copy(session.target.decoder)
    real = decoder.unembed

    def never(feature: torch.Tensor) -> torch.Tensor:
        logits = real(feature).clone()
        whole = session.drafter._drafter.propose(session.context)
        logits[..., whole.tokens] = -torch.inf
        return logits

    with torch.inference_mode():
        decoder.unembed = never  # type: ignore[method-assign]
        draft = session.drafter.propose(session.context)
        del decoder.unembed
    assert (
        len(draft) == 0
        and draft.states.shape == (1, 1, toys.SPEC.d_model)
        and draft.notes["dropped"]["nodes"] > 0
    )
    assert [store.m for store in session.target.cache.layers] == [1, 0, 0]


def test_heads_and_full_traces_go_with_it() -> None:
    """The inner drafter receives the probe's states; if attention is recorded the check begins at the first layer."""
    greedy = toys.greedy_text(toys.pair()[0].decoder, toys.PROMPT, 40)
    for tree in ("medusa nodes=12", "hydra nodes=12", "rest nodes=12"):
        for level in ("decisions", "full"):
            made = toys.decode(
                toys.method(drafter=("propd", dict(tree_drafter=tree, layers=1, top_k=6))), level=level
            )
            assert made.end.tokens == greedy
            if level == "full":
                assert all(
                    x.attn is None for step in made.sink.steps for x in step.passes if x.phase == "verify"
                )


@pytest.mark.parametrize(
    ("settings", "more", "words"),
    [
        (
            dict(tree_drafter="rsd_c"),
            {},
            r"propd.tree_drafter = 'rsd_c': rsd_c, as set, makes no tree .*choose token_recycling, trie, rest",
        ),
        (
            dict(tree_drafter="prompt_lookup"),
            {},
            r"prompt_lookup, as set, makes no tree that is chosen without chance",
        ),
        (dict(tree_drafter="propd"), {}, r"propd, as set, makes no tree"),
        (
            dict(tree_drafter="rest datastore=/etc/hosts"),
            {},
            r"a file cannot be named here; leave it out, or use rest alone\.$",
        ),
        (
            dict(layers=3),
            {},
            r"propd.layers = 3 leaves nothing to check with, toy has 3 layers; choose 1 to 2\.$",
        ),
        (
            {},
            {"adaptive_depth": "confidence_exit"},
            r"propd checks from layer 2 on, confidence_exit may leave before; choose adaptive_depth all_layers",
        ),
        (
            dict(tree_drafter="rest max_suffix=1"),
            {},
            r"rest.min_suffix = 2: must not be above rest.max_suffix, which is 1\.$",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(settings: dict, more: dict, words: str) -> None:
    with pytest.raises(MethodError, match=words):
        Session(toys.pair()[0], toys.method(drafter=("propd", settings), **more), toys.PROMPT)


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ("token_recyling", r"no drafter is called 'token_recyling'\. Did you mean 'token_recycling'"),
        ("trie nodes", r"propd.tree_drafter = 'trie nodes': write 'nodes' as knob=value, after the name\.$"),
        ("trie size=3", r"trie has no knob 'size'"),
        ("", r"no drafter is called ''"),
    ],
)
def test_a_tree_that_nobody_drafts_is_refused_where_it_is_written(tree: str, words: str) -> None:
    with pytest.raises(ParamError, match=words):
        build("drafter", "propd", {"tree_drafter": tree})
