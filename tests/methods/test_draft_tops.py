"""The draft's own distribution is recorded at each tried place, and it is that of the model that drafted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import toys

from decodescope.engine.decoding.record import recorder
from decodescope.engine.decoding.values.draft import ROOT, Draft, Verdict
from decodescope.engine.decoding.values.draft_tops import _read_numbers, draft_tops_record
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.trace import Trace, check
from decodescope.engine.trace.query.facts import StepFacts
from decodescope.engine.trace.records.draft_tops import tokens_by_place

# one of each way in which a draft comes about
DRAFTERS: list[tuple[str, dict[str, Any]]] = [
    ("draft_model", {"max_draft_tokens": 3}),
    ("draft_model", {"max_draft_tokens": 3, "width": 3}),
    ("specinfer", {"models": 2, "branching": "2,1,1"}),
    ("staged", {"max_draft_tokens": 4}),
    ("layer_skip", {"skip_sublayers": "a1", "siblings": True}),
    ("kangaroo", {}),
    ("medusa", {"nodes": 8}),
    ("hydra", {"nodes": 8}),
    ("eagle", {"nodes": 8}),
    ("eagle3", {"nodes": 8, "width": 3}),
    ("mlp_speculator", {"branching": "2,2,2", "max_paths": 8}),
    ("redrafter", {"width": 4}),
    ("ppd", {"rows": "16"}),
    ("dflash", {}),
]


def tried_places(trace: Trace) -> int:
    return sum(
        len({x.draft.parents[node] for node in x.trials.node}) for x in trace.steps if x.draft and x.trials
    )


@pytest.mark.parametrize(("name", "knobs"), DRAFTERS)
def test_the_first_guess_at_every_tried_place_is_the_best_token_recorded_there(
    name: str, knobs: dict[str, Any]
) -> None:
    """A greedy draft takes its own likeliest token, so rows of another place would show other tokens."""
    trace = toys.decode(toys.method(drafter=(name, knobs)), count=16).sink
    shown = 0
    for step in trace.steps:
        if (tops := step.draft_tops) is None:
            continue
        for place, ids in zip(tops.places.tolist(), tops.ids.tolist(), strict=True):
            assert step.draft.tokens[step.draft.parents.index(place)] == ids[0]
            shown += 1
    assert shown == tried_places(trace) > 8
    report = check(trace)
    assert report.ok and report.counts["distributions of drafts"] == shown, report


def test_a_draft_model_is_recorded_as_another_reading_of_the_text_by_it_gives() -> None:
    """The five best, their log-probabilities, and the rank of the token that came, from one pass over the finished text."""
    target, draft = toys.pair()
    session = toys.decode(
        toys.method(drafter=("draft_model", {"max_draft_tokens": 3})), count=24, pair=(target, draft)
    )
    ids = [*toys.PROMPT, *session.end.tokens]
    with torch.inference_mode():
        logits = draft.decoder.forward(Feed.causal_chain(ids, 0, "cpu"), None)[0].double().log_softmax(-1)
    refused = 0
    for step in session.sink.steps:
        if (tops := step.draft_tops) is None:
            continue
        for row, place in enumerate(tops.places.tolist()):
            at = step.n + (0 if place == ROOT else step.path.index(place) + 1)
            due = logits[at - 1]
            assert np.allclose(np.sort(due.numpy())[::-1][: len(tops.ids[row])], tops.logp[row], atol=1e-4)
            assert abs(float(tops.came[row]) - float(due[ids[at]])) < 1e-4
            rank = int((due > due[ids[at]]).sum()) + 1
            assert tops.rank[row] == rank
            came = tokens_by_place(step.draft.tokens, step.path, step.extra and step.extra.token)
            assert came[place] == ids[at]
            refused += rank > 1
        facts = StepFacts(step, session.sink.header, {}).column("draft_rank")
        if step.extra is not None and step.extra.origin == "correction":
            last = step.path[-1] if step.path else ROOT
            assert facts[-1] == tops.rank[tops.row_of(last)] > 1
        assert facts[: len(step.path)] == [1] * len(step.path)
    assert refused > 3, "the test needs refusals"


@pytest.mark.parametrize("sampler", ["greedy", "temperature"])
@pytest.mark.parametrize(
    ("strategy", "knobs"), [("speed", {"layers": 2}), ("predictive", {"layers": 3, "branches": 1})]
)
def test_an_exit_that_guesses_the_next_token_is_recorded_as_a_model_of_its_layers_says(
    strategy: str, knobs: dict[str, int], sampler: str
) -> None:
    """Guesses that began in an earlier step too. The model of the first layers reads the finished text in one pass."""
    model = toys.model(toys.decoder(toys.toy_spec(n_layers=6), 3, torch.float64))
    whole, layers = model.decoder, knobs["layers"]
    for layer in whole.layers[layers:]:  # they change little, so that some guesses are right
        layer.out, layer.down = layer.out * 0.4, layer.down * 0.4
    short = Decoder(
        replace(whole.spec, n_layers=layers), whole.embed, whole.layers[:layers], whole.norm, whole.head
    )
    method = toys.method(strategy=(strategy, knobs), sampler=sampler)
    session = toys.decode(method, count=24, pair=(model, model))
    ids = [*toys.PROMPT, *session.end.tokens]
    with torch.inference_mode():
        logits = short.forward(Feed.causal_chain(ids, 0, "cpu"), None)[0].log_softmax(-1)
    ahead, refused = 0, 0
    for step in session.sink.steps:
        assert step.draft_tops is not None and step.draft_tops.places.tolist() == [ROOT]
        due, came = logits[step.n - 1], step.emitted[0]
        assert step.draft_tops.ids[0].tolist() == due.topk(5).indices.tolist()
        assert np.allclose(step.draft_tops.logp[0], due.topk(5).values, atol=1e-4)
        rank = int((due > due[came]).sum()) + 1
        facts = StepFacts(step, session.sink.header, {}).column("draft_rank")
        assert step.draft_tops.rank[0] == rank and all(facts[node] == rank for node in step.path)
        refused += not step.path
        ahead += step.draft.notes[strategy]["head"] > 0
    report = check(session.sink)
    assert report.ok and report.counts["distributions of drafts"] == len(session.sink.steps), report
    assert min(ahead, refused) > 2, "the test needs guesses from earlier steps, and wrong ones"


@pytest.mark.parametrize("drafter", ["prompt_lookup", "token_recycling", "lookahead"])
def test_what_was_copied_has_no_distribution(drafter: str) -> None:
    steps = toys.decode(toys.method(drafter=drafter), count=24).sink.steps
    assert any(x.trials for x in steps) and all(x.draft_tops is None for x in steps)


def test_below_decisions_no_logits_are_kept_and_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Draft] = []
    monkeypatch.setattr(recorder, "draft_tops_record", lambda *x: pytest.fail("it was asked"))
    method = toys.method(drafter=("eagle3", {"nodes": 8}))
    real = type(method.drafter).propose

    def propose_and_keep(self: Any, ctx: Any) -> Draft:
        kept.append(real(self, ctx))
        return kept[-1]

    monkeypatch.setattr(type(method.drafter), "propose", propose_and_keep)
    session = toys.decode(method, count=12, level="summary")
    assert len(kept) > 2 and all(not x.logits for x in kept)
    assert all(x.draft_tops is None for x in session.sink.steps)


def test_ties_excluded_tokens_and_ids_beyond_the_draft_are_recorded_as_such() -> None:
    row = torch.tensor([2.0, 5.0, -torch.inf, 2.0, 5.0])
    draft = Draft.chain([1], logits={ROOT: row})

    def record(token: int, vocab: int = 9) -> SimpleNamespace:
        return draft_tops_record(draft, Verdict([], token, "correction"), vocab)

    tops = record(3)
    assert tops.ids.tolist() == [[1, 4, 0, 3, -1]] and tops.logp[0, 4] == -np.inf
    assert tops.rank.tolist() == [3], "as likely as another: both are third"
    assert record(2).came[0] == -np.inf and record(2).rank[0] == 5
    beyond = record(7)  # the target has more ids than the draft
    assert beyond.rank[0] == 6 and beyond.came[0] == -np.inf
    assert record(0, vocab=4).ids.tolist() == [[1, 0, 3, -1]], "and here the draft has more"
    assert record(0, vocab=4).rank[0] == 2


class Elsewhere(torch.Tensor):
    """A tensor that says that it is on no CPU."""

    is_cpu = False  # type: ignore[assignment] # an attribute of torch's own


def test_both_ways_of_reading_the_numbers_agree() -> None:
    """On a device all numbers come in one transfer; wide rows are searched by blocks on the CPU. Both are what a sort gives."""
    torch.manual_seed(0)
    for vocab in (40, (1 << 14) + 7):
        rows = torch.randn(3, vocab)
        tokens = [int(rows[0].argmax()), 5, vocab - 1]
        here = _read_numbers(rows, tokens)
        there = _read_numbers(rows.as_subclass(Elsewhere), tokens)
        assert here[1] == there[1] and here[4] == there[4] and np.allclose(here[0], there[0])
        assert here[2] == pytest.approx(there[2]) and here[3] == pytest.approx(there[3])
        due = rows.sort(-1, descending=True)
        assert here[1] == due.indices[:, :6].tolist() and here[0] == due.values[:, :6].tolist()
        assert here[4] == [int((due.indices[i] == x).nonzero()) + 1 for i, x in enumerate(tokens)]
