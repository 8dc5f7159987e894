"""Notes on a prompt: special tokens that are read as text, and chats that their template does not end."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from decodescope.engine import load, run
from decodescope.engine.model.checkpoint.chat_template import ChatTemplates
from decodescope.engine.model.checkpoint.prompt_notes import COMMAND, PAGE, PYTHON, prompt_notes
from decodescope.engine.model.checkpoint.prompt_source import PromptSource
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.session.load import SHIPPED, Model

TURN = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}"
ENDLESS = "the chat template ends an answer with '<|end|>', which is no stop token of this model, so a text goes on behind it: "


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """The shipped one: <|end|> is 0."""
    return Tokenizer.from_folder(SHIPPED / "lab-draft")


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The shipped model, with another end token than its template writes."""
    folder = tmp_path_factory.mktemp("m") / "endless"
    shutil.copytree(
        SHIPPED / "lab-draft",
        folder,
        ignore=shutil.ignore_patterns("generation_config.json", "heads", "adapters"),
    )
    for name, word, value in (
        ("config.json", "eos_token_id", 9),
        ("tokenizer_config.json", "eos_token", "<|reserved_3|>"),
    ):
        (folder / name).write_text(json.dumps({**json.loads((folder / name).read_text()), word: value}))
    return load(folder, device="cpu")


def test_a_plain_prompt_that_holds_special_tokens_gets_a_note(tokenizer: Tokenizer) -> None:
    said = prompt_notes(
        tokenizer,
        [PromptSource("a <|end|> <|user|><|end|>"), PromptSource("b<|mask|>"), PromptSource("<|pad|>")],
        [0],
    )
    shown = "'<|end|>', '<|user|>', '<|mask|>' and 1 more"
    what = f"the prompt holds the text of special tokens ({shown}), which is read as plain text"
    assert said == [
        f"{what}: --marks reads them as special tokens, or --chat lets the chat template write them."
    ]
    assert prompt_notes(tokenizer, [PromptSource("a <b> <|ende|>"), PromptSource("")], [0]) == []
    for ways, word in ((PYTHON, "chat=True"), (PAGE, "the switch Chat template")):
        assert word in prompt_notes(tokenizer, [PromptSource("<|end|>")], [0], ways=ways)[0]


def test_a_turn_that_holds_special_tokens_gets_a_note_without_that_way_out(tokenizer: Tokenizer) -> None:
    said = prompt_notes(tokenizer, [PromptSource("<|end|>", chat=True)], [0])
    assert said == ["the prompt holds the text of special tokens ('<|end|>'), which is read as plain text."]


@pytest.mark.parametrize(
    ("source", "stops", "texts", "due"),
    [
        (TURN, [0], (), ""),
        (TURN, [9], (), ENDLESS),
        (TURN, [], (), ENDLESS),
        (TURN, None, (), ""),
        (TURN, [9], ("a", "<|end|>"), ""),
        (TURN, [9], ("a",), ENDLESS),
        (TURN.replace("<|end|>", "<|end|><|mask|>"), [0], (), ""),
        (TURN.replace("<|user|>", ""), [9], (), ENDLESS),
        ("{% for m in messages %}{{ m.content }} {% endfor %}", [9], (), ""),
        ("{% for m in messages %}{{ m.content }} {% endfor %}", [], (), "this model has no stop token"),
        ("{% for m in messages %}{{ m.content }} {% endfor %}", [], ("a",), ""),
        ("{{ raise_exception('x') if messages | length > 1 else messages[0].content }}", [9], (), ""),
    ],
    ids=["ends", "another end", "no end", "goes on on purpose", "a text", "another text", "ends later", "ends alone",
         "unmarked", "unmarked and endless", "unmarked with a text", "one turn only"],
)  # fmt: skip
def test_a_chat_that_its_template_does_not_end_gets_a_note(
    source: str, stops: Any, texts: Any, due: str
) -> None:
    config = json.loads((SHIPPED / "lab-draft" / "tokenizer_config.json").read_text())
    tokenizer = Tokenizer((SHIPPED / "lab-draft" / "tokenizer.json").read_text(), config, source)
    said = prompt_notes(tokenizer, [PromptSource("a", chat=True)], stops, texts)
    assert len(said) == (due != "") and all(x.startswith(due) for x in said)
    if due == ENDLESS:
        assert said[0].endswith("behind it: --stop '<|end|>' ends it there.")
    assert prompt_notes(tokenizer, [PromptSource("a")], stops, texts) == []


def test_a_run_has_the_note_and_ends_where_it_says(endless: Model) -> None:
    """Without a stop text, the model writes the end of its turn and goes on."""
    asked: dict[str, Any] = {"chat": True, "max_new_tokens": 40}
    goes = run(endless, None, "2 + 2 =", **asked)
    assert goes.trace.end is not None and goes.trace.end.reason == "max_new_tokens" and 0 in goes.tokens[:-1]
    assert goes.notes == [f"{ENDLESS}stop='<|end|>' ends it there."]
    ends = run(endless, None, "2 + 2 =", stop="<|end|>", **asked)
    assert ends.notes == [] and ends.tokens == goes.tokens[: goes.tokens.index(0) + 1]
    assert run(endless, None, [1, 2], max_new_tokens=1).notes == []
    typed = run(endless, None, "a<|user|>", max_new_tokens=1)
    assert typed.notes[0].endswith("chat=True lets the chat template write them.")


def test_further_templates_are_named_in_a_chat(tokenizer: Tokenizer) -> None:
    own = tokenizer.templates
    tokenizer.templates = ChatTemplates(own.source, ("rag", "tool_use"))
    note = "this model has more chat templates (rag, tool_use), for tools or documents: "
    note += "chat_template in the messages names one."
    assert prompt_notes(tokenizer, [PromptSource("a", chat=True)], [0]) == [note]
    assert prompt_notes(tokenizer, [PromptSource("a")], [0]) == []
    tokenizer.templates = own


def test_what_stands_in_for_a_tokenizer_gets_no_notes() -> None:
    assert (
        prompt_notes(object(), [PromptSource("<|end|>", chat=True)], [])
        == prompt_notes(None, [PromptSource("a")], [], ways=COMMAND)
        == []
    )
