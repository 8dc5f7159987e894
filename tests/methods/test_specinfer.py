"""SpecInfer: trees of several models, merged if nothing was drawn, side by side if something was, judged exactly."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import toys
from drafting import path_of
from law.cases import SAMPLERS, models, true_law, worlds
from law.verdicts import rows
from sizes import thinned

from decodescope.app.runs.run_service import RunChoice, RunService
from decodescope.engine import Session
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.decoding.bases.acceptance import Cursor
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.methods.acceptance.lossless import Lossless
from decodescope.engine.methods.drafters.draft_model.specinfer import SpecInfer
from decodescope.engine.methods.drafters.shared.union import merge_trees
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.method import Method
from decodescope.testing.chances import outcomes
from decodescope.testing.tables import KINDS, table_model
from decodescope.testing.walk import Walk, distribution_distance

Tree = tuple[list[int], list[int]]
WARPS = ["T=1", "T=1.5, top-p 0.8", "penalty, mirostat", "greedy"]


def trees(count: int, seed: int) -> list[Tree]:
    """Random trees over three tokens, with equal siblings among them."""
    dice = random.Random(seed)
    sizes = [dice.randint(0, 9) for _ in range(count)]
    return [
        ([dice.randrange(3) for _ in range(n)], [dice.randrange(ROOT, i) for i in range(n)]) for n in sizes
    ]


def paths(tree: Tree) -> list[tuple[int, ...]]:
    return [tuple(path_of(Draft(*tree), node)) for node in range(len(tree[0]))]


@pytest.mark.parametrize("seed", range(40))
def test_the_union_has_the_paths_of_all_and_each_once(seed: int) -> None:
    parts = trees(3, seed)
    tokens, parents, places = merge_trees(parts)
    made = paths((tokens, parents))
    assert len(made) == len(set(made)) and set(made) == {x for part in parts for x in paths(part)}
    assert all(parent < node for node, parent in enumerate(parents))
    assert [[made[node] for node in at] for at in places] == [paths(part) for part in parts]


@pytest.mark.parametrize("seed", range(40))
def test_the_union_is_associative(seed: int) -> None:
    a, b, c = trees(3, seed)
    assert (
        merge_trees([merge_trees([a, b])[:2], c])[:2]
        == merge_trees([a, merge_trees([b, c])[:2]])[:2]
        == merge_trees([a, b, c])[:2]
    )


def test_union_by_hand() -> None:
    """5 6 and 5 7, merged with 5 7 8 and 9: 5 and 5 7 are shared."""
    tokens, parents, places = merge_trees([([5, 6, 7], [-1, 0, 0]), ([5, 7, 8, 9], [-1, 0, 1, -1])])
    assert (tokens, parents, places) == ([5, 6, 7, 8, 9], [-1, 0, 0, 2, -1], [[0, 1, 2], [0, 2, 3, 4]])


def walk(drafter: SpecInfer, kind: str, sampler: str, vocab: int, rule: Lossless | None = None) -> Walk:
    method = Method(drafter=drafter, acceptance=rule or Lossless(), sampler=SAMPLERS[sampler][0])
    return Walk(method, models(vocab, kind, drafter), 3)


@pytest.mark.parametrize(
    "kind, sampler, shape", thinned(3, KINDS, WARPS, [(2, "2"), (3, "1"), (2, "1,1"), (1, "2,1")])
)
def test_the_text_has_the_targets_law_whatever_the_models(
    kind: str, sampler: str, shape: tuple[int, str]
) -> None:
    count, branching = shape
    law = walk(SpecInfer(models=count, branching=branching), kind, sampler, 3).text_distribution()
    assert distribution_distance(law, true_law(3, sampler, 3)) <= 1e-12


class Merging(SpecInfer):
    """A forbidden variant: a token that two models drew becomes one node, with the first one's distribution."""

    def propose(self, ctx: Context) -> Draft:
        made = super().propose(ctx)
        # one level: all are siblings
        keep = [i for i in range(len(made)) if made.tokens[i] not in made.tokens[:i]]
        q_row = [made.q_row[i] for i in keep]
        return replace(
            made,
            tokens=[made.tokens[i] for i in keep],
            parents=[ROOT] * len(keep),
            q_row=q_row,
            u=None,
            notes=None,
        )


def test_merging_what_was_drawn_would_bend_the_law() -> None:
    """This shows that the test above can fail."""
    for kind in ("mixed", "independent"):
        law = walk(Merging(models=2, branching="1"), kind, "T=1", 3).text_distribution()
        assert distribution_distance(law, true_law(3, "T=1", 3)) > 1e-6


def test_two_models_by_hand() -> None:
    """p = (.5, .3, .2); model 1 drew 2 from (.2, .2, .6), and model 2 drew 0 from (.5, .1, .4).

    2 is kept in 1/3. Otherwise the residual is (.3, .1, 0) / .4, in which 0 has .75 against .5: always kept.
    """
    p = rows([0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1])
    q = rows([0.2, 0.2, 0.6], [0.5, 0.1, 0.4])
    draft = Draft([2, 0], [-1, -1], "mixed", q, [0, 1], [None, None])
    at = Cursor(draft, p.log(), [0, 2, 1], Temperature(temperature=1.0), None, 0)
    law: dict[tuple[int, ...], float] = {}
    for weight, verdict in outcomes(lambda chance: Lossless().verify(draft, at, chance)):
        law[tuple(verdict.path)] = law.get(tuple(verdict.path), 0.0) + weight
    assert law == pytest.approx({(0,): 1 / 3, (1,): 2 / 3})


def test_more_draws_are_accepted_at_least_as_often() -> None:
    for kind in ("mixed", "independent"):
        shares = []
        for branching in ("1", "2", "3"):
            rounds = walk(SpecInfer(branching=branching), kind, "T=1", 4).step_outcomes()
            shares.append(sum(weight * move.accepted_count for weight, move in rounds))
        assert all(a < b for a, b in pairwise(shares))


def session(settings: dict, sampler: str = "temperature", count: int = 60) -> Session:
    parts = toys.method(drafter=("specinfer", settings), sampler=sampler)
    made = Session(
        toys.pair()[0], parts, toys.PROMPT, models=toys.helper_models(), max_new_tokens=count, seed=2
    )
    made.start()
    return made


@torch.inference_mode()
def after(role: str, text: list[int]) -> torch.Tensor:
    """Logits float64 [V] of the model in `role`, which reads the text without a cache."""
    read = toys.pair()[0] if role == "target" else toys.helper_models()[role]
    return read.decoder.forward(Feed.causal_chain(text, 0), None)[0, -1]


def test_each_node_is_drawn_after_its_own_path_by_its_own_model() -> None:
    run, twice = session(dict(models=3, branching="2,1")), 0
    for _ in range(6):
        draft = run.drafter.propose(run.context)
        assert draft.kind == "mixed" and len(draft) == 12
        roles = [f"draft{n if n > 1 else ''}" for n in draft.notes["drawn_by"]]
        for node, parent in enumerate(draft.parents):
            due = after(roles[node], [*run.tokens, *path_of(draft, parent)]).softmax(-1)
            assert torch.allclose(draft.law(node), due, atol=1e-9)
            same = {
                n for x, n in enumerate(draft.notes["drawn_by"]) if path_of(draft, x) == path_of(draft, node)
            }
            assert draft.notes["models"][node] == sorted(same)
        assert draft.notes["merged"] == 12 - len({tuple(path_of(draft, x)) for x in range(12)})
        twice += draft.notes["merged"]
        run.step()
    assert twice > 3, "the test needs paths that were proposed twice"


def test_under_a_greedy_sampler_the_draft_is_the_union_of_the_likeliest_trees() -> None:
    run, shared = session(dict(models=2, branching="2,2"), "greedy"), 0
    for _ in range(6):
        draft = run.drafter.propose(run.context)
        due = {}
        for number, role in enumerate(("draft", "draft2"), 1):
            for x in after(role, run.tokens).topk(2).indices.tolist():
                for path in [(x,), *((x, y) for y in after(role, [*run.tokens, x]).topk(2).indices.tolist())]:
                    due.setdefault(path, []).append(number)
        got = {tuple(path_of(draft, node)): who for node, who in enumerate(draft.notes["models"])}
        assert got == due and len(draft) == len(due) and draft.q is None
        assert draft.notes["merged"] == 12 - len(due)
        shared += draft.notes["merged"]
        run.step()
    assert shared > 3


def test_one_pass_over_the_trees_says_what_single_texts_say() -> None:
    run = session(dict(models=3, branching="2,1"))
    for _ in range(4):
        move = run.method.strategy.step(run)
        before = run.tokens[: len(run.tokens) - len(move.emitted)]
        for node in range(-1, len(move.draft)):
            due = after("target", [*before, *path_of(move.draft, node)])
            assert torch.allclose(move.logits[node + 1], due, atol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_level_costs_one_pass_of_each_model(count: int) -> None:
    run = toys.decode(toys.method(drafter=("specinfer", dict(models=count, branching="1,2,1"))), count=30)
    roles = ["draft", "draft2", "draft3"][:count]
    for step in run.sink.steps[:-4]:
        assert [x.lane for x in step.passes if x.phase == "draft"] == [
            role for role in reversed(roles) for _ in range(2)
        ]
    assert list(run.header.lanes) == roles


def test_a_draft_that_holds_the_targets_own_model_is_accepted_whole() -> None:
    """The second model is the target: under greedy its path is always among the merged ones."""
    big, small = toys.pair()
    method = toys.method(drafter=("specinfer", dict(models=2, branching="1,1,1")))
    run = Session(big, method, toys.PROMPT, models={"draft": small, "draft2": big}, max_new_tokens=40)
    assert [step.accepted for step in run.stream()] == [3] * 10
    assert run.end.tokens == toys.greedy_text(big.decoder, toys.PROMPT, 40)


@pytest.mark.parametrize(
    ("settings", "more", "words"),
    [
        (dict(models=2), {}, r"specinfer needs a model in the role 'draft2': give --draft2 NAME .*\.$"),
        (
            dict(models=3, branching="4,3,3"),
            {},
            r"specinfer.branching = '4,3,3' makes 156 nodes; 128 are the limit",
        ),
        (dict(branching="2,x"), {}, r"^specinfer\.branching, item 2 = 'x': must be a whole number\.$"),
        (
            dict(models=2),
            {"acceptance": "spectr"},
            r"spectr is exact for drafts that are iid; those of specinfer are mixed\.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(settings: dict, more: dict, words: str) -> None:
    given = {"draft": toys.pair()[1], **({"draft2": toys.pair()[1]} if more else {})}
    with pytest.raises(Refusal, match=words):
        method = toys.method(drafter=("specinfer", settings), sampler="temperature", **more)
        Session(toys.pair()[0], method, toys.PROMPT, models=given)


def test_the_page_which_has_one_draft_model_says_where_there_are_more(tmp_path: Path) -> None:
    play = RunService("lab", "lab-draft", tmp_path)
    assert not play.check(RunChoice("x", {"drafter": "specinfer"}, {"drafter": {"models": 1}}))
    said = play.check(RunChoice("x", {"drafter": "specinfer"}, {"drafter": {"models": 3}}))
    what = "SpecInfer (several draft models), as set, needs 3 draft models and the page has 1: "
    assert said.startswith(f"{what}choose more under Draft model,")


def test_one_model_and_k_seq_go_together() -> None:
    """spectr requires siblings of one distribution; copies of an accepted token pool their children."""
    target, draft = worlds(3, "independent")
    method = Method.from_names(
        {"drafter": "specinfer", "acceptance": "spectr"}, {"drafter": {"branching": "2,1"}}
    )
    method.sampler = SAMPLERS["T=1"][0]
    law = Walk(
        method, {"target": table_model(target, 3), "draft": table_model(draft, 3)}, 3
    ).text_distribution()
    assert distribution_distance(law, true_law(3, "T=1", 3)) <= 1e-12
