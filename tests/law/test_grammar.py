"""A grammar masks the target's distribution place by place: counted under chain and tree drafts."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import torch
from law.cases import PROPOSALS, SAMPLERS, models, worlds

from decodescope.engine.methods.samplers.chain import chain_samplers
from decodescope.engine.methods.samplers.grammar import Grammar
from decodescope.engine.session.load import Model
from decodescope.engine.session.method import Method
from decodescope.testing.reference import text_distribution
from decodescope.testing.tables import PROMPT, Logits, Seen, memoize_logits
from decodescope.testing.walk import Text, Walk, distribution_distance

PIECES = ["a", "b", "ab", "<end>"]
END = 3
REGEX = "a(ba)*b?b"
LENGTH = 3
CASES = [
    (name, sampler)
    for turn, name in enumerate(["no draft", "chain", "chain, block", "3 chains, k-SEQ", "2 without replacement, 2 deep",
        "one-hot tree", "2 with replacement", "sequoia"])
    for sampler in (("T=1", "greedy", "penalty, mirostat"), ("T=0.7", "T=1", "penalty"))[turn % 2]
]  # fmt: skip


class Letters:
    """A tokenizer in which each id is one letter, or two."""

    marks = frozenset({END})

    def bytes_of(self, token: int) -> bytes:
        return PIECES[token].encode()

    def piece(self, token: int) -> str:
        return PIECES[token]


LETTERS = Letters()


@cache
def fits(text: str) -> tuple[bool, bool]:
    """(whether a text obeys the grammar, whether it does with at most three more letters), by trying all."""
    more = ("".join(x) for n in range(4) for x in product("ab", repeat=n))
    return re.fullmatch(REGEX, text) is not None, any(re.fullmatch(REGEX, text + x) for x in more)


def belongs(text: Text) -> bool:
    """True if tokens are a text of the grammar, or, for a cut text, the beginning of one."""
    return fits("".join(PIECES[x] for x in text if x != END))[0 if text[-1] == END else 1]


def masked(logits: Logits) -> Logits:
    """The same logits without the tokens that the grammar forbids after the text so far."""

    def look(seen: Seen) -> torch.Tensor:
        text = "".join(PIECES[token] for _, token in seen[len(PROMPT) :])
        kept = [fits(text)[0] if x == END else fits(text + piece)[1] for x, piece in enumerate(PIECES)]
        return logits(seen).masked_fill(~torch.tensor(kept), -torch.inf)

    return memoize_logits(look)


def walk(name: str, kind: str, sampler: str) -> tuple[dict[Text, float], Walk]:
    proposal, own = PROPOSALS[name], SAMPLERS[sampler][0]
    drafter = proposal.make(2)
    method = Method(
        drafter=drafter,
        acceptance=proposal.rule(),
        sampler=chain_samplers([Grammar(definition=REGEX), *own.in_order]),
    )
    given: dict[str, Model] = {
        role: replace(x, tokenizer=LETTERS)  # type: ignore[arg-type] # a substitute
        for role, x in models(len(PIECES), kind, drafter).items()
    }
    paths = Walk(method, given, LENGTH, (END,))
    return paths.text_distribution(), paths


@pytest.mark.parametrize(("name", "sampler"), CASES)
def test_the_law_is_the_targets_without_what_does_not_fit(name: str, sampler: str) -> None:
    true = text_distribution(
        masked(worlds(4, "equal")[0]), SAMPLERS[sampler][1], PROMPT, LENGTH, 4, frozenset({END})
    )
    for kind in ("mixed", "support") if name != "no draft" else ("mixed",):
        made, _ = walk(name, kind, sampler)
        assert distribution_distance(made, true) <= 1e-12
        for text, p in made.items():
            assert p == 0 or belongs(text), "a text is one of the grammar's, or begins one"


def test_the_walks_keep_and_refuse_drafts_and_the_grammar_refuses_too() -> None:
    walks = [walk(name, "mixed", "T=1")[1] for name in ("chain", "one-hot tree")]
    assert all(x.kept > 1 and x.refused > 1 for x in walks)
    free = text_distribution(worlds(4, "equal")[0], SAMPLERS["T=1"][1], PROMPT, LENGTH, 4, frozenset({END}))
    lost = [p for text, p in free.items() if not belongs(text)]
    assert sum(lost) > 0.5 and len(lost) > 20, "most of what the target would write does not fit"
