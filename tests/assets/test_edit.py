"""Training of the tagger: the wanted tags lead to the nearest right answer, and its examples match the engine's rows."""

from __future__ import annotations

from itertools import product
from random import Random

import torch

from decodescope.engine.model.heads.edit import EditRows, EditTagger
from decodescope.engine.trace.values.edits import apply_tags
from decodescope.training import edit


def changed(draft: list[int], tags: edit.Tags) -> list[int]:
    return apply_tags(draft, [tag for tag, _ in tags], [[word, word] for _, word in tags])


def test_wanted_tags_lead_to_the_nearest_answer_and_each_pass_comes_nearer() -> None:
    r, passes = Random(0), set()
    for _ in range(300):
        right = [[r.randrange(4) for _ in range(r.randint(1, 5))] for _ in range(3)]
        draft = [r.randrange(4) for _ in range(r.randrange(6))]
        left, count = min(edit.edit_distances(draft, x)[-1][-1] for x in right), 0
        while left:
            draft = changed(draft, edit.nearest_tags(draft, right))
            now = min(edit.edit_distances(draft, x)[-1][-1] for x in right)
            assert now < left
            left, count = now, count + 1
        assert draft in right and changed(draft, edit.nearest_tags(draft, right)) == draft
        passes.add(count)
    assert {0, 1, 2} <= passes


def test_distances_are_those_of_a_search_over_all_edits() -> None:
    start, reached, far = (0, 1), {(0, 1): 0}, [(0, 1)]
    for steps in range(1, 3):
        far = [
            after
            for text in far
            for i, word in product(range(len(text) + 1), range(2))
            for after in (
                (*text[:i], word, *text[i:]),
                (*text[:i], word, *text[i + 1 :]),
                (*text[:i], *text[i + 1 :]),
            )
            if after not in reached and not reached.update({after: steps})
        ]
    assert len(reached) > 20
    assert all(edit.edit_distances(start, text)[-1][-1] == steps for text, steps in reached.items())


def test_mistakes_spoil_a_part_of_the_answers() -> None:
    r, words = Random(0), range(12)
    drafts = [edit.spoil_answer([1, 2, 3, 4], r, words) for _ in range(400)]
    right = sum(x == [1, 2, 3, 4] for x in drafts)
    assert (
        100 < right < 220
        and {len(x) for x in drafts} >= {2, 3, 4, 5, 6}
        and all(0 < len(x) <= 8 for x in drafts)
    )


def test_a_fitted_head_finds_the_tag_that_its_examples_show() -> None:
    torch.manual_seed(0)
    at, embed = EditRows(1, 3, True), torch.randn(5, 8)

    def drawn(n: int) -> list[edit.DraftBatch]:
        made = []
        for _ in range(n):
            rows, scores = [torch.randn(16, 12, 8) for _ in range(3)], torch.randn(16, 4, 6) * 3
            tags = (scores[..., 0] > 0).long() * 3
            made.append(edit.DraftBatch(at, *rows, scores, tags, torch.randint(0, 5, (16, 4))))
        return made

    head = edit.fit_tagger(EditTagger(8, 1, 8, 16), drawn(40), embed, 12, 0)
    assert edit.tag_accuracy(head, drawn(4))["all"] > 0.85
