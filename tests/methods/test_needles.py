"""Needles: a policy answers exactly if the pair that is asked for is still held, or continues in another entry."""

from __future__ import annotations

import pytest
import torch
import toys
from contracts.test_policies import feed_tokens, lane, positions
from needles import KEYS, answer, ask, decoder, filler, pair

from decodescope.engine.core.component import build, registry

AT, KEY, VALUE = 12, 3, 5  # the place of the pair that is asked for
# At the budgets of tests/toys.py. KEEP: policies that keep what the question looks at. LOSE: policies that keep by place, or by
# the attention of all rows so far, most of which went to the first entries.
KEEP, LOSE = ("keep_all", "quest", "snapkv", "tova"), ("h2o", "lm_infinite", "streaming_llm", "window")


def prompt() -> list[int]:
    """60 tokens: a pair for each key among meaningless others, and at the end the question."""
    text = [filler(i * 5) for i in range(60)]
    for k in range(KEYS):
        text[4 + 5 * ((k + 6) % 8)] = pair(k, (k * 3 + 1) % 8)
    text[AT] = pair(KEY, VALUE)
    for i, token in enumerate(text):
        if token == pair(KEY, (KEY * 3 + 1) % 8):
            text[i] = filler(i)
    return [*text, ask(KEY)]


@torch.inference_mode()
def answers(name: str) -> tuple[bool, bool]:
    """Ask at the prompt's end, and again after the cut.

    Returns whether the second answer is right, and whether the pair is held.
    """
    made = lane(name, toys.settings_of("policy", name)[0], decoder(), read=61)
    first = int(made.read(prompt()).argmax())
    assert first == answer(VALUE) or made.policy.banded, "the prompt's last token has read all of it"
    for token in (filler(1), filler(2)):
        feed_tokens(made, token)
    held = AT in positions(made, 0)[0][0]
    return int(feed_tokens(made, ask(KEY)).argmax()) == answer(VALUE), held


@pytest.mark.parametrize("name", registry("policy"))
def test_a_policy_answers_when_it_holds_the_pair(name: str) -> None:
    right, held = answers(name)
    assert right is held or ("merge" in build("policy", name).does and right)


def test_what_is_looked_at_stays_and_what_is_far_goes() -> None:
    assert {name: answers(name) for name in KEEP} == dict.fromkeys(KEEP, (True, True))
    assert {name: answers(name) for name in LOSE} == dict.fromkeys(LOSE, (False, False))
