"""Native code that reads grammars and headers of others: its time and memory are bounded, by a trial or by its own limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from waiting import error_while_loop_runs

from decodescope.engine.core.params import ParamError
from decodescope.engine.decoding.shared import recogniser as recognising
from decodescope.engine.decoding.shared.recogniser import Recogniser, compile_grammar
from decodescope.engine.decoding.shared.run_grammar import parser_limits
from decodescope.engine.decoding.values.alphabet import Alphabet
from decodescope.engine.model.checkpoint.weights import HEADER_BYTES
from decodescope.engine.sandbox.helper import JobLimits, run_job
from decodescope.engine.session import placement

PIECES = [b"<end>", *(bytes([x]) for x in range(256)), *(b"a" * n for n in range(2, 60))]
END = frozenset({0})


def alphabet() -> Alphabet:
    """All bytes, runs of one letter, and an end."""
    return Alphabet(len(PIECES), END, END, lambda: PIECES)


AMBIGUOUS = "start: s\ns: " + " | ".join(" ".join(["s"] * n) for n in range(2, 12)) + ' | "a" | ""\n'
DEEP = {
    "brackets of a regex": ("start: /" + "(" * 9000 + "a" + ")" * 9000 + "/", "lark"),
    "brackets of rules": ("start: " + "(" * 9000 + '"a"' + ")" * 9000, "lark"),
    "a deep schema": ('{"anyOf":[' * 900 + "{}" + "]}" * 900, "json"),
    "a schema that grows": (
        json.dumps(
            {
                "$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(30)},
                "$ref": "#/$defs/d0",
            }
        ),
        "json",
    ),
}


@pytest.mark.parametrize("name", DEEP)
def test_a_grammar_that_is_deep_or_explodes_is_one_refusal(name: str) -> None:
    text, dialect = DEEP[name]
    compile_grammar.cache_clear()
    with pytest.raises(ParamError) as error:
        Recogniser(text, dialect, alphabet())
    assert str(error.value).endswith(".")
    assert Recogniser("ab*", "regex", alphabet()).root.open


def test_a_grammar_whose_first_mask_takes_too_much_is_refused_once_and_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recognising, "LIMITS", JobLimits(1.0, 1 << 30))
    why = error_while_loop_runs(lambda: Recogniser(AMBIGUOUS, "lark", alphabet()), ParamError)
    assert "it took more than 1 seconds of processor time" in why
    assert why.endswith("write a shorter one, or one that repeats less.")
    monkeypatch.setattr(recognising, "run_job", None)
    with pytest.raises(ParamError) as again:
        Recogniser(AMBIGUOUS, "lark", alphabet())
    assert str(again.value) == why


def test_what_makes_masks_later_has_limits_of_its_own() -> None:
    limits = parser_limits()
    assert (limits.step_max_items, limits.max_items_in_row) == (50_000, 2_000)
    assert (limits.initial_lexer_fuel, limits.step_lexer_fuel) == (1_000_000, 200_000)
    assert (limits.max_lexer_states, limits.max_grammar_size) == (250_000, 500_000)


# ---- headers of safetensors files

READ = """
from safetensors import safe_open

def run_job(path):
    try:
        with safe_open(path, "np") as file:
            return len(list(file.keys()))
    except Exception as error:
        return str(error)
"""


def header_of(kind: str) -> bytes:
    """As much of one kind as our limit lets pass."""
    room = HEADER_BYTES - 200
    entry = '"%07d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
    if kind == "many tensors":
        text = "{" + "".join(entry % x for x in range(room // len(entry % 0)))[:-1] + "}"
    elif kind == "one long shape":
        text = '{"x":{"dtype":"U8","shape":[' + "1," * (room // 2 - 50) + '0],"data_offsets":[0,0]}}'
    elif kind == "words about it":
        text = '{"__metadata__":{' + ",".join(f'"{x}":""' for x in range(room // 13)) + "}}"
    else:
        text = "[" * room
    return text.encode()


@pytest.mark.parametrize("kind", ["many tensors", "one long shape", "words about it", "brackets"])
def test_the_longest_header_that_we_let_pass_takes_bounded_time_and_memory(kind: str, tmp_path: Path) -> None:
    """So the library needs no helper: its work is bounded by the length of the header, and that by us."""
    header = header_of(kind)
    assert HEADER_BYTES // 2 < len(header) <= HEADER_BYTES
    path, program = tmp_path / "model.safetensors", tmp_path / "read.py"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    program.write_text(READ)
    answer = run_job(program, str(path), JobLimits(10.0, 1 << 30), fresh=True)
    assert answer if isinstance(answer, str) else answer >= 0


def test_the_type_of_weights_is_not_looked_up_in_a_header_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.safetensors").write_bytes((HEADER_BYTES + 1).to_bytes(8, "little"))
    monkeypatch.setattr(placement, "safe_open", None)
    assert str(placement.default_dtype(tmp_path)) == "torch.float32"
