"""RASD: the fused tree has the paths of both, retrieved paths begin as the draft model would, and the distribution stays."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
import toys
from drafting import path_of
from law.cases import SAMPLERS, models, true_law

from decodescope.engine import MethodError, Session
from decodescope.engine.core.component import build
from decodescope.engine.decoding.values.draft import Draft
from decodescope.engine.methods.drafters.draft_model.rasd import RASD
from decodescope.engine.methods.drafters.shared.trees import BeamPool
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.method import Method
from decodescope.testing.walk import Walk, distribution_distance

KNOBS = dict(
    datastore=toys.DATASTORE,
    nodes=8,
    depth=3,
    width=3,
    top_k=4,
    max_suffix=3,
    min_suffix=1,
    retrieved_depth=4,
    retrieved_nodes=10,
)
IDS = [int(x) for x in Path(toys.DATASTORE).read_text().split()]


def opened(settings: dict, prompt: list[int] = toys.PROMPT, sampler: str = "greedy") -> Session:
    target, small = toys.pair()
    made = toys.method(drafter=("rasd", settings), sampler=sampler)
    session = Session(target, made, prompt, models={"draft": small}, max_new_tokens=200, seed=3)
    session.start()
    return session


@torch.inference_mode()
def law_after(text: list[int]) -> torch.Tensor:
    return toys.pair()[1].decoder.forward(Feed.causal_chain(text, 0), None)[0, -1].softmax(-1)


def followed(text: list[int], body: list[int], inside: bool) -> list[tuple[int, ...]]:
    """The definition as a search: the tokens after the longest suffix of `text` in `body`, at every place."""
    for n in range(min(KNOBS["max_suffix"], len(text) - inside), KNOBS["min_suffix"] - 1, -1):
        hits = [i + n for i in range(len(body) - n + (not inside)) if body[i : i + n] == text[-n:]]
        if hits:
            return [tuple(body[i : i + KNOBS["retrieved_depth"]]) for i in hits]
    return []


def retrieved(text: list[int]) -> set[tuple[int, ...]]:
    """The second tree: prefixes of the retrieved paths, pruned at the root; the most frequent first, then the shorter ones."""
    likely = law_after(text).topk(KNOBS["top_k"]).indices.tolist()
    found = [x for x in followed(text, text, True) + followed(text, IDS, False) if x and x[0] in likely]
    counts = Counter(x[:n] for x in found for n in range(1, len(x) + 1))
    return set(sorted(counts, key=lambda x: (-counts[x], len(x), x))[: KNOBS["retrieved_nodes"]])


def grown(text: list[int]) -> set[tuple[int, ...]]:
    """The first tree, with every path computed without a cache."""
    beam = BeamPool(KNOBS["width"])
    for _ in range(KNOBS["depth"]):
        paths = [path_of(Draft(beam.tokens, beam.parents), node) for node in beam.open]
        beam.grow(torch.stack([law_after([*text, *path]) for path in paths]))
    return {tuple(path_of(Draft(beam.tokens, beam.parents), x)) for x in beam.ranking()[: KNOBS["nodes"]]}


def matched(paths: set[tuple[int, ...]], answer: list[int]) -> int:
    """How far the answer can be followed in the tree."""
    return max((n for n in range(len(answer) + 1) if tuple(answer[:n]) in paths), default=0)


@torch.inference_mode()
def test_the_draft_is_the_union_of_both_trees_and_accepted_as_far_as_the_better_one() -> None:
    session = opened(KNOBS)
    answer = toys.greedy_text(toys.pair()[0].decoder, toys.PROMPT, 200)
    seen: Counter[str] = Counter()
    for _ in range(25):
        draft, text = session.drafter.propose(session.context), list(session.tokens)
        own, found = grown(text), retrieved(text)
        paths = [tuple(path_of(draft, node)) for node in range(len(draft))]
        assert len(set(paths)) == len(paths) and set(paths) == own | found
        words = {
            path: ("both" if path in own & found else "model" if path in own else "retrieval")
            for path in paths
        }
        assert draft.notes["origin"] == [words[path] for path in paths]
        seen.update(draft.notes["origin"])
        ahead = answer[len(text) - len(toys.PROMPT) :]
        step = session.step()
        assert step.accepted == max(matched(own, ahead), matched(found, ahead))
        seen["retrieval was better"] += matched(found, ahead) > matched(own, ahead)
        seen["model was better"] += matched(found, ahead) < matched(own, ahead)
    assert (
        min(seen[x] for x in ("model", "retrieval", "both", "retrieval was better", "model was better")) > 1
    ), seen


@torch.inference_mode()
def test_what_begins_as_the_draft_model_would_not_is_pruned() -> None:
    session, pruned = opened({**KNOBS, "top_k": 1}), 0
    for _ in range(15):
        draft = session.drafter.propose(session.context)
        best = int(law_after(session.tokens).argmax())
        found = [path_of(draft, x)[0] for x, word in enumerate(draft.notes["origin"]) if word != "model"]
        assert set(found) <= {best}
        pruned += draft.notes["pruned"]
        assert draft.notes["pruned"] <= sum(draft.notes["hits"])
        session.step()
    assert pruned > 5


def test_example_by_hand(tmp_path: Path) -> None:
    """The text 5 6 7 8 5 6: after 5 6 came 7 8 5 6. The file: 5 6 9 1, twice.

    Prefixes: 9 and 9 1 twice, then 7, 7 8, ... once. Five of them: 9, 9 1, 7, 7 8, 7 8 5.
    """
    file = tmp_path / "ids.txt"
    file.write_text("5 6 9 1 0 5 6 9 1")
    knobs = dict(
        datastore=str(file),
        nodes=1,
        depth=1,
        width=1,
        top_k=13,
        max_suffix=2,
        min_suffix=2,
        retrieved_depth=4,
        retrieved_nodes=5,
    )
    session = opened(knobs, [5, 6, 7, 8, 5, 6])
    draft = session.drafter.propose(session.context)
    own = int(law_after([5, 6, 7, 8, 5, 6]).argmax())
    assert [tuple(path_of(draft, x)) for x in range(len(draft)) if draft.notes["origin"][x] != "model"] == [
        *([(own,)] if own in (7, 9) else []),
        *(x for x in [(9,), (9, 1), (7,), (7, 8), (7, 8, 5)] if x != (own,)),
    ]
    assert draft.notes | {"origin": 0} == {"origin": 0, "suffix": [2, 2], "hits": [1, 2], "pruned": 0}


@pytest.mark.parametrize("kind", ["mixed", "independent", "support"])
@pytest.mark.parametrize("sampler", ["T=1", "top-p 0.8", "penalty, mirostat", "greedy"])
def test_the_text_has_the_targets_law(sampler: str, kind: str) -> None:
    drafter = RASD(nodes=3, depth=2, width=2, retrieved_nodes=3, min_suffix=1, retrieved_depth=2)
    method = Method(drafter=drafter, sampler=SAMPLERS[sampler][0])
    law = Walk(method, models(3, kind, drafter), 3).full_run_distribution()
    assert distribution_distance(law, true_law(3, sampler, 3)) <= 1e-12


def test_the_search_costs_no_pass_and_the_tree_one_a_level() -> None:
    for settings in (KNOBS, {**KNOBS, "retrieved_nodes": 0}):
        session = opened(settings)
        for _ in range(8):
            step = session.step()
            assert sum(x.lane == "draft" and x.phase == "draft" for x in step.passes) <= KNOBS["depth"] - 1
            assert step.drafted <= KNOBS["nodes"] + settings["retrieved_nodes"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            dict(max_suffix=2, min_suffix=3),
            r"rasd.min_suffix = 3: must not be above rasd.max_suffix, which is 2\.$",
        ),
        (dict(datastore="/no/such/file"), r"rasd.datastore: there is no file '/no/such/file'; .*\.$"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(settings: dict, words: str) -> None:
    with pytest.raises(MethodError, match=words):
        opened(settings)


def test_a_prompt_of_one_token_has_nothing_to_search_with() -> None:
    session = opened({**KNOBS, "datastore": "", "min_suffix": 2}, [5])
    draft = session.drafter.propose(session.context)
    assert draft.notes["hits"] == [0, 0] and set(draft.notes["origin"]) == {"model"}
    assert build("drafter", "rasd", session.drafter.knobs()).name == "rasd"
