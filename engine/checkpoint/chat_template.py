"""Chat templates: a model folder's own Jinja program, run where it can do no harm: by run_template.py, in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from decodescope.engine.core.refusal import Refusal

PROGRAM = Path(__file__).with_name("run_template.py")
SOURCE_BYTES = 64 << 10
START_SECONDS = 20.0  # for the process to start on a busy machine


class TemplateError(Refusal):
    """A chat template was refused or failed. The message is one sentence."""


def render(source: str, words: dict[str, Any]) -> str:
    """The text that the template `source` makes of `words` (plain JSON values)."""
    if len(source.encode()) > SOURCE_BYTES:
        raise TemplateError(f"The chat template is longer than the limit of {SOURCE_BYTES} bytes; use plain text instead.")
    command = [sys.executable, "-P", str(PROGRAM)]
    job = json.dumps({"source": source, "words": words}).encode()
    try:
        done = subprocess.run(command, input=job, capture_output=True, timeout=START_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise TemplateError("The chat template did not come to an end; use plain text instead.") from None
    if done.returncode != 0:
        why = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it ran out of time or memory"]
        raise TemplateError(f"The chat template failed ({why[-1][:200]}); use plain text instead.")
    return done.stdout.decode("utf-8")
