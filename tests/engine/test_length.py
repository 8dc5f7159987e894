"""How long a text may become: the model and the key that set the limit, and that a refusal's recommendation is accepted."""

from __future__ import annotations

import re
from typing import Any

import pytest
import toys

from decodescope.engine import MethodError, Session
from decodescope.engine.core.spec import Rope
from decodescope.engine.session.load import Model

KEY = "max_position_embeddings of its config.json"


def model(limit: int, **changes: Any) -> Model:
    return toys.model(toys.decoder(toys.toy_spec(max_positions=limit, **changes)))


def opened(
    parts: dict[str, Any], prompt: int, target: Model, draft: Model | None = None, count: int = 40
) -> Session:
    models = {} if draft is None else {"draft": draft}
    return Session(target, toys.method(**parts), [1] * prompt, models=models, max_new_tokens=count)


def refusal(parts: dict[str, Any], prompt: int, target: Model, draft: Model | None = None) -> str:
    with pytest.raises(MethodError) as error:
        opened(parts, prompt, target, draft)
    return str(error.value)


def test_where_the_draft_model_ends_the_text_the_end_says_so() -> None:
    session = toys.finish_session(opened(dict(drafter="draft_model"), 9, model(256), model(24, name="small")))
    assert session.end.reason == "context_full" and len(session.tokens) == 24
    due = (
        f"The draft model small reads at most 24 tokens, the answer included ({KEY}), and so many are written"
    )
    assert session.end.message == f"{due}: the text ends there."
    assert session.length.cut_message(9, 15) == "" and session.length.cut_message(9, 16).endswith(
        f"({KEY}), which leaves 15 behind this prompt of 9"
    )
    own = toys.finish_session(opened(dict(drafter="draft_model"), 9, model(24), model(256, name="small")))
    assert own.end.reason == "context_full" and own.end.message.startswith(
        "The model toy reads at most 24 tokens"
    )
    assert toys.finish_session(opened({}, 9, model(256), count=5)).end.message == ""


def test_the_sentence_names_what_sets_the_limit() -> None:
    yarn = Rope(dim=8, kind="yarn", factor=4.0, original_positions=8)
    assert "toy reads at most 32 tokens, the answer included (the yarn table of its config.json)" in refusal(
        {}, 32, model(32, rope=yarn)
    )
    soft = refusal(dict(prompt_compression="compress_then_prompt"), 510, model(512))
    assert re.search(
        rf"toy reads at most 512 tokens, .*\({KEY}\), \d+ of them taken by compress_then_prompt: shorten",
        soft,
    )


SITUATIONS: dict[str, tuple[dict[str, Any], int, Any, Any]] = {
    "plain": ({}, 60, model(32), None),
    "a budget that fits": ({}, 600, model(300), None),
    "its own budget is too wide": (
        dict(policy=("streaming_llm", {"sink_tokens": 2, "recent": 40})),
        60,
        model(32),
        None,
    ),
    "its own share is too wide": (dict(policy=("streaming_llm", {"budget_share": 0.9})), 60, model(32), None),
    "its own distance is too far": (
        dict(policy=("lm_infinite", {"middle_top_k": 2, "first_middle_layer": 0, "middle_distance": 90})),
        60,
        model(32),
        None,
    ),
    "its own window is too wide": (
        dict(policy=("lm_infinite", {"window": 90, "middle_top_k": 2, "first_middle_layer": 0})),
        60,
        model(32),
        None,
    ),
    "another policy": (dict(policy=("h2o", {"heavy": 4, "recent": 4})), 60, model(32), None),
    "a codec that allows no policy": (dict(kv_compression="kivi"), 60, model(32), None),
    "a strategy without a policy": (
        dict(strategy="consensus", sampler=("temperature", {})),
        60,
        model(32),
        None,
    ),
    "drafts": (dict(drafter="prompt_lookup"), 60, model(32), None),
    "a short draft model": (dict(drafter="draft_model"), 60, model(32), model(16, name="small")),
    "a short draft model alone": (dict(drafter="draft_model"), 60, model(512), model(32, name="small")),
    "a short target alone": (dict(drafter="draft_model"), 60, model(32), model(512, name="large")),
}


def followed(said: str, parts: dict[str, Any]) -> dict[str, Any] | None:
    """The parts that a refusal recommends; None if it recommends another model."""
    way = re.search(r"or use the policy (\w+)(?: with ([^,]+))?, which keeps (?:all|\d+) entries", said)
    if way is None:
        return None
    knobs = re.findall(r"(\w+) = (\d+)", way[2] or "")
    same = parts.get("policy", ("",))[0] == way[1]
    return {
        **parts,
        "policy": (way[1], {**(parts["policy"][1] if same else {}), **{knob: int(x) for knob, x in knobs}}),
    }


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_is_recommended_for_a_prompt_that_is_too_long_works(situation: str) -> None:
    parts, prompt, target, draft = SITUATIONS[situation]
    said = refusal(parts, prompt, target, draft)
    assert (
        said.startswith(f"the prompt has {prompt} tokens, and the ") and ": shorten the prompt, or " in said
    )
    other = followed(said, parts)
    if other is not None:
        toys.finish_session(opened(other, prompt, target, draft, count=3))
    elif role := re.search(r"or name a model that reads more with --(\w+) NAME\.$", said):
        assert role[1] == "draft" and f"the draft model {draft.spec.name} reads at most" in said
        more = (
            refusal(parts, prompt, target, model(512, name="more"))
            if target.spec.max_positions < prompt
            else ""
        )
        assert not more or followed(more, parts), "the next refusal is about the target"
        opened(parts, prompt, model(512), model(512, name="more"))
    else:
        assert said.endswith("or take a model that reads more."), said
        opened(parts, prompt, model(512), draft)
    opened(parts, 8, target, draft)  # the prompt is shortened


def test_recommendations_of_every_sort_are_among_the_situations() -> None:
    ways = [refusal(*situation) for situation in SITUATIONS.values()]
    sorts = {
        *(
            "use the policy lm_infinite with window =",
            "with recent = 12 and budget_share = 0, which keeps 16 entries",
        ),
        *(
            "use the policy streaming_llm with recent =",
            "use the policy streaming_llm, which keeps 256 entries",
        ),
        *("or take a model that reads more", "or name a model that reads more with --draft NAME"),
    }
    assert not {x for x in sorts if not any(x in said for said in ways)}
