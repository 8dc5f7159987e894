"""Arguments: what people type in Python works, or is refused in one sentence before anything is computed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys

from decodescope.engine import Method, Session, load, run
from decodescope.engine.core.arguments import SEEDS
from decodescope.engine.core.refusal import Refusal
from decodescope.engine.methods.drafters.lookup.prompt_lookup import PromptLookup
from decodescope.engine.trace import TraceError, open_trace

HOLE = "give one text; several are decoded by one call each."
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a list of prompts": (dict(text_or_ids=["one", "two"]), f"the prompt is a list of texts: {HOLE}"),
    "bytes": (dict(text_or_ids=b"one"), "the prompt is 3 bytes: give text (decode them), or token ids"),
    "a number": (dict(text_or_ids=7), "the prompt = 7: must be a list of whole numbers, or a prompt's text."),
    "ids in a list in a list": (
        dict(text_or_ids=[[1, 2]]),
        "the prompt[0] = of type list: must be a whole number.",
    ),
    "half an id": (dict(text_or_ids=[1, 2.5]), "the prompt[1] = 2.5: must be a whole number."),
    "no seed": (dict(seed=None), f"seed = None: must be a whole number from 0 to {SEEDS}."),
    "a seed of 65 bits": (dict(seed=SEEDS + 1), f"must be a whole number from 0 to {SEEDS}."),
    "a negative seed": (dict(seed=-1), f"seed = -1: must be a whole number from 0 to {SEEDS}."),
    "a truth as seed": (dict(seed=True), "seed = True: must be a whole number"),
    "text as length": (dict(max_new_tokens="5"), "max_new_tokens = '5': must be a whole number."),
    "nan as length": (dict(max_new_tokens=float("nan")), "max_new_tokens = nan: must be a whole number."),
    "no length": (dict(max_new_tokens=0), "max_new_tokens = 0: must be at least 1."),
    "a level that is none": (
        dict(level="field"),
        "level = 'field': Choose one of summary, decisions,",
    ),
    "layers in words": (dict(layers="0,1"), "layers = '0,1': must be a list of whole numbers"),
    "a number to stop at": (dict(stop=5), "stop = 5: must be a text, or a list of texts."),
    "nothing to stop at": (
        dict(stop=["a", ""]),
        "stop holds '': each of its texts must be a str that is not empty.",
    ),
    "a method that is none": (
        dict(method="promt_lookup"),
        "no part is called 'promt_lookup'. Did you mean 'prompt_lookup'?",
    ),
    "a part as method": (
        dict(method=PromptLookup()),
        "method is of type PromptLookup: give a Method, or the name of one of",
    ),
    "a number as method": (dict(method=4), "method is 4: give a Method, or the name of one of its parts."),
    "a number as model": (
        dict(model=4),
        "model is 4: give a model that was loaded, or what load takes; use a shipped",
    ),
    "a number as draft": (
        dict(draft=4),
        "draft is 4: give a model that was loaded, or what load takes; use a shipped",
    ),
    "a list of models": (
        dict(models=["lab"]),
        "models is of type list: give the model of each role, such as {'draft': 'lab-",
    ),
    "a number as path": (dict(path=4), "path is 4: give the path of the file that the trace is written to."),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_meant_is_refused_in_one_sentence(name: str) -> None:
    given, sentence = BAD[name]
    with pytest.raises(Refusal, match=re.escape(sentence)) as refused:
        run(**{"model": toys.target(), "text_or_ids": toys.PROMPT, **given})
    assert str(refused.value).count("\n") == 0 and str(refused.value).endswith(".")


def test_names_work_where_objects_are_wanted() -> None:
    text = "def add(a, b):\n    return a + b\n\ndef add(a, b):\n"
    named = run("lab", "prompt_lookup", text, max_new_tokens=6)
    model = load("lab")
    assert named.tokens == run(model, Method(drafter=PromptLookup()), text, max_new_tokens=6).tokens
    assert named.trace.header.method["drafter"]["name"] == "prompt_lookup"
    drafted = run(
        model,
        {"drafter": "draft_model", "drafter.max_draft_tokens": "2"},
        text,
        draft="lab-draft",
        max_new_tokens=6,
    )
    assert drafted.trace.header.method["drafter"]["max_draft_tokens"] == 2
    assert drafted.trace.header.lanes["draft"]["name"] == "lab-draft" and drafted.tokens == named.tokens


@pytest.mark.parametrize(
    "make", [torch.tensor, np.array, tuple, list], ids=["tensor", "array", "tuple", "list"]
)
def test_ids_come_in_any_sequence(make: Any) -> None:
    assert run(toys.target(), None, make(toys.PROMPT), max_new_tokens=4).prompt == list(toys.PROMPT)


def test_one_text_to_stop_at_is_a_text_and_not_its_letters() -> None:
    plain = run("lab", None, "Once upon a time", max_new_tokens=24).text
    word = plain.split()[2]
    stopped = run("lab", None, "Once upon a time", stop=word, max_new_tokens=24).text
    assert (
        word in stopped
        and len(stopped) < len(plain)
        and stopped == run("lab", None, "Once upon a time", stop=[word], max_new_tokens=24).text
    )


def test_a_part_stands_only_in_its_own_place() -> None:
    with pytest.raises(Refusal, match=r"strategy = 'prompt_lookup'.*use Method.of\('prompt_lookup'\)"):
        Method("prompt_lookup")  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="policy = of type PromptLookup: must be a part of that kind"):
        Method(policy=PromptLookup())  # type: ignore[arg-type]
    assert Method.of("h2o").policy.name == "h2o" and Method.of(None) == Method()


def test_settings_may_be_spelled_as_on_the_command_line() -> None:
    spelled = Method.from_names(
        {"drafter": "draft_model"}, {"drafter.max_draft_tokens": "6", "drafter": {"width": 1}}
    )
    assert spelled == Method.from_names(
        {"drafter": "draft_model"}, {"drafter": {"max_draft_tokens": 6, "width": 1}}
    )
    with pytest.raises(Refusal, match="settings of drafter are 6: give its knobs"):
        Method.from_names({"drafter": "draft_model"}, {"drafter": 6})


def test_a_session_takes_ids_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        Refusal, match=r"prompt = 'Hello': must be a list of whole numbers; model.tokenizer.encode turns"
    ):
        Session(toys.target(), Method(), "Hello")  # type: ignore[arg-type]
    named = Session("lab-draft", "prompt_lookup", [1, 2], max_new_tokens=2)
    assert named.method == Method.of("prompt_lookup") and len(named.step().emitted) == 1
    with pytest.raises(TraceError, match="path is 5: give the path of a trace file"):
        open_trace(5)  # type: ignore[arg-type]
    with pytest.raises(Refusal, match="A model is None; use a shipped model"):
        load(None)  # type: ignore[arg-type]
