"""JSON schemas: every keyword is held, refused by its name, or what a finished text breaks is found and recorded."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import bytewise
import jsonschema
import pytest
from sizes import sizes

from decodescope.app.cli import main
from decodescope.engine import Method, ParamError, Session, run
from decodescope.engine.decoding.shared.recogniser import Recogniser, compile_grammar
from decodescope.engine.methods.samplers.grammar import Grammar
from decodescope.engine.session.load import Model
from decodescope.engine.trace import check, open_trace
from decodescope.engine.trace.values.json_schema import find_violations
from decodescope.lab import explain
from decodescope.lab.wire.wire import end_message

PAGE = Path(__file__).parents[2] / "docs" / "guidance.md"
DRAFT = jsonschema.Draft202012Validator
TEXT = {"type": "string", "maxLength": 3}
ONE: dict[str, Any] = {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}
# every keyword of draft 2020-12 that can fail a value -> a schema with it
HELD: dict[str, dict[str, Any]] = {
    "$ref": {"$defs": {"x": {"enum": [1, "b"]}}, "$ref": "#/$defs/x"},
    "additionalProperties": {**ONE, "additionalProperties": False},
    "allOf": {"allOf": [TEXT, {"type": "string", "minLength": 2}]},
    "anyOf": {"anyOf": [TEXT, {"type": "null"}]},
    "const": {"const": {"a": [1, None]}},
    "enum": {"enum": [1, "a", None, 2.5]},
    "exclusiveMaximum": {"type": "integer", "minimum": 0, "exclusiveMaximum": 3},
    "exclusiveMinimum": {"type": "integer", "exclusiveMinimum": -3, "maximum": 2},
    "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    "maxItems": {"type": "array", "items": {"type": "null"}, "maxItems": 1},
    "maxLength": TEXT,
    "maxProperties": {"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 1},
    "maximum": {"type": "number", "minimum": 0.5, "maximum": 2.25},
    "minItems": {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2},
    "minLength": {"type": "string", "minLength": 2, "maxLength": 3},
    "minProperties": {**ONE, "additionalProperties": False, "minProperties": 1},
    "minimum": {"type": "integer", "minimum": 7, "maximum": 70},
    "multipleOf": {"type": "number", "minimum": 0, "maximum": 2, "multipleOf": 0.25},
    "pattern": {"type": "string", "pattern": "^[a-c]{1,3}\\d$"},
    "patternProperties": {
        "type": "object",
        "patternProperties": {"^[xy]$": {"type": "null"}},
        "additionalProperties": False,
        "maxProperties": 1,
    },
    "prefixItems": {"type": "array", "prefixItems": [{"type": "null"}, TEXT], "items": False},
    "properties": {**ONE, "additionalProperties": False},
    "required": {**ONE, "additionalProperties": False},
    "type": {"type": ["null", "boolean"]},
}
REFUSED: dict[str, dict[str, Any]] = {
    "$dynamicRef": {"$dynamicRef": "#x"},
    "contains": {"contains": TEXT},
    "dependentRequired": {"dependentRequired": {"a": ["b"]}},
    "dependentSchemas": {"dependentSchemas": {"a": ONE}},
    "if": {"if": TEXT, "then": False},
    "not": {"not": TEXT},
    "oneOf": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "propertyNames": {"propertyNames": TEXT},
    "unevaluatedItems": {"unevaluatedItems": False},
    "unevaluatedProperties": {"unevaluatedProperties": False},
    "uniqueItems": {"uniqueItems": True},
}
FORMATS = ("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
# a schema of which the masks allow one text, which breaks it -> the words for that
BROKEN: list[tuple[dict[str, Any], str, str]] = [
    (
        {"type": "string", "format": "date", "pattern": "^2023-02-29$"},
        '"2023-02-29"',
        '"2023-02-29" has not the format "date" (format)',
    ),
    (
        {"type": "number", "exclusiveMinimum": 3, "maximum": 3.5},
        "3",
        "3 is not above 3 (exclusiveMinimum)",
    ),
    (
        {
            "type": "array",
            "items": {"type": "string", "format": "time", "pattern": "^01:59:60Z$"},
            "minItems": 1,
            "maxItems": 1,
        },
        '["01:59:60Z"]',
        '"01:59:60Z" has not the format "time" (format), at $[0]',
    ),
]


def start(schema: Any) -> Recogniser:
    return Recogniser(json.dumps(schema), "json", byte_model().alphabet(257, frozenset({bytewise.END})))


@cache
def byte_model() -> Model:
    return bytewise.scripted({}, max_positions=512)


def write(schema: Any, chance: Random, most: int = 120) -> bytes | None:
    """A random text under the masks, with plain characters most of the time; None: it became too long."""
    recogniser = start(schema)
    path, text = recogniser.root, bytearray()
    pieces = byte_model().alphabet(257, frozenset({bytewise.END})).pieces
    while len(text) < most:
        allowed = recogniser.mask(path).nonzero()[:, 0].tolist()
        plain = [x for x in allowed if pieces[x] in b'0123456789abxy.-"}]{[:, Z']
        token = chance.choice(plain if plain and chance.random() < 0.9 else allowed)
        if bytewise.END in allowed and (len(allowed) == 1 or chance.random() < 0.3):
            return bytes(text)
        if token != bytewise.END:
            path = path.with_token(token)
            text += pieces[token]
    return None


def breaks(schema: Any, text: bytes) -> bool:
    """Whether the package alone finds something."""
    return not DRAFT(schema, format_checker=DRAFT.FORMAT_CHECKER).is_valid(json.loads(text))


def test_the_two_tables_name_every_keyword_that_can_fail_and_the_page_does() -> None:
    assert {*HELD} | {*REFUSED} | {"format"} == {*DRAFT.VALIDATORS} and not {*HELD} & {*REFUSED}
    page = PAGE.read_text(encoding="utf-8")
    rows = defaultdict[str, str](str)
    for row in page.splitlines():
        if row.startswith("| `"):
            rows[row.split("|")[2].strip()] += row.split("|")[1]
    assert all(f"`{x}`" in rows["held"] for x in HELD) and all(f"`{x}`" in rows["refused"] for x in REFUSED)
    assert all(f"`{x}`" in rows["held, and validated: a few wrong values pass"] for x in ("date", "time"))


@pytest.mark.parametrize("keyword", REFUSED)
def test_what_no_mask_holds_is_refused_by_its_name(keyword: str) -> None:
    with pytest.raises(
        ParamError, match=r"^grammar\.definition has .*no grammar holds exactly: .*\.$"
    ) as found:
        compile_grammar(json.dumps(REFUSED[keyword]), "json")
    assert keyword in str(found.value)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "number", "minimum": 3, "exclusiveMinimum": True}, 'true is not of the type "number"'),
        ({"type": "string", "format": "regex"}, "has format regex, .* use a pattern, or one of date"),
        ({"$ref": "http://localhost/x"}, "has \\$ref http://localhost/x, .*nothing is fetched"),
        ({"type": "number", "multipleOf": 1e-20}, "write a step with fewer digits"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, r"no text satisfies \(minimum \(3\) is greater"),
        ({"type": "string", "x-guidance": 3}, "write one, or leave it out"),
        ([1], "is no JSON schema"),
    ],
)
def test_a_schema_that_is_none_or_that_nothing_satisfies_is_refused_in_one_sentence(
    schema: Any, words: str
) -> None:
    with pytest.raises(ParamError, match=words) as found:
        compile_grammar(json.dumps(schema), "json")
    assert str(found.value).endswith(".") and "\n" not in str(found.value)


def test_a_schema_that_is_nested_without_end_is_refused_in_one_sentence() -> None:
    with pytest.raises(ParamError, match="nested too deeply"):
        compile_grammar("[" * 19_000, "json")


@pytest.mark.parametrize("keyword", HELD)
def test_texts_under_a_held_keyword_satisfy_it(keyword: str) -> None:
    schema, chance = HELD[keyword], Random(keyword)
    texts = [x for _ in range(12) if (x := write(schema, chance)) is not None]
    assert len(texts) > 3, "the test needs texts"
    for text in texts:
        assert find_violations(json.dumps(schema), text) == [] and not breaks(schema, text), text


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_format_lets_pass_is_found(name: str) -> None:
    """The package alone and the run agree on each text, whether it satisfies the format or not."""
    schema, chance = {"type": "string", "format": name}, Random(name)
    texts = [x for _ in range(12) if (x := write(schema, chance)) is not None]
    assert texts, "the test needs texts"
    for text in texts:
        assert bool(find_violations(json.dumps(schema), text)) == breaks(schema, text), text


# ---- random small schemas


def number_bounds(chance: Random, whole: bool) -> dict[str, Any]:
    numbers = [-3, 0, 1, 3, 10] if whole else [-3, -0.25, 0, 0.5, 3, 3.5, 12.125]
    found = {
        word: chance.choice(numbers)
        for word in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
        if chance.random() < 0.4
    }
    return found | ({"multipleOf": chance.choice([2, 0.1, 0.25, 3])} if chance.random() < 0.2 else {})


def small_schema(chance: Random, depth: int = 1) -> dict[str, Any]:
    kind = chance.choice(
        ["number", "integer", "text", "format", "list", "object", "any"][: 7 if depth else 4]
    )
    if kind in ("number", "integer"):
        return {"type": kind, **number_bounds(chance, kind == "integer")}
    if kind == "text":
        return {"type": "string", "minLength": chance.randint(0, 1), "maxLength": chance.randint(1, 3)}
    if kind == "format":
        return {"type": "string", "format": chance.choice(FORMATS[:3])}
    if kind == "list":
        return {"type": "array", "items": small_schema(chance, 0), "maxItems": chance.randint(0, 2)}
    if kind == "any":
        return {"anyOf": [small_schema(chance, 0), small_schema(chance, 0)]}
    keys = chance.sample("abc", chance.randint(0, 2))
    return {
        "type": "object",
        "properties": {key: small_schema(chance, 0) for key in keys},
        "required": keys[:1],
        "additionalProperties": False,
    }


def without_steps(schema: Any) -> Any:
    """The schema without `multipleOf`, which the package decides by binary numbers."""
    if isinstance(schema, dict):
        return {key: without_steps(value) for key, value in schema.items() if key != "multipleOf"}
    return [without_steps(x) for x in schema] if isinstance(schema, list) else schema


@sizes("count", usual=150, full=5000)
def test_random_texts_under_random_schemas_satisfy_them_or_are_found(count: int) -> None:
    chance, texts, found = Random(count), 0, 0
    for _ in range(count):
        schema = small_schema(chance)
        try:
            written = [x for _ in range(3) if (x := write(schema, chance)) is not None]
        except ParamError as error:
            assert "no text satisfies" in str(error), error
            continue
        for text in written:
            plain, texts = without_steps(schema), texts + 1
            violations = find_violations(json.dumps(schema), text)
            if not any(x.startswith("It is not known") for x in violations):
                assert bool(find_violations(json.dumps(plain), text)) == breaks(plain, text), (schema, text)
            found += bool(violations)
    assert texts > count and found, "the test needs texts, and some that break their schema"


# ---- a run says what its text breaks


@pytest.mark.parametrize(("schema", "text", "words"), BROKEN)
def test_a_run_records_what_its_finished_text_breaks(
    schema: dict[str, Any], text: str, words: str, tmp_path: Path
) -> None:
    settings = {"grammar": {"dialect": "json", "definition": json.dumps(schema)}}
    method = Method.from_names({"sampler": ["grammar", "greedy"]}, settings)
    done = run(byte_model(), method, "x", max_new_tokens=60, path=tmp_path / "x.dstrace")
    end = open_trace(tmp_path / "x.dstrace").end
    assert done.text.removesuffix("<|end|>").startswith(text[:4]) and end.reason == "stop_token"
    assert end.violations == [f"The text does not satisfy its schema: {words}."], end
    assert check(open_trace(tmp_path / "x.dstrace")).ok and end.violations[0] in done.notes
    assert end.violations[0] in end_message(end)["notes"], "the page draws these"
    assert end.violations[0] in str(explain(tmp_path / "x.dstrace", len(done.trace.steps) - 1))


def test_a_text_that_was_cut_or_that_satisfies_its_schema_breaks_nothing() -> None:
    schema = json.dumps({"type": "string", "format": "date", "pattern": "^2023-02-2[89]$"})
    method = Method.from_names(
        {"sampler": ["grammar", "greedy"]}, {"grammar": {"dialect": "json", "definition": schema}}
    )
    for most, reason in ((5, "max_new_tokens"), (60, "stop_token")):
        session = Session(byte_model(), method, [1, 2], max_new_tokens=most)
        for _ in session.stream():
            pass
        assert session.end.reason == reason and session.end.violations is None
    assert Grammar(definition="a", dialect="regex").find_violations(b"b") == []


@pytest.mark.parametrize("drafter", [(), ("--drafter", "prompt_lookup")])
def test_the_command_line_says_what_texts_break_and_its_exit_code_stays(
    drafter: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").write_text("one\ntwo\n")
    how = ("--model", "lab-draft", *drafter, "--sampler", "grammar,greedy", "--set", "grammar.dialect=json")
    how += ("--set", f"grammar.definition={json.dumps(BROKEN[0][0])}", "--max-new-tokens", "40")
    sentence = f"The text does not satisfy its schema: {BROKEN[0][2]}."
    if not drafter:
        assert main(["run", *how, "--prompt", "one", "--trace", "x.dstrace"]) == 0
        assert f"Note: {sentence}" in capsys.readouterr().err
        assert main(["trace", "show", "x.dstrace"]) == 0 and sentence in capsys.readouterr().out
    assert main(["batch", *how, "--prompts", "prompts", "--out", "out.jsonl"]) == 0
    said = capsys.readouterr()
    assert f"Note: In 2 of 2 runs, here the first: {sentence}" in said.out + said.err
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert all(row["violations"] == [sentence] for row in rows)


@pytest.mark.parametrize(
    ("schema", "text", "words"),
    [
        ({}, b"[[[", "it is no JSON"),
        ({}, b"1e999", "It is not known .* beyond 1e400"),
        ({}, b"[" * 100_000, "It is not known .* nested too deeply"),
        ({"type": "string", "pattern": "^(a|a)*c$"}, json.dumps("a" * 60).encode(), "satisfy|not known"),
        ({"multipleOf": 0.1}, b"0.35", "0.35 is no multiple of 0.1"),
        ({"additionalProperties": False}, b'{"c": 1}', "additionalProperties"),
        ({"anyOf": [{"type": "null"}, {"minimum": 3}]}, b"[2]", ""),
    ],
)
def test_whatever_a_text_holds_is_answered_in_one_sentence(schema: Any, text: bytes, words: str) -> None:
    found = find_violations(json.dumps(schema), text)
    if not words:
        assert found == []
        return
    (sentence,) = found
    assert len(sentence) < 400 and sentence.endswith(".")
    assert re.search(words, sentence), sentence
