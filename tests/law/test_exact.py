"""The distribution of every lossless method equals the target's: all paths of the shipped step, counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from law.cases import PROPOSALS, SAMPLERS, true_law, walked, worlds
from sizes import by_turns, sizes

from decodescope.testing.reference import Warp, text_distribution
from decodescope.testing.tables import PROMPT

EXACT = 1e-12
# A commit tests every fourth combination with a sampler, and every sixth on a transformer, where walks take longer.
CROSSINGS = [
    (name, sampler)
    for i, name in enumerate(PROPOSALS)
    for j, sampler in enumerate(SAMPLERS)
    if (i + j) % (4 if PROPOSALS[name].on == "tables" else 6) == 0
]


@pytest.fixture
def agree(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Compare two distributions; the test output ends with the largest difference of each proposal."""

    def compare(name: str, kind: str, sampler: str, **sizes) -> None:
        difference, _ = walked(name, kind, sampler, **sizes)
        record_property(
            "largest", [f"difference of laws, {PROPOSALS[name].rule.__name__.lower()} on {name}", difference]
        )
        assert difference <= EXACT, (
            f"{name}, {kind} draft, {sampler}, {sizes}: the law is off by {difference:.3g}"
        )

    return compare


def kinds_for(name: str, sampler: str) -> tuple[str, ...]:
    """Two of the five draft tables, a different pair for every combination; without tables, one of the proposal's kinds."""
    kinds, turn = PROPOSALS[name].kinds, list(PROPOSALS).index(name) + list(SAMPLERS).index(sampler)
    return (kinds[turn % 5], kinds[(turn + 2) % 5]) if len(kinds) == 5 else (kinds[turn // 4 % len(kinds)],)


@pytest.mark.parametrize(("name", "sampler"), by_turns(2, CROSSINGS))
@sizes("tables", usual=1, full=2)
def test_a_lossless_method_has_the_targets_law(name, sampler, tables, agree):
    for kind in kinds_for(name, sampler)[:tables]:
        agree(name, kind, sampler, draft=2)


@pytest.mark.parametrize("name", [name for name in PROPOSALS if name != "no draft"])
def test_the_walks_keep_drafts_and_refuse_drafts(name):
    """Otherwise a distribution would be right without the rule."""
    kinds = [kind for kind in PROPOSALS[name].kinds if kind in ("mixed", "independent")]
    walks = [walked(name, kind, "top-k 2", draft=2)[1] for kind in kinds]
    assert sum(walk.kept for walk in walks) > 1 and sum(walk.refused for walk in walks) > 1


@pytest.mark.nightly
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", PROPOSALS)
def test_a_lossless_method_has_the_targets_law_under_every_draft(name, sampler, agree):
    for kind in PROPOSALS[name].kinds:
        agree(name, kind, sampler, draft=2)


@pytest.mark.parametrize("draft", [1, 5])
@pytest.mark.parametrize("name", [name for name, x in PROPOSALS.items() if x.chain])
def test_the_draft_may_be_of_any_length(name, draft, agree):
    for kind in ("mixed", "support"):
        agree(name, kind, "T=0.7", draft=draft)


@pytest.mark.parametrize("name", PROPOSALS)
@sizes("most", usual=1, full=2)
def test_a_stop_token_ends_the_text_and_no_law_changes(name, most, agree):
    for kind in [kind for kind in PROPOSALS[name].kinds if kind in ("mixed", "support", "independent")][
        :most
    ]:
        agree(name, kind, "T=1.5" if PROPOSALS[name].on == "tables" else "top-k 2", draft=2, stop=(1,))


@pytest.mark.parametrize(
    "name",
    [
        "chain",
        "chain, block",
        "layer skip",
        "2 without replacement",
        "one-hot tree",
        "mixed",
        "sequoia",
        "dyspec",
        "rsd_s",
    ],
)
def test_whole_runs_have_the_law_of_their_rounds(name, agree):
    """Nothing is reset between two steps: caches and the sampler's state continue as the last step left them."""
    agree(name, "mixed", "penalty, mirostat", draft=2, length=3, vocab=3, whole=True)


@pytest.mark.nightly
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("draft", [1, 2, 3, 5])
@pytest.mark.parametrize("name", [name for name, x in PROPOSALS.items() if x.chain])
def test_chains_of_every_length_on_longer_texts(name, draft, sampler, agree):
    for kind in PROPOSALS[name].kinds:
        agree(name, kind, sampler, draft=draft, length=4, stop=(1,) if draft == 5 else ())


@pytest.mark.nightly
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", [name for name, x in PROPOSALS.items() if not x.chain and x.on == "tables"])
def test_trees_over_four_ids(name, sampler, agree):
    for kind in PROPOSALS[name].kinds:
        agree(name, kind, sampler, draft=2, length=3, vocab=4)


@pytest.mark.nightly
@pytest.mark.parametrize("sampler", ["T=1", "top-p 0.8"])
@pytest.mark.parametrize(
    "name", ["chain", "chain, block", "2 without replacement", "2 with replacement", "mixed"]
)
def test_781_texts_over_six_ids_with_a_stop(name, sampler, agree):
    for kind in PROPOSALS[name].kinds:
        agree(name, kind, sampler, draft=3, length=4, vocab=6, stop=(5,))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_laws_compared_are_no_trivial_ones(sampler):
    """Enough texts are possible, and samplers with a memory need it: forgetting would change the distribution."""
    law, (_, warp) = true_law(4, sampler, 3), SAMPLERS[sampler]
    assert sum(p > 0 for p in law.values()) >= 8 or sampler == "greedy"
    if warp.mirostat is not None:
        still = Warp(warp.stages, (warp.mirostat[0], 0.0))
        forgets = text_distribution(worlds(4, "equal")[0], still, PROMPT, 3, 4)
        assert sum(abs(law[x] - forgets[x]) for x in law) / 2 > 0.01
