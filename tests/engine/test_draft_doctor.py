"""The draft doctor: what it measures of a pair, and that it names a fault that was put in."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from scipy.stats import norm
from scipy.stats import t as student

from decodescope.app.commands.doctor_draft import examination_text
from decodescope.engine import Method, Session
from decodescope.engine.draft_doctor.drafting import LENGTH, count_passes, measure_reading
from decodescope.engine.draft_doctor.examination import DraftExamination, examine_draft
from decodescope.engine.draft_doctor.experiments import fit_temperature, mark_reactions, widen_for_few
from decodescope.engine.draft_doctor.pair_checks import compare_files
from decodescope.engine.draft_doctor.places import LogitSample, read_places
from decodescope.engine.draft_doctor.readers import (
    HeadReader,
    ModelReader,
    StepReader,
    with_head_base,
    with_head_flag,
    with_last_layers,
    with_swapped_inputs,
)
from decodescope.engine.draft_doctor.texts import DoctorError, DoctorText, write_texts
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.session.load import load
from decodescope.engine.trace.query.draft_findings import CHECKS, find_change

Change = Callable[[Decoder], Decoder]
TARGET = toys.target(torch.float32, toys.LIVELY)
NOISY = toys.noisy_decoder(TARGET.decoder, 0.02)


def rebuilt(**parts: object) -> Decoder:
    """The noisy draft with other parts."""
    names = ("spec", "embed", "layers", "norm", "head")
    return Decoder(**{x: parts.get(x, getattr(NOISY, x)) for x in names})  # type: ignore[arg-type] # by name


def examine(draft: Decoder) -> DraftExamination:
    """The doctor on a toy's texts."""
    other = replace(TARGET, name="toy draft", spec=draft.spec, decoder=draft)
    return examine_draft(TARGET, other, toys.prompts(6), answer_tokens=24, window=48)


def test_layers_that_a_draft_lacks_are_taken_in_its_own_type() -> None:
    """A quantised or half-precision target lends its layers to a draft in float32."""
    whole = TARGET.decoder
    short = Decoder(replace(whole.spec, n_layers=1), whole.embed, whole.layers[:1], whole.norm, whole.head)
    ids = toys.prompts(1)[0]
    _, logits = ModelReader(with_last_layers(short, whole.to(dtype=torch.bfloat16))).read(ids)
    _, due = ModelReader(whole).read(ids)
    assert len(whole.layers) > 1 and torch.allclose(logits, due, atol=0.2)
    assert not torch.allclose(ModelReader(short).read(ids)[1], due, atol=0.2)


BROKEN: dict[str, tuple[str, Callable[[], Decoder]]] = {
    "doubled": ("temperature", lambda: rebuilt(norm=NOISY.norm * 3)),
    "halved": ("temperature", lambda: rebuilt(norm=NOISY.norm / 3)),
    "ids": ("output_ids", lambda: rebuilt(head=NOISY.head.roll(1, 0))),
    "embedding": ("input_ids", lambda: rebuilt(embed=NOISY.embed.roll(1, 0))),
    "overflow": ("not_finite", lambda: rebuilt(norm=NOISY.norm * float("inf"))),
}


class StaleDecoder(Decoder):
    """A decoder whose cache keeps what was refused: its answers go on behind all that it has read."""

    def __init__(self, other: Decoder) -> None:
        self.share(other)
        self._read: tuple[object, list[int]] = (None, [])

    def forward(self, feed: Feed, cache: Any = None, *rest: Any, **more: Any) -> torch.Tensor:
        logits = super().forward(feed, cache, *rest, **more)
        if cache is None:
            return logits
        tokens = [*(self._read[1] if self._read[0] is cache else []), *feed.tokens[0].tolist()]
        self._read = cache, tokens
        return super().forward(Feed.causal_chain(tokens, 0), None)[:, -feed.tokens.shape[1] :]


BROKEN["stale"] = ("stale_cache", lambda: StaleDecoder(NOISY))


@pytest.mark.parametrize("fault", BROKEN)
def test_a_fault_that_was_put_in_is_named_first(fault: str) -> None:
    cause, make = BROKEN[fault]
    seen = examine(make())
    first = seen.findings[0]
    assert first.cause == cause, [(x.cause, x.certainty, x.evidence) for x in seen.findings]
    certainties = [x.certainty for x in seen.findings]
    assert certainties == sorted(certainties, reverse=True)


def test_a_draft_that_is_only_noisy_is_called_neither_broken_nor_nothing() -> None:
    seen = examine(NOISY)
    assert [x.cause for x in seen.findings] in (["healthy"], ["weak"])
    record = json.loads(json.dumps(seen.record(), allow_nan=False))
    assert sum(x["share"] for x in record["ranks"]) == pytest.approx(1)
    centre = next(x for x in record["by_offset"] if x["offset"] == 0)
    assert centre["agree"] == pytest.approx(record["top1"])
    assert centre["overlap"] == pytest.approx(record["overlap"])
    words = examination_text(record)
    assert CHECKS[seen.findings[0].cause][0] in words and "position in the text" in words


def test_a_place_is_what_both_say_after_the_text_before_it() -> None:
    """A row of the one pass over a text equals a pass over the text up to there; the overlap is summed by hand."""
    ids, start = toys.prompts(1, 14)[0], 9
    places, _ = read_places(ModelReader(TARGET.decoder), ModelReader(NOISY), [DoctorText(ids, start, False)])
    assert places.index.tolist() == [*range(1, 14)] and places.answer.sum() == 14 - start
    assert places.token.tolist() == ids[1:]
    for k in (0, 5, 12):
        p, q = (
            ModelReader(x).read(ids[: k + 1])[1][-1].softmax(-1).tolist() for x in (TARGET.decoder, NOISY)
        )
        assert places.overlap[k] == pytest.approx(sum(map(min, p, q)), abs=1e-5)
        order = sorted(range(len(q)), key=lambda x: -q[x])
        assert places.rank[k] == order.index(p.index(max(p))) + 1
        assert places.guess[k] == order[0] and places.q_guess[k] == pytest.approx(max(q), abs=1e-5)


def test_the_places_of_two_texts_are_those_of_each() -> None:
    texts = [DoctorText(ids, start, False) for ids, start in zip(toys.prompts(2, 12), (4, 9), strict=True)]
    readers = ModelReader(TARGET.decoder), ModelReader(NOISY)
    both, sample = read_places(*readers, texts)
    alone = [read_places(*readers, [x])[0] for x in texts]
    assert both.token.tolist() == [*texts[0].ids[1:], *texts[1].ids[1:]]
    for name in ("overlap", "answer", "guess", "shifted"):
        np.testing.assert_array_equal(
            getattr(both, name), np.concatenate([getattr(x, name) for x in alone]), name
        )
    assert len(sample.p) == both.answer.sum() == 8 + 3


@pytest.mark.parametrize("hot", [0.5, 1.0, 1.9])
def test_the_fitted_scale_undoes_a_temperature(hot: float) -> None:
    logits = torch.randn(64, 40, generator=torch.Generator().manual_seed(0)) * 2
    fit = fit_temperature(LogitSample(logits.log_softmax(-1), (logits * hot).log_softmax(-1)))
    assert fit.scale == pytest.approx(1 / hot, rel=1e-2)
    assert fit.result.after == pytest.approx(1, abs=1e-2)
    assert fit.kl_after == pytest.approx(0, abs=1e-4) and (fit.kl_before > 0.05) is (hot != 1)


def test_a_cliff_is_found_where_it_is_and_none_where_there_is_none() -> None:
    chance = random.Random(0)
    index = np.array([i for _ in range(4) for i in range(100)])
    noise = np.array([chance.uniform(-0.1, 0.1) for _ in index])
    change = find_change(np.where(index < 60, 0.9, 0.3) + noise, index)
    assert change is not None and change[0] == 60
    assert change[1] == pytest.approx(0.9, abs=0.02) and change[2] == pytest.approx(0.3, abs=0.02)
    flat = find_change(0.5 + noise, index)
    assert flat is not None and flat[1] - flat[2] < 0.1
    assert find_change(noise[:10], index[:10]) is None


def test_what_cannot_be_examined_is_refused_in_one_sentence() -> None:
    with pytest.raises(DoctorError, match="no draft head nothing"):
        examine_draft(TARGET, "nothing", toys.prompts(2))
    with pytest.raises(DoctorError, match="nothing to examine"):
        examine_draft(TARGET, replace(TARGET), toys.prompts(2, 40), answer_tokens=8, window=16)


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "p_eagle", "mtp", "dflash", "medusa", "kangaroo"])
def test_a_head_that_learnt_nothing_is_read_where_it_guesses_and_not_called_healthy(kind: str) -> None:
    decoder = copy.copy(TARGET.decoder)
    head = toys.heads(kind, decoder.spec.d_model)
    decoder.heads = {kind: head}
    ids = toys.prompts(1, 12)[0]
    first, logits = HeadReader(decoder, head).read(ids)
    assert first == (1 if kind == "kangaroo" else 2) and len(logits) >= len(ids) - first
    seen = examine_draft(replace(TARGET, decoder=decoder), kind, toys.prompts(3), answer_tokens=16, window=32)
    assert "healthy" not in [x.cause for x in seen.findings]


def test_steps_with_refused_tokens_say_what_one_pass_says() -> None:
    ids = toys.prompts(1, 14)[0]
    first, steps = StepReader(NOISY, 6, 5).read(ids)
    assert first == 7 and len(steps) == 5
    torch.testing.assert_close(steps, ModelReader(NOISY).read(ids)[1][6:11], rtol=1e-4, atol=1e-4)


def head_logits(head: Any) -> torch.Tensor:
    """What a head says of a text, on the toy target."""
    return HeadReader(TARGET.decoder, head).read(toys.prompts(1, 12)[0])[1]


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_a_head_is_read_in_another_way_and_back(kind: str) -> None:
    head = toys.heads(kind, TARGET.spec.d_model)
    swapped = with_swapped_inputs(head)
    assert swapped is not None and not torch.equal(head_logits(swapped), head_logits(head))
    again = with_swapped_inputs(swapped)
    assert again is not None and torch.equal(head_logits(again), head_logits(head))
    theta = head.shape["theta"]
    assert torch.equal(head_logits(with_head_base(head, theta)), head_logits(head))
    assert not torch.equal(head_logits(with_head_base(head, 10 * theta)), head_logits(head))


def test_a_flag_of_a_head_is_flipped_in_a_copy() -> None:
    head: Any = toys.heads("eagle3", TARGET.spec.d_model)
    before = head_logits(head)
    flipped = with_head_flag(head, "norm_before_residual")
    assert not torch.equal(head_logits(flipped), before) and torch.equal(head_logits(head), before)
    assert torch.equal(head_logits(with_head_flag(flipped, "norm_before_residual")), before)


def test_a_head_of_other_weights_and_a_tokenizer_with_one_merge_less_are_told_from_their_files(
    tmp_path: Path,
) -> None:
    model = load("lab-draft")
    assert model.tokenizer is not None
    texts = [DoctorText(model.tokenizer.encode("the cat was here"), 2, False)]
    assert compare_files(model, replace(model, tokenizer=copy.copy(model.tokenizer)), texts) == []
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text((model.path / name).read_text(encoding="utf-8"), encoding="utf-8")
    table = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    table["model"]["merges"] = [
        x
        for x in table["model"]["merges"]
        if "".join(x.split(" ") if isinstance(x, str) else x) != "\u0120was"
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(table), encoding="utf-8")
    (found,) = compare_files(model, replace(model, tokenizer=Tokenizer.from_folder(tmp_path)), texts)
    assert found.cause == "tokenizer" and "1 of 1 texts" in found.evidence and "' was'" in found.evidence
    head = toys.heads("eagle", 16)
    assert compare_files(model, head, texts) == [], "it does not say what it was trained on"
    head.made_for = "0123456789abcdef"
    (found,) = compare_files(model, head, texts)
    assert found.cause == "other_target" and "0123456789abcdef" in found.evidence


class LastReader:
    """A reader that guesses the last token before each place, marks included or not."""

    def __init__(self, deaf: bool) -> None:
        self.deaf = deaf

    def read(self, ids: Any) -> tuple[int, torch.Tensor]:
        """Logits that follow from the number of tokens so far."""
        seen = [sum(not (self.deaf and y == 0) for y in ids[: i + 1]) for i in range(len(ids))]
        return 1, torch.nn.functional.one_hot(torch.tensor(seen), 32).float() * 20


def test_a_draft_that_never_sees_the_chat_marks_does_not_react_to_them() -> None:
    texts = [DoctorText([0, 5, 0, 6, 7, 8], 4, True), DoctorText([5, 6, 7], 1, False)]
    reactions = mark_reactions([LastReader(False), LastReader(True)], texts, {0})
    assert reactions == pytest.approx([1, 0], abs=1e-6)
    assert mark_reactions([LastReader(False)], texts[1:], {0}) is None


def test_tokens_a_pass_of_a_reading_are_those_that_drafting_keeps() -> None:
    """Counted from one pass over each answer; decoded with the draft itself, step by step."""
    texts = write_texts(TARGET, toys.prompts(4), 24, 48)
    made = Method.of({"drafter": "draft_model", "drafter.max_draft_tokens": LENGTH})
    draft = replace(TARGET, name="toy draft", spec=NOISY.spec, decoder=NOISY)
    steps = 0
    for text in texts:
        session = Session(
            TARGET, made, text.ids[: text.start], models={"draft": draft}, max_new_tokens=24, stop_tokens=()
        )
        assert [x for step in session.stream() for x in step.emitted] == text.ids[text.start :]
        steps += session.steps
    kept = measure_reading(ModelReader(NOISY), texts)
    assert 1.5 < kept == pytest.approx(sum(len(x.ids) - x.start for x in texts) / steps)


@pytest.mark.parametrize(
    ("right", "passes"), [("", 0), ("0", 1), ("1111", 1), ("11111", 1), ("111110", 2), ("0101", 3)]
)
def test_a_pass_writes_what_is_right_and_one_token_more(right: str, passes: int) -> None:
    assert count_passes(np.array([x == "1" for x in right], bool), 4) == passes


def test_few_texts_widen_an_error_as_students_t_does() -> None:
    level = norm.cdf(2)
    for n in (4, 8, 23, 1000):
        assert 2 * widen_for_few(n) == pytest.approx(student.ppf(level, n - 1), rel=0.01)


def test_the_best_reading_says_what_drafting_would_keep() -> None:
    seen = examine(rebuilt(head=NOISY.head.roll(1, 0)))
    first = seen.findings[0]
    assert first.cause == "output_ids" and "tokens a pass, as it stands" in first.evidence
    sound = examine(NOISY).figures["tokens_a_pass"]
    assert (
        first.figures["tokens_a_pass_after"] == pytest.approx(sound)
        and first.figures["tokens_a_pass"] < sound
    )
