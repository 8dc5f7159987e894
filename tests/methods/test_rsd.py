"""RSD: children in the order of Gumbel-top-k, beams that are sequences drawn without replacement, and exact checks."""

from __future__ import annotations

import math
from itertools import permutations, product

import pytest
import torch
import toys
from sizes import sizes

from decodescope.engine import Session
from decodescope.engine.core.component import parse_component
from decodescope.engine.core.params import ParamError
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.decoding.values.draft import ROOT, Draft
from decodescope.engine.methods.drafters.draft_model.draft_model import DraftModel
from decodescope.engine.methods.drafters.draft_model.rsd_c import RSDC
from decodescope.engine.methods.drafters.draft_model.rsd_s import RSDS, draw_gumbel_below
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.session.method import Method
from decodescope.testing.chances import outcomes
from decodescope.testing.tables import PROMPT, constant_logits, logit_table, table_model


def started(drafter: Drafter, made, room: int = 3) -> Session:
    method = Method(drafter=drafter, sampler=Temperature(temperature=1.0))
    session = Session(made, method, PROMPT, models={"draft": made}, max_new_tokens=room + 1)
    session.start()
    return session


@torch.inference_mode()
def proposal(session: Session, chance: Chance) -> Draft:
    session.chance = chance
    return session.drafter.propose(session.context)


def paths(draft: Draft, level: int) -> list[tuple[int, ...]]:
    """The sequences of a level."""
    made: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        made.append((token,) if parent == ROOT else (*made[parent], token))
    return [path for path in made if len(path) == level]


def test_rsd_c_children_are_as_likely_as_with_gumbel_top_k() -> None:
    """P(the 2 largest of log q + Gumbel are x, y in this order) = q(x) q(y) / (1 - q(x)): an exponential race."""
    q = (0.5, 0.3, 0.15, 0.05)
    session = started(RSDC(branching="2"), table_model(constant_logits(*q), 4))
    found = outcomes(lambda chance: tuple(proposal(session, chance).tokens))
    assert {pair: weight for weight, pair in found} == pytest.approx(
        {(x, y): q[x] * q[y] / (1 - q[x]) for x, y in permutations(range(4), 2)}
    )


def test_rsd_c_by_hand() -> None:
    """3, 2, 1: three children of the root, two of each of them, one of each of those, each level one pass."""
    session = toys.decode(toys.method(drafter=("rsd_c", {"branching": "3,2,1"})), count=40)
    for step in session.sink.steps[:-4]:
        assert step.draft.parents == [-1, -1, -1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8]
        assert [p.tokens for p in step.passes if p.phase == "draft"] == [3, 6]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("3,,1", "rsd_c.branching, item 2 = '': must be a whole number"),
        ("", "has 0 items: must have 1 to 128, such as 3,2,1,1"),
        ("2,0", "item 2 = 0: must lie in .1, 128. children"),
        ("8,8,8", "'8,8,8' makes 584 nodes"),
    ],
)
def test_rsd_c_says_what_is_wrong_with_its_branching(text: str, says: str) -> None:
    target, draft = toys.pair()
    with pytest.raises(Refusal, match=rf"{says}.*\.$"):
        Session(
            target, toys.method(drafter=("rsd_c", {"branching": text})), toys.PROMPT, models={"draft": draft}
        )


@pytest.mark.parametrize("made", [RSDC(branching="1,1,1"), RSDS(width=1, depth=3)])
def test_without_branches_it_is_a_draft_model_chain(made: Drafter) -> None:
    assert not made.branches and made.proposes == "iid"
    base, other = toys.pair()
    texts = []
    for drafter in (DraftModel(max_draft_tokens=3), made):
        method = Method(drafter=drafter, sampler=Temperature(temperature=1.0))
        texts.append(Session(base, method, toys.PROMPT, models={"draft": other}, max_new_tokens=60, seed=2))
        for _ in texts[-1].stream():
            pass
    assert texts[0].tokens == texts[1].tokens


@sizes("runs", usual=2000, full=6000)
def test_rsd_s_levels_are_sequences_drawn_without_replacement(runs: int) -> None:
    """Of 9 sequences of 2 tokens, 2 are drawn without replacement: how often each is among them, and how often first."""
    logits = logit_table(3, seed=5, scale=1.0)
    session = started(RSDS(width=2, depth=2), table_model(logits, 3))
    start = tuple(enumerate(PROMPT))
    law = {}
    for x, y in product(range(3), repeat=2):
        after = (*start, (3, x))
        law[x, y] = float(logits(start).softmax(-1)[x] * logits(after).softmax(-1)[y])
    included = dict.fromkeys(law, 0)
    first = dict.fromkeys(law, 0)
    for seed in range(runs):
        found = paths(proposal(session, Chance(seed)), 2)
        first[found[0]] += 1
        for path in found:
            included[path] += 1
    assert sum(included.values()) == 2 * runs
    for path, p in law.items():
        due = p + sum(q * p / (1 - q) for other, q in law.items() if other != path)
        assert abs(included[path] / runs - due) < 4 * math.sqrt(due * (1 - due) / runs), path
        assert abs(first[path] / runs - p) < 4 * math.sqrt(p * (1 - p) / runs), path


def test_rsd_s_scores_fall_and_a_first_child_keeps_its_parents() -> None:
    session = started(RSDS(width=4, depth=3), table_model(logit_table(6, seed=2), 6))
    for seed in range(40):
        draft = proposal(session, Chance(seed))
        scores, phi = draft.notes["scores"], draft.notes["phi"]
        for level in (1, 2, 3):
            nodes = [x for x in range(len(draft)) if draft.depth[x] == level]
            assert len(nodes) == 4
            assert [scores[x] for x in nodes] == sorted((scores[x] for x in nodes), reverse=True)
        for place in range(ROOT, len(draft)):
            for child in draft.children(place)[:1]:
                assert scores[child] == (0.0 if place == ROOT else scores[place])
        for node, parent in enumerate(draft.parents):
            above = 0.0 if parent == ROOT else phi[parent]
            whole = draft.law(draft.children(parent)[0])  # before any sibling was drawn
            assert phi[node] == pytest.approx(above + math.log(float(whole[draft.tokens[node]])), abs=2e-4)


class At(Chance):
    """Always the same uniform."""

    def __init__(self, u: float):
        super().__init__(0)
        self.u = u

    def uniform(self, position, purpose):
        return self.u


@pytest.mark.parametrize("location", [-1000.0, -3.0, 0.0, 2.0, 1000.0])
def test_lower_is_the_quantile_of_a_cut_gumbel(location: float) -> None:
    """P(G < g | G < bound) = exp(exp(location - bound) - exp(location - g)); the remaining noise is 1 - u."""
    bound = 0.5
    for u in (0.0, 0.1, 0.5, 0.999):
        g = draw_gumbel_below(location, bound, At(u), 0)
        assert g <= bound and math.isfinite(g)
        if abs(location) < 10:
            assert math.exp(math.exp(location - bound) - math.exp(location - g)) == pytest.approx(1 - u)


def test_rsd_s_under_a_greedy_sampler_is_beam_search() -> None:
    """Width 3, 2 levels of a table: the 3 likeliest tokens, then the 3 likeliest continuations of any of them."""
    logits = logit_table(5, seed=9)
    made = table_model(logits, 5)
    session = Session(
        made, Method(drafter=RSDS(width=3, depth=2)), PROMPT, models={"draft": made}, max_new_tokens=6
    )
    session.start()
    draft = proposal(session, Chance(0))
    start = tuple(enumerate(PROMPT))
    one = logits(start).log_softmax(-1)
    beams = one.topk(3).indices.tolist()
    two = {
        (x, y): float(one[x] + logits((*start, (3, x))).log_softmax(-1)[y]) for x in beams for y in range(5)
    }
    assert paths(draft, 1) == [(x,) for x in beams]
    assert paths(draft, 2) == sorted(two, key=lambda path: -two[path])[:3]
    assert draft.q is None


def test_a_list_is_read_where_a_part_is_written_as_text() -> None:
    for text in ("rsd_c branching=3,2,1", "rsd_c, branching=3 2 1", "rsd_c branching=3, 2, 1"):
        assert parse_component("drafter", text, "here") == RSDC(branching=(3, 2, 1))
    with pytest.raises(ParamError, match=r"here = 'rsd_c 3,2': write '3' as knob=value, after the name\.$"):
        parse_component("drafter", "rsd_c 3,2", "here")
