"""Greedy identity: a lossless method writes the target's own greedy text; where floats tie, by the tie rule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
import torch
import toys
from decodescope.engine import Method, Session
from decodescope.engine.feed import Feed
from decodescope.engine.load import Model, load

SETTINGS = {
    "lookup": dict(drafter=("prompt_lookup", {"length": 8})),
    "lookup-first": dict(drafter=("prompt_lookup", {"length": 3, "ngram": 1, "match": "first"})),
    "draft-1": dict(drafter=("draft_model", {"length": 1})),
    "draft-5": dict(drafter=("draft_model", {"length": 5})),
    "draft-8": dict(drafter=("draft_model", {"length": 8}), acceptance="block"),
    "draft-tree": dict(drafter=("draft_model", {"length": 4, "width": 4})),
    "recycling": dict(drafter=("token_recycling", {"nodes": "24"})),
    "skip": dict(drafter=("layer_skip", {"length": 7, "stop": 0.0})),
    "skip-siblings": dict(drafter=("layer_skip", {"length": 6, "ratio": 0.5, "siblings": True}), acceptance="typical"),
    "jacobi": dict(strategy=("jacobi", {"block": 8})),
    "llma": dict(drafter="llma"),
    "anpd": dict(drafter="anpd"),
    "aggressive": dict(drafter=("aggressive", {"length": 8})),
    "trie": dict(drafter=("trie", {"nodes": 16})),
    "rest": dict(drafter=("rest", {"nodes": 16})),
    "swift": dict(drafter=("swift", {"window": 8, "stop": 0.3})),
    "early-exit": dict(drafter=("early_exit", {"layers": 1})),
    "early-criterion": dict(drafter=("early_exit", {"criterion": "confidence_exit threshold=0.6 first=1"})),
    "sequoia": dict(drafter="sequoia"),
    "dyspec": dict(drafter="dyspec"),
    "rsd-c": dict(drafter="rsd_c"),
    "rsd-s": dict(drafter="rsd_s"),
}
# read with heads that were trained on the target; on the shipped model those that it has are compared
HEADS = {
    "medusa": dict(drafter=("medusa", {"nodes": 24})),
    "hydra": dict(drafter=("hydra", {"nodes": 24})),
    "eagle": dict(drafter=("eagle", {"nodes": 25})),
    "kangaroo": dict(drafter=("kangaroo", {"length": 6, "stop": 0.3})),
}


@cache
def due(i: int) -> tuple[list[int], list[int]]:
    prompt = toys.prompts(10, 12, seed=21)[i][: i + 3]
    return prompt, toys.greedy(toys.pair()[0].decoder, prompt, 48)


@pytest.mark.parametrize("parts", [*SETTINGS.values(), *HEADS.values()], ids=[*SETTINGS, *HEADS])
def test_in_double_precision_the_text_is_the_same_always(parts: dict) -> None:
    for i in range(10):
        prompt, text = due(i)
        assert toys.decode(toys.method(**parts), prompt, 48).end.tokens == text


@dataclass
class Tally:
    """positions compared; exact: equal top two; forgiven: within tau of the largest; failures: neither."""

    positions: int = 0
    exact: int = 0
    forgiven: int = 0
    failures: int = 0
    largest: float = 0.0

    @torch.inference_mode()
    def score(self, model: Model, prompt: list[int], text: list[int], tau: float) -> None:
        """Feed the whole text to the target: every token must be a largest one, up to tau."""
        feed = Feed.causal([*prompt, *text], 0)
        logits = model.decoder.forward(feed, None)[0, len(prompt) - 1 : -1].float()
        top = logits.topk(2, -1).values
        gap = top[:, 0] - logits[range(len(text)), text]
        self.positions += len(text)
        self.exact += int((top[:, 0] == top[:, 1]).sum())
        self.forgiven += int(((gap > 0) & (gap <= tau)).sum())
        self.failures += int((gap > tau).sum())
        self.largest = max(self.largest, float(gap[gap <= tau].max()))


OPENINGS = (
    "The old lighthouse", "A small robot", "In the morning", "My neighbour's cat", "The recipe says", "Once, a king",
    "The train to the north", "To sort a list", "def area(width, height):", "Water boils", "She opened the letter and",
    "Nobody knew why", "The first rule", "After the storm", "Twelve birds", "The market was", "He said: \"", "If x is even",
    "Question: what is a cache?", "The moon",
)  # fmt: skip
TURNS = ("", " and then", " was not", " because", " of the", ", who", " is", " went to the", " 1, 2, 3,", "\n")


def compare(count: int, tokens: int) -> Tally:
    target, draft = (load(name, "float32", "cpu") for name in ("lab", "lab-draft"))
    settings = [*SETTINGS.values(), *(parts for name, parts in HEADS.items() if name in target.spec.heads)]
    tally = Tally()
    prompts = [opening + turn for turn in TURNS for opening in OPENINGS][:count]
    for prompt in (target.tokenizer.encode(text) for text in prompts):
        for parts in settings:
            session = Session(target, toys.method(**parts), prompt, models={"draft": draft}, max_new_tokens=tokens)
            for _ in session.stream():
                pass
            tally.score(target, prompt, session.end.tokens, tau=1e-3)
    return tally


def test_on_the_shipped_model_the_text_is_greedy_up_to_ties() -> None:
    tally = compare(8, 24)
    assert tally.failures == 0, tally


@pytest.mark.identity
def test_on_the_shipped_model_over_all_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    tally = compare(200, 64)
    with capsys.disabled():
        print(f"\n{tally}")
    assert tally.failures == 0


def test_plain_decoding_is_what_the_others_are_compared_with() -> None:
    prompt, text = due(0)
    assert toys.decode(Method(), prompt, 48).end.tokens == text
