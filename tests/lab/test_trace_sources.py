"""The accepted arguments of a view: a trace, a run, a path, or the name of an example.

Everything else is refused in one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import toys

from decodescope import lab
from decodescope.engine import Run, run
from decodescope.engine.core.params import ParamError
from decodescope.engine.trace import Trace, TraceError, open_trace
from decodescope.engine.trace.file.named_trace import EXAMPLES

CALLS: dict[str, Callable[[Any], Any]] = {
    "show": lambda x: lab.show(x, step=-1).step,
    "compare": lambda x: str(lab.compare(x, x)),
    "explain": lambda x: str(lab.explain(x, *next(iter(lab.decisions(x))))),
    "decisions": lambda x: list(lab.decisions(x)),
    "figure": lambda x: lab.figure(x, "steps").to_json(),
    "report": lambda x: str(lab.report(x)),
    "report of several": lambda x: str(lab.report([x, x])),
    "frame": lambda x: lab.frame(x, "decisions").to_dict(),
    "export_html": lambda x: len(lab.export_html(x, beside=x)),
    "export_perfetto": lambda x: lab.export_perfetto(x)["otherData"],
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A run, and the file of its trace."""
    path = tmp_path_factory.mktemp("given") / "a.dstrace"
    parts = dict(drafter=("draft_model", {"max_draft_tokens": 3}), sampler="temperature")
    target, draft = toys.pair()
    return run(target, toys.method(**parts), toys.PROMPT, draft=draft, max_new_tokens=12, path=path), path


@pytest.mark.parametrize("name", CALLS)
def test_trace_run_and_file_are_one(name: str, recorded: tuple[Run, Path]) -> None:
    made, path = recorded
    call = CALLS[name]
    first = call(made.trace)
    assert call(made) == first and call(path) == first and call(str(path)) == first


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "given", [None, 3, toys.PROMPT[0], {"trace": 1}], ids=["nothing", "number", "id", "mapping"]
)
def test_what_is_no_trace_is_refused(name: str, given: Any) -> None:
    with pytest.raises(TraceError, match="A trace is wanted, not a value of type"):
        CALLS[name](given)


def test_a_trace_that_has_not_begun_is_told_so() -> None:
    with pytest.raises(TraceError, match="no header yet"):
        lab.show(Trace())


def test_an_example_has_a_name(recorded: tuple[Run, Path]) -> None:
    path = next(EXAMPLES.glob("*.dstrace"))
    assert lab.frame(path.stem).equals(lab.frame(open_trace(path)))
    with pytest.raises(TraceError, match="There is no file nowhere, and no example of that name"):
        lab.show("nowhere")


@pytest.mark.parametrize("step", [1000, -1000, "3", 0.5])
def test_a_step_that_is_not_there_is_refused(step: Any, recorded: tuple[Run, Path]) -> None:
    with pytest.raises(ParamError, match="must be a whole number from -"):
        lab.show(recorded[0], step=step)
