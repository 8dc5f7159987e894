"""`cache save` and `cache load`: a prompt read once, and decoded from a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from decodescope.engine.trace import open_trace

Said = Callable[..., tuple[int, str, str]]


def test_prompt_is_saved_and_decoded_from_its_file(tmp_path: Path, said: Said) -> None:
    file, trace, prompt = (
        str(tmp_path / "a.dscache"),
        tmp_path / "a.dstrace",
        "Once upon a time, in a house by the sea, ",
    )
    code, out, _ = said(
        "cache", "save", file, "--model", "lab-draft", "--prompt", prompt, "--quality", "fine", "--json"
    )
    saved = json.loads(out)
    assert (
        code == 0
        and saved["bytes"] == Path(file).stat().st_size < saved["kv_bytes"]
        and saved["quality"] == "fine"
    )
    code, out, err = said("cache", "save", file, "--model", "lab-draft", "--prompt", prompt)
    assert code == 2 and out == "" and "exists already" in err
    words = ("cache", "load", file, "--model", "lab-draft", "--max-new-tokens", "4")
    code, out, _ = said(*words, "--json", "--trace", str(trace), "--prompt", "there was")
    run = json.loads(out)
    assert (
        code == 0 and run["loaded"] == saved["entries"] == saved["tokens"] - 1 and run["exactness"] == "lossy"
    )
    assert len(run["prompt_tokens"]) > saved["tokens"] and run["kv_bytes_full"] > saved["kv_bytes"]
    record = open_trace(trace)
    assert record.header.loaded["sha256"] == saved["sha256"]
    assert [x.tokens for x in record.prefill.passes] == [len(run["prompt_tokens"]) - 1 - run["loaded"]]
    assert f"{run['loaded']} of the prompt's tokens loaded" in said(*words)[1]
    code, out, err = said(*words[:4], "lab", "--max-new-tokens", "4")
    assert code == 2 and out == "" and "is of the model 'lab-draft'" in err and err.count("\n") == 1


def test_special_tokens_in_a_prompt_are_named_before_its_cache_is_written(said, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    code, _, err = said("cache", "save", kept, "--model", "lab-draft", "--prompt", "a<|end|>")
    note = "Note: the prompt holds the text of special tokens ('<|end|>'), which is read as plain text"
    assert (
        code == 0
        and err
        == f"{note}: --marks reads them as special tokens, or --chat lets the chat template write them.\n"
    )
    code, _, err = said(
        "cache", "load", kept, "--model", "lab-draft", "--prompt", "<|end|>", "--max-new-tokens", "2"
    )
    assert code == 0 and err == f"{note}.\n", "cache load knows no --chat"
