"""Half of a pair of characters, which JSON can hold and no text can, is answered in a sentence by every route."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sizes import by_turns
from toylab import finished

from decodescope.app.http.json_answer import JsonAnswer
from decodescope.app.runs.recipe import as_json
from decodescope.app.runs.run_service import RunChoice, RunService

HALF = "x\ud800"
WORDS = (
    "text",
    "name",
    "kind",
    "part",
    "knob",
    "prompt",
    "settings",
    "where",
    "model",
    "sampler",
    "change",
    "what",
    "ways",
)


def test_an_answer_holds_a_question_mark_instead() -> None:
    assert JsonAnswer({"error": HALF}).body == b'{"error":"x?"}'


def bodies() -> list[Any]:
    """Bodies of every shape: each word as a text, as a list, as an object, and all of them together."""
    together = dict.fromkeys(WORDS, HALF) | {"seed": 1, "new": 2, "step": 0, "methods": [HALF, HALF]}
    return [
        together,
        HALF,
        [HALF],
        {HALF: HALF},
        {"step": 0, "change": {HALF: HALF}},
        {"step": 0, "change": {"sampler": {"name": HALF}}},
        {"step": 0, "change": {"temperature": HALF}},
        {"settings": json.dumps({"names": {"drafter": HALF}}), "way": "python"},
        {"methods": ["plain", HALF], "prompt": HALF, "seed": 1, "new": 2, "models": {"target": HALF}},
        {"name": HALF},
        {"settings": as_json(RunChoice(HALF)), "way": "command"},
        {"settings": as_json(RunChoice("a", {"drafter": HALF})), "way": HALF},
    ]


@pytest.mark.parametrize("body", by_turns(3, [pytest.param(x, id=str(i)) for i, x in enumerate(bodies())]))
def test_no_route_breaks_on_half_a_character(body: Any, play: RunService, client: TestClient) -> None:
    run = finished(play).run
    paths = [x.path for x in client.app.app.routes if "POST" in (getattr(x, "methods", None) or ())]  # type: ignore[attr-defined]
    asked = [x for x in paths if x.startswith("/ds/") and "{rest" not in x]
    assert len(asked) > 15
    for path in asked:
        filled = path.replace("{run}", run).replace("{action}", "stop").replace("{name}", "x")
        filled = filled.replace("{kind}", "drafter").replace("{knob}", "datastore")
        answer = client.post(filled, content=json.dumps(body))
        assert answer.status_code < 500, (filled, answer.text)
        assert "Traceback" not in answer.text
