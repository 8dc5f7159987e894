"""What every transform of weights has to keep: the model that it was given, and one distribution however a text is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from decodescope.engine.core.component import build, registry
from decodescope.engine.core.note import Finding
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.weights import MATRICES, CalibrationData, WeightTransform
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed
from decodescope.engine.model.layers.matrix import unpack
from decodescope.engine.model.stores.cache import KVCache
from decodescope.engine.session.method import Method
from decodescope.engine.session.session import Session
from decodescope.engine.trace import check
from decodescope.testing import toys

from .exact_law import NotCounted

Settings = dict[str, Any]


def random_text() -> CalibrationData:
    """Random tokens of the toy's vocabulary, for transforms that look at text."""
    return CalibrationData(
        lambda: torch.randint(toys.SPEC.vocab, (4096,), generator=torch.Generator().manual_seed(3))
    )


def transformed_toy(
    name: str,
    settings: Settings,
    dtype: torch.dtype = torch.float32,
    calibration: CalibrationData | None = None,
) -> tuple[Decoder, Decoder]:
    """The toy, and the model that the transform makes from it. Raises NotCounted for knobs that do not fit the toy."""
    before = toys.decoder(dtype=dtype).pack_weights()
    transform = cast(WeightTransform, build("weights", name, settings))
    try:
        return before, transform.transform(before, calibration or random_text())
    except Refusal as why:
        raise NotCounted(str(why)) from None


def prompt_logits(decoder: Decoder) -> torch.Tensor:
    """float [1, T, V] of one pass over the toy's prompt without a cache."""
    return decoder.forward(Feed.causal_chain(toys.PROMPT, 0), None)


def given_model_stays_as_it_was(name: str, settings: Settings) -> None:
    """The source model does not change."""
    before, _ = transformed_toy(name, settings)
    check_untouched(before)


def check_untouched(before: Decoder) -> None:
    """A toy that a transform was given is as it is made."""
    fresh = toys.decoder().pack_weights()
    for layer, untouched in zip(before.layers, fresh.layers, strict=True):
        assert all(torch.equal(unpack(getattr(layer, x)), unpack(getattr(untouched, x))) for x in MATRICES), (
            "it changes matrices of the model that it was given"
        )
    assert torch.equal(prompt_logits(before), prompt_logits(fresh)), "the given model has other logits"


def same_model_comes_out_twice(name: str, settings: Settings) -> None:
    """It makes the same model twice: all randomness is seeded."""
    first, second = (prompt_logits(transformed_toy(name, settings)[1]) for _ in range(2))
    assert torch.equal(first, second), "two models made of one have different logits"


def run_agrees_with_itself(name: str, settings: Settings, count: int = 12) -> None:
    """A run on the new model writes that model's greedy text, and its trace agrees with itself."""
    _, after = transformed_toy(name, settings, torch.float64)
    session = Session(toys.model(after), Method(), list(toys.PROMPT), max_new_tokens=count)
    text = toys.finish_session(session).tokens[len(toys.PROMPT) :]
    due = toys.greedy_text(after, toys.PROMPT, count)
    assert text == due, f"a run writes {text}, and reading the text anew gives {due}"
    report = check(toys.session_trace(session))
    assert report.ok, str(report)


def text_has_one_distribution(
    name: str, settings: Settings, dtype: torch.dtype = torch.float32, slack: float = 1e-4
) -> None:
    """A text has the same logits read at once, token by token with a cache, and with a copy of the weights."""
    _, after = transformed_toy(name, settings, dtype)
    once = prompt_logits(after)[0]
    cache, rows = KVCache(after.spec, dtype=dtype), list[torch.Tensor]()
    for i, token in enumerate(toys.PROMPT):
        rows.append(after.forward(Feed.causal_chain([token], i), cache)[0])
        cache.commit([0])
    assert torch.allclose(torch.cat(rows), once, atol=slack), (
        "token by token it has other logits than at once"
    )
    copied = after.to(dtype)
    assert copied.spec == after.spec, "a copy has another shape"
    assert torch.allclose(prompt_logits(copied)[0], once, atol=slack), "a copy has other logits"


def findings_are_those_declared(name: str, settings: Settings) -> None:
    """It records the findings that it declares and no others, each in the shape of the model that it was given."""
    calibration = random_text()
    before, _ = transformed_toy(name, settings, calibration=calibration)
    check_findings(name, calibration.take_findings(), before.spec)


def check_findings(name: str, findings: Mapping[str, Finding], spec: ModelSpec) -> None:
    """The findings of a transform of a model of shape `spec` are those that it declares, and have their shapes."""
    declared = cast(type[WeightTransform], registry("weights")[name]).finds
    assert findings.keys() == declared.keys(), (
        f"it records {sorted(findings)}, and declares {sorted(declared)}"
    )
    for key, finding in findings.items():
        problem = finding.shape_problem(spec.n_layers, spec.n_heads)
        assert problem is None and finding.values, f"{key}: {problem or 'it has no values'}"
        assert finding.word and finding.what and not finding.what.endswith("."), (
            f"{key} needs a word, and a description without a full stop"
        )
