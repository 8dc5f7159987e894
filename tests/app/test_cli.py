"""The command line: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_parsers import command_parsers
from waiting import eventually

from decodescope.app.cli import main
from decodescope.engine.core import files
from decodescope.engine.core.exactness import VALUES
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.session.load import SHIPPED, load
from decodescope.engine.trace import open_trace

ROOT = Path(__file__).resolve().parents[2]
RUN = ["run", "--model", "lab-draft", "--prompt", "def add(a, b):", "--max-new-tokens", "8"]
SPECULATIVE = [*RUN, "--draft", "lab-draft", "--drafter", "draft_model"]
KEYS = re.findall(
    r"\w+",
    """text prompt_tokens tokens steps target_passes tau accepted drafted prefill_s wall_s tokens_per_s kv_bytes_held
    kv_bytes_peak kv_bytes_kept kv_bytes_full exactness end causes models trace notes""",
)


@pytest.fixture
def asked(said):
    """Run a command with --json that succeeds; return the object."""

    def call(*argv: str) -> dict:
        code, out, err = said(*argv, "--json")
        assert code == 0, err
        found = json.loads(out)
        assert isinstance(found, dict)
        return found

    return call


# ---- run


def test_run_tells_all_that_its_contract_names(asked) -> None:
    found = asked(*RUN)
    assert list(found) == KEYS
    assert all(
        type(x) is int
        for x in [*found["prompt_tokens"], *found["tokens"], found["steps"], found["target_passes"]]
    )
    assert len(found["tokens"]) == found["steps"] == found["target_passes"] == 8
    assert (
        found["exactness"] == "lossless"
        and found["causes"] == []
        and found["models"]["target"]["name"] == "lab-draft"
    )
    assert found["end"] == "max_new_tokens" and found["trace"] is None
    assert found["tau"] == 1 and found["drafted"] == found["accepted"] == 0
    assert 0 < found["prefill_s"] < found["wall_s"]
    assert found["tokens_per_s"] == pytest.approx(8 / (found["wall_s"] - found["prefill_s"]))


def test_a_draft_of_the_same_model_is_always_accepted_and_leaves_the_text(asked) -> None:
    plain, drafted = asked(*RUN), asked(*SPECULATIVE, "--set", "drafter.max_draft_tokens=3")
    assert drafted["tokens"] == plain["tokens"]
    assert drafted["accepted"] == drafted["drafted"] > 0
    assert drafted["tau"] > 2


def test_text_that_streams_is_the_text_of_the_json(said, asked) -> None:
    prompt = [
        "--prompt",
        "Der Bär über dem Fluß — ",
        "--max-new-tokens",
        "24",
        "--set",
        "temperature.temperature=3",
    ]
    command = ["run", "--model", "lab-draft", "--sampler", "temperature", *prompt, "--seed", "5"]
    code, out, err = said(*command)
    text, _, line = out.rpartition("\n\n")
    assert code == 0 and err == ""
    assert text == asked(*command)["text"]
    assert re.match(r"24 tokens in 24 steps, 1.00 tokens per target pass, .* ended: max_new_tokens\n$", line)


def test_half_characters_are_not_printed() -> None:
    from decodescope.app.commands.shared.output import LivePrinter

    live, shown = LivePrinter(), []
    for byte in "é€𝄞a".encode() + b"\xff\xe2\x82":
        live.last = ""
        live.add(bytes([byte]))
        shown.append(live.last)
    live.add(b"", final=True)
    assert [x for x in shown if x] == ["é", "€", "𝄞", "a", "\ufffd"]
    assert live.last == "\ufffd"


def test_samplers_are_chained_in_order_with_their_own_knobs(asked, tmp_path: Path) -> None:
    chain = ["--sampler", "top_k,temperature", "--set", "top_k.k=3", "--set", "temperature.temperature=0.5"]
    place = str(tmp_path / "run.dstrace")
    found = asked(*RUN, *chain, "--seed", "3", "--trace", place)
    assert found["trace"] == place
    stages = open_trace(place).header.method["sampler"]["stages"]
    assert stages == [{"name": "top_k", "k": 3}, {"name": "temperature", "temperature": 0.5}]
    assert asked(*RUN, *chain, "--seed", "3")["tokens"] == found["tokens"]


def test_several_draft_models_are_given_by_role(asked, said) -> None:
    three = [
        "--drafter",
        "specinfer",
        "--draft",
        "lab-draft",
        "--draft2",
        "lab-draft",
        "--draft3",
        "lab-draft",
    ]
    made = asked(*RUN, *three, "--set", "drafter.models=3", "--set", "drafter.branching=1,1")
    assert made["tokens"] == asked(*RUN)["tokens"] and made["accepted"] == made["drafted"] > 0
    code, _, err = said(*RUN, *three, "--set", "drafter.models=2", "--json")
    assert code == 0 and "--draft3 is ignored" in err and err.count("\n") == 1


def test_a_text_comes_from_a_file_or_as_it_is_typed(asked, said, tmp_path: Path) -> None:
    file, place = tmp_path / "notes.txt", tmp_path / "run.dstrace"
    file.write_text("return a + b\n    or b + a\n", encoding="utf-8")
    llma = [*RUN, "--drafter", "llma", "--trace", str(place), "--set"]
    for typed, text in (f"@{file}", file.read_text()), (f"@@{file}", f"@{file}"), ("a\nb", "a\nb"):
        asked(*llma, f"drafter.reference={typed}")
        assert open_trace(place).header.method["drafter"]["reference"] == text
        place.unlink()
    (tmp_path / "bytes").write_bytes(b"ab\xff")
    (tmp_path / "long").write_text("a" * 262_145)
    for name, why in (
        ("none", "The text for drafter.reference, .*none cannot be read: No such file"),
        ("bytes", r"The text for drafter.reference, .*bytes is not UTF-8 text \(byte 2\): save it as UTF-8"),
        ("long", "llma.reference has 262,145 characters, above the limit of 262,144; shorten it"),
    ):
        code, out, err = said(*llma, f"drafter.reference=@{tmp_path / name}")
        assert code == 2 and out == "" and re.fullmatch(rf"{why}.*\.\n", err)
    assert (
        asked(*RUN, "--drafter", "prompt_lookup", "--set", "drafter.match=first")["tokens"]
        == asked(*RUN)["tokens"]
    )
    assert (
        "choose one of latest, first"
        in said(*RUN, "--drafter", "prompt_lookup", "--set", "drafter.match=@x")[2]
    )


def test_a_file_is_named_by_its_hash_kept_with_a_recorded_run_and_found_again(
    asked, said, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(files, "uploads_folder", lambda: tmp_path / "kept")
    monkeypatch.setattr(files, "KNOWN", {})
    file, place, branch = (
        tmp_path / "notes.txt",
        str(tmp_path / "run.dstrace"),
        str(tmp_path / "fork.dstrace"),
    )
    file.write_text("def add(a, b):" + asked(*RUN)["text"], encoding="utf-8")
    rest = [*RUN, "--drafter", "rest", "--set", "drafter.depth=1", "--set"]
    asked(*rest, f"drafter.datastore={file}")
    assert not (tmp_path / "kept").exists(), "a run that is not recorded leaves nothing"
    found = asked(*rest, f"drafter.datastore={file}", "--trace", place)
    value = open_trace(place).header.method["drafter"]["datastore"]
    assert value == files.file_mark(str(file), 1 << 24) and found["accepted"] > 0
    file.unlink()
    files.KNOWN.clear()
    assert asked(*rest, f"drafter.datastore={value}")["tokens"] == found["tokens"]
    (tmp_path / "other.txt").write_text("def add(a, b): return b + a", encoding="utf-8")
    other = f"drafter.datastore={tmp_path / 'other.txt'}"
    asked("trace", "fork", place, "--step", "2", "--trace", branch, "--set", other)
    header = open_trace(branch).header
    assert header.method["drafter"]["datastore"].startswith("other.txt@")
    assert str(tmp_path) not in json.dumps([header.method, header.fork]), (
        "no path of this machine is recorded"
    )
    (tmp_path / "kept" / str(files.hash_of(value))).unlink()
    for wrong, why in (
        (value, "is not on this machine"),
        (f"{tmp_path}/none", "there is no file"),
        (tmp_path, "there is no"),
    ):
        code, out, err = said(*rest, f"drafter.datastore={wrong}")
        assert code == 2 and out == "" and why in err and err.count("\n") == 1 and err.endswith(".\n")


def test_a_draft_that_is_not_needed_is_ignored_with_a_note(said) -> None:
    code, out, err = said(*RUN, "--draft", "lab-draft", "--json")
    assert code == 0 and json.loads(out)["drafted"] == 0
    assert "--draft is ignored" in err and err.count("\n") == 1


def test_stop_ends_the_text(asked) -> None:
    whole = asked(*RUN)["text"]
    stop = whole[len(whole) // 2]
    found = asked(*RUN, "--stop", "never there", "--stop", stop)
    assert found["end"] == "stop_text" and stop in found["text"]
    assert len(found["text"]) < len(whole) and whole.startswith(found["text"])
    own = asked(
        "run", "--model", "lab-draft", "--prompt", "Once", "--max-new-tokens", "400", "--stop", "never there"
    )
    assert own["end"] == "stop_token" and own["tokens"][-1] in load("lab-draft").stop_tokens


def test_a_length_that_the_context_cuts_is_told_in_text_and_json(said, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("one two three " * 680)
    command = [
        "run",
        "--model",
        "lab-draft",
        "--prompt-file",
        str(tmp_path / "long"),
        "--max-new-tokens",
        "30",
    ]
    code, out, err = said(*command, "--json")
    found = json.loads(out)
    many = len(found["prompt_tokens"])
    assert code == 0 and found["end"] == "context_full" and len(found["tokens"]) == 2048 - many < 30
    note = (
        "Note: the model lab-draft reads at most 2048 tokens, the answer included (max_position_embeddings of its "
        f"config.json), which leaves {2048 - many} behind this prompt of {many}, so --max-new-tokens 30 is cut to that."
    )
    assert found["notes"] == [note] and err == note + "\n"
    assert said(*command)[2] == note + "\n"
    kept = [*command, "--policy", "streaming_llm", "--set", "policy.recent=64", "--json"]
    assert json.loads(said(*kept)[1])["notes"] == [], "a cache that keeps its size has no such end"


def test_a_level_without_a_trace_is_ignored_with_a_note(said, asked) -> None:
    code, out, err = said(*RUN, "--trace-level", "full", "--layers", "0", "--json")
    assert code == 0 and json.loads(out)["notes"] == err.splitlines()
    assert [x.rpartition(" so ")[2] for x in err.splitlines()] == [
        "--trace-level is ignored.",
        "--layers is ignored.",
    ]
    assert asked(*RUN)["notes"] == []


def test_a_full_cache_beside_is_asked_for_where_something_of_it_is_recorded(said, tmp_path: Path) -> None:
    code, out, err = said(
        *RUN, "--reference", "--trace-level", "summary", "--trace", str(tmp_path / "a.dstrace")
    )
    assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith(
        "--trace-level summary records nothing of a full reference cache"
    )
    code, _, err = said("cache", "load", "a.dscache", "--model", "lab-draft", "--reference")
    assert code == 2 and "--reference" in err, "its prompt was loaded: there is no full cache of it"


def test_entries_of_a_cache_are_counted_alike(asked) -> None:
    from decodescope.engine.model.checkpoint.config import spec_from_config

    plain = asked(*RUN)
    assert plain["kv_bytes_kept"] == plain["kv_bytes_full"] < plain["kv_bytes_held"], (
        "whole pages would seem to cost"
    )
    config = Path(
        next(x["path"] for x in asked("models")["models"] if x["name"] == "lab-draft"), "config.json"
    )
    one = spec_from_config(json.loads(config.read_text()), "lab-draft").kv_bytes(1, 4)
    assert plain["kv_bytes_full"] == one * (len(plain["prompt_tokens"]) + 7)
    small = asked(*RUN, "--policy", "window", "--set", "policy.window=4")
    assert small["kv_bytes_kept"] == 4 * one and small["kv_bytes_full"] == plain["kv_bytes_full"]


def test_the_command_alone_prints_its_help(said) -> None:
    code, out, err = said()
    assert (code, err) == (0, "") and out.startswith("usage: decodescope") and "decode one prompt" in out


def test_chat_wraps_the_prompt(asked) -> None:
    assert len(asked(*RUN, "--chat")["prompt_tokens"]) > len(asked(*RUN)["prompt_tokens"])


def test_special_tokens_in_a_prompt_are_named_in_text_and_json(said) -> None:
    """A prompt without them gets no note."""
    typed = ["run", "--model", "lab-draft", "--prompt", "<|user|>hi", "--max-new-tokens", "2", "--json"]
    what = "Note: the prompt holds the text of special tokens ('<|user|>'), which is read as plain text"
    ways = "--marks reads them as special tokens, or --chat lets the chat template write them"
    for more, note in (([], f"{what}: {ways}."), (["--chat"], f"{what}.")):
        code, out, err = said(*typed, *more)
        assert code == 0 and json.loads(out)["notes"] == [note] and err == f"{note}\n"
    code, out, err = said(*RUN, "--chat", "--json")
    assert code == 0 and json.loads(out)["notes"] == [] and err == ""


def test_settings_of_a_tokenizer_that_are_not_followed_are_named_by_every_command(
    said, tmp_path: Path
) -> None:
    folder, prompts = tmp_path / "m", tmp_path / "prompts.txt"
    shutil.copytree(SHIPPED / "lab-draft", folder, ignore=shutil.ignore_patterns("heads", "adapters"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "split_special_tokens": True}))
    prompts.write_text("a")
    note = "Note: m: split_special_tokens is not followed: the marks of a chat template are read as special tokens.\n"
    model = ("--model", str(folder))
    for command in (
        ("run", *model, "--prompt", "a", "--max-new-tokens", "1"),
        ("batch", *model, "--prompts", str(prompts), "--max-new-tokens", "1"),
        ("cache", "save", str(tmp_path / "kept"), *model, "--prompt", "a b c"),
    ):
        code, _, err = said(*command)
        assert code == 0 and err == note, (code, err)


def test_prompt_comes_from_a_file_byte_by_byte(asked, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"def add(a, b):")
    command = [x for x in RUN if x not in ("--prompt", "def add(a, b):")]
    assert asked(*command, "--prompt-file", str(file)) | TIMES == asked(*RUN) | TIMES
    file.write_bytes(b"\xef\xbb\xbfdef add(a, b):")
    marked = asked(*command, "--prompt-file", str(file))
    assert marked | TIMES == asked(*RUN) | TIMES, "a byte-order mark is no text"


TIMES = {"prefill_s": 0, "wall_s": 0, "tokens_per_s": 0}


def test_lossy_methods_say_so(said, asked) -> None:
    lossy = ["--policy", "window", "--set", "policy.window=8"]
    assert asked(*RUN, *lossy)["exactness"] == "lossy"
    assert "lossy (because: " in said(*RUN, *lossy)[1]


# ---- refusals

BAD = {
    "unknown command": "decode",
    "no model": "run --prompt x",
    "no prompt": "run --model lab",
    "two prompts": "run --model lab --prompt x --prompt-file y",
    "unknown option": "run --model lab --prompt x --tempreature 1",
    "unknown model": "run --model /no/such/folder --prompt x",
    "odd name of a model": "run --model 'a b' --prompt x",
    "unknown drafter": "run --model lab --prompt x --drafter draft_modell",
    "unknown sampler": "run --model lab --prompt x --sampler top_k,topp",
    "unknown knob": "run --model lab --prompt x --set policy.windows=4 --policy window",
    "knob out of range": "run --model lab --prompt x --sampler top_k --set sampler.k=0",
    "knob of no number": "run --model lab --prompt x --sampler top_k --set sampler.k=many",
    "knob not finite": "run --model lab --prompt x --sampler temperature --set sampler.temperature=nan",
    "set without a value": "run --model lab --prompt x --set top_k",
    "set of an absent part": "run --model lab --prompt x --set top_p.p=0.5",
    "draft is missing": "run --model lab --prompt x --drafter draft_model",
    "part that the strategy does not use": "run --model lab --prompt x --strategy jacobi --drafter prompt_lookup",
    "heads": "run --model lab-draft --prompt x --drafter medusa --head medusa=heads.safetensors",
    "heads of no kind": "run --model lab --prompt x --head clover=here",
    "heads without a folder": "run --model lab --prompt x --head medusa",
    "empty prompt": "run --model lab-draft --prompt ''",
    "no tokens": "run --model lab --prompt x --max-new-tokens 0",
    "half a token": "run --model lab --prompt x --max-new-tokens 1.5",
    "negative seed": "run --model lab --prompt x --seed -1",
    "unknown type": "run --model lab --prompt x --dtype int4",
    "unknown device": "run --model lab --prompt x --device tpu",
    "absent device": "run --model lab --prompt x --device cuda:63",
    "prompt file absent": "run --model lab --prompt-file /no/such/file",
    "prompt file is a folder": "run --model lab --prompt-file /",
    "trace in no folder": "run --model lab --prompt x --trace /no/such/folder/t",
    "trace of an endless name": f"run --model lab --prompt x --trace {'x' * 5000}",
    "trace in a folder that takes none": "run --model lab-draft --prompt x --trace /dev/null/t",
    "cache of an endless name": f"cache save --model lab-draft --prompt x {'x' * 5000}",
    "stop of no text": "run --model lab-draft --prompt x --stop '\udcff'",
    "empty stop": "run --model lab-draft --prompt x --stop ''",
    "prompt of no text": "run --model lab-draft --prompt 'a\udcff'",
    "trace exists": f"run --model lab --prompt x --trace {shlex.quote(__file__)}",
    "trace absent": "trace show /no/such/trace",
    "no trace": f"trace check {shlex.quote(__file__)}",
    "export to nothing": f"trace export {shlex.quote(__file__)}",
    "export of no trace": f"trace export {shlex.quote(__file__)} --html /tmp/no-such-file.html",
    "export over a file": f"trace export x --html {shlex.quote(__file__)}",
    "export in no folder": "trace export x --perfetto /no/such/folder/t.json",
    "export of two to one": "trace export x --html a --perfetto a",
    "models in no folder": "app --no-browser --models /no/such/folder",
    "no way": "trace",
    "too few rounds": "bench decode --repeats 0",
    "unknown measurement": "bench encode",
    "port": "app --port 70000",
}


@pytest.mark.parametrize("command", BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_in_one_sentence(said, command: str) -> None:
    code, out, err = said(*shlex.split(command))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and "Traceback" not in err
    assert re.match(r"\S.{15,600}[.?)]\n$", err), err


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (BAD["unknown drafter"], "'draft_model'"),
        (BAD["unknown knob"], "'window'"),
        (BAD["unknown sampler"], "'top_p'"),
    ],
)
def test_a_misspelt_name_gets_the_nearest(said, command: str, word: str) -> None:
    assert f"Did you mean {word}?" in said(*shlex.split(command))[2]


def test_prompt_file_in_another_encoding_is_refused(said, tmp_path: Path) -> None:
    file = tmp_path / "latin"
    file.write_bytes("fünf".encode("latin-1"))
    code, _, err = said("run", "--model", "lab", "--prompt-file", str(file))
    assert code == 2 and "not UTF-8 text (byte 1)" in err


def test_a_trace_is_refused_while_its_partial_lies_there(said, tmp_path: Path) -> None:
    (tmp_path / "t.dstrace.partial").write_bytes(b"")
    code, _, err = said(*RUN, "--trace", str(tmp_path / "t.dstrace"))
    assert code == 2 and "exists already" in err


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nothing can be made")
def test_a_trace_that_cannot_be_made_is_refused(said) -> None:
    code, out, err = said(*RUN, "--trace", "/proc/run.dstrace", "--json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Traceback" not in err and "/proc" in err


def test_a_disk_that_fills_up_ends_the_run_and_leaves_its_figures(said, tmp_path: Path, monkeypatch) -> None:
    from decodescope.engine.session.run import LazyWriter
    from decodescope.engine.trace import StorageFull
    from decodescope.engine.trace.records.events import Step

    honest = LazyWriter.write

    def write(self: LazyWriter, record: object) -> None:
        if isinstance(record, Step) and record.step == 3:
            raise StorageFull("The disk is full; free some room.")
        honest(self, record)

    monkeypatch.setattr(LazyWriter, "write", write)
    code, out, err = said(*RUN, "--trace", str(tmp_path / "t"), "--json")
    assert code == 1 and err == "The disk is full; free some room.\n"
    assert json.loads(out)["end"] == "storage_full"
    assert len(open_trace(tmp_path / "t").steps) == 3


def test_a_prompt_longer_than_the_context_is_refused(said) -> None:
    code, _, err = said("run", "--model", "lab-draft", "--prompt", "one two three " * 1500)
    assert code == 2 and "2048" in err
    assert "streaming_llm, which keeps 256 entries: 9 passes over a cache of 0.8 MiB" in err
    draft = ["--draft", "lab-draft", "--drafter", "draft_model", "--policy", "streaming_llm"]
    code, _, err = said("run", "--model", "lab", *draft, "--prompt", "one two three " * 1500)
    assert code == 2 and "the draft model lab-draft reads at most 2048 tokens" in err, (
        "the draft model's own context is full"
    )
    assert err.endswith(": shorten the prompt, or name a model that reads more with --draft NAME.\n")


# ---- lists


def test_methods_lists_every_part_with_its_knobs(asked, said) -> None:
    found = asked("methods")["methods"]
    assert {(x["kind"], x["name"]) for x in found} >= {
        ("drafter", "draft_model"),
        ("policy", "h2o"),
        ("sampler", "top_p"),
    }
    for part in found:
        told = [
            "kind",
            "name",
            "title",
            "idea",
            "source",
            "headline",
            "measured",
            "exactness",
            "params",
            "needs",
        ]
        assert list(part) == told and part["idea"].endswith(".")
        assert part["exactness"] in VALUES
        for knob in part["params"]:
            told = ["name", "type", "default", "low", "high", "choices", "unit", "help", "file"]
            assert list(knob) == [*told, "item", "least", "most", "lines", "auto"]
            assert knob["type"] in ("int", "float", "bool", "str", "list") and (
                knob["type"] == "list"
            ) == bool(knob["item"])
    by_name = {x["name"]: x for x in found}
    assert by_name["draft_model"]["exactness"] == "lossless" and by_name["draft_model"]["needs"][
        "models"
    ] == ["draft"]
    assert by_name["h2o"]["exactness"] == "lossy" and by_name["h2o"]["needs"]["attention"] == "columns"
    rules = {x: by_name[x]["exactness"] for x in ("typical", "block")}
    assert rules == {"typical": "lossy", "block": "lossless"}, "a rule by its effect on any draft"
    assert by_name["eagle2"]["needs"]["heads"] == ["eagle"] and by_name["none"]["measured"] == {
        "tau": 1.0,
        "ratio": 1.0,
    }
    apart = asked("methods")["commands"]
    assert {x["name"] for x in apart} == {"cachegen", "batchllm", "answers"}
    text = said("methods")[1]
    assert all(f"  {x['name']}: {x['title']}" in text for x in (*found, *apart)) and all(
        x["run"] in text for x in apart
    )


def test_models_lists_the_shipped_ones(asked) -> None:
    found = {x["name"]: x for x in asked("models")["models"]}
    assert {"lab", "lab-draft"} <= set(found)
    assert found["lab"]["params"] > found["lab-draft"]["params"] and found["lab"]["context"] == 2048
    assert Path(found["lab"]["path"], "config.json").exists()


def test_doctor_speaks_in_words(asked, said, tmp_path: Path) -> None:
    found = asked("doctor", "--data", str(tmp_path))
    assert found["ok"] is True
    due = {"torch", "threads", "instructions", "bfloat16", "models", "data", "port", "browser"}
    assert {x["what"] for x in found["findings"]} >= due
    (tmp_path / "file").write_text("")
    code, out, _ = said("doctor", "--data", str(tmp_path / "file"))
    assert code == 1 and "NOT OK  data: " in out


def test_hardware_shows_what_was_kept(asked, said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from decodescope.engine.cost.hardware import HardwareProfile
    from decodescope.engine.cost.pass_curve import ROWS
    from decodescope.engine.decoding.shared import verify_cost
    from decodescope.engine.timing import measure

    made = HardwareProfile("a machine", {"float32": 1e11, "bfloat16": 2e11}, 1e10, kind="measured")
    monkeypatch.setattr(measure, "measure", lambda *args: made)  # the real measurement takes seconds
    monkeypatch.setattr(verify_cost, "_time_rounds", lambda lane, rows, *_: {n: [50.0 * n] * 3 for n in rows})
    how = ("hardware", "--data", str(tmp_path), "--device", "cpu", "--model", "lab-draft")
    found = asked(*how)
    assert found["here"]["bfloat16"]["bandwidth"] == 1e10
    assert "a100-80g" in found["known"]
    assert len(list(tmp_path.rglob("*.json"))) == 4
    monkeypatch.setattr(verify_cost, "_time_rounds", None)  # what was kept is not measured again
    passes = asked(*how)["passes"]
    assert passes["model"] == "lab-draft"
    for dtype in ("float32", "bfloat16"):
        assert passes[dtype]["us"] == {str(n): 50.0 * n for n in ROWS}
        assert passes[dtype]["times"]["8"] == 8.0 and passes[dtype]["kernels"] in ("rows", "torch")
    code, out, _ = said(*how)
    assert code == 0 and "A pass of lab-draft by its rows" in out and "0.40 (8.00)" in out


def test_price_sets_both_tables_side_by_side(asked, said) -> None:
    priced = asked("price", "llama-2-7b", "--machine", "a6000", "--unfused")
    assert f"{priced['ours']['flops']:.5e} {priced['viewer']['flops']:.5e}" == "1.43022e+10 1.41697e+10"
    assert sum(x["viewer"]["bytes"] for x in priced["parts"]) == priced["viewer"]["bytes"]
    code, out, _ = said(
        "price", "lab", "--context", "256", "--prefill", "--bits", "4,16,8", "--sequences", "2"
    )
    assert (
        code == 0
        and "4-bit weights" in out
        and "whole square of pairs" in out
        and "each of 2 sequences" in out
    )
    for wrong in (["--bits", "0"], ["--bits", "four"], ["--machine", "nowhere"]):
        code, _, err = said("price", "lab", *wrong)
        assert code == 2 and err.count("\n") == 1


# ---- traces


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed trace, and next to it the .partial file that it had after some steps."""
    place = tmp_path_factory.mktemp("traces") / "run.dstrace"
    assert main([*SPECULATIVE, "--max-new-tokens", "24", "--trace", str(place)]) == 0
    return place


def test_trace_show_says_what_the_run_said(asked, recorded: Path) -> None:
    found, run = asked("trace", "show", str(recorded)), asked(*SPECULATIVE, "--max-new-tokens", "24")
    for key in (
        "text",
        "prompt_tokens",
        "tokens",
        "steps",
        "target_passes",
        "tau",
        "accepted",
        "drafted",
        "exactness",
        "end",
    ):
        assert found[key] == run[key]
    assert found["damage"] is None


def test_trace_show_reads_one_that_is_being_written(asked, said, recorded: Path, tmp_path: Path) -> None:
    whole = recorded.read_bytes()
    partial = tmp_path / "run.dstrace.partial"
    partial.write_bytes(whole[: len(whole) * 2 // 3])
    found, full = asked("trace", "show", str(partial)), asked("trace", "show", str(recorded))
    assert 0 < found["steps"] < full["steps"] and found["end"] is None
    assert found["tokens"] == full["tokens"][: len(found["tokens"])]
    assert "ended: not yet" in said("trace", "show", str(partial))[1]


def test_trace_check_tells_agreement_from_contradiction(asked, said, recorded: Path, tmp_path: Path) -> None:
    found = asked("trace", "check", str(recorded))
    assert found["ok"] is True and found["problems"] == [] and found["counts"]["steps"] > 2
    changed = bytearray(recorded.read_bytes())
    changed[len(changed) // 2] ^= 1
    bad = tmp_path / "bad.dstrace"
    bad.write_bytes(changed)
    code, out, err = said("trace", "check", str(bad), "--json")
    assert code == 1 and err == "" and json.loads(out)["problems"] and not json.loads(out)["cut"]
    bad.write_bytes(recorded.read_bytes()[: len(changed) * 2 // 3])
    code, out, err = said("trace", "check", str(bad))
    assert (
        code == 1 and err == "" and out.startswith("The trace is cut off; what is there agrees with itself (")
    )
    assert json.loads(said("trace", "check", str(bad), "--json")[1])["cut"]


def test_trace_export_writes_a_page_and_trace_events(asked, said, recorded: Path, tmp_path: Path) -> None:
    page, events = tmp_path / "run.html", tmp_path / "run.json"
    found = asked("trace", "export", str(recorded), "--html", str(page), "--perfetto", str(events))
    assert found == {"trace": str(recorded), "html": str(page), "perfetto": str(events), "csv": None}
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads(events.read_text(encoding="utf-8"))["traceEvents"]
    before = page.read_bytes()
    code, out, err = said("trace", "export", str(recorded), "--html", str(page))
    assert code == 2 and out == "" and "exists already" in err and page.read_bytes() == before
    assert "run2.html: " in said("trace", "export", str(recorded), "--html", str(tmp_path / "run2.html"))[1]


# ---- as a program


def decodescope(*argv: str, **more) -> subprocess.Popen:
    """The program in a process of its own."""
    command = [sys.executable, "-m", "decodescope", *argv]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def test_version_and_the_import_of_the_command_line_are_light() -> None:
    code = "import sys; from decodescope.app.cli import main; main(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    first, loaded = done.stdout.split("\n")[:2]
    assert re.fullmatch(r"decodescope \d+\.\d+\.\d+", first)
    assert not {"torch", "numpy", "gradio", "transformers"} & set(loaded.split())


def test_run_loads_no_page_and_no_modelling() -> None:
    code = f"import sys; from decodescope.app.cli import main; main({[*RUN, '--json']}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "torch" in loaded
    assert not {"gradio", "transformers", "fastapi", "plotly", "pandas"} & loaded, done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_the_run_and_seals_its_trace(
    sent: signal.Signals, code: int, tmp_path: Path
) -> None:
    place = tmp_path / "run.dstrace"
    done = decodescope(*RUN, "--max-new-tokens", "2000", "--trace", str(place))
    assert done.stdout is not None and done.stdout.read(1)  # wait for the first token
    done.send_signal(sent)
    out, err = done.communicate(timeout=60)
    assert (done.returncode, err) == (code, b"")
    assert b"ended: stopped_by_user" in out
    trace = open_trace(place)
    assert trace.end is not None and trace.end.reason == "stopped_by_user" and 0 < len(trace.steps) < 2000


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send")
def test_the_first_interrupt_ends_the_reading_of_a_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("decodescope.engine.decoding.bases.lane.CHUNK", 2)
    place, forward, passes = tmp_path / "run.dstrace", Lane.forward, []

    def interrupted(*args: Any) -> Any:
        passes.append(len(passes))
        if len(passes) == 2:
            signal.raise_signal(signal.SIGINT)
        return forward(*args)

    monkeypatch.setattr(Lane, "forward", interrupted)
    assert (
        main([*RUN, "--threads", "1", "--trace", str(place)]) == 130
    )  # with more threads, passes would be timed first
    assert "ended: stopped_by_user" in capsys.readouterr().out and passes == [0, 1]
    trace = open_trace(place)
    assert trace.end is not None and trace.end.reason == "stopped_by_user" and len(trace.steps) == 0


@pytest.mark.skipif(os.name == "nt", reason="pipes close differently there")
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    place = tmp_path / "run.dstrace"
    done = decodescope(*RUN, "--max-new-tokens", "2000", "--trace", str(place))
    assert done.stdout is not None and done.stderr is not None and done.stdout.read(1)
    done.stdout.close()
    assert done.stderr.read() == b""
    assert done.wait(timeout=60) == 141
    eventually(place.exists)
    assert open_trace(place).end is not None


# ---- the page of documentation


def test_the_documentation_names_every_command_and_option_and_no_other() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    parts = re.split(r"(?m)^## decodescope (.+)$", text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert set(sections) == set(command_parsers())
    for words, made in command_parsers().items():
        has = {
            x.option_strings[0]: x for x in made._actions if x.option_strings and x.option_strings[0] != "-h"
        }
        listed = re.findall(r"(?m)^\| `(--[\w-]+)(?: ([^`]+))?` \|", sections[words])
        if not listed:
            assert all(option in sections[words] for option in has), words
            continue
        assert {name for name, _ in listed} == set(has), words
        for name, metavar in listed:
            assert metavar == (has[name].metavar or ""), (words, name)


def test_examples_of_the_documentation_run(said) -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    examples = re.findall(r"(?m)^    decodescope (run .+)$", text)
    assert len(examples) == 2
    for example in examples:
        assert said(*shlex.split(example), "--max-new-tokens", "4")[0] == 0
