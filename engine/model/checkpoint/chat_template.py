"""Chat templates: where a model folder keeps them, and how one is run: by run_template.py, in a helper process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decodescope.engine.core.refusal import Refusal
from decodescope.engine.sandbox.helper import HelperFailure, JobLimits, run_job

from .folder import escape_unprintable, read_json, read_text, read_texts

PROGRAM = Path(__file__).with_name("run_template.py")
SOURCE_BYTES = 64 << 10
CPU_SECONDS = 2.0
MEMORY_BYTES = 1 << 30
WAIT_SECONDS = 20.0  # for a template on a busy machine
DEFAULT = "default"
FOR_TOOLS = "tool_use"  # as in transformers
FURTHER = "additional_chat_templates"  # the folder of the others


class TemplateError(Refusal):
    """A chat template was refused or failed. The message is one sentence."""

    def __init__(self, message: str):
        super().__init__(escape_unprintable(message))


@dataclass(frozen=True)
class ChatTemplates:
    """The chat templates of a model folder.

    source: the default one, None if there is none;  others: the names of the others
    lacking: why there is none, as the end of a sentence about the model
    named:   name -> source of all, where they have names
    """

    source: str | None = None
    others: tuple[str, ...] = ()
    lacking: str = "has no chat template"
    named: Mapping[str, str] = field(default_factory=dict)

    def select(self, name: str = "", tools: bool = False) -> str:
        """The source of the template of this name; without a name the one for tools if there are tools, else the default.

        Raises TemplateError, or ValueError if the model has none.
        """
        if name and name not in self.named:
            there = escape_unprintable(", ".join(self.named))[:200]
            having = f"has chat templates named {there}" if there else "names no chat templates"
            raise TemplateError(f"The model {having} and none named {name[:40]}; leave chat_template out.")
        if name or (tools and FOR_TOOLS in self.named):
            return self.named[name or FOR_TOOLS]
        if self.source is None:
            raise ValueError(f"The model {self.lacking}; give the prompt as plain text.")
        return self.source


def read_templates(folder: Path, config: dict[str, Any]) -> ChatTemplates:
    """The chat templates of a folder. Files come before tokenizer_config.json, as in transformers; chat_template.json, which
    processors have, comes last."""
    files = read_texts(folder, FURTHER, ".jinja")
    if (default := read_text(folder, "chat_template.jinja")) is not None:
        files[DEFAULT] = default
    last = read_json(folder, "chat_template.json") or {}
    given: Any = files or config.get("chat_template") or last.get("chat_template")
    if not given:
        return ChatTemplates()
    named = _by_name(given)
    if named is None:
        return ChatTemplates(lacking="has a chat_template that is neither a text nor texts by name")
    others = tuple(sorted(x for x in named if x != DEFAULT))
    if DEFAULT not in named:
        lacking = (
            f"has chat templates named {escape_unprintable(', '.join(others))[:200]} and none named {DEFAULT}"
        )
        return ChatTemplates(None, others, lacking, named)
    return ChatTemplates(named[DEFAULT], others, named=named if others else {})


def _by_name(given: Any) -> dict[str, str] | None:
    """Name -> source of templates: one alone, or several as a table or a list; None if they are no texts."""
    if isinstance(given, list) and all(isinstance(x, dict) for x in given):
        given = {str(x.get("name")): x.get("template") for x in given}
    named = {DEFAULT: given} if isinstance(given, str) else given
    return named if isinstance(named, dict) and all(isinstance(x, str) for x in named.values()) else None


def render(source: str, words: dict[str, Any]) -> str:
    """The text that the template `source` makes of `words` (plain JSON values). Raises TemplateError."""
    text = render_each(source, [words])[0]
    if isinstance(text, TemplateError):
        raise text
    return text


def render_each(source: str, jobs: Sequence[dict[str, Any]]) -> list[str | TemplateError]:
    """The text for each of these words, or why there is none. Raises TemplateError if the template itself cannot run."""
    if len(source.encode()) > SOURCE_BYTES:
        raise TemplateError(
            f"The chat template is longer than the limit of {SOURCE_BYTES} bytes; use plain text instead."
        )
    limits = JobLimits(CPU_SECONDS, MEMORY_BYTES, WAIT_SECONDS)
    try:  # a template is code, so no other one runs in its process
        done = run_job(PROGRAM, {"source": source, "words": list(jobs)}, limits, fresh=True)
    except HelperFailure as failure:
        if failure.kind == "wait":
            raise TemplateError("The chat template did not come to an end; use plain text instead.") from None
        raise _render_failure(str(failure)) from None
    if "failed" in done:
        raise _render_failure(done["failed"])
    return [x["text"] if "text" in x else _template_error(x) for x in done["texts"]]


def _template_error(answer: dict[str, str]) -> TemplateError:
    """Why there is no text: the template's own refusal, or what failed."""
    if "refused" not in answer:
        return _render_failure(answer["failed"])
    why = answer["refused"].rstrip(".")
    return TemplateError(f"The chat template refuses this conversation: {why}; use plain text instead.")


def _render_failure(why: str) -> TemplateError:
    return TemplateError(f"The chat template failed ({why[:300]}); use plain text instead.")
