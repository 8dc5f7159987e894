"""LLMA: the end of the answer is found in the reference, and the tokens after it there are proposed."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch
import toys

from decodescope.engine import Method, MethodError, ParamError, Session, load
from decodescope.engine.core.component import build
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.methods.drafters.lookup.llma import LONGEST
from decodescope.testing import tables


def context(text: list[int], prompt: int, room: int = 99) -> Context:
    return Context(text, None, {}, None, None, None, room, prompt)  # type: ignore[arg-type] # only the text is used


def test_a_draft_by_hand() -> None:
    """Reference 1 2 3 4 2 3 5; answer 8 2 3. The longest match is 2 3, first at 1..2, and 4 2 3 5 follows."""
    prompt = [1, 2, 3, 4, 2, 3, 5]
    drafter = build("drafter", "llma", dict(max_draft_tokens=3))
    drafter.begin(context(prompt, 7))
    assert not drafter.propose(context(prompt, 7)).tokens, "there is no answer yet to be matched"
    draft = drafter.propose(context([*prompt, 8, 2, 3], 7))
    places = {"document": "prompt", "offset": 3, "ngram": 2, "matches": 2, "copied": [3, 4, 5]}
    assert draft.tokens == [4, 2, 3] and draft.notes == places
    assert drafter.propose(context([*prompt, 8, 3], 7)).tokens == [4, 2, 3]
    assert not drafter.propose(context([*prompt, 5], 7)).tokens, "nothing follows the reference's last token"
    drafter = build("drafter", "llma", dict(max_draft_tokens=3, min_ngram=2))
    drafter.begin(context(prompt, 7))
    assert not drafter.propose(context([*prompt, 8, 3], 7)).tokens, "one token is less than the trigger"


@pytest.mark.parametrize(("ngram", "trigger"), [(1, 1), (5, 1), (4, 3)])
def test_matcher_equals_a_plain_search(ngram: int, trigger: int) -> None:
    chance, found = random.Random(ngram), 0
    for _ in range(40):
        prompt = [chance.randrange(4) for _ in range(30)]
        text = list(prompt)
        drafter = build("drafter", "llma", dict(max_draft_tokens=6, ngram=ngram, min_ngram=trigger))
        drafter.begin(context(text, 30))
        for _ in range(12):
            text.append(chance.randrange(4))
            due: list[int] = []
            for n in range(min(ngram, len(text) - 30), trigger - 1, -1):
                ends = [i + n for i in range(30 - n) if prompt[i : i + n] == text[-n:]]
                if ends:
                    due = prompt[ends[0] : ends[0] + 6]
                    break
            assert drafter.propose(context(text, 30)).tokens == due
            found += bool(due)
    assert found > 100


@pytest.mark.parametrize("length", [1, 4, 7])
def test_an_answer_that_is_the_reference_takes_a_step_per_block(length: int) -> None:
    """28 different tokens, written a second time: one step without a draft, then length + 1 tokens at a time."""
    script = [*range(28), *range(28)]
    target = tables.table_model(lambda seen: torch.eye(28, dtype=torch.float64)[script[len(seen)]] * 9, 28)
    session = Session(
        target, toys.method(drafter=("llma", {"max_draft_tokens": length})), script[:28], max_new_tokens=28
    )
    assert len(list(session.stream())) == 1 + math.ceil(27 / (length + 1))
    assert session.end.tokens == script[28:]


def test_a_given_reference_is_read_by_the_targets_tokenizer() -> None:
    lab = load("lab", "float32", "cpu")
    prompt = lab.tokenizer.encode("The old lighthouse")
    plain = Session(lab, Method(), prompt, max_new_tokens=48)
    count = len(list(plain.stream()))
    method = toys.method(drafter=("llma", {"reference": lab.tokenizer.decode(plain.end.tokens)}))
    session = Session(lab, method, prompt, max_new_tokens=48)
    session.step()
    branch = session.branch()
    steps = list(session.stream())
    assert session.end.tokens == plain.end.tokens and len(steps) < count / 4
    notes = steps[-1].draft.notes
    assert notes["document"] == "reference" and 1 <= notes["offset"] < count
    list(branch.stream())
    assert branch.tokens == session.tokens
    assert session.header.method["drafter"]["reference"] == method.drafter.reference


def test_ids_that_the_target_does_not_have_are_passed_over() -> None:
    """A tokenizer may know more ids than the model's vocabulary of 13."""
    ctx = replace(
        Session(toys.pair()[0], Method(), toys.PROMPT).context, encode=lambda text: [4, 13, 7, 99, 2]
    )
    drafter = build("drafter", "llma", dict(reference="a text"))
    drafter.begin(ctx)
    assert drafter.propose(replace(ctx, tokens=[*toys.PROMPT, 4])).tokens == [7, 2]


def test_a_reference_that_cannot_be_used_is_refused() -> None:
    toy = toys.pair()[0]
    with pytest.raises(MethodError, match=r"^toy has no tokenizer, so llma cannot read its text; .*\.$"):
        Session(toy, toys.method(drafter=("llma", {"reference": "a text"})), toys.PROMPT)
    with pytest.raises(
        ParamError, match=r"^llma.reference has 262,145 characters, above the limit of 262,144; .*\.$"
    ):
        Session(toy, toys.method(drafter=("llma", {"reference": "a" * (LONGEST + 1)})), toys.PROMPT)
    with pytest.raises(MethodError, match=r"^llma.min_ngram = 6 is above llma.ngram = 5, .*\.$"):
        Session(toy, toys.method(drafter=("llma", {"min_ngram": 6})), toys.PROMPT)
