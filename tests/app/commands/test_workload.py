"""The command `workload`: an answer cache in front of a method."""

from __future__ import annotations

import json
import re
from pathlib import Path

from decodescope.engine.trace.records.lookups import Lookup, check_lookups

PROMPTS = [
    "def add(a, b):",
    "The old house stood at the end of the road, and nobody",
    "def add(a, b):",
    "List: red, blue,",
]


def test_requests_are_answered_as_run_answers_and_repeats_cost_nothing(said, tmp_path: Path) -> None:
    file, out = tmp_path / "prompts.txt", tmp_path / "requests.jsonl"
    file.write_text("\n".join(PROMPTS), encoding="utf-8")
    asked = ["--model", "lab-draft", "--max-new-tokens", "6"]
    served = ["workload", *asked, "--prompts", str(file), "--requests", "12", "--capacity", "40"]
    code, text, err = said(*served, "--out", str(out), "--json")
    done = json.loads(text)
    assert (code, err, done["prompts"]) == (0, "", ["1", "2", "4"]), "a text that stands twice is one query"
    lookups = [Lookup(**x) for x in done["lookups"]]
    assert not [*check_lookups(lookups, "lec", 40)] and any(x.victims for x in lookups)
    assert done["hits"] == sum(x.hit for x in lookups) > 2
    assert done["flops"] == sum(x.cost for x in lookups) and all((x.cost == 0) == x.hit for x in lookups)
    assert set(done["others"]) == {"gdsf", "lru"} and done["others"]["lru"]["flops"] > 0
    kept = [json.loads(x) for x in out.read_text(encoding="utf-8").splitlines()]
    first = next(x for x in kept if x["name"] == "1")
    assert first["text"] == json.loads(said("run", *asked, "--prompt", PROMPTS[0], "--json")[1])["text"]
    page = tmp_path / "requests.html"
    assert said(*served, "--html", str(page))[0] == 0
    drawn = page.read_text(encoding="utf-8")
    assert "least expected cost" in drawn and "src=" not in re.sub(
        r"<script[^>]*>.*?</script>", "", drawn, flags=re.DOTALL
    )
    code, text, err = said(*served, "--html", str(page))
    assert (code, text) == (2, "") and "requests.html" in err, "what stands there is not written over"
    code, text, _ = said(*served)
    assert code == 0 and ": hit\n" in text and "lru, gone through again" in text and "12 requests" in text


def test_what_cannot_be_served_is_one_sentence(said, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("One.", encoding="utf-8")
    asked = ["workload", "--model", "lab-draft", "--prompts", str(tmp_path / "prompts.txt")]
    wrong = (
        (["--capacity", "0"], "--capacity"),
        (["--drafter", "draft_model"], "--draft"),
        (["--stop", ""], "--stop"),
    )
    for more, word in wrong:
        code, out, err = said(*asked, *more)
        assert (code, out, err.count("\n")) == (2, "", 1) and word in err
