"""The program that runs a chat template, in a helper process. It imports nothing of ours.

A template is code that came with a download. It runs in a sandbox that allows neither attributes of Python's own nor
changes to what it is given, in a process of its own with a limit on time, memory and output. The names, filters and
tags that a template finds are those of `apply_chat_template` in transformers 5.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.nodes import CallBlock
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

OUTPUT_BYTES = 1 << 20
SENTENCE = 300  # characters of an error

Expand = Callable[[dict[str, Any]], str]


class OwnRefusal(Exception):
    """The message of a template's raise_exception."""


class GenerationExtension(Extension):
    """{% generation %} ... {% endgeneration %}: what a model learns to write in training. It is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 # so the library declares it

    def parse(self, parser: Any) -> CallBlock:
        """The block around its body."""
        block = CallBlock(lineno=next(parser.stream).lineno)
        block.call = self.call_method("_render_body")
        block.args = []
        block.defaults = []
        block.body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return block

    def _render_body(self, caller: Callable[[], str]) -> str:
        return caller()


class TemplateDict:
    """The operations that a template may use on Python's dict."""

    def __call__(self, *pairs: Any, **words: Any) -> dict[Any, Any]:
        return dict(*pairs, **words)

    def fromkeys(self, *keys: Any) -> dict[Any, Any]:
        """As of a dict."""
        return dict.fromkeys(*keys)


class TemplateNamespace(Namespace):
    """The namespace of templates. A name in it must not begin with an underscore."""

    def __init__(
        *pairs: Any, **words: Any
    ) -> None:  # without a name for itself, so that namespace(self=1) works
        values = dict(*pairs[1:], **words)
        for name in values:
            _refuse_private(name)
        Namespace.__init__(pairs[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no name that begins with an underscore, such as {name!r}")


def _raise_exception(message: Any) -> None:
    raise OwnRefusal(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def compile_template(source: str) -> Expand:
    """The template as a function of its words. It renders in this process, under the sandbox alone."""
    now = datetime.now()  # the same for all renderings of a job
    world = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationExtension, "jinja2.ext.loopcontrols"]
    )
    world.filters["tojson"] = _tojson
    world.globals.update(
        raise_exception=_raise_exception,
        strftime_now=now.strftime,
        dict=TemplateDict(),
        namespace=TemplateNamespace,
    )
    template = world.from_string(source)

    def expand(words: dict[str, Any]) -> str:
        parts, size = [], 0
        for part in template.generate(**words):
            size += len(part.encode())
            if size > OUTPUT_BYTES:
                raise TemplateError(f"its output is longer than the limit of {OUTPUT_BYTES} bytes")
            parts.append(part)
        return "".join(parts)

    return expand


def try_render(expand: Expand, words: dict[str, Any]) -> dict[str, str]:
    """The text, the template's own refusal, or what went wrong."""
    try:
        return {"text": expand(words)}
    except OwnRefusal as error:
        return {"refused": _error_sentence(error)}
    except (Exception, RecursionError) as error:  # whatever it is, the parent says it in one sentence
        return {"failed": _error_sentence(error)}


def _error_sentence(error: BaseException) -> str:
    return " ".join(str(error).split())[:SENTENCE] or type(error).__name__


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """{"texts": an answer for each of job["words"]} by the template job["source"], or {"failed": why it is no template}."""
    try:
        expand = compile_template(job["source"])
    except MemoryError:
        raise
    except (Exception, RecursionError) as error:
        return {"failed": _error_sentence(error)}
    return {"texts": [try_render(expand, words) for words in job["words"]]}
