"""Exactness: every part has one of four values, and the texts that it writes agree with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toys
from sizes import by_turns, sizes

from decodescope.engine import Method
from decodescope.engine.core.component import KINDS, registry
from decodescope.engine.core.exactness import MEANINGS, VALUES, combine_exactness, exactness_text
from decodescope.engine.session.method import strategy_using
from decodescope.engine.trace import Header, TraceError, check
from decodescope.engine.trace.checks.record_consistency import validate_header
from decodescope.engine.trace.query.causes import causes_of, causes_shown, exactness_problem

PROMPTS = [toys.PROMPT, *toys.prompts(4, seed=3)]
COUNT = 40
# Samplers define the distribution that both sides of a comparison have; these samplers do more.
DEPARTING = {"grammar", "momentum", "deco_g"}
# The kinds whose lossy parts must change a text here. For strategies, and the routers and selectors that they use,
# tests/contracts/test_strategies.py shows it; for acceptance rules, tests/law does.
SHOWN_HERE = ("policy", "kv_compression", "adaptive_depth", "prompt_compression")
WITHOUT_EXAMPLES = {
    "color",
    "cot_influx",
}  # they shorten prompts of examples, and the prompts here contain no examples


def alone(kind: str, name: str, settings: dict[str, Any]) -> Method:
    """A method that differs from plain decoding only in this part, and in the strategy that uses it."""
    strategy = toys.router_strategy(name) if kind == "router" else strategy_using(kind)
    drafts = (
        {"drafter": ("draft_model", {"max_draft_tokens": 3})} if kind in ("schedule", "acceptance") else {}
    )
    return toys.method(**{"strategy": strategy, **drafts, kind: (name, settings)})


def text(method: Method, prompt: list[int]) -> list[int]:
    """The greedy text of the method after a prompt."""
    return toys.decode(method, prompt, COUNT).end.tokens


@pytest.mark.parametrize(
    ("kind", "name"),
    by_turns(4, [(kind, name) for kind in KINDS for name in registry(kind) if name != "chain"]),
)
@sizes("count", usual=2, full=len(PROMPTS))
def test_the_texts_of_a_part_agree_with_its_exactness(kind: str, name: str, count: int) -> None:
    """Compare the texts of a part with what its exactness promises.

    Lossless: the text of plain decoding. Exact for settings: one text for every drafter, but not the model's own. Lossy: in
    some setting the text differs. count: the number of prompts for comparisons that must hold for all of them.
    """
    settings = toys.settings_of(kind, name)
    methods = [alone(kind, name, one) for one in settings]
    values = {method.exactness for method in methods}
    assert values <= set(VALUES[:-1])
    for method in methods[:1]:
        session = toys.decode(method, PROMPTS[0], COUNT)
        assert session.header.exactness == method.exactness == causes_of(session.header).exactness
        assert check(session.sink).ok and not exactness_problem(session.header)
    if kind == "sampler":
        assert values == {"exact_for_settings" if name in DEPARTING else "lossless"}
        return
    target = toys.strategy_target(methods[0].strategy)

    def plain(prompt: list[int]) -> list[int]:
        return toys.cached_greedy_text(target, prompt, COUNT)

    if values == {"lossless"}:
        assert all(text(methods[0], prompt) == plain(prompt) for prompt in PROMPTS[:count])
    elif values == {"exact_for_settings"}:
        drafted = replace(methods[0], drafter=Method.of("prompt_lookup").drafter)
        assert all(text(methods[0], prompt) == text(drafted, prompt) for prompt in PROMPTS[:count])
        assert any(text(methods[0], prompt) != plain(prompt) for prompt in PROMPTS)
    elif kind in SHOWN_HERE and name not in WITHOUT_EXAMPLES:
        assert any(text(method, prompt) != plain(prompt) for prompt in PROMPTS for method in methods), (
            "it never changes a text"
        )


@pytest.mark.parametrize("name", registry("weights"))
def test_a_run_on_changed_weights_is_exact_for_these_settings(name: str) -> None:
    """The header takes the weights into account, whatever method runs on them: they belong to another model."""
    session = toys.decode(toys.method(drafter="prompt_lookup"), count=4)
    model = {**session.header.model, "weights": name, "name": f"toy@{name}"}
    header = replace(session.header, model=model)
    assert causes_of(header).exactness == "exact_for_settings" and name in causes_of(header).settings[0]
    assert "exact_for_settings" in exactness_problem(header) and not exactness_problem(
        replace(header, exactness="exact_for_settings")
    )


def test_an_adapter_is_a_setting() -> None:
    header = toys.decode(Method(), count=2).header
    adapted = replace(header, model={**header.model, "adapter": "cllm"})
    assert header.exactness == "lossless" and causes_of(adapted).exactness == "exact_for_settings"


def test_a_vocabulary_that_a_smaller_model_cuts_is_lossy() -> None:
    """The target cannot write tokens that its draft model does not have."""
    header = toys.decode(toys.method(drafter="draft_model"), count=2).header
    draft = {**header.lanes["draft"], "vocab": header.model["vocab"] - 1}
    cut = replace(header, lanes={"draft": draft})
    assert header.exactness == "lossless" and causes_of(cut).exactness == "lossy"
    assert f"{header.model['vocab'] - 1:,} tokens" in causes_of(cut).lossy[0]


def test_a_lossy_cause_outweighs_a_setting() -> None:
    method = toys.method(guidance=("contrastive", {}), policy=("h2o", {"heavy": 2, "recent": 2}))
    causes = causes_of(toys.decode(method, count=4).header)
    assert (
        causes.exactness == method.exactness == "lossy"
        and causes.settings
        and not method.lossless
        and not method.is_exact
    )


def test_the_least_exact_part_of_a_text_counts() -> None:
    assert [combine_exactness(VALUES[: i + 1]) for i in range(len(VALUES))] == list(
        VALUES
    ) and combine_exactness([]) == "unknown"
    assert list(MEANINGS) == list(VALUES) and exactness_text("exact_for_settings") == "exact for settings"


def test_a_header_that_says_nothing_is_unknown_and_another_word_is_refused() -> None:
    model = {"name": "toy", "vocab": 9, "n_layers": 1, "n_kv_heads": 1}
    header = Header(model, Method().record(), np.arange(1, 3, dtype="<i4"), 7)
    assert (
        header.exactness == "unknown"
        and not header.lossless
        and not header.is_exact
        and causes_shown(header) == []
    )
    validate_header(header)
    with pytest.raises(TraceError, match="'perfect' is none of lossless, exact_for_settings, lossy, unknown"):
        validate_header(replace(header, exactness="perfect"))  # type: ignore[arg-type] # a file may contain anything
