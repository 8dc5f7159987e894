"""The program that runs a chat template, a job from standard input to standard output. It imports nothing of ours.

A template is code that came with a download. It runs in a sandbox that allows neither attributes of Python's own nor
changes to what it is given, in this process of its own with a limit on time, memory and output.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

OUTPUT_BYTES = 1 << 20
SECONDS = 2.0
MEMORY_BYTES = 1 << 30


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
