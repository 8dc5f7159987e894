"""A part in a file of one's own: only its owner's request loads it, and it is in lists, knobs, runs and recipes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import toys

from decodescope.app.cli import main
from decodescope.app.runs.recipe import recipe
from decodescope.app.runs.run_service import RunChoice
from decodescope.engine import Method, load_parts
from decodescope.engine.core import component as components
from decodescope.engine.core.component import registry
from decodescope.engine.core.params import ParamError
from decodescope.engine.session import own_parts
from decodescope.engine.session.own_parts import PartsError, load_installed
from decodescope.engine.trace import check

SOURCE = '''
"""Last words: the newest tokens are guessed to come again."""

from __future__ import annotations

from decodescope.engine.core.component import component, param
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import Draft


@component
class LastWords(Drafter):
    """Guess that the last `length` tokens are said once more."""

    title = "Last words"
    source = "an example"

    length: int = param(3, low=1, high=16, unit="tokens", help="how many tokens are guessed")

    def propose(self, context):
        return Draft.chain(context.tokens[-self.length :][: context.room])
'''


@pytest.fixture(autouse=True)
def unloaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unload after a test what it has loaded."""
    monkeypatch.setattr(components, "_ADDED", {})
    monkeypatch.setattr(own_parts, "_FILES", {})
    yield
    components.forget_registry()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "last_words.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def test_a_loaded_part_is_one_like_the_others(file: Path) -> None:
    (part,) = load_parts(file)
    assert registry("drafter")["last_words"] is part and [x.name for x in part.params()] == ["length"]
    method = Method.from_names({"drafter": "last_words"}, {"drafter": {"length": "2"}})
    assert method.record()["drafter"] == {"name": "last_words", "length": 2}
    session = toys.decode(method, toys.PROMPT, 24)
    assert session.tokens == toys.decode(toys.method(), toys.PROMPT, 24).tokens, "a draft changes no text"
    assert check(session.sink).ok and any(step.drafted == 2 for step in session.sink.steps)
    assert Method.from_record(session.sink.header.method).drafter == method.drafter


def test_a_file_is_loaded_again_when_it_was_changed(file: Path) -> None:
    load_parts(file)
    file.write_text(SOURCE.replace("param(3,", "param(5,"), encoding="utf-8")
    load_parts(file)
    assert Method.from_names({"drafter": "last_words"}).drafter.knobs() == {"length": 5}


def test_a_folder_loads_all_of_its_files(file: Path) -> None:
    (file.parent / "other_words.py").write_text(SOURCE, encoding="utf-8")
    (file.parent / "_notes.py").write_text("1/0", encoding="utf-8")
    load_parts(file.parent)
    assert {"last_words", "other_words"} <= registry("drafter").keys()


def test_the_command_line_loads_it_and_a_recipe_says_so(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--parts", str(file), "methods"]) == 0
    assert "last_words: Last words" in capsys.readouterr().out
    choice = RunChoice("Once", {"drafter": "last_words"}, max_new=5)
    command = recipe(choice, {"target": "lab"}, "command")
    assert command.startswith(f"decodescope --parts {file} run ") and "--drafter last_words" in command
    python = recipe(choice, {"target": "lab"}, "python")
    assert f"load_parts({str(file)!r})\nmethod = " in python and "load_parts, run" in python
    assert "--parts" not in recipe(
        RunChoice("Once", {"drafter": "prompt_lookup"}, max_new=5), {"target": "lab"}, "command"
    )


WRONG = {
    "a syntax error": ("x = 1 +", "could not be loaded: SyntaxError"),
    "an error while it is run": ("import math\n\nmath.sqrt(-1)\n", "(line 3)"),
    "no part": ("x = 1\n", "defines 0 parts"),
    "two parts": (
        SOURCE + SOURCE.partition("Draft\n")[2].replace("class LastWords", "class More"),
        "defines 2 parts",
    ),
    "a declaration that cannot be read": (
        SOURCE.replace(
            'source = "an example"',
            'source = "an example"\n    from decodescope.engine.trace.details.declarations import TallyForm\n'
            '    details = {"x": TallyForm("t", value="p +")}',
        ),
        "is no formula",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(what: str, file: Path, capsys: Any) -> None:
    text, says = WRONG[what]
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PartsError) as error:
        load_parts(file)
    assert says in str(error.value) and str(error.value).endswith(".") and "\n" not in str(error.value)
    assert "last_words" not in registry("drafter")
    assert main(["--parts", str(file), "methods"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_part_that_was_loaded_stays_when_its_file_is_broken(file: Path) -> None:
    (part,) = load_parts(file)
    file.write_text("1/0", encoding="utf-8")
    with pytest.raises(PartsError):
        load_parts(file)
    assert registry("drafter")["last_words"] is part
    assert Method.from_names({"drafter": "last_words"}).drafter.name == "last_words"


@pytest.mark.parametrize(
    ("name", "says"),
    [("prompt_lookup", "already"), ("no-name", "cannot name a part"), ("missing", "There is no file")],
)
def test_a_name_that_is_taken_or_none_is_refused(name: str, says: str, file: Path) -> None:
    path = file.with_name(f"{name}.py")
    if name != "missing":
        path.write_text(SOURCE, encoding="utf-8")
    own = registry("drafter").get(name)
    with pytest.raises(PartsError, match=says):
        load_parts(path)
    assert registry("drafter").get(name) is own


def test_nothing_that_a_record_names_is_loaded(file: Path) -> None:
    for name in ("last_words", str(file), str(file.with_suffix(""))):
        with pytest.raises(ParamError):
            Method.from_record({"drafter": {"name": name, "length": 3}})
    assert "last_words" not in registry("drafter")


def test_an_installed_package_offers_its_parts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(file.parent)
    (file.parent / "broken_words.py").write_text(textwrap.dedent("1/0"), encoding="utf-8")
    points = [
        EntryPoint("last_words", "last_words", own_parts.GROUP),
        EntryPoint("broken_words", "broken_words", own_parts.GROUP),
    ]
    monkeypatch.setattr(own_parts, "entry_points", lambda group: points)
    (wrong,) = load_installed()
    assert "'broken_words'" in wrong and "ZeroDivisionError" in wrong and "last_words" in registry("drafter")
