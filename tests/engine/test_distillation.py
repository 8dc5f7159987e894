"""The doctor's distillation: measured on prompts that were not learned from, on a copy of the draft."""

from __future__ import annotations

import statistics
from dataclasses import fields, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import toys

from decodescope.app.commands.doctor_draft import examination_text
from decodescope.engine.draft_doctor import distillation
from decodescope.engine.draft_doctor.distillation import DistillationGain, measure_distillation
from decodescope.engine.draft_doctor.examination import examine_draft
from decodescope.engine.draft_doctor.readers import ModelReader
from decodescope.engine.draft_doctor.texts import DoctorText, write_texts
from decodescope.engine.model.forward.decoder import Decoder

TARGET = toys.target(torch.float32, toys.LIVELY)


@cache
def weak() -> Decoder:
    """A draft that noise has made weak."""
    return toys.noisy_decoder(TARGET.decoder, 0.2)


@cache
def texts() -> tuple[DoctorText, ...]:
    """The target's answers to eight prompts."""
    return tuple(write_texts(TARGET, toys.prompts(8), 24, 48))


def weights(decoder: Decoder) -> list[torch.Tensor]:
    inner = [getattr(one, f.name) for one in decoder.layers for f in fields(one)]
    return [x for x in (decoder.embed, decoder.norm, decoder.head, *inner) if isinstance(x, torch.Tensor)]


def test_no_text_is_measured_by_a_draft_that_learned_from_its_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    honest_train, honest_read = distillation._train, distillation.read_overlaps
    seen: dict[int, set[int]] = {}
    measured: list[int] = []

    def train(target: Any, draft: Any, some: Any, rate: float) -> Any:
        learner = honest_train(target, draft, some, rate)
        seen[id(learner)] = {x.prompt for x in some}
        return learner

    def read(target: Any, drafts: Any, some: Any) -> Any:
        if (
            drafts[0].decoder is weak()
        ):  # the draft as it stands, and the trained one: this is what is reported
            assert not seen[id(drafts[1].decoder)] & {x.prompt for x in some}
            measured.extend(x.prompt for x in some)
        return honest_read(target, drafts, some)

    monkeypatch.setattr(distillation, "RATES", (1e-3,))
    monkeypatch.setattr(distillation, "_train", train)
    monkeypatch.setattr(distillation, "read_overlaps", read)
    pairs = [
        y for x in texts()[:4] for y in (x, replace(x, chat=True))
    ]  # the text and the same through a template
    gain = measure_distillation(ModelReader(TARGET.decoder), ModelReader(weak()), pairs)
    assert isinstance(gain, DistillationGain) and gain.texts == 8 and gain.steps == (4, 4)
    assert sorted(measured) == sorted(x.prompt for x in pairs), "every text is measured once"


def test_the_error_of_four_texts_is_wider_as_student_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 97.7 % quantile of t with three degrees of freedom is 3.307, where two standard errors are meant."""
    learner = SimpleNamespace(updates=2)
    rows = {"measured": iter(([[0.5, 0.5], [0.6, 0.7]], [[0.4, 0.4], [0.4, 0.6]]))}

    def read(target: Any, drafts: Any, some: Any) -> np.ndarray:
        return np.array([[0.5, 0.5]] if drafts[0].decoder is learner else next(rows["measured"]))

    monkeypatch.setattr(distillation, "RATES", (1e-3,))
    monkeypatch.setattr(distillation, "_train", lambda *given: learner)
    monkeypatch.setattr(distillation, "read_overlaps", read)
    gain = measure_distillation(ModelReader(TARGET.decoder), ModelReader(weak()), texts()[:4])
    assert isinstance(gain, DistillationGain) and gain.texts == 4
    assert (gain.before, gain.after) == pytest.approx((0.45, 0.575))
    plain = statistics.stdev([0.1, 0.2, 0.0, 0.2]) / 2
    assert gain.error == pytest.approx(plain * 3.307 / 2, rel=0.01)


def test_a_weak_draft_gains_on_unseen_texts_and_its_weights_stay() -> None:
    before = [x.clone() for x in weights(weak())]
    assert len(before) > 8, "the test needs the weights of the layers"
    gain = measure_distillation(ModelReader(TARGET.decoder), ModelReader(weak()), texts())
    assert isinstance(gain, DistillationGain)
    assert gain.after > gain.before and gain.error > 0 and f"{gain.after:.1%}" in gain.sentence
    assert all(torch.equal(x, y) for x, y in zip(before, weights(weak()), strict=True))


def test_it_is_measured_of_weak_drafts_and_of_others_only_if_asked() -> None:
    def examine(decoder: Decoder, **more: Any) -> Any:
        other = replace(TARGET, name="toy draft", spec=decoder.spec, decoder=decoder)
        return examine_draft(TARGET, other, toys.prompts(4), answer_tokens=16, window=40, **more)

    found = examine(weak())
    assert found.findings[0].cause == "weak" and isinstance(found.distillation, DistillationGain)
    record = found.record()
    assert record["distillation"]["after"] == found.distillation.after
    assert found.distillation.sentence in examination_text(record)
    healthy = examine(TARGET.decoder)
    assert healthy.findings[0].cause != "weak" and healthy.record()["distillation"] is None
    asked = examine(TARGET.decoder, distil=True).distillation
    assert isinstance(asked, DistillationGain) and asked.before == pytest.approx(1, abs=1e-4)


def test_what_cannot_be_measured_is_said() -> None:
    one = measure_distillation(ModelReader(TARGET.decoder), ModelReader(weak()), texts()[:1])
    assert isinstance(one, str) and "needs two prompts" in one
    capped = toys.noisy_decoder(TARGET.decoder, 0.2)
    capped.spec = replace(capped.spec, attn_cap=20.0)
    said = measure_distillation(ModelReader(TARGET.decoder), ModelReader(capped), texts())
    assert isinstance(said, str) and "no gradient" in said
