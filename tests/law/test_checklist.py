"""Twelve known faults of published speculative decoders: they bend the target's distribution or waste their drafts.

Each is planted into the shipped code, and a check must find it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import toys
from law.bugs import Bug
from law.cases import SAMPLERS, models, true_law, walked
from law.proposals import Chosen, Taught

from decodescope.engine import Session
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.record import commit_verdict
from decodescope.engine.methods.acceptance import lossless
from decodescope.engine.methods.drafters.draft_model.draft_model import DraftModel
from decodescope.engine.methods.drafters.draft_model.dyspec import DySpec
from decodescope.engine.methods.drafters.draft_model.sequoia import Sequoia
from decodescope.engine.methods.drafters.lookup import rest
from decodescope.engine.methods.drafters.lookup.token_recycling import TokenRecycling
from decodescope.engine.methods.drafters.lookup.trie import Trie
from decodescope.engine.methods.drafters.shared.model_tree import ModelTree
from decodescope.engine.methods.drafters.shared.ngrams import NgramCounts
from decodescope.engine.model.heads.drafting.hydra import HydraHeads
from decodescope.engine.model.heads.drafting.medusa import MedusaHeads
from decodescope.engine.session.method import Method
from decodescope.testing.walk import Walk, distribution_distance


def law(drafter: Drafter, sampler: str = "T=0.7", whole: bool = False) -> float:
    """The distance of a method's distribution over texts of three tokens, with three ids, from the target's."""
    walk = Walk(Method(drafter=drafter, sampler=SAMPLERS[sampler][0]), models(3, "mixed", drafter), 3)
    return distribution_distance(
        walk.full_run_distribution() if whole else walk.text_distribution(), true_law(3, sampler, 3)
    )


def in_layers() -> float:
    """The same distance for a tree of Hydra's guesses, on a transformer with real caches."""
    return walked("hydra", "independent", "top-k 2", draft=2)[0]


def rising(name: str, worth: Callable[[dict[str, Any]], list[float]], **settings: Any) -> float:
    """The number of siblings in a run's drafts that follow a sibling of lower worth, by the counts in the draft's notes."""
    count = 0
    for step in toys.decode(toys.method(drafter=(name, settings))).sink.steps:
        last: dict[int, float] = {}
        for parent, value in (
            zip(step.draft.parents, worth(step.draft.notes), strict=True) if step.drafted else ()
        ):
            count += value > last.get(parent, math.inf)
            last[parent] = value
    return float(count)


def recycled() -> float:
    """The same number for the successors that token recycling keeps after each check, by the logits of the last row read."""
    session, count = (
        Session(toys.pair()[0], toys.method(drafter=("token_recycling", {"nodes": "16"})), toys.PROMPT),
        0,
    )
    session.start()
    drafter, observe, seen = session.drafter, session.drafter.observe, []
    drafter.observe = lambda outcome: (seen.append(outcome), observe(outcome))  # type: ignore[method-assign]
    for _ in range(5):
        session.step()
        row = (seen[-1].verdict.path or [-1])[-1]
        token = seen[-1].draft.tokens[row] if row >= 0 else seen[-1].root
        kept = seen[-1].logits[row + 1][drafter._table[token]]  # best first
        count += int((kept.diff() > 0).sum())
    return float(count)


def outnumbered() -> float:
    """By how much other followers outnumber those that the n-gram counts report as the most frequent."""
    chance, counts = random.Random(1), NgramCounts(3)
    counts.extend([chance.randrange(4) for _ in range(200)])
    found = [(counts.top_follower(context), max(row.values())) for context, row in counts.counts.items()]
    return float(sum(most - best.times for best, most in found if best is not None))


def tied(net: Callable[[], torch.nn.Module]) -> float:
    """How many parameters of a net share their memory with another of its parameters."""
    places = [p.data_ptr() for _, p in net().named_parameters(remove_duplicate=False)]
    return float(len(places) - len(set(places)))


RULE, TREE = (lossless, "verify_tokenwise"), (ModelTree, "add_children")
COIN, CHILDREN = "chance.accept(f_x, q_x, at.position)", "children = draft.children(at.node)"
REFUSAL, DRAWS = "r = residual_distribution(f, draft.law(child), x)", "chance.draw_distinct(rest, width, at)"
DRAWN, RANKED = "laws = [(", "draws.sort(key=lambda x: -float(rest.law[x.token])); laws = [("
PATH = "[draft.tokens[node] for node in verdict.path]"
SHORT = " + [0] * (verdict.token == 0 and len(verdict.path) < max(draft.depth, default=0))"
TEACHES, STALE = "self.drawn(ctx, parent, law, depth)", "self.laws.__setitem__(-1, ctx.law(logits, state))"
PICKED = "sorted(sorted(value, key=lambda x: (-value[x], x))[: self.nodes])"
MEDUSA, HYDRA = "HeadLinear(d, d) for _ in range(heads * layers)", "HeadLinear(rank or n, d) for n in widths"
ORDER = "best = np.lexsort((firsts, levels, -counts))[:nodes]"

siblings, tree, chosen = (
    partial(law, x)
    for x in (DraftModel(max_draft_tokens=1, width=2), Sequoia(nodes=3, depth=2), Chosen(2, 2))
)
frequent = partial(
    rising, "rest", lambda notes: notes["counts"], datastore=toys.DATASTORE, nodes=12, min_suffix=1
)
looked_up = partial(
    rising,
    "trie",
    lambda notes: [x / 2 + y / 2 for x, y in zip(notes["f_in"], notes["f_out"], strict=True)],
    nodes=12,
    depth=4,
    output_weight=0.5,
)

# number on the list -> the bugs that break this point
POINTS: dict[int, list[Bug]] = {
    1: [
        Bug(
            "top-k tokens are judged as if they were drawn",
            *TREE,
            DRAWS,
            "[invert(torch.eye(len(rest.p))[x], 0.0) for x in rest.law.topk(width).indices.tolist()]",
            siblings,
        ),
    ],
    2: [Bug("a refused token is replaced by a draw from p", *RULE, REFUSAL, "r = p", siblings)],
    3: [
        Bug(
            "a node that several paths share is tried once for each",
            *RULE,
            COIN,
            f"max({COIN} for _ in draft.children(child) or [0])",
            chosen,
        ),
    ],
    4: [
        Bug(
            "the bonus comes from the law without temperature",
            *RULE,
            "chance.draw(r, at.position)",
            "chance.draw(r if children else torch.softmax(at.logits, -1), at.position)",
            siblings,
        ),
    ],
    5: [
        Bug(
            "the id 0 that fills a short branch counts as a match",
            commit_verdict,
            "emitted_tokens",
            PATH,
            PATH + SHORT,
            tree,
        )
    ],
    6: [
        Bug(
            "only the draft is warped",
            *RULE,
            "p = r = at.probs",
            "p = r = torch.softmax(at.logits, -1)",
            siblings,
        ),
        Bug("only the target is warped", *TREE, "(rest.law,", "(torch.softmax(logits, -1),", siblings),
    ],
    7: [
        Bug("siblings are tried in another order than drawn", *RULE, CHILDREN, f"{CHILDREN}[::-1]", siblings)
    ],
    8: [
        Bug(
            "q is that of before the drafter learned",
            Taught,
            "children",
            TEACHES,
            f"({TEACHES}, {STALE})[0]",
            partial(law, Taught(length=1), whole=True),
        ),
    ],
    9: [
        Bug(
            "rows of refused nodes stay visible",
            Lane,
            "commit",
            "self.cache.commit(rows, self._ran)",
            "self.cache.commit(range(self._feed.length))",
            in_layers,
        )
    ],
    10: [
        Bug(
            "Medusa's heads are one block",
            MedusaHeads,
            "__init__",
            MEDUSA,
            "[HeadLinear(d, d)] * heads * layers",
            partial(tied, partial(MedusaHeads, d=8, heads=3)),
        ),
        Bug(
            "Hydra's heads are one block",
            HydraHeads,
            "__init__",
            HYDRA,
            "[HeadLinear(rank, d)] * len(widths)",
            partial(tied, partial(HydraHeads, d=8, heads=3, rank=4)),
        ),
    ],
    11: [
        Bug(
            "prefixes of a datastore come rarest first",
            rest,
            "frequent_prefixes",
            ORDER,
            f"{ORDER}; best = best[np.lexsort((counts[best], levels[best]))]",
            frequent,
        ),
        Bug(
            "branches of a trie come rarest first",
            Trie,
            "_best_nodes",
            "(-score, depth, next(turn)",
            "(score, depth, next(turn)",
            looked_up,
        ),
        Bug(
            "recycled successors come worst first",
            TokenRecycling,
            "observe",
            "-1).indices",
            "-1).indices.flip(-1)",
            recycled,
        ),
        Bug(
            "the rarest follower is proposed",
            NgramCounts,
            "extend",
            "seen[token] >= ",
            "seen[token] <= ",
            outnumbered,
        ),
    ],
    12: [
        Bug(
            "a drawn node is dropped for what it turned out to be",
            DySpec,
            "propose",
            PICKED,
            "sorted(x for x in value if gain[x] > 0.3 * value[x])",
            partial(law, DySpec(nodes=2, depth=1)),
        ),
        Bug("drawn siblings are ranked anew by their probability", *TREE, DRAWN, RANKED, siblings),
    ],
}


@pytest.mark.parametrize(
    ("point", "bug"),
    [(point, bug) for point, bugs in POINTS.items() for bug in bugs],
    ids=lambda x: x if isinstance(x, int) else x.what,
)
def test_point_is_found_when_the_shipped_code_does_it(
    point: int, bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not bug.seen(monkeypatch) <= 1e-6, f"point {point} is not found: {bug.what}"


def test_all_twelve_points_are_there() -> None:
    assert list(POINTS) == list(range(1, 13)) and all(POINTS.values())


@pytest.mark.parametrize("kind", toys.SPEC.heads)
def test_point_10_no_two_layers_of_draft_heads_share_their_weights(kind: str) -> None:
    assert tied(lambda: toys.decoder().heads[kind]) == 0


@pytest.mark.parametrize(("name", "settings"), toys.representatives("drafter"))
def test_point_8_no_drafter_changes_a_net_that_runs_share(name: str, settings: dict[str, Any]) -> None:
    """A drafter that learns online makes a copy in `begin`. Its q comes from what it knew when it drew (see Taught)."""
    nets = [*toys.pair()[0].decoder.heads.values(), *toys.pair()[1].decoder.heads.values()]
    before = [[p.clone() for p in net.parameters()] for net in nets]
    toys.decode(toys.method(drafter=(name, settings), sampler="temperature"), count=8)
    after = [[*net.parameters()] for net in nets]
    assert all(
        torch.equal(a, b)
        for new, old in zip(after, before, strict=True)
        for a, b in zip(new, old, strict=True)
    )
