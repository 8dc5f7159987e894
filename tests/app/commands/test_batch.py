"""The command `batch`: the texts of a file of prompts, which prompts it reads, and what it refuses."""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from decodescope.app.commands import batch as command
from decodescope.engine.model.checkpoint.chat_template import ChatTemplates
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.model.forward.executor import EngineFault, Executor
from decodescope.engine.model.stores.store import LayerStore
from decodescope.engine.trace import check, open_trace

BEGIN = "The old house stood at the end of the road, and nobody had lived in it"
PROMPTS = [f"{BEGIN} for years.", "def add(a, b):", f"{BEGIN} since the war."]
MODEL = ["--model", "lab-draft", "--max-new-tokens", "8"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "prompts.txt"
    made.write_text("\n".join(["", *PROMPTS, ""]), encoding="utf-8")
    return made


def test_texts_are_those_of_single_runs_and_what_is_common_is_read_once(said, file: Path) -> None:
    out = file.with_name("texts.jsonl")
    code, text, err = said("batch", *MODEL, "--prompts", str(file), "--out", str(out), "--json")
    done = json.loads(text)
    assert (code, err, done["out"]) == (0, "", str(out))
    assert [json.loads(x) for x in out.read_text(encoding="utf-8").splitlines()] == done["texts"]
    assert [x["name"] for x in done["texts"]] == ["2", "3", "4"], "the lines of the file"
    for prompt, answer in zip(PROMPTS, done["texts"], strict=True):
        alone = json.loads(said("run", *MODEL, "--prompt", prompt, "--json")[1])
        assert (answer["text"], answer["tokens"], answer["end"]) == (
            alone["text"],
            alone["tokens"],
            alone["end"],
        )
        assert answer["prompt_tokens"] == len(alone["prompt_tokens"]) and answer["prompt"] == prompt
    shared = next(x for x in done["groups"] if x["members"] == [0, 2])
    assert shared["prefix"] > 10 and done["read_tokens"] == done["prompt_tokens"] - shared["prefix"]
    assert (done["passes"], done["new_tokens"]) == (16, 24)
    code, text, _ = said("batch", *MODEL, "--prompts", str(file))
    assert (
        code == 0 and all(x["text"] in text for x in done["texts"]) and "2 prompts share 1 prefix; " in text
    )


def printed(done: dict) -> list[str]:
    """The notes that also appear on standard error: all but those on how the prompts were formatted."""
    return [x for x in done["notes"] if x.startswith("Note: ")]


@pytest.mark.parametrize("method", [[], ["--drafter", "prompt_lookup"]], ids=["plain", "by a method"])
def test_a_batch_says_how_prompts_were_put_and_which_turns_were_not(
    said, tmp_path: Path, method: list[str]
) -> None:
    (file := tmp_path / "asked.jsonl").write_text(
        '{"turns": ["one", "two"]}\n{"prompt": "three"}', encoding="utf-8"
    )
    asked = ["--model", "lab-draft", "--max-new-tokens", "2", "--prompts", str(file), *method]
    raw, left = (
        "The prompts were put as raw text, without a chat template.",
        "1 later turn, of 1 of 2 prompts.",
    )
    said_so = said("batch", *asked)[1]
    assert raw in said_so and left in said_so and "lab-draft has a chat template: --chat puts" in said_so
    notes = " ".join(json.loads(said("batch", *asked, "--chat", "--json")[1])["notes"])
    assert "Every prompt was put through the" in notes and left in notes and "--chat" not in notes


def test_with_a_method_each_text_is_that_of_its_run_and_has_a_trace(said, file: Path) -> None:
    method = ["--drafter", "prompt_lookup", "--set", "drafter.ngram=1", "--sampler", "temperature"]
    runs = file.with_name("runs")
    code, text, err = said(
        "batch", *MODEL, *method, "--prompts", str(file), "--texts", "2", "--traces", str(runs), "--json"
    )
    done = json.loads(text)
    assert (code, err.splitlines(), done["faults"]) == (0, printed(done), []), (
        "of a part that did nothing it is said"
    )
    assert done["shared"]["2"] > 3 and set(done["shared"]) == {"1", "2"}
    for i, (prompt, answer) in enumerate(zip(PROMPTS, done["texts"], strict=True)):
        alone = json.loads(said("run", *MODEL, *method, "--prompt", prompt, "--seed", str(i), "--json")[1])
        same = "text", "tokens", "end", "steps", "tau", "accepted", "drafted"
        assert all(answer[x] == alone[x] for x in same)
        trace = open_trace(answer["trace"])
        assert answer["trace"] == str(runs / f"{i + 1}.dstrace") and check(trace).ok
        assert trace.header.seed == i and {x.together for step in trace.steps for x in step.passes} <= {
            None,
            2,
        }
    assert (
        sum(x.together == 2 for step in open_trace(done["texts"][0]["trace"]).steps for x in step.passes) > 3
    )
    lines = said("batch", *MODEL, *method, "--prompts", str(file))[1].splitlines()
    assert lines[0].startswith("2: ") and "sequences each, 3 at most" in lines[-1]


def test_a_file_of_prompts_is_the_same_to_run(said, file: Path) -> None:
    lines, runs = file.with_name("prompts.jsonl"), file.with_name("runs")
    lines.write_text("".join(json.dumps({"prompt": x}) + "\n" for x in PROMPTS), encoding="utf-8")
    method = ["--drafter", "prompt_lookup", "--set", "drafter.ngram=1"]
    code, out, err = said("run", *MODEL, *method, "--prompt-file", str(lines), "--trace", str(runs), "--json")
    texts = json.loads(out)["texts"]
    assert (code, err) == (0, "") and [x["prompt"] for x in texts] == PROMPTS
    assert [Path(x["trace"]).name for x in texts] == ["1.dstrace", "2.dstrace", "3.dstrace"]
    plain = json.loads(said("run", *MODEL, "--prompt-file", str(lines), "--json")[1])
    assert "groups" in plain and [x["text"] for x in plain["texts"]] == [x["text"] for x in texts], (
        "both are greedy"
    )
    code, out, err = said("run", *MODEL, "--prompt-file", str(lines), "--reference")
    assert (code, out) == (2, "") and err.startswith("--reference is about one prompt, and ")


def test_a_text_that_fails_is_told_and_the_others_are_whole(
    said, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache of the second session runs out of memory in the middle of its text."""
    reserve, tries, begun = LayerStore.reserve, count(1), list[LayerStore]()

    def full(store: LayerStore, positions: Tensor) -> None:
        if store.layer == 1 and store not in begun:
            begun.append(store)
        if store.layer == 1 and store is begun[min(1, len(begun) - 1)] is not begun[0] and next(tries) > 4:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        reserve(store, positions)

    monkeypatch.setattr(LayerStore, "reserve", full)
    code, text, err = said("batch", *MODEL, "--drafter", "prompt_lookup", "--prompts", str(file), "--json")
    ends = [x["end"] for x in json.loads(text)["texts"]]
    assert code == 1 and ends == ["max_new_tokens", "out_of_memory", "max_new_tokens"]
    why, *notes = err.splitlines()
    assert why.startswith("prompt 3: Memory ran out") and notes == printed(json.loads(text))
    assert notes == [
        "Note: In each of 3 runs, here the first: prompt_lookup drafted nothing in 7 steps: it had no guess."
    ]


def test_a_plan_alone_decodes_nothing(said, file: Path) -> None:
    code, text, _ = said("batch", *MODEL, "--prompts", str(file), "--plan-only", "--json")
    plan = json.loads(text)
    assert code == 0 and set(plan) == {"groups", "prompt_tokens", "read_tokens", "least_tokens"}
    assert plan["least_tokens"] <= plan["read_tokens"] < plan["prompt_tokens"]
    assert "tokens shared by 2: 2, 4\n" in said("batch", *MODEL, "--prompts", str(file), "--plan-only")[1]


def test_what_cannot_be_done_is_one_sentence(said, file: Path) -> None:
    def refused(*more: str, prompts: Path = file) -> str:
        code, out, err = said("batch", *MODEL, "--prompts", str(prompts), *more)
        assert (code, out, err.count("\n")) == (2, "", 1)
        return err

    assert "already: choose another name for --out" in refused("--out", str(file))
    assert refused("--out", "/proc/texts.jsonl").startswith(
        "The texts cannot be written to /proc/texts.jsonl: "
    )
    plainly = "A batch without a method is decoded plainly"
    assert refused("--set", "policy.window=3").startswith(f"{plainly}, so a knob of policy would be ignored")
    assert refused("--draft", "lab-draft").startswith(f"{plainly} and reads no draft: ")
    assert refused("--trace-level", "summary").startswith("--trace-level says what --traces DIR records")
    assert "is about what prompts share" in refused("--plan-only", "--policy", "h2o")
    assert "is not empty: choose a folder of its own" in refused("--traces", str(file.parent))
    assert "The traces cannot be written to" in refused("--traces", str(file.with_name("no") / "runs"))
    assert "needs a model in the role 'draft'" in refused("--drafter", "draft_model")
    assert "cannot be read" in refused(prompts=file.with_name("none.txt"))
    lines = file.with_name("bad.jsonl")
    lines.write_text('{"prompt": "a"}\n{"text": 1}\n', encoding="utf-8")
    assert "Line 2 of" in refused(prompts=lines)
    lines.write_text("\n", encoding="utf-8")
    assert "There is no prompt in" in refused(prompts=lines)
    for half in (
        {"prompt": "a \ud800"},
        {"prompt": "a", "category": "\ud800"},
        {"prompt": "a", "question_id": "\ud800"},
    ):
        lines.write_text(json.dumps(half), encoding="utf-8")
        assert "Line 1 of" in (err := refused(prompts=lines)) and "half of a surrogate pair" in err
    lines.write_text(json.dumps({"prompt": "word " * 3000}) + "\n", encoding="utf-8")
    assert "prompt 1 has" in refused(prompts=lines)
    assert refused("--policy", "h2o", prompts=lines).startswith("prompt 1: the prompt has 3001")


def test_a_chat_that_the_model_has_no_template_for_is_refused(
    said, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Tokenizer, "templates", property(lambda _: ChatTemplates(), lambda *_: None), raising=False
    )
    code, out, err = said("batch", *MODEL, "--prompts", str(file), "--chat")
    assert (
        (code, out) == (2, "") and err.startswith("The model has no chat template; ") and err.count("\n") == 1
    )


def test_texts_that_were_done_when_memory_ran_out_are_kept(
    said, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, passes, out = Executor.run, count(1), file.with_name("texts.jsonl")

    def gives_up(*given: Any) -> Any:
        if next(passes) > 13:
            raise EngineFault("out_of_memory", "Memory ran out.")
        return run(*given)

    whole = json.loads(said("batch", *MODEL, "--prompts", str(file), "--json")[1])["texts"]
    monkeypatch.setattr(Executor, "run", gives_up)
    code, _, err = said("batch", *MODEL, "--prompts", str(file), "--out", str(out))
    kept = [json.loads(x) for x in out.read_text(encoding="utf-8").splitlines()]
    ended = [x for x in kept if x["end"]]
    assert code == 1 and 0 < len(ended) < 3 == len(kept) and all(x in whole for x in ended)
    so_far = f"{len(ended)} of 3 texts were decoded to their end, the others are kept as far as they came"
    assert err == f"{so_far}: Memory ran out.\n"


def test_a_device_that_is_full_loses_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    """The file on such a device can neither be written nor truncated."""
    assert not command._write_texts(Path("/dev/full"), [{"text": "a"}, {"text": "b"}])
    assert "/dev/full has 0 of the 2 texts, since no more could be written (" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="Windows has no module resource")
def test_a_disk_that_fills_loses_no_text(said, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file size limit during writing fails as a full disk does: in the middle of a line."""
    import resource

    out = file.with_name("texts.jsonl")
    whole = json.loads(said("batch", *MODEL, "--prompts", str(file), "--out", str(out), "--json")[1])["texts"]
    lines = out.read_bytes().splitlines(keepends=True)
    out.unlink()
    write, before = command._write_texts, resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(*args: Any) -> bool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(lines[0]) + 20, before[1]))
        try:
            return write(*args)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    monkeypatch.setattr(command, "_write_texts", limited)
    code, text, err = said("batch", *MODEL, "--prompts", str(file), "--out", str(out), "--json")
    assert (code, err.count("\n")) == (
        1,
        1,
    ) and f"{out} has 1 of the 3 texts, since no more could be written (" in err
    assert out.read_bytes() == lines[0] and json.loads(text)["texts"] == whole


@pytest.mark.nightly
@pytest.mark.parametrize("how", [[], ["--drafter", "prompt_lookup"]], ids=["plain", "by a method"])
def test_special_tokens_in_the_prompts_are_named_once(said, tmp_path: Path, how: list[str]) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("a <|end|>\nb\n<|user|> c<|end|>\n")
    note = "Note: the prompt holds the text of special tokens ('<|end|>', '<|user|>'), which is read as plain text"
    for more, behind in (([], ": --chat lets the chat template write them."), (["--chat"], ".")):
        code, _, err = said(
            "batch", "--model", "lab-draft", "--max-new-tokens", "2", "--prompts", str(file), *how, *more
        )
        assert code == 0 and err == f"{note}{behind}\n"
