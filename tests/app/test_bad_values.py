"""Every option that takes a file, a folder, a device or a model refuses an impossible value in one sentence."""

from __future__ import annotations

import argparse
import builtins
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import uvicorn
from command_parsers import command_parsers
from sizes import sizes

from decodescope.app.basis.arguments import (
    PATHS,
    device,
    model_argument,
    name_and_path,
    path_argument,
    role_and_model,
)
from decodescope.engine.core.paths import shorten_path
from decodescope.engine.trace.file.named_trace import EXAMPLES

Said = Callable[..., tuple[int, str, str]]
MODEL = ("--model", "lab-draft")
RUN = (*MODEL, "--prompt", "x", "--max-new-tokens", "1")
BASE: dict[
    str, tuple[str, ...]
] = {  # the minimal arguments of each command; FILE and PROMPTS are existing files
    "app": ("--no-browser",),
    "batch": (*MODEL, "--prompts", "PROMPTS", "--max-new-tokens", "1"),
    "bench": ("labbench", "--short"),
    "cache load": ("FILE", *MODEL),
    "cache save": ("new.dscache", *MODEL, "--prompt", "x"),
    "calibrate": (
        *MODEL,
        "--texts",
        "PROMPTS",
        "--name",
        "n",
        "--knob",
        "policy.window",
        "--grid",
        "9,8",
        "--policy",
        "window",
    ),
    "check": ("top_p",),
    "doctor": (),
    "doctor draft": (*MODEL, "--draft", "lab-draft", "--prompts", "PROMPTS", "--answer-tokens", "4"),
    "doctor pair": (*MODEL, "--draft", "lab-draft"),
    "export head": ("eagle3", "new", *MODEL, "--as", "speculators"),
    "gallery": ("new", "h2o"),
    "hardware": (),
    "measure loops": ("PROMPTS",),
    "measure repetition": ("--sentences", "1", "--times", "2"),
    "methods": (),
    "models": (),
    "models get": ("lab",),
    "models show": ("lab",),
    "new": ("sampler", "my_sampler"),
    "notebooks": ("new",),
    "price": ("lab-draft", "--machine", "here"),
    "report": ("--prompts", "PROMPTS", *MODEL, "--drafter", "prompt_lookup", "--max-new-tokens", "1"),
    "run": RUN,
    "trace check": ("FILE",),
    "trace export": ("FILE", "--csv", "new.csv"),
    "trace find": ("FILE", "first reject"),
    "trace fork": ("FILE", "--step", "1", "--trace", "new.dstrace"),
    "trace show": ("FILE",),
    "train head": ("eagle3", *MODEL, "--prompts", "PROMPTS", "--out", "new", "--tokens", "1"),
    "workload": (*MODEL, "--prompts", "PROMPTS", "--requests", "1", "--max-new-tokens", "1"),
}

BENCH = {"prompt_file": ("decode",)}  # the subcommand that an option belongs to, if it is not labbench
MEASURING = "Measuring this machine where that was not done before; this takes some seconds.\n"


COMMANDS = command_parsers()
ACTIONS = [(name, x) for name, sub in COMMANDS.items() for x in sub._actions]


def taking(kind: Callable[[str], object]) -> list[tuple[str, argparse.Action]]:
    return [(name, action) for name, action in ACTIONS if action.type is kind]


def ids(value: object) -> str | None:
    # a value that is no str is an Action
    return value if isinstance(value, str) else "/".join(value.option_strings) or value.dest  # type: ignore[attr-defined]


def test_every_command_and_every_option_that_shows_a_path_is_among_them() -> None:
    assert set(BASE) == set(COMMANDS)
    assert (
        all(x.type is path_argument for _, x in ACTIONS if x.metavar in PATHS)
        and len(taking(path_argument)) > 40
        and len(taking(device)) > 8
    )
    assert len(taking(model_argument)) > 30 and all(
        x.type is model_argument for _, x in ACTIONS if x.metavar == "M"
    )


NOWHERE = ("", "a\0b", "~nobody-lives-here/x", "n" * 300, "n/" * 2100)  # names that no file can have
BAD = {  # by metavar: a path of the wrong type, or one that does not exist
    "F": ("box", "missing", "no/folder/x", "plain/x", "latin"),
    "FILE": ("box", "missing", "no/folder/x", "plain/x", "latin"),
    "TRACE": ("box", "missing", "no/folder/x", "plain/x"),
    "OUT": ("box", "plain", "no/folder/x", "plain/x"),
    "DIR": ("plain", "plain/x"),
}
REPORTING = ("doctor",)  # reports what is wrong with a folder and does not refuse


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder: a file, a folder with content, a text in another encoding, prompts, a trace."""
    (tmp_path / "plain").write_text("some text\n")
    (tmp_path / "latin").write_bytes("Übermut und Ärger\n".encode("latin-1"))
    (tmp_path / "PROMPTS").write_text("one two\nthree four\n")
    (tmp_path / "FILE").write_bytes((EXAMPLES / "h2o.dstrace").read_bytes())
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "inside").write_text("x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def served(*rest: object, **more: object) -> None:
        raise AssertionError("the lab was served")

    monkeypatch.setattr(uvicorn.Server, "run", served)
    return tmp_path


def argv(name: str, action: argparse.Action, value: str) -> list[str]:
    """The words of a command with this value for one of its options or arguments."""
    words = list(BENCH.get(action.dest, BASE[name]) if name == "bench" else BASE[name])
    if action.option_strings:
        option = action.option_strings[0]
        if option in ("--prompt-file", "--messages") and "--prompt" in words:
            at = words.index("--prompt")
            del words[at : at + 2]
        if option in words:
            words[words.index(option) + 1] = value
            return [*name.split(), *words]
        return [*name.split(), *words, option, value]
    if (name, action.dest) == ("report", "file"):
        return [name, value]
    positional = [x for x in COMMANDS[name]._actions if not x.option_strings]
    words[positional.index(action)] = value
    return [*name.split(), *words]


def refused(said: Said, words: list[str], about: str) -> None:
    """A command line is refused in one sentence about this value, and nothing is written."""
    before = {*Path().rglob("*")}
    code, out, err = said(*words)
    shown = [x if len(x) < 60 else f"{x[:20]}…" for x in words]
    assert (code, out) == (2, ""), (shown, code, out, err)
    sentence = err.removeprefix(MEASURING)
    assert sentence.count("\n") == 1 and sentence.endswith(".\n") and len(sentence) < 700, (shown, err)
    assert not [x for x in ("Traceback", "Error:", "went wrong inside", "Errno") if x in err], (shown, err)
    assert about in err, (shown, err, "it is refused for something else")
    assert {x for x in Path().rglob("*") if x.parts[0] != "data"} <= before, (shown, "something was written")


def turn(name: str, action: argparse.Action) -> str:
    """One value of NOWHERE, and another one for the next option.

    All of them pass through the same few lines, which the next test covers.
    """
    return NOWHERE[[(at, x.dest) for at, x in ACTIONS].index((name, action.dest)) % len(NOWHERE)]


def test_a_name_that_no_file_can_have_is_refused_by_the_types_of_the_options() -> None:
    for value in NOWHERE:
        for kind, says in ((path_argument, "is no path: "), (model_argument, "is no name of a model: ")):
            with pytest.raises(argparse.ArgumentTypeError, match=says):
                kind(value)
        if value:
            with pytest.raises(argparse.ArgumentTypeError, match="is no path: "):
                name_and_path(f"medusa={value}")
            with pytest.raises(argparse.ArgumentTypeError, match="is no name of a model: "):
                role_and_model(f"large={value}")
    assert (
        path_argument("~/x").endswith("/x")
        and "~" not in path_argument("~/x")
        and path_argument("-") == "-"
        and path_argument("a/b") == "a/b"
    )
    long = "lab@head_subset heads=" + "0.1," * 100
    assert model_argument(long) == long, "only the name of the folder has a longest length"


@pytest.mark.parametrize(("name", "action"), taking(path_argument), ids=ids)
@sizes("every", usual=2, full=1)
def test_what_is_no_file_or_folder_is_refused(
    every: int, name: str, action: argparse.Action, folder: Path, said: Said
) -> None:
    refused(said, argv(name, action, turn(name, action)), "is no path: ")
    for value in () if name in REPORTING else BAD[str(action.metavar)][len(name) % every :: every]:
        refused(said, argv(name, action, value), value.removesuffix("/x"))


@pytest.mark.parametrize(("name", "action"), taking(model_argument), ids=ids)
def test_what_is_no_name_of_a_model_is_refused(
    name: str, action: argparse.Action, folder: Path, said: Said
) -> None:
    refused(said, argv(name, action, turn(name, action)), "is no name of a model: ")


@pytest.mark.parametrize(
    "value", ["a\nb", "../../nope", "./plain", "ü ber", "lab+" + "y" * 5000, "lab@" + "z" * 5000, "lab+.."]
)
def test_a_model_that_is_not_here_is_refused_where_it_is_loaded(value: str, folder: Path, said: Said) -> None:
    """Also for the draft model and for a model in a role; long names are shown without their middle."""
    shown = value.replace("\n", "\\n")[:30].partition("@")[0]
    refused(said, ["run", "--model", value, "--prompt", "x"], shown)
    draft = [*MODEL, "--prompt", "x", "--drafter", "draft_model"]
    refused(said, ["run", *draft, "--draft", value], shown)
    refused(said, ["run", *draft, "--role", f"draft={value}"], shown)


@pytest.mark.parametrize(("option", "kind"), [("--head", name_and_path), ("--role", role_and_model)])
def test_a_pair_whose_second_half_is_nothing_is_refused(
    option: str, kind: object, folder: Path, said: Said
) -> None:
    taken = [name for name, action in ACTIONS if option in action.option_strings]
    assert len(taken) > 5 and all(x.type is kind for _, x in ACTIONS if option in x.option_strings)
    for name in taken:
        first = "medusa" if option == "--head" else "large"
        refused(said, [*name.split(), *BASE[name], option, f"{first}={NOWHERE[1 + len(name) % 4]}"], "is no ")
        refused(said, [*name.split(), *BASE[name], option, f"{first}="], " must be ")


@pytest.mark.parametrize(("name", "action"), taking(device), ids=ids)
def test_a_device_that_is_not_here_is_refused(
    name: str, action: argparse.Action, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    value = ("cuda", "cuda:7", "mps")[len(name) % 3]
    refused(said, argv(name, action, value), f"{value} was asked for and ")


@pytest.mark.parametrize("value", ["nonsense", "", "cuda:x", "cuda:100", "cpu:0", "meta", "CUDA"])
def test_what_is_no_device_is_refused(value: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no device: use cpu, cuda, cuda:N or mps"):
        device(value)


FILES = [x for x in taking(path_argument) if x[1].metavar in ("F", "FILE")]


@pytest.mark.parametrize(("name", "action"), FILES, ids=ids)
def test_a_file_that_may_not_be_read_is_refused(
    name: str, action: argparse.Action, folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operating system's word, whoever runs the tests."""
    (folder / "locked").write_text("some text")

    def opened(opening: Callable[..., object]) -> Callable[..., object]:
        def open_(file: object, *rest: object, **more: object) -> object:
            if str(file).endswith("locked"):
                raise PermissionError(13, "Permission denied", "locked")
            return opening(file, *rest, **more)

        return open_

    monkeypatch.setattr(io, "open", opened(io.open))
    monkeypatch.setattr(builtins, "open", opened(builtins.open))
    refused(said, argv(name, action, "locked"), "ermission denied")


def test_no_knob_takes_what_is_no_file(folder: Path, said: Said) -> None:
    """A file, the text of a file, and a calibrated value."""
    run = ["run", *RUN, "--drafter"]
    for value in (*NOWHERE[1:], "box", "missing", "latin"):
        about = value.removesuffix("/x")[:20].replace("\0", "\\x00")
        refused(said, [*run, "rest", "--set", f"drafter.datastore={value}"], about)
        refused(
            said, [*run, "llma", "--set", f"drafter.reference=@{value}"], "The text for drafter.reference, "
        )
        calibrated = f"adaptive_depth.threshold=calibrated:./{value}"
        refused(said, ["run", *RUN, "--adaptive-depth", "confidence_exit", "--set", calibrated], about[:5])


def test_a_lab_that_could_record_nothing_is_not_opened(
    folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is also not measured for figures that could not be saved."""
    making = Path.mkdir

    def mkdir(self: Path, *rest: int, **more: bool) -> None:
        if "closed" in self.parts:
            raise PermissionError(13, "Permission denied", str(self))
        making(self, *rest, **more)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    place = shorten_path(str(folder / "closed" / "traces"))
    why = f"Nothing can be kept in {place} (Permission denied): choose another folder with --data.\n"
    assert said("app", "--no-browser", "--data", str(folder / "closed")) == (2, "", why)
    assert said("hardware", "--data", str(folder / "closed"))[0] == 2
    file = "Nothing can be kept in plain (it is a file): choose another folder with --data.\n"
    assert said("hardware", "--data", "plain")[2] == file


def test_an_empty_word_is_shown_as_one(said: Said) -> None:
    assert said("methods", "--json", "")[2] == "Unrecognized arguments: ''; see decodescope --help.\n"
