"""Exits on an encoder: only the mask's row decides when a pass ends, and the questions are well formed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
import toys

from decodescope.engine.bench.cloze import ClozeBench, ClozeQuestion, load_cloze_questions
from decodescope.engine.bench.questions.questions import LabBenchError
from decodescope.engine.core.component import parse_component
from decodescope.engine.model.forward.feed import Feed

RULES = {
    "confidence_exit threshold=0.9": 2, "entropy_exit threshold=0.3": 2, "normalized_entropy_exit threshold=0.2": 2,
    "patience patience=1": 2, "vote min_votes=1.4": 2, "saturation threshold=0.65": 2,
    "hash_exit bucket_assignment=random buckets=3": 1,
}  # fmt: skip


@pytest.mark.parametrize(("words", "depths"), RULES.items())
@torch.inference_mode()
def test_the_row_whose_logits_are_asked_for_decides_alone(words: str, depths: int) -> None:
    decoder, left, others = toys.bidirectional_target().decoder, Counter[int](), 0
    rule, alone = (parse_component("adaptive_depth", f"{words} min_layers=1", "rule") for _ in range(2))
    for part in (rule, alone):
        part.begin(decoder.spec)
    for prompt in toys.prompts(30, 6, seed=4):
        asked, every = (Feed.causal_chain([*prompt, 12], 0, logits=x) for x in ([6], "all"))
        rule.plan(0, asked)
        logits = decoder.forward(asked, None, depth=rule)
        depth = rule.take_exit().depth
        alone.plan(0, asked)
        states = [decoder.states_before(asked, None, i)[:, [6]] for i in range(4)]
        reads = [decoder.lazy_logits(x) for x in states]
        assert depth == next((i for i in range(3) if alone.leave(i, states[i], reads[i])), 3)
        assert logits.shape == (1, 1, 13) and torch.allclose(logits, reads[depth](), atol=1e-9)
        rule.plan(0, every)
        decoder.forward(every, None, depth=rule)
        left[depth] += 1
        others += rule.take_exit().depth != depth
    assert len(left) >= depths and others, (
        "the test needs passes that end elsewhere, and rows that would hold them back"
    )


def test_the_shipped_questions_are_of_three_sorts_and_their_labels_are_even() -> None:
    asked = load_cloze_questions()
    assert Counter(q.sort for q in asked) == {"kind": 150, "claim": 150, "same": 150}
    assert len({q.prompt for q in asked}) == 450 and all(q.answer in q.labels for q in asked)
    for sort, least in (("kind", 35), ("claim", 50), ("same", 50)):
        assert min(Counter(q.answer for q in asked if q.sort == sort).values()) >= least
    assert [len(load_cloze_questions(each=n)) for n in (1, 7)] == [3, 21]


def test_others_than_models_with_a_mask_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        LabBenchError, match=r"^bench cloze asks for a mask to be filled, and toy knows none: choose lab-mdm"
    ):
        ClozeBench(toys.pair()[0], [])
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps({"sort": "a", "prompt": "b ->", "labels": ["c", "d"], "answer": "d"}) + "\n")
    assert load_cloze_questions(file) == [ClozeQuestion("a", "b ->", ("c", "d"), "d")]
