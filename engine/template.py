"""Chat templates: a model folder's own Jinja program, run where it can do no harm.

A template is code that came with a download. It runs in a sandbox that allows neither attributes of Python's own nor
changes to what it is given, in a process of its own with a limit on time, memory and output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from typing import Any

SOURCE_BYTES = 64 << 10
OUTPUT_BYTES = 1 << 20
SECONDS = 2.0
START_SECONDS = 20.0  # for the process to start on a busy machine
MEMORY_BYTES = 1 << 30


class TemplateError(ValueError):
    """A chat template was refused or failed. The message is one sentence."""


def render(source: str, words: dict[str, Any]) -> str:
    """The text that the template `source` makes of `words` (plain JSON values)."""
    if len(source.encode()) > SOURCE_BYTES:
        raise TemplateError(f"The chat template is longer than the limit of {SOURCE_BYTES} bytes; use plain text instead.")
    command = [sys.executable, "-P", __file__]
    job = json.dumps({"source": source, "words": words}).encode()
    try:
        done = subprocess.run(command, input=job, capture_output=True, timeout=START_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise TemplateError("The chat template did not come to an end; use plain text instead.") from None
    if done.returncode != 0:
        why = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it ran out of time or memory"]
        raise TemplateError(f"The chat template failed ({why[-1][:200]}); use plain text instead.")
    return done.stdout.decode("utf-8")


def expand(source: str, words: dict[str, Any]) -> str:
    """Render in this process, under the sandbox alone."""
    from jinja2.exceptions import TemplateError as JinjaError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise JinjaError(message)

    def tojson(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    def now(form: str) -> str:
        from datetime import datetime

        return datetime.now().strftime(form)

    world = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    world.filters["tojson"] = tojson
    world.globals.update(raise_exception=refuse, strftime_now=now)
    parts, size = [], 0
    for part in world.from_string(source).generate(**words):
        size += len(part.encode())
        if size > OUTPUT_BYTES:
            raise JinjaError(f"its output is longer than the limit of {OUTPUT_BYTES} bytes")
        parts.append(part)
    return "".join(parts)


def _confine() -> None:
    """Limit this process where the system can; its parent ends it where not."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + SECONDS) + 1
    for what, limit in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, seconds)):
        with suppress(ValueError, OSError):  # a limit that this system does not know
            resource.setrlimit(what, (limit, limit))


def main() -> None:
    """Read a job from standard input, write its text to standard output."""
    import jinja2.sandbox  # before the limits, so that the template has all of them for itself

    assert jinja2.sandbox
    job = json.load(sys.stdin.buffer)
    _confine()
    try:
        text = expand(job["source"], job["words"])
    except (Exception, RecursionError) as error:  # whatever it is, the parent says it in one sentence
        sys.exit(str(error)[:200].replace("\n", " ") or type(error).__name__)
    sys.stdout.buffer.write(text.encode())


if __name__ == "__main__":
    main()
