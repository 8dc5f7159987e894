"""Sets of prompts: lines, objects, LabBench, kinds, limits and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from decodescope.app.basis.refusal import RequestRefusal
from decodescope.app.runs import prompts
from decodescope.app.runs.prompts import (
    PromptEntry,
    labbench_prompts,
    parse_prompts,
    requested_prompts,
    select_kinds,
)

SPEC_BENCH = (
    '{"question_id": 81, "category": "writing", "turns": ["Write.", "Shorter."]}\n'
    '{"question_id": 91, "category": "math", "turns": ["1 + 1?"], "reference": ["2"]}\r\n\n'
    '{"question_id": 92, "category": "math", "turns": ["2 + 2?"]}\n'
)


def test_a_line_is_a_prompt_and_an_empty_one_is_none() -> None:
    assert parse_prompts("\ufeffone\r\n \n  two\n", "x") == [
        PromptEntry("1", "", "one"),
        PromptEntry("3", "", "  two"),
    ]


def test_objects_bring_their_names_and_kinds() -> None:
    due = [
        PromptEntry("81", "writing", "Write.", later=1),
        PromptEntry("91", "math", "1 + 1?"),
        PromptEntry("92", "math", "2 + 2?"),
    ]
    assert parse_prompts(SPEC_BENCH, "x") == parse_prompts(SPEC_BENCH, "x", objects=True) == due
    assert [x.text for x in parse_prompts(SPEC_BENCH, "x", objects=False)] == [
        x for x in SPEC_BENCH.splitlines() if x
    ]
    assert parse_prompts('{"a": 1}\n[2]', "x")[0].text == '{"a": 1}', (
        "an object without a prompt is text that was pasted"
    )


def test_kinds_are_chosen_with_so_many_of_each() -> None:
    whole = parse_prompts(SPEC_BENCH, "x")
    assert [x.name for x in select_kinds(whole, ["math"])] == ["91", "92"]
    assert [x.name for x in select_kinds(whole, each=1)] == ["81", "91"]
    assert [x.name for x in requested_prompts({"text": SPEC_BENCH, "kinds": ["math"], "each": 1}, 1)] == [
        "91"
    ]
    with pytest.raises(RequestRefusal, match="no prompt of the kind 'maths': choose among writing, math"):
        select_kinds(whole, ["maths"])


def test_labbench_is_asked_by_its_kinds_as_users_turns() -> None:
    whole = labbench_prompts()
    assert len(whole) == 560 and all(x.chat for x in whole)
    assert {x.kind for x in whole if x.later} == {"chat"}, "these alone have turns behind the first"
    assert requested_prompts({"bench": "labbench", "kinds": ["copy", "math"], "each": 2}, 4) == [
        x for kind in ("math", "copy") for x in [y for y in whole if y.kind == kind][:2]
    ]


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({}, "There is no prompt in the text"),
        ({"text": " \n", "file": "a.txt"}, "There is no prompt in a.txt"),
        ({"text": "{", "file": "a.jsonl"}, "Line 1 of a.jsonl is no JSON"),
        ({"text": '{"prompt": "x"}\n{"turns": []}'}, "Line 2 of the text has no prompt"),
        ({"text": 3}, "Send "),
        ({"bench": "other"}, "There is no bench 'other'"),
        ({"text": "x", "kinds": "math"}, "is a list of names"),
        ({"text": "x", "each": True}, "Of each kind = True"),
        ({"text": "x", "each": -1}, "Of each kind = -1"),
        ({"text": "a\nb\nc"}, "3 prompts were chosen, more than 2"),
    ],
)
def test_what_is_no_set_is_refused_in_a_sentence(said: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestRefusal, match=says) as refusal:
        requested_prompts(said, 2)
    assert "\n" not in str(refusal.value) and str(refusal.value).endswith(".")


def test_a_set_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MOST", 2)
    with pytest.raises(RequestRefusal, match="3 prompts are in x, more than 2"):
        parse_prompts("a\nb\nc", "x")


def test_lines_hold_messages_requests_ids_and_sharegpt() -> None:
    lines = [
        {"messages": [{"role": "user", "content": "a"}], "category": "chat"},
        {
            "custom_id": "r-1",
            "method": "POST",
            "body": {"model": "m", "messages": [{"role": "user", "content": "b"}]},
        },
        {"prompt": "ignored", "prompt_token_ids": [5, 6]},
        {"prompt": [7, 8]},
        {"id": "x", "conversations": [{"from": "human", "value": "c"}, {"from": "gpt", "value": "d"}]},
        {"prompt": "e"},
    ]
    read = parse_prompts("\n".join(map(json.dumps, lines)), "x")
    assert [x.prompt_kind for x in read] == ["messages", "messages", "ids", "ids", "messages", "text"]
    assert [x.text for x in read[2:4]] == ["5 6", "7 8"] and [x.name for x in read[:2]] == ["1", "r-1"]
    assert [x.beginning for x in read] == ["a", "b", "5 6", "7 8", "c", "e"]
    assert [len(x.source().conversation.messages) for x in (read[0], read[1], read[4])] == [1, 1, 1]
    assert [x.source(chat=True).is_templated for x in read] == [True, True, False, False, True, True]
    assert [x.source(marks=True).kind for x in read] == [
        "messages",
        "messages",
        "ids",
        "ids",
        "messages",
        "marks",
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"messages": []}, "Line 1 of x holds an empty list of messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "Message 1 of Line 1 of x has a part of the type",
        ),
        ({"prompt_token_ids": [1, -2]}, "Line 1 of x: prompt_token_ids must be a list of whole numbers"),
        ({"prompt_token_ids": "1"}, "must be a list of whole numbers"),
        ({"conversations": [{"from": "gpt", "value": "d"}]}, "Line 1 of x holds answers alone"),
        ({"body": {"input": "a"}}, "Line 1 of x has no prompt: write"),
        (5, "Line 1 of x has no prompt"),
    ],
)
def test_a_line_that_holds_no_prompt_is_named(line: Any, why: str) -> None:
    with pytest.raises(RequestRefusal, match=why):
        parse_prompts(json.dumps(line), "x", objects=True)
