"""Fields of a trace's header that are known before a run: its method, its prompt and the models other than the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import torch

from decodescope import __version__
from decodescope.engine.core.component import note_declarations
from decodescope.engine.core.roles import TARGET, WHOLE
from decodescope.engine.decoding.record.recorder import Recorder
from decodescope.engine.decoding.shared.verify_cost import known_curve
from decodescope.engine.decoding.values.vocabulary_map import VocabularyMap
from decodescope.engine.model.heads.base import Head
from decodescope.engine.model.heads.files import head_fingerprint
from decodescope.engine.trace.records.events import Made

from .load import Model
from .method import Method
from .placement import type_name


def method_fields(method: Method, run: str, prompt: Sequence[int], recorder: Recorder) -> dict[str, Any]:
    """The fields of a trace's header that need no models: of the method, the prompt, the run's id and the present time."""
    return {
        "method": method.record(),
        "parts": method.describe_parts(),
        "tellings": {method.acceptance.name: method.acceptance.telling},
        "tells": note_declarations(method.record()),
        "details": method.details,
        "prompt": torch.tensor(prompt, dtype=torch.int32).numpy(),
        "pieces": recorder.pieces(prompt),
        "levels": recorder.levels,
        "project": __version__,
        "run": run,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def further_model_fields(
    models: Mapping[str, Model], vocabularies: Mapping[str, VocabularyMap]
) -> dict[str, dict[str, Any]]:
    """Role -> what a trace's header records of the model, for all models but the target.

    `dtype` is recorded of a model that is loaded in another type than the target, `shared_tokens` of one with another
    tokenizer: how many tokens both have.
    """
    usual = models[TARGET].decoder.dtype if TARGET in models else None
    return {
        role: {
            **x.spec.record(),
            "fingerprint": x.fingerprint,
            **({} if x.decoder.dtype == usual else {"dtype": type_name(x.decoder.dtype)}),
            **({"shared_tokens": vocabularies[role].size} if role in vocabularies else {}),
        }
        for role, x in models.items()
        if role != TARGET
    }


def head_fields(method: Method, target: Model) -> dict[str, dict[str, str]]:
    """`head_fingerprints`: kind -> the hash of the files of each draft head that the method reads; empty if it reads none."""
    kept = target.decoder.heads
    heads = {
        kind: kept[kind] for kind in sorted(method.target_heads(target.spec) & kept.keys())
    }  # no other one is loaded
    marks = {kind: mark for kind, x in heads.items() if isinstance(x, Head) and (mark := head_fingerprint(x))}
    return {"head_fingerprints": marks} if marks else {}


def transform_reports(models: Mapping[str, Model]) -> dict[str, list[Made]] | None:
    """Role -> the findings of the transforms of the model's weights; None if no model was transformed."""
    return {role: x.reports for role, x in models.items() if x.reports} or None


def known_pass_times(models: Mapping[str, Model], threads: int) -> dict[str, dict[str, float]]:
    """Role -> rows -> microseconds of a pass in so many threads, for each model that decodes and was measured before."""
    curves = {role: known_curve(x.decoder, threads) for role, x in models.items() if role != WHOLE}
    return {role: curve.record() for role, curve in curves.items() if curve is not None}
