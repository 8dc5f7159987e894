"""The program of a helper process. It answers the jobs of one file, each within its limits. It imports nothing of ours.

Arguments: a file with a function `run_job(job)`, and "limited" if the system shall hold the limits. Each line of standard input
is a job with its limits, each line of standard output an answer, both JSON. The helper ends with its input.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

SENTENCE = 300  # characters of an error


def error_sentence(error: BaseException) -> str:
    """An error as one line."""
    return " ".join(str(error).split())[:SENTENCE] or type(error).__name__


def limit_process(seconds: float, memory: int) -> None:
    """Let the system end this process after so much more processor time, and refuse it memory beyond `memory` bytes."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime + seconds) + 1
    for what, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, until)):
        _set_soft_limit(what, limit)


def lift_limits() -> None:
    """Take the limits back, between two jobs."""
    import resource

    for what in (resource.RLIMIT_AS, resource.RLIMIT_CPU):
        _set_soft_limit(what, resource.getrlimit(what)[1])


def _set_soft_limit(what: int, limit: int) -> None:
    import resource

    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY and (limit == resource.RLIM_INFINITY or limit > hard):
        limit = hard
    with suppress(ValueError, OSError):  # a limit that this system does not know
        resource.setrlimit(what, (limit, hard))


def load_program(path: str) -> Callable[[Any], Any]:
    """The function `run_job` of a file."""
    spec = importlib.util.spec_from_file_location("job", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["job"] = module
    spec.loader.exec_module(module)
    run: Callable[[Any], Any] = module.run_job
    return run


def answer_job(run: Callable[[Any], Any], request: dict[str, Any], limited: bool) -> bytes:
    """A line with the answer to one job, or with its error."""
    if limited:
        limit_process(request["seconds"], request["memory"])
    try:
        line = json.dumps({"answer": run(request["job"])})
    except MemoryError:
        line = '{"memory": true}'
    except (Exception, RecursionError) as error:  # whatever it is, the parent says it in one sentence
        line = json.dumps({"error": error_sentence(error)})
    if limited:
        lift_limits()
    return line.encode() + b"\n"


def main() -> None:
    """Answer jobs until there are no more."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # an interrupt is for the parent, which then ends its helpers
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    limited = sys.argv[2:] == ["limited"]
    if limited:
        try:
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        except ImportError:
            limited = False
    run = load_program(sys.argv[1])
    answers.write(b"{}\n")  # ready
    answers.flush()
    for line in sys.stdin.buffer:
        answers.write(answer_job(run, json.loads(line), limited))
        answers.flush()


if __name__ == "__main__":
    main()
