"""Seventeen known faults, each planted into one line of the shipped code: the suite must find every one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import toys
from law.bugs import Bug
from law.cases import SAMPLERS, true_law, worlds
from law.verdicts import judge

from decodescope.engine.decoding.bases import acceptance as base
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.decoding.bases.state import StoppingCriteria
from decodescope.engine.decoding.values.chance import Chance
from decodescope.engine.methods.acceptance import lossless
from decodescope.engine.methods.acceptance.lossless import Lossless
from decodescope.engine.methods.drafters.draft_model.draft_model import DraftModel
from decodescope.engine.methods.drafters.shared.model_tree import ModelTree
from decodescope.engine.methods.samplers.temperature import Temperature
from decodescope.engine.methods.strategies.draft_verify import DraftVerify
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.session.method import Method
from decodescope.engine.session.replay.exact_distribution import EnumeratedChance
from decodescope.testing.chances import lattice_chance, outcomes
from decodescope.testing.reference import text_distribution
from decodescope.testing.tables import PROMPT, constant_logits, table_model
from decodescope.testing.transformer import SPEC, logits_by_prefix
from decodescope.testing.walk import Text, Walk, distribution_distance

V, LENGTH = 4, 3
found: dict[str, bool] = {}


def in_table(sampler: str = "T=1", stop: Text = (), kind: str = "mixed") -> float:
    """Chains of two over the tables."""
    target, draft = worlds(V, kind)
    method = Method(drafter=DraftModel(max_draft_tokens=2), sampler=SAMPLERS[sampler][0])
    walk = Walk(method, {"target": table_model(target, V), "draft": table_model(draft, V)}, LENGTH, stop)
    return distribution_distance(walk.text_distribution(), true_law(V, sampler, LENGTH, stop))


def in_transformer(vocab: int = 3, padding: int = 0) -> float:
    """Chains of two on a tiny transformer with real caches, whole runs. padding: rows of its matrix that are no ids."""
    whole = toys.decoder(replace(SPEC, vocab=vocab + padding), dtype=torch.float64)
    target, draft = toys.model(whole), toys.model(toys.noisy_decoder(whole, 0.6).limit_vocab(vocab))
    method = Method(drafter=DraftModel(max_draft_tokens=2), sampler=Temperature(temperature=1.0))
    walk = Walk(method, {"target": target, "draft": draft}, LENGTH)
    logits = logits_by_prefix(whole)
    true = text_distribution(lambda seen: logits(seen)[:vocab], SAMPLERS["T=1"][1], PROMPT, LENGTH, vocab)
    return distribution_distance(walk.full_run_distribution(), true)


def in_script() -> float:
    """Chains of one under every combination of six scripted uniforms; all thresholds are multiples of 1 / 6."""
    target, draft = constant_logits(3 / 6, 2 / 6, 1 / 6), constant_logits(2 / 6, 1 / 6, 3 / 6)
    method = Method(drafter=DraftModel(max_draft_tokens=1), sampler=Temperature(temperature=1.0))
    points = lattice_chance([(i + 0.5) / 6 for i in range(6)])
    walk = Walk(method, {"target": table_model(target, 3), "draft": table_model(draft, 3)}, 2, chance=points)
    return distribution_distance(
        walk.text_distribution(), text_distribution(target, SAMPLERS["T=1"][1], PROMPT, 2, 3)
    )


def at_zero() -> float:
    """A drafted token that the target never writes, tested with the uniform 0. Returns 1 if it is accepted."""
    p, q = torch.tensor([[0.0, 0.6, 0.4], [0.2, 0.4, 0.4]]).double(), torch.tensor([[0.9, 0.1, 0.0]]).double()
    return float(
        any(
            v.path
            for _, v in outcomes(lambda chance: judge(Lossless(), p, q, [0], chance), lattice_chance([0.0]))
        )
    )


def at_equal_laws() -> float:
    """A refusal that only rounding made possible: the distribution of the token after it must sum to 1. Returns the error."""
    p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], dtype=torch.float64)
    p[0] = p[0].log().softmax(-1)
    q = p[:1].clone()
    q[0, 1] = q[0, 1] * (1 + 2.0**-51)
    return abs(
        sum(w for w, _ in outcomes(lambda chance: judge(Lossless(), p, q, [1], chance), EnumeratedChance)) - 1
    )


def with_stop() -> float:
    """The tables, with an id that ends the text."""
    return in_table(stop=(1,))


def with_padding() -> float:
    """The transformer with a matrix two rows larger than its vocabulary."""
    return in_transformer(padding=2)


RULE = (lossless, "verify_tokenwise")
REFUSAL, LAST = "r = residual_distribution(f, draft.law(child), x)", "drawn = chance.draw(r, at.position)"
COIN = "chance.accept(f_x, q_x, at.position)"
DRAFTED, NEXT = "(r if children or not path else draft.law(path[-1]),", "(at.descend(child).probs,"
DRAWN = (ModelTree, "grow")
NODE, RAW = "(law, [])", "(torch.softmax(logits, -1), [])"
FED = "draft.build_feed(root, position - 1,"
BUGS = [
    Bug("a refused token is drawn again from p", *RULE, REFUSAL, "r = p", in_table),
    Bug("only the refused id is banned", *RULE, REFUSAL, "r = residual_distribution(f, None, x)", in_table),
    Bug("the bonus comes from the draft", *RULE, LAST, LAST.replace("(r,", DRAFTED), in_table),
    Bug("the residual is that of the next position", *RULE, REFUSAL, REFUSAL.replace("(f,", NEXT), in_table),
    Bug("acceptance by argmax while sampling", *RULE, COIN, "(x == int(p.argmax()), 0.0)", in_table),
    Bug("q ** 1.1 is drawn, q recorded", *DRAWN, "chance.draw(law,", "chance.draw(law**1.1,", in_table),
    Bug("acceptance x 1.02", *RULE, COIN, COIN.replace("f_x,", "f_x * 1.02,"), in_table),
    Bug("acceptance x 1.05", *RULE, COIN, COIN.replace("f_x,", "f_x * 1.05,"), in_table),
    Bug("the recorded q has no temperature", *DRAWN, NODE, RAW, lambda: in_table("T=0.7")),
    Bug("the recorded q has no top-p", *DRAWN, NODE, RAW, lambda: in_table("top-p 0.8")),
    Bug(
        "one uniform is used twice",
        *RULE,
        LAST,
        f"drawn = invert(r, u) if children else {LAST[8:]}",
        in_script,
    ),
    Bug(
        "refused rows stay in the cache",
        Lane,
        "commit",
        "commit(rows,",
        "commit(range(self._feed.length),",
        in_transformer,
    ),
    Bug(
        "positions are off by one later",
        DraftVerify,
        "step",
        FED,
        FED.replace("1", "(position == s.prompt)"),
        in_transformer,
    ),
    Bug(
        "<= at acceptance probability 0",
        Chance,
        "accept",
        "ratio_den < ratio_num",
        "ratio_den <= ratio_num",
        at_zero,
    ),
    Bug(
        "residual 0 / 0 where p = q",
        base,
        "residual_distribution",
        "if float(total) > 0 else r / r.sum()",
        "",
        at_equal_laws,
    ),
    Bug(
        "padding rows stay in the softmax",
        Decoder,
        "limit_vocab",
        "vocab >= self.vocab",
        "True",
        with_padding,
    ),
    Bug(
        "a stop id inside accepted drafts is ignored",
        StoppingCriteria,
        "find_stop",
        "enumerate(new)",
        "[*enumerate(new)][-1:]",
        with_stop,
    ),
]


@pytest.fixture(scope="module", autouse=True)
def report(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print how many bugs were found."""
    yield
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nseeded bugs: {len(found)}, found: {sum(found.values())}")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_the_suite_finds(bug, monkeypatch):
    difference = bug.seen(monkeypatch)
    found[bug.what] = not difference <= 1e-6
    print(f"{bug.what}: the law is off by {difference:.2g}")
    assert found[bug.what], f"not found: {bug.what}"


def test_seventeen_bugs_are_seeded():
    assert len({bug.what for bug in BUGS}) == 17
